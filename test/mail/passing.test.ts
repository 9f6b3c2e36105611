import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { isPassingAddress } from "../../src/mail/address.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { parseEnvelope } from "../../src/mail/envelope.ts";
import { removePassing } from "../../src/mail/passing.ts";
import { type Processes, systemProcesses } from "../../src/mail/process.ts";
import { isOfProgram, takeForProgram } from "../../src/mail/program.ts";
import { type PruneStep, prune } from "../../src/mail/prune.ts";
import { resolve } from "../../src/mail/resolve.ts";
import { openRunning, type Running } from "../../src/mail/running.ts";
import { alice, bob, dayMs, draft, envelopeText, sent, type TestRoot, testRoot, watchedDisk } from "../support/disk.ts";

const passing = "ask-abcdefgh01234567";
const answer = { to: passing, kind: "reply", body: "yes", status: "done", inReplyTo: [bob] } as const;

function runningOf(root: TestRoot, processes: Processes = systemProcesses()): Running {
	return openRunning({ disk: nodeDisk(), root: root.path, processes, now: () => root.clockMs, warn() {} });
}

test.each([
	[passing, true],
	["send-abcdefgh01234567", true],
	["ask-short", false],
	["reviewer", false],
	[bob, false],
])("%s is the address of a program without a name: %s", (address, expected) => {
	expect(isPassingAddress(address)).toBe(expected);
});

describe("mail to a program without a name", () => {
	test("D27 is delivered while its folder is there, if it is an answer", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		root.open(passing);
		expect(mailbox.deliver(draft(answer))).toMatchObject({ ok: true });
		expect(mailbox.deliver(draft({ to: passing }))).toMatchObject({ ok: false, code: "ended" });
		expect(root.names(passing, "new")).toHaveLength(1);
	});

	test("D27 is refused with a clear word once the program has ended, and its folder does not come back", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		root.open(passing);
		removePassing(nodeDisk(), root.path, passing);
		const refused = { ok: false, code: "ended", message: "Nothing was sent: that program has ended." };
		expect(mailbox.deliver(draft(answer))).toEqual(refused);
		expect(nodeDisk().entry(join(root.path, passing))).toBeUndefined();
	});

	test("D27 is refused as well when the program ends in the middle of the delivery, at whatever step", () => {
		const codes = new Set<string>();
		for (let at = 1; at < 30; at++) {
			const root = testRoot();
			root.open(passing);
			let hasEnded = false;
			const disk = watchedDisk(({ n }) => {
				if (n !== at) return;
				removePassing(nodeDisk(), root.path, passing);
				hasEnded = true;
			});
			const outcome = root.open(alice, { disk }).deliver(draft(answer));
			if (hasEnded) expect(nodeDisk().entry(join(root.path, passing))).toBeUndefined();
			codes.add(outcome.ok ? "ok" : outcome.code);
		}
		expect([...codes].sort()).toEqual(["ended", "ok"]);
	});
});

describe("the folder of a program that was killed", () => {
	test("goes with the next one who meets its record", () => {
		const root = testRoot();
		const processes = systemProcesses();
		const gone = { ...processes, self: { ...processes.self, pid: 2 ** 30, started: undefined } };
		runningOf(root, gone).own(passing, { name: "bash", cwd: "/", state: "idle", waitingOn: "", program: true });
		root.open(passing);
		root.lay(passing, "new", "000000000000001-x.json", "late");
		expect(runningOf(root).find(passing)).toBeUndefined();
		expect(nodeDisk().list(root.path)).toEqual(["running"]);
		expect(nodeDisk().list(join(root.path, "running"))).toEqual([]);
	});

	test("goes with the next prune when it has no record, also with unread mail, but not while it may be sending", () => {
		const root = testRoot();
		root.clockMs = Date.now();
		root.open(passing);
		root.lay(passing, "new", "000000000000001-x.json", "late");
		const pruned = (now: number): PruneStep[] =>
			[
				...prune({
					disk: nodeDisk(),
					root: root.path,
					self: "",
					running: runningOf(root),
					now: () => now,
					olderThanMs: 30 * dayMs,
				}),
			].filter((step) => step !== undefined);
		expect(pruned(Date.now() + 30_000)).toEqual([]);
		expect(pruned(Date.now() + 90_000)).toEqual([{ removed: passing }]);
	});

	test("goes as well when its removal was cut short", () => {
		const root = testRoot();
		const aside = join(root.path, `.pruning.${passing}.11111111-2222-4333-8444-555555555555`);
		mkdirSync(join(aside, "new"), { recursive: true });
		writeFileSync(join(aside, "new", "000000000000001-x.json"), "late");
		for (const _ of prune({
			disk: nodeDisk(),
			root: root.path,
			self: "",
			running: runningOf(root),
			now: Date.now,
			olderThanMs: dayMs,
		}));
		expect(nodeDisk().list(root.path)).toEqual([]);
	});
});

