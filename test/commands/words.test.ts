import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { holdOf } from "../../src/mail/hold.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

describe("/mailbox with one word, where there is no screen", () => {
	useFakeMachine();

	const id = "0197a3f2-1111-7000-8000-00000000000a";
	let pi: FakePi;
	let peer: Peer;
	beforeEach(async () => {
		pi = await startFakePi({ id, name: "author" });
		peer = makePeer();
		await pi.type("/mailbox off");
	});

	/** What the command says. */
	async function type(word: string): Promise<string> {
		pi.notifications.length = 0;
		const typed = pi.type(`/mailbox ${word}`);
		await later(10);
		await typed;
		expect(pi.notifications).toHaveLength(1);
		return pi.notifications[0] ?? "";
	}

	test("inbox: a line for each mail, in columns, newest first, and how many are unread", async () => {
		const older = peer.send(pi, { body: "look at\nthe parser" });
		await later(1000);
		const newer = peer.send(pi, { kind: "message", body: "hello" });
		const lines = (await type("inbox")).split("\n");
		const time = /\d\d-\d\d \d\d:\d\d/.source;
		expect(lines).toEqual([
			"Inbox: 2 mails, 2 unread",
			expect.stringMatching(new RegExp(`^unread {2}${time} {2}message {2}01980f5e-7a3c {2}${newer} {2}hello$`)),
			expect.stringMatching(new RegExp(`^unread {2}${time} {2}request {2}01980f5e-7a3c {2}${older} {2}look at$`)),
		]);
	});

	test("L10 says nothing when the session has ended meanwhile", async () => {
		pi.notifications.length = 0;
		const typed = pi.type("/mailbox inbox");
		await pi.shutDown();
		await later(10);
		await typed;
		expect([pi.notifications, pi.errors]).toEqual([[], []]);
	});

	test("a mail on hold is said to be, in the inbox and in what waits", async () => {
		peer.send(pi, { body: "look at the parser" });
		const [name = ""] = pi.names("new");
		writeFileSync(join(mailRoot(), pi.address, "new", holdOf(name)), "");
		expect(await type("inbox")).toMatch(/^Inbox: 1 mail, 1 unread\non hold .* look at the parser$/);
		expect(await type("waiting")).toMatch(/^Waits for this session:\non hold .* look at the parser$/);
	});

	test("D12 a dead mail with its reason, and a control character is a space (L8)", async () => {
		const cur = join(mailRoot(), pi.address, "cur");
		writeFileSync(join(cur, "000000000000001-x.json"), "rubbish");
		writeFileSync(join(cur, "000000000000001-x.json.reason"), "it is \u001b[2Jnot JSON\n");
		expect(await type("inbox")).toMatch(/^dead .* it is {2}\[2Jnot JSON$/m);
	});

	test("sent: to whom, and how far each came", async () => {
		const worker = await startFakePi({ name: "worker", mode: "print" });
		await pi.type("/mailbox worker check the parser");
		expect(await type("sent")).toMatch(/^Sent: 1 mail\nqueued .* request {2}worker {2}.* check the parser$/);
		const [name = ""] = worker.names("new");
		writeFileSync(join(mailRoot(), pi.address, "sent", `${name}.answered`), "");
		expect(await type("sent")).toMatch(/\nanswered /);
	});

	test("at most 50, and how many more there are", async () => {
		for (let n = 0; n < 52; n++) peer.send(pi, { kind: "message" });
		const lines = (await type("inbox")).split("\n");
		expect(lines).toHaveLength(52);
		expect(lines[0]).toBe("Inbox: 52 mails, 52 unread");
		expect(lines.at(-1)).toBe("and 2 more, which are not shown");
	});

	test("waiting: on whom, for whom, and when nobody waits", async () => {
		expect(await type("waiting")).toBe("Nobody waits for anybody.");
		await startFakePi({ name: "worker", mode: "print" });
		await pi.type("/mailbox worker check the parser");
		peer.send(pi, { kind: "ask", body: "which branch?" });
		expect(await type("waiting")).toMatch(
			/^This session waits for an answer to:\nqueued .*check the parser\nWaits for this session:\nunread .*which branch\?$/,
		);
	});

	test("sessions: each with short id, state, unread mail and folder", async () => {
		const worker = await startFakePi({ name: "worker", mode: "print" });
		peer.send(worker);
		const lines = (await type("sessions")).split("\n");
		const cwd = pi.session.getCwd();
		expect(lines).toEqual([
			"Sessions: 2 running",
			`author  0197a3f2  mail off  0 unread  ${cwd} · this session`,
			`worker  ${worker.address.slice(0, 8)}  idle      1 queued  ${cwd}`,
		]);
	});

	test("doctor: also without a mailbox", async () => {
		const findings = /^(ok|warning|error): /;
		expect(await type("doctor")).toMatch(findings);
		await pi.emit("session_shutdown", { reason: "quit" });
		expect(await type("doctor")).toMatch(findings);
		expect(await type("inbox")).toMatch(/^The mailbox cannot be shown: this session has none, because /);
	});
});
