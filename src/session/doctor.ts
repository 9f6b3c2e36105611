import { readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { canonicalAddress, isAddress } from "../mail/address.ts";
import { diagnose } from "../mail/doctor.ts";
import { type Findings, inArea } from "../mail/finding.ts";
import { field, oneLine, pathField } from "../mail/text.ts";
import { unusedPolicy } from "./calls.ts";
import type { Machine, MailSession } from "./session.ts";

/** What a session knows of itself, of its Pi and of its machine. */
export interface SessionDiagnosis {
	pi: Pick<ExtensionAPI, "getAllTools" | "getActiveTools">;
	ctx: Pick<ExtensionContext, "cwd" | "isProjectTrusted" | "mode" | "sessionManager">;
	machine: Machine;
	/** The session that has the mailbox; without one, why there is none. */
	session: Diagnosed | string;
	/** The model's tools, as this package describes them. */
	tools: readonly { name: string; description: string }[];
	/** Where other copies of the package lie that were loaded and stepped back. */
	otherCopies: readonly string[];
}

type Diagnosed = Pick<MailSession, "isOwner" | "isReceiving" | "isPaused" | "calls" | "unwatchedBecause" | "running">;

/** Everything `diagnose` finds, and before it what only this session knows. */
export function* diagnoseSession(options: SessionDiagnosis): Findings {
	const { disk, processes, root, settingsFile, now } = options.machine;
	const id = options.ctx.sessionManager.getSessionId();
	const address = isAddress(id) ? canonicalAddress(id) : undefined;
	yield* inArea("this session", examineSession(options, address));
	yield* inArea("Pi", examinePi(options));
	yield* diagnose({ disk, processes, root: root(), settingsFile: settingsFile(), address, now });
}

function* examineSession({ ctx, session, machine }: SessionDiagnosis, address: string | undefined): Findings<string> {
	if (typeof session === "string") {
		const mend =
			address === undefined ? "start Pi with another --session-id" : "mend what else is found here, and type /reload";
		yield { level: "error", what: `this session has no mailbox, because ${oneLine(session)}`, mend };
		return "";
	}
	if (!session.isOwner) {
		const pid = address === undefined ? undefined : session.running.find(address)?.pid;
		const what = `process ${pid ?? "of another Pi"} has this session open and receives its mail; this one only sends`;
		yield { level: "warning", what, mend: "close one of the two" };
	}
	if (!session.isReceiving) {
		yield { level: "warning", what: "mail is off in this session: it waits", mend: "type /mailbox on" };
	}
	if (session.isPaused) {
		yield { level: "warning", what: "this session is paused: mail starts no turn", mend: "type /mailbox resume" };
	}
	const problems = session.calls?.problems() ?? [unusedPolicy(machine, ctx) ?? []].flat();
	for (const { what, mend } of problems) yield { level: "warning", what, mend };
	if (session.unwatchedBecause !== undefined) yield* examineWatch(session.unwatchedBecause);
	const isWatched = ctx.mode === "tui" || ctx.mode === "rpc";
	const how = isWatched
		? "is watched for"
		: "is looked for between two tool calls, since this is no interactive session";
	return `this process receives the session's mail, which ${how}`;
}

function* examineWatch(reason: string): Findings {
	const limits = inotifyLimits.flatMap(({ name, code }) => {
		const value = inotifyLimit(name);
		return value === undefined ? [] : [{ name: `fs.inotify.${name}`, value, isReached: reason.includes(code) }];
	});
	const reached = limits.some(({ isReached }) => isReached) ? limits.filter(({ isReached }) => isReached) : limits;
	const stand = limits.map(({ name, value }) => `${name} is ${value}`).join(", ");
	const what = `new mail is looked for every two seconds instead of watched for: ${field(reason, 200)}${stand && ` (${stand})`}`;
	const raised = reached.map(({ name, value }) => `${name}=${2 * value}`).join(" ");
	const mend =
		raised === ""
			? "mail comes all the same; the watch is tried again each minute"
			: `the watch comes back within a minute; to raise the limit, run: sudo sysctl -w ${raised}`;
	yield { level: "warning", what, mend };
}

/** The limits of watches on Linux (inotify(7)), each with the error of one that is reached. */
const inotifyLimits = [
	{ name: "max_user_watches", code: "ENOSPC" },
	{ name: "max_user_instances", code: "EMFILE" },
];

/** `/proc` is no mail, so it is read without `disk.ts`. */
function inotifyLimit(name: string): number | undefined {
	try {
		return Number.parseInt(readFileSync(`/proc/sys/fs/inotify/${name}`, "utf8"), 10);
	} catch {
		return undefined;
	}
}

function* examinePi({ pi, tools, otherCopies }: SessionDiagnosis): Findings<string> {
	const remove = "run `pi list`, and remove one of the two, run: pi remove <source>";
	for (const path of otherCopies) {
		yield {
			level: "warning",
			what: `another copy of this package is loaded and does nothing: ${pathField(path)}`,
			mend: remove,
		};
	}
	const all = pi.getAllTools();
	for (const { name, description } of tools) {
		const there = all.find((tool) => tool.name === name);
		if (there === undefined || there.description === description) continue;
		yield { level: "error", what: `the tool ${name} is that of another extension`, mend: remove };
	}
	const active = new Set(pi.getActiveTools());
	const off = tools.filter(({ name }) => !active.has(name)).map(({ name }) => name);
	if (off.length > 0) {
		const what = `the model of this session cannot use ${off.join(", ")}: switched off`;
		yield {
			level: "warning",
			what,
			mend: "if that is not meant, start Pi without --tools, --exclude-tools and --no-tools, or switch them on where they were switched off",
		};
	}
	const version = piVersion(process.argv[1]);
	if (version !== undefined && Number.parseInt(version, 10) < 1) {
		yield { level: "error", what: `Pi ${version} is too old: 1.0 or later is needed`, mend: "run: pi update" };
	}
	const host = version === undefined ? "Pi, whose version cannot be told," : `Pi ${version}`;
	return `${host} runs one copy of this package, whose tools are on`;
}

/** Pi's version by the package that the running program belongs to; undefined in another host. */
export function piVersion(program: string | undefined): string | undefined {
	if (program === undefined) return undefined;
	try {
		for (let folder = dirname(realpathSync(program)); folder !== dirname(folder); folder = dirname(folder)) {
			const found = versionIn(join(folder, "package.json"));
			if (found !== undefined) return found;
		}
	} catch {
		// Not a program on disk.
	}
	return undefined;
}

function versionIn(path: string): string | undefined {
	try {
		const { name, version }: { name?: unknown; version?: unknown } = JSON.parse(readFileSync(path, "utf8"));
		return name === "@earendil-works/pi-coding-agent" && typeof version === "string" ? field(version, 40) : undefined;
	} catch {
		return undefined;
	}
}
