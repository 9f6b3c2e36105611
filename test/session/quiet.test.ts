import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { boxesOf } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { systemProcesses } from "../../src/mail/process.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { openRunning } from "../../src/mail/running.ts";
import { envelopeText } from "../support/disk.ts";
import { later, seasonedPi, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, machine, makePeer, type Peer } from "../support/fake-pi.ts";

useFakeMachine();

let peer: Peer;
beforeEach(() => {
	vi.stubEnv("PI_CODING_AGENT_DIR", join(machine.home, "agent"));
	mkdirSync(join(machine.home, "agent"));
	peer = makePeer();
});

const settingsFile = () => join(machine.home, "agent", "session-mail.json");
const setWakeOn = (wakeOn: unknown) => writeFileSync(settingsFile(), JSON.stringify({ wakeOn }));
const record = (pi: FakePi) => JSON.parse(readFileSync(join(mailRoot(), "running", `${pi.address}.json`), "utf8"));
const idsIn = (pi: FakePi) => pi.mails().map(({ id }) => id);
const requestsOf = (pi: FakePi) => pi.log.filter((event) => event === "context").length;
const quiet = { kind: "message", quiet: true } as const;

/** With how many hops a message goes out in a run; "hop_limit" when none does. */
async function hopsIn(pi: FakePi, prompt?: string): Promise<unknown> {
	const args = { to: peer.address, message: "x" };
	await pi.run({ ...(prompt !== undefined && { prompt }), turns: [{ tools: [{ name: "session_mail_send", args }] }] });
	const sent = peer.received().findLast(({ kind }) => kind === "message");
	rmSync(boxesOf(mailRoot(), peer.address).new, { recursive: true });
	return sent?.hops ?? "hop_limit";
}

describe("quiet mail", () => {
	test("design 4.6 starts no turn and costs no request; the next run carries it", async () => {
		const pi = await seasonedPi();
		const id = peer.send(pi, { ...quiet, body: "for later" });
		await later(60_000);
		expect([pi.sent, pi.hasRunToPlay, requestsOf(pi), pi.status.get("mailbox")]).toEqual([
			[{ text: expect.stringContaining("for later"), startsRun: false }],
			false,
			1,
			"✉ 1 read",
		]);
		await pi.run({ prompt: "go on" });
		expect([idsIn(pi), requestsOf(pi), pi.openCount]).toEqual([[id], 2, 0]);
	});

	test("design 4.6 reaches a busy session between two tool calls, and keeps no run going", async () => {
		const pi = await seasonedPi();
		const [first, last] = [
			{ ...quiet, body: "first" },
			{ ...quiet, body: "last" },
		];
		await pi.run({
			prompt: "work",
			// Pi asks no further request after these results: only `continue` would make it.
			turns: [{ tools: 1, terminate: true, during: () => void peer.send(pi, first) }],
		});
		expect([pi.mails().length, requestsOf(pi)]).toEqual([1, 2]);
		await pi.run({ prompt: "work", during: () => void peer.send(pi, last) });
		await later(60_000);
		expect([pi.mails().length, pi.hasRunToPlay, requestsOf(pi)]).toEqual([2, false, 3]);
	});

	test("comes along with a mail that starts a turn, in one request", async () => {
		const pi = await seasonedPi();
		const ids = [peer.send(pi, quiet), peer.send(pi), peer.send(pi, quiet)];
		await later(1000);
		await pi.run();
		await later(60_000);
		expect([idsIn(pi), requestsOf(pi), pi.sent.map(({ startsRun }) => startsRun)]).toEqual([
			ids,
			2,
			[false, false, true],
		]);
	});

	test.each(["request", "ask"])("is never a %s: whoever asks wants an answer", async (kind) => {
		const pi = await seasonedPi();
		const text = envelopeText({ kind, from: peer.address, to: pi.address, x: { quiet: true } });
		writeFileSync(join(boxesOf(mailRoot(), pi.address).new, "001795953601000-x.json"), text);
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run();
	});

	test.each([[{ quiet: "yes" }], [{ quiet: false }], ["quiet"], [[]], [null]])(
		"D1 is not what another copy means by x %j",
		async (x) => {
			const pi = await seasonedPi();
			const text = envelopeText({ kind: "message", from: peer.address, to: pi.address, x });
			writeFileSync(join(boxesOf(mailRoot(), pi.address).new, "001795953601000-x.json"), text);
			await later(1000);
			expect(pi.hasRunToPlay).toBe(true);
			await pi.run();
		},
	);

	test("PSM-084 counts for nothing until a run reads it, and then as all other mail", async () => {
		const pi = await seasonedPi();
		peer.send(pi, { ...quiet, hops: 2 });
		await later(1000);
		const payload: { to: string; body: string; envelope?: { hops: number } } = { to: peer.address, body: "x" };
		pi.events.emit("message:send", payload);
		expect(payload.envelope?.hops).toBe(0);
		peer.send(pi, { kind: "message", hops: 0 });
		await later(1000);
		expect(await hopsIn(pi)).toBe(3);
		// Once.
		peer.send(pi, { kind: "message", hops: 0 });
		await later(1000);
		expect(await hopsIn(pi)).toBe(1);
	});

	test("PSM-083 counts for nothing in a turn that the user starts", async () => {
		const pi = await seasonedPi();
		peer.send(pi, { ...quiet, hops: 2 });
		await later(1000);
		expect(await hopsIn(pi, "go on")).toBe(0);
	});
});

