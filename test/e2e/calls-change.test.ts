import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, type Home, type Pi, type PiEvent } from "../support/pi.ts";
import {
	authorAndReviewer,
	fixture,
	homeWith,
	mailEntries,
	openMarks,
	ours,
	results,
	sendRequest,
	startedPi,
	typeMailbox,
	untilInTool,
	untilMails,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

const bashAfter = (attachSeconds?: number) => ({ rules: [{ tool: "bash", attachSeconds }] });

const texts = (pi: Pi) => mailEntries(pi).map(({ text }) => text);

function idIn(text: string | undefined): string {
	return /call-[a-z0-9]{16}/.exec(text ?? "")?.[0] ?? expect.fail(`no call in ${text}`);
}

/** The calls of a session that are open on disk. */
function openCalls(home: Home, address: string): string[] {
	const folder = join(home.mailRoot, address, "calls");
	return existsSync(folder) ? readdirSync(folder) : [];
}

/** A bash that takes so long and says this. */
const call = (seconds: number, said: string) =>
	`!tool bash ${JSON.stringify({ command: `sleep ${seconds}; echo ${said}` })}`;

function codemode(script: string): string {
	return `!tool codemode ${JSON.stringify({ code: script })}`;
}

test("SMB-026 a script in codemode gets what it would get of a bash that ends in time, and for one that does not, a value that says so", async () => {
	const home = homeWith(bashAfter(1));
	writeFileSync(join(home.agentDir, "settings.json"), JSON.stringify({ defaultTools: ["+codemode"] }));
	const pi = await startedPi({ home });
	const script =
		"const [a, b] = await Promise.all([tools.bash({command: 'echo quick'}), tools.bash({command: 'sleep 2; echo late'})]); text({ a: a.output, exit: a.exit_code, b });";
	await pi.prompt(`${codemode(script)}\n!next\n!say meanwhile`);
	await pi.settled();
	const [told = ""] = results(pi);
	expect(told).toContain('"a":"quick\\n"');
	expect(told).toContain('"exit":0');
	expect(told).toContain('"status":"running"');
	const id = idIn(told);
	await untilMails(pi, 1);
	expect(texts(pi)).toEqual([
		expect.stringContaining(`Your call ${id} (bash) has completed. This is its result.\n\nlate\n`),
	]);
});

test("session_call_run from a script in codemode runs a tool whose result comes as mail, though the script is over", async () => {
	const home = homeWith({ rules: [] });
	writeFileSync(join(home.agentDir, "settings.json"), JSON.stringify({ defaultTools: ["+codemode"] }));
	const pi = await startedPi({ home });
	const script = "text(await tools.session_call_run({tool: 'bash', arguments: {command: 'sleep 1; echo late'}}));";
	await pi.prompt(`${codemode(script)}\n!next\n!say meanwhile`);
	await pi.settled();
	const id = idIn(results(pi)[0]);
	await untilMails(pi, 1);
	expect(texts(pi)).toEqual([
		expect.stringContaining(`Your call ${id} (bash) has completed. This is its result.\n\nlate\n`),
	]);
});

test("SMB-032 a user's stop ends the calls that the run waits for, and no mail comes of them; one that was handed back goes on", async () => {
	const home = homeWith({ rules: [{ tool: "bash" }] });
	const pi = await startedPi({ home });
	await pi.prompt(
		`!tool session_call_run ${JSON.stringify({ tool: "bash", arguments: { command: "sleep 2; echo detached" } })}\n!next\n${call(30, "a")}\n${call(30, "b")}`,
	);
	await eventually(() => results(pi).length === 1);
	await new Promise((resolve) => setTimeout(resolve, 500));
	await pi.command({ type: "abort" });
	await pi.settled();
	expect(results(pi).slice(1)).toEqual(Array(2).fill(expect.stringContaining("aborted")));
	await untilMails(pi, 1);
	expect(texts(pi)).toEqual([expect.stringContaining("\n\ndetached\n")]);
	expect(openCalls(home, pi.sessionId)).toEqual([]);
});

test("maxCalls 1: three calls at once run one after the other, each with its own result", async () => {
	const home = homeWith({ ...bashAfter(0), maxCalls: 1 });
	const pi = await startedPi({ home });
	const mark = (n: number) => `echo begin${n} >> order; sleep 0.3; echo end${n} >> order; cat order`;
	const calls = [1, 2, 3].map((n) => `!tool bash ${JSON.stringify({ command: mark(n) })}`).join("\n");
	await pi.prompt(`${calls}\n!next\n!say meanwhile`);
	await untilMails(pi, 3);
	expect(texts(pi).filter((text) => text.includes("begin1\nend1\nbegin2\nend2\nbegin3\nend3"))).toHaveLength(1);
});

test("L2 /reload with a call running ends it; its result comes once, and calls go on afterwards", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home, extensions: [ours, fixture("reload.js")] });
	await pi.prompt(`${call(60, "late")}\n!next\n!say meanwhile`);
	await pi.settled();
	await pi.prompt("/reload-all");
	await untilMails(pi, 1);
	expect(texts(pi)).toEqual([expect.stringContaining("was cancelled")]);
	await pi.prompt("/reload-all");
	await pi.prompt(`${call(0.3, "again")}\n!next\n!say meanwhile`);
	await untilMails(pi, 2);
	expect(texts(pi)[1]).toContain("\n\nagain\n");
	expect([openCalls(home, pi.sessionId), openMarks(home, pi.sessionId)]).toEqual([[], []]);
});

