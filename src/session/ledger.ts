import * as z from "zod/mini";
import { awaitsAnswer, type Envelope, mailKinds } from "../mail/envelope.ts";
import type { OpenMail } from "../mail/mailbox.ts";

/** `customType` of a mail in the conversation (PSM-046). */
export const mailType = "mailbox";
/** `customType` of what the mailbox notes in the session without showing it to the model. */
export const noteType = "session-mail";

/** What is kept of a mail beside its text, where its text enters the session; the model does not see it. */
export interface MailDetails {
	/** For whom the mail was: a fork holds copies of its parent's entries. */
	address: string;
	id: string;
	from: string;
	kind: Envelope["kind"];
	/** Of a reply: how the answering run ended. */
	status: string;
	inReplyTo: string[];
	/** The envelope's name in `cur/`. */
	file: string;
	/** For the person: who sent it, and its first line. */
	sender: string;
	firstLine: string;
}

/** A request or ask that reached this session. */
export interface ReceivedMail {
	id: string;
	from: string;
	kind: Envelope["kind"];
	/** Whether a planned reply answers it. */
	isAnswered: boolean;
	/** That reply. */
	answer: PlannedReply | undefined;
	/** What came between it and its answer. */
	heldBy: HeldBy | undefined;
	/** The session entry that holds it; empty when it was answered before it was read. */
	entryId: string;
	/** The envelope's name in `cur/`; empty when it is not known. */
	file: string;
}

/** A reply as it is to be written, also when it has to be written again after a crash: the id makes it the same mail. */
export interface PlannedReply {
	id: string;
	to: string;
	inReplyTo: string[];
	status: "done" | "stopped" | "failed";
	hops: number;
	body: string;
	/** The names in `cur/` of what it answers, in the order of `inReplyTo`; empty where one is not known. */
	files?: string[] | undefined;
}

/** Why a request waits for a later run: the user stopped the one that worked on it, or the session restarted in it. */
export type HeldBy = "stop" | "restart";

/** What the mailbox notes in the session. */
export type Note =
	/** A settle plans its replies, and says what it holds from now on and why, before the first reply is written. */
	| { address: string; type: "settling"; replies: PlannedReply[]; held: string[]; because: HeldBy }
	/** These replies are written, or can never be. */
	| { address: string; type: "settled"; replies: string[] }
	/** The user wants no mail, or wants it again. */
	| { address: string; type: "receiving"; isOn: boolean }
	/** The user has paused the session, or lets it go on; with this mail, if it was one that said so. */
	| { address: string; type: "paused"; isOn: boolean; mail?: TakenMail | undefined }
	/** Control mail, or a mail that another extension, or a call inside another tool's call, took over. */
	| { address: string; type: "taken"; mail: TakenMail };

/** A mail that has no text in the conversation. */
export interface TakenMail {
	id: string;
	from: string;
	kind: Envelope["kind"];
	/** The envelope's name in `cur/`. */
	file?: string | undefined;
}

/** What a tool's result keeps beside the results of calls that it has shown the model. */
export interface SeenResults {
	seenResults: { address: string; calls: string[] };
}

/**
 * What this session's entries prove (design L1, 4.9): which mail it has, which replies are planned and which of those
 * are written. Only entries that were made for its address count.
 */
