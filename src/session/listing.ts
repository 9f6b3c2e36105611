import type { Disk } from "../mail/disk.ts";

/** The names in a box, listed anew only when it changed. */
export interface Folder {
	readonly names: ReadonlySet<string>;
	/** Those of mails. */
	readonly mails: readonly string[];
	/** False when nothing has changed. */
	relist(): Generator<undefined, boolean>;
}

/** The names in a folder that is there. The functions throw the disk's errors. */
export function openFolder(disk: Disk, path: string): Folder {
	let names = new Set<string>();
	let mails: string[] = [];
	let changed: number | undefined;
	let isSure = false;
	return {
		get names() {
			return names;
		},
		get mails() {
			return mails;
		},
		*relist() {
			const before = disk.changed(path);
			if (isSure && before === changed) return false;
			const found = new Set<string>();
			const foundMails: string[] = [];
			let known = 0;
			for (const name of disk.walk(path)) {
				found.add(name);
				if (name.endsWith(".json") || name.endsWith(".json.retracted")) foundMails.push(name);
				if (names.has(name)) known++;
				yield undefined;
			}
			const isSame = known === found.size && known === names.size;
			isSure = before !== undefined && before === changed && isSame;
			changed = before;
			names = found;
			mails = foundMails;
			return !isSame;
		},
	};
}

/**
 * Mails by the stamps in their names, the newest first. Sorts in slices: runs that are sorted at once, and then merged.
 * `listedOf` makes of a file what is listed, whose `name` is that of the mail. Undefined is a place to pause.
 */
export function* newestFirst<T extends { name: string }>(
	files: readonly string[],
	listedOf: (file: string, index: number) => T,
): Generator<undefined, T[]> {
	let runs: T[][] = [];
	for (let at = 0; at < files.length; at += runLength) {
		const run = files.slice(at, at + runLength).map((file, index) => listedOf(file, at + index));
		runs.push(run.sort((a, b) => (isNewer(a, b) ? -1 : isNewer(b, a) ? 1 : 0)));
		yield undefined;
	}
	while (runs.length > 1) {
		const merged: T[][] = [];
		for (let at = 0; at < runs.length; at += 2) merged.push(yield* merge(runs[at] ?? [], runs[at + 1] ?? []));
		runs = merged;
	}
	return runs[0] ?? [];
}

const runLength = 512;
/** A name ends in stamp and id; a claim may put something before that (PSM-020). */
const stampedLength = "000000000000000-01234567-0123-0123-0123-0123456789ab.json".length;

function isNewer(a: { name: string }, b: { name: string }): boolean {
	return a.name.slice(-stampedLength) > b.name.slice(-stampedLength);
}

function* merge<T extends { name: string }>(a: readonly T[], b: readonly T[]): Generator<undefined, T[]> {
	const merged: T[] = [];
	let [i, j] = [0, 0];
	for (let x = a[i], y = b[j]; x !== undefined || y !== undefined; x = a[i], y = b[j]) {
		if (y === undefined || (x !== undefined && !isNewer(y, x))) {
			if (x !== undefined) merged.push(x);
			i++;
		} else {
			merged.push(y);
			j++;
		}
		if (merged.length % runLength === 0) yield undefined;
	}
	return merged;
}
