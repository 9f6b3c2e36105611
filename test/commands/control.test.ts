import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { visibleWidth } from "@earendil-works/pi-tui";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { mailRoot } from "../../src/mail/root.ts";
import { later, pressKeys, pressOnScreen, seasonedPi, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, type Peer } from "../support/fake-pi.ts";

useFakeMachine();

const enter = "\r";
const down = "\u001b[B";
let pi: FakePi;
let worker: FakePi;
let peer: Peer;
beforeEach(async () => {
	worker = await seasonedPi({ id: "0197a3f2-1111-7000-8000-00000000000b", name: "worker" });
	pi = await seasonedPi({ id: "0197a3f2-1111-7000-8000-00000000000a", name: "author", mode: "tui" });
	peer = makePeer();
});

/** Opens the screen at the sessions, of which this one is the first. */
async function openSessions(): Promise<void> {
	pi.shortcut("alt+m");
	await press("4");
}

const press = (...keys: string[]) => pressKeys(pi, ...keys);

function said(): string {
	return pi.screen().join(" ").replace(/\s+/g, " ");
}

/** How many mails wait for the worker, control mail too. */
const toWorker = () => worker.names("new").length + worker.names("cur").length;

/** While the worker's model works. */
async function whileBusy(action: () => Promise<void>): Promise<void> {
	await worker.run({ prompt: "work", turns: [{ tools: 1, during: action }] });
}

/** While another process has this session open and receives its mail. */
async function elsewhere(action: () => Promise<void>): Promise<void> {
	const record = join(mailRoot(), "running", `${pi.address}.json`);
	const x = { namespace: "elsewhere", instance: "x", accepts: ["control"] };
	const other = { address: pi.address, name: "author", cwd: "/", pid: 1, state: "idle", updated: "", x };
	writeFileSync(record, JSON.stringify(other));
	await later(2000);
	await action();
	rmSync(record);
}

/** Control mail of a program that has just started, with its clock ahead by so much. */
function control(op: "pause" | "resume", aheadMs = 0): void {
	vi.setSystemTime(Date.now() + aheadMs);
	makePeer(`${op}-1`).send(pi, { kind: "control", body: op, control: { op } });
	vi.setSystemTime(Date.now() - aheadMs);
}

