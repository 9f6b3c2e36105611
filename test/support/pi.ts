import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type {
	FileEntry,
	JsonAgentSessionEvent,
	RpcCommand,
	RpcExtensionUIRequest,
	RpcResponse,
	RpcSessionState,
} from "@earendil-works/pi-coding-agent";
import type { ModelRequest, Rule } from "./scripted-model.ts";

/** This repository. */
export const repository = fileURLToPath(new URL("../..", import.meta.url));

const extension = join(repository, "src/extension.js");
const binaries = join(repository, "node_modules/.bin");
const scriptedModel = fileURLToPath(new URL("./scripted-model.ts", import.meta.url));

/** A user's machine in a temporary folder. Sessions that share a home share settings, packages and the mail root. */
export interface Home {
	/** The folder; `HOME` of every Pi started in it. */
	readonly path: string;
	/** Pi's own folder: settings, sessions, installed packages. */
	readonly agentDir: string;
	/** Where the mailboxes lie. */
	readonly mailRoot: string;
	/** The working directory of a session that asks for no other. */
	readonly workDir: string;
}

/** An empty home. {@link cleanUp} removes it. */
export function makeHome(): Home {
	const path = mkdtempSync(join(tmpdir(), "session-mail-"));
	const home: Home = {
		path,
		agentDir: join(path, "agent"),
		mailRoot: join(path, "state/pi-session-mail"),
		workDir: join(path, "work"),
	};
	for (const folder of [home.agentDir, home.workDir, join(path, "tmp")]) mkdirSync(folder);
	// Pi's caches of transpiled and of compiled code go by content: all homes share them, so that only the first start is slow.
	for (const cache of ["jiti", "node-compile-cache"]) {
		mkdirSync(join(tmpdir(), cache), { recursive: true });
		symlinkSync(join(tmpdir(), cache), join(path, "tmp", cache));
	}
	atCleanUp(() => rmSync(path, { recursive: true, force: true, maxRetries: 3 }));
	return home;
}

/** What to start. */
export interface PiOptions {
	readonly home: Home;
	/** The session's name (`--name`). */
	readonly name?: string;
	/** More arguments, such as `["--session", file]` to resume. */
	readonly args?: readonly string[];
	/** Extension files to load besides the scripted model; this repository's src/extension.js by default. */
	readonly extensions?: readonly string[];
	/** What the model answers to what, see scripted-model.ts. */
	readonly rules?: readonly Rule[];
	/** Variables to set besides those of the home. */
	readonly env?: Readonly<Record<string, string>>;
	readonly cwd?: string;
}

/** Everything Pi writes to its standard output in RPC mode. */
export type PiEvent =
	| JsonAgentSessionEvent
	| RpcExtensionUIRequest
	| RpcResponse
	| {
			readonly type: "extension_error";
			readonly extensionPath: string;
			readonly event: string;
			readonly error: string;
	  };

/** How a process ended: an exit code, or the signal that killed it. */
export interface Exit {
	readonly code: number | null;
	readonly signal: NodeJS.Signals | null;
}

/** How long to wait, and for what: both go into the error when it does not come. */
export interface Patience {
	readonly timeoutMs?: number;
	readonly what?: string;
}

/** Starts Pi in RPC mode and waits until it takes commands. Throws when Pi ends instead, with what it printed. */
export async function startPi(options: PiOptions): Promise<Pi> {
	const pi = new Pi(launch(options, ["--mode", "rpc"]));
	await pi.refresh();
	return pi;
}

/** Runs `pi -p prompt` to its end, at most a minute. */
export async function printPi(
	options: PiOptions & { readonly prompt: string },
): Promise<Exit & { readonly stdout: string; readonly stderr: string }> {
	const { command, args, env, cwd } = launch(options, ["-p", options.prompt]);
	return run(command, args, { env, cwd });
}

/** A running Pi in RPC mode. */
export class Pi {
	/** Every event so far. */
	readonly events: PiEvent[] = [];
	/** What it printed to standard error so far. */
	stderr = "";
	/** The session it has open now. */
	sessionId = "";
	/** The file of that session. Pi creates it with the first message of a user or model. */
	sessionFile = "";

