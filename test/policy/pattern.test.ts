import fc from "fast-check";
import { expect, test } from "vitest";
import { createRegexRunner, match, type Pattern, parsePattern, type ToolCall } from "../../src/policy/pattern.ts";

const runner = createRegexRunner();

function pattern(text: string): Pattern {
	const parsed = parsePattern(text);
	if (!parsed.ok) throw new Error(parsed.problem);
	return parsed.pattern;
}

function fits(text: string, tool: string, args: unknown = {}): boolean | undefined {
	return match(pattern(text), { tool, args }, runner);
}

/** What is wrong with a pattern. */
function problemOf(text: string): string {
	const parsed = parsePattern(text);
	return parsed.ok ? "" : parsed.problem;
}

test("AWK-012 a name fits the tool of that name alone", () => {
	expect(fits("bash", "bash")).toBe(true);
	expect(fits("bash", "bash2")).toBe(false);
	expect(fits("bash", "Bash")).toBe(false);
});

test("AWK-012 SMB-061 in the name of a tool only * is special", () => {
	expect(fits("mcp__*", "mcp__git__log")).toBe(true);
	expect(fits("mcp__*", "mcp_git")).toBe(false);
	expect(fits("mcp__*__log", "mcp__git__log")).toBe(true);
	expect(fits("*a*a", "a")).toBe(false);
	expect(fits("*a*a", "aa")).toBe(true);
	expect(fits("b.sh", "bash")).toBe(false);
	expect(fits("b?sh", "bash")).toBe(false);
});

test("AWK-012 a regular expression is found anywhere in the name unless it is anchored", () => {
	expect(fits("/^(read|grep)$/", "grep")).toBe(true);
	expect(fits("/^(read|grep)$/", "egrep")).toBe(false);
	expect(fits("/GREP/i", "egrep")).toBe(true);
	expect(fits('/^(read|grep)$/(path="a(b)")', "read", { path: "a(b)" })).toBe(true);
});

test.each([
	["bash(npm *)", "bash", { command: "npm test" }, true],
	["bash(npm *)", "bash", { command: "pnpm test" }, false],
	["bash(npm *)", "bash", { command: "npm" }, false],
	["bash(npm *)", "bash", { timeout: 1, cmd: "npm test" }, false],
	["bash(npm *)", "bash", {}, false],
	["bash(npm *)", "bash", null, false],
	["bash(*rm -rf*)", "bash", { command: "cd x\nrm -rf build" }, true],
	["bash(echo (a))", "bash", { command: "echo (a)" }, true],
	["powershell(del *)", "powershell", { command: "del x" }, true],
	["read(/etc/*)", "read", { offset: 1, path: "/etc/passwd" }, true],
	["read(/etc/*)", "read", { path: "/home/etc/x" }, false],
	["write(*.env)", "write", { content: "x.env", path: "a" }, false],
	["ls(src)", "ls", { path: "src" }, true],
	["grep(TODO)", "grep", { path: "TODO", pattern: "x" }, false],
	["find(*.ts)", "find", { pattern: "a.ts" }, true],
	["mcp__web__get(https://example.com/*)", "mcp__web__get", { depth: 3, url: "https://example.com/a" }, true],
	["mcp__web__get(https://example.com/*)", "mcp__web__get", { depth: 3, url: "https://example.org/a" }, false],
	["bash(*)", "bash", {}, true],
])("AWK-012 %s for %s with %j: %s", (text, tool, args, expected) => {
	expect(fits(text, tool, args)).toBe(expected);
});

test.each([
	['edit(path~"src/*")', { path: "src/a.ts" }, true],
	['edit(path="src/*")', { path: "src/a.ts" }, false],
	['edit(path="src/*")', { path: "src/*" }, true],
	["edit(path='a \"b\"')", { path: 'a "b"' }, true],
	['edit(path="a \\"b\\\\c")', { path: 'a "b\\c' }, true],
	['edit(path =~ "^src/.+\\.ts$")', { path: "src/a.ts" }, true],
	['edit(path =~ "^src/.+\\.ts$")', { path: "src/a_ts" }, false],
	['edit(edits.0.newText=~"/todo/i")', { edits: [{ newText: "// TODO" }] }, true],
	['edit(edits.0.newText=~"/todo/i")', { edits: [{}, { newText: "// TODO" }] }, false],
	['edit(edits.*.newText=~"/todo/i")', { edits: [{}, { newText: "// TODO" }] }, true],
	['edit(edits.*.newText=~"/todo/i")', { edits: [] }, false],
	['edit(path~"src/*", edits.0.newText=~"/TODO/")', { path: "src/a", edits: [{ newText: "TODO" }] }, true],
	['edit(path~"src/*", edits.0.newText=~"/TODO/")', { path: "lib/a", edits: [{ newText: "TODO" }] }, false],
	['edit(path~"src/*", edits.0.newText=~"/TODO/")', { path: "src/a", edits: [{ newText: "done" }] }, false],
	['edit(limit="5")', { limit: 5 }, true],
	['edit(all="true")', { all: true }, true],
	['edit(options~"*\\"force\\":true*")', { options: { force: true } }, true],
	['edit(constructor~"*")', { path: "a" }, false],
	['edit(path.length="1")', { path: "a" }, false],
])("AWK-012 %s for %j: %s", (text, args, expected) => {
	expect(fits(text, "edit", args)).toBe(expected);
	expect(fits(text, "write", args)).toBe(false);
});

