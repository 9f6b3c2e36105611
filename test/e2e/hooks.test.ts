import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, type Home, makeHome, type Pi, startPi } from "../support/pi.ts";
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
	startedPi,
} from "./mail.ts";

afterEach(cleanUp);

/**
 * An extension as another author writes one: it sends and scans on command, takes over the answers to what it sent, and
 * says what it saw. Returns its file.
 */
function otherExtension(home: Home): string {
	mkdirSync(join(home.path, "other"), { recursive: true });
	const file = join(home.path, "other", "delegate.js");
	writeFileSync(
		file,
		`import { readFileSync, writeFileSync } from "node:fs";
export default function delegate(pi) {
	const asked = new Set();
	let seen = [];
	let isStarting = false;
	pi.on("session_start", async () => {
		isStarting = true;
		await new Promise((resolve) => setImmediate(resolve));
		isStarting = false;
	});
	pi.events.on("message:inbound", (payload) => {
		const { envelope, path, requests } = payload;
		seen.push({ id: envelope.id, kind: envelope.kind, requests: requests.length, onDisk: JSON.parse(readFileSync(path, "utf8")).id, isStarting });
		if (payload.handled || !envelope.in_reply_to.some((id) => asked.has(id))) return;
		payload.handled = true;
		const message = { customType: "delegate", content: "The delegate answered: " + envelope.body, display: true };
		pi.sendMessage(message, { triggerTurn: true, deliverAs: "followUp" });
	});
	pi.registerCommand("delegate", {
		handler: async (argument, ctx) => {
			const [, to, body] = /^(\\S+) (.*)$/s.exec(argument);
			const payload = { to, body };
			pi.events.emit("message:send", payload);
			if (payload.envelope) asked.add(payload.envelope.id);
			ctx.ui.notify(JSON.stringify(payload));
		},
	});
	pi.registerCommand("scan", {
		handler: async (argument, ctx) => {
			if (argument) writeFileSync(argument.split(" ")[0], argument.slice(argument.indexOf(" ") + 1));
			const before = seen.length;
			const payload = {};
			pi.events.emit("message:scan", payload);
			ctx.ui.notify(JSON.stringify({ ...payload, announced: seen.slice(before).map(({ id }) => id) }));
		},
	});
	pi.registerCommand("seen", { handler: async (_argument, ctx) => ctx.ui.notify(JSON.stringify(seen)) });
}
`,
	);
	return file;
}

/** Runs a command of that extension; returns the object that it says. */
async function ask(pi: Pi, command: string): Promise<Record<string, unknown> & unknown[]> {
	await pi.prompt(command);
	return JSON.parse(await pi.waitFor((event) => notification(event), { what: `what ${command} says` }));
}

test("PSM-092/093/095 an extension delegates to another session, and takes over the answer", async () => {
	const home = makeHome();
	const extensions = [otherExtension(home), ours];
	const [reviewer, author] = await Promise.all([
		startedPi({ home, name: "reviewer" }),
		startedPi({ home, name: "author", extensions }),
	]);
	const payload = await ask(author, `/delegate ${reviewer.sessionId} check the parser ;; %say It is fine.`);
	expect(payload).toMatchObject({ envelope: { from: author.sessionId, kind: "request", hops: 0 } });
	expect(payload).not.toHaveProperty("error");
	await author.settled();
	expect(author.modelRequests().at(-1)?.messages.at(-1)?.text).toBe("The delegate answered: It is fine.");
	expect(author.modelRequests()).toHaveLength(2);
	expect(mailEntries(author)).toEqual([]);
	await footer(author, "✉ 1 read");
	await allClosed(home, author.sessionId);
	const [reply] = mailsIn(home, author.sessionId, "cur");
	expect(await ask(author, "/seen")).toEqual([
		{ id: reply?.id, kind: "reply", requests: 1, onDisk: reply?.id, isStarting: false },
	]);
	expect(author.stderr).toBe("");
});

