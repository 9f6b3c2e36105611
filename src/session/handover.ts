import type { Mailbox, OpenMail } from "../mail/mailbox.ts";
import type { Inbox } from "./inbox.ts";
import { keyOf, type Ledger, type MailDetails, mailType } from "./ledger.ts";

/** A mail as a message of the conversation. */
export interface MailMessage {
	customType: typeof mailType;
	content: string;
	display: true;
	details: MailDetails;
}

/** What the hand-over needs of the session that it serves. */
export interface Conversation {
	isIdle(): boolean;
	/** All entries of the session so far, in the order they were added. */
	entries(): readonly unknown[];
	/** Whether the entries are where this session keeps them: on disk once its file exists, in memory when it has none. */
	isSaved(): boolean;
	/** Adds a message to an idle session; with `startsRun` the model is asked as well. */
	add(message: MailMessage, startsRun: boolean): void;
}

/**
 * Brings mail into the conversation (design 4.4 to 4.7). A mail is claimed, then ready, then in flight while it is not
 * known whether Pi took it, and read when its entry is found; only then its open mark goes.
 */
export interface Handover {
	/** Idle: gives waiting mail to Pi and starts one run for all of it when one of them wakes. */
	whenIdle(): void;
	/** At the end of a turn that goes on: the mail to add to it, and whether one of it would start a run by itself. */
	atTurnEnd(): { messages: MailMessage[]; wakes: boolean };
	/** Busy: claims the replies that wait; true when there is more to look at. */
	whenBusy(): boolean;
	/** Closes the mail whose entries are there. */
	confirm(): void;
	/** The same, at a moment when Pi must have added what it was given: what is missing is ready again. */
	conclude(): void;
	/** Takes in mail that an earlier process left open. */
	resume(mail: OpenMail, isRestart: boolean): void;
	/**
	 * After the user stopped a run (design D17): everything that arrived by now is claimed. Requests and asks among it
	 * are taken out and returned; the rest waits, and wakes the session no more.
	 */
	afterStop(): OpenMail[];
	/** Mail that is claimed and not yet in the conversation. */
	readonly claimedCount: number;
	/** Mail in the conversation that is not saved yet. */
	readonly unsavedCount: number;
}

/** Most mails and most bytes of text in one hand-over (design 4.5). */
const maxMails = 20;
const maxTextBytes = 128 * 1024;
const firstRetryMs = 1000;
const maxRetryMs = 60_000;
/** After this long, mail whose run Pi did not start is taken for lost by Pi. */
const maxDeferredMs = 10 * 60_000;

interface HandoverParts {
	mailbox: Mailbox;
	inbox: Inbox;
	ledger: Ledger;
	conversation: Conversation;
	/** The text that the model sees of a mail. */
	show: (mail: OpenMail) => string;
	/** Whether a reply answers an ask of this session that no longer waits (PSM-050). */
	isLateAnswer: (mail: OpenMail) => boolean;
	/** Told of each waking mail that is given to Pi, with its hop count. */
	onWake: (hops: number) => void;
	/** Milliseconds. */
	now: () => number;
}

