import * as fc from "fast-check";
import { afterAll, beforeAll, describe, test, vi } from "vitest";
import { isSoak } from "../support/soak.ts";
import { type History, play, type Step } from "./history.ts";
import { histories } from "./history-steps.ts";

// A replay must find everything as it was: ids follow each other, files are read in the tests' time, and the watcher, which is a hint
// only (L5), says nothing.
const ids = vi.hoisted(() => ({ last: 0 }));
vi.mock(import("node:crypto"), async (importOriginal) => ({
	...(await importOriginal()),
	randomUUID: () => `00000000-0000-4000-8000-${(++ids.last).toString(16).padStart(12, "0")}` as const,
}));
vi.mock("nanoid", () => ({
	customAlphabet: (_alphabet: string, size: number) => () => (++ids.last).toString(36).padStart(size, "0"),
}));
vi.mock("node:fs/promises", async (importOriginal) => {
	const { readFileSync } = await import("node:fs");
	// While a process that takes a session over reads its file, other things happen.
	const slowRead = (file: string) =>
		new Promise((resolve) => setTimeout(() => resolve(readFileSync(file, "utf8")), 1200));
	return { ...(await importOriginal<object>()), readFile: slowRead };
});
vi.mock(import("chokidar"), async (importOriginal) => {
	const real = await importOriginal();
	return { ...real, watch: () => new real.FSWatcher() };
});

beforeAll(() => {
	vi.useFakeTimers();
});
afterAll(() => {
	vi.useRealTimers();
});

/** A history in lines that can be copied to the examples below. */
function spelled({ isSaved, steps }: History): string {
	const line = (part: Step) =>
		JSON.stringify(part)
			.replace(/"(\w+)":/g, " $1: ")
			.replaceAll("}", " }");
	return [`isSaved: ${isSaved}`, ...steps.map((part) => `\t${line(part)},`)].join("\n");
}

