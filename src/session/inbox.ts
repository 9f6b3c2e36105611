import { maxUnread } from "../mail/deliver.ts";
import { errorMessage, errorReason } from "../mail/disk.ts";
import { type Envelope, isExpected } from "../mail/envelope.ts";
import type { DeadMail, Mailbox, OpenMail } from "../mail/mailbox.ts";
import type { ShellWait } from "../mail/running.ts";
import { createWatch, type Watch } from "./watch.ts";

/** Notices and claims the mail of one session. The watcher is a hint, the scan is the truth (design L5). */
export interface Inbox {
	/** Calls `onMail` soon after something came into `new/`, and `onSweep` about once a second in any case. Until `close`. */
	watch(onMail: () => void, onSweep?: () => void): void;
	/** Watches anew, after `new/` was made again: the watch was of the folder that was there before. */
	rewatch(): void;
	/** Claims mail, oldest first, and sets aside what cannot be read: at most so many names of both. */
	claim(atMost: number): Claimed;
	/**
	 * Claims only what the session waits for itself, since others may depend on it, and interrupts unless they are to wait; the
	 * rest stays in `new/`. Looks at a bounded number of new files, and claims a bounded number of them.
	 */
	claimExpected(takesInterrupts: boolean): Claimed;
	/** Looks at what waits, and claims nothing. */
	look(): void;
	/** Puts a waiting mail on hold: until `release` it is not claimed. False when it does not wait any more. Throws the disk's errors. */
	hold(name: string): boolean;
	/** Ends that; the mail is as one that has just come. False when it does not wait any more. Throws the disk's errors. */
	release(name: string): boolean;
	/** How many mails that are not on hold waited in `new/` when it was last scanned, and were not claimed since. */
	readonly waitingCount: number;
	/** How many were on hold. */
	readonly onHoldCount: number;
	/** Whether `new/` could be listed when it was last scanned. */
	readonly isReadable: boolean;
	/** Why the inbox is looked into again and again instead of watched; undefined while a watch works, and when nothing was to be watched. */
	readonly unwatchedBecause: string | undefined;
	close(): void;
}

/** What one look has claimed. */
export interface Claimed {
	mails: OpenMail[];
	/** It stopped at its limit: call again for the rest. */
	hasMore: boolean;
}

/** Why a mail is not left waiting while the session is busy. */
type Urgency = "expected" | "interrupt" | "none";

function urgencyOf(envelope: Envelope | undefined): Urgency {
	if (envelope === undefined) return "none";
	return isExpected(envelope) ? "expected" : (envelope.x?.priority ?? "none");
}

/** How long the names of a backlog are good for. */
const scanMs = 1000;
/** Files that one look at a busy session's inbox reads, and mails that it claims. */
const maxPeeks = 100;
const maxClaims = 20;

