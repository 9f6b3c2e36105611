import { errorMessage } from "../mail/disk.ts";
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

export function createMessages(mailbox: Mailbox, running: Running, warn: (text: string) => void): Messages {
	function detailsOf({ name, envelope }: OpenMail): MailDetails {
		return {
			address: mailbox.address,
			id: envelope.id,
			from: envelope.from,
			kind: envelope.kind,
			status: field(envelope.status),
			inReplyTo: envelope.in_reply_to,
			file: name,
			sender: senderName(envelope, running.find(envelope.from)?.name),
			firstLine: field(firstLine(envelope.body), maxFirstLine),
		};
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
			const content = labelled({ envelope, sender: running.find(envelope.from), path, requests, late: isLate });
			return { customType: mailType, content, display: true, details: { mail: detailsOf(arrival) } };
		},
		detailsOf,
	};
}
