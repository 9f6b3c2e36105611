import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
	closeSync,
	constants,
	mkdtempSync,
	openSync,
	readFileSync,
	readSync,
	rmSync,
	writeFileSync,
	writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A system call that a traced process made. */
export interface Call {
	/** Such as `rename`, or `renameat` on some processors. */
	readonly name: string;
	/** How many of this name the process had made, with this one. */
	readonly n: number;
	/** The paths that it names, and those of the descriptors that it is given. */
	readonly paths: readonly string[];
	/** The line of the log: the call, its arguments and its result. */
	readonly line: string;
}

export interface Traced {
	/** The calls on files and descriptors since {@link waitForTrace}, in order. */
	readonly calls: readonly Call[];
	/** What it wrote to standard output. */
	readonly output: string;
	readonly isKilled: boolean;
}

/** How Node runs a script that calls {@link waitForTrace} once. */
export interface Program {
	/** Options of Node, the script, and its arguments. */
	readonly args: readonly string[];
	readonly env?: NodeJS.ProcessEnv;
}

/** Why this machine cannot trace system calls, as the end of a sentence; undefined when it can: found out by doing it. */
export function whyNoTrace(): string | undefined {
	const { error, status, stderr } = spawnSync("strace", ["-o", "/dev/null", "true"], { encoding: "utf8" });
	if (error !== undefined) return "strace is missing (apt-get install strace)";
	return status === 0 ? undefined : `strace cannot trace here (${stderr.trim().split("\n")[0]})`;
}

/** In a traced program: blocks until it is traced. Does nothing when nobody traces it. */
export function waitForTrace(): void {
	const folder = process.env[folderVariable];
	if (folder === undefined) return;
	writeFileSync(join(folder, "ready"), "\n");
	readSync(openSync(join(folder, "go"), "r"), Buffer.alloc(1));
}

/**
 * Runs a program and traces it from {@link waitForTrace} to its end: its main thread only, on which all synchronous work
 * on files happens. `kill` names the call before which it is killed: that one and all later ones change nothing.
 */
export async function trace({ args, env }: Program, kill?: Pick<Call, "name" | "n">): Promise<Traced> {
	const folder = mkdtempSync(join(tmpdir(), "trace-"));
	execFileSync("mkfifo", [join(folder, "ready"), join(folder, "go")]);
	const gate = openSync(join(folder, "go"), constants.O_RDWR);
	const inject = kill === undefined ? "" : `-e inject=${kill.name}:signal=KILL:when=${kill.n}`;
	const child = spawn("sh", ["-c", traceCommand(inject), "sh", process.execPath, ...args], {
		env: { ...process.env, ...env, [folderVariable]: folder },
		stdio: ["ignore", "pipe", "pipe"],
		detached: true,
	});
	const end = () => process.kill(-(child.pid ?? 0), "SIGKILL");
	const timer = setTimeout(end, patienceMs);
	let output = "";
	let errors = "";
	child.stdout.on("data", (chunk) => {
		output += chunk;
	});
	child.stderr.on("data", (chunk) => {
		errors += chunk;
		const rest = errors.replace(/^strace: Process \d+ attached\n/m, "");
		if (rest !== errors) writeSync(gate, "x");
		errors = rest;
		// It may have failed before it was ready, and the shell waits for that.
		if (errors !== "") end();
	});
	try {
		await once(child, "close");
		if (errors !== "") throw new Error(`it failed while it was traced: node ${args.join(" ")}\n${errors}`);
		const lines = readFileSync(join(folder, "log"), "utf8").split("\n");
		return { calls: callsOf(lines), output, isKilled: lines.includes("+++ killed by SIGKILL +++") };
	} finally {
		clearTimeout(timer);
		closeSync(gate);
		rmSync(folder, { recursive: true });
	}
}

const folderVariable = "TRACE_FOLDER";
/** How long a program may take, with its preparation. */
const patienceMs = 30_000;

/** The tracer becomes the parent of what it traces: many machines allow no other. */
function traceCommand(inject: string): string {
	const folder = `"$${folderVariable}"`;
	return [
		`"$@" &`,
		`read -r _ <${folder}/ready`,
		`exec strace -y -s 0 -e trace=%file,%desc ${inject} -o ${folder}/log -p $!`,
	].join("\n");
}

function callsOf(lines: readonly string[]): Call[] {
	const counts = new Map<string, number>();
	return lines.flatMap((line) => {
		const [, name, args = ""] = /^(\w+)\((.*?)(?:\) += .*)?$/.exec(line) ?? [];
		if (name === undefined) return [];
		const n = (counts.get(name) ?? 0) + 1;
		counts.set(name, n);
		const paths = [...args.matchAll(/"(\/[^"]*)"|\d<(\/[^>]*)>/g)].map(([, named, open]) => named ?? open ?? "");
		return [{ name, n, paths, line }];
	});
}
