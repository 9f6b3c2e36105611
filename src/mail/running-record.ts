import * as z from "zod/mini";
import { canonicalAddress, isAddress } from "./address.ts";
import { endedToken, type Processes, type SelfProcess } from "./process.ts";
import { type WakeOn, wakeOnSchema } from "./wake-on.ts";

/**
 * One session's `running/<address>.json` (seed "Running sessions", PSM-023). Any process of this user can write one:
 * `name` and `cwd` may hold anything up to the size of the file, so cut and clean them before they are shown.
 */
export interface RunningRecord {
	address: string;
	/** The Pi session name, when one is set. */
	name?: string | undefined;
	cwd: string;
	pid: number;
	state: "idle" | "busy";
	/** Address that the session's waiting ask waits on, or empty. */
	waitingOn: string;
	/** When the record was written, ISO 8601. */
	updated: string;
	/** Start token of the process (see `process.ts`). */
	started?: string | undefined;
	/** What older copies of this package do not write. */
	x: {
		/** Boot id of the machine and pid namespace of the process. */
		boot?: string | undefined;
		namespace?: string | undefined;
		/** Random name of the owner, who checks it before each rewrite. */
		instance?: string | undefined;
		/** Kinds of mail that the session understands beyond the first four (design D21). */
		accepts?: string[] | undefined;
		/** When its waiting ask was published, in milliseconds: in a ring of asks the latest withdraws (design D13). */
		ticket?: number | undefined;
		/** False while the session's user wants no mail: it waits. */
		receiving?: boolean | undefined;
		/** True while its user keeps it from running. */
		paused?: boolean | undefined;
		/** The ids of the calls whose approval it waits for. */
		approvals?: string[] | undefined;
		/** Whose models may interrupt it, when its user has set that. */
		interruptFrom?: string[] | undefined;
		/** Which mail may start a run of it, when its user has set that. */
		wakeOn?: WakeOn | undefined;
		/** It is the record of a program that has an address of its own, and of no Pi session. */
		program?: boolean | undefined;
		/** The hop count of the run that goes on, or of the last one: what the session's shell sends carries it. */
		hops?: number | undefined;
	};
}

/** `unknown`: it runs in another pid namespace, so its process cannot be looked up from here. */
export type Judgement = "running" | "gone" | "unknown";

/** Largest record file that is read, in bytes. */
export const maxRecordBytes = 64 * 1024;

/** Reads a record. Fields that it does not know are ignored; the reason for a refusal is one short line. */
export function parseRecord(text: string): { ok: true; record: RunningRecord } | { ok: false; reason: string } {
	let json: unknown;
	try {
		json = JSON.parse(text);
	} catch {
		return { ok: false, reason: text.trim() === "" ? "it is empty" : "it is not JSON" };
	}
	const parsed = z.safeParse(recordSchema, json);
	if (parsed.success) return { ok: true, record: parsed.data };
	const field = parsed.error.issues[0]?.path.join(".") ?? "";
	return { ok: false, reason: field === "" ? "it is not a JSON object" : `${field} is missing or invalid` };
}

/** The text of a record's file. Name and directory are cut at 4096 characters, so that readers accept its size. */
export function serialiseRecord(record: RunningRecord): string {
	const name = record.name?.slice(0, maxWrittenLength) || undefined;
	return `${JSON.stringify({ ...record, name, cwd: record.cwd.slice(0, maxWrittenLength) })}\n`;
}

/**
 * Whether a record's process still runs (PSM-026, PSM-027, design D7). `found` is what the system of `self` says of the
 * record's pid. A token or boot id that either side lacks decides nothing.
 */
export function judge(
	record: RunningRecord,
	self: SelfProcess,
	found: { exists: boolean; started: string | undefined },
): Judgement {
	const { boot, namespace } = record.x;
	if (boot !== undefined && self.boot !== undefined && boot !== self.boot) return "gone";
	if (namespace !== undefined && namespace !== self.namespace) return "unknown";
	if (!found.exists || found.started === endedToken) return "gone";
	const isReused = record.started !== undefined && found.started !== undefined && record.started !== found.started;
	return isReused ? "gone" : "running";
}

/** The same of each of these, about whose processes the system is asked at once. */
export function judgeOf(
	processes: Processes,
	met: readonly { record: RunningRecord }[],
): (record: RunningRecord) => Judgement {
	const pids = new Set(met.map(({ record }) => record.pid).filter((pid) => processes.exists(pid)));
	const tokens = processes.startTokens([...pids]);
	return (record) => judge(record, processes.self, { exists: pids.has(record.pid), started: tokens.get(record.pid) });
}

const maxWrittenLength = 4096;

const addressText = z.string().check(z.overwrite(canonicalAddress));
const optionalText = z.optional(z.string());
const recordSchema = z.object({
	address: addressText.check(z.refine((text: string) => isAddress(text))),
	name: optionalText,
	cwd: z.string(),
	pid: z.int(),
	state: z.enum(["idle", "busy"]),
	waitingOn: z._default(addressText, ""),
	updated: z.string(),
	started: optionalText,
	x: z._default(
		z.object({
			boot: optionalText,
			namespace: optionalText,
			instance: optionalText,
			accepts: z.optional(z.array(z.string())),
			ticket: z.optional(z.number()),
			receiving: z.optional(z.boolean()),
			// What a later copy may write there keeps nobody from seeing the session.
			wakeOn: z.catch(z.optional(wakeOnSchema), undefined),
			paused: z.optional(z.boolean()),
			interruptFrom: z.optional(z.array(z.string())),
			approvals: z.optional(z.array(z.string())),
			program: z.optional(z.boolean()),
			hops: z.optional(z.int().check(z.gte(0))),
		}),
		{},
	),
});
