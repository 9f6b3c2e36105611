import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { RpcExtensionUIRequest } from "@earendil-works/pi-coding-agent";
import { afterEach, expect, test } from "vitest";
import { cleanUp, environment, eventually, type Home, makeHome, type Pi, printPi, repository } from "../support/pi.ts";
import { fixture, homeWith, mailEntries, ours, program, toolResults as results, startedPi } from "./mail.ts";

afterEach(cleanUp);

const rules = (...list: object[]) => ({ permissions: { rules: list } });
const asksRm = (more: object = {}) => rules({ pattern: "bash(rm *)", behavior: "ask", ...more });
const rm = '!tool bash {"command":"rm -rf build"}\n!next\n!say went on';

/** The next dialog. */
function dialog(
	pi: Pi,
	method: "select" | "confirm" | "input" = "select",
): Promise<RpcExtensionUIRequest & { title: string }> {
	return pi.waitFor(
		(event) => event.type === "extension_ui_request" && event.method === method && "title" in event && event,
		{ what: `a dialog (${method})` },
	);
}

async function tickets(home: Home): Promise<{ id: string }[]> {
	return JSON.parse((await program(home, "tickets", "--json")).stdout).tickets;
}

function untilTicket(home: Home): Promise<string> {
	return eventually(async () => (await tickets(home))[0]?.id, { what: "a ticket" });
}

test("AWK-015/016 what is denied is not called, and what is denied outright is not in the model's list", async () => {
	const home = homeWith(
		rules(
			{ pattern: "bash(rm *)", behavior: "deny", message: "Nothing is deleted here." },
			{ pattern: "write", behavior: "deny" },
		),
	);
	mkdirSync(join(home.workDir, "build"));
	const pi = await startedPi({ home });
	expect(pi.modelRequests().at(-1)?.tools).not.toContain("write");
	await pi.prompt(rm);
	await pi.settled();
	expect(results(pi)).toEqual([
		{
			text: "Tool 'bash' denied by permission rules (rule 1 of the settings: deny bash(rm *)). Nothing is deleted here.",
			isError: true,
		},
	]);
	expect(existsSync(join(home.workDir, "build"))).toBe(true);
});

test("AWK-013 a call that is asked about is made when the person allows it, and not when the person says no, with the reason", async () => {
	const home = homeWith(asksRm());
	mkdirSync(join(home.workDir, "build"));
	const pi = await startedPi({ home });
	await pi.prompt(rm);
	const asked = await dialog(pi);
	expect(asked.title).toBe(
		"Permission required for tool 'bash'\nbash: rm -rf build\nAsked by rule 1 of the settings: ask bash(rm *).",
	);
	pi.mark(asked);
	pi.answer(asked, { value: "No, with a reason …" });
	pi.answer(await dialog(pi, "input"), { value: "keep it" });
	await pi.settled();
	expect(results(pi)).toEqual([
		{ text: "The call of bash was refused: by the user of the session. Reason: keep it", isError: true },
	]);
	expect(existsSync(join(home.workDir, "build"))).toBe(true);
	await pi.prompt(rm);
	pi.answer(await dialog(pi), { value: "Allow once" });
	await pi.settled();
	expect(existsSync(join(home.workDir, "build"))).toBe(false);
	expect(await tickets(home)).toEqual([]);
});

test("a person allows such calls for the session, or for good, which adds a rule that is shown first", async () => {
	const home = homeWith(asksRm());
	const pi = await startedPi({ home });
	await pi.prompt(rm);
	pi.answer(await dialog(pi), { value: "Allow this call for the session" });
	await pi.settled();
	await pi.prompt(rm);
	await pi.settled();
	await pi.prompt('!tool bash {"command":"rm -rf other"}\n!next\n!say went on');
	const asked = await dialog(pi);
	pi.answer(asked, { value: "Always allow …" });
	pi.answer(await dialog(pi, "confirm"), { confirmed: true });
	await pi.settled();
	const { toolPolicy } = JSON.parse(readFileSync(join(home.agentDir, "session-mail.json"), "utf8"));
	expect(toolPolicy.permissions.rules).toEqual([
		{ pattern: "bash(rm *)", behavior: "ask" },
		{ pattern: 'bash(command="rm -rf other")', behavior: "allow" },
	]);
	expect(results(pi).every(({ isError }) => !isError)).toBe(true);
});

