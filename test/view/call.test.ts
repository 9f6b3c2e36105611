import type { Theme } from "@earendil-works/pi-coding-agent";
import { visibleWidth } from "@earendil-works/pi-tui";
import { describe, expect, test } from "vitest";
import { renderCallLine } from "../../src/tools/tool.ts";

const theme = {
	fg: (_color: string, text: string) => `\x1b[36m${text}\x1b[39m`,
	bold: (text: string) => `\x1b[1m${text}\x1b[22m`,
} as unknown as Theme;

// biome-ignore lint/suspicious/noControlCharactersInRegex: the styles of the theme above
const styles = /\x1b\[(?:36|39|1|22)m/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: that is what is looked for
const control = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]/;

function render(args: unknown, { expanded = false, width = 80, verb = "mail: ask" } = {}): readonly string[] {
	const call = renderCallLine(verb, "to", "message");
	return call(args, theme, { expanded } as Parameters<typeof call>[2]).render(width);
}

const plain = (rows: readonly string[]) => rows.map((row) => row.replace(styles, ""));

describe("a call of a mail tool in the terminal", () => {
	test("is one row: to whom, and how the text begins", () => {
		const rows = plain(render({ to: "reviewer", message: "check the parser\nand the lexer" }));
		expect(rows).toEqual(["mail: ask → reviewer  check the parser"]);
	});

	test("is one row also when the text is long", () => {
		for (const width of [20, 80, 200]) {
			const rows = render({ to: "reviewer", message: "x ".repeat(500) }, { width });
			expect(rows).toHaveLength(1);
			expect(visibleWidth(rows[0] ?? "")).toBeLessThanOrEqual(width);
		}
	});

	test("expanded is the whole text", () => {
		const rows = plain(render({ to: "reviewer", message: "check the parser\nand the lexer\n" }, { expanded: true }));
		expect(rows).toEqual(["mail: ask → reviewer", "check the parser", "and the lexer"]);
	});

	test.each([undefined, null, {}, { to: 5, message: ["x"] }, { to: "rev" }, { message: "x" }])(
		"does not fail while its arguments are still coming (%j)",
		(args) => {
			expect(plain(render(args))[0]).toMatch(/^mail: ask/);
		},
	);

	test("of a tool without parameters is its name", () => {
		const call = renderCallLine("mail: sessions", "", "");
		expect(plain(call({}, theme, { expanded: false } as Parameters<typeof call>[2]).render(80))).toEqual([
			"mail: sessions",
		]);
	});

	test.each([false, true])(
		"L8 brings no escape sequence of its arguments to the terminal (expanded: %j)",
		(expanded) => {
			const evil = "a\x1b[2J\x1b]0;title\x07b\x9b31m\r\x08\u202ec\x00";
			const rows = plain(render({ to: `${evil}\n`, message: `${evil}\n${evil}` }, { expanded }));
			expect(rows.join("\n")).not.toMatch(control);
		},
	);

	test("is one row also when the recipient's name has several lines or is long", () => {
		for (const to of ["a\nb\nc", "x".repeat(1000), `${"x".repeat(90)} y`])
			expect(render({ to, message: "hi" })).toHaveLength(1);
	});

	test.each(["यह क्षेत्र की भाषा में स्त्री श्रीमान क्ष्म्य", "จำนำทำกำ", "မြန်မာက္ကျွန်ုပ်", "🇩 🇪 🇫", "漢字👩‍👩‍👧‍👦", "if\t(x)\t{"])(
		"is never wider than the terminal, which would end Pi: %s",
		(text) => {
			for (const width of [20, 80, 200]) {
				for (const expanded of [false, true]) {
					const rows = render({ to: text, message: text.repeat(20) }, { width, expanded });
					expect(rows.filter((row) => visibleWidth(row) > width)).toEqual([]);
				}
			}
		},
	);
});
