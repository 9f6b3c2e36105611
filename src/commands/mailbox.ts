import { writeSync } from "node:fs";
import type { ExtensionAPI, ExtensionCommandContext, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { shortAddress } from "../mail/address.ts";
import { errorReason } from "../mail/disk.ts";
import { reportOf } from "../mail/doctor.ts";
import type { Finding, Findings } from "../mail/finding.ts";
import { displayName, resolve } from "../mail/resolve.ts";
import type { RunningSession } from "../mail/running.ts";
import { field, pathField } from "../mail/text.ts";
import { typedArguments } from "../mail/tool-policy.ts";
import type { Calls, PolicyProblem } from "../session/calls.ts";
import type { MailSession } from "../session/session.ts";
import { inSlices } from "../session/slices.ts";
import { isStale } from "../session/warnings.ts";
import { tabs } from "../view/memory.ts";
import type { ScreenControl } from "./screen.ts";
import { describe } from "./words.ts";

const elsewhere = "another process has this session open and receives its mail; close one of the two.";
/** What a person changes about this session's mail. */
const changes = ["on", "off", "pause", "resume"] as const;
type Change = (typeof changes)[number];
const usage = "Nothing was sent: type /mailbox <to> <text>, where <to> is a session's name or id.";
/** Before a recipient. */
const flagPattern = /^--(quiet|interrupt)(?:\s+|$)/;
const flags = {
	quiet: "send a message that starts no turn",
	interrupt: "end what the session waits for: its model gets this with its next request",
};

/** What the command shows and asks besides the session. */
interface CommandParts {
	/** The session that has the mailbox; without one, `reasonOff` says why. */
	current: () => MailSession | undefined;
	reasonOff: () => string;
	screen: Pick<ScreenControl, "open">;
	diagnose: (ctx: ExtensionContext) => Findings;
	/** The policy that the settings have and the session has not. */
	unused: (ctx: ExtensionContext) => PolicyProblem | undefined;
}

/**
 * Registers `/mailbox`: this session's address, a request to another session, mail off and on, pruning, and what the
 * screen shows. `diagnose` works without a session.
 */
export function registerMailboxCommand(
	pi: ExtensionAPI,
	{ current, reasonOff, screen, diagnose, unused }: CommandParts,
): void {
	pi.registerCommand("mailbox", {
		description: "Show this session's address, or send a request: /mailbox <to> <text>",
		getArgumentCompletions: (typed) => completions(typed, current()),
		async handler(argument, ctx) {
			const session = current();
			const typed = argument.trim();
			const tab = tabs.find((known) => known === typed);
			const word = changes.find((known) => known === typed);
			const isShown = (tab !== "calls" && tab !== "approvals") || session?.calls !== undefined;
			if (tab !== undefined && ctx.mode === "tui" && session !== undefined && isShown) await screen.open(ctx, tab);
			else if (tab === "doctor") say(ctx, await inTurns(report(diagnose(ctx))));
			else if (session === undefined && tab !== undefined)
				refuse(ctx, typed, `The mailbox cannot be shown: this session has none, because ${reasonOff()}.`);
			else if (session === undefined)
				refuse(ctx, typed, `Nothing was sent: this session has no mailbox, because ${reasonOff()}.`);
			else if (tab !== undefined) say(ctx, await inTurns(describe(session, tab)));
			else if (typed === "") showAddress(session, ctx, pi.getSessionName());
			// With a text behind it, each of these words but the last is the name of a session.
			else if (word !== undefined) change(session, ctx, word);
			else if (typed === "prune")
				session.prune((count) => say(ctx, `Removed ${count} mailbox folders of closed sessions`));
			else if (/^policy(?:\s|$)/.test(typed)) showPolicy(session.calls, unused, ctx, typed);
			else send(session, ctx, typed);
		},
	});
}

/** A recipient and a text, as typed after `/mailbox`. */
export interface Addressed {
	to: string;
	text: string;
	flag?: keyof typeof flags;
}

/**
 * Splits what was typed. The recipient is the longest running session's name that it starts with, or in quotes, or the
 * first word; a flag may stand before it. Undefined when there is no recipient or no text.
 */
export function parseArgument(argument: string, names: Iterable<string>): Addressed | undefined {
	const [typed, flag] = flagPattern.exec(argument) ?? [];
	if (typed !== undefined) {
		const parsed = parseArgument(argument.slice(typed.length), names);
		return parsed && { ...parsed, flag: flag === "quiet" ? "quiet" : "interrupt" };
	}
	if (/\s/.test(argument) && [...names].includes(argument)) return undefined;
	let longest = "";
	for (const name of names) {
		const rest = argument.slice(name.length);
		if (argument.startsWith(name) && /^\s/.test(rest) && name.length > longest.length) longest = name;
	}
	if (longest !== "") return addressed(longest, argument.slice(longest.length));
	const quoted = /^(["'])(.*?)\1(?:\s+|$)(.*)$/s.exec(argument);
	if (quoted !== null) return addressed(quoted[2], quoted[3]);
	const words = /^(\S+)\s+(.*)$/s.exec(argument);
	return addressed(words?.[1], words?.[2]);
}

function addressed(to: string | undefined, text: string | undefined): Addressed | undefined {
	const body = text?.trim() ?? "";
	return to === undefined || to === "" || body === "" ? undefined : { to, text: body };
}

/** The running sessions that a recipient could be completed to; nothing once a text has begun. */
function completions(typed: string, session: MailSession | undefined) {
	if (session === undefined) return null;
	const running = session.running.list();
	const self = session.mailbox.address;
	const addresses = addressesOf(running);
	const names = running.flatMap(({ name }) => name ?? []);
	const once = new Set(names);
	const shared = new Set(names.filter((name) => !once.delete(name)));
	const flag = flagPattern.exec(typed)?.[0] ?? "";
	const start = typed.slice(flag.length).replace(/^["']/, "").toLowerCase();
	const items = running.flatMap((other) => {
		const isShared = other.name !== undefined && shared.has(other.name);
		const label = displayName(other, addresses) + (isShared ? ` (${shortAddress(other.address, addresses)})` : "");
		const fits = label.toLowerCase().startsWith(start) || other.address.startsWith(start);
		if (!fits || other.address === self) return [];
		const description = `${other.state} · ${pathField(other.cwd)}`;
		return [{ value: `${flag}${spelling(other, running, self, names)} `, label, description }];
	});
	if (flag !== "") return items.length > 0 ? items : null;
	for (const [name, description] of Object.entries(flags)) {
		if (start !== "" && `--${name}`.startsWith(start))
			items.push({ value: `--${name} `, label: `--${name}`, description });
	}
	// Not what is typed already: Enter would take it from the list instead of running the command.
	const words = Object.entries(ownWords).filter(([word]) => word.startsWith(start) && word !== start);
	items.push(...words.map(([word, description]) => ({ value: word, label: word, description })));
	return items.length > 0 ? items : null;
}

const ownWords = {
	off: "keep mail waiting",
	on: "let mail come again",
	pause: "let mail and results start no turn",
	resume: "go on after a pause",
	prune: "remove the mailbox folders of closed sessions",
	inbox: "show the mail to this session",
	sent: "show what this session sent",
	waiting: "show who waits for whom",
	sessions: "show the running sessions",
	calls: "show the calls that go on by themselves",
	approvals: "show the calls that wait for a decision",
	policy: "say which rule decides about a call: policy bash rm x",
	doctor: "look for what is wrong, and how to mend it",
};

/** What to type for a session: the first of its names that reaches it and nobody else. */
function spelling(
	other: RunningSession,
	running: readonly RunningSession[],
	self: string,
	names: readonly string[],
): string {
	const name = other.name ?? displayName(other, addressesOf(running));
	const reaches = (to: string) => {
		const parsed = parseArgument(`${to} text`, names);
		if (parsed === undefined) return false;
		const resolved = resolve(parsed.to, { running, self, hasMailbox: () => false });
		return resolved.ok && resolved.address === other.address;
	};
	// With a text behind it, this word is a command.
	const candidates = [...(/\s/.test(name) || name === "policy" ? [] : [name]), `"${name}"`];
	return candidates.find(reaches) ?? other.address;
}

function addressesOf(sessions: readonly RunningSession[]): string[] {
	return sessions.map(({ address }) => address);
}

function showAddress(session: MailSession, ctx: ExtensionCommandContext, name: string | undefined): void {
	const { mailbox, running } = session;
	const short = shortAddress(mailbox.address, addressesOf(running.list()));
	const named = name === undefined ? `none; other sessions see ${short} (set one with /name)` : field(name);
	const lines = [`Mailbox address: ${mailbox.address}`, `Name: ${named}`];
	if (!session.isOwner) lines.push(`Mail: ${elsewhere}`);
	say(ctx, lines.join("\n"));
}

function send(session: MailSession, ctx: ExtensionCommandContext, argument: string): void {
	const names = session.running.list().flatMap(({ name }) => name ?? []);
	const parsed = parseArgument(argument, names);
	if (parsed === undefined) {
		refuse(ctx, argument, usage);
		return;
	}
	const { to, text: body, flag } = parsed;
	const quiet = flag === "quiet";
	const priority = flag === "interrupt" ? flag : undefined;
	const sent = session.outbox.send({ to, kind: quiet ? "message" : "request", body, hops: 0, quiet, priority });
	session.refresh();
	if (!sent.ok) {
		refuse(ctx, argument, sent.message);
		return;
	}
	say(ctx, [`Sent ${sent.envelope.id} to ${sent.envelope.to}`, ...sent.notes].join("\n"));
}

function change(session: MailSession, ctx: ExtensionCommandContext, word: Change): void {
	if (!session.isOwner) {
		refuse(ctx, word, `Nothing was changed: ${elsewhere}`);
		return;
	}
	try {
		if (word === "on" || word === "off") session.receive(word === "on");
		else session.control({ op: word });
	} catch (error) {
		refuse(ctx, word, `Nothing was changed: ${errorReason(error)}.`);
		return;
	}
	say(ctx, changed(session, word));
}

function changed({ isReceiving, isPaused }: MailSession, word: Change): string {
	switch (word) {
		case "off":
			return "Mail is off: it waits until you type /mailbox on. Replies to what this session sent still come.";
		case "on":
			return `Mail is on: ${isPaused ? "what waited comes when you type /mailbox resume." : "what waited comes now."}`;
		case "pause":
			return "Paused: no mail starts a turn, and a run stops after its tools, until you type /mailbox resume.";
		case "resume":
			return `Not paused: ${isReceiving ? "what waited comes now." : "mail is off, and waits until you type /mailbox on."}`;
	}
}

function showPolicy(
	calls: Calls | undefined,
	unused: CommandParts["unused"],
	ctx: ExtensionCommandContext,
	typed: string,
): void {
	if (calls === undefined) {
		const problem = unused(ctx);
		const text =
			problem === undefined ? "No toolPolicy is set: every call is allowed" : `${problem.what}: ${problem.mend}`;
		say(ctx, `${text}.`);
		return;
	}
	const [, tool, rest = ""] = /^policy\s+(\S+)\s*(.*)$/s.exec(typed) ?? [];
	if (tool === undefined) {
		refuse(ctx, typed, "Say which call: /mailbox policy TOOL [ARGUMENT]");
		return;
	}
	const unquoted = /^(["'])(.*)\1$/s.exec(rest)?.[2] ?? rest;
	say(ctx, calls.explain(tool, typedArguments(tool, unquoted)).join("\n"));
}

function* report(findings: Findings): Generator<undefined, string> {
	const found: Finding[] = [];
	for (const finding of findings) {
		if (finding !== undefined) found.push(finding);
		yield undefined;
	}
	return reportOf(found);
}

/** Runs work that makes a text in slices. One that fails makes the text that says so. */
function inTurns(work: Generator<undefined, string>): Promise<string> {
	return new Promise((resolve) => {
		let text = "";
		function* whole(): Generator<undefined> {
			text = yield* work;
		}
		inSlices(
			whole(),
			() => {},
			() => resolve(text),
			(why) => {
				text = `The mailbox cannot be read: ${why}.`;
			},
		);
	});
}

/** Tells the person something; in print mode on standard output, so that scripts see it. Nothing once the session is over. */
function say(ctx: ExtensionCommandContext, text: string): void {
	if (isStale(ctx)) return;
	if (ctx.hasUI) ctx.ui.notify(text, "info");
	// Not console.log, which Pi has turned to standard error.
	else if (ctx.mode === "print") writeSync(1, `${text}\n`);
	// In JSON mode standard output carries Pi's events.
	else console.error(text);
}

/** Says why nothing was sent, and gives back what was typed, so that it can be mended. */
function refuse(ctx: ExtensionCommandContext, argument: string, message: string): void {
	if (ctx.hasUI) ctx.ui.notify(message, "error");
	else console.error(message);
	if (ctx.mode === "tui" && ctx.ui.getEditorText() === "") ctx.ui.setEditorText(`/mailbox ${argument}`.trim());
}