test("a call that waits is handed back, is approved from a shell in another window, and its result comes as mail", async () => {
	const home = homeWith(asksRm({ attachSeconds: 0.3 }));
	mkdirSync(join(home.workDir, "build"));
	const pi = await startedPi({ home });
	await pi.prompt('!tool bash {"command":"rm -rf build; echo gone"}\n!next\n!say meanwhile');
	await pi.settled();
	expect(JSON.parse(results(pi)[0]?.text ?? "")).toMatchObject({
		status: "pending",
		detached: "nobody has decided about it within 0.3 s",
	});
	const id = await untilTicket(home);
	const watching = spawn(process.execPath, [join(repository, "src/cli.cjs"), "tickets", "--watch"], {
		env: environment(home),
		stdio: ["ignore", "pipe", "inherit"],
	});
	const [line] = await once(watching.stdout, "data");
	expect(`${line}`).toMatch(new RegExp(`^${id}  ${pi.sessionId.slice(0, 8)}[^ ]*  bash`));
	watching.kill("SIGINT");
	expect(await once(watching, "exit")).toEqual([130, null]);
	expect(await program(home, "approve", id)).toMatchObject({
		code: 0,
		stdout: `Approved: bash of ${pi.sessionId}; the call is made.\n`,
	});
	await eventually(() => mailEntries(pi).length === 1);
	expect(mailEntries(pi)[0]?.text).toContain("has completed. This is its result.\n\ngone");
	expect(existsSync(join(home.workDir, "build"))).toBe(false);
	expect(await program(home, "deny", id)).toMatchObject({
		code: 1,
		stderr: expect.stringContaining("a person at a shell"),
	});
});

test("L3 a ticket outlives kill -9: approved after that, the call is granted once, and is not made by itself", async () => {
	const home = homeWith(asksRm({ attachSeconds: 0 }));
	mkdirSync(join(home.workDir, "build"));
	const pi = await startedPi({ home });
	await pi.prompt(rm);
	await pi.settled();
	const id = await untilTicket(home);
	await pi.kill();
	const again = await startedPi({ home, args: ["--session", pi.sessionFile] });
	await eventually(() => mailEntries(again).some(({ text }) => text.includes(`It was not made. The question ${id}`)));
	expect(existsSync(join(home.workDir, "build"))).toBe(true);
	expect((await program(home, "approve", id)).code).toBe(0);
	await eventually(() => mailEntries(again).some(({ text }) => text.includes("was approved by a person at a shell")));
	expect(existsSync(join(home.workDir, "build"))).toBe(true);
	await eventually(async () => !(await again.state()).isStreaming);
	await again.prompt(rm);
	await again.settled();
	await eventually(() => !existsSync(join(home.workDir, "build")));
	mkdirSync(join(home.workDir, "build"));
	await again.prompt(rm);
	await again.settled();
	expect(existsSync(join(home.workDir, "build"))).toBe(true);
});

test("another session that a rule names decides by mail, as a model; one that it does not name cannot", async () => {
	const home = homeWith(asksRm({ approver: "boss", attachSeconds: 0 }));
	mkdirSync(join(home.workDir, "build"));
	const boss = await startedPi({ home, name: "boss" });
	const other = await startedPi({ home, name: "other" });
	const pi = await startedPi({ home, name: "worker" });
	await pi.prompt(rm);
	await pi.settled();
	const id = await untilTicket(home);
	await eventually(() => mailEntries(boss).some(({ text }) => text.includes(`ticket ${id}`)));
	const call = `!tool session_ticket_decide {"session":"worker","ticket":"${id}","approve":true}\n!next\n!say decided`;
	await other.prompt(call);
	await other.settled();
	expect(results(other)[0]).toMatchObject({ isError: true, text: expect.stringContaining("names another session") });
	await eventually(async () => !(await boss.state()).isStreaming);
	await boss.prompt(call);
	await boss.settled();
	expect(results(boss).at(-1)?.text).toBe(`Approved: bash of ${pi.sessionId}.`);
	await eventually(() => !existsSync(join(home.workDir, "build")));
});

