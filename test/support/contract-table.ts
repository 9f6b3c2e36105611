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
	1: "D2, D4: Pi 1.0 or later; the libraries are bundled, so that nothing has to be installed with the package",
	2: "D22: an address is whatever Pi accepts as a session id, up to 128 characters, except the names of the root's own folders",
	10: "D5: mail is flushed to disk before it counts as sent, unless `durability` is `fast`",
	22: "design 4.1: written, linked as an unfinished copy, renamed into `new/`; then the copy gets its name",
	25: "D7: a `/reload` leaves the record in place",
	26: "D7: moved aside, looked at again, then removed; what runs in another container is left alone",
	31: "D6: a short id is the shortest that is unique, of at least 8 characters",
	47: "design 4.4, 4.5: never by Pi's own queue; a busy session gets it at the end of a turn with tool results",
	48: "design 4.6: appended without a turn",
	53: "L1: read is what the session file holds",
	62: "D23: a reply names at most 50",
	64: "D17: what arrived before the stop is claimed at the settle",
	66: "L3, D18: held requests survive a restart",
	76: "D7: a target is gone when its record was missing twice, two seconds apart",
	77: "D13: rings of any length are refused",
	90: "D26: old at two starts, a day apart",
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
	const held = [...(holders.get(number) ?? [])].map((file) => `\`${file}\``).join(", ");
	if (held === "" && !(number in decided)) missing.push(id);
	rows.push(`| ${id} | ${held} | ${decided[number] ?? ""} |`);
}

const text = [
	"# Which tests hold the contract",
	"",
	"Made by `npm run build` from the ids in the titles of the tests; `npm run check` fails when a statement has none.",
	"",
	"| statement | held by | decided otherwise |",
	"|---|---|---|",
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
