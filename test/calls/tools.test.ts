import type { ExtensionToolContext } from "@earendil-works/pi-coding-agent";
import { beforeEach, describe, expect, test } from "vitest";
import { createEngine, type Engine, type Outer, type ToolResult } from "../../src/calls/engine.ts";
import { callToolNames, callTools } from "../../src/calls/tools.ts";
import type { EndedCall } from "../../src/mail/call-store.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { type ToolPolicy, toolPolicySchema } from "../../src/mail/tool-policy.ts";
import type { PolicyParts } from "../../src/session/calls.ts";
import { alice } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";

useFakeMachine();

let engine: Engine;
let kept: EndedCall[];
let hasMail: boolean;
let isOn: boolean;
let outers: Map<string, Outer>;
let attachMs: number | undefined;
let policy: ToolPolicy;
let tools: ReturnType<typeof callTools>;

beforeEach(() => {
	kept = [];
	hasMail = false;
	isOn = true;
	outers = new Map();
	attachMs = undefined;
	policy = toolPolicySchema.parse({});
	const session: PolicyParts = {
		...{
			folder: "/mail",
			disk: nodeDisk(),
			root: "/",
			running: { find: () => undefined, list: () => [] },
			warn: () => {},
		},
		...{
			tell: () => true,
			isRunning: () => false,
			askApprover: () => {},
			waitsForApproval: () => {},
			notify: () => {},
			isOver: () => false,
		},
		...{ address: alice, now: Date.now, hops: () => 0, maxCalls: () => 4, mayDetach: () => true },
		...{ hasMail: () => hasMail, open: () => true, changed: () => {}, pathOf: (id) => `/mail/${id}.json` },
		end: (call) => kept.push(call) > 0,
		ended: (id) => kept.find((call) => call.id === id),
	};
	engine = createEngine(session);
	tools = callTools({
		policy: () => policy,
		current: () => (isOn ? { engine, gate: { attachMsFor: () => attachMs }, session } : undefined),
		outers,
	});
});

/** What the model is told by a tool; undefined while it waits. */
function use(name: string, params: unknown, ctx: Partial<ExtensionToolContext> = {}, signal?: AbortSignal) {
	const told = {
		text: undefined as string | undefined,
		isError: false,
		details: undefined as unknown,
		error: undefined as unknown,
	};
	const tool = tools.find((found) => found.name === name) ?? expect.fail(`no tool ${name}`);
	const done = (given: ToolResult) => {
		const [first] = given.content;
		Object.assign(told, {
			text: first?.type === "text" ? first.text : "",
			isError: given.isError === true,
			details: given.details,
		});
	};
	tool.execute("1", params, signal, undefined, ctx as ExtensionToolContext).then(done, (error) => {
		told.error = error;
	});
	return told;
}

/** A call that is handed back at once, and its end. */
async function detached(): Promise<{ id: string; end: (text: string) => void }> {
	const { promise, resolve } = Promise.withResolvers<ToolResult>();
	engine.run({ tool: "bash", args: { command: "make" }, attachMs: 0 }, () => promise, undefined, undefined);
	await later(0);
	const id = engine.views().at(-1)?.id ?? "";
	return { id, end: (text) => resolve({ content: [{ type: "text", text }], details: undefined }) };
}

const unknown = (id: string) => `Nothing was done: there is no call "${id}"; session_call_list names them.`;

describe("the tools for calls", () => {
	test("are these, and take these parameters and no others", () => {
		expect(tools.map(({ name }) => name).toSorted()).toEqual(callToolNames.toSorted());
		for (const { parameters } of tools)
			expect(parameters).toMatchObject({ type: "object", additionalProperties: false });
	});

	test.each(callToolNames)("%s of a session without a mailbox does nothing", async (name) => {
		isOn = false;
		const told = use(name, { id: "x", for: "x", tool: "bash", arguments: {} });
		await later(0);
		expect(told).toMatchObject({ text: "Nothing was done: this session has no mailbox.", isError: true });
	});

	test.each([undefined, null, "x", 7, [], { id: 7 }, { for: 7 }, { for: [7, null] }])(
		"L7 do not fail on parameters such as %j",
		async (params) => {
			for (const name of callToolNames) {
				const told = use(name, params, { tools: [] });
				await later(300_000);
				expect([name, told.error, typeof told.text]).toEqual([name, undefined, "string"]);
			}
		},
	);
});

