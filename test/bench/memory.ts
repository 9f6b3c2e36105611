import { budgets } from "./budgets.ts";
import { alice, bob, layOldMail } from "./fixtures.ts";
import type { MemoryOrders, MemoryRound } from "./memory-round.ts";
import type { Question } from "./report.ts";
import { newRoot, runRound } from "./rounds.ts";
import { absoluteRow, differenceRow } from "./rows.ts";

/** What old mail and large mail take of memory. */
export const memory: Question = {
	title: "what 50,000 old mails and a mail of 1 MB take of memory",
	async measure({ rounds, isQuick }) {
		const few = Math.min(rounds, isQuick ? 3 : 5);
		const size = isQuick ? 5000 : 50_000;
		const root = newRoot();
		layOldMail(root, alice, bob, size);
		const round = (root: string) => runRound<MemoryOrders, MemoryRound>("memory", { root }, ["--expose-gc"]);
		const results: { old: MemoryRound; empty: MemoryRound }[] = [];
		for (let n = 0; n < few; n++) results.push({ old: await round(root), empty: await round(newRoot()) });
		const pairs = (of: keyof MemoryRound) => results.map(({ old, empty }) => ({ ours: old[of], beside: empty[of] }));
		const ofEmpty = (of: keyof MemoryRound) => results.map(({ empty }) => empty[of]);
		return {
			method: [
				`A session that has looked through everything at its start, after a garbage collection; at most five rounds, or three.`,
				"The mail of 1 MB: after smaller ones and a collection, how far the process's resident memory rises at most until it is sent,",
				"and in another moment until it is claimed and in the conversation. Its sender's own text is not counted. Held: the heap",
				"and buffers after the next collection, the conversation's copy of at most 32 KiB included.",
			],
			rows: [
				differenceRow(`heap, ${size} old mails`, "MB", "empty", pairs("heap"), budgets.memory),
				differenceRow(`resident, ${size} old mails`, "MB", "empty", pairs("resident"), budgets.memory),
				absoluteRow("peak, 1 MB sent", "MB", ofEmpty("sendPeak"), { budget: budgets.peak }),
				absoluteRow("peak, 1 MB received", "MB", ofEmpty("receivePeak"), { budget: budgets.peak }),
				absoluteRow("held, 1 MB sent", "MB", ofEmpty("sendHeld")),
				absoluteRow("held, 1 MB received", "MB", ofEmpty("receiveHeld")),
			],
		};
	},
};
