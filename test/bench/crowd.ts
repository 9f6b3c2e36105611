import { budgets } from "./budgets.ts";
import type { CrowdOrders, CrowdRound } from "./crowd-round.ts";
import type { Question } from "./report.ts";
import { runRound } from "./rounds.ts";
import { absoluteRow, ratioRow } from "./rows.ts";

/** What it costs that many sessions run. */
export const crowd: Question = {
	title: "what the list of sessions and a mail cost among 500",
	async measure({ rounds, isQuick }) {
		const sizes = isQuick ? [1, 50, 500] : [1, 50, 500, 2000];
		const results: CrowdRound[] = [];
		for (let round = 0; round < rounds; round++) {
			results.push(await runRound<CrowdOrders, CrowdRound>("crowd", { sizes, repeats: isQuick ? 5 : 10 }));
		}
		const at = (of: keyof CrowdRound, size: number) => results.map((round) => round[of][size] ?? Number.NaN);
		const pairs = (of: keyof CrowdRound, size: number) =>
			at(of, size).map((ours, index) => ({ ours, beside: at(of, 1)[index] ?? Number.NaN }));
		const among = (what: string, of: keyof CrowdRound, budget?: typeof budgets.list) =>
			sizes.slice(1).map((size) => {
				const limit = budget !== undefined && size === 500 ? { budget } : {};
				return absoluteRow(`${what}, ${size} sessions`, "ms", at(of, size), {
					name: "one",
					pairs: at(of, 1),
					...limit,
				});
			});
		return {
			method: [
				"So many running records in one folder, each of a process id of its own: for each, the system is asked about a process that is",
				"there. Resolving: the list, and a name in it. Completion: what /mailbox offers before anything is typed. Delivery: with",
				"durability fast, message:send and its footer; the tool sends to a full id. Medians of several calls in each round.",
			],
			rows: [
				...among("session_mail_list", "tool", budgets.list),
				...among("the records alone", "list"),
				...among("resolving a name", "resolve"),
				...among("completion of /mailbox", "completion"),
				ratioRow("message:send, 500 sessions", "ms", "one", pairs("send", 500), budgets.crowd),
				...among("session_mail_send", "sendTool"),
			],
		};
	},
};
