import { join } from "node:path";
import { boxesOf, isEmpty, makeBoxes } from "./boxes.ts";
import type { Disk } from "./disk.ts";

/** The empty file that says that a mailbox folder is a program's, and no Pi session's. */
export function programMark(folder: string): string {
	return join(folder, "program");
}

/** Whether a mailbox folder is a program's. */
export function isOfProgram(disk: Disk, folder: string): boolean {
	return disk.entry(programMark(folder)) === "file";
}

/**
 * Makes the mailbox of a program under this address, unless it is there. False when the folder is that of a Pi session,
 * which must not lose its mail to a program. Throws the disk's errors.
 */
export function takeForProgram(disk: Disk, root: string, address: string): boolean {
	const boxes = boxesOf(root, address);
	if (isOfProgram(disk, boxes.folder)) return true;
	// What others have sent to the address before says nothing of whose it is.
	const isSessions =
		disk.entry(join(boxes.folder, "state.json")) !== undefined ||
		[boxes.cur, boxes.sent].some((box) => disk.entry(box) === "folder" && !isEmpty(disk, box));
	if (isSessions) return false;
	makeBoxes(disk, boxes);
	try {
		disk.create(programMark(boxes.folder), "");
	} catch (error) {
		// Another one of this name was faster.
		if (!isOfProgram(disk, boxes.folder)) throw error;
	}
	return true;
}
