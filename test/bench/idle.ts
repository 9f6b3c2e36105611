import { budgets, checked, countRoom } from "./budgets.ts";
import type { IdleOrders, IdleRound } from "./idle-round.ts";
import type { Question } from "./report.ts";
import { newRoot, runRound } from "./rounds.ts";
import { absoluteRow } from "./rows.ts";
import { median } from "./statistics.ts";

/** What a session costs in which nothing happens. */
export const idle: Question = {
	title: "what an idle session takes of a core, and of the system's watches",
	async measure({ rounds, isQuick }) {
		const orders = { root: "", seconds: isQuick ? 4 : 20 };
		const few = Math.min(rounds, 5);
		// At the same time: most of it is waiting, and CPU time does not grow by that.
		const round = (isEmpty: boolean) =>
			Array.from({ length: few }, () =>
				runRound<IdleOrders, IdleRound>("idle", { ...orders, root: newRoot(), isEmpty }),
			);
		const [ours, empty] = await Promise.all([Promise.all(round(false)), Promise.all(round(true))]);
		const watches = ours.map((round) => round.watches);
		return {
			method: [
				`CPU time of an idle session over ${orders.seconds} s, beside the same process without the extension, both after two quiet seconds.`,
				"Five rounds, at the same time. Watches: the inotify watches that the process has (proc_pid_fdinfo(5)).",
			],
			rows: [
				absoluteRow(
					"CPU time of an idle session",
					"%",
					ours.map(({ share }) => share),
					{ name: "empty", pairs: empty.map(({ share }) => share), budget: budgets.idle },
				),
				{
					...absoluteRow("watches of an idle session", "watches", watches, { budget: budgets.watches }),
					// Not every system tells.
					...(!watches.some(Number.isNaN) && checked(median(watches), budgets.watches, countRoom)),
				},
			],
		};
	},
};
