import { randomUUID } from "node:crypto";
import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { boxesOf } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { holdOf } from "../../src/mail/hold.ts";
import { type Mailbox, openMailbox } from "../../src/mail/mailbox.ts";
import { mailDetails } from "../../src/session/ledger.ts";
import type { Operation } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import type { FakePi } from "../support/fake-pi.ts";
import { heldBy, type Mail, mailsIn, states, stateTable, stepsOf } from "./states.ts";
import { openWorld, playOn, type World } from "./world.ts";

// Time alone notices mail, so that a test sees each state before it is over.
vi.mock("chokidar", () => ({ watch: () => ({ on: () => {}, close: async () => {} }) }));

useFakeMachine();

let world: World;
let alice: FakePi;
let bob: FakePi;
beforeEach(async () => {
	world = openWorld("durable");
	alice = await world.season("alice");
	bob = await world.season("bob");
});
afterEach(() => world.close());

const reached = new Set<string>();

/** Sees the one mail to Bob in this state. Of a mail without files, `mail` says which it was. */
function see(id: string, mail = theMail()): Mail {
	expect(world.stateOf(mail).id).toBe(id);
	reached.add(id);
	return mail;
}

function theMail(): Mail {
	const mails = mailsIn(world.root).filter(({ kind }) => kind !== "reply");
	const [mail] = mails;
	if (mail === undefined || mails.length > 1) throw new Error(`${mails.length} mails`);
	return mail;
}

const send = (text = "please") => alice.type(`/mailbox ${bob.address} ${text}`);
/** An operation on such a path. */
const at =
	(name: Operation["name"], ending: string | RegExp, to: string | RegExp = "") =>
	(_n: number, operation: Operation) =>
		operation.name === name && [ending, to].every((end, index) => operation.paths[index]?.match(end) !== null);

async function kill(name: "alice" | "bob"): Promise<void> {
	await world.end(name, "kill");
	world.faults.heal();
}

async function restart(name: "alice" | "bob"): Promise<FakePi> {
	const pi = await world.start(name);
	if (name === "alice") alice = pi;
	else bob = pi;
	await later(0);
	return pi;
}

/** Bob is killed before this operation, while mail waits for him. */
async function killBobAt(isIt: (n: number, operation: Operation) => boolean): Promise<void> {
	world.stopAt(isIt);
	await later(1000);
	await kill("bob");
}

/** What Alice's session takes mail back with. */
function mailboxOf(pi: FakePi): Mailbox {
	const { disk } = world.faults;
	return openMailbox({ disk, root: world.root, address: pi.address, now: Date.now, isDurable: () => false });
}

/** Takes a mail back; `disk` may fail in the middle. */
function takeBack(mail: Mail): void {
	const envelope = { ...mail, kind: "request" as const, hops: 0, in_reply_to: [], status: "", ts: "", body: "" };
	expect(mailboxOf(alice).retract({ envelope, name: mail.name })).toBe(true);
}

/** Sends a mail with another text; the disk may fail in the middle. */
function change(mail: Mail): void {
	const envelope = { ...mail, kind: "request" as const, hops: 0, in_reply_to: [], status: "", ts: "", body: "" };
	mailboxOf(alice).edit({ envelope, name: mail.name }, "please, and soon");
}

/** What another program wrote into Bob's inbox. */
function lay(text: string): Mail {
	const id = randomUUID();
	const name = `001795954341000-${id}.json`;
	writeFileSync(join(boxesOf(world.root, bob.address).new, name), text);
	return { id, from: alice.address, to: bob.address, name };
}

