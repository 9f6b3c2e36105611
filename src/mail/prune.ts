import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { lock } from "proper-lockfile";
import { isCanonicalAddress, isPassingAddress } from "./address.ts";
import { boxesOf, lastChanged, removeTree } from "./boxes.ts";
import { type Disk, errorCode, errorMessage, nodeDisk } from "./disk.ts";
import { mailOfHold } from "./hold.ts";
import { removePassing } from "./passing.ts";
import { isOfProgram, programMark } from "./program.ts";
import type { Running } from "./running.ts";
import { signKinds } from "./signs.ts";
import { dayMs } from "./time.ts";

/** What a step of pruning did; undefined when it did nothing worth saying. */
export type PruneStep = { removed: string } | { warning: string } | undefined;

export interface PruneOptions {
	disk: Disk;
	root: string;
	/** The address of the session that prunes: its own folder stays. */
	self: string;
	running: Pick<Running, "mayRun" | "hasStandby">;
	/** Milliseconds since 1970. */
	now: () => number;
	/** How long a folder must have lain untouched; undefined for no limit, when a person asked for it. */
	olderThanMs: number | undefined;
}

/**
 * Removes the folders of closed sessions, in slices: those that hold no unread mail and, with an age limit, were found
 * old at two starts at least 24 hours apart, so that one wrong clock removes nothing (PSM-090, PSM-091, design D26).
 *
 * A folder is moved aside, looked at again, and moved back when a mail or the session came in the meantime. Only real
 * folders are entered; one that cannot be removed does not stop the others.
 */
export function* prune(options: PruneOptions): Generator<PruneStep> {
	try {
		// What a pass that was cut short has moved aside comes first: the folder that it was being joined with is not whole
		// until then, and may not hold yet what makes it worth keeping.
		yield* pruneAll(options, (name) => asidePattern.test(name));
		yield* pruneAll(options, (name) => !asidePattern.test(name));
	} catch (error) {
		yield { warning: `${options.root} could not be pruned: ${errorMessage(error)}` };
	}
}

function* pruneAll(options: PruneOptions, isMeant: (name: string) => boolean): Generator<PruneStep> {
	const { disk, root } = options;
	for (const name of disk.walk(root)) {
		yield undefined;
		try {
			if (isMeant(name)) yield* pruneOne(options, name);
		} catch (error) {
			if (errorCode(error) !== "ENOENT")
				yield { warning: `${join(root, name)} could not be pruned: ${errorMessage(error)}` };
		}
	}
}

/**
 * Runs `work` unless another process prunes this root; `work` calls `end` when it is done. A lock of this kind can have two
 * holders after a pause of the machine: it only spares double work, and two at once do no harm.
 */
export function whileAlone(root: string, work: (end: () => void) => void): void {
	const options = { lockfilePath: join(root, ".prune.lock"), stale: 60_000, onCompromised: () => {} };
	removeFromFuture(nodeDisk(), options.lockfilePath, options.stale);
	lock(root, options).then(
		(unlock) => work(() => void unlock().catch(() => {})),
		() => {},
	);
}

/** The lock that a process left whose clock was ahead would hold until its time comes. */
function removeFromFuture(disk: Disk, lockfilePath: string, staleMs: number): void {
	try {
		if ((disk.changed(lockfilePath) ?? 0) > Date.now() + staleMs) disk.removeFolder(lockfilePath);
	} catch {
		// Then nobody prunes for now.
	}
}

/** The address whose folder a prune has moved aside under this name; undefined for other names. */
export function movedAside(name: string): string | undefined {
	const address = asidePattern.exec(name)?.[1];
	return address !== undefined && isCanonicalAddress(address) ? address : undefined;
}

const asidePattern = /^\.pruning\.(.+)\.[0-9a-f-]{36}$/;
const seenOldPrefix = ".old.";
/** How long the folder of a passing address is left to a program that has no record. */
const passingMs = 60_000;

function* pruneOne(options: PruneOptions, name: string): Generator<PruneStep> {
	const { disk, root, self, running } = options;
	const aside = movedAside(name);
	if (aside !== undefined) {
		// Left by a process that ended in the middle.
		yield* finish(options, aside, join(root, name));
	} else if (name.startsWith(seenOldPrefix)) {
		if (disk.entry(join(root, name.slice(seenOldPrefix.length))) === undefined) disk.remove(join(root, name));
	} else if (isCanonicalAddress(name) && name !== self) {
		const folder = join(root, name);
		if (disk.entry(folder) !== "folder" || isOpen(running, name, folder)) return;
		if (isPassingAddress(name)) {
			// One that sends a single mail has no record meanwhile.
			if (options.now() - (disk.changed(join(folder, "sent")) ?? 0) < passingMs) return;
			removePassing(disk, root, name);
			yield { removed: name };
			return;
		}
		if (!isOldEnough(options, name) || (yield* holdsUnread(disk, folder))) return;
		const moved = join(root, `.pruning.${name}.${randomUUID()}`);
		disk.rename(folder, moved);
		yield* finish(options, name, moved);
	}
}

/**
 * Whether a process has the session open. One that stands by takes over with its record first, and then removes its sign:
 * it can be missed here between the two, and is then found when the folder was moved.
 */
