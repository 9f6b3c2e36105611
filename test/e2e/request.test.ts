import { lstatSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, makeHome, startPi } from "../support/pi.ts";
import { footer, mailEntries, mailsIn, namesIn, replyTo, sendRequest, startedPi, typeMailbox } from "./mail.ts";

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
		// No open mark: nothing would be handed over again.
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