describe("L2 a mail that is sent", () => {
	test("PSM-022 is nowhere but in the recipient's tmp/ when its sender is killed early", async () => {
		world.stopAt(at("link", /tmp/));
		await send();
		await kill("alice");
		see("writing");
	});

	test("PSM-022 has an unfinished copy when its sender is killed later; the next start removes that and says so", async () => {
		world.stopAt(at("rename", /tmp/, /new/));
		await send();
		await kill("alice");
		const mail = see("writing");
		await restart("alice");
		see("writing", mail);
		expect(alice.notifications).toEqual([expect.stringContaining("a mail was not sent")]);
		expect(alice.names("sent")).toEqual([]);
	});

	test("L4 that could not be sent leaves at worst an unfinished copy, which the next start removes", async () => {
		const isFailing = [at("rename", /tmp/, /new/), at("remove", /part$/)];
		world.faults.failWith((n, operation) => (isFailing.some((is) => is(n, operation)) ? "EIO" : undefined));
		await send();
		expect(alice.notifications).toEqual([expect.stringContaining("Nothing was sent")]);
		world.faults.heal();
		const mail = see("unsent");
		await world.end("alice", "quit");
		await restart("alice");
		see("nowhere", mail);
	});

	test("PSM-022 waits with an unfinished copy, which the next start gives its name", async () => {
		await world.end("bob", "quit");
		world.stopAt(at("rename", /part$/));
		await send();
		await kill("alice");
		const mail = see("waiting");
		expect(boxNames(alice, "sent")).toEqual([`${mail.name}.part`]);
		await restart("alice");
		see("waiting");
		expect([boxNames(alice, "sent"), alice.notifications]).toEqual([[mail.name], []]);
	});
});

describe("a mail on hold", () => {
	beforeEach(async () => {
		await send();
		expect(mailboxOf(bob).hold(theMail().name)).toBe(true);
	});

	test("waits, over a kill and a start, until it is released", async () => {
		await playOn(world, 2000);
		see("on hold");
		await kill("bob");
		await restart("bob");
		await playOn(world, 5000);
		see("on hold");
		expect(mailboxOf(bob).release(theMail().name)).toBe(true);
		await playOn(world, 2000);
		see("done");
	});

	test("is on hold all the same when a claim by hand is cut short", async () => {
		world.stopAt(at("rename", /new/, /cur/));
		expect(() => mailboxOf(bob).claim(theMail().name)).toThrow("EIO");
		await kill("bob");
		see("answering on hold");
		await restart("bob");
		await playOn(world, 5000);
		see("on hold");
	});

	test("D28 that is taken back leaves a hold that means nothing, which the next look removes", async () => {
		const mail = theMail();
		takeBack(mail);
		see("retracted", mail);
		expect(bob.names("new")).toEqual([holdOf(mail.name)]);
		await later(1000);
		expect(bob.names("new")).toEqual([]);
	});
});

describe("L1, L2 a mail that is claimed", () => {
	test("PSM-041 still waits when the claim is cut short", async () => {
		await send();
		await killBobAt(at("rename", /new/, /cur/));
		see("claiming");
		await restart("bob");
		await playOn(world, 2000);
		see("done");
	});

	test("is open until the conversation holds it, over a kill", async () => {
		await send();
		bob.events.emit("message:scan", {});
		see("claimed");
		await kill("bob");
		see("claimed");
		await restart("bob");
		await playOn(world, 2000);
		see("done");
		expect(bob.mails()).toHaveLength(1);
	});

	test("under a name that is taken gets another, and means the same", async () => {
		await send();
		await playOn(world, 1000);
		const mail = see("done");
		// Another sender's mail with the same name: names are a hint.
		const text = JSON.stringify({ ...envelopeOf(mail), from: "somebody-else" });
		writeFileSync(join(boxesOf(world.root, bob.address).new, mail.name), text);
		const other = { ...mail, from: "somebody-else" };
		see("waiting", other);
		await killBobAt(at("rename", /new/, /cur/));
		see("claiming", other);
		await restart("bob");
		await playOn(world, 2000);
		see("done", other);
		see("done", mail);
		expect(bob.names("cur")).toEqual([mail.name, expect.stringMatching(`-${mail.name}$`)].sort());
	});

	test("is read when its entry is there, also before its mark goes", async () => {
		await send();
		world.stopAt(at("remove", /open$/));
		await later(1000);
		await bob.run();
		await kill("bob");
		see("read");
		await restart("bob");
		await playOn(world, 2000);
		see("done");
		expect(bob.mails()).toHaveLength(1);
	});

	test("L1 stays open while Pi has not written the session's file", async () => {
		await world.end("bob", "quit");
		rmSync(bob.file);
		await restart("bob");
		await send();
		await later(1000);
		await bob.run({ during: () => world.end("bob", "kill") });
		see("claimed");
		await restart("bob");
		await playOn(world, 2000);
		see("done");
		expect(bob.mails()).toHaveLength(1);
	});

	test.each(["the machine stops", "the disk is full"])(
		"L4 is not awaited once answered, also when %s then",
		async (what) => {
			await send();
			await later(1000);
			await bob.run();
			const isCounting = at("replace", /state\.json$/);
			if (what === "the disk is full")
				world.faults.failWith((n, operation) => (isCounting(n, operation) ? "ENOSPC" : undefined));
			else world.stopAt(isCounting);
			await later(1000);
			await kill("alice");
			await restart("alice");
			await playOn(world, 2000);
			expect(alice.status.get("mailbox")).toBe("✉ 1 read");
		},
	);

	test("PSM-093 is done when another extension took it over", async () => {
		bob.events.on("message:inbound", (payload) => Object.assign(payload as object, { handled: true }));
		await send();
		await later(1000);
		const mail = see("done");
		expect(heldBy(world.entries(mail.to), mail)).toBe("taken");
		expect(stepsOf(world.root, mail)).toEqual(["read"]);
	});

	test("D17 is done when it was answered unread", async () => {
		await bob.run({ prompt: "work", end: "aborted", during: () => send() });
		await later(1000);
		const mail = see("done");
		expect(heldBy(world.entries(mail.to), mail)).toBe("answered");
		expect([bob.mails(), alice.mails().length, stepsOf(world.root, mail)]).toEqual([[], 1, ["failed"]]);
	});

	test("design 4.3 never comes back when the session's file is gone", async () => {
		await send();
		await playOn(world, 1000);
		await world.end("bob", "quit");
		rmSync(bob.file);
		bob = await world.season("bob");
		await playOn(world, 2000);
		see("old");
		expect(bob.mails()).toEqual([]);
	});
});

