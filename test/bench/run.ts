/**
 * `npm run bench`: what speed means here, measured. Each question has its own file, which says how it is measured; the
 * budgets are those of the design. Exit code 0 whether or not they hold: this measures, it does not judge. With `--check`
 * it fails when a ratio or a count is far beyond its budget; times are never judged, since they are the machine's.
 */
import { parseArgs } from "node:util";
import { cleanUp } from "../support/pi.ts";
import { age } from "./age.ts";
import { backlog } from "./backlog.ts";
import { calls } from "./calls.ts";
import { crowd } from "./crowd.ts";
import { idle } from "./idle.ts";
import { type Machine, machineWith, makeFolder } from "./machine.ts";
import { memory } from "./memory.ts";
import { notice } from "./notice.ts";
import { oldStart } from "./old-start.ts";
import { policy } from "./policy.ts";
import { program } from "./program.ts";
import { failuresOf, type Measured, type Question, type Report, reportText } from "./report.ts";
import { screen } from "./screen.ts";
import { send } from "./send.ts";
import { senders } from "./senders.ts";
import { start } from "./start.ts";

const questions: ReadonlyMap<string, Question> = new Map(
	Object.entries({
		start,
		program,
		send,
		senders,
		age,
		crowd,
		notice,
		backlog,
		"old-start": oldStart,
		screen,
		calls,
		policy,
		memory,
		idle,
	}),
);

const usage = `Usage: npm run bench [-- [name …] [--quick] [--check] [--json]]

Measures what is named, or everything:
${list()}

  --quick  a third of the rounds, or fewer, and smaller sizes: two minutes for everything on a quiet machine
  --check  fails when a ratio of times is more than five times its budget, or a count more than one and a half times
  --json   one JSON document instead of tables (without what npm prints around it: node test/bench/run.ts --json)
  --help   this text`;

const { values, positionals } = readArguments();
const unknown = positionals.filter((name) => !questions.has(name));
if (values.help) {
	console.log(usage);
} else if (unknown.length > 0) {
	console.error(`No benchmark is called ${unknown.join(", ")}. There are:\n${list()}`);
	process.exitCode = 2;
} else {
	await measure(positionals.length > 0 ? [...new Set(positionals)] : [...questions.keys()]);
}

async function measure(names: readonly string[]): Promise<void> {
	const begin = performance.now();
	const folder = makeFolder();
	// Every home and every cache of Pi's then lies in there, too, and is gone afterwards.
	process.env.TMPDIR = folder;
	const machine = machineWith(folder);
	const isQuick = values.quick === true;
	const rounds = isQuick ? 5 : 15;
	if (!values.json) console.log(`${machineText(machine)}\nMedians of ${rounds} rounds.\n`);
	const reports: Measured["reports"][number][] = [];
	for (const [name, question] of questions) {
		if (!names.includes(name)) continue;
		const questionBegin = performance.now();
		const report = { name, ...(await question.measure({ rounds, isQuick })) };
		reports.push({ ...report, seconds: secondsSince(questionBegin) });
		if (!values.json) console.log(`${reportText(report)}\n`);
	}
	await cleanUp();
	const measured: Measured = { machine, rounds, isQuick, seconds: secondsSince(begin), reports };
	if (values.json) console.log(JSON.stringify(measured, undefined, "\t"));
	else console.log(`${measured.seconds} s: ${reports.map(({ name, seconds }) => `${name} ${seconds}`).join(", ")}`);
	if (values.check) check(reports);
}

function check(reports: readonly Report[]): void {
	const failures = reports.flatMap(failuresOf);
	for (const failure of failures) console.error(`Far beyond its budget: ${failure}`);
	if (failures.length > 0) process.exitCode = 1;
}

function secondsSince(begin: number): number {
	return Math.round((performance.now() - begin) / 1000);
}

function machineText({ node, cpu, cores, load, folder, fileSystem }: Machine): string {
	return `Node ${node}, ${cores} cores (${cpu}), load ${load.toFixed(1)}; files on ${fileSystem} in ${folder}.`;
}

function list(): string {
	return [...questions].map(([name, { title }]) => `  ${name.padEnd(9)}  ${title}`).join("\n");
}

function readArguments() {
	try {
		return parseArgs({
			allowPositionals: true,
			options: {
				quick: { type: "boolean" },
				check: { type: "boolean" },
				json: { type: "boolean" },
				help: { type: "boolean", short: "h" },
			},
		});
	} catch (error) {
		console.error(`${error instanceof Error ? error.message : error}\n\n${usage}`);
		return process.exit(2);
	}
}
