import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { canonicalAddress, isAddress } from "./address.ts";
import { type Boxes, boxesOf, makeBoxes } from "./boxes.ts";
import { type Disk, errorCode, errorReason, UnfitError } from "./disk.ts";
import {
	awaitsAnswer,
	type Envelope,
	envelopeFileName,
	type MailKind,
	maxBodyBytes,
	maxEnvelopeBytes,
	parseEnvelope,
	type ReplyStatus,
	serialiseEnvelope,
} from "./envelope.ts";
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
	/** A UUID chosen by the caller, for a mail that may have to be sent again. Default: a new one. */
	id?: string;
}

/** A mail that lies in its recipient's inbox. `durable` is false when a power cut could still undo it. */
export interface Delivered {
	ok: true;
	envelope: Envelope;
	durable: boolean;
	/** The name of its file. */
	name: string;
}

/** Why nothing was sent: the code for programs, the message (one sentence) for people (design D9). */
export interface Refusal {
	ok: false;
	code: "empty" | "too_large" | "invalid_address" | "self" | "invalid" | "mailbox_full" | "unfit_mailbox" | "io";
	message: string;
}

/** Most mails that wait in one inbox; answers are exempt (design D10). */
export const maxUnread = 256;

interface Sender {
	disk: Disk;
	root: string;
	address: string;
	boxes: Boxes;
	state: MailboxState;
	now: () => number;
	/** Whether a sent mail survives a power cut, or only a crash (design D5). */
	isDurable: () => boolean;
}

/**
 * Delivers one mail: afterwards it lies in the recipient's `new/` and, unless it is a reply, as a copy in `sent/`; or
 * nothing was sent and nothing is left. The system calls in order, and what a crash after each leaves:
 *
 *   write and fsync tmp/<name>      rubbish in the recipient's tmp/
 *   link it as sent/<name>.part     the same, and a .part whose mail is nowhere: removed at the sender's next start
 *   rename tmp/<name> to new/       delivered; the .part becomes the copy at the sender's next start
 *   fsync new/ and sent/            the same, and a power cut cannot undo it
 *   rename .part to sent/<name>     done
 */
export function deliver(sender: Sender, draft: Draft): Delivered | Refusal {
	const { disk, state } = sender;
	const durable = sender.isDurable();
	const to = canonicalAddress(draft.to);
	const keepsCopy = draft.kind !== "reply";
	const refusal = refusalOf(sender.address, to, draft);
	if (refusal !== undefined) return refusal;
	const time = sender.now();
	const envelope = envelopeOf(sender.address, to, draft, time);
	const text = serialiseEnvelope(envelope);
	const unreadable = unreadableBecause(text);
	if (unreadable !== undefined) return unreadable;
	const boxes = boxesOf(sender.root, to);
	let synced = durable;
	try {
		const changed = makeBoxes(disk, boxes);
		if (durable) synced = succeeds(() => syncFolders(disk, changed));
		if (keepsCopy && isFull(disk, boxes.new)) {
			return refuse("mailbox_full", `${to} already has ${maxUnread} unread mails; try again when it has read some`);
		}
	} catch (error) {
		return error instanceof UnfitError
			? refuse("unfit_mailbox", `its mailbox cannot be used: ${error.message}`)
			: refuse("io", errorReason(error));
	}

	let unfinished: string | undefined;
	let part: string | undefined;
	let name: string;
	try {
		name = envelopeFileName(state.nextStamp(time), envelope.id);
		unfinished = join(boxes.tmp, name);
		disk.create(unfinished, text, durable);
		if (keepsCopy) {
			part = join(sender.boxes.sent, `${name}.part`);
			copy(disk, unfinished, part, text, durable);
		}
		disk.rename(unfinished, join(boxes.new, name));
	} catch (error) {
		for (const path of [unfinished, part]) if (path !== undefined) succeeds(() => disk.remove(path));
		return refuse("io", errorReason(error));
	}
	const changedFolders = part === undefined ? [boxes.new] : [boxes.new, sender.boxes.sent];
	if (durable) synced = succeeds(() => syncFolders(disk, changedFolders)) && synced;
	if (part !== undefined) {
		const finished = part;
		succeeds(() => finish(disk, finished, join(sender.boxes.sent, name), text, durable));
		state.sent(name, awaitsAnswer(envelope) ? envelope.id : undefined);
	}
	return { ok: true, envelope, durable: synced, name };
}

function refusalOf(from: string, to: string, draft: Draft): Refusal | undefined {
	if (!isAddress(to)) return refuse("invalid_address", `${JSON.stringify(to.slice(0, 60))} is not an address`);
	if (to === from) return refuse("self", "a session cannot send mail to itself");
	if (draft.kind !== "reply" && draft.body.trim() === "") return refuse("empty", "the text is empty");
	const bytes = Buffer.byteLength(draft.body);
	if (bytes <= maxBodyBytes) return undefined;
	return refuse("too_large", `the text has ${bytes} bytes, more than the limit of ${maxBodyBytes}`);
}

function envelopeOf(from: string, to: string, draft: Draft, time: number): Envelope {
	return {
		id: draft.id ?? randomUUID(),
		from,
		to,
		kind: draft.kind,
		hops: draft.hops,
		in_reply_to: [...(draft.inReplyTo ?? [])],
		status: draft.status ?? "",
		ts: new Date(time).toISOString(),
		body: draft.body,
	};
}

function isFull(disk: Disk, inbox: string): boolean {
	return disk.list(inbox).filter((name) => name.endsWith(".json")).length >= maxUnread;
}

/** Where a second name for a file cannot be made: other file systems, FAT, some network mounts. */
const linkless = new Set(["EXDEV", "EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"]);

function copy(disk: Disk, from: string, to: string, text: string, durable: boolean): void {
	try {
		disk.link(from, to);
	} catch (error) {
		if (!linkless.has(errorCode(error) ?? "")) throw error;
		disk.create(to, text, durable);
	}
}

/** A start of the same session in another process may have taken the unfinished copy for a crash's. */
function finish(disk: Disk, part: string, to: string, text: string, durable: boolean): void {
	try {
		disk.rename(part, to);
	} catch (error) {
		if (errorCode(error) !== "ENOENT") throw error;
		disk.create(to, text, durable);
	}
}

/** Nothing is sent that its reader would set aside. */
function unreadableBecause(text: string): Refusal | undefined {
	const bytes = Buffer.byteLength(text);
	if (bytes > maxEnvelopeBytes)
		return refuse("too_large", `the mail has ${bytes} bytes, more than ${maxEnvelopeBytes}`);
	const parsed = parseEnvelope(text);
	return parsed.ok ? undefined : refuse("invalid", parsed.reason);
}

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
