import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import type { PruneOptions } from "../../src/mail/prune.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { pruneInSlices, type WhileAlone } from "../../src/session/pruning.ts";
import { alice, fail, type Operation, watchedDisk } from "../support/disk.ts";
import { later, useFakeMachine, useFileTime } from "../support/fake-machine.ts";
import { FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

const seams = vi.hoisted(() => ({ wrap: (disk: Disk): Disk => disk }));
vi.mock(import("../../src/mail/disk.ts"), async (importOriginal) => {
	const real = await importOriginal();
	return { ...real, nodeDisk: () => seams.wrap(real.nodeDisk()) };
});
/** What happens before each operation on disk. */
let before: (operation: Operation) => unknown = () => {};
seams.wrap = (disk) => watchedDisk((operation) => before(operation), disk);

useFakeMachine();

const dayMs = 24 * 60 * 60 * 1000;
let peer: Peer;
beforeEach(() => {
	vi.stubEnv("PI_CODING_AGENT_DIR", join(mailRoot(), "..", "agent"));
	peer = makePeer();
});
afterEach(() => {
	before = () => {};
});

const folderOf = (address: string) => join(mailRoot(), address);
const isThere = (address: string) => existsSync(folderOf(address));
/** The folders of sessions, and what pruning has noted or moved aside. */
const inRoot = () =>
	readdirSync(mailRoot())
		.filter((name) => name !== "running" && name !== peer.address)
		.sort();

/** Waits until something is so: the lock of a pass comes from the real file system, at its own time. */
async function until(isSo: () => boolean): Promise<void> {
	for (let tries = 0; !isSo(); tries++) {
		if (tries === 2000) throw new Error(`it did not come to ${isSo}`);
		await later(0);
		await stat(mailRoot());
	}
}

/** Waits until a pass that has begun must be over. */
async function aWhile(): Promise<void> {
	for (let n = 0; n < 50; n++) {
		await later(0);
		await stat(mailRoot());
	}
}

/** Has the lock that a process holds while it prunes, as soon as nobody else has. */
async function takeLock(): Promise<void> {
	await aWhile();
	await until(() => !inRoot().includes(".prune.lock"));
	mkdirSync(join(mailRoot(), ".prune.lock"));
}

/** The mailbox of a session that has ended. */
async function closedSession(): Promise<string> {
	const pi = await startFakePi();
	await later(0);
	await pi.shutDown();
	expect(isThere(pi.address)).toBe(true);
	return pi.address;
}

describe("PSM-038 /mailbox prune", () => {
	const counted = (pi: FakePi) => pi.notifications.filter((text) => text.startsWith("Removed"));

	/** Types it, and returns what it says. */
	async function prune(pi: FakePi): Promise<string | undefined> {
		pi.notifications.splice(0);
		await pi.type("/mailbox prune");
		await until(() => counted(pi).length > 0);
		return pi.notifications[0];
	}

	test("removes the folders of closed sessions, whatever their age, and says how many", async () => {
		const closed = [await closedSession(), await closedSession()];
		const [pi, other] = [await startFakePi(), await startFakePi()];
		peer.send({ address: peer.address === alice ? "" : alice });
		rmSync(folderOf(peer.address), { recursive: true });
		expect(await prune(pi)).toBe("Removed 2 mailbox folders of closed sessions");
		expect(closed.map(isThere)).toEqual([false, false]);
		expect([pi.address, other.address, alice].map(isThere)).toEqual([true, true, true]);
		expect(await prune(pi)).toBe("Removed 0 mailbox folders of closed sessions");
		expect(pi.notifications).toHaveLength(1);
	});

	test("says so for one in the same words", async () => {
		const closed = await closedSession();
		const pi = await startFakePi();
		rmSync(folderOf(peer.address), { recursive: true });
		expect(await prune(pi)).toBe("Removed 1 mailbox folders of closed sessions");
		expect(isThere(closed)).toBe(false);
	});

	test("keeps mail that nobody has read", async () => {
		const closed = await closedSession();
		peer.send({ address: closed });
		const pi = await startFakePi();
		await prune(pi);
		expect(isThere(closed)).toBe(true);
	});

	test("with a text behind it, it is mail to a session of that name", async () => {
		const closed = await closedSession();
		const [pi, other] = [await startFakePi(), await startFakePi({ name: "prune" })];
		await pi.type("/mailbox prune please");
		expect(pi.notifications).toEqual([expect.stringMatching(`^Sent .* to ${other.address}$`)]);
		await aWhile();
		expect([isThere(closed), counted(pi)]).toEqual([true, []]);
		await pi.type("/mailbox prune \n me too ");
		expect(other.names("new")).toHaveLength(2);
	});

	test("with a text behind it and no session of that name, it is refused, and removes nothing", async () => {
		const closed = await closedSession();
		const pi = await startFakePi();
		await pi.type("/mailbox prune everything");
		expect(pi.notifications).toEqual([expect.stringMatching(/^Nothing was sent: no/)]);
		await aWhile();
		expect(isThere(closed)).toBe(true);
	});

	test("answers also while another process prunes, or has died with the lock", async () => {
		const closed = await closedSession();
		await takeLock();
		const pi = await startFakePi();
		rmSync(folderOf(peer.address), { recursive: true });
		expect(await prune(pi)).toBe("Removed 1 mailbox folders of closed sessions");
		expect(isThere(closed)).toBe(false);
		// Files have the real time: a lock from the future may be gone.
		rmSync(join(mailRoot(), ".prune.lock"), { recursive: true, force: true });
	});

	test("answers also in the second process of a session, and while mail is off", async () => {
		const closed = await closedSession();
		const pi = new FakePi();
		const record = { address: pi.address, cwd: "/", pid: process.ppid, state: "idle", waitingOn: "", updated: "" };
		writeFileSync(join(mailRoot(), "running", `${pi.address}.json`), JSON.stringify(record));
		await pi.start();
		await pi.type("/mailbox off");
		await prune(pi);
		expect([isThere(closed), isThere(pi.address)]).toEqual([false, true]);
	});

	test("a folder that cannot be removed is a warning, and not counted", async () => {
		const [stuck, closed] = [await closedSession(), await closedSession()];
		const pi = await startFakePi();
		rmSync(folderOf(peer.address), { recursive: true });
		before = ({ name, paths }) => name === "rename" && paths[0] === folderOf(stuck) && fail("EACCES");
		await pi.type("/mailbox prune");
		await until(() => counted(pi).length > 0);
		expect(pi.notifications).toEqual([
			expect.stringMatching(`^mailbox: ${folderOf(stuck)} could not be pruned: EACCES`),
			"Removed 1 mailbox folders of closed sessions",
		]);
		expect([isThere(stuck), isThere(closed)]).toEqual([true, false]);
	});

	test("PSM-045 does not end a host that has dropped the session without a word", async () => {
		const closed = await closedSession();
		const pi = await startFakePi();
		rmSync(folderOf(peer.address), { recursive: true });
		before = ({ name, paths }) => name === "removeFolder" && paths[0]?.includes(closed) && pi.dispose();
		await pi.type("/mailbox prune");
		await until(() => !isThere(closed));
		await aWhile();
		expect(counted(pi)).toEqual([]);
	});

	test("PSM-045 says and removes nothing more after the end of the session", async () => {
		const closed = await closedSession();
		const pi = await startFakePi();
		await pi.type("/mailbox prune");
		await pi.shutDown();
		await aWhile();
		expect([counted(pi), isThere(closed)]).toEqual([[], true]);
	});
});

describe("PSM-090 at session start", () => {
	beforeEach(useFileTime);
	const isLocked = () => inRoot().includes(".prune.lock");

	/** A session start `days` from now on, and its pass over all folders. */
	async function startIn(days: number): Promise<FakePi> {
		await until(() => !isLocked());
		vi.setSystemTime(Date.now() + days * dayMs);
		let hasBegun = false;
		before = ({ name, paths }) => {
			hasBegun ||= name === "walk" && paths[0] === mailRoot();
		};
		const pi = await startFakePi();
		await until(() => hasBegun);
		await until(() => !isLocked());
		return pi;
	}

	test("folders that have been old for a day are removed, quietly", async () => {
		const closed = await closedSession();
		await aWhile();
		const first = await startIn(40);
		expect(inRoot()).toContain(`.old.${closed}`);
		expect(isThere(closed)).toBe(true);
		const second = await startIn(2);
		expect(isThere(closed)).toBe(false);
		expect(inRoot().filter((name) => name.includes(closed))).toEqual([]);
		expect([first.notifications, second.notifications]).toEqual([[], []]);
	});

	test("PSM-088 after as many days as pruneAfterDays says", async () => {
		const closed = await closedSession();
		mkdirSync(join(mailRoot(), "..", "agent"), { recursive: true });
		writeFileSync(join(mailRoot(), "..", "agent", "session-mail.json"), '{"pruneAfterDays": 60}');
		await startIn(40);
		await startIn(2);
		expect(inRoot()).not.toContain(`.old.${closed}`);
		await startIn(20);
		expect(inRoot()).toContain(`.old.${closed}`);
		await startIn(2);
		expect(isThere(closed)).toBe(false);
	});

	test("the work begins only after session_start", async () => {
		await closedSession();
		vi.setSystemTime(Date.now() + 40 * dayMs);
		const walked: string[] = [];
		before = ({ name, paths }) => name === "walk" && walked.push(paths[0] ?? "");
		const pi = new FakePi();
		await pi.start();
		expect(walked).toEqual([]);
		await pi.discover();
		await until(() => walked.includes(mailRoot()));
	});

	test("one process at a time", async () => {
		const closed = await closedSession();
		await takeLock();
		vi.setSystemTime(Date.now() + 40 * dayMs);
		// It is as old as the rest; a holder that lives renews it.
		utimesSync(join(mailRoot(), ".prune.lock"), new Date(), new Date());
		const pi = await startFakePi();
		await aWhile();
		expect(pi.notifications).toEqual([]);
		expect([inRoot().includes(`.old.${closed}`), isThere(closed)]).toEqual([false, true]);
	});

	test("PSM-091 a session whose folder is pruned while it starts has a mailbox all the same", async () => {
		const first = await startFakePi();
		await first.run({ prompt: "hello" });
		await first.shutDown();
		const { address, file } = first;
		// Between the look for its boxes and its running record.
		before = ({ name, paths }) => {
			if (name === "create" && paths[0]?.includes("/running/"))
				rmSync(folderOf(address), { recursive: true, force: true });
		};
		const pi = new FakePi({ file });
		await pi.start("resume");
		before = () => {};
		await pi.discover();
		await later(1000);
		await pi.type(`/mailbox ${peer.address} please`);
		expect(pi.notifications).toEqual([expect.stringMatching(/^Sent /)]);
		const id = peer.send(pi);
		await later(2000);
		await pi.run();
		expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
	});
});

describe("L10 a pass in slices", () => {
	const at = (address: string): PruneOptions => ({
		disk: nodeDisk(),
		root: mailRoot(),
		self: address,
		running: { mayRun: () => false, hasStandby: () => false },
		now: Date.now,
		olderThanMs: undefined,
	});
	/** A lock that this test gives and takes back. */
	function manualLock() {
		const lock = {
			work: undefined as ((end: () => void) => void) | undefined,
			ended: 0,
			give: () => lock.work?.(() => lock.ended++),
			whileAlone: ((_, work) => {
				lock.work = work;
			}) as WhileAlone,
		};
		return lock;
	}

	test("hears how many folders were removed, once, and gives the lock back", async () => {
		for (const address of ["one", "two", "three"]) mkdirSync(folderOf(address));
		const lock = manualLock();
		const counts: number[] = [];
		const warnings: string[] = [];
		pruneInSlices(at(peer.address), lock.whileAlone, warnings.push.bind(warnings), counts.push.bind(counts));
		await later(100);
		expect([counts, lock.ended]).toEqual([[], 0]);
		lock.give();
		await later(100);
		expect([counts, warnings, lock.ended, inRoot()]).toEqual([[3], [], 1, []]);
	});

	test("given up before it has the lock: it does nothing, and gives the lock back when it comes", async () => {
		mkdirSync(folderOf("one"));
		const lock = manualLock();
		const giveUp = pruneInSlices(at(peer.address), lock.whileAlone, fail, () => fail("done"));
		giveUp();
		lock.give();
		await later(100);
		expect([inRoot(), lock.ended]).toEqual([["one"], 1]);
	});

	test("given up in the middle: nothing more is removed or said, the lock is free, and no folder stays open", async () => {
		for (let n = 0; n < 20; n++) mkdirSync(folderOf(`session-${n}`));
		let open = 0;
		let clock = 0;
		// Each look at the clock takes a millisecond.
		vi.spyOn(performance, "now").mockImplementation(() => clock++);
		const disk: Disk = {
			...nodeDisk(),
			*walk(folder) {
				open++;
				try {
					yield* nodeDisk().walk(folder);
				} finally {
					open--;
				}
			},
		};
		const lock = manualLock();
		const giveUp = pruneInSlices({ ...at(peer.address), disk }, lock.whileAlone, fail, () => fail("done"));
		lock.give();
		for (let slices = 0; slices < 4; slices++) vi.advanceTimersToNextTimer();
		const left = inRoot().length;
		expect(left).toBeGreaterThan(0);
		expect(left).toBeLessThan(20);
		giveUp();
		await later(1000);
		expect([inRoot().length, lock.ended, open]).toEqual([left, 1, 0]);
	});
});

test("PSM-088 the schema of the settings allows what the settings allow", () => {
	const schema = JSON.parse(readFileSync(new URL("../../session-mail.schema.json", import.meta.url), "utf8"));
	expect(Object.keys(schema.properties).sort()).toEqual([
		"$schema",
		"durability",
		"hopLimit",
		"interruptCompletions",
		"interruptFrom",
		"pruneAfterDays",
		"shortcut",
		"toolPolicy",
		"wakeOn",
	]);
	expect(schema.required ?? []).toEqual([]);
});
