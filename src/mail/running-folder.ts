import { join } from "node:path";
import { customAlphabet } from "nanoid";
import { canonicalAddress, isAddress } from "./address.ts";
import { type Disk, errorCode, errorMessage, UnfitError } from "./disk.ts";
import { checkRoot, runningFolder } from "./root.ts";
import { maxRecordBytes, parseRecord, type RunningRecord } from "./running-record.ts";
import { hourMs } from "./time.ts";

/** What lies under a record's name. */
type Seen =
	| { kind: "nothing" }
	| { kind: "record"; text: string; record: RunningRecord }
	/** A file that can be read and is no record. */
	| { kind: "rubbish"; text: string; reason: string }
	/** A folder, a link, a FIFO, a huge or an unreadable file. */
	| { kind: "unfit"; reason: string };

/**
 * The folder `running/` and how a record's name changes hands in it. Where nothing else is said, a function throws what
 * the disk throws.
 *
 * | name | what it is |
 * |---|---|
 * | `<address>.json` | a record |
 * | `.<ms>-<random>.tmp` | a finished record that is about to be linked to its name |
 * | `.gone-<ms>-<random>` | a record that was moved aside to be removed, since that millisecond |
 * | `<address>.json.<number>` | a rewrite in progress (write-file-atomic) |
 */
export interface RecordFolder {
	/** All names; none when there is no folder. */
	names(): string[];
	/** Path of an address's record. Throws for what is no address, so that no such text becomes a path. */
	pathOf(address: string): string;
	/** Reads a record, never throws. The record of another address than this one is rubbish: file names can be forged as well. */
	see(address: string): Seen;
	/** Whether something lies there, or cannot be seen; without reading it. */
	has(address: string): boolean;
	/** Gives a record's name to this text, and makes the folder in the root; false, with nothing written, when the name is taken. */
	place(address: string, text: string): boolean;
	/** Writes over the record: its owner only. */
	replace(address: string, text: string): void;
	/** Removes the record that has this text. One that took its place in the meantime stays, or is put back (design D7). */
	remove(address: string, text: string): void;
	/**
	 * Removes one of the lower three of the table when its process must have crashed; a record that was moved aside is first
	 * put back, where the next reader judges it. Other names are left alone.
	 */
	removeLeftover(name: string, isRunning: (address: string) => boolean): void;
}

export function openRecordFolder(disk: Disk, root: string, now: () => number): RecordFolder {
	const folder = runningFolder(root);

	return {
		names() {
			const entry = disk.entry(folder);
			if (entry === undefined) return [];
			if (entry !== "folder") throw new UnfitError(`${folder} is not a folder`);
			return disk.list(folder);
		},
		pathOf,
		see: (address) => see(pathOf(address), address),
		has(address) {
			try {
				return disk.entry(pathOf(address)) !== undefined;
			} catch {
				return true;
			}
		},
		place(address, text) {
			const path = pathOf(address);
			ensureFolder();
			const finished = join(folder, `.${now()}-${randomName()}.tmp`);
			disk.create(finished, text);
			try {
				return link(finished, path);
			} finally {
				disk.remove(finished);
			}
		},
		replace: (address, text) => disk.replace(pathOf(address), text),
		remove(address, text) {
			const path = pathOf(address);
			const aside = join(folder, `.gone-${now()}-${randomName()}`);
			try {
				// It may have been judged a while ago, in a batch: the rename should hardly ever meet a newer one.
				if (disk.read(path, maxRecordBytes) !== text) return;
				disk.rename(path, aside);
			} catch (error) {
				if (errorCode(error) === "ENOENT") return;
				throw error;
			}
			const moved = see(aside);
			if (moved.kind === "nothing") return;
			if (moved.kind === "unfit" || moved.text !== text) link(aside, path);
			disk.remove(aside);
		},
		removeLeftover(name, isRunning) {
			const path = join(folder, name);
			const [, temporary, aside, replaced] = leftoverPattern.exec(name) ?? [];
			if (temporary !== undefined && isOlder(temporary, temporaryKeptMs)) disk.remove(path);
			if (replaced !== undefined && !isRunning(replaced)) disk.remove(path);
			if (aside === undefined || !isOlder(aside, asideKeptMs)) return;
			const seen = see(path);
			if (seen.kind === "record") link(path, pathOf(seen.record.address));
			disk.remove(path);
		},
	};

	function pathOf(address: string): string {
		if (!isAddress(address)) throw new UnfitError(`"${address}" cannot be an address`);
		return recordPath(root, canonicalAddress(address));
	}

	function see(path: string, address?: string): Seen {
		let text: string;
		try {
			text = disk.read(path, maxRecordBytes);
		} catch (error) {
			return errorCode(error) === "ENOENT" ? { kind: "nothing" } : { kind: "unfit", reason: errorMessage(error) };
		}
		const parsed = parseRecord(text);
		if (!parsed.ok) return { kind: "rubbish", text, reason: parsed.reason };
		const { record } = parsed;
		if (address !== undefined && record.address !== canonicalAddress(address)) {
			return { kind: "rubbish", text, reason: `it is the record of ${record.address}` };
		}
		return { kind: "record", text, record };
	}

	function ensureFolder(): void {
		checkRoot(disk, root);
		try {
			disk.ensureFolder(folder);
		} catch (error) {
			throw error instanceof UnfitError ? new UnfitError(`${folder}: ${error.message}`) : error;
		}
	}

	/** A second name, as a copy where links do not work (Android, some drives); false when the name is taken. */
	function link(from: string, to: string): boolean {
		try {
			disk.link(from, to);
			return true;
		} catch (error) {
			if (errorCode(error) === "EEXIST") return false;
			if (errorCode(error) === "ENOENT") throw error;
		}
		try {
			disk.create(to, disk.read(from, maxRecordBytes));
			return true;
		} catch (error) {
			if (errorCode(error) === "EEXIST") return false;
			throw error;
		}
	}

	/** Ages come from the names: a rename keeps a file's own time. */
	function isOlder(stamp: string, ageMs: number): boolean {
		return now() - Number(stamp) > ageMs;
	}
}

/** Where the record of a canonical address lies. */
export function recordPath(root: string, address: string): string {
	return join(runningFolder(root), `${address}.json`);
}

/** 16 lower-case letters and digits: names that differ in case alone are the same file on some systems. */
export const randomName = customAlphabet("abcdefghijklmnopqrstuvwxyz0123456789", 16);

/** How long records that were not linked yet are kept (design D15). */
const temporaryKeptMs = 36 * hourMs;
/** How long a record that was moved aside is left to the process that moved it. */
const asideKeptMs = 5 * 60 * 1000;

const leftoverPattern = /^\.(\d+)-[a-z0-9]+\.tmp$|^\.gone-(\d+)-[a-z0-9]+$|^(.+)\.json\.\d+$/;
