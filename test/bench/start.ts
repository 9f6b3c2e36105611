import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { packAndInstall } from "../support/install.ts";
import { type Home, makeHome, printPi, startPi } from "../support/pi.ts";
import { type Budget, budgets } from "./budgets.ts";
import type { Question, Row } from "./report.ts";
import { differenceRow, ratioRow, type Pair as Times } from "./rows.ts";

/** What the installed extension adds to a start of Pi, beside an empty extension that is installed the same way. */
export const start: Question = {
	title: "what the installed extension adds to a start of Pi",
	async measure({ rounds }) {
		const homes = await installBoth();
		for (const home of [homes.ours, homes.empty, homes.ours, homes.empty]) await startOf(home);
		const warm = await inPairs(rounds, () => homes, startOf);
		const printed = await inPairs(rounds, () => homes, printOf);
		const cold = await inPairs(rounds, () => ({ ours: copyOf(homes.ours), empty: copyOf(homes.empty) }), startOf);
		return {
			method: [
				"The packed package and an empty extension, both installed with pi install, in homes of their own; every start a new process,",
				"the two by turns. Loading and session_start are timed inside Pi by extensions before and after it. Warm: started before.",
				"Cold: copied to a new path, so that nothing has its compiled code; Pi itself and the other extensions are still cached.",
				"The whole start: until pi --mode rpc takes commands; the whole run: pi -p with a model that answers at once.",
			],
			rows: [
				difference("loading (import and factory), warm", warm, (begun) => begun.loadMs),
				difference("session_start, warm", warm, (begun) => begun.sessionStartMs),
				difference("both, warm", warm, addedBy, budgets.warmStart),
				difference("loading (import and factory), cold", cold, (begun) => begun.loadMs),
				difference("session_start, cold", cold, (begun) => begun.sessionStartMs),
				difference("both, cold", cold, addedBy, budgets.coldStart),
				ratio("whole start, warm", warm, (begun) => begun.wholeMs),
				ratio("whole start, cold", cold, (begun) => begun.wholeMs),
				ratio("whole run of pi -p, warm", printed, (wholeMs) => wholeMs),
			],
		};
	},
};

interface Pair<T> {
	readonly ours: T;
	readonly empty: T;
}

/** One start of Pi. */
interface Start {
	readonly loadMs: number;
	readonly sessionStartMs: number;
	readonly wholeMs: number;
}

function addedBy({ loadMs, sessionStartMs }: Start): number {
	return loadMs + sessionStartMs;
}

async function installBoth(): Promise<Pair<Home>> {
	const ours = makeHome();
	await packAndInstall(ours);
	const empty = makeHome();
	await packAndInstall(empty, makePackage(join(empty.path, "empty"), "export default function empty() {}\n"));
	for (const home of [ours, empty]) surroundWithClocks(home);
	return { ours, empty };
}

/** Loads a clock before and one after the package that is installed in `home`. */
function surroundWithClocks(home: Home): void {
	const clocks = ["before", "after"].map((name) => makePackage(join(home.path, name), clock(name)));
	const file = join(home.agentDir, "settings.json");
	const settings: { packages: string[] } = JSON.parse(readFileSync(file, "utf8"));
	settings.packages = [...clocks.slice(0, 1), ...settings.packages, ...clocks.slice(1)];
	writeFileSync(file, JSON.stringify(settings));
}

/** A package with one extension, as Pi wants it, in a new folder; returns the folder. */
function makePackage(folder: string, extension: string): string {
	mkdirSync(folder);
	const manifest = {
		name: "bench-extension",
		version: "1.0.0",
		type: "module",
		pi: { extensions: ["./extension.js"] },
	};
	writeFileSync(join(folder, "package.json"), JSON.stringify(manifest));
	writeFileSync(join(folder, "extension.js"), extension);
	return folder;
}

/** An extension that prints when it was evaluated, when its factory ran and when its session started. */
function clock(name: string): string {
	return `const tell = (what) => console.error("clock ${name} " + what + " " + performance.now());
tell("evaluated");
export default function clock(pi) {
	pi.on("session_start", () => tell("session_start"));
	tell("factory");
}
`;
}

/** The same installation at a path where Pi has never seen it. The clocks stay where they are. */
function copyOf({ agentDir }: Home): Home {
	const copy = makeHome();
	cpSync(agentDir, copy.agentDir, { recursive: true });
	return copy;
}

async function startOf(home: Home): Promise<Start> {
	const begin = performance.now();
	const pi = await startPi({ home, extensions: [] });
	const wholeMs = performance.now() - begin;
	await pi.stop();
	const at = (clock: string) => {
		const [, ms] = new RegExp(`^clock ${clock} (.*)$`, "m").exec(pi.stderr) ?? [];
		if (ms === undefined) throw new Error(`Pi did not run the clock "${clock}". It said:\n${pi.stderr}`);
		return Number(ms);
	};
	return {
		loadMs: at("after evaluated") - at("before factory"),
		sessionStartMs: at("after session_start") - at("before session_start"),
		wholeMs,
	};
}

async function printOf(home: Home): Promise<number> {
	const begin = performance.now();
	const { code, stderr } = await printPi({ home, extensions: [], prompt: "hello" });
	if (code !== 0) throw new Error(`pi -p ended with ${code}:\n${stderr}`);
	return performance.now() - begin;
}

/** Measures both in each round, in turns first, so that neither has the better moments. */
async function inPairs<T>(
	rounds: number,
	homes: () => Pair<Home>,
	measure: (home: Home) => Promise<T>,
): Promise<Pair<T>[]> {
	const pairs: Pair<T>[] = [];
	for (let round = 0; round < rounds; round++) {
		const { ours, empty } = homes();
		if (round % 2 === 0) {
			const first = await measure(ours);
			pairs.push({ ours: first, empty: await measure(empty) });
		} else {
			const first = await measure(empty);
			pairs.push({ ours: await measure(ours), empty: first });
		}
	}
	return pairs;
}

function difference<T>(what: string, pairs: readonly Pair<T>[], of: (one: T) => number, budget?: Budget): Row {
	return differenceRow(what, "ms", "empty", times(pairs, of), budget);
}

function ratio<T>(what: string, pairs: readonly Pair<T>[], of: (one: T) => number): Row {
	return ratioRow(what, "ms", "empty", times(pairs, of));
}

function times<T>(pairs: readonly Pair<T>[], of: (one: T) => number): Times[] {
	return pairs.map(({ ours, empty }) => ({ ours: of(ours), beside: of(empty) }));
}
