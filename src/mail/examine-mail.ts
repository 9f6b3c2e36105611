import { join } from "node:path";
import { isCanonicalAddress, isPassingAddress } from "./address.ts";
import { boxesOf } from "./boxes.ts";
import { maxUnread } from "./deliver.ts";
import { type Disk, errorCode, errorMessage, errorReason } from "./disk.ts";
import { isProbe } from "./examine-folders.ts";
import type { RecordOptions, SightedSession, Sightings } from "./examine-records.ts";
import { type Findings, quoted } from "./finding.ts";
import { mailOfHold } from "./hold.ts";
import { maxNameBytes } from "./mailbox.ts";
import { isOfProgram, programMark } from "./program.ts";
import { movedAside } from "./prune.ts";
import { judgeOf } from "./running-record.ts";
import { signKinds, signsFolder, signsIn } from "./signs.ts";
import { counted, field, oneLine, pathField } from "./text.ts";
import { dayMs, duration, hourMs, minuteMs } from "./time.ts";

type MailOptions = Pick<RecordOptions, "disk" | "root" | "processes" | "now">;

/** Every mailbox of the root: mail that is stuck, mail that is dead, and what is no mail. Reads no mail. */
export function* examineMail(options: MailOptions, sightings: Sightings, leftovers: string[]): Findings<string> {
	const { disk, root } = options;
	let count = 0;
	let onHold = 0;
	for (const name of disk.walk(root)) {
		yield undefined;
		const path = join(root, name);
		if (movedAside(name) !== undefined || isProbe(name)) {
			if (ageMs(options, path) > leftoverMs) leftovers.push(path);
			continue;
		}
		if (!isCanonicalAddress(name)) continue;
		try {
			if (disk.entry(path) === "folder") onHold += yield* examineMailbox(options, name, sightings);
			else {
				const what = `${pathField(path)} stands where a mailbox could be, and is no folder`;
				yield { level: "warning", what, mend: `if nobody needs it, run: rm -- ${quoted(path)}` };
			}
			count++;
		} catch (error) {
			// Pruned meanwhile.
			if (errorCode(error) === "ENOENT") continue;
			const what = `${pathField(path)} cannot be looked into: ${oneLine(errorReason(error))}`;
			yield { level: "error", what, mend: `see whose it is, run: ls -la -- ${quoted(path)}` };
		}
	}
	if (onHold > 0)
		yield {
			level: "ok",
			what: `${counted(onHold, "mail")} on hold, until each is released with h in the mailbox screen`,
		};
	return `no mail is stuck or was set aside in ${count} ${count === 1 ? "mailbox" : "mailboxes"}`;
}

/** What a prune, or an examination that was cut short, has left in the root. */
export function* examineLeftovers(leftovers: readonly string[]): Findings<string> {
	for (const path of leftovers) {
		const shown = pathField(path);
		yield path.includes(".pruning.")
			? {
					level: "warning",
					what: `${shown} was moved aside by a prune that was cut short`,
					mend: "in a Pi session type /mailbox prune, which ends it: mail that is unread is put back",
				}
			: { level: "warning", what: `${shown} is a left-over probe`, mend: `run: rm -- ${quoted(path)}` };
	}
	return "no prune was cut short";
}

/** Returns how many mails are on hold. */
function* examineMailbox(options: MailOptions, address: string, { sessions, ahead }: Sightings): Findings<number> {
	const { disk, root, now } = options;
	const boxes = boxesOf(root, address);
	const session = sessions.get(address);
	const isProgram = isOfProgram(disk, boxes.folder);
	const read = isProgram ? `run: pi-session-mail read --all --from ${address}` : `let session ${address} read its mail`;
	const mailbox: Examined = {
		address,
		session,
		isOpen: session !== undefined && session.judgement !== "gone",
		start: isProgram ? read : `in the folder where it worked, run: pi --session-id ${address}`,
		read,
		isProgram,
	};
	for (const path of Object.values(boxes)) {
		const ms = disk.changed(path) ?? 0;
		if (ms > now() + dayMs) ahead.push({ path, ms, mend: `run: touch -- ${quoted(path)}` });
	}
	yield* examineSigns(options, boxes.folder);
	// It goes with its program, or at the next prune: nobody starts again under such an address.
	if (isPassingAddress(address)) return 0;
	const onHold = isFolder(disk, boxes.new) ? yield* examineInbox(options, boxes.new, mailbox, ahead) : 0;
	if (isFolder(disk, boxes.cur)) yield* examineClaimed(options, boxes.cur, mailbox);
	return onHold;
}

/** A mailbox that is examined, and what is known of its session. */
interface Examined {
	address: string;
	session: SightedSession | undefined;
	/** Whether its session runs, or may. */
	isOpen: boolean;
	/** How its mail gets read while it does not run: by a start of its session, or by a call of its program. */
	start: string;
	/** How its mail gets read while it runs. */
	read: string;
	isProgram: boolean;
}