test("L2 /new and back: a call of the old session ends with it, and its result comes there alone, once", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home });
	const [oldId, oldFile] = [pi.sessionId, pi.sessionFile];
	await pi.prompt(`${call(60, "late")}\n!next\n!say meanwhile`);
	await pi.settled();
	await pi.command({ type: "new_session" });
	await pi.prompt("!say new");
	await pi.settled();
	expect([texts(pi), openCalls(home, oldId)]).toEqual([[], []]);
	await pi.command({ type: "switch_session", sessionPath: oldFile });
	await untilMails(pi, 1);
	expect(texts(pi)).toEqual([expect.stringContaining("was cancelled")]);
});

test("L2 a clone takes neither the calls nor the results of the session that it was made from", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home });
	const [parentId, parentFile] = [pi.sessionId, pi.sessionFile];
	await pi.prompt(`${call(60, "late")}\n!next\n!say meanwhile`);
	await pi.settled();
	await pi.command({ type: "clone" });
	expect(pi.sessionId).not.toBe(parentId);
	await pi.prompt("!say the clone");
	await pi.settled();
	expect(texts(pi)).toEqual([]);
	await pi.command({ type: "switch_session", sessionPath: parentFile });
	await untilMails(pi, 1);
});

test("L2 a result that comes during a compaction waits for its end", async () => {
	const home = homeWith(bashAfter(0));
	writeFileSync(join(home.agentDir, "settings.json"), JSON.stringify({ compaction: { keepRecentTokens: 1 } }));
	const pi = await startedPi({ home, rules: [{ if: "/summar/i", script: "!slow 2500 What was said: hello." }] });
	await pi.prompt(`${call(1, "built")}\n!next\n!say meanwhile`);
	await pi.settled();
	const compacted = pi.command({ type: "compact" });
	expect(await compacted).toMatchObject({ success: true });
	await untilMails(pi, 1);
	const kinds = pi.entries().map((entry) => entry.type);
	expect(kinds.indexOf("custom_message")).toBeGreaterThan(kinds.indexOf("compaction"));
});

test("a session that is not saved has its calls as well, and leaves no file of them", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home, args: ["--no-session"] });
	const id = pi.sessionId;
	await pi.prompt(`${call(0.5, "built")}\n${call(60, "late")}\n!next\n!say meanwhile`);
	await eventually(() =>
		pi.modelRequests().some(({ messages }) => messages.some(({ text }) => text.includes("\n\nbuilt\n"))),
	);
	await pi.stop();
	expect(openCalls(home, id)).toEqual([]);
});

test("L7 a bash that writes a gigabyte is one result of bounded size", async () => {
	const home = homeWith(bashAfter(0));
	const pi = await startedPi({ home });
	await pi.prompt(
		'!tool bash {"command":"head -c 1000000000 /dev/zero | tr \'\\\\0\' x | fold -w 1000"}\n!next\n!say meanwhile',
	);
	await eventually(() => mailEntries(pi).length === 1, { timeoutMs: 60_000, what: "its result" });
	expect(texts(pi)[0]?.length).toBeLessThan(40_000);
}, 90_000);

test("SMB-041 an interrupt ends a wait for another session's answer; the answer still comes, once", async () => {
	const home = homeWith(bashAfter());
	const [author, reviewer] = await authorAndReviewer(home);
	const third = await startedPi({ home, name: "third" });
	await third.prompt("!slow 3000 busy");
	await reviewer.prompt('!tool session_mail_ask {"to":"third","message":"%say It is fine."}\n!next\n!say freed');
	await untilInTool(reviewer);
	await new Promise((resolve) => setTimeout(resolve, 500));
	await typeMailbox(author, "--interrupt reviewer stop waiting ;; %say stopped");
	await reviewer.settled();
	expect(results(reviewer)[0]).toContain("Mail that interrupts has come");
	await eventually(() => texts(reviewer).some((text) => text.includes("It is fine.")), { timeoutMs: 15_000 });
	expect(texts(reviewer).filter((text) => text.includes("It is fine."))).toHaveLength(1);
});

