import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { SessionManager } from "@earendil-works/pi-coding-agent";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { mailRoot } from "../../src/mail/root.ts";
import { envelopeText, fail } from "../support/disk.ts";
import { later, seasonedPi, useFakeMachine } from "../support/fake-machine.ts";
import { FakePi, type FakePiOptions, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

let peer: Peer;
beforeEach(() => {
	peer = makePeer();
});

/** One that takes no mail. */
async function quietPi(options: FakePiOptions = {}): Promise<FakePi> {
	const pi = await seasonedPi(options);
	await pi.type("/mailbox off");
	pi.notifications.splice(0);
	return pi;
}

const footer = (pi: FakePi) => pi.status.get("mailbox");
const ids = (pi: FakePi) => pi.mails().map(({ id }) => id);
const record = (pi: FakePi) => JSON.parse(readFileSync(join(mailRoot(), "running", `${pi.address}.json`), "utf8"));
const reply = { kind: "reply", status: "done" } as const;

/** Calls a model tool in a run of its own; returns its text and details. */
async function call(
	pi: FakePi,
	name: string,
	args: object,
): Promise<{ text: string; details: Record<string, unknown> }> {
	await pi.run({ prompt: "go", turns: [{ tools: [{ name, args }] }] });
	const results = pi.session.getEntries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		return [entry.message];
	});
	const last = results.at(-1);
	const [block] = last?.content ?? [];
	return { text: block?.type === "text" ? block.text : "", details: { ...(last?.details as object) } };
}

/** A reply to an ask of this session that waits no more. */
function lateAnswer(pi: FakePi): string {
	const ask = "11111111-2222-4333-8444-777777777777";
	const copy = join(mailRoot(), pi.address, "sent", `000000000000001-${ask}.json`);
	writeFileSync(copy, envelopeText({ id: ask, from: pi.address, to: peer.address, kind: "ask" }));
	return peer.send(pi, { ...reply, inReplyTo: [ask] });
}

