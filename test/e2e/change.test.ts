import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, makeHome, type Pi } from "../support/pi.ts";
import {
	allClosed,
	authorAndReviewer,
	conversation,
	fixture,
	footer,
	mailEntries,
	mailsIn,
	ours,
	pause,
	repliesTo,
	replyTo,
	runningRecord,
	sendRequest,
	typeMailbox,
	untilInTool,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

/** A request that the reviewer has read, and whose run was stopped: it is owed. */
async function stoppedRequest(author: Pi, reviewer: Pi): Promise<string> {
	reviewer.mark();
	const id = await sendRequest(author, reviewer.sessionId, "check the parser ;; %slow 60000 a long story");
	await untilWriting(reviewer);
	await reviewer.command({ type: "abort" });
	await reviewer.settled();
	return id;
}

test("PSM-025 /new takes the old address out of running/; mail for it waits until its session is back", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	const [oldId, oldFile] = [reviewer.sessionId, reviewer.sessionFile];
	const answered = await sendRequest(author, oldId, "check the parser ;; %say It is fine.");
	await replyTo(home, author, answered);

	await reviewer.command({ type: "new_session" });
	expect(reviewer.sessionId).not.toBe(oldId);
	expect(runningRecord(home, oldId)).toBeUndefined();
	expect(runningRecord(home, reviewer.sessionId)).toMatchObject({ state: "idle", cwd: home.workDir });
	const waiting = await sendRequest(author, oldId, "and the lexer? ;; %say It is broken.");
	// The new session takes its own mail, and only that.
	const toNew = await sendRequest(author, reviewer.sessionId, "who are you? ;; %say A new one.");
	expect((await replyTo(home, author, toNew)).body).toBe("A new one.");
	expect(mailsIn(home, oldId, "new").map(({ id }) => id)).toEqual([waiting]);

	const newId = reviewer.sessionId;
	await reviewer.command({ type: "switch_session", sessionPath: oldFile });
	expect(runningRecord(home, newId)).toBeUndefined();
	expect(runningRecord(home, oldId)).toMatchObject({ name: "reviewer" });
	expect((await replyTo(home, author, waiting)).body).toBe("It is broken.");
	expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([answered, waiting]);
	expect(repliesTo(home, author.sessionId)).toHaveLength(3);
});

test.each(["clone", "fork"] as const)(
	"design 4.9: a session made by /%s neither answers nor repeats the mail of the one it was made from",
	async (how) => {
		const home = makeHome();
		const [author, reviewer] = await authorAndReviewer(home);
		const parent = { id: reviewer.sessionId, file: reviewer.sessionFile };
		const answered = await sendRequest(author, parent.id, "check the lexer ;; %say It is fine.");
		await replyTo(home, author, answered);
		const owed = await stoppedRequest(author, reviewer);
		// A prompt to fork at, whose run answers nothing.
		await reviewer.prompt("!error boom");
		await reviewer.settled();
		if (how === "clone") await reviewer.command({ type: "clone" });
		else await reviewer.command({ type: "fork", entryId: lastPrompt(reviewer) });
		expect(reviewer.sessionId).not.toBe(parent.id);
		expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([answered, owed]);
		expect(runningRecord(home, parent.id)).toBeUndefined();
		expect(runningRecord(home, reviewer.sessionId)).toBeDefined();
		await reviewer.prompt("!say the answer of the copy");
		await reviewer.settled();
		expect(repliesTo(home, author.sessionId)).toHaveLength(1);
		const toCopy = await sendRequest(author, reviewer.sessionId, "who are you? ;; %say A copy.");
		expect((await replyTo(home, author, toCopy)).body).toBe("A copy.");

		await reviewer.command({ type: "switch_session", sessionPath: parent.file });
		await reviewer.prompt("!say the answer of the parent");
		await reviewer.settled();
		expect((await replyTo(home, author, owed)).body).toMatch(/\n\nthe answer of the parent$/);
		expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([answered, owed]);
		expect(repliesTo(home, author.sessionId)).toHaveLength(3);
	},
);

test("L2: /reload loses nothing and repeats nothing: mail read, mail owed, mail that arrives meanwhile, and the footer", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home, { extensions: [ours, fixture("reload.js")] });
	const answered = await sendRequest(author, "reviewer", "check the lexer ;; %say It is fine.");
	await replyTo(home, author, answered);
	const owed = await stoppedRequest(author, reviewer);
	const before = runningRecord(home, reviewer.sessionId);

	const goOn = pause(home, reviewer);
	const arriving = await sendRequest(author, "reviewer", "and the printer? ;; %say It jams.");
	const reloaded = reviewer.command({ type: "prompt", message: "/reload-all" });
	goOn();
	expect(await reloaded).toMatchObject({ success: true });
	const reply = await replyTo(home, author, arriving);
	expect(reply.body).toMatch(/It jams\.$/);
	// The run that read the new mail is also the first that finished after the stop.
	expect((await replyTo(home, author, owed)).body).toMatch(/\n\nIt jams\.$/);
	expect(
		repliesTo(home, author.sessionId)
			.flatMap((mail) => mail.in_reply_to)
			.sort(),
	).toEqual([answered, owed, arriving].sort());
	expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([answered, owed, arriving]);
	await footer(reviewer, "✉ 3 read");
	expect(runningRecord(home, reviewer.sessionId)).toMatchObject({ name: "reviewer", pid: before?.pid, state: "idle" });

	await reviewer.prompt("/reload-all");
	await footer(reviewer, "✉ 3 read");
	expect(await typeMailbox(reviewer, "")).toBe(`Mailbox address: ${reviewer.sessionId}\nName: reviewer`);
	expect(conversation(reviewer).filter((what) => what === "mail")).toHaveLength(3);
});

test("L2: a reply that was claimed when the user left a run with /new is there when they come back", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	const { sessionId, sessionFile } = author;
	await author.prompt('!tool bash {"command":"sleep 60"}');
	await untilInTool(author);
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	await eventually(() => mailsIn(home, sessionId, "cur").length === 1, { what: "The claim of the reply" });
	await author.command({ type: "new_session" });
	expect(author.sessionId).not.toBe(sessionId);
	await author.command({ type: "switch_session", sessionPath: sessionFile });
	expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	expect(mailEntries(author)).toHaveLength(1);
	await allClosed(home, sessionId);
	expect(reviewer.modelRequests()).toHaveLength(2);
});

test("PSM-039 a session opened with /new shows nothing of the mail of the one before", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	await replyTo(home, author, await sendRequest(author, "reviewer", "check the parser ;; %say It is fine."));
	await footer(reviewer, "✉ 1 read");
	await reviewer.command({ type: "new_session" });
	await footer(reviewer, undefined);
});

function lastPrompt(pi: Pi): string {
	const entry = pi.entries().findLast((entry) => entry.type === "message" && entry.message.role === "user");
	if (entry?.type !== "message") throw new Error("no prompt");
	return entry.id;
}
