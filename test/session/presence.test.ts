import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import type { Processes } from "../../src/mail/process.ts";
import { openRunning } from "../../src/mail/running.ts";
import { createPresence } from "../../src/session/presence.ts";
import { bob, fail, startMs, temporaryFolder, watchedDisk } from "../support/disk.ts";

let root: string;
let running: Set<number>;
let warnings: string[];

beforeEach(() => {
	root = temporaryFolder();
	running = new Set([100, 200]);
	warnings = [];
});

/** The presence of Bob's session in a process. */
function presenceIn(pid: number, disk: Disk = nodeDisk(), namespace?: string) {
	const processes: Processes = {
		self: { pid, started: `${pid}`, boot: undefined, namespace },
		exists: (other) => running.has(other),
		startTokens: (pids) => new Map(pids.map((other) => [other, `${other}`])),
	};
	const sessions = openRunning({
		disk,
		root,
		processes,
		now: () => startMs,
		warn: (path, why) => warnings.push(path, why),
	});
	const fields = { name: "reviewer", cwd: "/work", state: "idle", waitingOn: "" } as const;
	return createPresence(sessions, bob, fields, (text) => warnings.push(text));
}

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

	test("PSM-025 is removed at the end, and stays for the same process after a /reload", () => {
		const presence = presenceIn(100);
		presence.isOwner();
		presence.end(true);
		expect(record().pid).toBe(100);
		const next = presenceIn(100);
		expect(next.isOwner()).toBe(true);
		next.end(false);
		next.end(false);
		expect(record).toThrow("ENOENT");
	});

	test("PSM-029 a session whose record cannot be written says so and has its mail all the same", () => {
		const presence = presenceIn(
			100,
			watchedDisk(({ name, paths }) => name === "create" && paths[0]?.includes("running") && fail("ENOSPC")),
		);
		expect(presence.isOwner()).toBe(true);
		presence.update({ state: "busy" });
		expect(warnings).toEqual([expect.stringMatching(/^could not write this session's running record: ENOSPC/)]);
	});
});

describe("D7 a second process with the same session", () => {
	test("says who receives its mail, leaves the record alone, and takes over when that process ends", () => {
		const [first, second] = [presenceIn(100), presenceIn(200)];
		first.isOwner();
		expect(second.isOwner()).toBe(false);
		expect(warnings).toEqual([
			expect.stringMatching(/^process 100 has this session open as well and receives its mail/),
		]);
		second.update({ state: "busy", name: "critic" });
		second.end(false);
		expect(record()).toMatchObject({ pid: 100, state: "idle", name: "reviewer" });

		running.delete(100);
		expect(second.isOwner()).toBe(true);
		expect(record()).toMatchObject({ pid: 200, state: "busy", name: "critic" });
		expect(first.isOwner()).toBe(false);
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
		first.end(false);
		expect(record()).toMatchObject({ pid: 200, state: "idle" });
		expect(first.isOwner()).toBe(false);
	});

	test("a record that somebody deleted is ours still, and is made again at the next change", () => {
		const presence = presenceIn(100);
		presence.isOwner();
		rmSync(file());
		expect(presence.isOwner()).toBe(true);
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
