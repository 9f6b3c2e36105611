/** One line of a report: what was measured, what it may cost, and the same without us. Numbers are medians over the rounds. */
export interface Row {
	readonly what: string;
	/** As it stands in the table of budgets (design section 6); none when there is no budget for it. */
	readonly budget?: string;
	readonly unit: "ms" | "mails/s";
	readonly ours: number;
	/** The same in the same round without us: the bare system calls, or an empty extension. */
	readonly beside: { readonly name: string; readonly value: number };
	/** How the two compare: the median over the rounds of what one round gave, so that both sides had the same noise. */
	readonly compared: { readonly as: "ratio" | "difference"; readonly value: number };
	/** Whether the budget holds; none when there is no budget. */
	readonly holds?: boolean;
}

/** What the benchmark of one question gave. */
export interface Report {
	readonly name: string;
	/** What was measured, and how: whole sentences, one an item. */
	readonly method: readonly string[];
	readonly rows: readonly Row[];
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
}

/** A report as text: what was done, then an aligned table. */
export function reportText({ name, method, rows }: Report): string {
	const table = [["what", "budget", "ours", "beside it", "compared", "ok?"], ...rows.map(cells)];
	return [`${name}`, ...method.map((sentence) => `  ${sentence}`), "", ...aligned(table)].join("\n");
}

function cells({ what, budget = "", unit, ours, beside, compared, holds }: Row): string[] {
	const ok = holds === undefined ? "" : holds ? "yes" : "NO";
	const by = compared.as === "ratio" ? `${compared.value.toFixed(2)} ×` : signed(compared.value, unit);
	return [what, budget, amount(ours, unit), `${beside.name} ${amount(beside.value, unit)}`, by, ok];
}

function signed(value: number, unit: Row["unit"]): string {
	return `${value < 0 ? "-" : "+"}${amount(Math.abs(value), unit)}`;
}

function amount(value: number, unit: Row["unit"]): string {
	const digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
	return `${value.toFixed(digits)} ${unit}`;
}

function aligned(table: readonly (readonly string[])[]): string[] {
	const widths = table.reduce<number[]>(
		(widest, row) => row.map((cell, column) => Math.max(cell.length, widest[column] ?? 0)),
		[],
	);
	return table.map((row) => `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}`.trimEnd());
}
