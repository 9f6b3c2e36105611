import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { type CallStore, type EndedCall, openCallStore, type ResultPart } from "../../src/mail/call-store.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { type Envelope, parseEnvelope } from "../../src/mail/envelope.ts";
import { createResults } from "../../src/session/results.ts";
import { bob, fail, type Operation, type TestRoot, testRoot, watchedDisk } from "../support/disk.ts";

const id = "call-0123456789abcdef";
const ended: EndedCall = {
	...{ id, tool: "bash", arguments: "{}", started: 1000, hops: 2 },
	...{ state: "completed", finished: 2000, content: [{ type: "text", text: "built" }] },
};

let root: TestRoot;
let warnings: string[];
let before: (operation: Operation) => unknown;

beforeEach(() => {
	root = testRoot();
	warnings = [];
	before = () => {};
});

function setUp() {
	const disk = watchedDisk((operation) => before(operation), nodeDisk());
	const mailbox = root.open(bob, { disk, durability: "fast" });
	mailbox.mend();
	const store = openCallStore(disk, mailbox.folder);
	const results = createResults({ mailbox, store, now: () => 5000, warn: (text) => warnings.push(text) });
	return { store, ...results };
}

/** The mails that wait. */
function mails(): Envelope[] {
	return root.names(bob, "new").map((name) => {
		const parsed = parseEnvelope(readFileSync(join(root.boxes(bob).new, name), "utf8"));
		return parsed.ok ? parsed.envelope : expect.fail(parsed.reason);
	});
}

function ids(store: CallStore): string[] {
	return store.listOpen(() => {}).map((call) => call.id);
}

describe("the end of a call", () => {
	test("SMB-029 is kept, is mail of the session to itself, and leaves the call closed", () => {
		const { store, end } = setUp();
		store.open(ended);
		expect(end(ended)).toBe(true);
		expect(mails()).toMatchObject([
			{
				from: bob,
				to: bob,
				kind: "result",
				body: "built",
				hops: 2,
				x: { call: { id, tool: "bash", state: "completed" } },
			},
		]);
		expect([store.ended(id), ids(store), warnings]).toEqual([ended, [], []]);
		expect(root.names(bob, "sent").filter((name) => name.endsWith(".json"))).toEqual([]);
	});

	test("L2 is one mail however often it is told, and whatever is told", () => {
		const { end } = setUp();
		expect([end(ended), end(ended), end({ ...ended, state: "orphaned", content: [] })]).toEqual([true, true, true]);
		expect(mails()).toMatchObject([{ body: "built" }]);
	});

	test("L2 of two calls are two mails", () => {
		const { end } = setUp();
		end(ended);
		end({ ...ended, id: "call-abcdefghijklmnop" });
		expect(mails()).toHaveLength(2);
	});

	test.each<[string, ResultPart[], string]>([
		["nothing", [], "(no output)"],
		["blanks", [{ type: "text", text: " \n " }], "(no output)"],
		[
			"an image between texts",
			[
				{ type: "text", text: "a" },
				{ type: "image", data: "aGk=", mimeType: "image/png" },
				{ type: "text", text: "b\n" },
			],
			"a\n(image)\nb",
		],
	])("SMB-031 with %s has a body", (_what, content, body) => {
		setUp().end({ ...ended, content });
		expect(mails()).toMatchObject([{ body }]);
	});

	test.each([
		["letters", "x".repeat(1024 * 1024 + 1)],
		["control characters, each of which is six in a file", "\u0001".repeat(1024 * 1024)],
		["letters of four bytes", "\u{1f600}".repeat(300 * 1024)],
	])("L2 L7 above a megabyte of %s is mail that says where all of it is", (_what, text) => {
		const { store, end } = setUp();
		expect(end({ ...ended, content: [{ type: "text", text }] })).toBe(true);
		const [mail] = mails();
		expect(mail?.body.length).toBeLessThan(33 * 1024);
		expect(mail?.body).toContain(`\n(The result was cut here; all of it is in ${store.pathOf(id)})`);
		expect(store.ended(id)?.content).toEqual([{ type: "text", text }]);
	});

	test("L4 that the disk does not take is said, and leaves the call open", () => {
		const { store, end } = setUp();
		store.open(ended);
		before = ({ name, paths }) => name === "rename" && paths[1]?.includes("/new/") && fail("ENOSPC");
		expect(end(ended)).toBe(false);
		expect(warnings).toEqual([
			expect.stringMatching(/the result of call-0123456789abcdef \(bash\) .* tried again: .*ENOSPC/),
		]);
		expect([mails(), ids(store)]).toEqual([[], [id]]);
		before = () => {};
		expect(end(ended)).toBe(true);
		expect([mails().length, ids(store)]).toEqual([1, []]);
	});
});

