import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { boxesOf, makeBoxes } from "../../src/mail/boxes.ts";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import type { Processes } from "../../src/mail/process.ts";
import { prune } from "../../src/mail/prune.ts";
import { openRunning } from "../../src/mail/running.ts";
import { createPresence } from "../../src/session/presence.ts";
import { alice, bob, fail, type Operation, startMs, temporaryFolder, watchedDisk } from "../support/disk.ts";

let root: string;
let running: Set<number>;
let warnings: string[];

beforeEach(() => {
	root = temporaryFolder();
	running = new Set([100, 200, 250]);
	warnings = [];
});

/** The running sessions as a process sees them. */
function sessionsIn(pid: number, disk: Disk = nodeDisk(), namespace?: string) {
	const processes: Processes = {
		self: { pid, started: `${pid}`, boot: undefined, namespace },
		exists: (other) => running.has(other),
		startTokens: (pids) => new Map(pids.map((other) => [other, `${other}`])),
	};
	return openRunning({
		disk,
		root,
		processes,
		now: () => startMs,
		warn: (path, why) => warnings.push(path, why),
	});
}

/** The presence of Bob's session in a process. */
function presenceIn(pid: number, disk: Disk = nodeDisk(), namespace?: string) {
	const fields = { name: "reviewer", cwd: "/work", state: "idle", waitingOn: "" } as const;
	return createPresence(sessionsIn(pid, disk, namespace), bob, fields, (text) => warnings.push(text));
}

const mailboxFolder = () => {
	const boxes = boxesOf(root, bob);
	makeBoxes(nodeDisk(), boxes);
	return boxes;
};

const pruning = () => ({ disk: nodeDisk(), root, self: alice, now: () => startMs, olderThanMs: undefined });

const file = () => join(root, "running", `${bob}.json`);
const record = () => JSON.parse(readFileSync(file(), "utf8"));