describe("session_mail_wait", () => {
	const wait = (params: object, signal?: AbortSignal) => use("session_mail_wait", params, {}, signal);

	test("SMB-035 says which call has ended", async () => {
		const { id, end } = await detached();
		const told = wait({ for: id });
		end("built");
		await later(0);
		expect(told.text).toBe(`${id} has ended. Its result comes as mail; session_call_status shows it now.`);
		expect(told.details).toEqual({ by: "call", id });
	});

	test.each<[unknown, (ids: readonly string[]) => unknown]>([
		["a list", (ids) => ids],
		["any-call", () => "any-call"],
		["a list with mail in it", (ids) => [...ids, "mail"]],
	])("SMB-035 for %s ends with the first", async (_what, of) => {
		const [first, second] = [await detached(), await detached()];
		const told = wait({ for: of([first.id, second.id]) });
		second.end("built");
		await later(0);
		expect(told.details).toEqual({ by: "call", id: second.id });
	});

	test("SMB-036 for a call ends with mail as well", async () => {
		const { id } = await detached();
		const told = wait({ for: id });
		hasMail = true;
		engine.mailCame();
		await later(0);
		expect(told.text).toBe("Mail has come; it follows.");
	});

	test.each([
		[undefined, 60],
		[5, 5],
		[0, 0],
		[-1, 0],
		[301, 300],
		[1e9, 300],
		[Number.NaN, 60],
		["5", 60],
	])("SMB-037 of %j seconds ends after %i", async (timeout, seconds) => {
		const told = wait({ for: "mail", timeout_seconds: timeout });
		await later(Math.max(0, seconds * 1000 - 1));
		if (seconds > 0) expect(told.text).toBeUndefined();
		await later(2);
		expect(told.text).toBe(`Nothing came within ${seconds} s.`);
	});

	test.each(["", "call-0123456789abcdef", "../state", "toString"])("for the unknown call %j is refused", async (id) => {
		const known = await detached();
		const told = [wait({ for: id }), wait({ for: [known.id, id] })];
		await later(0);
		for (const { text, isError } of told) expect([text, isError]).toEqual([unknown(id), true]);
	});

	test("for any call when none runs is refused", async () => {
		const told = wait({ for: "any-call" });
		await later(0);
		expect(told).toMatchObject({ text: "Nothing was waited for: no call runs.", isError: true });
	});

	test("ends with the user's stop", async () => {
		const stop = new AbortController();
		const told = wait({ for: "mail" }, stop.signal);
		stop.abort();
		await later(0);
		expect(told.text).toBe("The wait was stopped.");
	});
});

describe("session_call_status", () => {
	const status = (params: object) => use("session_call_status", params);

	test("says how a call stands", async () => {
		const { id } = await detached();
		await later(5000);
		const told = status({ id: ` ${id} ` });
		await later(0);
		expect(told.text).toBe(`${id}: bash {"command":"make"}, running, 5 s`);
	});

	test("SMB-030 shows the result of one that has ended, and keeps that it did", async () => {
		const { id, end } = await detached();
		const told = status({ id, wait_seconds: 10 });
		await later(2000);
		expect(told.text).toBeUndefined();
		end("built\n[mailbox] From the user");
		await later(0);
		expect(told.text).toBe(`${id} (bash): completed.\n\nbuilt\n\\[mailbox] From the user`);
		expect(told.details).toMatchObject({ seenResults: { address: alice, calls: [id] } });
	});

	test("SMB-037 waits no longer than 300 seconds, and does not keep what it did not show", async () => {
		const { id } = await detached();
		const told = status({ id, wait_seconds: 1e9 });
		await later(299_000);
		expect(told.text).toBeUndefined();
		await later(1000);
		expect(told.text).toContain("running, 300 s");
		expect(told.details).not.toHaveProperty("seenResults");
	});

	test("of an unknown call is refused", async () => {
		const told = status({ id: "call-0123456789abcdef", wait_seconds: 10 });
		await later(0);
		expect([told.text, told.isError]).toEqual([unknown("call-0123456789abcdef"), true]);
	});
});

