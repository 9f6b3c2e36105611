import { join } from "node:path";
import { canonicalAddress, isAddress, isCanonicalAddress, isPassingAddress, isUuid } from "./address.ts";
import { boxesOf } from "./boxes.ts";
import { type Disk, errorMessage, errorReason } from "./disk.ts";
import { removePassing } from "./passing.ts";
import type { Processes } from "./process.ts";
import { runningFolder } from "./root.ts";
import { openRecordFolder, randomName } from "./running-folder.ts";
import { type Judgement, judgeOf, type RunningRecord, serialiseRecord } from "./running-record.ts";
import { leaveSign, type SignKind, signPath, signsIn } from "./signs.ts";
import type { WakeOn } from "./wake-on.ts";

/** A record whose process is not known to be gone. */
export interface RunningSession extends RunningRecord {
	judgement: Exclude<Judgement, "gone">;
}

/** What a session says of itself in its record. */
export type SessionFields = Pick<RunningRecord, "name" | "cwd" | "state" | "waitingOn"> &
	Pick<
		RunningRecord["x"],
		"accepts" | "ticket" | "receiving" | "paused" | "interruptFrom" | "approvals" | "wakeOn" | "program" | "hops"
	>;

/** The running-session records under a mail root. Records of processes that are gone are removed by whoever meets them (PSM-026). */
export interface Running {
	/** Every session that runs or cannot be judged, by name and then address; those without a name come first. Never throws. */
	list(): RunningSession[];
	/** Which mail may start a run of the session of one address, when it runs and its user has set that. Never throws. */
	wakeOn(address: string): WakeOn | undefined;
	/** The session of one address, or undefined; looks at its record alone. Never throws. */
	find(address: string): RunningSession | undefined;
	/** Whether the session of one address runs, or may run for all that can be seen of its record. Never throws. */
	mayRun(address: string): boolean;
	/**
	 * Makes this process the owner of an address, unless another process is. A record that it left itself before a
	 * `/reload` is taken over. Never throws.
	 */
	own(address: string, fields: SessionFields): { ok: true; record: OwnRecord } | RecordRefusal;
	/** The sign of this process that it will receive an address's mail when its owner ends. */
	standby(address: string): Standby;
	/** Whether a process stands by for the mailbox in this folder. Throws the disk's errors. */
	hasStandby(folder: string): boolean;
	/** The asks that programs in a session's shell wait for; what those left that are gone is removed. Never throws. */
	shellWaits(address: string): ShellWait[];
	/**
	 * Says that this process waits for the answer to an ask that it sends as a session in whose shell it runs; the returned
	 * function says that it does not any more, and never throws. Throws the disk's errors.
	 */
	waitInShell(address: string, wait: ShellWait, fields: SessionFields): () => void;
}

/** An ask that was sent from a session's shell: the session leaves its answer to the program that waits for it. */
export interface ShellWait {
	/** The id of the ask. */
	id: string;
	/** Who is asked. */
	to: string;
	/** See `RunningRecord`. */
	ticket: number;
}

/** The sign of this process in one mailbox. */
export interface Standby {
	/** Leaves the sign; false when it was there already. Until then the owner's end could let somebody prune the mailbox. Never throws. */
	leave(fields: SessionFields): boolean;
	/** Takes the sign away. Never throws. */
	remove(): void;
}

/**
 * The record of this process's session (design D7). Two processes never both get a record's name; but while a third puts
 * back a record that it took for a dead one, another may take the free name. The first owner then learns it here.
 */
export interface OwnRecord {
	/** Reads the record: false when it is another owner's, or released. One that is missing or unreadable is still ours. */
	isOwner(): boolean;
	/** Whether somebody removed it: others do not see the session until it is written again. */
	isMissing(): boolean;
	/** Rewrites the record with these fields changed, and makes it again when it was deleted. Never overwrites another owner's. */
	update(changed: Partial<SessionFields>): { ok: true } | RecordRefusal;
	/** Removes the record, unless it is another owner's (PSM-025). Later updates are refused. */
	release(): void;
}

/**
 * Why a record was not written.
 * - `held`: another process has the address. An owner that lost it has lost it for good and may call `own` again.
 * - `unwritable`: the disk refused. The next `own` or `update` may succeed; an update then writes what this one would have.
 * - `released`: its session has ended.
 */
type RecordRefusal =
	| { ok: false; code: "held"; message: string; holder: RunningRecord }
	| { ok: false; code: "unwritable" | "released"; message: string };

export interface RunningOptions {
	disk: Disk;
	/** The mail root (see `root.ts`). */
	root: string;
	processes: Processes;
	/** Milliseconds since 1970. */
	now: () => number;
	/** Hears of each path that cannot be used or cleaned, once, with one line that says why. */
	warn: (path: string, reason: string) => void;
}

