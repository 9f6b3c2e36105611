import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
	existsSync,
	mkdirSync,
	mkdtempSync,
	readdirSync,
	readFileSync,
	renameSync,
	rmSync,
	statSync,
	symlinkSync,
	truncateSync,
	unlinkSync,
	writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { endedToken, type Processes, type SelfProcess } from "../../src/mail/process.ts";
import { type OwnRecord, openRunning, type SessionFields } from "../../src/mail/running.ts";
import { judge, maxRecordBytes, parseRecord } from "../../src/mail/running-record.ts";

const address = "01980f5e-7a3c-7d10-8f00-000000000001";
const other = "01980f5e-7a3c-7d10-8f00-000000000002";
const fields: SessionFields = { cwd: "/work", state: "idle", waitingOn: "" };
const self: SelfProcess = { pid: 100, started: "5000", boot: "boot-a", namespace: "pid:[1]" };
const minuteMs = 60_000;
const startMs = Date.parse("2026-11-29T12:00:00.000Z");

let root: string;
let clockMs: number;
let warnings: [path: string, reason: string][];

beforeEach(() => {
	root = mkdtempSync(join(tmpdir(), "running-"));
	clockMs = startMs;
	warnings = [];
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

/** Processes 100 (this one), 200 and 300 run; 900 does not. */
function processesOf(me: SelfProcess = self, tokens: Record<number, string | undefined> = {}) {
	const running: Record<number, string | undefined> = { 100: "5000", 200: "6000", 300: "7000", ...tokens };
	const asked: number[][] = [];
	const processes: Processes = {
		self: me,
		exists: (pid) => pid in running,
		startTokens(pids) {
			asked.push([...pids]);
			const known = pids.flatMap((pid): [number, string][] => {
				const token = running[pid];
				return token === undefined ? [] : [[pid, token]];
			});
			return new Map(known);
		},
	};
	return { processes, asked };
}

function open(disk: Disk = nodeDisk(), processes: Processes = processesOf().processes) {
	return openRunning({
		disk,
		root,
		processes,
		now: () => clockMs,
		warn: (path, reason) => warnings.push([path, reason]),
	});
}

const inFolder = (name: string) => join(root, "running", name);
const pathOf = (id: string) => inFolder(`${id}.json`);
const namesThere = () => readdirSync(join(root, "running")).sort();

/** A record as an older copy of the package writes it, with some fields changed. */
function recordText(changed: Record<string, unknown> = {}): string {
	return JSON.stringify({
		address: other,
		cwd: "/other",
		pid: 200,
		state: "busy",
		waitingOn: "",
		updated: "2026-11-29T11:00:00.000Z",
		started: "6000",
		...changed,
	});
}

function lay(name: string, content: string | Buffer): string {
	mkdirSync(join(root, "running"), { recursive: true });
	writeFileSync(inFolder(name), content);
	return inFolder(name);
}

function layRecord(changed: Record<string, unknown> = {}): string {
	return lay(`${String(changed.address ?? other)}.json`, recordText(changed));
}

function onDisk(id: string) {
	const parsed = parseRecord(readFileSync(pathOf(id), "utf8"));
	if (!parsed.ok) throw new Error(parsed.reason);
	return parsed.record;
}

function owned(running = open(), id = address, first = fields): OwnRecord {
	const outcome = running.own(id, first);
	if (!outcome.ok) throw new Error(outcome.message);
	return outcome.record;
}

describe("the file", () => {
	test("PSM-023 holds the fields that older copies read, the newer ones under x; file 0600, folder 0700", () => {
		const running = open();
		owned(running, address, { ...fields, name: "reviewer", waitingOn: other, accepts: ["control"], ticket: 7 });
		expect(JSON.parse(readFileSync(pathOf(address), "utf8"))).toEqual({
			address,
			name: "reviewer",
			cwd: "/work",
			pid: 100,
			state: "idle",
			waitingOn: other,
			updated: "2026-11-29T12:00:00.000Z",
			started: "5000",
			x: {
				boot: "boot-a",
				namespace: "pid:[1]",
				instance: expect.stringMatching(/^[a-z0-9]{16}$/),
				accepts: ["control"],
				ticket: 7,
			},
		});
		expect(statSync(pathOf(address)).mode & 0o777).toBe(0o600);
		expect(statSync(join(root, "running")).mode & 0o777).toBe(0o700);
		expect(namesThere()).toEqual([`${address}.json`]);
		expect(running.find(address)).toMatchObject({ name: "reviewer", x: { accepts: ["control"], ticket: 7 } });
	});

	test("PSM-023 has no name while none is set, and none after it was taken away", () => {
		const record = owned(open(), address, { ...fields, name: "" });
		expect(JSON.parse(readFileSync(pathOf(address), "utf8"))).not.toHaveProperty("name");
		record.update({ name: "reviewer" });
		expect(onDisk(address).name).toBe("reviewer");
		record.update({ name: undefined });
		expect(JSON.parse(readFileSync(pathOf(address), "utf8"))).not.toHaveProperty("name");
	});

	test("PSM-023 of a session with a megabyte of name and directory is still one that readers accept", () => {
		const running = open();
		owned(running, address, { ...fields, name: "\u0000".repeat(1_000_000), cwd: "\ud800".repeat(1_000_000) });
		expect(running.find(address)).toMatchObject({ address });
		expect(warnings).toEqual([]);
	});

	test("PSM-023 keeps hostile names below the size limit usable, as they are", () => {
		const name = `a\n[mailbox] From you${"x".repeat(50_000)}`;
		layRecord({ name, cwd: "\u001b[2J\n" });
		expect(open().list()).toMatchObject([{ address: other, name, cwd: "\u001b[2J\n" }]);
	});

	test("PSM-023 D22 the address is a UUID in lower case, and the file is named after it", () => {
		const running = open();
		owned(running, address.toUpperCase());
		expect(namesThere()).toEqual([`${address}.json`]);
		expect(running.find(address.toUpperCase())).toMatchObject({ address });
	});

	test.each(["../escape", "running", "a/b", "", ".", "x".repeat(129)])(
		"D22 what cannot be an address gets no record and is not found: %j",
		(id) => {
			expect(open().own(id, fields)).toMatchObject({ ok: false, code: "unwritable" });
			expect(open().find(id)).toBeUndefined();
			expect(readdirSync(root)).toEqual([]);
		},
	);

	test.each([
		["", "it is empty"],
		["  \n", "it is empty"],
		["{", "it is not JSON"],
		["\0\0\0", "it is not JSON"],
		["[]", "it is not a JSON object"],
		["null", "it is not a JSON object"],
		["7", "it is not a JSON object"],
		["{}", "address is missing or invalid"],
		[recordText({ pid: "200" }), "pid is missing or invalid"],
		[recordText({ pid: 1.5 }), "pid is missing or invalid"],
		[recordText({ state: "asleep" }), "state is missing or invalid"],
		[recordText({ name: 5 }), "name is missing or invalid"],
		[recordText({ cwd: undefined }), "cwd is missing or invalid"],
		[recordText({ address: "running" }), "address is missing or invalid"],
		[recordText({ x: { boot: 5 } }), "x.boot is missing or invalid"],
	])("PSM-023 D9 a text that is no record says why: %j", (text, reason) => {
		expect(parseRecord(text)).toEqual({ ok: false, reason });
	});

	test("PSM-023 D1 a record of an older copy, or with fields that nobody knows, is read", () => {
		const parsed = parseRecord(recordText({ waitingOn: undefined, started: undefined, future: { a: 1 } }));
		expect(parsed).toMatchObject({ ok: true, record: { address: other, waitingOn: "", x: {} } });
		expect(parseRecord(recordText({ x: { lease: 9, boot: "b" } }))).toMatchObject({ record: { x: { boot: "b" } } });
	});
});

describe("the judgement", () => {
	const there = { exists: true, started: "6000" };
	const judged = (
		changed: Record<string, unknown>,
		found: { exists: boolean; started: string | undefined } = there,
	) => {
		const parsed = parseRecord(recordText(changed));
		if (!parsed.ok) throw new Error(parsed.reason);
		return judge(parsed.record, self, found);
	};
	const x = { boot: "boot-a", namespace: "pid:[1]" };

	test("PSM-026 a record whose process does not exist counts as gone", () => {
		expect(judged({}, { exists: false, started: undefined })).toBe("gone");
		expect(judged({ x }, { exists: false, started: undefined })).toBe("gone");
	});
	test("PSM-026 a record whose process has ended, though its parent has not noticed, counts as gone", () => {
		expect(judged({}, { exists: true, started: endedToken })).toBe("gone");
		expect(judged({ started: undefined }, { exists: true, started: endedToken })).toBe("gone");
	});
	test("PSM-027 a record whose start token differs counts as gone", () => {
		expect(judged({ started: "5999" })).toBe("gone");
		expect(judged({ x })).toBe("running");
	});
	test("PSM-027 a record without a token is judged by its pid alone", () => {
		expect(judged({ started: undefined })).toBe("running");
	});
	test("PSM-027 where start times cannot be read, the pid alone decides", () => {
		expect(judged({}, { exists: true, started: undefined })).toBe("running");
	});
	test("D7 a record of another boot counts as gone, whatever its pid and namespace", () => {
		expect(judged({ x: { ...x, boot: "boot-b" } })).toBe("gone");
		expect(judged({ x: { boot: "boot-b", namespace: "pid:[2]" } })).toBe("gone");
	});
	test("D7 a record of this boot in another pid namespace cannot be judged, also when its pid does not exist here", () => {
		expect(judged({ x: { ...x, namespace: "pid:[2]" } })).toBe("unknown");
		expect(judged({ x: { ...x, namespace: "pid:[2]" } }, { exists: false, started: undefined })).toBe("unknown");
	});
	test("D7 a process that knows neither its boot nor its namespace cannot judge a record that names them", () => {
		const parsed = parseRecord(recordText({ x }));
		const blind = { ...self, boot: undefined, namespace: undefined };
		expect(parsed.ok && judge(parsed.record, blind, { exists: false, started: undefined })).toBe("unknown");
	});
});

describe("the list", () => {
	test("PSM-023 is empty without a folder or a root, and makes neither", () => {
		expect(open().list()).toEqual([]);
		expect(open().find(address)).toBeUndefined();
		expect(readdirSync(root)).toEqual([]);
		rmSync(root, { recursive: true });
		expect(open().list()).toEqual([]);
		expect(existsSync(root)).toBe(false);
		expect(warnings).toEqual([]);
	});

	test("PSM-026 has all that run or cannot be judged, sorted by name and then address, and asks for tokens once", () => {
		layRecord({ address: "cc", name: "beta" });
		layRecord({ address: "dd", name: "alpha", pid: 300, started: "7000" });
		layRecord({ address: "bb" });
		layRecord({ address: "aa", name: "beta", x: { boot: "boot-a", namespace: "pid:[2]" }, pid: 900 });
		layRecord({ address: "ee", pid: 900 });
		const { processes, asked } = processesOf();
		const list = open(nodeDisk(), processes).list();
		expect(list.map((session) => [session.address, session.judgement])).toEqual([
			["bb", "running"],
			["dd", "running"],
			["aa", "unknown"],
			["cc", "running"],
		]);
		expect(asked.map((pids) => pids.sort())).toEqual([[200, 300]]);
	});

	test("PSM-026 PSM-027 records of gone processes are deleted by the reader, those that cannot be judged are not", () => {
		layRecord({ address: "dead", pid: 900 });
		layRecord({ address: "impossible", pid: -1 });
		layRecord({ address: "reused", started: "1" });
		layRecord({ address: "rebooted", x: { boot: "boot-b" } });
		layRecord({ address: "elsewhere", pid: 900, x: { boot: "boot-a", namespace: "pid:[2]" } });
		expect(open().list()).toMatchObject([{ address: "elsewhere", judgement: "unknown" }]);
		expect(namesThere()).toEqual(["elsewhere.json"]);
		expect(warnings).toEqual([]);
	});

	test("PSM-026 a record of a gone process is deleted when it is looked up by its address, and no folder is listed", () => {
		const disk: Disk = {
			...nodeDisk(),
			list: () => {
				throw new Error("listed");
			},
		};
		layRecord({ address: "dead", pid: 900 });
		layRecord();
		expect(open(disk).find("dead")).toBeUndefined();
		expect(open(disk).find(other)).toMatchObject({ address: other, state: "busy", judgement: "running" });
		expect(namesThere()).toEqual([`${other}.json`]);
	});

	test("D9 files that are no records are skipped, left alone, and named once each with the reason", () => {
		layRecord();
		lay("empty.json", "");
		lay("text.json", "hello");
		lay("array.json", "[1]");
		lay("types.json", recordText({ address: "types", pid: "x" }));
		lay("forged.json", recordText({ address: "another" }));
		lay("bytes.json", Buffer.from([0xff, 0xfe, 0x80]));
		lay("not an address.json", recordText());
		lay(`${address.toUpperCase()}.json`, recordText({ address }));
		truncateSync(lay("huge.json", ""), maxRecordBytes + 1);
		mkdirSync(inFolder("folder.json"));
		symlinkSync(pathOf(other), inFolder("link.json"));
		symlinkSync("/nowhere", inFolder("dangling.json"));
		execFileSync("/usr/bin/mkfifo", [inFolder("fifo.json")]);
		lay(".hidden.json", "hello");
		lay("notes.txt", "hello");
		const before = namesThere();

		const running = open();
		expect(running.list()).toMatchObject([{ address: other }]);
		expect(running.list()).toHaveLength(1);
		const reasons = new Map(warnings.map(([path, reason]) => [path.slice(inFolder("x").length - 1), reason]));
		expect([...reasons.keys()].sort()).toEqual(
			[
				...["array", "bytes", "dangling", "empty", "fifo", "folder", "forged", "huge", "link", "not an address"],
				...["text", "types", address.toUpperCase()],
			]
				.map((name) => `${name}.json`)
				.sort(),
		);
		expect(warnings).toHaveLength(reasons.size);
		for (const [name, reason] of reasons) expect(reason, name).toMatch(/^[^\n]+$/);
		expect(reasons.get("huge.json")).toContain("65537 bytes");
		expect(reasons.get("fifo.json")).toBe("it is not a regular file");
		expect(reasons.get("forged.json")).toBe("it is the record of another");
		expect(namesThere()).toEqual(before);
		for (const name of ["empty", "huge", "folder", "link", "fifo", "forged"])
			expect(running.find(name)).toBeUndefined();
		expect(warnings).toHaveLength(reasons.size);
	});

	test("D9 a record that may not be read is skipped and named; so is a folder that may not be listed", () => {
		layRecord();
		layRecord({ address: "closed" });
		const refuse = (path: string): never => {
			throw Object.assign(new Error(`EACCES: permission denied, open '${path}'`), { code: "EACCES" });
		};
		const real = nodeDisk();
		const disk: Disk = {
			...real,
			read: (path, maxBytes) => (path === pathOf("closed") ? refuse(path) : real.read(path, maxBytes)),
		};
		expect(open(disk).list()).toMatchObject([{ address: other }]);
		expect(warnings).toEqual([[pathOf("closed"), expect.stringContaining("EACCES")]]);
		expect(open({ ...real, list: refuse }).list()).toEqual([]);
		expect(warnings).toHaveLength(2);
	});

	test("D9 something else than a folder where the records should be is an empty list, and named", () => {
		writeFileSync(join(root, "running"), "");
		const running = open();
		expect(running.list()).toEqual([]);
		expect(running.list()).toEqual([]);
		expect(warnings).toEqual([[join(root, "running"), expect.stringContaining("is not a folder")]]);
		expect(running.own(address, fields)).toMatchObject({
			ok: false,
			code: "unwritable",
			message: expect.stringContaining(join(root, "running")),
		});
	});

	test("D9 a dead record that cannot be removed is not listed, and is named once", () => {
		layRecord({ pid: 900 });
		const disk: Disk = {
			...nodeDisk(),
			rename: () => {
				throw Object.assign(new Error("EROFS: read-only file system"), { code: "EROFS" });
			},
		};
		const running = open(disk);
		expect(running.list()).toEqual([]);
		expect(running.list()).toEqual([]);
		expect(running.find(other)).toBeUndefined();
		expect(warnings).toEqual([[pathOf(other), expect.stringContaining("EROFS")]]);
	});
});

describe("D7 whether a session may run", () => {
	test("one whose record cannot be read may, whoever prunes must not take it for closed", () => {
		layRecord({ address: "seen" });
		expect(open().mayRun("seen")).toBe(true);
		const disk = nodeDisk();
		let reads = 0;
		const failing = (times: number): Disk => ({
			...disk,
			read(path, maxBytes) {
				if (++reads <= times) throw Object.assign(new Error("EIO: i/o error"), { code: "EIO" });
				return disk.read(path, maxBytes);
			},
		});
		for (const times of [1, 2, 100]) {
			reads = 0;
			expect(open(failing(times)).mayRun("seen")).toBe(true);
		}
	});

	test("one without a record, or with what is none, does not", () => {
		expect(open().mayRun("nobody")).toBe(false);
		expect(open().mayRun("../nobody")).toBe(false);
		lay("rubbish.json", "");
		expect(open().mayRun("rubbish")).toBe(false);
	});
});

describe("removing a dead record", () => {
	/** A disk on which something happens right before a rename. */
	function beforeRename(action: () => void): Disk {
		const real = nodeDisk();
		return {
			...real,
			rename(from, to) {
				action();
				real.rename(from, to);
			},
		};
	}

	test("D7 a newer record that took its place is put back", () => {
		layRecord({ pid: 900 });
		open(beforeRename(() => layRecord({ pid: 300, started: "7000" }))).list();
		expect(namesThere()).toEqual([`${other}.json`]);
		expect(onDisk(other).pid).toBe(300);
	});

	test("D7 what cannot be read and took its place is put back", () => {
		const path = layRecord({ pid: 900 });
		open(beforeRename(() => truncateSync(path, maxRecordBytes + 1))).list();
		expect(namesThere()).toEqual([`${other}.json`]);
	});

	test("D7 another reader that removed it first is no error", () => {
		const path = layRecord({ pid: 900 });
		expect(open(beforeRename(() => unlinkSync(path))).list()).toEqual([]);
		expect(namesThere()).toEqual([]);
		expect(warnings).toEqual([]);
	});

	test("D7 a still newer record that came while one was aside stays, and the one aside goes", () => {
		const real = nodeDisk();
		layRecord({ pid: 900 });
		const disk: Disk = {
			...real,
			rename(from, to) {
				layRecord({ pid: 300, started: "7000", name: "first" });
				real.rename(from, to);
				layRecord({ pid: 300, started: "7000", name: "second" });
			},
		};
		open(disk).list();
		expect(namesThere()).toEqual([`${other}.json`]);
		expect(onDisk(other).name).toBe("second");
	});

	test("D7 a record that changed since it was judged is not touched", () => {
		const { processes } = processesOf();
		layRecord({ pid: 900 });
		const rejudged: Processes = {
			...processes,
			startTokens(pids) {
				layRecord({ pid: 300, started: "7000" });
				return processes.startTokens(pids);
			},
		};
		const renamed: string[] = [];
		open({ ...nodeDisk(), rename: (from) => renamed.push(from) }, rejudged).list();
		expect(renamed).toEqual([]);
		expect(onDisk(other).pid).toBe(300);
	});

	test("D7 records that a crashed reader left aside are put back or removed after some minutes", () => {
		const aside = (id: string, changed: Record<string, unknown>) =>
			lay(`.gone-${startMs}-${id}`, recordText({ address: id, ...changed }));
		aside("alive", {});
		aside("dead", { pid: 900 });
		aside("newer", { name: "old" });
		layRecord({ address: "newer", name: "new" });
		lay(`.gone-${startMs}-rubbish`, "");
		lay(".gone-unknown", "");
		const running = open();

		clockMs += 4 * minuteMs;
		expect(running.list()).toMatchObject([{ address: "newer" }]);
		expect(namesThere()).toHaveLength(6);

		clockMs += 2 * minuteMs;
		running.list();
		expect(running.list()).toMatchObject([{ address: "alive" }, { address: "newer", name: "new" }]);
		expect(namesThere()).toEqual([".gone-unknown", "alive.json", "newer.json"]);
		expect(warnings).toEqual([]);
	});

	test("D7 a record that was left aside does not replace a newer one where links do not work", () => {
		lay(`.gone-${startMs}-old`, recordText({ name: "old" }));
		layRecord({ name: "new" });
		clockMs += 6 * minuteMs;
		const link = () => {
			throw Object.assign(new Error("EPERM: operation not permitted, link"), { code: "EPERM" });
		};
		expect(open({ ...nodeDisk(), link }).list()).toMatchObject([{ name: "new" }]);
		expect([namesThere(), warnings]).toEqual([[`${other}.json`], []]);
	});

	test("D15 files that crashed writers left are removed: after 36 hours, or when their session does not run", () => {
		layRecord();
		lay(`.${startMs}-abc.tmp`, "");
		lay(`${other}.json.12345`, "");
		lay("ended.json.12345", "");
		const running = open();
		running.list();
		expect(namesThere()).toEqual([`.${startMs}-abc.tmp`, `${other}.json`, `${other}.json.12345`]);
		clockMs += 37 * 60 * minuteMs;
		running.list();
		expect(namesThere()).toEqual([`${other}.json`, `${other}.json.12345`]);
	});
});

describe("owning an address", () => {
	const neighbour: SelfProcess = { ...self, pid: 200, started: "6000" };

	test("D7 a second process is told who has it, and changes nothing", () => {
		owned();
		const before = readFileSync(pathOf(address), "utf8");
		const outcome = open(nodeDisk(), processesOf(neighbour).processes).own(address, { ...fields, name: "thief" });
		expect(outcome).toMatchObject({ ok: false, code: "held", holder: { pid: 100 } });
		expect(!outcome.ok && outcome.message).toBe("process 100 has this session's running record");
		expect(readFileSync(pathOf(address), "utf8")).toBe(before);
		expect(namesThere()).toEqual([`${address}.json`]);
	});

	test("D7 a record in another pid namespace is somebody's", () => {
		layRecord({ address, pid: 900, x: { boot: "boot-a", namespace: "pid:[2]", instance: "i" } });
		expect(open().own(address, fields)).toMatchObject({ ok: false, code: "held" });
		layRecord({ address, pid: 100, started: "5000", x: { boot: "boot-a", namespace: "pid:[2]", instance: "i" } });
		expect(open().own(address, fields)).toMatchObject({ ok: false, code: "held" });
	});

	test.each([
		["of a process that is gone", recordText({ address, pid: 900 })],
		["of another boot", recordText({ address, x: { boot: "boot-b" } })],
		["of a process that got this one's pid before", recordText({ address, pid: 100, started: "1" })],
		["that a power cut left empty", ""],
		["that is not JSON", "\0\0\0\0"],
		["that belongs to another address", recordText()],
	])("D7 a record %s is replaced", (_, text) => {
		lay(`${address}.json`, text);
		owned();
		expect(onDisk(address)).toMatchObject({ address, pid: 100 });
		expect(namesThere()).toEqual([`${address}.json`]);
	});

	test("D7 after a /reload the record is taken over, and the instance before it has lost it", () => {
		const before = owned();
		const oldInstance = onDisk(address).x.instance;
		const after = owned(open(), address, { ...fields, name: "reloaded" });
		expect(onDisk(address)).toMatchObject({ name: "reloaded", pid: 100 });
		expect(onDisk(address).x.instance).not.toBe(oldInstance);
		expect([before.isOwner(), after.isOwner()]).toEqual([false, true]);
		before.release();
		expect(after.update({ state: "busy" })).toEqual({ ok: true });
	});

	test("D7 the record that an older copy in this process left is taken over", () => {
		layRecord({ address, pid: 100, started: "5000" });
		owned();
		expect(onDisk(address).x.instance).toBeDefined();
	});

	test("PSM-024 an update writes what changed, the time, and keeps the rest", () => {
		const record = owned(open(), address, { ...fields, name: "reviewer" });
		clockMs += minuteMs;
		expect(record.update({ state: "busy", waitingOn: other })).toEqual({ ok: true });
		expect(onDisk(address)).toMatchObject({
			name: "reviewer",
			state: "busy",
			waitingOn: other,
			updated: "2026-11-29T12:01:00.000Z",
		});
		record.update({ waitingOn: "" });
		expect(onDisk(address)).toMatchObject({ state: "busy", waitingOn: "" });
		expect(statSync(pathOf(address)).mode & 0o777).toBe(0o600);
		expect(namesThere()).toEqual([`${address}.json`]);
	});

	test("D7 an update makes the record again when it or its folder was deleted; until then it is still owned", () => {
		const record = owned();
		const instance = onDisk(address).x.instance;
		for (const path of [pathOf(address), join(root, "running")]) {
			expect(record.isMissing()).toBe(false);
			rmSync(path, { recursive: true });
			expect([record.isOwner(), record.isMissing()]).toEqual([true, true]);
			expect(record.update({ state: "busy" })).toEqual({ ok: true });
			expect(onDisk(address)).toMatchObject({ state: "busy", x: { instance } });
		}
		renameSync(root, `${root}.aside`);
		const message = `the mail root ${root} is missing`;
		expect([record.isOwner(), record.update({})]).toEqual([true, { ok: false, code: "unwritable", message }]);
		expect(existsSync(root)).toBe(false);
		renameSync(`${root}.aside`, root);
		writeFileSync(pathOf(address), "");
		expect([record.isOwner(), record.isMissing()]).toEqual([true, false]);
		expect(record.update({})).toEqual({ ok: true });
		expect(onDisk(address).x.instance).toBe(instance);
	});

	test.each([
		["another instance", { pid: 200, x: { instance: "theirs" } }],
		["an older copy of the package", { pid: 200 }],
		["another instance that is gone by now", { pid: 900, x: { instance: "theirs" } }],
	])(
		"D7 PSM-025 a record that %s wrote is never overwritten or removed, and the loss is said for good",
		(_, theirs) => {
			const record = owned();
			layRecord({ address, ...theirs });
			const before = readFileSync(pathOf(address), "utf8");
			expect(record.update({ state: "busy" })).toMatchObject({ ok: false, code: "held", holder: { pid: theirs.pid } });
			expect(readFileSync(pathOf(address), "utf8")).toBe(before);
			unlinkSync(pathOf(address));
			expect(record.update({})).toMatchObject({ ok: false });
			expect(record.isOwner()).toBe(false);
			expect(existsSync(pathOf(address))).toBe(false);
			layRecord({ address, ...theirs });
			record.release();
			expect(readFileSync(pathOf(address), "utf8")).toBe(before);
		},
	);

	test("D7 isOwner notices another's record before any update", () => {
		const record = owned();
		expect(record.isOwner()).toBe(true);
		layRecord({ address, pid: 200, x: { instance: "theirs" } });
		expect(record.isOwner()).toBe(false);
		unlinkSync(pathOf(address));
		expect(record.update({})).toMatchObject({ ok: false, code: "held" });
	});

	test("PSM-025 a release removes the record, and later updates do not bring it back", () => {
		const record = owned();
		record.release();
		expect(namesThere()).toEqual([]);
		expect(record.isOwner()).toBe(false);
		expect(record.update({ state: "busy" })).toMatchObject({ ok: false, code: "released" });
		record.release();
		expect(namesThere()).toEqual([]);
	});

	test("PSM-029 a record that cannot be written is a refusal with the reason, and a later write brings everything", () => {
		let isFull = true;
		const real = nodeDisk();
		const fail = () => {
			if (isFull) throw Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
		};
		const disk: Disk = {
			...real,
			create(...args) {
				fail();
				real.create(...args);
			},
			replace(...args) {
				fail();
				real.replace(...args);
			},
		};
		const running = open(disk);
		const refusal = { ok: false, code: "unwritable", message: "ENOSPC: no space left on device" };
		expect(running.own(address, fields)).toEqual(refusal);
		isFull = false;
		const record = owned(running);
		isFull = true;
		expect(record.update({ state: "busy" })).toEqual(refusal);
		expect(record.isOwner()).toBe(true);
		isFull = false;
		expect(record.update({ waitingOn: other })).toEqual({ ok: true });
		expect(onDisk(address)).toMatchObject({ state: "busy", waitingOn: other });
		expect(namesThere()).toEqual([`${address}.json`]);
	});

	test("PSM-029 what lies under the record's name and is no file is a refusal that names it", () => {
		mkdirSync(pathOf(address), { recursive: true });
		expect(open().own(address, fields)).toEqual({
			ok: false,
			code: "unwritable",
			message: `${pathOf(address)}: it is not a regular file`,
		});
	});

	test("L10 a name that others take and leave all the time is given up", () => {
		const link = () => {
			throw Object.assign(new Error("EEXIST: file already exists, link"), { code: "EEXIST" });
		};
		expect(open({ ...nodeDisk(), link }).own(address, fields)).toEqual({
			ok: false,
			code: "unwritable",
			message: expect.stringMatching(/keeps changing$/),
		});
	});

	test("D7 a link under the record's name is not written through", () => {
		const outside = join(root, "outside");
		writeFileSync(outside, "mine");
		mkdirSync(join(root, "running"));
		symlinkSync(outside, pathOf(address));
		expect(open().own(address, fields)).toMatchObject({ ok: false, code: "unwritable" });
		expect(readFileSync(outside, "utf8")).toBe("mine");
	});

	test("D7 where links do not work a record is still written, owned by one, and removed", () => {
		const disk: Disk = {
			...nodeDisk(),
			link: () => {
				throw Object.assign(new Error("EPERM: operation not permitted, link"), { code: "EPERM" });
			},
		};
		layRecord({ address, pid: 900 });
		const record = owned(open(disk));
		expect(open(disk, processesOf(neighbour).processes).own(address, fields)).toMatchObject({ code: "held" });
		expect(statSync(pathOf(address)).mode & 0o777).toBe(0o600);
		record.release();
		expect(namesThere()).toEqual([]);
	});

	test("D7 every failing disk operation is a refusal or a success, and the next try always succeeds", () => {
		for (let failing = 1; ; failing++) {
			rmSync(root, { recursive: true, force: true });
			layRecord({ address, pid: 900 });
			const { disk, calls } = failAt(failing);
			const first = open(disk).own(address, fields);
			const record = owned();
			expect(record.update({ state: "busy" }), `operation ${failing}`).toEqual({ ok: true });
			clockMs += 10 * minuteMs;
			expect(open().list()).toMatchObject([{ address, pid: 100 }]);
			if (calls() < failing) {
				expect(first.ok).toBe(true);
				expect(failing).toBeGreaterThan(8);
				return;
			}
		}
	});
});

/** A disk whose operation number `failing` fails, with ENOSPC. */
function failAt(failing: number): { disk: Disk; calls: () => number } {
	let calls = 0;
	const disk = new Proxy(nodeDisk(), {
		get(target, key, receiver) {
			const operation: unknown = Reflect.get(target, key, receiver);
			if (typeof operation !== "function") return operation;
			return (...args: unknown[]) => {
				calls++;
				if (calls === failing) throw Object.assign(new Error("ENOSPC: no space"), { code: "ENOSPC" });
				return operation(...args);
			};
		},
	});
	return { disk, calls: () => calls };
}

describe("two processes", () => {
	const mail = new URL("../../src/mail/", import.meta.url).href;
	const program = `
		import { createInterface } from "node:readline";
		import { nodeDisk } from "${mail}disk.ts";
		import { systemProcesses } from "${mail}process.ts";
		import { openRunning } from "${mail}running.ts";
		const running = openRunning({
			disk: nodeDisk(), root: process.argv[1], processes: systemProcesses(), now: Date.now,
			warn: (path, reason) => console.error(path, reason),
		});
		console.log("ready");
		for await (const line of createInterface({ input: process.stdin })) {
			const { address, at } = JSON.parse(line);
			while (Date.now() < at);
			const outcome = running.own(address, { cwd: "/", state: "idle", waitingOn: "" });
			console.log(JSON.stringify({
				pid: process.pid,
				isOwner: outcome.ok && outcome.record.isOwner(),
				holder: outcome.holder?.pid,
				message: outcome.message,
			}));
		}
	`;
	const children: ChildProcess[] = [];
	afterEach(async () => {
		for (const child of children.splice(0)) {
			const ended = once(child, "exit");
			child.stdin?.end();
			await ended;
		}
	});

	async function contender() {
		const child = spawn(process.execPath, ["--input-type=module", "-e", program, root], {
			stdio: ["pipe", "pipe", "inherit"],
		});
		children.push(child);
		const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
		expect((await lines.next()).value).toBe("ready");
		return async (round: { address: string; at: number }): Promise<Record<string, unknown>> => {
			child.stdin.write(`${JSON.stringify(round)}\n`);
			return JSON.parse((await lines.next()).value ?? "null");
		};
	}

	test("D7 that race for an address end with exactly one owner, whether it was free or a dead one's", async () => {
		const contenders = await Promise.all([contender(), contender()]);
		for (let round = 0; round < 20; round++) {
			const id = `round-${round}`;
			if (round % 2 === 1) layRecord({ address: id, pid: 2 ** 30, x: { instance: "dead" } });
			const at = Date.now() + 5;
			const results = await Promise.all(contenders.map((race) => race({ address: id, at })));
			const winner = results.find((result) => result.isOwner === true);
			const loser = results.find((result) => result !== winner);
			expect(winner, JSON.stringify(results)).toBeDefined();
			expect(loser, JSON.stringify(results)).toMatchObject({ isOwner: false, holder: winner?.pid });
			expect(onDisk(id).pid).toBe(winner?.pid);
		}
		expect(namesThere()).toHaveLength(20);
	}, 30_000);
});
