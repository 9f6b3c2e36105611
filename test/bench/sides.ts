import { randomUUID } from "node:crypto";
import { closeSync, fsyncSync, linkSync, openSync, readdirSync, renameSync, writeSync } from "node:fs";
import { join } from "node:path";
import { type Boxes, boxesOf, makeBoxes } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { envelopeFileName } from "../../src/mail/envelope.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";

export type Durability = "durable" | "fast";

/** Mail from a new address to another, sent in one of two ways. */
export interface SideOptions {
	readonly root: string;
	readonly durability: Durability;
	readonly to: string;
	readonly body: string;
	readonly now?: () => number;
}

/** By the package: sends one mail with each call. */
export function ourSide({ root, durability, to, body, now = Date.now }: SideOptions): () => void {
	const address = randomUUID();
	const mailbox = openMailbox({ disk: nodeDisk(), root, address, now, isDurable: () => durability === "durable" });
	return () => {
		const sent = mailbox.deliver({ to, kind: "request", body, hops: 0 });
		if (!sent.ok) throw new Error(sent.message);
	};
}

/** By hand: the JSON and the system calls that no sender could do without; `keepsCopy`: that keeps a copy, in the order that survives a kill. */
export function bareSide({ root, durability, to, body }: SideOptions, keepsCopy = false): () => void {
	const disk = nodeDisk();
	const from = randomUUID();
	const [recipient, sender] = [boxesOf(root, to), boxesOf(root, from)];
	for (const boxes of [recipient, sender]) makeBoxes(disk, boxes);
	const folders = durability === "durable" ? [recipient.new, sender.sent].map((box) => openSync(box, "r")) : [];
	const id = randomUUID();
	const ts = new Date().toISOString();
	const envelope = { id, from, to, kind: "request", hops: 0, in_reply_to: [], status: "", ts, body };
	let sent = 0;
	return () => {
		const text = JSON.stringify(envelope);
		const name = envelopeFileName(sent++, id);
		const unfinished = `${recipient.tmp}/${name}`;
		const file = openSync(unfinished, "wx", 0o600);
		writeSync(file, text);
		const copy = `${sender.sent}/${name}`;
		if (keepsCopy) linkSync(unfinished, `${copy}.part`);
		if (durability === "durable") fsyncSync(file);
		closeSync(file);
		renameSync(unfinished, `${recipient.new}/${name}`);
		for (const folder of folders) fsyncSync(folder);
		if (keepsCopy) renameSync(`${copy}.part`, copy);
	};
}

/**
 * Claims what was sent, durably, so that nothing of it is left to be written when measuring goes on. Nothing is removed,
 * which would slow what follows (see rounds.ts).
 */
export function claimAll(boxes: Boxes): void {
	for (const name of readdirSync(boxes.new)) renameSync(join(boxes.new, name), join(boxes.cur, name));
	nodeDisk().syncFolder(boxes.cur);
}
