import { rmSync } from "node:fs";
import { join } from "node:path";
import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { afterEach, expect, test, vi } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { askAboutAll, toolPolicySchema } from "../../src/mail/tool-policy.ts";
import { createGate, type GateParts } from "../../src/policy/gate.ts";
import { openTicketStore } from "../../src/policy/tickets.ts";
import type { PolicyParts } from "../../src/session/calls.ts";
import { fakeTurn, outerCall } from "../support/calls.ts";
import { fail, startMs, temporaryFolder, watchedDisk } from "../support/disk.ts";

afterEach(() => {
	vi.useRealTimers();
});

/** A session's gate, a person who answers its dialogs, and what the session was told. */
function setUp(policy: object, given: Partial<GateParts> & { disk?: Disk; folder?: string; hasUI?: boolean } = {}) {
	if (!vi.isFakeTimers()) vi.useFakeTimers();
	const { disk = nodeDisk(), folder = temporaryFolder(), hasUI = true, ...parts } = given;
	const warnings: string[] = [];
	const told: string[] = [];
	const notices: string[] = [];
	const counts: number[] = [];
	const dialogs: { title: string; ways: string[]; answer: (choice: string | undefined) => void }[] = [];
	const clock = { now: startMs };
	const session = {
		...{ address: "s", folder, disk, now: () => clock.now },
		mayDetach: () => true,
		isOver: () => false,
		tell: (_call: object, text: string) => told.push(text) > 0,
		waitsForApproval: (_ids: string[], count: number) => counts.push(count),
		notify: (text: string) => notices.push(text),
		warn: (text: string) => warnings.push(text),
	} as unknown as PolicyParts;
	const gate = createGate({
		...{ session, policy: () => toolPolicySchema.parse(policy), projectPolicy: () => undefined },
		...{ isWrapped: () => false, outerOf: () => undefined, addRule: () => {}, settingsFile: "settings" },
		warn: (text) => warnings.push(text),
		...parts,
	});
	const run = new AbortController();
	const ctx = {
		...{ hasUI, cwd: folder, signal: run.signal },
		executeTool: async (name: string) => ({ result: { content: textContent(JSON.stringify(hookSays[name])) } }),
		ui: {
			select: (title: string, ways: string[], { signal }: { signal: AbortSignal }) =>
				new Promise((resolve) => {
					dialogs.push({ title, ways, answer: resolve });
					signal.addEventListener("abort", () => resolve(undefined));
				}),
			confirm: async () => true,
			notify: (text: string) => notices.push(text),
		},
	} as unknown as ExtensionContext;
	const call = (tool: string, input: Record<string, unknown> = {}, toolCallId = "c") =>
		gate.toolCall({ type: "tool_call", toolName: tool, toolCallId, input } as never, ctx);
	const store = openTicketStore(nodeDisk(), folder, () => clock.now);
	return { gate, ctx, run, call, store, warnings, told, notices, counts, dialogs, clock, folder };
}

/** That there is bash alone. */
const known = (isWrapped: (tool: string) => boolean) => ({ tools: ["bash"], isWrapped, schemaOf: () => undefined });

const textContent = (text: string) => [{ type: "text", text }];

const hookSays: Record<string, object> = {
	rewrites: { action: "continue", arguments: { command: "safe" } },
	defers: { action: "defer", reason: "look at it" },
	answers: { action: "answer", result: "by the hook" },
	denies: { action: "deny", message: "never" },
};

const asks = { permissions: { default: "ask" } };
const later = (ms = 0) => vi.advanceTimersByTimeAsync(ms);
const hooks = (...names: string[]) => ({ wrappers: names.map((tool) => ({ match: { tool: "*" }, before: { tool } })) });

