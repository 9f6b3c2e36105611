import { type Budget, budgets, judged } from "./budgets.ts";
import type { Question, Row } from "./report.ts";
import { newRoot, runRound } from "./rounds.ts";
import { ratioRow } from "./rows.ts";
import type { SendOrders, SendRound } from "./send-round.ts";
import type { Durability } from "./sides.ts";
import { median, percentile } from "./statistics.ts";

/** What a mail costs, beside the bare system calls that no sender could do without. */
export const send: Question = {
	title: "what sending a mail costs, durable and fast, small and large",
	async measure({ rounds, isQuick }) {
		const durable = await inRounds(rounds, "durable", 1);
		const fast = await inRounds(rounds, "fast", 1);
		const rows = [
			time("durable, in a loop, p50", durable, "burst", 50, budgets.durable),
			time("durable, in a loop, p99", durable, "burst", 99),
			rate("durable, in a loop", durable),
			time("durable, apart, p50", durable, "apart", 50, budgets.durable),
			time("durable, in a loop, p50, beside no copy", durable, "burst", 50, undefined, "bare"),
			time("durable, by hand, p50, beside no copy", durable, "copied", 50, undefined, "bare"),
			time("fast, in a loop, p50", fast, "burst", 50),
			time("fast, in a loop, p99", fast, "burst", 99),
			rate("fast, in a loop", fast, budgets.fast),
			time("fast, apart, p50", fast, "apart", 50),
		];
		for (const [size, kilobytes] of [
			["32 KB", 32],
			["1 MB", 1024],
		] as const) {
			const few = Math.min(rounds, isQuick ? 3 : 5);
			const large = await inRounds(few, "durable", kilobytes);
			rows.push(time(`durable, ${size}, p50`, large, "burst", 50, budgets.durable));
			rows.push(time(`fast, ${size}, p50`, await inRounds(few, "fast", kilobytes), "burst", 50));
		}
		return {
			method: [
				"Requests with a text of 1 KB, or as the row says, from one session to another, each kept as a copy in sent/, on an inbox",
				"that fills up to 250 and is claimed outside the measured time. Each round is a new process, which sends in blocks of 50,",
				"ours and bare by turns. Of larger mails 50 and 8 in blocks of 10 and 4, and at most five rounds, or three.",
				"Apart: with a clock that goes on by two seconds from mail to mail. Both leave out what a session does after a send.",
				"Bare, durable: JSON of the envelope, open a new file in tmp/, write, link it as sent/<name>.part, fsync, close, rename into",
				"new/, fsync new/ and sent/ (folders already open), rename the .part to sent/<name>: the copy in the order that survives a",
				"kill. Fast: without the fsyncs. It makes no folders and looks at nothing. Beside no copy: the same without link and last rename.",
			],
			rows,
		};
	},
};

async function inRounds(rounds: number, durability: Durability, kilobytes: number): Promise<SendRound[]> {
	const results: SendRound[] = [];
	for (let round = 0; round < rounds; round++) {
		const orders: SendOrders = { root: newRoot(), durability, bytes: 1024 * kilobytes, ...amountOf(kilobytes) };
		results.push(await runRound<SendOrders, SendRound>("send", orders));
	}
	return results;
}

/** How many mails of a size fit into a round. */
function amountOf(kilobytes: number): Pick<SendOrders, "block" | "blocks" | "clearings"> {
	if (kilobytes > 100) return { block: 4, blocks: 2, clearings: 1 };
	if (kilobytes > 10) return { block: 10, blocks: 5, clearings: 1 };
	return { block: 50, blocks: 5, clearings: 2 };
}

/** A percentile of the times of single mails. */
function time(
	what: string,
	rounds: readonly SendRound[],
	way: Way,
	percent: number,
	budget?: Budget & { readonly most: number },
	beside: keyof SendRound = "copied",
): Row {
	const of = (times: readonly number[]) => percentile(times, percent);
	const pairs = rounds.map((round) => ({ ours: of(round[way]), beside: of(round[beside]) }));
	return ratioRow(what, "ms", "bare", pairs, budget);
}

/** Mails in a second of sending. */
function rate(what: string, rounds: readonly SendRound[], budget?: Budget): Row {
	const of = (times: readonly number[]) => (1000 * times.length) / times.reduce((sum, ms) => sum + ms, 0);
	const pairs = rounds.map((round) => ({ ours: of(round.burst), beside: of(round.copied) }));
	return { ...ratioRow(what, "mails/s", "bare", pairs), ...judged(median(pairs.map(({ ours }) => ours)), budget) };
}

type Way = Exclude<keyof SendRound, "bare">;
