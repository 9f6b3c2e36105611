import {
	closeSync,
	constants,
	fstatSync,
	fsyncSync,
	linkSync,
	lstatSync,
	mkdirSync,
	opendirSync,
	openSync,
	readdirSync,
	readSync,
	renameSync,
	rmdirSync,
	statfsSync,
	unlinkSync,
	writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import writeFileAtomic from "write-file-atomic";

/** What lies at a path, links not followed. */
export type EntryType = "file" | "folder" | "other";

/** A file system (statfs(2)). */
export interface Space {
	/** The number of its kind, on Linux; elsewhere it says nothing. */
	type: number;
	/** What this user may still write. */
	freeBytes: number;
	/** How many files can still be made; undefined where there is no limit. */
	freeFiles: number | undefined;
}

/**
 * Every operation the mailbox does on disk. All are synchronous, throw Node's own errors (`error.code`) or
 * {@link UnfitError}, and follow no symlink in the last part of a path. Fault tests wrap this object.
 */
export interface Disk {
	/**
	 * Makes a folder of mode 0700 and says whether it was made (true) or already there (false).
	 * Throws {@link UnfitError} when something else lies there, or another user's folder. Parents must exist.
	 */
	ensureFolder(path: string): boolean;
	/** Creates a file of mode 0600 that must not exist yet (EEXIST). Leaves nothing on failure. */
	create(path: string, content: string | Uint8Array): void;
	/** Replaces a small file as a whole: a reader sees the old text or the new. Not fsynced: for what can be rebuilt. */
	replace(path: string, text: string): void;
	/** Reads a regular file as UTF-8. Throws {@link UnfitError} for anything else, for more than `maxBytes`, and for invalid UTF-8. */
	read(path: string, maxBytes: number): string;
	/** A second name for a file. Throws EEXIST when `to` exists. */
	link(from: string, to: string): void;
	/** Moves a file. An existing `to` is overwritten. */
	rename(from: string, to: string): void;
	/** Removes a file; one that is not there is fine. */
	remove(path: string): void;
	/** The names in a folder, in no order. */
	list(folder: string): string[];
	/** The same one by one, for folders whose size grows with age. */
	walk(folder: string): Generator<string>;
	/** What lies at a path, or undefined. */
	entry(path: string): EntryType | undefined;
	/** When an entry was last changed, in milliseconds since 1970, by whichever of its two times is later; undefined when it is not there. */
	changed(path: string): number | undefined;
	/** The permission bits of an entry, such as 0o700; undefined when it is not there. */
	mode(path: string): number | undefined;
	/** What the file system at a path is, and what is left in it. */
	space(path: string): Space;
	/** Removes an empty folder. */
	removeFolder(path: string): void;
	/** Makes what a file holds survive a power cut. */
	syncFile(path: string): void;
	/** Makes created, renamed and removed names in a folder survive a power cut. Does nothing on Windows, which cannot. */
	syncFolder(folder: string): void;
}

/** A file or folder that is there but must not be used. The message says what is wrong with it. */
export class UnfitError extends Error {
	override readonly name = "UnfitError";
}

/** The real file system. */
export function nodeDisk(): Disk {
	return {
		ensureFolder(path) {
			const problem = folderProblem(path);
			if (problem === undefined) return false;
			if (problem !== "is missing") throw new UnfitError(`${path} ${problem}`);
			try {
				mkdirSync(path, { mode: 0o700 });
				return true;
			} catch (error) {
				if (errorCode(error) !== "EEXIST") throw error;
			}
			// Somebody else made it in between: it has to pass the same test.
			const made = folderProblem(path);
			if (made !== undefined) throw new UnfitError(`${path} ${made}`);
			return false;
		},
		create(path, content) {
			const file = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
			try {
				writeFileSync(file, content);
				closeSync(file);
			} catch (error) {
				quietly(() => closeSync(file));
				quietly(() => unlinkSync(path));
				throw error;
			}
		},
		replace(path, text) {
			// The library would follow a link and replace what it points to.
			if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true) unlinkSync(path);
			writeFileAtomic.sync(path, text, { mode: 0o600, fsync: false });
		},
		read(path, maxBytes) {
			const file = openToRead(path);
			try {
				const stats = fstatSync(file);
				if (!stats.isFile()) throw new UnfitError("it is not a regular file");
				if (stats.size > maxBytes)
					throw new UnfitError(`it has ${stats.size} bytes, more than the limit of ${maxBytes}`);
				const bytes = new Uint8Array(stats.size);
				let length = 0;
				while (length < bytes.length) {
					const got = readSync(file, bytes, length, bytes.length - length, length);
					if (got === 0) break;
					length += got;
				}
				const text = decodeUtf8(bytes.subarray(0, length));
				// Gives the memory back at once: what is made of a large text needs as much again.
				bytes.buffer.transfer(0);
				return text;
			} finally {
				closeSync(file);
			}
		},
		link: linkSync,
		rename: renameSync,
		remove(path) {
			try {
				unlinkSync(path);
			} catch (error) {
				if (errorCode(error) !== "ENOENT") throw error;
			}
		},
		list: (folder) => readdirSync(folder),
		*walk(folder) {
			const directory = opendirSync(folder);
			try {
				for (let next = directory.readSync(); next !== null; next = directory.readSync()) yield next.name;
			} finally {
				directory.closeSync();
			}
		},
		entry(path) {
			const stats = lstatSync(path, { throwIfNoEntry: false });
			if (stats === undefined) return undefined;
			return stats.isFile() ? "file" : stats.isDirectory() ? "folder" : "other";
		},
		changed(path) {
			const stats = lstatSync(path, { throwIfNoEntry: false });
			return stats === undefined ? undefined : Math.max(stats.mtimeMs, stats.ctimeMs);
		},
		mode(path) {
			const stats = lstatSync(path, { throwIfNoEntry: false });
			return stats === undefined ? undefined : stats.mode & 0o777;
		},
		space(path) {
			const { type, bsize, bavail, files, ffree } = statfsSync(path);
			// Some file systems make room for a file when it comes, and say 0 of 0.
			return { type, freeBytes: bavail * bsize, freeFiles: files === 0 ? undefined : ffree };
		},
		removeFolder: rmdirSync,
		// Windows flushes only what is open for writing.
		syncFile: (path) => sync(path, constants.O_WRONLY | noFollow),
		syncFolder(folder) {
			if (process.platform !== "win32") sync(folder, constants.O_RDONLY);
		},
	};
}