test("an interrupt leaves the wait of a call that can be handed back alone", async () => {
	const { gate, ctx, call, store } = setUp(asks, { isWrapped: () => true });
	expect(await call("bash", { command: "ls" })).toBeUndefined();
	const work = gate.around("c", { tool: "bash", args: { command: "ls" } }, ctx, async () => ({
		content: [{ type: "text", text: "made" }],
		details: undefined,
	}));
	const result = work(new AbortController().signal, () => {}, fakeTurn());
	await later();
	gate.interrupt();
	const [ticket] = store.listPending();
	const by = { kind: "person", who: "Ann" } as const;
	store.decide(ticket?.id ?? "", { decision_id: "d", action: "resume", by, at: startMs });
	await later(1000);
	expect(await result).toMatchObject({ content: [{ text: "made" }] });
});

test("a question is put aside where the disk refuses the person's answer: nothing hangs without a dialog", async () => {
	let isFull = false;
	const disk = watchedDisk(({ name }) => {
		if (isFull && name.startsWith("create")) fail("ENOSPC");
	});
	const { call, dialogs, store, warnings } = setUp(asks, { disk });
	const outcome = call("mcp__a__b");
	await later();
	isFull = true;
	dialogs[0]?.answer("Allow once");
	await later();
	expect(await outcome).toMatchObject({ block: true, reason: expect.stringContaining('"status":"waiting"') });
	expect(store.listPending()).toHaveLength(1);
	expect(warnings).toEqual([expect.stringContaining("was put aside")]);
});

test("what a person always allows is allowed for the session where the settings cannot be changed", async () => {
	const { call, dialogs, warnings } = setUp(asks, {
		addRule() {
			throw new Error("no space");
		},
	});
	const outcome = call("mcp__a__b", { a: 1 });
	await later();
	dialogs[0]?.answer("Always allow …");
	await later(1000);
	expect(await outcome).toBeUndefined();
	expect(await call("mcp__a__b", { a: 1 }, "d")).toBeUndefined();
	expect(warnings).toEqual([expect.stringContaining("for this session only")]);
});

test("what a person always allows is confirmed with the rule and the file that it went to", async () => {
	const added: object[] = [];
	const { call, dialogs, notices } = setUp(asks, { addRule: (rule) => added.push(rule) });
	const outcome = call("mcp__a__b", { a: 1 });
	await later();
	dialogs[0]?.answer("Always allow …");
	await later(1000);
	expect(await outcome).toBeUndefined();
	expect(added).toEqual([{ pattern: 'mcp__a__b(a="1")', behavior: "allow" }]);
	expect(notices).toEqual(['Added to toolPolicy.permissions in settings: allow mcp__a__b(a="1")']);
});

test("a call that a hook has changed says so with its result, and one that it denied was not made", async () => {
	const rewrites = setUp(hooks("rewrites"), { isWrapped: (tool) => tool === "bash" });
	const content = [{ type: "text" as const, text: "done" }];
	const note = { type: "text", text: '[A hook has changed this call before it was made, to: {"command":"safe"}]' };
	const input = { command: "rm" };
	expect(await rewrites.call("bash", input)).toBeUndefined();
	const work = async () => ({ content, details: undefined });
	const around = rewrites.gate.around("c", { tool: "bash", args: input }, rewrites.ctx, work);
	// What was handed back ends for Pi before it is made.
	rewrites.gate.toolEnded("c", false);
	expect(await around(new AbortController().signal, () => {}, fakeTurn())).toMatchObject({
		content: [...content, note],
	});
	const ended = async (id: string, args: Record<string, unknown>) => {
		await rewrites.call("mcp__a__b", args, id);
		const result = { type: "tool_result", toolName: "mcp__a__b", toolCallId: id, input: args, content, isError: false };
		return rewrites.gate.toolResult(result as never, rewrites.ctx);
	};
	expect(await ended("d", { command: "rm" })).toEqual({ content: [...content, note] });
	expect(await ended("e", { command: "safe" })).toBeUndefined();
	expect(await setUp(hooks("denies")).call("bash")).toEqual({
		block: true,
		reason: "Tool 'bash' denied by a hook, so this call was not made: never",
	});
});

