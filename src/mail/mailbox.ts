import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { isUuid } from "./address.ts";
import { type Box, boxesOf, isEmpty, mailsIn, makeBoxes } from "./boxes.ts";
import { callFolders } from "./call-store.ts";
import { type Delivered, type Draft, deliver, hasArrived, type Refusal, type Sender, sentBefore } from "./deliver.ts";
import { type Disk, errorCode, errorMessage, errorReason, quietly, UnfitError } from "./disk.ts";
import {
	awaitsAnswer,
	type Envelope,
	idInName,
	maxEnvelopeBytes,
	type Owing,
	type ParsedEnvelope,
	parseEnvelope,
} from "./envelope.ts";
import { holdOf, mailOfHold } from "./hold.ts";
import { copyOfMark, noteProgress, type Progress } from "./progress.ts";
import { type MailFile, mailAt, readMail } from "./read-mail.ts";
import { checkRoot } from "./root.ts";
import { type MailboxState, openState } from "./state.ts";
import { createTakingBack, type EditRefusal, editEnding } from "./take-back.ts";
import { hourMs } from "./time.ts";

/** A mail that was moved from `new/` to `cur/` and is marked open: nothing shows yet that a conversation holds it. */
export interface OpenMail {
	/** Its name in `cur/`. */
	name: string;
	path: string;
	envelope: Envelope;
	/** How often a process died before the mail that it had claimed was in the conversation; -1 when the first has ended well. */
	tries: number;
}

/** A claimed mail that cannot be handed over, by its path in `cur/`; with `owing` when it can still be answered. */
export interface DeadMail {
	path: string;
	reason: string;
	owing?: Owing;
}

/** What a claim found. */
export type Claim =
	| { result: "claimed"; mail: OpenMail }
	/** Somebody else took it, or took it back. */
	| { result: "gone" }
	/** Not a mail at all (a folder, a FIFO, a symlink): it stays where it is. */
	| { result: "left"; path: string; reason: string }
	/**
	 * Claimed but unreadable: it stays in `cur/` with its reason beside it, and is never tried again (design D12). One that can
	 * be answered is still open: `bury` it after that.
	 */
	| ({ result: "dead" } & DeadMail)
	/** The machine failed, for example with too many open files: worth another try. */
	| { result: "failed"; path: string; reason: string };

/** A copy of a mail that this address sent. */
export interface SentCopy {
	path: string;
	envelope: Envelope;
}

/**
 * The boxes of one address. Everything is synchronous and throws the disk's errors. What may take long is a generator,
 * which its caller runs in slices.
 */
