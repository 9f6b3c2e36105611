/** One round of the question in idle.ts; prints an {@link IdleRound}. */
import { readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { FakePi, machine } from "../support/fake-pi.ts";
import { alice } from "./fixtures.ts";
import { startHost } from "./host.ts";
import { finish, ordersOf } from "./rounds.ts";

/** What a round is told. */
export interface IdleOrders {
	readonly root: string;
	/** How long to look at it. */
	readonly seconds: number;
	/** Whether it is a host without the extension. */
	readonly isEmpty?: boolean;
}

/** What one round gave. */
export interface IdleRound {
	/** CPU time in % of the time that passed. */
	readonly share: number;
	/** Inotify watches; NaN where the system does not tell. */
	readonly watches: number;
}

const { root, seconds, isEmpty }: IdleOrders = ordersOf();
if (isEmpty) await startEmpty();
else await startHost({ root, address: alice });
await sleep(2000);
const before = process.cpuUsage();
const begin = performance.now();
await sleep(1000 * seconds);
const { user, system } = process.cpuUsage(before);
const round: IdleRound = { share: (user + system) / 10 / (performance.now() - begin), watches: watches() };
finish(round);

async function startEmpty(): Promise<void> {
	machine.home = tmpdir();
	const pi = new FakePi({ extensions: [] });
	await pi.start();
	await pi.run({ prompt: "hello" });
}

function watches(): number {
	try {
		const descriptors = readdirSync("/proc/self/fdinfo").map(read);
		return descriptors.join("\n").match(/^inotify wd:/gm)?.length ?? 0;
	} catch {
		return Number.NaN;
	}
}

function read(descriptor: string): string {
	try {
		return readFileSync(`/proc/self/fdinfo/${descriptor}`, "utf8");
	} catch {
		// That of the folder itself is closed by now.
		return "";
	}
}
