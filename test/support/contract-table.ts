/**
 * Writes `test/contract.md`: which tests hold which statement of the contract (PSM-001 to PSM-096). With `--check` it
 * says only whether the table is current. Fails when a statement has no test and no decision stands for it.
 */
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const table = `${repository}test/contract.md`;
const statements = 96;

/** Statements that were decided otherwise: what holds instead. */
const decided: Readonly<Record<number, string>> = {
	1: "The libraries are bundled, so that nothing has to be installed with the package; Pi 1.0 or later (test/package.test.ts)",
	10: "Mail is flushed to disk before it counts as sent, unless `durability` is `fast` (test/mail/deliver.test.ts, D5)",
};

const holders = new Map<number, Set<string>>();
for (const file of globSync("test/**/*.test.ts", { cwd: repository }).sort()) {
	for (const [id] of readFileSync(repository + file, "utf8").matchAll(/PSM-\d{3}(?:\/\d{3})*/g)) {
		for (const number of id.slice("PSM-".length).split("/").map(Number)) {
			holders.set(number, (holders.get(number) ?? new Set()).add(file));
		}
	}
}

const rows: string[] = [];
const missing: string[] = [];
for (let number = 1; number <= statements; number++) {
	const id = `PSM-${String(number).padStart(3, "0")}`;
	const holding = [...(holders.get(number) ?? [])];
	const held = [...(number in decided ? [decided[number]] : []), ...holding.map((file) => `\`${file}\``)].join(", ");
	if (held === "") missing.push(id);
	rows.push(`| ${id} | ${held} |`);
}

const text = [
	"# Which tests hold the contract",
	"",
	"Made by `npm run build` from the ids in the titles of the tests; `npm run check` fails when a statement has none.",
	"",
	"| statement | held by |",
	"|---|---|",
	...rows,
	"",
].join("\n");

if (missing.length > 0) {
	console.error(`No test names ${missing.join(", ")}.`);
	process.exitCode = 1;
} else if (!process.argv.includes("--check")) writeFileSync(table, text);
else if (readFileSync(table, "utf8") !== text) {
	console.error("test/contract.md is not current; make it again with: npm run build");
	process.exitCode = 1;
}
