import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { cleanUp, eventually, launch, makeHome, Pi, type PiOptions, startPi } from "../support/pi.ts";
import {
	allClosed,
	fixture,
	footer,
	mailEntries,
	mailsIn,
	pause,
	repliesTo,
	replyTo,
	runningRecord,
	sendRequest,
	startedPi,
	typeMailbox,
} from "./mail.ts";

afterEach(cleanUp);

/** What a model is told that lists the running sessions. */
async function listed(pi: Pi): Promise<string> {
	await pi.prompt("!tool session_mail_list {}\n!next\n!say done");
	await pi.settled();
	return `${pi.modelRequests().at(-1)?.messages.at(-1)?.text}`;
}

describe("D7: a session in another container on the same mail root", () => {
	const unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
	const isAllowed = spawnSync("unshare", [...unshare.slice(1), "true"]).status === 0;

	/** A session in a pid namespace of its own: it sees no other process, and no other sees it under its id. */
	async function startInContainer(options: PiOptions): Promise<Pi> {
		const plain = launch(options, ["--mode", "rpc"]);
		const pi = new Pi({ ...plain, command: "unshare", args: [...unshare.slice(1), plain.command, ...plain.args] });
		await pi.refresh();
		await pi.prompt("!say hello");
		await pi.settled();
		return pi;
	}

	test.skipIf(!isAllowed)("sends and answers; each lists the other, and judges it neither dead nor alive", async () => {
		const home = makeHome();
		const inside = await startInContainer({ home, name: "inside" });
		const outside = await startedPi({ home, name: "outside" });
		expect(runningRecord(home, inside.sessionId)?.x.namespace).not.toBe(readlinkSync("/proc/self/ns/pid"));
		const isUnknown = (pi: Pi) => new RegExp(`${pi.sessionId}\\).*\\(cannot be looked into from here\\)`);
		expect(await listed(outside)).toMatch(isUnknown(inside));
		expect(await listed(inside)).toMatch(isUnknown(outside));

		const into = await sendRequest(outside, "inside", "check the parser ;; %say It is fine.");
		expect((await replyTo(home, outside, into)).body).toBe("It is fine.");
		const outOf = await sendRequest(inside, "outside", "and the lexer? ;; %say It is broken.");
		expect((await replyTo(home, inside, outOf)).body).toBe("It is broken.");

		// Nobody can tell that it has ended, not even its own next start in another container: its mail waits until the
		// record of the one that ended is removed.
		await inside.kill();
		expect(await listed(outside)).toMatch(isUnknown(inside));
		const late = await sendRequest(outside, "inside", "and the printer? ;; %say It jams.");
		const again = await startInContainer({ home, args: ["--session", inside.sessionFile] });
		await eventually(() => again.notifications().find((text) => text.includes("has this session open as well")));
		expect(mailsIn(home, inside.sessionId, "new").map((mail) => mail.id)).toEqual([late]);
		rmSync(join(home.mailRoot, "running", `${inside.sessionId}.json`));
		expect((await replyTo(home, outside, late)).body).toBe("It jams.");
		expect(mailEntries(again).map(({ mail }) => mail.kind)).toEqual(["request", "reply", "request"]);
	});

	test("is listed, sent to and left alone, also when its process id belongs to nobody here", async () => {
		const home = makeHome();
		const author = await startedPi({ home, name: "author" });
		const mine = runningRecord(home, author.sessionId);
		const address = randomUUID();
		const record = join(home.mailRoot, "running", `${address}.json`);
		const x = { ...mine?.x, namespace: "pid:[1]", instance: "other" };
		const text = JSON.stringify({ ...mine, address, name: "inside", pid: 999_999, x });
		writeFileSync(record, text);
		// Two folders that hold no mail: that of a session in the container, and that of a closed one.
		const closed = randomUUID();
		for (const folder of [address, closed]) {
			for (const box of ["tmp", "new", "cur", "sent"]) mkdirSync(join(home.mailRoot, folder, box), { recursive: true });
		}

		expect(await listed(author)).toMatch(new RegExp(`inside \\(${address}\\).*\\(cannot be looked into from here\\)`));
		expect(await typeMailbox(author, "prune")).toBe("Removed 1 mailbox folders of closed sessions");
		const id = await sendRequest(author, "inside", "check the parser");
		await author.stop();
		const again = await startedPi({ home, args: ["--session", author.sessionFile] });
		expect(await listed(again)).toContain(`inside (${address})`);
		expect(readFileSync(record, "utf8")).toBe(text);
		expect(mailsIn(home, address, "new").map((mail) => mail.id)).toEqual([id]);
	});
});

describe("L2, D14, D26: with a clock that goes an hour back, then forty days ahead, then right again", () => {
	const hourMs = 60 * 60 * 1000;

	test.each(["author", "reviewer"])(
		"and is that of the %s, all mail arrives in order and is answered, and no folder goes",
		{ timeout: 90_000 },
		async (whose) => {
			const home = makeHome();
			const clock = join(home.path, "clock");
			const set = (ms: number) => writeFileSync(clock, `${ms}`);
			const env = { NODE_OPTIONS: `--import=${fixture("clock.js")}`, CLOCK: clock };
			const envOf = (name: string) => (name === whose ? { env } : {});
			let author = await startedPi({ home, name: "author", ...envOf("author") });
			let reviewer = await startedPi({ home, name: "reviewer", ...envOf("reviewer") });
			const [closed, idle] = await Promise.all([startedPi({ home }), startedPi({ home })]);
			await Promise.all([closed.stop(), idle.stop()]);
			const waiting = await sendRequest(author, closed.sessionId, "are you there? ;; %say Now I am.");
			const sent: string[] = [];
			const send = async () => {
				sent.push(await sendRequest(author, reviewer.sessionId, `mail ${sent.length} ;; %say Answer ${sent.length}.`));
			};
			const expectAnswers = async () => {
				for (const id of sent) {
					expect((await replyTo(home, author, id)).body).toMatch(/^Answer \d\.$/);
				}
			};
			const restart = async () => {
				const old = whose === "author" ? author : reviewer;
				await old.stop();
				const again = await startedPi({ home, args: ["--session", old.sessionFile], ...envOf(whose) });
				if (whose === "author") author = again;
				else reviewer = again;
			};
			const foundOld = join(home.mailRoot, `.old.${idle.sessionId}`);

			const goOn = pause(home, reviewer);
			await send();
			set(-hourMs);
			await send();
			goOn();
			await expectAnswers();
			await send();
			await expectAnswers();
			set(40 * 24 * hourMs);
			await send();
			await expectAnswers();
			// It prunes at each start, and finds all that is closed forty days old.
			await restart();
			await eventually(() => existsSync(foundOld), { what: "The look at old folders" });
			await send();
			await restart();
			await expectAnswers();
			set(0);
			await send();
			await restart();
			await send();
			await expectAnswers();

			expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual(sent);
			expect(existsSync(join(home.mailRoot, idle.sessionId))).toBe(true);
			await startPi({ home, args: ["--session", closed.sessionFile] });
			expect((await replyTo(home, author, waiting)).body).toBe("Now I am.");
			const replies = repliesTo(home, author.sessionId);
			expect(replies.flatMap((reply) => reply.in_reply_to).sort()).toEqual([...sent, waiting].sort());
			for (const pi of [author, reviewer]) {
				await allClosed(home, pi.sessionId);
				expect(pi.notifications().filter((text) => text.startsWith("mailbox: "))).toEqual([]);
			}
			await footer(author, `✉ ${replies.length} read`);
		},
	);
});