describe("/mailbox off", () => {
	test("mail waits in new/ and wakes nobody, however long", async () => {
		const pi = await quietPi();
		for (const kind of ["request", "ask", "message"] as const) peer.send(pi, { kind });
		await later(60_000);
		expect([pi.names("new").length, pi.names("cur"), pi.mails(), pi.sent]).toEqual([3, [], [], []]);
		expect(pi.hasRunToPlay).toBe(false);
		expect(peer.received()).toEqual([]);
	});

	test.each(["off", "pause"])(
		"L4 %s says that nothing was changed when the session's file does not take it",
		async (word) => {
			const pi = await seasonedPi();
			vi.spyOn(pi.session, "appendCustomEntry").mockImplementation(() => fail("ENOSPC"));
			await pi.type(`/mailbox ${word}`);
			expect(pi.notifications).toEqual(["Nothing was changed: ENOSPC: made to fail."]);
			expect([footer(pi), record(pi).x.receiving, record(pi).x.paused]).toEqual([undefined, undefined, undefined]);
		},
	);

	test("says so, in the footer, in the running record and in the list of sessions", async () => {
		const pi = await seasonedPi({ name: "reviewer" });
		await pi.type("/mailbox off");
		expect(pi.notifications).toEqual([
			"Mail is off: it waits until you type /mailbox on. Replies to what this session sent still come.",
		]);
		expect(footer(pi)).toBe("✉ off");
		expect(record(pi).x.receiving).toBe(false);
		peer.send(pi);
		await later(1000);
		expect(footer(pi)).toBe("✉ off · 1 pending");
		const author = await seasonedPi();
		const { text } = await call(author, "session_mail_list", {});
		expect(text).toMatch(/^- reviewer .*\(takes no mail now\)$/m);
		expect(text.match(/takes no mail now/g)).toHaveLength(1);
	});

	test("a later change of the record keeps saying so", async () => {
		const pi = await quietPi();
		await pi.rename("critic");
		await pi.run({
			prompt: "work",
			during: () => expect(record(pi)).toMatchObject({ state: "busy", x: { receiving: false } }),
		});
		expect(record(pi)).toMatchObject({ name: "critic", state: "idle", x: { receiving: false } });
	});

	test("replies still come, and start no run", async () => {
		const pi = await quietPi();
		await pi.type(`/mailbox ${peer.address} please`);
		const [request] = peer.received();
		peer.send(pi);
		const answer = peer.send(pi, { ...reply, inReplyTo: [request?.id ?? ""] });
		await later(1000);
		expect([ids(pi), pi.hasRunToPlay]).toEqual([[answer], false]);
		expect(footer(pi)).toBe("✉ off · 1 pending · 1 read");
	});

	test("replies come between the tool calls of a run, and the rest does not", async () => {
		const pi = await quietPi();
		let answer = "";
		const during = async () => {
			peer.send(pi);
			answer = peer.send(pi, reply);
			await later(1000);
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1, during }, { tools: 1 }] });
		await later(5000);
		expect([ids(pi), pi.names("new").length, pi.hasRunToPlay]).toEqual([[answer], 1, false]);
	});

	test("PSM-050 the late answer to an ask comes as well, and does not wake the session either", async () => {
		const pi = await quietPi();
		const answer = lateAnswer(pi);
		await later(2000);
		expect([ids(pi), pi.hasRunToPlay]).toEqual([[answer], false]);
	});

	test("what was claimed before, for an extension, waits as well", async () => {
		const pi = await seasonedPi();
		let request = "";
		const during = async () => {
			request = peer.send(pi);
			pi.events.emit("message:scan", {});
			await pi.type("/mailbox off");
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1, during }, { tools: 1 }] });
		await later(5000);
		expect([pi.mails(), pi.hasRunToPlay, footer(pi)]).toEqual([[], false, "✉ off · 1 pending"]);
		await pi.type("/mailbox on");
		await pi.run({ text: "fine" });
		expect(ids(pi)).toEqual([request]);
		expect(peer.received()).toMatchObject([{ in_reply_to: [request], body: "fine" }]);
	});

	test("D17 a stopped run answers nothing that waits: it is for later", async () => {
		const pi = await quietPi();
		peer.send(pi);
		await later(1000);
		await pi.run({ prompt: "work", turns: [{ tools: 1 }], end: "aborted" });
		await later(5000);
		expect([peer.received(), pi.names("new").length]).toEqual([[], 1]);
	});

	test("what was read before is answered all the same", async () => {
		const pi = await seasonedPi();
		const request = peer.send(pi);
		await later(1000);
		await pi.run({ during: () => pi.type("/mailbox off"), text: "fine" });
		expect(peer.received()).toMatchObject([{ status: "done", in_reply_to: [request], body: "fine" }]);
	});

	test("typed twice it is noted once", async () => {
		const pi = await quietPi();
		const entries = pi.session.getEntries().length;
		await pi.type("/mailbox off");
		expect([pi.session.getEntries().length, pi.notifications.length]).toEqual([entries, 1]);
	});

	test("the session can send all the same", async () => {
		const pi = await quietPi();
		await pi.type(`/mailbox ${peer.address} please`);
		await call(pi, "session_mail_send", { to: peer.address, message: "fyi" });
		expect(peer.received().map(({ kind }) => kind)).toEqual(["request", "message"]);
	});
});

describe("who writes to a session whose mail is off", () => {
	const waits = "That session takes no mail now; the mail waits until its user types /mailbox on.";

	test("is told that the mail waits: a person and a model", async () => {
		const pi = await quietPi();
		const author = await seasonedPi();
		await author.type(`/mailbox ${pi.address} please`);
		expect(author.notifications).toEqual([expect.stringMatching(`^Sent .* to ${pi.address}\n${waits}$`)]);
		expect((await call(author, "session_mail_send", { to: pi.address, message: "fyi" })).text).toMatch(
			new RegExp(`^Sent .* ${waits}$`),
		);
		expect(pi.names("new")).toHaveLength(2);
	});

	test("PSM-077 cannot ask it: refused at once, and nothing is written", async () => {
		const pi = await quietPi({ name: "reviewer" });
		const author = await seasonedPi();
		const { text, details } = await call(author, "session_mail_ask", { to: "reviewer", message: "well?" });
		expect(text).toBe(`Nothing was sent: ${pi.address} takes no mail now; session_mail_send leaves a message for it.`);
		expect(details.code ?? details.outcome).not.toBe("answered");
		expect([pi.names("new"), author.names("sent"), record(author).waitingOn]).toEqual([[], [], ""]);
	});

	test("hears nothing of it once mail is on again", async () => {
		const pi = await quietPi();
		await pi.type("/mailbox on");
		const author = await seasonedPi();
		await author.type(`/mailbox ${pi.address} please`);
		expect(author.notifications).toEqual([expect.stringMatching(`^Sent .* to ${pi.address}$`)]);
	});
});

