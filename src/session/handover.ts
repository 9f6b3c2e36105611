import type { ResultPart } from "../mail/call-store.ts";
import { errorMessage, errorReason } from "../mail/disk.ts";
import { awaitsAnswer, type Envelope, isExpected } from "../mail/envelope.ts";
import type { Mailbox, OpenMail, SentCopy } from "../mail/mailbox.ts";
import type { Inbox } from "./inbox.ts";
import { keyOf, type Ledger, type MailDetails, type mailType } from "./ledger.ts";

/** A mail as a message of the conversation. */
export interface MailMessage {
	customType: typeof mailType;
	content: string | ResultPart[];
	display: true;
	details: { mail: MailDetails };
}

/** A claimed mail on its way into the conversation. */
export interface Arrival extends OpenMail {
	/** What a reply answers, as far as this session has copies. */
	requests: readonly SentCopy[];
	/** A reply to an ask that no longer waits. */
	isLate: boolean;
	/** Whether it starts a run. */
	wakes: boolean;
	/** A process ended with it before, which is not counted yet. */
	wasLeftOpen: boolean;
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
	/**
	 * Idle: gives waiting mail to Pi and starts one run for all of it when one of them wakes. True when there is more, for
	 * which the session has to be looked after again.
	 */
	whenIdle(): boolean;
	/** At the end of a turn that goes on: the mail to add to it, and whether one of it would start a run by itself. */
	atTurnEnd(): { messages: MailMessage[]; wakes: boolean };
	/** Busy: claims what the session waits for itself, and what interrupts it; true when there is more to look at. */
	whenBusy(): boolean;
	/**
	 * Claims everything that waits, or what the session waits for itself while the user wants no mail, and offers it to
	 * whoever takes mail over; the rest stays ready. False when not all of it could be claimed, or while mail that was claimed before is still being offered.
	 */
	claimAll(): boolean;
	/** A run has started: mail that Pi was given to start it with counts from here on. */
	runStarted(): void;
	/** At a moment when Pi must have added what it was given: closes the mail whose entries are there; the rest is ready again. */
	conclude(): void;
	/** Takes in mail that was left open; with `isRestart` by a process that ended, and not by this one before a `/reload`. */
	resume(mail: OpenMail, isRestart: boolean): void;
	/**
	 * After the user stopped a run (design D17): everything that arrived by now is claimed. Requests and asks among it are
	 * returned to be answered, and stay ready until the ledger has that; the rest starts no run any more.
	 */
	afterStop(): OpenMail[];
	/** The process ends, and not by a crash: mail that is still open has done it no harm. */
	end(): void;
	/** Whether Pi was given this mail and has not added it yet. */
	isInFlight(mail: { from: string; id: string }): boolean;
	/**
	 * A person has dealt with this mail: if it is on its way here, it goes no further, and its mark goes now. Where nothing of
	 * the session is saved yet, the next start would otherwise hand it over again.
	 */
	dismiss(mail: { from: string; id: string }): void;
	/** Mail that is claimed and not yet in the conversation. */
	readonly claimedCount: number;
	/** Whether some of it comes at the next gap. */
	readonly hasNext: boolean;
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

export interface HandoverParts {
	mailbox: Mailbox;
	inbox: Inbox;
	ledger: Ledger;
	conversation: Conversation;
	/** The copies of what a reply answers; empty when there are none, or they cannot be read. */
	requestsOf: (mail: OpenMail) => readonly SentCopy[];
	/** The message that brings a mail. */
	messageOf: (arrival: Arrival) => MailMessage;
	/** Gives a reply to the ask that waits for it; false when none does. */
	answersAsk: (mail: OpenMail) => boolean;
	/** Offers a mail to other extensions; true when one took it over, and the session has noted that. Throws when it cannot note it. */
	isTakenOver: (arrival: Arrival) => boolean;
	/** Whether mail other than replies stays in `new/`, since the user wants none. */
	isOff: () => boolean;
	/** Whether the user keeps the session from running: what it waits for itself waits here. */
	isPaused: () => boolean;
	/** Whether a mail that is no reply, or is the late answer to an ask, may start a run. */
	mayWake: (envelope: Envelope) => boolean;
	/** Whether the model has seen the result of this call before. */
	hasSeenResult: (callId: string) => boolean;
	/** Does what control mail says, and notes it: from then on it is done with. Throws when it cannot note it. */
	control: (mail: OpenMail) => void;
	/** Whether a mail may interrupt the session. */
	mayInterrupt: (envelope: Envelope) => boolean;
	/** Mail came that interrupts the session. */
	onInterrupt: () => void;
	/** Told of each waking mail that entered the conversation, with its hop count. */
	onWake: (hops: number) => void;
	/** Told of each other mail but replies that entered it: its hops count from the next run on, which reads it. */
	onQuiet: (hops: number) => void;
	/** Milliseconds of a clock that nobody sets: pauses are measured by it. */
	now: () => number;
	warn: (text: string) => void;
}

/** What a mail adds to the count of hops: the run that reads the result of a call goes on where the one that made it was. */
function hopsOf({ envelope: { kind, hops } }: Arrival): number {
	return kind === "result" ? hops - 1 : hops;
}

/** Of an image it counts what the session file takes of it. */
function bytesOf(content: MailMessage["content"]): number {
	if (typeof content === "string") return Buffer.byteLength(content);
	return content.reduce(
		(sum, part) => sum + (part.type === "text" ? Buffer.byteLength(part.text) : part.data.length),
		0,
	);
}

export function createHandover(parts: HandoverParts): Handover {
	const { mailbox, inbox, ledger, conversation } = parts;
	/** Claimed, and not yet given to anybody; by key, oldest first once `nextMails` was called. */
	const ready = new Map<string, Arrival>();
	let newestReady = "";
	let isInOrder = true;
	/** Given to Pi or to a waiting ask. */
	const inFlight = new Map<string, Arrival>();
	/** Done with, as soon as the entries that prove it are saved; by name. */
	const unsaved = new Map<string, OpenMail>();
	/** While mail is offered to other extensions, one of them may ask for more, or start a run. */
	let isAdmitting = false;
	let failures = 0;
	let notBefore = 0;
	/**
	 * When Pi took mail without starting its run: it does that while extensions still hear that the last run settled, and
	 * starts it afterwards. To offer the mail again in the meantime would bring it twice.
	 */
	let deferredAt: number | undefined;

	/** Takes claimed mail in. What goes wrong with one does not keep the others out. */
	function admitAll(mails: readonly OpenMail[], wasLeftOpen = false): void {
		isAdmitting = true;
		for (const mail of mails) {
			try {
				admit(mail, wasLeftOpen);
			} catch (error) {
				parts.warn(`the mail ${mail.path} waits for the next start: ${errorMessage(error)}`);
			}
		}
		isAdmitting = false;
		closeSaved();
	}

	/** True when there is more than it looked at. */
	function admitWaiting(): boolean {
		const { mails, hasMore } = parts.isOff() ? inbox.claimExpected(false) : inbox.claim(maxMails - ready.size);
		admitAll(mails);
		return hasMore;
	}

	function closeSaved(): void {
		if (unsaved.size === 0 || !conversation.isSaved()) return;
		const isCounted = areCountsSaved();
		for (const mail of unsaved.values()) {
			// Without its mark, nothing would tell the next start that it answered something.
			if (!isCounted && mail.envelope.kind === "reply") continue;
			try {
				tellRead(mail);
				mailbox.close(mail.name);
				unsaved.delete(mail.name);
			} catch (error) {
				// What follows must not fail for it; it is tried again at the next look.
				parts.warn(`the open mark of ${mail.path} could not be removed: ${errorReason(error)}`);
			}
		}
	}

	/** Tells the sender of a mail that the session holds it. What was answered unread is none of it. */
	function tellRead({ name, envelope }: OpenMail): void {
		if (envelope.kind === "reply" || !ledger.get(envelope)?.entryId) return;
		mailbox.note({ from: envelope.from, name }, "read");
	}

	/** Whoever shows the counts warns when they cannot be saved. */
	function areCountsSaved(): boolean {
		try {
			mailbox.saveState();
			return true;
		} catch {
			return false;
		}
	}

	function admit(mail: OpenMail, wasLeftOpen: boolean): void {
		const { envelope } = mail;
		const key = keyOf(envelope);
		const held = inFlight.get(key) ?? ready.get(key);
		if (held?.name === mail.name) return;
		const requests = parts.requestsOf(mail);
		// Only what was sent to its sender is answered by a reply: anybody can name an id.
		if (envelope.kind === "reply") mailbox.answered(requests.map((request) => request.envelope.id));
		if (held !== undefined || ledger.has(envelope)) {
			unsaved.set(mail.name, mail);
			return;
		}
		if (envelope.kind === "control") {
			parts.control(mail);
			unsaved.set(mail.name, mail);
			return;
		}
		const isLate = envelope.kind === "reply" && requests.some((request) => request.envelope.kind === "ask");
		const arrival = { ...mail, requests, isLate, wakes: mayStartRun(envelope, isLate), wasLeftOpen };
		if (envelope.x?.priority === "interrupt" && parts.mayInterrupt(envelope)) parts.onInterrupt();
		if (envelope.kind === "reply" && parts.answersAsk(mail)) inFlight.set(key, arrival);
		else if (!parts.isTakenOver(arrival)) makeReady(key, arrival);
		else unsaved.set(mail.name, mail);
	}

	function mayStartRun(envelope: Envelope, isLate: boolean): boolean {
		if (envelope.kind === "result") return !parts.hasSeenResult(envelope.x?.call?.id ?? "");
		// What is no answer wakes nobody any more (design D18).
		const isNoAnswer = envelope.kind === "reply" && !(isLate && envelope.status === "done");
		return !isNoAnswer && parts.mayWake(envelope);
	}

	function makeReady(key: string, arrival: Arrival): void {
		ready.set(key, arrival);
		isInOrder &&= arrival.name > newestReady;
		newestReady = arrival.name;
	}

	/** What is ready and comes next, one by one: it may be ten thousand mails, of which few are wanted. */
	function* nextMails(): Generator<Arrival> {
		if (!isInOrder) {
			const inOrder = [...ready].sort(([, a], [, b]) => (a.name < b.name ? -1 : 1));
			ready.clear();
			isInOrder = true;
			for (const [key, arrival] of inOrder) makeReady(key, arrival);
		}
		const isOff = parts.isOff();
		for (const arrival of ready.values()) if (!isOff || isExpected(arrival.envelope)) yield arrival;
	}

	/** The next mails in order, within the limits. They are in flight from here on. */
	function take(): { messages: MailMessage[]; wakes: boolean } {
		const isOff = parts.isOff();
		const taken: Arrival[] = [];
		const messages: MailMessage[] = [];
		let bytes = 0;
		for (const arrival of nextMails()) {
			if (taken.length === maxMails) break;
			const message = parts.messageOf(arrival);
			bytes += bytesOf(message.content);
			if (messages.length > 0 && bytes > maxTextBytes) break;
			if (arrival.wasLeftOpen) mailbox.countTry(arrival);
			arrival.wasLeftOpen = false;
			// The late answer to an ask is as quiet as any other when the user wants no mail; so is what the model has seen since.
			if (isOff || !mayStartRun(arrival.envelope, arrival.isLate)) arrival.wakes = false;
			messages.push(message);
			taken.push(arrival);
		}
		for (const arrival of taken) {
			const key = keyOf(arrival.envelope);
			ready.delete(key);
			inFlight.set(key, arrival);
		}
		return { messages, wakes: taken.some((arrival) => arrival.wakes) };
	}

	function confirm(): void {
		ledger.read(conversation.entries());
		for (const key of ledger.newlyDone()) {
			// If it is ready, it was answered at a stop, or brought by another process of this session.
			const arrival = inFlight.get(key) ?? ready.get(key);
			if (arrival === undefined) continue;
			unsaved.set(arrival.name, arrival);
			ready.delete(key);
			if (!inFlight.delete(key)) continue;
			if (arrival.wakes) parts.onWake(hopsOf(arrival));
			else if (arrival.envelope.kind !== "reply") parts.onQuiet(hopsOf(arrival));
			failures = 0;
			notBefore = 0;
		}
		closeSaved();
	}

	function whenBusy(): boolean {
		if (isAdmitting) return false;
		const { mails, hasMore } = inbox.claimExpected(!parts.isOff());
		admitAll(mails);
		return hasMore;
	}

	function isDeferred(): boolean {
		if (inFlight.size === 0) deferredAt = undefined;
		return deferredAt !== undefined;
	}

	/** Pi has not added what it was given: it is offered again, and no run is started for it before a pause. */
	function takeBack(): void {
		if (inFlight.size === 0) return;
		for (const [key, arrival] of inFlight) makeReady(key, arrival);
		inFlight.clear();
		notBefore = parts.now() + Math.min(maxRetryMs, firstRetryMs * 2 ** failures++);
	}

	function conclude(): void {
		confirm();
		if (!isDeferred()) takeBack();
	}

	return {
		whenIdle() {
			if (isAdmitting) return false;
			confirm();
			if (deferredAt !== undefined && parts.now() > deferredAt + maxDeferredMs) deferredAt = undefined;
			if (isDeferred()) return false;
			// Pi said that it started a run, and is idle without one: the run could not start.
			takeBack();
			if (parts.now() < notBefore) return false;
			const hasMore = admitWaiting();
			// Whoever took a mail over may have started a run.
			if (!conversation.isIdle()) return false;
			if (parts.isPaused()) return hasMore;
			const { messages, wakes } = take();
			if (messages.length === 0) return hasMore;
			for (const [index, message] of messages.entries()) {
				conversation.add(message, wakes && index === messages.length - 1);
			}
			if (wakes && conversation.isIdle()) deferredAt = parts.now();
			confirm();
			return hasMore || ready.size > 0;
		},
		atTurnEnd() {
			confirm();
			admitWaiting();
			return take();
		},
		whenBusy,
		claimAll() {
			if (isAdmitting) return false;
			if (parts.isOff()) {
				while (whenBusy());
				return inbox.isReadable;
			}
			admitAll(inbox.claim(Number.POSITIVE_INFINITY).mails);
			return inbox.isReadable && inbox.waitingCount === 0;
		},
		runStarted() {
			for (const arrival of inFlight.values()) if (arrival.wakes) parts.onWake(hopsOf(arrival));
		},
		conclude,
		resume: (mail, isRestart) => admitAll([mail], isRestart),
		afterStop() {
			if (!parts.isOff()) admitAll(inbox.claim(Number.POSITIVE_INFINITY).mails);
			const owed = [...ready.values()].filter(({ envelope }) => awaitsAnswer(envelope));
			for (const arrival of ready.values()) if (!awaitsAnswer(arrival.envelope)) arrival.wakes = false;
			return owed;
		},
		end() {
			for (const mail of [...ready.values(), ...inFlight.values(), ...unsaved.values()]) {
				mailbox.endedWell(mail);
			}
		},
		isInFlight: (mail) => inFlight.has(keyOf(mail)),
		dismiss(mail) {
			const key = keyOf(mail);
			const isMeant = ({ envelope }: OpenMail) => keyOf(envelope) === key;
			for (const { name } of [...ready.values(), ...unsaved.values()].filter(isMeant)) {
				mailbox.close(name);
				unsaved.delete(name);
			}
			ready.delete(key);
		},
		get claimedCount() {
			return ready.size + inFlight.size;
		},
		get hasNext() {
			return nextMails().next().done !== true;
		},
		get unsavedCount() {
			return unsaved.size;
		},
	};
}
