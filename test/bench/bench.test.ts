import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { repository } from "../support/pi.ts";
import { budgets, judged } from "./budgets.ts";
import { performanceIn, performanceText, withPerformance } from "./readme.ts";
import { failuresOf, type Measured, type Report, type Row, reportText } from "./report.ts";
import { absoluteRow, differenceRow, ratioRow } from "./rows.ts";
import { median, percentile } from "./statistics.ts";

const pairs = [
	{ ours: 2, beside: 1 },
	{ ours: 9, beside: 3 },
	{ ours: 4, beside: 4 },
];

function report(...rows: Row[]): Report {
	return { name: "example", method: ["How it is measured."], rows };
}

test("a percentile is the value that so many do not exceed", () => {
	expect(median([3, 1, 2])).toBe(2);
	expect(median([4, 1, 3, 2])).toBe(2);
	expect(percentile([1, 2, 3, 4], 99)).toBe(4);
	expect(percentile([5], 0)).toBe(5);
	expect(median([])).toBeNaN();
});

test("a row compares what each round gave, and not the medians", () => {
	expect(ratioRow("a", "ms", "bare", pairs)).toMatchObject({ ours: 4, beside: { value: 3 }, compared: { value: 2 } });
	expect(differenceRow("a", "ms", "bare", pairs).compared).toEqual({ as: "difference", value: 1 });
	expect(absoluteRow("a", "ms", [1, 2, 3])).toEqual({ what: "a", unit: "ms", ours: 2 });
});

test("a budget is kept up to its limit", () => {
	expect(judged(20, budgets.hold)).toEqual({ budget: "≤ 20 ms at a stretch", holds: true });
	expect(judged(20.1, budgets.hold).holds).toBe(false);
	expect(judged(4999, budgets.fast).holds).toBe(false);
	expect(judged(Number.NaN, budgets.hold).holds).toBe(false);
	expect(judged(1, undefined)).toEqual({});
});

test("--check fails for ratios and counts alone, and leaves them room", () => {
	const slow = absoluteRow("a time", "ms", [1e9], { budget: budgets.hold });
	const near = ratioRow("a ratio", "ms", "bare", [{ ours: 5.9, beside: 1 }], budgets.age);
	const far = ratioRow("a ratio", "ms", "bare", [{ ours: 6.1, beside: 1 }], budgets.age);
	expect(failuresOf(report(slow, near))).toEqual([]);
	expect(failuresOf(report(slow, near, far))).toEqual(["example: a ratio: 6.10, and not at most 6.00"]);
	const unmeasured = ratioRow("a ratio", "ms", "bare", [], budgets.age);
	expect(failuresOf(report(unmeasured))).toEqual(["example: a ratio: NaN, and not at most 6.00"]);
});

test("a report is an aligned table", () => {
	const rows = [ratioRow("one thing", "ms", "bare", pairs, budgets.age), absoluteRow("another", "calls", [125])];
	expect(reportText(report(...rows)).split("\n")).toEqual([
		"example",
		"  How it is measured.",
		"",
		"  what       budget         ours       beside it  compared  ok?",
		"  one thing  ≤ 1.2 × empty  4 ms       bare 3 ms  2.00 ×    NO",
		"  another                   125 calls",
	]);
});

const measured: Measured = {
	machine: { node: "v24.0.0", cpu: "A CPU", cores: 2, load: 0.5, folder: "/tmp", fileSystem: "ext4" },
	rounds: 15,
	isQuick: false,
	seconds: 100,
	reports: [
		{ ...report(ratioRow("one thing", "ms", "bare", pairs, budgets.age), absoluteRow("b", "ms", [1])), seconds: 1 },
	],
};

test("README.md's performance section has the rows with a budget, and nothing else of it changes", () => {
	const text = performanceText(measured);
	expect(text.split("\n").slice(-1)).toEqual([
		"| example | one thing | ≤ 1.2 × empty | 4 ms | bare 3 ms | 2.00 × | NO |",
	]);
	const readme = readFileSync(join(repository, "README.md"), "utf8");
	const changed = withPerformance(readme, text);
	expect(performanceIn(changed)).toBe(text);
	expect(withPerformance(changed, performanceIn(readme))).toBe(readme);
	expect(() => withPerformance("", text)).toThrow("README.md has not one");
});

test("README.md's performance section is as it is generated, and names every budget", () => {
	const lines = performanceIn(readFileSync(join(repository, "README.md"), "utf8")).split("\n");
	const expected = performanceText(measured).split("\n");
	expect(lines[0]).toMatch(
		/^Measured with Node \d+\.\d+\.\d+ on \d+ cores \(.+\), files on \w+, load .*; medians of at most \d+ rounds\.$/,
	);
	const rows = lines.splice(5).map((row) => row.split("|").map((cell) => cell.trim()));
	expect(lines.slice(1)).toEqual(expected.slice(1, 5));
	for (const row of rows) {
		expect(row).toHaveLength(9);
		expect(row.at(-2)).toMatch(/^(yes|NO)$/);
	}
	const named = new Set(rows.map((row) => row[3]));
	expect(named).toEqual(new Set(Object.values(budgets).map(({ text }) => text)));
});