export function createHandover(parts: HandoverParts): Handover {
	const { mailbox, inbox, ledger, conversation } = parts;
	let ready: OpenMail[] = [];
	const inFlight = new Map<string, OpenMail>();
	const unsaved: OpenMail[] = [];
	/** Mail that waits for the next run and starts none. */
	const silenced = new WeakSet<OpenMail>();
	/** Mail in flight that starts a run. */
	const waking = new WeakSet<OpenMail>();
	/** Mail with which a process ended before. */
	const leftOpen = new WeakSet<OpenMail>();
	let failures = 0;
	let notBefore = 0;
	/**
	 * When Pi took mail without starting its run: it does that while extensions still hear that the last run settled, and
	 * starts it afterwards. To offer the mail again in the meantime would bring it twice.
	 */
	let deferredAt: number | undefined;

	function admit(mail: OpenMail): void {
		const key = keyOf(mail.envelope);
		const held = inFlight.get(key) ?? ready.find((other) => keyOf(other.envelope) === key);
		if (held?.name === mail.name) return;
		if (held !== undefined || ledger.has(mail.envelope)) {
			if (mail.envelope.kind === "reply") mailbox.answered(mail.envelope.in_reply_to);
			mailbox.close(mail.name);
			return;
		}
		ready.push(mail);
	}

	function wakes(mail: OpenMail): boolean {
		return !silenced.has(mail) && (mail.envelope.kind !== "reply" || parts.isLateAnswer(mail));
	}

	/** The next mails in order, within the limits. They are in flight from here on. */
	function take(): { messages: MailMessage[]; wakes: boolean } {
		for (const mail of inbox.claim(maxMails - ready.length)) admit(mail);
		// Answered at a stop, or brought by another process of this session.
		for (const mail of ready.filter((mail) => ledger.has(mail.envelope))) mailbox.close(mail.name);
		ready = ready.filter((mail) => !ledger.has(mail.envelope)).sort((a, b) => (a.name < b.name ? -1 : 1));
		const messages: MailMessage[] = [];
		let bytes = 0;
		for (const mail of ready.slice(0, maxMails)) {
			const content = parts.show(mail);
			bytes += Buffer.byteLength(content);
			if (messages.length > 0 && bytes > maxTextBytes) break;
			if (leftOpen.delete(mail)) mailbox.countTry(mail);
			messages.push({ customType: mailType, content, display: true, details: detailsOf(mail, mailbox.address) });
		}
		const taken = ready.splice(0, messages.length);
		for (const mail of taken) {
			inFlight.set(keyOf(mail.envelope), mail);
			if (wakes(mail)) waking.add(mail);
			if (mail.envelope.kind === "reply") mailbox.answered(mail.envelope.in_reply_to);
		}
		return { messages, wakes: taken.some((mail) => waking.has(mail)) };
	}

	function confirm(): void {
		ledger.read(conversation.entries());
		for (const [key, mail] of inFlight) {
			if (!ledger.has(mail.envelope)) continue;
			inFlight.delete(key);
			unsaved.push(mail);
			if (waking.has(mail)) parts.onWake(mail.envelope.hops);
			failures = 0;
			notBefore = 0;
		}
		if (unsaved.length === 0 || !conversation.isSaved()) return;
		for (const mail of unsaved.splice(0)) mailbox.close(mail.name);
	}

	function isDeferred(): boolean {
		if (inFlight.size === 0) deferredAt = undefined;
		return deferredAt !== undefined;
	}

	/** Pi has not added what it was given: it is offered again, and no run is started for it before a pause. */
	function takeBack(): void {
		if (inFlight.size === 0) return;
		ready.push(...inFlight.values());
		inFlight.clear();
		notBefore = parts.now() + Math.min(maxRetryMs, firstRetryMs * 2 ** failures++);
	}

	function conclude(): void {
		confirm();
		if (!isDeferred()) takeBack();
	}

	return {
		whenIdle() {
			confirm();
			if (!conversation.isIdle()) return;
			if (deferredAt !== undefined && parts.now() > deferredAt + maxDeferredMs) deferredAt = undefined;
			if (isDeferred()) return;
			// Pi said that it started a run, and is idle without one: the run could not start.
			takeBack();
			if (parts.now() < notBefore) return;
			const { messages, wakes } = take();
			for (const [index, message] of messages.entries()) {
				conversation.add(message, wakes && index === messages.length - 1);
			}
			if (wakes && conversation.isIdle()) deferredAt = parts.now();
			confirm();
		},
		atTurnEnd() {
			confirm();
			return take();
		},
		whenBusy() {
			const { replies, hasMore } = inbox.claimReplies();
			for (const reply of replies) admit(reply);
			return hasMore;
		},
		confirm,
		conclude,
		resume(mail, isRestart) {
			if (isRestart) leftOpen.add(mail);
			admit(mail);
		},
		afterStop() {
			for (const mail of inbox.claim(Number.POSITIVE_INFINITY)) admit(mail);
			const owed = ready.filter((mail) => mail.envelope.kind === "request" || mail.envelope.kind === "ask");
			for (const mail of ready) if (!owed.includes(mail)) silenced.add(mail);
			return owed;
		},
		get claimedCount() {
			return ready.length + inFlight.size;
		},
		get unsavedCount() {
			return unsaved.length;
		},
	};
}

function detailsOf({ name, envelope }: OpenMail, address: string): MailDetails {
	const { id, from, kind, hops, in_reply_to } = envelope;
	return { mail: { address, id, from, kind, hops, inReplyTo: in_reply_to, file: name } };
}
