import { type Budget, budgets, checked, judged } from "./budgets.ts";
import type { Row } from "./report.ts";
import { median } from "./statistics.ts";

/** What one round gave: ours, and the same beside it. */
export interface Pair {
	readonly ours: number;
	readonly beside: number;
}

/** A row whose budget, if it has one, is a ratio: `--check` looks at it as well. */
export function ratioRow(
	what: string,
	unit: Row["unit"],
	name: string,
	pairs: readonly Pair[],
	budget?: Budget & { readonly most: number },
): Row {
	const value = median(pairs.map(({ ours, beside }) => ours / beside));
	return {
		...middle(what, unit, name, pairs),
		compared: { as: "ratio", value },
		...judged(value, budget),
		...(budget && checked(value, budget)),
	};
}

/** A row whose budget, if it has one, is for the difference. */
export function differenceRow(
	what: string,
	unit: Row["unit"],
	name: string,
	pairs: readonly Pair[],
	budget?: Budget,
): Row {
	const value = median(pairs.map(({ ours, beside }) => ours - beside));
	return { ...middle(what, unit, name, pairs), compared: { as: "difference", value }, ...judged(value, budget) };
}

/** A row whose budget, if it has one, is for ours alone. */
export function absoluteRow(
	what: string,
	unit: Row["unit"],
	ours: readonly number[],
	{ name, pairs, budget }: { name?: string; pairs?: readonly number[]; budget?: Budget } = {},
): Row {
	const value = median(ours);
	const beside = name === undefined || pairs === undefined ? {} : besideOf(name, ours, pairs);
	return { what, unit, ours: value, ...beside, ...judged(value, budget) };
}

function besideOf(name: string, ours: readonly number[], others: readonly number[]): Pick<Row, "beside" | "compared"> {
	const ratios = others.map((other, index) => (ours[index] ?? Number.NaN) / other);
	return { beside: { name, value: median(others) }, compared: { as: "ratio", value: median(ratios) } };
}

function middle(what: string, unit: Row["unit"], name: string, pairs: readonly Pair[]): Row {
	const beside = { name, value: median(pairs.map((pair) => pair.beside)) };
	return { what, unit, ours: median(pairs.map(({ ours }) => ours)), beside };
}

/** A row for the longest turn of the event loop, beside what was computed in one at most. */
export function heldRow(what: string, rounds: readonly { heldMs: number; heldCpuMs: number }[]): Row {
	const cpu = median(rounds.map(({ heldCpuMs }) => heldCpuMs));
	const held = rounds.map(({ heldMs }) => heldMs);
	return { ...absoluteRow(what, "ms", held, { budget: budgets.hold }), beside: { name: "CPU", value: cpu } };
}
