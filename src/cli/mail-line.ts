import type { Envelope } from "../mail/envelope.ts";
import type { Running } from "../mail/running.ts";
import { field, firstLine } from "../mail/text.ts";
import { senderName } from "../session/label.ts";
import type { Sent } from "../session/outbox.ts";
import type { Printed } from "./schemas.ts";

type Mail = Printed["read"]["mails"][number];

/** What is printed of a mail with `--json`. */
export function mailOf(envelope: Envelope, running: Running): Mail {
	const { id, from, to, kind, hops, in_reply_to, status, ts, body, x } = envelope;
	return {
		id,
		from,
		fromName: senderName(envelope, running.find(from)?.name),
		to,
		kind,
		hops,
		inReplyTo: in_reply_to,
		status,
		ts,
		program: x?.program === true,
		body,
	};
}

/** The same of one that was sent. */
export function sentOf(sent: Sent, kind: Printed["send"]["kind"]): Printed["send"] {
	const { envelope, recipient, durable, duplicate = false, notes } = sent;
	const { id, from, to } = envelope;
	return { id, from, to, kind, running: recipient !== undefined, durable, duplicate, notes };
}

/** The same of an answer. */
export function replyOf({ id, to, in_reply_to: inReplyTo, status }: Envelope): Printed["reply"] {
	return { id, to, inReplyTo, status };
}

/** A mail as one line. */
export function mailLine({ id, fromName, kind, ts, body, status }: Mail): string {
	const what = kind === "reply" ? `reply (${field(status, 20)})` : kind;
	return [field(id, 40), field(ts, 24), what, fromName, field(firstLine(body), 100)].join("  ");
}