test("in a batch of three one asks, and the other two run meanwhile", async () => {
	const home = homeWith(asksRm());
	mkdirSync(join(home.workDir, "build"));
	const pi = await startedPi({ home });
	const call = (command: string) => `!tool bash {"command":"${command}"}`;
	await pi.prompt(`${call("touch one")}\n${call("rm -rf build")}\n${call("touch two")}\n!next\n!say done`);
	const asked = await dialog(pi);
	await eventually(() => ["one", "two"].every((name) => existsSync(join(home.workDir, name))));
	expect(existsSync(join(home.workDir, "build"))).toBe(true);
	pi.answer(asked, { value: "Allow once" });
	await pi.settled();
	expect(existsSync(join(home.workDir, "build"))).toBe(false);
});

test("Esc ends the wait for a decision, and the call is not made", async () => {
	const home = homeWith(asksRm());
	mkdirSync(join(home.workDir, "build"));
	const pi = await startedPi({ home });
	await pi.prompt(rm);
	await dialog(pi);
	await pi.command({ type: "abort" });
	await pi.settled();
	expect(existsSync(join(home.workDir, "build"))).toBe(true);
	expect(await tickets(home)).toEqual([]);
});

test("without a screen a call that is to be asked about is denied, and the model is told why", async () => {
	const home = homeWith(asksRm());
	mkdirSync(join(home.workDir, "build"));
	const printed = await printPi({ home, prompt: rm });
	expect(printed).toMatchObject({ code: 0, stdout: "went on\n" });
	expect(existsSync(join(home.workDir, "build"))).toBe(true);
});

test("SMB-063/064 hooks: one rewrites, one answers, one that crashes denies, one after annotates", async () => {
	const home = makeHome();
	const script = (name: string, code: string) => {
		writeFileSync(join(home.path, name), code);
		return { command: [process.execPath, join(home.path, name)] };
	};
	const say = (answer: object) =>
		`process.stdin.resume().on("end", () => console.log(${JSON.stringify(JSON.stringify(answer))}))`;
	const wrappers = [
		{
			match: { tool: "bash" },
			before: script("rewrite.cjs", say({ action: "continue", arguments: { command: "echo rewritten" } })),
		},
		{ match: { tool: "bash" }, after: script("note.cjs", say({ action: "annotate", text: "seen by the hook" })) },
		{ match: { tool: "read" }, before: script("answer.cjs", say({ action: "answer", result: "the hook's answer" })) },
		{ match: { tool: "ls" }, before: script("crash.cjs", "process.exit(3)") },
	];
	writeFileSync(join(home.agentDir, "session-mail.json"), JSON.stringify({ toolPolicy: { wrappers } }));
	const pi = await startedPi({ home, args: ["--tools", "bash,read,ls"] });
	await pi.prompt(
		'!tool bash {"command":"echo original"}\n!tool read {"path":"nothing"}\n!tool ls {"path":"."}\n!next\n!say done',
	);
	await pi.settled();
	expect(results(pi)).toEqual([
		{
			text: 'rewritten\nseen by the hook[A hook has changed this call before it was made, to: {"command":"echo rewritten"}]',
			isError: false,
		},
		{ text: "the hook's answer", isError: false },
		{ text: expect.stringMatching(/^The hook before this call failed, so it was not made: /), isError: true },
	]);
	await pi.prompt("/mailbox doctor");
	await eventually(() => pi.notifications().some((text) => text.includes("1 times a hook failed")));
});

test("a person is told which rule decides about a call, and why", async () => {
	const home = homeWith(asksRm());
	expect((await program(home, "policy", "bash", "rm -rf build")).stdout).toBe(
		"This call of bash is asked about, by rule 1 of the settings: ask bash(rm *).\n",
	);
	const pi = await startedPi({ home });
	await pi.prompt("/mailbox policy bash ls");
	await eventually(() => pi.notifications().some((text) => text.startsWith("This call of bash is allowed")));
});

test("a rule that names an argument which Pi's own tool does not have is said at the start, with the one that was meant", async () => {
	const home = homeWith(
		rules(
			{ pattern: 'bash(comand~"rm *")', behavior: "deny" },
			{ pattern: 'edit(edits.*.newText~"*TODO*")', behavior: "ask" },
		),
	);
	const pi = await startedPi({ home });
	await eventually(() => pi.notifications().some((text) => text.endsWith("comand; did you mean command?")));
});