describe("wakeOn in the settings", () => {
	test("L2 lets no message of another kind start a turn, which the next one reads", async () => {
		setWakeOn({ kinds: ["request", "ask"] });
		const pi = await seasonedPi();
		const id = peer.send(pi, { kind: "message" });
		await later(60_000);
		expect([pi.hasRunToPlay, idsIn(pi), requestsOf(pi)]).toEqual([false, [id], 1]);
		peer.send(pi);
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run();
	});

	test("L3 keeps a request that was sent all the same from starting a turn; the next run answers it", async () => {
		setWakeOn({ kinds: ["message"] });
		const pi = await seasonedPi();
		const id = peer.send(pi);
		await later(60_000);
		expect([pi.hasRunToPlay, idsIn(pi)]).toEqual([false, [id]]);
		await pi.run({ prompt: "go on", text: "It is well." });
		expect(peer.received().map(({ in_reply_to, status }) => [in_reply_to, status])).toEqual([[[id], "done"]]);
	});

	test.each([
		["by its full id", (address: string) => [address.toUpperCase()], true],
		["by its name", () => ["planner"], true],
		["not by another name", () => ["Planner", "plan"], false],
		["not when nobody may", () => [], false],
	])("lets a sender start one %s", async (_, from, isWoken) => {
		const running = openRunning({
			disk: nodeDisk(),
			root: mailRoot(),
			processes: systemProcesses(),
			now: Date.now,
			warn: expect.fail,
		});
		running.own(peer.address, { name: "planner", cwd: "", state: "idle", waitingOn: "" });
		setWakeOn({ from: from(peer.address) });
		const pi = await seasonedPi();
		peer.send(pi);
		await later(1000);
		expect(pi.hasRunToPlay).toBe(isWoken);
		if (isWoken) await pi.run();
	});

	test("L3 has an ask that it excludes refused before anything is written, and nobody waits", async () => {
		setWakeOn({ kinds: ["request"] });
		const [pi, other] = [await seasonedPi(), await seasonedPi({ name: "other" })];
		const args = { to: "other", message: "what is it?" };
		await pi.run({ prompt: "ask", turns: [{ tools: [{ name: "session_mail_ask", args }] }] });
		expect(JSON.stringify(pi.session.getEntries())).toContain(
			`Nothing was sent: by its settings (wakeOn.kinds), other (${other.address}) takes no asks; leave a message for it.`,
		);
		expect([other.names("new"), pi.names("sent"), record(pi).waitingOn]).toEqual([[], [], ""]);
	});

	test("never keeps the person at the keyboard from anything", async () => {
		setWakeOn({ kinds: [], from: [] });
		const pi = await seasonedPi();
		await pi.run({ prompt: "go on", text: "Yes." });
		expect(requestsOf(pi)).toBe(2);
	});

	test("holds for late answers as for messages, and for no other reply", async () => {
		setWakeOn({ kinds: ["request"] });
		const pi = await seasonedPi();
		const ask = "11111111-2222-4333-8444-777777777777";
		const copy = join(boxesOf(mailRoot(), pi.address).sent, `000000000000001-${ask}.json`);
		writeFileSync(copy, envelopeText({ id: ask, from: pi.address, to: peer.address, kind: "ask" }));
		peer.send(pi, { kind: "reply", status: "done", inReplyTo: [ask] });
		await later(1000);
		expect([pi.hasRunToPlay, pi.mails().length]).toEqual([false, 1]);
	});

	test("L4 stands in the running record, also when it changes or goes", async () => {
		const pi = await seasonedPi();
		expect(record(pi).x.wakeOn).toBeUndefined();
		setWakeOn({ kinds: ["ask"], from: ["planner"] });
		await later(1000);
		expect(record(pi).x.wakeOn).toEqual({ kinds: ["ask"], from: ["planner"] });
		peer.send(pi);
		await later(1000);
		expect(pi.hasRunToPlay).toBe(false);
		rmSync(settingsFile());
		await later(1000);
		expect(record(pi).x.wakeOn).toBeUndefined();
		peer.send(pi);
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run();
	});

	test.each([[{ kinds: ["reply"] }], [{ kind: ["ask"] }], ["ask"], [{ from: ["x".repeat(129)] }], [null]])(
		"PSM-089 %j is said to be no such setting, and holds for nothing",
		async (wakeOn) => {
			setWakeOn(wakeOn);
			const pi = await seasonedPi();
			expect(pi.notifications).toEqual([expect.stringMatching(/: wakeOn(\.\S+)? (cannot be|has the unknown key)/)]);
			expect(record(pi).x.wakeOn).toBeUndefined();
		},
	);
});