describe("/mailbox on", () => {
	test("what waited comes now, in order, with one run", async () => {
		const pi = await quietPi();
		const all = [peer.send(pi), peer.send(pi, { kind: "message" }), peer.send(pi, { kind: "ask" })];
		await later(5000);
		await pi.type("/mailbox on");
		expect(pi.notifications).toEqual(["Mail is on: what waited comes now."]);
		await pi.run({ text: "fine" });
		expect(ids(pi)).toEqual(all);
		expect(pi.sent.filter(({ startsRun }) => startsRun)).toHaveLength(1);
		expect(record(pi).x).not.toHaveProperty("receiving");
		expect(footer(pi)).toBe("✉ 3 read");
		expect(peer.received().map(({ in_reply_to }) => in_reply_to)).toEqual([[all[0]], [all[2]]]);
	});

	test("typed in the middle of a run, it comes at the next gap", async () => {
		const pi = await quietPi();
		const id = peer.send(pi);
		await pi.run({ prompt: "work", turns: [{ tools: 1, during: () => pi.type("/mailbox on") }], text: "fine" });
		expect([ids(pi), pi.sent]).toEqual([[id], []]);
		expect(peer.received()).toMatchObject([{ in_reply_to: [id] }]);
	});

	test("when it is on already, it changes nothing", async () => {
		const pi = await seasonedPi();
		const entries = pi.session.getEntries().length;
		await pi.type("/mailbox on");
		expect([pi.session.getEntries().length, footer(pi)]).toEqual([entries, undefined]);
	});

	test.each(["on", "off"])("with a text behind it, /mailbox %s is mail to a session of that name", async (name) => {
		const other = await startFakePi({ name });
		const pi = await seasonedPi();
		await pi.type(`/mailbox ${name} please`);
		expect(pi.notifications).toEqual([expect.stringMatching(`^Sent .* to ${other.address}$`)]);
		expect([other.names("new").length, footer(pi), record(pi).x.receiving]).toEqual([1, "✉ 1 awaiting", undefined]);
	});

	test.each(["on", "off"])(
		"with a text behind it and nobody of that name, /mailbox %s changes nothing",
		async (name) => {
			const pi = await seasonedPi();
			await pi.type(`/mailbox ${name} please`);
			expect(pi.notifications).toEqual([expect.stringMatching(/^Nothing was sent: /)]);
			expect([footer(pi), record(pi).x.receiving]).toEqual([undefined, undefined]);
		},
	);
});

describe("what the user wants outlives the process", () => {
	test.each(["quit", "kill", "reload"])("%s: it is still off, and on again later", async (how) => {
		const pi = await quietPi();
		const id = peer.send(pi);
		let again = pi;
		if (how === "reload") await pi.reload();
		else {
			if (how === "kill") await pi.kill();
			else await pi.shutDown();
			again = new FakePi({ file: pi.file });
			await again.start("resume");
			// The very first record says so: no sender sees it otherwise.
			expect(record(again).x.receiving).toBe(false);
			await again.discover();
		}
		await later(10_000);
		expect([again.mails(), again.names("new").length, footer(again)]).toEqual([[], 1, "✉ off · 1 pending"]);
		await again.type("/mailbox on");
		await again.run();
		expect(ids(again)).toEqual([id]);
	});

	test("a fork of the session takes mail", async () => {
		const pi = await quietPi();
		const folder = join(mailRoot(), "..", "forks");
		mkdirSync(folder, { recursive: true });
		const forked = SessionManager.forkFrom(pi.file, folder, folder);
		const fork = await startFakePi({ file: forked.getSessionFile() ?? "", reason: "fork" });
		expect([footer(fork), record(fork).x.receiving]).toEqual([undefined, undefined]);
		const id = peer.send(fork);
		await later(2000);
		await fork.run();
		expect(ids(fork)).toEqual([id]);
		expect(record(pi).x.receiving).toBe(false);
	});

	test("going back in the session's tree does not switch it", async () => {
		const pi = await seasonedPi();
		const leaf = pi.session.getLeafId();
		await pi.type("/mailbox off");
		if (leaf !== null) pi.session.branch(leaf);
		peer.send(pi);
		await later(2000);
		expect([pi.mails(), footer(pi)]).toEqual([[], "✉ off · 1 pending"]);
	});

	test("D7 a process that takes the session over finds it off, and says so in its record", async () => {
		const first = await seasonedPi();
		await first.shutDown();
		const path = join(mailRoot(), "running", `${first.address}.json`);
		const other = { address: first.address, cwd: "/", state: "idle", waitingOn: "", updated: "" };
		writeFileSync(path, JSON.stringify({ ...other, pid: process.ppid }));
		const pi = await startFakePi({ file: first.file });
		await later(1000);
		const note = { address: first.address, type: "receiving", isOn: false };
		SessionManager.open(first.file).appendCustomEntry("session-mail", note);
		writeFileSync(path, JSON.stringify({ ...other, pid: 2 ** 22 + 1 }));
		peer.send(pi);
		await later(1000);
		// The session file is being read, for real.
		for (let n = 0; n < 50 && footer(pi)?.includes("off") !== true; n++) {
			await stat(pi.file);
			await later(100);
		}
		expect([pi.mails(), footer(pi), record(pi).x.receiving]).toEqual([[], "✉ off · 1 pending", false]);
	});
});