/** A home with an MCP server that keeps notes, whose tool the model calls by itself. */
function homeWithServer(toolPolicy: object): Home & { note: string } {
	const home = homeWith(toolPolicy);
	const note = join(home.workDir, "note.txt");
	const server = { command: process.execPath, args: [fixture("note-server.mjs")], env: { NOTE_FILE: note } };
	const mcpServers = { notes: { ...server, exposure: "direct" } };
	writeFileSync(join(home.agentDir, "mcp.json"), JSON.stringify({ mcpServers }));
	return { ...home, note };
}

const note = '!tool mcp__notes__note {"text":"hello"}\n!next\n!say went on';
const asksMcp = rules({ pattern: "mcp__*", behavior: "ask" });

test("a call of an MCP server's tool is asked about, not made when it is refused, and made once when it is allowed", async () => {
	const home = homeWithServer(asksMcp);
	const pi = await startedPi({ home });
	await pi.prompt(note);
	const asked = await dialog(pi);
	expect(asked.title).toContain("mcp__notes__note: hello");
	expect(existsSync(home.note)).toBe(false);
	pi.mark(asked);
	pi.answer(asked, { value: "No" });
	await pi.settled();
	expect(existsSync(home.note)).toBe(false);
	await pi.prompt(note);
	pi.answer(await dialog(pi), { value: "Allow once" });
	await pi.settled();
	expect(results(pi).map(({ text }) => text)).toEqual([expect.stringContaining("was refused"), "kept hello"]);
});

test("a call by session_call_run that was cancelled while it was asked about cannot be approved any more", async () => {
	const home = homeWithServer(asksMcp);
	const pi = await startedPi({ home });
	const run = '!tool session_call_run {"tool":"mcp__notes__note","arguments":{"text":"hello"}}\n!next\n!say went on';
	await pi.prompt(run);
	await pi.settled();
	const id = await untilTicket(home);
	const { tool_call_id } = JSON.parse(results(pi)[0]?.text ?? "");
	await pi.prompt(`!tool session_call_cancel {"id":"${tool_call_id}"}\n!next\n!say cancelled`);
	await pi.settled();
	await eventually(async () => (await tickets(home)).length === 0, { what: "no ticket" });
	expect((await program(home, "approve", id)).code).toBe(1);
	expect(existsSync(home.note)).toBe(false);
});

test("a tool that another extension has put before ours is asked about before it is called", async () => {
	const home = homeWith(asksRm());
	const pi = await startedPi({ home, extensions: [fixture("late-bash.ts"), ours] });
	await pi.prompt(rm);
	pi.answer(await dialog(pi), { value: "No" });
	await pi.settled();
	expect(results(pi)[0]?.text).toContain("was refused");
});

test("a project narrows what may be called where it is trusted, and is not read where it is not", async () => {
	const home = homeWith(rules({ pattern: "bash(rm *)", behavior: "allow" }));
	mkdirSync(join(home.workDir, ".pi"));
	const toolPolicy = rules({ pattern: "bash(rm *)", behavior: "deny" });
	writeFileSync(join(home.workDir, ".pi", "session-mail.json"), JSON.stringify({ toolPolicy }));
	const folder = join(home.workDir, "build");
	mkdirSync(folder);
	const trusted = await startedPi({ home, args: ["--approve"] });
	await trusted.prompt(rm);
	await trusted.settled();
	expect(results(trusted)[0]?.text).toContain("denied by permission rules (rule 1 of the project's settings");
	expect(existsSync(folder)).toBe(true);
	const untrusted = await startedPi({ home, args: ["--no-approve"] });
	await untrusted.prompt(rm);
	await untrusted.settled();
	expect(existsSync(folder)).toBe(false);
});

test("L2 a project's settings that are broken narrow what may be called: it is asked about, with the file and the line", async () => {
	const home = homeWith(rules({ pattern: "bash", behavior: "allow" }));
	mkdirSync(join(home.workDir, ".pi"));
	writeFileSync(join(home.workDir, ".pi", "session-mail.json"), '{\n"toolPolicy": {]\n}');
	const pi = await startedPi({ home, args: ["--approve"] });
	await pi.prompt(rm);
	const asked = await dialog(pi);
	expect(asked.title).toMatch(
		/Asked by the default of the project's settings, since \/\S+\/\.pi\/session-mail\.json is broken at line 2\./,
	);
	pi.answer(asked, { value: "No" });
	await pi.settled();
});

