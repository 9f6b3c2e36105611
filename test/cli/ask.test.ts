import { afterEach, beforeEach, expect, test } from "vitest";
import type { Draft } from "../../src/mail/deliver.ts";
import { temporaryFolder } from "../support/disk.ts";
import { cleanUp, eventually } from "../support/pi.ts";
import { type ProgramHome, programHome } from "../support/program.ts";

const bob = "01980f5e-7a3c-7d10-8f00-00000000000b";

afterEach(cleanUp);

let home: ProgramHome;
beforeEach(() => {
	home = programHome(temporaryFolder());
});

/** What is left of programs without a name. */
const passing = () => [...home.names(), ...home.names("running")].filter((name) => /ask-|send-/.test(name));

function lateAnswerTo({ id, from }: { id: string; from: string }): Draft {
	return { to: from, kind: "reply", body: "late", hops: 0, inReplyTo: [id], status: "done" };
}

test("an ask without a name waits, is listed meanwhile, prints the answer, and leaves nothing", async () => {
	const session = home.session(bob, { name: "bob" });
	const asking = home.start(["ask", "bob", "is", "it", "safe?"]);
	const mail = await session.take();
	expect(mail).toMatchObject({ kind: "ask", body: "is it safe?", hops: 0, x: { program: true } });
	expect(mail.from).toMatch(/^ask-[a-z0-9]{16}$/);
	const { sessions } = (await home.json(["list"])) as { sessions: { address: string }[] };
	expect(sessions).toHaveLength(2);
	const listed = sessions.find(({ address }) => address === mail.from);
	expect(listed).toMatchObject({ name: expect.stringMatching(/./), program: true, waitingOn: bob });
	session.answer(mail, "yes, it is");
	expect(await asking.ended).toEqual({ code: 0, signal: null, stdout: "yes, it is\n", stderr: "" });
	expect(passing()).toEqual([]);
});

test("D27 an answer that comes after the program has ended is refused with a word that is not tried again", async () => {
	const session = home.session(bob, { name: "bob" });
	const asking = home.start(["ask", "bob", "well?", "--timeout", "1"]);
	const mail = await session.take();
	expect(await asking.ended).toMatchObject({ code: 4, stdout: "", stderr: expect.stringContaining("no answer came") });
	expect(session.mailbox.deliver(lateAnswerTo(mail))).toMatchObject({ ok: false, code: "ended" });
	expect(passing()).toEqual([]);
	// It was claimed, so it could not be taken back: the session hears that nobody waits.
	expect(home.mails(bob, "new")).toMatchObject([
		{ kind: "message", body: expect.stringContaining("stopped waiting"), x: { quiet: true } },
	]);
});

test.each([
	["failed", "it broke"],
	["stopped", "so far"],
] as const)("an ask whose run %s says so by its exit code, 3", async (status, body) => {
	const session = home.session(bob, { name: "bob" });
	const asking = home.start(["ask", "bob", "well?"]);
	session.answer(await session.take(), body, status);
	expect(await asking.ended).toMatchObject({ code: 3, stdout: `${body}\n`, stderr: expect.stringContaining(status) });
});

test.each([
	["SIGINT", 130],
	["SIGTERM", 143],
] as const)("an ask that %s interrupts is taken back, and leaves no record", async (signal, code) => {
	const session = home.session(bob, { name: "bob" });
	const asking = home.start(["ask", "bob", "well?"]);
	await eventually(() => session.mailbox.waiting().length === 1);
	asking.child.kill(signal);
	expect(await asking.ended).toMatchObject({ code, stdout: "" });
	expect(home.mails(bob, "new")).toEqual([]);
	expect(passing()).toEqual([]);
});

test("an interrupted ask that was claimed tells its recipient that nobody waits any more", async () => {
	const session = home.session(bob, { name: "bob" });
	const asking = home.start(["ask", "bob", "well?"]);
	const mail = await session.take();
	asking.child.kill("SIGINT");
	expect(await asking.ended).toMatchObject({ code: 130 });
	const [told, ...rest] = home.mails(bob, "new");
	expect(told).toMatchObject({ kind: "message", body: expect.stringContaining(mail.id), x: { program: true } });
	expect(rest).toEqual([]);
	expect(passing()).toEqual([]);
});

test("what a killed ask left, its folder included, goes with the next one who meets its record", async () => {
	const session = home.session(bob, { name: "bob" });
	const asking = home.start(["ask", "bob", "well?"]);
	const mail = await session.take();
	asking.child.kill("SIGKILL");
	await asking.ended;
	expect(passing()).not.toEqual([]);
	expect(await home.json(["list"])).toMatchObject({ sessions: [{ name: "bob" }] });
	expect(passing()).toEqual([]);
	expect(session.mailbox.deliver(lateAnswerTo(mail))).toMatchObject({ ok: false, code: "ended" });
});

test("an ask is refused when nobody of that name runs, before anything is written", async () => {
	expect(await home.run(["ask", "nobody", "well?"])).toMatchObject({
		code: 1,
		stdout: "",
		stderr: expect.stringContaining("Nothing was sent"),
	});
	expect(passing()).toEqual([]);
	expect(await home.run(["ask", bob, "well?"])).toMatchObject({
		code: 1,
		stderr: expect.stringContaining("pi-session-mail send leaves"),
	});
});

test("of two programs of one name the second that would wait is refused, and can send", async () => {
	const session = home.session(bob, { name: "bob" });
	const asking = home.start(["ask", "bob", "first?", "--from", "ci"]);
	const mail = await session.take();
	expect(mail.from).toBe("ci");
	expect(await home.run(["ask", "bob", "second?", "--from", "ci"])).toMatchObject({
		code: 1,
		stderr: expect.stringMatching(/process \d+ already waits under the name ci/),
	});
	expect(await home.run(["send", "bob", "hello", "--from", "ci"])).toMatchObject({ code: 0 });
	expect(await session.take()).toMatchObject({ from: "ci", body: "hello" });
	session.answer(mail, "yes");
	expect(await asking.ended).toMatchObject({ code: 0, stdout: "yes\n" });
	expect(home.names("running")).toEqual([`${bob}.json`]);
});

test("D13 a program and a session that ask each other do not both wait", async () => {
	const session = home.session(bob, { name: "bob" });
	const asking = home.start(["ask", "bob", "first?", "--from", "ci"]);
	await session.take();
	// The session asked earlier, and its record says so now.
	session.record.update({ waitingOn: "ci", ticket: 1 });
	expect(await asking.ended).toMatchObject({ code: 4, stderr: expect.stringContaining("neither could have answered") });
});
