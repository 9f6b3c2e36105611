import * as fc from "fast-check";
import { afterAll, beforeAll, describe, test, vi } from "vitest";
import { faultCodes } from "../support/disk.ts";
import { isSoak } from "../support/soak.ts";
import { type History, play, type Step } from "./history.ts";

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

const is = <Text extends string>(text: Text) => fc.constant(text);
const session = fc.nat({ max: 3 });
const anybody = fc.oneof({ weight: 3, arbitrary: session }, { weight: 1, arbitrary: is("peer") });

const fromPeer = fc.record({
	do: is("send"),
	from: is("peer"),
	to: session,
	kind: fc.constantFrom("request", "message", "ask", "reply", "quiet"),
});
const fromSession = fc.record({
	do: is("send"),
	from: session,
	to: anybody,
	by: fc.constantFrom("command", "hook", "quiet command"),
});

/** What may also happen in the middle of a run or of a compaction. */
const insideSteps: fc.WeightedArbitrary<Step>[] = [
	{ weight: 8, arbitrary: fromPeer },
	{ weight: 5, arbitrary: fromSession },
	{ weight: 4, arbitrary: fc.record({ do: is("pass"), ms: fc.constantFrom(0, 100, 1000, 3000) }) },
	{ weight: 2, arbitrary: fc.record({ do: is("scan"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("takeOver"), who: session, mails: fc.nat({ max: 2 }) }) },
	{ weight: 2, arbitrary: fc.record({ do: is("receive"), who: session, isOn: fc.boolean() }) },
	{ weight: 3, arbitrary: fc.record({ do: is("press h"), who: session }) },
	{ weight: 3, arbitrary: fc.record({ do: is("end call"), who: session, how: fc.constantFrom("done", "failed") }) },
	{ weight: 1, arbitrary: fc.record({ do: is("cancel calls"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("quit"), who: session, second: fc.boolean() }) },
	{ weight: 1, arbitrary: fc.record({ do: is("kill"), who: session, second: fc.boolean() }) },
	{ weight: 2, arbitrary: fc.record({ do: is("killAt"), who: session, n: fc.integer({ min: 1, max: 40 }) }) },
	{ weight: 1, arbitrary: fc.record({ do: is("second"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("prune"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("fork"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("retract") }) },
	{ weight: 1, arbitrary: fc.record({ do: is("edit") }) },
	{ weight: 1, arbitrary: fc.record({ do: is("again"), who: session }) },
	{
		weight: 1,
		arbitrary: fc.record({ do: is("clock"), offset: fc.constantFrom("hour back", "40 days ahead", "right") }),
	},
];
const insideStep = fc.oneof(...insideSteps);

const run = fc.record(
	{
		do: is("run"),
		who: session,
		end: fc.constantFrom("done", "done", "stopped", "failed", "stopped before a retry"),
		tools: fc.nat({ max: 2 }),
		call: fc.record({ tool: fc.constantFrom("send", "ask", "reply", "bash", "bash", "status"), to: anybody }),
		inside: insideStep,
		second: fc.boolean(),
	},
	{ requiredKeys: ["do", "who", "end", "tools"] },
);

const anyStep: fc.Arbitrary<Step> = fc.oneof(
	...insideSteps,
	{ weight: 12, arbitrary: run },
	{ weight: 5, arbitrary: fc.record({ do: is("resume"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("drop"), who: session, isOn: fc.boolean() }) },
	{
		weight: 1,
		arbitrary: fc.record({
			do: is("fail"),
			who: session,
			n: fc.integer({ min: 1, max: 40 }),
			code: fc.constantFrom(...faultCodes),
		}),
	},
	{ weight: 2, arbitrary: fc.record({ do: is("reload"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("crashes"), who: session, times: fc.integer({ min: 1, max: 5 }) }) },
	{ weight: 1, arbitrary: fc.record({ do: is("tree"), who: session, back: fc.nat({ max: 5 }) }) },
	{ weight: 1, arbitrary: fc.record({ do: is("compact"), who: session, inside: insideStep }) },
	{ weight: 1, arbitrary: fc.record({ do: is("input"), who: session }) },
);

const histories: fc.Arbitrary<History> = fc.record({
	isSaved: fc.boolean(),
	steps: fc.array(anyStep, { minLength: 1, maxLength: 25, size: "max" }),
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
const chunks = FC_PATH !== undefined ? 1 : isSoak ? 100 : 8;
const chunkSize = isSoak ? 1000 : 250;
const seeds = Array.from({ length: chunks }, (_, index) => firstSeed + index);

test.each(examples)("$title", async ({ steps }) => {
	for (let n = 1; n <= 25; n++) {
		ids.last = 0;
		await play({ isSaved: false, steps: steps(n) });
	}
});

describe("any history of sends, runs, stops, restarts, crashes and clocks that go wrong", () => {
	test.each(seeds)(
		`L1 L2 L3 loses no mail, brings none twice and leaves none open (${chunkSize} histories of seed %i)`,
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
