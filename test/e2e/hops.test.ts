import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, makeHome, type Pi } from "../support/pi.ts";
import { mailEntries, mailsIn, replyTo, sendRequest, startedPi } from "./mail.ts";

afterEach(cleanUp);

const refusal =
	"Nothing was sent: sessions have woken each other 5 times in a row, and the limit is 5. A person who types in either session starts the count again.";

/** What the model of a session does at each message: it sends one back. */
function sendsBack(to: string) {
	const script = `!tool session_mail_send {"to":"${to}","message":"ping"}\n!next\n!say sent`;
	return [{ if: "It sent a message, which expects no answer", script }];
}

function toolTexts(pi: Pi): string[] {
	return pi.entries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		return [entry.message.content.map((block) => (block.type === "text" ? block.text : "")).join("")];
	});
}

test("PSM-083…087 two sessions that would wake each other for ever stop at 5; a person who types starts the count again; answers and /mailbox still go", async () => {
	const home = makeHome();
	const [author, reviewer] = await Promise.all([
		startedPi({ home, name: "author", rules: sendsBack("reviewer") }),
		startedPi({ home, name: "reviewer", rules: sendsBack("author") }),
	]);
	const messages = () =>
		[author, reviewer].flatMap((pi) => mailsIn(home, pi.sessionId, "sent").filter(({ kind }) => kind === "message"));
	const settled = async () => {
		await eventually(() => [author, reviewer].some((pi) => toolTexts(pi).at(-1) === refusal), {
			timeoutMs: 20_000,
			what: "The refusal",
		});
		for (const pi of [author, reviewer]) await eventually(async () => !(await pi.state()).isStreaming);
	};

	await author.prompt('!tool session_mail_send {"to":"reviewer","message":"ping"}\n!next\n!say sent');
	await settled();
	expect(
		messages()
			.map(({ hops }) => hops)
			.sort(),
	).toEqual([0, 1, 2, 3, 4]);
	expect(toolTexts(reviewer).at(-1)).toBe(refusal);
	await sleep(1500);
	expect(messages()).toHaveLength(5);
	expect([mailEntries(author).length, mailEntries(reviewer).length]).toEqual([2, 3]);

	// A person's request carries 0, and its answer comes.
	const id = await sendRequest(author, "reviewer", "are you there? ;; %say I am.");
	expect(await replyTo(home, author, id)).toMatchObject({ status: "done", hops: 1 });

	await reviewer.prompt('!tool session_mail_send {"to":"author","message":"ping"}\n!next\n!say sent');
	await eventually(() => messages().length === 10, { timeoutMs: 20_000, what: "Five more messages" });
	await eventually(() => toolTexts(author).at(-1) === refusal, { what: "The refusal" });
	expect(
		messages()
			.map(({ hops }) => hops)
			.sort(),
	).toEqual([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
});

test("PSM-077/086 an ask is refused at the limit as well", async () => {
	const home = makeHome();
	const [author, reviewer] = await Promise.all([
		startedPi({
			home,
			name: "author",
			rules: [
				{ if: "It sent a message", script: '!tool session_mail_ask {"to":"reviewer","message":"?"}\n!next\n!say sent' },
			],
		}),
		startedPi({
			home,
			name: "reviewer",
			rules: [
				{ if: "and is waiting", script: '!tool session_mail_send {"to":"author","message":"ping"}\n!next\n!say sent' },
			],
		}),
	]);
	await reviewer.prompt('!tool session_mail_send {"to":"author","message":"ping"}\n!next\n!say sent');
	await eventually(() => [...toolTexts(author), ...toolTexts(reviewer)].includes(refusal), {
		timeoutMs: 25_000,
		what: "The refusal",
	});
	for (const pi of [author, reviewer])
		await eventually(async () => !(await pi.state()).isStreaming, { timeoutMs: 20_000 });
	const sent = [author, reviewer].flatMap((pi) => mailsIn(home, pi.sessionId, "sent"));
	expect(Math.max(...sent.map(({ hops }) => hops))).toBe(4);
});
