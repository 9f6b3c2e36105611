import fc from "fast-check";
import { expect, test } from "vitest";
import * as z from "zod/mini";
import { type Permissions, toolPolicySchema } from "../../src/mail/tool-policy.ts";
import { createRegexRunner, type ToolCall } from "../../src/policy/pattern.ts";
import {
	compile,
	deniedOutright,
	evaluate,
	explain,
	narrow,
	ruleProblems,
	rulesForNoArgument,
	rulesForNoTool,
} from "../../src/policy/permissions.ts";

type Rules = readonly (readonly [behavior: "allow" | "ask" | "deny", pattern: string])[];

function permissions(rules: Rules, byDefault: Permissions["default"] = "allow"): Permissions {
	return { default: byDefault, rules: rules.map(([behavior, pattern]) => ({ behavior, pattern })) };
}

function bash(command: string): ToolCall {
	return { tool: "bash", args: { command } };
}

function behaviorOf(rules: Rules, call: ToolCall, byDefault?: Permissions["default"]) {
	return evaluate(compile(permissions(rules, byDefault)), call).behavior;
}

test("without rules a call is allowed, unless the default says otherwise (AWK-010, AWK-018)", () => {
	expect(z.parse(toolPolicySchema, { permissions: {} }).permissions).toEqual({ default: "allow", rules: [] });
	expect(evaluate(compile(permissions([])), bash("ls"))).toEqual({
		behavior: "allow",
		why: "the default of the settings, since no rule fits",
	});
	expect(behaviorOf([["allow", "read"]], bash("ls"), "deny")).toBe("deny");
	expect(behaviorOf([["allow", "bash"]], bash("ls"), "deny")).toBe("allow");
	expect(behaviorOf([], bash("ls"), "ask")).toBe("ask");
});

test("AWK-011 deny beats allow, and allow beats ask, however exact they are", () => {
	const ask = ["ask", 'bash(command="ls")'] as const;
	const allow = ["allow", "bash(ls)"] as const;
	expect(behaviorOf([ask, allow, ["deny", "/./"]], bash("ls"))).toBe("deny");
	expect(behaviorOf([ask, ["allow", "*"]], bash("ls"))).toBe("allow");
	expect(behaviorOf([ask, allow], bash("ls"))).toBe("allow");
	expect(behaviorOf([ask], bash("ls"))).toBe("ask");
});

test("AWK-011 of several that deny the most exact decides, and of those as exact the first", () => {
	const policy = compile(
		permissions([
			["deny", "*"],
			["deny", "bash(rm *)"],
			["deny", "bash"],
			["deny", 'bash(command~"rm *")'],
		]),
	);
	expect(evaluate(policy, bash("rm x")).rule?.pattern).toBe("bash(rm *)");
	expect(evaluate(policy, bash("ls")).rule?.pattern).toBe("bash");
	expect(evaluate(policy, { tool: "read", args: {} }).rule?.pattern).toBe("*");
});

test("a rule whose pattern does not compile denies what it names, or everything, and is named", () => {
	const policy = compile(
		permissions([
			["allow", "bash"],
			["allow", "bash(npm"],
		]),
	);
	expect(evaluate(policy, bash("ls"))).toMatchObject({ behavior: "deny", rule: { pattern: "bash(npm" } });
	expect(evaluate(policy, bash("ls")).why).toBe(
		'rule 2 of the settings: allow bash(npm, which does not compile and so denies ("(npm" is no argument in parentheses)',
	);
	expect(evaluate(policy, { tool: "read", args: {} }).behavior).toBe("allow");
	expect(ruleProblems(policy).map(({ what }) => what)).toContain(evaluate(policy, bash("ls")).why);
	expect(deniedOutright(policy, ["bash", "read"])).toEqual(["bash"]);

	const unknown = [["allow", "/(/"]] as const;
	expect(behaviorOf(unknown, bash("ls"))).toBe("deny");
	expect(behaviorOf(unknown, { tool: "read", args: {} })).toBe("deny");
	expect(ruleProblems(compile(permissions([["ask", "bash"]])))).toEqual([]);
});

