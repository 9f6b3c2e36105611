import { appendFileSync, existsSync, linkSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, makeHome, startPi } from "../support/pi.ts";
import {
	allClosed,
	authorAndReviewer,
	conversation,
	footer,
	mailEntries,
	mailsIn,
	namesIn,
	openMarks,
	repliesTo,
	replyTo,
	runningRecord,
	sendRequest,
	startedPi,
	typeMailbox,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

test("PSM-030/039/044 mail for a closed session is delivered when it is resumed, and so is the answer to a closed sender", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	await reviewer.stop();
	expect(runningRecord(home, reviewer.sessionId)).toBeUndefined();
	const said = await typeMailbox(author, `${reviewer.sessionId} check the parser ;; %say It is fine.`);
	const [request] = mailsIn(home, reviewer.sessionId, "new");
	expect(said).toBe(
		`Sent ${request?.id} to ${reviewer.sessionId}\nThat session is not running; the mail waits until it starts.\n1 mail waits there.`,
	);
	await author.stop();
	const waiting = await startPi({ home, args: ["--session", author.sessionFile] });
	await footer(waiting, "✉ 1 awaiting");
	await waiting.stop();

	const reviewerAgain = await startPi({ home, args: ["--session", reviewer.sessionFile] });
	const reply = await eventually(() => mailsIn(home, author.sessionId, "new")[0], { what: "The reply" });
	expect(reply).toMatchObject({ status: "done", body: "It is fine.", in_reply_to: [request?.id] });
	expect(conversation(reviewerAgain)).toEqual(["user", "assistant", "mail", "assistant"]);
	// The sender is not running: nobody knows its name and folder.
	const label = `[mailbox] From ${author.sessionId.slice(0, 8)} (${author.sessionId}), another Pi session`;
	expect(mailEntries(reviewerAgain)[0]?.text.slice(0, label.length)).toBe(label);

	const authorAgain = await startPi({ home, args: ["--session", author.sessionFile] });
	await replyTo(home, authorAgain, `${request?.id}`);
	await footer(authorAgain, "✉ 1 read");
	expect(authorAgain.modelRequests()).toEqual([]);
});

test("PSM-041 a mail that is put into the inbox a second time is neither read nor answered again", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	await replyTo(home, author, id);
	const boxes = join(home.mailRoot, reviewer.sessionId);
	const [name = ""] = namesIn(home, reviewer.sessionId, "cur");
	// Once under the same file name and once under another.
	for (const again of [name, `9${name.slice(1)}`]) linkSync(join(boxes, "cur", name), join(boxes, "new", again));
	await eventually(
		() => namesIn(home, reviewer.sessionId, "cur").length === 3 && openMarks(home, reviewer.sessionId).length === 0,
	);
	const next = await sendRequest(author, "reviewer", "and the lexer? ;; %say It is broken.");
	await replyTo(home, author, next);
	expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([id, next]);
	expect(repliesTo(home, author.sessionId).map((reply) => reply.in_reply_to)).toEqual([[id], [next]]);
	expect(reviewer.modelRequests()).toHaveLength(3);
});

test("L1: mail enters a session whose file ends in half a line, as a crash can leave it, and stays in it", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	await reviewer.kill();
	const half = '{"type":"custom_message","customType":"mailbox","content":"half a li';
	appendFileSync(reviewer.sessionFile, half);
	const args = ["--session", reviewer.sessionFile];
	const id = await sendRequest(author, reviewer.sessionId, "check the parser ;; %say It is fine.");
	const resumed = await startPi({ home, args });
	await replyTo(home, author, id);
	await resumed.kill();
	const again = await startedPi({ home, args });
	await replyTo(home, author, await sendRequest(author, reviewer.sessionId, "and the lexer? ;; %say It is broken."));
	expect(again.modelRequests()).toHaveLength(2);
	expect(repliesTo(home, author.sessionId)).toHaveLength(2);
	await allClosed(home, reviewer.sessionId);
	const lines = readFileSync(reviewer.sessionFile, "utf8").split("\n");
	expect(lines.filter((line) => line.includes(id) && line.includes('"customType":"mailbox"'))).toHaveLength(1);
});

test("L1: a new session that is killed during its first answer, before it had a file, gets the mail again under its id", async () => {
	const home = makeHome();
	const [author, reviewer] = await Promise.all([
		startedPi({ home, name: "author" }),
		startPi({ home, name: "reviewer" }),
	]);
	const id = await sendRequest(author, "reviewer", "check the parser ;; %slow 60000 a long story");
	await untilWriting(reviewer);
	await reviewer.kill();
	expect(existsSync(reviewer.sessionFile)).toBe(false);
	expect(openMarks(home, reviewer.sessionId)).toHaveLength(1);

	const rules = [{ if: "check the parser", script: "!say It is fine." }];
	const again = await startPi({ home, args: ["--session-id", reviewer.sessionId], rules });
	expect(await replyTo(home, author, id)).toMatchObject({ status: "done", body: "It is fine." });
	expect(mailEntries(again).map(({ mail }) => mail.id)).toEqual([id]);
	await allClosed(home, reviewer.sessionId);
});
