import type { SessionEntry } from "@earendil-works/pi-coding-agent";
import { describe, expect, test } from "vitest";
import { lastFinished, outcomeOfRun } from "../../src/session/run.ts";

type Stop = "stop" | "length" | "toolUse" | "error" | "aborted";

/** An assistant message; its parts are texts, `!` is a call of a tool, and `?` is what the model thought. */
function assistant(id: string, stopReason: Stop, parts: string[] = [], errorMessage?: string): SessionEntry {
	const content = parts.map((text) =>
		text === "!"
			? { type: "toolCall", id: "call", name: "bash", arguments: {} }
			: text === "?"
				? { type: "thinking", thinking: "hm" }
				: { type: "text", text },
	);
	return entry(id, { type: "message", message: { role: "assistant", content, stopReason, errorMessage } });
}

function user(id: string): SessionEntry {
	return entry(id, { type: "message", message: { role: "user", content: "hello" } });
}

function entry(id: string, fields: object): SessionEntry {
	return { id, parentId: null, timestamp: "", ...fields } as SessionEntry;
}

describe("what a run left", () => {
	const earlier = [user("1"), assistant("2", "stop", ["an older answer"])];

	test("PSM-063 is the last text of this run, blocks apart by a blank line and other content left out", () => {
		const branch = [
			...earlier,
			user("3"),
			assistant("4", "toolUse", ["let me see", "!"]),
			assistant("5", "stop", ["?", " a ", "b\n"]),
		];
		expect(outcomeOfRun(branch, "2", false)).toEqual({ end: "done", answer: "a \n\nb", lastAssistant: 4 });
	});

	test("design 4.8 is a failure when it has no assistant message, whatever earlier runs said", () => {
		const outcome = { end: "failed", answer: "", lastAssistant: -1 };
		expect(outcomeOfRun([...earlier, user("3")], "2", false)).toEqual(outcome);
		expect(outcomeOfRun([], null, false)).toEqual(outcome);
	});

	test("counts from the first entry of a session that was empty", () => {
		expect(outcomeOfRun(earlier, null, false)).toMatchObject({ end: "done", answer: "an older answer" });
	});

	test.each<[Stop, boolean, string]>([
		["stop", false, "done"],
		["length", false, "done"],
		["error", false, "failed"],
		["aborted", false, "stopped"],
		["error", true, "stopped"],
		["toolUse", true, "stopped"],
	])("D24 ends with %s, aborted %s: %s", (stopReason, aborted, end) => {
		expect(outcomeOfRun([assistant("1", stopReason)], null, aborted).end).toBe(end);
	});

	test("PSM-067 names the error when Pi does", () => {
		expect(outcomeOfRun([assistant("1", "error", ["half"], "overloaded")], null, false)).toMatchObject({
			answer: "half",
			error: "overloaded",
		});
	});
});

describe("D18 the answer that a restart finds", () => {
	test("is the last assistant message when it finished its run", () => {
		expect(lastFinished([user("1"), assistant("2", "stop", ["yes"]), user("3")])).toEqual({ answer: "yes", index: 1 });
		expect(lastFinished([assistant("1", "length", ["as far as"])])).toEqual({ answer: "as far as", index: 0 });
	});

	test.each<Stop>(["toolUse", "error", "aborted"])("is not one that ended with %s, nor one before it", (stopReason) => {
		expect(lastFinished([assistant("1", "stop", ["yes"]), assistant("2", stopReason, ["half"])])).toBeUndefined();
	});

	test("is not one that was cut while it called a tool: the run went on", () => {
		expect(lastFinished([assistant("1", "length", ["let me see", "!"])])).toBeUndefined();
	});

	test("is none in a session without one", () => {
		expect(lastFinished([user("1")])).toBeUndefined();
	});
});
