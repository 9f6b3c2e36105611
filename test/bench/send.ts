import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "../support/pi.ts";
import type { Question, Row } from "./report.ts";
import type { Durability, SendRound } from "./send-round.ts";
import { median, percentile } from "./statistics.ts";

/** Most that a durable mail may cost, in times of the bare system calls; least mails a second of the other kind (design section 6). */
const durableBudget = 1.3;
const fastBudget = 5000;

/** What a mail costs, beside the bare system calls that no sender could do without. */
export const send: Question = {
	title: "what sending a mail costs, durable and fast",
	async measure({ rounds }) {
		const durable = await inRounds(rounds, "durable");
		const fast = await inRounds(rounds, "fast");
		return {
			method: [
				"Requests with a text of 1 KB from one session to another, each kept as a copy in sent/, on an inbox that fills up to 250 and is",
				"claimed outside the measured time. Each round is a new process, which sends in blocks of 50, ours and bare by turns.",
				"Apart: with a clock that goes on by two seconds from mail to mail. Both leave out what a session does after a send.",
				"Bare, durable: open a new file in tmp/, write, fsync, close, rename into new/, fsync new/ and sent/ (folders already open).",
				"Bare, fast: open, write, close, rename. Neither keeps a copy, makes folders or looks at what is there.",
			],
			rows: [
				time("durable, in a loop, p50", durable, "burst", 50, durableBudget),
				time("durable, in a loop, p99", durable, "burst", 99),
				rate("durable, in a loop", durable),
				time("durable, apart, p50", durable, "apart", 50, durableBudget),
				time("fast, in a loop, p50", fast, "burst", 50),
				time("fast, in a loop, p99", fast, "burst", 99),
				rate("fast, in a loop", fast, fastBudget),
				time("fast, apart, p50", fast, "apart", 50),
			],
		};
	},
};

const program = fileURLToPath(new URL("./send-round.ts", import.meta.url));

async function inRounds(rounds: number, durability: Durability): Promise<SendRound[]> {
	const results: SendRound[] = [];
	const place = mkdtempSync(join(tmpdir(), "send-"));
	spread(place);
	for (let round = 0; round < rounds; round++) {
		const folder = mkdtempSync(join(place, "round-"));
		const { code, stdout, stderr } = await run(process.execPath, [program, folder, durability], {
			env: {},
			cwd: folder,
		});
		if (code !== 0) throw new Error(`a round ended with ${code}:\n${stderr}`);
		results.push(JSON.parse(stdout));
	}
	return results;
}

/**
 * Makes ext4 put the folders that are made in this one far from each other. When it makes a file it looks at each file that
 * was removed nearby in the last minutes: after a run of the tests one file takes as long as several fsyncs, and the ratios
 * flatter us. Where there is no such file system or no chattr(1), nothing happens.
 */
function spread(folder: string): void {
	spawnSync("chattr", ["+T", folder], { stdio: "ignore" });
}

/** A percentile of the times of single mails. */
function time(what: string, rounds: readonly SendRound[], way: Way, percent: number, budget?: number): Row {
	const row = compared(what, "ms", rounds, way, (times) => percentile(times, percent));
	if (budget === undefined) return row;
	return { ...row, budget: `≤ ${budget} × bare`, holds: row.compared.value <= budget };
}

/** Mails in a second of sending. */
function rate(what: string, rounds: readonly SendRound[], budget?: number): Row {
	const of = (times: readonly number[]) => (1000 * times.length) / times.reduce((sum, ms) => sum + ms, 0);
	const row = compared(what, "mails/s", rounds, "burst", of);
	return budget === undefined ? row : { ...row, budget: `≥ ${budget} mails/s`, holds: row.ours >= budget };
}

type Way = Exclude<keyof SendRound, "bare">;

function compared(
	what: string,
	unit: Row["unit"],
	rounds: readonly SendRound[],
	way: Way,
	of: (times: readonly number[]) => number,
): Row {
	const both = rounds.map((round) => ({ ours: of(round[way]), bare: of(round.bare) }));
	return {
		what,
		unit,
		ours: median(both.map(({ ours }) => ours)),
		beside: { name: "bare", value: median(both.map(({ bare }) => bare)) },
		compared: { as: "ratio", value: median(both.map(({ ours, bare }) => ours / bare)) },
	};
}
