import { existsSync, readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { ToolResult } from "../../src/calls/engine.ts";
import type { Hook } from "../../src/mail/tool-policy.ts";
import {
	askAllBefore,
	askBefore,
	contentOf,
	type HookParts,
	hookEnvironment,
	tellAfter,
	tellAllAfter,
} from "../../src/policy/hooks.ts";
import { temporaryFolder } from "../support/disk.ts";

const denied = "Tool 'bash' denied by a hook, so this call was not made: no";
const call = { tool: "bash", arguments: { command: "ls" }, session_id: "s", tool_call_id: "c" };
const after = { ...call, status: "completed", duration_ms: 12 } as const;
const result: ToolResult = {
	content: [{ type: "text", text: "done" }],
	details: { a: 1 },
	structuredContent: { b: 1 },
};

function script(code: string, timeoutSeconds = 20): Hook {
	return { command: [process.execPath, "-e", code], timeoutSeconds };
}

function says(answer: unknown): Hook {
	return script(`console.log(${JSON.stringify(JSON.stringify(answer))})`);
}

function parts(more: Partial<HookParts> = {}): HookParts & { failures: string[] } {
	const failures: string[] = [];
	return {
		failures,
		cwd: temporaryFolder(),
		callTool: () => Promise.reject(new Error("there is no tool of this name")),
		failed: (when, why) => failures.push(`${when}: ${why}`),
		...more,
	};
}

test.each([
	{ action: "continue" },
	{ action: "continue", arguments: { command: "ls -l" } },
	{ action: "deny", message: "not today" },
	{ action: "defer" },
	{ action: "defer", reason: "look first" },
	{ action: "answer", result: { any: ["thing"] } },
])("SMB-062 before a call a command may answer $action", async (answer) => {
	const needed = parts();
	const said = "message" in answer ? { ...answer, message: denied.replace(/no$/, "not today") } : answer;
	expect(await askBefore(says(answer), call, needed)).toEqual(said);
	expect(needed.failures).toEqual([]);
});

test("SMB-065 a command gets what the model sent, in its folder, and no variable that may be a secret", async () => {
	const needed = parts({ env: { ...process.env, API_KEY: "secret", LC_ALL: "C" } });
	const code = `let text = "";
		process.stdin.on("data", (part) => (text += part)).on("end", () => {
			const { LC_ALL, API_KEY } = process.env;
			console.log(JSON.stringify({ action: "answer", result: { call: JSON.parse(text), cwd: process.cwd(), LC_ALL, API_KEY } }));
		});`;
	expect(await askBefore(script(code), call, needed)).toEqual({
		action: "answer",
		result: { call, cwd: realpathSync(needed.cwd), LC_ALL: "C" },
	});
	const variables = {
		PATH: "p",
		HOME: "h",
		LC_TIME: "t",
		XDG_STATE_HOME: "x",
		XDG_SESSION_COOKIE: "no",
		GITHUB_TOKEN: "no",
	};
	expect(Object.keys(hookEnvironment(variables))).toEqual(["PATH", "HOME", "LC_TIME", "XDG_STATE_HOME"]);
});

test("a list is run without a shell, and a text by one", async () => {
	const needed = parts();
	const listed = { command: ["echo", '{"action":"answer","result":"$HOME"}'] };
	expect(await askBefore(listed, call, needed)).toEqual({ action: "answer", result: "$HOME" });
	const text = { command: `printf '{"action":"answer","result":"%s"}' $((1 + 1))` };
	expect(await askBefore(text, call, needed)).toEqual({ action: "answer", result: "2" });
});

test.each([
	["cannot be started", { command: ["/nowhere/at-all"] }, "could not be started"],
	[
		"fails",
		script("console.log('{\"action\":\"continue\"}'); console.error('why'); process.exitCode = 3"),
		"ended with code 3: why",
	],
	["is killed", script("process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 9000)"), "ended with SIGTERM"],
	["prints nothing", script(""), "printed nothing"],
	["prints no JSON", script("console.log('yes')"), "did not print JSON, but yes"],
	["prints two answers", script('console.log(\'{"action":"continue"}{}\')'), "did not print JSON"],
	["answers something else", says({ action: "allow" }), "gave an answer that is none"],
	["answers null", says(null), "gave an answer that is none"],
	["gives arguments that are none", says({ action: "continue", arguments: [1] }), "gave an answer that is none"],
	["answers without a result", says({ action: "answer" }), "gave an answer that is none"],
	["hangs", script("setTimeout(() => {}, 9000)", 0.3), "did not end within 0.3 s"],
	["prints without end", { command: "cat /dev/zero" }, "printed more than 1048576 bytes"],
	["is a tool that is not there", { tool: "look" }, "the tool look failed: there is no tool of this name"],
] as const)("SMB-063 a hook before a call that %s denies it, and that is said", async (_, hook, why) => {
	const needed = parts();
	const answer = await askBefore(hook as Hook, call, needed);
	expect(answer).toEqual({
		action: "deny",
		message: expect.stringContaining("The hook before this call failed, so it was not made: "),
	});
	expect(answer).toMatchObject({ message: expect.stringContaining(why) });
	expect(needed.failures).toEqual([expect.stringContaining(`before: the ${"tool" in hook ? "tool" : "command"}`)]);
});

test("SMB-063 a hook after a call that fails leaves the result as it is, and that is said", async () => {
	for (const hook of [
		script("process.exit(1)"),
		says({ action: "deny", message: "no" }),
		script("setTimeout(() => {}, 9000)", 0.3),
	]) {
		const needed = parts();
		expect(await tellAfter(hook, after, result, needed)).toBe(result);
		expect(needed.failures).toEqual([expect.stringContaining("after: the command")]);
	}
});

test("a command that does not read a large input is no failure", async () => {
	const large = { ...call, arguments: { text: "x".repeat(4 * 1024 * 1024) } };
	expect(await askBefore(says({ action: "continue" }), large, parts())).toEqual({ action: "continue" });
});

test("what a command has started ends with it, and with its time", async () => {
	for (const [end, timeoutSeconds] of [
		["process.exit(0)", 20],
		["setTimeout(() => {}, 60000)", 1],
	] as const) {
		const needed = parts();
		const begin = performance.now();
		const code = `const { spawn } = require("node:child_process");
			const child = spawn("sleep", ["60"], { stdio: "inherit" });
			require("node:fs").writeFileSync("pid", String(child.pid));
			require("node:fs").writeSync(1, '{"action":"continue"}');
			${end}`;
		const answer = await askBefore(script(code, timeoutSeconds), call, needed);
		expect(answer.action).toBe(timeoutSeconds === 1 ? "deny" : "continue");
		expect(performance.now() - begin).toBeLessThan(15_000);
		const pid = readFileSync(join(needed.cwd, "pid"), "utf8");
		const isRunning = () =>
			existsSync(`/proc/${pid}/stat`) && !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z");
		for (let tries = 0; isRunning() && tries < 100; tries++) await sleep(20);
		expect(isRunning()).toBe(false);
	}
});

test("a hook ends when its call is stopped, also one that was not started yet", async () => {
	const controller = new AbortController();
	const needed = parts({ signal: controller.signal });
	setTimeout(() => controller.abort(), 200);
	const begin = performance.now();
	expect(await askBefore(script("setTimeout(() => {}, 9000)"), call, needed)).toMatchObject({ action: "deny" });
	expect(await askBefore(script("setTimeout(() => {}, 9000)"), call, needed)).toMatchObject({ action: "deny" });
	expect(performance.now() - begin).toBeLessThan(8000);
	expect(needed.failures).toEqual([expect.stringMatching(/was stopped$/), expect.stringMatching(/was stopped$/)]);
});

test("SMB-064 a hook may be a tool, which is given the call and answers with JSON", async () => {
	const seen: unknown[] = [];
	const needed = parts({
		async callTool(name, args) {
			seen.push([name, args]);
			return '{"action":"deny","message":"no"}';
		},
	});
	expect(await askBefore({ tool: "look" }, call, needed)).toEqual({ action: "deny", message: denied });
	expect(seen).toEqual([["look", call]]);
	const slow = parts({ callTool: () => new Promise(() => {}) });
	expect(await askBefore({ tool: "look", timeoutSeconds: 0.1 }, call, slow)).toMatchObject({ action: "deny" });
});

test("SMB-067 after a call a hook may leave, replace or annotate the result, of which it is told", async () => {
	const needed = parts();
	expect(await tellAfter(says({ action: "continue" }), after, result, needed)).toBe(result);
	expect(await tellAfter(says({ action: "continue", result: "else" }), after, result, needed)).toEqual({
		content: [{ type: "text", text: "else" }],
		details: { a: 1 },
	});
	expect(await tellAfter(says({ action: "annotate", text: "seen" }), after, result, needed)).toEqual({
		...result,
		content: [...result.content, { type: "text", text: "seen" }],
	});
	const code = `process.stdin.once("data", (text) => console.log(JSON.stringify({ action: "annotate", text: String(text) })))`;
	const { content } = await tellAfter(script(code), after, result, needed);
	expect(JSON.parse(content[1]?.type === "text" ? content[1].text : "")).toEqual({ ...after, result: result.content });
	expect(needed.failures).toEqual([]);
});

test("a result that a hook gives is shown as text, as parts, or as JSON", () => {
	const image = { type: "image", data: "abc", mimeType: "image/png" };
	expect(contentOf("a")).toEqual([{ type: "text", text: "a" }]);
	expect(contentOf([image])).toEqual([image]);
	expect(contentOf({ content: [image] })).toEqual([image]);
	expect(contentOf([{ type: "video" }])).toEqual([{ type: "text", text: '[{"type":"video"}]' }]);
	expect(contentOf(null)).toEqual([{ type: "text", text: "null" }]);
});

test("SMB-060 of several hooks before a call each gets what the one before it left, and the first that stops it decides", async () => {
	const asked: unknown[] = [];
	const answers: Record<string, unknown> = {
		a: { action: "continue", arguments: { command: "a" } },
		b: { action: "continue" },
		c: { action: "deny", message: "no" },
	};
	const needed = parts({
		async callTool(name, args) {
			asked.push([name, args.arguments]);
			return JSON.stringify(answers[name]);
		},
	});
	const hooks = (names: string) => [...names].map((tool) => ({ tool }));
	expect(await askAllBefore(hooks("ab"), call, needed)).toEqual({ action: "continue", arguments: { command: "a" } });
	expect(await askAllBefore(hooks("b"), call, needed)).toEqual({ action: "continue" });
	asked.length = 0;
	expect(await askAllBefore(hooks("bacb"), call, needed)).toEqual({ action: "deny", message: denied });
	expect(asked).toEqual([
		["b", { command: "ls" }],
		["a", { command: "ls" }],
		["c", { command: "a" }],
	]);
});

test("SMB-060 of several hooks after a call the last is the innermost, and is told first", async () => {
	const needed = parts({
		async callTool(name, args) {
			const texts = "result" in args ? args.result.map((part) => (part.type === "text" ? part.text : "")) : [];
			return JSON.stringify({ action: "annotate", text: `${name} saw ${texts.join("+")}` });
		},
	});
	const { content } = await tellAllAfter([{ tool: "outer" }, { tool: "inner" }], after, result, needed);
	expect(content.map((part) => (part.type === "text" ? part.text : ""))).toEqual([
		"done",
		"inner saw done",
		"outer saw done+inner saw done",
	]);
});
