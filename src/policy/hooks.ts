import { AsyncLocalStorage } from "node:async_hooks";
import { type ChildProcess, spawn } from "node:child_process";
import * as z from "zod/mini";
import type { ExecuteTool, ToolResult } from "../calls/engine.ts";
import { errorMessage } from "../mail/disk.ts";
import { field } from "../mail/text.ts";
import type { Hook } from "../mail/tool-policy.ts";

/** What a hook is given of a call: what its model sent, and nothing else (SMB-065). */
export interface HookCall {
	tool: string;
	arguments: unknown;
	session_id: string;
	tool_call_id: string;
}

/** What a hook is given after a call. */
export interface HookResult extends HookCall {
	result: ToolResult["content"];
	status: "completed" | "failed";
	duration_ms: number;
}

/** What a hook says before a call. */
export type BeforeAnswer = z.infer<typeof beforeSchema>;

/** What hooks need. */
export interface HookParts {
	/** The folder in which commands run. */
	cwd: string;
	/** Runs a tool with these arguments; its result as text. Throws when there is none, or it fails. */
	callTool: (name: string, args: HookCall | HookResult, signal: AbortSignal) => Promise<string>;
	/** Ends a hook early. */
	signal?: AbortSignal | undefined;
	/** Hears of each failure: which hook, one sentence. */
	failed: (when: "before" | "after", why: string) => void;
	/** The variables of this process. */
	env?: NodeJS.ProcessEnv;
}

/**
 * Asks a hook before a call. It fails closed (SMB-063): one that ends badly, takes too long, prints too much,
 * nothing, or what is no answer, denies. What a command has started ends with it.
 */
export async function askBefore(hook: Hook, call: HookCall, parts: HookParts): Promise<BeforeAnswer> {
	try {
		const answer = answerOf(beforeSchema, await run(hook, call, parts));
		if (answer.action !== "deny") return answer;
		return {
			...answer,
			message: `Tool '${field(call.tool)}' denied by a hook, so this call was not made: ${answer.message}`,
		};
	} catch (error) {
		const why = `${nameOf(hook)} ${errorMessage(error)}`;
		parts.failed("before", why);
		return { action: "deny", message: `The hook before this call failed, so it was not made: ${why}.` };
	}
}

/**
 * Tells a hook of a result, and returns what becomes of it. It fails open (SMB-063): then the result stays as it is.
 */
export async function tellAfter(
	hook: Hook,
	call: Omit<HookResult, "result">,
	result: ToolResult,
	parts: HookParts,
): Promise<ToolResult> {
	try {
		const answer = answerOf(afterSchema, await run(hook, { ...call, result: result.content }, parts));
		if (answer.action === "annotate") {
			return { ...result, content: [...result.content, { type: "text", text: answer.text }] };
		}
		if (answer.result === undefined) return result;
		// What was structured was that of the other result.
		const { structuredContent: _, ...rest } = result;
		return { ...rest, content: contentOf(answer.result) };
	} catch (error) {
		parts.failed("after", `${nameOf(hook)} ${errorMessage(error)}`);
		return result;
	}
}

/** What all hooks say before a call; `deferred` when one asked for a decision, and why. */
export type AllBefore =
	| Extract<BeforeAnswer, { action: "deny" | "answer" }>
	| { action: "continue"; arguments?: Record<string, unknown>; deferred?: { hook: Hook; reason: string } };

/**
 * Asks the hooks before a call, the outermost first, each with the arguments that the one before it left. The first
 * that denies or answers decides; where one defers, the others are still asked: what they deny nobody can approve.
 */
export async function askAllBefore(hooks: readonly Hook[], call: HookCall, parts: HookParts): Promise<AllBefore> {
	let changed: Record<string, unknown> | undefined;
	let deferred: { hook: Hook; reason: string } | undefined;
	for (const hook of hooks) {
		const answer = await askBefore(hook, { ...call, arguments: changed ?? call.arguments }, parts);
		if (answer.action === "defer") deferred ??= { hook, reason: answer.reason ?? "a hook asks for a decision" };
		else if (answer.action === "continue") changed = answer.arguments ?? changed;
		else return answer;
	}
	return {
		action: "continue",
		...(changed !== undefined && { arguments: changed }),
		...(deferred !== undefined && { deferred }),
	};
}

