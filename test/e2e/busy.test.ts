import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, type Home, makeHome, type Pi } from "../support/pi.ts";
import {
	allClosed,
	authorAndReviewer,
	conversation,
	fixture,
	footer,
	mailEntries,
	mailsIn,
	notification,
	ours,
	replyTo,
	sendRequest,
	startedPi,
	untilInTool,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

/** A script that is in a tool call until {@link finishTool}, and then goes on with `rest`. */
const inTool = (rest: string) => `!tool bash {"command":"while [ ! -e done ]; do sleep 0.02; done"}\n!next\n${rest}`;

function finishTool(home: Home): void {
	writeFileSync(join(home.workDir, "done"), "");
}

function settledRuns(pi: Pi): number {
	return pi.events.filter((event) => event.type === "agent_settled").length;
}

test("PSM-047, design 4.5: mail to a session in a tool call reaches its model in that run, all of it in the next request", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	await reviewer.prompt(inTool("!say both are fine"));
	await untilInTool(reviewer);
	const ids = [await sendRequest(author, "reviewer", "first"), await sendRequest(author, "reviewer", "second")];
	await footer(reviewer, "✉ 2 pending");
	// Not claimed before the boundary: until then it could be taken back.
	expect(mailsIn(home, reviewer.sessionId, "new").map(({ id }) => id)).toEqual(ids);
	expect(mailEntries(reviewer)).toEqual([]);
	finishTool(home);

	const reply = await replyTo(home, author, `${ids[0]}`);
	expect(reply).toMatchObject({ status: "done", body: "both are fine", in_reply_to: ids });
	const run = ["user", "assistant", "toolResult", "mail", "mail", "assistant"];
	expect(conversation(reviewer)).toEqual(["user", "assistant", ...run]);
	expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual(ids);
	expect(settledRuns(reviewer)).toBe(2);
	const requests = reviewer.modelRequests().slice(1);
	expect(requests.map(({ messages }) => messages.at(-1)?.text)).toEqual([
		expect.stringContaining("!tool"),
		expect.stringContaining("second"),
	]);
	await footer(reviewer, "✉ 2 read");
});

test("PSM-062, D24: mail that comes while the last text is written waits for a run of its own, and each sender gets its own answer", async () => {
	const home = makeHome();
	const [ann, bob, reviewer] = await Promise.all([
		startedPi({ home, name: "ann" }),
		startedPi({ home, name: "bob" }),
		startedPi({ home, name: "reviewer" }),
	]);
	reviewer.mark();
	const first = await sendRequest(ann, "reviewer", "the parser? ;; %slow 1500 The parser is fine.");
	await untilWriting(reviewer);
	const second = await sendRequest(bob, "reviewer", "the lexer? ;; %say The lexer is broken.");
	await footer(reviewer, "✉ 1 pending · 1 read");
	expect((await reviewer.state()).isStreaming).toBe(true);

	expect((await replyTo(home, ann, first)).body).toBe("The parser is fine.");
	expect((await replyTo(home, bob, second)).body).toBe("The lexer is broken.");
	expect(mailEntries(ann)).toHaveLength(1);
	expect(mailEntries(bob)).toHaveLength(1);
	expect(conversation(reviewer)).toEqual(["user", "assistant", "mail", "assistant", "mail", "assistant"]);
	expect(settledRuns(reviewer)).toBe(3);
});

test("design 4.4: mail that comes during a compaction waits for its end", async () => {
	const home = makeHome();
	writeFileSync(join(home.agentDir, "settings.json"), JSON.stringify({ compaction: { keepRecentTokens: 1 } }));
	const [author, reviewer] = await Promise.all([
		startedPi({ home, name: "author" }),
		startedPi({ home, name: "reviewer", rules: [{ if: "/summar/i", script: "!slow 500 What was said: hello." }] }),
	]);
	reviewer.mark();
	const compacted = reviewer.command({ type: "compact" });
	await reviewer.waitFor((event) => event.type === "compaction_start");
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	await footer(reviewer, "✉ 1 pending");
	expect(await compacted).toMatchObject({ success: true });
	expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	const kinds = reviewer.entries().map((entry) => entry.type);
	expect(kinds.indexOf("custom_message")).toBeGreaterThan(kinds.indexOf("compaction"));
	expect(kinds.indexOf("compaction")).toBeGreaterThan(0);
});

test("design 4.4: a prompt typed as mail arrives is never refused, even when another extension holds it up", async () => {
	const home = makeHome();
	const [author, reviewer] = await Promise.all([
		startedPi({ home, name: "author" }),
		startedPi({ home, name: "reviewer", extensions: [ours, fixture("slow-input.js")] }),
	]);
	reviewer.mark();
	const prompt = reviewer.command({ type: "prompt", message: "!say my answer to the prompt" });
	await reviewer.waitFor((event) => notification(event) === "holding up the prompt");
	const id = await sendRequest(author, "reviewer", "are you there? ;; %say my answer to the mail");
	await footer(reviewer, "✉ 1 pending");
	expect(reviewer.notifications().at(-1)).toBe("holding up the prompt");

	expect(await prompt).toMatchObject({ success: true });
	expect((await replyTo(home, author, id)).body).toBe("my answer to the mail");
	expect(conversation(reviewer)).toEqual(["user", "assistant", "user", "assistant", "mail", "assistant"]);
});

test.each([
	["in that run", "once", ["toolResult", "assistant", "toolResult", "mail", "assistant"]],
	["in a run of its own", "always", ["toolResult", "assistant", "toolResult", "assistant", "mail", "assistant"]],
])(
	"design 4.5: mail that another extension drops from a turn is offered again %s, and enters once",
	async (_, when, end) => {
		const home = makeHome();
		const [author, reviewer] = await Promise.all([
			startedPi({ home, name: "author" }),
			startedPi({
				home,
				name: "reviewer",
				extensions: [ours, fixture("drop-entries.js")],
				env: { DROP_ENTRIES: when },
			}),
		]);
		await reviewer.prompt(inTool('!tool bash {"command":"true"}\n!next\n!say finished'));
		await untilInTool(reviewer);
		const id = await sendRequest(author, "reviewer", "the parser?");
		await footer(reviewer, "✉ 1 pending");
		finishTool(home);

		await replyTo(home, author, id);
		expect(conversation(reviewer)).toEqual(["user", "assistant", "user", "assistant", ...end]);
		expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([id]);
		await allClosed(home, reviewer.sessionId);
		const dropped = reviewer
			.entries()
			.filter((entry) => entry.type === "custom" && entry.customType === "drop-entries");
		expect(dropped).toHaveLength(when === "once" ? 1 : 2);
	},
);