test("what a person allows for the session holds for what the project asks about as well", async () => {
	const { call, dialogs } = setUp({}, { projectPolicy: () => toolPolicySchema.parse(asks) });
	const outcome = call("mcp__a__b");
	await later();
	dialogs[0]?.answer("Allow this call for the session");
	await later(1000);
	expect(await outcome).toBeUndefined();
	const again = call("mcp__a__b", {}, "d");
	await later();
	expect(dialogs).toHaveLength(1);
	expect(await again).toBeUndefined();
});

test("a question that may wait for less than an hour waits no longer", async () => {
	const { call, clock, store } = setUp({ ...asks, ticketTtlHours: 0.1 });
	const outcome = call("mcp__a__b");
	await later(1000);
	clock.now += 361_000;
	await later(361_000);
	expect(store.listPending()).toEqual([]);
	expect(await outcome).toMatchObject({ reason: expect.stringContaining("nobody decided in time") });
});

test("a call whose ticket was removed is not waited for: no decision about it can come", async () => {
	const { call, folder, dialogs } = setUp(asks);
	const outcome = call("mcp__a__b");
	await later();
	rmSync(join(folder, "tickets"), { recursive: true });
	await later(1000);
	const still = "still waits";
	expect(await Promise.race([outcome, still])).toMatchObject({
		block: true,
		reason: "The call of mcp__a__b was refused: nobody decided in time.",
	});
	const next = call("mcp__a__b", {}, "d");
	await later();
	dialogs[1]?.answer("Allow once");
	await later(1000);
	expect(await next).toBeUndefined();
});

test("L2 what a person allows for the session is that call alone: one with other arguments, or more, is asked about", async () => {
	const { call, dialogs, gate, ctx } = setUp(asks);
	const outcome = call("ls");
	await later();
	dialogs[0]?.answer("Allow this call for the session");
	await later(1000);
	expect(await outcome).toBeUndefined();
	expect(await call("ls", {}, "d")).toBeUndefined();
	expect(gate.explain({ tool: "ls", args: {} }, ctx).at(-1)).toMatch(/allowed for the session/);
	for (const [index, input] of [{ path: "/" }, { "*": "/" }].entries()) {
		call("ls", input, `e${index}`);
		await later();
		expect(dialogs[index + 1]?.ways).toContain("Allow once");
		dialogs[index + 1]?.answer("No");
		await later(1000);
	}
});

test.each([
	["too long for the settings", { command: "x".repeat(1000) }],
	["with a star", { "*": "x" }],
	["with a dot", { "a.b": "x" }],
	["with a space", { "a b": "x" }],
])("L2 no rule is made of an argument %s: it would fit other calls, or break the settings", async (_, input) => {
	const { call, dialogs } = setUp(asks);
	call("mcp__a__b", input);
	await later();
	expect(dialogs[0]?.ways).toContain("Allow this call for the session");
	expect(dialogs[0]?.ways).not.toContain("Always allow …");
});

test("a call that another one made ends its wait when that is cancelled, and cannot be approved after that", async () => {
	const stop = new AbortController();
	const { call, store } = setUp(asks, { outerOf: () => outerCall(stop.signal) });
	const outcome = call("mcp__a__b", {}, "parent/1");
	await later();
	expect(store.listPending()).toHaveLength(1);
	stop.abort();
	expect(await outcome).toMatchObject({ block: true });
	expect(store.listPending()).toEqual([]);
});

test("SMB-063 a hook that defers loses neither what a hook before it has changed nor the refusal of one after it", async () => {
	const { call, store, dialogs } = setUp(hooks("rewrites", "defers"));
	const input = { command: "dangerous" };
	const outcome = call("bash", input);
	await later();
	expect(store.listPending()).toMatchObject([{ arguments: { command: "safe" }, message: "look at it" }]);
	expect(dialogs[0]?.title).toContain("Asked by a hook before the call (wrapper 2).");
	dialogs[0]?.answer("Allow once");
	await later(1000);
	expect([await outcome, input]).toEqual([undefined, { command: "safe" }]);
	expect(await setUp(hooks("defers", "denies")).call("bash")).toEqual({
		block: true,
		reason: expect.stringMatching(/: never$/),
	});
});

