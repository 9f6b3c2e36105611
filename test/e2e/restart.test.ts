import { existsSync, linkSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, makeHome, startPi } from "../support/pi.ts";
import {
	allClosed,
	authorAndReviewer,
	conversation,
	fixture,
	footer,
	mailEntries,
	mailsIn,
	namesIn,
	notification,
	openMarks,
	ours,
	repliesTo,
	replyTo,
	runningRecord,
	sendRequest,
	startedPi,
	typeMailbox,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

/** Loaded before ours, so that what it holds up ours has not heard of. */
const withHold = [fixture("hold.js"), ours];

const restartNote =
	"(The session was restarted before it could answer; the answer that follows is from the first run that completed after that.)";

test("PSM-030/039/044 mail for a closed session is delivered when it is resumed, and so is the answer to a closed sender", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	await reviewer.stop();
	expect(runningRecord(home, reviewer.sessionId)).toBeUndefined();
	const said = await typeMailbox(author, `${reviewer.sessionId} check the parser ;; %say It is fine.`);
	const [request] = mailsIn(home, reviewer.sessionId, "new");
	expect(said).toBe(
		`Sent ${request?.id} to ${reviewer.sessionId}\nThat session is not running; the mail waits until it starts.`,
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

test("D18: a session that is killed while it answers keeps the mail, and its next finished run answers it, once", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	reviewer.mark();
	const id = await sendRequest(author, "reviewer", "check the parser ;; %slow 60000 a long story");
	await untilWriting(reviewer);
	await reviewer.kill();
	expect(conversation(reviewer)).toEqual(["user", "assistant", "mail"]);

	const resumed = await startedPi({ home, args: ["--session", reviewer.sessionFile] });
	expect(await replyTo(home, author, id)).toMatchObject({ status: "done", body: `${restartNote}\n\nhello` });
	expect(mailEntries(resumed).map(({ mail }) => mail.id)).toEqual([id]);
	expect(resumed.modelRequests()).toHaveLength(1);
	await resumed.stop();

	await startedPi({ home, args: ["--session", reviewer.sessionFile] });
	expect(repliesTo(home, author.sessionId)).toHaveLength(1);
	expect(mailEntries(author)).toHaveLength(1);
});

test("L1: a session that is killed right after it claimed a mail gets it again when it is resumed, once", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home, { extensions: withHold });
	await reviewer.prompt("/hold before_agent_start");
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	await reviewer.waitFor((event) => notification(event) === "held at before_agent_start");
	await reviewer.kill();
	expect(mailsIn(home, reviewer.sessionId, "cur").map((mail) => mail.id)).toEqual([id]);
	expect(openMarks(home, reviewer.sessionId)).toHaveLength(1);
	expect(mailEntries(reviewer)).toEqual([]);

	const resumed = await startPi({ home, args: ["--session", reviewer.sessionFile] });
	expect(await replyTo(home, author, id)).toMatchObject({ status: "done", body: "It is fine." });
	expect(mailEntries(resumed).map(({ mail }) => mail.id)).toEqual([id]);
	await allClosed(home, reviewer.sessionId);
});

test("L2: a session that is killed when a mail is in its conversation but still marked open does not get it twice", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home, { extensions: withHold });
	await reviewer.prompt("/hold context");
	const id = await sendRequest(author, "reviewer", "check the parser");
	await reviewer.waitFor((event) => notification(event) === "held at context");
	await reviewer.kill();
	expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([id]);
	expect(openMarks(home, reviewer.sessionId)).toHaveLength(1);

	const resumed = await startedPi({ home, args: ["--session", reviewer.sessionFile] });
	expect(await replyTo(home, author, id)).toMatchObject({ status: "done", body: `${restartNote}\n\nhello` });
	await allClosed(home, reviewer.sessionId);
	expect(mailEntries(resumed).map(({ mail }) => mail.id)).toEqual([id]);
	expect(resumed.modelRequests()).toHaveLength(1);
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

test("D18: an answer that was finished when the session was killed is sent at its next start, without asking the model", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home, { extensions: withHold });
	await reviewer.prompt("/hold agent_before_settle");
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	await reviewer.waitFor((event) => notification(event) === "held at agent_before_settle");
	await reviewer.kill();
	expect(repliesTo(home, author.sessionId)).toEqual([]);

	const resumed = await startPi({ home, args: ["--session", reviewer.sessionFile] });
	expect(await replyTo(home, author, id)).toMatchObject({ status: "done", body: "It is fine." });
	expect(resumed.modelRequests()).toEqual([]);
	expect(mailEntries(resumed)).toHaveLength(1);
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