describe("a recipient", () => {
	const program = { address: "reviewer", name: "reviewer", x: { program: true } };
	const options = { self: alice, hasMailbox: () => false };

	test("that is a program is found by its name, which is its address", () => {
		expect(resolve("reviewer", { running: [program], ...options })).toEqual({ ok: true, address: "reviewer" });
	});

	test("that a session and a program are called alike is refused, so that a program gets no session's mail", () => {
		const session = { address: bob, name: "reviewer" };
		expect(resolve("reviewer", { running: [program, session], ...options })).toMatchObject({
			ok: false,
			code: "ambiguous",
		});
		expect(resolve("reviewer", { running: [session], ...options, hasMailbox: () => true })).toEqual({
			ok: true,
			address: bob,
		});
	});

	test("is never a program that waits for an answer under the name of its shell", () => {
		const waiting = { address: passing, name: "bob", x: { program: true } };
		expect(resolve("bob", { running: [waiting, { address: bob, name: "bob" }], ...options })).toEqual({
			ok: true,
			address: bob,
		});
		expect(resolve("bob", { running: [waiting], ...options })).toMatchObject({ ok: false });
		expect(resolve(passing, { running: [], ...options })).toMatchObject({
			message: expect.stringContaining("has ended"),
		});
	});
});

describe("the name of a program", () => {
	test("is taken with what others sent to it before", () => {
		const root = testRoot();
		sent(root.open(alice), { to: "ci" });
		expect(takeForProgram(nodeDisk(), root.path, "ci")).toBe(true);
		expect(takeForProgram(nodeDisk(), root.path, "ci")).toBe(true);
		expect(root.names("ci", "new")).toHaveLength(1);
	});

	test.each(["cur", "sent"] as const)(
		"L2 is not taken when its folder is a session's, which has mail in %s/",
		(box) => {
			const root = testRoot();
			root.lay("nightly", box, "000000000000001-x.json", "old");
			expect(takeForProgram(nodeDisk(), root.path, "nightly")).toBe(false);
		},
	);

	test("stays with it when a prune that moved its folder moves it back", () => {
		const root = testRoot();
		takeForProgram(nodeDisk(), root.path, "ci");
		const mailbox = root.open(alice);
		sent(mailbox, { to: "ci" });
		nodeDisk().rename(join(root.path, "ci"), join(root.path, ".pruning.ci.11111111-2222-4333-8444-555555555555"));
		// Whoever sends meanwhile makes a new folder.
		sent(mailbox, { to: "ci" });
		const options = { disk: nodeDisk(), root: root.path, self: "", running: runningOf(root), now: () => root.clockMs };
		for (const _ of prune({ ...options, olderThanMs: dayMs }));
		expect(root.names("ci", "new")).toHaveLength(2);
		expect(isOfProgram(nodeDisk(), join(root.path, "ci"))).toBe(true);
	});
});

test("D1 what an envelope says under x is read as far as it is known, and nothing there keeps the mail out", () => {
	const x = (value: unknown) => {
		const parsed = parseEnvelope(envelopeText({ x: value }));
		return parsed.ok ? parsed.envelope.x : parsed.reason;
	};
	expect(x({ program: true, quiet: true, later: 1 })).toEqual({ program: true, quiet: true });
	expect(x({ program: "yes", quiet: 1, replaces: 2 })).toBeUndefined();
	for (const broken of [5, "x", [], null]) expect(x(broken)).toBeUndefined();
});

test("L3 the ask of a program that was killed before its copy had its name is found by its answer", () => {
	const root = testRoot();
	const id = "11111111-2222-4333-8444-555555555555";
	const path = root.lay(alice, "sent", `000000000000001-${id}.json.part`, envelopeText({ id, kind: "ask" }));
	expect(root.open(alice).sentCopies([id])).toMatchObject([{ path, envelope: { kind: "ask" } }]);
});