test("an approval that nobody has used for as long as a question may wait is none any more", async () => {
	const { call, store, clock, gate, folder } = setUp(asks);
	const outcome = call("mcp__a__b");
	await later();
	gate.close();
	await outcome;
	const [ticket] = store.listPending();
	const by = { kind: "person", who: "Ann" } as const;
	store.decide(ticket?.id ?? "", { decision_id: "d", action: "resume", by, at: startMs });
	const again = setUp(asks, { folder });
	again.gate.takeInLeft();
	again.clock.now = clock.now + 25 * 60 * 60 * 1000;
	again.call("mcp__a__b");
	await later(1000);
	expect(again.told).toEqual([expect.stringContaining("too long ago")]);
	expect(again.dialogs).toHaveLength(1);
});

test("a call that something else keeps from being made leaves no question behind", async () => {
	const { gate, call, store } = setUp(asks, { isWrapped: () => true });
	await call("bash", { command: "ls" });
	expect(store.listPending()).toHaveLength(1);
	gate.toolEnded("c", false);
	expect(store.listPending()).toEqual([]);
});

test("SMB-063 a hook after a call is told of one that threw, and Esc ends it", async () => {
	const saw: unknown[] = [];
	const after = { wrappers: [{ match: { tool: "*" }, after: { tool: "notes", timeoutSeconds: 3600 } }] };
	const { gate, ctx, warnings } = setUp(after);
	Object.assign(ctx, {
		executeTool(_name: string, args: unknown) {
			saw.push(args);
			return new Promise(() => {});
		},
	});
	const work = gate.around("c", { tool: "bash", args: {} }, ctx, () => Promise.reject(new Error("exit code 1")));
	const stop = new AbortController();
	const result = work(stop.signal, () => {}, fakeTurn());
	const outcome = expect(result).rejects.toThrow("exit code 1");
	await later();
	expect(saw).toMatchObject([{ status: "failed", result: [{ text: "exit code 1" }] }]);
	stop.abort();
	await outcome;
	expect(warnings).toEqual([]);
});

test("a hook that is a tool is said to be none for the tools of others", () => {
	const { gate, ctx } = setUp({
		wrappers: ["*", "bash"].map((tool) => ({ match: { tool }, before: { tool: "denies" } })),
	});
	expect(
		gate.problems(
			ctx,
			known((tool) => tool === "bash"),
		),
	).toMatchObject([
		{
			what: "wrapper 1 (*) has a tool as a hook, which can be called only for Pi's own tools and calls by session_call_run: all others are denied",
		},
	]);
});

const approved = { action: "resume", by: { kind: "person", who: "Ann" }, at: startMs } as const;

/** Who of two processes on a session sees a decision first, when it is made at this time. */
const whoLooksFirst = [
	["the one that waits for it", 1600],
	["the other one", 1200],
] as const;

/** A call that one process waits for, decided about while another has the session open as well. */
async function decidedBetweenTwo(at: number, action: "resume" | "cancel") {
	const waiting = setUp(asks);
	const outcome = waiting.call("mcp__a__b");
	await later(500);
	const other = setUp(asks, { folder: waiting.folder });
	other.gate.takeInLeft();
	await later(at - 500);
	const [ticket] = waiting.store.listPending();
	waiting.store.decide(ticket?.id ?? "", { decision_id: "d", ...approved, action });
	await later(3000);
	return { outcome: await outcome, other };
}

test.each(whoLooksFirst)(
	"L2 of two processes on a session either the call is made or its approval comes as mail: first looks %s",
	async (_, at) => {
		const { outcome, other } = await decidedBetweenTwo(at, "resume");
		const isMade = outcome === undefined;
		expect([isMade, other.told.length]).toEqual(at === 1600 ? [true, 0] : [false, 1]);
		// What came as mail lets the call be made once.
		expect(other.store.takeGrant("mcp__a__b", {}) !== undefined).toBe(!isMade);
	},
);

