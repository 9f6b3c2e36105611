import { rmSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { nodeDisk } from "../../src/mail/disk.ts";
import type { MailKind } from "../../src/mail/envelope.ts";
import type { Processes } from "../../src/mail/process.ts";
import { openRunning, type SessionFields } from "../../src/mail/running.ts";
import type { WakeOn } from "../../src/mail/wake-on.ts";
import { createOutbox } from "../../src/session/outbox.ts";
import { alice, bob, carol, dayMs, fail, startMs, testRoot, watchedDisk } from "../support/disk.ts";

/** An outbox of Alice; Bob runs, Carol has a mailbox and does not run. */
function setUp({
	hopLimit = 5,
	isDurable = true,
	wakeOn = undefined as WakeOn | undefined,
	isQuick = false,
	bobs = {} as Partial<SessionFields>,
} = {}) {
	const root = testRoot();
	let fails: { name: string; pathEnd: string } | undefined;
	const disk = watchedDisk(({ name, paths }) => {
		if (name === fails?.name && paths[0]?.endsWith(fails.pathEnd)) fail("EIO");
		if (isQuick && name === "list") for (const file of root.names(bob, "new")) rmSync(join(root.boxes(bob).new, file));
	}, nodeDisk());
	const processes: Processes = {
		self: { pid: 1, started: "1", boot: undefined, namespace: undefined },
		exists: () => true,
		startTokens: (pids) => new Map(pids.map((pid) => [pid, "1"])),
	};
	const running = openRunning({
		disk: nodeDisk(),
		root: root.path,
		processes,
		now: () => root.clockMs,
		warn: () => {},
	});
	running.own(alice, { name: "alice", cwd: "/work", state: "idle", waitingOn: "" });
	running.own(bob, { name: "bob", cwd: "/work", state: "idle", waitingOn: "", wakeOn, ...bobs });
	for (const address of [bob, carol]) root.open(address);
	const mailbox = root.open(alice, { disk, durability: isDurable ? "durable" : "fast" });
	const outbox = createOutbox({
		mailbox,
		running,
		hopLimit: () => hopLimit,
		isDurable: () => isDurable,
		now: () => root.clockMs,
	});
	return {
		root,
		outbox,
		running,
		failAt: (name: string, pathEnd = "") => {
			fails = { name, pathEnd };
		},
	};
}

const mail = { kind: "message", body: " hi \n", hops: 3 } as const;

describe("the outbox", () => {
	test("L6 reads no record of others for a full id", () => {
		const { outbox, running } = setUp();
		const list = vi.spyOn(running, "list");
		expect(outbox.send({ to: carol, ...mail })).toMatchObject({ ok: true });
		expect(list).not.toHaveBeenCalled();
	});

	test("PSM-081 sends trimmed text with the count it is given, and knows of the recipient that it runs", () => {
		const { outbox, root } = setUp();
		const sent = outbox.send({ to: "bob", ...mail });
		expect(sent).toMatchObject({
			ok: true,
			envelope: { from: alice, to: bob, kind: "message", hops: 3, body: "hi" },
			recipient: { address: bob, name: "bob" },
			notes: [],
		});
		expect(root.names(bob, "new")).toHaveLength(1);
	});

	test.each([
		[carol, "That session is not running; the mail waits until it starts.", "1 mail waits there."],
		[
			"01980f5e-7a3c-7d10-8f00-0000000000ff",
			"No session with this id has been seen on this machine; the mail waits for one.",
		],
	])("D16/PSM-081 says of %s what is known of it", (to, ...notes) => {
		const sent = setUp().outbox.send({ to, ...mail });
		expect(sent).toMatchObject({ ok: true, recipient: undefined, notes });
	});

	test("L4 says that the disk did not confirm it, and only when that was asked for", () => {
		const durable = setUp();
		durable.failAt("syncFolder");
		expect(durable.outbox.send({ to: "bob", ...mail })).toMatchObject({
			ok: true,
			durable: false,
			notes: ["The disk did not confirm it: a power cut could still undo it."],
		});
		expect(setUp({ isDurable: false }).outbox.send({ to: "bob", ...mail })).toMatchObject({ ok: true, notes: [] });
	});

	test.each([
		["PSM-033/082", "nobody", "unknown"],
		["PSM-034/082", "alice", "self"],
		["PSM-034/082", alice, "self"],
		["PSM-082", "", "empty"],
		["PSM-082", "bob", "empty"],
	])("%s refuses %j, and leaves nothing (%#)", (_id, to, code) => {
		const { outbox, root } = setUp();
		expect(outbox.send({ to, ...mail, body: " " })).toMatchObject({ ok: false, code });
		expect([root.names(bob, "new"), root.names(bob, "tmp"), root.names(alice, "sent")]).toEqual([[], [], []]);
	});

	test.each([
		["request", { kinds: ["ask"] }, "(wakeOn.kinds), bob (ADDRESS) takes no requests"],
		["ask", { kinds: [] }, "(wakeOn.kinds), bob (ADDRESS) takes no asks"],
		[
			"request",
			{ from: ["carol", carol] },
			"(wakeOn.from), bob (ADDRESS) takes requests from some sessions only, and not from this one",
		],
	] as [MailKind, WakeOn, string][])(
		"refuses a %s that its recipient excludes by %j, and says whose settings those are",
		(kind, wakeOn, why) => {
			const { outbox, root, running } = setUp({ wakeOn });
			const message = `Nothing was sent: by its settings ${why.replace("ADDRESS", bob)}; leave a message for it.`;
			expect(outbox.send({ to: "bob", ...mail, kind })).toEqual({ ok: false, code: "not_accepted", message });
			expect(outbox.notAccepted(bob, kind, undefined)).toMatchObject({ code: "not_accepted" });
			expect([root.names(bob, "new"), root.names(bob, "tmp"), root.names(alice, "sent")]).toEqual([[], [], []]);
			expect(outbox.send({ to: "bob", ...mail })).toMatchObject({
				ok: true,
				notes: ["By its settings, the mail starts no turn there."],
			});
			expect(outbox.send({ to: "bob", ...mail, quiet: true })).toMatchObject({ ok: true, notes: [] });
			// Set anew since it was last looked at.
			running.own(bob, { name: "bob", cwd: "/work", state: "idle", waitingOn: "" });
			expect(outbox.send({ to: "bob", ...mail, kind })).toMatchObject({ ok: true });
		},
	);

	test.each([
		{ kinds: ["request"] },
		{ from: ["alice"] },
		{ from: [alice.toUpperCase()] },
		{ kinds: ["request"], from: ["alice"] },
		{},
	] as WakeOn[])("sends a request that %j lets start a turn", (wakeOn) => {
		const { outbox } = setUp({ wakeOn });
		expect(outbox.send({ to: "bob", ...mail, kind: "request" })).toMatchObject({ ok: true, notes: [] });
	});

	test("L2 says of a request that was sent before that it was, also when it is not accepted any more", () => {
		const { outbox, running } = setUp();
		const request = { to: "bob", ...mail, kind: "request", id: "11111111-2222-4333-8444-555555555555" } as const;
		expect(outbox.send(request)).toMatchObject({ ok: true });
		running.own(bob, { name: "bob", cwd: "/work", state: "idle", waitingOn: "", wakeOn: { kinds: [] } });
		expect(outbox.send(request)).toMatchObject({ ok: true, duplicate: true });
		expect(outbox.send({ ...request, id: undefined })).toMatchObject({ code: "not_accepted" });
	});

	test("L4 says of a busy session how many mails wait there, and since when it was last active", () => {
		const { outbox, root, running } = setUp();
		running.own(bob, { name: "bob", cwd: "/work", state: "busy", waitingOn: "" });
		expect(outbox.send({ to: "bob", ...mail })).toMatchObject({
			notes: ["That session is busy.", "1 mail waits there; it was last active less than a minute ago."],
		});
		root.clockMs += 3 * 60_000;
		expect(outbox.send({ to: "bob", ...mail })).toMatchObject({
			notes: ["That session is busy.", "2 mails wait there; it was last active 3 minutes ago."],
		});
	});

	test("L4 says nothing of mail that waits when a busy session was quick and has taken it", () => {
		const { outbox, running } = setUp({ isQuick: true });
		running.own(bob, { name: "bob", cwd: "/work", state: "busy", waitingOn: "" });
		expect(outbox.send({ to: "bob", ...mail })).toMatchObject({ notes: ["That session is busy."] });
	});

	test.each([
		[58_000, "less than a minute"],
		[61_000, "1 minute"],
		[3_601_000, "1 hour"],
		[2.5 * dayMs, "2 days"],
		[-dayMs, "less than a minute"],
	])("L4 says of a closed session when it did something itself, not when others wrote to it (%i ms)", (ms, ago) => {
		const { outbox, root } = setUp();
		const state = root.lay(carol, "cur", "../state.json", "{}");
		utimesSync(state, startMs / 1000, startMs / 1000);
		root.clockMs = Date.now() + ms;
		expect(outbox.send({ to: carol, ...mail })).toMatchObject({
			notes: [
				"That session is not running; the mail waits until it starts.",
				`1 mail waits there; it was last active ${ago} ago.`,
			],
		});
	});

	test("PSM-022 refuses when the disk does, and leaves nothing", () => {
		const { outbox, root, failAt } = setUp();
		failAt("rename");
		expect(outbox.send({ to: "bob", ...mail })).toEqual({
			ok: false,
			code: "io",
			message: "Nothing was sent: EIO: made to fail.",
		});
		expect([root.names(bob, "new"), root.names(bob, "tmp"), root.names(alice, "sent")]).toEqual([[], [], []]);
	});

	test("L2 the same again, to a name that has ended meanwhile, is the mail that was sent", () => {
		const { outbox, root } = setUp();
		const again = { to: "bob", ...mail, id: "01980f5e-7a3c-4d10-8f00-000000000001" };
		expect(outbox.send(again)).toMatchObject({ ok: true });
		rmSync(join(root.path, "running", `${bob}.json`));
		expect(outbox.send(again)).toMatchObject({ ok: true, duplicate: true, notes: [] });
		expect(outbox.send({ ...again, id: undefined })).toMatchObject({ ok: false, code: "unknown" });
		expect(root.names(bob, "new")).toHaveLength(1);
	});

	test("L4 refuses when it cannot tell whether the recipient has a mailbox", () => {
		const { outbox, failAt } = setUp();
		failAt("entry", carol);
		expect(outbox.send({ to: carol, ...mail })).toMatchObject({
			ok: false,
			code: "io",
			message: "Nothing was sent: EIO: made to fail.",
		});
	});

	test("L4 refuses as well to ask, and to do something with, whom it cannot look for", () => {
		const { outbox, failAt } = setUp();
		failAt("entry", "worker");
		expect([outbox.resolve("worker"), outbox.control("worker", { op: "pause" })]).toMatchObject([
			{ ok: false, code: "io", message: "Nothing was sent: EIO: made to fail." },
			{ ok: false, code: "io", message: "Nothing was done: EIO: made to fail." },
		]);
	});

	test("L4 says that the mail root is missing, and not that nobody has such a name", () => {
		const { outbox, root } = setUp();
		rmSync(root.path, { recursive: true });
		const refusal = {
			ok: false,
			code: "io",
			message: expect.stringMatching(/^Nothing was sent: the mail root .* is missing/),
		};
		expect([outbox.resolve("bob"), outbox.send({ to: "bob", ...mail })]).toMatchObject([refusal, refusal]);
	});

	test("L6 a full id is found without a look at the other sessions", () => {
		const { outbox, running } = setUp();
		const list = vi.spyOn(running, "list");
		expect([outbox.send({ to: bob, ...mail }).ok, list.mock.calls.length]).toEqual([true, 0]);
	});

	test("PSM-086 refuses a model at the limit and beyond, not before", () => {
		const { outbox } = setUp({ hopLimit: 3 });
		expect([0, 2].map((hops) => outbox.hopRefusal(hops))).toEqual([undefined, undefined]);
		for (const hops of [3, 4, Number.MAX_SAFE_INTEGER]) {
			expect(outbox.hopRefusal(hops)).toEqual({
				ok: false,
				code: "hop_limit",
				message: `Nothing was sent: sessions have woken each other ${hops} times in a row, and the limit is 3. A person who types in either session starts the count again.`,
			});
		}
	});
});

describe("an interrupt", () => {
	const interrupt = (draft: object = {}) => ({ to: "bob", ...mail, priority: "interrupt" as const, ...draft });
	const refused = "Its user has not let this session interrupt it: it was sent as mail that does not.";

	function send(interruptFrom: string[] | undefined, draft: object = {}) {
		const { outbox } = setUp({ bobs: { interruptFrom } });
		const sent = outbox.send(interrupt(draft));
		if (!sent.ok) throw new Error(sent.message);
		return { priority: sent.envelope.x?.priority, notes: sent.notes };
	}

	test.each([[["*"]], [["carol", "alice"]], [[alice]], [[alice.toUpperCase()]]])(
		"SMB-040 of a model passes where %j may",
		(interruptFrom) => {
			expect(send(interruptFrom)).toEqual({ priority: "interrupt", notes: [] });
		},
	);

	test.each([[undefined], [[]], [["bob"]], [[bob, "ali"]]])(
		"SMB-040 of a model is sent as other mail, and it is told so, where %j may",
		(interruptFrom) => {
			expect(send(interruptFrom)).toEqual({ priority: undefined, notes: [refused] });
			expect(send(interruptFrom, { kind: "ask" })).toEqual({ priority: undefined, notes: [refused] });
		},
	);

	test("SMB-039 of a person always passes: as a request, and from a program", () => {
		expect(send([], { kind: "request" })).toEqual({ priority: "interrupt", notes: [] });
		expect(send([], { program: true })).toEqual({ priority: "interrupt", notes: [] });
	});

	test("is nothing that other mail has", () => {
		expect(send(["*"], { priority: undefined })).toEqual({ priority: undefined, notes: [] });
	});
});

describe("control", () => {
	test("SMB-043 is mail of its own kind, of which no copy is kept", () => {
		const { outbox, root } = setUp({ bobs: { accepts: ["control"] } });
		const sent = outbox.control("bob", { op: "cancel", calls: ["call-0123456789abcdef"] });
		expect(sent).toMatchObject({
			ok: true,
			envelope: { kind: "control", to: bob, x: { control: { op: "cancel", calls: ["call-0123456789abcdef"] } } },
			recipient: { address: bob },
		});
		expect([root.names(bob, "new").length, root.names(alice, "sent").length]).toEqual([1, 0]);
	});

	test.each<[string, Partial<SessionFields>, string, string]>([
		[carol, {}, "not_running", `Nothing was done: ${carol} is not running.`],
		["bob", {}, "not_accepted", "Nothing was done: bob runs an older version of pi-session-mail; restart Pi there."],
		["bob", { program: true, accepts: [] }, "not_accepted", "Nothing was done: bob is a program."],
	])("D21 of %s with %j is refused", (to, bobs, code, message) => {
		const { outbox, root } = setUp({ bobs });
		expect(outbox.control(to, { op: "pause" })).toEqual({ ok: false, code, message });
		expect([...root.names(bob, "new"), ...root.names(carol, "new")]).toEqual([]);
	});

	test("of nobody is refused as all mail to nobody", () => {
		expect(setUp().outbox.control("dave", { op: "pause" })).toMatchObject({ ok: false, code: "unknown" });
	});

	test("L4 whoever sends mail to a session that is paused is told that it waits", () => {
		const sent = setUp({ bobs: { paused: true } }).outbox.send({ to: "bob", ...mail });
		expect(sent).toMatchObject({ notes: ["That session is paused; the mail waits until its user lets it go on."] });
	});
});