/** Opens the records under a mail root, which need not exist. Nothing is read or written before it is asked for. */
export function openRunning({ disk, root, processes, now, warn }: RunningOptions): Running {
	const folder = openRecordFolder(disk, root, now);
	const warned = new Set<string>();
	/** Of the record that was last looked at: each mail asks, and almost never is anything set. */
	let unset: { address: string; changed: number } | undefined;

	return {
		list() {
			const names = namesInFolder();
			const met = names.map(recordNamed).filter((found) => found !== undefined);
			const judgementOf = judgeOf(processes, met);
			const sessions: RunningSession[] = [];
			for (const { text, record } of met) {
				const judgement = judgementOf(record);
				if (judgement === "gone") removeDead(record.address, text);
				else sessions.push({ ...record, judgement });
			}
			removeLeftovers(names, new Set(sessions.map(({ address }) => address)));
			return sessions.sort((a, b) => compareTexts(a.name ?? "", b.name ?? "") || compareTexts(a.address, b.address));
		},

		wakeOn(address) {
			try {
				const changed = isAddress(address) ? disk.changed(folder.pathOf(address)) : undefined;
				if (changed === undefined) return undefined;
				if (unset?.address === address && unset.changed === changed) return undefined;
				const seen = folder.see(address);
				if (seen.kind === "record" && seen.record.x.wakeOn !== undefined) return find(address)?.x.wakeOn;
				unset = { address, changed };
			} catch {
				// The recipient heeds it as well.
			}
			return undefined;
		},

		find,

		mayRun(address) {
			if (find(address) !== undefined) return true;
			// A record that was there and could not be read is not that of a closed session.
			return isAddress(address) && ["record", "unfit"].includes(folder.see(address).kind);
		},

		own(address, fields) {
			const instance = randomName();
			const written = write(address, instance, fields, (there) => {
				const judgement = judgeOf(processes, [{ record: there }])(there);
				if (judgement === "gone") return "nobody";
				return judgement === "running" && there.pid === processes.self.pid ? "us" : "another";
			});
			return written.ok ? { ok: true, record: ownRecord(address, instance, fields) } : written;
		},

		standby(address) {
			const instance = randomName();
			const mailbox = boxesOf(root, address).folder;
			const path = signPath(mailbox, "standby", instance);
			let isLeft = false;
			return {
				leave(fields) {
					isLeft = true;
					try {
						const text = serialiseRecord(recordOf(address, instance, fields));
						if (!leaveSign(disk, mailbox, "standby", instance, text)) return false;
						for (const sign of judgedSigns(mailbox, "standby")) if (sign.isGone) disk.remove(sign.path);
						return true;
					} catch (error) {
						warnOnce(path, `it could not be written: ${errorMessage(error)}`);
						return true;
					}
				},
				remove() {
					if (isLeft) orWarn(path, () => disk.remove(path));
				},
			};
		},

		hasStandby(mailbox) {
			return judgedSigns(mailbox, "standby").some(({ isGone }) => !isGone);
		},

		shellWaits(address) {
			const mailbox = boxesOf(root, address).folder;
			try {
				return judgedSigns(mailbox, "waiting").flatMap(({ path, id, record, isGone }) => {
					if (isGone) orWarn(path, () => disk.remove(path));
					return isGone || !isUuid(id) ? [] : [{ id, to: record.waitingOn, ticket: record.x.ticket ?? 0 }];
				});
			} catch (error) {
				warnOnce(mailbox, errorMessage(error));
				return [];
			}
		},

		waitInShell(address, { id, to, ticket }, fields) {
			const mailbox = boxesOf(root, address).folder;
			const record = recordOf(address, randomName(), { ...fields, waitingOn: to, ticket, program: true });
			leaveSign(disk, mailbox, "waiting", id, serialiseRecord(record));
			const path = signPath(mailbox, "waiting", id);
			return () => orWarn(path, () => disk.remove(path));
		},
	};

	function find(address: string): RunningSession | undefined {
		const found = isAddress(address) ? readOrWarn(address) : undefined;
		if (found === undefined) return undefined;
		const judgement = judgeOf(processes, [found])(found.record);
		if (judgement !== "gone") return { ...found.record, judgement };
		removeDead(address, found.text);
		return undefined;
	}

	/** The signs of one kind in a mailbox folder, each with whether its process is gone. */
	function judgedSigns(mailbox: string, kind: SignKind) {
		const signs = signsIn(disk, mailbox, kind);
		if (signs.length === 0) return [];
		const judgementOf = judgeOf(processes, signs);
		return signs.map((sign) => ({ ...sign, isGone: judgementOf(sign.record) === "gone" }));
	}

	function ownRecord(address: string, instance: string, first: SessionFields): OwnRecord {
		let fields = first;
		let ended: RecordRefusal | undefined;
		const ownerOf = (there: RunningRecord) => (there.x.instance === instance ? "us" : "another");
		return {
			isOwner() {
				if (ended !== undefined) return false;
				const seen = folder.see(address);
				if (seen.kind !== "record" || ownerOf(seen.record) === "us") return true;
				ended = heldBy(seen.record);
				return false;
			},
			isMissing: () => ended === undefined && !folder.has(address),
			update(changed) {
				if (ended !== undefined) return ended;
				fields = { ...fields, ...changed };
				const written = write(address, instance, fields, ownerOf);
				if (!written.ok && written.code === "held") ended = written;
				return written;
			},
			release() {
				ended = { ok: false, code: "released", message: "this session's running record was removed at its end" };
				const seen = folder.see(address);
				if (seen.kind === "record" && ownerOf(seen.record) === "us") removeDead(address, seen.text);
			},
		};
	}

	function write(
		address: string,
		instance: string,
		fields: SessionFields,
		ownerOf: (there: RunningRecord) => Owner,
	): { ok: true } | RecordRefusal {
		const text = serialiseRecord(recordOf(address, instance, fields));
		try {
			const holder = put(address, text, ownerOf);
			return holder === undefined ? { ok: true } : heldBy(holder);
		} catch (error) {
			return { ok: false, code: "unwritable", message: errorReason(error) };
		}
	}

	/** Puts a text under an address's record name, and returns the record that is in the way when it is another's. */
	function put(address: string, text: string, ownerOf: (there: RunningRecord) => Owner): RunningRecord | undefined {
		for (let tries = 0; tries < maxTries; tries++) {
			const seen = folder.see(address);
			if (seen.kind === "unfit") throw new Error(`${folder.pathOf(address)}: ${seen.reason}`);
			if (seen.kind === "nothing") {
				if (folder.place(address, text)) return undefined;
				continue;
			}
			if (seen.kind === "record") {
				const owner = ownerOf(seen.record);
				if (owner === "another") return seen.record;
				if (owner === "us") {
					folder.replace(address, text);
					return undefined;
				}
			}
			// A dead owner's, or no record at all: a power cut can leave an empty file.
			folder.remove(address, seen.text);
		}
		throw new Error(`${folder.pathOf(address)} keeps changing`);
	}

	function recordOf(address: string, instance: string, fields: SessionFields): RunningRecord {
		const { pid, started, boot, namespace } = processes.self;
		const { name, cwd, state, waitingOn, ...x } = fields;
		const updated = new Date(now()).toISOString();
		const at = canonicalAddress(address);
		return { address: at, name, cwd, pid, state, waitingOn, updated, started, x: { boot, namespace, instance, ...x } };
	}

	function namesInFolder(): string[] {
		try {
			return folder.names();
		} catch (error) {
			warnOnce(runningFolder(root), errorMessage(error));
			return [];
		}
	}

	function recordNamed(name: string): Found | undefined {
		if (name.startsWith(".") || !name.endsWith(".json")) return undefined;
		const address = name.slice(0, -".json".length);
		if (isCanonicalAddress(address)) return readOrWarn(address);
		warnOnce(join(runningFolder(root), name), "its name is not an address");
		return undefined;
	}

	function readOrWarn(address: string): Found | undefined {
		const seen = folder.see(address);
		if (seen.kind === "record") return seen;
		if (seen.kind !== "nothing") warnOnce(folder.pathOf(address), seen.reason);
		return undefined;
	}

	function removeDead(address: string, text: string): void {
		// Nobody starts again under such an address.
		if (isPassingAddress(address)) orWarn(join(root, address), () => removePassing(disk, root, address));
		orWarn(folder.pathOf(address), () => folder.remove(address, text));
	}

	function removeLeftovers(names: readonly string[], running: ReadonlySet<string>): void {
		const isRunning = (address: string) => running.has(address);
		for (const name of names) {
			orWarn(join(runningFolder(root), name), () => folder.removeLeftover(name, isRunning));
		}
	}

	function orWarn(path: string, remove: () => void): void {
		try {
			remove();
		} catch (error) {
			warnOnce(path, `it could not be removed: ${errorMessage(error)}`);
		}
	}

	function warnOnce(path: string, reason: string): void {
		if (warned.has(path)) return;
		warned.add(path);
		warn(path, reason);
	}
}

type Owner = "us" | "another" | "nobody";
type Found = { text: string; record: RunningRecord };

/** Each further try means that another process changed the record in between. */
const maxTries = 100;

function heldBy(holder: RunningRecord): RecordRefusal {
	return { ok: false, code: "held", message: `process ${holder.pid} has this session's running record`, holder };
}

/** By code units, so that the order does not depend on the reader's language. */
function compareTexts(a: string, b: string): number {
	return a < b ? -1 : a > b ? 1 : 0;
}
