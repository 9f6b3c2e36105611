import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { describe, expect, test, vi } from "vitest";
import sessionMail from "../src/index.ts";
import { mailRoot } from "../src/mail/root.ts";
import { later, useFakeMachine } from "./support/fake-machine.ts";
import { FakePi, makePeer, startFakePi } from "./support/fake-pi.ts";

useFakeMachine();

const loadedTwice =
	"mailbox: pi-session-mail is loaded twice, so this copy does nothing; remove one of the two with: pi remove <source>";

/** Every event that the extension listens to. */
async function emitAll(pi: FakePi): Promise<void> {
	for (const type of ["resources_discover", "input", "agent_start", "context", "session_info_changed"])
		await pi.emit(type, {});
	await pi.emit("turn_end", { outcome: "completed", toolResults: [{}], entries: [] });
	await pi.emit("agent_settled", { aborted: false });
}

describe("loading", () => {
	test("D25 registers no tool and no command, and touches no disk, before the session starts", () => {
		const registered: string[] = [];
		const on = (type: string) => registered.push(type);
		sessionMail({ on } as unknown as ExtensionAPI);
		expect(registered).toContain("session_start");
		expect(existsSync(mailRoot())).toBe(false);
	});

	test("events before the first start and after the end do nothing", async () => {
		const pi = new FakePi();
		vi.spyOn(pi, "emit").mockImplementationOnce(async () => {});
		await pi.start();
		await emitAll(pi);
		await pi.emit("session_shutdown", { reason: "quit" });
		expect([existsSync(mailRoot()), vi.getTimerCount()]).toEqual([false, 0]);
		await pi.emit("session_start", { reason: "startup" });
		await pi.emit("session_shutdown", { reason: "quit" });
		await emitAll(pi);
		await later(60_000);
		expect([pi.errors, vi.getTimerCount()]).toEqual([[], 0]);
	});
});

test("PSM-045 events that come after the end take no mail, and /mailbox says that the session has ended", async () => {
	const pi = await startFakePi();
	await later(2000);
	makePeer().send(pi);
	await pi.emit("session_shutdown", { reason: "quit" });
	await emitAll(pi);
	expect(pi.names("new")).toHaveLength(1);
	await pi.type("/mailbox");
	expect(pi.notifications).toEqual([expect.stringMatching(/because it has ended/)]);
});

describe("PSM-008 a session that can have no mailbox", () => {
	/** The place of the mail root is taken by a file. */
	function spoilRoot(): void {
		mkdirSync(dirname(mailRoot()), { recursive: true });
		writeFileSync(mailRoot(), "");
	}

	test("says so once, and has no address, timer, watcher, status or record", async () => {
		spoilRoot();
		const pi = await startFakePi();
		await later(60_000);
		await pi.run({ prompt: "work", turns: [{ tools: 1 }] });
		await pi.rename("reviewer");
		expect(pi.notifications).toEqual([expect.stringMatching(/^mailbox: mailbox is off: .+/)]);
		expect([pi.status.size, pi.commands.has("mailbox"), vi.getTimerCount()]).toEqual([0, true, 0]);
		await pi.type("/mailbox");
		expect(pi.notifications.at(-1)).toMatch(/^Nothing was sent: this session has no mailbox, because \S/);
		expect(await pi.commands.get("mailbox")?.getArgumentCompletions?.("")).toBeNull();
	});

	test("says so on the error output where there is no UI", async () => {
		spoilRoot();
		const error = vi.spyOn(console, "error").mockImplementation(() => {});
		await startFakePi({ mode: "print" });
		expect(error.mock.calls).toEqual([[expect.stringMatching(/^mailbox: mailbox is off: .+/)]]);
	});

	test("D22 because its id is a name of the root's own folders", async () => {
		const pi = await startFakePi({ id: "running" });
		expect(pi.notifications).toEqual([
			'mailbox: mailbox is off: the session id "running" cannot be an address; start Pi with another --session-id',
		]);
		expect(existsSync(mailRoot())).toBe(false);
	});

	test("has one after a /reload that finds the fault mended", async () => {
		const pi = await startFakePi({ id: "worker-1" });
		expect(readdirSync(mailRoot()).sort()).toEqual(["running", "worker-1"]);
		await pi.reload();
		expect(pi.notifications).toEqual([]);
	});
});