/**
 * Tells the hooks of a result, the innermost first, which is the last: each sees what the one inside it made of the
 * result.
 */
export async function tellAllAfter(
	hooks: readonly Hook[],
	call: Omit<HookResult, "result">,
	result: ToolResult,
	parts: HookParts,
): Promise<ToolResult> {
	let changed = result;
	for (const hook of hooks.toReversed()) changed = await tellAfter(hook, call, changed, parts);
	return changed;
}

/**
 * What a hook gave as a result, for a model: a text, a list of parts, or `{ content }` with one; anything else is
 * shown as JSON.
 */
export function contentOf(result: unknown): ToolResult["content"] {
	if (typeof result === "string") return [{ type: "text", text: result }];
	const parts =
		z.safeParse(contentSchema, result).data ?? z.safeParse(z.object({ content: contentSchema }), result).data?.content;
	return parts ?? [{ type: "text", text: JSON.stringify(result) ?? "" }];
}

/**
 * The variables that a command gets: those that say where programs, files, the user and the screen are and how text
 * is written. Anything else may be a secret, such as the key of a model's provider.
 */
export function hookEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
	return Object.fromEntries(Object.entries(env).filter(([name]) => passedVariables.test(name)));
}

const passedVariables = new RegExp(
	`^(?:${[
		"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\\w+|TZ|TERM|TMPDIR|TEMP|TMP|XDG_(?:\\w+_HOME|RUNTIME_DIR)",
		"DISPLAY|WAYLAND_DISPLAY|DBUS_SESSION_BUS_ADDRESS",
		"SYSTEMROOT|WINDIR|COMSPEC|PATHEXT|USERNAME|USERPROFILE|HOMEDRIVE|HOMEPATH|APPDATA|LOCALAPPDATA|PROGRAM(?:DATA|FILES)",
	].join("|")})$`,
	"i",
);
const defaultTimeoutSeconds = 10;
/** Most bytes that a hook may print. */
const maxOutputBytes = 1024 * 1024;
/** How much of what it wrote to standard error is shown. */
const maxShown = 300;

const contentSchema = z.array(
	z.discriminatedUnion("type", [
		z.object({ type: z.literal("text"), text: z.string() }),
		z.object({ type: z.literal("image"), data: z.string(), mimeType: z.string() }),
	]),
);

const beforeSchema = z.discriminatedUnion("action", [
	z.object({ action: z.literal("continue"), arguments: z.optional(z.record(z.string(), z.unknown())) }),
	z.object({ action: z.literal("deny"), message: z.string() }),
	z.object({ action: z.literal("defer"), reason: z.optional(z.string()) }),
	z.object({ action: z.literal("answer"), result: z.unknown() }),
]);

const afterSchema = z.discriminatedUnion("action", [
	z.object({ action: z.literal("continue"), result: z.optional(z.unknown()) }),
	z.object({ action: z.literal("annotate"), text: z.string() }),
]);

/** What a hook is called for people. */
function nameOf(hook: Hook): string {
	if ("tool" in hook) return `the tool ${field(hook.tool)}`;
	return `the command ${field(typeof hook.command === "string" ? hook.command : hook.command.join(" "), 100)}`;
}

function answerOf<T>(schema: z.core.$ZodType<T>, text: string): T {
	if (text.trim() === "") throw new Error("printed nothing");
	let json: unknown;
	try {
		json = JSON.parse(text);
	} catch {
		throw new Error(`did not print JSON, but ${field(text.trim(), 60)}`);
	}
	const { data } = z.safeParse(schema, json);
	if (data === undefined) throw new Error(`gave an answer that is none: ${field(text.trim(), 60)}`);
	return data;
}

