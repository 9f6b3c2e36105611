/** One round of the question in old-start.ts; prints an {@link OldStartRound}. */
import { randomUUID } from "node:crypto";
import { readdirSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as soon } from "node:timers/promises";
import { boxesOf } from "../../src/mail/boxes.ts";
import { alice, layMailboxes } from "./fixtures.ts";
import { type Held, makeHost, openPeer, sendFrom, startHost, watchLoop } from "./host.ts";
import { finish, newRoot, ordersOf } from "./rounds.ts";

/** What a round is told. */
export interface OldStartOrders {
	/** The root of the session that starts. */
	readonly root: string;
	/** A start, or `/mailbox prune` after it. */
	readonly way: "start" | "prune";
	/** Mailboxes that `/mailbox prune` must remove. */
	readonly count: number;
	/** Whether mail was left open, and none waits. */
	readonly isLeftOpen?: boolean;
	/** Whether nothing is known of the old mail. */
	readonly isStateLost?: boolean;
}

/** What one round gave, in ms. */
export interface OldStartRound extends Held {
	/** Until a mail that waits is handed over. */
	readonly mailMs: number;
	/** Until all is looked through, or pruned. */
	readonly wholeMs: number;
	/** The same folders removed by hand. */
	readonly bareMs: number;
}

const dayMs = 24 * 60 * 60 * 1000;
const { root, way, count, isLeftOpen, isStateLost }: OldStartOrders = ordersOf();
finish(await { start, prune }[way]());

async function start(): Promise<OldStartRound> {
	// Has the code compiled, and no part in what follows.
	await (await startHost({ root: newRoot(), address: randomUUID(), isFast: true })).shutDown();
	if (isStateLost) rmSync(join(root, alice, "state.json"), { force: true });
	const inbox = boxesOf(root, alice).new;
	if (!isLeftOpen) sendFrom(openPeer(root, randomUUID()), { to: alice, kind: "message" });
	let mailMs = Number.NaN;
	let begin = 0;
	const onMessage = () => {
		mailMs = performance.now() - begin;
	};
	const now = () => Date.now() + 40 * dayMs;
	const { pi, isSettledIn } = makeHost({ root, address: alice, isFast: true, breathes: true, now, onMessage });
	await soon();
	const loop = watchLoop();
	begin = performance.now();
	await pi.start();
	await pi.discover();
	await pi.run({ prompt: "hello" });
	await isSettledIn;
	const wholeMs = performance.now() - begin;
	while (Number.isNaN(mailMs)) await soon();
	const held = loop.end();
	if (readdirSync(inbox).length > 0) throw new Error("the mail was not claimed");
	return { ...held, mailMs, wholeMs, bareMs: Number.NaN };
}

async function prune(): Promise<OldStartRound> {
	const pi = await startHost({ root, address: alice, isFast: true });
	const loop = watchLoop();
	const begin = performance.now();
	await pi.type("/mailbox prune");
	while (!pi.notifications.includes(`Removed ${count} mailbox folders of closed sessions`)) {
		if (pi.notifications.length > 0) throw new Error(pi.notifications.join("\n"));
		await soon();
	}
	const round = { ...loop.end(), mailMs: Number.NaN, wholeMs: performance.now() - begin };
	return { ...round, bareMs: pruneBare() };
}

function pruneBare(): number {
	const bare = newRoot();
	layMailboxes(bare, count, false);
	const begin = performance.now();
	for (const address of readdirSync(bare)) {
		const { folder, tmp, new: inbox, cur, sent } = boxesOf(bare, address);
		for (const box of [tmp, inbox, cur, sent, folder]) rmdirSync(box);
	}
	return performance.now() - begin;
}