test("an interrupt that comes while the session is idle, or during a compaction, is mail that starts a turn", async () => {
	const home = homeWith(bashAfter());
	writeFileSync(join(home.agentDir, "settings.json"), JSON.stringify({ compaction: { keepRecentTokens: 1 } }));
	const [author, reviewer] = await authorAndReviewer(home, {
		rules: [{ if: "/summar/i", script: "!slow 1500 What was said: hello." }],
	});
	await typeMailbox(author, "--interrupt reviewer one ;; %say one");
	await untilMails(reviewer, 1);
	await eventually(() => mailEntries(author).length === 1);
	reviewer.mark();
	const compacted = reviewer.command({ type: "compact" });
	await reviewer.waitFor((event) => event.type === "compaction_start");
	await typeMailbox(author, "--interrupt reviewer two ;; %say two");
	expect(await compacted).toMatchObject({ success: true });
	await untilMails(author, 2);
	expect(mailEntries(reviewer)).toHaveLength(2);
});

test("SMB-040 a model interrupts only where the user of the other session has named it, and is told so", async () => {
	const home = homeWith(bashAfter(), { interruptFrom: ["friend"] });
	const worker = await startedPi({ home, name: "worker" });
	const friend = await startedPi({ home, name: "friend" });
	const stranger = await startedPi({ home, name: "stranger" });
	const send = '!tool session_mail_send {"to":"worker","message":"stop that","interrupt":true}\n!next\n!say sent';
	await worker.prompt(`${call(4, "a")}\n!next\n!say went on`);
	await untilInTool(worker);
	await stranger.prompt(send);
	await stranger.settled();
	expect(results(stranger)[0]).toContain("Its user has not let this session interrupt it");
	expect(results(worker)).toEqual([]);
	await friend.prompt(send);
	await friend.settled();
	expect(results(friend)[0]).not.toContain("has not let");
	await eventually(() => results(worker).length === 1);
	expect(results(worker)[0]).toContain("interrupted by mail");
});

test("SMB-043 what the user types while a pause takes hold is not lost, and a prompt to a paused session is answered", async () => {
	const home = homeWith(bashAfter());
	const pi = await startedPi({ home, name: "worker" });
	await pi.prompt(`${call(1, "one")}\n!next\n!say went on`);
	await untilInTool(pi);
	await pi.prompt("!say steered", { streamingBehavior: "steer" });
	await typeMailbox(pi, "pause");
	await pi.settled();
	pi.mark();
	await pi.prompt("!say while paused");
	await pi.settled();
	const seen = pi.modelRequests().flatMap(({ messages }) => messages.map(({ text }) => text));
	expect(seen).toContain("!say while paused");
	await typeMailbox(pi, "resume");
	await eventually(() =>
		pi.modelRequests().some(({ messages }) => messages.some(({ text }) => text.includes("!say steered"))),
	);
});

test("L3 a pause while the model gives its last answer: what was asked is answered", async () => {
	const home = homeWith(bashAfter());
	const [author, reviewer] = await authorAndReviewer(home);
	reviewer.mark();
	await sendRequest(author, "reviewer", "please look ;; %slow 1500 It is fine.");
	await untilWriting(reviewer);
	await typeMailbox(reviewer, "pause");
	await untilMails(author, 1);
	expect(texts(author)[0]).toContain("It is fine.");
	const before = reviewer.modelRequests().length;
	await typeMailbox(reviewer, "resume");
	await new Promise((resolve) => setTimeout(resolve, 1500));
	expect(reviewer.modelRequests()).toHaveLength(before);
});

test("two processes on one session: the result comes once, where the session's mail is received", async () => {
	const home = homeWith(bashAfter(0));
	const first = await startedPi({ home });
	const second = await startedPi({ home, args: ["--session", first.sessionFile] });
	await second.prompt(`${call(1, "second")}\n!next\n!say over`);
	await second.settled();
	// It receives no mail: its call is waited for.
	expect(results(second).at(-1)).toBe("second\n");
	await first.prompt(`${call(1, "first")}\n!next\n!say meanwhile`);
	await untilMails(first, 1);
	expect(texts(first)).toEqual([expect.stringContaining("\n\nfirst\n")]);
});

test("a policy that is not one is said, and every call is asked about", async () => {
	const home = homeWith({ rules: [{ tool: "bash", attachSeconds: "soon" }] });
	const pi = await startedPi({ home });
	await pi.prompt(`${call(0, "hi")}\n!next\n!say seen`);
	const isDialog = (event: PiEvent) => event.type === "extension_ui_request" && event.method === "select" && event;
	pi.answer(await pi.waitFor(isDialog, { what: "a dialog" }), { value: "Allow once" });
	await pi.settled();
	expect(results(pi)).toEqual(["hi\n"]);
	expect(pi.notifications().join("\n")).toContain("toolPolicy");
});
