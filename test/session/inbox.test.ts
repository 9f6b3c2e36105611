import { execFileSync } from "node:child_process";
import { mkdirSync, renameSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import type { Mailbox } from "../../src/mail/mailbox.ts";
import { createInbox, type Inbox } from "../../src/session/inbox.ts";
import { alice, bob, envelopeText, fail, sent, type TestRoot, testRoot, watchedDisk } from "../support/disk.ts";

let root: TestRoot;
let sender: Mailbox;
let inbox: Inbox;
let warnings: string[];

beforeEach(() => {
	root = testRoot();
	sender = root.open(alice, { durability: "fast" });
	open();
});
afterEach(() => {
	inbox.close();
	vi.useRealTimers();
});

function open(disk: Disk = nodeDisk()): void {
	warnings = [];
	inbox = createInbox(
		root.open(bob, { disk, durability: "fast" }),
		({ path, reason }) => warnings.push(`${path} set aside: ${reason}`),
		(text) => warnings.push(text),
	);
}

const send = (kind: "request" | "reply" | "message" = "request") => sent(sender, { kind });
const ids = (mails: readonly { envelope: { id: string } }[]) => mails.map(({ envelope }) => envelope.id);

describe("mail is claimed", () => {
	test("PSM-043 in the order it was sent, no more than asked for, and the rest stays", () => {
		const all = [send(), send("reply"), send("message")];
		expect(ids(inbox.claim(2).mails)).toEqual(all.slice(0, 2));
		expect(inbox.waitingCount).toBe(1);
		expect(inbox.claim(0).mails).toEqual([]);
		expect(ids(inbox.claim(20).mails)).toEqual(all.slice(2));
		expect([inbox.waitingCount, warnings]).toEqual([0, []]);
	});

	test("PSM-042 once, by whoever is first", () => {
		const all = [send(), send()];
		const first = inbox;
		open();
		expect([...ids(first.claim(1).mails), ...ids(inbox.claim(20).mails), ...ids(first.claim(20).mails)]).toEqual(all);
	});

	test("PSM-017 past what cannot be read: it is set aside with one warning, and later mail comes", () => {
		root.lay(bob, "new", "000000000000001-x.json", "{");
		root.lay(bob, "new", "000000000000002-x.json", envelopeText({ hops: -1 }));
		const id = send();
		expect(ids(inbox.claim(20).mails)).toEqual([id]);
		expect(inbox.claim(20).mails).toEqual([]);
		expect(warnings).toMatchObject(
			[/1-x\.json .*set aside: it is not JSON/, /2-x\.json .*set aside: invalid hops -1/].map((pattern) =>
				expect.stringMatching(pattern),
			),
		);
		expect(root.names(bob, "new")).toEqual([]);
	});

	test.skipIf(process.platform === "win32")(
		"PSM-018 past a folder and a FIFO: they stay, with one warning each, and are not counted",
		() => {
			mkdirSync(join(root.boxes(bob).new, "1.json"));
			execFileSync("mkfifo", [join(root.boxes(bob).new, "2.json")]);
			root.lay(bob, "new", "notes.txt", "hello");
			const id = send();
			expect(ids(inbox.claim(20).mails)).toEqual([id]);
			inbox.look();
			expect([inbox.waitingCount, warnings.length]).toEqual([0, 2]);
			expect(root.names(bob, "new")).toEqual(["1.json", "2.json", "notes.txt"]);
		},
	);

	test("PSM-018 also under a name that was no mail before", () => {
		mkdirSync(join(root.boxes(bob).new, "1.json"));
		expect(inbox.claim(20).mails).toEqual([]);
		rmdirSync(join(root.boxes(bob).new, "1.json"));
		expect(inbox.claim(20).mails).toEqual([]);
		root.lay(bob, "new", "1.json", envelopeText());
		expect(inbox.claim(20).mails).toHaveLength(1);
	});

	test("later when the disk refuses now, and other mail comes meanwhile", () => {
		let isBroken = true;
		const [first, second] = [send(), send()];
		open(watchedDisk(({ name, paths }) => isBroken && name === "rename" && paths[0]?.includes(first) && fail("EIO")));
		// It does not stand in the way of the rest.
		expect(ids(inbox.claim(1).mails)).toEqual([second]);
		expect(warnings).toEqual([expect.stringMatching(/could not be taken in and will be tried again: EIO/)]);
		// Nor is it a reason to ask again at once.
		expect(inbox.claim(20)).toEqual({ mails: [], hasMore: false });
		isBroken = false;
		expect(ids(inbox.claim(20).mails)).toEqual([first]);
	});

	test("a folder that cannot be listed gives nothing for the moment, and a warning names it", () => {
		renameSync(root.boxes(bob).new, `${root.boxes(bob).new}.away`);
		expect([inbox.claim(20).mails, inbox.isReadable]).toEqual([[], false]);
		expect(warnings).toEqual([expect.stringMatching(/the inbox .*new cannot be read/)]);
		renameSync(`${root.boxes(bob).new}.away`, root.boxes(bob).new);
		const id = send();
		expect([ids(inbox.claim(20).mails), inbox.isReadable]).toEqual([[id], true]);
	});
});

describe("mail on hold", () => {
	const names = () => root.names(bob, "new").filter((name) => name.endsWith(".json"));

	test("is not claimed, and counted apart, until it is released", () => {
		const [first, second] = [send(), send("message")];
		const [name = ""] = names();
		expect(inbox.hold(name)).toBe(true);
		expect(ids(inbox.claim(20).mails)).toEqual([second]);
		expect([inbox.waitingCount, inbox.onHoldCount, names()]).toEqual([0, 1, [name]]);
		expect(inbox.release(name)).toBe(true);
		expect([inbox.waitingCount, inbox.onHoldCount, root.names(bob, "new")]).toEqual([1, 0, [name]]);
		expect(ids(inbox.claim(20).mails)).toEqual([first]);
	});

	test("of an earlier process is on hold as well", () => {
		send();
		const [name = ""] = names();
		inbox.hold(name);
		inbox.close();
		open();
		expect([inbox.claim(20), inbox.claimExpected(false)]).toEqual([
			{ mails: [], hasMore: false },
			{ mails: [], hasMore: false },
		]);
		expect(inbox.onHoldCount).toBe(1);
	});

	test("is not claimed while its folder cannot be listed either", () => {
		send();
		let isBroken = false;
		const [name = ""] = names();
		open(watchedDisk((operation) => operation.name === "list" && isBroken && fail("EIO")));
		inbox.look();
		inbox.hold(name);
		isBroken = true;
		expect([inbox.claim(20).mails, inbox.onHoldCount]).toEqual([[], 1]);
		inbox.release(name);
		expect(inbox.claim(20).mails).toHaveLength(1);
	});

	test("L6 behind a backlog, which is listed once a second, is not claimed either", () => {
		for (let n = 100; n < 400; n++) root.lay(bob, "new", `${n}.json`, envelopeText({ kind: "message" }));
		inbox.look();
		inbox.hold("100.json");
		expect(inbox.claim(1).mails.map(({ name }) => name)).toEqual(["101.json"]);
		inbox.release("100.json");
		expect(inbox.claim(1000).mails).toHaveLength(299);
	});

	test("that was claimed or taken back just before is not: its hold is removed again", () => {
		send();
		inbox.look();
		const [name = ""] = names();
		rmSync(join(root.boxes(bob).new, name));
		expect([inbox.hold(name), inbox.waitingCount, inbox.onHoldCount]).toEqual([false, 0, 0]);
		expect(root.names(bob, "new")).toEqual([]);
		expect(inbox.release(name)).toBe(false);
		expect(inbox.waitingCount).toBe(0);
	});

	test("that is gone leaves no hold behind", () => {
		send();
		const [name = ""] = names();
		inbox.hold(name);
		rmSync(join(root.boxes(bob).new, name));
		inbox.claimExpected(false);
		expect([root.names(bob, "new"), inbox.onHoldCount, warnings]).toEqual([[], 0, []]);
	});

	test.each(["remove", "create"] as const)("L4 is as it was when the disk does not take it (%s)", (operation) => {
		send();
		const [name = ""] = names();
		open(watchedDisk(({ name, paths }) => name === operation && paths[0]?.endsWith(".hold") && fail("EROFS")));
		if (operation === "create") expect(() => inbox.hold(name)).toThrow("EROFS");
		else {
			inbox.hold(name);
			expect(() => inbox.release(name)).toThrow("EROFS");
		}
		expect(inbox.claim(20).mails).toHaveLength(operation === "create" ? 1 : 0);
	});

	test("L2 counts as on hold when the disk cannot say whether it is still there", () => {
		send();
		const [name = ""] = names();
		open(
			watchedDisk((operation) => operation.name === "entry" && operation.paths[0]?.endsWith(".json") && fail("EIO")),
		);
		expect(inbox.hold(name)).toBe(true);
		expect(root.names(bob, "new")).toHaveLength(2);
	});
});

describe("while the session is busy, design 4.2", () => {
	test("only replies are claimed; the rest waits, unclaimed, and can be taken back", () => {
		const [request, reply, message] = [send(), send("reply"), send("message")];
		expect(ids(inbox.claimExpected(false).mails)).toEqual([reply]);
		expect(inbox.waitingCount).toBe(2);
		expect(root.names(bob, "new")).toEqual([expect.stringContaining(request), expect.stringContaining(message)]);
		expect(root.names(bob, "cur")).toHaveLength(2);
		for (const name of root.names(bob, "new")) rmSync(join(root.boxes(bob).new, name));
		expect(inbox.claimExpected(false)).toEqual({ mails: [], hasMore: false });
		expect(inbox.waitingCount).toBe(0);
	});

	test("each waiting file is read once, and at most 100 at a time", () => {
		for (let n = 0; n < 150; n++) send("message");
		const reply = send("reply");
		let reads = 0;
		open(watchedDisk(({ name, paths }) => name === "read" && paths[0]?.includes("/new/") && reads++));
		expect(inbox.claimExpected(false)).toEqual({ mails: [], hasMore: true });
		expect(reads).toBe(100);
		const second = inbox.claimExpected(false);
		expect([ids(second.mails), second.hasMore]).toEqual([[reply], false]);
		reads = 0;
		inbox.claimExpected(false);
		expect(reads).toBe(0);
	});

	test("L6 of many replies 20 are claimed at a time, in order", () => {
		const replies = Array.from({ length: 45 }, () => send("reply"));
		const taken = Array.from({ length: 4 }, () => inbox.claimExpected(false));
		expect(taken.map(({ mails, hasMore }) => [mails.length, hasMore])).toEqual([
			[20, true],
			[20, true],
			[5, false],
			[0, false],
		]);
		expect(taken.flatMap(({ mails }) => ids(mails))).toEqual(replies);
	});

	test("L5 L6 behind a backlog the inbox is listed once a second, and a reply is found all the same", () => {
		vi.useFakeTimers();
		for (let n = 100; n < 400; n++) root.lay(bob, "new", `${n}.json`, envelopeText({ kind: "message" }));
		let lists = 0;
		open(watchedDisk(({ name, paths }) => name === "list" && paths[0]?.endsWith("/new") && lists++));
		while (inbox.claimExpected(false).hasMore);
		expect(lists).toBe(1);
		const reply = send("reply");
		vi.advanceTimersByTime(1000);
		expect(ids(inbox.claimExpected(false).mails)).toEqual([reply]);
	});

	test("what was read of a file that is gone does not count for the next of its name", () => {
		const file = root.lay(bob, "new", "000000000000001-x.json", envelopeText({ kind: "message" }));
		expect(inbox.claimExpected(false).mails).toEqual([]);
		rmSync(file);
		inbox.claimExpected(false);
		root.lay(bob, "new", "000000000000001-x.json", envelopeText({ kind: "reply" }));
		expect(inbox.claimExpected(false).mails).toHaveLength(1);
	});

	test("L10 a disk that reads nothing for the moment is not asked again at once", () => {
		for (let n = 0; n < 150; n++) send("reply");
		open(watchedDisk(({ name, paths }) => name === "read" && paths[0]?.includes("/new/") && fail("EMFILE")));
		expect(inbox.claimExpected(false)).toEqual({ mails: [], hasMore: false });
	});

	test("what cannot be read is left for the boundary", () => {
		root.lay(bob, "new", "000000000000001-x.json", "{");
		const reply = send("reply");
		expect(ids(inbox.claimExpected(false).mails)).toEqual([reply]);
		expect([root.names(bob, "new"), warnings]).toEqual([["000000000000001-x.json"], []]);
	});

	test("a file that the disk cannot read for the moment does not keep replies back", () => {
		const request = send();
		const reply = send("reply");
		open(watchedDisk(({ name, paths }) => name === "read" && paths[0]?.includes(request) && fail("EIO")));
		expect(ids(inbox.claimExpected(false).mails)).toEqual([reply]);
	});
});

describe("mail is noticed", () => {
	test("PSM-041, L5: about every second, whatever the watcher says", () => {
		vi.useFakeTimers();
		let calls = 0;
		inbox.watch(() => calls++);
		vi.advanceTimersByTime(3000);
		expect(calls).toBe(3);
	});

	test("PSM-041 soon after it came", async () => {
		const noticed = new Promise<void>((resolve) => inbox.watch(resolve));
		// The watcher needs a moment to begin; the sweep must not be what notices.
		const start = performance.now();
		const sending = setInterval(send, 20);
		await noticed;
		clearInterval(sending);
		expect(performance.now() - start).toBeLessThan(900);
	});

	test("PSM-045 no more once it is closed, and nothing keeps the process alive", () => {
		vi.useFakeTimers();
		let calls = 0;
		inbox.watch(() => calls++);
		inbox.close();
		inbox.close();
		vi.advanceTimersByTime(10_000);
		expect([calls, vi.getTimerCount()]).toEqual([0, 0]);
	});
});

describe("what is not left waiting while the session is busy", () => {
	test("SMB-041 are answers, control mail, and interrupts unless they are to wait", () => {
		const reply = sent(sender, { kind: "reply" });
		const control = sent(sender, { kind: "control", body: "pause", control: { op: "pause" } });
		const interrupt = sent(sender, { kind: "request", priority: "interrupt" });
		const request = sent(sender, { kind: "request" });
		expect(ids(inbox.claimExpected(false).mails)).toEqual([reply, control]);
		expect(inbox.waitingCount).toBe(2);
		expect(ids(inbox.claimExpected(true).mails)).toEqual([interrupt]);
		expect(ids(inbox.claimExpected(true).mails)).toEqual([]);
		expect(ids(inbox.claim(20).mails)).toEqual([request]);
	});

	test("SMB-029 are results of the session's own calls, and of nobody else's", () => {
		const own = sent(root.open(bob, { durability: "fast" }), { to: bob, kind: "result" });
		sent(sender, { kind: "result" });
		expect(ids(inbox.claimExpected(true).mails)).toEqual([own]);
	});
});
