import { randomUUID } from "node:crypto";
import { linkSync, mkdirSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { boxesOf, makeBoxes } from "../../src/mail/boxes.ts";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { type Envelope, envelopeFileName, serialiseEnvelope } from "../../src/mail/envelope.ts";
import type { SelfProcess } from "../../src/mail/process.ts";
import { runningFolder } from "../../src/mail/root.ts";
import { serialiseRecord } from "../../src/mail/running-record.ts";

/** The two sides of most measurements. */
export const alice = "01980f5e-7a3c-7d10-8f00-00000000000a";
export const bob = "01980f5e-7a3c-7d10-8f00-00000000000b";

/** A text of so many bytes. */
export function textOf(bytes: number): string {
	return "0123456789abcdef".repeat(Math.ceil(bytes / 16)).slice(0, bytes);
}

/**
 * Lays what a long exchange of mail leaves: of each side so many requests in its `sent/` and in the other's `cur/`, as two
 * names of one file, and a `state.json` that knows them all.
 */
export function layOldMail(root: string, one: string, other: string, count: number): void {
	for (const [from, to] of [
		[one, other],
		[other, one],
	] as const) {
		const [sender, recipient] = [boxesOf(root, from), boxesOf(root, to)];
		for (const boxes of [sender, recipient]) makeBoxes(nodeDisk(), boxes);
		let newest = "";
		for (let mail = 0; mail < count; mail++) {
			const { name, text } = oldMail(from, to, "request", mail);
			writeFileSync(join(sender.sent, name), text, { mode: 0o600 });
			linkSync(join(sender.sent, name), join(recipient.cur, name));
			newest = name;
		}
		const state = { stamp: longAgo + count, counted: newest, awaiting: {} };
		if (count > 0) writeFileSync(join(sender.folder, "state.json"), JSON.stringify(state), { mode: 0o600 });
	}
}

/** Lays mail that waits, which may be more than a sender would be allowed to send. */
export function layWaiting(root: string, from: string, to: string, kind: Envelope["kind"], count: number): void {
	const boxes = boxesOf(root, to);
	makeBoxes(nodeDisk(), boxes);
	for (let mail = 0; mail < count; mail++) {
		const { name, text } = oldMail(from, to, kind, mail);
		writeFileSync(join(boxes.new, name), text, { mode: 0o600 });
	}
}

/** Lays mail that an earlier process claimed and did not bring into a conversation. */
export function layLeftOpen(root: string, from: string, to: string, count: number): void {
	layWaiting(root, from, to, "message", count);
	const boxes = boxesOf(root, to);
	for (const name of readdirSync(boxes.new)) {
		renameSync(join(boxes.new, name), join(boxes.cur, name));
		writeFileSync(join(boxes.cur, `${name}.open`), "", { mode: 0o600 });
	}
}

/** Makes the folders of so many closed sessions, each found old before when `areSeenOld`. */
export function layMailboxes(root: string, count: number, areSeenOld: boolean): void {
	for (let mailbox = 0; mailbox < count; mailbox++) {
		const address = randomUUID();
		makeBoxes(nodeDisk(), boxesOf(root, address));
		if (areSeenOld) writeFileSync(join(root, `.old.${address}`), "");
	}
}

/**
 * Lays running records, each of a process id of its own from {@link firstPid} on: of processes that nobody has to start
 * (see `manyProcesses` in host.ts).
 */
export function layRecords(root: string, count: number, { started, boot, namespace }: SelfProcess): string[] {
	mkdirSync(runningFolder(root), { mode: 0o700 });
	return Array.from({ length: count }, (_, index) => {
		const address = randomUUID();
		const text = serialiseRecord({
			address,
			name: `session ${index}`,
			cwd: `/home/user/project-${index}`,
			pid: firstPid + index,
			state: "idle",
			waitingOn: "",
			updated: new Date().toISOString(),
			started,
			x: { boot, namespace, instance: "0123456789abcdef" },
		});
		writeFileSync(join(runningFolder(root), `${address}.json`), text, { mode: 0o600 });
		return address;
	});
}

/** No process has an id as high as this (proc_sys_kernel(5)). */
export const firstPid = 1 << 23;

/** What was asked of a disk. */
export interface Work {
	/** Operations on it. */
	calls: number;
	/** Names that listing folders gave. */
	names: number;
}

/** The real disk, counting. */
export function countingDisk(): { disk: Disk; work: Work } {
	const work = { calls: 0, names: 0 };
	const real = nodeDisk();
	const listing: Disk = {
		...real,
		list(folder) {
			const names = real.list(folder);
			work.names += names.length;
			return names;
		},
		*walk(folder) {
			for (const name of real.walk(folder)) {
				work.names++;
				yield name;
			}
		},
	};
	const disk = new Proxy(listing, {
		get(target, key) {
			work.calls++;
			return Reflect.get(target, key);
		},
	});
	return { disk, work };
}

/** When the old mail was sent. */
const longAgo = Date.parse("2026-01-01T00:00:00.000Z");

function oldMail(from: string, to: string, kind: Envelope["kind"], index: number): { name: string; text: Buffer } {
	const id = randomUUID();
	const ts = new Date(longAgo + index).toISOString();
	const body = "please look at branch x";
	const answers = kind === "reply" ? { in_reply_to: [randomUUID()], status: "done" } : { in_reply_to: [], status: "" };
	const text = serialiseEnvelope({ id, from, to, kind, hops: 0, ts, body, ...answers });
	return { name: envelopeFileName(longAgo + index, id), text };
}
