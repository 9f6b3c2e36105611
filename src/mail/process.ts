import { spawnSync } from "node:child_process";
import { readFileSync, readlinkSync } from "node:fs";
import { errorCode } from "./disk.ts";

/**
 * What the mailbox asks about processes; tests put their own in its place. Nothing throws: what the system does not tell
 * is undefined. (`/proc` is no mail, so it is read without `disk.ts`.)
 */
export interface Processes {
	readonly self: SelfProcess;
	/** Whether a process of this id is there, also another user's. An id that no process can have (0, negative, a fraction) is not. */
	exists(pid: number): boolean;
	/**
	 * Start tokens of all these processes in one go: opaque texts that differ when an id was given to another process
	 * (PSM-028). A process that is not there has none, and on some platforms no process has.
	 */
	startTokens(pids: readonly number[]): Map<number, string>;
}

/** How this process is told from every other one on this machine. */
export interface SelfProcess {
	pid: number;
	/** Its start token. */
	started: string | undefined;
	/** The machine's boot id, a UUID that each boot makes new; undefined where there is none. */
	boot: string | undefined;
	/** Its pid namespace, such as `pid:[4026531836]`: process ids mean something only within one. Undefined where there is none. */
	namespace: string | undefined;
}

/** The processes of this machine, as seen from this one. */
export function systemProcesses(): Processes {
	const { pid } = process;
	return {
		self: {
			pid,
			started: startTokens([pid]).get(pid),
			boot: tried(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()),
			namespace: tried(() => readlinkSync("/proc/self/ns/pid")),
		},
		exists,
		startTokens,
	};
}

/** The token of a process that has ended but that its parent has not noticed (a zombie); no record carries it. */
export const endedToken = "ended";

/**
 * The start token in a text of Linux's `/proc/<pid>/stat`: field 22, ticks from boot to start, counted after the last
 * `)`, because the command name in field 2 may hold spaces and parentheses (proc_pid_stat(5)). Undefined when it has none.
 */
export function parseStat(text: string): string | undefined {
	const fields = text.slice(text.lastIndexOf(")") + 1).trim();
	const [state, ...rest] = fields.split(" ");
	const ticks = rest[18];
	if (!text.includes(")") || ticks === undefined || !/^\d+$/.test(ticks)) return undefined;
	return state === "Z" || state === "X" ? endedToken : ticks;
}

/** The start tokens in the output of `ps -o pid= -o lstart=`, such as `  812 Thu Nov 29 20:54:01 2026`; other lines are skipped. */
export function parsePs(output: string): Map<number, string> {
	const tokens = new Map<number, string>();
	for (const line of output.split("\n")) {
		const [, pid, started] = /^\s*(\d+)\s+(\S.*:\d\d \d{4})\s*$/.exec(line) ?? [];
		if (pid !== undefined && started !== undefined) tokens.set(Number(pid), started);
	}
	return tokens;
}

/** Longest wait for `ps`; without its answer processes are judged by their ids alone. */
const psTimeoutMs = 2000;

function exists(pid: number): boolean {
	if (!isPid(pid)) return false;
	try {
		process.kill(pid, 0);
		return true;
	} catch (error) {
		return errorCode(error) === "EPERM";
	}
}

function startTokens(pids: readonly number[]): Map<number, string> {
	const asked = [...new Set(pids)].filter(isPid);
	if (process.platform === "darwin" && asked.length > 0) return parsePs(runPs(asked));
	const tokens = new Map<number, string>();
	if (process.platform !== "linux") return tokens;
	for (const pid of asked) {
		const token = parseStat(tried(() => readFileSync(`/proc/${pid}/stat`, "utf8")) ?? "");
		if (token !== undefined) tokens.set(pid, token);
	}
	return tokens;
}

function runPs(pids: readonly number[]): string {
	// BSD's ps takes everything after a first `=` as heading, so each column needs its own -o. Its exit code does not
	// matter: it may complain about one process that is gone. Zone and language are fixed, or tokens would depend on the reader's.
	const { stdout } = spawnSync("/bin/ps", ["-o", "pid=", "-o", "lstart=", "-p", pids.join(",")], {
		encoding: "utf8",
		env: { LC_ALL: "C", TZ: "UTC" },
		timeout: psTimeoutMs,
	});
	return stdout ?? "";
}

function isPid(pid: number): boolean {
	return Number.isSafeInteger(pid) && pid > 0;
}

function tried<T>(read: () => T): T | undefined {
	try {
		return read();
	} catch {
		return undefined;
	}
}
