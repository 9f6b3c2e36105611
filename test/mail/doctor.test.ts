import { execFileSync } from "node:child_process";
import {
	chmodSync,
	chownSync,
	existsSync,
	mkdirSync,
	readdirSync,
	readFileSync,
	renameSync,
	rmSync,
	symlinkSync,
	utimesSync,
	writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { maxUnread } from "../../src/mail/deliver.ts";
import { type Disk, nodeDisk, type Space } from "../../src/mail/disk.ts";
import { type DiagnoseOptions, diagnose, reportOf } from "../../src/mail/doctor.ts";
import { type Finding, quoted } from "../../src/mail/finding.ts";
import { holdOf } from "../../src/mail/hold.ts";
import type { Processes } from "../../src/mail/process.ts";
import { takeForProgram } from "../../src/mail/program.ts";
import { openRunning, type SessionFields } from "../../src/mail/running.ts";
import { settingsPath } from "../../src/mail/settings.ts";
import {
	alice,
	bob,
	carol,
	dayMs,
	envelopeText,
	fail,
	faultyDisk,
	isRoot,
	linklessDisk,
	sent,
	type TestRoot,
	temporaryFolder,
	testRoot,
	watchedDisk,
} from "../support/disk.ts";

const self = { pid: 100, started: "5000", boot: "boot-1", namespace: "pid:[1]" };
const fields: SessionFields = { name: "reviewer", cwd: "/work", state: "idle", waitingOn: "" };
const hourMs = 60 * 60 * 1000;
const id = "11111111-2222-4333-8444-555555555555";

let root: TestRoot;
let settingsFile: string;
/** The processes that run. */
let pids: Set<number>;
/** How far the clock of the examination stands from that of the files. */
let aheadMs: number;
beforeEach(() => {
	root = testRoot();
	root.clockMs = Date.now();
	settingsFile = settingsPath({ PI_CODING_AGENT_DIR: temporaryFolder() });
	pids = new Set([self.pid]);
	aheadMs = 0;
	root.open(alice);
});

function processes(of: Partial<Processes["self"]> = {}): Processes {
	return {
		self: { ...self, ...of },
		exists: (pid) => pids.has(pid),
		startTokens: (asked) => new Map(asked.map((pid) => [pid, "5000"])),
	};
}

function examined(changed: Partial<DiagnoseOptions> = {}): Finding[] {
	const now = () => Date.now() + aheadMs;
	const found = diagnose({
		disk: nodeDisk(),
		root: root.path,
		processes: processes(),
		settingsFile,
		address: alice,
		now,
		...changed,
	});
	return [...found].filter((finding) => finding !== undefined);
}

/** What is not well. */
function problems(changed: Partial<DiagnoseOptions> = {}): Finding[] {
	return examined(changed).filter(({ level }) => level !== "ok");
}

/** The one thing that is not well. */
function problem(changed: Partial<DiagnoseOptions> = {}): Finding {
	const found = problems(changed);
	expect(found).toHaveLength(1);
	return found[0] ?? { level: "ok", what: "" };
}

/** Does in a shell what a finding tells. */
function mended({ mend = "" }: Finding): void {
	const command = /run: (.*)$/s.exec(mend)?.[1] ?? "false";
	execFileSync("bash", ["-c", command.replace(/^sudo /, "")], { stdio: "pipe" });
}

/** Expects this one problem, and nothing once its command was run. */
function expectMended(level: Finding["level"], what: RegExp, changed: Partial<DiagnoseOptions> = {}): void {
	const found = problem(changed);
	expect(found).toMatchObject({ level, what: expect.stringMatching(what) });
	mended(found);
	expect(problems(changed)).toEqual([]);
}

/** A record of a session, as its process writes it. */
function runs(address: string, changed: Partial<SessionFields> = {}, of: Partial<Processes["self"]> = {}): void {
	const options = { disk: nodeDisk(), root: root.path, now: () => root.clockMs, warn: () => {} };
	const owned = openRunning({ ...options, processes: processes(of) }).own(address, { ...fields, ...changed });
	if (!owned.ok) throw new Error(owned.message);
	root.open(address);
}

const record = (address: string) => join(root.path, "running", `${address}.json`);

/** Everything below the root. */
const paths = () => readdirSync(root.path, { recursive: true, encoding: "utf8" }).sort();

describe("a root where all is well", () => {
	test("has one finding for each area, all of them ok, and the examination changes nothing in it", () => {
		runs(alice);
		runs(bob);
		sent(root.open(alice));
		root.start(bob).mailbox.claim(root.names(bob, "new")[0] ?? "");
		sent(root.open(alice));
		writeFileSync(settingsFile, JSON.stringify({ hopLimit: 7 }));
		const before = paths();
		const found = examined();
		expect(found.filter(({ level }) => level !== "ok")).toEqual([]);
		expect(found.map(({ what }) => what)).toEqual([
			expect.stringMatching(/^the mail root \S+ is a folder of yours/),
			expect.stringMatching(/^the file system of \S+ has room, links and flushes files/),
			expect.stringMatching(/^the mailbox \S+ is whole$/),
			"2 sessions run, and every record is one of them",
			"no mail is stuck or was set aside in 2 mailboxes",
			"no prune was cut short",
			"nothing bears a time that has not come",
			expect.stringMatching(/^the settings in \S+ are valid$/),
		]);
		expect(paths()).toEqual(before);
	});

	test("may have no session, no settings, and nobody who asks", () => {
		rmSync(join(root.path, alice), { recursive: true });
		expect(problems({ address: undefined })).toEqual([]);
	});

	test("is left without probe files and open folders by an examination that is given up, wherever that happens", () => {
		for (let n = 0; n < 9; n++) root.lay(alice, "cur", `${n}.json`, envelopeText());
		const before = paths();
		let open = 0;
		let mostOpen = 0;
		const disk: Disk = {
			...nodeDisk(),
			*walk(folder) {
				mostOpen = Math.max(mostOpen, ++open);
				try {
					yield* nodeDisk().walk(folder);
				} finally {
					open--;
				}
			},
		};
		for (let steps = 1; steps < 50; steps++) {
			const options = { disk, root: root.path, processes: processes(), settingsFile, address: alice, now: Date.now };
			const work = diagnose(options);
			for (let n = 0; n < steps; n++) work.next();
			work.return();
			expect([paths(), open]).toEqual([before, 0]);
		}
		expect(mostOpen).toBe(2);
	});

	test("L7 pauses at each file, and reads none that is mail", () => {
		for (let n = 0; n < 50; n++) sent(root.open(bob), { to: alice });
		for (let n = 0; n < 50; n++) root.lay(bob, "cur", `${n}.json`, envelopeText());
		const reads: string[] = [];
		let most = 0;
		let done = 0;
		const disk = watchedDisk(({ name, paths: [path = ""] }) => {
			done++;
			if (name === "read") reads.push(path);
		});
		for (const _ of diagnose({
			disk,
			root: root.path,
			processes: processes(),
			settingsFile,
			address: alice,
			now: Date.now,
		})) {
			most = Math.max(most, done);
			done = 0;
		}
		expect(reads.filter((path) => path.includes("/new/") || path.includes("/cur/"))).toEqual([]);
		expect(most).toBeLessThan(15);
	});
});

describe("the mail root", () => {
	const aside = () => rmSync(root.path, { recursive: true });
	/** The mailbox of the session that asks is gone with the root. */
	const asker = { address: undefined };

	test("is missing", () => {
		aside();
		expectMended("error", /root is missing$/, asker);
	});

	test("is missing, and so is the folder above it", () => {
		expectMended("error", /deep\/root is missing$/, { ...asker, root: join(root.path, "deep/root") });
	});

	test("is a file, which is kept", () => {
		aside();
		writeFileSync(root.path, "mine");
		expectMended("error", /root is not a folder$/, asker);
		expect(readFileSync(`${root.path}~`, "utf8")).toBe("mine");
	});

	test("is a symlink, whose folder is kept", () => {
		renameSync(root.path, `${root.path}-elsewhere`);
		symlinkSync(`${root.path}-elsewhere`, root.path);
		expectMended("error", /root is a symlink$/, asker);
		expect(existsSync(join(`${root.path}-elsewhere`, alice))).toBe(true);
	});

	test.skipIf(!isRoot)("belongs to another user", () => {
		chownSync(root.path, 12345, 12345);
		expectMended("error", /root belongs to another user$/);
	});

	test("can be used by other users", () => {
		chmodSync(root.path, 0o750);
		expectMended("warning", /root has mode 750: other users can use it$/);
	});

	test("cannot be used by its owner", () => {
		chmodSync(root.path, 0o500);
		expectMended("error", /root has mode 500: you cannot use all of it$/);
	});

	test.each([
		["EROFS", /^mount its file system for writing, or set XDG_STATE_HOME/],
		["ENOSPC", /^remove what nobody needs there/],
		["EPERM", /^see what keeps it from being written/],
	])("cannot be written: %s", (code, mend) => {
		const disk = watchedDisk(({ name }) => name === "create" && fail(code));
		const found = problems({ disk, address: undefined });
		expect(found).toMatchObject([
			{
				level: "error",
				what: expect.stringMatching(`root cannot be written: ${code}`),
				mend: expect.stringMatching(mend),
			},
		]);
		if (/run: /.test(found[0]?.mend ?? "")) mended(found[0] ?? fail("no finding"));
	});

	test("has a folder of records that is none", () => {
		writeFileSync(join(root.path, "running"), "");
		const [first, ...more] = problems();
		expect(first?.what).toMatch(/root\/running is not a folder$/);
		expect(more.map(({ what }) => what)).toEqual([
			expect.stringMatching(/^the running records cannot be examined: \S+running is not a folder$/),
		]);
		mended(first ?? fail("no finding"));
		expect(problems()).toEqual([]);
	});

	test("cannot be listed: that is a finding as well", () => {
		const disk = watchedDisk(({ name, paths: [path] }) => name === "walk" && path === root.path && fail("EIO"));
		expect(problem({ disk })).toEqual({
			level: "error",
			what: "the mail cannot be examined: EIO: made to fail",
			mend: "mend what that names, and look again",
		});
	});
});

describe("the mailbox of the session that asks", () => {
	test("is missing", () => {
		rmSync(join(root.path, alice), { recursive: true });
		const found = problem();
		expect(found).toMatchObject({ level: "error", what: expect.stringMatching(`${alice} is missing$`) });
		mended(found);
		root.open(alice);
		expect(problems()).toEqual([]);
	});

	test.each(["tmp", "new", "cur", "sent"] as const)("has no %s", (box) => {
		rmSync(root.boxes(alice)[box], { recursive: true });
		expectMended("error", new RegExp(`/${box} is missing$`));
	});

	test("has a link for a box", () => {
		rmSync(root.boxes(alice).cur, { recursive: true });
		symlinkSync("/tmp", root.boxes(alice).cur);
		expectMended("error", /\/cur is a symlink$/);
	});

	test("has a box that others can use", () => {
		chmodSync(root.boxes(alice).new, 0o777);
		expectMended("warning", /\/new has mode 777: other users can use it$/);
	});

	test("has a box that cannot be written", () => {
		const disk = watchedDisk(
			({ name, paths: [path = ""] }) => name === "create" && path.includes("/sent/") && fail("EACCES"),
		);
		expect(problem({ disk })).toMatchObject({
			level: "error",
			what: expect.stringMatching(/\/sent cannot be written: EACCES/),
		});
	});
});

describe("the file system", () => {
	const plenty: Space = { type: 0xef53, freeBytes: 1e12, freeFiles: 1e6 };
	const with_ = (space: Partial<Space>): { disk: Disk } => ({
		disk: { ...nodeDisk(), space: () => ({ ...plenty, ...space }) },
	});

	test.each<[string, Partial<Space>, Finding["level"], RegExp]>([
		["is nearly full", { freeBytes: 50 * 2 ** 20 }, "warning", /has room for 50 MiB$/],
		["is full", { freeBytes: 0 }, "error", /has room for 0 MiB$/],
		["has few inodes left", { freeFiles: 999 }, "warning", /has room for 999 more files$/],
		["has no inodes left", { freeFiles: 0 }, "error", /has room for 0 more files$/],
	])("%s", (_, space, level, what) => {
		const found = problem(with_(space));
		expect(found).toMatchObject({ level, what: expect.stringMatching(what) });
		mended(found);
	});

	test("has no limit of files: that is well", () => {
		expect(problems(with_({ freeFiles: undefined }))).toEqual([]);
	});

	test.skipIf(process.platform !== "linux").each([
		[0x6969, "NFS"],
		[0xfe534d42, "SMB"],
		[0x01021997, "9p"],
		[0x65735546, "FUSE, such as sshfs"],
	])("is one that other machines may share: %i, %s", (type, kind) => {
		expect(problem(with_({ type }))).toMatchObject({
			level: "warning",
			what: expect.stringContaining(` is ${kind}: `),
			mend: expect.stringMatching(/^set XDG_STATE_HOME to a folder on a local file system/),
		});
	});

	test("gives no second name to a file", () => {
		expect(problem({ disk: linklessDisk() })).toMatchObject({
			level: "warning",
			what: expect.stringMatching(/second name.*EXDEV/),
		});
	});

	test.each(["create", "syncFolder"])("does not flush: %s", (operation) => {
		const disk = watchedDisk(({ name, paths: [path = ""] }) => {
			// The second probe in the root is the durable one.
			if (name === operation && (name !== "create" || (path.startsWith(join(root.path, ".doctor-")) && ++probes === 2)))
				fail("EINVAL");
		});
		let probes = 0;
		expect(problem({ disk })).toMatchObject({
			level: "warning",
			what: expect.stringMatching(/does not flush files.*EINVAL/),
		});
		expect(paths().filter((path) => path.includes(".doctor-"))).toEqual([]);
	});

	test("compares names without case: said, and well", () => {
		const disk = {
			...nodeDisk(),
			entry: (path: string) => nodeDisk().entry(path.replace(/\.DOCTOR.*/, (name) => name.toLowerCase())),
		};
		expect(problems({ disk })).toEqual([]);
		expect(examined({ disk }).map(({ what }) => what)).toContainEqual(
			expect.stringMatching(/; it takes names that differ in case alone/),
		);
	});
});

describe("the running records", () => {
	test("PSM-026 one whose process has ended is found, and not removed", () => {
		runs(bob);
		pids.clear();
		expect(problem().what).toBe(`session ${bob} (reviewer) is recorded as running, and its process 100 has ended`);
		expect(existsSync(record(bob))).toBe(true);
		expectMended("warning", /has ended$/);
	});

	test("D7 one of another container cannot be judged", () => {
		runs(bob, {}, { namespace: "pid:[2]" });
		expectMended("warning", /runs in another container, or has ended there/);
	});

	test.each([
		[
			"is cut short",
			() => writeFileSync(record(bob), '{"address":'),
			/is no record of a running session: it is not JSON$/,
		],
		["is that of another", () => renameSync(record(bob), record(carol)), /it is the record of \S+$/],
		[
			"is a folder",
			() => {
				rmSync(record(bob));
				mkdirSync(join(record(bob), "deep"), { recursive: true });
			},
			/it is not a regular file$/,
		],
		["has a name that is no address", () => renameSync(record(bob), record("-x-")), /its name is not an address$/],
		[
			"has an address in another spelling",
			() => renameSync(record(bob), record(bob.toUpperCase())),
			/its name is not an address$/,
		],
	])("one that %s", (_, spoil, what) => {
		runs(bob);
		spoil();
		expectMended("warning", what);
	});

	test("L8 a name with control characters is shown without them, and its command removes it all the same", () => {
		runs(bob);
		renameSync(record(bob), record("a\u001b[31m'\u202e\n$(touch x)"));
		const { what, mend } = problem();
		expect(`${what}${mend}`).not.toMatch(/\p{Cc}|\u202e/u);
		expectMended("warning", /its name is not an address$/);
	});

	test("what a rewrite or a removal has under way is passed over", () => {
		runs(bob);
		for (const name of [`${bob}.json.123`, ".gone-1-abc", ".1-abc.tmp"])
			writeFileSync(join(root.path, "running", name), "");
		expect(problems()).toEqual([]);
	});
});

describe("mail", () => {
	const ask = (address: string) => `pi --session-id ${address}`;

	test("L1 claimed more than a day ago, of a session that does not run, comes with its next start", () => {
		const peer = root.open(bob);
		for (let n = 0; n < 2; n++) sent(peer, { to: alice });
		for (const name of root.names(alice, "new")) root.open(alice).claim(name);
		expect(problems()).toEqual([]);
		aheadMs = dayMs + hourMs;
		const found = problem();
		expect(found.what).toBe(
			`2 mails for ${alice}, claimed 25 hours ago, did not get into its conversation, and it does not run`,
		);
		expect(found.mend).toContain(ask(alice));
		runs(alice);
		expect(problems()).toEqual([]);
	});

	test("waits for more than an hour for a session that runs", () => {
		sent(root.open(alice));
		aheadMs = hourMs * 3 + 60_000;
		expect(problems()).toEqual([]);
		runs(bob);
		expect(problem()).toMatchObject({ level: "warning", what: `mail waits for 3 hours for ${bob}, which runs` });
		rmSync(record(bob));
		runs(bob, { receiving: false });
		expect(problem()).toEqual({
			level: "warning",
			what: `mail waits for 3 hours for ${bob}, which runs where mail is off`,
			mend: "in that session type /mailbox on",
		});
		rmSync(record(bob));
		runs(bob, { paused: true });
		expect(problem()).toEqual({
			level: "warning",
			what: `mail waits for 3 hours for ${bob}, which runs and is paused`,
			mend: "in that session type /mailbox resume",
		});
	});

	test("that is on hold is not stuck, however long it waits: it is counted, and all is well", () => {
		runs(bob);
		const inbox = root.open(bob);
		for (let n = 0; n < 2; n++) sent(root.open(alice));
		for (const name of root.names(bob, "new")) inbox.hold(name);
		aheadMs = hourMs * 3 + 60_000;
		const said = examined().map(({ level, what }) => `${level} ${what}`);
		expect(said).toContain("ok 2 mails on hold, until each is released with h in the mailbox screen");
		expect(said).toContain("ok no mail is stuck or was set aside in 2 mailboxes");
		expect(problems()).toEqual([]);
		sent(root.open(alice));
		expect(problem().what).toBe(`mail waits for 3 hours for ${bob}, which runs`);
	});

	test("on hold fills an inbox as well, and what is left of a hold does not", () => {
		for (let n = 0; n < 229; n++) root.lay(bob, "new", `${n}.json`, envelopeText());
		for (const name of root.names(bob, "new").slice(0, 100)) root.lay(bob, "new", holdOf(name), "");
		root.lay(bob, "new", holdOf("gone.json"), "");
		expect(problems()).toEqual([]);
		root.lay(bob, "new", "last.json", envelopeText());
		expect(problem().what).toMatch(/^230 mails wait for /);
	});

	test.each([
		[
			"a file of another kind",
			(path: string) => writeFileSync(path, ""),
			"notes.txt",
			/its name does not end in \.json$/,
		],
		[
			"a folder with something in it",
			(path: string) => mkdirSync(join(path, "x"), { recursive: true }),
			"a.json",
			/it is not a regular file$/,
		],
		["a link", (path: string) => symlinkSync("/etc/passwd", path), "b.json", /it is not a regular file$/],
		["a name with quotes", (path: string) => writeFileSync(path, ""), 'it\'s "$HOME" `x`', /does not end in/],
		["too long a name", (path: string) => writeFileSync(path, ""), `${"n".repeat(220)}.json`, /its name is too long$/],
	])("in new/ that is none: %s", (_, make, name, what) => {
		make(join(root.boxes(alice).new, name));
		expectMended("warning", what);
	});

	test.each([
		[230, "warning", "from 256 on more is refused"],
		[maxUnread, "error", "more is refused"],
	])("D10 %i of them fill an inbox", (count, level, text) => {
		for (let n = 0; n < count - 1; n++) root.lay(bob, "new", `${n}.json`, envelopeText());
		expect(problems()).toHaveLength(level === "error" ? 1 : 0);
		root.lay(bob, "new", "last.json", envelopeText());
		expect(problem()).toMatchObject({
			level,
			what: `${count} mails wait for ${bob}; ${text}`,
			mend: expect.stringContaining(ask(bob)),
		});
		runs(bob);
		expect(problem().mend).toBe(`let session ${bob} read its mail`);
	});

	test("D12 that is dead is named with its reason, in any mailbox", () => {
		root.lay(bob, "new", "1.json", "not mail\u001b");
		root.open(bob).claim("1.json");
		expect(problem().what).toMatch(/\/cur\/1\.json could not be delivered: it is not JSON$/);
		expectMended("warning", /could not be delivered/);
		expect(root.names(bob, "cur")).toEqual([]);
	});

	test("D12 that was dead and is gone leaves its reason, which goes as well", () => {
		root.lay(bob, "cur", "1.json.reason", "");
		expectMended("warning", /\/cur\/1\.json could not be delivered: $/);
	});

	test("D12 that is being set aside is no finding yet", () => {
		for (const name of ["1.json", "1.json.open", "1.json.reason"]) root.lay(bob, "cur", name, "");
		expect(problems()).toEqual([]);
	});

	test("L7 of which much is dead: twenty are named, and the rest is counted", () => {
		for (let n = 0; n < 25; n++) {
			root.lay(bob, "cur", `${n}.json`, "");
			root.lay(bob, "cur", `${n}.json.reason`, "it is empty");
		}
		const found = problems();
		expect(found).toHaveLength(21);
		expect(found.at(-1)).toEqual({
			level: "warning",
			what: "the mail: 5 more findings are not shown",
			mend: "mend those that are shown, and look again",
		});
	});

	test("has no place where no folder is", () => {
		writeFileSync(join(root.path, bob), "");
		expectMended("warning", /stands where a mailbox could be, and is no folder$/);
	});

	test("of a mailbox that is pruned meanwhile is no finding, and of one that cannot be read is", () => {
		root.open(bob);
		for (const [code, count] of [
			["ENOENT", 0],
			["EACCES", 1],
		] as const) {
			const disk = watchedDisk(({ name, paths: [path = ""] }) => name === "list" && path.includes(bob) && fail(code));
			expect(problems({ disk })).toHaveLength(count);
		}
	});
});

describe("what stands beside the boxes of a mailbox", () => {
	const beside = (...names: string[]) => join(root.boxes(bob).folder, ...names);
	const options = () => ({ disk: nodeDisk(), root: root.path, now: () => root.clockMs, warn: () => {} });
	const inContainer = () => openRunning({ ...options(), processes: processes({ namespace: "pid:[2]" }) });
	const here = () => openRunning({ ...options(), processes: processes() });

	beforeEach(() => {
		root.open(bob);
	});

	test("is well when it is the mark of a program, and signs of processes that live", () => {
		takeForProgram(nodeDisk(), root.path, bob);
		here().standby(bob).leave(fields);
		here().waitInShell(bob, { id, to: alice, ticket: 1 }, fields);
		expect(problems()).toEqual([]);
	});

	test("D7 is a sign from another container, which may keep a folder or an answer for ever", () => {
		inContainer().standby(bob).leave(fields);
		expectMended("warning", /standby\/\S+ is the sign of process \d+ in another container, or of one that has ended/);
		inContainer().waitInShell(bob, { id, to: alice, ticket: 1 }, fields);
		expectMended("warning", /waiting\/\S+ is the sign of process \d+ in another container, or of one that has ended/);
	});

	test.each(["standby", "waiting"])("is no sign, in %s", (kind) => {
		mkdirSync(beside(kind));
		writeFileSync(beside(kind, "mine"), "");
		expect(problems()).toEqual([]);
		aheadMs = hourMs;
		expectMended("warning", /is no sign of a process and is passed over$/);
	});

	test.each(["standby", "waiting"])("is no folder of signs, but a file named %s", (kind) => {
		writeFileSync(beside(kind), "");
		expectMended("warning", /stands where processes leave signs, and is no folder$/);
	});

	test("is no mark of a program, but a folder", () => {
		mkdirSync(beside("program"));
		expectMended("warning", /is no mark of a program, since it is no file$/);
	});
});

describe("the mailbox of a program", () => {
	const start = () => {
		takeForProgram(nodeDisk(), root.path, "ci");
		runs("ci", { name: "ci", program: true });
	};

	test("is counted as one, and read by the program, and not by a session", () => {
		start();
		runs(alice);
		expect(examined().map(({ what }) => what)).toContain(
			"1 session and 1 program run, and every record is one of them",
		);
		sent(root.open(alice), { to: "ci" });
		aheadMs = 3 * hourMs;
		expect(problem()).toMatchObject({
			what: expect.stringMatching(/^mail waits for [23] hours for ci, which runs$/),
			mend: "run: pi-session-mail read --all --from ci",
		});
	});

	test("PSM-026 is named as one when its process has ended", () => {
		start();
		pids.clear();
		expectMended("warning", /^program ci \(ci\) is recorded as running/);
	});

	test("is no concern when it goes with the program", () => {
		const { new: inbox } = root.boxes("ask-abcdefgh01234567");
		mkdirSync(inbox, { recursive: true, mode: 0o700 });
		writeFileSync(join(inbox, "mine"), "");
		expect(problems()).toEqual([]);
	});
});

test("a mail root that nobody has needed yet is well", () => {
	rmSync(root.path, { recursive: true });
	const found = examined({ address: undefined, needsRoot: false });
	expect(found.map(({ level }) => level)).toEqual(["ok", "ok"]);
	expect(found[0]?.what).toMatch(/^there is no mail on this machine yet: \S+root is not there$/);
});

describe("what was left behind", () => {
	test("D26 a folder that a prune moved aside", () => {
		root.open(bob);
		renameSync(join(root.path, bob), join(root.path, `.pruning.${bob}.0197a3f2-1111-7000-8000-00000000000a`));
		expect(problems()).toEqual([]);
		aheadMs = hourMs;
		expect(problem()).toMatchObject({
			level: "warning",
			what: expect.stringMatching(/was moved aside by a prune that was cut short$/),
			mend: expect.stringContaining("/mailbox prune"),
		});
	});

	test("probe files of an examination that was killed", () => {
		aheadMs = hourMs;
		writeFileSync(join(root.path, ".doctor-abc"), "");
		expectMended("warning", /is a left-over probe$/);
		writeFileSync(join(root.boxes(alice).new, ".doctor-abc"), "");
		expectMended("warning", /is not mail and is passed over/);
		// Wherever it is killed, a later start of the session removes what it left in the other boxes.
		const left = ["tmp", "cur", "sent"] as const;
		const disk = watchedDisk(
			({ name, paths: [path = ""] }) => name === "remove" && path.startsWith(root.boxes(alice).folder) && fail("EIO"),
		);
		problems({ disk });
		rmSync(root.boxes(alice).new, { recursive: true });
		expect(left.flatMap((box) => root.names(alice, box))).toHaveLength(3);
		root.clockMs += 2 * dayMs;
		const { mailbox } = root.start(alice);
		for (const _ of mailbox.removeLeftovers());
		expect([...left.flatMap((box) => root.names(alice, box)), ...readdirSync(root.boxes(alice).folder)].sort()).toEqual(
			["cur", "new", "sent", "tmp"],
		);
	});
});

describe("the clock", () => {
	beforeEach(() => {
		runs(alice);
		runs(bob);
	});

	test("D14 was ahead when mail was sent: the name of the mail and the sender's state show it", () => {
		root.clockMs += 40 * dayMs;
		sent(root.open(alice));
		const found = problems();
		expect(found.map(({ level, what }) => [level, what])).toEqual([
			[
				"warning",
				expect.stringMatching(/\/new\/\S+ bears a time 39 days from now: the clock was ahead then, or is behind$/),
			],
			["warning", expect.stringMatching(/\/state\.json bears a time (39|40) days from now/)],
		]);
		mended(found[1] ?? fail("no finding"));
		root.open(bob).claim(root.names(bob, "new")[0] ?? "");
		expect(problems()).toEqual([]);
	});

	test("was ahead when a record was written", () => {
		root.clockMs += 2 * dayMs + hourMs;
		runs(carol);
		expect(problem()).toMatchObject({ what: expect.stringMatching(`${carol}.json bears a time 2 days from now`) });
	});

	test("was ahead when a box changed", () => {
		const ahead = Date.now() / 1000 + 3.5 * 24 * 60 * 60;
		utimesSync(root.boxes(bob).cur, ahead, ahead);
		const found = problem();
		expect(found.what).toMatch(/\/cur bears a time 3 days from now/);
		expect(found.mend).toMatch(/^if \d{4}-\S+Z is not the time, set the clock; else run: touch -- /);
		mended(found);
		expect(problems()).toEqual([]);
	});

	test("is behind now", () => {
		aheadMs = -40 * dayMs;
		const days = problems().map(({ what }) => / bears a time (\d+) days from now/.exec(what)?.[1]);
		expect(days.length).toBeGreaterThan(5);
		// What was made a moment before the examination is one moment less than 40 days ahead of it.
		for (const count of days) expect(["39", "40"]).toContain(count);
	});
});

describe("the settings file", () => {
	test.each([
		["is not JSON", "{", /is not used: it is not JSON \(line 1\)$/],
		["is not an object", "[]", /is not used: it is not a JSON object$/],
		["has an unknown key", '{"hopLimits": 3}', /has the unknown key "hopLimits"; did you mean "hopLimit"\?$/],
		[
			"has a value that is not valid",
			'{"hopLimit": 0}',
			/hopLimit cannot be 0 \(it is more than 0\), so its default holds$/,
		],
	])("%s", (_, text, what) => {
		writeFileSync(settingsFile, text);
		expectMended("warning", what);
	});

	test("is examined also when the mail root is not there", () => {
		writeFileSync(settingsFile, "{");
		rmSync(root.path, { recursive: true });
		expect(problems().map(({ level }) => level)).toEqual(["error", "warning"]);
	});
});

test("whatever operation fails, the examination ends, throws nothing, and says what it could not examine", () => {
	runs(alice);
	runs(bob);
	root.lay(bob, "cur", "1.json.reason", "it is empty");
	const faulty = faultyDisk();
	const silent: string[] = [];
	for (let n = 1; ; n++) {
		faulty.failAt(n, "EIO");
		const found = problems({ disk: faulty.disk });
		if (faulty.failed === undefined) break;
		expect(n).toBeLessThan(500);
		if (!found.some(({ what }) => what.includes("EIO"))) silent.push(`${faulty.failed.name} ${faulty.failed.paths}`);
	}
	// A state that cannot be read is none, as for the mailbox itself.
	expect(silent).toEqual([`read ${join(root.path, alice, "state.json")}`]);
});

test("findings read as text: the worst first, a line for each, and below it how to mend it", () => {
	expect(
		reportOf([
			{ level: "ok", what: "a" },
			{ level: "warning", what: "b", mend: "c" },
			{ level: "error", what: "d" },
			{ level: "warning", what: "e" },
		]),
	).toBe("error: d\nwarning: b\n    c\nwarning: e\nok: a");
});

test.each(["plain", "it's", "a b", "$(x) `y`", "tab\there", "nl\nend\n", "\u001b[31m\\'", "é\u202e"])(
	"the path %j is one word for a shell",
	(path) => {
		const said = execFileSync("bash", ["-c", `printf '%s.' ${quoted(path)}`], { encoding: "utf8" });
		expect(said).toBe(`${path}.`);
	},
);
