/** One round of the question in memory.ts, run with `--expose-gc`; prints a {@link MemoryRound}. */
import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { boxesOf } from "../../src/mail/boxes.ts";
import { alice, bob, textOf } from "./fixtures.ts";
import { openPeer, scan, sendFrom, sendRequest, startHost } from "./host.ts";
import { finish, ordersOf } from "./rounds.ts";

/** What a round is told. */
export interface MemoryOrders {
	readonly root: string;
}

/** What one round gave, in MB. */
export interface MemoryRound {
	readonly heap: number;
	readonly resident: number;
	readonly sendPeak: number;
	readonly receivePeak: number;
	readonly sendHeld: number;
	readonly receiveHeld: number;
}

const mega = 1024 * 1024;
const { root }: MemoryOrders = ordersOf();
const pi = await startHost({ root, address: alice, isFast: true });
await collect();
const { heapUsed, rss } = process.memoryUsage();
const peer = openPeer(root, bob);
for (let mail = 0; mail < 50; mail++) {
	sendRequest(pi, bob);
	sendFrom(peer, { to: alice, kind: "reply", body: textOf(100) });
	scan(pi);
}
// In one piece, as a text is that came from elsewhere.
const text = Buffer.from(textOf(mega)).toString();
const request = await cost(() => pi.events.emit("message:send", { to: bob, body: text }));
sendFrom(peer, { to: alice, kind: "reply", body: text });
const inbox = boxesOf(root, alice).new;
const [name = ""] = readdirSync(inbox);
// Out of sight until it is measured.
renameSync(join(inbox, name), join(root, name));
const reply = await cost(() => {
	renameSync(join(root, name), join(inbox, name));
	scan(pi);
});
if (readdirSync(inbox).length > 0) throw new Error("the mail was not claimed");
const round: MemoryRound = {
	heap: heapUsed / mega,
	resident: rss / mega,
	sendPeak: request.peak,
	receivePeak: reply.peak,
	sendHeld: request.held,
	receiveHeld: reply.held,
};
finish(round);

/** What some work takes at its peak, and what it keeps. */
async function cost(work: () => void): Promise<{ peak: number; held: number }> {
	await collect();
	const before = used();
	const [resident] = residentAndPeak();
	work();
	const [, peak] = residentAndPeak();
	await collect();
	return { peak: peak - resident, held: used() - before };
}

async function collect(): Promise<void> {
	// Finalizers and what watchers saw come in between.
	for (let time = 0; time < 3; time++) {
		global.gc?.();
		await sleep(5);
	}
}

function used(): number {
	const { heapUsed, external } = process.memoryUsage();
	return (heapUsed + external) / mega;
}

/** Resident memory now, and its peak since the last call, in MB (proc_pid_status(5), proc_pid_clear_refs(5)); NaN without /proc. */
function residentAndPeak(): [number, number] {
	try {
		const status = readFileSync("/proc/self/status", "utf8");
		const value = (of: string) => Number(new RegExp(`^${of}:\\s*(\\d+) kB`, "m").exec(status)?.[1]) / 1024;
		writeFileSync("/proc/self/clear_refs", "5");
		return [value("VmRSS"), value("VmHWM")];
	} catch {
		return [Number.NaN, Number.NaN];
	}
}
