import { chmodSync, existsSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { nodeDisk } from "../../src/mail/disk.ts";
import type { Mailbox } from "../../src/mail/mailbox.ts";
import type { Running } from "../../src/mail/running.ts";
import type { PlannedReply, ReceivedMail } from "../../src/session/ledger.ts";
import { createOverview, type Listed, type Overview, subjectOf } from "../../src/session/overview.ts";
import {
	alice,
	bob,
	carol,
	envelopeText,
	isRoot,
	sent,
	type TestRoot,
	testRoot,
	watchedDisk,
} from "../support/disk.ts";

let root: TestRoot;
let mine: Mailbox;
let peer: Mailbox;
let overview: Overview;
/** What the ledger knows, by id. */
let ledger: Map<string, Partial<ReceivedMail>>;
/** The names that mail in the conversation was from, by address. */
let named: Map<string, string>;
/** What alice, who runs, is called. */
let nameOfAlice: string | undefined;
let isAliceRunning: boolean;
let reads: string[];
let walks: number;

beforeEach(() => {
	root = testRoot();
	mine = root.open(bob);
	peer = root.open(alice);
	ledger = new Map();
	named = new Map();
	[nameOfAlice, isAliceRunning] = ["al\u001bice", true];
	reads = [];
	walks = 0;
	const disk = watchedDisk(({ name, paths }) => {
		if (name === "read") reads.push(paths[0] ?? "");
		if (name === "walk") walks++;
	});
	overview = createOverview({ disk, root: root.path, mailbox: mine, running: runningOf(), ledger: ledgerOf() });
});

function runningOf(): Running {
	const nobody = {
		list: () => [],
		find: (address: string) => (address === alice && isAliceRunning ? { name: nameOfAlice } : undefined),
	};
	return nobody as unknown as Running;
}

function ledgerOf() {
	const get = ({ from, id }: { from: string; id: string }) => {
		const known = ledger.get(id);
		return (
			known && {
				id,
				from,
				kind: "request" as const,
				isAnswered: false,
				answer: undefined,
				heldBy: undefined,
				entryId: "e",
				file: "f",
				...known,
			}
		);
	};
	const nameOf = (from: string) => named.get(from);
	return { get, has: (mail: { from: string; id: string }) => get(mail) !== undefined, nameOf };
}

function list(): void {
	for (const _ of overview.relist());
}

function claim(): string {
	const [name = ""] = mine.waiting();
	const claimed = mine.claim(name);
	if (claimed.result !== "claimed") throw new Error(claimed.result);
	return claimed.mail.name;
}

/** The one mail of a list. */
function only(box: readonly Listed[]): Listed {
	expect(box).toHaveLength(1);
	return box[0] as Listed;
}

function statusOf(box: readonly Listed[]): string {
	return overview.status(only(box)).word;
}

const answer = (status: PlannedReply["status"]): PlannedReply => ({
	id: "r",
	to: alice,
	inReplyTo: [],
	status,
	hops: 0,
	body: "yes",
});

describe("the inbox", () => {
	test("newest first, whichever box they are in", () => {
		const ids = [1, 2, 3].map((n) => {
			root.clockMs += 1000;
			return sent(peer, { body: `${n}` });
		});
		claim();
		list();
		expect(overview.inbox.map((listed) => overview.glance(listed)?.id)).toEqual(ids.reverse());
		expect(overview.inbox.map(({ box }) => box)).toEqual(["new", "new", "cur"]);
	});

	test("L6 reads nothing but the names, until a mail is shown", () => {
		for (let n = 0; n < 5; n++) sent(peer);
		list();
		expect(overview.inbox).toHaveLength(5);
		expect(reads).toEqual([]);
		overview.glance(overview.inbox[1] as Listed);
		expect(reads).toHaveLength(1);
		overview.glance(overview.inbox[1] as Listed);
		expect(reads).toHaveLength(1);
	});

	test("L4 a mail that waits, or was claimed and is not in the conversation, is unread", () => {
		const id = sent(peer);
		list();
		expect([statusOf(overview.inbox), overview.unread().length === 1]).toEqual(["unread", true]);
		const name = claim();
		list();
		expect([statusOf(overview.inbox), overview.unread().length === 1]).toEqual(["unread", true]);
		ledger.set(id, {});
		expect([statusOf(overview.inbox), overview.unread().length === 1]).toEqual(["read", false]);
		ledger.clear();
		mine.close(name);
		list();
		expect([statusOf(overview.inbox), overview.unread().length === 1]).toEqual(["read", false]);
	});

	test.each<[string, Partial<ReceivedMail>]>([
		["held", { heldBy: "stop" }],
		["answered", { isAnswered: true, answer: answer("done") }],
		["stopped", { isAnswered: true, answer: answer("stopped") }],
		["failed", { isAnswered: true, answer: answer("failed"), heldBy: "stop" }],
	])("L4 what the session holds of it makes it %s", (word, known) => {
		ledger.set(sent(peer), known);
		mine.close(claim());
		list();
		expect(statusOf(overview.inbox)).toBe(word);
	});

	test("D12 what was set aside is dead, and says why; only that can be deleted", () => {
		root.lay(bob, "new", "000000000000001-x.json", "rubbish");
		expect(mine.claim("000000000000001-x.json").result).toBe("dead");
		sent(peer);
		list();
		const [alive, dead] = overview.inbox;
		expect(overview.status(dead as Listed)).toEqual({ word: "dead", reason: "it is not JSON" });
		expect(overview.unread()).toEqual([alive]);
		expect(() => overview.removeDead(alive as Listed)).toThrow("only a dead mail");
		overview.removeDead(dead as Listed);
		expect(readdirSync(root.boxes(bob).cur)).toEqual([]);
		list();
		expect(overview.inbox).toHaveLength(1);
	});

	test("D12 what is still being set aside is not deleted", () => {
		root.lay(bob, "cur", "m.json", "rubbish");
		root.lay(bob, "cur", "m.json.open", "");
		root.lay(bob, "cur", "m.json.reason", "broken");
		list();
		expect(() => overview.removeDead(only(overview.inbox))).toThrow("try again");
		expect(existsSync(join(root.boxes(bob).cur, "m.json"))).toBe(true);
	});

	test("a file that cannot be read says why, and stops nothing", () => {
		root.lay(bob, "new", "x.json", "{");
		list();
		expect(subjectOf(overview.glance(only(overview.inbox)) ?? expect.fail())).toBe("cannot be read: it is not JSON");
		expect(statusOf(overview.inbox)).toBe("unread");
		expect(overview.whole(only(overview.inbox))).toEqual({ problem: "it is not JSON" });
	});

	test("one that goes in between is gone", () => {
		sent(peer);
		list();
		const listed = only(overview.inbox);
		rmSync(listed.path);
		expect(overview.glance(listed)).toBeUndefined();
		expect(overview.whole(listed)).toEqual({ problem: "it is not here any more" });
	});

	test.skipIf(isRoot)("a folder that cannot be read throws, and what was known stays", () => {
		sent(peer);
		list();
		chmodSync(root.boxes(bob).new, 0);
		sent(peer);
		expect(list).toThrow();
		chmodSync(root.boxes(bob).new, 0o700);
		expect(overview.inbox).toHaveLength(1);
	});

	test("L10 nothing is listed again when nothing has changed", () => {
		sent(peer);
		list();
		list();
		walks = 0;
		list();
		expect(walks).toBe(0);
		sent(peer);
		list();
		expect(overview.inbox).toHaveLength(2);
	});
});

describe("what was sent", () => {
	test.each(["read", "held", "failed", "answered"])("L4 is %s when its recipient has noted it", (step) => {
		sent(mine, { to: alice });
		const [name = ""] = root.names(bob, "sent");
		list();
		expect(statusOf(overview.sent)).toBe("queued");
		root.lay(bob, "sent", `${name}.${step}`, "");
		list();
		expect(statusOf(overview.sent)).toBe(step);
	});

	test("D28 is still shown when it was taken back", () => {
		sent(mine, { to: alice });
		const [name = ""] = root.names(bob, "sent");
		const { envelope } = overview.whole({ box: "sent", name, path: join(root.boxes(bob).sent, name) }) as never;
		expect(mine.retract({ envelope, name })).toBe(true);
		list();
		expect(only(overview.sent)).toMatchObject({ name, path: join(root.boxes(bob).sent, `${name}.retracted`) });
		expect(statusOf(overview.sent)).toBe("retracted");
	});

	test("unfinished copies, receipts and marks are no mail", () => {
		for (const name of ["a.json.part", "b.receipt", "c.json.read"]) root.lay(bob, "sent", name, "");
		list();
		expect(overview.sent).toEqual([]);
	});
});

describe("a thread", () => {
	function threadOf(listed: Listed | undefined) {
		const reading = overview.thread(listed ?? expect.fail());
		for (;;) {
			const step = reading.next();
			if (step.done === true)
				return step.value.map(({ relation, id, listed, text }) => [relation, id, text ?? listed?.box]);
		}
	}

	test("has what a reply answers, and what answered a request", () => {
		const asked = sent(mine, { to: alice });
		const replied = sent(peer, { kind: "reply", inReplyTo: [asked], status: "done" });
		// Anybody can name an id: only the session that was asked answers.
		sent(root.open(carol), { kind: "reply", inReplyTo: [asked], status: "done" });
		list();
		expect(threadOf(overview.sent[0])).toEqual([["answered by", replied, "new"]]);
		expect(threadOf(overview.find("inbox", replied))).toEqual([["answers", asked, "sent"]]);
	});

	test("has the answer that this session gave, which has no copy of its own", () => {
		const id = sent(peer);
		ledger.set(id, { isAnswered: true, answer: answer("done") });
		list();
		expect(threadOf(overview.inbox[0])).toEqual([["answered by", "r", "yes"]]);
	});

	test("D28 has what a mail replaces, and what replaced it", () => {
		const first = sent(peer);
		const second = "22222222-2222-4333-8444-555555555555";
		const text = envelopeText({ id: second, x: { replaces: first } });
		root.lay(bob, "new", `999999999999999-${second}.json`, text);
		list();
		expect(threadOf(overview.find("inbox", second))).toEqual([["replaces", first, "new"]]);
		expect(threadOf(overview.find("inbox", first))).toEqual([["replaced by", second, "new"]]);
	});

	test("says of a missing middle that it is not here any more", () => {
		const gone = "99999999-2222-4333-8444-555555555555";
		sent(peer, { kind: "reply", inReplyTo: [gone], status: "done" });
		list();
		expect(threadOf(overview.inbox[0])).toEqual([["answers", gone, undefined]]);
	});
});

describe("what a person reads", () => {
	test("the first line that is no remark in brackets, and no control characters", () => {
		root.lay(
			bob,
			"new",
			"a.json",
			envelopeText({ body: "\n(The user took over.)\n\n  the \u001b[31manswer\u202e \nmore" }),
		);
		list();
		expect(subjectOf(overview.glance(only(overview.inbox)) ?? expect.fail())).toBe("the  [31manswer");
	});

	test("a session by its name, cleaned, or the start of its id", () => {
		expect([overview.nameOf(alice), overview.nameOf(carol)]).toEqual(["al ice", carol.slice(0, 13)]);
		list();
		nameOfAlice = undefined;
		expect(overview.nameOf(alice)).toBe(alice.slice(0, 8));
	});

	test("a session that is closed by the name that it had", () => {
		expect(overview.nameOf(alice)).toBe("al ice");
		isAliceRunning = false;
		list();
		expect(overview.nameOf(alice)).toBe("al ice");
	});

	test("also one that never ran since, by what the conversation holds of it; a name of 500 characters is cut", () => {
		named.set(carol, "carol").set(alice, "n".repeat(500));
		isAliceRunning = false;
		expect(overview.nameOf(carol)).toBe("carol");
		expect(overview.nameOf(alice)).toBe(`${"n".repeat(59)}…`);
	});

	test("a program by the whole name that somebody chose", () => {
		expect(overview.nameOf("nightly-build-server")).toBe("nightly-build-server");
	});

	test("a text of a megabyte is not kept whole for a list", () => {
		writeFileSync(join(root.boxes(bob).new, "a.json"), envelopeText({ body: "x".repeat(1024 * 1024) }));
		list();
		expect(overview.glance(only(overview.inbox))?.head).toHaveLength(2000);
		expect(nodeDisk().list(root.boxes(bob).new)).toEqual(["a.json"]);
	});
});