describe("L2 a mail that an older copy delivers once more after a crash", () => {
	test("design 4.8 enters the conversation once", async () => {
		await send();
		await playOn(world, 1000);
		const mail = see("done");
		const again = { ...mail, name: `001795954399000-${mail.id}.json` };
		const boxes = boxesOf(world.root, bob.address);
		copyFileSync(join(boxes.cur, mail.name), join(boxes.new, again.name));
		see("repeated", again);
		await playOn(world, 2000);
		see("done", again);
		see("done", mail);
		expect(bob.mails()).toHaveLength(1);
	});
});

describe("D12 a mail that is set aside", () => {
	test("is set aside by the next start when a kill cut that short", async () => {
		const mail = lay("rubbish");
		await killBobAt(at("remove", /open$/));
		see("burying", mail);
		await restart("bob");
		see("dead", mail);
		expect(bob.notifications).toEqual([expect.stringContaining(`${mail.name} cannot be delivered`)]);
	});

	test("is answered when Pi ended three times with it", async () => {
		await send();
		for (let ends = 0; ends < 3; ends++) {
			await later(1000);
			see("claimed");
			await kill("bob");
			await restart("bob");
		}
		const mail = see("dead");
		expect(heldBy(world.entries(mail.to), mail)).toBe("answered");
		expect(stepsOf(world.root, mail)).toEqual(["failed"]);
	});
});

