import { randomUUID } from "node:crypto";
import type { SessionEntry } from "@earendil-works/pi-coding-agent";
import type { Mailbox, OpenMail } from "../mail/mailbox.ts";
import { field } from "../mail/text.ts";
import { keyOf, type Ledger, type Note } from "./ledger.ts";
import { type Owed, type ReplyDraft, type Settling, settle } from "./obligations.ts";
import { lastFinished, outcomeOfRun } from "./run.ts";

/**
 * Answers what this session owes. Replies are noted in the session before the first is written and again after the last:
 * a start that finds the first note without the second writes the same replies again, under the same ids, and their
 * recipients pass over those that they have (design 4.8).
 */
export interface Answers {
	/** Settles the run that began after the entry `runStart`. `takeUnread` is asked for unread mail when the user stopped it. */
	settleRun(run: { runStart: string | null; aborted: boolean; hops: number; takeUnread: () => OpenMail[] }): void;
	/** Answers what was worked on when the session ended; fails the asks and holds the requests that were not (design D18). */
	settleRestart(isRestart: boolean): void;
	/** Fails a mail that is set aside. */
	giveUp(mail: OpenMail, reason: string): void;
	/** Fails everything that is owed, at the end of a session that is not saved (design D18). */
	settleEnd(): void;
	/** Answers one open ask now, in the middle of a run (PSM-079, PSM-080). */
	answerAsk(id: string, text: string, hops: number): AskAnswered | AskAnswerRefusal;
	/** Writes what was noted and not written, because of a crash or of the disk. */
	retry(): void;
}

export interface AskAnswered {
	ok: true;
	id: string;
	to: string;
	/** False when the disk refused it: it is noted, and tried again when the run settles. */
	isWritten: boolean;
}

/** Why an ask was not answered: the code for programs, one sentence for the model. */
export interface AskAnswerRefusal {
	ok: false;
	code: "empty" | "unknown" | "not_an_ask" | "answered";
	message: string;
}

export interface AnswersParts {
	mailbox: Mailbox;
	ledger: Ledger;
	/** The session's current branch, from its first entry to its last. */
	branch: () => readonly SessionEntry[];
	/** Appends a note to the session, and reads it back into the ledger. */
	note: (note: Note) => void;
	warn: (text: string) => void;
}

/** The longest answer that is sent, in characters; however it is escaped, a reader accepts its envelope. */
const maxAnswerCharacters = 256 * 1024;

