import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "../support/pi.ts";

const partsOfPi = fileURLToPath(new URL("../laws/parts-of-pi.mjs", import.meta.url));

/** How long a round may take. */
const patienceMs = 10 * 60_000;

/**
 * Runs one round of a question: `<name>-round.ts` in a process of its own, told `orders` as JSON in its first argument.
 * Returns what it printed, which is JSON as well. `node` are options of Node.
 */
export async function runRound<Orders, Result>(
	name: string,
	orders: Orders,
	node: readonly string[] = [],
): Promise<Result> {
	const program = fileURLToPath(new URL(`./${name}-round.ts`, import.meta.url));
	const folder = newFolder(`${name}-`);
	const { code, signal, stdout, stderr } = await run(
		process.execPath,
		[...node, "--import", partsOfPi, program, JSON.stringify(orders)],
		{ env: { HOME: folder, TMPDIR: folder }, cwd: folder, timeoutMs: patienceMs },
	);
	if (code !== 0) throw new Error(`a round of ${name} ended with ${code ?? signal}:\n${stderr}`);
	return JSON.parse(stdout);
}

/** What a round was told. */
export function ordersOf<Orders>(): Orders {
	return JSON.parse(process.argv[2] ?? "");
}

/** Ends a round with what it gave. */
export function finish(result: unknown): void {
	process.stdout.write(JSON.stringify(result), () => process.exit());
}

/** A new folder among those of this run, gone at its end. */
export function newFolder(prefix: string): string {
	return mkdtempSync(join(tmpdir(), prefix));
}

/** A new mail root among them. */
export function newRoot(): string {
	const place = newFolder("root-");
	spread(place);
	const root = join(place, "mail");
	mkdirSync(root, { mode: 0o700 });
	return root;
}

/**
 * Makes ext4 put the folders that are made in this one far from each other. When it makes a file it looks at each file that
 * was removed nearby in the last minutes: after a run of the tests one file takes as long as several fsyncs, and the ratios
 * flatter us. Where there is no such file system or no chattr(1), nothing happens.
 */
function spread(folder: string): void {
	spawnSync("chattr", ["+T", folder], { stdio: "ignore" });
}
