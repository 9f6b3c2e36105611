import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, makeHome, type Pi, startPi } from "../support/pi.ts";
import {
	authorAndReviewer,
	mailEntries,
	pause,
	repliesTo,
	replyTo,
	runningRecord,
	sendRequest,
	startedPi,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

const heldWarnings = (pi: Pi) => pi.notifications().filter((text) => text.includes("has this session open as well"));

test.each([
	["ends", (pi: Pi) => pi.stop()],
	["is killed", (pi: Pi) => pi.kill()],
])(
	"D7: of two processes on one session one receives; the other says so once, sends, and takes over when the first %s",
	async (_, end) => {
		const home = makeHome();
		const [author, owner] = await authorAndReviewer(home);
		const { sessionId, sessionFile } = owner;
		const record = () => runningRecord(home, sessionId);
		const ownerPid = record()?.pid;
		const other = await startPi({ home, args: ["--session", sessionFile] });
		await eventually(() => heldWarnings(other).length > 0, { what: "The warning" });
		expect(heldWarnings(other)).toEqual([
			`mailbox: process ${ownerPid} has this session open as well and receives its mail; this one can only send until that one ends`,
		]);

		const toOwner = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
		expect((await replyTo(home, author, toOwner)).body).toBe("It is fine.");
		expect(record()).toMatchObject({ pid: ownerPid, state: "idle" });
		// Its own prompts leave the record alone, and it sends from the address that both have.
		await other.prompt("!slow 300 a prompt of its own");
		await untilWriting(other);
		expect(record()).toMatchObject({ pid: ownerPid, state: "idle" });
		await other.settled();
		const fromOther = await sendRequest(other, "author", "and you? ;; %say Fine as well.");
		const answer = await replyTo(home, owner, fromOther);
		expect(answer).toMatchObject({ to: sessionId, body: "Fine as well." });
		expect(other.modelRequests()).toHaveLength(1);

		await end(owner);
		await eventually(() => record() !== undefined && record()?.pid !== ownerPid, {
			timeoutMs: 5000,
			what: "The other process in the record",
		});
		other.mark();
		const toOther = await sendRequest(author, "reviewer", "who are you? ;; %say The other one.");
		expect((await replyTo(home, author, toOther)).body).toBe("The other one.");
		// It shows its model nothing that the first one has read, and answers nothing that the first one has answered.
		expect(other.modelRequests().map(({ messages }) => messages.at(-1)?.text)).toEqual([
			"!slow 300 a prompt of its own",
			expect.stringContaining("who are you?"),
		]);
		expect(mailEntries(owner).map(({ mail }) => mail.id)).toEqual([toOwner, answer.id, toOther]);
		expect(repliesTo(home, author.sessionId).map((reply) => reply.in_reply_to)).toEqual([[toOwner], [toOther]]);
		expect(heldWarnings(other)).toHaveLength(1);
		await other.stop();
		expect(record()).toBeUndefined();
	},
);

test.each([
	["ends", (pi: Pi) => pi.stop()],
	["is killed", (pi: Pi) => pi.kill()],
])("D7: when the second process on a session %s first, the first one receives as before", async (_, end) => {
	const home = makeHome();
	const cwd = join(home.path, "reviews");
	mkdirSync(cwd);
	const [author, owner] = await authorAndReviewer(home, { cwd });
	const pid = runningRecord(home, owner.sessionId)?.pid;
	const other = await startPi({ home, args: ["--continue"], cwd });
	expect(other.sessionId).toBe(owner.sessionId);
	await eventually(() => heldWarnings(other).length > 0, { what: "The warning" });
	const before = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	expect((await replyTo(home, author, before)).body).toBe("It is fine.");
	const record = await eventually(
		() => {
			const there = runningRecord(home, owner.sessionId);
			return there?.state === "idle" ? there : undefined;
		},
		{ what: "The end of the run" },
	);
	expect(record.pid).toBe(pid);
	await end(other);
	const { updated: _updated, ...same } = runningRecord(home, owner.sessionId) ?? {};
	expect(record).toMatchObject(same);
	const after = await sendRequest(author, "reviewer", "and the lexer? ;; %say It is broken.");
	expect((await replyTo(home, author, after)).body).toBe("It is broken.");
	await owner.stop();
	expect(runningRecord(home, owner.sessionId)).toBeUndefined();

	const again = await startedPi({ home, args: ["--continue"], cwd });
	expect(again.sessionId).toBe(owner.sessionId);
	expect(mailEntries(again).map(({ mail }) => mail.id)).toEqual([before, after]);
	expect(repliesTo(home, author.sessionId)).toHaveLength(2);
	expect(again.modelRequests()).toHaveLength(1);
});

test("D7, D18: what the first process owed when it was killed, the second holds and answers with its next finished run", async () => {
	const home = makeHome();
	const [author, owner] = await authorAndReviewer(home);
	const other = await startedPi({ home, args: ["--session", owner.sessionFile] });
	owner.mark();
	const owed = await sendRequest(author, "reviewer", "check the parser ;; %slow 60000 a long story");
	await untilWriting(owner);
	pause(home, owner);
	const waiting = await sendRequest(author, "reviewer", "and the lexer? ;; %say It is broken.");
	await owner.kill();
	expect((await replyTo(home, author, waiting)).body).toMatch(/It is broken\.$/);
	expect((await replyTo(home, author, owed)).body).toMatch(/^\(The session was restarted .*It is broken\.$/s);
	expect(mailEntries(other).map(({ mail }) => mail.id)).toEqual([owed, waiting]);
});
