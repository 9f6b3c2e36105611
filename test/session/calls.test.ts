import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { beforeEach, describe, expect, test } from "vitest";
import { thisMachine } from "../../src/index.ts";
import { boxesOf } from "../../src/mail/boxes.ts";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { openTicketStore } from "../../src/policy/tickets.ts";
import { mailDetails } from "../../src/session/ledger.ts";
import { callsHost } from "../support/calls.ts";
import { fail, watchedDisk } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import {
	type Extension,
	type FakePi,
	type FakePiOptions,
	machine,
	makePeer,
	type Peer,
	startFakePi,
} from "../support/fake-pi.ts";

useFakeMachine();

let host: ReturnType<typeof callsHost>;
let peer: Peer;
beforeEach(() => {
	host = callsHost();
	peer = makePeer();
});

/** A session whose file exists, under these settings, with one rule: bash is handed back after a second. */
async function session(
	settings: object = {},
	options: FakePiOptions & { others?: Extension[]; disk?: Disk } = {},
): Promise<FakePi> {
	const { others = [], disk = nodeDisk(), ...more } = options;
	const rules = [{ tool: "bash", attachSeconds: 1 }];
	writeFileSync(settingsFile(), JSON.stringify({ toolPolicy: { rules }, ...settings }));
	const own = host.extension({ ...thisMachine(), settingsFile, disk });
	const pi = await startFakePi({ builtIns: ["bash"], extensions: [...others, own], ...more });
	await pi.run({ prompt: "hello" });
	await later(1000);
	return pi;
}

const settingsFile = () => join(machine.home, "session-mail.json");
/** A tool that does nothing. */
const nothing = [{ name: "none" }];
/** A tool of another extension, whose arguments are its own business. */
const other: Parameters<ExtensionAPI["registerTool"]>[0] = {
	...{ name: "none", label: "none", description: "Does nothing" },
	parameters: { type: "object", properties: { text: { type: "string" } } },
	execute: async () => ({ content: [], details: undefined }),
};
const bash = { name: "bash", args: { command: "make" } };

/** Lets the model call bash, which is handed back, and end its run. Returns the call's id. */
async function detached(pi: FakePi): Promise<string> {
	await pi.run({ prompt: "build it", turns: [{ tools: [bash], during: () => later(1000) }] });
	return /call-[a-z0-9]{16}/.exec(toolResults(pi).at(-1) ?? "")?.[0] ?? expect.fail("it was not handed back");
}

/** What the extension says to each call before it is made. */
function listening(extension: Extension, said: (answer: unknown) => void): Extension {
	return (pi) => {
		const on = (name: string, handler: (...given: unknown[]) => unknown) =>
			Reflect.apply(pi.on, pi, [
				name,
				async (...given: unknown[]) => {
					const answer = await handler(...given);
					if (name === "tool_call") said(answer);
					return answer;
				},
			]);
		return extension(new Proxy(pi, { get: (of, key) => (key === "on" ? on : Reflect.get(of, key)) }));
	};
}

function toolResults(pi: FakePi): string[] {
	return pi.session.getEntries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		return [entry.message.content.map((part) => (part.type === "text" ? part.text : "")).join("")];
	});
}

/** The results that came as mail: what the model sees of them. */
function results(pi: FakePi) {
	return pi.session.getEntries().flatMap((entry) => {
		return entry.type === "custom_message" && mailDetails(entry.details)?.kind === "result" ? [entry.content] : [];
	});
}

function control(pi: FakePi, op: "pause" | "resume" | "stop" | "cancel", calls?: string[]): void {
	peer.send(pi, { kind: "control", body: op, control: { op, calls } });
}

/** What another session has the session do, at once. */
async function told(pi: FakePi, op: Parameters<typeof control>[1]): Promise<void> {
	control(pi, op);
	await later(1000);
	// What it starts is done a moment later.
	await later(100);
}

const requests = (pi: FakePi) => pi.log.filter((name) => name === "context").length;

test("L10 a session that its host has dropped says nothing of calls that wait since an earlier process", async () => {
	const toolPolicy = { permissions: { default: "ask" } };
	writeFileSync(settingsFile(), JSON.stringify({ toolPolicy }));
	const own = () => host.extension({ ...thisMachine(), settingsFile });
	const start = () => startFakePi({ builtIns: ["bash"], extensions: [own()], id: "worker-1" });
	const first = await start();
	await first.shutDown("quit");
	const call = { session: "worker-1", callId: "c", tool: "bash", arguments: {}, message: "?" };
	openTicketStore(nodeDisk(), boxesOf(mailRoot(), "worker-1").folder, Date.now).open({
		...call,
		resume: "replay_tool_call",
	});
	const pi = await start();
	await later(900);
	pi.dispose();
	await later(5000);
	expect(pi.notifications).toEqual([]);
	const other = await start();
	await later(5000);
	expect(other.notifications).toEqual([expect.stringContaining("1 call of this session still waits")]);
});