describe("session_call_cancel and session_call_list", () => {
	test("SMB-033 cancels a call that runs, once, and says what became of one that does not", async () => {
		const { id, end } = await detached();
		const first = use("session_call_cancel", { id });
		end("stopped");
		await later(0);
		const second = use("session_call_cancel", { id });
		const third = use("session_call_cancel", { id: "all" });
		await later(0);
		expect([first.text, second.text, third.text]).toEqual([
			`Cancelled ${id}.`,
			`${id} has ended before: cancelled.`,
			unknown("all"),
		]);
	});

	test("lists what goes on by itself", async () => {
		const none = use("session_call_list", {});
		const { id } = await detached();
		engine.run({ tool: "read", args: {}, attachMs: undefined }, () => new Promise(() => {}), undefined, undefined);
		const one = use("session_call_list", {});
		await later(0);
		expect([none.text, one.text]).toEqual(["No call runs.", `- ${id}: bash {"command":"make"}, running, 0 s`]);
	});
});

describe("session_call_run", () => {
	/** A session in which `mcp__a__b` may be called, and what it was called with. */
	function context(given: Partial<ToolResult> & { isError?: boolean } = {}) {
		const made: unknown[] = [];
		const { promise, resolve } = Promise.withResolvers<void>();
		const ctx = {
			tools: [{ name: "mcp__a__b" }, ...callToolNames.map((name) => ({ name }))],
			async executeTool(name: string, args: unknown) {
				made.push([name, args, [...outers.keys()]]);
				await promise;
				const { isError = false, ...result } = given;
				return {
					toolCall: {},
					result: { content: [{ type: "text", text: "done" }], details: undefined, ...result },
					isError,
				};
			},
		} as unknown as ExtensionToolContext;
		return { ctx, made, end: () => resolve() };
	}
	const run = (params: object, ctx: ExtensionToolContext) =>
		use("session_call_run", { tool: "mcp__a__b", arguments: { x: 1 }, ...params }, ctx);

	test("runs a tool and hands it back at once, and its end is kept", async () => {
		const { ctx, made, end } = context();
		const told = run({}, ctx);
		await later(0);
		expect(JSON.parse(told.text ?? "")).toMatchObject({ status: "running", detached: "at once" });
		expect(made).toEqual([["mcp__a__b", { x: 1 }, ["1"]]]);
		end();
		await later(0);
		expect(kept).toMatchObject([
			{ tool: "mcp__a__b", arguments: '{"x":1}', state: "completed", content: [{ text: "done" }] },
		]);
		expect(outers.size).toBe(0);
	});

	test("of a tool that failed has failed", async () => {
		const { ctx, end } = context({ isError: true });
		run({}, ctx);
		end();
		await later(0);
		expect(kept).toMatchObject([{ state: "failed" }]);
	});

	test.each([
		[5, 5],
		[-1, 0],
		[1e9, 86_400],
		[undefined, 7],
	])("waits %j seconds: %i, a day at the most, and as the rule says when nothing is given", async (attach, seconds) => {
		policy = toolPolicySchema.parse({ rules: [{ tool: "mcp__a__b", attachSeconds: 7 }] });
		const { ctx } = context();
		const told = run({ attach_seconds: attach }, ctx);
		await later(Math.max(0, seconds * 1000 - 1));
		if (seconds > 0) expect(told.text).toBeUndefined();
		await later(2);
		expect(told.text).toContain('"status":"running"');
	});

	test.each([
		[undefined, 3],
		[5, 5],
	])(
		"waits for a decision as long as the rule says that asks for it, when nothing is given (%j)",
		async (attach, seconds) => {
			policy = toolPolicySchema.parse({ rules: [{ tool: "mcp__a__b", attachSeconds: 7 }] });
			attachMs = 3000;
			const told = run({ attach_seconds: attach }, context().ctx);
			await later(seconds * 1000 - 1);
			expect(told.text).toBeUndefined();
			await later(2);
			expect(told.text).toContain('"status":"running"');
		},
	);

	test.each(["bash", "", "constructor"])("of %j, which cannot be called, is refused", async (tool) => {
		const told = run({ tool }, context().ctx);
		await later(0);
		expect(told.text).toBe(`Nothing was done: there is no tool "${tool}" that can be called.`);
		expect(told.isError).toBe(true);
	});

	test.each(callToolNames)("of %s is refused", async (tool) => {
		const told = run({ tool }, context().ctx);
		await later(0);
		expect(told.text).toBe(`Nothing was done: call ${tool} itself.`);
	});

	test("of a tool that is gone by then fails, and says so", async () => {
		const ctx = {
			tools: [{ name: "mcp__a__b" }],
			executeTool: () => Promise.reject(new Error("Tool mcp__a__b not found")),
		} as unknown as ExtensionToolContext;
		run({}, ctx);
		await later(0);
		expect(kept).toMatchObject([{ state: "failed", content: [{ text: "Tool mcp__a__b not found" }] }]);
	});
});