export interface Mailbox {
	readonly address: string;
	readonly folder: string;
	/** The folder to watch for mail. */
	readonly newFolder: string;
	/**
	 * Makes the boxes again that are missing. Throws what stands in the way: the mail root is not there, or something is no
	 * folder of ours. Every delivery does so for the boxes that it needs.
	 */
	mend(): void;
	/** How often boxes were missing and were made again. */
	readonly timesMended: number;
	/** Delivers one mail, or refuses and leaves nothing; see `deliver.ts`. Throws nothing. */
	deliver(draft: Draft): Delivered | Refusal;
	/** The envelope of a mail that was sent under this id of the caller's, without its body. */
	sentBefore(id: string | undefined): Envelope | undefined;
	/** Takes a mail back that its recipient has not claimed; false when it has (design D28). Its copy becomes `sent/<name>.retracted`. */
	retract(sent: { envelope: Envelope; name: string }): boolean;
	/** Whether a mail of this name was taken back, by whichever process. */
	isTakenBack(name: string): boolean;
	/**
	 * Takes a mail back and sends it with another text, as a mail of its own that `replaces` it. When it is refused after it was
	 * taken back, as the message then says, the next start sends it. Throws nothing.
	 */
	edit(sent: { envelope: Envelope; name: string }, body: string): Delivered | EditRefusal;
	/** Tells the sender of a mail, by its name in `cur/`, how far it has come. Throws nothing. */
	note(mail: { from: string; name: string }, step: Progress): void;
	/** What a sender may know of another mailbox: how many mails wait in it, and when its session last did something. Throws the disk's errors. */
	lookInto(address: string): { waiting: number; lastActiveMs: number | undefined };
	/** Whether an address has a mailbox on this machine. */
	isKnown(address: string): boolean;
	/** Names of the mail that waits in `new/`, oldest first. */
	waiting(): string[];
	/** The same apart: what is to be claimed, and what a person keeps on hold. Removes the holds of mail that is gone. */
	look(): { waiting: string[]; onHold: string[] };
	/** Puts a waiting mail on hold (see `hold.ts`); false when it does not wait any more. */
	hold(name: string): boolean;
	/** Ends the hold of a mail; false when it does not wait any more. */
	release(name: string): boolean;
	/** Reads a waiting mail without claiming it; undefined when it is gone or is no mail. Throws the errors of the machine. */
	peek(name: string): Envelope | undefined;
	/** Moves a waiting mail to `cur/` and marks it open. Throws the errors of the machine; the mail then stays where it is. */
	claim(name: string): Claim;
	/** Takes the open mark away: the conversation holds the mail, on disk. */
	close(name: string): void;
	/** Mail that an earlier process claimed and never closed, in no order. Undefined is a place to pause. */
	leftOpen(): Generator<Claim | undefined>;
	/** Notes that an open mail is handed over once more after a process died with it. */
	countTry(mail: OpenMail): void;
	/** Notes that this process ends well with a mail that is still open: the next start, which counts one more, is no try. */
	endedWell(mail: OpenMail): void;
	/** Sets a claimed mail aside for good, with the reason beside it. */
	bury(name: string, reason: string): void;
	/** The copies of mails that this address sent, found by the ids inside them, in the order of `ids`. */
	sentCopies(ids: readonly string[]): SentCopy[];
	/** How many requests and asks of this address nobody has answered. */
	awaitingCount(): number;
	/** Whether this one of them is not answered. */
	awaits(id: string): boolean;
	/** Notes that these mails are answered. */
	answered(ids: readonly string[]): void;
	/** Notes that something may have been answered unseen: the next `recount`, or the next start, counts everything again. */
	miscounted(): void;
	/**
	 * Mends what a crash left in `sent/` and of edits, and counts the copies that `state.json` does not know. Yields a warning
	 * for each mail that turns out not to have been sent or changed; undefined is a place to pause.
	 */
	recount(): Generator<string | undefined>;
	/**
	 * Removes what crashes left in `tmp/` and beside `state.json`, as soon as nobody can be writing it any more (design D15).
	 * In `cur/` and `sent/`, which grow with age, `leftOpen` and `recount` do so in passing.
	 */
	removeLeftovers(): Generator<undefined>;
	/** Writes `state.json` when something in it changed. */
	saveState(): void;
	/** Writes `state.json` at the end of the process. */
	closeState(): void;
}

export interface MailboxOptions {
	disk: Disk;
	/** The mail root, which exists. */
	root: string;
	/** A canonical address. */
	address: string;
	/** Milliseconds since 1970. */
	now: () => number;
	/** Whether a sent mail survives a power cut, or only a crash (design D5). Asked at each send. */
	isDurable: () => boolean;
	/** What the address remembers. Default: that in its folder, which one process at a time keeps. */
	state?: MailboxState;
}

