import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { afterEach, expect, test, vi } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { toolPolicySchema } from "../../src/mail/tool-policy.ts";
import { createGate, type GateParts } from "../../src/policy/gate.ts";
import { openTicketStore } from "../../src/policy/tickets.ts";
import type { PolicyParts } from "../../src/session/calls.ts";
import { fail, startMs, temporaryFolder, watchedDisk } from "../support/disk.ts";

afterEach(() => {
	vi.useRealTimers();
});

/** A session's gate, a person who answers its dialogs, and what the session was told. */
function setUp(policy: object, given: Partial<GateParts> & { disk?: Disk; folder?: string } = {}) {
	vi.useFakeTimers();
	const { disk = nodeDisk(), folder = temporaryFolder(), ...parts } = given;
	const warnings: string[] = [];
	const told: string[] = [];
	const dialogs: { title: string; answer: (choice: string | undefined) => void }[] = [];
	const clock = { now: startMs };
	const session = {
		...{ address: "s", folder, disk, now: () => clock.now },
		mayDetach: () => true,
		tell: (_call: object, text: string) => told.push(text) > 0,
		waitsForApproval: () => {},
		warn: (text: string) => warnings.push(text),
	} as unknown as PolicyParts;
	const gate = createGate({
		...{ session, policy: () => toolPolicySchema.parse(policy), projectPermissions: () => undefined },
		...{ isWrapped: () => false, signalOf: () => undefined, addRule: () => {}, settingsFile: "settings" },
		callTool: async (name) => JSON.stringify(hookSays[name]),
		warn: (text) => warnings.push(text),
		...parts,
	});
	const run = new AbortController();
	const ctx = {
		...{ hasUI: true, cwd: folder, signal: run.signal },
		ui: {
			select: (title: string, _ways: string[], { signal }: { signal: AbortSignal }) =>
				new Promise((resolve) => {
					dialogs.push({ title, answer: resolve });
					signal.addEventListener("abort", () => resolve(undefined));
				}),
			confirm: async () => true,
		},
	} as unknown as ExtensionContext;
	const call = (tool: string, input: Record<string, unknown> = {}, toolCallId = "c") =>
		gate.toolCall({ type: "tool_call", toolName: tool, toolCallId, input } as never, ctx);
	const store = openTicketStore(nodeDisk(), folder, () => clock.now);
	return { gate, ctx, run, call, store, warnings, told, dialogs, clock, folder };
}

const hookSays: Record<string, object> = {
	rewrites: { action: "continue", arguments: { command: "safe" } },
	defers: { action: "defer", reason: "look at it" },
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
	const result = work(
		new AbortController().signal,
		() => {},
		() => {},
	);
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

test("what a person allows for the session holds for what the project asks about as well", async () => {
	const { call, dialogs } = setUp({}, { projectPermissions: () => ({ default: "ask", rules: [] }) });
	const outcome = call("mcp__a__b");
	await later();
	dialogs[0]?.answer("Allow for this session");
	await later(1000);
	expect(await outcome).toBeUndefined();
	const again = call("mcp__a__b", {}, "d");
	await later();
	expect(dialogs).toHaveLength(1);
	expect(await again).toBeUndefined();
});

test("a call that another one made ends its wait when that is cancelled, and cannot be approved after that", async () => {
	const stop = new AbortController();
	const { call, store } = setUp(asks, { signalOf: () => stop.signal });
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
	dialogs[0]?.answer("Allow once");
	await later(1000);
	expect([await outcome, input]).toEqual([undefined, { command: "safe" }]);
	expect(await setUp(hooks("defers", "denies")).call("bash")).toEqual({ block: true, reason: "never" });
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
	const { gate, ctx, warnings } = setUp(after, {
		callTool(_name, args) {
			saw.push(args);
			return new Promise(() => {});
		},
	});
	const work = gate.around("c", { tool: "bash", args: {} }, ctx, () => Promise.reject(new Error("exit code 1")));
	const stop = new AbortController();
	const result = work(
		stop.signal,
		() => {},
		() => {},
	);
	const outcome = expect(result).rejects.toThrow("exit code 1");
	await later();
	expect(saw).toMatchObject([{ status: "failed", result: [{ text: "exit code 1" }] }]);
	stop.abort();
	await outcome;
	expect(warnings).toEqual([]);
});

test("a hook that is a tool is said not to work yet", () => {
	const { gate, ctx } = setUp(hooks("denies"));
	expect(gate.problems(ctx, ["bash"], () => true)).toEqual([
		"wrapper 1 (*) has a tool as a hook, which does not work yet, so these calls are denied: use a command",
	]);
});