describe("D25 two copies of the package in one session", () => {
	test("the first has the mailbox; the other says so once and does nothing", async () => {
		const peer = makePeer();
		const pi = await startFakePi({ extensions: [sessionMail, sessionMail] });
		expect(pi.notifications).toEqual([loadedTwice]);
		const id = peer.send(pi);
		await later(10_000);
		await pi.run({ turns: [{ tools: 1 }] });
		await later(10_000);
		expect([pi.mails().map((mail) => mail.id), pi.sent.length, peer.received().length]).toEqual([[id], 1, 1]);
		await pi.shutDown();
		expect(vi.getTimerCount()).toBe(0);
	});

	test("also when the other is a module of its own, as it is from another place", async () => {
		vi.resetModules();
		const { default: otherCopy } = await import("../src/index.ts");
		expect(otherCopy).not.toBe(sessionMail);
		const pi = await startFakePi({ extensions: [sessionMail, otherCopy] });
		expect(pi.notifications).toEqual([loadedTwice]);
	});

	test("one that has ended counts as gone, also while Pi lets it live on", async () => {
		const pi = await startFakePi();
		await pi.emit("session_shutdown", { reason: "reload" });
		await pi.start("reload");
		expect(pi.notifications).toEqual([]);
	});

	test("after a /reload the first has it again", async () => {
		const pi = await startFakePi({ extensions: [sessionMail, sessionMail] });
		await pi.reload();
		expect(pi.notifications).toEqual([loadedTwice, loadedTwice]);
		await pi.type("/mailbox");
		expect(pi.notifications.at(-1)).toMatch(/^Mailbox address/);
	});

	test("one that a host dropped without session_shutdown counts as gone", async () => {
		const pi = await startFakePi();
		pi.dispose();
		vi.clearAllTimers();
		await pi.start("reload");
		expect(pi.notifications).toEqual([]);
		await pi.type("/mailbox");
		expect(pi.notifications).toEqual([expect.stringMatching(/^Mailbox address/)]);
	});

	test.each(["session_mail_list", "session_mail_ask", "session_mail_reply", "session_mail_send"])(
		"it steps back when another extension has the tool %s",
		async (name) => {
			const other = (pi: ExtensionAPI) => pi.registerTool({ name } as Parameters<ExtensionAPI["registerTool"]>[0]);
			const pi = await startFakePi({ extensions: [sessionMail, other] });
			expect(pi.notifications).toEqual([
				`mailbox: another extension already has the tool ${name}, so this copy does nothing; remove one of the two with: pi remove <source>`,
			]);
			expect([pi.commands.size, vi.getTimerCount(), existsSync(mailRoot())]).toEqual([0, 0, false]);
		},
	);
});

test("D25 when the other extension with such a tool is gone after a /reload, all our tools are on", async () => {
	let isThere = true;
	const other = (pi: ExtensionAPI) => {
		const tool = { name: "session_mail_list" } as Parameters<ExtensionAPI["registerTool"]>[0];
		if (isThere) pi.registerTool(tool);
	};
	const pi = await startFakePi({ extensions: [sessionMail, other] });
	isThere = false;
	await pi.reload();
	const tools = [...pi.tools.values()] as { defaultActive?: boolean }[];
	expect(tools.map(({ defaultActive }) => defaultActive)).toEqual([undefined, undefined, undefined, undefined]);
});

test("a session_start that Pi before 1.6 fires twice starts one session", async () => {
	const peer = makePeer();
	const pi = new FakePi();
	const registered = vi.spyOn(pi.commands, "set");
	await pi.start("new");
	const timers = vi.getTimerCount();
	await pi.emit("session_start", { reason: "new" });
	expect([pi.notifications, vi.getTimerCount()]).toEqual([[], timers]);
	await pi.discover();
	const id = peer.send(pi);
	await later(10_000);
	await pi.run();
	expect([pi.mails().map((mail) => mail.id), pi.sent.length]).toEqual([[id], 1]);
	expect(registered).toHaveBeenCalledTimes(1);
	await pi.shutDown();
	await later(0);
	expect([vi.getTimerCount(), readdirSync(join(mailRoot(), "running"))]).toEqual([0, []]);
});

describe("many sessions in one process, design 3", () => {
	test("have their own mailboxes, and mail goes round", async () => {
		const [author, reviewer, tester] = [
			await startFakePi({ name: "author" }),
			await startFakePi({ name: "reviewer" }),
			await startFakePi({ name: "tester" }),
		];
		for (const pi of [author, reviewer, tester]) await pi.run({ prompt: "hello" });
		await author.type("/mailbox reviewer please look at branch x");
		await author.type("/mailbox tester please test branch x");
		await later(1000);
		await tester.run({ text: "It fails." });
		await later(1);
		await reviewer.run({ text: "It is fine." });
		await later(1000);
		expect(author.mails().map(({ text }) => /The reply:\n(.*)\n/.exec(text)?.[1])).toEqual([
			"It fails.",
			"It is fine.",
		]);
		expect(author.mails()[0]?.text).toContain("From tester (");
		expect([author.isIdle, author.status.get("mailbox")]).toEqual([true, "✉ 2 read"]);
		expect([reviewer.mails().length, tester.mails().length]).toEqual([1, 1]);
	});

	test("the end of one leaves the others alone", async () => {
		const [first, second] = [await startFakePi(), await startFakePi()];
		await first.shutDown();
		await second.type("/mailbox");
		expect(readdirSync(join(mailRoot(), "running"))).toEqual([`${second.address}.json`]);
		expect(second.notifications).toHaveLength(1);
	});

	test("a session that follows another in the same Pi has only its own mail", async () => {
		const peer = makePeer();
		const first = await startFakePi();
		await first.run({ prompt: "hello" });
		await later(0);
		await first.shutDown("new");
		const second = await startFakePi({ reason: "new" });
		peer.send(first);
		const id = peer.send(second);
		await later(1000);
		await second.run();
		expect([second.mails().map((mail) => mail.id), first.names("new").length]).toEqual([[id], 1]);
	});
});
