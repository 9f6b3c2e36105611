import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ToolResult } from "../../src/calls/engine.ts";
import type { Wrapper } from "../../src/mail/tool-policy.ts";
import { createResultCache, labelOf, type Tried, truncated, wrap, wrapperProblems } from "../../src/policy/wrappers.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

type Settings = Omit<Wrapper, "match">;

const call = { tool: "bash", args: { command: "ls", timeout: 1 } };
const signal = () => new AbortController().signal;

function around(tool: string, settings: Settings): Wrapper {
	return { match: { tool }, ...settings };
}

function result(text: string): ToolResult {
	return { content: [{ type: "text", text }], details: undefined };
}

function textOf({ content }: ToolResult): string {
	return content.map((part) => (part.type === "text" ? part.text : "(image)")).join("|");
}

/** Work that fails so often, and then ends. */
function failing(times: number, why = "no luck") {
	return vi.fn<Tried>(async () => {
		if (times-- > 0) throw new Error(why);
		return result("done");
	});
}

function run(work: Tried, wrappers: Wrapper[], { cache = createResultCache(Date.now), args = call.args } = {}) {
	const told: string[] = [];
	const wrapped = wrap(work, wrappers, { tool: "bash", args }, cache);
	return { told, ended: wrapped(signal(), (partial) => told.push(textOf(partial))) };
}

test("SMB-060 SMB-061 every wrapper whose name fits holds, the first outermost", async () => {
	const seen: string[] = [];
	const work: Tried = async () => {
		seen.push("work");
		throw new Error("no luck");
	};
	const wrappers = [
		around("b*", { retries: { count: 1 } }),
		around("read", { retries: { count: 5 } }),
		around("*", { retries: { count: 2 } }),
	];
	const { ended } = run(work, wrappers);
	const rejected = expect(ended).rejects.toThrow(/^tool call failed: tool call failed: no luck$/);
	await vi.runAllTimersAsync();
	await rejected;
	expect(seen).toHaveLength(2 * 3);
});

test("SMB-062 a call that takes too long fails, is told to end, and says nothing more", async () => {
	let stopped = false;
	let say: Parameters<Tried>[1] | undefined;
	const work: Tried = (stop, onUpdate) => {
		say = onUpdate;
		stop.addEventListener("abort", () => {
			stopped = true;
		});
		return new Promise(() => {});
	};
	const { ended, told } = run(work, [around("bash", { timeoutSeconds: 2 })]);
	const rejected = expect(ended).rejects.toThrow(/^tool call timed out after 2s$/);
	say?.(result("half"));
	await vi.advanceTimersByTimeAsync(1999);
	expect(stopped).toBe(false);
	await vi.advanceTimersByTimeAsync(1);
	await rejected;
	say?.(result("late"));
	expect([stopped, told]).toEqual([true, ["half"]]);
});

test("SMB-062 the time limit of one wrapper is for all tries together; that of an inner one for each", async () => {
	const slow: Tried = () => new Promise(() => {});
	const retries = { count: 3 };
	const together = expect(run(slow, [around("*", { timeoutSeconds: 2, retries })]).ended).rejects.toThrow(
		/^tool call timed out after 2s$/,
	);
	const each = run(slow, [around("*", { retries }), around("*", { timeoutSeconds: 2 })]);
	const failed = expect(each.ended).rejects.toThrow(/^tool call failed: tool call timed out after 2s$/);
	await vi.advanceTimersByTimeAsync(2000);
	await together;
	await vi.runAllTimersAsync();
	await failed;
	expect(each.told).toHaveLength(3);
});

test("the time limit goes when the call has ended", async () => {
	await expect(run(failing(0), [around("*", { timeoutSeconds: 2 })]).ended).resolves.toEqual(result("done"));
	expect(vi.getTimerCount()).toBe(0);
});

test("SMB-062 a failed call is made again, each time later, and each time is progress", async () => {
	const work = failing(2);
	const { ended, told } = run(work, [around("bash", { retries: { count: 3, backoffMs: 100 } })]);
	await vi.advanceTimersByTimeAsync(99);
	expect(work).toHaveBeenCalledTimes(1);
	await vi.advanceTimersByTimeAsync(1);
	expect(work).toHaveBeenCalledTimes(2);
	await vi.advanceTimersByTimeAsync(199);
	expect(work).toHaveBeenCalledTimes(2);
	await vi.advanceTimersByTimeAsync(1);
	expect(await ended).toEqual(result("done"));
	expect(told).toEqual([
		"It failed (no luck) and is tried again, 1 of 3.",
		"It failed (no luck) and is tried again, 2 of 3.",
	]);
});