/** Makes a folder and its missing parents. The parents are the user's (`~/.local/state`) and may be links. */
export function ensureFolderAndParents(disk: Disk, path: string): void {
	mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
	disk.ensureFolder(path);
}

/** Node's error code (`ENOENT`, …) of anything caught, or undefined. */
export function errorCode(error: unknown): string | undefined {
	if (!(error instanceof Error) || !("code" in error)) return undefined;
	return typeof error.code === "string" ? error.code : undefined;
}

/** The message of anything caught, on one line. */
export function errorMessage(error: unknown): string {
	return (error instanceof Error ? error.message : String(error)).replace(/\s+/g, " ");
}

/** The same without the operation and the paths that Node adds, whose names may be random: the same fault reads the same. */
export function errorReason(error: unknown): string {
	return errorMessage(error).replace(/, \w+ '.*$/, "");
}

/** Undefined on Windows. */
const ownUid = process.getuid?.();

// Windows has neither flag, and neither symlinks without privilege nor FIFOs in the file system.
const noFollow = constants.O_NOFOLLOW ?? 0;
const nonBlocking = constants.O_NONBLOCK ?? 0;

function openToRead(path: string): number {
	try {
		// O_NONBLOCK: opening a FIFO must not wait for its writer.
		return openSync(path, constants.O_RDONLY | noFollow | nonBlocking);
	} catch (error) {
		if (errorCode(error) === "ELOOP") throw new UnfitError("it is a symlink");
		throw error;
	}
}

function sync(path: string, flags: number): void {
	const file = openSync(path, flags);
	try {
		fsyncSync(file);
	} finally {
		closeSync(file);
	}
}

function folderProblem(path: string): string | undefined {
	const stats = lstatSync(path, { throwIfNoEntry: false });
	if (stats === undefined) return "is missing";
	if (stats.isSymbolicLink()) return "is a symlink";
	if (!stats.isDirectory()) return "is not a folder";
	if (ownUid !== undefined && stats.uid !== ownUid) return "belongs to another user";
	return undefined;
}

function decodeUtf8(bytes: Uint8Array): string {
	try {
		return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
	} catch {
		throw new UnfitError("it is not valid UTF-8");
	}
}

/** Runs something whose failure leaves rubbish, and no more. */
export function quietly(action: () => unknown): void {
	try {
		action();
	} catch {}
}
