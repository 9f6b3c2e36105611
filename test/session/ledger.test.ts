import { beforeEach, describe, expect, test } from "vitest";
import { createLedger, type Ledger, type MailDetails, type Note, type PlannedReply } from "../../src/session/ledger.ts";

let ledger: Ledger;
let entries: unknown[];

beforeEach(() => {
	ledger = createLedger("me");
	entries = [];
});

/** Adds entries to the session and has them read. */
function add(...added: unknown[]): void {
	entries.push(...added);
	ledger.read(entries);
}

function mail(id: string, fields: Partial<MailDetails> = {}): unknown {
	const details = { address: "me", id, from: "alice", kind: "request", hops: 0, inReplyTo: [], file: `${id}.json` };
	return entry("custom_message", { customType: "mailbox", details: { mail: { ...details, ...fields } } });
}

function note(fields: object): unknown {
	const data: Note = { address: "me", type: "settling", replies: [], held: [], because: "stop", ...fields };
	return entry("custom", { customType: "session-mail", data });
}

function entry(type: string, fields: object): unknown {
	return { type, id: `entry-${entries.length}`, parentId: null, timestamp: "", ...fields };
}

function reply(id: string, ...inReplyTo: string[]): PlannedReply {
	return { id, to: "alice", inReplyTo, status: "done", hops: 0, body: "yes" };
}

const owed = () => ledger.unanswered().map((item) => item.id);
const open = () => ledger.openReplies().map((item) => item.id);

describe("what a session's entries prove, design L1 and 4.9", () => {
	test("a mail is in the conversation when an entry carries its id and sender", () => {
		add(mail("a"));
		expect(ledger.has({ from: "alice", id: "a" })).toBe(true);
		expect(ledger.has({ from: "bob", id: "a" })).toBe(false);
		expect(ledger.readCount).toBe(1);
	});

	test("the answer to an ask is in the conversation as the result of the call that asked, and as nothing else", () => {
		const details = { mail: { address: "me", id: "a", from: "alice", kind: "reply" } };
		add(entry("message", { message: { role: "user", details } }));
		expect(ledger.readCount).toBe(0);
		add(entry("message", { message: { role: "toolResult", details } }));
		expect([ledger.has({ from: "alice", id: "a" }), ledger.readCount]).toEqual([true, 1]);
	});

	test("what is only for the person may be missing", () => {
		const details = { mail: { address: "me", id: "a", from: "alice", kind: "request" } };
		add(entry("custom_message", { customType: "mailbox", details }));
		expect(owed()).toEqual(["a"]);
	});

	test("it holds the last name of each sender that had one", () => {
		add(mail("a", { sender: "ali" }), mail("b", { sender: "Bob" }));
		expect(ledger.nameOf("alice")).toBe("Bob");
		add(mail("c", { sender: "alic" }), mail("d", { address: "parent", sender: "Al" }), mail("e", { sender: "" }));
		expect([ledger.nameOf("alice"), ledger.nameOf("carol")]).toEqual(["Bob", undefined]);
	});

	test("requests and asks in it are owed until a reply to them is planned, messages and replies never", () => {
		add(mail("a"), mail("b", { kind: "ask" }), mail("c", { kind: "message" }), mail("d", { kind: "reply" }));
		expect(ledger.unanswered()).toMatchObject([
			{ id: "a", from: "alice", kind: "request", heldBy: undefined },
			{ id: "b", kind: "ask" },
		]);
		add(note({ replies: [reply("1", "a")] }));
		expect(owed()).toEqual(["b"]);
		expect([ledger.find("a")[0]?.isAnswered, ledger.find("b")[0]?.isAnswered]).toEqual([true, false]);
	});

	test("design 4.8 a planned reply is open until a note says that it is done with", () => {
		add(mail("a"), mail("b"), note({ replies: [reply("1", "a"), reply("2", "b")] }));
		expect(ledger.openReplies()).toEqual([reply("1", "a"), reply("2", "b")]);
		add(note({ type: "settled", replies: ["1"] }));
		expect(open()).toEqual(["2"]);
	});

	test("D17 a mail that was answered without being read is done with, and not counted as read", () => {
		add(note({ replies: [reply("1", "unread")] }));
		expect(ledger.has({ from: "alice", id: "unread" })).toBe(true);
		expect([ledger.readCount, owed()]).toEqual([0, []]);
		add(mail("unread"));
		expect([ledger.readCount, owed()]).toEqual([0, []]);
	});

	test("PSM-065 a request that a note holds stays owed and is held", () => {
		add(mail("a"), mail("b"), note({ held: ["alice a", "alice gone"] }));
		expect(ledger.unanswered()).toMatchObject([
			{ id: "a", heldBy: "stop" },
			{ id: "b", heldBy: undefined },
		]);
	});

	test("L6 an entry is read once", () => {
		ledger.read([mail("a")]);
		ledger.read([mail("changed"), mail("b")]);
		expect(owed()).toEqual(["a", "b"]);
	});

	test("a second entry of the same mail counts once", () => {
		add(mail("a"), mail("a"));
		expect([ledger.readCount, owed()]).toEqual([1, ["a"]]);
	});

	test("a fork neither owes nor skips on account of its parent's entries", () => {
		add(mail("a", { address: "parent" }), note({ address: "parent", replies: [reply("1", "b")] }));
		expect([ledger.readCount, owed(), open()]).toEqual([0, [], []]);
		expect(ledger.has({ from: "alice", id: "a" })).toBe(false);
		expect(ledger.has({ from: "alice", id: "b" })).toBe(false);
	});

	test("everything else in the session, and what another version wrote, is passed over", () => {
		add(
			null,
			"text",
			entry("message", { message: { role: "user", content: "hello" } }),
			entry("custom_message", { customType: "mailbox", details: { mail: { id: "a" } } }),
			entry("custom_message", { customType: "other", details: { mail: { address: "me", id: "a" } } }),
			mail("a", { kind: "control" as "request" }),
			note({ type: "later", replies: [] }),
			note({ replies: [{ id: "1" }] }),
			mail("b"),
		);
		expect([ledger.readCount, owed(), open()]).toEqual([1, ["b"], []]);
	});

	test("D7 what another process added to the session counts as well", () => {
		add(mail("a"));
		ledger.include([
			mail("a"),
			mail("b"),
			note({ replies: [reply("1", "a")] }),
			note({ type: "settled", replies: ["1"] }),
		]);
		expect([ledger.readCount, owed(), open()]).toEqual([2, ["b"], []]);
		add(mail("c"));
		expect(owed()).toEqual(["b", "c"]);
	});
});

