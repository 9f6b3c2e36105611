import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { EndedCall, OpenCall } from "../mail/call-store.ts";
import type { Disk } from "../mail/disk.ts";
import type { CallOfResult } from "../mail/envelope.ts";
import type { Running } from "../mail/running.ts";
import { openSettings, projectPolicy, projectSettingsPath } from "../mail/settings.ts";
import { pathField } from "../mail/text.ts";
import type { ToolPolicy } from "../mail/tool-policy.ts";

/** A call, for whoever looks at it. */
export interface CallView {
	id: string;
	/** Its tool, by the label that the policy gives it, too. */
	tool: string;
	/** Its arguments as JSON. */
	arguments: string;
	/** When it was made, in milliseconds since 1970. */
	started: number;
	state: "pending" | "running" | EndedCall["state"];
	/** When it ended, in milliseconds since 1970. */
	finished?: number;
	/** Whether its model has its turn back. */
	isDetached: boolean;
	/** What it said last, at most 50 lines, the newest at the end. */
	progress: string[];
	/** Of one that has ended: how its result begins. */
	resultLine?: string;
}

/** A call that waits for a decision, for whoever looks at it. */
export interface PendingTicket {
	id: string;
	/** The address of its session. */
	session: string;
	/** The tool and its main argument, in one line. */
	call: string;
	/** The call with all its arguments, and their line breaks. */
	whole: () => string;
	/** What is asked. */
	message: string;
	/** When it was asked, in milliseconds since 1970. */
	since: number;
}

/** A call that was asked about and not made. */
export interface NotMade {
	/** That it was not made, and what comes of it. */
	text: string;
	/** It is decided about: the decision is told as mail, and says so. */
	isDecided: boolean;
}

/** What of a policy for tools cannot be done: one sentence, and how to mend it. */
export interface PolicyProblem {
	what: string;
	mend: string;
	/** It may be meant, such as a rule for tools that are not always there: only who asks is told. */
	isMaybeMeant?: boolean;
}

/** The person's policy, or that of the trusted project, of a session that was started without any: it has neither. */
export function unusedPolicy(
	{ disk, settingsFile, now }: { disk: Disk; settingsFile: () => string; now: () => number },
	ctx: Pick<ExtensionContext, "cwd" | "isProjectTrusted">,
): PolicyProblem | undefined {
	const options = { disk, now, warn() {} };
	const own = openSettings({ ...options, file: settingsFile() }).read().toolPolicy;
	const ofProject = ctx.isProjectTrusted() ? projectPolicy(ctx.cwd, options) : undefined;
	// A file that cannot be read now may have none.
	const isSet = (policy: ToolPolicy | undefined) =>
		policy !== undefined && policy.brokenBecause?.endsWith("cannot be read") !== true;
	if (!isSet(own) && !isSet(ofProject)) return undefined;
	const where = isSet(own) ? "" : ` in ${pathField(projectSettingsPath(ctx.cwd))}`;
	return {
		what: `toolPolicy is set${where}, but this session was started without it, so none of it holds here`,
		mend: "restart Pi; /reload is not enough",
	};
}

/** The calls of a session's model, where its settings name tools that may be suspended. */
export interface Calls {
	/** This process receives the session's mail from now on: what earlier ones have asked a person is its own. */
	takeInLeft(): void;
	/** An interrupt has come: every attached call is detached, and every wait ends. */
	interrupt(): void;
	/** Cancels calls by their ids, or all detached ones; returns the ids of those that ran. */
	cancel(ids?: readonly string[]): string[];
	/** Cancels the calls that the model waits for: it is told that they were. Returns their ids. */
	cancelAttached(): string[];
	/** Mail may have come. */
	mailCame(): void;
	/** The calls that run or wait for their turn, in the order in which they were made. */
	views(): CallView[];
	/** The last of those that have ended after they were detached, at most 50, the newest first. */
	recent(): CallView[];
	/** Calls `listener` when there is something new about a call. The returned function ends that. */
	watch(listener: () => void): () => void;
	/** How a call ended, with its result; undefined when nothing is kept of it. Throws the disk's errors. */
	ended(id: string): EndedCall | undefined;
	/** Where that lies. */
	pathOf(id: string): string;
	/** The calls of all sessions that wait for a decision, the oldest first. */
	tickets(): PendingTicket[];
	/** Decides about one of them, as the person at this session. Throws nothing. */
	decide(id: string, isApproved: boolean, reason?: string): { ok: boolean; message: string };
	/** What is known of a call by its ticket when it was not made; undefined once that is used. Throws the disk's errors. */
	notMade(ticket: string): NotMade | undefined;
	/** What decides about a call, and why, as lines for people. */
	explain(tool: string, args: unknown): string[];
	/** What of the settings cannot be done. */
	problems(): readonly PolicyProblem[];
	/** Ends all calls; those that are detached become mail as cancelled, or at the next start, unless the session goes on at once. */
	close(goesOn: boolean): void;
}

/** What calls need of their session. */
export interface CallsParts {
	readonly address: string;
	/** Milliseconds since 1970. */
	now: () => number;
	/** The hop count of the run. */
	hops: () => number;
	/** How many run at once. */
	maxCalls: () => number;
	/** Whether a result could come as mail: this process receives the session's mail, and a run may be started for it. */
	mayDetach: () => boolean;
	/** Whether mail waits that the model is to read next. */
	hasMail: () => boolean;
	/** Notes a call that is detached; false, with a warning, when the disk does not take it. */
	open: (call: OpenCall) => boolean;
	/** Makes its end mail; false, with a warning, when the disk does not take it yet. */
	end: (call: EndedCall) => boolean;
	/** How a call ended; undefined when nothing is kept of it. Throws the disk's errors. */
	ended: (id: string) => EndedCall | undefined;
	/** Where its result lies. */
	pathOf: (id: string) => string;
	/** The number of calls has changed. */
	changed: () => void;
}

/** The calls that go on though their model has its turn back, in the order in which they were made. */
export function detachedCalls(calls: Calls | undefined): CallView[] {
	return calls?.views().filter(({ isDetached }) => isDetached) ?? [];
}

/** What a list says of a call: how its result begins, what it said last, or with what it was made. */
export function lastLine({ resultLine, progress, arguments: args }: CallView): string {
	return resultLine ?? progress.at(-1) ?? args;
}

/** What a policy for tools needs of its session besides. */
export interface PolicyParts extends CallsParts {
	/** Its mailbox folder, and the disk that it is on. */
	readonly folder: string;
	readonly disk: Disk;
	/** Tells the session itself what was decided about a call, as mail, once; false when the disk does not take it yet. */
	tell: (call: CallOfResult, text: string) => boolean;
	/** Whether the session ends, and nobody will ever resume it. */
	isOver: () => boolean;
	/** Whether a session runs that this names. */
	isRunning: (name: string) => boolean;
	/** Asks another session to decide about a ticket, as a message; once, however often it is called. */
	askApprover: (ticket: string, name: string, text: string) => void;
	/** The mail root, and who runs. */
	root: string;
	running: Pick<Running, "find" | "list">;
	/** Shows others for which decisions this session waits, and its person how many there are to make. */
	waitsForApproval: (tickets: readonly string[], toDecide: number) => void;
	/** Tells the person something once, where there is a screen. */
	notify: (text: string) => void;
	warn: (text: string) => void;
}
