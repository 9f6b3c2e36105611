import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, environment, eventually, type Home, makeHome, type Pi, repository, run } from "../support/pi.ts";
import { allClosed, conversation, mailEntries, mailsIn, namesIn, runningRecord, startedPi } from "./mail.ts";

afterEach(cleanUp);

const program = join(repository, "src/cli.cjs");

/** Runs the program as somebody does who has no Pi around. */
function runProgram(home: Home, ...args: string[]) {
	return run(process.execPath, [program, ...args], { env: environment(home), cwd: home.workDir });
}

/** What a model does: runs the program in its shell tool, and says something. */
function inShell(...args: string[]): string {
	const command = [`node '${program}'`, ...args].join(" ");
	return `!tool bash ${JSON.stringify({ command })}\n!next\n!say done`;
}

function toolTexts(pi: Pi): string[] {
	return pi.entries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		return [entry.message.content.map((block) => (block.type === "text" ? block.text : "")).join("")];
	});
}

test("a program asks a Pi session from a shell, and prints its answer; the model knows that it is a program", async () => {
	const home = makeHome();
	const reviewer = await startedPi({ home, name: "reviewer", rules: [{ if: "is it safe", script: "!say It is." }] });
	expect(await runProgram(home, "ask", "reviewer", "is it safe?")).toEqual({
		code: 0,
		signal: null,
		stdout: "It is.\n",
		stderr: "",
	});
	const [mail] = mailEntries(reviewer);
	expect(mail?.text).toMatch(
		/^\[mailbox\] From \S+ \(ask-[a-z0-9]{16}, working in .*\), a program on this machine\. It sent an ask/,
	);
	expect(reviewer.stderr).toBe("");
	expect(await runProgram(home, "list", "--json")).toMatchObject({ stdout: expect.not.stringContaining("ask-") });
});

test("D27 a program that asked and gave up is not answered for ever: the session hears that it has ended", async () => {
	const home = makeHome();
	const script = '!tool bash {"command":"sleep 3"}\n!next\n!say It is.';
	const reviewer = await startedPi({ home, name: "reviewer", rules: [{ if: "is it safe", script }] });
	expect(await runProgram(home, "ask", "reviewer", "is it safe?", "--timeout", "1")).toMatchObject({
		code: 4,
		stdout: "",
	});
	await eventually(() => reviewer.notifications().some((text) => text.includes("that program has ended")), {
		timeoutMs: 15_000,
		what: "The word that it has ended",
	});
	expect(reviewer.notifications().filter((text) => text.includes("could not reply"))).toHaveLength(1);
});

test("a program with a name exchanges a request and its answer with a Pi session", async () => {
	const home = makeHome();
	await startedPi({ home, name: "reviewer", rules: [{ if: "look at it", script: "!say Looked." }] });
	expect(await runProgram(home, "send", "reviewer", "look at it", "--request", "--from", "ci")).toMatchObject({
		code: 0,
	});
	await eventually(() => mailsIn(home, "ci", "new").length === 1, { timeoutMs: 15_000 });
	expect(await runProgram(home, "read", "--from", "ci")).toMatchObject({
		stdout: expect.stringMatching(/status done[\s\S]*\n\nLooked\.\n$/),
	});
	expect(await runProgram(home, "sent", "--from", "ci")).toMatchObject({
		stdout: expect.stringContaining("look at it"),
	});
});

test("PSM-083…086 models that wake each other by the program in their shells are stopped at the limit", async () => {
	const home = makeHome();
	const sendsBack = (to: string) => [
		{ if: "It sent a message, which expects no answer", script: inShell("send", to, "ping") },
	];
	const [author, reviewer] = await Promise.all([
		startedPi({ home, name: "author", rules: sendsBack("reviewer") }),
		startedPi({ home, name: "reviewer", rules: sendsBack("author") }),
	]);
	await author.prompt(inShell("send", "reviewer", "ping"));
	await eventually(() => [author, reviewer].some((pi) => toolTexts(pi).at(-1)?.includes("the limit is 5")), {
		timeoutMs: 25_000,
		what: "The refusal",
	});
	const messages = [author, reviewer].flatMap((pi) => mailsIn(home, pi.sessionId, "sent"));
	expect(messages.map(({ hops }) => hops).sort()).toEqual([0, 1, 2, 3, 4]);
	expect(messages.map(({ kind, x }) => [kind, x])).toEqual(messages.map(() => ["message", undefined]));
});

test("L2, D13 an answer to an ask from a model's shell is its output, and does not come a second time as mail", async () => {
	const home = makeHome();
	const script = '!tool bash {"command":"sleep 2"}\n!next\n!say It is.';
	const [author, reviewer] = await Promise.all([
		startedPi({ home, name: "author" }),
		startedPi({ home, name: "reviewer", rules: [{ if: "is it safe", script }] }),
	]);
	await author.prompt(inShell("ask", "reviewer", "'is it safe?'"));
	await eventually(() => runningRecord(home, author.sessionId)?.waitingOn === reviewer.sessionId, {
		what: "The wait in the record",
	});
	await author.settled({ timeoutMs: 25_000 });
	expect(toolTexts(author)).toEqual(["It is.\n"]);
	await eventually(() => runningRecord(home, author.sessionId)?.waitingOn === "");
	await author.prompt("!say hello again");
	await author.settled();
	expect(mailEntries(author)).toEqual([]);
	expect(conversation(author)).toEqual([
		"user",
		"assistant",
		"user",
		"assistant",
		"toolResult",
		"assistant",
		"user",
		"assistant",
	]);
	expect(namesIn(home, author.sessionId, "new")).toEqual([]);
	await allClosed(home, author.sessionId);
	expect(mailsIn(home, author.sessionId, "sent")).toMatchObject([{ kind: "ask", hops: 0 }]);
});

test("L2 an answer to an ask whose program was killed comes as mail", async () => {
	const home = makeHome();
	const script = '!tool bash {"command":"sleep 3"}\n!next\n!say It is.';
	const [author, reviewer] = await Promise.all([
		startedPi({ home, name: "author" }),
		startedPi({ home, name: "reviewer", rules: [{ if: "is it safe", script }] }),
	]);
	await author.prompt(inShell("ask", "reviewer", "'is it safe?'"));
	await eventually(() => mailEntries(reviewer).length === 1, { timeoutMs: 15_000, what: "The ask" });
	const waiting = join(home.mailRoot, author.sessionId, "waiting");
	const [sign = ""] = readdirSync(waiting);
	const { pid } = JSON.parse(readFileSync(join(waiting, sign), "utf8"));
	process.kill(pid, "SIGKILL");
	await eventually(() => mailEntries(author).length === 1, { timeoutMs: 20_000, what: "The answer" });
	expect(mailEntries(author)[0]?.text).toContain("That ask stopped waiting before this reply came.");
});
