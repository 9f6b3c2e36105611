import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { fail, type Operation, watchedDisk } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, startFakePi } from "../support/fake-pi.ts";

/** What happens before each operation on disk. */
const faults = vi.hoisted(() => ({ wrap: (disk: Disk): Disk => disk }));
vi.mock(import("../../src/mail/disk.ts"), async (importOriginal) => {
	const real = await importOriginal();
	return { ...real, nodeDisk: () => faults.wrap(real.nodeDisk()) };
});
let before: (operation: Operation) => void = () => {};
faults.wrap = (disk) => watchedDisk((operation) => before(operation), disk);

useFakeMachine();

const ids = {
	ann: "0197a3f2-1111-7000-8000-00000000000a",
	bob: "0197a3f2-2222-7000-8000-00000000000b",
	cara: "0197a3f2-3333-7000-8000-00000000000c",
	old: "0197a3f2-4444-7000-8000-00000000000d",
};
type Name = keyof typeof ids;

let ann: FakePi;
let bob: FakePi;
let cara: FakePi;
beforeEach(async () => {
	ann = await started("ann");
	bob = await started("bob");
	cara = await started("cara");
	await later(1000);
});
afterEach(() => {
	before = () => {};
});

async function started(name: Name): Promise<FakePi> {
	const pi = await startFakePi({ name, id: ids[name] });
	await pi.run({ prompt: "hello" });
	return pi;
}

/** A run whose model asks. */
function ask(pi: FakePi, to: Name): Promise<void> {
	const args = { to, message: `a question to ${to}` };
	return pi.run({ prompt: "ask", turns: [{ tools: [{ name: "session_mail_ask", args }] }] });
}

/** Lets the asks get as far as their waits, a moment later: no mail is noticed yet. */
async function aMomentLater(): Promise<void> {
	for (let n = 0; n < 200; n++) await Promise.resolve();
	vi.setSystemTime(Date.now() + 1);
}

interface Details {
	outcome?: string;
	error?: { code: string };
}

/** How the asks of a session ended. */
function ends(pi: FakePi): (string | undefined)[] {
	return pi.session.getEntries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		const { outcome, error } = entry.message.details as Details;
		return [outcome ?? error?.code];
	});
}

const recordFile = (address: string) => join(mailRoot(), "running", `${address}.json`);
const record = (address: string) => JSON.parse(readFileSync(recordFile(address), "utf8"));
const waitingOn = (pi: FakePi) => record(pi.address).waitingOn;
const changeRecord = (address: string, changed: object) =>
	writeFileSync(recordFile(address), JSON.stringify({ ...record(address), ...changed }));

/** The asks that lie in a session's inbox or were claimed by it. */
function asksTo(address: string): string[] {
	return ["new", "cur"].flatMap((box) =>
		readdirSync(join(mailRoot(), address, box))
			.filter((name) => name.endsWith(".json"))
			.map((name) => JSON.parse(readFileSync(join(mailRoot(), address, box, name), "utf8")))
			.filter(({ kind }) => kind === "ask")
			.map(({ from }) => from),
	);
}

/** A running session of an older copy: its record has neither ticket nor anything else under `x`. */
function older(waits: string): void {
	makePeer(ids.old);
	const { x: _, ...fields } = record(ids.ann);
	writeFileSync(recordFile(ids.old), JSON.stringify({ ...fields, address: ids.old, name: "old", waitingOn: waits }));
}

/** Ends whatever still waits, and says how each ask of each session ended. */
async function afterStop(...runs: Promise<void>[]): Promise<(string | undefined)[][]> {
	for (const pi of [ann, bob, cara]) pi.abort();
	await Promise.all(runs);
	for (const pi of [ann, bob, cara]) expect(waitingOn(pi)).toBe("");
	return [ann, bob, cara].map(ends);
}

