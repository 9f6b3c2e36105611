import { join } from "node:path";
import { boxesOf } from "./boxes.ts";
import { type Disk, errorCode, errorReason, type Space, UnfitError } from "./disk.ts";
import { type Finding, type Findings, quoted } from "./finding.ts";
import { runningFolder } from "./root.ts";
import { randomName } from "./running-folder.ts";
import { oneLine, pathField } from "./text.ts";

/** What can be done with a folder: `none` when it is no folder of ours, or closed to ourselves. */
export type Use = "none" | "read" | "write";

/** The mail root: there when it is needed, a folder, ours, closed to others, writable. Says in `found` what else can be examined. */
export function* examineRoot(disk: Disk, root: string, found: { use: Use }, needsRoot: boolean): Findings<string> {
	if (!needsRoot && disk.entry(root) === undefined) {
		return `there is no mail on this machine yet: ${pathField(root)} is not there`;
	}
	found.use = yield* examineFolder(disk, root);
	const running = runningFolder(root);
	if (found.use !== "none" && disk.entry(running) !== undefined) yield* examineFolder(disk, running);
	return `the mail root ${pathField(root)} is a folder of yours, closed to others, and can be written`;
}

/** The same for the folder of an address and its boxes. */
export function* examineBoxes(disk: Disk, root: string, address: string): Findings<string> {
	const { folder, ...boxes } = boxesOf(root, address);
	if ((yield* examineFolder(disk, folder)) === "none") return "";
	for (const box of Object.values(boxes)) yield* examineFolder(disk, box);
	return `the mailbox ${pathField(folder)} is whole`;
}

/** The file system below the mail root: its kind, its room, and, where it can be written, whether what delivery uses works. */
export function* examineFileSystem(disk: Disk, root: string, use: Use): Findings<string> {
	const where = `the file system of ${pathField(root)}`;
	const space = disk.space(root);
	yield* examineSpace(space, where, root);
	yield undefined;
	const kind = process.platform === "linux" ? remoteKinds.get(space.type) : undefined;
	if (kind !== undefined) {
		const what = `${where} is ${kind}: sessions on other machines would share the mail, and renames may not be atomic`;
		yield { level: "warning", what, mend: elsewhere };
	}
	const ignoresCase = use === "write" && (yield* examineOperations(disk, root, where));
	const caseNote = ignoresCase
		? "; it takes names that differ in case alone for the same, so session ids must not"
		: "";
	return `${where} has room${use === "write" ? ", links and flushes files" : ""}${caseNote}`;
}

const elsewhere = "set XDG_STATE_HOME to a folder on a local file system, for every Pi, and start Pi again";

function* examineFolder(disk: Disk, path: string): Findings<Use> {
	const shown = pathField(path);
	const name = quoted(path);
	yield undefined;
	if (disk.entry(path) === undefined) {
		yield {
			level: "error",
			what: `${shown} is missing`,
			mend: `move it back if you have moved it; to begin with an empty one, run: mkdir -p -m 700 -- ${name}`,
		};
		return "none";
	}
	try {
		disk.ensureFolder(path);
	} catch (error) {
		if (!(error instanceof UnfitError)) throw error;
		const mend =
			disk.entry(path) === "folder"
				? `when all in it is yours (Pi may have run with sudo), run: sudo chown -hR "$(id -u)" -- ${name}`
				: `to keep what is there and begin with an empty folder, run: mv -i -- ${name} ${quoted(`${path}~`)} && mkdir -m 700 -- ${name}`;
		yield { level: "error", what: oneLine(error.message), mend };
		return "none";
	}
	const mode = process.platform === "win32" ? undefined : disk.mode(path);
	if (mode !== undefined && mode !== 0o700) {
		const isClosed = (mode & 0o700) !== 0o700;
		const what = `${shown} has mode ${mode.toString(8).padStart(3, "0")}: ${isClosed ? "you cannot use all of it" : "other users can use it"}`;
		yield { level: isClosed ? "error" : "warning", what, mend: `run: chmod 700 -- ${name}` };
		if (isClosed) return "none";
	}
	try {
		const probe = probeIn(path);
		disk.create(probe, "");
		disk.remove(probe);
	} catch (error) {
		yield { level: "error", what: `${shown} cannot be written: ${reasonOf(error)}`, mend: unwritable(error, path) };
		return "read";
	}
	return "write";
}