describe("what a process has left", () => {
	test("SMB-034 is reported as orphaned, once", () => {
		const { store, endLeft } = setUp();
		store.open(ended);
		expect(endLeft(() => false)).toBe(true);
		expect(mails()).toMatchObject([{ body: "(no output)", x: { call: { id, state: "orphaned" } } }]);
		expect(endLeft(() => false)).toBe(true);
		expect(mails()).toHaveLength(1);
		expect(store.ended(id)).toMatchObject({ state: "orphaned", finished: 5000 });
	});

	test("a call whose question still waits is said not to be made, and no other; of a decided one the decision is mail enough", () => {
		const { store, endLeft } = setUp();
		const decided = "call-0000000000000000";
		store.open({ ...ended, ticket: "ticket-a" });
		store.open({ ...ended, id: "call-abcdefghijklmnop", ticket: "ticket-b" });
		store.open({ ...ended, id: decided, ticket: "ticket-c" });
		const text = "It was not made.";
		const left = { "ticket-a": { text, isDecided: false }, "ticket-c": { text, isDecided: true } };
		const isDone = endLeft(
			() => false,
			(ticket) => new Map(Object.entries(left)).get(ticket),
		);
		expect(isDone).toBe(true);
		expect(mails().map(({ body }) => body)).toHaveLength(2);
		expect(mails().map(({ body }) => body)).toEqual(expect.arrayContaining([text, "(no output)"]));
		expect(store.ended(decided)).toMatchObject({ state: "orphaned", content: [{ type: "text", text }] });
		expect(ids(store)).toEqual([]);
	});

	test("L2 that had ended comes with its result, which says how it was decided as well", () => {
		const { store, endLeft } = setUp();
		store.open({ ...ended, ticket: "ticket-a" });
		store.keep(ended);
		endLeft(
			() => false,
			() => expect.fail("its decision was told twice"),
		);
		expect(mails()).toMatchObject([{ body: "built", x: { call: { state: "completed" } } }]);
	});

	test("L2 that was mail already is no second one", () => {
		const { store, end, endLeft } = setUp();
		end(ended);
		store.open(ended);
		expect(endLeft(() => false)).toBe(true);
		expect([mails().length, ids(store)]).toEqual([1, []]);
	});

	test("is nothing that goes on", () => {
		const { store, endLeft } = setUp();
		store.open(ended);
		expect(endLeft((other) => other === id)).toBe(true);
		expect([mails(), ids(store)]).toEqual([[], [id]]);
	});

	test.each([
		["calls", "read"],
		["results", "read"],
		["calls", "list"],
	])("L2 L7 is looked at again when something in %s fails in a %s, which keeps no other out", (box, operation) => {
		const { store, endLeft } = setUp();
		const other = { ...ended, id: "call-abcdefghijklmnop" };
		for (const call of [ended, other]) {
			store.open(call);
			store.keep(call);
		}
		const isIt = (path = "") => path.includes(`/${box}`) && (operation === "list" || path.includes(id));
		before = ({ name, paths }) => name === operation && isIt(paths[0]) && fail("EIO");
		expect(endLeft(() => false)).toBe(false);
		expect(warnings).toEqual([expect.stringContaining("is tried again: EIO")]);
		expect(mails().length).toBe(operation === "list" ? 0 : 1);
		before = () => {};
		expect(endLeft(() => false)).toBe(true);
		expect(mails()).toHaveLength(2);
	});
});

test("L3 what was decided about a call is told also when its arguments are more than a mail holds", () => {
	const { tell } = setUp();
	const call = { id: "ticket-0123456789abcdef", tool: "write", state: "decided" } as const;
	expect(tell(call, `approved\n${"x".repeat(2 * 1024 * 1024)}`)).toBe(true);
	expect(mails()).toMatchObject([
		{ kind: "result", x: { call }, body: expect.stringMatching(/^approved\nx+\n\(It was cut here/) },
	]);
	expect(warnings).toEqual([]);
});
