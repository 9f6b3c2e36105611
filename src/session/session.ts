import { existsSync, statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type {
	AgentSettledEvent,
	ExtensionAPI,
	ExtensionContext,
	SessionShutdownEvent,
	SessionStartEvent,
	TurnEndEvent,
	TurnEndEventResult,
} from "@earendil-works/pi-coding-agent";
import { canonicalAddress, isAddress } from "../mail/address.ts";
import { type Disk, errorMessage } from "../mail/disk.ts";
import type { Envelope } from "../mail/envelope.ts";
import { type Claim, type Mailbox, type OpenMail, openMailbox, type SentCopy } from "../mail/mailbox.ts";
import type { Processes } from "../mail/process.ts";
import { ensureRoot } from "../mail/root.ts";
import { openRunning, type Running } from "../mail/running.ts";
import { createAnswers } from "./answers.ts";
import { createGate } from "./gate.ts";
import { createHandover } from "./handover.ts";
import { createHops } from "./hops.ts";
import { createInbox } from "./inbox.ts";
import { labelled } from "./label.ts";
import { createLedger, type Note, noteType } from "./ledger.ts";
import { createPresence } from "./presence.ts";
import { inSlices } from "./slices.ts";

/** What a session needs of the machine. Tests pass their own. */
export interface Machine {
	disk: Disk;
	processes: Processes;
	/** Milliseconds since 1970. */
	now: () => number;
	/** The mail root (see `root.ts`). */
	root: () => string;
}

/** A Pi session with its mailbox, from `session_start` to `session_shutdown`. Its methods are named for Pi's events. */
export interface MailSession {
	readonly mailbox: Mailbox;
	readonly running: Running;
	resourcesDiscovered(): void;
	input(): void;
	agentStarted(): void;
	/** Before each request to the model. */
	context(): void;
	turnEnded(event: TurnEndEvent): TurnEndEventResult | undefined;
	settled(event: AgentSettledEvent): void;
	renamed(name: string | undefined): void;
	/** Shows in the footer what changed. */
	refresh(): void;
	shutDown(event: SessionShutdownEvent): void;
}

/** Mail with which Pi ended this often is not handed over again (design D12). */
const maxTries = 3;

/**
 * Opens the mailbox of the session that just started and begins to receive. Throws when it can have none: the mail root
 * cannot be used, or its id cannot be an address.
 */
export function openSession(
	pi: ExtensionAPI,
	ctx: ExtensionContext,
	start: SessionStartEvent,
	{ disk, processes, now, root }: Machine,
): MailSession {
	const id = ctx.sessionManager.getSessionId();
	if (!isAddress(id))
		throw new Error(`the session id "${id}" cannot be an address; start Pi with another --session-id`);
	const address = canonicalAddress(id);
	const warn = createWarnings(ctx);
	const mailRoot = root();
	ensureRoot(disk, mailRoot);
	const mailbox = openMailbox({ disk, root: mailRoot, address, now, durability: "durable" });
	warnIfOpenToOthers(mailbox.folder, warn);
	const running = openRunning({ disk, root: mailRoot, processes, now, warn: (path, why) => warn(`${path}: ${why}`) });

	const conversation = createConversation(pi, ctx);
	const ledger = createLedger(address);
	const inbox = createInbox(mailbox, warn);
	const hops = createHops();
	const gate = createGate(guarded(opened));
	const handover = createHandover({
		mailbox,
		inbox,
		ledger,
		conversation,
		show,
		isLateAnswer,
		onWake: hops.arrived,
		now,
	});
	const answers = createAnswers({ mailbox, ledger, branch: () => ctx.sessionManager.getBranch(), note, warn });
	const fields = { name: pi.getSessionName(), cwd: ctx.cwd, state: "idle", waitingOn: "" } as const;
	const presence = createPresence(running, address, fields, warn);

	/** In print and JSON mode a run that mail starts would make the prompt fail (design D20). */
	const canWake = ctx.mode === "tui" || ctx.mode === "rpc";
	let isOwner = presence.isOwner();
	/** Whether what earlier processes left is taken in: until then nothing is handed over, to keep the order. */
	let isReady = false;
	let isClosed = false;
	let cancelRecovery = () => {};
	/** The last entry before the run; undefined while none runs. */
	let runStart: { leaf: string | null } | undefined;
	let shownStatus: string | undefined;

	ledger.read(conversation.entries());
	if (isOwner) recover(start.reason !== "reload");
	if (canWake) inbox.watch(guarded(pump));

	/** Mail that arrives, a gate that opens, a run that settled: all of it ends here. */
	function pump(): void {
		const wasOwner = isOwner;
		isOwner = presence.isOwner();
		if (isOwner && !wasOwner) takeOver();
		if (isOwner && isReady) {
			if (!ctx.isIdle()) {
				if (handover.whenBusy()) setImmediate(guarded(pump));
			} else if (gate.isOpen) handover.whenIdle();
			else inbox.look();
		}
		refresh();
	}

	/** No prompt came, or the one that came started no run: what mail starts now is its own. */
	function opened(): void {
		if (ctx.isIdle()) hops.settled();
		if (canWake) pump();
	}

	/** The process that had this session is gone. What it added is in the session's file, and not in this process. */
	function takeOver(): void {
		isReady = false;
		const file = ctx.sessionManager.getSessionFile();
		const entries = file === undefined ? Promise.resolve([]) : entriesOf(file);
		void entries.then((found) => {
			if (isClosed) return;
			ledger.include(found);
			recover(true);
		});
	}

	/** Takes in what earlier processes left, in slices. */
	function recover(isRestart: boolean): void {
		const left: OpenMail[] = [];
		const work = function* (): Generator<Claim | string | undefined> {
			yield* mailbox.leftOpen();
			yield* mailbox.recount();
		};
		const step = (found: Claim | string | undefined) => {
			if (typeof found === "string") warn(found);
			else if (found?.result === "claimed") left.push(found.mail);
			else if (found?.result === "dead") warn(`${found.path} cannot be delivered and was set aside: ${found.reason}`);
		};
		const done = () => {
			for (const mail of left) guarded(() => resume(mail, isRestart))();
			isReady = true;
			guarded(() => answers.settleRestart(isRestart))();
			guarded(answers.retry)();
			if (canWake) guarded(pump)();
		};
		cancelRecovery = inSlices(work(), step, done, warn);
	}

	function resume(mail: OpenMail, isRestart: boolean): void {
		if (mail.tries + 1 < maxTries || ledger.has(mail.envelope)) {
			handover.resume(mail, isRestart);
			return;
		}
		const reason = `Pi ended ${mail.tries + 1} times before this mail was in the conversation`;
		answers.giveUp(mail, reason);
		mailbox.bury(mail.name, reason);
		warn(`${mail.path} was set aside: ${reason}`);
	}

	function answeredBy(envelope: Envelope): SentCopy[] {
		try {
			return mailbox.sentCopies(envelope.in_reply_to);
		} catch (error) {
			warn(`the copies in ${mailbox.folder} cannot be read: ${errorMessage(error)}`);
			return [];
		}
	}

	function isLateAnswer({ envelope }: OpenMail): boolean {
		return envelope.status === "done" && answeredBy(envelope).some((asked) => asked.envelope.kind === "ask");
	}

	function show({ envelope, path }: OpenMail): string {
		const requests = answeredBy(envelope);
		const late = requests.some((request) => request.envelope.kind === "ask");
		return labelled({ envelope, sender: running.find(envelope.from), path, requests, late });
	}

	function note(content: Note): void {
		pi.appendEntry(noteType, content);
		ledger.read(conversation.entries());
	}

	function refresh(): void {
		mailbox.saveState();
		if (!ctx.hasUI) return;
		const counts = {
			pending: isOwner ? inbox.waitingCount + handover.claimedCount + handover.unsavedCount : 0,
			read: ledger.readCount - handover.unsavedCount,
			awaiting: mailbox.awaitingCount(),
		};
		const shown = Object.entries(counts).flatMap(([what, count]) => (count > 0 ? [`${count} ${what}`] : []));
		const status = shown.length === 0 ? undefined : `✉ ${shown.join(" · ")}`;
		if (status !== shownStatus) ctx.ui.setStatus("mailbox", status);
		shownStatus = status;
	}

	/** For callbacks: after the end of the session they do nothing, and an error of ours does not end Pi. */
	function guarded(action: () => void): () => void {
		return () => {
			if (isClosed) return;
			try {
				action();
			} catch (error) {
				if (isStale(ctx)) end(false);
				else warn(errorMessage(error));
			}
		};
	}

	function end(keepRecord: boolean): void {
		isClosed = true;
		cancelRecovery();
		inbox.close();
		gate.close();
		presence.end(keepRecord);
	}

	return {
		mailbox,
		running,
		resourcesDiscovered: () => gate.resourcesLoaded(),
		input() {
			if (ctx.isIdle()) gate.prompted();
			hops.userInput();
		},
		agentStarted() {
			gate.ranOrSettled();
			if (runStart !== undefined) return;
			runStart = { leaf: ctx.sessionManager.getLeafId() };
			presence.update({ state: "busy" });
		},
		context() {
			handover.conclude();
			refresh();
		},
		turnEnded({ outcome, toolResults, entries }) {
			if (!isOwner || !isReady || outcome !== "completed" || toolResults.length === 0) return undefined;
			// A turn whose tool the user stopped counts as completed for Pi.
			if (ctx.signal?.aborted === true) return undefined;
			const { messages, wakes } = handover.atTurnEnd();
			if (messages.length === 0) return undefined;
			const added = messages.map((message) => ({ type: "custom_message" as const, ...message }));
			return { entries: [...entries, ...added], ...(wakes ? { continue: true } : {}) };
		},
		settled({ aborted }) {
			guarded(() => {
				handover.conclude();
				if (!isOwner) return;
				const takeUnread = () => (isReady ? handover.afterStop() : []);
				answers.settleRun({ runStart: runStart?.leaf ?? null, aborted, hops: hops.count, takeUnread });
			})();
			runStart = undefined;
			hops.settled();
			gate.ranOrSettled();
			presence.update({ state: "idle" });
			if (canWake) setImmediate(guarded(pump));
			guarded(refresh)();
		},
		renamed: (name) => presence.update({ name }),
		refresh,
		shutDown({ reason }) {
			guarded(() => {
				if (shownStatus !== undefined) ctx.ui.setStatus("mailbox", undefined);
				// Nobody will ever resume a session without a file.
				if (isOwner && reason !== "reload" && ctx.sessionManager.getSessionFile() === undefined) answers.settleEnd();
				mailbox.saveState();
			})();
			end(reason === "reload");
		},
	};
}

function createConversation(
	pi: ExtensionAPI,
	ctx: ExtensionContext,
): Parameters<typeof createHandover>[0]["conversation"] {
	let hasFile = false;
	return {
		isIdle: () => ctx.isIdle(),
		entries: () => ctx.sessionManager.getEntries(),
		isSaved() {
			const file = ctx.sessionManager.getSessionFile();
			hasFile ||= file === undefined || existsSync(file);
			return hasFile;
		},
		add: (message, startsRun) =>
			pi.sendMessage(message, startsRun ? { triggerTurn: true, deliverAs: "steer" } : { triggerTurn: false }),
	};
}

/** Whether a host has ended the session without `session_shutdown`. */
function isStale(ctx: ExtensionContext): boolean {
	try {
		return ctx.sessionManager === undefined;
	} catch {
		return true;
	}
}

/** One warning per text, where this mode shows it. */
function createWarnings(ctx: ExtensionContext): (text: string) => void {
	const given = new Set<string>();
	return (text) => {
		if (given.has(text)) return;
		given.add(text);
		if (ctx.hasUI) ctx.ui.notify(`mailbox: ${text}`, "warning");
		else console.error(`mailbox: ${text}`);
	};
}

function warnIfOpenToOthers(folder: string, warn: (text: string) => void): void {
	if (process.platform === "win32" || (statSync(folder).mode & 0o077) === 0) return;
	warn(`other users can look into this session's mailbox; run: chmod 700 ${folder}`);
}

async function entriesOf(sessionFile: string): Promise<unknown[]> {
	const text = await readFile(sessionFile, "utf8").catch(() => "");
	return text.split("\n").flatMap((line) => {
		try {
			return [JSON.parse(line)];
		} catch {
			return [];
		}
	});
}
