import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import type { MessageInbound, MessageScan, SendOutcome } from "./hook-events.ts";
import { isAddress } from "./mail/address.ts";
import type { Envelope } from "./mail/envelope.ts";
import type { OpenMail, SentCopy } from "./mail/mailbox.ts";
import type { MailSession } from "./session/session.ts";

/** Serves `message:send` and `message:scan` before `emit` returns; without a session neither sets anything but `error`. */
export function provideHooks(pi: ExtensionAPI, current: () => MailSession | undefined): void {
	pi.events.on("message:send", (payload) => {
		if (isObject(payload)) Object.assign(payload, send(payload, current()));
	});
	pi.events.on("message:scan", (payload) => {
		const session = current();
		if (session === undefined || !isObject(payload) || !session.scan()) return;
		const outcome: MessageScan = { scanned: true };
		Object.assign(payload, outcome);
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

/** What `message:send` sets; the payload comes from anybody. */
function send(payload: { [key: string]: unknown }, session: MailSession | undefined): SendOutcome {
	const { to, body, id, quiet = false } = payload;
	// Another provider was there first.
	if (payload.envelope !== undefined || payload.error !== undefined) return {};
	if (session === undefined) return { error: "Nothing was sent: this session has no mailbox." };
	if (typeof to !== "string" || !isAddress(to)) return { error: "Nothing was sent: to is not an address." };
	if (typeof body !== "string") return { error: "Nothing was sent: body is not a text." };
	if (id !== undefined && typeof id !== "string") return { error: "Nothing was sent: id is not a text." };
	if (typeof quiet !== "boolean") return { error: "Nothing was sent: quiet is neither true nor false." };
	const sent = session.request(to, body, id, quiet);
	if (!sent.ok) return { error: sent.message };
	return { envelope: sent.envelope, ...(sent.duplicate && { duplicate: true }) };
}

function isObject(payload: unknown): payload is { [key: string]: unknown } {
	return typeof payload === "object" && payload !== null;
}
