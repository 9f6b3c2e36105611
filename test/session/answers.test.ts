import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Draft } from "../../src/mail/deliver.ts";
import type { Disk } from "../../src/mail/disk.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { envelopeText, fail, type Operation, watchedDisk } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

/** What happens before each operation on disk. */
const faults = vi.hoisted(() => ({ wrap: (disk: Disk): Disk => disk }));
vi.mock(import("../../src/mail/disk.ts"), async (importOriginal) => {
	const real = await importOriginal();
	return { ...real, nodeDisk: () => faults.wrap(real.nodeDisk()) };
});
let before: (operation: Operation) => void = () => {};
faults.wrap = (disk) => watchedDisk((operation) => before(operation), disk);

useFakeMachine();

let peer: Peer;
let pi: FakePi;
beforeEach(async () => {
	peer = makePeer();
	pi = await startFakePi();
	await pi.run({ prompt: "hello" });
	await later(0);
});
afterEach(() => {
	before = () => {};
});

const send = (kind: Draft["kind"] = "request", draft: Partial<Draft> = {}, from = peer) =>
	from.send(pi, { kind, ...draft });

/** Waits until mail has started a run. */
async function wake(): Promise<void> {
	await later(1000);
	expect(pi.hasRunToPlay).toBe(true);
}

/** Sends a mail and plays the run that it starts. */
async function work(kind: Draft["kind"], script: Parameters<FakePi["run"]>[0]): Promise<string> {
	const id = send(kind);
	await wake();
	await pi.run(script);
	return id;
}

/** The replies in the peer's inbox: what they answer, their status and their text. */
const replies = (to = peer) => to.received().map((reply) => [reply.in_reply_to, reply.status, reply.body]);
const notes = () =>
	pi.session.getEntries().flatMap((entry) => {
		if (entry.type !== "custom" || entry.customType !== "session-mail") return [];
		return [entry.data as { type: string; replies: unknown[] }];
	});

const tookOver =
	"(The user stopped an earlier run partway and took over; the answer that follows is from the run that completed after that.)";
const restarted =
	"(The session was restarted before it could answer; the answer that follows is from the first run that completed after that.)";
const notRead =
	"(The session was stopped before it read the message. Nothing was done about it; send it again if it is still wanted.)";

test("L3 an open mark that cannot be removed keeps no answer back", async () => {
	pi = await startFakePi();
	const id = send();
	await wake();
	before = ({ name, paths }) => name === "remove" && paths[0]?.endsWith(".open") && fail("EROFS");
	await pi.run({ text: "All is well." });
	expect(replies()).toEqual([[[id], "done", "All is well."]]);
	expect(pi.notifications).toEqual([expect.stringMatching(/the open mark of .* could not be removed: EROFS/)]);
	before = () => {};
	await later(1000);
	expect(pi.openCount).toBe(0);
});

test("a mailbox that fails while it opens is off, and leaves no timer, no record and no dead Pi behind", async () => {
	let opened = 0;
	const own = join(mailRoot(), "0197a3f2-4444-7000-8000-00000000000d");
	before = ({ name, paths }) => name === "ensureFolder" && paths[0] === own && ++opened === 2 && fail("ENOSPC");
	const other = await startFakePi({ id: "0197a3f2-4444-7000-8000-00000000000d" });
	expect(other.notifications).toEqual([expect.stringMatching(/^mailbox: mailbox is off: ENOSPC/)]);
	expect(existsSync(join(mailRoot(), "running", `${other.address}.json`))).toBe(false);
	await later(10_000);
	expect(other.notifications).toHaveLength(1);
});

test("L1 mail whose entry is not saved yet keeps its open mark, also when it is found a second time", async () => {
	pi = await startFakePi();
	const id = send("reply", { status: "done" });
	await later(1000);
	expect([pi.mails().map((mail) => mail.id), existsSync(pi.file), pi.openCount]).toEqual([[id], false, 1]);
	expect(pi.status.get("mailbox")).toBeUndefined();
	send("reply", { status: "done", id });
	await later(1000);
	expect([pi.mails().length, pi.openCount]).toEqual([1, 2]);
	await pi.run({ prompt: "hello" });
	expect([pi.openCount, pi.status.get("mailbox")]).toEqual([0, "✉ 1 read"]);
});

