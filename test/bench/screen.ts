import { budgets } from "./budgets.ts";
import { alice, bob, layOldMail } from "./fixtures.ts";
import type { Question, Row } from "./report.ts";
import { newRoot, runRound } from "./rounds.ts";
import { absoluteRow, heldRow } from "./rows.ts";
import type { ScreenOrders, ScreenRound } from "./screen-round.ts";

/** What it costs to look at much mail. */
export const screen: Question = {
	title: "how soon the mailbox screen is there, and for how long it holds the event loop",
	async measure({ rounds, isQuick }) {
		const size = isQuick ? 1000 : 10_000;
		const root = newRoot();
		layOldMail(root, alice, bob, size);
		const results: ScreenRound[] = [];
		for (let round = 0; round < Math.min(rounds, isQuick ? 3 : 5); round++) {
			results.push(await runRound<ScreenOrders, ScreenRound>("screen", { root, size }));
		}
		const rows: Row[] = [
			absoluteRow(
				`opening on ${size} mails`,
				"ms",
				results.map(({ openMs }) => openMs),
				{ budget: budgets.open },
			),
			heldRow(
				`opening on ${size} mails: held`,
				results.map(({ open }) => open),
			),
			heldRow(
				`scrolling through ${size} mails: held`,
				results.map(({ scroll }) => scroll),
			),
			heldRow(
				`searching ${size} mails: held`,
				results.map(({ search }) => search),
			),
			absoluteRow(
				`searching ${size} mails: until all is found`,
				"ms",
				results.map(({ searchMs }) => searchMs),
			),
		];
		return {
			method: [
				"Opening: from the key to the first picture with mail in it, of an inbox and a sent/ of that size, at 80x24. Scrolling: page by page",
				"to the end, each drawn, and back with one key. Searching: a word that all have, typed letter by letter. Held: the longest turn of",
				"the event loop; beside it the most that was computed in one. At most five rounds, with --quick three.",
			],
			rows,
		};
	},
};