/** `shellWaits`: the asks whose answers are left to programs in the session's shell. */
export function createInbox(
	mailbox: Mailbox,
	setAside: (mail: DeadMail) => void,
	warn: (text: string) => void,
	shellWaits: () => readonly ShellWait[] = () => [],
): Inbox {
	/** What was read of waiting mail. Holds waiting names only. */
	let known = new Map<string, Urgency>();
	/** Names that are no mail and stay in `new/`. */
	let left = new Set<string>();
	let waiting = new Set<string>();
	let onHold = new Set<string>();
	let isReadable = true;
	let scannedAt = Number.NEGATIVE_INFINITY;
	let watch: Watch | undefined;

	/** What is to be looked at now. A backlog is listed once a second, and not again for each part of it. */
	function look(): string[] {
		return waiting.size > maxUnread && performance.now() - scannedAt < scanMs ? [...waiting] : scan();
	}

	/** What `new/` holds now. While it cannot be listed, it is taken to hold what it held. */
	function scan(): string[] {
		scannedAt = performance.now();
		try {
			const { waiting: names, onHold: held } = mailbox.look();
			if (names.some((name) => !waiting.has(name) && !left.has(name))) watch?.found();
			left = new Set(names.filter((name) => left.has(name)));
			waiting = new Set(names.filter((name) => !left.has(name)));
			onHold = new Set(held);
			isReadable = true;
			watch?.rest(waiting.size > maxUnread);
		} catch (error) {
			isReadable = false;
			warn(`the inbox ${mailbox.newFolder} cannot be read: ${errorMessage(error)}`);
		}
		return [...waiting];
	}

	/** Whether a mail is left to a program. It is looked at again at each scan, since the program may be gone by then. */
	function isLeft(name: string, waits: readonly ShellWait[]): boolean {
		const envelope = waits.length > 0 ? mailbox.peek(name) : undefined;
		if (envelope?.kind !== "reply") return false;
		return waits.some(({ id, to }) => to === envelope.from && envelope.in_reply_to.includes(id));
	}

	function claimOne(name: string, waits: readonly ShellWait[]): OpenMail | undefined {
		try {
			if (isLeft(name, waits)) {
				waiting.delete(name);
				return undefined;
			}
			const claim = mailbox.claim(name);
			if (claim.result === "left") {
				left.add(name);
				warn(`${claim.path} is not mail and is passed over: ${claim.reason}; move or delete it`);
			}
			waiting.delete(name);
			if (claim.result === "dead") setAside(claim);
			return claim.result === "claimed" ? claim.mail : undefined;
		} catch (error) {
			warn(`mail in ${mailbox.newFolder} could not be taken in and will be tried again: ${errorReason(error)}`);
			return undefined;
		}
	}

	return {
		watch(onMail, onSweep) {
			watch = createWatch(mailbox.newFolder, onMail, warn, onSweep);
			watch.rest(waiting.size > maxUnread);
		},
		rewatch: () => watch?.renew(),
		claim(atMost) {
			const mails: OpenMail[] = [];
			const names = look();
			// What the machine keeps from being claimed does not stand in the way of the rest.
			const isDone = () => names.length - waiting.size >= atMost;
			// After the list: the sign of an ask is older than its answer.
			const waits = names.length > 0 ? shellWaits() : [];
			for (const name of names) {
				if (isDone()) break;
				const mail = claimOne(name, waits);
				if (mail !== undefined) mails.push(mail);
			}
			return { mails, hasMore: isDone() };
		},
		claimExpected(takesInterrupts) {
			const mails: OpenMail[] = [];
			const seen = new Map<string, Urgency>();
			let peeks = 0;
			let hasLearned = false;
			let isCut = false;
			const names = look();
			const waits = names.length > 0 ? shellWaits() : [];
			for (const name of names) {
				if (!known.has(name)) {
					if (peeks === maxPeeks) continue;
					peeks++;
					try {
						known.set(name, urgencyOf(mailbox.peek(name)));
						hasLearned = true;
					} catch {
						// Tried again at the next look.
						continue;
					}
				}
				const urgency = known.get(name) ?? "none";
				seen.set(name, urgency);
				if (urgency !== "expected" && !(takesInterrupts && urgency === "interrupt")) continue;
				if (mails.length === maxClaims) {
					isCut = true;
					continue;
				}
				const mail = claimOne(name, waits);
				if (mail !== undefined) mails.push(mail);
			}
			known = seen;
			return { mails, hasMore: isCut || (peeks === maxPeeks && hasLearned) };
		},
		look: scan,
		hold(name) {
			const isHeld = mailbox.hold(name);
			// At once: the names of a backlog, or of a folder that cannot be listed, are used again.
			waiting.delete(name);
			if (isHeld) onHold.add(name);
			return isHeld;
		},
		release(name) {
			const isThere = mailbox.release(name);
			onHold.delete(name);
			if (isThere) waiting.add(name);
			return isThere;
		},
		get waitingCount() {
			return waiting.size;
		},
		get onHoldCount() {
			return onHold.size;
		},
		get isReadable() {
			return isReadable;
		},
		get unwatchedBecause() {
			return watch?.lostBecause;
		},
		close: () => watch?.close(),
	};
}
