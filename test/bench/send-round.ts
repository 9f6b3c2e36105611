/** One round of the question in send.ts, in a process of its own; prints a {@link SendRound}. */
import { randomUUID } from "node:crypto";
import { closeSync, fsyncSync, openSync, readdirSync, renameSync, writeSync } from "node:fs";
import { join } from "node:path";
import { type Boxes, boxesOf, makeBoxes } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { envelopeFileName, serialiseEnvelope } from "../../src/mail/envelope.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";

export type Durability = "durable" | "fast";

/** What one round gave: milliseconds for each mail, sent in these ways. */
export interface SendRound {
	/** By the package, one mail right after the other. */
	readonly burst: number[];
	/** By the package, whose clock goes on by two seconds from mail to mail. */
	readonly apart: number[];
	/** By hand. */
	readonly bare: number[];
}

const mailsInBlock = 50;
/** Blocks between two clearings: the inbox stays under its limit of 256. */
const blocksToClear = 5;
const clearings = 2;
const body = "0123456789abcdef".repeat(64);

const [folder, durability] = process.argv.slice(2);
if (folder === undefined || (durability !== "durable" && durability !== "fast")) {
	throw new Error("Usage: node send-round.ts <empty folder> <durable|fast>");
}
process.stdout.write(JSON.stringify(measure(folder, durability)));

function measure(root: string, durability: Durability): SendRound {
	let clock = Date.now();
	const later = () => {
		clock += 2000;
		return clock;
	};
	const sides = {
		burst: ourSide(root, durability, Date.now),
		apart: ourSide(root, durability, later),
		bare: bareSide(root, durability),
	};
	for (const side of Object.values(sides)) {
		for (let mail = 0; mail < mailsInBlock; mail++) side.send();
		side.clear();
	}
	const round: SendRound = { burst: [], apart: [], bare: [] };
	for (let clearing = 0; clearing < clearings; clearing++) {
		for (let block = 0; block < blocksToClear; block++) {
			const order = ["burst", "bare", "apart"] as const;
			for (const name of block % 2 === 0 ? order : order.toReversed()) sendBlock(sides[name], round[name]);
		}
		for (const side of Object.values(sides)) side.clear();
	}
	return round;
}

/** One way to send. */
interface Side {
	send(): void;
	/**
	 * Claims what was sent, durably, so that nothing of it is left to be written when measuring goes on. Nothing is removed,
	 * which would slow what follows (see send.ts).
	 */
	clear(): void;
}

function sendBlock(side: Side, times: number[]): void {
	for (let mail = 0; mail < mailsInBlock; mail++) {
		const begin = performance.now();
		side.send();
		times.push(performance.now() - begin);
	}
}

function ourSide(root: string, durability: Durability, now: () => number): Side {
	const address = randomUUID();
	const mailbox = openMailbox({ disk: nodeDisk(), root, address, now, isDurable: () => durability === "durable" });
	const to = randomUUID();
	return {
		send() {
			const sent = mailbox.deliver({ to, kind: "request", body, hops: 0 });
			if (!sent.ok) throw new Error(sent.message);
		},
		clear: () => claimAll(boxesOf(root, to)),
	};
}

function bareSide(root: string, durability: Durability): Side {
	const disk = nodeDisk();
	const from = randomUUID();
	const to = randomUUID();
	const [recipient, sender] = [boxesOf(root, to), boxesOf(root, from)];
	for (const boxes of [recipient, sender]) makeBoxes(disk, boxes);
	const folders = durability === "durable" ? [recipient.new, sender.sent].map((box) => openSync(box, "r")) : [];
	const id = randomUUID();
	const ts = new Date().toISOString();
	const text = serialiseEnvelope({ id, from, to, kind: "request", hops: 0, in_reply_to: [], status: "", ts, body });
	let sent = 0;
	return {
		send() {
			const name = envelopeFileName(sent++, id);
			const unfinished = `${recipient.tmp}/${name}`;
			const file = openSync(unfinished, "wx", 0o600);
			writeSync(file, text);
			if (durability === "durable") fsyncSync(file);
			closeSync(file);
			renameSync(unfinished, `${recipient.new}/${name}`);
			for (const folder of folders) fsyncSync(folder);
		},
		clear: () => claimAll(recipient),
	};
}

function claimAll(boxes: Boxes): void {
	for (const name of readdirSync(boxes.new)) renameSync(join(boxes.new, name), join(boxes.cur, name));
	nodeDisk().syncFolder(boxes.cur);
}
