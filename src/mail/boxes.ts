import { dirname, join, sep } from "node:path";
import type { Disk } from "./disk.ts";

/** The folders of one address (PSM-005). */
export interface Boxes {
	folder: string;
	/** Mail that is being written. */
	tmp: string;
	/** Mail that waits. */
	new: string;
	/** Mail that was claimed. */
	cur: string;
	/** Copies of what this address sent. */
	sent: string;
}

/** Where the boxes of an address lie. The address must have passed `isAddress`: a path is built from it. */
export function boxesOf(root: string, address: string): Boxes {
	const folder = join(root, address);
	return {
		folder,
		tmp: `${folder}${sep}tmp`,
		new: `${folder}${sep}new`,
		cur: `${folder}${sep}cur`,
		sent: `${folder}${sep}sent`,
	};
}

/** The names of the mails in a box, in no order; what is in it besides has other endings. Throws the disk's errors. */
export function mailsIn(disk: Disk, box: string): string[] {
	return disk.list(box).filter((name) => name.endsWith(".json"));
}

/** When something in the folder of an address or its boxes changed last, in milliseconds since 1970; 0 when nothing is there. */
export function lastChanged(disk: Disk, boxes: Boxes): number {
	return Math.max(...Object.values(boxes).map((path: string) => disk.changed(path) ?? 0));
}

/**
 * Makes the missing boxes, of mode 0700; of an address that has a folder only the `needed` ones, which are all that it looks
 * at. Returns the folders that got a new name. Throws `UnfitError` when one of them is no folder of ours.
 */
export function makeBoxes(disk: Disk, boxes: Boxes, needed: readonly Box[] = allBoxes): string[] {
	const isNew = disk.ensureFolder(boxes.folder);
	const made = (isNew ? allBoxes : needed).filter((box) => disk.ensureFolder(boxes[box]));
	return [...(made.length > 0 ? [boxes.folder] : []), ...(isNew ? [dirname(boxes.folder)] : [])];
}

/** A box in the folder of an address. */
export type Box = Exclude<keyof Boxes, "folder">;

const allBoxes: readonly Box[] = ["tmp", "new", "cur", "sent"];

/** Whether a folder holds nothing. Throws the disk's errors. */
export function isEmpty(disk: Disk, folder: string): boolean {
	for (const _ of disk.walk(folder)) return false;
	return true;
}

/** Removes a folder with all that is in it; links are not followed. Throws the disk's errors. Undefined is a place to pause. */
export function* removeTree(disk: Disk, folder: string): Generator<undefined> {
	// In parts: to list a box that has grown old takes long, and a walk may miss names while others are removed.
	for (let names = someOf(disk, folder); names.length > 0; names = someOf(disk, folder)) {
		for (const name of names) {
			yield undefined;
			const path = join(folder, name);
			if (disk.entry(path) === "folder") yield* removeTree(disk, path);
			else disk.remove(path);
		}
	}
	disk.removeFolder(folder);
}

function someOf(disk: Disk, folder: string): string[] {
	const names: string[] = [];
	for (const name of disk.walk(folder)) if (names.push(name) === maxAtOnce) break;
	return names;
}

/** Names of a folder that are read in one go. */
const maxAtOnce = 1000;
