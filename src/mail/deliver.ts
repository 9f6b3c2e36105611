import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { canonicalAddress, isAddress, isPassingAddress, isUuid } from "./address.ts";
import { type Box, type Boxes, boxesOf, mailsIn, makeBoxes } from "./boxes.ts";
import { type Disk, errorCode, errorReason, UnfitError } from "./disk.ts";
import {
	awaitsAnswer,
	type CallOfResult,
	type Control,
	contentOf,
	type Envelope,
	envelopeFileName,
	extras,
	invalidBecause,
	isExpected,
	type MailKind,
	maxBodyBytes,
	maxEnvelopeBytes,
	type ReplyStatus,
} from "./envelope.ts";
import { isSameMail, type Receipt, readReceipt, receiptPath, writeReceipt } from "./receipt.ts";
import type { MailboxState } from "./state.ts";

/** What a sender decides about a mail; the rest of its envelope follows. */
export interface Draft {
	to: string;
	kind: MailKind;
	body: string;
	/** Hop count of the run that sends it; 0 when a person does. */
	hops: number;
	/** The ids that a reply answers. */
	inReplyTo?: readonly string[];
	/** How the answering run ended; replies only. */
	status?: ReplyStatus;
	/**
	 * A UUID chosen by the caller, for a mail that may have to be sent again: once it was sent, the same id from the same
	 * address sends nothing more. Default: a new one.
	 */
	id?: string | undefined;
	/** It starts no turn; of messages only. */
	quiet?: boolean | undefined;
	/** The id of the mail that it takes the place of. */
	replaces?: string | undefined;
	/** A program sends it under an address of its own. */
	program?: boolean | undefined;
	/** It interrupts its recipient, if that one lets it. */
	priority?: "interrupt" | undefined;
	/** Of a result. */
	call?: CallOfResult | undefined;
	/** Of control mail. */
	control?: Control | undefined;
}

/** A mail that lies in its recipient's inbox, or did before it was read. */
export interface Delivered {
	ok: true;
	envelope: Envelope;
	/** False when a power cut could still undo it. */
	durable: boolean;
	/** The name of its file. */
	name: string;
	/** It was sent before under this id: nothing was sent now, and `envelope` is that of the first time. */
	duplicate?: true;
}

/** Why nothing was sent: the code for programs, the message (one sentence) for people (design D9). */
export interface Refusal {
	ok: false;
	code:
		| "empty"
		| "too_large"
		| "invalid_address"
		| "self"
		| "invalid"
		| "id_used"
		| "mailbox_full"
		| "unfit_mailbox"
		| "ended"
		| "io";
	message: string;
}

/** Most mails that wait in one inbox; answers are exempt (design D10). */
export const maxUnread = 256;

/** Names that were taken before another is not tried any more. */
const maxTries = 100;

/** Who sends, and what it knows. */
export interface Sender {
	disk: Disk;
	root: string;
	address: string;
	boxes: Boxes;
	state: MailboxState;
	now: () => number;
	/** Whether a sent mail survives a power cut, or only a crash (design D5). */
	isDurable: () => boolean;
	/** Makes what is missing of these own boxes; throws when they cannot be used. */
	mend: (needed: readonly Box[]) => void;
	/** The inbox that was last sent to, and how many mails wait in it as long as its folder does not change otherwise. */
	inbox?: { path: string; changed: number | undefined; count: number };
}

/**
 * Delivers one mail: afterwards it lies in the recipient's `new/` and, unless it is a reply, as a copy in `sent/`; or
 * nothing was sent and nothing is left. The system calls in order, and what a crash after each leaves:
 *
 *   write tmp/<name>                rubbish in the recipient's tmp/
 *   write sent/<id>.receipt         (for an id of the caller's only) the same, and a receipt without a mail: the next try sends
 *   link it as sent/<name>.part     the same, and a .part whose mail is nowhere: removed at the sender's next start, as is one
 *                                   that a power cut left empty or cut short, which only one of a mail in tmp/ can be
 *   fsync tmp/<name>                the same
 *   rename tmp/<name> to new/       delivered; the .part becomes the copy at the sender's next start
 *   fsync new/ and sent/            the same, and a power cut cannot undo it
 *   rename .part to sent/<name>     done
 *
 * The mail is linked before its fsync, so that a journal takes both to the disk at once: a flush is what a mail costs.
 */
