import type { Disk } from "../mail/disk.ts";

/** Whether what a session looks at every second is as it was, so that a look can be left out (design L10). */
export interface Rest {
	/** Notes how it is. Before it is looked at: what changes meanwhile counts as changed. */
	note(): void;
	/** Whether nothing has changed since. Now and then false all the same: the scan is the truth (design L5). */
	isUndisturbed(): boolean;
}

/** Looks that are left out in a row. */
const maxLeftOut = 9;
/** What changed this lately may change again within one tick of the disk's clock, of two seconds on FAT, and show nothing of it. */
const freshMs = 3000;

/**
 * Looks at when these were last changed: a folder is when a name in it comes, goes or is another file's, and what takes its
 * place is newer.
 */
export function createRest(disk: Disk, paths: readonly string[], now: () => number): Rest {
	/** Empty when they could not be looked at. */
	let noted: readonly (number | undefined)[] = [];
	let leftOut = 0;

	function times(): readonly (number | undefined)[] {
		try {
			return paths.map((path) => disk.changed(path));
		} catch {
			return [];
		}
	}

	return {
		note() {
			noted = times();
			leftOut = 0;
		},
		isUndisturbed() {
			if (leftOut++ === maxLeftOut) return false;
			const last = now() - freshMs;
			const found = times();
			const isAsNoted = (time: number | undefined, index: number) => time === noted[index] && (time ?? 0) < last;
			return found.length > 0 && found.every(isAsNoted);
		},
	};
}