/** Opens the boxes of an address and makes the missing ones. Throws the disk's errors, and `UnfitError` for a box that is no folder of ours. */
export function openMailbox(options: MailboxOptions): Mailbox {
	const { disk, root, address, now, isDurable } = options;
	const boxes = boxesOf(root, address);
	let timesMended = 0;
	mend();
	timesMended = 0;
	const state = options.state ?? openState(disk, boxes.folder);
	const sender: Sender = { disk, root, address, boxes, state, now, isDurable, mend };
	const takingBack = createTakingBack(sender);

	function mend(needed?: readonly Box[]): void {
		checkRoot(disk, root);
		const changed = makeBoxes(disk, boxes, needed);
		if (changed.length === 0) return;
		timesMended++;
		if (isDurable()) for (const folder of changed) disk.syncFolder(folder);
	}

	function claim(name: string): Claim {
		const from = join(boxes.new, name);
		if (Buffer.byteLength(name) > maxNameBytes) return { result: "left", path: from, reason: "its name is too long" };
		const type = disk.entry(from);
		if (type === undefined) return { result: "gone" };
		if (type !== "file") return { result: "left", path: from, reason: "it is not a regular file" };
		// Read before it is moved: an error of the machine leaves the mail where it is.
		const parsed = readMail(disk, from);
		// A name that was claimed before is not overwritten. The id inside decides whether it is the same mail.
		const target = disk.entry(join(boxes.cur, name)) === undefined ? name : `${randomUUID()}-${name}`;
		const marked = mark(target);
		try {
			disk.rename(from, join(boxes.cur, target));
		} catch (error) {
			if (marked && disk.entry(join(boxes.cur, target)) === undefined) disk.remove(markOf(target));
			if (errorCode(error) === "ENOENT") return { result: "gone" };
			throw error;
		}
		return claimed(target, parsed);
	}

	/** Makes the open mark; false when it is there already, from a claim that was cut short. */
	function mark(name: string): boolean {
		try {
			disk.create(markOf(name), "");
			return true;
		} catch (error) {
			if (errorCode(error) === "EEXIST") return false;
			throw error;
		}
	}

	function claimed(name: string, parsed: MailFile): Claim {
		const path = join(boxes.cur, name);
		if (parsed.ok && parsed.envelope.to === address) {
			return { result: "claimed", mail: { name, path, envelope: parsed.envelope, tries: triesOf(name) } };
		}
		const reason = parsed.ok ? "it is addressed to another session" : parsed.reason;
		const owing = !parsed.ok && parsed.owing?.to === address ? parsed.owing : undefined;
		try {
			if (owing === undefined) bury(name, reason);
		} catch {
			// Its mark stays: the next start buries it.
		}
		return { result: "dead", path, reason, ...(owing && { owing }) };
	}

	function keep(copies: Map<string, SentCopy>, name: string | undefined, id: string): void {
		// One that could not be given its name is still the copy.
		for (const file of name === undefined ? [] : [name, `${name}.part`]) {
			const path = join(boxes.sent, file);
			const envelope = mailAt(disk, path);
			if (envelope?.id !== id) continue;
			copies.set(id, { path, envelope });
			return;
		}
	}

	function triesOf(name: string): number {
		try {
			return Number.parseInt(disk.read(markOf(name), 64), 10) || 0;
		} catch {
			return 0;
		}
	}

	function bury(name: string, reason: string): void {
		disk.replace(join(boxes.cur, `${name}.reason`), `${reason}\n`);
		disk.remove(markOf(name));
	}

	/** Where that cannot be seen it is taken to: the next look tells. */
	function stillWaits(name: string): boolean {
		try {
			return disk.entry(join(boxes.new, name)) !== undefined;
		} catch {
			return true;
		}
	}

	function markOf(name: string): string {
		return join(boxes.cur, `${name}.open`);
	}

	function* recount(): Generator<string | undefined> {
		let isAdded = false;
		const edited = yield* takingBack.finishEdits();
		yield* takingBack.finish();
		for (const name of disk.walk(boxes.sent)) {
			yield undefined;
			if (rewritePattern.test(name)) removeIfLeft(join(boxes.sent, name));
			removeStrayMark(name);
			const copy = name.endsWith(".json.part") ? yield* finishCopy(name.slice(0, -".part".length), edited) : name;
			if (!copy?.endsWith(".json") || state.isCounted(copy)) continue;
			const envelope = mailAt(disk, join(boxes.sent, copy));
			if (envelope === undefined) continue;
			state.sent(copy, awaitsAnswer(envelope) ? envelope.id : undefined);
			isAdded = true;
		}
		if (isAdded) yield* forgetAnswered();
		for (const [id, name] of [...state.awaiting()]) {
			yield undefined;
			const copy = join(boxes.sent, name);
			if ([copy, `${copy}.part`].every((path) => disk.entry(path) === undefined)) state.answered([id]);
		}
		state.recounted();
	}

	/** A step that was noted beside a copy that is gone. */
	function removeStrayMark(file: string): void {
		const copy = copyOfMark(file);
		if (copy === undefined) return;
		const hasCopy = () => [copy, `${copy}.part`].some((name) => disk.entry(join(boxes.sent, name)) !== undefined);
		quietly(() => !hasCopy() && disk.remove(join(boxes.sent, file)));
	}

	/** Gives an unfinished copy its name, and returns it; or removes the copy of what was not sent. `edited` was sent again by now. */
	function* finishCopy(copy: string, edited: ReadonlySet<string>): Generator<string, string | undefined> {
		const part = join(boxes.sent, `${copy}.part`);
		if (disk.entry(part) !== "file") return undefined;
		let delivered: boolean | undefined;
		try {
			delivered = isDelivered(copy);
		} catch (error) {
			yield `whether a mail was sent cannot be told now (${copy}): ${errorReason(error)}`;
			return undefined;
		}
		if (delivered !== true) {
			disk.remove(part);
			if (edited.has(idInName(copy))) return undefined;
			yield delivered === undefined
				? `whether a mail was sent cannot be told any more, since its recipient's mailbox is gone (${copy})`
				: `a mail was not sent, since the session ended while it was being written (${copy}); send it again`;
			return undefined;
		}
		disk.rename(part, join(boxes.sent, copy));
		return copy;
	}

	/**
	 * Undefined when its recipient's folder was pruned, which may have held it. Throws when the copy cannot be read for now: no
	 * mail may be called unsent for that.
	 */
	function isDelivered(copy: string): boolean | undefined {
		const parsed = parsePart(join(boxes.sent, `${copy}.part`));
		if (!parsed.ok) return false;
		if (disk.entry(boxesOf(root, parsed.envelope.to).folder) === undefined) return undefined;
		return hasArrived(disk, root, parsed.envelope.to, copy);
	}

	/** A power cut can leave of a copy what is no text. Throws what says nothing of the file. */
	function parsePart(path: string): ParsedEnvelope {
		try {
			return parseEnvelope(disk.read(path, maxEnvelopeBytes));
		} catch (error) {
			if (error instanceof UnfitError) return { ok: false, reason: error.message };
			throw error;
		}
	}

	/** Removes what nobody can be writing any more. What cannot be removed, such as a folder, is rubbish that stays. */
	function removeIfLeft(path: string): void {
		try {
			const changed = disk.changed(path);
			if (changed !== undefined && now() - changed > leftoverMs) disk.remove(path);
		} catch {}
	}

	function* forgetAnswered(): Generator<undefined> {
		for (const name of disk.walk(boxes.cur)) {
			yield undefined;
			const reply = mailAt(disk, join(boxes.cur, name));
			for (const id of reply?.in_reply_to ?? []) {
				const copy = state.awaiting().get(id);
				// Anybody can name an id: only the session that was asked answers.
				if (copy !== undefined && mailAt(disk, join(boxes.sent, copy))?.to === reply?.from) state.answered([id]);
			}
		}
	}

	return {
		address,
		folder: boxes.folder,
		newFolder: boxes.new,
		mend: () => mend(),
		get timesMended() {
			return timesMended;
		},
		deliver: (draft) => deliver(sender, draft),
		sentBefore: (id) => sentBefore(sender, id),
		retract: ({ envelope, name }) => takingBack.takeBack(envelope, name),
		isTakenBack: takingBack.isTakenBack,
		edit: takingBack.edit,
		note: (mail, step) => noteProgress(disk, root, mail, step),
		lookInto(other) {
			const { folder, new: inbox, cur } = boxesOf(root, other);
			const waiting = mailsIn(disk, inbox).length;
			// Others make folders, and change all boxes but this one: only what it did itself counts.
			const own = [join(folder, "state.json"), ...(isEmpty(disk, cur) ? [] : [cur])];
			return { waiting, lastActiveMs: Math.max(...own.map((path) => disk.changed(path) ?? 0)) || undefined };
		},
		isKnown: (other) => disk.entry(boxesOf(root, other).folder) === "folder",
		waiting: () => mailsIn(disk, boxes.new).sort(),
		look() {
			const names = disk.list(boxes.new);
			const held = new Set(names.flatMap((name) => mailOfHold(name) ?? []));
			const mails = names.filter((name) => name.endsWith(".json")).sort();
			const onHold = mails.filter((name) => held.delete(name));
			for (const gone of held) quietly(() => disk.remove(join(boxes.new, holdOf(gone))));
			const kept = new Set(onHold);
			return { waiting: mails.filter((name) => !kept.has(name)), onHold };
		},
		hold(name) {
			const path = join(boxes.new, holdOf(name));
			if (disk.entry(path) === undefined) disk.create(path, "");
			// After that: a claim that came before would have left a hold of nothing.
			if (stillWaits(name)) return true;
			quietly(() => disk.remove(path));
			return false;
		},
		release(name) {
			disk.remove(join(boxes.new, holdOf(name)));
			return stillWaits(name);
		},
		peek: (name) => mailAt(disk, join(boxes.new, name)),
		claim,
		close: (name) => disk.remove(markOf(name)),
		*leftOpen() {
			for (const name of disk.walk(boxes.cur)) {
				yield undefined;
				if (rewritePattern.test(name)) removeIfLeft(join(boxes.cur, name));
				if (!name.endsWith(".json.open")) continue;
				const mail = name.slice(0, -".open".length);
				const path = join(boxes.cur, mail);
				try {
					if (disk.entry(path) === "file") yield claimed(mail, readMail(disk, path));
					// A claim that ended before its rename: the mail still waits in new/, or was taken back.
					else disk.remove(markOf(mail));
				} catch (error) {
					yield { result: "failed", path, reason: errorMessage(error) };
				}
			}
		},
		countTry(mail) {
			disk.replace(markOf(mail.name), String(mail.tries + 1));
			mail.tries++;
		},
		endedWell: (mail) => disk.replace(markOf(mail.name), String(mail.tries - 1)),
		bury,
		sentCopies(ids) {
			const wanted = ids.filter(isUuid);
			const copies = new Map<string, SentCopy>();
			for (const id of wanted) keep(copies, state.copyOf(id), id);
			const missing = new Set(wanted.filter((id) => !copies.has(id)));
			// What was answered long ago, or never sent, has to be looked for, all of it at once.
			for (const file of missing.size > 0 ? disk.list(boxes.sent) : []) {
				// One that a program in the session's shell could not give its name any more is the copy all the same.
				const name = file.replace(/\.part$/, "");
				const id = idInName(name);
				if (missing.has(id) && !copies.has(id)) keep(copies, name, id);
			}
			return wanted.flatMap((id) => copies.get(id) ?? []);
		},
		awaitingCount: () => state.awaiting().size,
		awaits: (id) => state.awaiting().has(id),
		answered: (ids) => state.answered(ids),
		miscounted: () => state.miscounted(),
		recount,
		*removeLeftovers() {
			for (const name of disk.walk(boxes.tmp)) {
				yield undefined;
				// Somebody's text, and until it is sent all that there is of it.
				if (!name.endsWith(editEnding)) removeIfLeft(join(boxes.tmp, name));
			}
			for (const folder of [boxes.folder, ...callFolders(boxes.folder)]) {
				if (disk.entry(folder) !== "folder") continue;
				for (const name of disk.walk(folder)) {
					yield undefined;
					if (rewritePattern.test(name)) removeIfLeft(join(folder, name));
				}
			}
		},
		saveState: () => state.save(),
		closeState: () => state.close(),
	};
}

/** How long what somebody may still be writing is kept, by both file times (design D15, maildir(5)). */
const leftoverMs = 36 * hourMs;
/** A rewrite in progress, or one that a crash cut short (write-file-atomic). */
const rewritePattern = /\.(?:open|reason|receipt|json)\.\d+$/;

/** Longest name of a mail: with the endings of its mark and its reason it still has to fit. */
export const maxNameBytes = 220;
