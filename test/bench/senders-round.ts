/** One round of the question in senders.ts: the process that starts those that send, and each of these; prints a {@link SendersRound}. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { boxesOf, makeBoxes } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { alice, textOf } from "./fixtures.ts";
import { finish, newRoot, ordersOf } from "./rounds.ts";
import { bareSide, claimAll, type Durability, ourSide } from "./sides.ts";
import { median } from "./statistics.ts";

/** What a round is told. */
export interface SendersOrders {
	/** How many send at once. */
	readonly counts: readonly number[];
	readonly repeats: number;
	/** In a process that sends: where to. */
	readonly root?: string;
}

/** What one round gave: mails a second, by durability, whose, and how many sent, such as `fast bare 8`. */
export type SendersRound = Record<string, number>;

type Way = `${Durability} ${"ours" | "bare"}`;

/** What a process that sends is told: how many, and how. */
interface Share {
	readonly way: Way;
	readonly mails: number;
}

/** When it began and ended, in ns of a clock that all processes share. */
interface Span {
	readonly begin: string;
	readonly end: string;
}

/** What comes into the inbox in one turn: every number of senders divides it. */
const mailsInTurn = 64;

const orders: SendersOrders = ordersOf();
if (orders.root === undefined) finish(await measure(orders));
else send(orders.root);

async function measure({ counts, repeats }: SendersOrders): Promise<SendersRound> {
	const root = newRoot();
	const boxes = boxesOf(root, alice);
	makeBoxes(nodeDisk(), boxes);
	const childOrders: SendersOrders = { counts, repeats, root };
	const children = Array.from({ length: Math.max(...counts) }, () =>
		fork(import.meta.filename, [JSON.stringify(childOrders)]),
	);
	await Promise.all(children.map((child) => once(child, "message")));
	const ways: readonly Way[] = ["durable ours", "durable bare", "fast ours", "fast bare"];
	const rates = new Map<string, number[]>();
	for (let repeat = 0; repeat < 1 + repeats; repeat++) {
		for (const count of counts) {
			for (const way of repeat % 2 === 0 ? ways : ways.toReversed()) {
				const rate = await sendAll(children.slice(0, count), way);
				claimAll(boxes);
				// The first has the code compiled.
				if (repeat > 0) rates.set(`${way} ${count}`, [...(rates.get(`${way} ${count}`) ?? []), rate]);
			}
		}
	}
	for (const child of children) child.disconnect();
	return Object.fromEntries([...rates].map(([what, values]) => [what, median(values)]));
}

/** Mails a second, from the first one's begin to the last one's end. */
async function sendAll(children: readonly ChildProcess[], way: Way): Promise<number> {
	const share: Share = { way, mails: mailsInTurn / children.length };
	const answers = children.map((child) => once(child, "message"));
	for (const child of children) child.send(share);
	const spans: Span[] = (await Promise.all(answers)).map(([span]) => span);
	const begin = Math.min(...spans.map((span) => Number(span.begin)));
	const end = Math.max(...spans.map((span) => Number(span.end)));
	return mailsInTurn / ((end - begin) / 1e9);
}

function send(root: string): void {
	const options = { root, to: alice, body: textOf(1024) };
	const ways: Readonly<Record<Way, () => void>> = {
		"durable ours": ourSide({ ...options, durability: "durable" }),
		"durable bare": bareSide({ ...options, durability: "durable" }),
		"fast ours": ourSide({ ...options, durability: "fast" }),
		"fast bare": bareSide({ ...options, durability: "fast" }),
	};
	process.on("disconnect", () => process.exit());
	process.on("message", ({ way, mails }: Share) => {
		const begin = process.hrtime.bigint();
		for (let mail = 0; mail < mails; mail++) ways[way]();
		const span: Span = { begin: String(begin), end: String(process.hrtime.bigint()) };
		process.send?.(span);
	});
	process.send?.("ready");
}
