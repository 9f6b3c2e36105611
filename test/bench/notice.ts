import { budgets } from "./budgets.ts";
import type { NoticeOrders, NoticeRound } from "./notice-round.ts";
import type { Question } from "./report.ts";
import { newRoot, runRound } from "./rounds.ts";
import { absoluteRow } from "./rows.ts";
import { percentile } from "./statistics.ts";

/** How long a mail takes from the disk into the conversation of an idle session. */
export const notice: Question = {
	title: "how soon an idle session has a mail that came",
	async measure({ rounds, isQuick }) {
		const results: NoticeRound[] = [];
		for (let round = 0; round < rounds; round++) {
			const orders = { root: newRoot(), mails: isQuick ? 25 : 100 };
			results.push(await runRound<NoticeOrders, NoticeRound>("notice", orders));
		}
		const ours = results.flatMap((round) => round.ours);
		const bare = results.flatMap((round) => round.bare);
		const row = (what: string, percent: number, budget: typeof budgets.notice) =>
			absoluteRow(what, "ms", [percentile(ours, percent)], {
				name: "bare",
				pairs: [percentile(bare, percent)],
				budget,
			});
		return {
			method: [
				"One process sends, another hosts an idle session: from the rename into new/ until Pi is given the mail, by the machine's",
				"monotonic clock, which the two share. Pauses of 20 to 60 ms between mails. Percentiles over the mails of all rounds.",
				"Bare: fs.watch of the same folder in the process of the session, until it names the file.",
			],
			rows: [
				row("from the disk to Pi, p50", 50, budgets.notice),
				row("from the disk to Pi, p99", 99, budgets.lateNotice),
			],
		};
	},
};