test("L2 settings that cannot be read when Pi starts switch nothing off: what they say holds as soon as they can", async () => {
	const home = makeHome();
	const file = join(home.agentDir, "session-mail.json");
	symlinkSync(file, file);
	const pi = await startedPi({ home });
	await eventually(() => pi.notifications().some((text) => text.includes(`${file} is not used: `)));
	rmSync(file);
	writeFileSync(file, JSON.stringify({ toolPolicy: { rules: [{ tool: "bash", attachSeconds: 0.2 }] } }));
	// What was read holds for a second.
	await sleep(1100);
	await pi.prompt('!tool bash {"command":"sleep 1; echo slept"}\n!next\n!say went on');
	await pi.settled();
	expect(results(pi)[0]?.text).toContain("still running after 0.2 s");
});

test("L2 a policy under a misspelt key is asked about from the start, and one that comes later needs a restart, not a /reload", async () => {
	const home = makeHome();
	const file = join(home.agentDir, "session-mail.json");
	writeFileSync(file, '{ "tool_policy": {} }');
	const pi = await startedPi({ home });
	await pi.prompt('!tool bash {"command":"echo asked"}\n!next\n!say went on');
	expect((await dialog(pi)).title).toContain("bash: echo asked");
	await pi.kill();
	rmSync(file);
	const late = await startedPi({ home, extensions: [ours, fixture("reload.js")] });
	writeFileSync(file, JSON.stringify(rules({ pattern: "bash", behavior: "deny" })));
	const unused = () => late.notifications().filter((text) => text.includes("this session was started without it"));
	await eventually(() => unused().length === 1);
	await late.prompt("/reload-all");
	await eventually(() => unused().length === 2);
	await late.prompt('!tool bash {"command":"echo made"}\n!next\n!say went on');
	await late.settled();
	expect(results(late).at(-1)?.text).toBe("made\n");
});

test("L2 an approval is used by the process whose call waits for it, and the other one on the session tells nothing", async () => {
	const home = homeWith(asksRm());
	const folder = join(home.workDir, "build");
	mkdirSync(folder);
	const pi = await startedPi({ home });
	await pi.prompt(rm);
	await dialog(pi);
	const other = await startedPi({ home, args: ["--session", pi.sessionFile] });
	await eventually(() => other.notifications().some((text) => text.includes("has this session open as well")));
	expect((await program(home, "approve", await untilTicket(home))).code).toBe(0);
	await pi.settled();
	expect(existsSync(folder)).toBe(false);
	await other.prompt("hello");
	await other.settled();
	expect([mailEntries(pi), mailEntries(other)]).toEqual([[], []]);
});

test("without a screen a session waits for the session that its rule names, which decides", async () => {
	const home = homeWith(asksRm({ approver: "boss" }));
	const folder = join(home.workDir, "build");
	mkdirSync(folder);
	const boss = await startedPi({ home, name: "boss" });
	const printed = printPi({ home, prompt: rm });
	const id = await untilTicket(home);
	await eventually(() => mailEntries(boss).some(({ text }) => text.includes(`ticket ${id}`)));
	await eventually(async () => !(await boss.state()).isStreaming);
	expect((await program(home, "approve", id)).code).toBe(0);
	expect(await printed).toMatchObject({ code: 0, stdout: "went on\n" });
	expect(existsSync(folder)).toBe(false);
});

test("calls that wait for a decision leave the places of calls that run at once to others", async () => {
	const home = homeWith({ ...asksRm({ attachSeconds: 0 }), maxCalls: 1 });
	const pi = await startedPi({ home });
	await pi.prompt(rm);
	await pi.settled();
	await untilTicket(home);
	await pi.prompt('!tool bash {"command":"echo runs"}\n!next\n!say went on');
	await pi.settled();
	expect(results(pi).at(-1)?.text).toBe("runs\n");
});

