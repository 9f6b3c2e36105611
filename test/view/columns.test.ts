import { visibleWidth } from "@earendil-works/pi-tui";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { columnsOf, cut, pad, wrap } from "../../src/view/columns.ts";

describe("texts in columns of the terminal", () => {
	test("are cut at the end, and the sign for that takes a column", () => {
		expect([cut("abcdef", 6), cut("abcdef", 5), cut("abcdef", 1), cut("abcdef", 0)]).toEqual([
			"abcdef",
			"abcd…",
			"…",
			"",
		]);
		expect(cut("日本語の名前", 6)).toBe("日本…");
	});

	test("are filled up to stand below one another", () => {
		expect([pad("ab", 4), pad("abcdef", 4), pad("日本", 6)]).toEqual(["ab  ", "abc…", "日本  "]);
	});

	test("are broken after a space, or in the middle of what has none", () => {
		expect(wrap("one two three", 9)).toEqual(["one two", "three"]);
		expect(wrap("one two", 3)).toEqual(["one", "two"]);
		expect(wrap("abcdefgh", 3)).toEqual(["abc", "def", "gh"]);
		expect(wrap("", 3)).toEqual([""]);
	});

	test("of a megabyte are wrapped in no time that a person notices", () => {
		const begin = performance.now();
		expect(wrap("0123456789 ".repeat(95_000), 80).length).toBeGreaterThan(10_000);
		// A wrap that looks at each row's text again would take minutes.
		expect(performance.now() - begin).toBeLessThan(2000);
	});

	const scripts = [
		[0x20, 0x7e],
		[0xa0, 0x24f],
		[0x300, 0x36f],
		[0x590, 0x6ff],
		[0x900, 0xdff],
		[0xe00, 0xeff],
		[0x1000, 0x11ff],
		[0x1780, 0x17ff],
		[0x1e00, 0x206f],
		[0x2070, 0x2bff],
		[0x3000, 0x30ff],
		[0x4e00, 0x4fff],
		[0xac00, 0xad00],
		[0xfe00, 0xfe0f],
		[0xff00, 0xffef],
		[0x1f000, 0x1faff],
		[0x10000, 0x1d7ff],
		[0xe0020, 0xe007f],
	] as const;
	const text = fc
		.array(
			fc.oneof(...scripts.map(([min, max]) => fc.integer({ min, max }).map((code) => String.fromCodePoint(code)))),
			{ maxLength: 60 },
		)
		.map((characters) => characters.join(""));

	test("L7 never take more columns than they were counted for, which would end Pi, whatever characters they hold", () => {
		fc.assert(
			fc.property(text, fc.integer({ min: 2, max: 60 }), (line, width) => {
				expect(visibleWidth(line)).toBeLessThanOrEqual(columnsOf(line));
				expect(visibleWidth(cut(line, width))).toBeLessThanOrEqual(width);
				expect(visibleWidth(pad(line, width))).toBeLessThanOrEqual(width);
				for (const row of wrap(line, width)) expect(visibleWidth(row)).toBeLessThanOrEqual(width);
			}),
			{ numRuns: 2000 },
		);
	});

	test("of Latin letters and of the signs of the screen are counted as they are drawn", () => {
		for (const sign of "a~é…·→↑↓│─✉") expect([sign, columnsOf(sign)]).toEqual([sign, visibleWidth(sign)]);
	});

	test("lose nothing but the spaces at which they are broken", () => {
		fc.assert(
			fc.property(text, fc.integer({ min: 2, max: 60 }), (line, width) => {
				const unspaced = (of: string) => of.replace(/\s/g, "");
				expect(unspaced(wrap(line, width).join(""))).toBe(unspaced(line));
			}),
		);
	});
});
