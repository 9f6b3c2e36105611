import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { visibleWidth } from "@earendil-works/pi-tui";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { maxUnread } from "../../src/mail/deliver.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { later, useFakeMachine, useFileTime } from "../support/fake-machine.ts";
import { FakePi, machine, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

const enter = "\r";
const esc = "\u001b";
const down = "\u001b[B";
const up = "\u001b[A";

let pi: FakePi;
let peer: Peer;
const id = "0197a3f2-1111-7000-8000-00000000000a";
beforeEach(async () => {
	pi = await startFakePi({ id, name: "author", mode: "tui" });
	peer = makePeer();
});

/** Opens the screen as a person does who knows one key. */
async function open(): Promise<void> {
	pi.shortcut("alt+m");
	pi.screen();
	await later(0);
}

/** Presses keys and lets what they start come to its end. */
async function press(...keys: string[]): Promise<void> {
	for (const key of keys) {
		await pi.press(key);
		pi.screen();
		await later(0);
	}
}

/** What is on the screen. */
function shown(): string {
	return pi.screen().join("\n");
}

/** The same on one line, as if it were not wrapped. */
function said(): string {
	return shown().replace(/\s+/g, " ");
}

/** Keeps mail waiting, so that it is there to be looked at. */
async function waitingRequest(draft: Parameters<Peer["send"]>[1] = {}): Promise<string> {
	await pi.type("/mailbox off");
	return peer.send(pi, draft);
}

/** While another process has the session open and receives its mail. */
async function elsewhere(action: () => Promise<void>): Promise<void> {
	const record = join(mailRoot(), "running", `${pi.address}.json`);
	const x = { namespace: "elsewhere", instance: "x" };
	const other = { address: pi.address, cwd: "/", pid: 1, state: "idle", updated: "", x };
	writeFileSync(record, JSON.stringify(other));
	await later(2000);
	await action();
	rmSync(record);
}

/** The mailbox of the peer, to claim and take back by hand. */
function boxesOfPeer() {
	return openMailbox({
		disk: nodeDisk(),
		root: mailRoot(),
		address: peer.address,
		now: Date.now,
		isDurable: () => false,
	});
}

describe("opening and closing", () => {
	test("alt+m opens it at the inbox, and what was typed before is there afterwards", async () => {
		pi.editor = "half a text";
		await waitingRequest({ body: "look at the parser" });
		await open();
		expect(shown()).toContain("[1 Inbox (1 unread)]");
		expect(shown()).toMatch(/→ unread .* request .*look at the parser/);
		await press("q");
		expect(pi.shown).toBeUndefined();
		expect(pi.editor).toBe("half a text");
	});

	test("while the agent runs: the run goes on, and the screen shows what it reads", async () => {
		peer.send(pi);
		await later(1000);
		await pi.run({
			turns: [{ tools: 1 }],
			during: async () => {
				await open();
				expect(shown()).toMatch(/→ read /);
				await press(esc);
			},
		});
		expect(peer.received().map(({ body }) => body)).toEqual(["done"]);
	});

	test.each(["inbox", "sent", "waiting", "sessions", "doctor"])("/mailbox %s opens it there", async (word) => {
		const typed = pi.type(`/mailbox ${word}`);
		await later(0);
		expect(shown().toLowerCase()).toMatch(new RegExp(`\\[\\d ${word}\\]`));
		await press(esc);
		await typed;
	});

	test("a word with a text behind it is still a session's name", async () => {
		const other = await startFakePi({ name: "sent" });
		await pi.type("/mailbox sent please");
		expect(other.names("new")).toHaveLength(1);
	});

	test("numbers, Tab and the arrows change tabs; it opens again where it was closed", async () => {
		await open();
		const tabAfter = async (...keys: string[]) => {
			await press(...keys);
			return /\[\d (\w+)/.exec(shown())?.[1];
		};
		expect(await tabAfter("3")).toBe("Waiting");
		expect(await tabAfter("\t")).toBe("Sessions");
		expect(await tabAfter("\t", "\t")).toBe("Inbox");
		expect(await tabAfter("\u001b[D")).toBe("Doctor");
		expect(await tabAfter("\u001b[Z")).toBe("Sessions");
		await press("q");
		await open();
		expect(shown()).toContain("[4 Sessions]");
		await press("q");
	});

	test("the Doctor tab shows what is wrong before what is well, with what mends it", async () => {
		writeFileSync(join(mailRoot(), "running", "no record.json"), "");
		useFileTime();
		await open();
		await press("5");
		await later(2000);
		const [first = ""] = shown()
			.split("\n")
			.filter((row) => /^(ok|warning|error) /.test(row));
		expect(first).toMatch(/^warning /);
		expect(shown().indexOf("ok  ")).toBeGreaterThan(shown().indexOf("run: "));
	});

	test("L10 once it is closed nothing of it goes on", async () => {
		await open();
		await press("q");
		const { renderRequests } = pi;
		await later(10_000);
		const timers = vi.getTimerCount();
		expect(pi.renderRequests).toBe(renderRequests);
		await open();
		await press("q");
		// A start prunes as soon as it has a lock, which takes real time: on a busy machine its timers come and go just now.
		for (let n = 0; n < 60 && vi.getTimerCount() > timers; n++) await later(1000);
		expect(vi.getTimerCount()).toBeLessThanOrEqual(timers);
	});

	test("L10 nor does what it was reading when it was closed", async () => {
		await pi.type("/mailbox off");
		for (let n = 0; n < 30; n++) peer.send(pi);
		await later(10_000);
		const timers = vi.getTimerCount();
		// Each slice gets to little.
		let now = performance.now();
		vi.spyOn(performance, "now").mockImplementation(() => (now += 4));
		pi.shortcut("alt+m");
		pi.screen();
		vi.advanceTimersToNextTimer();
		expect(vi.getTimerCount()).toBeGreaterThan(timers + 1);
		await pi.press("q");
		const { renderRequests } = pi;
		// What was to be drawn soon is not any more.
		for (let n = 0; n < 3; n++) vi.advanceTimersToNextTimer();
		vi.restoreAllMocks();
		expect(vi.getTimerCount()).toBeLessThanOrEqual(timers);
		expect(pi.renderRequests).toBe(renderRequests);
	});

	test("L10 it closes itself when the session is replaced, and gives the typed text back", async () => {
		pi.editor = "half a text";
		await open();
		const old = pi;
		await old.emit("session_shutdown", { reason: "new" });
		expect([old.shown, old.editor]).toEqual([undefined, "half a text"]);
		const { renderRequests } = old;
		old.dispose();
		await later(5000);
		expect(old.renderRequests).toBe(renderRequests);
	});

	test("nothing is sent for a session that was replaced while a person wrote", async () => {
		const typed = pi.type("/mailbox sessions");
		await startFakePi({ name: "worker" });
		await later(0);
		await press("w", enter, "hello");
		const { shown: dialog } = pi;
		await pi.emit("session_shutdown", { reason: "new" });
		dialog?.press(enter);
		await typed;
		expect(pi.names("sent")).toEqual([]);
	});

	test("L10 no editor is opened for a session that is replaced just then", async () => {
		await startFakePi({ name: "worker", mode: "print" });
		await open();
		await press("4", down);
		const pressing = pi.press("w");
		await pi.emit("session_shutdown", { reason: "new" });
		await pressing;
		expect(pi.shown).toBeUndefined();
	});

	test("L2 L10 a session that is replaced in the middle of a send has sent it once or not at all", async () => {
		const worker = await startFakePi({ name: "worker", mode: "print" });
		await open();
		await press("4", down, "w", "hello");
		const sending = pi.press(enter);
		await pi.emit("session_shutdown", { reason: "new" });
		await sending;
		await later(2000);
		expect(worker.names("new")).toEqual(pi.names("sent"));
		expect(worker.names("new").length).toBeLessThan(2);
		expect(pi.shown).toBeUndefined();
	});

	test.each([
		[{ shortcut: "ctrl+shift+o" }, ["ctrl+shift+o"]],
		[{ shortcut: false }, []],
		[{}, ["alt+m"]],
		[{ shortcut: "no key" }, ["alt+m"]],
	])("the setting %j leaves the keys %j", async (settings, keys) => {
		vi.stubEnv("PI_CODING_AGENT_DIR", machine.home);
		writeFileSync(join(machine.home, "session-mail.json"), JSON.stringify(settings));
		const other = await startFakePi({ mode: "tui" });
		expect([...other.shortcuts.keys()]).toEqual(keys);
	});
});

describe("a mail opened", () => {
	test("is whole, with its thread and where its file lies; Esc goes back to the list", async () => {
		const asked = await waitingRequest({ body: `first line\n\n${"word ".repeat(60)}\nlast line` });
		await open();
		await press(enter);
		expect(shown()).toContain(`id ${asked}`);
		expect(shown().replaceAll("\n", "")).toContain(`${pi.address}/new/`);
		expect(shown()).toContain("last line");
		await press(esc);
		expect(shown()).toContain("→ unread");
		await press("q");
	});

	test("scrolls by lines and pages, to both ends", async () => {
		await waitingRequest({ body: Array.from({ length: 200 }, (_, line) => `line ${line}.`).join("\n") });
		await open();
		await press(enter);
		expect(shown()).toContain("line 0.");
		await press("\u001b[F");
		expect(shown()).toContain("line 199.");
		await press("\u001b[5~");
		expect(shown()).not.toContain("line 199.");
		await press("\u001b[H");
		expect(shown()).toContain("line 0.");
		await press(...Array.from({ length: 8 }, () => down));
		expect(shown()).not.toContain("line 0.");
		expect(shown()).toContain("line 9.");
		await press("q", "q");
	});

	test("L8 nothing in it acts on the terminal, and no row is wider than that", async () => {
		const nasty = "\u001b[2J\u001b]52;c;AAAA\u0007\u202e日本語\u0e33🇩🇪👩‍👩‍👧 tab\there\r";
		const other = await startFakePi({ name: nasty.repeat(20).slice(0, 500) });
		await pi.type("/mailbox off");
		peer.send(pi, { body: nasty.repeat(50) });
		await pi.type(`/mailbox ${other.address} ${nasty}`);
		for (const [columns, rows] of [
			[80, 24],
			[200, 50],
			[20, 5],
			[2, 1],
		] as const) {
			Object.assign(pi.terminal, { columns, rows });
			await open();
			for (const keys of [["1"], [enter], [esc, "2"], [enter], [esc, "3"], ["4"], ["5"]]) {
				await press(...keys);
				const drawn = pi.screen();
				for (const row of drawn) {
					expect(row).not.toMatch(/[\p{Cc}\u202e]/u);
					expect(visibleWidth(row)).toBeLessThanOrEqual(columns);
				}
				expect(drawn.length).toBeLessThanOrEqual(Math.max(3, rows - 4));
			}
			await press("q");
		}
		expect(pi.terminal.written).toBe("");
	});
});

describe("answering by hand", () => {
	test("L3 an unread request: its sender gets that answer, once, and the model never sees it", async () => {
		const asked = await waitingRequest();
		await open();
		await press("r");
		expect(pi.shown?.title).toMatch(/^Answer to the request from /);
		await press("It is fine.", enter);
		expect(shown()).toContain("Answered: no run of this session answers it again.");
		expect(shown()).toMatch(/answered/);
		await press("q");
		expect(peer.received()).toMatchObject([
			{ kind: "reply", status: "done", in_reply_to: [asked], body: "It is fine." },
		]);
		await pi.type("/mailbox on");
		await later(2000);
		expect([pi.hasRunToPlay, pi.mails()]).toEqual([false, []]);
		await pi.run({ prompt: "hello" });
		await later(1000);
		expect(pi.openCount).toBe(0);
		await pi.reload();
		await later(2000);
		expect(peer.received()).toHaveLength(1);
	});

	test.each(["r", "p"])(
		"L2 also (%s) in a session of which nothing is saved yet, over a kill and a start",
		async (key) => {
			await waitingRequest();
			await open();
			await press(key, key === "r" ? "by hand" : down, enter, "q");
			expect(peer.received()).toHaveLength(1);
			await pi.kill();
			const again = await startFakePi({ id });
			await later(2000);
			expect([again.hasRunToPlay, again.mails()]).toEqual([false, []]);
			await again.run({ prompt: "hello" });
			expect(peer.received()).toHaveLength(1);
		},
	);

	test("L2 also one that an earlier process had claimed, before the start has handed it over again", async () => {
		await waitingRequest();
		const [name = ""] = pi.names("new");
		await pi.kill();
		const boxes = join(mailRoot(), id);
		renameSync(join(boxes, "new", name), join(boxes, "cur", name));
		writeFileSync(join(boxes, "cur", `${name}.open`), "");
		pi = new FakePi({ id, mode: "tui" });
		await pi.start();
		await later(10);
		await open();
		await press("p", down, enter, "q");
		expect(peer.received()).toMatchObject([{ status: "failed" }]);
		expect(pi.openCount).toBe(0);
		await pi.shutDown();
		const again = await startFakePi({ id });
		await later(2000);
		expect([again.hasRunToPlay, again.mails()]).toEqual([false, []]);
	});

	test("L3 a request that a run works on: the run's end does not answer it again", async () => {
		const asked = peer.send(pi);
		await later(1000);
		await pi.run({
			turns: [{ tools: 1 }],
			during: async () => {
				await open();
				await press("r", "by hand", enter, "q");
			},
		});
		expect(peer.received()).toMatchObject([{ in_reply_to: [asked], body: "by hand" }]);
	});

	test("L3 a held request, from the tab of what waits", async () => {
		const asked = peer.send(pi);
		await later(1000);
		await pi.run({ end: "aborted" });
		expect(peer.received()).toEqual([]);
		await open();
		await press("3");
		expect(shown()).toMatch(/Waits for this session\n→ held /);
		await press("r", "by hand", enter, "q");
		expect(peer.received()).toMatchObject([{ in_reply_to: [asked], status: "done", body: "by hand" }]);
		await pi.run({ prompt: "go on" });
		expect(peer.received()).toHaveLength(1);
	});

	test("D28 when its sender takes it back meanwhile, nothing is sent, and what was typed is there the next time", async () => {
		const draft = await waitingRequest();
		await open();
		await press("r", "It is");
		const [name = ""] = pi.names("new");
		const envelope = { id: draft, to: pi.address, from: peer.address } as never;
		expect(boxesOfPeer().retract({ envelope, name })).toBe(true);
		await press(" fine.", enter);
		expect(shown()).toContain("Nothing was done: its sender has taken it back.");
		expect(peer.received()).toEqual([]);
		await press("q");
	});

	test("claimed meanwhile, it is answered all the same", async () => {
		const asked = await waitingRequest();
		await open();
		await press("r", "by hand");
		await pi.type("/mailbox on");
		await later(1500);
		expect(pi.names("new")).toEqual([]);
		// The run that it would start has not begun: it is on its way into the conversation.
		await press(enter);
		expect(said()).toContain("it is just entering the conversation; try again in a moment");
		await pi.run({
			turns: [{ tools: 1 }],
			during: async () => {
				await press("r");
				expect(pi.shown?.text).toBe("by hand");
				await press(enter, "q");
			},
		});
		expect(peer.received()).toMatchObject([{ in_reply_to: [asked], body: "by hand" }]);
	});

	test("L3 not once more when a run has answered it while the person typed, and what was typed is kept", async () => {
		peer.send(pi);
		await later(1000);
		await pi.run({
			turns: [{ tools: 1 }],
			during: async () => {
				await open();
				await press("r", "by hand");
			},
		});
		await press(enter);
		expect(said()).toContain("Nothing was sent: it is already answered.");
		expect(peer.received().map(({ body }) => body)).toEqual(["done"]);
		await press("r");
		expect(pi.shown).toMatchObject({ text: "by hand", title: expect.stringMatching(/as a new request$/) });
		await press(esc, "q");
	});

	test("a reply to what expects no answer is a new request to its sender, and the key is named so", async () => {
		await waitingRequest({ kind: "message" });
		await later(10);
		peer.send(pi);
		await open();
		expect(shown()).toContain("r answer");
		await press(down);
		expect(shown()).toContain("r new request");
		await press("r");
		expect(pi.shown?.title).toMatch(/as a new request$/);
		await press("What about it?", enter, "q");
		expect(peer.received()).toMatchObject([{ kind: "request", hops: 0, body: "What about it?", in_reply_to: [] }]);
	});

	test("D7 not in a second process, which gets none of the mail", async () => {
		await waitingRequest();
		await elsewhere(async () => {
			await open();
			await press("r", "by hand", enter);
			expect(said()).toContain("Nothing was done: another process has this session open and receives its mail.");
			expect(peer.received()).toEqual([]);
			await press("q");
		});
	});
});

describe("dropping", () => {
	test("L3 a request or ask is answered failed, once, and the model never sees it", async () => {
		const asked = await waitingRequest({ kind: "ask" });
		await open();
		await press("p");
		expect(pi.shown?.title).toMatch(/^Drop the ask from /);
		await press(down, enter);
		expect(shown()).toContain("Dropped: its sender is told so.");
		await press("q");
		await pi.type("/mailbox on");
		await pi.run({ prompt: "hello" });
		await later(2000);
		expect(peer.received()).toMatchObject([{ status: "failed", in_reply_to: [asked] }]);
		expect(peer.received()[0]?.body).toContain("Dropped by its user");
		expect([pi.mails(), pi.openCount, pi.hasRunToPlay]).toEqual([[], 0, false]);
	});

	test("a message never enters the conversation, also after a restart", async () => {
		await waitingRequest({ kind: "message" });
		await open();
		await press("p", down, enter, "q");
		await pi.type("/mailbox on");
		await later(2000);
		await pi.run({ prompt: "hello" });
		await pi.reload();
		await later(2000);
		expect([pi.mails(), pi.openCount]).toEqual([[], 0]);
	});

	test.each([[enter], [esc]])("nothing is dropped when the person only presses Enter, or Esc: %j", async (key) => {
		await waitingRequest();
		await open();
		await press("p", key, "q");
		expect([peer.received(), pi.names("new").length]).toEqual([[], 1]);
	});

	test.each(["", "dp", "yd"])("pasting %j on a mail does nothing", async (text) => {
		await waitingRequest();
		await open();
		const before = shown();
		await press(`\u001b[200~${text}\u001b[201~`);
		expect(shown()).toBe(before);
		await press("q");
	});
});

describe("putting on hold", () => {
	const mailKeys = () => /↑↓.*/.exec(said())?.[0] ?? "";

	test("h holds a mail that waits and releases it again, and the screen says which", async () => {
		await waitingRequest({ body: "look at the parser" });
		await open();
		expect(mailKeys()).toContain("p drop · h hold · w write");
		await press("h");
		expect(said()).toContain("On hold: it waits until it is released.");
		expect(shown()).toMatch(/→ on hold {3}.* request .*look at the parser/);
		expect(mailKeys()).toContain("p drop · h release · w write");
		await press("/", "on hold", enter);
		expect(shown()).toContain("look at the parser");
		await press(esc, "3");
		expect(shown()).toMatch(/Waits for this session\n→ on hold /);
		await press("h");
		expect(said()).toContain("Released: it waits, as all mail does while mail is off.");
		expect(shown()).toMatch(/→ unread /);
		await press("1", enter);
		expect(said()).toContain("h hold");
		await press("h");
		expect(said()).toMatch(/request · on hold · .*On hold: it waits/);
		await press(esc, "q");
	});

	test("of an ask says that its sender waits no longer for it", async () => {
		await waitingRequest({ kind: "ask" });
		await open();
		await press("h");
		expect(said()).toContain("On hold: it waits until it is released. Its sender waits no longer than it would have.");
		await press("q");
	});

	test.each(["request", "message"] as const)("a %s on hold is dropped or answered as any that waits", async (kind) => {
		const asked = await waitingRequest({ kind });
		await open();
		await press("h", ...(kind === "request" ? ["r", "by hand", enter] : ["p", down, enter]), "q");
		expect(peer.received().map(({ in_reply_to, body }) => [...in_reply_to, body])).toEqual(
			kind === "request" ? [[asked, "by hand"]] : [],
		);
		expect(pi.names("new")).toEqual([]);
		await pi.type("/mailbox on");
		await later(2000);
		expect([pi.hasRunToPlay, pi.openCount]).toEqual([false, 0]);
	});

	test("is not offered for what is read, dead, a reply or sent, and does nothing to it", async () => {
		const notOffered = async (why: string) => {
			expect(mailKeys()).not.toMatch(/ h /);
			await press("h");
			expect(said()).toContain(why);
		};
		const unread = "Only a request, ask or message that is unread and not claimed yet can be put on hold.";
		peer.send(pi);
		await later(1000);
		await pi.run();
		await open();
		await notOffered(unread);
		writeFileSync(join(mailRoot(), id, "new", "999999999999999-x.json"), "{");
		await later(2000);
		await press(up);
		await notOffered("It is dead: it was never read, and d deletes it.");
		await press("q");
		await pi.type(`/mailbox ${peer.address} the first one`);
		await open();
		await press("2");
		await notOffered("It is a mail that this session sent");
		await press("1", "q");
		await pi.run({
			prompt: "work",
			during: async () => {
				// Claimed, and waiting for the next gap between two tool calls; and a reply that is not claimed yet.
				peer.send(pi, { kind: "message" });
				pi.events.emit("message:scan", {});
				peer.send(pi, { kind: "reply", inReplyTo: [id] });
				await open();
				for (const kind of ["message", "reply"]) {
					await press("/", kind, enter);
					expect(shown()).toMatch(new RegExp(`→ unread .* ${kind} `));
					await notOffered(unread);
					await press(esc);
				}
				await press("q");
			},
		});
	});

	test("L4 claimed meanwhile, it says so", async () => {
		await waitingRequest();
		await open();
		expect(mailKeys()).toContain("h hold");
		const [name = ""] = pi.names("new");
		renameSync(join(mailRoot(), id, "new", name), join(mailRoot(), id, "cur", name));
		await press("h");
		expect(said()).toContain("Nothing was done: it was claimed just now.");
		expect(pi.names("new")).toEqual([]);
		await press("q");
	});

	test("D28 taken back meanwhile, it says so, whether it was on hold or not", async () => {
		await waitingRequest();
		await open();
		expect(mailKeys()).toContain("h hold");
		const [name = ""] = pi.names("new");
		const path = join(mailRoot(), id, "new", name);
		rmSync(path);
		await press("h");
		expect(said()).toContain("Nothing was done: its sender has taken it back.");
		await press("q");
		await waitingRequest();
		await open();
		await press("h");
		for (const other of pi.names("new")) if (other.endsWith(".json")) rmSync(join(mailRoot(), id, "new", other));
		await press("h");
		expect(said()).toContain("Nothing was done: its sender has taken it back.");
		expect(pi.names("new")).toEqual([]);
		await press("q");
	});

	test("D7 not in a second process, which gets none of the mail", async () => {
		await waitingRequest();
		await elsewhere(async () => {
			await open();
			await press("h");
			expect(said()).toContain("Nothing was done: another process has this session open and receives its mail.");
			expect(pi.names("new")).toHaveLength(1);
			await press("q");
		});
	});
});

describe("writing", () => {
	let worker: FakePi;
	beforeEach(async () => {
		worker = await startFakePi({ name: "worker", mode: "print" });
	});

	test("w, a session, a text: a request with 0 hops, as /mailbox sends it", async () => {
		await open();
		await press("w");
		expect(shown()).toContain("Write to whom?");
		expect(shown()).not.toContain("author");
		await press(enter);
		expect(pi.shown?.title).toBe(`To worker (${worker.address}), as a request`);
		await press("check the parser", enter);
		expect(shown()).toContain("Sent to worker.");
		expect(shown()).toContain("[1 Inbox]");
		expect(worker.names("new")).toEqual(pi.names("sent"));
		await press("2");
		expect(shown()).toMatch(/→ queued .*worker .*check the parser/);
		await press("q");
	});

	test("Esc keeps what was typed: it is there the next time, also after the screen was closed", async () => {
		await open();
		await press("4", down, "w", "check the", esc);
		expect(said()).toContain("Nothing was sent. What you typed is kept");
		await press("q");
		await open();
		await press("w");
		expect(pi.shown?.text).toBe("check the");
		await press(" parser", enter, "q");
		expect(pi.names("sent")).toHaveLength(1);
		await open();
		await press("4", "w");
		expect(pi.shown?.text).toBe("");
		await press(esc, "q");
	});

	test("Esc keeps it too when a backslash is before the cursor, which makes a new line of Enter", async () => {
		await open();
		await press("4", down, "w", "C:\\", esc);
		expect(said()).toContain("Nothing was sent. What you typed is kept");
		await press("w");
		expect(pi.shown?.text).toBe("C:\\");
		await press(esc, "q");
		expect(pi.names("sent")).toEqual([]);
	});

	test("the cursor is on what was just sent, and on the new version of what was edited", async () => {
		for (const body of ["one", "two"]) {
			await pi.type(`/mailbox worker ${body}`);
			await later(10);
		}
		await open();
		await press("2", down);
		expect(shown()).toMatch(/→ .*one/);
		await press("w", enter, "three", enter);
		await later(1000);
		expect(shown()).toMatch(/→ queued .*three/);
		await press(down, down);
		expect(shown()).toMatch(/→ queued .*one/);
		await press(enter, "e", " more", enter);
		await later(1000);
		expect(shown()).toMatch(/→ queued .*one more/);
		await press(down, down, down);
		expect(shown()).toMatch(/→ retracted .*one/);
		await press("q");
	});

	test("Esc sends nothing either when other keys come with it at once", async () => {
		await open();
		await press("4", down, "w", "check the");
		const cancelled = pi.press(esc);
		await pi.press("x").catch(() => {});
		await cancelled;
		await later(0);
		expect(pi.names("sent")).toEqual([]);
		await press("q");
	});

	test("L9 a refusal is shown, and what was typed is kept", async () => {
		for (let n = 0; n < maxUnread; n++) peer.send(worker, { kind: "message" });
		await open();
		await press("4", down, "w", "check the parser", enter);
		expect(said()).toMatch(/Nothing was sent: .* already has 256 unread mails/);
		expect(said()).toContain("What you typed is kept.");
		await press("w");
		expect(pi.shown?.text).toBe("check the parser");
		await press(esc, "q");
		expect(pi.names("sent")).toEqual([]);
	});

	test("c shows closed sessions with their last activity, and one of them can be written to", async () => {
		await worker.shutDown();
		await later(3000);
		await open();
		await press("w", "c");
		expect(shown()).toMatch(/Closed: 2/);
		expect(shown()).toMatch(/closed .* last active \d\d-\d\d \d\d:\d\d/);
		await press("/", worker.address, enter, enter);
		expect(pi.shown?.title).toContain(worker.address);
		await press("later", enter);
		expect(said()).toContain("That session is not running; the mail waits until it starts.");
		await press(esc);
	});

	test("closed sessions that were shown are there again when the screen is opened again", async () => {
		await worker.shutDown();
		await later(3000);
		await open();
		await press("4", "c", "q");
		await open();
		await later(100);
		expect(shown()).toMatch(/Closed: 2/);
		await press("q");
	});
});

describe("a key is for what was drawn when it was pressed", () => {
	beforeEach(async () => {
		await pi.type(`/mailbox ${peer.address} the first one`);
		await open();
		await press("2");
	});
	const hookSends = (body: string) => pi.events.emit("message:send", { to: peer.address, body });
	const bodies = () => peer.received().map(({ body }) => body);

	test("also when a newer mail is in the list by then", async () => {
		hookSends("the second one");
		await later(2000);
		await pi.press("x");
		expect(bodies()).toEqual(["the second one"]);
		await press("q");
	});

	test("for none when that is gone", async () => {
		hookSends("the second one");
		await later(2000);
		await press(up);
		const name = pi.names("sent").at(-1) ?? "";
		expect(shown()).toMatch(/→ .*the second one/);
		rmSync(join(mailRoot(), pi.address, "sent", name));
		await later(2000);
		await pi.press("x");
		expect(bodies()).toEqual(["the first one", "the second one"]);
		await press("q");
	});

	test("a mail stays selected while the search looks anew, since mail has come", async () => {
		for (const body of ["two", "three", "four"]) {
			await later(10);
			hookSends(`the ${body}`);
		}
		await later(2000);
		await press("/", "the", enter, "\u001b[F");
		expect(shown()).toMatch(/→ .*the first one/);
		// Each slice of the search finds little.
		let now = performance.now();
		vi.spyOn(performance, "now").mockImplementation(() => (now += 2));
		hookSends("the fifth");
		const all = new Set<string | undefined>();
		for (let n = 0; n < 200; n++) {
			vi.advanceTimersToNextTimer();
			all.add(/→ .*/.exec(shown())?.[0].replace(/^.* {2}/, ""));
		}
		vi.restoreAllMocks();
		expect(shown()).toContain("the fifth");
		expect([...all]).toEqual(["the first one"]);
		await press(esc, "q");
	});

	test("a text that is pasted does nothing, also when it is empty", async () => {
		await press("1");
		await waitingRequest();
		await later(2000);
		shown();
		for (const pasted of ["", "dp"]) {
			await press(`\u001b[200~${pasted}\u001b[201~`);
			expect(shown()).toMatch(/→ unread /);
		}
		await press("q");
	});
});

test("L8 a mail that is opened stays the same one when another sender uses its id", async () => {
	const other = makePeer("01980f5e-7a3c-7d10-8f00-0000000000bb");
	await pi.type("/mailbox off");
	const mailId = other.send(pi, { body: "from the other" });
	await later(10);
	peer.send(pi, { id: mailId, body: "from the peer" });
	await open();
	await press(enter);
	expect(shown()).toContain("from the peer");
	await press("q", "q");
});

test("the search among sessions looks into no inbox", async () => {
	const worker = await startFakePi({ name: "worker", mode: "print" });
	peer.send(worker);
	await open();
	await press("4");
	expect(shown()).toContain("1 queued");
	await press("/", "queued");
	expect(shown()).not.toContain("worker");
	await press(esc, "q");
});

describe("an ask that waits", () => {
	async function whileAsking(during: () => Promise<void>): Promise<string[]> {
		const worker = await startFakePi({ name: "worker" });
		for (const session of [pi, worker]) await session.run({ prompt: "hello" });
		await later(1000);
		const tools = [{ name: "session_mail_ask", args: { to: "worker", message: "is it fine?" } }];
		await worker.run({
			prompt: "go",
			text: "By the run.",
			turns: [
				{
					tools: 1,
					during: async () => {
						const run = pi.run({ prompt: "ask", turns: [{ tools }] });
						await later(500);
						await open();
						await press("2");
						await during();
						await press("q");
						await later(2000);
						running = run;
					},
				},
			],
		});
		let isOver = false;
		running?.then(() => {
			isOver = true;
		});
		await later(5000);
		expect(isOver).toBe(true);
		return pi.session.getEntries().flatMap((entry) => {
			if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
			return entry.message.content.flatMap((block) => (block.type === "text" ? [block.text] : []));
		});
	}
	let running: Promise<unknown> | undefined;

	test("D28 L4 ends its wait when a person takes it back, and says so to the model", async () => {
		const results = await whileAsking(() => press("x"));
		expect(results).toEqual([expect.stringMatching(/^The user took the ask back .* nobody will answer it\./)]);
	});

	test("D28 waits for the answer to its new version when a person edits it", async () => {
		const results = await whileAsking(() => press("e", " really?", enter));
		expect(results).toEqual([expect.stringMatching(/^Answer from worker .*By the run\.$/s)]);
	});
});

describe("taking back and editing, D28", () => {
	let worker: FakePi;
	beforeEach(async () => {
		worker = await startFakePi({ name: "worker", mode: "print" });
		await pi.type("/mailbox worker check the praser");
		pi.notifications.length = 0;
	});

	test("L4 what was taken back is said to be so at once, also when x is pressed again", async () => {
		await open();
		await press("2");
		await pi.press("x");
		expect(shown()).toMatch(/→ retracted /);
		await pi.press("x");
		expect(said()).toContain("It was taken back already.");
		await press("q");
	});

	const claimByWorker = () => {
		const [name = ""] = worker.names("new");
		const boxes = { disk: nodeDisk(), root: mailRoot(), now: Date.now, isDurable: () => false };
		openMailbox({ ...boxes, address: worker.address }).claim(name);
	};

	test("x takes back what was not claimed, and says so", async () => {
		await open();
		await press("2");
		expect(shown()).toContain("x retract");
		await press("x");
		expect(said()).toContain("Taken back: worker had not claimed it and will not see it.");
		expect(shown()).toMatch(/→ retracted/);
		expect(worker.names("new")).toEqual([]);
		expect(pi.status.get("mailbox")).toBeUndefined();
		await press("q");
	});

	test("x says so when it was claimed first", async () => {
		await open();
		await press("2");
		claimByWorker();
		await press("x");
		expect(shown()).toContain("Not taken back: worker has claimed it already.");
		await press("q");
	});

	test("e replaces what was not claimed", async () => {
		await open();
		await press("2", "e");
		expect(pi.shown?.text).toBe("check the praser");
		if (pi.shown !== undefined) pi.shown.text = "check the parser";
		await press(enter);
		expect(said()).toContain("Replaced: worker had not claimed it and will see the new text only.");
		await later(1000);
		expect(shown()).toMatch(/queued .*check the parser/);
		expect(worker.names("new")).toHaveLength(1);
		await press("q");
	});

	test("e leaves the tabs of the lines that stay as they were, which Pi's editor makes spaces of", async () => {
		pi.events.emit("message:send", { to: worker.address, body: "build:\n\tmake al\n\tmake check" });
		await later(1000);
		await open();
		await press("2", "e");
		expect(pi.shown?.text).toBe("build:\n    make al\n    make check");
		if (pi.shown !== undefined) pi.shown.text = "build:\n    make all\n    make check";
		await press(enter);
		const [, name = ""] = worker.names("new");
		const path = join(mailRoot(), worker.address, "new", name);
		expect(JSON.parse(readFileSync(path, "utf8")).body).toBe("build:\n    make all\n\tmake check");
		await press("q");
	});

	test("e says so when it was claimed meanwhile, and keeps what was typed", async () => {
		await open();
		await press("2", "e", " and the lexer");
		claimByWorker();
		await press(enter);
		expect(said()).toMatch(/Nothing was changed: its recipient has it already\. What you typed is kept\./);
		await press("q");
		expect(pi.names("sent").filter((name) => name.endsWith(".json"))).toHaveLength(1);
	});
});

describe("in the lists", () => {
	test("L4 the mail of this session is counted alike in both tabs, also what is claimed and not read", async () => {
		const worker = await startFakePi({ name: "worker", mode: "print" });
		peer.send(worker);
		await waitingRequest();
		const [name = ""] = pi.names("new");
		await later(10);
		peer.send(pi);
		const boxes = join(mailRoot(), pi.address);
		renameSync(join(boxes, "new", name), join(boxes, "cur", name));
		writeFileSync(join(boxes, "cur", `${name}.open`), "");
		await open();
		expect(shown()).toContain("[1 Inbox (2 unread)]");
		await press("4");
		expect(shown()).toMatch(/^→ mail off author .* this session · 2 unread · /m);
		expect(shown()).toMatch(/ worker .* 1 queued · /);
		await press("q");
	});

	test("a session that is closed keeps its name, beside as much of its id as in every list", async () => {
		const worker = await startFakePi({ name: "worker", mode: "print" });
		await pi.type("/mailbox worker check the parser");
		await open();
		await press("2");
		expect(shown()).toMatch(/→ queued .* worker +check the parser/);
		await worker.shutDown();
		await later(3000);
		expect(shown()).toMatch(/→ queued .* worker +check the parser/);
		await press("4", "c");
		expect(shown()).toMatch(new RegExp(` worker +${worker.address.slice(0, 13)} 1 queued · last active`));
		expect(shown()).toContain(` ${peer.address.slice(0, 13)} `);
		await press("q");
	});

	test("also for a process that it never ran beside, when it has sent mail", async () => {
		const worker = await startFakePi({ name: "worker" });
		await worker.type(`/mailbox ${id} check the parser`);
		await later(1000);
		await pi.run({});
		await worker.shutDown();
		await pi.reload();
		await later(2000);
		await open();
		expect(shown()).toMatch(/→ answered .* worker +check the parser/);
		await press("q");
	});

	test("the Doctor tab is scrolled like a text, and says how much is below", async () => {
		pi.terminal.rows = 14;
		await open();
		await press("5");
		await later(2000);
		const below = () => Number(/ (\d+) more below ──$/m.exec(shown())?.[1] ?? 0);
		const before = below();
		expect(before).toBeGreaterThan(0);
		expect(shown()).not.toContain("→ ok");
		await press(down);
		expect(below()).toBe(before - 1);
		await press("\u001b[F");
		expect(below()).toBe(0);
		expect(shown()).toContain("no settings are set");
		await press("\u001b[H");
		expect(below()).toBe(before);
		await press("q");
	});

	test("y shows the id and gives it to the terminal's clipboard", async () => {
		const asked = await waitingRequest();
		await open();
		await press("y");
		expect(shown()).toContain(asked);
		expect(pi.terminal.written).toBe(`\u001b]52;c;${Buffer.from(asked).toString("base64")}\u0007`);
		await press("q");
	});

	test("d deletes a dead mail, which says why it is dead, and nothing else", async () => {
		await waitingRequest();
		writeFileSync(join(mailRoot(), pi.address, "cur", "000000000000001-x.json"), "rubbish");
		writeFileSync(join(mailRoot(), pi.address, "cur", "000000000000001-x.json.reason"), "it is not JSON\n");
		await open();
		await press("d");
		expect(shown()).toContain("Only a dead mail can be deleted.");
		await press(down);
		expect(shown()).toMatch(/→ dead .*it is not JSON/);
		expect(shown()).toContain("d delete");
		await press("d", enter);
		expect(pi.names("cur")).toHaveLength(2);
		await press("d", down, enter);
		await later(1000);
		expect(shown()).toContain("Deleted.");
		expect(pi.names("cur")).toEqual([]);
		expect(pi.names("new")).toHaveLength(1);
		await press("q");
	});

	test("/ searches as one types, in texts, parties, kinds and ids; Esc ends that", async () => {
		await pi.type("/mailbox off");
		for (const body of ["about the parser", "about the lexer", "lunch"]) peer.send(pi, { body });
		await open();
		await press("/", "a", "b", "o");
		expect(shown()).toMatch(/about the lexer(?:.|\n)*about the parser/);
		expect(shown()).not.toContain("lunch");
		await press("u", "t", " ", "l", "e", "x");
		expect(shown()).not.toContain("parser");
		await press("\u007f", "\u007f", "\u007f", enter);
		expect(shown()).toContain("about the parser");
		// q does here what Esc does: it does not close the screen yet.
		expect(shown()).toContain("Esc clear");
		expect(shown()).not.toContain("q close");
		await press(esc);
		expect(shown()).toContain("lunch");
		expect(shown()).toContain("q close");
		await press("/", "z", "z");
		expect(shown()).toContain("Nothing has these words.");
		await press(esc, "q");
	});

	test("/ is named as a key only where it searches", async () => {
		await open();
		expect(shown()).toContain("/ search");
		for (const tab of ["3", "5"]) {
			await press(tab);
			expect(shown()).not.toContain("/ search");
			await press("/");
			expect(shown()).not.toContain("type to search");
		}
		await press("q");
	});

	test("mail that arrives appears within a second, and the cursor stays on its mail", async () => {
		await waitingRequest({ body: "first" });
		await open();
		expect(shown()).toMatch(/→ unread .*first/);
		await later(10);
		peer.send(pi, { body: "second" });
		await later(1000);
		expect(shown()).toMatch(/ {2}unread .*second\n→ unread .*first/);
		await press(up);
		expect(shown()).toMatch(/→ unread .*second/);
		await press("q");
	});

	test("what waits: on whom this session waits, what waits for it, and rings are said to be such", async () => {
		const worker = await startFakePi({ name: "worker", mode: "print" });
		await waitingRequest({ body: "for author" });
		await pi.type("/mailbox worker check the parser");
		const record = (session: FakePi) => join(mailRoot(), "running", `${session.address}.json`);
		for (const [one, other] of [
			[pi, worker],
			[worker, pi],
		] as const) {
			const read = JSON.parse(readFileSync(record(one), "utf8"));
			writeFileSync(record(one), JSON.stringify({ ...read, waitingOn: other.address }));
		}
		await open();
		await press("3");
		expect(shown()).toMatch(/This session waits for an answer to\n→ queued .*worker .*check the parser/);
		expect(shown()).toMatch(/Waits for this session\n {2}unread .*for author/);
		expect(shown()).toMatch(/Who waits for whom\n.*(?:author → worker → author|worker → author → worker) \(a ring/);
		await press("q");
	});

	test("a root that cannot be read is said in one line", async () => {
		await open();
		renameSync(mailRoot(), `${mailRoot()}.away`);
		await later(1100);
		expect(said()).toMatch(/The mailbox .* cannot be read: ENOENT/);
		renameSync(`${mailRoot()}.away`, mailRoot());
		await later(2000);
		expect(shown()).not.toContain("cannot be read");
		await press("q");
	});

	test("so is one that cannot be read when it is opened", async () => {
		renameSync(mailRoot(), `${mailRoot()}.away`);
		writeFileSync(mailRoot(), "");
		await open();
		expect(said()).toMatch(/The mailbox .* cannot be read: (?:ENOENT|ENOTDIR|EACCES)/);
		await press("2", "3", "4", "c", "5", "1", "q");
		expect(pi.shown).toBeUndefined();
		rmSync(mailRoot());
		renameSync(`${mailRoot()}.away`, mailRoot());
		await later(20_000);
	});

	test("without a mailbox it says why in one line", async () => {
		await pi.emit("session_shutdown", { reason: "quit" });
		await open();
		expect(pi.notifications.at(-1)).toMatch(/^The mailbox cannot be shown: this session has none, because /);
	});
});