test("L3 an interrupt lets a question wait by itself, and the call is made when it is answered", async () => {
	const home = makeHome();
	writeFileSync(
		join(home.agentDir, "session-mail.json"),
		JSON.stringify({ toolPolicy: asksRm(), interruptFrom: ["*"] }),
	);
	const folder = join(home.workDir, "build");
	mkdirSync(folder);
	const other = await startedPi({ home, name: "other" });
	const pi = await startedPi({ home, name: "worker" });
	await pi.prompt(rm);
	const asked = await dialog(pi);
	const args = { to: "worker", message: "hello", interrupt: true };
	await other.prompt(`!tool session_mail_send ${JSON.stringify(args)}\n!next\n!say sent`);
	await other.settled();
	await pi.settled();
	expect(results(pi)[0]?.text).toContain("interrupted by mail");
	const id = await untilTicket(home);
	await eventually(() => pi.notifications().some((text) => text.includes("Decide in /mailbox (alt+m)")));
	// Nobody listens to the dialog that was closed.
	pi.answer(asked, { value: "No" });
	expect((await program(home, "approve", id)).code).toBe(0);
	await eventually(() => !existsSync(folder), { what: "the call" });
});

test("L3 the dialog of a call that was handed back is closed, and the next question is shown at once", async () => {
	const home = homeWith(asksRm({ attachSeconds: 0.3 }));
	mkdirSync(join(home.workDir, "build"));
	const pi = await startedPi({ home });
	await pi.prompt(rm);
	const first = await dialog(pi);
	await pi.settled();
	pi.mark(first);
	await pi.prompt('!tool bash {"command":"rm -rf other; echo second"}\n!next\n!say went on');
	const second = await dialog(pi);
	expect(second.title).toContain("rm -rf other");
	pi.answer(first, { value: "Allow once" });
	pi.answer(second, { value: "Allow once" });
	await pi.settled();
	expect(results(pi).at(-1)?.text).toBe("second\n");
	expect([existsSync(join(home.workDir, "build")), (await tickets(home)).length]).toEqual([true, 1]);
});

test("a dialog is closed by a decision that is made elsewhere", async () => {
	const home = homeWith(asksRm());
	const pi = await startedPi({ home });
	await pi.prompt(rm);
	const first = await dialog(pi);
	expect((await program(home, "deny", await untilTicket(home))).code).toBe(0);
	await pi.settled();
	pi.mark(first);
	await pi.prompt(rm);
	pi.answer(await dialog(pi), { value: "Allow once" });
	await pi.settled();
	expect(results(pi).map(({ isError }) => isError)).toEqual([true, false]);
});

test("calls by session_call_run that wait for a decision leave the places of calls that run at once to others", async () => {
	const home = homeWithServer({ ...asksMcp, maxCalls: 1 });
	const pi = await startedPi({ home });
	const run = (tool: string, args: object) =>
		`!tool session_call_run ${JSON.stringify({ tool, arguments: args })}\n!next\n!say went on`;
	await pi.prompt(run("mcp__notes__note", { text: "hello" }));
	await pi.settled();
	const id = await untilTicket(home);
	await pi.prompt(run("bash", { command: "echo runs" }));
	await pi.settled();
	await eventually(() => mailEntries(pi).some(({ text }) => text.includes("runs")), { what: "the second call" });
	await program(home, "approve", id);
	await eventually(() => mailEntries(pi).some(({ text }) => text.includes("kept hello")), { what: "the first call" });
});

test("what a hook answers in place of one of Pi's own tools is the result of a script's call, too", async () => {
	const home = makeHome();
	const script = join(home.path, "answer.cjs");
	writeFileSync(
		script,
		`process.stdin.resume().on("end", () => console.log('{"action":"answer","result":"by the hook"}'))`,
	);
	const wrappers = [{ match: { tool: "bash" }, before: { command: [process.execPath, script] } }];
	writeFileSync(join(home.agentDir, "session-mail.json"), JSON.stringify({ toolPolicy: { wrappers } }));
	const pi = await startedPi({ home, args: ["--tools", "+codemode"] });
	const code = 'text(JSON.stringify(await tools.bash({"command":"echo made"})))';
	await pi.prompt(`!tool codemode ${JSON.stringify({ code })}\n!next\n!say done`);
	await pi.settled();
	expect(results(pi)).toEqual([{ text: expect.stringContaining("by the hook"), isError: false }]);
});

