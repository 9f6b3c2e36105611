import { join } from "node:path";
import { type Disk, errorCode } from "./disk.ts";
import { maxRecordBytes, parseRecord, type RunningRecord } from "./running-record.ts";

/**
 * `<address>/standby/<random>.json`: the record of a process that has a session open while another one receives its mail,
 * and is to receive it when that one ends (design D7). Whoever prunes keeps the folder, though for a moment no record may
 * stand in `running/`.
 */
export function standbyFolder(folder: string): string {
	return join(folder, "standby");
}

/** Leaves a sign in a mailbox folder; false when this one was there already. Throws the disk's errors. */
export function leaveSign(disk: Disk, folder: string, name: string, text: string): boolean {
	disk.ensureFolder(folder);
	disk.ensureFolder(standbyFolder(folder));
	try {
		disk.create(join(standbyFolder(folder), name), text);
		return true;
	} catch (error) {
		if (errorCode(error) === "EEXIST") return false;
		throw error;
	}
}

/** The signs in a mailbox folder, each with its path. What is no record says nothing. Throws the disk's errors. */
export function signsIn(disk: Disk, folder: string): { path: string; record: RunningRecord }[] {
	const standby = standbyFolder(folder);
	if (disk.entry(standby) !== "folder") return [];
	return disk.list(standby).flatMap((name) => {
		const path = join(standby, name);
		const parsed = disk.entry(path) === "file" ? parseRecord(disk.read(path, maxRecordBytes)) : undefined;
		return parsed?.ok ? [{ path, record: parsed.record }] : [];
	});
}
