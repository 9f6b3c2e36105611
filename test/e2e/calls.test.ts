import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, makeHome, printPi, repository, startPi } from "../support/pi.ts";
import {
	authorAndReviewer,
	conversation,
	fixture,
	footer,
	homeWith,
	mailEntries,
	ours,
	program,
	results,
	runningRecord,
	sendRequest,
	startedPi,
	untilInTool,
	untilMails,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

const bashAfter = (attachSeconds?: number) => ({ rules: [{ tool: "bash", attachSeconds }] });

test("SMB-024/027/029 a bash call that takes long is handed back; the model goes on, and its result starts a turn", async () => {
	const home = homeWith(bashAfter(0.3));
	const pi = await startedPi({ home });
	await pi.prompt('!tool bash {"command":"sleep 1.5; echo built"}\n!next\n!say meanwhile');
	await pi.settled();
	const [told] = results(pi);
	expect(JSON.parse(told ?? "")).toEqual({
		status: "running",
		tool_call_id: expect.stringMatching(/^call-[a-z0-9]{16}$/),
		detached: "still running after 0.3 s",
		message: expect.stringContaining("session_mail_wait"),
	});
	const { tool_call_id: id } = JSON.parse(told ?? "");
	await footer(pi, "✉ 1 call");
	pi.mark();
	await pi.settled();
	expect(mailEntries(pi).map(({ text }) => text)).toEqual([
		`[mailbox] Your call ${id} (bash) has completed. This is its result.\n\nbuilt\n\n[mailbox] End of the result of call ${id} (bash). Text after this line is not part of it.`,
	]);
	expect(conversation(pi).slice(2)).toEqual(["user", "assistant", "toolResult", "assistant", "mail", "assistant"]);
	expect(readdirSync(join(home.mailRoot, pi.sessionId, "calls"))).toEqual([]);
	expect(readdirSync(join(home.mailRoot, pi.sessionId, "results"))).toEqual([`${id}.json`]);
	await footer(pi, "✉ 1 read");
	expect(await pi.stop()).toBe(0);
});

test("SMB-023 a call that ends in time is what it was without a rule, and no mail", async () => {
	const home = homeWith(bashAfter(20));
	const pi = await startedPi({ home });
	await pi.prompt('!tool bash {"command":"echo quick; exit 3"}\n!next\n!say seen');
	await pi.settled();
	expect(results(pi)).toEqual(["quick\n\n\nCommand exited with code 3"]);
	expect(mailEntries(pi)).toEqual([]);
	expect(existsSync(join(home.mailRoot, pi.sessionId, "calls"))).toBe(false);
});

test("no tool for calls is shown, and no tool replaced, until the settings ask for it", async () => {
	const home = makeHome();
	const pi = await startedPi({ home });
	expect(
		pi
			.modelRequests()
			.at(-1)
			?.tools.filter((name) => name.startsWith("session_")),
	).toEqual([...["session_mail_list", "session_mail_ask", "session_mail_reply", "session_mail_send"]]);
});

test("SMB-036 a wait ends at once when mail comes, and the mail follows", async () => {
	const home = homeWith(bashAfter(0.1));
	const [author, reviewer] = await authorAndReviewer(home);
	await reviewer.prompt('!tool session_mail_wait {"for":"mail","timeout_seconds":300}\n!next\n!say got it');
	await untilInTool(reviewer);
	await sendRequest(author, "reviewer", "please look");
	await reviewer.settled();
	expect(results(reviewer)).toEqual(["Mail has come; it follows."]);
	expect(mailEntries(reviewer).map(({ text }) => text)).toEqual([expect.stringContaining("please look")]);
});

test("SMB-030 a result that the model has read is named in one line, and starts no turn", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home, rules: [{ if: "status: running", script: "!say" }] });
	await pi.prompt('!tool bash {"command":"sleep 0.5; echo built"}\n!next\n!say meanwhile');
	await pi.settled();
	const { tool_call_id: id } = JSON.parse(results(pi)[0] ?? "");
	await pi.prompt(`!tool session_call_status {"id":"${id}","wait_seconds":20}\n!next\n!say read`);
	await pi.settled();
	expect(results(pi).at(-1)).toBe(`${id} (bash): completed.\n\nbuilt`);
	await untilMails(pi, 1);
	expect(mailEntries(pi)[0]?.text).toBe(
		`[mailbox] Your call ${id} (bash) has completed. You have read its result already.`,
	);
});

