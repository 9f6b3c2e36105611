import { join } from "node:path";
import { type Disk, errorCode } from "./disk.ts";
import { maxRecordBytes, parseRecord, type RunningRecord } from "./running-record.ts";

/**
 * The folders of a mailbox in which processes leave signs, each the record of its process: it says something as long as that
 * process lives.
 * - `standby/<random>.json`: it has the session open while another one receives its mail, and is to receive it when that one
 *   ends (design D7). Whoever prunes keeps the folder, though for a moment no record may stand in `running/`.
 * - `waiting/<id of the ask>.json`: a program in the session's shell waits for the answer to an ask which it sent as that
 *   session. It is there before the ask is. While the program lives the session leaves that reply in `new/`, where the
 *   program claims it, and says in its own record that it waits; when the program is gone, the session takes the reply like
 *   any late one.
 */
export const signKinds = ["standby", "waiting"] as const;
export type SignKind = (typeof signKinds)[number];

interface Sign {
	path: string;
	/** Its name without the ending. */
	id: string;
	record: RunningRecord;
}

/** The folder of the signs of one kind in a mailbox folder. */
export function signsFolder(mailbox: string, kind: SignKind): string {
	return join(mailbox, kind);
}

/** The path of a sign. */
export function signPath(mailbox: string, kind: SignKind, id: string): string {
	return join(signsFolder(mailbox, kind), `${id}.json`);
}

/** Leaves a sign in a mailbox folder; false when this one was there already. Throws the disk's errors. */
export function leaveSign(disk: Disk, mailbox: string, kind: SignKind, id: string, text: string): boolean {
	disk.ensureFolder(mailbox);
	disk.ensureFolder(signsFolder(mailbox, kind));
	try {
		disk.create(signPath(mailbox, kind, id), text);
		return true;
	} catch (error) {
		if (errorCode(error) === "EEXIST") return false;
		throw error;
	}
}

/** The signs in a mailbox folder. What is no record says nothing. Throws the disk's errors. */
export function signsIn(disk: Disk, mailbox: string, kind: SignKind): Sign[] {
	const folder = signsFolder(mailbox, kind);
	if (disk.entry(folder) !== "folder") return [];
	return disk.list(folder).flatMap((name) => {
		const path = join(folder, name);
		const parsed = disk.entry(path) === "file" ? parseRecord(disk.read(path, maxRecordBytes)) : undefined;
		return parsed?.ok ? [{ path, id: name.replace(/\.json$/, ""), record: parsed.record }] : [];
	});
}