test("L7 what cannot be tried in time counts as fitting for deny and ask, and not for allow", () => {
	const slow = 'bash(command=~"^(a+)+$")';
	const call = bash(`${"a".repeat(60)}b`);
	expect(behaviorOf([["deny", slow]], call)).toBe("deny");
	expect(behaviorOf([["ask", slow]], call)).toBe("ask");
	expect(behaviorOf([["allow", slow]], call, "ask")).toBe("ask");
	// Of a name that is slow to try as well.
	const named = { tool: `${"a".repeat(60)}b`, args: {} };
	expect(behaviorOf([["deny", "/^(a+)+$/"]], named)).toBe("deny");
	expect(behaviorOf([["allow", "/^(a+)+$/"]], named, "ask")).toBe("ask");
});

test("regular expressions run only where a rule has one that is about the tool, and a name is tried once", () => {
	const runs: number[] = [];
	const runner = createRegexRunner();
	const counting = {
		run(tests: Parameters<typeof runner.run>[0]) {
			runs.push(tests.length);
			return runner.run(tests);
		},
	};
	const rules: Rules = [
		["deny", "/^mcp/"],
		["ask", 'edit(path=~"^/etc")'],
		["ask", "bash(rm *)"],
	];
	const policy = compile(permissions(rules), "the settings", counting);
	for (let n = 0; n < 3; n++) expect(evaluate(policy, bash("rm x")).behavior).toBe("ask");
	expect(runs).toEqual([1]);
	for (let n = 0; n < 2; n++) expect(evaluate(policy, { tool: "edit", args: { path: "/etc/x" } }).behavior).toBe("ask");
	expect(runs).toEqual([1, 1, 1, 1]);
});

test("a person is told which rule decides, and which others fit and why they do not", () => {
	const policy = compile(
		permissions([
			["ask", "*"],
			["deny", "bash"],
			["deny", "bash(rm *)"],
			["allow", "bash(rm -rf *)"],
			["deny", "bash(rm *)"],
			["ask", "edit"],
		]),
	);
	expect(explain(policy, bash("rm -rf build"))).toEqual([
		"This call of bash is denied, by rule 3 of the settings: deny bash(rm *).",
		"It fits, too, and loses: rule 5 of the settings: deny bash(rm *) (it stands further down).",
		"It fits, too, and loses: rule 2 of the settings: deny bash (it is less exact).",
		"It fits, too, and loses: rule 4 of the settings: allow bash(rm -rf *) (deny beats allow).",
		"It fits, too, and loses: rule 1 of the settings: ask * (deny beats ask).",
	]);
	expect(explain(compile(permissions([])), bash("ls"))).toEqual([
		"This call of bash is allowed, by the default of the settings, since no rule fits.",
	]);
	const slow = compile(permissions([["allow", 'bash(command=~"^(a+)+$")']], "ask"));
	expect(explain(slow, bash(`${"a".repeat(60)}b`))[1]).toBe(
		'It could not be tried in time, and counts as not fitting: rule 1 of the settings: allow bash(command=~"^(a+)+$").',
	);
	expect(explain(compile(permissions([["deny", "*"]])), { tool: "a\nb\u202e", args: {} })[0]).toContain("of a b  is");
});

test("AWK-016 a tool is taken from the model's list only when every call of it is denied", () => {
	const tools = ["bash", "read", "mcp__a__x", "mcp__b__x"];
	const denied = (rules: Rules, byDefault?: Permissions["default"]) =>
		deniedOutright(compile(permissions(rules, byDefault)), tools);
	expect(denied([])).toEqual([]);
	expect(denied([["deny", "bash"]])).toEqual(["bash"]);
	expect(denied([["deny", "bash(rm *)"]])).toEqual([]);
	expect(denied([["deny", "bash(*)"]])).toEqual(["bash"]);
	expect(denied([["deny", "mcp__*"]])).toEqual(["mcp__a__x", "mcp__b__x"]);
	expect(denied([["deny", "/^mcp__b/"]])).toEqual(["mcp__b__x"]);
	expect(
		denied([
			["deny", "bash"],
			["allow", "bash(ls)"],
		]),
	).toEqual(["bash"]);
	expect(
		denied(
			[
				["allow", "read(src/*)"],
				["ask", "bash"],
			],
			"deny",
		),
	).toEqual(["mcp__a__x", "mcp__b__x"]);
});