describe("a ring of sessions that ask each other", () => {
	test("PSM-077, D13: of two that ask each other at the same instant exactly one is refused, and the other gets its answer", async () => {
		const runs = [ask(ann, "bob"), ask(bob, "ann")];
		await later(0);
		// The later ticket, or at the same time the greater address, withdraws.
		await runs[1];
		expect(ends(bob)).toEqual(["ring"]);
		expect(asksTo(ids.ann)).toEqual([]);
		expect(waitingOn(bob)).toBe("");
		// Bob's run went on with Ann's ask.
		await later(1000);
		await runs[0];
		expect(ends(ann)).toEqual(["answered"]);
		expect(waitingOn(ann)).toBe("");
	});

	test("D13: of three that ask in a ring one after another the last is refused, and the others are answered", async () => {
		const runs = [ask(ann, "bob")];
		await aMomentLater();
		runs.push(ask(bob, "cara"));
		await aMomentLater();
		await ask(cara, "ann");
		expect(ends(cara)).toEqual(["ring"]);
		expect(asksTo(ids.ann)).toEqual([]);
		// Cara's run goes on with Bob's ask, and Bob's with Ann's.
		await later(3000);
		await Promise.all(runs);
		expect([ann, bob, cara].map(ends)).toEqual([["answered"], ["answered"], ["ring"]]);
	});

	test("D13: of three that ask in a ring at the same instant exactly one is refused, and the others are answered one after another", async () => {
		const runs = [ask(ann, "bob"), ask(bob, "cara"), ask(cara, "ann")];
		await later(0);
		expect([waitingOn(ann), waitingOn(bob), waitingOn(cara)]).toEqual([ids.bob, ids.cara, ""]);
		await later(3000);
		await Promise.all(runs);
		expect([ann, bob, cara].map(ends)).toEqual([["answered"], ["answered"], ["ring"]]);
		expect(asksTo(ids.ann)).toEqual([]);
	});

	test("D13: an ask that closes a ring through an older copy, which knows no tickets, is refused", async () => {
		const run = ask(ann, "bob");
		await aMomentLater();
		older(ids.ann);
		let writes = 0;
		before = ({ name, paths }) => {
			if (name === "create" && paths[0]?.includes(`/${ids.old}/`)) writes++;
		};
		await ask(bob, "old");
		expect(ends(bob)).toEqual(["ring"]);
		// Nor was it there for a moment, in which it could have been claimed.
		expect(writes).toBe(0);
		await afterStop(run);
	});

	test("D13: an ask looks for a ring after it was published, so that one that was published just before is not missed", async () => {
		let writes = 0;
		let isEarly = true;
		before = ({ name, paths }) => {
			if (name === "create" && paths[0]?.includes(`/${ids.cara}/`)) writes++;
			// Once its run is noted, Bob's record changes for the ask.
			if (name === "replace" && paths[0] === recordFile(ids.bob) && record(ids.bob).state === "busy" && isEarly) {
				isEarly = false;
				changeRecord(ids.cara, { waitingOn: ids.bob, x: { ...record(ids.cara).x, ticket: 0 } });
			}
		};
		await ask(bob, "cara");
		expect([ends(bob), writes]).toEqual([["ring"], 0]);
	});

	test("D13: of two that published the same ticket before either looked, the one with the greater address withdraws", async () => {
		const waits = (pi: FakePi) =>
			changeRecord(pi.address, { waitingOn: ids.bob, x: { ...record(pi.address).x, ticket: Date.now() } });
		waits(ann);
		await ask(bob, "ann");
		expect(ends(bob)).toEqual(["ring"]);
		waits(cara);
		const run = ask(bob, "cara");
		await later(0);
		expect(waitingOn(bob)).toBe(ids.cara);
		for (const pi of [ann, cara]) changeRecord(pi.address, { waitingOn: "" });
		expect(await afterStop(run)).toEqual([[], ["ring", "stopped-by-user"], []]);
	});

	test("D13: when an older copy closes the ring, the latest of ours withdraws within about a second, and answers the rest", async () => {
		older("");
		const runs = [ask(ann, "bob")];
		await aMomentLater();
		runs.push(ask(bob, "old"));
		await aMomentLater();
		changeRecord(ids.old, { waitingOn: ids.ann });
		await later(1000);
		expect(ends(bob)).toEqual(["ring"]);
		expect(asksTo(ids.old)).toEqual([]);
		await later(3000);
		await Promise.all(runs);
		expect([ann, bob].map(ends)).toEqual([["answered"], ["ring"]]);
	});

	test("D13: an ask that learns later that it is the latest takes itself back, copy and all, when nobody has claimed it", async () => {
		older("");
		const run = ask(bob, "old");
		await later(100);
		expect(asksTo(ids.old)).toEqual([ids.bob]);
		changeRecord(ids.old, { waitingOn: ids.bob });
		await later(1000);
		await run;
		expect(ends(bob)).toEqual(["ring"]);
		expect(asksTo(ids.old)).toEqual([]);
		expect([bob.names("tmp"), bob.names("sent")]).toEqual([[], [expect.stringMatching(/\.json\.retracted$/)]]);
		await later(1000);
		expect(bob.status.get("mailbox")).toBeUndefined();
	});

	test("D13: an ask that was claimed by then stops waiting, says so, and its answer comes as mail", async () => {
		older("");
		const run = ask(bob, "old");
		await later(100);
		const box = join(mailRoot(), ids.old);
		const [name = ""] = readdirSync(join(box, "new"));
		const { id } = JSON.parse(readFileSync(join(box, "new", name), "utf8"));
		nodeDisk().rename(join(box, "new", name), join(box, "cur", name));
		changeRecord(ids.old, { waitingOn: ids.bob });
		await later(1000);
		await run;
		expect(ends(bob)).toEqual(["withdrawn"]);
		expect(waitingOn(bob)).toBe("");
		makePeer(ids.old).send(bob, { kind: "reply", inReplyTo: [id], status: "done", body: "yes" });
		await later(2000);
		await bob.run({});
		expect(bob.mails()[0]?.text).toContain("That ask stopped waiting before this reply came.");
	});

	test.each([1, 2])(
		"L7: an ask that cannot be taken back because of the disk ends, and does not end Pi (operation %i)",
		async (which) => {
			older("");
			const run = ask(bob, "old");
			await later(100);
			changeRecord(ids.old, { waitingOn: ids.bob });
			let seen = 0;
			before = ({ name, paths }) => {
				const isRetract =
					name === "rename"
						? paths[0]?.includes(`${ids.old}/new/`)
						: name === "remove" && paths[0]?.includes(`${ids.bob}/sent/`);
				if (isRetract && ++seen === which) fail("EIO");
			};
			await later(3000);
			await run;
			expect(ends(bob)).toHaveLength(1);
			expect(waitingOn(bob)).toBe("");
		},
	);

	test("D13: a chain that does not come back to the asker is no ring, also when others wait in one", async () => {
		changeRecord(ids.bob, { waitingOn: ids.cara });
		changeRecord(ids.cara, { waitingOn: ids.bob });
		let reads = 0;
		before = ({ name, paths }) => {
			if (name === "read" && paths.some((path) => path.includes("/running/"))) reads++;
		};
		const run = ask(ann, "bob");
		await later(0);
		expect(waitingOn(ann)).toBe(ids.bob);
		// L7: each record is looked at a few times, not a thousand.
		expect(reads).toBeLessThan(100);
		for (const pi of [bob, cara]) changeRecord(pi.address, { waitingOn: "" });
		await afterStop(run);
	});

	test("D13: a chain that ends in a session that is gone is no ring", async () => {
		changeRecord(ids.bob, { waitingOn: "0197a3f2-9999-7000-8000-00000000000f" });
		const run = ask(ann, "bob");
		await later(2000);
		expect(waitingOn(ann)).toBe(ids.bob);
		changeRecord(ids.bob, { waitingOn: "" });
		expect(await afterStop(run)).toEqual([["stopped-by-user"], [], []]);
	});
});

