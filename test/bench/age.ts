import type { AgeOrders, AgeRound, Step } from "./age-round.ts";
import { type Budget, budgets, checked, countRoom } from "./budgets.ts";
import { alice, bob, layOldMail } from "./fixtures.ts";
import type { Question, Row } from "./report.ts";
import { newRoot, runRound } from "./rounds.ts";
import { ratioRow } from "./rows.ts";

/** What a mail costs when its two sides have had many before. */
export const age: Question = {
	title: "whether a mail costs more with 50,000 old ones",
	async measure({ rounds, isQuick }) {
		const rows: Row[] = [];
		const sizes = isQuick ? [5000] : [1000, 10_000, 50_000];
		for (const size of sizes) {
			const old = newRoot();
			layOldMail(old, alice, bob, size);
			const results: AgeRound[] = [];
			for (let round = 0; round < rounds; round++) {
				const orders = { old, empty: newRoot(), mails: isQuick ? 20 : 60 };
				results.push(await runRound<AgeOrders, AgeRound>("age", orders));
			}
			rows.push(...rowsOf(size, results, size === sizes.at(-1)));
		}
		return {
			method: [
				"Two addresses that have sent each other so many mails: all of them lie in both sent/ and both cur/. One is a session, hosted",
				"by a plain process with the package's source, the other a mailbox. By turns with two that are new. Durability fast: no",
				"flush hides what is ours. Claiming and handing over: message:scan, until Pi has the mail. The settle: a whole run of a",
				"model that answers at once. Calls: operations on the disk for all of these together; names: what listing folders gave.",
				"A second reply, to what was answered already, is not among the budgets of the calls.",
			],
			rows,
		};
	},
};

const steps: Readonly<Record<Step, string>> = {
	deliver: "one delivery",
	claim: "a request claimed and handed over",
	settle: "a run and its settle, with the reply",
	send: "message:send, with the footer",
	reply: "a reply claimed and shown",
	second: "a second reply claimed and shown",
	look: "a look at the inbox, and the footer",
};

function rowsOf(size: number, rounds: readonly AgeRound[], isLast: boolean): Row[] {
	const ofSteps = Object.entries(steps).map(([step, what]) => {
		const pairs = rounds.map(({ old, empty }) => ({ ours: timeOf(old, step), beside: timeOf(empty, step) }));
		const row = ratioRow(`${what}, ${size} old`, "ms", "empty", pairs, budgetOf(isLast, budgets.age));
		if (step !== "second") return row;
		// Rare, and known to look through all of sent/.
		const { check: _, ...unchecked } = row;
		return unchecked;
	});
	const counted = (of: "calls" | "names") => {
		const pairs = rounds.map(({ old, empty }) => ({ ours: old[of], beside: empty[of] }));
		const row = ratioRow(`all but the second reply, ${size} old`, of, "empty", pairs, budgetOf(isLast, budgets.calls));
		return { ...row, ...checked(row.compared?.value ?? Number.NaN, budgets.calls, countRoom) };
	};
	return [...ofSteps, counted("calls"), counted("names")];
}

function budgetOf<B extends Budget>(isLast: boolean, budget: B): B | undefined {
	return isLast ? budget : undefined;
}

function timeOf({ times }: AgeRound["old"], step: string): number {
	return Object.entries(times).find(([name]) => name === step)?.[1] ?? Number.NaN;
}
