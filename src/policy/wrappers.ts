import type { ToolResult, Work } from "../calls/engine.ts";
import { errorMessage } from "../mail/disk.ts";
import { field, start } from "../mail/text.ts";
import type { Wrapper } from "../mail/tool-policy.ts";
import type { PolicyProblem } from "../session/calls.ts";
import { canonicalJson } from "./json.ts";
import { fitsGlob, type ToolCall } from "./pattern.ts";
import { noSuchTool } from "./permissions.ts";

/** The work of a call, which is not handed back from here. */
export type Tried = (...given: [Parameters<Work>[0], Parameters<Work>[1]]) => Promise<ToolResult>;

/** The wrappers that fit a tool, the outermost first (SMB-060). */
export function wrappersFor(wrappers: readonly Wrapper[], tool: string): Wrapper[] {
	return wrappers.filter(({ match }) => fitsGlob(match.tool, tool));
}

/** What the calls of a tool are called where they are shown; undefined where no wrapper says. */
export function labelOf(wrappers: readonly Wrapper[], tool: string): string | undefined {
	return wrappersFor(wrappers, tool).find(({ label }) => label !== undefined)?.label;
}

/**
 * Puts what the wrappers that fit say around the work of a call (T-SMB-8). Of one wrapper `truncate` is outermost,
 * then come `cache`, `timeoutSeconds` for all tries together, and `retries`. Hooks are not run here: they belong to
 * every call, also of tools that cannot be wrapped, as `truncate` does; see {@link truncated}.
 */
export function wrap(work: Tried, wrappers: readonly Wrapper[], call: ToolCall, cache: ResultCache): Tried {
	return wrappersFor(wrappers, call.tool).reduceRight((inner, wrapper) => {
		const { timeoutSeconds, retries, cache: kept, truncate } = wrapper;
		let outer = inner;
		if (retries !== undefined) outer = withRetries(outer, retries);
		if (timeoutSeconds !== undefined) outer = withTimeout(outer, timeoutSeconds);
		if (kept !== undefined) outer = withCache(outer, cache, call, kept === true ? undefined : kept.seconds);
		if (truncate !== undefined) outer = withTruncate(outer, truncate.maxBytes);
		return outer;
	}, work);
}

/** The results of a session's calls that may be used again: at most 200, and 16 MiB. */
export interface ResultCache {
	get(call: ToolCall): ToolResult | undefined;
	set(call: ToolCall, result: ToolResult, ttlMs: number): void;
}

export function createResultCache(now: () => number): ResultCache {
	const kept = new Map<string, { result: string; until: number }>();
	let characters = 0;

	function remove(key: string): void {
		characters -= kept.get(key)?.result.length ?? 0;
		kept.delete(key);
	}

	return {
		get(call) {
			const key = canonicalJson(call);
			const found = key === undefined ? undefined : kept.get(key);
			if (found === undefined || found.until <= now()) return undefined;
			return JSON.parse(found.result);
		},
		set(call, result, ttlMs) {
			const key = canonicalJson(call);
			const text = jsonOf(result);
			if (key === undefined) return;
			remove(key);
			if (text === undefined || text.length > maxCached / 4) return;
			kept.set(key, { result: text, until: now() + ttlMs });
			characters += text.length;
			for (const oldest of kept.keys()) {
				if (kept.size <= maxCachedResults && characters <= maxCached) break;
				remove(oldest);
			}
		},
	};
}

/**
 * A result whose text has at most `maxBytes` in UTF-8, which says so when it was cut. What is no text stays. Doing it
 * again changes nothing.
 */
export function truncated(result: ToolResult, maxBytes: number): ToolResult {
	const note = `[truncated: result exceeded ${maxBytes} bytes]`;
	const texts = result.content.flatMap((part) => (part.type === "text" ? [part.text] : []));
	const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
	const structured = result.structuredContent;
	const isTooLarge = structured !== undefined && Buffer.byteLength(JSON.stringify(structured)) > maxBytes;
	const wasCut = texts.at(-1)?.endsWith(note) === true && bytes <= maxBytes + Buffer.byteLength(`\n${note}`);
	const { structuredContent: _, ...rest } = result;
	// It says the same as the text, for programs, and part of it would be no JSON.
	const kept = isTooLarge ? rest : result;
	if (bytes <= maxBytes || wasCut) return kept;
	let left = maxBytes;
	let isCut = false;
	const content = result.content.flatMap((part): ToolResult["content"] => {
		if (part.type !== "text") return [part];
		if (isCut) return [];
		const size = Buffer.byteLength(part.text);
		isCut = size > left;
		const text = isCut ? start(part.text, left) : part.text;
		left -= size;
		return [{ ...part, text: isCut ? (text === "" ? note : `${text}\n${note}`) : text }];
	});
	return { ...kept, content };
}

/**
 * What of the wrappers cannot be done for the tools that there are. `truncate`, `before`, `after`
 * and `label` hold for every tool; `timeoutSeconds`, `retries` and `cache` only for those that are `isWrapped`.
 */