describe("older copies of this package share the mail root", () => {
	/** A session of an older copy, as its files show it: it runs in the process that started this one. */
	function olderSession(fields: Record<string, unknown> = {}) {
		const address = "01980f5e-7a3c-7d10-8f00-0000000000cc";
		const folder = join(mailRoot(), address);
		for (const box of ["tmp", "new", "cur", "sent"]) mkdirSync(join(folder, box), { recursive: true, mode: 0o700 });
		mkdirSync(join(mailRoot(), "running"), { recursive: true, mode: 0o700 });
		const record = {
			address,
			name: "older",
			cwd: "/home/me/older",
			pid: process.ppid,
			state: "idle",
			waitingOn: "",
			updated: new Date().toISOString(),
			...fields,
		};
		writeFileSync(join(mailRoot(), "running", `${address}.json`), JSON.stringify(record));
		let count = 0;
		return {
			address,
			/** Writes a mail as seed 002 describes it: a copy in sent/, then tmp/, then the rename into new/. */
			send(to: { address: string }, mail: Record<string, unknown>): string {
				const id = `11111111-2222-4333-8444-${String(++count).padStart(12, "0")}`;
				const text = envelopeText({ id, from: address, to: to.address, ts: new Date().toISOString(), ...mail });
				const name = `${String(Date.now() + count).padStart(15, "0")}-${id}.json`;
				const boxes = join(mailRoot(), to.address);
				if (mail.kind !== "reply") writeFileSync(join(folder, "sent", name), text);
				writeFileSync(join(boxes, "tmp", name), text);
				renameSync(join(boxes, "tmp", name), join(boxes, "new", name));
				return id;
			},
			received: () =>
				readdirSync(join(folder, "new"))
					.sort()
					.map((name) => ({ name, ...JSON.parse(readFileSync(join(folder, "new", name), "utf8")) })),
		};
	}

	const fieldsOfAnEnvelope = ["body", "from", "hops", "id", "in_reply_to", "kind", "status", "to", "ts"];

	test("PSM-030/031, PSM-096 our request reaches it by name, in the form it reads, and its answer comes back", async () => {
		const older = olderSession();
		const pi = await seasonedPi();
		await pi.type("/mailbox older please");
		const [request] = older.received();
		expect(request.name).toMatch(new RegExp(`^\\d{15}.*${request.id}\\.json$`));
		const { name: _, ...envelope } = request;
		expect(Object.keys(envelope).sort()).toEqual(fieldsOfAnEnvelope);
		expect(envelope).toMatchObject({ from: pi.address, kind: "request", hops: 0, in_reply_to: [], status: "" });
		const answer = older.send(pi, { kind: "reply", hops: 1, in_reply_to: [request.id], status: "done", body: "fine" });
		await later(1000);
		expect(ids(pi)).toEqual([answer]);
		expect(pi.mails()[0]?.text).toContain(`[mailbox] From older (${older.address}, working in /home/me/older)`);
		expect([pi.hasRunToPlay, footer(pi)]).toEqual([false, "✉ 1 read"]);
	});

	test("its request is answered in the form it reads", async () => {
		const older = olderSession();
		const pi = await seasonedPi();
		const id = older.send(pi, { kind: "request", hops: 0 });
		await later(1000);
		await pi.run({ text: "fine" });
		const [{ name, ...reply }] = older.received() as [Record<string, unknown> & { name: string; id: string }];
		expect(name).toMatch(new RegExp(`^\\d{15}.*${reply.id}\\.json$`));
		expect(Object.keys(reply).sort()).toEqual(fieldsOfAnEnvelope);
		expect(reply).toMatchObject({ kind: "reply", hops: 1, in_reply_to: [id], status: "done", body: "fine" });
	});

	test("PSM-075 it can be asked, and its answer is the result", async () => {
		const older = olderSession();
		const pi = await seasonedPi();
		const answer = async () => {
			await later(0);
			const [ask] = older.received();
			older.send(pi, { kind: "reply", in_reply_to: [ask.id], status: "done", body: "forty-two" });
			await later(2000);
		};
		const args = { to: "older", message: "how many?" };
		await pi.run({ prompt: "go", turns: [{ tools: [{ name: "session_mail_ask", args }], during: answer }] });
		expect(JSON.stringify(pi.session.getEntries())).toContain("forty-two");
		expect(pi.mails()).toEqual([]);
	});

	test("PSM-014 mail from before there were kinds and hops: a request is answered, a reply is quiet", async () => {
		const older = olderSession();
		const pi = await seasonedPi();
		const before = { kind: undefined, hops: undefined, in_reply_to: undefined, status: undefined };
		const request = older.send(pi, { ...before });
		await later(1000);
		await pi.run({ text: "fine" });
		expect(older.received()).toMatchObject([{ in_reply_to: [request], hops: 1, status: "done" }]);
		const answer = older.send(pi, { ...before, in_reply_to: ["11111111-2222-4333-8444-999999999999"], status: "done" });
		await later(1000);
		expect([ids(pi), pi.hasRunToPlay]).toEqual([[request, answer], false]);
	});

	test("PSM-013, D21 mail of a kind that we do not know wakes like a message, and is not answered", async () => {
		const older = olderSession();
		const pi = await seasonedPi();
		const id = older.send(pi, { kind: "handshake" });
		await later(1000);
		await pi.run();
		expect(ids(pi)).toEqual([id]);
		expect(pi.mails()[0]?.text).toContain("expects no answer");
		expect([older.received(), pi.notifications]).toEqual([[], []]);
	});

	test("D1 fields that we do not know, under x or beside it, are passed over", async () => {
		const older = olderSession();
		const pi = await seasonedPi();
		const id = older.send(pi, { x: { seq: 1, deep: { er: [] } }, priority: "high", cc: ["somebody"] });
		const odd = older.send(pi, { x: 5 });
		await later(1000);
		await pi.run({ text: "fine" });
		expect([ids(pi), pi.notifications]).toEqual([[id, odd], []]);
		expect(older.received()).toMatchObject([{ in_reply_to: [id, odd] }]);
	});

	test.each<[string, Record<string, unknown>]>([
		["neither x nor a start token", {}],
		["fields that we do not know", { color: "red", x: { boot: undefined, future: [1] } }],
		["no waitingOn", { waitingOn: undefined }],
	])("PSM-027 a record with %s is one of a session that runs", async (_, fields) => {
		const older = olderSession(fields);
		const pi = await seasonedPi();
		const { text } = await call(pi, "session_mail_list", {});
		expect(text).toContain(`- older (${older.address}), /home/me/older, idle`);
		await later(5000);
		expect(existsSync(join(mailRoot(), "running", `${older.address}.json`))).toBe(true);
	});

	test("PSM-028 a record whose process has another start token is one of a session that is gone", async () => {
		const older = olderSession({ started: "1" });
		const pi = await seasonedPi();
		expect((await call(pi, "session_mail_list", {})).text).not.toContain(older.address);
		await pi.type(`/mailbox ${older.address} please`);
		expect(pi.notifications).toEqual([
			expect.stringMatching(/That session is not running; the mail waits until it starts\.\n1 mail waits there\.$/),
		]);
	});

	test("PSM-023 it finds in our record what its own has", async () => {
		const pi = await seasonedPi({ name: "reviewer" });
		const { x: _, ...fields } = record(pi);
		expect(fields).toEqual({
			address: pi.address,
			name: "reviewer",
			cwd: pi.session.getCwd(),
			pid: process.pid,
			state: "idle",
			waitingOn: "",
			updated: expect.stringMatching(/^\d{4}-.*Z$/),
			started: expect.any(String),
		});
	});

	test("I-PSM-1 what an older copy has read of this session is not delivered again", async () => {
		const pi = await seasonedPi();
		await pi.shutDown();
		const older = olderSession();
		const id = older.send(pi, {});
		const [name = ""] = pi.names("new");
		renameSync(join(mailRoot(), pi.address, "new", name), join(mailRoot(), pi.address, "cur", name));
		const again = await startFakePi({ file: pi.file, reason: "resume" });
		await later(5000);
		expect([again.mails(), again.hasRunToPlay, again.names("cur").some((found) => found.includes(id))]).toEqual([
			[],
			false,
			true,
		]);
	});
});
