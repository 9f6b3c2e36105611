import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { lastLines } from "./closing-line.ts";
import { packAndInstall } from "./install.ts";
import { cleanUp, eventually, type Home, makeHome, printPi, startPi } from "./pi.ts";
import { whyNoTrace } from "./strace.ts";
import { hasTmux, openTerminal } from "./terminal.ts";

afterEach(cleanUp);
afterEach(() => vi.unstubAllEnvs());
vi.setConfig({ testTimeout: 60_000 });

/** An extension that brings a mail: `/bring TEXT` now, or before the next request of a run that calls a tool. */
function postman(home: Home): string {
	const file = join(home.path, "postman.js");
	writeFileSync(
		file,
		`export default (pi) => {
			let text;
			pi.registerCommand("bring", {
				handler: async (body, ctx) => {
					ctx.ui.notify("bringing " + body);
					if (ctx.isIdle()) pi.sendMessage({ customType: "mail", content: body, display: true }, { triggerTurn: true });
					else text = body;
				},
			});
			pi.on("turn_end", (event) => {
				if (text === undefined || event.toolResults.length === 0) return;
				const mail = { type: "custom_message", customType: "mail", content: text, display: true };
				text = undefined;
				return { entries: [...event.entries, mail], continue: true };
			});
		};`,
	);
	return file;
}

function lastAnswer(pi: Awaited<ReturnType<typeof startPi>>): string | undefined {
	const entry = pi.entries().findLast((entry) => entry.type === "message" && entry.message.role === "assistant");
	if (entry?.type !== "message" || entry.message.role !== "assistant") return undefined;
	return entry.message.content.map((block) => (block.type === "text" ? block.text : block.type)).join();
}

describe("the scripted model", () => {
	test("plays a script step by step, then echoes", async () => {
		const pi = await startPi({ home: makeHome(), extensions: [] });
		await pi.prompt('!tool bash {"command":"echo one"}\n!tool bash {"command":"echo two"}\n!next\n!say all\\ndone');
		await pi.settled();
		expect(lastAnswer(pi)).toBe("all\ndone");
		const [, second] = pi.modelRequests();
		expect(second?.messages.slice(-2)).toEqual([
			{ role: "toolResult", text: "one\n" },
			{ role: "toolResult", text: "two\n" },
		]);
		expect(second?.tools).toContain("bash");

		await pi.prompt("hello");
		await pi.settled();
		expect(lastAnswer(pi)).toBe("echo: hello");
	});

	test("lets a mail with a script take over a run, and continues past one without", async () => {
		const home = makeHome();
		const pi = await startPi({ home, extensions: [postman(home)] });
		const script = '!tool bash {"command":"sleep 0.5"}\n!next\n!say my own answer';
		for (const [mail, answer] of [
			["[mailbox] From x\n%say It is fine.\n[mailbox] End", "It is fine."],
			["[mailbox] From x\nnothing to do\n[mailbox] End", "my own answer"],
		]) {
			await pi.prompt(script);
			await pi.waitFor((event) => event.type === "tool_execution_start");
			await pi.command({ type: "prompt", message: `/bring ${mail}` });
			await pi.settled();
			expect(lastAnswer(pi)).toBe(answer);
		}
	});

	test("takes the script of a message from the first rule that fits it", async () => {
		const home = makeHome();
		const rules = [
			{ if: "/^please .* parser/m", script: '!tool bash {"command":"true"} ;; !next ;; !say checked' },
			{ if: "please", script: "!say which one?" },
		];
		const pi = await startPi({ home, rules, extensions: [postman(home)] });
		await pi.prompt("/bring [mailbox] From author\nplease check the parser");
		await pi.settled();
		expect(lastAnswer(pi)).toBe("checked");
	});

	test("can be aborted while it speaks slowly or hangs, and can fail", async () => {
		const pi = await startPi({ home: makeHome(), extensions: [] });
		for (const script of ["!slow 60000 a long story", "!say well\n!hang"]) {
			await pi.prompt(script);
			await pi.waitFor((event) => event.type === "message_update");
			await pi.command({ type: "abort" });
			expect(await pi.waitFor((event) => event.type === "agent_settled" && event.aborted)).toBe(true);
		}
		await pi.prompt("!error out of tokens");
		const reason = await pi.waitFor(
			(event) => event.type === "message_end" && event.message.role === "assistant" && event.message.errorMessage,
		);
		expect(reason).toBe("out of tokens");
	});
});