describe("a session's running record", () => {
	test("PSM-023/024 is written when its process takes the address, and rewritten when something changes", () => {
		const presence = presenceIn(100);
		presence.update({ name: "critic" });
		expect(presence.isOwner()).toBe(true);
		expect(record()).toMatchObject({ address: bob, name: "critic", cwd: "/work", pid: 100, state: "idle" });
		presence.update({ state: "busy" });
		presence.update({ waitingOn: "alice" });
		expect(record()).toMatchObject({ name: "critic", state: "busy", waitingOn: "alice" });
		presence.update({ name: undefined });
		expect(record()).not.toHaveProperty("name");
		expect(warnings).toEqual([]);
	});

	test("L10 is not rewritten to say what it says already, until somebody has removed it", () => {
		let writes = 0;
		const counted = watchedDisk(({ name }) => void (["replace", "link"].includes(name) && writes++));
		const presence = presenceIn(100, counted);
		presence.isOwner();
		const wakeOn = () => ({ wakeOn: { kinds: ["ask" as const] }, ticket: undefined });
		for (let time = 0; time < 2; time++) presence.update(wakeOn());
		expect([writes, record().x.wakeOn]).toEqual([2, { kinds: ["ask"] }]);
		rmSync(file());
		presence.isOwner();
		expect([writes, record().x.wakeOn]).toEqual([3, { kinds: ["ask"] }]);
	});

	test("PSM-025 is removed at the end, and stays for the same process after a /reload", () => {
		const presence = presenceIn(100);
		presence.isOwner();
		presence.end(true);
		presence.update({ state: "busy" });
		expect(record()).toMatchObject({ pid: 100, state: "idle" });
		const next = presenceIn(100);
		expect(next.isOwner()).toBe(true);
		next.end(false);
		next.end(false);
		next.update({ state: "busy" });
		expect(record).toThrow("ENOENT");
		expect(warnings).toEqual([]);
	});

	test("PSM-029 a session whose record cannot be written says so and has its mail all the same", () => {
		const presence = presenceIn(
			100,
			watchedDisk(({ name, paths }) => name === "create" && paths[0]?.includes("running") && fail("ENOSPC")),
		);
		expect(presence.isOwner()).toBe(true);
		presence.update({ state: "busy" });
		expect(warnings).toEqual([expect.stringMatching(/^could not write this session's running record: ENOSPC/)]);
		// It is no second process.
		expect(sessionsIn(300).hasStandby(mailboxFolder().folder)).toBe(false);
	});

	test("PSM-029 one that cannot be written any more is said as well, and written as soon as it can be", () => {
		let isFull = false;
		const presence = presenceIn(
			100,
			watchedDisk(({ paths }) => isFull && paths[0]?.includes("running") && fail("ENOSPC")),
		);
		presence.isOwner();
		isFull = true;
		presence.update({ state: "busy" });
		expect(warnings).toEqual([expect.stringMatching(/^could not write this session's running record: .*ENOSPC/)]);
		isFull = false;
		presence.update({ waitingOn: "" });
		expect(record()).toMatchObject({ state: "busy" });
	});
});

describe("D7 a second process with the same session", () => {
	test("says who receives its mail, leaves the record alone, and takes over when that process ends", () => {
		const [first, second] = [presenceIn(100), presenceIn(200)];
		first.isOwner();
		expect(second.isOwner()).toBe(false);
		expect(warnings).toEqual([
			"process 100 has this session open as well and receives its mail; this one can only send until that one ends",
		]);
		second.update({ state: "busy", name: "critic" });
		second.end(false);
		expect(record()).toMatchObject({ pid: 100, state: "idle", name: "reviewer" });

		running.delete(100);
		expect(second.isOwner()).toBe(true);
		expect(record()).toMatchObject({ pid: 200, state: "busy", name: "critic" });
		expect(first.isOwner()).toBe(false);
	});

	test("L1 D26 is not taken for closed when the first is killed at any moment of its start: its mailbox is not pruned", () => {
		let kept = 0;
		for (let n = 1; n <= 25; n++) {
			[root, running] = [temporaryFolder(), new Set([100, 200])];
			const copy = join(mailboxFolder().sent, "a-copy.json");
			writeFileSync(copy, "");
			presenceIn(100).isOwner();
			const pruneFromThenOn = ({ n: at }: Operation) => {
				if (at < n) return;
				running.delete(100);
				for (const _step of prune({ ...pruning(), running: sessionsIn(300) }));
			};
			const second = presenceIn(200, watchedDisk(pruneFromThenOn));
			// One that finds itself the owner started after the other had ended.
			if (second.isOwner()) continue;
			kept++;
			const takesOver = [1, 2, 3, 4].some(() => second.isOwner());
			expect([takesOver, existsSync(copy)], `killed before operation ${n}`).toEqual([true, true]);
		}
		expect(kept).toBeGreaterThan(3);
	});

	test("L1 D26 is not taken for closed by a pass of pruning that it comes in between when it takes over", () => {
		for (let n = 1; n <= 15; n++) {
			[root, running] = [temporaryFolder(), new Set([100, 200])];
			const copy = join(mailboxFolder().sent, "a-copy.json");
			writeFileSync(copy, "");
			const [first, second] = [presenceIn(100), presenceIn(200)];
			for (const presence of [first, second]) presence.isOwner();
			running.delete(100);
			const disk = watchedDisk((operation) => operation.n === n && void second.isOwner());
			for (const _step of prune({ ...pruning(), disk, running: sessionsIn(300, disk) }));
			expect(existsSync(copy), `before operation ${n}`).toBe(true);
			expect(second.isOwner()).toBe(true);
		}
	});

	test("D26 is no longer taken for open when it has ended, whether it was killed or not", () => {
		const folder = mailboxFolder().folder;
		presenceIn(100).isOwner();
		const [second, third] = [presenceIn(200), presenceIn(250)];
		for (const presence of [second, third]) presence.isOwner();
		expect(sessionsIn(300).hasStandby(folder)).toBe(true);
		second.end(true);
		expect(sessionsIn(300).hasStandby(folder)).toBe(true);
		running.delete(250);
		expect(sessionsIn(300).hasStandby(folder)).toBe(false);
		// The next one clears the sign of the one that was killed, and its own when it takes over.
		const fourth = presenceIn(200);
		fourth.isOwner();
		expect(readdirSync(join(folder, "standby")).length).toBe(1);
		running.delete(100);
		expect(fourth.isOwner()).toBe(true);
		expect(readdirSync(join(folder, "standby"))).toEqual([]);
	});

	test.each<[string, (standby: string) => void]>([
		["nothing", () => {}],
		["a file", (standby) => writeFileSync(standby, "")],
		["a folder without records", (standby) => mkdirSync(join(standby, "a.json"), { recursive: true })],
		[
			"a file that is no record",
			(standby) => {
				mkdirSync(standby);
				writeFileSync(join(standby, "a.json"), "{");
			},
		],
	])("D26 nobody is taken for one where there is %s", (_, lay) => {
		const { folder } = mailboxFolder();
		lay(join(folder, "standby"));
		expect(sessionsIn(300).hasStandby(folder)).toBe(false);
	});

	test("L2 leaves its sign anew when its mailbox folder was away, and otherwise once", () => {
		presenceIn(100).isOwner();
		const second = presenceIn(200);
		second.isOwner();
		second.isOwner();
		expect(readdirSync(join(mailboxFolder().folder, "standby"))).toHaveLength(1);
		expect(warnings.join("\n")).not.toMatch(/could not be written/);
		rmSync(mailboxFolder().folder, { recursive: true });
		second.isOwner();
		expect(sessionsIn(300).hasStandby(mailboxFolder().folder)).toBe(true);
	});

	test("PSM-029 whose sign cannot be written says so, and sends all the same", () => {
		presenceIn(100).isOwner();
		const disk = watchedDisk(({ name, paths }) => name === "create" && paths[0]?.includes("standby") && fail("ENOSPC"));
		expect(presenceIn(200, disk).isOwner()).toBe(false);
		expect(warnings.join("\n")).toMatch(/standby.*could not be written: ENOSPC/s);
	});

	test("D26 whose sign was written though the disk said no takes it away at its end all the same", () => {
		presenceIn(100).isOwner();
		const disk = nodeDisk();
		const create: Disk["create"] = (path, ...rest) => {
			disk.create(path, ...rest);
			if (path.includes("standby")) fail("EIO");
		};
		const second = presenceIn(200, { ...disk, create });
		second.isOwner();
		expect(sessionsIn(300).hasStandby(mailboxFolder().folder)).toBe(true);
		second.end(false);
		expect(sessionsIn(300).hasStandby(mailboxFolder().folder)).toBe(false);
	});

	test("D26 takes over also when its sign cannot be taken away then, and takes it away at its end", () => {
		presenceIn(100).isOwner();
		let isBroken = true;
		const disk = watchedDisk(
			({ name, paths }) => isBroken && name === "remove" && paths[0]?.includes("standby") && fail("EIO"),
		);
		const second = presenceIn(200, disk);
		second.isOwner();
		running.delete(100);
		expect(second.isOwner()).toBe(true);
		expect(warnings.join("\n")).toMatch(/standby.*EIO/s);
		isBroken = false;
		second.end(false);
		expect(sessionsIn(300).hasStandby(mailboxFolder().folder)).toBe(false);
	});

	test("L4 of a process in another container it says how to go on when that one has ended, which cannot be seen from here", () => {
		presenceIn(100, nodeDisk(), "pid:[1]").isOwner();
		running.delete(100);
		const second = presenceIn(200, nodeDisk(), "pid:[2]");
		expect(second.isOwner()).toBe(false);
		expect(warnings).toEqual([
			`process 100 has this session open as well and receives its mail; this one can only send; it runs in another container. If it has ended, remove running/${bob}.json in the mail root`,
		]);
		rmSync(file());
		expect(second.isOwner()).toBe(true);
		expect(record()).toMatchObject({ pid: 200 });
	});

	test("an owner that lost the address hears of it, and no longer changes or removes the record", () => {
		const first = presenceIn(100);
		first.isOwner();
		rmSync(file());
		presenceIn(200).isOwner();
		first.update({ state: "busy" });
		expect(warnings).toEqual([]);
		first.end(false);
		expect(record()).toMatchObject({ pid: 200, state: "idle" });
		expect(first.isOwner()).toBe(false);
	});

	test("a record that somebody deleted is ours still, and is made again at the next look or change", () => {
		const presence = presenceIn(100);
		presence.isOwner();
		rmSync(file());
		expect(presence.isOwner()).toBe(true);
		expect(record().pid).toBe(100);
		rmSync(file());
		presence.update({ state: "busy" });
		expect(record().state).toBe("busy");
	});

	test("one that is no record does not stop a session", () => {
		presenceIn(100).isOwner();
		writeFileSync(file(), "");
		expect(presenceIn(200).isOwner()).toBe(true);
		expect(record().pid).toBe(200);
	});
});