export function deliver(sender: Sender, draft: Draft): Delivered | Refusal {
	const { disk, state } = sender;
	const { sent } = sender.boxes;
	const durable = sender.isDurable();
	const to = canonicalAddress(draft.to);
	const keepsCopy = !isExpected(draft);
	const refusal = refusalOf(sender.address, to, draft);
	if (refusal !== undefined) return refusal;
	const time = sender.now();
	const envelope = envelopeOf(sender.address, to, draft, time);
	const hasOwnId = draft.id !== undefined;
	// Made once: a large mail is held as few times as can be.
	const content = contentOf(envelope);
	const unreadable = unreadableBecause(envelope, content);
	if (unreadable !== undefined) return unreadable;
	const boxes = boxesOf(sender.root, to);
	let synced = durable;
	try {
		sender.mend(keepsCopy || hasOwnId ? ["sent"] : []);
		const receipt = hasOwnId ? readReceipt(disk, sent, envelope.id) : undefined;
		if (receipt !== undefined && isSent(sender, receipt)) return again(sender, receipt, envelope);
	} catch (error) {
		return refuse("io", errorReason(error));
	}
	try {
		// The folder of a program that has ended must not come back.
		const changed = isPassingAddress(to) ? [] : makeBoxes(disk, boxes, ["tmp", "new", "cur"]);
		if (durable) synced = succeeds(() => syncFolders(disk, changed));
		if (keepsCopy && isFull(sender, boxes.new)) {
			return refuse("mailbox_full", `${to} already has ${maxUnread} unread mails; try again when it has read some`);
		}
	} catch (error) {
		return error instanceof UnfitError
			? refuse("unfit_mailbox", `its mailbox cannot be used: ${error.message}`)
			: refuse("io", errorReason(error));
	}

	/** The files that are removed again when the mail cannot be sent. */
	const made: string[] = [];
	let name: string;
	let kept: string;
	try {
		name = write(sender, boxes, { id: envelope.id, isChosen: hasOwnId, content, time }, made);
		const unfinished = join(boxes.tmp, name);
		kept = join(sent, name);
		if (hasOwnId) {
			made.push(receiptPath(sent, envelope.id));
			writeReceipt(disk, sent, name, durable, envelope);
		}
		if (keepsCopy) {
			made.push(`${kept}.part`);
			copy(disk, unfinished, `${kept}.part`, content, durable);
		}
		if (durable) disk.syncFile(unfinished);
		disk.rename(unfinished, join(boxes.new, name));
	} catch (error) {
		for (const path of made.reverse()) succeeds(() => disk.remove(path));
		if (isPassingAddress(to) && errorCode(error) === "ENOENT") return refuse("ended", "that program has ended");
		return refuse("io", errorReason(error));
	}
	const changedFolders = keepsCopy ? [boxes.new, sent] : [boxes.new];
	if (durable) synced = succeeds(() => syncFolders(disk, changedFolders)) && synced;
	if (keepsCopy) {
		succeeds(() => finish(disk, `${kept}.part`, kept, content, durable));
		state.sent(name, awaitsAnswer(envelope) ? envelope.id : undefined);
		succeeds(() => countDelivered(sender));
	}
	return { ok: true, envelope, durable: synced, name };
}

