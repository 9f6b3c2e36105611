/** One round of the question in send.ts, in a process of its own; prints a {@link SendRound}. */
import { randomUUID } from "node:crypto";
import { boxesOf } from "../../src/mail/boxes.ts";
import { textOf } from "./fixtures.ts";
import { finish, ordersOf } from "./rounds.ts";
import { bareSide, claimAll, type Durability, ourSide, type SideOptions } from "./sides.ts";

/** What a round is told. */
export interface SendOrders {
	/** An empty folder. */
	readonly root: string;
	readonly durability: Durability;
	/** Of the text of a mail. */
	readonly bytes: number;
	/** Mails in a row. */
	readonly block: number;
	/** Blocks between two clearings: the inbox stays under its limit of 256. */
	readonly blocks: number;
	readonly clearings: number;
}

/** What one round gave: milliseconds for each mail, sent in these ways. */
export interface SendRound {
	/** By the package, one mail right after the other. */
	readonly burst: number[];
	/** By the package, whose clock goes on by two seconds from mail to mail. */
	readonly apart: number[];
	/** By hand. */
	readonly bare: number[];
	/** By hand, with a copy in `sent/`. */
	readonly copied: number[];
}

const orders: SendOrders = ordersOf();
finish(measure(orders));

function measure({ root, durability, bytes, block, blocks, clearings }: SendOrders): SendRound {
	let clock = Date.now();
	const later = () => {
		clock += 2000;
		return clock;
	};
	const options = { root, durability, body: textOf(bytes) };
	const sides = {
		burst: makeSide(ourSide, options),
		apart: makeSide(ourSide, { ...options, now: later }),
		bare: makeSide(bareSide, options),
		copied: makeSide((given) => bareSide(given, true), options),
	};
	for (const side of Object.values(sides)) {
		for (let mail = 0; mail < block; mail++) side.send();
		side.clear();
	}
	const round: SendRound = { burst: [], apart: [], bare: [], copied: [] };
	for (let clearing = 0; clearing < clearings; clearing++) {
		for (let n = 0; n < blocks; n++) {
			const order = ["burst", "bare", "apart", "copied"] as const;
			for (const name of n % 2 === 0 ? order : order.toReversed()) sendBlock(sides[name], block, round[name]);
		}
		for (const side of Object.values(sides)) side.clear();
	}
	return round;
}

/** One way to send, to an inbox of its own. */
interface Side {
	send(): void;
	clear(): void;
}

function makeSide(way: (options: SideOptions) => () => void, options: Omit<SideOptions, "to">): Side {
	const to = randomUUID();
	return { send: way({ ...options, to }), clear: () => claimAll(boxesOf(options.root, to)) };
}

function sendBlock(side: Side, mails: number, times: number[]): void {
	for (let mail = 0; mail < mails; mail++) {
		const begin = performance.now();
		side.send();
		times.push(performance.now() - begin);
	}
}