describe("calls and pauses", () => {
	const seenResults = (address: string, calls: unknown) => ({ seenResults: { address, calls } });
	const toolResult = (details: unknown, role = "toolResult") => entry("message", { message: { role, details } });

	test("SMB-030 the result of a call is seen when a tool has shown it, and no other is", () => {
		add(toolResult({ id: "call-1", ...seenResults("me", ["call-1", "call-2"]) }));
		expect(["call-1", "call-2", "call-3", ""].map(ledger.hasSeenResult)).toEqual([true, true, false, false]);
		expect([ledger.readCount, owed()]).toEqual([0, []]);
	});

	test.each<[string, () => unknown]>([
		["of a fork's parent", () => toolResult(seenResults("parent", ["call-1"]))],
		["that no tool has shown", () => toolResult(seenResults("me", ["call-1"]), "user")],
		["that is no list", () => toolResult(seenResults("me", "call-1"))],
	])("D7 a result %s is not seen", (_what, added) => {
		add(added());
		expect(ledger.hasSeenResult("call-1")).toBe(false);
	});

	test("SMB-043 the session is paused as its last word says", () => {
		expect(ledger.isPaused).toBe(false);
		add(note({ type: "paused", isOn: true }));
		expect(ledger.isPaused).toBe(true);
		add(note({ type: "paused", isOn: false }));
		expect(ledger.isPaused).toBe(false);
	});

	test("SMB-043 the pause of a fork's parent is none", () => {
		add(note({ address: "parent", type: "paused", isOn: true }));
		expect(ledger.isPaused).toBe(false);
	});

	test("SMB-044 a pause and the mail that asked for it are one entry: neither is there without the other", () => {
		add(note({ type: "paused", isOn: true, mail: { id: "a", from: "alice", kind: "control", file: "a.json" } }));
		expect([ledger.isPaused, ledger.has({ from: "alice", id: "a" }), ledger.readCount]).toEqual([true, true, 0]);
		expect(ledger.pausedBy).toBe("a.json");
		add(note({ type: "paused", isOn: false }));
		expect(ledger.pausedBy).toBe("a.json");
	});

	test("control mail that was done is done with, and is not counted as read", () => {
		add(note({ type: "taken", mail: { id: "a", from: "alice", kind: "control" } }));
		expect([ledger.has({ from: "alice", id: "a" }), ledger.readCount, owed()]).toEqual([true, 0, []]);
	});
});
