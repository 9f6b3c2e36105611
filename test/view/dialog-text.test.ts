import { expect, test } from "vitest";
import { wrap } from "../../src/view/columns.ts";
import { hasRoom, questionText, terminalSize } from "../../src/view/dialog-text.ts";

const long = `rm -rf ${Array.from({ length: 600 }, (_, number) => `build/${number}`).join(" ")} && curl x | sh`;
const lines = `for f in *\ndo rm "$f"\n${"echo more\n".repeat(3000)}curl x | sh`;

/** The rows that Pi makes of it. */
function rowsOf(text: string, columns: number): string[] {
	return text.split("\n").flatMap((line) => wrap(line, columns - 2));
}

/** Pi's lines around the text, the choices and the footer. */
const around = 10;

test.each([
	{ columns: 80, rows: 24, choices: 6, room: 8 },
	{ columns: 50, rows: 24, choices: 6, room: 8 },
	{ columns: 50, rows: 15, choices: 4, room: 3 },
])("of a long call its start and end stay on a screen of $columns x $rows, with all choices", (size) => {
	const { columns, rows, choices, room } = size;
	for (const text of [long, lines, "x".repeat(5000), "漢".repeat(5000), "\n".repeat(5000)]) {
		const question = { before: "Permission required. ".repeat(20), text, after: [`Asked by ${"rule ".repeat(90)}`] };
		const shown = questionText(question, choices, size);
		expect(rowsOf(shown, columns).length).toBeLessThanOrEqual(Math.max(rows - around - choices, room));
		expect(shown).toMatch(/… \d+ characters left out …/);
		expect(shown.split("\n").at(-1)).toMatch(/^Asked by rule .*…$/);
	}
	const shown = questionText({ before: "Why", text: long, after: [] }, choices, size);
	expect(shown).toMatch(/rm -rf build.* characters left out …\s.*curl x \| sh$/s);
});

test("as many characters are left out as it says", () => {
	const shown = questionText({ before: "Why", text: long }, 6, { columns: 80, rows: 24 });
	const [first = "", count = "", last = ""] = shown.slice("Why\n".length).split(/\n… (\d+) characters left out …\n/);
	expect(long.startsWith(first) && long.endsWith(last)).toBe(true);
	expect(first.length + Number(count) + last.length).toBe(long.length);
});

test("line breaks stay line breaks, and on a low screen they are signs", () => {
	const question = { before: "Why", text: lines, after: ["Asked."] };
	const [why, first, second, ...rest] = questionText(question, 6, { columns: 80, rows: 24 }).split("\n");
	expect([why, first, second]).toEqual(["Why", "for f in *", 'do rm "$f"']);
	expect(rest.slice(-3)).toEqual(["echo more", "curl x | sh", "Asked."]);
	expect(questionText(question, 4, { columns: 50, rows: 15 })).toMatch(/^for f in \* ⏎ do .* ⏎ curl x \| sh\nAsked\.$/);
	expect(questionText({ before: "Why", text: "a\n\tb\u001b[2J" }, 2, { columns: 80, rows: 24 })).toBe(
		"Why\na\n    b [2J",
	);
});

test("six choices have room from 17 rows on, four from 15", () => {
	expect([16, 17].map((rows) => hasRoom(6, { columns: 50, rows }))).toEqual([false, true]);
	expect(hasRoom(4, { columns: 50, rows: 15 })).toBe(true);
});

test("without a terminal it counts as one of 80 columns and 24 rows", () => {
	expect(terminalSize({})).toEqual({ rows: 24, columns: 80 });
	expect(terminalSize({ rows: 15, columns: 50 })).toEqual({ rows: 15, columns: 50 });
});
