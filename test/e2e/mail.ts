import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { FileEntry } from "@earendil-works/pi-coding-agent";
import type { Envelope } from "../../src/mail/envelope.ts";
import type { RunningRecord } from "../../src/mail/running-record.ts";
import type { MailDetails } from "../../src/session/ledger.ts";
import {
	environment,
	eventually,
	type Home,
	makeHome,
	type Pi,
	type PiEvent,
	type PiOptions,
	repository,
	run,
	startPi,
} from "../support/pi.ts";

/** This package, for sessions that load other extensions besides. */
export const ours = join(repository, "src/extension.js");

/** Another extension, from test/e2e/fixtures. */
export function fixture(name: string): string {
	return fileURLToPath(new URL(`fixtures/${name}`, import.meta.url));
}

/** A home whose settings say this about tools. */
export function homeWith(toolPolicy: object, more: object = {}): Home {
	const home = makeHome();
	writeFileSync(join(home.agentDir, "session-mail.json"), JSON.stringify({ toolPolicy, ...more }));
	return home;
}

/** Runs the program. */
export function program(home: Home, ...args: string[]): ReturnType<typeof run> {
	const cli = join(repository, "src/cli.cjs");
	return run(process.execPath, [cli, ...args], { env: environment(home), cwd: home.workDir });
}

/**
 * A session that has had an exchange with its user: it has a file, and takes mail at once. Its model has been asked once.
 */
export async function startedPi(options: PiOptions): Promise<Pi> {
	const pi = await startPi(options);
	await pi.prompt("!say hello");
	await pi.settled();
	return pi;
}

/** Two of them, by the names of author and reviewer; `reviewer` is what the latter has besides. */
export async function authorAndReviewer(home: Home, reviewer: Partial<PiOptions> = {}): Promise<[Pi, Pi]> {
	return Promise.all([startedPi({ home, name: "author" }), startedPi({ home, name: "reviewer", ...reviewer })]);
}

/** The results of tools that the model has seen, and whether they were errors. */
export function toolResults(pi: Pi): { text: string; isError: boolean }[] {
	return pi.entries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		const { content, isError } = entry.message;
		return [{ text: content.map((part) => (part.type === "text" ? part.text : "")).join(""), isError }];
	});
}

/** Their texts. */
export function results(pi: Pi): string[] {
	return toolResults(pi).map(({ text }) => text);
}

/** Waits until so many mails are in the conversation. */
export function untilMails(pi: Pi, count: number): Promise<unknown> {
	return eventually(() => mailEntries(pi).length === count, { timeoutMs: 15_000, what: `${count} mails` });
}

/** Waits until the model has begun to write (since the mark). */
export async function untilWriting(pi: Pi): Promise<void> {
	await pi.waitFor((event) => event.type === "message_update", { what: "text of the model" });
}

/** Waits until a tool call runs (since the mark). */
export async function untilInTool(pi: Pi): Promise<void> {
	await pi.waitFor((event) => event.type === "tool_execution_start", { what: "tool call" });
}

/** Types `/mailbox <argument>`; returns what Pi notifies about it. */
export async function typeMailbox(pi: Pi, argument: string): Promise<string> {
	await pi.prompt(`/mailbox ${argument}`.trim());
	return pi.waitFor((event) => notification(event), { what: `notification about /mailbox ${argument}` });
}

/** Sends a request with `/mailbox`; returns its id. Throws when Pi says something else than that it was sent. */
export async function sendRequest(pi: Pi, to: string, text: string): Promise<string> {
	const said = await typeMailbox(pi, `${to} ${text}`);
	const [, id] = /^Sent (\S+) to \S+$/m.exec(said) ?? [];
	if (id === undefined) throw new Error(`/mailbox said: ${said}`);
	return id;
}

export function notification(event: PiEvent): string | undefined {
	return event.type === "extension_ui_request" && event.method === "notify" ? event.message : undefined;
}

/** Waits until the footer reads so; `undefined`: until it shows nothing of the mailbox. */
export async function footer(pi: Pi, text: string | undefined): Promise<void> {
	await eventually(() => pi.status().get("mailbox") === text, {
		what: `The footer "${text}" (it is "${pi.status().get("mailbox")}")`,
	});
}

