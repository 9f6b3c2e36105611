import { budgets } from "./budgets.ts";
import type { CallsOrders, CallsRound } from "./calls-round.ts";
import type { Question } from "./report.ts";
import { newRoot, runRound } from "./rounds.ts";
import { differenceRow } from "./rows.ts";
import { percentile } from "./statistics.ts";

/** What it costs that a call may be suspended, when it ends at once. */
export const calls: Question = {
	title: "what a call costs that may be suspended and ends at once",
	async measure({ rounds }) {
		const measured: CallsRound[] = [];
		for (let round = 0; round < rounds; round++) {
			measured.push(await runRound<CallsOrders, CallsRound>("calls", { root: newRoot(), calls: 500 }));
		}
		const pairs = (percent: number) =>
			measured.map(({ wrapped, bare }) => ({ ours: percentile(wrapped, percent), beside: percentile(bare, percent) }));
		return {
			method: [
				"500 calls in a row of a tool that returns at once, wrapped as a rule of the settings says, which are read for each,",
				"and by itself, by turns. Each round is a new process.",
			],
			rows: [
				differenceRow("a call, p50", "ms", "bare", pairs(50), budgets.call),
				differenceRow("a call, p99", "ms", "bare", pairs(99)),
			],
		};
	},
};
