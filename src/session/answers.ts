import { randomUUID } from "node:crypto";
import { basename } from "node:path";
import type { SessionEntry } from "@earendil-works/pi-coding-agent";
import { uuidOf } from "../mail/address.ts";
import { errorReason } from "../mail/disk.ts";
import { awaitsAnswer, type Owing } from "../mail/envelope.ts";
import type { DeadMail, Mailbox, OpenMail } from "../mail/mailbox.ts";
import { field } from "../mail/text.ts";
import { type HeldBy, keyOf, type Ledger, type Note, type PlannedReply, type ReceivedMail } from "./ledger.ts";
import { type Owed, type ReplyDraft, type Settling, settle } from "./obligations.ts";
import { lastFinished, outcomeOfRun } from "./run.ts";

/**
 * Answers what this session owes. Replies are noted in the session before the first is written and again after the last:
 * a start that finds the first note without the second writes the same replies again, under the same ids, and their
 * recipients pass over those that they have (design 4.8).
 */
export interface Answers {
	/**
	 * Settles the run that began after the entry `runStart`. `takeUnread` is asked for unread mail when the user stopped it.
	 * Returns how many requests are held from now on.
	 */
	settleRun(run: { runStart: string | null; aborted: boolean; hops: number; takeUnread: () => OpenMail[] }): number;
	/** Answers what was worked on when the session ended; fails the asks and holds the requests that were not (design D18). */
	settleRestart(): void;
	/** Sets a mail aside for good that cannot be handed over; a request or ask is answered first (design D12). */
	setAside(mail: DeadMail): void;
	/** Fails everything that is owed, at the end of a session that is not saved (design D18). */
	settleEnd(): void;
	/** Answers one request or ask now in its user's name: no run answers it any more. */
	answerByHand(
		mail: { id: string; from: string; name: string },
		status: "done" | "failed",
		text: string,
	): AskAnswered | AskAnswerRefusal;
	/** Answers one open ask now, in the middle of a run (PSM-079, PSM-080). */
	answerAsk(id: string, text: string, hops: number): AskAnswered | AskAnswerRefusal;
	/** Writes what was noted and not written, because of a crash or of the disk. */
	retry(): void;
	/** Whether something is noted and not written. */
	readonly hasOpen: boolean;
}

/** An answer that the session keeps, written or not. */
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
	code: "empty" | "unknown" | "not_an_ask" | "answered" | "undeliverable" | "second_process";
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
	/** The same for what is final: said also while other faults are put down to folders that are out of order. */
	say: (text: string) => void;
}

type SettlingNote = Extract<Note, { type: "settling" }>;

/** The longest answer that is sent, in characters; however it is escaped, a reader accepts its envelope. */
const maxAnswerCharacters = 256 * 1024;