/** The envelope of a mail that was sent under this id of the caller's, without its body. */
export function sentBefore(sender: Sender, id: string | undefined): Envelope | undefined {
	if (id === undefined || !isUuid(id)) return undefined;
	try {
		const receipt = readReceipt(sender.disk, sender.boxes.sent, id.toLowerCase());
		return receipt !== undefined && isSent(sender, receipt) ? receipt.envelope : undefined;
	} catch {
		// Whoever sends now hears of it.
		return undefined;
	}
}

/** Why this could not be sent whatever the disk says; the envelope that it would have otherwise. */
export function draftedEnvelope(
	{ address, now }: Sender,
	draft: Draft,
): { ok: true; envelope: Envelope; content: string | Uint8Array } | Refusal {
	const refusal = refusalOf(address, draft.to, draft);
	if (refusal !== undefined) return refusal;
	const envelope = envelopeOf(address, draft.to, draft, now());
	const content = contentOf(envelope);
	return unreadableBecause(envelope, content) ?? { ok: true, envelope, content };
}

/** Whether a mail of this name lies with its recipient, read or not. */
export function hasArrived(disk: Disk, root: string, to: string, name: string): boolean {
	const recipient = boxesOf(root, to);
	return [recipient.new, recipient.cur].some((box) => disk.entry(join(box, name)) !== undefined);
}

function refusalOf(from: string, to: string, draft: Draft): Refusal | undefined {
	if (!isAddress(to)) return refuse("invalid_address", `${JSON.stringify(to.slice(0, 60))} is not an address`);
	if (to === from && draft.kind !== "result") return refuse("self", "a session cannot send mail to itself");
	if (isPassingAddress(to) && draft.kind !== "reply") {
		return refuse("ended", `${to} is a program that only waits for an answer and reads no other mail`);
	}
	if (draft.kind !== "reply" && draft.body.trim() === "") return refuse("empty", "the text is empty");
	if (draft.id !== undefined && !isUuid(draft.id)) {
		return refuse("invalid", `the id ${JSON.stringify(draft.id.slice(0, 60))} is not a UUID`);
	}
	if (fits(draft.body, maxBodyBytes)) return undefined;
	const bytes = Buffer.byteLength(draft.body);
	return refuse("too_large", `the text has ${bytes} bytes, more than the limit of ${maxBodyBytes}`);
}

function envelopeOf(from: string, to: string, draft: Draft, time: number): Envelope {
	return {
		id: draft.id?.toLowerCase() ?? randomUUID(),
		from,
		to,
		kind: draft.kind,
		hops: draft.hops,
		in_reply_to: [...(draft.inReplyTo ?? [])],
		status: draft.status ?? "",
		ts: new Date(time).toISOString(),
		body: draft.body,
		...extras({
			quiet: draft.quiet === true || undefined,
			replaces: draft.replaces,
			program: draft.program === true || undefined,
			priority: draft.priority,
			call: draft.call,
			control: draft.control,
		}),
	};
}

/** Whether the mail of a receipt was delivered. One whose copy was taken back was not. */
function isSent({ disk, root, boxes }: Sender, { name, envelope }: Receipt): boolean {
	return disk.entry(join(boxes.sent, name)) !== undefined || hasArrived(disk, root, envelope.to, name);
}

function again({ disk, root, boxes, isDurable }: Sender, receipt: Receipt, draft: Envelope): Delivered | Refusal {
	const { name, envelope } = receipt;
	if (!isSameMail(receipt, draft)) return refuse("id_used", `the id ${draft.id} was used for another mail`);
	// The first time may have been cut short before this.
	const folders = [boxesOf(root, envelope.to).new, boxes.sent];
	const durable = receipt.durable && isDurable() && succeeds(() => syncFolders(disk, folders));
	return { ok: true, envelope: { ...envelope, body: draft.body }, durable, name, duplicate: true };
}

/**
 * Writes the mail into the recipient's `tmp/` under a name that is free in `new/` as well. Another sender may choose the same
 * id in the same millisecond: the name in `tmp/` is then the lock for the one in `new/`, which is looked at after it was made.
 * No id that was made here is in any other name.
 */
