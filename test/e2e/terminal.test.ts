import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { cleanUp, type Home, makeHome } from "../support/pi.ts";
import { hasTmux, openTerminal, type Terminal } from "../support/terminal.ts";
import { allClosed, mailsIn, namesIn, repliesTo, replyTo, sendRequest, startedPi } from "./mail.ts";

afterEach(cleanUp);

const ids = { author: "0197a3f2-1111-7000-8000-00000000000a", reviewer: "0197a3f2-2222-7000-8000-00000000000b" };

const inTool = '%tool bash {"command":"while [ ! -e done ]; do sleep 0.02; done"} ;; %next ;; %say finished';

async function openNamed(home: Home, name: keyof typeof ids): Promise<Terminal> {
	return openTerminal({ home, name, args: ["--session-id", ids[name]] });
}

async function enter(terminal: Terminal, text: string): Promise<void> {
	terminal.type(text);
	await terminal.press("Enter");
}

describe.skipIf(!hasTmux())("in a terminal", () => {
	test("PSM-036…059 the main job: a person finds the reviewer by completion, sends it a request, and reads its answer", async () => {
		const home = makeHome();
		const [author, reviewer] = await Promise.all([openNamed(home, "author"), openNamed(home, "reviewer")]);
		await enter(author, "%say hello");
		await author.waitForScreen(/^ hello$/m);
		author.type("/mailbox ");
		await author.waitForScreen(new RegExp(`reviewer .*idle · ${home.workDir}`));
		await author.press("Tab");
		await author.waitForScreen("/mailbox reviewer ");
		await enter(author, "check the parser ;; %slow 1500 The parser is fine.");
		await author.waitForScreen(new RegExp(`Sent [0-9a-f-]{36} to ${ids.reviewer}`));
		await author.waitForScreen("✉ 1 awaiting");

		await reviewer.waitForScreen(/^ ✉ Request from author\n check the parser .*\(ctrl\+o to expand\)$/m);
		await reviewer.waitForScreen(/^ The parser is fine\.$/m);
		await author.waitForScreen(/^ ✉ Reply from reviewer\n The parser is fine\. \(ctrl\+o to expand\)$/m);
		const screen = await author.waitForScreen("✉ 1 read");
		expect(screen.join("\n")).not.toContain("awaiting");

		// Expanded, a person sees what the model sees.
		for (const terminal of [author, reviewer]) await terminal.press("C-o");
		await reviewer.waitForScreen(
			`[mailbox] From author (${ids.author}, working in ${home.workDir}), another Pi session`,
		);
		await reviewer.waitForScreen("[mailbox] End of the mail from author.");
		await author.waitForScreen(`[mailbox] From reviewer (${ids.reviewer}, working in ${home.workDir})`);
		await author.waitForScreen("> check the parser");
	});

	test("design 4.5: taking back what was typed (Alt+Up) during a tool call takes no mail away", async () => {
		const home = makeHome();
		const [author, reviewer] = await Promise.all([startedPi({ home, name: "author" }), openNamed(home, "reviewer")]);
		await enter(reviewer, inTool);
		await reviewer.waitForScreen(/^ \$ while /m);
		await enter(reviewer, "words in the queue");
		await reviewer.waitForScreen("Steering: words in the queue");
		const id = await sendRequest(author, "reviewer", "check the parser");
		await reviewer.waitForScreen("✉ 1 pending");
		await reviewer.press("M-Up");
		await reviewer.waitForScreen(/^(?!.*Steering: words).*words in the queue/s);
		writeFileSync(join(home.workDir, "done"), "");

		expect((await replyTo(home, author, id)).body).toBe("finished");
		await reviewer.waitForScreen("✉ 1 read");
		expect(mailsIn(home, ids.reviewer, "cur").map((mail) => mail.id)).toEqual([id]);
		expect(reviewer.screen().filter((line) => line.includes("✉ Request from author"))).toHaveLength(1);
	});

	test("D17: a run stopped with Esc loses neither the reply that had come nor the request, which is answered failed", async () => {
		const home = makeHome();
		const [author, reviewer] = await Promise.all([startedPi({ home, name: "author" }), openNamed(home, "reviewer")]);
		await enter(reviewer, inTool);
		await reviewer.waitForScreen(/^ \$ while /m);
		await enter(reviewer, "words in the queue");
		await reviewer.waitForScreen("Steering: words in the queue");
		await enter(reviewer, "/mailbox author who are you? ;; %say Only the author.");
		await reviewer.waitForScreen("✉ 1 pending");
		const id = await sendRequest(author, "reviewer", "check the parser");
		await reviewer.waitForScreen("✉ 2 pending");
		await reviewer.press("Escape");

		await reviewer.waitForScreen("✉ Reply from author");
		expect(await replyTo(home, author, id)).toMatchObject({ status: "failed" });
		await reviewer.waitForScreen("✉ 1 read");
		expect(namesIn(home, ids.reviewer, "new")).toEqual([]);
		await allClosed(home, ids.reviewer);
		expect(repliesTo(home, ids.reviewer)).toHaveLength(1);
	});

	test("L3 the dialog about a call closes when the model goes on, and the next question is shown", async () => {
		const home = makeHome();
		const permissions = { rules: [{ pattern: "bash(rm *)", behavior: "ask", attachSeconds: 1 }] };
		writeFileSync(join(home.agentDir, "session-mail.json"), JSON.stringify({ toolPolicy: { permissions } }));
		const author = await openNamed(home, "author");
		await enter(author, '%tool bash {"command":"rm -f one"} ;; %next ;; %say went on');
		await author.waitForScreen(/bash: rm -f one\n(?:.*\n)*.*Allow this call for the session/);
		await author.waitForScreen(/^ went on$/m);
		const screen = await author.waitForScreen("find it with: pi-session-mail tickets");
		expect(screen.join("\n")).not.toContain("Allow this call for the session");
		await enter(author, '%tool bash {"command":"rm -f two"} ;; %next ;; %say went on');
		await author.waitForScreen(/bash: rm -f two\n(?:.*\n)*.*Allow this call for the session/);
	});
});
