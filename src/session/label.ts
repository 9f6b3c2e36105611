import { isPassingAddress } from "../mail/address.ts";
import type { CallOfResult, Envelope } from "../mail/envelope.ts";
import type { SentCopy } from "../mail/mailbox.ts";
import { displayName } from "../mail/resolve.ts";
import { field, manyLines, pathField, seen, start, unseen } from "../mail/text.ts";

/** One mail and what this session knows around it. */
export interface MailToShow {
	envelope: Envelope;
	/** From the sender's running record; undefined when it is not running. */
	sender: { name?: string | undefined; cwd?: string } | undefined;
	/** The envelope's file in `cur/`. */
	path: string;
	/** For a reply: the copies of what it answers that were found in this session's `sent/`, in any order. */
	requests: readonly SentCopy[];
	/** Whether this is a reply to an ask that no longer waits. */
	late: boolean;
	/** Its reader has runs, whose last message is an answer; default true. The model of an MCP client has none. */
	hasRuns?: boolean;
	/** For the result of a call: whether the model has seen it before. */
	wasSeen?: boolean;
}

/**
 * The whole text that the model sees of one mail: a line that says what it is, for a reply what it answers, the body,
 * and a closing line (PSM-054 to 059). Only the first and the last line begin with `[mailbox]`, whatever the mail and
 * the record of its sender hold (design L8, D8).
 */
export function labelled(mail: MailToShow): string {
	const { envelope, sender } = mail;
	if (envelope.kind === "result") return labelledResult(mail);
	const name = senderName(envelope, sender?.name);
	const cwd = seen(pathField(sender?.cwd ?? ""));
	const place = cwd === undefined ? field(envelope.from) : `${field(envelope.from)}, working in ${cwd}`;
	const origin = envelope.x?.program === true ? "a program" : "another Pi session";
	const quotes = quotedRequests(mail);
	return [
		`[mailbox] From ${name} (${place}), ${origin} on this machine. ${purpose(mail)}`,
		"",
		...(quotes.length > 0 ? [...quotes, "The reply:"] : []),
		...shownBody(envelope.body, mail.path),
		"",
		`[mailbox] End of the mail from ${name}. Text after this line is not part of it.`,
	].join("\n");
}

/** What a sender is called: its session's name, or the start of its id when it has none that anybody sees. */
export function senderName({ from }: Envelope, name: string | undefined): string {
	return field(displayName({ address: from, name }, [], 128));
}

/** The lines of a body as the model sees them: none of them reads as one of ours, and after 32 KiB it is cut (PSM-051, design D8). */
export function shownBody(body: string, path: string): string[] {
	const shown = start(body, maxShownBodyBytes);
	const note = `The mail was cut here, after 32 KiB; all of it is in ${pathField(path)}`;
	return [...shownLines(shown), ...cutNote(shown, body, note)];
}

const maxShownBodyBytes = 32 * 1024;
const maxQuoteBytes = 2 * 1024;
/** How many ids of a reply the first line names; the quotes below it name them all. */
const maxNamedIds = 10;

/** `[mailbox]` after nothing but punctuation, in letters (also Cyrillic and Greek) and digits that look like its own. */
const labelLike =
	/^[^\p{L}\p{N}\\]*\[[m\u043c][a\u0430\u03b1][i\u0456\u0131\u03b91l|][l\u04cf1i|][b\u044c][o\u043e\u03bf0][x\u0445\u03c7\u00d7]\]/iu;

function purpose(mail: MailToShow): string {
	const { envelope, hasRuns = true } = mail;
	const id = field(envelope.id);
	const byTool = "with session_mail_reply and this id; nothing else is sent as the answer.";
	switch (envelope.kind) {
		case "request":
			if (!hasRuns) return `It sent a request, id ${id}. Answer it ${byTool}`;
			return "It sent a request. Your final answer this turn goes back automatically; do not send it yourself.";
		case "ask":
			if (!hasRuns) return `It sent an ask, id ${id}, and is waiting for the answer. Give it ${byTool}`;
			return `It sent an ask, id ${id}, and is waiting for the answer. Give it with session_mail_reply and this id; otherwise this run's last message is sent as the answer.`;
		case "message":
			if (isPassingAddress(envelope.from)) return "It sent a message, and has no mailbox for an answer.";
			return `It sent a message, which expects no answer. If one is wanted, send it with session_mail_send to ${field(envelope.from)}.`;
		case "reply":
			return replyPurpose(mail);
		default:
			return "";
	}
}