/** The mail that waits. Returns how many of it are on hold. */
function* examineInbox(
	options: MailOptions,
	folder: string,
	{ address, session, isOpen, start, read, isProgram }: Examined,
	ahead: Sightings["ahead"],
): Findings<number> {
	const { disk, now } = options;
	const names = disk.list(folder).sort();
	const held = new Set(names.flatMap((name) => mailOfHold(name) ?? []));
	let waiting = 0;
	let onHold = 0;
	let waitsMs = 0;
	for (const name of names) {
		yield undefined;
		const path = join(folder, name);
		if (mailOfHold(name) !== undefined && disk.entry(path) === "file") continue;
		const problem = notMail(disk, path, name);
		if (problem !== undefined) {
			if (!isProbe(name) || ageMs(options, path) > leftoverMs) {
				const what = `${pathField(path)} is not mail and is passed over: ${problem}`;
				yield { level: "warning", what, mend: `if nobody needs it, run: rm -r -- ${quoted(path)}` };
			}
			continue;
		}
		waiting++;
		if (held.has(name)) onHold++;
		else waitsMs = Math.max(waitsMs, ageMs(options, path));
		const ms = Number(/^(\d{15})-/.exec(name)?.[1] ?? 0);
		if (ms > now() + dayMs) ahead.push({ path, ms, mend: read });
	}
	if (waiting >= nearlyFull) {
		const isFull = waiting >= maxUnread;
		const what = `${waiting} mails wait for ${address}; ${isFull ? "more is refused" : `from ${maxUnread} on more is refused`}`;
		const mend = isOpen ? read : start;
		yield { level: isFull ? "error" : "warning", what, mend };
	}
	if (session?.judgement === "running" && waitsMs > hourMs) {
		const { receiving, paused } = session.record.x;
		const isOff = receiving === false;
		const why = paused ? " and is paused" : isOff ? " where mail is off" : "";
		const what = `mail waits for ${duration(waitsMs)} for ${address}, which runs${why}`;
		const look = isProgram
			? read
			: "look whether that session is busy or waits for you; else end it and start it again";
		yield {
			level: "warning",
			what,
			mend: paused ? "in that session type /mailbox resume" : isOff ? "in that session type /mailbox on" : look,
		};
	}
	return onHold;
}

/** The mail that was claimed: what did not get into a conversation, and what was set aside. */
function* examineClaimed(options: MailOptions, folder: string, { address, isOpen, start }: Examined): Findings {
	const { disk } = options;
	let open = 0;
	let openMs = 0;
	for (const name of disk.walk(folder)) {
		yield undefined;
		const path = join(folder, name);
		if (name.endsWith(".json.open") && !isOpen) {
			const age = ageMs(options, path);
			if (age > dayMs) open++;
			openMs = Math.max(openMs, age);
		} else if (name.endsWith(".reason")) {
			const mail = path.slice(0, -".reason".length);
			// It is still being set aside.
			if (disk.entry(`${mail}.open`) !== undefined) continue;
			const what = `${pathField(mail)} could not be delivered: ${reasonIn(disk, path)}`;
			yield { level: "warning", what, mend: `when you have read it, run: rm -f -- ${quoted(mail)} ${quoted(path)}` };
		}
	}
	if (open > 0) {
		const what = `${counted(open, "mail")} for ${address}, claimed ${duration(openMs)} ago, did not get into its conversation, and it does not run`;
		yield { level: "warning", what, mend: start };
	}
}

/** What stands beside the boxes of a mailbox: the mark of a program, and the signs of processes. */
function* examineSigns({ disk, processes, now }: MailOptions, folder: string): Findings {
	const mark = programMark(folder);
	const isThere = disk.entry(mark) !== undefined;
	if (isThere && !isOfProgram(disk, folder)) {
		const what = `${pathField(mark)} is no mark of a program, since it is no file`;
		yield { level: "warning", what, mend: `if nobody needs it, run: rm -r -- ${quoted(mark)}` };
	}
	for (const kind of signKinds) {
		const place = signsFolder(folder, kind);
		if (disk.entry(place) === undefined) continue;
		if (!isFolder(disk, place)) {
			const what = `${pathField(place)} stands where processes leave signs, and is no folder`;
			yield { level: "warning", what, mend: `if nobody needs it, run: rm -- ${quoted(place)}` };
			continue;
		}
		const found = signsIn(disk, folder, kind);
		const signs = new Map(found.map((sign) => [sign.path, sign]));
		const judgementOf = judgeOf(processes, found);
		for (const name of disk.list(place)) {
			yield undefined;
			const path = join(place, name);
			const sign = signs.get(path);
			// A younger one may be half written.
			if (sign === undefined && now() - (disk.changed(path) ?? now()) > leftoverMs) {
				const what = `${pathField(path)} is no sign of a process and is passed over`;
				yield { level: "warning", what, mend: `if nobody needs it, run: rm -r -- ${quoted(path)}` };
			}
			// Whoever meets one of a process that is gone removes it.
			if (sign === undefined || judgementOf(sign.record) !== "unknown") continue;
			const what = `${pathField(path)} is the sign of process ${sign.record.pid} in another container, or of one that has ended there: that cannot be told from here`;
			yield { level: "warning", what, mend: `if it has ended, run: rm -- ${quoted(path)}` };
		}
	}
}

function isFolder(disk: Disk, path: string): boolean {
	return disk.entry(path) === "folder";
}

/** How long ago something was changed; 0 when it is gone. */
function ageMs({ disk, now }: MailOptions, path: string): number {
	return now() - (disk.changed(path) ?? now());
}

/** Why the inbox will not claim a name. */
function notMail(disk: Disk, path: string, name: string): string | undefined {
	if (!name.endsWith(".json")) return "its name does not end in .json";
	if (Buffer.byteLength(name) > maxNameBytes) return "its name is too long";
	const type = disk.entry(path);
	return type === undefined || type === "file" ? undefined : "it is not a regular file";
}

function reasonIn(disk: Disk, path: string): string {
	try {
		return field(disk.read(path, 4096).trim(), 200);
	} catch (error) {
		return oneLine(errorMessage(error));
	}
}

/** How many waiting mails are worth a word before the inbox is full. */
const nearlyFull = Math.floor(maxUnread * 0.9);
/** What is younger may be the work of a process that runs. */
const leftoverMs = 5 * minuteMs;
