import type { Machine } from "./machine.ts";

/** One line of a report: what was measured, what it may cost, and the same without us. Numbers are medians over the rounds. */
export interface Row {
	readonly what: string;
	/** As it stands in the table of budgets (design section 6); none when there is no budget for it. */
	readonly budget?: string;
	readonly unit: "ms" | "mails/s" | "mailboxes/s" | "MB" | "%" | "calls" | "names" | "watches";
	readonly ours: number;
	/** The same in the same round without us, or without what is asked about: the bare system calls, an empty mailbox. */
	readonly beside?: { readonly name: string; readonly value: number };
	/** How the two compare: the median over the rounds of what one round gave, so that both sides had the same noise. */
	readonly compared?: { readonly as: "ratio" | "difference"; readonly value: number };
	/** Whether the budget holds; none when there is no budget. */
	readonly holds?: boolean;
	/** What `--check` looks at: a ratio or a count, and the most that it may be. */
	readonly check?: { readonly value: number; readonly most: number };
}

/** What the benchmark of one question gave. */
export interface Report {
	readonly name: string;
	/** What was measured, and how: whole sentences, one an item. */
	readonly method: readonly string[];
	readonly rows: readonly Row[];
}

/** A whole run: what `--json` prints. */
export interface Measured {
	readonly machine: Machine;
	readonly rounds: number;
	readonly isQuick: boolean;
	/** How long it took. */
	readonly seconds: number;
	readonly reports: readonly (Report & { readonly seconds: number })[];
}

/** A question about speed and how to answer it. Each lies in a file of its own, named for it. */
export interface Question {
	/** One line for the list of questions. */
	readonly title: string;
	/** Measures in so many rounds, at least one, each with processes of its own. */
	measure(rounds: Rounds): Promise<Omit<Report, "name">>;
}

/** How thorough to be. */
export interface Rounds {
	/** At least five in a full run, for the medians. */
	readonly rounds: number;
	/** Smaller sizes, and fewer rounds where a round takes long. */
	readonly isQuick: boolean;
}

/** A report as text: what was done, then an aligned table. */
export function reportText({ name, method, rows }: Report): string {
	const table = [["what", "budget", "ours", "beside it", "compared", "ok?"], ...rows.map(cells)];
	return [`${name}`, ...method.map((sentence) => `  ${sentence}`), "", ...aligned(table)].join("\n");
}

/** What `--check` finds in a report: one line for each row that is far beyond its budget. */
export function failuresOf({ name, rows }: Report): string[] {
	return rows.flatMap(({ what, check }) => {
		// What was not measured fails as well.
		if (check === undefined || check.value <= check.most) return [];
		return [`${name}: ${what}: ${check.value.toFixed(2)}, and not at most ${check.most.toFixed(2)}`];
	});
}

/** A row as the cells of a table: what, budget, ours, beside it, compared, whether the budget holds. */
export function cells({ what, budget = "", unit, ours, beside, compared, holds }: Row): string[] {
	const ok = holds === undefined ? "" : holds ? "yes" : "NO";
	const other = beside === undefined ? "" : `${beside.name} ${amount(beside.value, unit)}`;
	return [what, budget, amount(ours, unit), other, compared === undefined ? "" : comparison(compared, unit), ok];
}

function comparison({ as, value }: NonNullable<Row["compared"]>, unit: Row["unit"]): string {
	if (as === "ratio") return `${value.toFixed(2)} ×`;
	return `${value < 0 ? "-" : "+"}${amount(Math.abs(value), unit)}`;
}

function amount(value: number, unit: Row["unit"]): string {
	const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
	return `${value.toFixed(digits)} ${unit}`;
}

function aligned(table: readonly (readonly string[])[]): string[] {
	const widths = table.reduce<number[]>(
		(widest, row) => row.map((cell, column) => Math.max(cell.length, widest[column] ?? 0)),
		[],
	);
	return table.map((row) => `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}`.trimEnd());
}
