import { renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { nodeDisk } from "../../src/mail/disk.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { later, pressOnScreen, seasonedPi, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

const id = "0197a3f2-1111-7000-8000-00000000000a";
let pi: FakePi;
let peer: Peer;
beforeEach(async () => {
	pi = await seasonedPi({ id, mode: "tui" });
	peer = makePeer();
});

/** `h` on the newest mail. */
const pressH = () => pressOnScreen(pi, "h");

/** A mail that comes while a run works, and is put on hold before the next gap between two tool calls. */
async function holdWhileBusy(draft: Parameters<Peer["send"]>[1] = {}): Promise<string> {
	let sent = "";
	const during = async () => {
		sent = peer.send(pi, draft);
		await later(1000);
		expect(await pressH()).toContain("On hold: it waits until it is released.");
	};
	await pi.run({ prompt: "work", turns: [{ tools: 1, during }, { tools: 1 }], text: "finished" });
	await later(3000);
	return sent;
}

const holds = () => pi.names("new").filter((name) => name.endsWith(".hold"));
const inNew = () => pi.names("new").filter((name) => name.endsWith(".json"));
const answers = () => peer.received().map(({ in_reply_to: [asked], status }) => [asked, status]);

describe("a mail on hold", () => {
	test.each(["request", "ask", "message"] as const)(
		"a %s: enters no conversation and wakes nothing, however long, and is counted as pending",
		async (kind) => {
			await holdWhileBusy({ kind });
			await later(600_000);
			await pi.run({ prompt: "again", turns: [{ tools: 1 }] });
			await later(3000);
			expect([pi.hasRunToPlay, pi.mails(), peer.received(), inNew().length]).toEqual([false, [], [], 1]);
			expect(pi.status.get("mailbox")).toBe("✉ 1 pending");
		},
	);

	test("keeps no other mail waiting, also one that was sent later", async () => {
		const held = await holdWhileBusy();
		const other = peer.send(pi);
		await later(2000);
		await pi.run();
		expect(pi.mails().map((mail) => mail.id)).toEqual([other]);
		expect(answers()).toEqual([[other, "done"]]);
		await pressH();
		await later(2000);
		await pi.run();
		expect(answers()).toEqual([
			[other, "done"],
			[held, "done"],
		]);
	});

	test("L3 is handed over when it is released, as if it had come now, and is answered", async () => {
		const held = await holdWhileBusy();
		expect(await pressH()).toContain("Released: it comes as if it had just arrived.");
		await later(0);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run();
		await later(2000);
		expect(answers()).toEqual([[held, "done"]]);
		expect([pi.names("new"), pi.openCount]).toEqual([[], 0]);
	});

	test.each(["quit", "kill", "reload"])("L2 stays on hold over a %s, and is released afterwards", async (end) => {
		const held = await holdWhileBusy();
		if (end === "reload") await pi.reload();
		else {
			await (end === "kill" ? pi.kill() : pi.shutDown());
			pi = await startFakePi({ file: pi.file, mode: "tui" });
		}
		await later(5000);
		await pi.run({ prompt: "go on", turns: [{ tools: 1 }] });
		expect([pi.mails(), inNew().length, pi.status.get("mailbox")]).toEqual([[], 1, "✉ 1 pending"]);
		await pressH();
		await later(2000);
		await pi.run();
		expect(answers()).toEqual([[held, "done"]]);
	});

	test("D17 is not answered by a stopped run, and stays on hold", async () => {
		await holdWhileBusy();
		await pi.run({ prompt: "more", end: "aborted" });
		await later(2000);
		expect([peer.received(), inNew().length, pi.openCount]).toEqual([[], 1, 0]);
	});

	test("PSM-094 is not announced by message:scan, which is complete without it, until it is released", async () => {
		const announced: unknown[] = [];
		pi.events.on("message:inbound", (payload) => announced.push(payload));
		await holdWhileBusy();
		const scan: { scanned?: boolean } = {};
		pi.events.emit("message:scan", scan);
		expect([scan.scanned, announced]).toEqual([true, []]);
		await pressH();
		expect(announced).toHaveLength(1);
	});

	test("stays on hold while mail is off, and when it is on again", async () => {
		await holdWhileBusy();
		await pi.type("/mailbox off");
		await later(2000);
		await pi.type("/mailbox on");
		await later(2000);
		expect([pi.hasRunToPlay, inNew().length]).toEqual([false, 1]);
	});

	test("released while mail is off, it waits as the rest does", async () => {
		await pi.type("/mailbox off");
		peer.send(pi);
		await pressH();
		expect(await pressH()).toContain("Released: it waits, as all mail does while mail is off.");
		await later(2000);
		expect([pi.hasRunToPlay, pi.names("new")]).toEqual([false, inNew()]);
		await pi.type("/mailbox on");
		await later(0);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("of a session that is not saved waits like other unread mail when that ends, unanswered", async () => {
		await pi.shutDown();
		pi = await startFakePi({ id: "0197a3f2-1111-7000-8000-00000000000b", mode: "tui", isSaved: false });
		await holdWhileBusy();
		await pi.shutDown();
		expect([peer.received(), inNew().length, holds().length]).toEqual([[], 1, 1]);
	});
});

describe("a mail on hold that goes", () => {
	/** The mailbox of whoever sent it. */
	const sender = () =>
		openMailbox({ disk: nodeDisk(), root: mailRoot(), address: peer.address, now: Date.now, isDurable: () => false });
	const copy = () => {
		const [name = ""] = inNew();
		const envelope = sender().peek(name) ?? openMailbox(options()).peek(name);
		if (envelope === undefined) throw new Error("it is gone");
		return { envelope, name };
	};
	const options = () => ({ disk: nodeDisk(), root: mailRoot(), address: id, now: Date.now, isDurable: () => false });

	test("D28 is taken back by its sender, and nothing is left of its hold", async () => {
		await holdWhileBusy();
		expect(sender().retract(copy())).toBe(true);
		await later(2000);
		expect([pi.names("new"), pi.status.get("mailbox")]).toEqual([[], undefined]);
	});

	test("D28 is changed by its sender: the new one is another mail, and is not on hold", async () => {
		await holdWhileBusy();
		expect(sender().edit(copy(), "rather this").ok).toBe(true);
		await later(2000);
		await pi.run();
		expect([pi.names("new"), pi.mails().length, answers()]).toEqual([[], 1, [[pi.mails()[0]?.id, "done"]]]);
	});

	test("is claimed by an older copy of the package, which does not know holds, and nothing is left of its hold", async () => {
		await holdWhileBusy();
		const [name = ""] = inNew();
		await pi.kill();
		renameSync(join(mailRoot(), id, "new", name), join(mailRoot(), id, "cur", name));
		pi = await startFakePi({ file: pi.file });
		await later(2000);
		expect([pi.names("new"), pi.names("cur")]).toEqual([[], [name]]);
	});

	test("with the whole mailbox: what comes afterwards comes", async () => {
		await holdWhileBusy();
		rmSync(join(mailRoot(), id), { recursive: true });
		await later(15_000);
		const next = peer.send(pi);
		await later(2000);
		await pi.run();
		expect(answers()).toEqual([[next, "done"]]);
	});
});
