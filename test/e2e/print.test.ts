import { afterEach, describe, expect, test } from "vitest";
import { cleanUp, eventually, type Home, makeHome, type Pi, printPi } from "../support/pi.ts";
import { hasTmux, openTerminal } from "../support/terminal.ts";
import {
	authorAndReviewer,
	conversation,
	fixture,
	mailEntries,
	mailsIn,
	ours,
	repliesTo,
	replyTo,
	runningRecord,
	sendRequest,
} from "./mail.ts";

afterEach(cleanUp);

/** Beside an extension that takes so many milliseconds at these events, which is when mail could get in before the prompt. */
function besideSlow(milliseconds: Record<string, number>) {
	return { extensions: [ours, fixture("slow-start.js")], env: { SLOW_START: JSON.stringify(milliseconds) } };
}

/** A running author, a closed reviewer, and the id of a request that waits for it. */
async function withMailWaiting(home: Home): Promise<[Pi, Pi, string]> {
	const [author, reviewer] = await authorAndReviewer(home);
	await reviewer.stop();
	const id = await sendRequest(author, reviewer.sessionId, "check the parser ;; %say It is fine.");
	return [author, reviewer, id];
}

test("pi -p with /mailbox prints to standard output what it did, and to standard error what it refused", async () => {
	const home = makeHome();
	const [author] = await authorAndReviewer(home);
	await eventually(() => runningRecord(home, author.sessionId)?.state === "idle");
	const sent = await printPi({ home, prompt: `/mailbox ${author.sessionId} hello` });
	expect(sent).toMatchObject({ code: 0, stderr: "", stdout: expect.stringMatching(/^Sent \S+ to \S+\n$/) });
	const refused = await printPi({ home, prompt: "/mailbox nobody hello" });
	expect(refused).toMatchObject({ stdout: "", stderr: expect.stringMatching(/^Nothing was sent: no running session/) });
});

describe("D20: pi -p with mail waiting", () => {
	test("answers the prompt and leaves the mail where it is", async () => {
		const home = makeHome();
		const [author, reviewer, id] = await withMailWaiting(home);
		const args = ["--session", reviewer.sessionFile];
		const slow = besideSlow({ session_start: 300, resources_discover: 1200 });
		const printed = await printPi({ home, args, prompt: "!say my answer to the prompt", ...slow });
		expect(printed).toEqual({ code: 0, signal: null, stdout: "my answer to the prompt\n", stderr: "" });
		expect(mailsIn(home, reviewer.sessionId, "new").map((mail) => mail.id)).toEqual([id]);
		expect(conversation(reviewer)).toEqual(["user", "assistant", "user", "assistant"]);
		expect(repliesTo(home, author.sessionId)).toEqual([]);
	});

	test("takes the mail along when its prompt needs another request anyway, and answers it", async () => {
		const home = makeHome();
		const [author, reviewer, id] = await withMailWaiting(home);
		const args = ["--session", reviewer.sessionFile];
		const printed = await printPi({ home, args, prompt: '!tool bash {"command":"true"}\n!next\n!say unseen' });
		expect(printed).toEqual({ code: 0, signal: null, stdout: "It is fine.\n", stderr: "" });
		expect(conversation(reviewer).slice(2)).toEqual(["user", "assistant", "toolResult", "mail", "assistant"]);
		expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([id]);
		expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	});
});

test.skipIf(!hasTmux())(
	"design 4.4: pi with a first prompt answers that prompt, then the mail that waited",
	async () => {
		const home = makeHome();
		const [author, reviewer, id] = await withMailWaiting(home);
		const args = ["--session", reviewer.sessionFile, "%say my answer to the prompt"];
		const terminal = await openTerminal({ home, args, ...besideSlow({ session_start: 300 }) });
		await terminal.waitForScreen(/^ my answer to the prompt$/m);
		expect((await replyTo(home, author, id)).body).toBe("It is fine.");
		expect(conversation(reviewer).slice(2)).toEqual(["user", "assistant", "mail", "assistant"]);
	},
);
