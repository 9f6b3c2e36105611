import { expect, test } from "vitest";
import { shownCall, wholeCall } from "../../src/policy/ticket-words.ts";

test("a whole call is its main argument and all others, in their own lines", () => {
	const edits = [{ oldText: "a\nb", newText: "c" }];
	expect(wholeCall({ tool: "edit", arguments: { path: "a.ts", edits } })).toBe(
		"edit: a.ts\nedits.0.oldText:\na\nb\nedits.0.newText: c",
	);
	expect(wholeCall({ tool: "write", label: "Save", arguments: { content: "x", path: "a" } })).toBe(
		"Save (write): a\ncontent: x",
	);
	expect(wholeCall({ tool: "bash", arguments: { command: "rm a\nls", timeout: 5 } })).toBe(
		"bash: rm a\nls\ntimeout: 5",
	);
	expect(wholeCall({ tool: "t", arguments: { a: [], b: { c: null } } })).toBe("t\na: []\nb.c: null");
	expect(wholeCall({ tool: "t", arguments: {} })).toBe("t");
});

test("a call in one line shows where its lines end", () => {
	expect(shownCall({ tool: "bash", arguments: { command: "rm -rf a\nls\n" } })).toBe("bash: rm -rf a ⏎ ls");
	expect(shownCall({ tool: "bash", arguments: { command: "x".repeat(5000) } })).toHaveLength(400);
});
