import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { isAddress } from "./mail/address.ts";
import type { Envelope } from "./mail/envelope.ts";
import type { OpenMail, SentCopy } from "./mail/mailbox.ts";
import type { MailSession } from "./session/session.ts";

/** Payload of `message:inbound`: a claimed mail before it is shown; a listener that sets `handled` shows it itself (PSM-093). */
interface MessageInbound {
	envelope: Envelope;
	/** Its file in `cur/`. */
	path: string;
	/** A reply's requests that have a copy in this session's `sent/`. */
	requests: SentCopy[];
	handled?: boolean;
}

/**
 * Serves two events before `emit` returns; without a session neither sets anything but `error`.
 *
 * - `message:send` (PSM-092): `to`, an address, `body`, with `quiet` a message that starts no turn instead of a request,
 *   and `id`, a UUID, so that a repetition sends nothing twice. Sets `envelope` or `error`, and `duplicate` when this id was
 *   sent before.
 * - `message:scan` (PSM-094): sets `scanned` when all mail that waits was claimed and announced.
 */
export function provideHooks(pi: ExtensionAPI, current: () => MailSession | undefined): void {
	pi.events.on("message:send", (payload) => {
		if (isObject(payload)) send(payload, current());
	});
	pi.events.on("message:scan", (payload) => {
		const session = current();
		if (session !== undefined && isObject(payload) && session.scan()) payload.scanned = true;
	});
}

/** Announces a claimed mail on `message:inbound`; true when a listener took it over. */
export function announceMail(pi: ExtensionAPI, { envelope, path }: OpenMail, requests: readonly SentCopy[]): boolean {
	// Copies, so that no listener changes ours. Their bodies are the same texts: a large one is not held once more.
	const payload: MessageInbound = {
		envelope: copyOf(envelope),
		path,
		requests: requests.map((request) => ({ path: request.path, envelope: copyOf(request.envelope) })),
	};
	pi.events.emit("message:inbound", payload);
	return payload.handled === true;
}

function copyOf(envelope: Envelope): Envelope {
	return { ...envelope, in_reply_to: [...envelope.in_reply_to] };
}

function send(payload: { [key: string]: unknown }, session: MailSession | undefined): void {
	const { to, body, id, quiet = false } = payload;
	// Another provider was there first.
	if (payload.envelope !== undefined || payload.error !== undefined) return;
	if (session === undefined) payload.error = "Nothing was sent: this session has no mailbox.";
	else if (typeof to !== "string" || !isAddress(to)) payload.error = "Nothing was sent: to is not an address.";
	else if (typeof body !== "string") payload.error = "Nothing was sent: body is not a text.";
	else if (id !== undefined && typeof id !== "string") payload.error = "Nothing was sent: id is not a text.";
	else if (typeof quiet !== "boolean") payload.error = "Nothing was sent: quiet is neither true nor false.";
	else {
		const sent = session.request(to, body, id, quiet);
		if (!sent.ok) payload.error = sent.message;
		else {
			payload.envelope = sent.envelope;
			if (sent.duplicate) payload.duplicate = true;
		}
	}
}

function isObject(payload: unknown): payload is { [key: string]: unknown } {
	return typeof payload === "object" && payload !== null;
}