export function wrapperProblems(
	wrappers: readonly Wrapper[],
	tools: readonly string[],
	isWrapped: (tool: string) => boolean,
): PolicyProblem[] {
	return wrappers.flatMap((wrapper, index): PolicyProblem[] => {
		const { tool } = wrapper.match;
		const name = `wrapper ${index + 1} (${field(tool)})`;
		if (/[(/]/.test(tool)) {
			return [{ what: `${name} fits no tool: match.tool is a name, in which * stands for any text`, mend }];
		}
		if (!tools.some((other) => fitsGlob(tool, other))) return [{ ...noSuchTool(name, tool, tools), mend }];
		const wanted = onlyWrapped.filter((key) => wrapper[key] !== undefined);
		const without = tools.filter((other) => fitsGlob(tool, other) && !isWrapped(other));
		if (wanted.length === 0 || without.length === 0) return [];
		const some =
			without.length > maxNamed
				? `${without.slice(0, maxNamed).join(", ")} and ${without.length - maxNamed} more`
				: without.join(", ");
		const what = `${wanted.join(", ")} of ${name} do not hold for ${some}: Pi gives no way to wrap the tools of others`;
		return [{ what, mend, isMaybeMeant: tool.includes("*") }];
	});
}

/** The hooks that are tools where they cannot be called: Pi lets only a tool that runs call another one. */
export function toolHooks(wrappers: readonly Wrapper[], isWrapped: (tool: string) => boolean): PolicyProblem[] {
	return wrappers.flatMap(({ match, before, after }, index): PolicyProblem[] => {
		const isTool = [before, after].some((hook) => hook !== undefined && "tool" in hook);
		if (!isTool || isWrapped(match.tool)) return [];
		const so = before !== undefined && "tool" in before ? ": all others are denied" : "";
		const what = `wrapper ${index + 1} (${match.tool}) has a tool as a hook, which can be called only for Pi's own tools and calls by session_call_run${so}`;
		return [{ what, mend: "use a command as the hook in toolPolicy.wrappers, or name one of Pi's own tools" }];
	});
}

const mend = "change toolPolicy.wrappers in the settings: it holds as soon as they are saved";

function jsonOf(result: ToolResult): string | undefined {
	try {
		return JSON.stringify(result);
	} catch {
		// A tool may return what is no JSON.
		return undefined;
	}
}

const onlyWrapped = ["timeoutSeconds", "retries", "cache"] as const;
const maxNamed = 5;
const maxCachedResults = 200;
/** Most characters that are kept. */
const maxCached = 16 * 1024 * 1024;
const defaultCacheSeconds = 600;
const maxBackoffMs = 60_000;

function withTruncate(work: Tried, maxBytes: number): Tried {
	return async (signal, onUpdate) => truncated(await work(signal, onUpdate), maxBytes);
}

function withCache(work: Tried, cache: ResultCache, call: ToolCall, seconds = defaultCacheSeconds): Tried {
	return async (signal, onUpdate) => {
		const found = cache.get(call);
		if (found !== undefined) return found;
		const result = await work(signal, onUpdate);
		if (result.isError !== true) cache.set(call, result, seconds * 1000);
		return result;
	};
}

function withTimeout(work: Tried, seconds: number): Tried {
	return async (signal, onUpdate) => {
		const controller = new AbortController();
		const stop = () => controller.abort(signal.reason);
		let isOver = false;
		let timer: NodeJS.Timeout | undefined;
		const late = new Promise<never>((_, reject) => {
			timer = setTimeout(() => {
				isOver = true;
				const error = new Error(`tool call timed out after ${seconds}s`);
				reject(error);
				controller.abort(error);
			}, seconds * 1000);
		});
		if (signal.aborted) stop();
		signal.addEventListener("abort", stop);
		try {
			return await Promise.race([
				work(controller.signal, (partial) => {
					if (!isOver) onUpdate(partial);
				}),
				late,
			]);
		} finally {
			clearTimeout(timer);
			signal.removeEventListener("abort", stop);
		}
	};
}

function withRetries(work: Tried, { count, backoffMs = 0 }: NonNullable<Wrapper["retries"]>): Tried {
	return async (signal, onUpdate) => {
		for (let failures = 0; ; ) {
			try {
				const result = await work(signal, onUpdate);
				// The other way in which a tool says that it failed.
				if (result.isError === true) throw new Error(textOf(result));
				return result;
			} catch (error) {
				if (signal.aborted) throw error;
				const why = error instanceof Error ? error.message : String(error);
				if (failures === count) throw new Error(`tool call failed: ${why}`, { cause: error });
				failures++;
				const text = `It failed (${errorMessage(error)}) and is tried again, ${failures} of ${count}.`;
				onUpdate({ content: [{ type: "text", text }], details: undefined });
				await pause(Math.min(maxBackoffMs, backoffMs * 2 ** (failures - 1)), signal);
			}
		}
	};
}

function textOf({ content }: ToolResult): string {
	return content.map((part) => (part.type === "text" ? part.text : "(image)")).join("\n");
}

/** Waits; throws at once when the signal aborts. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
	return new Promise((resolve, reject) => {
		const stop = () => {
			clearTimeout(timer);
			reject(signal.reason);
		};
		const timer = setTimeout(() => {
			signal.removeEventListener("abort", stop);
			resolve();
		}, ms);
		if (signal.aborted) stop();
		else signal.addEventListener("abort", stop);
	});
}