test.each(whoLooksFirst)("L2 of two processes on a session one tells of a refusal: first looks %s", async (_, at) => {
	const { outcome, other } = await decidedBetweenTwo(at, "cancel");
	const refused = "The call of mcp__a__b was refused: by Ann.";
	const elsewhere = "This call was not made: its decision came as mail, or was used before.";
	expect([outcome, other.told]).toEqual([
		{ block: true, reason: at === 1600 ? refused : elsewhere },
		at === 1600 ? [] : [expect.stringContaining(refused)],
	]);
});

test("L2 L3 a refusal that the disk does not let be used is told at the next start, and until then that the call was not made", async () => {
	let isBroken = false;
	const disk = watchedDisk(({ name }) => {
		if (isBroken && name === "rename") fail("EIO");
	});
	const { gate, ctx, call, store, folder } = setUp(asks, { disk, isWrapped: () => true });
	await call("bash");
	const work = gate.around("c", { tool: "bash", args: {} }, ctx, () => expect.fail("it was made"));
	const outcome = expect(work(new AbortController().signal, () => {}, fakeTurn())).rejects.toThrow(
		/^This call was not made, .*: EIO\b/,
	);
	await later();
	store.decide(store.listPending()[0]?.id ?? "", { decision_id: "d", ...approved, action: "cancel" });
	isBroken = true;
	await later(1000);
	await outcome;
	gate.close();
	const next = setUp(asks, { folder });
	next.gate.takeInLeft();
	await later(1000);
	expect(next.told).toEqual([expect.stringContaining("was refused: by Ann.")]);
});

test("a process that does not receive the session's mail tells nothing of what others have asked", async () => {
	const waiting = setUp(asks);
	const outcome = waiting.call("mcp__a__b");
	await later(500);
	const other = setUp(asks, { folder: waiting.folder });
	await later(700);
	const [ticket] = waiting.store.listPending();
	waiting.store.decide(ticket?.id ?? "", { decision_id: "d", ...approved });
	await later(3000);
	expect([await outcome, other.told]).toEqual([undefined, []]);
});

test("L3 what another process of the session has asked and left behind is told by the one that goes on, once", async () => {
	const owner = setUp(asks);
	owner.gate.takeInLeft();
	const left = setUp(asks, { folder: owner.folder });
	const outcomes = [left.call("mcp__a__b"), left.call("mcp__a__c", {}, "d")];
	await later();
	left.gate.close();
	await Promise.all(outcomes);
	const ticket = owner.store.listPending().find(({ tool }) => tool === "mcp__a__b");
	owner.store.decide(ticket?.id ?? "", { decision_id: "d", ...approved });
	owner.clock.now += 20_000;
	await later(61_000);
	expect(owner.told).toEqual([expect.stringContaining("The call of mcp__a__b was approved by Ann.")]);
	owner.clock.now += 25 * 60 * 60 * 1000;
	await later(61 * 60 * 1000);
	expect(owner.told.filter((text) => text.includes("ake it again now"))).toHaveLength(1);
	expect(owner.told.at(-1)).toContain("The call of mcp__a__c was refused: nobody decided in time.");
	expect([owner.store.listPending(), owner.counts.at(-1)]).toEqual([[], 0]);
	owner.gate.close();
	expect(vi.getTimerCount()).toBe(0);
});

test("PSM-039 an approval that is too old at a start counts no more among the calls to decide about", async () => {
	const first = setUp(asks);
	const outcome = first.call("mcp__a__b");
	await later();
	first.gate.close();
	await outcome;
	const [ticket] = first.store.listPending();
	first.store.decide(ticket?.id ?? "", { decision_id: "d", ...approved });
	const again = setUp(asks, { folder: first.folder });
	again.gate.takeInLeft();
	again.clock.now += 25 * 60 * 60 * 1000;
	await later(1000);
	expect([again.told.length, again.counts]).toEqual([1, [1, 0]]);
});