function isOpen(running: PruneOptions["running"], address: string, ...folders: string[]): boolean {
	return running.mayRun(address) || folders.some((folder) => running.hasStandby(folder));
}

/** Whether the folder has been old for a day already; notes when it is found old for the first time. */
function isOldEnough({ disk, root, now, olderThanMs }: PruneOptions, address: string): boolean {
	if (olderThanMs === undefined) return true;
	const note = join(root, seenOldPrefix + address);
	if (now() - lastChanged(disk, boxesOf(root, address)) < olderThanMs) {
		disk.remove(note);
		return false;
	}
	const noted = disk.changed(note);
	// A note from the future was made by a wrong clock.
	if (noted === undefined || noted > now()) {
		disk.remove(note);
		disk.create(note, "");
		return false;
	}
	return now() - noted >= dayMs;
}

/** Mail that waits, or was claimed and is not in a conversation, or has a new text that is not sent; a call whose end is no mail yet, or that is to be decided about. A box that is no folder holds none. */
function* holdsUnread(disk: Disk, folder: string): Generator<undefined, boolean> {
	for (const [box, isMeant] of [
		["new", /$/],
		["cur", /\.open$/],
		["tmp", /\.edit$/],
		["calls", /\.json$/],
		["tickets", openTicket],
	] as const) {
		const path = join(folder, box);
		if (disk.entry(path) !== "folder") continue;
		for (const name of disk.walk(path)) {
			// A hold is worth nothing without its mail.
			if (isMeant.test(name) && mailOfHold(name) === undefined) return true;
			yield undefined;
		}
	}
	return false;
}

/** The file of a call that is to be decided about, or whose decision is not told; its decision has a file besides. */
const openTicket = /^[^.]+\.json$/;

/** Removes a folder that was moved aside, or puts it back when it holds mail or its session runs. */
function* finish(options: PruneOptions, address: string, aside: string): Generator<PruneStep> {
	const { disk, root, self, running } = options;
	const folder = join(root, address);
	if (disk.entry(aside) !== "folder") return;
	if (isPassingAddress(address)) {
		yield* removeTree(disk, aside);
		return;
	}
	// Whether it is open is asked last: to look through the folder may take long.
	if (address === self || (yield* holdsUnread(disk, aside)) || isOpen(running, address, aside, folder)) {
		yield* putBack(disk, aside, folder);
		return;
	}
	yield* removeTree(disk, aside);
	disk.remove(join(root, seenOldPrefix + address));
	yield { removed: address };
}

/** Moves a folder back to its name; file by file when a new one has been made there in the meantime. */
function* putBack(disk: Disk, aside: string, folder: string): Generator<PruneStep> {
	if (disk.entry(folder) === undefined && isMoved(disk, aside, folder)) return;
	// What makes it worth keeping comes last: when this ends in the middle, the next pass goes on. And a mark comes after its
	// mail: a start would take a mark without a mail for a claim that was cut short.
	for (const kind of signKinds) yield* joinBox(disk, aside, folder, kind);
	keepProgramMark(disk, aside, folder);
	yield* joinBox(disk, aside, folder, "tmp", (name) => !name.endsWith(".edit"));
	yield* joinBox(disk, aside, folder, "sent");
	yield* joinBox(disk, aside, folder, "results");
	yield* joinBox(disk, aside, folder, "tickets", (name) => !openTicket.test(name));
	yield* joinBox(disk, aside, folder, "cur", (name) => !name.endsWith(".open"));
	yield* joinBox(disk, aside, folder, "new");
	yield* joinBox(disk, aside, folder, "cur");
	yield* joinBox(disk, aside, folder, "tmp");
	yield* joinBox(disk, aside, folder, "calls");
	yield* joinBox(disk, aside, folder, "tickets");
	yield* removeTree(disk, aside);
}

/** False when somebody has made the folder at this very moment. */
function isMoved(disk: Disk, aside: string, folder: string): boolean {
	try {
		disk.rename(aside, folder);
		return true;
	} catch (error) {
		if (disk.entry(folder) === undefined) throw error;
		return false;
	}
}

/** Without it the folder would be a session's. */
function keepProgramMark(disk: Disk, aside: string, folder: string): void {
	if (isOfProgram(disk, aside) && !isOfProgram(disk, folder)) disk.create(programMark(folder), "");
}

function* joinBox(
	disk: Disk,
	aside: string,
	folder: string,
	box: string,
	isMeant: (name: string) => boolean = () => true,
): Generator<undefined> {
	const from = join(aside, box);
	if (disk.entry(from) !== "folder") return;
	disk.ensureFolder(join(folder, box));
	const names: string[] = [];
	for (const name of disk.walk(from)) {
		yield undefined;
		if (isMeant(name)) names.push(name);
	}
	for (const name of names) {
		yield undefined;
		const isTaken = disk.entry(join(folder, box, name)) !== undefined;
		// Names are a hint: another mail may have this one. Elsewhere it is the same file, or a copy.
		if (isTaken && box !== "new") continue;
		disk.rename(join(from, name), join(folder, box, isTaken ? `${randomUUID()}-${name}` : name));
	}
}
