import { afterEach, describe, expect, test } from "vitest";
import { cleanUp, eventually, type Home, makeHome, type Pi, type PiOptions, printPi, startPi } from "../support/pi.ts";
import {
	allClosed,
	authorAndReviewer,
	conversation,
	fixture,
	mailEntries,
	mailsIn,
	notification,
	openMarks,
	ours,
	pause,
	repliesTo,
	runningRecord,
	sendRequest,
	startedPi,
	untilWriting,
} from "./mail.ts";

afterEach(cleanUp);

const restartNote =
	"(The session was restarted before it could answer; the answer that follows is from the first run that completed after that.)";

const stopNote =
	"(The user stopped an earlier run partway and took over; the answer that follows is from the run that completed after that.)";

/** What the model is told in the mail; the session that is started again would say something else by itself. */
const answer = "%say It is fine.";

/** Each starts Pi four times. */
const timeout = 60_000;

/** What is on disk when the reviewer is killed: how many of each. */
interface OnDisk {
	/** Mail in its `new/` and in its `cur/`, and open marks. */
	waiting: number;
	claimed: number;
	open: number;
	/** Mail in its session file, and settles that were begun and those that were ended. */
	read: number;
	begun: number;
	ended: number;
	/** Replies in the author's boxes. */
	replies: number;
}

interface Moment {
	when: string;
	/** What the reviewer has besides. */
	options?: Partial<PiOptions>;
	/** What is done before the mail is sent. */
	before?: (reviewer: Pi, home: Home) => unknown;
	/** What the mail says to the model. */
	script?: string;
	/** Waits for the moment. */
	reached?: (reviewer: Pi) => unknown;
	onDisk: Partial<OnDisk>;
	/** The model has not answered yet, or was stopped in the middle: the next run that completes does, and says this. */
	held?: string;
	/** How many requests to the model the next start makes for the mail. */
	requests: number;
}

/** Pi stands still at an event that ours has not heard of yet. */
function standingAt(event: string): Pick<Moment, "options" | "before" | "reached"> {
	return {
		// Loaded before ours.
		options: { extensions: [fixture("hold.js"), ours] },
		before: (reviewer) => reviewer.prompt(`/hold ${event}`),
		reached: (reviewer) => reviewer.waitFor((happened) => notification(happened) === `held at ${event}`),
	};
}

/** Pi kills itself at an operation on a file, see die-at.js. */
function dyingAt(place: string): Pick<Moment, "options" | "reached"> {
	const env = { NODE_OPTIONS: `--import=${fixture("die-at.js")}`, DIE_AT: place };
	return { options: { env }, reached: (reviewer) => reviewer.ended() };
}

const inConversation: Moment = {
	when: "when the mail is in its conversation and not yet closed",
	...standingAt("context"),
	onDisk: { claimed: 1, open: 1, read: 1 },
	held: restartNote,
	requests: 0,
};

const inAnswer: Moment = {
	when: "in the middle of its answer",
	script: "%slow 60000 a long story",
	before: (reviewer) => reviewer.mark(),
	reached: untilWriting,
	onDisk: { claimed: 1, read: 1 },
	held: restartNote,
	requests: 0,
};

const beforeAnswer: Moment = {
	when: "when the model has yet to answer",
	script: "%hang",
	before: (reviewer) => reviewer.mark(),
	reached: (reviewer) =>
		reviewer.waitFor((event) => event.type === "message_start" && event.message.role === "assistant"),
	onDisk: { claimed: 1, read: 1 },
	held: restartNote,
	requests: 0,
};

const moments: Moment[] = [
	{
		when: "before it claims the mail",
		before: (reviewer, home) => pause(home, reviewer),
		onDisk: { waiting: 1 },
		requests: 1,
	},
	{
		when: "when it has marked the mail and not moved it",
		...dyingAt("before renameSync /cur/\\d+-[^/]+.json$"),
		onDisk: { waiting: 1, open: 1 },
		requests: 1,
	},
	{
		when: "when it has moved the mail and not read it",
		...dyingAt("after renameSync /cur/\\d+-[^/]+.json$"),
		onDisk: { claimed: 1, open: 1 },
		requests: 1,
	},
	{
		when: "when it has begun a run for the mail",
		...standingAt("before_agent_start"),
		onDisk: { claimed: 1, open: 1 },
		requests: 1,
	},
	inConversation,
	beforeAnswer,
	inAnswer,
	{
		when: "in a tool call",
		...standingAt("tool_call"),
		script: '%tool bash {"command":"true"} ;; %next ;; %say It is fine.',
		onDisk: { claimed: 1, read: 1 },
		held: restartNote,
		requests: 0,
	},
	{
		when: "when it has answered and not settled",
		...standingAt("agent_before_settle"),
		onDisk: { claimed: 1, read: 1 },
		requests: 0,
	},
	{
		when: "as it settles",
		...standingAt("agent_settled"),
		onDisk: { claimed: 1, read: 1 },
		requests: 0,
	},
	{
		when: "when it has noted its reply and not begun to write it",
		...dyingAt("before openSync /tmp/\\d+-[^/]+.json$"),
		onDisk: { claimed: 1, read: 1, begun: 1 },
		requests: 0,
	},
	{
		when: "when it has written its reply and not sent it",
		...dyingAt("before renameSync /new/\\d+-[^/]+.json$"),
		onDisk: { claimed: 1, read: 1, begun: 1 },
		requests: 0,
	},
	{
		when: "when it has sent its reply and not noted that",
		...dyingAt("after renameSync /new/\\d+-[^/]+.json$"),
		onDisk: { claimed: 1, read: 1, begun: 1, replies: 1 },
		requests: 0,
	},
];