/** A call of a wrapped tool that is asked about, whose model waits until the turn is given back. */
function around({ gate, ctx, call }: ReturnType<typeof setUp>, id: string) {
	const turn = fakeTurn();
	async function begin(): Promise<void> {
		await call("bash", { command: id }, id);
		const made = { content: [{ type: "text" as const, text: "made" }], details: undefined };
		const work = gate.around(id, { tool: "bash", args: { command: id } }, ctx, async () => made);
		work(new AbortController().signal, () => {}, turn).catch(() => {});
		await later();
	}
	return { turn, begin };
}

test("L3 the dialog of a call that is handed back closes, the person is told where to decide, and the next one is shown", async () => {
	const session = setUp(asks, { isWrapped: () => true });
	const { dialogs, notices } = session;
	const first = around(session, "first");
	await first.begin();
	await around(session, "second").begin();
	// One at a time, as long as both are waited for.
	expect(dialogs).toHaveLength(1);
	first.turn.giveBack("still running after 1 s");
	await later();
	expect(dialogs.map(({ title }) => title)).toEqual([
		expect.stringContaining("bash: first"),
		expect.stringContaining("bash: second"),
	]);
	expect(notices).toEqual([
		"This call still waits for your decision, and the model goes on: bash: first\nDecide in /mailbox (alt+m), tab Approvals, or find it with: pi-session-mail tickets",
	]);
});

test("L3 the dialog of a call that nobody waits for gives way to the next one", async () => {
	const session = setUp(asks, { isWrapped: () => true });
	const behind = around(session, "behind");
	behind.turn.giveBack("at once");
	await behind.begin();
	expect([session.dialogs.length, session.notices]).toEqual([1, []]);
	await around(session, "next").begin();
	expect(session.dialogs[1]?.title).toContain("bash: next");
	expect(session.notices).toEqual([expect.stringContaining("bash: behind")]);
});

test("a person who puts a question aside that no model waits for is told where to decide", async () => {
	const session = setUp(asks, { isWrapped: () => true });
	const behind = around(session, "behind");
	behind.turn.giveBack("at once");
	await behind.begin();
	session.dialogs[0]?.answer(undefined);
	await later();
	expect(session.notices).toEqual([expect.stringContaining("bash: behind")]);
	expect(session.store.listPending()).toHaveLength(1);
});

test("L4 a person who puts a question aside is told that the model waits where its call could not be handed back", async () => {
	const session = setUp(asks, { isWrapped: () => true });
	const { turn, begin } = around(session, "stuck");
	turn.giveBack = () => {};
	await begin();
	session.dialogs[0]?.answer("Decide later");
	await later();
	expect(session.notices).toEqual([
		"This call still waits for your decision, and so does the model, since the call could not be put aside: bash: stuck\nDecide in /mailbox (alt+m), tab Approvals, or find it with: pi-session-mail tickets",
	]);
});

test("a dialog is not opened for a call that was stopped before, and its ticket is cancelled", async () => {
	const { gate, ctx, call, store, dialogs } = setUp(asks, { isWrapped: () => true });
	await call("bash");
	const work = gate.around("c", { tool: "bash", args: {} }, ctx, () => expect.fail("it was made"));
	const result = work(AbortSignal.abort(), () => {}, fakeTurn());
	await expect(result).rejects.toThrow("stopped before anybody decided");
	expect([dialogs, store.listPending()]).toEqual([[], []]);
});

test("where nobody can be asked, the file that is broken is named", async () => {
	const policy = () => askAboutAll("/home/me/session-mail.json is broken at line 3");
	const { call } = setUp({}, { policy, hasUI: false });
	expect(await call("bash")).toEqual({
		block: true,
		reason:
			"Tool 'bash' was to be asked about (the default of the settings, since /home/me/session-mail.json is broken at line 3), and nobody can be asked here.",
	});
	const project = setUp({}, { projectPolicy: () => askAboutAll("it is broken"), hasUI: false });
	expect(await project.call("bash")).toMatchObject({
		reason: expect.stringContaining("the default of the project's settings, since it is broken"),
	});
});