test("L2 the policy of a trusted project holds where the person has none", async () => {
	writeFileSync(settingsFile(), "{}");
	mkdirSync(join(machine.home, ".pi"), { recursive: true });
	const permissions = { rules: [{ pattern: "bash(rm *)", behavior: "deny" }] };
	writeFileSync(join(machine.home, ".pi", "session-mail.json"), JSON.stringify({ toolPolicy: { permissions } }));
	const answers: unknown[] = [];
	const start = (isTrusted: boolean) => {
		const own = host.extension({ ...thisMachine(), settingsFile });
		return startFakePi({ builtIns: ["bash"], extensions: [listening(own, (it) => answers.push(it))], isTrusted });
	};
	const call = { toolName: "bash", toolCallId: "1", input: { command: "rm -rf a" } };
	await (await start(true)).emit("tool_call", call);
	expect(answers).toEqual([{ block: true, reason: expect.stringContaining("rule 1 of the project's settings") }]);
	await (await start(false)).emit("tool_call", call);
	expect(answers).toHaveLength(1);
});

test("L2 a session without a mailbox makes what is allowed, and blocks what is denied, asked about or told to a hook", async () => {
	const permissions = {
		rules: [
			{ pattern: "bash(rm *)", behavior: "deny" },
			{ pattern: "bash(git *)", behavior: "ask" },
		],
	};
	const wrappers = [{ match: { tool: "write" }, before: { command: "true" } }];
	writeFileSync(settingsFile(), JSON.stringify({ toolPolicy: { permissions, wrappers } }));
	const answers: unknown[] = [];
	const own = listening(host.extension({ ...thisMachine(), settingsFile }), (answer) => answers.push(answer));
	const pi = await startFakePi({ builtIns: ["bash"], extensions: [own], id: "running" });
	await later(1000);
	expect(pi.notifications).toEqual([expect.stringContaining("mailbox is off")]);
	const commands = ["ls", "rm -rf a", "git push"].map((command) => ({ name: "bash", args: { command } }));
	const during = async () => {
		await later(100);
		for (const job of host.jobs) job.end("");
	};
	await pi.run({ prompt: "go", turns: [{ tools: [...commands, { name: "write" }], during }] });
	expect(answers).toEqual([
		undefined,
		{ block: true, reason: expect.stringContaining("denied by permission rules (rule 1 of") },
		{ block: true, reason: expect.stringMatching(/asked about \(rule 2 of .* mailbox that this session does not/) },
		{ block: true, reason: expect.stringContaining("asked about (by a hook)") },
	]);
});

describe("the result of a call", () => {
	test("SMB-029 wakes an idle session, once", async () => {
		const pi = await session();
		const id = await detached(pi);
		host.jobs[0]?.end("built");
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run({ text: "It is built." });
		await later(60_000);
		expect(results(pi)).toEqual([expect.stringContaining(`Your call ${id} (bash) has completed`)]);
		expect([pi.hasRunToPlay, pi.status.get("mailbox"), pi.openCount]).toEqual([false, "✉ 1 read", 0]);
	});

	test("SMB-035 ends the wait for it, which names the call, and comes after it", async () => {
		const pi = await session();
		const id = await detached(pi);
		const during = async () => {
			await later(5000);
			host.jobs[0]?.end("built");
			await later(100);
		};
		const wait = { name: "session_mail_wait", args: { for: id, timeout_seconds: 300 } };
		await pi.run({ prompt: "wait", turns: [{ tools: [wait], during }] });
		expect(toolResults(pi).at(-1)).toBe(`${id} has ended. Its result comes as mail; session_call_status shows it now.`);
		expect(results(pi)).toHaveLength(1);
		expect(pi.hasRunToPlay).toBe(false);
	});

	test("SMB-036 a wait is not ended by mail that the user wants none of, though it was claimed before", async () => {
		const pi = await session();
		const claimed = async () => {
			peer.send(pi, { kind: "message", body: "first" });
			pi.events.emit("message:scan", {});
			await pi.type("/mailbox off");
			expect(pi.openCount).toBe(1);
		};
		const wait = { name: "session_mail_wait", args: { for: "mail", timeout_seconds: 20 } };
		const turns = [
			{ tools: nothing, during: claimed },
			{ tools: [wait], during: () => later(30_000) },
		];
		await pi.run({ prompt: "wait", turns });
		expect(toolResults(pi).at(-1)).toBe("Nothing came within 20 s.");
	});

	test("SMB-036 of another call ends a wait as mail does", async () => {
		const pi = await session();
		const first = await detached(pi);
		await detached(pi);
		const during = async () => {
			host.jobs[1]?.end("built");
			await later(1100);
		};
		const wait = { name: "session_mail_wait", args: { for: first } };
		await pi.run({ prompt: "wait", turns: [{ tools: [wait], during }] });
		expect(toolResults(pi).at(-1)).toBe("Mail has come; it follows.");
	});

	test("SMB-031 brings its images", async () => {
		const pi = await session();
		await detached(pi);
		const image = { type: "image" as const, data: "aGk=", mimeType: "image/png" };
		host.jobs[0]?.endWith([{ type: "text", text: "see" }, image]);
		await later(1000);
		await pi.run({});
		expect(results(pi)).toEqual([[{ type: "text", text: expect.stringContaining("\n\nsee\n(image)\n\n") }, image]]);
	});

	test("L2 comes without its images when their file is gone", async () => {
		const pi = await session();
		await detached(pi);
		const image = { type: "image" as const, data: "aGk=", mimeType: "image/png" };
		await pi.run({
			prompt: "go on",
			during() {
				host.jobs[0]?.endWith([{ type: "text", text: "see" }, image]);
			},
		});
		rmSync(join(mailRoot(), pi.address, "results"), { recursive: true });
		await later(1000);
		await pi.run({});
		expect(results(pi)).toEqual([expect.stringContaining("\n\nsee\n(image)\n\n")]);
	});

	test("SMB-030 that the model has read is one line, with no image, and starts no turn", async () => {
		const pi = await session();
		const id = await detached(pi);
		const status = { name: "session_call_status", args: { id, wait_seconds: 10 } };
		const image = { type: "image" as const, data: "aGk=", mimeType: "image/png" };
		const during = async () => {
			host.jobs[0]?.endWith([{ type: "text", text: "see" }, image]);
			await later(100);
		};
		await pi.run({ prompt: "how is it?", turns: [{ tools: [status], during }] });
		await later(2000);
		expect(toolResults(pi).at(-1)).toBe(`${id} (bash): completed.\n\nsee`);
		expect(results(pi)).toEqual([`[mailbox] Your call ${id} (bash) has completed. You have read its result already.`]);
		expect(pi.hasRunToPlay).toBe(false);
	});

	test.each(["quit", "reload", "new"] as const)(
		"SMB-034 of one that a %s cut short starts no run on its way out",
		async (reason) => {
			const pi = await session();
			await detached(pi);
			const before = pi.sent.length;
			await pi.shutDown(reason);
			expect([pi.sent.length, pi.hasRunToPlay]).toEqual([before, false]);
			expect(host.jobs[0]?.isStopped).toBe(true);
			expect(readdirSync(join(mailRoot(), pi.address, "calls"))).toEqual([]);
			const again = await session({}, { file: pi.file });
			await later(1000);
			if (again.hasRunToPlay) await again.run({});
			expect(results(again)).toEqual([
				expect.stringMatching(/was cancelled\. This is its result\.\n\nthe session was closed/),
			]);
		},
	);

	test("SMB-034 of one whose process was killed comes at a /reload as well, once", async () => {
		const pi = await session();
		const id = await detached(pi);
		await pi.reload();
		await later(2000);
		if (pi.hasRunToPlay) await pi.run({});
		await pi.reload();
		await later(2000);
		expect(results(pi)).toEqual([expect.stringContaining(`Your call ${id} (bash) was cancelled.`)]);
	});

	test.each([
		["that was made", undefined],
		["that nobody has decided about", { rules: [{ pattern: "bash", behavior: "ask", attachSeconds: 0 }] }],
	])(
		"of a session that is not saved is nobody's when it ends, and its files go: one %s",
		async (_what, permissions) => {
			const rules = [{ tool: "bash", attachSeconds: 1 }];
			const pi = await session({ toolPolicy: { rules, permissions } }, { isSaved: false });
			await detached(pi);
			await pi.shutDown();
			expect(readdirSync(join(mailRoot(), pi.address, "calls"))).toEqual([]);
			expect(pi.names("new")).toEqual([]);
		},
	);

	test("L3 that somebody is asked about is cancelled when its session, which is not saved, ends", async () => {
		const permissions = { rules: [{ pattern: "bash", behavior: "ask", attachSeconds: 1 }] };
		const pi = await session({ toolPolicy: { permissions } }, { isSaved: false });
		await detached(pi);
		const store = openTicketStore(nodeDisk(), boxesOf(mailRoot(), pi.address).folder, Date.now);
		expect(store.listPending()).toHaveLength(1);
		await pi.shutDown();
		expect([store.listPending(), store.listDecided()]).toEqual([[], []]);
	});

	test("D20 is waited for where a script asked for it", async () => {
		const pi = await session({}, { mode: "print" });
		const during = async () => {
			await later(5000);
			host.jobs[0]?.end("built");
		};
		await pi.run({ prompt: "build it", turns: [{ tools: [bash], during }] });
		expect(toolResults(pi)).toEqual(["built"]);
	});

	test("SMB-043 that comes while the session is paused waits, and starts a turn when it may go on", async () => {
		const pi = await session();
		await detached(pi);
		await told(pi, "pause");
		host.jobs[0]?.end("built");
		await later(10_000);
		expect([results(pi), pi.hasRunToPlay, pi.status.get("mailbox")]).toEqual([[], false, "✉ paused · 1 pending"]);
		await told(pi, "resume");
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run({});
		expect(results(pi)).toHaveLength(1);
	});
});

describe("a pause", () => {
	const goesOn = "[mailbox] The user paused this session, and lets it go on now.";
	const wentOn = (pi: FakePi) => pi.sent.filter(({ text }) => text === goesOn).length;

	test("SMB-043 ends a run after its tools, and the run goes on when the session may", async () => {
		const pi = await session();
		const before = requests(pi);
		await pi.run({ prompt: "work", turns: [{ tools: nothing, during: () => told(pi, "pause") }] });
		await later(10_000);
		expect([requests(pi) - before, pi.hasRunToPlay]).toEqual([2, false]);
		await told(pi, "resume");
		expect([pi.hasRunToPlay, wentOn(pi)]).toEqual([true, 1]);
		await pi.run({});
		await told(pi, "resume");
		expect([pi.hasRunToPlay, wentOn(pi)]).toEqual([false, 1]);
	});

	test("SMB-043 gives the calls that a run waits for back", async () => {
		const pi = await session({ toolPolicy: { rules: [{ tool: "bash" }] } });
		await pi.run({ prompt: "work", turns: [{ tools: [bash], during: () => told(pi, "pause") }] });
		expect(toolResults(pi)).toEqual([expect.stringContaining('"status":"running"')]);
	});

	test("L3 while the model gives its last answer lets that be one: what is asked is answered, and nothing goes on later", async () => {
		const pi = await session();
		peer.send(pi, { body: "is it well?" });
		await later(1000);
		await pi.run({ text: "It is well.", during: () => told(pi, "pause") });
		await later(1000);
		expect(peer.received()).toMatchObject([{ kind: "reply", status: "done", body: "It is well." }]);
		await told(pi, "resume");
		expect([pi.hasRunToPlay, wentOn(pi)]).toEqual([false, 0]);
	});

	test("L3 of a run that works on a request leaves it owed, and the run that goes on answers it", async () => {
		const pi = await session();
		peer.send(pi, { body: "is it well?" });
		await later(1000);
		await pi.run({ turns: [{ tools: nothing, during: () => told(pi, "pause") }] });
		await later(1000);
		expect(peer.received()).toEqual([]);
		await told(pi, "resume");
		await pi.run({ text: "It is well." });
		await later(1000);
		expect(peer.received()).toMatchObject([{ kind: "reply", status: "done", body: "It is well." }]);
	});

	test("leaves the user's own prompts alone, and what the user has gone on with goes on once", async () => {
		const pi = await session();
		await pi.run({ prompt: "work", turns: [{ tools: nothing, during: () => told(pi, "pause") }] });
		const before = requests(pi);
		await pi.run({ prompt: "no, do this", turns: [{ tools: nothing }, { tools: nothing }] });
		expect(requests(pi) - before).toBe(3);
		await told(pi, "resume");
		expect([pi.hasRunToPlay, wentOn(pi)]).toEqual([false, 0]);
	});

	test("L2 that ends while the run that it has ended still settles lets that go on", async () => {
		let resume = async () => {};
		const pi = await session({}, { others: [(api) => api.on("agent_end", () => resume())] });
		resume = () => told(pi, "resume");
		await pi.run({ prompt: "work", turns: [{ tools: nothing, during: () => told(pi, "pause") }] });
		resume = async () => {};
		await later(1000);
		expect([pi.hasRunToPlay, wentOn(pi)]).toEqual([true, 1]);
	});

	test("SMB-043 that comes while Pi prepares the run of a mail ends that run after its tools", async () => {
		const pi = await session();
		peer.send(pi);
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
		await told(pi, "pause");
		const before = requests(pi);
		await pi.run({ turns: [{ tools: nothing }, { tools: nothing }, { tools: nothing }] });
		expect(requests(pi) - before).toBe(2);
		await told(pi, "resume");
		await pi.run({ text: "It is well." });
		await later(1000);
		expect(peer.received()).toMatchObject([{ kind: "reply", body: "It is well." }]);
	});

	test("L2 that ends before the tools do ends nothing", async () => {
		const pi = await session();
		const during = async () => {
			await told(pi, "pause");
			await told(pi, "resume");
		};
		await pi.run({ prompt: "work", turns: [{ tools: nothing, during }], text: "done" });
		await later(1000);
		expect(pi.session.getEntries().at(-1)).toMatchObject({ message: { stopReason: "stop" } });
		expect([pi.hasRunToPlay, wentOn(pi)]).toEqual([false, 0]);
	});

	test("SMB-044 holds over a restart, and is done once", async () => {
		const pi = await session();
		await told(pi, "pause");
		await pi.shutDown();
		const again = await startFakePi({ file: pi.file });
		await later(2000);
		expect([again.status.get("mailbox"), again.openCount]).toEqual(["✉ paused", 0]);
		peer.send(again);
		await later(2000);
		expect(again.hasRunToPlay).toBe(false);
		await told(again, "resume");
		expect(again.hasRunToPlay).toBe(true);
		await again.run({});
		expect(again.mails()).toHaveLength(1);
	});

	test("of its own session is no pause of a fork", async () => {
		const pi = await session();
		await told(pi, "pause");
		const file = pi.session.createBranchedSession(pi.session.getLeafId() ?? "");
		const fork = await startFakePi({ file: file ?? "" });
		expect(fork.address).not.toBe(pi.file);
		await later(2000);
		expect(fork.status.get("mailbox")).toBeUndefined();
	});
});

describe("other control", () => {
	test("SMB-046 a stop ends the run as the user's stop does, and is never shown", async () => {
		const pi = await session();
		await pi.run({ prompt: "work", turns: [{ tools: nothing, during: () => told(pi, "stop") }] });
		await later(2000);
		expect(pi.log.filter((name) => name === "agent_settled")).toHaveLength(2);
		expect([pi.mails(), pi.hasRunToPlay, pi.openCount]).toEqual([[], false, 0]);
	});

	test("SMB-046 a stop of a session that does nothing does nothing, also later", async () => {
		const pi = await session();
		await told(pi, "stop");
		await pi.run({ prompt: "work", turns: [{ tools: nothing }], text: "done" });
		expect(pi.session.getEntries().at(-1)).toMatchObject({ message: { stopReason: "stop" } });
	});

	test("SMB-046 a stop that waited for a session to start ends none of its runs", async () => {
		const pi = await session();
		await pi.shutDown();
		control(pi, "stop");
		await later(1000);
		const again = await startFakePi({
			file: pi.file,
			extensions: [host.extension({ ...thisMachine(), settingsFile })],
			builtIns: ["bash"],
		});
		// It is there before the session looks at its mail.
		await again.run({ prompt: "work", turns: [{ tools: nothing, during: () => later(5000) }], text: "done" });
		expect(again.session.getEntries().at(-1)).toMatchObject({ message: { stopReason: "stop" } });
		expect(again.openCount).toBe(0);
	});

	test("SMB-047 a cancel names its calls, or means all that nobody waits for", async () => {
		const pi = await session();
		const first = await detached(pi);
		await detached(pi);
		control(pi, "cancel", [first]);
		await later(1000);
		expect(host.jobs.map(({ isStopped }) => isStopped)).toEqual([true, false]);
		await pi.run({});
		await told(pi, "cancel");
		expect(host.jobs.map(({ isStopped }) => isStopped)).toEqual([true, true]);
	});

	test("L7 that says nothing that is known does nothing, and is done with", async () => {
		const pi = await session();
		peer.send(pi, { kind: "control", body: "dance" });
		await later(2000);
		expect([pi.mails(), pi.openCount, pi.names("new")]).toEqual([[], 0, []]);
	});
});

describe("an interrupt", () => {
	const interrupt = (pi: FakePi, draft: object = {}) =>
		peer.send(pi, { priority: "interrupt", body: "stop that", ...draft });

	test("SMB-041 hands every call back, and its mail is in the next request", async () => {
		const pi = await session({ toolPolicy: { rules: [{ tool: "bash" }] } });
		const during = async () => {
			interrupt(pi);
			await later(1000);
		};
		await pi.run({ prompt: "work", turns: [{ tools: [bash, bash, bash], during }] });
		expect(toolResults(pi).map((text) => JSON.parse(text).detached)).toEqual(Array(3).fill("interrupted by mail"));
		expect(pi.mails()).toEqual([expect.objectContaining({ text: expect.stringContaining("stop that") })]);
	});

	test("SMB-040 of a session that the user has not named is mail like any other", async () => {
		const pi = await session({ toolPolicy: { rules: [{ tool: "bash" }] } });
		const during = async () => {
			interrupt(pi, { kind: "message" });
			await later(2000);
			expect(toolResults(pi)).toEqual([]);
			host.jobs[0]?.end("built");
		};
		await pi.run({ prompt: "work", turns: [{ tools: [bash], during }] });
		expect(toolResults(pi)).toEqual(["built"]);
		expect(pi.mails()).toHaveLength(1);
	});

	test("SMB-042 does not stop a model that writes, unless the settings say so", async () => {
		const pi = await session();
		const during = async () => {
			interrupt(pi);
			await later(2000);
		};
		await pi.run({ prompt: "write", text: "a long answer", during });
		expect(pi.session.getEntries().at(-1)).toMatchObject({ message: { stopReason: "stop" } });
	});

	test.each<[string, object, Extension[]]>([
		["by its settings starts no turn", { wakeOn: { kinds: [] } }, []],
		[
			"another extension takes over",
			{},
			[(api) => api.events.on("message:inbound", (mail) => Object.assign(Object(mail), { handled: true }))],
		],
	])("L3 SMB-042 a run that one has stopped goes on though its mail %s", async (_what, settings, others) => {
		const pi = await session({ interruptCompletions: true, ...settings }, { others });
		const during = async () => {
			interrupt(pi);
			await later(2000);
		};
		await pi.run({ prompt: "write", text: "a long answer", during });
		await later(2000);
		expect(pi.session.getEntries().some((entry) => JSON.stringify(entry).includes('"stopReason":"aborted"'))).toBe(
			true,
		);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run({ text: "the rest" });
		await later(2000);
		expect(pi.hasRunToPlay).toBe(false);
	});

	test("SMB-042 a run that one has stopped goes on with its mail, and with nothing else", async () => {
		const pi = await session({ interruptCompletions: true });
		const during = async () => {
			interrupt(pi);
			await later(2000);
		};
		await pi.run({ prompt: "write", text: "a long answer", during });
		await later(2000);
		const starts = pi.sent.filter(({ startsRun }) => startsRun);
		expect(starts.map(({ text }) => text)).toEqual([expect.stringContaining("stop that")]);
	});
});

test("calls are listed by the label that the settings give them, too", async () => {
	const toolPolicy = {
		rules: [{ tool: "bash", attachSeconds: 1 }],
		wrappers: [{ match: { tool: "bash" }, label: "build" }],
	};
	const pi = await session({ toolPolicy });
	await detached(pi);
	await Promise.all([pi.type("/mailbox calls"), later(1000)]);
	expect(pi.notifications.at(-1)).toContain("build (bash)");
});

test("a policy that is set first while Pi runs is said to need a restart, once", async () => {
	const pi = await session({ toolPolicy: undefined });
	expect(pi.notifications).toEqual([]);
	writeFileSync(settingsFile(), JSON.stringify({ toolPolicy: { rules: [{ tool: "bash" }] } }));
	await later(10_000);
	const unused = "toolPolicy is set, but this session was started without it, so none of it holds here";
	expect(pi.notifications).toEqual([`mailbox: ${unused}: restart Pi; /reload is not enough`]);
	await pi.type("/mailbox policy bash rm x");
	expect(pi.notifications.at(-1)).toBe(`${unused}: restart Pi; /reload is not enough.`);
	await Promise.all([pi.type("/mailbox doctor"), later(1000)]);
	expect(pi.notifications.at(-1)).toContain(`warning: ${unused}\n    restart Pi; /reload is not enough`);
});

test.each([true, false])(
	"a project's policy that is set first while Pi runs is said to need a restart, once, where it is trusted: %s",
	async (isTrusted) => {
		writeFileSync(settingsFile(), "{}");
		const own = host.extension({ ...thisMachine(), settingsFile });
		const pi = await startFakePi({ builtIns: ["bash"], extensions: [own], isTrusted });
		await later(10_000);
		const file = join(machine.home, ".pi", "session-mail.json");
		mkdirSync(join(machine.home, ".pi"), { recursive: true });
		writeFileSync(file, JSON.stringify({ toolPolicy: { rules: [] } }));
		await later(20_000);
		// Of a project's policy the permissions hold.
		expect(pi.notifications).toEqual([]);
		const permissions = { rules: [{ pattern: "bash", behavior: "deny" }] };
		writeFileSync(file, JSON.stringify({ toolPolicy: { permissions } }));
		await later(20_000);
		const unused = `toolPolicy is set in ${file}, but this session was started without it, so none of it holds here`;
		const once = isTrusted ? [`mailbox: ${unused}: restart Pi; /reload is not enough`] : [];
		expect(pi.notifications).toEqual(once);
		await pi.type("/mailbox policy bash rm x");
		expect(pi.notifications.at(-1)?.startsWith(unused)).toBe(isTrusted);
		await Promise.all([pi.type("/mailbox doctor"), later(1000)]);
		expect(pi.notifications.at(-1)?.includes(`warning: ${unused}`)).toBe(isTrusted);
	},
);

test("what of a policy cannot apply is said once at the start, in one line; what may be meant is not", async () => {
	const wrappers = [{ match: { tool: "*" }, timeoutSeconds: 60 }];
	const one = await session({ toolPolicy: { rules: [{ tool: "bsh" }], wrappers } });
	await later(1000);
	expect(one.notifications).toEqual([
		"mailbox: toolPolicy: the rule for bsh, which fits none of the tools that there are; did you mean bash?",
	]);
	const rules = [
		{ pattern: "*", behavior: "allow" },
		{ pattern: "bash(rm *)", behavior: "ask" },
		{ pattern: "mcp__*", behavior: "deny" },
	];
	const more = await session({ toolPolicy: { rules: [{ tool: "bsh" }], permissions: { rules } } });
	await later(1000);
	expect(more.notifications).toEqual(["mailbox: 2 parts of toolPolicy cannot apply: /mailbox doctor names them"]);
	await Promise.all([more.type("/mailbox doctor"), later(1000)]);
	expect(more.notifications.at(-1)).toMatch(
		/rule 2 of the settings: ask .* never decides: .*\n {4}change toolPolicy.permissions/,
	);
	expect(more.notifications.at(-1)).toMatch(/did you mean bash\?\n {4}change toolPolicy.rules in the settings\n/);
	expect(more.notifications.at(-1)).toContain("deny mcp__*, which fits none of the tools that there are");
});

test("an argument that Pi's own tool does not have is said at the start, and by doctor with how to mend it", async () => {
	const rules = ['bash(comand~"rm *")', 'none(x="1")'].map((pattern) => ({ pattern, behavior: "deny" }));
	const pi = await session({ toolPolicy: { permissions: { rules } } }, { others: [(api) => api.registerTool(other)] });
	await later(1000);
	const what =
		'rule 1 of the settings: deny bash(comand~"rm *"), which names an argument that its tool does not have: comand';
	expect(pi.notifications).toEqual([`mailbox: toolPolicy: ${what}; did you mean command?`]);
	await Promise.all([pi.type("/mailbox doctor"), later(1000)]);
	expect(pi.notifications.at(-1)).toContain(
		`warning: ${what}; did you mean command?\n    change toolPolicy.permissions`,
	);
	expect(pi.notifications.at(-1)).not.toContain("none(x");
});

test("L2 settings that cannot be read just now are said where a call is looked at, and the last good policy holds", async () => {
	let isBroken = false;
	const disk = watchedDisk(({ name, paths }) => {
		if (isBroken && name === "read" && paths[0] === settingsFile()) fail("EIO");
	});
	const permissions = { rules: [{ pattern: "bash", behavior: "deny" }] };
	writeFileSync(settingsFile(), JSON.stringify({ toolPolicy: { permissions } }));
	const own = host.extension({ ...thisMachine(), settingsFile, disk });
	const pi = await startFakePi({ builtIns: ["bash"], extensions: [own] });
	await later(1000);
	isBroken = true;
	await pi.emit("tool_call", { toolName: "bash", toolCallId: "1", input: {} });
	expect(pi.notifications).toEqual([
		expect.stringMatching(/is not used: EIO\b.*, so the last good toolPolicy holds until it is mended$/),
	]);
});

test("L1 L2 another session that is to decide is asked, once, also where the first try came to nothing", async () => {
	let isFull = true;
	const disk = watchedDisk(({ name, paths }) => {
		if (isFull && name === "create" && paths[0]?.includes(`/${peer.address}/tmp/`)) fail("ENOSPC");
	});
	const permissions = { rules: [{ pattern: "bash", behavior: "ask", approver: peer.address, attachSeconds: 0 }] };
	writeFileSync(settingsFile(), JSON.stringify({ toolPolicy: { permissions } }));
	const start = async (more: FakePiOptions = {}) => {
		const own = host.extension({ ...thisMachine(), settingsFile, disk });
		const pi = await startFakePi({ builtIns: ["bash"], extensions: [own], ...more });
		await later(1000);
		return pi;
	};
	const first = await start();
	await first.run({ prompt: "build it", turns: [{ tools: [bash], during: () => later(1000) }] });
	expect(peer.received()).toEqual([]);
	isFull = false;
	first.kill();
	for (let n = 0; n < 2; n++) {
		const next = await start({ id: first.address, file: first.file });
		expect(peer.received().map(({ body }) => body)).toEqual([expect.stringContaining("waits for your decision")]);
		next.kill();
	}
});

const asksAboutBash = {
	toolPolicy: { permissions: { rules: [{ pattern: "bash", behavior: "ask", attachSeconds: 0 }] } },
};

/** A session whose call of bash waits for a decision. */
async function asked() {
	let isDead = false;
	let broken = "";
	const disk = watchedDisk(({ paths }) => {
		if (isDead || (broken !== "" && paths.some((path) => path.includes(broken)))) fail("EIO");
	});
	const pi = await session(asksAboutBash, { disk });
	await pi.run({ prompt: "build it", turns: [{ tools: [bash], during: () => later(1000) }] });
	const kill = () => {
		isDead = true;
		return pi.kill();
	};
	return {
		pi,
		kill,
		/** From now on what lies there cannot be reached. */
		breakOff(part: string) {
			broken = part;
		},
	};
}

describe.each(["kill", "quit"] as const)("a call that is decided about after a %s", (end) => {
	/** A session that was ended so while its call of bash waited for a decision, and what is known of that. */
	async function ended() {
		const { pi, kill } = await asked();
		const [, call = ""] = /"tool_call_id":"([^"]+)"/.exec(toolResults(pi).at(-1) ?? "") ?? [];
		if (end === "kill") await kill();
		else await pi.shutDown(end);
		const store = openTicketStore(nodeDisk(), boxesOf(mailRoot(), pi.address).folder, Date.now);
		const ticket = store.listPending()[0]?.id ?? expect.fail("nobody was asked");
		return { ticket, call, store, again: () => session(asksAboutBash, { file: pi.file }) };
	}

	const decision = { decision_id: "d", by: { kind: "person", who: "Ann" } } as const;

	test.each([
		["resume", /was approved by Ann\. It was not made: make it again now, .*\n\{"command":"make"\}\n/],
		["cancel", /was refused: by Ann\.\nIt was not made: bash: make\n/],
	] as const)("L2 L3 brings one notice at the next start, the decision: %s", async (action, said) => {
		const { ticket, call, store, again } = await ended();
		store.decide(ticket, { ...decision, action, at: Date.now() });
		const pi = await again();
		await later(2000);
		if (pi.hasRunToPlay) await pi.run({});
		await later(2000);
		expect(results(pi)).toEqual([expect.stringMatching(said)]);
		const status = { name: "session_call_status", args: { id: call } };
		await pi.run({ prompt: "how is it?", turns: [{ tools: [status] }] });
		expect(toolResults(pi).at(-1)).toContain("It was not made: the decision about it comes as mail.");
		expect(readdirSync(join(mailRoot(), pi.address, "calls"))).toEqual([]);
	});

	test("L3 brings a notice that it was not made at the next start, and the decision when there is one", async () => {
		const { ticket, store, again } = await ended();
		const pi = await again();
		await later(2000);
		if (pi.hasRunToPlay) await pi.run({});
		const notMade = expect.stringContaining(`It was not made. The question ${ticket} still waits`);
		expect(results(pi)).toEqual([notMade]);
		store.decide(ticket, { ...decision, action: "cancel", at: Date.now() });
		await later(2000);
		if (pi.hasRunToPlay) await pi.run({});
		expect(results(pi)).toEqual([notMade, expect.stringContaining("was refused: by Ann.")]);
	});
});

