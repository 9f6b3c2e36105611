import { budgets } from "./budgets.ts";
import type { PolicyOrders, PolicyRound } from "./policy-round.ts";
import type { Question } from "./report.ts";
import { runRound } from "./rounds.ts";
import { differenceRow } from "./rows.ts";
import { percentile } from "./statistics.ts";

/** What it costs to look for the rule that decides about a call. */
export const policy: Question = {
	title: "what the permissions of a call cost, with 200 rules",
	async measure({ rounds }) {
		const measured: PolicyRound[] = [];
		for (let round = 0; round < rounds; round++) {
			measured.push(await runRound<PolicyOrders, PolicyRound>("policy", { calls: 2000 }));
		}
		const pairs = (kind: "many" | "regex", percent: number) =>
			measured.map((round) => ({ ours: percentile(round[kind], percent), beside: percentile(round.none, percent) }));
		return {
			method: [
				"2000 calls of bash in a row, looked at with 200 rules of which 150 are about bash and look at the command, and with",
				"none, by turns. A rule with a regular expression costs a run that can be stopped besides. Each round is a new process.",
			],
			rows: [
				differenceRow("a call, p50", "ms", "no rules", pairs("many", 50), budgets.policy),
				differenceRow("a call, p99", "ms", "no rules", pairs("many", 99)),
				differenceRow("a call, and a regular expression, p50", "ms", "no rules", pairs("regex", 50)),
			],
		};
	},
};
