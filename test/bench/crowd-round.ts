/** One round of the question in crowd.ts; prints a {@link CrowdRound}. */

import { readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { boxesOf } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { resolve } from "../../src/mail/resolve.ts";
import { openRunning } from "../../src/mail/running.ts";
import type { FakePi } from "../support/fake-pi.ts";
import { alice, layRecords } from "./fixtures.ts";
import { manyProcesses, sendRequest, startHost } from "./host.ts";
import { finish, newRoot, ordersOf } from "./rounds.ts";
import { median } from "./statistics.ts";

/** What a round is told. */
export interface CrowdOrders {
	/** How many sessions run. */
	readonly sizes: readonly number[];
	readonly repeats: number;
}

/** What one round gave: ms, by the number of sessions. */
export type CrowdRound = Record<
	"list" | "tool" | "resolve" | "completion" | "send" | "sendTool",
	Record<number, number>
>;

const { sizes, repeats }: CrowdOrders = ordersOf();
const processes = manyProcesses();
const times = new Map<string, number[]>();
const crowds = await Promise.all(sizes.map(makeCrowd));
for (let repeat = 0; repeat < 2 + repeats; repeat++) {
	for (const crowd of repeat % 2 === 0 ? crowds : crowds.toReversed()) await measure(crowd);
}
const round: CrowdRound = { list: {}, tool: {}, resolve: {}, completion: {}, send: {}, sendTool: {} };
for (const [what, bySize] of Object.entries(round)) {
	for (const size of sizes) bySize[size] = median((times.get(`${what} ${size}`) ?? []).slice(2));
}
finish(round);

type Crowd = Awaited<ReturnType<typeof makeCrowd>>;

/** Of the sessions one is hosted here, and the last is a recipient. */
async function makeCrowd(size: number) {
	const root = newRoot();
	const addresses = layRecords(root, size, processes.self);
	const pi = await startHost({ root, address: alice, processes, isFast: true });
	const running = openRunning({
		disk: nodeDisk(),
		root,
		processes,
		now: Date.now,
		warn: (path, why) => fail(path, why),
	});
	return { size, root, pi, running, to: addresses.at(-1) ?? "", name: `session ${size - 1}` };
}

async function measure({ size, root, pi, running, to, name }: Crowd): Promise<void> {
	await time(`list ${size}`, () => running.list());
	await time(`tool ${size}`, () => call(pi, "session_mail_list", {}));
	await time(`resolve ${size}`, () => {
		const found = resolve(name, { running: running.list(), self: alice, hasMailbox: () => false });
		if (!found.ok) throw new Error(found.message);
	});
	await time(`completion ${size}`, () => pi.commands.get("mailbox")?.getArgumentCompletions?.(""));
	// Short: by turns several, since one alone is lost in the noise.
	for (let mail = 0; mail < 5; mail++) await time(`send ${size}`, () => sendRequest(pi, to));
	await time(`sendTool ${size}`, () => call(pi, "session_mail_send", { to, message: "please" }));
	const inbox = boxesOf(root, to);
	// Nothing is removed, which would slow what follows (see rounds.ts).
	for (const waiting of readdirSync(inbox.new)) renameSync(join(inbox.new, waiting), join(inbox.cur, waiting));
	if (pi.errors.length > 0) fail("the session", pi.errors.join("; "));
}

async function time(what: string, work: () => unknown): Promise<void> {
	const begin = performance.now();
	await work();
	const ms = performance.now() - begin;
	times.set(what, [...(times.get(what) ?? []), ms]);
}

async function call(pi: FakePi, tool: string, args: object): Promise<void> {
	const { execute } = pi.tools.get(tool) ?? fail(tool, "is missing");
	// None of these tools looks at what else Pi hands to it.
	const made = await Reflect.apply(execute, undefined, ["call", args]);
	if ("isError" in made) fail(tool, JSON.stringify(made));
}

function fail(what: string, why: string): never {
	throw new Error(`${what}: ${why}`);
}
