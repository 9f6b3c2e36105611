import { lstatSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, type Home, makeHome, type Pi } from "../support/pi.ts";
import { mailsIn, replyTo, runningRecord, startedPi, typeMailbox } from "./mail.ts";

afterEach(cleanUp);

/** Everything under the mail root, with the text of the files. */
function everything(home: Home): [string, string][] {
	const paths = readdirSync(home.mailRoot, { recursive: true, encoding: "utf8" }).sort();
	// A session that has just started may still be looking for folders to prune.
	return paths
		.filter((path) => !path.startsWith(".prune.lock"))
		.map((path) => {
			const whole = join(home.mailRoot, path);
			return [path, lstatSync(whole).isFile() ? readFileSync(whole, "utf8") : ""];
		});
}

/** As sessions started within a minute have them: the first 8 characters are the same (design D6). */
const ids = {
	author: "0197a3f2-1111-7000-8000-00000000000a",
	first: "0197a3f2-2222-7000-8000-00000000000b",
	second: "0197a3f2-3333-7000-8000-00000000000c",
};

async function threeSessions(home: Home): Promise<[Pi, Pi, Pi]> {
	return Promise.all([
		startedPi({ home, name: "author", args: ["--session-id", ids.author] }),
		startedPi({ home, name: "twin", args: ["--session-id", ids.first] }),
		startedPi({ home, name: "twin", args: ["--session-id", ids.second] }),
	]);
}

test("PSM-031…037 what /mailbox cannot send it refuses in one sentence, and nothing is written", async () => {
	const home = makeHome();
	const [author] = await threeSessions(home);
	const twins = `twin (${ids.first}), twin (${ids.second})`;
	const closed = "a closed session is reached by its full id";
	const isSelf = "Nothing was sent: that is this session, and a session cannot send mail to itself.";
	const usage = "Nothing was sent: type /mailbox <to> <text>, where <to> is a session's name or id.";
	const before = everything(home);
	for (const [argument, refusal] of [
		["nobody hello", `Nothing was sent: no running session is called "nobody"; running: ${twins}; ${closed}.`],
		["../etc hello", `Nothing was sent: no running session is called "../etc"; running: ${twins}; ${closed}.`],
		["twin hello", `Nothing was sent: "twin" could be ${twins}; use the full id.`],
		["0197a3f2 hello", `Nothing was sent: "0197a3f2" could be author (${ids.author}), ${twins}; use the full id.`],
		["0197a3f hello", 'Nothing was sent: "0197a3f" is too short for an id: type at least 8 characters of it.'],
		["author hello", isSelf],
		[`${ids.author} hello`, isSelf],
		[`${ids.author.toUpperCase()} hello`, isSelf],
		["twin", usage],
		['"twin"', usage],
		[`${ids.first}   `, usage],
		['"" hello', usage],
	] as const) {
		expect([argument, await typeMailbox(author, argument)]).toEqual([argument, refusal]);
	}
	expect(author.notifications()).toHaveLength(12);
	expect(everything(home)).toEqual(before);
});

test("PSM-024/031 names with spaces: in quotes, or the longest one that what was typed begins with", async () => {
	const home = makeHome();
	const [author, code, reviewer] = await threeSessions(home);
	await code.setName("code");
	await reviewer.setName("code reviewer");
	expect(runningRecord(home, reviewer.sessionId)).toMatchObject({ name: "code reviewer" });
	for (const [argument, to, body] of [
		["code reviewer check the parser", reviewer, "check the parser"],
		['"code reviewer" check the lexer', reviewer, "check the lexer"],
		["'code reviewer'  two\n lines ", reviewer, "two\n lines"],
		["code check the printer", code, "check the printer"],
		["code reviewers are many", code, "reviewers are many"],
		['"code" reviewer is your name?', code, "reviewer is your name?"],
		[`${code.sessionId} code reviewer`, code, "code reviewer"],
	] as const) {
		const said = await typeMailbox(author, argument);
		const sent = mailsIn(home, author.sessionId, "sent").at(-1);
		expect(sent).toMatchObject({ to: to.sessionId, body });
		// A line more when the session still answers the one before.
		expect(said.split("\n")[0]).toBe(`Sent ${sent?.id} to ${to.sessionId}`);
		await replyTo(home, author, `${sent?.id}`);
	}
});

test("PSM-036 /mailbox alone shows the address and the name, or how to get one", async () => {
	const home = makeHome();
	const pi = await startedPi({ home });
	const address = `Mailbox address: ${pi.sessionId}`;
	expect(await typeMailbox(pi, "")).toBe(
		`${address}\nName: none; other sessions see ${pi.sessionId.slice(0, 8)} (set one with /name)`,
	);
	await pi.setName("author");
	expect(await typeMailbox(pi, "")).toBe(`${address}\nName: author`);
});

test("design D16: mail to a full id that nobody has seen here is taken, and the answer says so", async () => {
	const home = makeHome();
	const pi = await startedPi({ home });
	const unseen = "0197a3f2-1111-7000-8000-00000000000a";
	const said = await typeMailbox(pi, `${unseen} are you there?`);
	const [mail] = mailsIn(home, unseen, "new");
	expect(said).toBe(
		`Sent ${mail?.id} to ${unseen}\nNo session with this id has been seen on this machine; the mail waits for one.`,
	);
});
