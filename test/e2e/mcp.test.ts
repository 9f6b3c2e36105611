import { afterEach, expect, test } from "vitest";
import { mcpClient } from "../support/mcp.ts";
import { cleanUp, environment, eventually, type Home, makeHome, type Pi } from "../support/pi.ts";
import { mailEntries, mailsIn, startedPi, typeMailbox } from "./mail.ts";

afterEach(cleanUp);

function connect(home: Home) {
	return mcpClient({ cwd: home.workDir, env: environment(home), args: ["--from", "claude"] });
}

function toolTexts(pi: Pi): string[] {
	return pi.entries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		return [entry.message.content.map((block) => (block.type === "text" ? block.text : "")).join("")];
	});
}

/** The next mail that comes to the client. */
function readMail({ call }: Awaited<ReturnType<typeof connect>>): Promise<string> {
	return eventually(
		async () => {
			const { text } = await call("session_mail_read");
			return text !== "No mail waits." && text;
		},
		{ timeoutMs: 20_000, what: "Mail to the client" },
	);
}

test("L3 an MCP client and a Pi session ask each other, and each gets the other's answer", async () => {
	const home = makeHome();
	const client = await connect(home);
	const reviewer = await startedPi({ home, name: "reviewer", rules: [{ if: "is it safe", script: "!say It is." }] });
	expect((await client.call("session_mail_list")).text).toContain(`- reviewer (${reviewer.sessionId})`);

	const answer = await client.call("session_mail_ask", { to: "reviewer", message: "is it safe?" });
	expect(answer).toMatchObject({
		text: `Answer from reviewer (${reviewer.sessionId}), status done:\n\nIt is.`,
		isError: false,
	});
	expect(mailEntries(reviewer)[0]?.text).toMatch(
		/^\[mailbox\] From claude \(claude, working in .*\), a program on this machine\. It sent an ask/,
	);

	await reviewer.settled();
	await reviewer.prompt('!tool session_mail_list {}\n!tool session_mail_ask {"to":"claude","message":"which branch?"}');
	const mail = await readMail(client);
	expect(mail).toMatch(/^\[mailbox\] From reviewer \(.*\), another Pi session on this machine\. It sent an ask, id /);
	expect(mail).toContain("\n\nwhich branch?\n\n");
	const [, id = ""] = /an ask, id ([^,]+), and/.exec(mail) ?? [];
	expect(await client.call("session_mail_reply", { id, message: "parser-fix" })).toMatchObject({ isError: false });
	await eventually(() => toolTexts(reviewer).length === 2, { timeoutMs: 20_000, what: "The answer" });
	expect(toolTexts(reviewer)).toEqual([
		expect.stringMatching(/- claude \(claude\), \S+, idle/),
		"Answer from claude (claude), status done:\n\nparser-fix",
	]);
	expect([reviewer.stderr, client.stderr()]).toEqual(["", ""]);
});

test("L3 a request of a Pi session's user is answered by an MCP client", async () => {
	const home = makeHome();
	const client = await connect(home);
	const author = await startedPi({ home, name: "author" });
	expect(await typeMailbox(author, "claude please look at it")).toMatch(/^Sent /);
	const mail = await readMail(client);
	const [, id = ""] = /It sent a request, id (\S+)\. Answer it with session_mail_reply/.exec(mail) ?? [];
	expect(await client.call("session_mail_reply", { id, message: "Looked." })).toMatchObject({ isError: false });
	await eventually(() => mailEntries(author).length === 1, { timeoutMs: 15_000, what: "The answer" });
	expect(mailEntries(author)[0]?.text).toMatch(/It sent a reply to request \S+\..*\n\n[\s\S]*\nLooked\.\n/);
});

test("PSM-083…086 an MCP client and a Pi session that wake each other without end are stopped at the limit", async () => {
	const home = makeHome();
	const client = await connect(home);
	const ping = '!tool session_mail_send {"to":"claude","message":"ping"}\n!next\n!say done';
	const rules = [{ if: "It sent a message, which expects no answer", script: ping }];
	const reviewer = await startedPi({ home, name: "reviewer", rules });
	const send = () => client.call("session_mail_send", { to: "reviewer", message: "ping" });
	let last = await send();
	const isStopped = () => last.isError || toolTexts(reviewer).at(-1)?.includes("the limit is 5");
	while (!isStopped()) {
		const next = await eventually(
			async () => {
				const { text } = await client.call("session_mail_read");
				return text !== "No mail waits." || isStopped();
			},
			{ timeoutMs: 20_000, what: "Mail to the client, or the refusal" },
		);
		if (next && !isStopped()) last = await send();
	}
	const messages = ["claude", reviewer.sessionId].flatMap((address) => mailsIn(home, address, "sent"));
	expect(messages.map(({ hops }) => hops).sort()).toEqual([0, 1, 2, 3, 4]);
	expect(new Set(messages.map(({ kind }) => kind))).toEqual(new Set(["message"]));
});