function unwritable(error: unknown, path: string): string {
	switch (errorCode(error)) {
		case "ENOSPC":
		case "EDQUOT":
			return makeRoom(path);
		case "EROFS":
			return `mount its file system for writing, or ${elsewhere}`;
		default:
			return `see what keeps it from being written, run: ls -ld -- ${quoted(path)} && df -h -- ${quoted(path)}`;
	}
}

function* examineSpace({ freeBytes, freeFiles }: Space, where: string, root: string): Findings {
	const level = (isNone: boolean) => (isNone ? "error" : "warning");
	if (freeBytes < lowBytes) {
		const what = `${where} has room for ${Math.floor(freeBytes / mebibyte)} MiB`;
		yield { level: level(freeBytes < mebibyte), what, mend: makeRoom(root) };
	}
	if (freeFiles !== undefined && freeFiles < lowFiles) {
		const what = `${where} has room for ${freeFiles} more files`;
		yield { level: level(freeFiles < 10), what, mend: makeRoom(root) };
	}
}

function makeRoom(path: string): string {
	return `remove what nobody needs there (in Pi, /mailbox prune removes the mailboxes of closed sessions); to see what is left, run: df -h -- ${quoted(path)} && df -i -- ${quoted(path)}`;
}

/** Tries what delivery does, and says whether names are compared without case. Leaves nothing. */
function* examineOperations(disk: Disk, root: string, where: string): Findings<boolean> {
	const probe = probeIn(root);
	const second = `${probe}-2`;
	const found: Finding[] = [];
	let ignoresCase = false;
	try {
		disk.create(probe, "probe\n");
		disk.syncFile(probe);
		disk.syncFolder(root);
	} catch (error) {
		const what = `${where} does not flush files, so what is sent may not survive a power cut: ${reasonOf(error)}`;
		found.push({ level: "warning", what, mend: elsewhere });
	}
	try {
		if (disk.entry(probe) !== undefined) {
			ignoresCase = disk.entry(join(root, probe.slice(root.length + 1).toUpperCase())) !== undefined;
			disk.link(probe, second);
		}
	} catch (error) {
		const what = `${where} gives a file no second name, so that each mail is written twice: ${reasonOf(error)}`;
		found.push({ level: "warning", what, mend: `nothing is lost by that; for more speed, ${elsewhere}` });
	} finally {
		for (const path of [second, probe]) disk.remove(path);
	}
	yield* found;
	return ignoresCase;
}

/** A name that no reader of a box takes for mail, and that a later start removes as a rewrite that a crash cut short. */
function probeIn(folder: string): string {
	return join(folder, `${probePrefix}${randomName()}.json.0`);
}

/** Whether a name is that of a file which an examination makes and removes. */
export function isProbe(name: string): boolean {
	return name.startsWith(probePrefix);
}

const probePrefix = ".doctor-";

function reasonOf(error: unknown): string {
	return oneLine(errorReason(error));
}

const mebibyte = 1024 * 1024;
const lowBytes = 100 * mebibyte;
const lowFiles = 1000;

/** File systems that other machines may share, by statfs(2)'s `f_type` on Linux (linux/magic.h). */
const remoteKinds = new Map([
	[0x6969, "NFS"],
	[0x517b, "SMB"],
	[0xff534d42, "CIFS"],
	[0xfe534d42, "SMB"],
	[0x01021997, "9p"],
	[0x65735546, "FUSE, such as sshfs"],
	[0x73757245, "Coda"],
	[0x5346414f, "AFS"],
	[0x00c36400, "Ceph"],
	[0x01161970, "GFS2"],
	[0x7461636f, "OCFS2"],
	[0x0bd00bd0, "Lustre"],
]);
