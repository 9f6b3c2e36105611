import { isUuid } from "../mail/address.ts";
import type { Delivered, Refusal } from "../mail/deliver.ts";
import { errorReason } from "../mail/disk.ts";
import type { MailKind } from "../mail/envelope.ts";
import type { Mailbox } from "../mail/mailbox.ts";
import { type ResolveCode, resolve } from "../mail/resolve.ts";
import type { Running, RunningSession } from "../mail/running.ts";

/** A mail that was sent, and what is known of its recipient. */
export interface Sent extends Delivered {
	/** The recipient's record; undefined when it does not run. */
	recipient: RunningSession | undefined;
	/** What the sender should know: whole sentences, none when there is nothing to say. */
	notes: string[];
}

/** Why nothing was sent: the code for programs, one sentence for people. */
export interface SendRefusal {
	ok: false;
	code: Refusal["code"] | ResolveCode | "hop_limit";
	message: string;
}

/** What a person or a model sends: `to` is resolved, and every refusal comes before anything is written. */
export interface Outbox {
	/** Resolves what was typed as a recipient among the running sessions. */
	resolve(to: string): { ok: true; address: string } | SendRefusal;
	/** Sends to whom `to` resolves. `hops` is the count of the run that sends, or 0 for a person; `id` is the caller's choice (see `Draft`). */
	send(mail: { to: string; kind: MailKind; body: string; hops: number; id?: string | undefined }): Sent | SendRefusal;
	/** Why a model may not send any more, when the chain of mail has reached the limit (PSM-086). */
	hopRefusal(hops: number): SendRefusal | undefined;
}

interface OutboxParts {
	mailbox: Mailbox;
	running: Running;
	/** The limit as it is set now. */
	hopLimit: () => number;
	/** Whether mail is to survive a power cut. */
	isDurable: () => boolean;
}

export function createOutbox({ mailbox, running, hopLimit, isDurable }: OutboxParts): Outbox {
	function resolved(to: string): { ok: true; address: string } | SendRefusal {
		try {
			// Without its folders nobody would be found, which would be no reason.
			mailbox.mend();
		} catch (error) {
			return { ok: false, code: "io", message: `Nothing was sent: ${errorReason(error)}.` };
		}
		// A full id is one whoever runs: no other record has to be read for it.
		const others = isUuid(to) ? [] : running.list();
		return resolve(to, { running: others, self: mailbox.address, hasMailbox: mailbox.isKnown });
	}

	return {
		resolve: resolved,
		send({ to, kind, body, hops, id }) {
			let wasKnown: boolean;
			let address: string;
			try {
				const found = resolved(to);
				// Whoever it was sent to may have ended since, or have another name.
				const earlier = found.ok ? undefined : mailbox.sentBefore(id);
				if (!found.ok && earlier === undefined) return found;
				address = found.ok ? found.address : (earlier?.to ?? "");
				wasKnown = mailbox.isKnown(address);
			} catch (error) {
				return { ok: false, code: "io", message: `Nothing was sent: ${errorReason(error)}.` };
			}
			const outcome = mailbox.deliver({ to: address, kind, body: body.trim(), hops, id });
			if (!outcome.ok) return outcome;
			const recipient = running.find(address);
			// Of what was sent before it is not known whether it still waits.
			if (outcome.duplicate) return { ...outcome, recipient, notes: [] };
			return { ...outcome, recipient, notes: notesOf(recipient, wasKnown, !outcome.durable && isDurable()) };
		},
		hopRefusal(hops) {
			const limit = hopLimit();
			if (hops < limit) return undefined;
			return {
				ok: false,
				code: "hop_limit",
				message: `Nothing was sent: sessions have woken each other ${hops} ${hops === 1 ? "time" : "times"} in a row, and the limit is ${limit}. A person who types in either session starts the count again.`,
			};
		},
	};
}

function notesOf(recipient: RunningSession | undefined, wasKnown: boolean, isUnconfirmed: boolean): string[] {
	const notes: string[] = [];
	if (recipient === undefined) {
		notes.push(
			wasKnown
				? "That session is not running; the mail waits until it starts."
				: "No session with this id has been seen on this machine; the mail waits for one.",
		);
	} else if (recipient.x.receiving === false) {
		notes.push("That session takes no mail now; the mail waits until its user types /mailbox on.");
	}
	if (isUnconfirmed) notes.push("The disk did not confirm it: a power cut could still undo it.");
	return notes;
}