export interface Ledger {
	/** Reads what was added to this process's entries since the last call. */
	read(entries: readonly unknown[]): void;
	/** Reads entries that another process wrote, all of them and in order. */
	include(entries: readonly unknown[]): void;
	/** Whether this mail is done with: it was read, taken over, or answered without. */
	has(mail: { from: string; id: string }): boolean;
	/** The keys of what is done with since the last call. */
	newlyDone(): string[];
	/** What is known of one mail. */
	get(mail: { from: string; id: string }): ReceivedMail | undefined;
	/** The name that a sender had when mail of it entered the conversation the last time; undefined when it had none. */
	nameOf(from: string): string | undefined;
	/** What reached this session under an id. Ids are unique per sender only. */
	find(id: string): ReceivedMail[];
	/** The requests and asks that no planned reply answers, in order of arrival. */
	unanswered(): (ReceivedMail & { kind: "request" | "ask" })[];
	/** Replies that were planned and are not known to be written, in order. */
	openReplies(): PlannedReply[];
	/** Whether the user wants mail; true until the user says otherwise. */
	readonly isReceiving: boolean;
	/** Whether the user has paused the session. */
	readonly isPaused: boolean;
	/** The name of the last mail that paused it or let it go on; empty when there was none. */
	readonly pausedBy: string;
	/** Whether the model was given the result of this call by a tool. */
	hasSeenResult(callId: string): boolean;
	/** How many mails were read or taken over. */
	readonly readCount: number;
}

/** What a note keeps of a mail that enters no entry of its own. */
export function takenMailOf({ name, envelope: { id, from, kind } }: Pick<OpenMail, "envelope" | "name">): TakenMail {
	return { id, from, kind, file: name };
}

/** Ids are unique per sender only: a mail is known by both. */
export function keyOf(mail: { from: string; id: string }): string {
	return `${mail.from} ${mail.id}`;
}

/** An empty ledger of one address. */
export function createLedger(address: string): Ledger {
	const mails = new Map<string, ReceivedMail>();
	let newKeys: string[] = [];
	/** Those of them that no planned reply answers: what is asked for at each settle must not grow with what was answered. */
	const unanswered = new Map<string, ReceivedMail & { kind: "request" | "ask" }>();
	const names = new Map<string, string>();
	let readCount = 0;
	const open = new Map<string, PlannedReply>();
	let isReceiving = true;
	let isPaused = false;
	let pausedBy = "";
	const seenResults = new Set<string>();
	let seen = 0;

	function readEntry(entry: unknown): void {
		// Almost all entries are others': a look is cheaper than a parse that fails.
		if (!mayBeOurs(entry)) return;
		const parsed = z.safeParse(ourEntry, entry);
		if (!parsed.success) return;
		const { data } = parsed;
		if (data.type === "custom") {
			if (data.data.address === address) readNote(data.id, data.data);
			return;
		}
		const details = data.type === "message" ? data.message.details : data.details;
		if ("seenResults" in details) {
			const { seenResults: found } = details;
			if (found.address === address) for (const id of found.calls) seenResults.add(id);
			return;
		}
		const { mail } = details;
		if (mail.address !== address) return;
		add(mail, data.id);
		// Who has no name is called by the start of its id.
		if (!mail.from.startsWith(mail.sender)) names.set(mail.from, mail.sender);
	}

	function add({ id, from, kind, file = "" }: TakenMail, entryId: string): void {
		const key = keyOf({ from, id });
		if (mails.has(key)) return;
		const mail: ReceivedMail = {
			id,
			from,
			kind,
			isAnswered: false,
			answer: undefined,
			heldBy: undefined,
			entryId,
			file,
		};
		mails.set(key, mail);
		newKeys.push(key);
		if (entryId !== "" && kind !== "control") readCount++;
		if (awaitsAnswer(mail)) unanswered.set(key, mail);
	}

	function readNote(entryId: string, note: Note): void {
		switch (note.type) {
			case "receiving":
				isReceiving = note.isOn;
				return;
			case "paused":
				isPaused = note.isOn;
				pausedBy = note.mail?.file ?? pausedBy;
				if (note.mail !== undefined) add(note.mail, entryId);
				return;
			case "taken":
				add(note.mail, entryId);
				return;
			case "settled":
				for (const id of note.replies) open.delete(id);
				return;
			case "settling":
				for (const reply of note.replies) plan(reply);
				for (const key of note.held) {
					const mail = mails.get(key);
					if (mail !== undefined) mail.heldBy = note.because;
				}
		}
	}

	function plan(reply: PlannedReply): void {
		open.set(reply.id, reply);
		for (const id of reply.inReplyTo) {
			const key = keyOf({ from: reply.to, id });
			add({ id, from: reply.to, kind: "request" }, "");
			const mail = mails.get(key);
			if (mail !== undefined) {
				mail.isAnswered = true;
				mail.answer = reply;
			}
			unanswered.delete(key);
		}
	}

	return {
		read(entries) {
			for (const entry of entries.slice(seen)) readEntry(entry);
			seen = entries.length;
		},
		include(entries) {
			for (const entry of entries) readEntry(entry);
		},
		has: (mail) => mails.has(keyOf(mail)),
		newlyDone() {
			const keys = newKeys;
			newKeys = [];
			return keys;
		},
		get: (mail) => mails.get(keyOf(mail)),
		nameOf: (from) => names.get(from),
		find: (id) => [...mails.values()].filter((mail) => mail.id === id),
		unanswered: () => [...unanswered.values()],
		openReplies: () => [...open.values()],
		get isReceiving() {
			return isReceiving;
		},
		get isPaused() {
			return isPaused;
		},
		get pausedBy() {
			return pausedBy;
		},
		hasSeenResult: (callId) => seenResults.has(callId),
		get readCount() {
			return readCount;
		},
	};
}

