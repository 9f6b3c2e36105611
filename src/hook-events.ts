import type { Envelope } from "./mail/envelope.ts";
import type { SentCopy } from "./mail/mailbox.ts";

export type { Envelope, Extras, MailKind } from "./mail/envelope.ts";
export type { SentCopy } from "./mail/mailbox.ts";

/** What the emitter of `message:send` sets (PSM-092). */
export interface SendRequest {
	/** The address of the recipient: a session's full id, or a program's name. */
	to: string;
	body: string;
	/** A UUID: the same mail again is not sent again. */
	id?: string;
	/** A message that starts no turn, instead of a request. */
	quiet?: boolean;
}

/** What is set when `emit` of `message:send` returns: one of the first two, and neither when nobody provides the event. */
export interface SendOutcome {
	/** The mail that was sent. */
	envelope?: Envelope;
	/** Why nothing was sent, in one sentence. */
	error?: string;
	/** A mail of this id was sent before; `envelope` is that one. */
	duplicate?: true;
}

/** Payload of `message:send`. */
export interface MessageSend extends SendRequest, SendOutcome {}

/**
 * Payload of `message:inbound` (PSM-093): a claimed mail before it is shown. A listener that sets `handled` shows it
 * itself.
 */
export interface MessageInbound {
	envelope: Envelope;
	/** Its file in `cur/`. */
	path: string;
	/** A reply's requests that have a copy in this session's `sent/`. */
	requests: SentCopy[];
	handled?: boolean;
}

/** Payload of `message:scan` (PSM-094). */
export interface MessageScan {
	/** Set when all mail that waits was claimed and announced before `emit` returned. */
	scanned?: true;
}

/** The events and their payloads. */
export interface MailEvents {
	"message:send": MessageSend;
	"message:inbound": MessageInbound;
	"message:scan": MessageScan;
}

/** Pi's event bus as these events use it: `const events = pi.events as MailEventBus`. */
export interface MailEventBus {
	/** Listeners have done their work when it returns. */
	emit<E extends keyof MailEvents>(event: E, payload: MailEvents[E]): void;
	/** Hears each payload; does its work before its first `await`. The returned function ends that. */
	on<E extends keyof MailEvents>(event: E, listener: (payload: MailEvents[E]) => void): () => void;
}