test("L4 a call that nobody has decided about is said to be cancelled and not made at a /reload, and its decision comes later", async () => {
	const { pi } = await asked();
	await pi.reload();
	await later(2000);
	if (pi.hasRunToPlay) await pi.run({});
	const cancelled = expect.stringMatching(
		/ was cancelled\. .*\n\nIt was not made\. The question ticket-\w+ still waits/,
	);
	expect(results(pi)).toEqual([cancelled]);
	const store = openTicketStore(nodeDisk(), boxesOf(mailRoot(), pi.address).folder, Date.now);
	const by = { kind: "person", who: "Ann" } as const;
	store.decide(store.listPending()[0]?.id ?? "", { decision_id: "d", action: "cancel", by, at: Date.now() });
	await later(2000);
	if (pi.hasRunToPlay) await pi.run({});
	expect(results(pi)).toEqual([cancelled, expect.stringContaining("was refused: by Ann.")]);
});

test("L2 L3 a refusal whose call had no time to tell it comes at the next start, as soon as the disk takes it, once", async () => {
	const { pi, kill, breakOff } = await asked();
	const { folder } = boxesOf(mailRoot(), pi.address);
	const store = openTicketStore(nodeDisk(), folder, Date.now);
	const by = { kind: "person", who: "Ann" } as const;
	const ticket = store.listPending()[0]?.id ?? expect.fail("nobody was asked");
	store.decide(ticket, { decision_id: "d", action: "cancel", by, at: Date.now() });
	breakOff("/results/");
	await later(2000);
	expect([store.find(ticket)?.state, readdirSync(join(folder, "calls")).length]).toEqual(["closed", 1]);
	await kill();
	let isFull = true;
	const disk = watchedDisk(({ name, paths }) => {
		if (isFull && name === "create" && paths[0]?.includes("/tmp/")) fail("ENOSPC");
	});
	const again = await session(asksAboutBash, { file: pi.file, disk });
	await later(2000);
	isFull = false;
	await later(60_000);
	if (again.hasRunToPlay) await again.run({});
	expect(results(again)).toEqual([expect.stringContaining("was refused: by Ann.\nIt was not made: bash: make")]);
	await again.reload();
	await later(2000);
	expect([results(again).length, readdirSync(join(folder, "calls"))]).toEqual([1, []]);
});

test("L2 L3 an approved call that was cut short after it was begun is reported as any other", async () => {
	const { pi, kill } = await asked();
	const store = openTicketStore(nodeDisk(), boxesOf(mailRoot(), pi.address).folder, Date.now);
	const by = { kind: "person", who: "Ann" } as const;
	store.decide(store.listPending()[0]?.id ?? "", { decision_id: "d", action: "resume", by, at: Date.now() });
	await later(2000);
	expect(host.jobs).toHaveLength(1);
	await kill();
	const again = await session(asksAboutBash, { file: pi.file });
	await later(2000);
	if (again.hasRunToPlay) await again.run({});
	expect(results(again)).toEqual([expect.stringContaining("ended without a result, because the process")]);
});