/** The mail that a message's details tell of; undefined when they tell of none that this version can read. */
export function mailDetails(details: unknown): MailDetails | undefined {
	return z.safeParse(withMail, details).data?.mail;
}

const kind = z.enum(mailKinds);

const withMail = z.object({
	mail: z.object({
		address: z.string(),
		id: z.string(),
		from: z.string(),
		kind,
		// Only for the person: a mail counts as read without them.
		status: z._default(z.string(), ""),
		inReplyTo: z._default(z.array(z.string()), []),
		file: z._default(z.string(), ""),
		sender: z._default(z.string(), ""),
		firstLine: z._default(z.string(), ""),
	}),
});

const plannedReply = z.object({
	id: z.string(),
	to: z.string(),
	inReplyTo: z.array(z.string()),
	status: z.enum(["done", "stopped", "failed"]),
	hops: z.number(),
	body: z.string(),
	files: z.optional(z.array(z.string())),
});

const takenMail = z.object({ id: z.string(), from: z.string(), kind, file: z.optional(z.string()) });

const note = z.discriminatedUnion("type", [
	z.object({
		address: z.string(),
		type: z.literal("settling"),
		replies: z.array(plannedReply),
		held: z.array(z.string()),
		because: z.enum(["stop", "restart"]),
	}),
	z.object({ address: z.string(), type: z.literal("settled"), replies: z.array(z.string()) }),
	z.object({ address: z.string(), type: z.literal("receiving"), isOn: z.boolean() }),
	z.object({ address: z.string(), type: z.literal("paused"), isOn: z.boolean(), mail: z.optional(takenMail) }),
	z.object({ address: z.string(), type: z.literal("taken"), mail: takenMail }),
]);

const withSeenResults = z.object({ seenResults: z.object({ address: z.string(), calls: z.array(z.string()) }) });

function mayBeOurs(entry: unknown): boolean {
	if (typeof entry !== "object" || entry === null) return false;
	if ("customType" in entry) return entry.customType === mailType || entry.customType === noteType;
	return "type" in entry && entry.type === "message";
}

/** Everything else in a session, and what another version wrote in a form that is not known, is passed over. */
const ourEntry = z.discriminatedUnion("type", [
	z.object({ type: z.literal("custom_message"), customType: z.literal(mailType), id: z.string(), details: withMail }),
	z.object({ type: z.literal("custom"), customType: z.literal(noteType), id: z.string(), data: note }),
	// The answer to an ask is the result of the call that asked; so may the results of calls be that were asked for.
	z.object({
		type: z.literal("message"),
		id: z.string(),
		message: z.object({ role: z.literal("toolResult"), details: z.union([withMail, withSeenResults]) }),
	}),
]);
