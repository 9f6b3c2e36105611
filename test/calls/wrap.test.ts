import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { describe, expect, test } from "vitest";
import type { Engine, NewCall, Question, Work } from "../../src/calls/engine.ts";
import { attachMsOf, type Host, suspendProblems, wrapBuiltIns } from "../../src/calls/wrap.ts";
import { type ToolPolicy, toolPolicySchema } from "../../src/mail/tool-policy.ts";
import type { Gate } from "../../src/policy/gate.ts";
import type { Tool } from "../../src/tools/tool.ts";
import { fakeTurn, outerCall } from "../support/calls.ts";

type Result = Awaited<ReturnType<Tool["execute"]>>;

const policyOf = (...rules: ToolPolicy["rules"]) => toolPolicySchema.parse({ rules });
const printed: Result = {
	content: [{ type: "text", text: "own" }],
	details: { exit: 0 },
	structuredContent: { output: "own" },
};

/** A Pi whose tools of these names are its own or of others; what is registered, and how the tools are called. */
function setUp({
	policy = policyOf({ tool: "bash" }),
	tools = { bash: "builtin", read: "builtin", grep: "builtin" },
	active = ["bash", "read"],
	settings = {},
	engine = true,
	isRefused = false,
	asked,
	given,
}: {
	policy?: ToolPolicy;
	tools?: Record<string, string>;
	active?: string[];
	settings?: object;
	engine?: boolean;
	isRefused?: boolean;
	asked?: { attachMs: number | undefined; ticket: Question };
	given?: Result;
} = {}) {
	const made: unknown[][] = [];
	const executed: string[] = [];
	const calls: NewCall[] = [];
	const registered = new Map<string, Tool & { defaultActive?: boolean }>();
	const maker = (name: string) => (cwd: string, options?: object) => {
		made.push([name, cwd, options]);
		const tool = {
			...{ name, label: `Pi's ${name}`, description: "its own", promptSnippet: "snip", promptGuidelines: ["guide"] },
			...{
				parameters: { type: "object" },
				outputSchema: { type: "object" },
				renderCall: () => {},
				renderResult: () => {},
			},
			execute: async (id: string) => {
				executed.push(id);
				return printed;
			},
		};
		return tool;
	};
	const host = Object.fromEntries(
		["Bash", "PowerShell", "Read", "Edit", "Write", "Grep", "Find", "Ls"].map((name) => [
			`create${name}ToolDefinition`,
			maker(name.toLowerCase()),
		]),
	);
	const pi = {
		getAllTools: () => Object.entries(tools).map(([name, source]) => ({ name, sourceInfo: { source } })),
		getActiveTools: () => active,
		getSettings: () => settings,
		registerTool: (tool: Tool) => registered.set(tool.name, tool),
	};
	const runner: Pick<Engine, "run"> = {
		run(call: NewCall, work: Work, signal) {
			calls.push(call);
			return work(signal ?? new AbortController().signal, () => {}, fakeTurn());
		},
	};
	/** Nothing is put around. */
	const gate: Pick<Gate, "around" | "asked" | "given" | "inside"> = {
		inside: async () => undefined,
		asked: () => asked,
		given: () => given,
		around:
			(_id, { args }, _ctx, work) =>
			(signal, onUpdate) =>
				work(args, signal, onUpdate),
	};
	const { problems } = wrapBuiltIns({
		pi: pi as unknown as ExtensionAPI,
		ctx: { cwd: "/work" } as ExtensionContext,
		host: host as unknown as Host,
		policy: () => policy,
		current: () => (engine ? { engine: runner, gate } : undefined),
		withoutMailbox: async () => (isRefused ? { block: true, reason: "nobody can be asked" } : undefined),
		outerOf: (id) => (id.startsWith("inner/") ? outerCall(new AbortController().signal) : undefined),
	});
	const execute = (name: string, id = "1") =>
		registered.get(name)?.execute(id, { command: "make" }, undefined, undefined, {} as never);
	return { made, executed, calls, registered, problems, execute };
}