test("a dialog, its ticket and the reason of a verdict call a tool by its label, too", async () => {
	const { call, dialogs, store, gate, ctx } = setUp({
		...asks,
		wrappers: [{ match: { tool: "mcp__*" }, label: "remote" }],
	});
	call("mcp__a__b", { text: "hello" });
	await later();
	expect(dialogs[0]?.title).toContain("\nremote (mcp__a__b): hello\n");
	expect(store.listPending()).toMatchObject([{ tool: "mcp__a__b", label: "remote" }]);
	expect(gate.explain({ tool: "mcp__a__b", args: {} }, ctx)[0]).toContain(
		"This call of remote (mcp__a__b) is asked about",
	);
});

test("what a hook answers for a call of a wrapped tool is given by the tool, which is not made", async () => {
	const wrappers = [{ match: { tool: "*" }, before: { tool: "answers" } }];
	const { call, gate, ctx } = setUp({ wrappers }, { isWrapped: (tool) => tool === "bash" });
	expect(await call("bash")).toBeUndefined();
	expect(gate.given("c")).toMatchObject({ content: [{ text: "by the hook" }] });
	expect(await call("mcp__a__b", {}, "d")).toEqual({ block: true, reason: "by the hook" });
	const problems = () =>
		gate
			.problems(
				ctx,
				known(() => true),
			)
			.filter(({ what }) => what.includes("as an error"));
	expect(problems()).toEqual([]);
	// Nobody can make a result of that of a script's call.
	await gate.toolCall(
		{ type: "tool_call", toolName: "mcp__a__b", toolCallId: "e/1", parentToolCallId: "e", input: {} } as never,
		ctx,
	);
	expect(problems()).toMatchObject([{ what: expect.stringContaining("a call of mcp__a__b reached the script") }]);
});

test("only a rule that asks says how long its decision is waited for", () => {
	const rule = (pattern: string, behavior: string) => ({ pattern, behavior, attachSeconds: 3 });
	const { gate, ctx } = setUp({ permissions: { rules: [rule("bash", "ask"), rule("read", "allow")] } });
	expect(["bash", "read", "edit"].map((tool) => gate.attachMsFor({ tool, args: {} }, ctx))).toEqual([
		3000,
		undefined,
		undefined,
	]);
});

test("an Enter that was meant for the editor decides nothing: the first choice is to decide later", async () => {
	const session = setUp(asks);
	const outcome = session.call("mcp__a__b", { a: "x", b: { c: 1 } });
	await later();
	const [dialog] = session.dialogs;
	expect(dialog?.title).toBe(
		"Permission required for tool 'mcp__a__b'\nmcp__a__b: x\nb.c: 1\nAsked by the default of the settings, since no rule fits.",
	);
	const ways = ["Allow once", "Allow this call for the session", "Always allow …", "No", "No, with a reason …"];
	expect(dialog?.ways).toEqual(["Decide later", ...ways]);
	dialog?.answer(dialog.ways[0]);
	await later();
	expect(await outcome).toMatchObject({ block: true, reason: expect.stringContaining('"status":"waiting"') });
	expect(session.notices).toEqual([expect.stringContaining("Decide in /mailbox (alt+m), tab Approvals")]);
	expect(session.store.listPending()).toHaveLength(1);
});

test("a person is told once where a call waits whose question is over in time or by an interrupt, and not at the end", async () => {
	const rule = { pattern: "*", behavior: "ask", attachSeconds: 5 };
	const session = setUp({ permissions: { default: "allow", rules: [rule] } });
	session.call("mcp__a__b", {}, "c");
	await later(5000);
	expect(session.notices).toEqual([expect.stringContaining("mcp__a__b")]);
	session.call("mcp__a__b", {}, "d");
	await later();
	session.gate.interrupt();
	await later();
	expect(session.notices).toHaveLength(2);
	session.call("mcp__a__b", {}, "e");
	await later();
	session.gate.close();
	await later();
	expect([session.notices.length, session.store.listPending().length]).toEqual([2, 3]);
});

