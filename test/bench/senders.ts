import type { Question } from "./report.ts";
import { runRound } from "./rounds.ts";
import { ratioRow } from "./rows.ts";
import type { SendersOrders, SendersRound } from "./senders-round.ts";

/** How many mails one inbox takes when many send to it at once. */
export const senders: Question = {
	title: "how many mails one inbox takes from 32 senders at once",
	async measure({ rounds, isQuick }) {
		const counts = [1, 8, 32];
		const few = Math.min(rounds, isQuick ? 2 : 5);
		const repeats = isQuick ? 2 : 6;
		const results: SendersRound[] = [];
		for (let round = 0; round < few; round++) {
			results.push(await runRound<SendersOrders, SendersRound>("senders", { counts, repeats }));
		}
		const row = (durability: "durable" | "fast", count: number) => {
			const pairs = results.map((round) => ({
				ours: round[`${durability} ours ${count}`] ?? Number.NaN,
				beside: round[`${durability} bare ${count}`] ?? Number.NaN,
			}));
			return ratioRow(`${durability}, ${count} at once`, "mails/s", "bare", pairs);
		};
		return {
			method: [
				"So many processes send 64 requests with a text of 1 KB to one inbox, each its share, from the first one's begin to the last",
				"one's end; then the inbox is claimed, and it begins anew. Ours and bare by turns; bare as in the question send.",
				`Medians of ${repeats} such turns in each of ${few} rounds.`,
			],
			rows: [...counts.map((count) => row("durable", count)), ...counts.map((count) => row("fast", count))],
		};
	},
};