test("L3 an answer that the session does not take at once is sent at the next look", async () => {
	await later(5000);
	const during = () => vi.spyOn(pi.session, "appendCustomEntry").mockImplementationOnce(() => fail("ENOSPC"));
	const id = await work("request", { during, text: "All is well." });
	await later(1000);
	expect(replies()).toEqual([[[id], "done", "All is well."]]);
});

test("L8 a reply answers only what was sent to its sender", async () => {
	await pi.type(`/mailbox ${peer.address} please`);
	const [asked] = peer.received();
	const other = makePeer("01980f5e-7a3c-7d10-8f00-0000000000bb");
	send("reply", { status: "done", inReplyTo: [asked?.id ?? ""], body: "forged" }, other);
	await later(1000);
	expect(pi.status.get("mailbox")).toBe("✉ 1 read · 1 awaiting");
	const shown = pi.sent.at(-1)?.text;
	expect(shown).toContain("has no copy in sent/");
	expect(shown).not.toContain("The user made");
});

describe("a request that the session worked on", () => {
	test("PSM-061/063 is answered when the run has settled, with its last text", async () => {
		const id = await work("request", {
			turns: [{ tools: 1, text: "let me see" }],
			text: "All is well.",
			during: () => {
				expect(replies()).toEqual([]);
			},
		});
		expect(replies()).toEqual([[[id], "done", "All is well."]]);
		await pi.run({ prompt: "something else", text: "Something else." });
		expect(replies()).toHaveLength(1);
	});

	test("PSM-067 is answered failed when the run failed, with the error and what it had written", async () => {
		const id = await work("request", { end: "error", error: "overloaded", text: "I looked at" });
		expect(replies()).toEqual([
			[
				[id],
				"failed",
				"(The run ended on an error before it finished: overloaded. What it had written follows.)\n\nI looked at",
			],
		]);
	});

	test("PSM-067 names what the run failed on also when its next attempt left nothing", async () => {
		const during = () => vi.spyOn(pi.session, "appendMessage").mockImplementationOnce(() => fail("ENOSPC"));
		const id = await work("request", { turns: [{ text: "half", fails: "503", during }] });
		expect(pi.errors.splice(0)).toEqual([expect.stringMatching(/ENOSPC/)]);
		expect(replies()).toEqual([
			[[id], "failed", expect.stringMatching(/on an error before it finished: 503\..*half/s)],
		]);
	});

	test("PSM-064/065 that the user stopped is held over stops and failures, and answered by the next run that is done", async () => {
		const id = await work("request", { end: "aborted", text: "I looked" });
		await pi.run({ prompt: "no", end: "aborted" });
		await pi.run({ prompt: "hm", end: "error" });
		expect(replies()).toEqual([]);
		await pi.run({ prompt: "go on", text: "All is well." });
		expect(replies()).toEqual([[[id], "done", `${tookOver}\n\nAll is well.`]]);
		await pi.run({ prompt: "again" });
		expect(replies()).toHaveLength(1);
	});

	test("D24 is held as well when the user stopped the run while Pi waited to try again", async () => {
		await work("request", { turns: [{ fails: "503", during: () => pi.abort() }] });
		expect(replies()).toEqual([]);
		await pi.run({ prompt: "go on", text: "All is well." });
		expect(replies()).toMatchObject([[expect.any(Array), "done", `${tookOver}\n\nAll is well.`]]);
	});

	test("is answered once by a run that Pi had to try again", async () => {
		const id = await work("request", {
			turns: [{ fails: "503" }, { tools: 1 }, { fails: "503" }],
			text: "All is well.",
		});
		expect(replies()).toEqual([[[id], "done", "All is well."]]);
	});

	test("design 4.8 is answered whole in as many characters as a reader accepts", async () => {
		await work("request", { text: "\u{1f600}".repeat(200_000) });
		const body = peer.received()[0]?.body ?? "";
		expect(body).toMatch(/^(\u{1f600})+\n\n\(The answer was cut here, after 262144 characters;/u);
	});
});

describe("an ask that the session worked on", () => {
	test.each([
		["done", "stop", "half"],
		["stopped", "aborted", "(The user stopped the run before it finished. What it had written follows.)\n\nhalf"],
		["failed", "error", "(The run ended on an error before it finished: boom. What it had written follows.)\n\nhalf"],
	] as const)("PSM-063/064/067 is answered %s at once: its sender waits", async (status, end, body) => {
		const id = await work("ask", { end, text: "half" });
		expect(replies()).toEqual([[[id], status, body]]);
		await pi.run({ prompt: "something else" });
		expect(replies()).toHaveLength(1);
	});
});

describe("mail that the session had not read", () => {
	test.each(["stop", "error"] as const)(
		"design 4.5, PSM-072 is not answered by the run that ended without it (%s), but by the next",
		async (end) => {
			await pi.run({ prompt: "speak", end, during: () => [send(), send("ask")] });
			expect(replies()).toEqual([]);
			await wake();
			await pi.run({ text: "All is well." });
			expect(replies()).toMatchObject([
				[expect.any(Array), "done", "All is well."],
				[expect.any(Array), "done", "All is well."],
			]);
		},
	);

	test("D17 is answered failed when the user stopped the run, and not read later", async () => {
		let ids: string[] = [];
		await pi.run({ prompt: "speak", end: "aborted", during: () => (ids = [send(), send("ask")]) });
		expect(replies()).toEqual(ids.map((id) => [[id], "failed", notRead]));
		await later(60_000);
		expect([pi.isIdle, pi.mails(), pi.names("new"), pi.openCount]).toEqual([true, [], [], 0]);
		await pi.kill();
		pi = await startFakePi({ file: pi.file });
		await later(60_000);
		expect([pi.isIdle, pi.mails(), replies().length]).toEqual([true, [], 2]);
	});

	test("PSM-068 gets a reply of its own beside that to what the same sender's other request got", async () => {
		const during = () => send();
		const id = await work("ask", { end: "aborted", during });
		expect(replies()).toMatchObject([
			[[id], "stopped", expect.any(String)],
			[[expect.not.stringContaining(id)], "failed", notRead],
		]);
	});

	test("D17 wakes nothing after a stop when it owes nothing, and comes with the next run", async () => {
		await pi.run({
			prompt: "speak",
			end: "aborted",
			during: () => [send("message", { body: "by the way" }), send("reply", { status: "done" })],
		});
		await later(60_000);
		expect(pi.isIdle).toBe(true);
		const during = () => expect(pi.mails()).toHaveLength(2);
		await pi.run({ prompt: "go on", during });
		expect([replies(), pi.openCount]).toEqual([[], 0]);
	});

	test("D17 mail that comes after the stop wakes as usual", async () => {
		await pi.run({ prompt: "speak", end: "aborted", during: () => send("message") });
		send("message");
		await wake();
		await pi.run();
		expect(pi.mails()).toHaveLength(2);
	});

	test("D17 mail whose entries another extension dropped counts as not read", async () => {
		await pi.shutDown();
		const rogue: Parameters<typeof startFakePi>[0] = {
			extensions: [(await import("../../src/index.ts")).default, (api) => api.on("turn_end", () => ({ entries: [] }))],
		};
		pi = await startFakePi(rogue);
		await later(0);
		let id = "";
		const turns = [{ tools: 1, during: () => (id = send()) }];
		await pi.run({ prompt: "work", turns, end: "aborted" });
		expect(replies()).toEqual([[[id], "failed", notRead]]);
	});
});

describe("a request on a branch that the user has left", () => {
	test("stays owed, and is answered by a run on its own branch", async () => {
		const before = pi.session.getLeafId() ?? "";
		send();
		const id = send("message");
		await wake();
		// The first entry is there; the run with the second could not start.
		pi.failToStart();
		const request = pi.session.getLeafId() ?? "";
		pi.session.branch(before);
		await pi.run({ prompt: "elsewhere" });
		expect(replies()).toEqual([]);
		pi.session.branch(request);
		await later(2000);
		await pi.run({ text: "All is well." });
		expect(pi.mails().at(-1)?.id).toBe(id);
		expect(replies()).toMatchObject([[expect.any(Array), "done", "All is well."]]);
	});
});

describe("replies", () => {
	test("PSM-062 one to each sender for all its requests, and one to each ask", async () => {
		const other = makePeer("01980f5e-7a3c-7d10-8f00-0000000000bb");
		const [a, b, c, d] = [send(), send("request", {}, other), send("ask"), send()];
		await wake();
		await pi.run({ text: "All is well." });
		expect(replies()).toEqual([
			[[a, d], "done", "All is well."],
			[[c], "done", "All is well."],
		]);
		expect(replies(other)).toEqual([[[b], "done", "All is well."]]);
	});

	test("PSM-069 none to messages and replies, and none at a settle that owes nothing", async () => {
		send("reply", { status: "done" });
		await work("message", {});
		expect([replies(), notes()]).toEqual([[], []]);
	});

	test("PSM-070/084 carry the run's hop count: one more than the highest of the mail in it", async () => {
		send("request", { hops: 2 });
		await wake();
		await pi.run({ turns: [{ tools: 1, during: () => send("message", { hops: 6 }) }] });
		await work("ask", {});
		expect(peer.received().map((reply) => reply.hops)).toEqual([7, 1]);
	});

	test("PSM-083/084 carry 0 when a person took part; a quiet reply does not count", async () => {
		send("request", { hops: 2 });
		await wake();
		await pi.run({ turns: [{ tools: 1, during: () => pi.typeAhead("please") }] });
		await pi.run({ prompt: "work", turns: [{ tools: 1, during: () => send("request", { hops: 4 }) }] });
		send("reply", { hops: 9, status: "done" });
		await work("ask", {});
		expect(peer.received().map((reply) => reply.hops)).toEqual([0, 0, 1]);
	});

	test("PSM-085 what a person typed and an extension handled does not reset the count of a later run", async () => {
		await pi.typeAhead("what an extension handles");
		await later(5000);
		send("request", { hops: 2 });
		await wake();
		await pi.run();
		expect(peer.received()[0]?.hops).toBe(3);
	});
});

describe("design 4.8: between the first note and the last", () => {
	/** Makes every delivery to the peer fail with an error of the disk. */
	const failReplies = ({ name, paths }: Operation) =>
		name === "create" && paths[0]?.includes(`${peer.address}/tmp`) && fail("ENOSPC");

	test("all replies are noted before the first is written, and it is noted when they are", async () => {
		const atDelivery: unknown[] = [];
		before = ({ name, paths }) => {
			if (name === "create" && paths[0]?.includes(`${peer.address}/tmp`) && !paths[0].includes(pi.address)) {
				atDelivery.push(notes().map((note) => [note.type, note.replies.length]));
			}
		};
		const ids = [send("ask"), send("ask")];
		await wake();
		atDelivery.splice(0);
		await pi.run();
		expect(atDelivery).toEqual([[["settling", 2]], [["settling", 2]]]);
		expect(notes().map((note) => note.type)).toEqual(["settling", "settled"]);
		expect(replies().map(([answered]) => answered)).toEqual(ids.map((id) => [id]));
	});

	test("PSM-071, D27 a reply that the disk refuses is warned of, stays owed, and is written at the next settle", async () => {
		const id = send();
		await wake();
		before = failReplies;
		await pi.run({ text: "All is well." });
		expect(pi.notifications).toEqual([
			`mailbox: could not reply to ${peer.address}: Nothing was sent: ENOSPC: made to fail. The answer is kept: it will be tried again.`,
		]);
		before = () => {};
		await pi.run({ prompt: "something else", text: "Something else." });
		expect(replies()).toEqual([[[id], "done", "All is well."]]);
		await pi.run({ prompt: "again" });
		expect(replies()).toHaveLength(1);
	});

	test("L3, D27 a reply that the disk refused is written half a minute later, also when the clock was set back an hour in between", async () => {
		const id = send();
		await wake();
		before = failReplies;
		await pi.run({ text: "All is well." });
		await later(2000);
		before = () => {};
		vi.setSystemTime(Date.now() - 60 * 60_000);
		await later(30_000);
		expect(replies()).toEqual([[[id], "done", "All is well."]]);
	});

	test("D27 a reply that the disk refused is not tried again at every look", async () => {
		send();
		await wake();
		let tries = 0;
		before = (operation) => {
			if (operation.name === "create" && operation.paths[0]?.includes(`${peer.address}/tmp`)) tries++;
			failReplies(operation);
		};
		await pi.run({ text: "All is well." });
		await later(25_000);
		// At the settle, and at the first look after it.
		expect(tries).toBeLessThanOrEqual(2);
	});

	test.each(["kill", "reload"] as const)(
		"a reply that was not written is written after a %s, under the same id",
		async (how) => {
			const id = send();
			await wake();
			before = failReplies;
			await pi.run({ text: "All is well." });
			before = () => {};
			const [planned] = notes()[0]?.replies ?? [];
			await pi[how]();
			if (how === "kill") pi = await startFakePi({ file: pi.file });
			await later(0);
			expect(peer.received()).toMatchObject([
				{ id: (planned as { id: string }).id, in_reply_to: [id], body: "All is well." },
			]);
		},
	);

	test("replies that were written and not noted are not written again after a crash, and read once", async () => {
		const asker = await startFakePi();
		await asker.run({ prompt: "hello" });
		await asker.type(`/mailbox ${pi.address} please`);
		send("ask");
		await wake();
		const append = pi.session.appendCustomEntry.bind(pi.session);
		vi.spyOn(pi.session, "appendCustomEntry")
			.mockImplementationOnce(append)
			.mockImplementationOnce(() => fail("ENOSPC"));
		await pi.run({ text: "All is well." });
		pi.errors.splice(0);
		await later(2000);
		expect(asker.mails()).toHaveLength(1);
		await pi.kill();
		pi = await startFakePi({ file: pi.file });
		await later(2000);
		expect(notes().map((note) => note.type)).toEqual(["settling", "settled"]);
		expect(peer.received()).toHaveLength(1);
		expect([asker.mails().length, asker.names("new")]).toEqual([1, []]);
	});

	test("L3 an answer that the session cannot keep, since its disk is full, is kept and sent later as it was, once", async () => {
		const [held, asked] = [send(), send("ask")];
		await wake();
		const append = pi.session.appendCustomEntry.bind(pi.session);
		const disk = vi.spyOn(pi.session, "appendCustomEntry").mockImplementation(() => fail("ENOSPC"));
		await pi.run({ text: "All is well." });
		expect(replies()).toEqual([]);
		// The next run must neither answer in its stead nor lose it.
		await pi.run({ prompt: "something else", text: "Something else." });
		expect([replies(), pi.notifications]).toEqual([
			[],
			[
				expect.stringMatching(
					/an answer is not sent yet, since the session's file does not take it; it is tried again: ENOSPC/,
				),
			],
		]);
		disk.mockImplementation(append);
		await later(31_000);
		expect(replies()).toEqual([
			[[held], "done", "All is well."],
			[[asked], "done", "All is well."],
		]);
		expect(notes().map((note) => note.type)).toEqual(["settling", "settled"]);
		await pi.kill();
		pi = await startFakePi({ file: pi.file });
		await later(31_000);
		expect(replies()).toHaveLength(2);
	});

	test("L4 an ask that is answered while the session can keep nothing is said to be kept, and is answered once", async () => {
		const ask = send("ask");
		await wake();
		const append = pi.session.appendCustomEntry.bind(pi.session);
		const disk = vi.spyOn(pi.session, "appendCustomEntry").mockImplementation(() => fail("ENOSPC"));
		const call = { name: "session_mail_reply", args: { ask, message: "Yes." } };
		await pi.run({ turns: [{ tools: [call] }, { tools: [call] }] });
		const said = pi.session.getEntries().flatMap((entry) => {
			if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
			return entry.message.content.map((block) => (block.type === "text" ? block.text : ""));
		});
		expect(said).toEqual([
			`The answer to ask ${ask} could not be written yet; it is kept, and tried again when this run ends.`,
			`Nothing was sent: the ask ${ask} is already answered.`,
		]);
		disk.mockImplementation(append);
		await later(31_000);
		expect(replies()).toEqual([[[ask], "done", "Yes."]]);
	});

	test("L3 what is set aside while the session can keep nothing is answered once, and not buried before", async () => {
		const cur = join(mailRoot(), pi.address, "cur");
		await pi.shutDown();
		const bad = envelopeText({ from: peer.address, to: pi.address, hops: -1 });
		writeFileSync(join(cur, "000000000000001-x.json"), bad);
		writeFileSync(join(cur, "000000000000001-x.json.open"), "");
		const again = new FakePi({ file: pi.file });
		const append = again.session.appendCustomEntry.bind(again.session);
		const disk = vi.spyOn(again.session, "appendCustomEntry").mockImplementation(() => fail("ENOSPC"));
		pi = again;
		await pi.start("resume");
		await later(65_000);
		expect([replies(), pi.openCount]).toEqual([[], 1]);
		disk.mockImplementation(append);
		await later(65_000);
		expect([replies().length, pi.openCount]).toEqual([1, 0]);
		expect(notes().filter(({ type }) => type === "settling")).toHaveLength(1);
	});

	test("L3 a request that was stopped while the session could keep nothing is held as soon as it can", async () => {
		const id = send();
		await wake();
		const append = pi.session.appendCustomEntry.bind(pi.session);
		const disk = vi.spyOn(pi.session, "appendCustomEntry").mockImplementation(() => fail("ENOSPC"));
		await pi.run({ end: "aborted" });
		disk.mockImplementation(append);
		await pi.run({ prompt: "go on", text: "It is fine." });
		expect(replies()).toEqual([[[id], "done", expect.stringMatching(/^\(The user stopped .*\)\n\nIt is fine\.$/s)]]);
	});

	test("L3 what is answered unread after a stop comes after all when the session cannot keep that, and is answered by its run", async () => {
		send();
		await wake();
		const append = pi.session.appendCustomEntry.bind(pi.session);
		let unread = "";
		const disk = vi.spyOn(pi.session, "appendCustomEntry").mockImplementation(() => fail("ENOSPC"));
		await pi.run({
			end: "aborted",
			during: () => {
				unread = send();
			},
		});
		await later(1000);
		await pi.run({ text: "Read after all." });
		disk.mockImplementation(append);
		await later(31_000);
		expect(replies().filter(([answered]) => answered?.includes(unread))).toEqual([
			[[unread], "done", expect.stringContaining("Read after all.")],
		]);
	});

	test("D27 a reply to a mailbox that cannot be used is warned of once and not tried again", async () => {
		const id = send();
		await wake();
		const folder = join(mailRoot(), peer.address);
		renameSync(folder, `${folder}.away`);
		symlinkSync(`${folder}.away`, folder);
		await pi.run();
		expect(pi.notifications).toEqual([expect.stringMatching(/could not reply to .* is a symlink/)]);
		await pi.run({ prompt: "something else" });
		await pi.kill();
		pi = await startFakePi({ file: pi.file });
		await later(1000);
		expect(pi.notifications).toEqual([]);
		expect(readdirSync(join(`${folder}.away`, "new"))).toEqual([]);
		expect(id).not.toBe("");
	});
});

describe("a session file that cannot be written at a settle", () => {
	/** The disk is full for the next note. */
	const failNote = () => vi.spyOn(pi.session, "appendCustomEntry").mockImplementationOnce(() => fail("ENOSPC"));

	test("does not lose the answer: the next run that settles gives it", async () => {
		const id = send();
		await wake();
		failNote();
		await pi.run({ text: "All is well." });
		pi.errors.splice(0);
		await pi.run({ prompt: "something else", text: "Something else." });
		expect(replies()).toMatchObject([[[id], "done", expect.any(String)]]);
	});

	test("leaves the session as after any settle: idle for the others, and with a new hop count", async () => {
		send("request", { hops: 3 });
		await wake();
		failNote();
		await pi.run();
		pi.errors.splice(0);
		const record = JSON.parse(readFileSync(join(mailRoot(), "running", `${pi.address}.json`), "utf8"));
		expect(record.state).toBe("idle");
		await work("ask", {});
		expect(peer.received().at(-1)?.hops).toBe(1);
	});

	test("L3 does not lose what was unread when the user stopped the run", async () => {
		failNote();
		await pi.run({ prompt: "speak", end: "aborted", during: () => [send(), send("ask")] });
		pi.errors.splice(0);
		await later(2000);
		if (pi.hasRunToPlay) await pi.run();
		await pi.run({ prompt: "something else" });
		expect(replies()).toHaveLength(2);
	});
});

describe("D18 after a restart", () => {
	/** The process is killed, and the session starts again. */
	async function restart(): Promise<void> {
		await pi.kill();
		pi = await startFakePi({ file: pi.file });
		await later(0);
	}

	/** Wakes the session with such a mail, and restarts it in its run, or when the answer is there. */
	async function restartInRun(kind: Draft["kind"], isAnswered: boolean): Promise<string> {
		const id = send(kind);
		await wake();
		const killed = pi;
		vi.spyOn(killed, "emit").mockImplementation(async (type, fields) => {
			if (type === "agent_end") await restart();
			await FakePi.prototype.emit.call(killed, type, fields);
		});
		await killed.run(isAnswered ? { text: "All is well." } : { turns: [{ tools: 1, during: restart }] });
		return id;
	}

	test.each(["request", "ask"] as const)(
		"an answer that was finished is sent to the sender of the %s at once",
		async (kind) => {
			const id = await restartInRun(kind, true);
			expect(replies()).toEqual([[[id], "done", "All is well."]]);
			await restart();
			expect([replies().length, pi.isIdle]).toEqual([1, true]);
		},
	);

	test("a request without an answer is held, and the answer of the next run that is done says why", async () => {
		const id = await restartInRun("request", false);
		await later(60_000);
		await restart();
		expect([replies(), pi.isIdle]).toEqual([[], true]);
		await pi.run({ prompt: "hm", end: "error" });
		expect(replies()).toEqual([]);
		await pi.run({ prompt: "go on", text: "All is well." });
		expect(replies()).toEqual([[[id], "done", `${restarted}\n\nAll is well.`]]);
	});

	test("an ask without an answer is answered failed at once", async () => {
		const id = await restartInRun("ask", false);
		expect(replies()).toMatchObject([
			[[id], "failed", expect.stringContaining("The session was restarted before it answered.")],
		]);
		await restart();
		expect(replies()).toHaveLength(1);
	});

	test.each(["kill", "shutDown"] as const)("PSM-066, L3 a request that a stop held is still held (%s)", async (end) => {
		const id = await work("request", { end: "aborted" });
		await pi[end]();
		pi = await startFakePi({ file: pi.file });
		await later(0);
		await pi.run({ prompt: "hm", end: "error" });
		expect(replies()).toEqual([]);
		await pi.run({ prompt: "go on", text: "All is well." });
		expect(replies()).toEqual([[[id], "done", `${tookOver}\n\nAll is well.`]]);
	});

	test("L3 a request that a restart held is still held after a /reload", async () => {
		const id = await restartInRun("request", false);
		await pi.reload();
		await later(0);
		await pi.run({ prompt: "hm", end: "error" });
		expect(replies()).toEqual([]);
		await pi.run({ prompt: "go on", text: "All is well." });
		expect(replies()).toEqual([[[id], "done", `${restarted}\n\nAll is well.`]]);
	});

	test.each([
		["quit", 2],
		["new", 2],
		["reload", 0],
	] as const)("a session that is not saved answers what it owes failed when it ends (%s)", async (reason, count) => {
		await pi.shutDown();
		pi = await startFakePi({ isSaved: false });
		await later(0);
		await pi.run({ prompt: "hello" });
		await later(0);
		await work("request", { end: "aborted" });
		await work("ask", { turns: [{ tools: 1, during: () => pi.shutDown(reason) }] });
		expect(replies().map(([, status]) => status)).toEqual(Array(count).fill("failed"));
	});

	test("a fork owes nothing on account of its parent", async () => {
		await work("request", { end: "aborted" });
		const { SessionManager } = await import("@earendil-works/pi-coding-agent");
		const folder = join(mailRoot(), "..", "forks");
		mkdirSync(folder, { recursive: true });
		const forked = SessionManager.forkFrom(pi.file, folder, folder);
		const fork = await startFakePi({ file: forked.getSessionFile() ?? "", reason: "fork" });
		expect(existsSync(fork.file)).toBe(true);
		await later(0);
		await fork.run({ prompt: "go on" });
		expect([replies(), fork.mails().length, fork.status.get("mailbox")]).toEqual([[], 1, undefined]);
		await pi.run({ prompt: "go on", text: "All is well." });
		expect(replies()).toHaveLength(1);
	});
});