test("a project asks about what the user allows, and allows nothing that the user asks about or denies", () => {
	const user = compile(
		permissions([
			["deny", "write(.git/*)"],
			["ask", "bash"],
		]),
	);
	const project = compile(
		permissions([
			["allow", "*"],
			["deny", "bash(rm *)"],
		]),
		"the project's settings",
	);
	const both = narrow(user, project);
	expect(evaluate(both, bash("ls"))).toMatchObject({ behavior: "ask", why: "rule 2 of the settings: ask bash" });
	expect(evaluate(both, bash("rm x")).why).toBe("rule 2 of the project's settings: deny bash(rm *)");
	expect(evaluate(both, { tool: "write", args: { path: ".git/config" } }).behavior).toBe("deny");
	expect(evaluate(both, { tool: "read", args: {} }).behavior).toBe("allow");
	expect(explain(both, bash("rm x"))).toEqual([
		"This call of bash is denied, by rule 2 of the project's settings: deny bash(rm *).",
		"It fits, too, and loses: rule 1 of the project's settings: allow * (deny beats allow).",
		"By the settings alone: rule 2 of the settings: ask bash. That would ask about it, which is less strict.",
	]);
	expect(deniedOutright(narrow(user, compile(permissions([["deny", "bash"]]))), ["bash", "read"])).toEqual(["bash"]);
});

test.each([
	["ask", "bash(rm *)", "allow", "*"],
	["ask", "bash(rm *)", "allow", "bash"],
	["ask", "bash(rm *)", "allow", "/^ba/"],
	["ask", "mcp__*", "allow", "mcp__*(*)"],
	["allow", "read", "deny", "*"],
] as const)("a rule that never decides is named: %s %s beside %s %s", (behavior, pattern, winner, all) => {
	const [found, ...more] = ruleProblems(
		compile(
			permissions([
				[behavior, pattern],
				[winner, all],
			]),
		),
	);
	expect(more).toEqual([]);
	expect(found?.what).toBe(
		`rule 1 of the settings: ${behavior} ${pattern}, which never decides: rule 2 of the settings: ${winner} ${all} fits all its calls, and ${winner} beats ${behavior}`,
	);
	expect(found?.mend).toContain("toolPolicy.permissions");
});

test("a rule that decides about some call is not said to be beaten", () => {
	const decides = [
		["ask", "bash(rm *)"],
		["allow", "bash(ls *)"],
		["allow", "read"],
		["allow", "read"],
		["deny", "bash(sudo *)"],
		["ask", "*"],
		["ask", "mcp__*"],
		["allow", "mcp__a"],
	] as const;
	expect(ruleProblems(compile(permissions(decides)))).toEqual([]);
});

test("a rule that is about none of the tools is named, which it is when the name is only spelled otherwise", () => {
	const policy = compile(
		permissions([
			["deny", "Bash(rm *)"],
			["deny", "bash"],
			["ask", "mcp__*"],
			["ask", "/(/"],
		]),
	);
	const fits = "which fits none of the tools that there are";
	expect(rulesForNoTool(policy, ["bash", "read"])).toMatchObject([
		{ what: `rule 1 of the settings: deny Bash(rm *), ${fits}; did you mean bash?` },
		{ what: `rule 3 of the settings: ask mcp__*, ${fits}`, isMaybeMeant: true },
	]);
});

const schemas: Record<string, unknown> = {
	bash: { type: "object", properties: { command: { type: "string" }, timeout: { type: "number" } } },
	edit: {
		type: "object",
		properties: {
			path: { type: "string" },
			edits: { type: "array", items: { type: "object", properties: { oldText: {}, newText: {} } } },
		},
	},
	unknown: { type: "object" },
};

const none = "which names an argument that its tool does not have: ";