describe("the driver", () => {
	test("knows name, session and file, also after a change of session and a resume", async () => {
		const home = makeHome();
		const pi = await startPi({ home, name: "author", extensions: [] });
		const { sessionId, sessionFile } = pi;
		expect((await pi.state()).sessionName).toBe("author");
		expect(pi.entries()).toEqual([]);
		await pi.prompt("hello");
		await pi.settled();
		expect(pi.entries()[0]).toMatchObject({ type: "session", id: sessionId, cwd: home.workDir });
		await pi.command({ type: "new_session" });
		expect(pi.sessionId).not.toBe(sessionId);
		expect(await pi.stop()).toBe(0);

		const resumed = await startPi({ home, extensions: [], args: ["--session", sessionFile] });
		expect(resumed.sessionId).toBe(sessionId);
		expect(await resumed.kill()).toEqual({ code: null, signal: "SIGKILL" });
	});

	test("explains itself when what a test waits for does not come", async () => {
		const home = makeHome();
		const pi = await startPi({ home, extensions: [postman(home)] });
		await pi.prompt("/bring hello");
		const missing = pi.waitFor(() => false, { timeoutMs: 200, what: "reply" });
		await expect(missing).rejects.toThrow(/pi-\d+ gave no reply within 200 ms.*bringing hello/s);
		const interrupted = pi.waitFor(() => false, { what: "reply" });
		await Promise.all([expect(interrupted).rejects.toThrow("ended while the test waited for reply"), pi.kill()]);
		await expect(startPi({ home, extensions: ["/missing.js"] })).rejects.toThrow("path does not exist: /missing.js");
		await expect(eventually(() => false, { timeoutMs: 50, what: "peace" })).rejects.toThrow("peace did not come");
	});

	test("runs print mode to its end", async () => {
		const result = await printPi({ home: makeHome(), extensions: [], prompt: "!say printed" });
		expect(result).toEqual({ code: 0, signal: null, stdout: "printed\n", stderr: "" });
	});
});

describe.skipIf(!hasTmux())("a terminal", () => {
	test("shows Pi to a person who types", async () => {
		const home = makeHome();
		const terminal = await openTerminal({ home, name: "author", extensions: [postman(home)], width: 60 });
		terminal.type("/bring please check the parser which is broken for empty files ;; %say I will");
		await terminal.press("Enter");
		await terminal.waitForScreen(/^ I will$/m);
		await terminal.waitForScreen("please check the parser which is broken for empty files");
		await expect(terminal.waitForScreen("no such text", { timeoutMs: 100 })).rejects.toThrow("I will");
		await terminal.close();
		expect(terminal.hasEnded()).toBe(true);
	});
});

describe("installing", () => {
	test("packs a package and installs it as a user does", async () => {
		const home = makeHome();
		const folder = join(home.path, "greeter");
		mkdirSync(folder);
		writeFileSync(
			join(folder, "extension.js"),
			'export default (pi) => pi.registerCommand("greet", { handler() {} });',
		);
		writeFileSync(
			join(folder, "package.json"),
			JSON.stringify({
				name: "greeter",
				version: "1.0.0",
				type: "module",
				files: ["built.js"],
				scripts: { prepack: "cp extension.js built.js" },
				pi: { extensions: ["./built.js"] },
			}),
		);
		const installed = await packAndInstall(home, folder);
		expect(installed).toBe(join(home.agentDir, "npm/node_modules/greeter"));
		const pi = await startPi({ home, extensions: [] });
		expect(await pi.command({ type: "get_commands" })).toMatchObject({
			data: { commands: expect.arrayContaining([expect.objectContaining({ name: "greet" })]) },
		});
	});
});

describe("the last lines of a test run", () => {
	const counts = { passed: 5, failed: 1, skipped: 0 };

	test("are the numbers alone when everything ran", () => {
		expect(lastLines(counts, whyNoTrace)).toEqual(["5 passed, 1 failed"]);
		expect(lastLines({ ...counts, skipped: 2 }, () => undefined)).toEqual(["5 passed, 1 failed, 2 skipped"]);
	});

	test("say what is missing when system calls cannot be traced", () => {
		vi.stubEnv("PATH", makeHome().path);
		expect(lastLines({ ...counts, skipped: 2 }, whyNoTrace)).toEqual([
			"The suites that trace system calls did not run: strace is missing (apt-get install strace)",
			"5 passed, 1 failed, 2 skipped",
		]);
	});

	test("say why strace fails when it is there and may not trace", () => {
		const home = makeHome();
		const strace = join(home.path, "strace");
		writeFileSync(strace, "#!/bin/sh\necho 'strace: ptrace(PTRACE_TRACEME): Operation not permitted' >&2; exit 1\n", {
			mode: 0o755,
		});
		vi.stubEnv("PATH", `${home.path}:${process.env.PATH}`);
		expect(whyNoTrace()).toBe("strace cannot trace here (strace: ptrace(PTRACE_TRACEME): Operation not permitted)");
	});
});
