import { expect, test } from "vitest";
import { approverText, shownCall, wholeCall } from "../../src/policy/ticket-words.ts";
import type { Ticket } from "../../src/policy/tickets.ts";

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
	expect(wholeCall({ tool: "bash", arguments: { "": "x", command: "x", "a.": { "": "x" } } })).toBe(
		"bash: x\ncommand: x\na..: x",
	);
});

test("a call in one line shows where its lines end", () => {
	expect(shownCall({ tool: "bash", arguments: { command: "rm -rf a\nls\n" } })).toBe("bash: rm -rf a ⏎ ls");
	expect(shownCall({ tool: "bash", arguments: { command: "x".repeat(5000) } })).toHaveLength(400);
});

test("a session that decides is told the start and the end of a long call, and how much is left out", () => {
	const about = { id: "ticket-a", session: "s", message: "May it?", tool: "bash" };
	const text = (args: object) => approverText({ ...about, arguments: args } as Ticket);
	expect(text({ command: "ls" })).toContain('ticket ticket-a: bash {"command":"ls"}\n');
	const long = text({ command: `echo ${"x".repeat(9_983)}; rm -rf /` });
	expect(long).toContain('bash {"command":"echo xxx');
	expect(long).toContain("\n(Of 10012 characters 6012 are left out here; the end is:)\nxxx");
	expect(long).toContain('xxx; rm -rf /"}\nDecide with session_ticket_decide.');
	expect(text({ command: "😀".repeat(5000) })).not.toMatch(/\p{Cs}/u);
});
