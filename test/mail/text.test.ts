import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { field, pathField } from "../../src/mail/text.ts";

const emoji = "\u{1f600}";
const anyText = fc.oneof(
	fc.string({ unit: "binary", maxLength: 300 }),
	fc.string({ unit: fc.constantFrom("a", emoji, "\ud83d", "\ude00", "\u202e", "\n", "\u2028"), maxLength: 1200 }),
);

describe.each([
	{ name: "a field", cut: (text: string) => field(text), max: 128 },
	{ name: "a short field", cut: (text: string) => field(text, 60), max: 60 },
	{ name: "a path", cut: pathField, max: 512 },
])("$name", ({ cut, max }) => {
	test.each([
		["a\nb", "a b"],
		["a\r\nb", "a  b"],
		["a\tb", "a b"],
		["\0\u001b[2J\u007f\u0085", "  [2J  "],
		["a\u2028b\u2029c", "a b c"],
		["\u061c\u200e\u200f", "   "],
		["\u202a\u202b\u202c\u202d\u202e", "     "],
		["\u2066\u2067\u2068\u2069", "    "],
		["x\ud800y", "x\ufffdy"],
		[`Zoë ${emoji} \u0416 日本`, `Zoë ${emoji} \u0416 日本`],
		["", ""],
	])("PSM-060 D8 what could start a line, hide one or turn it round becomes a space: %j", (text, shown) => {
		expect(cut(text)).toBe(shown);
	});

	test("PSM-060 D8 is always one line without control or direction marks, well-formed and within its limit", () => {
		fc.assert(
			fc.property(anyText, (text) => {
				const shown = cut(text);
				expect(shown).not.toMatch(/[\p{Cc}\p{Cs}\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u);
				expect([...shown].length).toBe(Math.min(max, [...text].length));
				expect(cut(shown)).toBe(shown);
			}),
		);
	});

	test("D8 a text of exactly the limit stays whole, also in characters of two units", () => {
		expect(cut(emoji.repeat(max))).toBe(emoji.repeat(max));
		expect(cut("x".repeat(max))).toBe("x".repeat(max));
	});
});

test("D8 a field is cut at its end, a path at its start, and both show that they were", () => {
	expect(field(`ab${emoji.repeat(200)}`)).toBe(`ab${emoji.repeat(125)}…`);
	expect(field("abcdef", 4)).toBe("abc…");
	expect(pathField(`/start${emoji.repeat(600)}/end`)).toBe(`…${emoji.repeat(507)}/end`);
});
