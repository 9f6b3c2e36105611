import { lstatSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, makeHome, startPi } from "../support/pi.ts";
import {
	allClosed,
	authorAndReviewer,
	conversation,
	footer,
	mailEntries,
	mailsIn,
	namesIn,
	pause,
	repliesTo,
	replyTo,
	sendRequest,
	startedPi,
	typeMailbox,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

test("PSM-037/047/048 a request wakes the idle reviewer, and its answer comes back without a turn in author", async () => {
	const home = makeHome();
	const author = await startedPi({ home, name: "author" });
	const reviewer = await startPi({ home, name: "reviewer" });

	const said = await typeMailbox(author, "reviewer please check the parser ;; %slow 300 The parser is fine.");
	const [request] = mailsIn(home, author.sessionId, "sent");
	expect(request).toMatchObject({ from: author.sessionId, to: reviewer.sessionId, kind: "request", hops: 0 });
	expect(said).toBe(`Sent ${request?.id} to ${reviewer.sessionId}`);
	await footer(author, "✉ 1 awaiting");

	const reply = await replyTo(home, author, `${request?.id}`);
	expect(reply).toMatchObject({ from: reviewer.sessionId, status: "done", body: "The parser is fine." });
	const asked = reviewer.modelRequests().map(({ messages }) => messages.at(-1)?.text);
	expect(asked).toEqual([
		[
			`[mailbox] From author (${author.sessionId}, working in ${home.workDir}), another Pi session on this machine. It sent a request. Your final answer this turn goes back automatically; do not send it yourself.`,
			"",
			"please check the parser ;; %slow 300 The parser is fine.",
			"",
			"[mailbox] End of the mail from author. Text after this line is not part of it.",
		].join("\n"),
	]);
	expect(mailEntries(author).map(({ text }) => text)).toEqual([
		expect.stringMatching(
			/^\[mailbox\] From reviewer .* It sent a reply .*\n\nThe request .*:\n> please check the parser.*\n\nThe reply:\nThe parser is fine\.\n\n\[mailbox\] End/s,
		),
	]);
	expect(author.modelRequests()).toHaveLength(1);
	await footer(author, "✉ 1 read");
	await footer(reviewer, "✉ 1 read");

	for (const { sessionId } of [author, reviewer]) {
		await allClosed(home, sessionId);
		expect(namesIn(home, sessionId, "cur")).toEqual([expect.stringMatching(/^\d{15}-.*\.json$/)]);
		expect(namesIn(home, sessionId, "new")).toEqual([]);
		expect(namesIn(home, sessionId, "tmp")).toEqual([]);
	}
	expect(mailsIn(home, reviewer.sessionId, "cur")).toEqual([request]);
	expect(mailsIn(home, author.sessionId, "cur")).toEqual([reply]);
	expect(mailsIn(home, reviewer.sessionId, "sent")).toEqual([]);
	for (const path of readdirSync(home.mailRoot, { recursive: true, encoding: "utf8" })) {
		const stats = lstatSync(join(home.mailRoot, path));
		expect([path, stats.mode & 0o777]).toEqual([path, stats.isDirectory() ? 0o700 : 0o600]);
	}
	expect(author.stderr + reviewer.stderr).toBe("");
});

test("PSM-042/062 two senders at once each get the answer to their own requests", async () => {
	const home = makeHome();
	const [ann, bob, reviewer] = await Promise.all([
		startedPi({ home, name: "ann" }),
		startedPi({ home, name: "bob" }),
		startedPi({ home, name: "reviewer" }),
	]);
	const sendThree = async (sender: typeof ann) => {
		const ids: string[] = [];
		for (const number of [1, 2, 3]) ids.push(await sendRequest(sender, "reviewer", `question ${number}`));
		return ids;
	};
	const [fromAnn, fromBob] = await Promise.all([sendThree(ann), sendThree(bob)]);
	for (const [sender, ids] of [[ann, fromAnn] as const, [bob, fromBob] as const]) {
		for (const id of ids) await replyTo(home, sender, id);
		expect(repliesTo(home, sender.sessionId).flatMap((reply) => reply.in_reply_to)).toEqual(ids);
		expect(sender.modelRequests()).toHaveLength(1);
		const read = mailEntries(reviewer).filter(({ mail }) => mail.from === sender.sessionId);
		expect(read.map(({ mail }) => mail.id)).toEqual(ids);
	}
	expect(mailEntries(reviewer)).toHaveLength(6);
});

test("PSM-043, design 4.4: five requests that wait for an idle session cost one model request and one reply", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	const goOn = pause(home, reviewer);
	const ids: string[] = [];
	for (const number of [1, 2, 3, 4, 5]) ids.push(await sendRequest(author, "reviewer", `request ${number}`));
	expect(mailsIn(home, reviewer.sessionId, "new")).toHaveLength(5);
	goOn();

	const reply = await replyTo(home, author, `${ids[0]}`);
	expect(reply.in_reply_to).toEqual(ids);
	expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual(ids);
	expect(conversation(reviewer)).toEqual(["user", "assistant", ...ids.map(() => "mail"), "assistant"]);
	expect(reviewer.modelRequests()).toHaveLength(2);
	expect(repliesTo(home, author.sessionId)).toEqual([reply]);
	await footer(author, "✉ 1 read");
});

test("PSM-040, D18: a session that is not saved receives and answers", async () => {
	const home = makeHome();
	const [author, reviewer] = await Promise.all([
		startedPi({ home, name: "author" }),
		startPi({ home, name: "reviewer", args: ["--no-session"] }),
	]);
	const id = await sendRequest(author, "reviewer", "are you there? ;; %say I am.");
	expect(await replyTo(home, author, id)).toMatchObject({ status: "done", body: "I am." });
	await allClosed(home, reviewer.sessionId);
	expect(namesIn(home, reviewer.sessionId, "cur")).toHaveLength(1);
	expect(reviewer.modelRequests()).toHaveLength(1);
});

test("D18: a session that is not saved answers what it owes with failed when it ends", async () => {
	const home = makeHome();
	const [author, reviewer] = await Promise.all([
		startedPi({ home, name: "author" }),
		startedPi({ home, name: "reviewer", args: ["--no-session"] }),
	]);
	reviewer.mark();
	const id = await sendRequest(author, "reviewer", "take your time ;; %slow 60000 a long story");
	await untilWriting(reviewer);
	await reviewer.stop();
	expect(repliesTo(home, author.sessionId)).toEqual([expect.objectContaining({ status: "failed", in_reply_to: [id] })]);
});
