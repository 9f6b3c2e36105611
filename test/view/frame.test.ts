import { describe, expect, test } from "vitest";
import { columnsOf } from "../../src/view/columns.ts";
import { drawFrame, type Frame, type Theme } from "../../src/view/frame.ts";
import { plainTheme } from "../support/fake-pi.ts";

function frame(changed: Partial<Frame> = {}): Frame {
	return {
		tabs: ["Inbox 2", "Sent", "Waiting"],
		tab: 0,
		title: undefined,
		count: 100,
		rowAt: (index) => ({ cells: [{ text: `mail ${index}`, columns: 10 }, { text: "about something" }] }),
		selected: 0,
		top: 0,
		empty: "Nothing.",
		message: undefined,
		keys: ["↑↓", "Enter open", "r reply", "w write", "q close"],
		...changed,
	};
}

const draw = (changed: Partial<Frame>, width: number, height: number) =>
	drawFrame(frame(changed), width, height, plainTheme as Theme);

describe("the screen's frame", () => {
	test("80x24: tabs, a list with its selected row marked, a message and the keys", () => {
		const { rows } = draw({ selected: 1, message: { text: "Sent to bob.", colour: "success" } }, 80, 20);
		expect(rows[0]).toBe("[1 Inbox 2]  2 Sent   3 Waiting ");
		expect(rows[2]).toBe("  mail 0    about something");
		expect(rows[3]).toBe("→ mail 1    about something");
		expect(rows.slice(-2)).toEqual(["Sent to bob.", "↑↓ · Enter open · r reply · w write · q close"]);
		expect(rows).toHaveLength(20);
	});

	test("20x5: what is left is the selected row and the keys", () => {
		const { rows, page } = draw({ selected: 7 }, 20, 3);
		expect(rows).toEqual(["[1 Inbox 2] 2 3", "→ mail 7    about s…", "↑↓ · Enter open"]);
		expect(page).toBe(1);
	});

	test.each([1, 2, 3, 5, 8, 20])(
		"at 2 to 200 columns and %i rows it has as many rows, none of them wider",
		(height) => {
			for (const width of [2, 3, 5, 20, 79, 200]) {
				const changed = {
					message: { text: "x".repeat(300), colour: "error" as const },
					title: { cells: [{ text: "/ 日本" }] },
				};
				const { rows } = draw({ ...changed, selected: 50 }, width, height);
				expect(rows).toHaveLength(height);
				for (const row of rows) expect(columnsOf(row)).toBeLessThanOrEqual(width);
			}
		},
	);

	test("moves the list no more than the selected row needs", () => {
		expect(draw({ selected: 5, top: 0 }, 80, 20).top).toBe(0);
		const { page } = draw({}, 80, 20);
		expect(draw({ selected: page, top: 0 }, 80, 20).top).toBe(1);
		expect(draw({ selected: 3, top: 10 }, 80, 20).top).toBe(3);
		expect(draw({ selected: 99, top: 0 }, 80, 20).top).toBe(100 - page);
		expect(draw({ selected: 1, top: 9, count: 2 }, 80, 20).top).toBe(0);
	});

	test("says how many rows there are below what is seen, and nothing at the end", () => {
		const line = (changed: Partial<Frame>) => draw(changed, 80, 20).rows[1];
		const { page } = draw({}, 80, 20);
		expect(line({})).toBe(`${"─".repeat(63)} ${100 - page} more below ──`);
		expect(line({ selected: -1, top: 10 })).toContain(` ${90 - page} more below ──`);
		expect(line({ selected: 99 })).toBe("─".repeat(80));
		expect(draw({}, 10, 20).rows[1]).toBe("─".repeat(10));
	});

	test("asks for no row that is not seen", () => {
		const asked: number[] = [];
		const rowAt = (index: number) => {
			asked.push(index);
			return { cells: [{ text: "x" }] };
		};
		const { page } = draw({ count: 10_000, selected: 5000, top: 5000, rowAt }, 80, 20);
		expect(asked).toHaveLength(page);
	});

	test("says that there is nothing", () => {
		expect(draw({ count: 0, selected: -1 }, 80, 20).rows[2]).toBe("Nothing.");
	});
});