export function createAnswers({ mailbox, ledger, branch, note, warn }: AnswersParts): Answers {
	const { address } = mailbox;
	/** Requests that a restart came between. That a stop did is in the ledger. */
	const restarted = new Set<string>();

	/** What is owed, and where its entry stands on the branch; -1 when it stands elsewhere. */
	function owed(lastAnswer: number): Owed[] {
		const positions = new Map(branch().map((entry, index) => [entry.id, index]));
		return ledger.unanswered().flatMap((mail): Owed[] => {
			const { id, from, kind, isHeld } = mail;
			if (kind !== "request" && kind !== "ask") return [];
			const position = positions.get(mail.entryId);
			const isWorkedOn = position !== undefined && position < lastAnswer;
			const isRestarted = !isHeld && restarted.has(keyOf(mail));
			const state = isWorkedOn ? "worked-on" : "read";
			return [{ id, from, kind, held: isHeld || isRestarted, restarted: isRestarted, state }];
		});
	}

	/** Notes replies, and what is held from now on, and writes the replies. */
	function plan(drafts: readonly ReplyDraft[], held: string[], hops: number): void {
		const replies = drafts.map((reply) => ({ id: randomUUID(), hops, ...reply, body: cut(reply.body) }));
		if (replies.length > 0 || held.length > 0) note({ address, type: "settling", replies, held });
		retry();
	}

	function give(settling: Settling, hops: number): void {
		const decided = settle(settling);
		const before = new Set(settling.owed.filter((item) => item.held).map(keyOf));
		const held = decided.owed.filter((item) => item.held).map(keyOf);
		plan(
			decided.replies,
			held.filter((key) => !before.has(key)),
			hops,
		);
	}

	function retry(): void {
		const finished: string[] = [];
		for (const reply of ledger.openReplies()) {
			const outcome = mailbox.deliver({ ...reply, kind: "reply" });
			if (!outcome.ok) warn(`could not reply to ${reply.to}: ${outcome.message}`);
			// Only the disk's errors pass; what can never be delivered is not tried again (design D27).
			if (outcome.ok || outcome.code !== "io") finished.push(reply.id);
		}
		if (finished.length > 0) note({ address, type: "settled", replies: finished });
	}

	return {
		settleRun({ runStart, aborted, hops, takeUnread }) {
			const { lastAssistant, ...outcome } = outcomeOfRun(branch(), runStart, aborted);
			const unread = outcome.end === "stopped" ? takeUnread() : [];
			give({ ...outcome, owed: [...owed(lastAssistant), ...unread.flatMap(unreadItem)] }, hops);
			// The note of the settle stands for them in the ledger.
			for (const mail of unread) mailbox.close(mail.name);
		},
		giveUp(mail, reason) {
			const items = unreadItem(mail).map((item) => ({ ...item, state: "read" as const }));
			give({ owed: items, end: "failed", answer: "", error: reason }, 0);
		},
		settleRestart(isRestart) {
			const finished = isRestart ? lastFinished(branch()) : undefined;
			const items = owed(finished?.index ?? -1);
			const answered = items.filter((item) => item.state === "worked-on");
			const lost = items.filter((item) => item.state === "read" && item.kind === "ask");
			for (const item of items) {
				if (item.state === "read" && item.kind === "request" && !item.held) restarted.add(keyOf(item));
			}
			if (!isRestart) return;
			if (finished !== undefined) give({ owed: answered, end: "done", answer: finished.answer }, 0);
			give({ owed: lost, end: "failed", answer: "", error: "the session was restarted" }, 0);
		},
		settleEnd() {
			const items = owed(-1).map((item) => ({ ...item, held: false }));
			give({ owed: items, end: "failed", answer: "", error: "the session ended, and it was not saved" }, 0);
		},
		answerAsk(id, text, hops) {
			if (text.trim() === "") return refuse("empty", "the answer is empty");
			const found = ledger.find(id);
			const asks = found.filter((mail) => mail.kind === "ask");
			const open = asks.find((mail) => !mail.isAnswered);
			if (open !== undefined) {
				plan([{ to: open.from, inReplyTo: [id], status: "done", body: text.trim() }], [], hops);
				const isWritten = !ledger.openReplies().some((reply) => reply.inReplyTo.includes(id));
				return { ok: true, id, to: open.from, isWritten };
			}
			if (asks.length > 0) return refuse("answered", `the ask ${field(id)} is already answered`);
			const [other] = found;
			if (other === undefined) return refuse("unknown", `no ask with the id ${field(id)} has reached this session`);
			const why =
				other.kind === "request"
					? "a request, which is answered when the run ends"
					: `a ${other.kind}, which expects no answer`;
			return refuse("not_an_ask", `${field(id)} is ${why}`);
		},
		retry,
	};
}

function refuse(code: AskAnswerRefusal["code"], why: string): AskAnswerRefusal {
	return { ok: false, code, message: `Nothing was sent: ${why}.` };
}

function unreadItem({ envelope }: OpenMail): Owed[] {
	const { id, from, kind } = envelope;
	return kind === "request" || kind === "ask" ? [{ id, from, kind, held: false, state: "unread" }] : [];
}

function cut(answer: string): string {
	if (answer.length <= maxAnswerCharacters) return answer;
	return `${answer.slice(0, maxAnswerCharacters).toWellFormed()}\n\n(The answer was cut here, after ${maxAnswerCharacters} characters; the rest is only in the session that gave it.)`;
}