test("SMB-041 an interrupt frees the turn in the middle of three calls at once, and each result comes later, once", async () => {
	const home = homeWith(bashAfter());
	const [author, reviewer] = await authorAndReviewer(home);
	const call = (n: number) => `!tool bash {"command":"sleep 2; echo result ${n}"}`;
	await reviewer.prompt(`${call(1)}\n${call(2)}\n${call(3)}\n!next\n!say freed`);
	await untilInTool(reviewer);
	const begin = performance.now();
	await author.prompt("/mailbox --interrupt reviewer stop waiting");
	await reviewer.waitFor((event) => event.type === "turn_end");
	expect(performance.now() - begin).toBeLessThan(1500);
	await reviewer.settled();
	expect(results(reviewer).map((text) => JSON.parse(text).detached)).toEqual(Array(3).fill("interrupted by mail"));
	const seen = reviewer.modelRequests().at(-1)?.messages.at(-1)?.text;
	expect(seen).toContain("stop waiting");
	await untilMails(reviewer, 4);
	const texts = mailEntries(reviewer).map(({ text }) => text);
	for (const n of [1, 2, 3]) expect(texts.filter((text) => text.includes(`result ${n}`))).toHaveLength(1);
});

test("SMB-034 calls of a process that was killed are reported as orphaned, once, at the next start", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home });
	await pi.prompt('!tool bash {"command":"sleep 60"}\n!tool bash {"command":"sleep 61"}\n!next\n!say meanwhile');
	await pi.settled();
	await pi.kill();
	const again = await startedPi({ home, args: ["--session", pi.sessionFile] });
	await untilMails(again, 2);
	for (const { text } of mailEntries(again)) expect(text).toContain("because the process that ran it has ended");
	await again.settled().catch(() => {});
	expect(await again.stop()).toBe(0);
	const third = await startedPi({ home, args: ["--session", pi.sessionFile] });
	expect(mailEntries(third)).toHaveLength(2);
});

test("SMB-033 a call that is cancelled ends with all that it has started", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home });
	await pi.prompt('!tool bash {"command":"(sleep 1; touch survived) & wait"}\n!next\n!say meanwhile');
	await pi.settled();
	const { tool_call_id: id } = JSON.parse(results(pi)[0] ?? "");
	await pi.prompt(`!tool session_call_cancel {"id":"${id}"}\n!next\n!say done`);
	await untilMails(pi, 1);
	expect(mailEntries(pi)[0]?.text).toContain("was cancelled");
	await new Promise((resolve) => setTimeout(resolve, 1500));
	expect(existsSync(join(home.workDir, "survived"))).toBe(false);
});

test("any other tool goes on by itself with session_call_run, also from codemode", async () => {
	const home = homeWith({ rules: [] });
	const pi = await startedPi({ home });
	await pi.prompt(
		'!tool session_call_run {"tool":"bash","arguments":{"command":"sleep 0.5; echo built"}}\n!next\n!say meanwhile',
	);
	await pi.settled();
	const { tool_call_id: id } = JSON.parse(results(pi)[0] ?? "");
	await untilMails(pi, 1);
	expect(mailEntries(pi)[0]?.text).toContain(`call ${id} (bash) has completed. This is its result.\n\nbuilt`);
});

test("SMB-042 with interruptCompletions an interrupt stops a model that writes, which begins again with the mail", async () => {
	const home = homeWith(bashAfter(), { interruptCompletions: true });
	const [author, reviewer] = await authorAndReviewer(home);
	await reviewer.prompt("!slow 20000 a long answer");
	await untilWriting(reviewer);
	await author.prompt("/mailbox --interrupt reviewer look here ;; %say looked");
	await untilMails(reviewer, 1);
	await untilMails(author, 1);
	expect(mailEntries(author)[0]?.text).toContain("looked");
});

test("SMB-043/044 a session that is paused takes mail and starts no turn, until it is told to go on", async () => {
	const home = homeWith(bashAfter());
	const [author, reviewer] = await authorAndReviewer(home);
	expect(await program(home, "control", "pause", "reviewer")).toMatchObject({
		code: 0,
		stdout: `Told reviewer (${reviewer.sessionId}) to pause.\n`,
	});
	await footer(reviewer, "✉ paused");
	expect(runningRecord(home, reviewer.sessionId)?.x.paused).toBe(true);
	await sendRequest(author, "reviewer", "please look ;; %say looked");
	await footer(reviewer, "✉ paused · 1 pending");
	expect(mailEntries(reviewer)).toEqual([]);
	// Over a restart as well; the control mail itself is done with.
	await reviewer.stop();
	const again = await startPi({ home, name: "reviewer", args: ["--session", reviewer.sessionFile] });
	await footer(again, "✉ paused · 1 pending");
	await program(home, "control", "resume", "reviewer");
	await untilMails(author, 1);
	expect(mailEntries(author)[0]?.text).toContain("looked");
	expect(runningRecord(home, reviewer.sessionId)?.x.paused).toBeUndefined();
});

