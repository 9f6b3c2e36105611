import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { cleanUp, eventually, type Home, makeHome, type Pi, startPi } from "../support/pi.ts";
import type { Rule } from "../support/scripted-model.ts";
import { hasTmux, openTerminal, type Terminal } from "../support/terminal.ts";
import {
	allClosed,
	authorAndReviewer,
	fixture,
	footer,
	mailEntries,
	mailsIn,
	ours,
	repliesTo,
	runningRecord,
	startedPi,
} from "./mail.ts";

afterEach(cleanUp);

/** The directive with which a model calls a tool. */
function call(tool: string, args: object): string {
	return `!tool ${tool} ${JSON.stringify(args)}`;
}

const askReviewer = call("session_mail_ask", { to: "reviewer", message: "is it fine?" });

interface ToolResult {
	text: string;
	details: { outcome?: string; id?: string; error?: { code: string } };
	isError: boolean;
}

/** The results of tool calls in the session file, in order. */
function toolResults(pi: Pi): ToolResult[] {
	return pi.entries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		const { content, isError } = entry.message;
		const details = entry.message.details as ToolResult["details"];
		return [{ text: content.map((block) => (block.type === "text" ? block.text : "")).join(""), details, isError }];
	});
}

async function untilWaiting(home: Home, asker: Pi, target: Pi): Promise<void> {
	await eventually(() => runningRecord(home, asker.sessionId)?.waitingOn === target.sessionId, { what: "The wait" });
}

/** Waits until the ask is in the conversation of a session; returns its id. */
async function untilAsked(pi: Pi): Promise<string> {
	return eventually(() => mailEntries(pi).find(({ mail }) => mail.kind === "ask")?.mail.id, { what: "The ask" });
}

/** Has the model of a session answer by other rules from now on. */
function rule(home: Home, name: string, rules: readonly Rule[]): void {
	for (const file of readdirSync(home.path)) {
		if (file.startsWith(`${name}-`) && file.endsWith(".rules.json"))
			writeFileSync(join(home.path, file), JSON.stringify(rules));
	}
}

test("PSM-049/075/076 the author's model asks the reviewer's and gets its answer as the result; the person sees meanwhile how long it waits", async () => {
	const home = makeHome();
	const rules = [{ if: "is it fine?", script: "!slow 1800 It is fine." }];
	const [author, reviewer] = await authorAndReviewer(home, { rules });
	await author.prompt(`${askReviewer}\n!next\n!say Thanks.`);
	await untilWaiting(home, author, reviewer);
	const progress = await author.waitFor(
		(event) =>
			event.type === "tool_execution_update" &&
			JSON.stringify(event.partialResult).includes(", 1 s; it is busy.") &&
			event,
	);
	expect(progress.partialResult).toMatchObject({ content: [{ text: "Waiting for reviewer, 1 s; it is busy." }] });
	await author.settled();

	const id = await untilAsked(reviewer);
	expect(toolResults(author)).toEqual([
		{
			text: `Answer from reviewer (${reviewer.sessionId}), status done:\n\nIt is fine.`,
			details: expect.objectContaining({
				id,
				to: reviewer.sessionId,
				outcome: "answered",
				status: "done",
				body: "It is fine.",
			}),
			isError: false,
		},
	]);
	expect(author.modelRequests()).toHaveLength(3);
	expect(mailEntries(author)).toEqual([]);
	expect(runningRecord(home, author.sessionId)?.waitingOn).toBe("");
	await allClosed(home, author.sessionId);
	await footer(author, "✉ 1 read");
	expect(author.stderr + reviewer.stderr).toBe("");
});

test("PSM-064/067/078 an ask whose run fails, or is stopped by its user, is answered so at once, and not as an answer", async () => {
	const home = makeHome();
	const rules = [
		{ if: "this will fail", script: "!error boom" },
		{ if: "this will be stopped", script: "!slow 20000 It is fine, I think, but let me go on and look." },
	];
	const [author, reviewer] = await authorAndReviewer(home, { rules });
	const ask = (message: string) => `!tool session_mail_ask ${JSON.stringify({ to: "reviewer", message })}`;
	await author.prompt(`${ask("this will fail")}\n!next\n${ask("this will be stopped")}\n!next\n!say Thanks.`);
	await eventually(() => mailEntries(reviewer).length === 2, { what: "The second ask" });
	await reviewer.command({ type: "abort" });
	await author.settled();
	const label = (status: string) =>
		`No answer: the run of reviewer (${reviewer.sessionId}) ended with status ${status}. What follows is not an answer:`;
	const [failed, stopped] = toolResults(author).map(({ text }) => text);
	expect(failed).toContain(`${label("failed")}\n\n(The run ended on an error before it finished: boom.`);
	expect(stopped).toContain(`${label("stopped")}\n\n(The user stopped the run before it finished.`);
	await allClosed(home, author.sessionId);
});