describe("a session in the screen", () => {
	test("SMB-043 p pauses it, and lets it go on", async () => {
		await openSessions();
		await press(down, "p");
		expect(said()).toContain("worker is told to pause: mail starts no turn until it may go on.");
		await later(3000);
		expect(said()).toMatch(/→ paused worker/);
		expect(said()).toContain("p go on");
		await press("p");
		await later(3000);
		expect(said()).toMatch(/→ idle worker/);
		await press("q");
	});

	test("D7 in a process that does not receive the session's mail, p changes nothing and says so", async () => {
		await elsewhere(async () => {
			await openSessions();
			const entries = pi.session.getEntries().length;
			await press("p");
			expect(said()).toContain("Nothing was done: another process has this session open and receives its mail.");
			expect(pi.session.getEntries()).toHaveLength(entries);
			await press("q");
		});
	});

	test.each(["p", "s", "x"])("%s does nothing to it while a person picks whom to write to", async (key) => {
		pi.shortcut("alt+m");
		await press("1", "w");
		expect(said()).toContain("Write to whom?");
		await press(key);
		expect(said()).toContain("Write to whom?");
		expect(said()).not.toContain("told");
		expect(toWorker()).toBe(0);
		await press("q", "q");
	});

	test.each(["s", "x"])("%s asks first: Enter alone does nothing, and the next one is told", async (key) => {
		await whileBusy(async () => {
			await openSessions();
			await press(down, key, enter);
			expect(toWorker()).toBe(0);
			await press(key, down, enter);
			expect(said()).toContain("worker is told to ");
			expect(toWorker()).toBe(1);
			await press("q");
		});
	});

	test("L4 s on one that is idle says so, and tells it nothing", async () => {
		await openSessions();
		await press(down, "s");
		expect(said()).toContain("It is idle: there is no run to end.");
		expect(toWorker()).toBe(0);
		await press("q");
	});

	test.each(["s", "x"])("L10 %s tells it nothing when this session was replaced while it asked", async (key) => {
		await whileBusy(async () => {
			await openSessions();
			await press(down, key);
			const { shown: question } = pi;
			expect(question?.title).toMatch(/worker/);
			await pi.emit("session_shutdown", { reason: "new" });
			question?.press(down);
			question?.press(enter);
			await later(2000);
			expect(toWorker()).toBe(0);
			expect(pi.shown).toBeUndefined();
		});
	});

	test("L4 one that has ended while it was asked about is said not to run", async () => {
		await openSessions();
		await press(down, "x");
		await worker.shutDown();
		await press(down, enter);
		expect(said()).toMatch(/Nothing was done: .* is not running\./);
		await press("q");
	});

	test.each([
		[20, 5],
		[80, 24],
		[200, 50],
	])(
		"on %i columns and %i rows nothing is wider or higher, and nothing in its name acts on the terminal",
		async (columns, rows) => {
			Object.assign(pi.terminal, { columns, rows });
			await worker.rename(`${"w".repeat(480)}\u001b[31m\u202e`);
			await openSessions();
			for (const keys of [[down], ["p"], ["s"], ["x", down, enter]]) {
				await press(...keys);
				const shown = pi.screen();
				expect(shown.length).toBeLessThanOrEqual(Math.max(3, rows - 4));
				for (const row of shown) expect(visibleWidth(row)).toBeLessThanOrEqual(columns);
				expect(shown.join("")).not.toMatch(/[\p{Cc}\u202e]/u);
			}
			await press("q");
		},
	);
});

describe("while this session is paused", () => {
	test("L4 mail that is released is said to wait, and waits until it may go on", async () => {
		await pi.type("/mailbox pause");
		peer.send(pi);
		await later(2000);
		expect(await pressOnScreen(pi, "h")).toContain("On hold: it waits until it is released.");
		expect(await pressOnScreen(pi, "h")).toContain(
			"Released: it waits, as all mail does while this session is paused.",
		);
		await later(3000);
		expect(pi.hasRunToPlay).toBe(false);
		await pi.type("/mailbox resume");
		await later(0);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("L4 neither what switches mail on nor what ends the pause says that mail comes while the other keeps it waiting", async () => {
		await pi.type("/mailbox pause");
		await pi.type("/mailbox off");
		pi.notifications.length = 0;
		await pi.type("/mailbox on");
		await pi.type("/mailbox off");
		await pi.type("/mailbox resume");
		await pi.type("/mailbox on");
		expect(pi.notifications.filter((text) => !text.startsWith("Mail is off"))).toEqual([
			"Mail is on: what waited comes when you type /mailbox resume.",
			"Not paused: mail is off, and waits until you type /mailbox on.",
			"Mail is on: what waited comes now.",
		]);
	});

	test("SMB-042/043 mail that interrupts is in the first request after the pause, also when that ends by mail", async () => {
		await pi.run({
			prompt: "work",
			turns: [{ tools: 1, during: () => pi.type("/mailbox pause") }, { tools: 1 }],
		});
		peer.send(pi, { body: "look here", priority: "interrupt" });
		await later(3000);
		expect([pi.hasRunToPlay, pi.mails()]).toEqual([false, []]);
		control("resume");
		await later(3000);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run({ text: "looked" });
		await later(3000);
		expect(peer.received()).toMatchObject([{ kind: "reply", status: "done", body: "looked" }]);
		expect(pi.hasRunToPlay).toBe(false);
	});

	test("SMB-043 it may go on also when whoever paused it had a clock that was ahead", async () => {
		control("pause", 3_600_000);
		await later(3000);
		expect(pi.status.get("mailbox")).toBe("✉ paused");
		control("resume");
		await later(3000);
		expect(pi.status.get("mailbox")).toBeUndefined();
	});
});