test("on a low screen the rarer choices come after one more key, so that the call is seen as well", async () => {
	const { rows, columns } = process.stdout;
	Object.assign(process.stdout, { rows: 15, columns: 50 });
	try {
		const { call, dialogs } = setUp(asks);
		const outcome = call("bash", { command: "rm\nls" });
		await later();
		expect(dialogs[0]?.ways).toEqual(["Decide later", "Allow once", "No", "More …"]);
		expect(dialogs[0]?.title).toBe("bash: rm\nls\nAsked by the default of the settings, since no…");
		dialogs[0]?.answer("More …");
		await later();
		const rarer = ["Allow this call for the session", "Always allow …", "No, with a reason …"];
		expect(dialogs[1]?.ways).toEqual(["Decide later", ...rarer]);
		dialogs[1]?.answer("Allow this call for the session");
		await later(1000);
		expect(await outcome).toBeUndefined();
	} finally {
		Object.assign(process.stdout, { rows, columns });
	}
});

test("what no rule of the settings could allow is not offered: a hook asks again, and so does a project", async () => {
	const wrappers = [{ match: { tool: "other" } }, { match: { tool: "*" }, before: { tool: "defers" } }];
	const hook = setUp({ wrappers });
	hook.call("mcp__a__b");
	await later();
	expect(hook.dialogs[0]?.title).toBe("look at it\nmcp__a__b\nAsked by a hook before the call (wrapper 2).");
	expect(hook.dialogs[0]?.ways).toEqual(["Decide later", "Allow once", "No", "No, with a reason …"]);
	const once = ["Decide later", "Allow once", "Allow this call for the session", "No", "No, with a reason …"];
	// The person's own settings are named where both ask, and would not be enough to allow it.
	for (const policy of [{}, asks]) {
		const project = setUp(policy, { projectPolicy: () => toolPolicySchema.parse(asks) });
		project.call("mcp__a__b");
		await later();
		expect(project.dialogs[0]?.ways).toEqual(once);
	}
});

test("PSM-039 how many calls wait for a decision is told as it changes, and once at a start with calls that still wait", async () => {
	const { call, counts, dialogs, folder } = setUp(asks);
	call("mcp__a__b", {}, "c");
	call("mcp__a__b", {}, "d");
	await later();
	expect(counts.at(-1)).toBe(2);
	dialogs[0]?.answer("No");
	await later(1000);
	expect(counts.at(-1)).toBe(1);

	const next = setUp(asks, { folder });
	next.gate.takeInLeft();
	await later(1000);
	next.gate.takeInLeft();
	await later(1000);
	expect(next.notices).toEqual([
		"1 call of this session still waits for your decision.\nDecide in /mailbox (alt+m), tab Approvals, or find it with: pi-session-mail tickets",
	]);
	expect(next.counts.at(-1)).toBe(1);
	const [left] = next.store.listPending();
	const by = { kind: "person", who: "Ann" } as const;
	next.store.decide(left?.id ?? "", { decision_id: "d", action: "cancel", by, at: startMs });
	await later(1000);
	expect(next.counts.at(-1)).toBe(0);
});

test("L7 what a hook that is a tool starts besides, such as a run, is asked about as anything else", async () => {
	const { ctx, call, dialogs } = setUp({ ...asks, ...hooks("asks") });
	const nested: unknown[] = [];
	let isFirst = true;
	Object.assign(ctx, {
		async executeTool(name: string) {
			if (isFirst) {
				isFirst = false;
				nested.push(await call(name, {}, "c/1"));
				call("other", {}, "later");
				call("other", {}, "c/2");
			}
			return { result: { content: textContent('{"action":"continue"}') } };
		},
	});
	call("bash", {}, "c");
	await later();
	await later();
	expect(nested).toEqual([undefined]);
	for (let n = 0; n < 3; n++) {
		dialogs.at(-1)?.answer("No");
		await later();
	}
	expect(dialogs).toHaveLength(3);
});