type Box = "tmp" | "new" | "cur" | "sent";

/** The names in a box of an address, in order. */
export function namesIn(home: Home, address: string, box: Box): string[] {
	const folder = join(home.mailRoot, address, box);
	return existsSync(folder) ? readdirSync(folder).sort() : [];
}

/** The marks of mail that was claimed and is not known to be in the conversation: it would be handed over again. */
export function openMarks(home: Home, address: string): string[] {
	return namesIn(home, address, "cur").filter((name) => name.endsWith(".open"));
}

/** Waits until nothing would be handed over to a session again. */
export async function allClosed(home: Home, address: string): Promise<void> {
	await eventually(() => openMarks(home, address).length === 0, { what: `The end of the open marks of ${address}` });
}

/** The mails in a box of an address, in order. */
export function mailsIn(home: Home, address: string, box: Box): Envelope[] {
	const names = namesIn(home, address, box).filter((name) => name.endsWith(".json"));
	return names.map((name) => JSON.parse(readFileSync(join(home.mailRoot, address, box, name), "utf8")));
}

/** The replies that have been written to a session, whether it has read them or not. */
export function repliesTo(home: Home, address: string): Envelope[] {
	// new/ before cur/, in both steps: the session may claim a mail between any two of them.
	const names = new Set([...namesIn(home, address, "new"), ...namesIn(home, address, "cur")]);
	const mails = [...names].filter((name) => name.endsWith(".json")).map((name) => mailNamed(home, address, name));
	return mails.filter((mail) => mail.kind === "reply");
}

function mailNamed(home: Home, address: string, name: string): Envelope {
	const waiting = join(home.mailRoot, address, "new", name);
	try {
		return JSON.parse(readFileSync(waiting, "utf8"));
	} catch {
		return JSON.parse(readFileSync(join(home.mailRoot, address, "cur", name), "utf8"));
	}
}

/** Waits until the one reply to this request is in the conversation of its sender; returns it. */
export async function replyTo(home: Home, pi: Pi, id: string): Promise<Envelope> {
	return eventually(
		() => {
			const replies = repliesTo(home, pi.sessionId).filter((mail) => mail.in_reply_to.includes(id));
			if (replies.length > 1) throw new Error(`${replies.length} replies to ${id}`);
			const [reply] = replies;
			return reply !== undefined && mailEntries(pi).some((entry) => entry.mail.id === reply.id) && reply;
		},
		{ timeoutMs: 15_000, what: `The reply to ${id}` },
	);
}

/** A mail in the session file: what it says of itself, the text for the model, and its place among the entries. */
export interface MailEntry {
	readonly mail: MailDetails;
	readonly text: string;
	readonly index: number;
}

/** The mails in the session file, in order. */
export function mailEntries(pi: { entries(): FileEntry[] }): MailEntry[] {
	return pi.entries().flatMap((entry, index) => {
		if (entry.type !== "custom_message" || entry.customType !== "mailbox") return [];
		const { mail } = entry.details as { mail: MailDetails };
		return [{ mail, text: `${entry.content}`, index }];
	});
}

/** What follows one another in the session file, in a word each: `user`, `assistant`, `toolResult`, `mail`. */
export function conversation(pi: { entries(): FileEntry[] }): string[] {
	return pi.entries().flatMap((entry) => {
		if (entry.type === "custom_message") return ["mail"];
		return entry.type === "message" && entry.message.role !== "system" ? [entry.message.role] : [];
	});
}

/** The running record of an address; undefined when it has none. */
export function runningRecord(home: Home, address: string): RunningRecord | undefined {
	const file = join(home.mailRoot, "running", `${address}.json`);
	return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : undefined;
}

/** Stops a session's process where it stands; returns what lets it go on. */
export function pause(home: Home, pi: Pi): () => void {
	const pid = runningRecord(home, pi.sessionId)?.pid;
	if (pid === undefined) throw new Error(`${pi.sessionId} has no running record`);
	process.kill(pid, "SIGSTOP");
	return () => process.kill(pid, "SIGCONT");
}