describe("D28 a mail that is taken back", () => {
	beforeEach(async () => {
		await world.end("bob", "quit");
		await send();
	});

	test("is kept under another name by its sender, where it counts nowhere", async () => {
		const mail = see("waiting");
		takeBack(mail);
		see("retracted", mail);
		await world.end("alice", "quit");
		await restart("alice");
		see("retracted", mail);
		expect([alice.status.get("mailbox"), alice.notifications]).toEqual([undefined, []]);
	});

	test("leaves at worst, without a copy, itself in the place of that", async () => {
		const mail = see("waiting");
		rmSync(join(boxesOf(world.root, alice.address).sent, mail.name));
		takeBack(mail);
		see("retracted", mail);
	});

	test.each([
		["the copy has its new name", at("rename", /sent/)],
		["what was taken back is removed", at("remove", /tmp/)],
	])("L4 is not awaited when its sender is killed before %s", async (_, isIt) => {
		const mail = see("waiting");
		world.stopAt(isIt);
		takeBack(mail);
		await kill("alice");
		see("back", mail);
		await restart("alice");
		await later(1000);
		expect(alice.status.get("mailbox")).toBeUndefined();
		see("retracted", mail);
		await restart("bob");
		await playOn(world, 2000);
		expect(bob.mails()).toEqual([]);
	});

	test("is as it was when its sender is killed before a new version takes its place, and says so", async () => {
		const mail = see("waiting");
		world.stopAt(at("rename", /new/, /tmp/));
		change(mail);
		await kill("alice");
		see("editing", mail);
		await restart("alice");
		see("waiting", mail);
		expect(alice.notifications).toEqual([expect.stringContaining("a mail was not changed")]);
	});

	test.each([
		["the copy has its new name", at("rename", /sent/, /retracted/)],
		["the new version is delivered", at("rename", /tmp/, /new/)],
		["the new version has a copy", at("rename", /part$/)],
		["the new version is removed from tmp/", at("remove", /edit$/)],
	])("L2 is replaced when its sender is killed before %s: the next start does it", async (_, isIt) => {
		const mail = see("waiting");
		world.stopAt(isIt);
		change(mail);
		await kill("alice");
		see("edited", mail);
		await restart("alice");
		see("retracted", mail);
		await restart("bob");
		await playOn(world, 2000);
		expect(textsOf(bob)).toEqual(["please, and soon"]);
		expect([alice.notifications, boxNames(alice, "tmp"), alice.mails().length]).toEqual([[], [], 1]);
	});

	test("leaves at worst the mark of a claim that was cut short, which the next start removes", async () => {
		await restart("bob");
		await killBobAt(at("rename", /new/, /cur/));
		const mail = see("claiming");
		takeBack(mail);
		see("stray", mail);
		await restart("bob");
		await playOn(world, 2000);
		see("retracted", mail);
	});
});

describe("a mail in a folder that is pruned", () => {
	beforeEach(async () => {
		await send();
		await playOn(world, 1000);
		await world.end("bob", "quit");
	});

	test("PSM-090 is gone, and the sender's copy is left", async () => {
		await alice.type("/mailbox prune");
		await later(1000);
		see("pruned");
	});

	test("D26 is moved aside meanwhile, and gone after the next prune", async () => {
		world.stopAt((_n, { name, paths }) => name === "entry" && paths[0]?.includes(".pruning.") === true);
		await alice.type("/mailbox prune");
		await later(1000);
		await kill("alice");
		see("aside");
		await restart("alice");
		await later(1000);
		see("pruned");
	});
});

test("a set of files that means nothing is said to be illegal, with what was seen", async () => {
	await send();
	await playOn(world, 1000);
	const mail = see("done");
	const boxes = boxesOf(world.root, bob.address);
	copyFileSync(join(boxes.cur, mail.name), join(boxes.new, mail.name));
	expect(() => world.stateOf(mail)).toThrow(/no legal state: .*"recipient":\["new","cur"\].*"session":"entry"/);
});

test("every state was reached", () => {
	expect([...reached].sort()).toEqual(states.map(({ id }) => id).sort());
});

test("CONTRIBUTING.md shows the states as they are", () => {
	const guide = readFileSync(join(import.meta.dirname, "../../CONTRIBUTING.md"), "utf8");
	const [, table] = /## What the files mean\n.*?\n(\|.*\|)\n/s.exec(guide) ?? [];
	expect(table).toBe(stateTable());
});

/** Also of a session that ended. */
function boxNames(pi: FakePi, box: "sent" | "cur" | "tmp"): string[] {
	return nodeDisk().list(boxesOf(world.root, pi.address)[box]).sort();
}

/** The first lines of the mails in a conversation. */
function textsOf(pi: FakePi): string[] {
	return pi.session
		.getEntries()
		.flatMap((entry) => (entry.type === "custom_message" ? (mailDetails(entry.details)?.firstLine ?? []) : []));
}

function envelopeOf(mail: Mail): object {
	return JSON.parse(readFileSync(join(boxesOf(world.root, mail.to).cur, mail.name), "utf8"));
}
