import { maxInReplyTo, type ReplyStatus } from "../mail/envelope.ts";
import { field } from "../mail/text.ts";

/** A request or ask that reached this session and has no answer yet. Replies and messages are never owed (PSM-069). */
export interface Owed {
	/** The envelope's id. */
	id: string;
	/** Address of its sender. */
	from: string;
	kind: "request" | "ask";
	/** The answer waits for the next run that is done. Only of requests: the sender of an ask is blocked. */
	held: boolean;
	/** It is held because the session restarted, not because the user stopped a run (design D18). */
	restarted?: boolean;
	/** `read`: its entry is in the session. `worked-on`: an assistant message of this run follows it on the branch. */
	state: "unread" | "read" | "worked-on";
}

/** How a run ended, and what was owed then. */
export interface Settling {
	/** In the order of arrival, no mail twice. */
	owed: readonly Owed[];
	/** A run stopped while Pi waits to retry is `stopped` (design D24), one without an assistant message `failed` (4.8). */
	end: ReplyStatus;
	/** The last assistant text of the run, also of one that was stopped or failed. */
	answer: string;
	/** What a failed run failed on. */
	error?: string;
}

/** A reply to be written. */
export interface ReplyDraft {
	/** Where it must be the same when it has to be planned again; otherwise each reply gets a new one. */
	id?: string | undefined;
	to: string;
	/** In the order of arrival; at most 50 (design D23). */
	inReplyTo: string[];
	status: ReplyStatus;
	body: string;
}

/**
 * Decides at a settle what is answered and what stays owed (PSM-062 to 069; design 4.7, 4.8, D17). Every item ends in
 * one reply or stays owed, never both.
 *
 * | item               | run done            | run stopped          | run failed   |
 * |--------------------|---------------------|----------------------|--------------|
 * | unread             | stays               | `failed`: not read   | stays        |
 * | read               | stays               | as worked on         | as worked on |
 * | request, worked on | `done`              | held                 | `failed`     |
 * | ask, worked on     | `done`              | `stopped`            | `failed`     |
 * | request, held      | `done` under a note | stays held           | stays held   |
 *
 * Each ask has a reply of its own; the requests of one sender, which at one settle can only have the same outcome, share
 * one. That goes for held requests too: they get the same answer of the same run, which the sender should not be shown
 * twice, and what the note says is true of that answer whichever request asked for it.
 */
export function settle(settling: Settling): { replies: ReplyDraft[]; owed: Owed[] } {
	const owed: Owed[] = [];
	const groups: Group[] = [];
	for (const item of settling.owed) {
		const outcome = outcomeOf(item, settling.end);
		if (outcome === "stays") owed.push(item);
		else if (outcome === "held") owed.push(hold(item));
		else groupFor(item, outcome, groups).items.push(item);
	}
	return { replies: groups.map((group) => draft(group, settling)), owed };
}

/** Items that one reply answers. */
interface Group {
	to: string;
	kind: Owed["kind"];
	outcome: ReplyStatus | "not-read";
	items: Owed[];
}

const maxErrorCharacters = 500;

const tookOverNote =
	"(The user stopped an earlier run partway and took over; the answer that follows is from the run that completed after that.)";
const restartedNote =
	"(The session was restarted before it could answer; the answer that follows is from the first run that completed after that.)";
const noAnswerNote = "(The session settled with no answer text.)";
const notReadNote =
	"(The session was stopped before it read the message. Nothing was done about it; send it again if it is still wanted.)";

function outcomeOf({ kind, held, state }: Owed, end: ReplyStatus): Group["outcome"] | "stays" | "held" {
	if (held) return end === "done" ? "done" : end === "stopped" ? "held" : "stays";
	if (state === "unread") return end === "stopped" ? "not-read" : "stays";
	if (state === "read" && end === "done") return "stays";
	return end === "stopped" && kind === "request" ? "held" : end;
}

/** The item after a stop by the user, which from then on is why it waits. */
function hold({ id, from, kind, state }: Owed): Owed {
	return { id, from, kind, held: true, state };
}

/** The group that still has room for the item, made at the end when there is none. */
function groupFor({ from, kind }: Owed, outcome: Group["outcome"], groups: Group[]): Group {
	const open = groups.find(
		(group) => kind === "request" && group.kind === kind && group.to === from && group.items.length < maxInReplyTo,
	);
	if (open !== undefined) return open;
	const group: Group = { to: from, kind, outcome, items: [] };
	groups.push(group);
	return group;
}

function draft({ to, outcome, items }: Group, { answer, error }: Settling): ReplyDraft {
	const inReplyTo = items.map((item) => item.id);
	const text = answer.trim() === "" ? undefined : answer;
	switch (outcome) {
		case "done": {
			const waited = items.filter((item) => item.held);
			const body = [
				...(waited.some((item) => item.restarted !== true) ? [tookOverNote] : []),
				...(waited.some((item) => item.restarted === true) ? [restartedNote] : []),
				text ?? noAnswerNote,
			].join("\n\n");
			return { to, inReplyTo, status: "done", body };
		}
		case "stopped":
			return { to, inReplyTo, status: "stopped", body: partial("The user stopped the run before it finished.", text) };
		case "failed": {
			const line = `The run ended on an error before it finished: ${errorText(error)}.`;
			return { to, inReplyTo, status: "failed", body: partial(line, text) };
		}
		case "not-read":
			return { to, inReplyTo, status: "failed", body: notReadNote };
	}
}

function partial(line: string, text: string | undefined): string {
	return text === undefined ? `(${line} It had written nothing.)` : `(${line} What it had written follows.)\n\n${text}`;
}

/** The error within a sentence: one line, bounded, without a full stop of its own. */
function errorText(error = ""): string {
	return field(error.trim(), maxErrorCharacters).replace(/[\s.]+$/, "") || "unknown error";
}
