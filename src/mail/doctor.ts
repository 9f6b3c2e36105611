import { join } from "node:path";
import { boxesOf } from "./boxes.ts";
import type { Disk } from "./disk.ts";
import { examineBoxes, examineFileSystem, examineRoot, type Use } from "./examine-folders.ts";
import { examineLeftovers, examineMail } from "./examine-mail.ts";
import { examineRecords, type Sightings } from "./examine-records.ts";
import { type Finding, type Findings, inArea, quoted } from "./finding.ts";
import type { Processes } from "./process.ts";
import { openSettings } from "./settings.ts";
import { savedStamp } from "./state.ts";
import { oneLine, pathField } from "./text.ts";
import { dayMs, duration } from "./time.ts";

/** What is looked over, and what it is looked at with. */
export interface DiagnoseOptions {
	disk: Disk;
	/** The mail root, which need not exist. */
	root: string;
	processes: Processes;
	/** Path of the settings file, which need not exist. */
	settingsFile: string;
	/** A canonical address whose boxes have to be there: that of the session that asks. */
	address?: string | undefined;
	/** Whether a mail root that is not there is wrong; default: true. Nobody may have used mail yet. */
	needsRoot?: boolean;
	/** Milliseconds since 1970. */
	now: () => number;
}

/**
 * Looks over the mail root, its file system, the records, all mailboxes, the settings file and the clock, and says what is
 * wrong and how to mend it; what is well, in one finding for each area. Changes nothing but for probe files that it removes
 * again. Throws nothing. Undefined is a place to pause.
 */
export function* diagnose(options: DiagnoseOptions): Findings {
	const { disk, root, settingsFile, address, needsRoot = true, now } = options;
	const found: { use: Use } = { use: "none" };
	yield* inArea("the mail root", examineRoot(disk, root, found, needsRoot));
	if (found.use !== "none") {
		const sightings: Sightings = { sessions: new Map(), ahead: [] };
		const leftovers: string[] = [];
		yield* inArea("the file system", examineFileSystem(disk, root, found.use));
		if (address !== undefined) yield* inArea("the mailbox", examineBoxes(disk, root, address));
		yield* inArea("the running records", examineRecords(options, sightings));
		yield* inArea("the mail", examineMail(options, sightings, leftovers));
		yield* inArea("what a prune leaves", examineLeftovers(leftovers));
		yield* inArea("the clock", examineClock(options, sightings));
	}
	yield* inArea("the settings", examineSettings(disk, settingsFile, now));
}

/** The findings as text, the worst first: a line for each, and how to mend it indented below. */
export function reportOf(findings: readonly Finding[]): string {
	return worstFirst(findings)
		.flatMap(({ level, what, mend }) => [`${level}: ${what}`, ...(mend === undefined ? [] : [`    ${mend}`])])
		.join("\n");
}

/** Findings as a person wants them: errors, warnings, and then what is well. */
export function worstFirst(findings: readonly Finding[]): Finding[] {
	return levels.flatMap((level) => findings.filter((finding) => finding.level === level));
}

const levels = ["error", "warning", "ok"] as const;

/** Whether something bears a time that has not come: then the clock was ahead, or is behind now. */
function* examineClock({ disk, root, address, now }: DiagnoseOptions, { ahead }: Sightings): Findings<string> {
	if (address !== undefined) {
		const { folder } = boxesOf(root, address);
		const path = join(folder, "state.json");
		const ms = savedStamp(disk, folder) ?? 0;
		if (ms > now() + dayMs) ahead.push({ path, ms, mend: `run: rm -- ${quoted(path)}` });
	}
	for (const { path, ms, mend } of ahead) {
		yield {
			level: "warning",
			what: `${pathField(path)} bears a time ${duration(ms - now())} from now: the clock was ahead then, or is behind`,
			mend: `if ${new Date(now()).toISOString()} is not the time, set the clock; else ${mend}`,
		};
	}
	return "nothing bears a time that has not come";
}

function* examineSettings(disk: Disk, file: string, now: () => number): Findings<string> {
	const problems: string[] = [];
	openSettings({ disk, file, now, warn: (text) => problems.push(text) }).read();
	const mend = `mend it in an editor; to go on without settings, run: mv -i -- ${quoted(file)} ${quoted(`${file}~`)}`;
	for (const problem of problems) yield { level: "warning", what: oneLine(problem), mend };
	const isThere = disk.entry(file) !== undefined;
	return isThere
		? `the settings in ${pathField(file)} are valid`
		: `no settings are set: ${pathField(file)} is not there`;
}