test.each([
	['bash(comand~"rm *")', `${none}comand; did you mean command?`],
	['bash(x="1")', `${none}x`],
	['bash(command~"rm *", tiemout="5")', `${none}tiemout; did you mean timeout?`],
	["bash(comand: rm *)", 'which takes "comand:" for a part of the text that it looks for; did you mean command~"…"?'],
	["bash(command: rm *)", 'which takes "command:" for a part of the text that it looks for; did you mean command~"…"?'],
	['edit(edits.0.newtext=~"/TODO/")', `${none}edits.0.newtext; did you mean edits.0.newText?`],
	['edit(edits.newText~"*x*")', `${none}edits.newText; did you mean edits.*.newText?`],
])("a rule that names an argument which its tool does not have is named, and what is close: %s", (pattern, said) => {
	const [one, ...more] = rulesForNoArgument(compile(permissions([["deny", pattern]])), (tool) => schemas[tool]);
	expect(more).toEqual([]);
	expect(one?.what).toBe(`rule 1 of the settings: deny ${pattern}, ${said}`);
});

test("no rule is named whose arguments are those of its tool, or not known, or whose text only has a colon", () => {
	const right = [
		...['edit(edits.*.newText~"*x*", path="a")', 'edit(edits.12.oldText.x~"*")', 'edit(*~"x")', 'edit(path.x~"y")'],
		...['other(x="1")', 'unknown(x="1")', '/bash/(x="1")', 'ba*(x="1")', "bash(rm *)", "bash", "bash(echo: x)"],
		...["bash(curl https: x)", "bash(comand:*)", 'bash(x~"'],
	];
	const policy = compile(permissions(right.map((pattern) => ["deny", pattern])));
	expect(rulesForNoArgument(policy, (tool) => schemas[tool])).toEqual([]);
});

const patterns = [
	"*",
	"a",
	"b",
	"a*",
	"/a/",
	"a(x)",
	"a(x*)",
	'a(p="x")',
	'b(p~"*x*", q="1")',
	'a(p=~"^x")',
	"a(",
	"/(/",
];
const anyPermissions = fc.record({
	default: fc.constantFrom("allow" as const, "ask" as const, "deny" as const),
	rules: fc.array(
		fc.record({
			pattern: fc.constantFrom(...patterns),
			behavior: fc.constantFrom("allow" as const, "ask" as const, "deny" as const),
		}),
		{ maxLength: 6 },
	),
});
const anyCall = fc.record({
	tool: fc.constantFrom("a", "b", "ab"),
	args: fc.record({ p: fc.constantFrom("x", "xy", "y"), q: fc.constantFrom("1", "2") }),
});
const strictness = { allow: 0, ask: 1, deny: 2 };
const shared = createRegexRunner();

test("for every call what a project narrows is at most as permissive as what the user allows, and as the project's own", () => {
	fc.assert(
		fc.property(anyPermissions, anyPermissions, anyCall, (user, project, call) => {
			const [ours, theirs] = [compile(user, "ours", shared), compile(project, "theirs", shared)];
			const both = narrow(ours, theirs);
			const [own, others, narrowed] = [ours, theirs, both].map((policy) => evaluate(policy, call).behavior);
			expect(strictness[narrowed ?? "allow"]).toBe(Math.max(strictness[own ?? "allow"], strictness[others ?? "allow"]));
			if (own === narrowed) expect(evaluate(both, call)).toEqual(evaluate(ours, call));
		}),
	);
});

test("for every call a further rule that denies makes nothing more permissive, and the lines name what decides", () => {
	fc.assert(
		fc.property(anyPermissions, fc.constantFrom(...patterns), anyCall, (before, pattern, call) => {
			const after = { ...before, rules: [...before.rules, { pattern, behavior: "deny" as const }] };
			const verdict = evaluate(compile(after, "it", shared), call);
			const earlier = evaluate(compile(before, "it", shared), call).behavior;
			expect(strictness[verdict.behavior]).toBeGreaterThanOrEqual(
				verdict.behavior === "deny" ? 2 : strictness[earlier],
			);
			expect(explain(compile(after, "it", shared), call)[0]).toContain(verdict.why);
		}),
	);
});

test("a tool that is taken from the model's list is denied in every call", () => {
	fc.assert(
		fc.property(anyPermissions, anyPermissions, anyCall, (user, project, call) => {
			const both = narrow(compile(user, "ours", shared), compile(project, "theirs", shared));
			if (deniedOutright(both, [call.tool]).length > 0) expect(evaluate(both, call).behavior).toBe("deny");
		}),
	);
});
