/**
 * `npm run bench`: what speed means here, measured. Each question has its own file, which says how it is measured; the
 * budgets are those of the design. Exit code 0 whether or not they hold: this measures, it does not judge.
 */
import { parseArgs } from "node:util";
import { cleanUp } from "../support/pi.ts";
import { type Machine, machineWith, makeFolder } from "./machine.ts";
import { type Question, type Report, reportText } from "./report.ts";
import { send } from "./send.ts";
import { start } from "./start.ts";

const questions: ReadonlyMap<string, Question> = new Map(Object.entries({ start, send }));

const usage = `Usage: npm run bench [-- [name …] [--quick] [--json]]

Measures what is named, or everything:
${list()}

  --quick  a third of the rounds
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
	const folder = makeFolder();
	// Every home and every cache of Pi's then lies in there, too, and is gone afterwards.
	process.env.TMPDIR = folder;
	const machine = machineWith(folder);
	const rounds = values.quick ? 5 : 15;
	if (!values.json) console.log(`${machineText(machine)}\nMedians of ${rounds} rounds.\n`);
	const reports: Report[] = [];
	for (const [name, question] of questions) {
		if (!names.includes(name)) continue;
		const report = { name, ...(await question.measure({ rounds })) };
		reports.push(report);
		if (!values.json) console.log(`${reportText(report)}\n`);
	}
	if (values.json) console.log(JSON.stringify({ machine, rounds, reports }, undefined, "\t"));
	await cleanUp();
}

function machineText({ node, cpu, cores, load, folder, fileSystem }: Machine): string {
	return `Node ${node}, ${cores} cores (${cpu}), load ${load.toFixed(1)}; files on ${fileSystem} in ${folder}.`;
}

function list(): string {
	return [...questions].map(([name, { title }]) => `  ${name.padEnd(7)}  ${title}`).join("\n");
}

function readArguments() {
	try {
		return parseArgs({
			allowPositionals: true,
			options: { quick: { type: "boolean" }, json: { type: "boolean" }, help: { type: "boolean", short: "h" } },
		});
	} catch (error) {
		console.error(`${error instanceof Error ? error.message : error}\n\n${usage}`);
		return process.exit(2);
	}
}