test("PSM-050/076 a stop during an ask ends the wait; the answer comes as mail and wakes the author", async () => {
	const home = makeHome();
	const rules = [{ if: "is it fine?", script: "!slow 2500 It is fine." }];
	const [author, reviewer] = await authorAndReviewer(home, { rules });
	await author.prompt(`${askReviewer}\n!next\n!say Thanks.`);
	await untilAsked(reviewer);
	await author.command({ type: "abort" });
	await author.settled();
	expect(toolResults(author)).toMatchObject([{ details: { outcome: "stopped-by-user" } }]);
	expect(runningRecord(home, author.sessionId)?.waitingOn).toBe("");
	await eventually(() => mailEntries(author).length === 1, { what: "The late answer" });
	expect(mailEntries(author)[0]?.text).toContain("That ask stopped waiting before this reply came.");
	await eventually(() => author.modelRequests().length === 3, { what: "The run for the late answer" });
	await allClosed(home, author.sessionId);
});

test("D7, D18, PSM-076 an ask to a session that ends says so; started again, that one answers it failed, which wakes nobody", async () => {
	const home = makeHome();
	const rules = [{ if: "is it fine?", script: "!slow 60000 a long story" }];
	const [author, reviewer] = await authorAndReviewer(home, { rules });
	await author.prompt(`${askReviewer}\n!next\n!say Well.`);
	await untilAsked(reviewer);
	await reviewer.kill();
	await author.settled();
	expect(toolResults(author)).toMatchObject([{ details: { outcome: "stopped-running" }, isError: false }]);
	expect(toolResults(author)[0]?.text).toMatch(/^The other session stopped running before it answered\./);
	const requests = author.modelRequests().length;

	await startPi({ home, name: "reviewer", args: ["--session", reviewer.sessionFile] });
	await eventually(() => mailEntries(author).length === 1, { what: "The late reply" });
	expect(mailEntries(author)[0]?.mail).toMatchObject({ kind: "reply", status: "failed" });
	expect(author.modelRequests()).toHaveLength(requests);
});

test("D13/PSM-077 of two sessions that ask each other at the same time exactly one is refused, and the other is answered", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	for (let round = 0; round < 3; round++) {
		await Promise.all([
			author.prompt(`${askReviewer}\n!next\n!say The author's answer.`),
			reviewer.prompt(
				`${call("session_mail_ask", { to: "author", message: "and yours?" })}\n!next\n!say The reviewer's answer.`,
			),
		]);
		await Promise.all([author.settled(), reviewer.settled()]);
		const both = [toolResults(author).at(-1), toolResults(reviewer).at(-1)];
		const outcomes = both.map((result) => result?.details.outcome ?? result?.details.error?.code);
		// Both are answered when one asked after the other was done.
		expect(["answered,answered", "answered,ring"]).toContain(outcomes.sort().join());
		for (const pi of [author, reviewer]) expect(runningRecord(home, pi.sessionId)?.waitingOn).toBe("");
		await eventually(async () => !(await author.state()).isStreaming && !(await reviewer.state()).isStreaming);
	}
});

test("D16/PSM-081 a message to a closed session, by its full id, waits there until it starts", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	await reviewer.stop();
	await author.prompt(
		`${call("session_mail_send", { to: reviewer.sessionId, message: "the parser is done" })}\n!next\n!say Sent.`,
	);
	await author.settled();
	const [sent] = mailsIn(home, reviewer.sessionId, "new");
	expect(toolResults(author)).toEqual([
		{
			text: `Sent ${sent?.id} to ${reviewer.sessionId}. That session is not running; the mail waits until it starts. 1 mail waits there.`,
			details: { id: sent?.id, to: reviewer.sessionId, running: false },
			isError: false,
		},
	]);
	const again = await startPi({ home, name: "reviewer", args: ["--session", reviewer.sessionFile] });
	await eventually(() => mailEntries(again).some(({ mail }) => mail.id === sent?.id), { what: "The message" });
});

test("PSM-074/082/D9 the model lists sessions, and reads why a mail was refused as an error", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	await author.prompt(
		`!tool session_mail_list {}\n!next\n${call("session_mail_send", { to: "rewiever", message: "x" })}\n!next\n!say Oh.`,
	);
	await author.settled();
	const [list, refused] = toolResults(author);
	expect(list?.text.split("\n")).toEqual([
		"2 running sessions:",
		`- author (${author.sessionId}), ${home.workDir}, busy, (this session)`,
		`- reviewer (${reviewer.sessionId}), ${home.workDir}, idle`,
	]);
	expect(refused).toMatchObject({ isError: true, details: { error: { code: "unknown" } } });
	expect(refused?.text).toMatch(/^Nothing was sent: no running session is called "rewiever"; running: reviewer /);
});

