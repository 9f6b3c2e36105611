import { visibleWidth } from "@earendil-works/pi-tui";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { drawLines } from "../../src/view/lines.ts";

describe("lines in the terminal", () => {
	test("are wrapped to its width, with a margin", () => {
		expect(drawLines(["one two three", "", "four"], { indent: 2 }).render(9)).toEqual([
			"  one two",
			"   three",
			"  ",
			"  four",
		]);
	});

	test("are each cut after so many rows", () => {
		expect(drawLines(["one two three", "four five six"], { maxRows: 1 }).render(7)).toEqual(["one two", "four "]);
	});

	test("keep their styles over the wraps", () => {
		const rows = drawLines(["\x1b[36mone two three\x1b[39m"]).render(7);
		for (const row of rows) expect([row.startsWith("\x1b[36m"), row.endsWith("\x1b[39m")]).toEqual([true, true]);
	});

	test("L10 are not wrapped again for every frame, but when the width changes", () => {
		const lines = drawLines(["one two three"]);
		expect(lines.render(7)).toBe(lines.render(7));
		expect(lines.render(20)).toEqual(["one two three"]);
		expect(lines.render(7)).toHaveLength(2);
	});

	test.each([1, 2, 3])("L7 end also where no character has room: %i columns", (width) => {
		for (const text of ["ab", "漢字", "\u0e33\u0e33"]) {
			const rows = drawLines([text], { indent: 2 }).render(width);
			expect(rows.map((row) => row.trim()).join("")).toBe(text);
		}
	});

	test("L7 are never wider than the terminal, which would end Pi, whatever characters they hold", () => {
		const scripts = [
			[0x20, 0x7e],
			[0x300, 0x36f],
			[0x900, 0x97f],
			[0x980, 0x9ff],
			[0xb80, 0xbff],
			[0xe00, 0xe7f],
			[0xe80, 0xeff],
			[0x1000, 0x109f],
			[0x1100, 0x11ff],
			[0x1780, 0x17ff],
			[0x2000, 0x206f],
			[0x2600, 0x27bf],
			[0x3000, 0x30ff],
			[0x4e00, 0x4fff],
			[0xac00, 0xad00],
			[0xff00, 0xffef],
			[0x1f1e6, 0x1f1ff],
			[0x1f300, 0x1f6ff],
		] as const;
		const character = fc.oneof(
			...scripts.map(([min, max]) => fc.integer({ min, max }).map((code) => String.fromCodePoint(code))),
		);
		const text = fc
			.array(character, { maxLength: 80 })
			.map((characters) => characters.join("").replace(/[\u2028\u2029]/g, " "));
		fc.assert(
			fc.property(text, fc.integer({ min: 10, max: 100 }), (line, width) => {
				for (const row of drawLines([line]).render(width)) expect(visibleWidth(row)).toBeLessThanOrEqual(width);
			}),
			{ numRuns: 500 },
		);
	});
});