test("PSM-094 message:scan announces what waits before emit returns, also in the middle of a run", async () => {
	const home = makeHome();
	const pi = await startedPi({ home, extensions: [ours, otherExtension(home)] });
	const lay = (n: number, kind: string) => {
		const id = `11111111-2222-4333-8444-${String(n).padStart(12, "0")}`;
		const from = "01980f5e-7a3c-7d10-8f00-0000000000cc";
		const envelope = {
			id,
			from,
			to: pi.sessionId,
			kind,
			hops: 0,
			in_reply_to: [],
			status: kind === "reply" ? "done" : "",
		};
		const file = join(home.mailRoot, pi.sessionId, "new", `00000000000000${n}-${id}.json`);
		return {
			id,
			command: `/scan ${file} ${JSON.stringify({ ...envelope, ts: new Date().toISOString(), body: "hello" })}`,
		};
	};
	expect(await ask(pi, "/scan")).toEqual({ scanned: true, announced: [] });
	const reply = lay(1, "reply");
	expect(await ask(pi, reply.command)).toEqual({ scanned: true, announced: [reply.id] });
	await eventually(() => mailEntries(pi).length === 1);
	expect(pi.modelRequests()).toHaveLength(1);

	await pi.prompt('!tool bash {"command":"sleep 1.5"}\n!next\n!say done');
	const message = lay(2, "message");
	await pi.waitFor((event) => event.type === "tool_execution_start");
	const from = pi.events.length;
	expect(await ask(pi, message.command)).toEqual({ scanned: true, announced: [message.id] });
	expect(mailEntries(pi)).toHaveLength(1);
	await eventually(() => pi.events.slice(from).some((event) => event.type === "agent_settled"));
	expect(mailEntries(pi).map(({ mail }) => mail.id)).toEqual([reply.id, message.id]);
	expect(conversation(pi).slice(-5)).toEqual(["user", "assistant", "toolResult", "mail", "assistant"]);
	expect(await ask(pi, "/seen")).toHaveLength(2);
});

test.each(["before", "after"])(
	"PSM-093/044 a listener loaded %s this package hears of waiting mail once, and not in session_start",
	async (order) => {
		const home = makeHome();
		const other = otherExtension(home);
		const [author, reviewer] = await authorAndReviewer(home);
		const { sessionFile } = reviewer;
		await reviewer.stop();
		await author.prompt(`/mailbox ${reviewer.sessionId} are you back? ;; %say I am.`);
		const extensions = order === "before" ? [other, ours] : [ours, other];
		const again = await startPi({ home, extensions, args: ["--session", sessionFile] });
		await eventually(() => mailEntries(again).length === 1);
		expect(await ask(again, "/seen")).toMatchObject([{ kind: "request", isStarting: false }]);
	},
);

test("PSM-092/094 after /reload, and in the next session of the process, each hook is served once", async () => {
	const home = makeHome();
	const extensions = [ours, otherExtension(home), fixture("reload.js")];
	const pi = await startedPi({ home, extensions });
	const peer = "01980f5e-7a3c-7d10-8f00-0000000000dd";
	const sendOne = async (n: number) => {
		expect(await ask(pi, `/delegate ${peer} number ${n}`)).toMatchObject({ envelope: { body: `number ${n}` } });
		expect(mailsIn(home, peer, "new")).toHaveLength(n);
		expect(await ask(pi, "/scan")).toEqual({ scanned: true, announced: [] });
	};
	await sendOne(1);
	await pi.prompt("/reload-all");
	await sendOne(2);
	await pi.prompt("/reload-all");
	await sendOne(3);
	await pi.command({ type: "new_session" });
	await sendOne(4);
	expect(mailsIn(home, peer, "new").find(({ body }) => body === "number 4")?.from).toBe(pi.sessionId);
	expect(pi.events.filter(({ type }) => type === "extension_error")).toEqual([]);
});

test("PSM-092 without a mailbox the extension is told so", async () => {
	const home = makeHome();
	mkdirSync(join(home.path, "state"));
	writeFileSync(home.mailRoot, "");
	const pi = await startPi({ home, extensions: [ours, otherExtension(home)] });
	expect(pi.notifications()).toEqual([expect.stringMatching(/^mailbox: mailbox is off: /)]);
	expect(await ask(pi, `/delegate ${pi.sessionId} hello`)).toMatchObject({
		error: "Nothing was sent: this session has no mailbox.",
	});
	expect(await ask(pi, "/scan")).toEqual({ announced: [] });
});