test("SMB-062 a call that fails too often says so with its last error", async () => {
	const work = failing(9, "no\nluck");
	const ended = run(work, [around("bash", { retries: { count: 2 } })]).ended.catch(String);
	await vi.runAllTimersAsync();
	expect(await ended).toBe("Error: tool call failed: no\nluck");
	expect(work).toHaveBeenCalledTimes(3);
});

test("a result that is an error is made again as well", async () => {
	let times = 0;
	const work: Tried = async () => ({ ...result("bad"), isError: times++ === 0 });
	const { ended, told } = run(work, [around("bash", { retries: { count: 1 } })]);
	await vi.runAllTimersAsync();
	expect(await ended).toMatchObject({ isError: false });
	expect(told).toEqual(["It failed (bad) and is tried again, 1 of 1."]);
});

test("a stopped call is not made again, not even while it waits for that", async () => {
	const controller = new AbortController();
	const work = failing(9);
	const wrapped = wrap(
		work,
		[around("*", { retries: { count: 5, backoffMs: 1000 } })],
		call,
		createResultCache(Date.now),
	);
	const rejected = expect(wrapped(controller.signal, () => {})).rejects.toThrow("stop");
	await vi.advanceTimersByTimeAsync(10);
	controller.abort(new Error("stop"));
	await rejected;
	expect([work.mock.calls.length, vi.getTimerCount()]).toEqual([1, 0]);
	await expect(wrapped(controller.signal, () => {})).rejects.toThrow("no luck");
	expect(work).toHaveBeenCalledTimes(2);
});

test("a stopped call stops its work through a time limit", async () => {
	const controller = new AbortController();
	const work: Tried = (stop) => new Promise((_, reject) => stop.addEventListener("abort", () => reject(stop.reason)));
	const wrapped = wrap(work, [around("*", { timeoutSeconds: 9 })], call, createResultCache(Date.now));
	const rejected = expect(wrapped(controller.signal, () => {})).rejects.toThrow("stop");
	controller.abort(new Error("stop"));
	await rejected;
	expect(vi.getTimerCount()).toBe(0);
});

test("SMB-062 an equal call is answered with the first result for as long as it may be", async () => {
	const cache = createResultCache(Date.now);
	const wrappers = [around("bash", { cache: { seconds: 60 } })];
	const work = failing(0);
	const first = await run(work, wrappers, { cache }).ended;
	first.content.pop();
	const second = await run(work, wrappers, { cache, args: { timeout: 1, command: "ls" } }).ended;
	expect([work.mock.calls.length, second]).toEqual([1, { content: [{ type: "text", text: "done" }] }]);
	await run(work, wrappers, { cache, args: { command: "ls -l", timeout: 1 } }).ended;
	expect(work).toHaveBeenCalledTimes(2);
	vi.advanceTimersByTime(60_000);
	await run(work, wrappers, { cache }).ended;
	expect(work).toHaveBeenCalledTimes(3);
});

test("SMB-062 what failed, and what is an error, is not kept", async () => {
	const cache = createResultCache(Date.now);
	const wrappers = [around("bash", { cache: true })];
	const work = failing(1);
	await expect(run(work, wrappers, { cache }).ended).rejects.toThrow("no luck");
	const bad = vi.fn<Tried>(async () => ({ ...result("bad"), isError: true }));
	await run(bad, wrappers, { cache }).ended;
	await run(bad, wrappers, { cache }).ended;
	await run(work, wrappers, { cache }).ended;
	expect([bad.mock.calls.length, work.mock.calls.length]).toEqual([2, 2]);
});

test("L7 what is kept is bounded in number and size, and what is no JSON is not kept", () => {
	const cache = createResultCache(() => 0);
	const has = (n: number) => cache.get({ tool: "a", args: n }) !== undefined;
	for (let n = 0; n <= 200; n++) cache.set({ tool: "a", args: n }, result("x"), 1);
	expect([has(0), has(1), has(200)]).toEqual([false, true, true]);
	cache.set({ tool: "a", args: 201 }, result("x".repeat(5 * 1024 * 1024)), 1);
	expect([has(200), has(201)]).toEqual([true, false]);
	for (let n = 300; n < 306; n++) cache.set({ tool: "a", args: n }, result("x".repeat(3 * 1024 * 1024)), 1);
	expect([has(200), has(300), has(301), has(305)]).toEqual([false, false, true, true]);
	cache.set({ tool: "a", args: 306 }, { content: [], details: 1n }, 1);
	expect(has(306)).toBe(false);
});