test("L2 a settings file that breaks while Pi runs changes nothing in what is denied; one that is broken at the start denies, and says so", async () => {
	const home = homeWith(rules({ pattern: "bash(rm *)", behavior: "deny" }));
	const file = join(home.agentDir, "session-mail.json");
	const pi = await startedPi({ home });
	const good = readFileSync(file, "utf8");
	writeFileSync(file, `{\n${good.slice(1)}}`);
	await eventually(() => pi.notifications().some((text) => text.includes("the last good toolPolicy holds")), {
		what: "a warning",
	});
	expect(pi.notifications().filter((text) => text.includes("is not JSON (line 2)"))).toHaveLength(1);
	await pi.prompt(rm);
	await pi.settled();
	expect(results(pi)[0]?.text).toContain("denied by permission rules (rule 1 of the settings");
	const printed = await printPi({ home, prompt: '!tool bash {"command":"touch made"}\n!next\n!say went on' });
	expect(printed).toMatchObject({ code: 0, stdout: "went on\n" });
	expect(printed.stderr).toContain(
		`${file} is not used: it is not JSON (line 2), so every call of a tool is asked about`,
	);
	expect(existsSync(join(home.workDir, "made"))).toBe(false);
});

test("SMB-063 a hook that is a tool decides about calls of Pi's own tools and by session_call_run, once each, and denies others", async () => {
	const hook = { tool: "check_call" };
	const home = homeWith({ wrappers: [{ match: { tool: "*" }, before: hook, after: hook }], ...asksRm() });
	const env = { NOTE_FILE: join(home.workDir, "notes") };
	const pi = await startedPi({ home, env, extensions: [ours, fixture("checker.ts"), fixture("other-tool.ts")] });
	const notes = () => readFileSync(env.NOTE_FILE, "utf8").trim().split("\n");
	const ask = async (call: string) => {
		await pi.prompt(`!tool ${call}\n!next\n!say went on`);
		await pi.settled();
		return results(pi).at(-1);
	};
	expect(await ask('bash {"command":"echo fine"}')).toEqual({ text: "fine\n(checked)", isError: false });
	expect(notes()).toEqual(['before bash {"command":"echo fine"}', 'completed bash {"command":"echo fine"}']);
	expect(await ask('bash {"command":"echo forbidden"}')).toEqual({
		text: "Tool 'bash' denied by a hook, so this call was not made: not that",
		isError: true,
	});
	expect(notes()).toHaveLength(3);
	const byRun = (text: string) =>
		`session_call_run ${JSON.stringify({ tool: "other", arguments: { text }, attach_seconds: 20 })}`;
	expect(await ask(byRun("kept by run"))).toMatchObject({ text: "kept(checked)", isError: false });
	expect(notes()).toContain("kept by run");
	expect(await ask(byRun("forbidden"))).toMatchObject({ text: expect.stringContaining("not that"), isError: true });
	expect(await ask('other {"text":"alone"}')).toMatchObject({
		text: expect.stringContaining("it can be called only where Pi's own tools and session_call_run are"),
		isError: true,
	});
	expect(notes()).not.toContain("alone");
	mkdirSync(join(home.workDir, "build"));
	await pi.prompt(rm);
	pi.answer(await dialog(pi), { value: "Allow once" });
	await pi.settled();
	expect(results(pi).at(-1)).toMatchObject({ text: expect.stringContaining("(checked)"), isError: false });
	expect(existsSync(join(home.workDir, "build"))).toBe(false);
});

test("SMB-060 a call is made again until it works, answered from the cache after that, and fails when its time is over", async () => {
	const home = homeWith({
		wrappers: [{ match: { tool: "bash" }, timeoutSeconds: 2, retries: { count: 2, backoffMs: 10 }, cache: true }],
	});
	const pi = await startedPi({ home });
	const third = { command: "echo x >> tries; [ $(wc -l < tries) -ge 3 ] && echo third" };
	const tries = () => readFileSync(join(home.workDir, "tries"), "utf8").length / 2;
	for (let n = 0; n < 2; n++) {
		await pi.prompt(`!tool bash ${JSON.stringify(third)}\n!next\n!say went on`);
		await pi.settled();
		expect([results(pi).at(-1), tries()]).toEqual([{ text: "third\n", isError: false }, 3]);
	}
	await pi.prompt('!tool bash {"command":"sleep 30"}\n!next\n!say went on');
	await pi.settled();
	expect(results(pi).at(-1)).toMatchObject({ text: "tool call timed out after 2s", isError: true });
});
