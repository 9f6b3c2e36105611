import { copyFileSync, existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { beforeEach, describe, expect, test, vi } from "vitest";
import sessionMail from "../../src/index.ts";
import type { Draft } from "../../src/mail/deliver.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { systemProcesses } from "../../src/mail/process.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { openRunning } from "../../src/mail/running.ts";
import { type Conversation, createHandover } from "../../src/session/handover.ts";
import { createInbox } from "../../src/session/inbox.ts";
import { createLedger, type MailDetails } from "../../src/session/ledger.ts";
import { createMessages } from "../../src/session/messages.ts";
import { alice, bob, fail, sent, testRoot } from "../support/disk.ts";
import { later, seasonedPi, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

let peer: Peer;
beforeEach(() => {
	peer = makePeer();
});

/** Sends so many mails and returns their ids. */
function send(pi: FakePi, count: number, draft: Partial<Draft> = {}): string[] {
	return Array.from({ length: count }, () => peer.send(pi, draft));
}

const reply = { kind: "reply", status: "done" } as const;
const idsIn = (pi: FakePi) => pi.mails().map((mail) => mail.id);
const requestsOf = (pi: FakePi) => pi.log.filter((event) => event === "context").length;

test("4.6 a quiet reply leaves it to other extensions whether the run goes on", async () => {
	const other = (api: ExtensionAPI) =>
		api.on("turn_end", ({ toolResults }) => (toolResults.length > 0 ? { continue: true } : undefined));
	const pi = await seasonedPi({ extensions: [other, sessionMail] });
	const before = requestsOf(pi);
	await pi.run({ prompt: "work", turns: [{ tools: 1, terminate: true, during: () => send(pi, 1, reply) }] });
	expect([idsIn(pi).length, requestsOf(pi) - before]).toEqual([1, 2]);
});

describe("mail for an idle session", () => {
	test("4.4 wakes it at once after a run that the user typed into", async () => {
		const pi = await seasonedPi();
		await pi.run({ prompt: "work", turns: [{ tools: 1, during: () => pi.typeAhead("and this") }] });
		send(pi, 1);
		await later(1500);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("PSM-046/047 wakes it: the model sees the mail in the run's first request", async () => {
		const pi = await seasonedPi();
		const [id] = send(pi, 1, { body: "Please look at branch x." });
		await later(1000);
		expect(pi.sent).toEqual([{ text: expect.stringContaining("Please look at branch x."), startsRun: true }]);
		await pi.run();
		expect(pi.session.getEntries()).toContainEqual(
			expect.objectContaining({
				type: "custom_message",
				customType: "mailbox",
				display: true,
				details: expect.objectContaining({
					mail: expect.objectContaining({ id, address: pi.address, from: peer.address }),
				}),
			}),
		);
		expect([pi.openCount, pi.names("new")]).toEqual([0, []]);
	});

	test("design 4.4: several cost one request, in the order they were sent", async () => {
		const pi = await seasonedPi();
		const ids = [...send(pi, 2), ...send(pi, 1, reply), ...send(pi, 2, { kind: "message" })];
		await later(1000);
		expect(pi.sent.map(({ startsRun }) => startsRun)).toEqual([false, false, false, false, true]);
		await pi.run();
		await later(60_000);
		expect(idsIn(pi)).toEqual(ids);
		expect(requestsOf(pi)).toBe(2);
	});

	test("PSM-084 one run is started also when the last of them is quiet, which does not count", async () => {
		const pi = await seasonedPi();
		const ids = [...send(pi, 1, { hops: 2 }), ...send(pi, 1, { ...reply, hops: 7 })];
		await later(1000);
		await pi.run();
		expect(idsIn(pi)).toEqual(ids);
		expect(peer.received().map(({ hops }) => hops)).toEqual([3]);
	});

	test("design 4.5: at most 20 enter at once, and the rest come with the next run", async () => {
		const pi = await seasonedPi();
		const ids = send(pi, 45);
		for (const count of [20, 40, 45]) {
			await later(1000);
			await pi.run();
			expect(idsIn(pi)).toEqual(ids.slice(0, count));
		}
	});

	test("design 4.5: at most 128 KiB of text enter at once, but always one mail", async () => {
		const pi = await seasonedPi();
		const ids = send(pi, 5, { body: "x".repeat(31 * 1024) });
		await later(1000);
		await pi.run();
		expect(idsIn(pi)).toEqual(ids.slice(0, 4));
		await later(1000);
		await pi.run();
		expect(idsIn(pi)).toEqual(ids);
	});

	test("design 4.5: more quiet mail than enters at once comes without a pause", async () => {
		const pi = await seasonedPi();
		const ids = [...send(pi, 45, reply), ...send(pi, 5, { ...reply, body: "x".repeat(31 * 1024) })];
		await later(1500);
		expect(idsIn(pi)).toEqual(ids);
	});

	test("PSM-048, design 4.6: a reply is added and starts no run", async () => {
		const pi = await seasonedPi();
		const ids = send(pi, 2, reply);
		await later(60_000);
		expect(idsIn(pi)).toEqual(ids);
		expect([pi.isIdle, requestsOf(pi), pi.openCount]).toEqual([true, 1, 0]);
	});

	test("PSM-050, D18: a reply to an ask that no longer waits says so; it starts a run when it is an answer", async () => {
		const pi = await seasonedPi();
		const ask = makePeer(pi.address).send(peer, { kind: "ask" });
		send(pi, 1, { kind: "reply", status: "failed", inReplyTo: [ask] });
		await later(1000);
		expect([pi.mails()[0]?.text, pi.isIdle]).toEqual([expect.stringContaining("That ask stopped waiting"), true]);
		send(pi, 1, { ...reply, inReplyTo: [ask] });
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("design 4.4: waits while a prompt may be on its way, so that Pi does not refuse the prompt", async () => {
		const pi = await startFakePi();
		const [id] = send(pi, 1);
		await later(999);
		expect(pi.isIdle).toBe(true);
		await pi.run({ prompt: "hello", turns: [{ tools: 1 }] });
		expect(idsIn(pi)).toEqual([id]);

		send(pi, 1);
		await pi.typeAhead("what an extension handles");
		await later(4999);
		expect(pi.isIdle).toBe(true);
		await later(1);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("PSM-044 is not claimed in session_start, nor before the gate opens", async () => {
		const first = await seasonedPi();
		await first.shutDown();
		send(first, 1);
		const pi = await startFakePi({ file: first.file });
		expect(pi.names("new")).toHaveLength(1);
		await later(999);
		expect([pi.names("new").length, pi.status.get("mailbox")]).toEqual([1, "✉ 1 pending"]);
		await later(1);
		expect([pi.names("new").length, pi.hasRunToPlay]).toEqual([0, true]);
	});

	test("design 4.4: waits for the end of a compaction", async () => {
		const pi = await seasonedPi();
		await pi.compact(async () => {
			send(pi, 1);
			await later(10_000);
			expect(pi.isIdle).toBe(false);
			expect(pi.sent).toEqual([]);
		});
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("is tried again with growing pauses when Pi cannot start the run, and is added once", async () => {
		const pi = await seasonedPi();
		const [id] = send(pi, 1);
		await later(1000);
		for (const pauseMs of [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]) {
			expect(pi.hasRunToPlay).toBe(true);
			pi.failToStart();
			await later(pauseMs - 1);
			expect(pi.hasRunToPlay).toBe(false);
			await later(2001);
		}
		await pi.run();
		expect(idsIn(pi)).toEqual([id]);
		send(pi, 1);
		await later(1000);
		pi.failToStart();
		await later(3000);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("L2 keeps no later mail back once it has entered with another run", async () => {
		const pi = await seasonedPi();
		send(pi, 1);
		await later(1000);
		for (const pauseMs of [1000, 2000, 4000, 8000]) {
			pi.failToStart();
			await later(pauseMs + 2001);
		}
		pi.failToStart();
		await later(0);
		await pi.run({ prompt: "hello", turns: [{ tools: 1 }] });
		expect(idsIn(pi)).toHaveLength(1);
		send(pi, 1);
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("L2 is tried again as soon when the clock was set back an hour in between", async () => {
		const pi = await seasonedPi();
		const [id] = send(pi, 1);
		await later(1000);
		pi.failToStart();
		await later(1500);
		expect(pi.hasRunToPlay).toBe(false);
		vi.setSystemTime(Date.now() - 60 * 60_000);
		await later(2000);
		await pi.run();
		expect(idsIn(pi)).toEqual([id]);
	});

	test("L2 is not tried again at once when the run started and the disk was too full for the mail", async () => {
		const pi = await seasonedPi();
		const fail = () => {
			throw new Error("ENOSPC");
		};
		const full = vi.spyOn(pi.session, "appendCustomMessageEntry").mockImplementation(fail);
		const [id] = send(pi, 1);
		await later(1000);
		await pi.run();
		pi.errors.splice(0);
		await later(900);
		expect(pi.sent).toHaveLength(1);
		full.mockRestore();
		await later(3000);
		await pi.run();
		expect(idsIn(pi)).toEqual([id]);
	});
});

describe("mail for a busy session", () => {
	test("design 4.5: enters after the results of the tools, for no request more than the run makes anyway", async () => {
		const pi = await seasonedPi();
		let ids: string[] = [];
		const during = async () => {
			ids = send(pi, 2);
			await later(3000);
			expect([pi.names("new").length, pi.openCount]).toEqual([2, 0]);
		};
		await pi.run({ prompt: "work", turns: [{ tools: 2, during }] });
		expect(idsIn(pi)).toEqual(ids);
		expect([requestsOf(pi), pi.sent, pi.openCount]).toEqual([3, [], 0]);
		const kinds = pi.session.getEntries().map((entry) => (entry.type === "message" ? entry.message.role : entry.type));
		expect(kinds.filter((kind) => kind !== "custom").slice(-5)).toEqual([
			"toolResult",
			"toolResult",
			"custom_message",
			"custom_message",
			"assistant",
		]);
	});

	test("design 4.5: that comes after the last tool call stays in new/ and starts the next run", async () => {
		const pi = await seasonedPi();
		await pi.run({ prompt: "speak", during: () => send(pi, 1) });
		expect([idsIn(pi), pi.names("new").length]).toEqual([[], 1]);
		await later(0);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("D17 does not enter a run whose tool the user stopped", async () => {
		const pi = await seasonedPi();
		const during = () => {
			send(pi, 1);
			pi.abort();
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1, during }] });
		expect([idsIn(pi), peer.received()]).toEqual([[], [expect.objectContaining({ status: "failed" })]]);
	});

	test.each(["error", "aborted"] as const)("stays in new/ when the turn ended with %s", async (end) => {
		const pi = await seasonedPi();
		await pi.run({ prompt: "work", during: () => send(pi, 1, { kind: "message" }), end });
		expect(idsIn(pi)).toEqual([]);
	});

	test("design 4.5: at most 20 enter at once, and the rest at the next turn's end", async () => {
		const pi = await seasonedPi();
		const ids = send(pi, 30);
		const counts: number[] = [];
		const during = () => counts.push(pi.mails().length);
		await pi.run({
			prompt: "work",
			turns: [
				{ tools: 1, during },
				{ tools: 1, during },
			],
			during,
		});
		expect(counts).toEqual([0, 20, 30]);
		expect(idsIn(pi)).toEqual(ids);
	});

	test("design 4.6: a reply alone does not make a run go on that would end, a request does", async () => {
		const pi = await seasonedPi();
		const turns = [{ tools: 1, terminate: true }];
		send(pi, 1, reply);
		await pi.run({ prompt: "work", turns });
		expect([pi.mails().length, requestsOf(pi)]).toEqual([1, 2]);
		send(pi, 1);
		await pi.run({ prompt: "work", turns });
		expect([pi.mails().length, requestsOf(pi)]).toEqual([2, 4]);
	});

	test("design 4.2: replies are claimed at once, the rest stays in new/ where it can be taken back", async () => {
		const pi = await seasonedPi();
		const ids: string[] = [];
		const during = async () => {
			ids.push(...send(pi, 1), ...send(pi, 1, reply));
			await later(1000);
			expect([pi.names("new").length, pi.openCount, pi.status.get("mailbox")]).toEqual([1, 1, "✉ 2 pending"]);
			expect(idsIn(pi)).toEqual([]);
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1, during }] });
		expect([idsIn(pi), pi.status.get("mailbox")]).toEqual([ids, "✉ 2 read"]);
	});

	test("design 4.2: a reply is found at once also behind more mail than one look reads", async () => {
		const pi = await seasonedPi();
		const during = async () => {
			send(pi, 220, { kind: "message" });
			send(pi, 1, reply);
			await later(1100);
			expect([pi.names("new").length, pi.openCount]).toEqual([220, 1]);
		};
		await pi.run({ prompt: "work", during });
	});

	test("what other extensions add stays", async () => {
		const other = (pi: ExtensionAPI) =>
			pi.on("turn_end", ({ entries }) => ({ entries: [...entries, { type: "custom", customType: "other", data: 1 }] }));
		const pi = await seasonedPi({ extensions: [other, sessionMail] });
		send(pi, 1);
		await pi.run({ prompt: "work", turns: [{ tools: 1 }] });
		expect(
			pi.session.getEntries().filter((entry) => entry.type === "custom" && entry.customType === "other"),
		).toHaveLength(3);
		expect(pi.mails()).toHaveLength(1);
	});

	test("design 4.5: what another extension drops is offered again at the next boundary, and is added once", async () => {
		let drops = 0;
		const rogue = (pi: ExtensionAPI) => pi.on("turn_end", () => (drops-- > 0 ? { entries: [] } : undefined));
		const pi = await seasonedPi({ extensions: [sessionMail, rogue] });
		const ids = send(pi, 2);
		drops = 1;
		const openAfterDrop: number[] = [];
		const during = () => openAfterDrop.push(pi.mails().length, pi.openCount);
		await pi.run({ prompt: "work", turns: [{ tools: 1 }, { tools: 1, during }, { tools: 1 }] });
		await later(60_000);
		expect(openAfterDrop).toEqual([0, 2]);
		expect([idsIn(pi), pi.sent, pi.isIdle, pi.openCount]).toEqual([ids, [], true, 0]);
	});

	test("design 4.5: what is dropped at a run's last boundary wakes the session afterwards", async () => {
		const rogue = (pi: ExtensionAPI) => pi.on("turn_end", () => ({ entries: [] }));
		const pi = await seasonedPi({ extensions: [sessionMail, rogue] });
		const ids = send(pi, 1, { kind: "message" });
		await pi.run({ prompt: "work", turns: [{ tools: 1 }] });
		await later(2000);
		await pi.run();
		expect(idsIn(pi)).toEqual(ids);
	});

	test("a run that Pi retries and compacts has the mail once", async () => {
		const pi = await seasonedPi();
		const ids = send(pi, 2);
		await pi.run({
			prompt: "work",
			turns: [{ tools: 1 }, { fails: "503", during: () => later(2000) }, { tools: 1 }, { fails: "503" }],
		});
		await pi.compact(() => {});
		await later(60_000);
		expect([idsIn(pi), pi.isIdle]).toEqual([ids, true]);
	});
});

describe("mail that comes while extensions hear that a run settled", () => {
	/** An extension that takes its time once, and how to let it end. */
	function slowExtension() {
		const { promise, resolve } = Promise.withResolvers<void>();
		return { extension: (pi: ExtensionAPI) => pi.on("agent_settled", () => promise), end: resolve };
	}

	async function settlingPi() {
		const slow = slowExtension();
		const pi = await startFakePi({ extensions: [sessionMail, slow.extension] });
		const run = pi.run({ prompt: "hello" });
		await later(1000);
		const ids = send(pi, 2);
		await later(3000);
		return { pi, ids, end: () => Promise.all([run, slow.end()]) };
	}

	test("is given to Pi once, and enters with the run that Pi starts afterwards", async () => {
		const { pi, ids, end } = await settlingPi();
		expect(pi.isIdle).toBe(true);
		expect(pi.sent.map(({ startsRun }) => startsRun)).toEqual([false, true]);
		await end();
		await pi.run();
		await later(60_000);
		expect([idsIn(pi), pi.sent.length, pi.openCount]).toEqual([ids, 2, 0]);
	});

	test("L2 keeps no later mail back once it has entered", async () => {
		const { pi, end } = await settlingPi();
		await end();
		await pi.run();
		await later(1000);
		const [id] = send(pi, 1);
		await later(2000);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run();
		expect(idsIn(pi)).toContain(id);
	});

	test("does not enter a second time through the run of a person who typed meanwhile", async () => {
		const slow = slowExtension();
		const pi = await startFakePi({ extensions: [sessionMail, slow.extension] });
		const first = pi.run({ prompt: "hello" });
		await later(0);
		await pi.run({ prompt: "and then" });
		const ids = send(pi, 1);
		await later(3000);
		slow.end();
		await first;
		// The person's run: longer than Pi's mail is taken for lost.
		await pi.run({ turns: [{ tools: 1, during: () => later(15 * 60_000) }, { tools: 1 }] });
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run();
		await later(60_000);
		expect(idsIn(pi)).toEqual(ids);
	});

	test("PSM-084 counts towards the hops of its own run, whatever ran before it", async () => {
		const slow = slowExtension();
		const pi = await startFakePi({ extensions: [sessionMail, slow.extension] });
		const first = pi.run({ prompt: "hello" });
		await later(0);
		await pi.run({ prompt: "and then" });
		send(pi, 1, { hops: 2 });
		await later(3000);
		slow.end();
		await first;
		await pi.run({});
		await pi.run({});
		expect(peer.received().map(({ hops }) => hops)).toEqual([3]);
	});

	test("is offered again after 10 minutes when Pi has lost it", async () => {
		const { pi, ids, end } = await settlingPi();
		pi.forget();
		await end();
		await later(9 * 60_000);
		expect([pi.isIdle, pi.openCount]).toEqual([true, 1]);
		await later(60_000 + 5000);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run();
		expect(idsIn(pi)).toEqual(ids);
	});
});

describe("a mail is delivered", () => {
	test("PSM-041, I-PSM-1: once, however often it was sent and whatever else came between", async () => {
		const pi = await seasonedPi();
		const id = "01980f5e-7a3c-4d10-8f00-000000000001";
		// A sender that does not remember what it sent.
		const sendAgain = (to: FakePi) => {
			send(to, 1, { id });
			rmSync(join(mailRoot(), peer.address, "sent", `${id}.receipt`));
		};
		sendAgain(pi);
		sendAgain(pi);
		expect(pi.names("new")).toHaveLength(2);
		await later(1000);
		await pi.run();
		sendAgain(pi);
		await later(1000);
		expect([idsIn(pi), pi.isIdle, pi.openCount]).toEqual([[id], true, 0]);
		await pi.shutDown();
		const again = await startFakePi({ file: pi.file });
		sendAgain(again);
		await later(1000);
		expect([idsIn(again), again.isIdle, again.openCount]).toEqual([[id], true, 0]);
	});

	test("I-PSM-1 once also when a copy of it is claimed while Pi fails to start its run", async () => {
		const pi = await seasonedPi();
		const ids = send(pi, 1);
		await later(1000);
		const folder = join(mailRoot(), pi.address);
		const [name = ""] = pi.names("cur");
		copyFileSync(join(folder, "cur", name), join(folder, "new", `9${name}`));
		pi.events.emit("message:scan", {});
		pi.failToStart();
		await later(20_000);
		await pi.run();
		await later(60_000);
		expect([idsIn(pi), pi.openCount]).toEqual([ids, 0]);
	});

	test("once per sender: ids are unique only there", async () => {
		const pi = await seasonedPi();
		const id = "01980f5e-7a3c-4d10-8f00-000000000001";
		send(pi, 1, { id });
		await later(1);
		makePeer("01980f5e-7a3c-7d10-8f00-0000000000bb").send(pi, { id });
		await later(1000);
		await pi.run();
		expect(idsIn(pi)).toEqual([id, id]);
	});

	test("L1 PSM-053 only when its entry is on disk: in a session without a file its open mark stays until there is one", async () => {
		const pi = await startFakePi();
		send(pi, 1, reply);
		send(pi, 1);
		await later(1000);
		const during = async () => {
			await later(3000);
			expect(pi.mails()).toHaveLength(2);
			// On the screen, so not pending; and not on disk, so not read.
			expect([existsSync(pi.file), pi.openCount, pi.status.get("mailbox")]).toEqual([false, 2, undefined]);
		};
		await pi.run({ during });
		expect([existsSync(pi.file), pi.openCount, pi.status.get("mailbox")]).toEqual([true, 0, "✉ 2 read"]);
	});

	test("L1 in memory, in a session that is not saved", async () => {
		const pi = await startFakePi({ isSaved: false });
		send(pi, 1, reply);
		await later(1000);
		expect([pi.mails().length, pi.openCount, pi.status.get("mailbox")]).toEqual([1, 0, "✉ 1 read"]);
	});
});

describe("a fault on the way", () => {
	/** A hand-over of its own, in an idle session that keeps everything that is added. */
	function handover({ show = (): string => "text", offer = () => {} } = {}) {
		const root = testRoot();
		const mailbox = root.open(bob);
		const ledger = createLedger(bob);
		const entries: unknown[] = [];
		const starts: boolean[] = [];
		const conversation: Conversation = {
			isIdle: () => true,
			isSaved: () => true,
			entries: () => entries,
			add(message, startsRun) {
				entries.push({ type: "custom_message", id: `${entries.length}`, ...message });
				starts.push(startsRun);
			},
		};
		const inbox = createInbox(mailbox, ({ reason }) => fail(reason), fail);
		const running = openRunning({
			disk: nodeDisk(),
			root: root.path,
			processes: systemProcesses(),
			now: Date.now,
			warn: fail,
		});
		const messages = createMessages({
			...{ mailbox, running, hasSeenResult: ledger.hasSeenResult, endedCall: () => undefined, warn: () => {} },
		});
		const made = createHandover({
			mailbox,
			inbox,
			ledger,
			conversation,
			requestsOf: messages.requestsOf,
			messageOf: (arrival) => ({ ...messages.messageOf(arrival), content: show() }),
			answersAsk: () => false,
			isTakenOver() {
				offer();
				return false;
			},
			isOff: () => false,
			isPaused: () => false,
			mayWake: () => true,
			hasSeenResult: ledger.hasSeenResult,
			control: () => {},
			mayInterrupt: () => false,
			onInterrupt: () => {},
			onWake: () => {},
			onQuiet: () => {},
			now: Date.now,
			warn: () => {},
		});
		const sender = root.open(alice);
		const claim = () => inbox.claim(1).mails[0] ?? expect.fail("nothing to claim");
		return {
			...made,
			ledger,
			entries,
			starts,
			claim,
			send: () => sent(sender),
			marks: () => root.names(bob, "cur").filter(isMark),
			waiting: () => root.names(bob, "new"),
		};
	}

	const isMark = (name: string) => name.endsWith(".open");

	test("L2 a text that cannot be made for the moment makes no mail enter twice, and none get lost", () => {
		let calls = 0;
		const show = () => (++calls === 2 ? fail("EMFILE") : "text");
		const { whenIdle, entries, send } = handover({ show });
		const ids = [send(), send(), send()];
		for (let n = 0; n < 5; n++) {
			try {
				whenIdle();
			} catch {
				// The session warns.
			}
			vi.advanceTimersByTime(5000);
		}
		expect(entries.map((entry) => (entry as { details: { mail: MailDetails } }).details.mail.id)).toEqual(ids);
	});

	test("design 4.5: at most 20 enter at once, also of what was claimed before, and no more is claimed", () => {
		const { claimAll, whenIdle, entries, send, waiting } = handover();
		for (let n = 0; n < 25; n++) send();
		claimAll();
		whenIdle();
		expect(entries).toHaveLength(20);
		for (let n = 0; n < 20; n++) send();
		whenIdle();
		expect([entries.length, waiting().length]).toEqual([40, 5]);
	});

	test("L2 design 4.5: a mail whose text alone is more than 128 KiB enters by itself, and holds up no other", () => {
		const { whenIdle, entries, send } = handover({ show: () => "x".repeat(129 * 1024) });
		send();
		send();
		whenIdle();
		expect(entries).toHaveLength(1);
		whenIdle();
		expect(entries).toHaveLength(2);
	});

	test("design 4.4: what is asked for while mail is offered to other extensions waits, and starts no second run", () => {
		const asked: unknown[] = [];
		const { whenIdle, whenBusy, claimAll, send, starts } = handover({
			offer() {
				asked.push(whenBusy(), claimAll());
				whenIdle();
			},
		});
		send();
		send();
		whenIdle();
		expect([asked, starts]).toEqual([
			[false, false, false, false],
			[false, true],
		]);
	});

	test("L1 a mail that is taken in twice keeps its open mark until it is in the conversation", () => {
		const { resume, claim, send, marks, whenIdle, entries } = handover();
		send();
		const mail = claim();
		resume(mail, true);
		resume(mail, true);
		expect(marks()).toHaveLength(1);
		whenIdle();
		expect([entries.length, marks()]).toEqual([1, []]);
	});

	test("D7 a mail that another process has brought meanwhile is passed over", () => {
		const { resume, claim, send, whenIdle, entries, ledger, marks } = handover();
		const id = send();
		resume(claim(), true);
		const mail = { address: bob, id, from: alice, kind: "request", hops: 0, inReplyTo: [], file: "" };
		ledger.include([{ type: "custom_message", customType: "mailbox", id: "1", details: { mail } }]);
		whenIdle();
		expect([entries, marks()]).toEqual([[], []]);
	});

	test("D7 a mail that another process has brought meanwhile is passed over at the end of a turn as well", () => {
		const { resume, claim, send, atTurnEnd, ledger, marks } = handover();
		const id = send();
		resume(claim(), true);
		const mail = { address: bob, id, from: alice, kind: "request", hops: 0, inReplyTo: [], file: "" };
		ledger.include([{ type: "custom_message", customType: "mailbox", id: "1", details: { mail } }]);
		expect([atTurnEnd().messages, marks()]).toEqual([[], []]);
	});
});