	readonly #label: string;
	readonly #requestLog: string;
	readonly #child: ChildProcessWithoutNullStreams;
	readonly #exit: Promise<Exit>;
	#exited: Exit | undefined;
	#mark = 0;
	#commands = 0;
	#sleepers: (() => void)[] = [];

	constructor({ label, requestLog, command, args, env, cwd }: Launch) {
		this.#label = label;
		this.#requestLog = requestLog;
		this.#child = spawn(command, args, { cwd, env, stdio: "pipe" });
		this.#exit = new Promise((resolve) => {
			this.#child.once("close", (code, signal) => {
				this.#exited = { code, signal };
				this.#wake();
				resolve(this.#exited);
			});
		});
		this.#child.once("error", (error) => {
			this.stderr += error.message;
		});
		this.#child.stdout.setEncoding("utf8");
		this.#child.stderr.setEncoding("utf8");
		let rest = "";
		this.#child.stdout.on("data", (chunk: string) => {
			const lines = (rest + chunk).split("\n");
			rest = lines.pop() ?? "";
			for (const line of lines) this.events.push(JSON.parse(line));
			this.#wake();
		});
		this.#child.stderr.on("data", (chunk: string) => {
			this.stderr += chunk;
		});
		// A write to a Pi that has just died must not end the test run; waitFor reports the death.
		this.#child.stdin.on("error", () => {});
		atCleanUp(() => this.kill());
	}

	/** Sends an RPC command and returns its response, also a refusal (`success: false`). */
	async command(command: RpcCommand): Promise<RpcResponse> {
		const id = `${++this.#commands}`;
		const from = this.events.length;
		this.#child.stdin.write(`${JSON.stringify({ ...command, id })}\n`);
		const response = await this.#find(from, (event) => event.type === "response" && event.id === id && event, {
			what: `response to ${JSON.stringify(command)}`,
		});
		if (response.success && sessionChangers.has(response.command)) await this.refresh();
		return response;
	}

	/** Answers a dialog, as the person at the session does. */
	answer(request: RpcExtensionUIRequest, answer: { readonly value: string } | { readonly confirmed: boolean }): void {
		this.#child.stdin.write(`${JSON.stringify({ type: "extension_ui_response", id: request.id, ...answer })}\n`);
	}

	/**
	 * Types `text`, a prompt or a `/command`; returns when Pi has accepted it or run the command. From here on
	 * {@link waitFor} looks only at what comes after. Throws when Pi refuses it.
	 */
	async prompt(text: string, extra: { readonly streamingBehavior?: "steer" | "followUp" } = {}): Promise<void> {
		this.mark();
		await this.#mustDo({ type: "prompt", message: text, ...extra });
	}

	/** Makes {@link waitFor} look only at events from now on, or from just after `event`. */
	mark(event?: PiEvent): void {
		this.#mark = event === undefined ? this.events.length : this.events.indexOf(event) + 1;
	}

	/**
	 * The first thing other than false or undefined that `pick` returns for an event since the mark (the last prompt, or
	 * {@link mark}), whether that event has come or is to come. Throws when it has not come in time or Pi has ended, with
	 * what Pi did instead.
	 */
	waitFor<T>(pick: (event: PiEvent) => T | false | undefined, patience?: Patience): Promise<T> {
		return this.#find(this.#mark, pick, patience);
	}

	/** Waits for the end of the first run since the mark. */
	async settled(patience: Patience = {}): Promise<void> {
		await this.waitFor((event) => event.type === "agent_settled", { what: "agent_settled", ...patience });
	}

	/** Pi's answer to `get_state`. */
	async state(): Promise<RpcSessionState> {
		const response = await this.#mustDo({ type: "get_state" });
		if (response.command === "get_state") return response.data;
		throw new Error(this.#explain("did not give its state"));
	}

	/** Learns which session is open now. Needed only when an extension has changed it; {@link command} does it by itself. */
	async refresh(): Promise<void> {
		const { sessionId, sessionFile } = await this.state();
		this.sessionId = sessionId;
		this.sessionFile = sessionFile ?? "";
	}

	/** Names the session, as `/name` does. */
	async setName(name: string): Promise<void> {
		await this.#mustDo({ type: "set_session_name", name });
	}

	/** The header and entries in the session file; none while there is no file. */
	entries(): FileEntry[] {
		return jsonLines(this.sessionFile);
	}

	/** What the model saw, request by request. */
	modelRequests(): ModelRequest[] {
		return jsonLines(this.#requestLog);
	}

	/** The texts of all notifications, oldest first. */
	notifications(): string[] {
		return this.events.flatMap((event) =>
			event.type === "extension_ui_request" && event.method === "notify" ? [event.message] : [],
		);
	}

	/** The status texts in the footer, by key. */
	status(): Map<string, string> {
		const footer = new Map<string, string>();
		for (const event of this.events) {
			if (event.type !== "extension_ui_request" || event.method !== "setStatus") continue;
			if (event.statusText === undefined) footer.delete(event.statusKey);
			else footer.set(event.statusKey, event.statusText);
		}
		return footer;
	}

	/** Ends Pi as closing its client does, and returns its exit code. Throws when it is still there after 10 s. */
	async stop(): Promise<number | null> {
		this.#child.stdin.end();
		const exit = await Promise.race([this.#exit, sleep(10_000, undefined, { ref: false })]);
		if (exit) return exit.code;
		await this.kill();
		throw new Error(this.#explain("did not end within 10 s after its input was closed"));
	}

	/** Waits for an end that something else brings, at most 10 s. */
	async ended(): Promise<Exit> {
		const exit = await Promise.race([this.#exit, sleep(10_000, undefined, { ref: false })]);
		if (exit) return exit;
		throw new Error(this.#explain("did not end within 10 s"));
	}

	/** Sends `signal` and waits for the end. Does nothing when Pi has ended already. */
	async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<Exit> {
		if (!this.#exited) this.#child.kill(signal);
		return this.#exit;
	}

	async #mustDo(command: RpcCommand): Promise<RpcResponse & { success: true }> {
		const response = await this.command(command);
		if (response.success) return response;
		throw new Error(this.#explain(`refused ${JSON.stringify(command)}: ${response.error}`));
	}

	async #find<T>(
		from: number,
		pick: (event: PiEvent) => T | false | undefined,
		{ timeoutMs = 15_000, what = "the expected event" }: Patience = {},
	): Promise<T> {
		const timeout = sleep(timeoutMs, "timeout" as const, { ref: false });
		let unread = from;
		for (;;) {
			for (const event of this.events.slice(unread)) {
				const picked = pick(event);
				if (picked !== false && picked !== undefined) return picked;
			}
			unread = Math.max(from, this.events.length);
			if (this.#exited) throw new Error(this.#explain(`ended while the test waited for ${what}`));
			const news = new Promise<void>((resolve) => this.#sleepers.push(resolve));
			if ((await Promise.race([news, timeout])) === "timeout") {
				throw new Error(this.#explain(`gave no ${what} within ${timeoutMs} ms`));
			}
		}
	}

	#wake(): void {
		for (const resume of this.#sleepers.splice(0)) resume();
	}

	#explain(problem: string): string {
		const shown = this.events.filter((event) => event.type !== "message_update").slice(-15);
		return [
			`${this.#label} ${problem}.`,
			this.#exited ? `Exit: ${JSON.stringify(this.#exited)}` : "It is still running.",
			"Last events:",
			...shown.map((event) => `  ${brief(event)}`),
			"Standard error:",
			this.stderr || "  (nothing)",
		].join("\n");
	}
}

/** How to start one Pi. */
export interface Launch {
	/** What error messages call it. */
	readonly label: string;
	/** The file that takes a {@link ModelRequest} per line. */
	readonly requestLog: string;
	readonly command: string;
	readonly args: readonly string[];
	readonly env: Readonly<Record<string, string>>;
	readonly cwd: string;
}

/** How to start Pi with `options` in the mode that `modeArgs` say. Writes the rules file. */
export function launch(options: PiOptions, modeArgs: readonly string[]): Launch {
	const { home, name, args = [], extensions = [extension], rules = [], env = {}, cwd = home.workDir } = options;
	const label = `${name ?? "pi"}-${++launches}`;
	const requestLog = join(home.path, `${label}.requests.jsonl`);
	const rulesFile = join(home.path, `${label}.rules.json`);
	writeFileSync(rulesFile, JSON.stringify(rules));
	return {
		label,
		requestLog,
		command: join(binaries, "pi"),
		args: [
			...[scriptedModel, ...extensions].flatMap((file) => ["-e", file]),
			...["--model", "scripted/s1"],
			...(name === undefined ? [] : ["--name", name]),
			...args,
			...modeArgs,
		],
		env: { ...environment(home), PI_SCRIPT_LOG: requestLog, PI_SCRIPT_RULES: rulesFile, ...env },
		cwd,
	};
}

let launches = 0;

/** The variables of every process in `home`; nothing of the developer's own environment but PATH. */
export function environment(home: Home): Record<string, string> {
	return {
		PATH: [binaries, process.env.PATH].join(delimiter),
		HOME: home.path,
		LANG: "C.UTF-8",
		TMPDIR: join(home.path, "tmp"),
		XDG_STATE_HOME: join(home.path, "state"),
		PI_CODING_AGENT_DIR: home.agentDir,
		PI_OFFLINE: "1",
		PI_SKIP_VERSION_CHECK: "1",
		PI_TELEMETRY: "0",
	};
}

/** Runs a program to its end, at most a minute if nothing else is said, with nothing on its standard input. */
export async function run(
	command: string,
	args: readonly string[],
	{
		env,
		cwd,
		timeoutMs = 60_000,
	}: { readonly env: Readonly<Record<string, string>>; readonly cwd: string; readonly timeoutMs?: number },
): Promise<Exit & { readonly stdout: string; readonly stderr: string }> {
	const child = spawn(command, args, {
		cwd,
		env,
		stdio: ["ignore", "pipe", "pipe"],
		timeout: timeoutMs,
		killSignal: "SIGKILL",
	});
	atCleanUp(() => child.kill("SIGKILL"));
	const [stdout, stderr] = [text(child.stdout), text(child.stderr)];
	const [code, signal] = await once(child, "close");
	return { code, signal, stdout: await stdout, stderr: await stderr };
}

/** Calls `undo` at the next {@link cleanUp}, later registered first. */
export function atCleanUp(undo: () => unknown): void {
	undos.push(undo);
}

const undos: (() => unknown)[] = [];

// A test run that breaks off leaves no process behind either.
process.once("exit", () => {
	for (const undo of undos.splice(0).reverse()) undo();
});

/** Kills everything the tests have started and removes their homes. For `afterEach`. */
export async function cleanUp(): Promise<void> {
	for (let undo = undos.pop(); undo !== undefined; undo = undos.pop()) await undo();
}

/**
 * Calls `attempt` until it returns something other than false or undefined, and returns that. Throws when the time is
 * up, with what `attempt` threw last.
 */
export async function eventually<T>(
	attempt: () => T | false | undefined | Promise<T | false | undefined>,
	{ timeoutMs = 10_000, what = "the expected state" }: Patience = {},
): Promise<T> {
	const deadline = Date.now() + timeoutMs;
	let cause: unknown;
	do {
		try {
			const result = await attempt();
			if (result !== false && result !== undefined) return result;
			cause = undefined;
		} catch (error) {
			cause = error;
		}
		await sleep(50);
	} while (Date.now() < deadline);
	throw new Error(`${what} did not come within ${timeoutMs} ms`, { cause });
}

/** The RPC commands after which another session may be open. */
const sessionChangers = new Set(["new_session", "switch_session", "fork", "clone"]);

function brief(event: PiEvent): string {
	return JSON.stringify(event, (key, value) => (key === "usage" ? undefined : value)).slice(0, 300);
}

function jsonLines<T>(file: string): T[] {
	if (!existsSync(file)) return [];
	// What follows the last line break is still being written.
	const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
	return lines.map((line) => JSON.parse(line));
}