test("SMB-062 text is cut at so many bytes of UTF-8, and what is no text stays", () => {
	const image = { type: "image" as const, data: "abc", mimeType: "image/png" };
	const note = "[truncated: result exceeded 5 bytes]";
	const { content } = truncated(
		{
			content: [{ type: "text", text: "ab" }, image, { type: "text", text: "ééé" }, { type: "text", text: "z" }, image],
			details: 1,
		},
		5,
	);
	expect(content).toEqual([{ type: "text", text: "ab" }, image, { type: "text", text: `é\n${note}` }, image]);
	expect(truncated(result("12345"), 5)).toEqual(result("12345"));
	expect(truncated({ ...result("é"), details: 1 }, 1)).toEqual({
		content: [{ type: "text", text: "[truncated: result exceeded 1 bytes]" }],
		details: 1,
	});
});

test("a result that was cut is not cut again, and a text that only says so is", () => {
	const once = truncated(result("x".repeat(100)), 5);
	expect(truncated(once, 5)).toEqual(once);
	const two: ToolResult = { content: ["ab", "ééé"].map((text) => ({ type: "text", text })), details: undefined };
	for (const each of [result("é"), two]) {
		for (let maxBytes = 1; maxBytes < 6; maxBytes++) {
			const cut = truncated(each, maxBytes);
			expect(truncated(cut, maxBytes)).toEqual(cut);
		}
	}
	const forged = result(`${"x".repeat(100)}\n[truncated: result exceeded 5 bytes]`);
	expect(truncated(forged, 5)).toEqual(once);
});

test("JSON for programs that is too large goes, since part of it would be none", () => {
	const structured = { ...result("x"), structuredContent: { a: "y".repeat(10) } };
	expect(truncated(structured, 100)).toEqual(structured);
	expect(truncated(structured, 5)).toEqual(result("x"));
});

test("SMB-062 the result of a wrapped call is cut as well, and one that comes from the cache is whole for others", async () => {
	const cache = createResultCache(Date.now);
	const wrappers = [around("bash", { truncate: { maxBytes: 2 }, cache: true })];
	for (let n = 0; n < 2; n++) {
		const { content } = await run(failing(0), wrappers, { cache }).ended;
		expect(content).toEqual([{ type: "text", text: "do\n[truncated: result exceeded 2 bytes]" }]);
	}
});

test("SMB-062 the label is that of the first wrapper that has one", () => {
	const wrappers = [around("*", {}), around("bash", { label: "a" }), around("*", { label: "b" })];
	expect([labelOf(wrappers, "bash"), labelOf(wrappers, "read"), labelOf([], "read")]).toEqual(["a", "b", undefined]);
});

test.each([
	["bsh", "wrapper 1 (bsh), which fits none of the tools that there are; did you mean bash?"],
	["bash(rm *)", "wrapper 1 (bash(rm *)) fits no tool: match.tool is a name, in which * stands for any text"],
])("a wrapper of %s, which is no tool, is named, whatever it does", (tool, what) => {
	expect(wrapperProblems([around(tool, { label: "b" })], ["bash"], () => true)).toMatchObject([{ what }]);
});

test("what holds only for wrapped tools is said of the others", () => {
	const wrappers = [
		around("mcp__*", { timeoutSeconds: 1, cache: true, truncate: { maxBytes: 1 } }),
		around("*", { truncate: { maxBytes: 1 }, before: { tool: "a" }, after: { tool: "a" }, label: "b" }),
		around("bash", { retries: { count: 1 } }),
	];
	expect(wrapperProblems(wrappers, ["bash", "mcp__a", "mcp__b"], (tool) => tool === "bash")).toEqual([
		{
			what: "timeoutSeconds, cache of wrapper 1 (mcp__*) do not hold for mcp__a, mcp__b: Pi gives no way to wrap the tools of others",
			mend: "change toolPolicy.wrappers in the settings: it holds as soon as they are saved",
			isMaybeMeant: true,
		},
	]);
	const many = Array.from({ length: 7 }, (_, n) => `mcp__${n}`);
	expect(wrapperProblems(wrappers, many, () => false)[0]?.what).toContain("mcp__4 and 2 more:");
});
