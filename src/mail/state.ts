import { join } from "node:path";
import * as z from "zod/mini";
import { type Disk, errorCode } from "./disk.ts";
import { dayMs } from "./time.ts";

/**
 * What one address remembers between sessions, kept in `<address>/state.json` (design 4.10): its last stamp, and which
 * of its requests and asks nobody has answered. A cache: a missing or broken file means empty, and files on disk win over it.
 */
export interface MailboxState {
	/**
	 * The stamp for the next mail, in milliseconds since 1970: now, or one more than the last, so that the names of one
	 * sender sort in send order even when the clock steps back (design D14). A clock that was a day or more ahead is forgotten.
	 */
	nextStamp(now: number): number;
	/** Ids that nobody has answered, each with the name of its copy in `sent/`. */
	awaiting(): ReadonlyMap<string, string>;
	/** The name of the copy of a mail that waits for its answer, or had it lately. */
	copyOf(id: string): string | undefined;
	/** Notes a copy in `sent/`. `id` is given when the mail waits for an answer. */
	sent(name: string, id: string | undefined): void;
	/** Whether a copy in `sent/` was noted before, by this process or an earlier one. */
	isCounted(name: string): boolean;
	/** Notes that these are answered. Ids that are not waited for are fine. */
	answered(ids: readonly string[]): void;
	/** Notes that `awaiting` may be wrong: whoever counts next has to look at every copy. */
	miscounted(): void;
	/** Notes that every copy in `sent/` is counted, so that the next start has to look only at newer ones. */
	recounted(): void;
	/** Writes the file when something in it changed. Not fsynced. */
	save(): void;
	/** Gives back the stamps that were reserved and not used, at the end of a process. */
	close(): void;
}

/**
 * The state of a mailbox whose state another process keeps, or nobody: it remembers nothing. Order among what both send
 * is that of the clock.
 */
export function unkeptState(): MailboxState {
	let last = 0;
	return {
		nextStamp(now) {
			last = Math.max(now, last + 1);
			return last;
		},
		awaiting: () => new Map(),
		copyOf: () => undefined,
		sent() {},
		isCounted: () => false,
		answered() {},
		miscounted() {},
		recounted() {},
		save() {},
		close() {},
	};
}

/** Opens the state of a mailbox folder. */
export function openState(disk: Disk, folder: string): MailboxState {
	const file = fileIn(folder);
	const saved = read(disk, file);
	const awaiting = new Map(Object.entries(saved?.awaiting ?? {}));
	let counted = saved?.counted ?? "";
	let newest = counted;
	let isComplete = false;
	let isDoubtful = false;
	const noted = new Set<string>();
	/** Copies of what was answered lately: one more reply to it comes soon, or never. */
	const answeredLately = new Map<string, string>();
	let lastStamp = saved?.stamp ?? 0;
	// Runs ahead of lastStamp, so that not every mail has to write the file.
	let reservedStamp = lastStamp;
	let changed = false;

	function write(stamp: number): void {
		const remembered = Object.fromEntries([...awaiting].slice(-maxAwaiting));
		disk.replace(file, JSON.stringify({ stamp, counted: isDoubtful ? "" : counted, awaiting: remembered }));
		reservedStamp = stamp;
		changed = false;
	}

	return {
		nextStamp(now) {
			const wasAhead = lastStamp >= now + dayMs;
			lastStamp = wasAhead ? now : Math.max(now, lastStamp + 1);
			// From here on newer copies have smaller names.
			if (wasAhead) counted = newest = "";
			if (wasAhead || lastStamp > reservedStamp) write(lastStamp + stampReserve);
			return lastStamp;
		},
		awaiting: () => awaiting,
		copyOf: (id) => awaiting.get(id) ?? answeredLately.get(id),
		sent(name, id) {
			if (id !== undefined) awaiting.set(id, name);
			if (name > newest) newest = name;
			if (isComplete) counted = newest;
			else noted.add(name);
			changed = true;
		},
		isCounted: (name) => !isDoubtful && (name <= counted || noted.has(name)),
		answered(ids) {
			for (const id of ids) {
				const name = awaiting.get(id);
				if (name === undefined) continue;
				awaiting.delete(id);
				changed = true;
				answeredLately.set(id, name);
			}
			for (const id of answeredLately.keys()) {
				if (answeredLately.size <= maxAnsweredLately) break;
				answeredLately.delete(id);
			}
		},
		miscounted() {
			changed ||= !isDoubtful;
			isDoubtful = true;
		},
		recounted() {
			changed ||= isDoubtful || counted !== newest;
			isComplete = true;
			isDoubtful = false;
			counted = newest;
		},
		save() {
			if (changed) write(reservedStamp);
		},
		close() {
			// Another process of this session may have reserved more.
			const isOurs = reservedStamp > lastStamp && read(disk, file)?.stamp === reservedStamp;
			if (changed || isOurs) write(isOurs ? lastStamp : reservedStamp);
		},
	};
}

/** The stamp in the state of a mailbox folder, in milliseconds since 1970; undefined when there is none. */
export function savedStamp(disk: Disk, folder: string): number | undefined {
	return read(disk, fileIn(folder))?.stamp;
}

function fileIn(folder: string): string {
	return join(folder, "state.json");
}

const stateSchema = z.object({
	stamp: z.int().check(z.gte(0)),
	/** The newest name in `sent/` that `awaiting` takes into account. */
	counted: z.string(),
	awaiting: z.record(z.string(), z.string()),
});

/** Stamps that one write of the file reserves: after a crash mail is dated this far ahead, until that time has come. */
const stampReserve = 60_000;
const maxAnsweredLately = 256;
/** More unanswered mails than this are not remembered across a restart. */
const maxAwaiting = 5000;
const maxStateBytes = 2 * 1024 * 1024;

function read(disk: Disk, file: string): z.infer<typeof stateSchema> | undefined {
	try {
		return z.parse(stateSchema, JSON.parse(disk.read(file, maxStateBytes)));
	} catch (error) {
		// Too many open files says nothing about the file: better no mailbox for now than one that has forgotten everything.
		if (errorCode(error) === "EMFILE" || errorCode(error) === "ENFILE") throw error;
		return undefined;
	}
}