test("PSM-079/080 the reviewer's model answers an ask in the middle of its run; the end of the run leaves it out", async () => {
	const home = makeHome();
	const wait = '!tool bash {"command":"while [ ! -e done ]; do sleep 0.02; done"}';
	const [author, reviewer] = await authorAndReviewer(home, {
		rules: [{ if: "is it fine?", script: `${wait}\n!next\n!say unused` }],
	});
	await author.prompt(`${askReviewer}\n!next\n!say Thanks.`);
	const id = await untilAsked(reviewer);
	const reply = call("session_mail_reply", { ask: id, message: "It is fine." });
	const twice = call("session_mail_reply", { ask: id, message: "Or is it?" });
	rule(home, "reviewer", [
		{ if: "is it fine?", script: `${wait}\n!next\n${reply}\n!next\n${twice}\n!next\n!slow 3000 the last word` },
	]);
	writeFileSync(join(home.workDir, "done"), "");
	await author.settled();
	expect(toolResults(author)[0]?.text).toContain("It is fine.");
	expect((await reviewer.state()).isStreaming).toBe(true);
	await eventually(async () => !(await reviewer.state()).isStreaming);
	expect(toolResults(reviewer).slice(1)).toMatchObject([
		{ text: `Answered ask ${id}.`, isError: false },
		{ text: `Nothing was sent: the ask ${id} is already answered.`, isError: true },
	]);
	expect(repliesTo(home, author.sessionId)).toHaveLength(1);
});

test("D25 a tool that the user switched off stays off over /reload and when the session is resumed; switched on, it is on", async () => {
	const home = makeHome();
	const switcher = join(home.path, "switcher.mjs");
	writeFileSync(
		switcher,
		`export default (pi) => {
			pi.registerCommand("off", { handler: async (name) => pi.setActiveTools(pi.getActiveTools().filter((tool) => tool !== name)) });
			pi.registerCommand("on", { handler: async (name) => pi.setActiveTools([...pi.getActiveTools(), name]) });
		};`,
	);
	const extensions = [ours, switcher, fixture("reload.js")];
	const pi = await startedPi({ home, extensions });
	const all = ["session_mail_ask", "session_mail_list", "session_mail_reply", "session_mail_send"];
	const others = all.filter((name) => name !== "session_mail_ask");
	const tools = async (of = pi) => {
		await of.prompt("!say hm");
		await of.settled();
		return of
			.modelRequests()
			.at(-1)
			?.tools.filter((name) => name.startsWith("session_mail"))
			.sort();
	};
	expect(await tools()).toEqual(all);
	await pi.prompt("/off session_mail_ask");
	expect(await tools()).toEqual(others);
	await pi.prompt("/reload-all");
	expect(await tools()).toEqual(others);
	await pi.stop();
	const again = await startPi({ home, extensions, args: ["--session", pi.sessionFile] });
	expect(await tools(again)).toEqual(others);
	await again.prompt("/on session_mail_ask");
	expect(await tools(again)).toEqual(all);
	await again.prompt("/reload-all");
	expect(await tools(again)).toEqual(all);
	// Before a request has told the model.
	await again.prompt("/off session_mail_ask");
	await again.prompt("/reload-all");
	expect(await tools(again)).toEqual(others);
});

describe.skipIf(!hasTmux())("in a terminal", () => {
	const id = "0197a3f2-1111-7000-8000-00000000000a";

	async function enter(terminal: Terminal, text: string): Promise<void> {
		terminal.type(text);
		await terminal.press("Enter");
	}

	test("PSM-076 the person sees the ask and for how long it waits, and ends the wait with Esc", async () => {
		const home = makeHome();
		const [author, reviewer] = await Promise.all([
			openTerminal({ home, name: "author", args: ["--session-id", id] }),
			startedPi({ home, name: "reviewer", rules: [{ if: "is it fine?", script: "!slow 60000 a long story" }] }),
		]);
		await enter(author, `%tool session_mail_ask {"to":"reviewer","message":"is it fine?"} ;; %next ;; %say Thanks.`);
		await author.waitForScreen(/mail: ask → reviewer {2}is it fine\?/);
		await author.waitForScreen(/Waiting for reviewer, [12] s; it is busy\./);
		await author.press("Escape");
		await author.waitForScreen(
			"The user stopped the wait. The ask stays with the other session; a later answer comes as mail.",
		);
		await eventually(() => runningRecord(home, id)?.waitingOn === "", { what: "The end of the wait" });
		expect(author.hasEnded()).toBe(false);
		expect(mailsIn(home, reviewer.sessionId, "cur")).toHaveLength(1);
	});

	test.each([
		["Hindi", "क्षत्रियश्रीमान्".repeat(12)],
		["Thai", "จำนำทำกำ".repeat(20)],
	])("L7 a mail in %s does not end the Pi of a recipient who does not use the full screen", async (_name, text) => {
		const home = makeHome();
		writeFileSync(join(home.agentDir, "settings.json"), JSON.stringify({ tuiMode: "regular" }));
		const [terminal, author] = await Promise.all([
			openTerminal({ home, name: "reviewer", args: ["--session-id", id] }),
			startedPi({ home, name: "author" }),
		]);
		await author.prompt(`/mailbox reviewer ${text}`);
		await eventually(() => mailsIn(home, id, "cur").length > 0 || terminal.hasEnded(), { what: "The mail" });
		await terminal.waitForScreen("✉ 1 read");
		await terminal.press("C-o");
		await terminal.waitForScreen("[mailbox] End of the mail");
		expect(terminal.hasEnded()).toBe(false);
	});
});
