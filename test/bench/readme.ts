/**
 * `node test/bench/run.ts --json | node test/bench/readme.ts`: puts what was measured into README.md, between the two
 * comments of its section on performance.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { repository } from "../support/pi.ts";
import { cells, type Measured } from "./report.ts";

const begin = "<!-- bench: npm run bench -->";
const end = "<!-- bench: end -->";

/** The section's text: on what it was measured, and a table of every row that has a budget. */
export function performanceText({ machine, rounds, reports }: Measured): string {
	const rows = reports.flatMap(({ name, rows }) => {
		return rows.filter(({ budget }) => budget !== undefined).map((row) => [name, ...cells(row)]);
	});
	return [
		`Measured with Node ${machine.node.slice(1)} on ${machine.cores} cores (${machine.cpu}), files on ${machine.fileSystem}, load ${machine.load.toFixed(1)}; medians of at most ${rounds} rounds.`,
		"`npm run bench -- --help` says what is asked, and each question how it is measured.",
		"",
		"| question | what | budget | measured | beside it | compared | kept |",
		"|---|---|---|---|---|---|---|",
		...rows.map((row) => `| ${row.join(" | ")} |`),
	].join("\n");
}

/** README.md with this text in its section. Throws when it has none. */
export function withPerformance(readme: string, performance: string): string {
	const [before, rest] = split(readme, begin);
	const [, after] = split(rest, end);
	return `${before}${begin}\n${performance}\n${end}${after}`;
}

/** The text that is in README.md's section now. */
export function performanceIn(readme: string): string {
	const [, rest] = split(readme, begin);
	return split(rest, end)[0].trim();
}

function split(text: string, at: string): [string, string] {
	const [before, after, more] = text.split(at);
	if (before === undefined || after === undefined || more !== undefined) throw new Error(`README.md has not one ${at}`);
	return [before, after];
}

if (import.meta.main) {
	const file = join(repository, "README.md");
	const measured: Measured = JSON.parse(await text(process.stdin));
	writeFileSync(file, withPerformance(readFileSync(file, "utf8"), performanceText(measured)));
}