/** Histories that once broke a law, or would without one line, with something at the n-th operation on disk. */
const examples: { title: string; steps: (n: number) => Step[] }[] = [
	{
		title: "D7 a /reload of a second process, just after the first was killed, knows what the first one added",
		steps: (n) => [
			{ do: "run", who: 0, end: "done", tools: 0 },
			{ do: "killAt", who: 0, n },
			{ do: "send", from: 1, to: 0, by: "command" },
			{ do: "run", who: 0, end: "done", tools: 1, inside: { do: "second", who: 0 } },
			{ do: "reload", who: 0 },
			{ do: "run", who: 0, end: "done", tools: 0 },
		],
	},
	{
		title: "L3 a pause after a failed hand-over ends also when the clock is set back",
		steps: (n) => [
			{ do: "drop", who: 0, isOn: true },
			{ do: "clock", offset: "40 days ahead" },
			{ do: "send", from: "peer", to: 0, kind: "request" },
			{ do: "run", who: 0, end: "done", tools: n },
		],
	},
	{
		title: "D12 a mail that lies there twice is given up after three ends of Pi all the same",
		steps: (n) => [
			{ do: "send", from: "peer", to: 1, kind: "request" },
			{ do: "pass", ms: 1000 },
			{ do: "again", who: 1 },
			{ do: "crashes", who: 1, times: 1 + (n % 5) },
			{ do: "pass", ms: 1000 },
		],
	},
	{
		title: "L4 a reply to a mail whose copy could not get its name is counted",
		steps: (n) => [
			{ do: "run", who: 0, end: "done", tools: 0 },
			{ do: "fail", who: 0, n, code: "ENOSPC" },
			{ do: "send", from: 0, to: 1, by: "hook" },
		],
	},
	{
		title: "L4 a reply is counted also when its session is killed just after it came",
		steps: (n) => [
			{ do: "run", who: 0, end: "done", tools: 0 },
			{ do: "run", who: 1, end: "done", tools: 0 },
			{ do: "send", from: 1, to: 0, by: "command" },
			{ do: "pass", ms: 1000 },
			{ do: "run", who: 0, end: "done", tools: 0 },
			{ do: "killAt", who: 1, n },
			{ do: "pass", ms: 3000 },
		],
	},
	{
		title: "L2 D7 a run that settles while its process takes the session over answers nothing again",
		steps: (n) => [
			{
				...{ do: "run", who: 1, end: "stopped", tools: 0, call: { tool: "send", to: "peer" } },
				inside: { do: "send", from: 0, to: 1, by: "command" },
			},
			{ do: "second", who: 1 },
			{ do: "run", who: 1, end: "done", tools: 0 },
			{ do: "killAt", who: 1, n },
			{ do: "pass", ms: 1000 },
			{ do: "run", who: 1, end: "done", tools: 0 },
		],
	},
	{
		title: "L2 D7 an ask is answered once when the model of a second process wants to answer it as well",
		steps: (n) => [
			{ do: "run", who: 1, end: "done", tools: 0 },
			{ do: "send", from: "peer", to: 1, kind: "ask" },
			{ do: "pass", ms: 1000 },
			{ do: "killAt", who: 1, n: 10 + n },
			{ do: "run", who: 1, end: "done", tools: 1, inside: { do: "second", who: 1 } },
			{ do: "run", who: 1, end: "done", tools: 1, call: { tool: "reply", to: 0 }, second: true },
			{ do: "pass", ms: 1000 },
		],
	},
	{
		title: "L2 a call that ends as its process is killed is told of once",
		steps: (n) => [
			{ do: "run", who: 0, end: "done", tools: 0, call: { tool: "bash", to: 0 } },
			{ do: "killAt", who: 0, n },
			{ do: "end call", who: 0, how: "done" },
			{ do: "pass", ms: 1000 },
		],
	},
	{
		title: "L2 a call whose result the disk does not take is told of once",
		steps: (n) => [
			{ do: "run", who: 0, end: "done", tools: 0, call: { tool: "bash", to: 0 } },
			{ do: "fail", who: 0, n, code: "ENOSPC" },
			{ do: "end call", who: 0, how: "done" },
			{ do: "pass", ms: 1000 },
		],
	},
];

const { FC_SEED, FC_PATH } = process.env;
const firstSeed = FC_SEED === undefined ? (isSoak ? Date.now() % 1e9 : 20261129) : Number(FC_SEED);
const chunks = FC_PATH !== undefined ? 1 : isSoak ? 80 : 8;
const chunkSize = isSoak ? 1000 : 170;
const seeds = Array.from({ length: chunks }, (_, index) => firstSeed + index);

test.each(examples)("$title", async ({ steps }) => {
	for (let n = 1; n <= 25; n++) {
		ids.last = 0;
		await play({ isSaved: false, steps: steps(n) });
	}
});

describe("any history of sends, runs, stops, pauses, decisions, restarts, crashes and clocks that go wrong", () => {
	test.each(seeds)(
		`L1 L2 L3 loses no mail, brings none twice, leaves none open, and makes no call that nobody approved (${chunkSize} histories of seed %i)`,
		async (seed) => {
			const replay = FC_PATH === undefined ? {} : { path: FC_PATH };
			const property = fc.asyncProperty(histories, async (history) => {
				ids.last = 0;
				await play(history);
			});
			const details = await fc.check(property, {
				seed,
				numRuns: chunkSize,
				endOnFailure: process.env.FC_FAST !== undefined,
				...replay,
			});
			if (isSoak) console.log(`seed ${seed}: ${details.numRuns} histories`);
			if (!details.failed) return;
			const [history] = details.counterexample ?? [];
			throw new Error(
				[
					`FC_SEED=${seed} FC_PATH=${details.counterexamplePath}, after ${details.numShrinks} shrinks:`,
					...(history === undefined ? [] : [spelled(history)]),
					String(details.errorInstance instanceof Error ? details.errorInstance.stack : details.errorInstance),
				].join("\n"),
			);
		},
		60 * 60_000,
	);
});
