import { rmSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { nodeDisk } from "../../src/mail/disk.ts";
import type { Processes } from "../../src/mail/process.ts";
import { openRunning } from "../../src/mail/running.ts";
import { createOutbox } from "../../src/session/outbox.ts";
import { alice, bob, carol, fail, testRoot, watchedDisk } from "../support/disk.ts";

/** An outbox of Alice; Bob runs, Carol has a mailbox and does not run. */
function setUp({ hopLimit = 5, isDurable = true } = {}) {
	const root = testRoot();
	let fails: { name: string; pathEnd: string } | undefined;
	const disk = watchedDisk(({ name, paths }) => {
		if (name === fails?.name && paths[0]?.endsWith(fails.pathEnd)) fail("EIO");
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
	running.own(bob, { name: "bob", cwd: "/work", state: "idle", waitingOn: "" });
	for (const address of [bob, carol]) root.open(address);
	const mailbox = root.open(alice, { disk, durability: isDurable ? "durable" : "fast" });
	const outbox = createOutbox({ mailbox, running, hopLimit: () => hopLimit, isDurable: () => isDurable });
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
		[carol, "That session is not running; the mail waits until it starts."],
		[
			"01980f5e-7a3c-7d10-8f00-0000000000ff",
			"No session with this id has been seen on this machine; the mail waits for one.",
		],
	])("D16/PSM-081 says of %s what is known of it", (to, note) => {
		const sent = setUp().outbox.send({ to, ...mail });
		expect(sent).toMatchObject({ ok: true, recipient: undefined, notes: [note] });
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
