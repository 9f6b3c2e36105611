/** One round of the question in notice.ts: the process of the session, which starts the one that sends; prints a {@link NoticeRound}. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { watch } from "node:fs";
import { basename, dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { boxesOf } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { alice, bob } from "./fixtures.ts";
import { openPeer, sendFrom, startHost } from "./host.ts";
import { finish, ordersOf } from "./rounds.ts";

/** What a round is told. */
export interface NoticeOrders {
	readonly root: string;
	readonly mails: number;
	/** The process that sends. */
	readonly isSender?: boolean;
}

/** What one round gave: ms from the disk to Pi, and to a bare watcher. */
export interface NoticeRound {
	readonly ours: number[];
	readonly bare: number[];
}

/** When a mail with this name was in new/, in ns. */
interface Sent {
	readonly name: string;
	readonly at: string;
}

const orders: NoticeOrders = ordersOf();
if (orders.isSender) send(orders);
else await receive(orders);

function send({ root }: NoticeOrders): void {
	let sent: Sent | undefined;
	const real = nodeDisk();
	const disk = {
		...real,
		rename(from: string, to: string) {
			real.rename(from, to);
			if (basename(dirname(to)) === "new") sent = { name: basename(to), at: String(process.hrtime.bigint()) };
		},
	};
	const peer = openPeer(root, bob, disk);
	process.on("disconnect", () => process.exit());
	process.on("message", () => {
		sendFrom(peer, { to: alice, kind: "message" });
		process.send?.(sent);
	});
}

async function receive({ root, mails }: NoticeOrders): Promise<void> {
	const seen = new Map<string, bigint>();
	let given = 0n;
	let isGiven = () => {};
	const onMessage = () => {
		given = process.hrtime.bigint();
		isGiven();
	};
	const pi = await startHost({ root, address: alice, isFast: true, onMessage });
	const bare = watch(boxesOf(root, alice).new, (_event, name) => {
		if (name !== null && !seen.has(name)) seen.set(name, process.hrtime.bigint());
	});
	const child = fork(import.meta.filename, [JSON.stringify({ root, mails, isSender: true })]);
	const round: NoticeRound = { ours: [], bare: [] };
	for (let mail = 0; mail < mails; mail++) {
		await sleep(20 + Math.random() * 40);
		const { promise, resolve } = Promise.withResolvers<void>();
		isGiven = resolve;
		child.send("send");
		const [[sent]] = await Promise.all([once(child, "message"), promise]);
		round.ours.push(msBetween(sent.at, given));
		round.bare.push(msBetween(sent.at, seen.get(sent.name)));
		await pi.run();
	}
	bare.close();
	child.disconnect();
	finish(round);
}

function msBetween(from: string, to: bigint | undefined): number {
	return to === undefined ? Number.NaN : Number(to - BigInt(from)) / 1e6;
}
