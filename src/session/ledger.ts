import * as z from "zod/mini";
import type { Envelope } from "../mail/envelope.ts";

/** `customType` of a mail in the conversation (PSM-046). */
export const mailType = "mailbox";
/** `customType` of what the mailbox notes in the session without showing it to the model. */
export const noteType = "session-mail";

/** What the entry of a mail carries beside its text; the model does not see it. `address`: for whom the mail was. */
export interface MailDetails {
	mail: {
		address: string;
		id: string;
		from: string;
		kind: Envelope["kind"];
		hops: number;
		inReplyTo: string[];
		/** The envelope's name in `cur/`. */
		file: string;
	};
}

/** A request or ask that the conversation holds. */
export interface ReadMail {
	id: string;
	from: string;
	kind: "request" | "ask";
	/** Whether a stop or a restart came between it and its answer. */
	held: boolean;
	/** The session entry that holds it. */
	entryId: string;
}

/** A reply as it is to be written, also when it has to be written again after a crash: the id makes it the same mail. */
export interface PlannedReply {
	id: string;
	to: string;
	inReplyTo: string[];
	status: "done" | "stopped" | "failed";
	hops: number;
	body: string;
}

/**
 * What the mailbox notes in the session. A settle plans its replies and says what it holds before the first reply is
 * written, and afterwards which replies are done with.
 */
export type Note =
	| { address: string; type: "settling"; replies: PlannedReply[]; held: string[] }
	| { address: string; type: "settled"; replies: string[] };

/**
 * What this session's entries prove (design L1, 4.9): which mail is in the conversation, which replies are planned and
 * which of those are written. Entries carry the address they were made for, since a fork holds copies of its parent's.
 */
export interface Ledger {
	/** Reads what was added to this process's entries since the last call. */
	read(entries: readonly unknown[]): void;
	/** Reads entries that another process wrote, all of them and in order. */
	include(entries: readonly unknown[]): void;
	/** Whether this mail is done with: it is in the conversation, or was answered without. */
	has(mail: { from: string; id: string }): boolean;
	/** The requests and asks in the conversation that no planned reply answers, in order. */
	unanswered(): ReadMail[];
	/** Replies that were planned and are not known to be written, in order. */
	openReplies(): PlannedReply[];
	/** How many mails the conversation holds. */
	readonly readCount: number;
}

/** An empty ledger of one address. */
export function createLedger(address: string): Ledger {
	/** In the conversation, or answered without. */
	const mails = new Set<string>();
	const unanswered = new Map<string, ReadMail>();
	const open = new Map<string, PlannedReply>();
	let seen = 0;
	let readCount = 0;

	function readMail(entryId: string, details: MailDetails["mail"]): void {
		const key = keyOf(details);
		if (mails.has(key)) return;
		mails.add(key);
		readCount++;
		const { id, from, kind } = details;
		if (kind === "request" || kind === "ask") unanswered.set(key, { id, from, kind, held: false, entryId });
	}

	function readNote(note: Note): void {
		if (note.type === "settled") {
			for (const id of note.replies) open.delete(id);
			return;
		}
		for (const reply of note.replies) {
			open.set(reply.id, reply);
			for (const id of reply.inReplyTo) {
				const key = keyOf({ from: reply.to, id });
				mails.add(key);
				unanswered.delete(key);
			}
		}
		for (const key of note.held) {
			const mail = unanswered.get(key);
			if (mail !== undefined) mail.held = true;
		}
	}

	function include(entries: readonly unknown[]): void {
		for (const entry of entries) {
			const parsed = z.safeParse(ourEntry, entry);
			if (!parsed.success) continue;
			if (parsed.data.type === "custom") {
				if (parsed.data.data.address === address) readNote(parsed.data.data);
			} else if (parsed.data.details.mail.address === address) {
				readMail(parsed.data.id, parsed.data.details.mail);
			}
		}
	}

	return {
		include,
		read(entries) {
			include(entries.slice(seen));
			seen = entries.length;
		},
		has: (mail) => mails.has(keyOf(mail)),
		unanswered: () => [...unanswered.values()],
		openReplies: () => [...open.values()],
		get readCount() {
			return readCount;
		},
	};
}

/** Ids are unique per sender only: a mail is known by both. */
export function keyOf(mail: { from: string; id: string }): string {
	return `${mail.from} ${mail.id}`;
}

const plannedReply = z.object({
	id: z.string(),
	to: z.string(),
	inReplyTo: z.array(z.string()),
	status: z.enum(["done", "stopped", "failed"]),
	hops: z.number(),
	body: z.string(),
});

const note = z.discriminatedUnion("type", [
	z.object({
		address: z.string(),
		type: z.literal("settling"),
		replies: z.array(plannedReply),
		held: z.array(z.string()),
	}),
	z.object({ address: z.string(), type: z.literal("settled"), replies: z.array(z.string()) }),
]);

const mailEntry = z.object({
	type: z.literal("custom_message"),
	customType: z.literal(mailType),
	id: z.string(),
	details: z.object({
		mail: z.object({
			address: z.string(),
			id: z.string(),
			from: z.string(),
			kind: z.enum(["request", "reply", "message", "ask"]),
			hops: z.number(),
			inReplyTo: z.array(z.string()),
			file: z.string(),
		}),
	}),
});

const noteEntry = z.object({ type: z.literal("custom"), customType: z.literal(noteType), data: note });

/** Everything else in a session, and what another version wrote in a form that is not known, is passed over. */
const ourEntry = z.discriminatedUnion("type", [mailEntry, noteEntry]);