export function createAnswers({ mailbox, ledger, branch, note, warn, say }: AnswersParts): Answers {
	const { address } = mailbox;
	/** Settles that could not be noted: nothing of them is written before they are. */
	const unnoted: SettlingNote[] = [];
	/** The names in `cur/` of what is answered unread, which no entry tells. */
	const unreadFiles = new Map<string, string>();

	/** What is owed; worked on is what stands on the branch before the entry at `lastAnswer`. */
	function owed(lastAnswer: number): Owed[] {
		noteAll();
		const positions = new Map(branch().map((entry, index) => [entry.id, index]));
		const isHeld = (mail: ReceivedMail) => unnoted.some(({ held }) => held.includes(keyOf(mail)));
		const open = ledger.unanswered().filter((mail) => !isPlanned(mail) && !isHeld(mail));
		return open.map(({ id, from, kind, heldBy, entryId }) => {
			const position = positions.get(entryId);
			const state = position !== undefined && position < lastAnswer ? "worked-on" : "read";
			return { id, from, kind, held: heldBy !== undefined, restarted: heldBy === "restart", state };
		});
	}

	/**
	 * Notes replies, and what is held from now on, and writes the replies. A note that the session refuses is tried again: it
	 * is the answer of this run, which no later run shall give.
	 */
	function plan(
		drafts: readonly ReplyDraft[],
		hops: number,
		held: readonly Owed[] = [],
		because: HeldBy = "stop",
	): ReadonlyMap<string, string> {
		const replies = drafts.map((reply) => ({
			...reply,
			id: reply.id ?? randomUUID(),
			hops,
			body: cut(reply.body),
			files: reply.inReplyTo.map((id) => fileOf({ from: reply.to, id })),
		}));
		if (replies.length > 0 || held.length > 0) {
			unnoted.push({ address, type: "settling", replies, held: held.map(keyOf), because });
		}
		return writeOpen();
	}

	function fileOf(mail: { from: string; id: string }): string {
		return ledger.get(mail)?.file || unreadFiles.get(keyOf(mail)) || "";
	}

	/** Whether an answer to it waits for the session to keep it. */
	function isPlanned(mail: { from: string; id: string }): boolean {
		return unnoted.some(({ replies }) => replies.flatMap(answeredBy).includes(keyOf(mail)));
	}

	function noteAll(): void {
		for (let next = unnoted[0]; next !== undefined; next = unnoted[0]) {
			try {
				note(next);
			} catch (error) {
				warn(
					`an answer is not sent yet, since the session's file does not take it; it is tried again: ${errorReason(error)}`,
				);
				return;
			}
			unnoted.shift();
			for (const key of next.held) tellHeld(key);
		}
	}

	function tellHeld(key: string): void {
		const [from = "", id = ""] = key.split(" ");
		mailbox.note({ from, name: fileOf({ from, id }) }, "held");
	}

	/** Tells the sender of what a delivered reply answers. A start that writes it again says it again. */
	function tellAnswered({ to, status, files = [] }: PlannedReply): void {
		for (const name of files) mailbox.note({ from: to, name }, status === "done" ? "answered" : "failed");
	}

	/** Returns how many are held from now on. */
	function give(settling: Settling, hops: number): number {
		const { replies, owed: kept } = settle(settling);
		const isNew = (item: Owed) => ledger.get(item)?.heldBy !== "stop";
		const held = kept.filter((item) => item.held && item.restarted !== true && isNew(item));
		plan(replies, hops, held);
		return held.length;
	}

	/** Answers these failed, for a reason that is none of a run. */
	function fail(items: readonly Owed[], why: string, replyId?: string): void {
		const body = `(${why} Send it again if it is still wanted.)`;
		plan(
			items.map(({ from, id }) => ({ id: replyId, to: from, inReplyTo: [id], status: "failed", body })),
			0,
		);
	}

	/** The id of the answer to what is set aside: after a crash it is the same reply, also where no file kept a note of it. */
	function onlyReplyTo({ from, id }: Owing): string {
		return uuidOf(`${address} ${from} ${id}`);
	}

	/** Writes what was noted. Returns why replies can never be delivered, by the ids of what they answer. */
	function writeOpen(): ReadonlyMap<string, string> {
		noteAll();
		const lost = new Map<string, string>();
		const finished: string[] = [];
		for (const reply of ledger.openReplies()) {
			const outcome = mailbox.deliver({ ...reply, kind: "reply" });
			// Only the disk's errors pass; what can never be delivered is not tried again (design D27).
			const isFinished = outcome.ok || outcome.code !== "io";
			if (isFinished) finished.push(reply.id);
			if (outcome.ok) {
				tellAnswered(reply);
				continue;
			}
			if (isFinished) for (const id of reply.inReplyTo) lost.set(id, outcome.message);
			const next = isFinished ? "it is not tried again, and stays in this session only" : "it will be tried again";
			const tell = isFinished ? say : warn;
			tell(`could not reply to ${reply.to}: ${outcome.message} The answer is kept: ${next}.`);
		}
		if (finished.length > 0) noteFinished(finished);
		return lost;
	}

	/** Without this note they are written again, which sends nothing twice. */
	function noteFinished(replies: string[]): void {
		try {
			note({ address, type: "settled", replies });
		} catch (error) {
			warn(`that answers were sent cannot be kept in the session yet and is tried again: ${errorReason(error)}`);
		}
	}

	/** Plans the one reply to a mail that has none, and says whether it is written. */
	function answerOne(
		{ id, from }: { id: string; from: string },
		status: "done" | "failed",
		text: string,
		hops: number,
	): AskAnswered | AskAnswerRefusal {
		const lost = plan([{ to: from, inReplyTo: [id], status, body: text.trim() }], hops).get(id);
		if (lost !== undefined) return { ok: false, code: "undeliverable", message: lost };
		const isWritten = !isPlanned({ from, id }) && !ledger.openReplies().some((reply) => reply.inReplyTo.includes(id));
		return { ok: true, id, to: from, isWritten };
	}

	return {
		settleRun({ runStart, aborted, hops, takeUnread }) {
			const { lastAssistant, ...outcome } = outcomeOfRun(branch(), runStart, aborted);
			const left = outcome.end === "stopped" ? takeUnread() : [];
			for (const { name, envelope } of left) unreadFiles.set(keyOf(envelope), name);
			const unread = left.flatMap(unreadItem);
			const held = give({ ...outcome, owed: [...owed(lastAssistant), ...unread] }, hops);
			// What could not be noted as answered unread will be read: it must not be answered as if it had not been.
			const read = new Set(unread.map(keyOf));
			for (const planned of unnoted)
				planned.replies = planned.replies.filter((reply) => !answeredBy(reply).some((key) => read.has(key)));
			unreadFiles.clear();
			return held;
		},
		setAside({ path, reason, owing }) {
			// Not buried before the answer is kept: a crash that comes in between is made up for at the next start, by the ledger.
			if (owing !== undefined && !ledger.has(owing) && !isPlanned(owing)) {
				const why = `This mail could not be handed over: ${reason}.`;
				unreadFiles.set(keyOf(owing), basename(path));
				fail([{ ...owing, held: false, state: "unread" }], why, onlyReplyTo(owing));
			}
			unreadFiles.clear();
			if (owing !== undefined && isPlanned(owing)) throw new Error("its answer cannot be kept in the session yet");
			mailbox.bury(basename(path), reason);
			say(`${path} cannot be delivered and was set aside: ${reason}`);
		},
		settleRestart() {
			const finished = lastFinished(branch());
			const items = owed(finished?.index ?? -1);
			const answered = items.filter((item) => item.state === "worked-on");
			const open = items.filter((item) => item.state === "read");
			const held = open.filter((item) => item.kind === "request" && !item.held);
			if (finished !== undefined) give({ owed: answered, end: "done", answer: finished.answer }, 0);
			plan([], 0, held, "restart");
			fail(
				open.filter((item) => item.kind === "ask"),
				"The session was restarted before it answered.",
			);
		},
		settleEnd: () => fail(owed(-1), "The session ended before it answered, and it was not saved."),
		answerByHand(mail, status, text) {
			if (text.trim() === "") return refuse("empty", "the answer is empty");
			if (ledger.get(mail)?.isAnswered === true || isPlanned(mail)) return refuse("answered", "it is already answered");
			unreadFiles.set(keyOf(mail), mail.name);
			// A person starts the count of hops again.
			const outcome = answerOne(mail, status, text, 0);
			unreadFiles.clear();
			return outcome;
		},
		answerAsk(id, text, hops) {
			if (text.trim() === "") return refuse("empty", "the answer is empty");
			const found = ledger.find(id);
			const asks = found.filter((mail) => mail.kind === "ask");
			const open = asks.find((mail) => !mail.isAnswered && !isPlanned(mail));
			if (open !== undefined) return answerOne(open, "done", text, hops);
			if (asks.length > 0) return refuse("answered", `the ask ${field(id)} is already answered`);
			const [other] = found;
			if (other === undefined) return refuse("unknown", `no ask with the id ${field(id)} has reached this session`);
			const why =
				other.kind === "request"
					? "a request, which is answered when the run ends"
					: `a ${other.kind}, which expects no answer`;
			return refuse("not_an_ask", `${field(id)} is ${why}`);
		},
		retry: () => void writeOpen(),
		get hasOpen() {
			return unnoted.length > 0 || ledger.openReplies().length > 0;
		},
	};
}

function answeredBy({ to, inReplyTo }: PlannedReply): string[] {
	return inReplyTo.map((id) => keyOf({ from: to, id }));
}

function refuse(code: AskAnswerRefusal["code"], why: string): AskAnswerRefusal {
	return { ok: false, code, message: `Nothing was sent: ${why}.` };
}

function unreadItem({ envelope }: OpenMail): Owed[] {
	if (!awaitsAnswer(envelope)) return [];
	const { id, from, kind } = envelope;
	return [{ id, from, kind, held: false, state: "unread" }];
}

function cut(answer: string): string {
	if (answer.length <= maxAnswerCharacters) return answer;
	return `${answer.slice(0, maxAnswerCharacters).toWellFormed()}\n\n(The answer was cut here, after ${maxAnswerCharacters} characters; the rest is only in the session that gave it.)`;
}