/** The result of a call, as the model sees it; one that it has seen is only named. */
function labelledResult({ envelope, path, wasSeen }: MailToShow): string {
	const { id, tool, state } = envelope.x?.call ?? { id: "", tool: "", state: "completed" };
	const call = `call ${field(id)} (${field(tool)})`;
	if (wasSeen) return `[mailbox] Your ${call} ${endings[state]}. You have read its result already.`;
	return [
		`[mailbox] Your ${call} ${endings[state]}. This is ${state === "decided" ? "the decision" : "its result"}.`,
		"",
		...shownBody(envelope.body, path),
		"",
		`[mailbox] End of the result of ${call}. Text after this line is not part of it.`,
	].join("\n");
}

/** What is said of a call in each state that it can end in. */
const endings: Record<CallOfResult["state"], string> = {
	completed: "has completed",
	failed: "has failed",
	cancelled: "was cancelled",
	decided: "was decided about",
	orphaned: "ended without a result, because the process that ran it has ended",
};

function replyPurpose({ envelope, requests, late, hasRuns = true }: MailToShow): string {
	const ids = answeredIds(envelope);
	const noun = late ? "ask" : "request";
	const sentences = [
		ids.length === 0
			? "It sent a reply that names no request."
			: `It sent a reply to ${ids.length === 1 ? noun : `${noun}s`} ${idList(ids)}.`,
	];
	// Said only of requests that have a copy here: a made-up id must not become the user's word.
	const made = ids.filter((id) => requests.some((copy) => copy.envelope.id === id && copy.envelope.kind === "request"));
	if (late) {
		sentences.push("That ask stopped waiting before this reply came.");
	} else if (hasRuns && made.length > 0) {
		const which = made.length < ids.length ? idList(made) : made.length === 1 ? "that request" : "those requests";
		sentences.push(`The user made ${which}, with /mailbox or through an extension.`);
	}
	if (envelope.status !== "done") {
		const status = seen(field(envelope.status));
		sentences.push(
			`${status === undefined ? "It has no status" : `Its status is ${status}`}, so this is not an answer.`,
		);
	}
	return sentences.join(" ");
}

function quotedRequests({ envelope, requests, late }: MailToShow): string[] {
	if (envelope.kind !== "reply") return [];
	return answeredIds(envelope).flatMap((id) => {
		const copy = requests.find((request) => request.envelope.id === id);
		const title = `The ${copy?.envelope.kind ?? (late ? "ask" : "request")} ${field(id)}`;
		if (copy === undefined) return [`${title} has no copy in sent/.`, ""];
		const body = start(copy.envelope.body, maxQuoteBytes);
		const note = `It was cut here, after 2 KiB; all of it is in ${pathField(copy.path)}`;
		return [
			`${title}:`,
			...shownLines(body).map((line) => `> ${line}`),
			...cutNote(body, copy.envelope.body, note),
			"",
		];
	});
}

function answeredIds(envelope: Envelope): string[] {
	return [...new Set(envelope.in_reply_to)];
}

function idList(ids: readonly string[]): string {
	const named = ids.slice(0, maxNamedIds).map((id) => field(id));
	return ids.length > maxNamedIds ? `${named.join(", ")} and ${ids.length - maxNamedIds} more` : named.join(", ");
}

/** The lines of a body or quote, none of which reads as one of ours. A carriage return alone is a control character, not a line end. */
function shownLines(text: string): string[] {
	return manyLines(text)
		.split("\n")
		.map((line) => (labelLike.test(line.normalize("NFKD").replace(unseen, "")) ? `\\${line}` : line));
}

function cutNote(shown: string, whole: string, note: string): string[] {
	return shown.length < whole.length ? [`(${note})`] : [];
}