test("SMB-043 a pause ends a run after its tools, and the run goes on where it was when the session may go on", async () => {
	const home = homeWith(bashAfter());
	const pi = await startedPi({ home, name: "worker" });
	await pi.prompt('!tool bash {"command":"sleep 1; echo one"}\n!next\n!say went on');
	await untilInTool(pi);
	await program(home, "control", "pause", "worker");
	await pi.settled();
	expect(pi.modelRequests()).toHaveLength(2);
	pi.mark();
	await program(home, "control", "resume", "worker");
	await pi.settled();
	const [last] = pi.modelRequests().slice(-1);
	expect(last?.messages.map(({ text }) => text).join("\n")).toContain("lets it go on now");
});

test("SMB-046/047 a person ends another session's run and its calls from a shell", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home, name: "worker" });
	await pi.prompt('!tool bash {"command":"sleep 60"}\n!next\n!slow 60000 writing');
	await untilWriting(pi);
	const { calls } = JSON.parse((await program(home, "calls", "--json")).stdout);
	expect(calls).toEqual([expect.objectContaining({ tool: "bash", session: pi.sessionId })]);
	await program(home, "control", "stop", "worker");
	await pi.settled();
	pi.mark();
	expect(await program(home, "cancel", calls[0].id)).toMatchObject({ code: 0 });
	await untilMails(pi, 1);
	expect(mailEntries(pi)[0]?.text).toContain("was cancelled");
	expect(await program(home, "calls")).toMatchObject({ stdout: "No call goes on by itself.\n" });
});

test("SMB-046 a person cancels the calls that a session waits for, and its run goes on", async () => {
	const home = homeWith(bashAfter());
	const pi = await startedPi({ home, name: "worker" });
	await pi.prompt('!tool bash {"command":"sleep 60"}\n!next\n!say went on');
	await untilInTool(pi);
	expect(await program(home, "control", "cancel-attached", "worker")).toMatchObject({ code: 0 });
	await pi.settled();
	expect(results(pi)).toEqual([expect.stringContaining("Command aborted")]);
	expect(pi.modelRequests()).toHaveLength(3);
	expect(mailEntries(pi)).toEqual([]);
});

test("a model that runs the program in its shell cannot control another session", async () => {
	const home = homeWith({ rules: [] });
	await startedPi({ home, name: "reviewer" });
	const pi = await startedPi({ home, name: "author" });
	const command = `node '${join(repository, "src/cli.cjs")}' control pause reviewer`;
	await pi.prompt(`!tool bash ${JSON.stringify({ command })}\n!next\n!say tried`);
	await pi.settled();
	expect(results(pi)[0]).toContain(
		"Nothing was done: another session is paused, stopped or interrupted by its user alone.",
	);
});

test("another extension that has a bash of its own keeps it, and doctor says so", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home, extensions: [fixture("own-bash.ts"), ours] });
	await pi.prompt('!tool bash {"command":"echo hi"}\n!next\n!say seen');
	await pi.settled();
	expect(results(pi)).toEqual(["mine"]);
	await pi.prompt("/mailbox doctor");
	await eventually(() =>
		pi.notifications().some((text) => text.includes("the tool bash is that of another extension and is left alone")),
	);
});

test("a built-in that is switched off stays off though a rule names it", async () => {
	const home = homeWith({ rules: [{ tool: "*", attachSeconds: 1 }] });
	const pi = await startedPi({ home });
	const { tools } = pi.modelRequests().at(-1) ?? { tools: [] };
	expect(tools.filter((name) => ["grep", "find", "ls"].includes(name))).toEqual([]);
	expect(tools).toEqual(expect.arrayContaining(["read", "bash", "edit", "write"]));
});

test("D20 a script that runs pi -p waits for every call", async () => {
	const home = homeWith(bashAfter(0.1));
	const printed = await printPi({
		home,
		prompt: '!tool bash {"command":"sleep 0.6; echo built"}\n!next\n!say all done',
	});
	expect(printed).toMatchObject({ code: 0, stdout: "all done\n" });
});

test("a session that is closed with a call running gets it as cancelled at its next start", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home });
	await pi.prompt('!tool bash {"command":"sleep 60"}\n!next\n!say meanwhile');
	await pi.settled();
	expect(await pi.stop()).toBe(0);
	const again = await startPi({ home, args: ["--session", pi.sessionFile] });
	await untilMails(again, 1);
	expect(mailEntries(again)[0]?.text).toMatch(/was cancelled\. This is its result\.\n\nthe session was closed/);
});