/** What a hook says, within its time. */
async function run(hook: Hook, call: HookCall | HookResult, parts: HookParts): Promise<string> {
	const seconds = hook.timeoutSeconds ?? defaultTimeoutSeconds;
	const stop = new AbortController();
	const end = () => stop.abort(new Error("was stopped"));
	const timer = setTimeout(() => stop.abort(new Error(`did not end within ${seconds} s`)), seconds * 1000);
	if (parts.signal?.aborted === true) end();
	parts.signal?.addEventListener("abort", end);
	try {
		stop.signal.throwIfAborted();
		const stopped = new Promise<never>((_, reject) => {
			stop.signal.addEventListener("abort", () => reject(stop.signal.reason));
		});
		const work =
			"tool" in hook
				? callTool(hook.tool, call, parts, stop.signal)
				: runCommand(hook.command, call, parts, stop.signal);
		return await Promise.race([work, stopped]);
	} finally {
		clearTimeout(timer);
		parts.signal?.removeEventListener("abort", end);
	}
}

async function callTool(
	name: string,
	call: HookCall | HookResult,
	parts: HookParts,
	signal: AbortSignal,
): Promise<string> {
	try {
		return await parts.callTool(name, call, signal);
	} catch (error) {
		throw new Error(`failed: ${field(errorMessage(error), maxShown)}`);
	}
}

/** Runs tools for hooks as Pi lets a tool that runs do it; undefined where none does, and Pi gives no way. */
export function toolCaller(id: string, executeTool: ExecuteTool | undefined): HookParts["callTool"] {
	// The call that it is about, or the one that made that.
	const [root = id] = id.split("/", 1);
	return async (name, call, signal) => {
		if (executeTool === undefined)
			throw new Error("it can be called only where Pi's own tools and session_call_run are");
		const { result, isError } = await hooks.run({ root, tool: name }, () => executeTool(name, { ...call }, { signal }));
		const text = result.content.map((part) => (part.type === "text" ? part.text : "")).join("\n");
		if (isError) throw new Error(text);
		return text;
	};
}

const hooks = new AsyncLocalStorage<{ root: string; tool: string }>();

/** Whether a call is that of a hook, around which nothing is put. What such a tool starts besides, such as a run, is none. */
export function isOfHook(id: string, tool: string): boolean {
	const hook = hooks.getStore();
	return hook?.tool === tool && id.startsWith(`${hook.root}/`);
}

function runCommand(
	command: string | readonly string[],
	call: HookCall | HookResult,
	{ cwd, env = process.env }: HookParts,
	signal: AbortSignal,
): Promise<string> {
	const input = JSON.stringify(call);
	const isShell = typeof command === "string";
	const [program = "", ...args] = isShell ? [command] : command;
	return new Promise((resolve, reject) => {
		// A group of its own, so that all it starts ends with it.
		const detached = process.platform !== "win32";
		const child = spawn(program, args, { cwd, env: hookEnvironment(env), shell: isShell, detached, stdio: "pipe" });
		// First of all: without file handles it has no streams either.
		child.on("error", (error) => reject(new Error(`could not be started: ${errorMessage(error)}`)));
		const output: Buffer[] = [];
		let bytes = 0;
		let errors = "";
		const fail = (why: Error) => {
			killGroup(child);
			child.stdout.destroy();
			child.stderr.destroy();
			reject(why);
		};
		signal.addEventListener("abort", () => fail(signal.reason));
		child.stdout.on("data", (part: Buffer) => {
			bytes += part.length;
			if (bytes > maxOutputBytes) fail(new Error(`printed more than ${maxOutputBytes} bytes`));
			else output.push(part);
		});
		child.stderr.on("data", (part: Buffer) => {
			errors = `${errors}${part}`.slice(-maxShown);
		});
		// One that does not read its input says so by its answer.
		child.stdin.on("error", () => {});
		// What it has left behind would keep its output open.
		child.on("exit", () => killGroup(child));
		child.on("close", (code, by) => {
			if (code === 0) resolve(Buffer.concat(output).toString("utf8"));
			else
				reject(
					new Error(
						`ended with ${by ?? `code ${code}`}${errors.trim() === "" ? "" : `: ${field(errors.trim(), maxShown)}`}`,
					),
				);
		});
		child.stdin.end(input);
	});
}

function killGroup({ pid }: ChildProcess): void {
	if (pid === undefined) return;
	try {
		process.kill(process.platform === "win32" ? pid : -pid, "SIGKILL");
	} catch {
		// It has ended.
	}
}
