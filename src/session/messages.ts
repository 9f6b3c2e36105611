import type { CallStore, ResultPart } from "../mail/call-store.ts";
import { errorMessage } from "../mail/disk.ts";
import type { Envelope } from "../mail/envelope.ts";
import type { Mailbox, OpenMail, SentCopy } from "../mail/mailbox.ts";
import type { Running } from "../mail/running.ts";
import { field, firstLine } from "../mail/text.ts";
import type { Arrival, MailMessage } from "./handover.ts";
import { labelled, senderName } from "./label.ts";
import { type MailDetails, mailType } from "./ledger.ts";

/** Makes a message of the conversation of a claimed mail, with what this session and its sender's record know around it. */
export interface Messages {
	/**
	 * The copies of what a reply answers, as far as it was sent to the reply's sender. Copies that cannot be read count as
	 * missing: they must not keep the mail out.
	 */
	requestsOf(mail: OpenMail): SentCopy[];
	messageOf(arrival: Arrival): MailMessage;
	detailsOf(mail: OpenMail): MailDetails;
}

const maxFirstLine = 200;

type ImagePart = Extract<ResultPart, { type: "image" }>;

export interface MessagesParts {
	mailbox: Mailbox;
	running: Running;
	/** Whether the model has seen the result of this call before. */
	hasSeenResult: (callId: string) => boolean;
	/** How a call ended; undefined when nothing is kept of it. Throws the disk's errors. */
	endedCall: CallStore["ended"];
	warn: (text: string) => void;
}

export function createMessages({ mailbox, running, hasSeenResult, endedCall, warn }: MessagesParts): Messages {
	/** What of a result is no text. */
	function imagesOf(callId: string): ImagePart[] {
		try {
			return endedCall(callId)?.content.filter((part) => part.type === "image") ?? [];
		} catch (error) {
			warn(`the images in the result of ${callId} cannot be read: ${errorMessage(error)}`);
			return [];
		}
	}

	function detailsOf({ name, envelope }: OpenMail): MailDetails {
		return {
			address: mailbox.address,
			id: envelope.id,
			from: envelope.from,
			kind: envelope.kind,
			status: field(envelope.status),
			inReplyTo: envelope.in_reply_to,
			file: name,
			sender: senderOf(envelope),
			firstLine: field(firstLine(envelope.body), maxFirstLine),
		};
	}

	/** Of a result, the tool. */
	function senderOf(envelope: Envelope): string {
		const tool = envelope.kind === "result" ? envelope.x?.call?.tool : undefined;
		return tool === undefined ? senderName(envelope, running.find(envelope.from)?.name) : field(tool);
	}

	return {
		requestsOf({ envelope }) {
			try {
				return mailbox.sentCopies(envelope.in_reply_to).filter((copy) => copy.envelope.to === envelope.from);
			} catch (error) {
				warn(`the copies in ${mailbox.folder}/sent cannot be read: ${errorMessage(error)}`);
				mailbox.miscounted();
				return [];
			}
		},
		messageOf(arrival) {
			const { envelope, path, requests, isLate } = arrival;
			const callId = envelope.kind === "result" ? (envelope.x?.call?.id ?? "") : "";
			const wasSeen = hasSeenResult(callId);
			const sender = running.find(envelope.from);
			const text = labelled({ envelope, sender, path, requests, late: isLate, wasSeen });
			const images = wasSeen ? [] : imagesOf(callId);
			const content = images.length === 0 ? text : [{ type: "text" as const, text }, ...images];
			return { customType: mailType, content, display: true, details: { mail: detailsOf(arrival) } };
		},
		detailsOf,
	};
}