function write(
	{ disk, state }: Sender,
	boxes: Boxes,
	{ id, isChosen, content, time }: { id: string; isChosen: boolean; content: string | Uint8Array; time: number },
	made: string[],
): string {
	for (let tries = 0; ; tries++) {
		const name = envelopeFileName(state.nextStamp(time), id);
		const unfinished = join(boxes.tmp, name);
		try {
			disk.create(unfinished, content);
		} catch (error) {
			if (errorCode(error) === "EEXIST" && tries < maxTries) continue;
			throw error;
		}
		made.push(unfinished);
		if (!isChosen || disk.entry(join(boxes.new, name)) === undefined) return name;
		disk.remove(unfinished);
	}
}

function isFull(sender: Sender, path: string): boolean {
	const { disk, inbox } = sender;
	const changed = disk.changed(path);
	// Before a mail is refused the folder is asked itself: its time may be too coarse for two changes.
	if (inbox?.path === path && inbox.changed === changed && inbox.count < maxUnread) return false;
	const count = mailsIn(disk, path).length;
	sender.inbox = { path, changed, count };
	return count >= maxUnread;
}

/** Counts what was just delivered to the inbox that was looked at, so that the next mail to it does not have to list it. */
function countDelivered({ disk, inbox }: Sender): void {
	if (inbox === undefined) return;
	inbox.changed = disk.changed(inbox.path);
	inbox.count++;
}

/** The codes of errors where a second name for a file cannot be made: other file systems, FAT, some network mounts. */
export const linkless = new Set(["EXDEV", "EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"]);

function copy(disk: Disk, from: string, to: string, content: string | Uint8Array, durable: boolean): void {
	try {
		disk.link(from, to);
	} catch (error) {
		if (!linkless.has(errorCode(error) ?? "")) throw error;
		createSafe(disk, to, content, durable);
	}
}

/** A start of the same session in another process may have taken the unfinished copy for a crash's. */
function finish(disk: Disk, part: string, to: string, content: string | Uint8Array, durable: boolean): void {
	try {
		disk.rename(part, to);
	} catch (error) {
		if (errorCode(error) !== "ENOENT") throw error;
		createSafe(disk, to, content, durable);
	}
}

/** A file that must not exist yet; it survives a power cut when it is to. */
export function createSafe(disk: Disk, path: string, content: string | Uint8Array, durable: boolean): void {
	disk.create(path, content);
	if (durable) disk.syncFile(path);
}

/** Nothing is sent that its reader would set aside. */
function unreadableBecause(envelope: Envelope, content: string | Uint8Array): Refusal | undefined {
	if (!fits(content, maxEnvelopeBytes)) {
		const bytes = Buffer.byteLength(content);
		return refuse("too_large", `the mail has ${bytes} bytes, more than ${maxEnvelopeBytes}`);
	}
	const invalid = invalidBecause(envelope);
	return invalid === undefined ? undefined : refuse("invalid", invalid);
}

/** Whether a text has at most so many bytes in UTF-8. The bytes of a short one are not counted. */
function fits(content: string | Uint8Array, maxBytes: number): boolean {
	return content.length * maxBytesOfUnit <= maxBytes || Buffer.byteLength(content) <= maxBytes;
}

/** Most bytes that UTF-8 makes of one UTF-16 code unit. */
const maxBytesOfUnit = 3;

function syncFolders(disk: Disk, folders: readonly string[]): void {
	for (const folder of folders) disk.syncFolder(folder);
}

function refuse(code: Refusal["code"], why: string): Refusal {
	return { ok: false, code, message: `Nothing was sent: ${why}.` };
}

/** Runs something whose failure changes nothing that was promised; says whether it worked. */
function succeeds(action: () => void): boolean {
	try {
		action();
		return true;
	} catch {
		return false;
	}
}
