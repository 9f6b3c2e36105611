import { alice, bob, layLeftOpen, layMailboxes, layOldMail } from "./fixtures.ts";
import type { OldStartOrders, OldStartRound } from "./old-start-round.ts";
import type { Question, Row } from "./report.ts";
import { newRoot, runRound } from "./rounds.ts";
import { absoluteRow, heldRow } from "./rows.ts";

/** What a session's start costs on a machine where much mail was sent. */
export const oldStart: Question = {
	title: "for how long a start among old mail and mailboxes holds the event loop",
	async measure({ rounds, isQuick }) {
		const [mails, mailboxes, few] = isQuick ? [5000, 300, 2] : [50_000, 10_000, 3];
		const old = newRoot();
		layOldMail(old, alice, bob, mails);
		const among = newRoot();
		layOldMail(among, alice, bob, mails);
		layMailboxes(among, mailboxes, false);
		const start = (root: string) => (): OldStartOrders => ({ root, way: "start", count: 0 });
		const pruning = (way: "start" | "prune") => () => {
			const root = newRoot();
			layMailboxes(root, mailboxes, true);
			return { root, way, count: way === "prune" ? mailboxes : 0 } as const;
		};
		const empty = await inRounds(rounds, () => ({ root: newRoot(), way: "start", count: 0 }));
		const lost = { ...start(old)(), isStateLost: true };
		const leftOpen: Row[] = [];
		for (const count of isQuick ? [1000] : [1000, 10_000]) {
			const orders = (): OldStartOrders => {
				const root = newRoot();
				layLeftOpen(root, bob, alice, count);
				return { root, way: "start", count: 0, isLeftOpen: true };
			};
			leftOpen.push(...rowsOf(`${count} mails left open`, await inRounds(few, orders), empty));
		}
		const pruned = await inRounds(few, pruning("prune"));
		return {
			method: [
				"From session_start until what it looks through is done with, pruning included. Held: the longest turn of the event loop,",
				"beside it the most that was computed in one.",
				"A mail waits before the start: until it is handed over, when the first prompt comes at once. Left open: claimed by an",
				"earlier process, and not in the conversation; until the first of these is handed over. Recent mailboxes stay;",
				"prunable ones were found old a day before, by a clock that is 40 days ahead. Without state.json: all copies are read.",
				`Pruning removes what is measured, so that it has ${few} rounds. Bare: the same folders removed by hand.`,
			],
			rows: [
				...rowsOf("empty", empty, empty),
				...rowsOf(`${mails} old mails`, await inRounds(rounds, start(old)), empty),
				...rowsOf(`${mails} old mails without state.json`, await inRounds(few, () => lost), empty),
				...rowsOf(`${mails} old mails, ${mailboxes} recent mailboxes`, await inRounds(rounds, start(among)), empty),
				...rowsOf(`${mailboxes} prunable mailboxes`, await inRounds(few, pruning("start")), empty).slice(0, 2),
				...leftOpen,
				heldRow(`/mailbox prune of ${mailboxes}: held`, pruned),
				absoluteRow(
					`/mailbox prune of ${mailboxes}`,
					"mailboxes/s",
					pruned.map(({ wholeMs }) => (1000 * mailboxes) / wholeMs),
					{ name: "bare", pairs: pruned.map(({ bareMs }) => (1000 * mailboxes) / bareMs) },
				),
			],
		};
	},
};

async function inRounds(rounds: number, orders: () => OldStartOrders): Promise<OldStartRound[]> {
	const results: OldStartRound[] = [];
	for (let round = 0; round < rounds; round++) {
		results.push(await runRound<OldStartOrders, OldStartRound>("old-start", orders()));
	}
	return results;
}

function rowsOf(what: string, rounds: readonly OldStartRound[], empty: readonly OldStartRound[]): Row[] {
	const row = (how: string, of: (round: OldStartRound) => number) =>
		absoluteRow(`start, ${what}: ${how}`, "ms", rounds.map(of), {
			name: "empty",
			pairs: empty.slice(0, rounds.length).map(of),
		});
	return [
		heldRow(`start, ${what}: held`, rounds),
		row("until a mail is handed over", ({ mailMs }) => mailMs),
		row("until all is looked through", ({ wholeMs }) => wholeMs),
	];
}