describe("a tool of Pi's own that a rule names", () => {
	test("SMB-025 keeps all that it has, and its calls go by the rule", async () => {
		const { registered, execute, calls, executed, problems } = setUp({
			policy: policyOf({ tool: "bash", attachSeconds: 2.5 }),
		});
		expect([...registered.keys()]).toEqual(["bash"]);
		expect(registered.get("bash")).toMatchObject({
			...{ label: "Pi's bash", description: "its own", promptSnippet: "snip", promptGuidelines: ["guide"] },
			...{ parameters: { type: "object" }, outputSchema: { type: "object" } },
			...{ renderCall: expect.any(Function), renderResult: expect.any(Function) },
		});
		expect(registered.get("bash")).not.toHaveProperty("defaultActive");
		expect(await execute("bash")).toBe(printed);
		expect(calls).toEqual([{ tool: "bash", args: { command: "make" }, attachMs: 2500 }]);
		expect([executed, problems]).toEqual([["1"], []]);
	});

	test("SMB-025 is switched on or off as it was", () => {
		const { registered, problems } = setUp({ policy: policyOf({ tool: "*", attachSeconds: 1 }) });
		expect([...registered].map(([name, { defaultActive }]) => [name, defaultActive])).toEqual([
			["bash", undefined],
			["read", undefined],
			["grep", false],
		]);
		expect(problems).toEqual([]);
	});

	test("is Pi's again where the session has no mailbox, and inside a call that is one already", async () => {
		const off = setUp({ engine: false });
		expect(await off.execute("bash")).toBe(printed);
		// What was let pass to be decided about inside is not made for that.
		const refused = setUp({ engine: false, isRefused: true });
		await expect(refused.execute("bash")).rejects.toThrow("nobody can be asked");
		expect(refused.executed).toEqual([]);
		const { execute, calls, executed } = setUp();
		expect(await execute("bash", "inner/1")).toBe(printed);
		expect([calls, executed]).toEqual([[], ["inner/1"]]);
	});

	const question = { id: "ticket-a", tool: "bash" };
	test("that somebody is asked about takes no place before that, and is waited for as the rule says that asks", async () => {
		const { execute, calls } = setUp({
			policy: policyOf({ tool: "bash", attachSeconds: 2.5 }),
			asked: { attachMs: 100, ticket: question },
		});
		await execute("bash");
		expect(calls).toEqual([{ tool: "bash", args: { command: "make" }, attachMs: 100, question }]);
	});

	test("gives what a hook has answered, and is not called", async () => {
		const given = { ...printed, content: [] };
		const { execute, calls, executed } = setUp({ given });
		expect(await execute("bash")).toBe(given);
		expect([calls, executed]).toEqual([[], []]);
	});

	test("has what its user has set for it in Pi", () => {
		const settings = { shellCommandPrefix: "nice", shellPath: "/bin/zsh", images: { autoResize: false } };
		const { made } = setUp({ policy: policyOf({ tool: "*" }), settings });
		expect(made).toContainEqual(["bash", "/work", { commandPrefix: "nice", shellPath: "/bin/zsh" }]);
		expect(made).toContainEqual(["read", "/work", { autoResizeImages: false }]);
		expect(setUp().made).toEqual([["bash", "/work", {}]]);
	});
});

describe("what cannot be done is said", () => {
	test("another extension's tool is left alone", () => {
		const { registered, problems } = setUp({ tools: { bash: "local" } });
		expect([...registered.keys()]).toEqual([]);
		expect(problems).toMatchObject([{ what: "the tool bash is that of another extension and is left alone" }]);
	});

	test("a tool that Pi gives no way to wrap", () => {
		const { problems, registered } = setUp({
			policy: policyOf({ tool: "mcp__a__b" }, { tool: "codemode" }, { tool: "*" }),
		});
		expect(problems).toEqual([]);
		expect(registered.size).toBe(3);
		const { rules } = policyOf({ tool: "mcp__a__b" }, { tool: "grepp" }, { tool: "*" }, { tool: "powershell" });
		const why = "holds only for calls by session_call_run: Pi gives no way to suspend the tools of others";
		const mend = "change toolPolicy.rules in the settings";
		expect(suspendProblems({ rules, maxCalls: 4 }, ["grep", "mcp__a__b"])).toEqual([
			{ what: `the rule for mcp__a__b ${why}`, mend },
			{ what: "the rule for grepp, which fits none of the tools that there are; did you mean grep?", mend },
		]);
	});

	test("nothing of a tool that this Pi does not have", () => {
		expect(setUp({ policy: policyOf({ tool: "powershell" }) })).toMatchObject({ problems: [], made: [] });
	});
});

test("SMB-025 a rule says how long, in seconds; without that, and without a rule, there is no end", () => {
	const policy = policyOf({ tool: "bash", attachSeconds: 0 }, { tool: "read" });
	expect(["bash", "read", "grep"].map((tool) => attachMsOf(policy, tool))).toEqual([0, undefined, undefined]);
});
