/** One round of the question in age.ts; prints an {@link AgeRound}. */
import { readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as soon } from "node:timers/promises";
import { boxesOf } from "../../src/mail/boxes.ts";
import { alice, bob, countingDisk } from "./fixtures.ts";
import { openPeer, scan, sendFrom, sendRequest, startHost, timed } from "./host.ts";
import { finish, ordersOf } from "./rounds.ts";
import { median } from "./statistics.ts";

/** What a round is told. */
export interface AgeOrders {
	/** A root with old mail, and one without. */
	readonly old: string;
	readonly empty: string;
	/** How many mails each way. */
	readonly mails: number;
}

export type Step = "deliver" | "claim" | "settle" | "send" | "reply" | "second" | "look";

/** What one round gave: the times in ms, and the work on disk for one mail each way. */
export interface AgeRound {
	readonly old: Sample;
	readonly empty: Sample;
}

interface Sample {
	readonly times: Readonly<Record<Step, number>>;
	readonly calls: number;
	readonly names: number;
}

const { old, empty, mails }: AgeOrders = ordersOf();
const sides = { old: await openSide(old), empty: await openSide(empty) };
const warmUp = 10;
for (let mail = 0; mail < warmUp + mails; mail++) {
	for (const side of mail % 2 === 0 ? [sides.old, sides.empty] : [sides.empty, sides.old]) {
		await exchange(side);
		// What its watcher saw.
		await soon();
	}
}
// Afterwards: it looks at so much that what follows is slower.
for (let mail = 0; mail < warmUp + mails / 2; mail++) {
	answerTwice(sides.old);
	answerTwice(sides.empty);
}
const round: AgeRound = { old: sampleOf(sides.old), empty: sampleOf(sides.empty) };
finish(round);

/** A session, a mailbox that writes to it, and what was measured so far. */
type Side = Awaited<ReturnType<typeof openSide>>;

async function openSide(root: string) {
	const { disk, work } = countingDisk();
	const pi = await startHost({ root, address: alice, disk, isFast: true });
	const peer = openPeer(root, bob, disk);
	const times: Record<Step, number[]> = {
		deliver: [],
		claim: [],
		settle: [],
		send: [],
		reply: [],
		second: [],
		look: [],
	};
	const calls: number[] = [];
	const names: number[] = [];
	return { pi, peer, work, times, calls, names, boxes: boxesOf(root, bob) };
}

/** A request to the session, its answer, a request by it, the answer to that, and a look at nothing. */
async function exchange({ pi, peer, work, times, calls, names, boxes }: Side): Promise<void> {
	const before = { ...work };
	let id = "";
	times.deliver.push(timed(() => (id = sendFrom(peer, { to: alice }))));
	peer.answered([id]);
	times.claim.push(timed(() => scan(pi)));
	const begin = performance.now();
	await pi.run();
	times.settle.push(performance.now() - begin);
	times.send.push(timed(() => (id = sendRequest(pi, bob))));
	sendFrom(peer, replyTo(id));
	times.reply.push(timed(() => scan(pi)));
	times.look.push(timed(() => scan(pi)));
	calls.push(work.calls - before.calls);
	names.push(work.names - before.names);
	// What came to the peer. Nothing is removed, which would slow what follows (see rounds.ts).
	for (const name of readdirSync(boxes.new)) renameSync(join(boxes.new, name), join(boxes.cur, name));
	if (pi.errors.length > 0) throw new Error(pi.errors.join("\n"));
}

/** A request by the session, and two answers. */
function answerTwice({ pi, peer, times }: Side): void {
	const id = sendRequest(pi, bob);
	sendFrom(peer, replyTo(id));
	scan(pi);
	sendFrom(peer, replyTo(id));
	times.second.push(timed(() => scan(pi)));
}

function replyTo(id: string): Parameters<typeof sendFrom>[1] {
	return { to: alice, kind: "reply", status: "done", inReplyTo: [id] };
}

function sampleOf({ times, calls, names }: Side): Sample {
	const middle = (step: Step) => median(times[step].slice(warmUp));
	return {
		times: {
			deliver: middle("deliver"),
			claim: middle("claim"),
			settle: middle("settle"),
			send: middle("send"),
			reply: middle("reply"),
			second: middle("second"),
			look: middle("look"),
		},
		calls: median(calls),
		names: median(names),
	};
}
