import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import { type Boxes, boxesOf } from "../../src/mail/boxes.ts";
import type { Draft } from "../../src/mail/deliver.ts";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { type Claim, type Mailbox, openMailbox } from "../../src/mail/mailbox.ts";

export const alice = "01980f5e-7a3c-7d10-8f00-00000000000a";
export const bob = "01980f5e-7a3c-7d10-8f00-00000000000b";
export const carol = "01980f5e-7a3c-7d10-8f00-00000000000c";
export const startMs = Date.parse("2026-11-29T12:00:00.000Z");
export const dayMs = 24 * 60 * 60 * 1000;
export const isRoot = process.getuid?.() === 0;

const folders: string[] = [];
afterEach(() => {
	for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** A new empty folder that is removed after the test. */
export function temporaryFolder(): string {
	const folder = mkdtempSync(join(tmpdir(), "mail-"));
	folders.push(folder);
	return folder;
}

type Box = Exclude<keyof Boxes, "folder">;

/** A mail root of its own, removed after the test. */
export interface TestRoot {
	readonly path: string;
	/** The time of its mailboxes. */
	clockMs: number;
	open(address: string, options?: { disk?: Disk; durability?: "durable" | "fast" }): Mailbox;
	/** What a start of a session does: it ends what an earlier process left. */
	start(address: string, disk?: Disk): { mailbox: Mailbox; left: Claim[]; warnings: string[] };
	boxes(address: string): Boxes;
	/** The names in a box, in order; none when it is not there. */
	names(address: string, box: Box): string[];
	/** Puts a file into a box and says where it lies. */
	lay(address: string, box: Box, name: string, content: string | Uint8Array): string;
}

export function testRoot(): TestRoot {
	const path = join(temporaryFolder(), "root");
	mkdirSync(path, { mode: 0o700 });
	const boxes = (address: string) => boxesOf(path, address);
	return {
		path,
		clockMs: startMs,
		boxes,
		open(address, { disk = nodeDisk(), durability = "durable" } = {}) {
			return openMailbox({
				disk,
				root: path,
				address,
				now: () => this.clockMs,
				isDurable: () => durability === "durable",
			});
		},
		start(address, disk = nodeDisk()) {
			const mailbox = this.open(address, { disk });
			const left = [...mailbox.leftOpen()].filter((claim) => claim !== undefined);
			const warnings = [...mailbox.recount()].filter((warning) => warning !== undefined);
			mailbox.saveState();
			return { mailbox, left, warnings };
		},
		names(address, box) {
			try {
				return readdirSync(boxes(address)[box]).sort();
			} catch {
				return [];
			}
		},
		lay(address, box, name, content) {
			mkdirSync(boxes(address)[box], { recursive: true, mode: 0o700 });
			writeFileSync(join(boxes(address)[box], name), content);
			return join(boxes(address)[box], name);
		},
	};
}

/** A request to Bob, with some fields changed. */
export function draft(changed: Partial<Draft> = {}): Draft {
	return { to: bob, kind: "request", body: "Please look at branch x.", hops: 0, ...changed };
}

/** An envelope's file as another program may write it: to Bob, with some fields changed, or left out when undefined. */
export function envelopeText(changed: Record<string, unknown> = {}): string {
	return JSON.stringify({
		id: "11111111-2222-4333-8444-555555555555",
		from: alice,
		to: bob,
		kind: "request",
		hops: 0,
		in_reply_to: [],
		status: "",
		ts: "2026-11-29T12:00:00.000Z",
		body: "Please look at branch x.",
		...changed,
	});
}

/** Sends mail that must arrive, and says which it was. */
export function sent(mailbox: Mailbox, changed: Partial<Draft> = {}): string {
	const outcome = mailbox.deliver(draft(changed));
	if (!outcome.ok) throw new Error(outcome.message);
	return outcome.envelope.id;
}

/** An operation on disk: its number, counted from 1, what it does, and on which paths. */
export interface Operation {
	n: number;
	name: keyof Disk;
	paths: readonly string[];
}

/** The real disk, with something done before each operation: to look at it, to make it fail by throwing, or to let another process act. */
export function watchedDisk(before: (operation: Operation) => unknown, disk: Disk = nodeDisk()): Disk {
	let n = 0;
	const step = (name: keyof Disk, ...paths: string[]) => before({ n: ++n, name, paths });
	return {
		ensureFolder(path) {
			step("ensureFolder", path);
			return disk.ensureFolder(path);
		},
		create(path, content) {
			step("create", path);
			disk.create(path, content);
		},
		replace(path, text) {
			step("replace", path);
			disk.replace(path, text);
		},
		read(path, maxBytes) {
			step("read", path);
			return disk.read(path, maxBytes);
		},
		link(from, to) {
			step("link", from, to);
			disk.link(from, to);
		},
		rename(from, to) {
			step("rename", from, to);
			disk.rename(from, to);
		},
		remove(path) {
			step("remove", path);
			disk.remove(path);
		},
		changed(path) {
			step("changed", path);
			return disk.changed(path);
		},
		mode(path) {
			step("mode", path);
			return disk.mode(path);
		},
		space(path) {
			step("space", path);
			return disk.space(path);
		},
		removeFolder(path) {
			step("removeFolder", path);
			disk.removeFolder(path);
		},
		list(folder) {
			step("list", folder);
			return disk.list(folder);
		},
		*walk(folder) {
			step("walk", folder);
			yield* disk.walk(folder);
		},
		entry(path) {
			step("entry", path);
			return disk.entry(path);
		},
		syncFile(path) {
			step("syncFile", path);
			disk.syncFile(path);
		},
		syncFolder(folder) {
			step("syncFolder", folder);
			disk.syncFolder(folder);
		},
	};
}

/** Fails as the system does. */
export function fail(code: string): never {
	throw Object.assign(new Error(`${code}: made to fail`), { code });
}

/** A disk whose operations fail on command, counted from that command on. */
export interface FaultyDisk {
	disk: Disk;
	/** The n-th operation from now on fails, once. */
	failAt(n: number, code: string): void;
	/** The process is killed before the n-th operation from now on: that one and all later ones change nothing. */
	dieAt(n: number): void;
	/** Each operation fails with the code that is returned for it; `n` counts from 1. */
	failWith(fault: Fault): void;
	/** From now on nothing fails. */
	heal(): void;
	/** The operation that failed first; undefined while there were not as many. */
	readonly failed: Operation | undefined;
}

type Fault = (n: number, operation: Operation) => string | undefined;

export function faultyDisk(base: Disk = nodeDisk()): FaultyDisk {
	let fault: Fault | undefined;
	let done = 0;
	let failed: Operation | undefined;
	const arm = (next: typeof fault) => {
		fault = next;
		done = 0;
		failed = undefined;
	};
	const disk = watchedDisk((operation) => {
		const code = fault?.(++done, operation);
		if (code === undefined) return;
		failed ??= operation;
		fail(code);
	}, base);
	return {
		disk,
		failAt: (at, code) => arm((n) => (n === at ? code : undefined)),
		dieAt: (at) => arm((n) => (n >= at ? "EIO" : undefined)),
		failWith: arm,
		heal() {
			fault = undefined;
		},
		get failed() {
			return failed;
		},
	};
}

/** The real disk, where something else happens before its n-th operation from `arm` on: another process acts. */
export function interruptedDisk(): { disk: Disk; arm(n: number, act: () => void): void; readonly acted: boolean } {
	let at = 0;
	let done = 0;
	let act = () => {};
	const disk = watchedDisk(() => {
		if (++done === at) act();
	});
	return {
		disk,
		arm(n, action) {
			at = n;
			done = 0;
			act = action;
		},
		get acted() {
			return done >= at;
		},
	};
}

/** A disk where a file cannot have a second name, such as FAT. */
export function linklessDisk(code = "EXDEV"): Disk {
	return watchedDisk(({ name }) => name === "link" && fail(code));
}

/** Every code with which an operation of the fault tests fails. */
export const faultCodes = ["ENOSPC", "EACCES", "EIO", "EMFILE", "EXDEV"] as const;
