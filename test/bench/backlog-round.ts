/** One round of the question in backlog.ts; prints a {@link BacklogRound}. */
import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setImmediate as soon } from "node:timers/promises";
import { boxesOf } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { alice, bob, layWaiting } from "./fixtures.ts";
import { type Held, makeHost, scan, startHost, timed, watchLoop } from "./host.ts";
import { finish, ordersOf } from "./rounds.ts";

/** What a round is told. */
export interface BacklogOrders {
	/** The root where so many mails wait for Alice. */
	readonly root: string;
	readonly size: number;
	readonly way: "scan" | "messages" | "replies" | "busy";
}

/** What one round gave. */
export interface BacklogRound extends Held {
	/** How long until all was in. */
	readonly ms: number;
	/** Bare, a scan alone. */
	readonly bareMs: number;
}

const { root, size, way }: BacklogOrders = ordersOf();
const measure = { scan: scanAll, messages: takeAll, replies: takeAll, busy: readPast };
finish(await measure[way]());

/** The mail comes in one turn of the event loop, so that no watcher is first. */
async function scanAll(): Promise<BacklogRound> {
	const pi = await startHost({ root, address: alice, isFast: true });
	layWaiting(root, bob, alice, "message", size);
	const ms = timed(() => scan(pi));
	if (readdirSync(boxesOf(root, alice).new).length > 0) throw new Error("not all was claimed");
	return { ms, heldMs: ms, heldCpuMs: Number.NaN, bareMs: claimBare() };
}

/** Every step of a claim that cannot be left out. */
function claimBare(): number {
	layWaiting(root, alice, bob, "message", size);
	const boxes = boxesOf(root, bob);
	return timed(() => {
		for (const name of readdirSync(boxes.new)) {
			writeFileSync(join(boxes.cur, `${name}.open`), "");
			JSON.parse(readFileSync(join(boxes.new, name), "utf8"));
			renameSync(join(boxes.new, name), join(boxes.cur, name));
		}
	});
}

async function takeAll(): Promise<BacklogRound> {
	let given = 0;
	const onMessage = () => given++;
	const { pi, isSettledIn } = makeHost({ root, address: alice, isFast: true, breathes: true, onMessage });
	await pi.start();
	await pi.discover();
	await isSettledIn;
	const loop = watchLoop();
	const begin = performance.now();
	// Its end opens the gate.
	await pi.run({ prompt: "hello" });
	while (given < size || pi.hasRunToPlay) {
		if (pi.hasRunToPlay) await pi.run();
		else await soon();
	}
	return { ms: performance.now() - begin, ...loop.end(), bareMs: Number.NaN };
}

async function readPast(): Promise<BacklogRound> {
	const inbox = boxesOf(root, alice).new;
	const real = nodeDisk();
	let reads = 0;
	const disk = {
		...real,
		read(path: string, maxBytes: number) {
			if (dirname(path) === inbox) reads++;
			return real.read(path, maxBytes);
		},
	};
	const { pi, isSettledIn } = makeHost({ root, address: alice, disk, isFast: true, breathes: true });
	await pi.start();
	await pi.discover();
	await isSettledIn;
	const { promise, resolve } = Promise.withResolvers<BacklogRound>();
	const during = async () => {
		const loop = watchLoop();
		const begin = performance.now();
		while (reads < size) await soon();
		resolve({ ms: performance.now() - begin, ...loop.end(), bareMs: Number.NaN });
	};
	await pi.run({ prompt: "hello", turns: [{ tools: 1, during }] });
	return promise;
}
