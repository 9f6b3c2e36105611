import type { BacklogOrders, BacklogRound } from "./backlog-round.ts";
import { budgets } from "./budgets.ts";
import { alice, bob, layWaiting } from "./fixtures.ts";
import type { Question, Row } from "./report.ts";
import { newRoot, runRound } from "./rounds.ts";
import { absoluteRow, heldRow } from "./rows.ts";

/** What it costs that much mail waits. */
export const backlog: Question = {
	title: "what a full inbox costs, and for how long it holds the event loop",
	async measure({ rounds, isQuick }) {
		const scans = await inRounds(rounds, 256, "scan");
		const rows: Row[] = [
			absoluteRow(
				"message:scan, 256 waiting",
				"ms",
				scans.map(({ ms }) => ms),
				{ name: "bare", pairs: scans.map(({ bareMs }) => bareMs), budget: budgets.scan },
			),
		];
		for (const [way, what, sizes] of ways) {
			for (const size of isQuick ? sizes.slice(0, 1) : sizes.slice(1)) {
				const few = Math.min(rounds, isQuick || size > 1000 ? 3 : 5);
				rows.push(...rowsOf(`${size} ${what}`, await inRounds(few, size, way)));
			}
		}
		return {
			method: [
				"message:scan: claims 256 messages, announces them and hands over the first; bare: their marks made, the files read and renamed.",
				"Messages: each run of the fake Pi takes what fits, until all is in. Replies: they start no run. Busy: a run goes on until",
				"each mail was read once, to find the replies among them; nothing is claimed. Held: the longest turn of the event loop, with",
				"all that Pi's part of it does; beside it the most that was computed in one. At most five rounds, of 10,000 and with --quick three.",
			],
			rows,
		};
	},
};

/** With how many mails: the first with `--quick`, the others without. */
const ways = [
	["messages", "messages to an idle session", [1000, 1000, 10_000]],
	["replies", "replies to an idle session", [60, 1000, 10_000]],
	["busy", "messages past a busy session", [1000, 1000, 10_000]],
] as const;

async function inRounds(rounds: number, size: number, way: BacklogOrders["way"]): Promise<BacklogRound[]> {
	const results: BacklogRound[] = [];
	for (let round = 0; round < rounds; round++) {
		const root = newRoot();
		if (way !== "scan") layWaiting(root, bob, alice, way === "replies" ? "reply" : "message", size);
		results.push(await runRound<BacklogOrders, BacklogRound>("backlog", { root, size, way }));
	}
	return results;
}

function rowsOf(what: string, rounds: readonly BacklogRound[]): Row[] {
	return [
		heldRow(`${what}: held`, rounds),
		absoluteRow(
			`${what}: until all is in`,
			"ms",
			rounds.map(({ ms }) => ms),
		),
	];
}
