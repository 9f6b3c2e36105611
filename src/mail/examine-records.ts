import { join } from "node:path";
import { isCanonicalAddress } from "./address.ts";
import type { Disk } from "./disk.ts";
import { type Findings, quoted } from "./finding.ts";
import type { Processes } from "./process.ts";
import { runningFolder } from "./root.ts";
import { openRecordFolder } from "./running-folder.ts";
import { type Judgement, judgeOf, type RunningRecord } from "./running-record.ts";
import { field, pathField } from "./text.ts";
import { dayMs } from "./time.ts";

/** What was found while others were examined. */
export interface Sightings {
	/** Sessions with a record, and whether they run. */
	sessions: Map<string, SightedSession>;
	/** What bears a time of more than a day from now, in milliseconds since 1970. */
	ahead: { path: string; ms: number; mend: string }[];
}

/** A session with a record. */
export interface SightedSession {
	record: RunningRecord;
	judgement: Judgement;
}

/** Where the records are, and what judges them. */
export interface RecordOptions {
	disk: Disk;
	root: string;
	processes: Processes;
	/** Milliseconds since 1970. */
	now: () => number;
}

/** The running records: stale ones, those that cannot be judged or read, and what is none. Removes nothing, unlike `running.ts`. */
export function* examineRecords(
	{ disk, root, processes, now }: RecordOptions,
	{ sessions, ahead }: Sightings,
): Findings<string> {
	const folder = openRecordFolder(disk, root, now);
	const met: { record: RunningRecord }[] = [];
	for (const name of folder.names()) {
		yield undefined;
		if (name.startsWith(".") || rewritePattern.test(name)) continue;
		const path = join(runningFolder(root), name);
		const address = name.replace(/\.json$/, "");
		const isRecordName = name.endsWith(".json") && isCanonicalAddress(address);
		const seen = isRecordName ? folder.see(address) : undefined;
		if (seen?.kind === "record") met.push(seen);
		else if (seen?.kind !== "nothing") {
			const reason = seen === undefined ? "its name is not an address" : field(seen.reason, maxReason);
			const what = `${pathField(path)} is no record of a running session: ${reason}`;
			yield { level: "warning", what, mend: `if nobody needs it, run: rm -r -- ${quoted(path)}` };
		}
	}
	const judgementOf = judgeOf(processes, met);
	for (const { record } of met) {
		const { address, pid } = record;
		const judgement = judgementOf(record);
		sessions.set(address, { record, judgement });
		const path = folder.pathOf(address);
		const who = `${record.x.program === true ? "program" : "session"} ${address}`;
		const shown = `${who}${record.name === undefined ? "" : ` (${field(record.name)})`}`;
		if (judgement === "gone") {
			const what = `${shown} is recorded as running, and its process ${pid} has ended`;
			yield { level: "warning", what, mend: `run: rm -- ${quoted(path)}` };
		} else if (judgement === "unknown") {
			const what = `${shown} runs in another container, or has ended there: that cannot be told from here`;
			yield { level: "warning", what, mend: `if it has ended, run: rm -- ${quoted(path)}` };
		}
		const ms = Date.parse(record.updated);
		if (ms > now() + dayMs) ahead.push({ path, ms, mend: `end ${who} and start it again` });
	}
	const running = [...sessions.values()].filter(({ judgement }) => judgement === "running");
	const programs = running.filter(({ record }) => record.x.program === true).length;
	const others = running.length - programs;
	const and = programs === 0 ? "" : programs === 1 ? " and 1 program" : ` and ${programs} programs`;
	const who = `${others} ${others === 1 ? "session" : "sessions"}${and}`;
	return `${who} ${others === 1 && programs === 0 ? "runs" : "run"}, and every record is one of them`;
}

/** A rewrite in progress (write-file-atomic). */
const rewritePattern = /\.json\.\d+$/;
const maxReason = 200;