describe("L1, L2, D18: a session that is killed has the mail once when it is resumed, and answers it once", () => {
	test.each(moments)("$when", { timeout }, async (moment) => {
		const home = makeHome();
		const { author, reviewer, id } = await atTheMoment(home, moment);
		await reviewer.kill();
		expect(onDisk(home, author, reviewer)).toEqual({ ...nothing, ...moment.onDisk });
		await expectOnce(home, author, reviewer, id, moment);
	});
});

describe.each(["SIGTERM", "SIGHUP"] as const)("L1, L2, D18: and so does one that ends on %s", (signal) => {
	test.each([beforeAnswer, inAnswer])("$when", { timeout }, async (moment) => {
		const home = makeHome();
		const { author, reviewer, id } = await atTheMoment(home, moment);
		await reviewer.kill(signal);
		// It had its chance to take its record away, and to stop the run as a person does.
		expect(runningRecord(home, reviewer.sessionId)).toBeUndefined();
		expect(repliesTo(home, author.sessionId)).toEqual([]);
		await expectOnce(home, author, reviewer, id, { ...moment, held: stopNote });
	});
});

test("D20: pi -p on a session that was killed with mail in its hands answers its prompt and ends by itself; the mail stays for the next start", async () => {
	const home = makeHome();
	const moment = moments[2] ?? inAnswer;
	const { author, reviewer, id } = await atTheMoment(home, moment);
	await reviewer.kill();
	const args = ["--session", reviewer.sessionFile];
	const printed = await printPi({ home, args, prompt: "!say my answer to the prompt" });
	expect(printed).toEqual({ code: 0, signal: null, stdout: "my answer to the prompt\n", stderr: "" });
	expect(conversation(reviewer)).toEqual(["user", "assistant", "user", "assistant"]);
	expect(repliesTo(home, author.sessionId)).toEqual([]);
	await expectOnce(home, author, reviewer, id, moment);
});

test("D20, D18: pi -p on a session that was killed in the middle of its answer answers its prompt, and with it the mail", async () => {
	const home = makeHome();
	const { author, reviewer, id } = await atTheMoment(home, inAnswer);
	await reviewer.kill();
	const args = ["--session", reviewer.sessionFile];
	const printed = await printPi({ home, args, prompt: "!say hello" });
	expect(printed).toEqual({ code: 0, signal: null, stdout: "hello\n", stderr: "" });
	await expectOnce(home, author, reviewer, id, inAnswer);
});

/** Both sessions, the mail sent, and the reviewer at the moment. */
async function atTheMoment(home: Home, { options, before, script = answer, reached }: Moment) {
	const [author, reviewer] = await authorAndReviewer(home, options);
	await before?.(reviewer, home);
	const id = await sendRequest(author, "reviewer", `check the parser ;; ${script}`);
	await reached?.(reviewer);
	return { author, reviewer, id };
}

/** Resumes the reviewer, twice: the mail is in its conversation once, and answered once. */
async function expectOnce(home: Home, author: Pi, reviewer: Pi, id: string, { held, requests }: Moment) {
	const args = ["--session", reviewer.sessionFile];
	const resumed = await startPi({ home, args });
	if (held !== undefined) {
		await resumed.prompt("!say hello");
		await resumed.settled();
	}
	const reply = await eventually(() => mailEntries(author).find(({ mail }) => mail.inReplyTo.includes(id))?.mail, {
		what: `The reply to ${id}`,
	});
	await allClosed(home, reviewer.sessionId);
	expect(resumed.modelRequests()).toHaveLength(requests + (held !== undefined ? 1 : 0));
	await resumed.stop();
	await (await startedPi({ home, args })).stop();

	const body = held !== undefined ? `${held}\n\nhello` : "It is fine.";
	expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([id]);
	expect(mailEntries(author).map(({ mail }) => mail.id)).toEqual([reply.id]);
	// A reply whose writing was cut short is written again as the same mail; its recipient passes over the second.
	expect(new Set(repliesTo(home, author.sessionId).map((mail) => JSON.stringify([mail.id, mail.body])))).toEqual(
		new Set([JSON.stringify([reply.id, body])]),
	);
	expect(onDisk(home, author, reviewer)).toMatchObject({ waiting: 0, claimed: 1, open: 0, begun: 1, ended: 1 });
	await allClosed(home, author.sessionId);
}

const nothing: OnDisk = { waiting: 0, claimed: 0, open: 0, read: 0, begun: 0, ended: 0, replies: 0 };

function onDisk(home: Home, author: Pi, reviewer: Pi): OnDisk {
	const notes = reviewer.entries().flatMap((entry) => {
		if (entry.type !== "custom" || entry.customType !== "session-mail") return [];
		const { type, replies } = entry.data as { type: string; replies?: unknown[] };
		return replies?.length === 0 ? [] : [type];
	});
	return {
		waiting: mailsIn(home, reviewer.sessionId, "new").length,
		claimed: mailsIn(home, reviewer.sessionId, "cur").length,
		open: openMarks(home, reviewer.sessionId).length,
		read: mailEntries(reviewer).length,
		begun: notes.filter((type) => type === "settling").length,
		ended: notes.filter((type) => type === "settled").length,
		replies: repliesTo(home, author.sessionId).length,
	};
}