test("a pattern that does not compile says what is wrong, and which tools it names when that can be told", () => {
	const call = { tool: "bash", args: {} };
	for (const [text, problem, named] of [
		["", "does not begin with the name of a tool", undefined],
		["(npm)", "does not begin with the name of a tool", undefined],
		["/bash", "does not end with a slash", undefined],
		["/(/", "Invalid regular expression", undefined],
		["/bash/g", "flags", undefined],
		["bash(npm", "no argument in parentheses", true],
		["bash npm", "no argument in parentheses", true],
		["bash()", "nothing in its parentheses", true],
		["bash(command=~npm)", 'is not like path~"src/*"', true],
		['bash(command="a)', "is not like", true],
		['bash(command="a" timeout="1")', "is not like", true],
		['bash(command="a",)', "is not like", true],
		['bash(command=~"(")', "Invalid regular expression", true],
		['edit(path=~"(")', "Invalid regular expression", false],
	] as const) {
		expect(problemOf(text)).toContain(problem);
		const parsed = parsePattern(text);
		expect(parsed.ok ? undefined : parsed.tool?.fitsTool(call.tool)).toBe(named);
	}
});

test("AWK-011 the more exact a pattern, the higher its specificity", () => {
	const inOrder = [
		"/b/",
		"/^bash$/",
		"*",
		"mcp__*",
		"mcp__git__*",
		"bash",
		'bash(command=~"npm")',
		"bash(npm *)",
		"bash(npm run *)",
		"bash(npm test)",
		'edit(path="a", all="true")',
	];
	const specificities = inOrder.map((text) => pattern(text).specificity);
	expect(specificities).toEqual([...specificities].sort((a, b) => a - b));
	expect(new Set(specificities).size).toBe(inOrder.length);
});

test("AWK-016 only what stands in parentheses makes a pattern depend on arguments", () => {
	expect(["bash", "b*", "/b/", "bash(*)"].map((text) => pattern(text).isOfArguments)).toEqual(Array(4).fill(false));
	expect(["bash(a)", 'bash(a~"*")'].map((text) => pattern(text).isOfArguments)).toEqual([true, true]);
});

test("a regular expression that was stopped is tried once more when it had not all the time for itself", () => {
	class SlowOnce extends RegExp {
		tries = 0;
		override test(): boolean {
			while (this.tries++ === 0) for (;;);
			return true;
		}
	}
	const tests = [/a/, new SlowOnce("a"), /b/].map((regex) => ({ regex, texts: ["a"] }));
	expect(runner.run(tests)).toEqual([true, true, false]);
	expect(runner.run([{ regex: new SlowOnce("a"), texts: ["a"] }])).toEqual([undefined]);
});

test("L7 a regular expression that would never end is stopped, and it is unknown whether it fits", () => {
	const args = { command: `${"a".repeat(60)}b` };
	const begin = performance.now();
	expect(fits('bash(command=~"^(a+)+$")', "bash", args)).toBe(undefined);
	// Those around it keep their answers, as long as there are not many like it.
	const quick = { regex: /^a/, texts: [args.command] };
	const slow = { regex: /^(a+)+$/, texts: [args.command] };
	expect(runner.run([quick, slow, quick])).toEqual([true, undefined, true]);
	expect(runner.run([slow, slow, slow, slow, quick])).toEqual(Array(5).fill(undefined));
	expect(runner.run([quick, quick])).toEqual([true, true]);
	expect(performance.now() - begin).toBeLessThan(4000);
	expect(fits('bash(command=~"^a")', "bash", args)).toBe(true);
});

test("L7 a text of more than a mebibyte is not tried on a regular expression", () => {
	const long = { command: "x".repeat(1024 * 1024 + 1) };
	expect(fits('bash(command=~"x")', "bash", long)).toBe(undefined);
	expect(fits('bash(command~"*x")', "bash", long)).toBe(true);
	expect(
		runner.run([
			{ regex: /x/, texts: [long.command] },
			{ regex: /y/, texts: ["y"] },
		]),
	).toEqual([undefined, true]);
});

test("L7 any number of * is tried in the time that the text is long", () => {
	const begin = performance.now();
	expect(fits(`bash(${"a*".repeat(200)}b)`, "bash", { command: "a".repeat(100_000) })).toBe(false);
	expect(performance.now() - begin).toBeLessThan(1000);
});

test("AWK-012 a text with * fits what a regular expression with .* fits", () => {
	const part = fc.string({ unit: fc.constantFrom("a", "b", "*", "."), maxLength: 8 });
	fc.assert(
		fc.property(part, part, (glob, text) => {
			const regex = new RegExp(`^${glob.replaceAll(".", "\\.").replaceAll("*", ".*")}$`, "s");
			fc.pre(glob !== "" && !/^\*+$/.test(glob));
			expect(fits(`x(v~"${glob}")`, "x", { v: text })).toBe(regex.test(text));
		}),
	);
});

test("no text makes the parser or a match throw", () => {
	const text = fc.oneof(
		fc.string({ maxLength: 30 }),
		fc.string({
			unit: fc.constantFrom("a", "/", "(", ")", "*", "~", "=", '"', "'", "\\", ",", ".", " "),
			maxLength: 20,
		}),
	);
	fc.assert(
		fc.property(text, fc.jsonValue(), (source, args) => {
			const parsed = parsePattern(source);
			const call: ToolCall = { tool: "a", args };
			if (parsed.ok) match(parsed.pattern, call, runner);
			else expect(parsed.problem).not.toBe("");
		}),
	);
});