describe("an ask whose mail cannot be written", () => {
	test("PSM-076/077 is refused with the disk's word, leaves nothing behind and nothing waiting; the next one works", async () => {
		before = ({ name, paths }) => {
			if (name === "rename" && paths[1]?.includes(`${ids.bob}/new/`)) fail("ENOSPC");
		};
		await ask(ann, "bob");
		before = () => {};
		expect(ends(ann)).toEqual(["io"]);
		expect(waitingOn(ann)).toBe("");
		expect([ann.names("sent"), ann.names("tmp"), bob.names("new"), bob.names("tmp")]).toEqual([[], [], [], []]);
		const run = ask(ann, "bob");
		await later(1000);
		await bob.run({ text: "Here you are." });
		await later(1000);
		await run;
		expect(ends(ann)).toEqual(["io", "answered"]);
	});

	test("PSM-029/076 works when this session's record cannot be written", async () => {
		before = ({ paths }) => {
			if (paths.some((path) => path.includes(ids.ann) && path.includes("/running/"))) fail("EACCES");
		};
		const run = ask(ann, "bob");
		await later(1000);
		await bob.run({ text: "Here you are." });
		await later(1000);
		await run;
		expect(ends(ann)).toEqual(["answered"]);
	});
});

test("D20 an ask in print mode gets its answer", async () => {
	const print = await startFakePi({ mode: "print" });
	const asking = ask(print, "bob");
	await later(1000);
	await bob.run({ text: "Yes." });
	await later(2000);
	await asking;
	expect(ends(print)).toEqual(["answered"]);
});
