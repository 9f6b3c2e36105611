import { randomUUID } from "node:crypto";
import {
	chmodSync,
	existsSync,
	mkdirSync,
	readdirSync,
	readFileSync,
	rmSync,
	statSync,
	symlinkSync,
	utimesSync,
	writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import fc from "fast-check";
import { beforeEach, describe, expect, test } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { holdOf } from "../../src/mail/hold.ts";
import { type PruneOptions, type PruneStep, prune, whileAlone } from "../../src/mail/prune.ts";
import type { Running, RunningSession } from "../../src/mail/running.ts";
import {
	alice,
	bob,
	carol,
	dayMs,
	envelopeText,
	fail,
	faultCodes,
	faultyDisk,
	interruptedDisk,
	isRoot,
	sent,
	startMs,
	type TestRoot,
	testRoot,
	watchedDisk,
} from "../support/disk.ts";

const hourMs = 60 * 60 * 1000;
/** A session that is long gone. */
const gone = "01980f5e-7a3c-7d10-8f00-0000000000f0";

let root: TestRoot;
/** The sessions that run, or cannot be judged. */
let judged: Map<string, RunningSession["judgement"]>;
/** Who is asked for when the time of a path is wanted. */
let clocked: Disk;
beforeEach(() => {
	root = testRoot();
	judged = runningAtFirst();
	clocked = clockedDisk();
});

const runningAtFirst = () =>
	new Map<string, RunningSession["judgement"]>([alice, bob].map((address) => [address, "running"]));

const running: Pick<Running, "mayRun" | "hasStandby"> = {
	hasStandby: (folder) => existsSync(join(folder, "standby", "sign")),
	mayRun: (address) => judged.has(address),
};

/** The real disk, where everything that changes does so at `root.clockMs`: the system's own times cannot all be set. */
function clockedDisk(disk: Disk = nodeDisk()): Disk {
	const times = new Map<string, number>();
	const touch = (...paths: string[]) => {
		for (const path of paths) times.set(path, root.clockMs);
	};
	return {
		...disk,
		ensureFolder(path) {
			const isMade = disk.ensureFolder(path);
			if (isMade) touch(path, dirname(path));
			return isMade;
		},
		create(path, text) {
			disk.create(path, text);
			touch(path, dirname(path));
		},
		replace(path, text) {
			disk.replace(path, text);
			touch(path, dirname(path));
		},
		link(from, to) {
			disk.link(from, to);
			touch(from, to, dirname(to));
		},
		rename(from, to) {
			disk.rename(from, to);
			for (const [path, time] of [...times]) {
				if (path.startsWith(`${from}/`)) times.set(to + path.slice(from.length), time);
			}
			touch(to, dirname(from), dirname(to));
		},
		remove(path) {
			disk.remove(path);
			times.delete(path);
			touch(dirname(path));
		},
		changed: (path) => (disk.entry(path) === undefined ? undefined : (times.get(path) ?? startMs)),
	};
}

function optionsOf(changed: Partial<PruneOptions> = {}): PruneOptions {
	return {
		disk: clocked,
		root: root.path,
		self: alice,
		running,
		now: () => root.clockMs,
		olderThanMs: 30 * dayMs,
		...changed,
	};
}

/** What a person's `/mailbox prune` does. */
const byCommand = { olderThanMs: undefined };

function outcome(steps: Iterable<PruneStep>) {
	const removed: string[] = [];
	const warnings: string[] = [];
	for (const step of steps) {
		if (step === undefined) continue;
		if ("removed" in step) removed.push(step.removed);
		else warnings.push(step.warning);
	}
	return { removed: removed.sort(), warnings };
}

/** One pass over all folders. */
const pass = (changed: Partial<PruneOptions> = {}) => outcome(prune(optionsOf(changed)));
const nothing = { removed: [], warnings: [] };

/** The mailbox of a session that has read one mail and sent another; its folder was last changed now. */
function closedSession(address = gone): void {
	const mailbox = root.open(address, { disk: clocked, durability: "fast" });
	sent(mailbox, { to: bob, kind: "message" });
	rmSync(root.boxes(bob).folder, { recursive: true });
	clocked.create(join(root.boxes(address).cur, "000000000000001-x.json"), envelopeText({ to: address }));
	mailbox.saveState();
}

const aside = (address = gone) => `.pruning.${address}.${randomUUID()}`;

/** The same, moved aside by a process that ended in the middle. */
function layAside(address = gone): string {
	closedSession(address);
	const moved = join(root.path, aside(address));
	nodeDisk().rename(root.boxes(address).folder, moved);
	return moved;
}

/** The files of a session that has ended, besides its unread mail and what can be rebuilt. */
function kept(address = gone): string[] {
	return [...root.names(address, "cur"), ...root.names(address, "sent")];
}

const rootNames = () =>
	readdirSync(root.path)
		.filter((name) => name !== alice && name !== bob)
		.sort();

/** Sends a mail to a session, as others do at any time. Returns its id. */
function deliver(to = gone): string {
	return sent(root.open(bob, { disk: clocked, durability: "fast" }), { to, kind: "message" });
}

/** The ids of the mail that waits for a session. */
function unread(address = gone): string[] {
	return root
		.names(address, "new")
		.map((name) => JSON.parse(readFileSync(join(root.boxes(address).new, name), "utf8")).id);
}

describe("PSM-090, D26 the folder of a closed session is removed", () => {
	test("with all that is in it, at the second start that finds it old, a day after the first", () => {
		closedSession();
		mkdirSync(join(root.boxes(gone).cur, "folder", "deeper"), { recursive: true });
		writeFileSync(join(root.boxes(gone).cur, "folder", "deeper", "file"), "");
		root.clockMs += 30 * dayMs;
		expect(pass()).toEqual(nothing);
		expect(rootNames()).toEqual([`.old.${gone}`, gone]);
		root.clockMs += dayMs - 1;
		expect(pass()).toEqual(nothing);
		root.clockMs += 1;
		expect(pass()).toEqual({ removed: [gone], warnings: [] });
		expect(rootNames()).toEqual([]);
	});

	test("not before pruneAfterDays have passed, and the first pass notes nothing then", () => {
		closedSession();
		root.clockMs += 30 * dayMs - 1;
		expect(pass()).toEqual(nothing);
		expect(rootNames()).toEqual([gone]);
		expect(pass({ olderThanMs: 29 * dayMs })).toEqual(nothing);
		expect(rootNames()).toEqual([`.old.${gone}`, gone]);
	});

	test.each(["folder", "tmp", "new", "cur", "sent"] as const)("not while its %s has changed since", (box) => {
		closedSession();
		root.clockMs += 30 * dayMs - 1;
		const path = join(root.boxes(gone)[box], "x");
		clocked.create(path, "");
		clocked.remove(path);
		root.clockMs += 1;
		expect(pass()).toEqual(nothing);
		expect(rootNames()).toEqual([gone]);
	});

	test("what changed between the two starts counts: it takes two starts again", () => {
		closedSession();
		root.clockMs += 30 * dayMs;
		pass();
		const path = join(root.boxes(gone).cur, "y");
		clocked.create(path, "");
		root.clockMs += 2 * dayMs;
		expect(pass()).toEqual(nothing);
		expect(rootNames()).toEqual([gone]);
		root.clockMs += 30 * dayMs;
		expect(pass()).toEqual(nothing);
		root.clockMs += dayMs;
		expect(pass().removed).toEqual([gone]);
	});

	test("both of its times have to be old: the system's own count as well as the one that programs set", () => {
		closedSession();
		const old = new Date(Date.now() - 60 * dayMs);
		for (const path of Object.values(root.boxes(gone))) utimesSync(path, old, old);
		expect(pass({ disk: nodeDisk(), now: Date.now })).toEqual(nothing);
		expect(rootNames()).toEqual([gone]);
		const later = { disk: nodeDisk(), now: () => Date.now() + 40 * dayMs };
		expect(pass(later)).toEqual(nothing);
		expect(rootNames()).toEqual([`.old.${gone}`, gone]);
	});

	test("a clock that is 40 days ahead, and then right again, removes nothing", () => {
		closedSession();
		for (let days = 0; days < 5; days++) {
			root.clockMs += 40 * dayMs;
			expect(pass()).toEqual(nothing);
			root.clockMs -= 40 * dayMs;
			expect(pass()).toEqual(nothing);
			expect(rootNames()).toEqual([gone]);
			root.clockMs += dayMs;
		}
	});

	test("a note that a clock ahead has made of a folder that is old does not shorten its day", () => {
		closedSession();
		root.clockMs += 70 * dayMs;
		pass();
		root.clockMs -= 40 * dayMs;
		expect(pass()).toEqual(nothing);
		root.clockMs += 23 * hourMs;
		expect(pass()).toEqual(nothing);
		root.clockMs += hourMs;
		expect(pass().removed).toEqual([gone]);
	});

	test("a folder that is changed while the clock is ahead is kept until that time has passed", () => {
		root.clockMs += 40 * dayMs;
		closedSession();
		root.clockMs -= 40 * dayMs;
		for (let days = 0; days < 5; days++) {
			expect(pass()).toEqual(nothing);
			root.clockMs += dayMs;
		}
	});

	test("PSM-038 by a person's command: at once, whatever its age", () => {
		closedSession();
		closedSession(carol);
		expect(pass(byCommand)).toEqual({ removed: [gone, carol].sort(), warnings: [] });
		expect(rootNames()).toEqual([]);
	});

	test("PSM-038 by a person's command: and the note of its age goes with it", () => {
		closedSession();
		root.clockMs += 30 * dayMs;
		pass();
		expect(pass(byCommand).removed).toEqual([gone]);
		expect(rootNames()).toEqual([]);
	});

	test("the note of a folder that somebody else removed goes as well", () => {
		closedSession();
		root.clockMs += 30 * dayMs;
		pass();
		rmSync(root.boxes(gone).folder, { recursive: true });
		expect(pass()).toEqual(nothing);
		expect(rootNames()).toEqual([]);
	});

	test("also one without boxes, and one with boxes of its own kind", () => {
		mkdirSync(root.boxes(gone).folder);
		mkdirSync(join(root.boxes(carol).folder, "other", "deeper"), { recursive: true });
		writeFileSync(join(root.boxes(carol).folder, "other", "deeper", "x"), "");
		writeFileSync(join(root.boxes(carol).folder, "new"), "a file");
		expect(pass(byCommand)).toEqual({ removed: [gone, carol].sort(), warnings: [] });
	});
});

describe("PSM-090, I-PSM-2 stays, even when a person asks to prune", () => {
	/** A pass by command that must remove, move and say nothing. */
	function expectKept(address = gone): void {
		const found = rootNames();
		const moved: (readonly string[])[] = [];
		const disk = watchedDisk(({ name, paths }) => name === "rename" && moved.push(paths), clocked);
		expect(pass({ ...byCommand, disk })).toEqual(nothing);
		expect(moved).toEqual([]);
		expect(rootNames()).toEqual(found);
		expect(existsSync(root.boxes(address).folder)).toBe(true);
	}

	test("the folder of this session, also when it has no running record", () => {
		judged.clear();
		closedSession(alice);
		expectKept(alice);
		expect(kept(alice)).toHaveLength(2);
	});

	test.each(["running", "unknown"] as const)("that of a session which is %s", (judgement) => {
		closedSession();
		judged.set(gone, judgement);
		expectKept();
	});

	test.each<[string, string]>([
		["a mail", "000000000000001-11111111-2222-4333-8444-555555555555.json"],
		["a file of another kind", "note.txt"],
		["a hidden file", ".x"],
	])("one with %s in new/", (_, name) => {
		closedSession();
		root.lay(gone, "new", name, "");
		expectKept();
	});

	test("L2 one with a call that is to be decided about, or whose decision is not told", () => {
		closedSession();
		const tickets = join(root.boxes(gone).folder, "tickets");
		mkdirSync(tickets);
		writeFileSync(join(tickets, "ticket-aaaaaaaaaaaaaaaa.json"), "{}");
		expectKept();
	});

	test("one with a mail on hold", () => {
		closedSession();
		const name = "000000000000001-11111111-2222-4333-8444-555555555555.json";
		for (const file of [name, holdOf(name)]) root.lay(gone, "new", file, "");
		expectKept();
		rmSync(join(root.boxes(gone).new, name));
		expect(pass(byCommand).removed, "what is left of its hold keeps nothing").toEqual([gone]);
	});

	test("one with a folder in new/", () => {
		closedSession();
		mkdirSync(join(root.boxes(gone).new, "x.json"));
		expectKept();
	});

	test("one with a mail that was claimed and is in no conversation", () => {
		closedSession();
		root.lay(gone, "cur", "000000000000001-x.json.open", "1");
		expectKept();
	});

	test("but not one whose claimed mail is all done with, nor one with something else in tmp/ and sent/", () => {
		closedSession();
		root.lay(gone, "cur", "000000000000002-x.json", envelopeText());
		root.lay(gone, "cur", "000000000000002-x.json.reason", "it is not JSON\n");
		root.lay(gone, "tmp", "x", "");
		root.lay(gone, "sent", "x.json.part", "");
		expect(pass(byCommand).removed).toEqual([gone]);
	});

	test.each([
		"running",
		"Running",
		".hidden",
		".pruning",
		"-x",
		"x-",
		"a b",
		"x".repeat(129),
		"01980F5E-7A3C-7D10-8F00-0000000000F0",
		`.pruning.running.${randomUUID()}`,
		`.pruning....${randomUUID()}`,
		`.pruning..${randomUUID()}`,
		`.pruning.a b.${randomUUID()}`,
	])("a folder called %s", (name) => {
		mkdirSync(join(root.path, name, "new"), { recursive: true });
		writeFileSync(join(root.path, name, "x"), "");
		expect(pass(byCommand)).toEqual(nothing);
		expect(readdirSync(join(root.path, name)).sort()).toEqual(["new", "x"]);
		writeFileSync(join(root.path, name, "new", "y.json"), "");
		expect(pass(byCommand)).toEqual(nothing);
		expect(readdirSync(join(root.path, name, "new"))).toEqual(["y.json"]);
		expect(readdirSync(dirname(root.path))).toEqual(["root"]);
	});

	test("a file, or a link, that has the name of an address", () => {
		writeFileSync(join(root.path, gone), "");
		const elsewhere = join(root.path, "..", "elsewhere");
		mkdirSync(join(elsewhere, "new"), { recursive: true });
		symlinkSync(elsewhere, join(root.path, carol));
		expectKept();
		expect(existsSync(join(root.path, carol, "new"))).toBe(true);
	});

	test("what a link inside a removed folder points to", () => {
		const elsewhere = join(root.path, "..", "elsewhere");
		mkdirSync(join(elsewhere, "new"), { recursive: true });
		for (const name of ["x", "new/y.json"]) writeFileSync(join(elsewhere, name), "");
		mkdirSync(root.boxes(gone).folder);
		symlinkSync(join(elsewhere, "new"), root.boxes(gone).new);
		symlinkSync(elsewhere, root.boxes(gone).cur);
		symlinkSync(join(elsewhere, "x"), join(root.boxes(gone).folder, "state.json"));
		expect(pass(byCommand).removed).toEqual([gone]);
		expect([readdirSync(elsewhere).sort(), readdirSync(join(elsewhere, "new"))]).toEqual([["new", "x"], ["y.json"]]);
	});
});

describe("L6 an old mailbox of thousands of mails holds nobody up", () => {
	/** Most names that were read from one step to the next. */
	function mostNames(changed: Partial<PruneOptions>): number {
		let most = 0;
		let names = 0;
		const disk: Disk = {
			...clocked,
			list(folder) {
				const found = clocked.list(folder);
				names += found.length;
				return found;
			},
			*walk(folder) {
				for (const name of clocked.walk(folder)) {
					names++;
					yield name;
				}
			},
		};
		for (const _ of prune(optionsOf({ ...changed, disk }))) {
			most = Math.max(most, names);
			names = 0;
		}
		return most;
	}

	const lay = (folder: string) => {
		for (let n = 0; n < 2500; n++) writeFileSync(join(folder, `${n}.json`), "");
	};

	test("while it is removed", () => {
		closedSession();
		lay(root.boxes(gone).cur);
		expect(mostNames(byCommand)).toBeLessThan(1100);
		expect(rootNames()).toEqual([]);
	});

	test("while it is joined with the one that was made since", () => {
		const moved = layAside();
		lay(join(moved, "cur"));
		writeFileSync(join(moved, "new", "x.json"), "");
		deliver();
		expect(mostNames({})).toBeLessThan(1100);
		expect([rootNames(), root.names(gone, "cur").length]).toEqual([[gone], 2501]);
	});
});

describe("PSM-091 one that cannot be looked into or removed does not stop the others", () => {
	/** Two folders besides the one with the trouble, one before and one after it in every order. */
	const others = ["00000000-0000-7000-8000-000000000001", "ffffffff-0000-7000-8000-000000000001"];

	test.each(
		faultCodes.flatMap((code) =>
			(["walk", "remove", "removeFolder", "rename", "entry"] as const).map((name) => [name, code] as const),
		),
	)("%s fails with %s", (name, code) => {
		for (const address of [...others, gone]) closedSession(address);
		const disk = watchedDisk(
			(operation) => operation.name === name && operation.paths[0]?.includes(`${gone}`) && fail(code),
			clocked,
		);
		const { removed, warnings } = pass({ ...byCommand, disk });
		expect(removed).toEqual(others);
		expect(warnings.length).toBeGreaterThan(0);
		for (const warning of warnings)
			expect(warning).toMatch(new RegExp(`^${root.path}/.*${gone}.* could not be pruned: ${code}`));
		expect(pass(byCommand)).toEqual({ removed: [gone], warnings: [] });
		expect(rootNames()).toEqual([]);
	});

	test.skipIf(isRoot)("a box that may not be written", () => {
		for (const address of [...others, gone]) closedSession(address);
		chmodSync(root.boxes(gone).cur, 0o500);
		expect(pass(byCommand)).toEqual({ removed: others, warnings: [expect.stringContaining("EACCES")] });
	});

	test("a root that cannot be read is a warning", () => {
		const disk = watchedDisk(({ name }) => name === "walk" && fail("EACCES"), clocked);
		expect(pass({ disk })).toEqual({
			removed: [],
			warnings: [expect.stringMatching(`^${root.path} could not be pruned: EACCES`)],
		});
		rmSync(root.path, { recursive: true });
		expect(pass().removed).toEqual([]);
	});
});

describe("PSM-091 what a process left that ended in the middle", () => {
	test("is removed, whatever its age", () => {
		layAside();
		expect(pass()).toEqual({ removed: [gone], warnings: [] });
		expect(rootNames()).toEqual([]);
	});

	test.each(["calls", "tickets"])("L2 is joined with its %s, with the folder that was made since", (box) => {
		const moved = layAside();
		mkdirSync(join(moved, box));
		writeFileSync(join(moved, box, "one.json"), "");
		deliver();
		expect(pass()).toEqual(nothing);
		expect(existsSync(join(root.boxes(gone).folder, box, "one.json"))).toBe(true);
	});

	test.each(["new", "cur"] as const)("is moved back when %s/ holds unread mail", (box) => {
		const moved = layAside();
		const name = box === "new" ? "x.json" : "x.json.open";
		writeFileSync(join(moved, box, name), "");
		expect(pass()).toEqual(nothing);
		expect(rootNames()).toEqual([gone]);
		expect(root.names(gone, box)).toContain(name);
		expect(kept().length).toBe(box === "new" ? 2 : 3);
	});

	test("is moved back when its session runs", () => {
		layAside();
		judged.set(gone, "running");
		expect(pass()).toEqual(nothing);
		expect([rootNames(), kept().length]).toEqual([[gone], 2]);
	});

	test.each(["the folder that was moved", "the one that was made since"])(
		"D7 is moved back with all it holds when a process stands by for it, whose sign lies in %s",
		(place) => {
			const moved = layAside();
			const made = root.boxes(gone).folder;
			if (place !== "the folder that was moved") mkdirSync(made);
			const folder = place === "the folder that was moved" ? moved : made;
			mkdirSync(join(folder, "standby"));
			writeFileSync(join(folder, "standby", "sign"), "");
			expect(pass()).toEqual(nothing);
			expect([rootNames(), kept().length]).toEqual([[gone], 2]);
			expect(running.hasStandby(made)).toBe(true);
		},
	);

	test("D7 is joined with the sign of a process that stands by for it", () => {
		const moved = layAside();
		mkdirSync(join(moved, "standby"));
		writeFileSync(join(moved, "standby", "sign"), "");
		sent(root.open(alice), { to: gone });
		expect(pass()).toEqual(nothing);
		expect(running.hasStandby(root.boxes(gone).folder)).toBe(true);
	});

	test("is moved back when it is this session's, and has no running record", () => {
		judged.clear();
		layAside(carol);
		expect(pass({ self: carol })).toEqual(nothing);
		expect(kept(carol)).toHaveLength(2);
	});

	test("is joined with the folder that was made since", () => {
		const moved = layAside();
		writeFileSync(join(moved, "new", "000000000000002-y.json"), "late");
		const id = deliver();
		expect(pass()).toEqual(nothing);
		expect(rootNames()).toEqual([gone]);
		expect(root.names(gone, "new")).toHaveLength(2);
		expect(root.names(gone, "new").some((name) => name.includes(id))).toBe(true);
		expect(kept()).toHaveLength(2);
		for (const path of Object.values(root.boxes(gone))) expect(statSync(path).mode & 0o777).toBe(0o700);
	});

	test.each(["tmp", "sent", "cur"] as const)("L2 is joined also when it has no %s/", (box) => {
		const moved = layAside();
		rmSync(join(moved, box), { recursive: true });
		writeFileSync(join(moved, "new", "mail.json"), "late");
		root.open(gone, { durability: "fast" });
		expect(pass()).toEqual(nothing);
		expect([rootNames(), root.names(gone, "new")]).toEqual([[gone], ["mail.json"]]);
	});

	test("is joined, and of what both hold in cur/ one is kept", () => {
		const moved = layAside();
		writeFileSync(join(moved, "new", "mail.json"), "late");
		root.lay(gone, "cur", "000000000000001-x.json", "the same");
		expect(pass()).toEqual(nothing);
		expect(root.names(gone, "cur")).toEqual(["000000000000001-x.json"]);
	});

	test("I-PSM-8 is no link to a folder elsewhere: nothing in that is removed or moved", () => {
		const elsewhere = join(root.path, "..", "elsewhere");
		mkdirSync(join(elsewhere, "new"), { recursive: true });
		for (const name of ["x", "new/y.json"]) writeFileSync(join(elsewhere, name), "");
		symlinkSync(elsewhere, join(root.path, aside()));
		symlinkSync(join(elsewhere, "new"), join(root.path, aside()));
		expect(pass()).toEqual(nothing);
		expect([readdirSync(elsewhere).sort(), readdirSync(join(elsewhere, "new"))]).toEqual([["new", "x"], ["y.json"]]);
	});

	test("is joined, and of two unread mails of one name both are kept", () => {
		const moved = layAside();
		writeFileSync(join(moved, "new", "mail.json"), "one");
		root.lay(gone, "new", "mail.json", "two");
		expect(pass()).toEqual(nothing);
		const texts = root.names(gone, "new").map((name) => readFileSync(join(root.boxes(gone).new, name), "utf8"));
		expect(texts.sort()).toEqual(["one", "two"]);
		expect(root.names(gone, "new").every((name) => name.endsWith(".json"))).toBe(true);
	});

	test("is joined with a folder that is made at this very moment", () => {
		for (let n = 1; ; n++) {
			const moved = layAside();
			writeFileSync(join(moved, "new", "mail.json"), "late");
			const other = interruptedDisk();
			other.arm(n, () => deliver());
			expect(pass({ disk: { ...clocked, ...pick(other.disk) } })).toEqual(nothing);
			expect(rootNames()).toEqual([gone]);
			expect([n, root.names(gone, "new").length]).toEqual([n, other.acted ? 2 : 1]);
			rmSync(root.boxes(gone).folder, { recursive: true });
			if (!other.acted) break;
		}
	});

	test("L2 a session that starts while it is joined never meets the mark of a mail that is not there yet", () => {
		const name = "000000000000007-11111111-2222-4333-8444-555555555555.json";
		for (let n = 1; ; n++) {
			const moved = layAside();
			writeFileSync(join(moved, "cur", name), envelopeText({ to: gone }));
			writeFileSync(join(moved, "cur", `${name}.open`), "");
			root.open(gone, { durability: "fast" });
			const other = interruptedDisk();
			other.arm(n, () => void root.start(gone));
			const markFirst = (folder: string) => other.disk.list(folder).sort().reverse();
			expect(pass({ disk: { ...clocked, ...pick(other.disk), list: markFirst } })).toEqual(nothing);
			expect([n, root.names(gone, "cur").includes(`${name}.open`)]).toEqual([n, true]);
			rmSync(root.boxes(gone).folder, { recursive: true });
			if (!other.acted) break;
		}
	});
});

/** The operations of a disk that change or read, without its clock. */
function pick({ changed: _, ...operations }: Disk): Omit<Disk, "changed"> {
	return operations;
}

/** A disk with the clock of the test whose n-th operation does something else first. */
function interrupted(n: number, act: () => void) {
	let done = 0;
	const disk = watchedDisk(() => {
		if (++done === n) act();
	}, clocked);
	return {
		disk,
		get acted() {
			return done >= n;
		},
	};
}

/** What a pass removes besides the sessions of the test itself. */
function finish() {
	const { warnings } = pass(byCommand);
	expect(warnings).toEqual([]);
}

describe("PSM-091 a process that ends at any moment of its pass loses nothing", () => {
	test("killed at each operation: the next pass removes the rest", () => {
		for (let n = 1; ; n++) {
			closedSession();
			const faulty = faultyDisk(clocked);
			faulty.dieAt(n);
			pass({ ...byCommand, disk: faulty.disk });
			finish();
			expect([n, rootNames()]).toEqual([n, []]);
			if (faulty.failed === undefined) break;
		}
	});

	test("killed at each operation: a mail that comes then is there, and so is everything else, or all of it is gone", () => {
		for (let n = 1; ; n++) {
			closedSession();
			const faulty = faultyDisk(clocked);
			faulty.dieAt(n);
			pass({ ...byCommand, disk: faulty.disk });
			const wasThere = existsSync(root.boxes(gone).folder);
			const id = deliver();
			finish();
			expect([n, rootNames(), unread()]).toEqual([n, [gone], [id]]);
			expect([n, kept().length]).toEqual([n, wasThere ? 2 : 0]);
			rmSync(root.boxes(gone).folder, { recursive: true });
			if (faulty.failed === undefined) break;
		}
	});

	test.each(faultCodes)("each operation fails once (%s): the next pass removes the rest", (code) => {
		for (let n = 1; ; n++) {
			closedSession();
			closedSession(carol);
			const faulty = faultyDisk(clocked);
			faulty.failAt(n, code);
			pass({ ...byCommand, disk: faulty.disk });
			finish();
			expect([n, rootNames()]).toEqual([n, []]);
			if (faulty.failed === undefined) break;
		}
	});

	test("given up after each step: the next pass removes the rest", () => {
		for (let n = 0, isDone = false; !isDone; n++) {
			closedSession();
			const steps = prune(optionsOf(byCommand));
			for (let step = 0; step < n && !isDone; step++) isDone = steps.next().done === true;
			steps.return(undefined);
			finish();
			expect([n, rootNames()]).toEqual([n, []]);
		}
	});

	test("killed while it moves a folder back, at each operation: that folder is whole afterwards", () => {
		for (let n = 1; ; n++) {
			closedSession();
			const moved = join(root.path, `.pruning.${gone}.${randomUUID()}`);
			nodeDisk().rename(root.boxes(gone).folder, moved);
			writeFileSync(join(moved, "new", "late.json"), "");
			const ofCalls = ["calls/c.json", "results/r.json", "tickets/ticket-a.decision.json", "tickets/ticket-a.json"];
			for (const file of ofCalls) {
				mkdirSync(join(moved, dirname(file)), { recursive: true });
				writeFileSync(join(moved, file), "{}");
			}
			const id = deliver();
			const faulty = faultyDisk(clocked);
			faulty.dieAt(n);
			pass({ ...byCommand, disk: faulty.disk });
			finish();
			expect([n, rootNames(), root.names(gone, "new").length]).toEqual([n, [gone], 2]);
			expect([n, kept().length]).toEqual([n, 2]);
			expect([n, ofCalls.filter((file) => existsSync(join(root.boxes(gone).folder, file)))]).toEqual([n, ofCalls]);
			expect(root.names(gone, "new").some((name) => name.includes(id))).toBe(true);
			rmSync(root.boxes(gone).folder, { recursive: true });
			if (faulty.failed === undefined) break;
		}
	});
});

describe("PSM-091 what happens during a pass", () => {
	test("a mail that is sent at any moment of it waits for its recipient", () => {
		for (let n = 1; ; n++) {
			closedSession();
			let id = "";
			const other = interrupted(n, () => {
				id = deliver();
			});
			expect(pass({ ...byCommand, disk: other.disk }).warnings).toEqual([]);
			if (!other.acted) break;
			finish();
			expect([n, rootNames(), unread()]).toEqual([n, [gone], [id]]);
			expect([0, 2]).toContain(kept().length);
			rmSync(root.boxes(gone).folder, { recursive: true });
		}
	});

	test("a mail that is sent between the look and the move: the folder is put back as it was, of mode 0700", () => {
		closedSession();
		let id = "";
		const disk = watchedDisk(({ name, paths }) => {
			if (id === "" && name === "rename" && paths[0] === root.boxes(gone).folder) id = deliver();
		}, clocked);
		expect(pass({ ...byCommand, disk })).toEqual(nothing);
		expect([rootNames(), unread(), kept().length]).toEqual([[gone], [id], 2]);
		for (const path of Object.values(root.boxes(gone))) expect(statSync(path).mode & 0o777).toBe(0o700);
	});

	test("a session that starts at any moment of it can send and receive, and has its files or none of them", () => {
		for (let n = 1; ; n++) {
			closedSession();
			const other = interrupted(n, () => {
				judged.set(gone, "running");
				root.start(gone, clocked);
			});
			expect(pass({ ...byCommand, disk: other.disk }).warnings).toEqual([]);
			const id = deliver();
			if (other.acted) {
				expect(pass(byCommand)).toEqual(nothing);
				expect([n, unread(), rootNames()]).toEqual([n, [id], [gone]]);
				expect(
					root.open(gone, { durability: "fast" }).deliver({ to: bob, kind: "message", body: "x", hops: 0 }).ok,
				).toBe(true);
			}
			judged.delete(gone);
			rmSync(root.boxes(gone).folder, { recursive: true });
			if (!other.acted) break;
		}
	});

	test("a session that starts before the removal has begun keeps all of it", () => {
		for (let n = 1; ; n++) {
			closedSession();
			let hasBegun = false;
			let started: boolean | undefined;
			let done = 0;
			const disk = watchedDisk(({ name, paths }) => {
				hasBegun ||= name === "walk" && /\/\.pruning\.[^/]*$/.test(paths[0] ?? "");
				if (++done !== n) return;
				started = !hasBegun;
				judged.set(gone, "running");
			}, clocked);
			pass({ ...byCommand, disk });
			if (started === true) expect([n, kept().length]).toEqual([n, 2]);
			judged.delete(gone);
			rmSync(root.boxes(gone).folder, { recursive: true, force: true });
			if (started === undefined) break;
		}
	});

	test("another pass at any moment of it: the folder is removed, once, and nobody complains", () => {
		for (let n = 1; ; n++) {
			closedSession();
			const found: string[] = [];
			const other = interrupted(n, () => {
				const { removed, warnings } = pass(byCommand);
				found.push(...removed, ...warnings);
			});
			const { removed, warnings } = pass({ ...byCommand, disk: other.disk });
			expect([n, [...found, ...removed], warnings]).toEqual([n, [gone], []]);
			expect(rootNames()).toEqual([]);
			if (!other.acted) break;
		}
	});

	test("another pass that was begun and left at any two moments of it: nothing is left, and nothing is lost", () => {
		for (let n = 1; n < 40; n += 3) {
			for (let steps = 1; steps < 20; steps += 2) {
				closedSession();
				const second = prune(optionsOf(byCommand));
				const other = interrupted(n, () => {
					for (let step = 0; step < steps; step++) second.next();
				});
				pass({ ...byCommand, disk: other.disk });
				const id = deliver();
				outcome(second);
				finish();
				expect([n, steps, unread(), rootNames()]).toEqual([n, steps, [id], [gone]]);
				rmSync(root.boxes(gone).folder, { recursive: true });
			}
		}
	});
});

test("I-PSM-2 no unread mail is ever lost, whatever passes, mails, starts and ends come in between each other", () => {
	const addresses = [gone, carol];
	const event = fc.oneof(
		{
			weight: 8,
			arbitrary: fc.record({
				type: fc.constant("step" as const),
				of: fc.nat(2),
				count: fc.integer({ min: 1, max: 12 }),
			}),
		},
		{ weight: 2, arbitrary: fc.record({ type: fc.constant("mail" as const), to: fc.nat(1) }) },
		{
			weight: 2,
			arbitrary: fc.record({
				type: fc.constant("start" as const),
				of: fc.nat(1),
				claims: fc.boolean(),
				closes: fc.boolean(),
			}),
		},
		{ weight: 2, arbitrary: fc.record({ type: fc.constant("end" as const), of: fc.nat(1) }) },
		{ weight: 1, arbitrary: fc.record({ type: fc.constant("crash" as const), of: fc.nat(2) }) },
	);
	fc.assert(
		fc.property(fc.array(event, { minLength: 5, maxLength: 60 }), (events) => {
			root = testRoot();
			clocked = clockedDisk();
			judged = runningAtFirst();
			for (const address of addresses) closedSession(address);
			const passes: (Generator<PruneStep> | undefined)[] = [];
			const waits = new Map<string, string>();
			const warnings: string[] = [];
			for (const happens of events) {
				if (happens.type === "step") {
					passes[happens.of] ??= prune(optionsOf(byCommand));
					for (let n = 0; n < happens.count; n++) {
						const step = passes[happens.of]?.next();
						if (step?.value !== undefined && "warning" in step.value) warnings.push(step.value.warning);
						if (step?.done === true) passes[happens.of] = undefined;
					}
				} else if (happens.type === "crash") {
					passes[happens.of]?.return(undefined);
					passes[happens.of] = undefined;
				} else {
					const address = addresses["to" in happens ? happens.to : happens.of] ?? gone;
					if (happens.type === "mail") waits.set(deliver(address), address);
					else if (happens.type === "end") judged.delete(address);
					else {
						judged.set(address, "running");
						const { mailbox } = root.start(address, clocked);
						const [name] = mailbox.waiting();
						const claim = happens.claims && name !== undefined ? mailbox.claim(name) : undefined;
						if (claim?.result !== "claimed" || !happens.closes) continue;
						mailbox.close(claim.mail.name);
						waits.delete(claim.mail.envelope.id);
					}
				}
			}
			for (const step of passes) if (step !== undefined) outcome(step);
			judged = runningAtFirst();
			finish();
			const left = addresses.flatMap((address) => {
				const claimed = root.names(address, "cur");
				return [...root.names(address, "new"), ...claimed.filter((name) => claimed.includes(`${name}.open`))];
			});
			for (const id of waits.keys()) expect(left.filter((name) => name.includes(id))).toHaveLength(1);
			expect(warnings).toEqual([]);
			expect(rootNames().filter((name) => name.startsWith("."))).toEqual([]);
			rmSync(root.path, { recursive: true });
		}),
		{ numRuns: 150 },
	);
}, 60_000);

describe("one process at a time prunes a root", () => {
	/** Resolves with what `work` is given, or with nothing when another one has the lock. */
	const tryLock = () =>
		new Promise<(() => void) | undefined>((resolve) => {
			whileAlone(root.path, resolve);
			setTimeout(() => resolve(undefined), 300);
		});

	test("the second does nothing, until the first is done", async () => {
		const end = await tryLock();
		expect(end).toBeTypeOf("function");
		expect(await tryLock()).toBeUndefined();
		end?.();
		await expect.poll(() => rootNames()).toEqual([]);
		(await tryLock())?.();
		await expect.poll(() => rootNames()).toEqual([]);
	});

	test("the lock that a process left whose clock was forty days ahead stops nobody", async () => {
		const lockFolder = join(root.path, ".prune.lock");
		const aheadS = Date.now() / 1000 + 40 * 24 * 60 * 60;
		mkdirSync(lockFolder);
		utimesSync(lockFolder, aheadS, aheadS);
		const end = await tryLock();
		expect(end).toBeTypeOf("function");
		end?.();
		await expect.poll(() => rootNames()).toEqual([]);
	});

	test("a root that is not there is no error", async () => {
		rmSync(root.path, { recursive: true });
		expect(await tryLock()).toBeUndefined();
	});
});
