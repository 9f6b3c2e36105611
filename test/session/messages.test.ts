import { beforeEach, describe, expect, test } from "vitest";
import type { Draft } from "../../src/mail/deliver.ts";
import type { MailDetails } from "../../src/session/ledger.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

let peer: Peer;
let pi: FakePi;
beforeEach(async () => {
	peer = makePeer();
	pi = await startFakePi();
	await pi.run({ prompt: "hello" });
	await later(1000);
});

/** What is kept beside the text of a mail in the conversation. */
async function detailsOf(draft: Partial<Draft>): Promise<MailDetails> {
	peer.send(pi, draft);
	await later(1000);
	if (pi.hasRunToPlay) await pi.run({});
	const [entry] = pi.session.getEntries().flatMap((found) => (found.type === "custom_message" ? [found] : []));
	if (entry === undefined) throw new Error("no mail came");
	return (entry.details as { mail: MailDetails }).mail;
}

describe("what is kept beside a mail's text", () => {
	test("L1 says for whom it was, from whom, what it is and where it lies", async () => {
		const mail = await detailsOf({ kind: "request", body: "\n look at x \nand y" });
		expect(mail).toEqual({
			address: pi.address,
			id: expect.any(String),
			from: peer.address,
			kind: "request",
			status: "",
			inReplyTo: [],
			file: pi.names("cur").find((name) => name.endsWith(".json")),
			sender: "01980f5e",
			firstLine: "look at x",
		});
	});

	test("shows the answer, and not the remark in brackets above it", async () => {
		const body = "(The user stopped an earlier run partway and took over.)\n\nIt is fine.";
		expect((await detailsOf({ kind: "reply", status: "done", body })).firstLine).toBe("It is fine.");
	});

	test("PSM-054 names the sender as its record does", async () => {
		const named = await startFakePi({ name: "author" });
		const id = await named.type(`/mailbox ${pi.address} please`);
		expect(id).toBeUndefined();
		await later(1000);
		await pi.run({});
		const [entry] = pi.session.getEntries().flatMap((found) => (found.type === "custom_message" ? [found] : []));
		expect(entry?.details).toMatchObject({ mail: { sender: "author", firstLine: "please" } });
	});

	test("PSM-060, D8 the first line is one short line without control characters, whatever the mail holds", async () => {
		const mail = await detailsOf({ kind: "message", body: `\x1b[2J\u202e\x9b31m\u2028${"x".repeat(100_000)}` });
		expect(mail.firstLine).toMatch(/^ \[2J {2}31m x+…$/);
		expect([...mail.firstLine]).toHaveLength(200);
	});

	test("a body of nothing but blank lines has an empty first line", async () => {
		expect((await detailsOf({ kind: "reply", inReplyTo: [], status: "done", body: " \n \n" })).firstLine).toBe("");
	});

	test("PSM-016 a reply keeps what it answers and how the run ended", async () => {
		const id = "11111111-2222-4333-8444-555555555555";
		expect(await detailsOf({ kind: "reply", inReplyTo: [id], status: "failed", body: "x" })).toMatchObject({
			kind: "reply",
			status: "failed",
			inReplyTo: [id],
		});
	});
});
