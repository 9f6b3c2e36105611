import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { environment, type Home, makeHome, repository, run } from "../support/pi.ts";
import { budgets } from "./budgets.ts";
import type { Question } from "./report.ts";
import { type Pair, ratioRow } from "./rows.ts";

/** What a start of the program `pi-session-mail` costs, beside a Node process that does nothing. */
export const program: Question = {
	title: "what a start of the program pi-session-mail costs, beside an empty Node process",
	async measure({ rounds }) {
		const home = makeHome();
		const empty = join(home.path, "empty.cjs");
		writeFileSync(empty, "");
		const file = join(repository, "src/cli.cjs");
		const beside = (args: readonly string[]) => inPairs(home, rounds, [file, ...args], [empty]);
		return {
			method: [
				"Whole processes, from their start to their end, ours and an empty one by turns; both were started before.",
				"The version loads none of the mailbox, the list of running sessions all that every command loads; a message is written to disk.",
			],
			rows: [
				ratioRow("--version", "ms", "empty", await beside(["--version"]), budgets.program),
				ratioRow("list", "ms", "empty", await beside(["list"]), budgets.program),
				ratioRow("send", "ms", "empty", await beside(["send", "01980f5e-7a3c-7d10-8f00-00000000000a", "hello"])),
			],
		};
	},
};

/** Both in each round, in turns first, so that neither has the better moments. */
async function inPairs(
	home: Home,
	rounds: number,
	ours: readonly string[],
	beside: readonly string[],
): Promise<Pair[]> {
	const pairs: Pair[] = [];
	for (const args of [ours, beside]) await timeOf(home, args);
	for (let round = 0; round < rounds; round++) {
		if (round % 2 === 0) {
			const first = await timeOf(home, ours);
			pairs.push({ ours: first, beside: await timeOf(home, beside) });
		} else {
			const first = await timeOf(home, beside);
			pairs.push({ ours: await timeOf(home, ours), beside: first });
		}
	}
	return pairs;
}

async function timeOf(home: Home, args: readonly string[]): Promise<number> {
	const begin = performance.now();
	const { code, stderr } = await run(process.execPath, args, { env: environment(home), cwd: home.workDir });
	if (code !== 0) throw new Error(`${args.join(" ")} ended with ${code}:\n${stderr}`);
	return performance.now() - begin;
}
