import { afterEach, expect, test } from "vitest";
import { cleanUp, makeHome, type Pi } from "../support/pi.ts";
import {
	authorAndReviewer,
	footer,
	mailEntries,
	namesIn,
	repliesTo,
	replyTo,
	sendRequest,
	untilInTool,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

const tookOverNote =
	"(The user stopped an earlier run partway and took over; the answer that follows is from the run that completed after that.)";

/** Stops the run as a person does. */
async function stop(pi: Pi): Promise<void> {
	pi.mark();
	await pi.command({ type: "abort" });
	await pi.waitFor((event) => event.type === "agent_settled" && event.aborted);
}

test("PSM-067 a request whose run ends on an error is answered failed, with the error", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say I have looked. ;; %error boom");
	expect(await replyTo(home, author, id)).toMatchObject({
		status: "failed",
		body: "(The run ended on an error before it finished: boom. What it had written follows.)\n\nI have looked.",
	});
	expect(mailEntries(author)[0]?.text).toContain("Its status is failed, so this is not an answer.");
	await reviewer.prompt("!say something else");
	await reviewer.settled();
	expect(repliesTo(home, author.sessionId)).toHaveLength(1);
});

test("PSM-064/065 a request whose run the user stops is answered by the next run that finishes, and by no other", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	reviewer.mark();
	const id = await sendRequest(author, "reviewer", "check the parser ;; %slow 60000 half an answer");
	await untilWriting(reviewer);
	await stop(reviewer);
	await reviewer.prompt("!error boom");
	await reviewer.settled();
	await reviewer.prompt("!slow 60000 something else");
	await untilWriting(reviewer);
	await stop(reviewer);
	expect(repliesTo(home, author.sessionId)).toEqual([]);
	await footer(author, "✉ 1 awaiting");

	await reviewer.prompt("!say the whole answer");
	await reviewer.settled();
	expect(await replyTo(home, author, id)).toMatchObject({
		status: "done",
		body: `${tookOverNote}\n\nthe whole answer`,
	});
	await reviewer.prompt("!say something else");
	await reviewer.settled();
	expect(repliesTo(home, author.sessionId)).toHaveLength(1);
	expect(mailEntries(reviewer)).toHaveLength(1);
});

test("PSM-064, D17: a request that the session had not read when the user stopped it is answered failed, and not read later", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	await reviewer.prompt('!tool bash {"command":"sleep 60"}');
	await untilInTool(reviewer);
	const id = await sendRequest(author, "reviewer", "check the parser");
	await footer(reviewer, "✉ 1 pending");
	await stop(reviewer);
	expect(repliesTo(home, author.sessionId)).toEqual([
		expect.objectContaining({
			in_reply_to: [id],
			status: "failed",
			body: "(The session was stopped before it read the message. Nothing was done about it; send it again if it is still wanted.)",
		}),
	]);
	await footer(reviewer, undefined);

	const next = await sendRequest(author, "reviewer", "check it now ;; %say It is fine.");
	expect((await replyTo(home, author, next)).body).toBe("It is fine.");
	expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([next]);
	expect(namesIn(home, reviewer.sessionId, "cur").filter((name) => !name.endsWith(".json"))).toEqual([]);
});

test("D17: a reply that arrives in a run that the user stops is not lost", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	await author.prompt('!tool bash {"command":"sleep 60"}');
	await untilInTool(author);
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	await footer(author, "✉ 1 pending");
	expect(mailEntries(author)).toEqual([]);
	await stop(author);
	expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	expect(author.modelRequests()).toHaveLength(2);
	expect(reviewer.modelRequests()).toHaveLength(2);
});

test("D24: a run stopped while Pi waits to try again counts as stopped, not as failed", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	reviewer.mark();
	const id = await sendRequest(author, "reviewer", "check the parser ;; %error 503 Service overloaded");
	await reviewer.waitFor((event) => event.type === "auto_retry_start");
	await stop(reviewer);
	expect(repliesTo(home, author.sessionId)).toEqual([]);
	await reviewer.prompt("!say It is fine.");
	await reviewer.settled();
	expect((await replyTo(home, author, id)).body).toBe(`${tookOverNote}\n\nIt is fine.`);
});
