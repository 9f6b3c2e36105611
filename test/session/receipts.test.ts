import { existsSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { boxesOf } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";
import { noteProgress, sentStatus } from "../../src/mail/progress.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { alice, bob, draft, envelopeText, testRoot, watchedDisk } from "../support/disk.ts";
import { later, seasonedPi, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

let peer: Peer;
beforeEach(() => {
	peer = makePeer();
});

const peerOptions = () => ({ root: mailRoot(), address: peer.address, now: Date.now, isDurable: () => false });
const sentBox = () => boxesOf(mailRoot(), peer.address).sent;
/** The endings of what lies beside the copy of a mail. */
const steps = (id: string) =>
	readdirSync(sentBox())
		.filter((name) => name.includes(id) && !name.endsWith(".json"))
		.map((name) => name.replace(/^.*\.json\./, ""))
		.sort();
const status = (pi: FakePi, id: string) => {
	const name = readdirSync(sentBox()).find((file) => file.endsWith(`-${id}.json`)) ?? "";
	return sentStatus(nodeDisk(), mailRoot(), boxesOf(mailRoot(), peer.address), { name, to: pi.address });
};

describe("a sender learns of a mail, from files beside its copy,", () => {
	test("design 4.11 that it waits, was taken, read and answered", async () => {
		const pi = await seasonedPi();
		const id = peer.send(pi);
		expect(status(pi, id)).toBe("queued");
		pi.events.emit("message:scan", {});
		expect([status(pi, id), steps(id)]).toEqual(["taken", []]);
		await later(1000);
		await pi.run({ during: () => expect([status(pi, id), steps(id)]).toEqual(["read", ["read"]]) });
		expect([status(pi, id), steps(id)]).toEqual(["answered", ["answered", "read"]]);
	});

	test("also when its recipient is so quick that the copy has not got its name yet, and after the next start", async () => {
		const pi = await seasonedPi();
		const id = peer.send(pi, { kind: "message" });
		const name = readdirSync(sentBox()).find((file) => file.endsWith(`-${id}.json`)) ?? "";
		renameSync(join(sentBox(), name), join(sentBox(), `${name}.part`));
		await later(1000);
		await pi.run();
		expect(steps(id)).toEqual(["part", "read"]);
		const again = openMailbox({ ...peerOptions(), disk: nodeDisk() });
		for (const _ of again.recount());
		expect([steps(id), status(pi, id)]).toEqual([["read"], "read"]);
	});

	test("that a message was read, and of a reply, which has no copy, nothing", async () => {
		const pi = await seasonedPi();
		const message = peer.send(pi, { kind: "message" });
		const reply = peer.send(pi, { kind: "reply", status: "done" });
		await later(1000);
		await pi.run();
		expect([steps(message), steps(reply), status(pi, message)]).toEqual([["read"], [], "read"]);
	});

	test("that a request is held after the user's stop, and later that it is answered", async () => {
		const pi = await seasonedPi();
		const request = peer.send(pi);
		const ask = peer.send(pi, { kind: "ask" });
		await later(1000);
		await pi.run({ end: "aborted" });
		expect([status(pi, request), status(pi, ask)]).toEqual(["held", "failed"]);
		await pi.run({ prompt: "go on" });
		expect([status(pi, request), steps(request)]).toEqual(["answered", ["answered", "held", "read"]]);
	});

	test("that a run failed on it", async () => {
		const pi = await seasonedPi();
		const id = peer.send(pi);
		await later(1000);
		await pi.run({ end: "error" });
		expect(status(pi, id)).toBe("failed");
	});

	test("PSM-093 that a mail was answered that another extension had taken over", async () => {
		const pi = await seasonedPi();
		pi.events.on("message:inbound", (payload) => Object.assign(payload as object, { handled: true }));
		const id = peer.send(pi);
		await later(1000);
		await pi.run({ prompt: "go on" });
		expect(steps(id)).toEqual(["answered", "read"]);
	});

	test("that an ask was answered in the middle of a run", async () => {
		const pi = await seasonedPi();
		const id = peer.send(pi, { kind: "ask" });
		await later(1000);
		const reply = { name: "session_mail_reply", args: { ask: id, message: "It is this." } };
		await pi.run({
			turns: [{ tools: [reply] }, { tools: 1, during: () => expect(status(pi, id)).toBe("answered") }],
		});
	});

	test("D17 that it failed, and was not read, when a stop answered it unread", async () => {
		const pi = await seasonedPi();
		let id = "";
		const during = () => {
			id = peer.send(pi);
		};
		await pi.run({ prompt: "work", end: "aborted", during });
		await later(1000);
		expect([steps(id), pi.openCount]).toEqual([["failed"], 0]);
	});

	test("D18 that it is held over a restart, and that an ask is not", async () => {
		const pi = await seasonedPi();
		const [request, ask] = [peer.send(pi), peer.send(pi, { kind: "ask" })];
		await later(1000);
		await pi.run({ during: () => pi.kill() });
		const again = await startFakePi({ file: pi.file, reason: "resume" });
		await later(1000);
		expect([status(again, request), status(again, ask)]).toEqual(["held", "failed"]);
	});

	test("D12 that it was set aside, when it can be answered", async () => {
		const pi = await seasonedPi();
		const id = "11111111-2222-4333-8444-555555555555";
		const name = `001795953601000-${id}.json`;
		const text = envelopeText({ id, from: peer.address, to: pi.address, ts: "never" });
		writeFileSync(join(sentBox(), name), text);
		writeFileSync(join(boxesOf(mailRoot(), pi.address).new, name), text);
		await later(1000);
		expect([steps(id), pi.names("cur").length]).toEqual([["failed"], 2]);
	});

	test("L1 nothing while Pi has not written the session's file", async () => {
		const pi = await startFakePi();
		await later(1000);
		const id = peer.send(pi, { kind: "message" });
		await later(1000);
		await pi.run({ during: () => expect([existsSync(pi.file), steps(id)]).toEqual([false, []]) });
		await later(1000);
		expect([existsSync(pi.file), steps(id)]).toEqual([true, ["read"]]);
	});

	test("of the right one when a claim found its name taken", async () => {
		const pi = await seasonedPi();
		const id = peer.send(pi);
		const [name = ""] = pi.names("new");
		writeFileSync(join(boxesOf(mailRoot(), pi.address).cur, name), "{");
		await later(1000);
		await pi.run();
		expect([pi.names("cur").length, steps(id)]).toEqual([2, ["answered", "read"]]);
	});

	test("nothing when it has no copy any more, and makes none", async () => {
		const pi = await seasonedPi();
		const id = peer.send(pi);
		for (const name of readdirSync(sentBox())) rmSync(join(sentBox(), name));
		await later(1000);
		await pi.run();
		expect([steps(id), readdirSync(sentBox())]).toEqual([[], []]);
	});

	test("with two operations on disk for each step", () => {
		const root = testRoot();
		root.lay(alice, "sent", "1.json", "{}");
		const seen: string[] = [];
		const disk = watchedDisk(({ name }) => seen.push(name));
		noteProgress(disk, root.path, { from: alice, name: "1.json" }, "read");
		expect([seen, root.names(alice, "sent")]).toEqual([
			["entry", "create"],
			["1.json", "1.json.read"],
		]);
	});

	test.each([
		[`x/../${bob}`, "1.json"],
		[alice, `../../${bob}/sent/1.json`],
		[alice, ""],
	])("and nobody else learns anything: from %j, name %j", (from, name) => {
		const root = testRoot();
		root.open(alice);
		root.lay(bob, "sent", "1.json", "{}");
		const before = root.names(bob, "sent");
		noteProgress(nodeDisk(), root.path, { from, name }, "read");
		expect([root.names(alice, "sent"), root.names(bob, "sent")]).toEqual([[], before]);
	});
});

describe("the steps that are noted beside a copy", () => {
	const endings = ["read", "held", "failed", "answered"];

	test("are no copies: they count nowhere, and an answer to them is none", () => {
		const root = testRoot();
		const sent = root.open(alice).deliver(draft());
		if (!sent.ok) throw new Error(sent.message);
		for (const ending of endings) root.lay(alice, "sent", `${sent.name}.${ending}`, "");
		rmSync(join(root.boxes(alice).folder, "state.json"), { force: true });
		const { mailbox, warnings } = root.start(alice);
		expect([mailbox.awaitingCount(), warnings, root.names(alice, "sent").length]).toEqual([1, [], 5]);
		expect(mailbox.sentCopies([sent.envelope.id]).map(({ path }) => path)).toEqual([
			join(root.boxes(alice).sent, sent.name),
		]);
	});

	test("are removed at the next start when the copy is gone; what is nobody's stays", () => {
		const root = testRoot();
		const sent = root.open(alice).deliver(draft());
		if (!sent.ok) throw new Error(sent.message);
		for (const ending of [...endings, "note"]) root.lay(alice, "sent", `${sent.name}.${ending}`, "");
		const { sent: box } = root.boxes(alice);
		renameSync(join(box, sent.name), join(box, `${sent.name}.retracted`));
		root.start(alice);
		expect(root.names(alice, "sent")).toEqual([`${sent.name}.note`, `${sent.name}.retracted`]);
	});

	test("D28 say retracted of what was taken back", () => {
		const root = testRoot();
		const mailbox = openMailbox({
			disk: nodeDisk(),
			root: root.path,
			address: alice,
			now: Date.now,
			isDurable: () => false,
		});
		const sent = mailbox.deliver(draft());
		if (!sent.ok) throw new Error(sent.message);
		mailbox.retract(sent);
		const copy = { name: sent.name, to: bob };
		expect(sentStatus(nodeDisk(), root.path, root.boxes(alice), copy)).toBe("retracted");
		expect(sentStatus(nodeDisk(), root.path, root.boxes(alice), copy, new Set())).toBe("taken");
	});
});
