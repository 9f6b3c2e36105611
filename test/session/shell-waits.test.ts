import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { nodeDisk } from "../../src/mail/disk.ts";
import { systemProcesses } from "../../src/mail/process.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { openRunning } from "../../src/mail/running.ts";
import { envelopeText } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

/** The clock of the disk, which no test can move. */
const realNow = Date.now;
const ask = "11111111-2222-4333-8444-777777777777";
let pi: FakePi;
let peer: Peer;
beforeEach(async () => {
	peer = makePeer();
	pi = await startFakePi({ name: "ann" });
	await pi.run({ prompt: "hello" });
	await later(1000);
});

/** A process of this id waits in the session's shell for the answer to an ask to `peer`; returns what ends that. */
function wait(pid = process.pid, isNew = true): () => void {
	const processes = systemProcesses();
	const started = processes.startTokens([pid]).get(pid);
	const running = openRunning({
		disk: nodeDisk(),
		root: mailRoot(),
		processes: { ...processes, self: { ...processes.self, pid, started } },
		now: Date.now,
		warn() {},
	});
	const copy = join(mailRoot(), pi.address, "sent", `000000000000001-${ask}.json`);
	if (isNew) nodeDisk().create(copy, envelopeText({ id: ask, from: pi.address, to: peer.address, kind: "ask" }));
	const fields = { name: "bash", cwd: "/", state: "idle", waitingOn: "" } as const;
	return running.waitInShell(pi.address, { id: ask, to: peer.address, ticket: 7 }, fields);
}

const record = () => JSON.parse(readFileSync(join(mailRoot(), "running", `${pi.address}.json`), "utf8"));
const answer = (from = peer, inReplyTo = [ask]) =>
	from.send(pi, { kind: "reply", status: "done", inReplyTo, body: "the answer" });
const signs = () => existsSync(join(mailRoot(), pi.address, "waiting", `${ask}.json`));
/** More than any process has. */
const noPid = 2 ** 30;

describe("the answer that a program in the session's shell waits for", () => {
	test.each([
		["idle", () => later(3000)],
		["busy", () => pi.run({ prompt: "go", turns: [{ tools: 1, during: () => later(3000) }] })],
		[
			"stopped by its user",
			() => pi.run({ prompt: "go", end: "aborted", turns: [{ tools: 1, during: () => later(2000) }] }),
		],
	] satisfies [string, () => Promise<void>][])("L2 is left to it by a session that is %s", async (_, passes) => {
		wait();
		answer();
		await passes();
		expect(pi.names("new")).toHaveLength(1);
		expect(pi.mails()).toEqual([]);
		expect(pi.status.get("mailbox") ?? "").not.toContain("pending");
	});

	test("L2 enters the conversation as a late one when the program is gone, and wakes the session", async () => {
		wait(noPid);
		answer();
		await later(3000);
		await pi.run();
		expect(pi.mails()[0]?.text).toContain("That ask stopped waiting before this reply came.");
		expect(pi.mails()).toHaveLength(1);
		expect(pi.names("new")).toEqual([]);
		expect(signs()).toBe(false);
	});

	test("L2 enters it as well when the program ends without it", async () => {
		const end = wait();
		answer();
		await later(2000);
		expect(pi.mails()).toEqual([]);
		end();
		await later(2000);
		await pi.run();
		expect(pi.mails()).toHaveLength(1);
	});

	test("does not keep other mail out, nor what others send in its name", async () => {
		wait();
		peer.send(pi, { kind: "message", body: "something else" });
		answer(makePeer("01980f5e-7a3c-7d10-8f00-0000000000bb"));
		answer(peer, ["11111111-2222-4333-8444-888888888888"]);
		await later(2000);
		await pi.run();
		expect(pi.mails()).toHaveLength(3);
	});
});

describe("while a program in the session's shell waits, the session's record", () => {
	test("D13 says on whom, with its ticket, and not any more when it ends", async () => {
		const end = wait();
		await later(1500);
		expect(record()).toMatchObject({ waitingOn: peer.address, x: { ticket: 7 } });
		end();
		await later(1500);
		expect(record().waitingOn).toBe("");
		expect(record().x.ticket).toBeUndefined();
	});

	test("L5 says within a second on whom and for how long, also when the session is at rest and the program is killed", async () => {
		let minutes = 1;
		const first = wait();
		await later(1500);
		first();
		vi.setSystemTime(realNow() + minutes++ * 60_000);
		await later(3000);
		expect(record().waitingOn).toBe("");
		const program = spawn("sleep", ["600"]);
		wait(program.pid, false);
		await later(1000);
		expect(record().waitingOn).toBe(peer.address);
		vi.setSystemTime(realNow() + minutes++ * 60_000);
		await later(3000);
		program.kill("SIGKILL");
		await once(program, "close");
		await later(1000);
		expect(record().waitingOn).toBe("");
	});

	test("D13 says nothing of a program that is gone", async () => {
		wait(noPid);
		await later(1500);
		expect(record().waitingOn).toBe("");
		expect(signs()).toBe(false);
	});
});

test("D13 a session that would ask the one on whom it is waited for in a shell is refused at once", async () => {
	const other = await startFakePi({ name: "bob", id: "0197a3f2-2222-7000-8000-00000000000b" });
	peer = { ...peer, address: other.address };
	wait();
	// Before ann could publish it in her record.
	await other.run({
		prompt: "ask",
		turns: [{ tools: [{ name: "session_mail_ask", args: { to: "ann", message: "?" } }] }],
	});
	const results = other.session.getEntries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		return [(entry.message.details as { error?: { code: string } }).error?.code];
	});
	expect(results).toEqual(["ring"]);
});

describe("the hop count in the session's record", () => {
	const hops = () => record().x.hops;

	test("PSM-083/084 is that of the run that goes on: what woke it, and 0 once its user takes part", async () => {
		expect(hops()).toBe(0);
		peer.send(pi, { kind: "message", hops: 2 });
		await later(1500);
		let woken: unknown;
		let typed: unknown;
		await pi.run({
			turns: [
				{
					tools: 1,
					during: async () => {
						woken = hops();
						await pi.typeAhead("and this");
						typed = hops();
					},
				},
			],
		});
		expect([woken, typed]).toEqual([3, 0]);
	});

	test("PSM-084 stays after the run, so that what it left behind does not count anew; a person who types resets it", async () => {
		peer.send(pi, { kind: "message", hops: 4 });
		await later(1500);
		await pi.run();
		await later(1500);
		expect(record().state).toBe("idle");
		expect(hops()).toBe(5);
		await pi.run({ prompt: "hello again" });
		expect(hops()).toBe(0);
	});

	test("PSM-084 rises in a run that mail steers", async () => {
		peer.send(pi, { kind: "message", hops: 0 });
		await later(1500);
		let before: unknown;
		let after: unknown;
		await pi.run({
			turns: [
				{
					tools: 1,
					during: () => {
						before = hops();
						peer.send(pi, { kind: "message", hops: 3 });
					},
				},
				{
					tools: 1,
					during: () => {
						after = hops();
					},
				},
			],
		});
		expect([before, after]).toEqual([1, 4]);
	});
});

test("D22 a session whose id is of the kind that programs without a name get has no mailbox, and says so", async () => {
	const other = await startFakePi({ id: "ask-abcdefgh01234567" });
	await later(1000);
	expect(other.notifications.join("\n")).toContain("cannot be an address");
});
