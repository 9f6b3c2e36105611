import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chmodSync, mkdirSync, renameSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, makeHome } from "../support/pi.ts";
import {
	allClosed,
	authorAndReviewer,
	mailEntries,
	namesIn,
	pause,
	replyTo,
	sendRequest,
	startedPi,
	typeMailbox,
} from "./mail.ts";

afterEach(cleanUp);

/** Puts things into a folder that are no mail and no record; returns their names. They sort before any mail. */
function fillWithRubbish(folder: string, nameOf: (number: number) => string): string[] {
	const other = randomUUID();
	const paths: string[] = [];
	const next = () => {
		const path = join(folder, nameOf(paths.length));
		paths.push(path);
		return path;
	};
	const wrongTypes = { id: 1, from: [], to: {}, kind: 7, hops: "two", in_reply_to: "x", ts: 5, body: null };
	for (const text of [
		"no JSON at all",
		"[]",
		"null",
		"",
		JSON.stringify(wrongTypes),
		JSON.stringify({ ...wrongTypes, address: {}, cwd: 1, pid: "x", state: "gone" }),
		JSON.stringify({ id: other, from: "../../etc", to: other, kind: "request", hops: 0, ts: "now", body: "x" }),
		`{"id":"${other}","from":"${other}","to":"${other}","address":"${other}","body":"half a mai`,
		`{"body":"${"x".repeat(5 * 1024 * 1024)}"}`,
		"\0\xff\u2028",
	]) {
		writeFileSync(next(), text);
	}
	mkdirSync(next());
	execFileSync("mkfifo", [next()]);
	symlinkSync("/etc/hostname", next());
	symlinkSync("/nowhere", next());
	const locked = next();
	// As root, for whom nothing is locked, it is one more file that is no JSON.
	writeFileSync(locked, "locked");
	chmodSync(locked, 0o000);
	return paths;
}

test("PSM-017/018, D12: what is no mail in new/ costs one warning each that names it, and the good mail behind it arrives", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	const goOn = pause(home, reviewer);
	const inbox = join(home.mailRoot, reviewer.sessionId, "new");
	const rubbish = fillWithRubbish(inbox, (number) => `${`${number}`.padStart(15, "0")}-${randomUUID()}.json`);
	writeFileSync(join(inbox, "notes.txt"), "not ours");
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	goOn();

	expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	expect(mailEntries(reviewer).map(({ mail }) => mail.id)).toEqual([id]);
	// The next mail is found by another look at the same rubbish.
	await replyTo(home, author, await sendRequest(author, "reviewer", "and the lexer? ;; %say It is broken."));
	const problem = /^mailbox: .* (is not mail and is passed over|cannot be delivered and was set aside): /;
	for (const path of rubbish) {
		const warnings = reviewer.notifications().filter((text) => text.includes(basename(path)));
		expect(warnings).toEqual([expect.stringMatching(problem)]);
	}
	expect(reviewer.notifications()).toHaveLength(rubbish.length);
	expect(reviewer.stderr).toBe("");

	// What is no file stays where it is, files lie in cur/ with the reason beside them and are never tried again.
	expect(namesIn(home, reviewer.sessionId, "new")).toHaveLength(5);
	const reasons = namesIn(home, reviewer.sessionId, "cur").filter((name) => name.endsWith(".reason"));
	expect(reasons).toHaveLength(rubbish.length - 4);
	await allClosed(home, reviewer.sessionId);
	await reviewer.stop();
	const resumed = await startedPi({ home, args: ["--session", reviewer.sessionFile] });
	await replyTo(home, author, await sendRequest(author, "reviewer", "and the printer? ;; %say It jams."));
	expect(resumed.notifications()).toHaveLength(4);
});

test("PSM-026: what is no record in running/ costs one warning each that names it, and sessions find each other past it", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	const folder = join(home.mailRoot, "running");
	const rubbish = [
		...fillWithRubbish(folder, () => `${randomUUID()}.json`),
		...["no address at all.json", "..json"].map((name) => join(folder, name)),
	];
	for (const path of rubbish.slice(-2)) writeFileSync(path, "{}");

	expect(await typeMailbox(author, "nobody are you there?")).toMatch(/^mailbox: /);
	const warnings = author.notifications().filter((text) => text.startsWith("mailbox: "));
	for (const path of rubbish.filter((path) => !path.endsWith("/..json"))) {
		expect(warnings.filter((text) => text.includes(path))).toHaveLength(1);
	}
	expect(warnings).toHaveLength(rubbish.length - 1);
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	expect(author.notifications().filter((text) => text.startsWith("mailbox: "))).toEqual(warnings);
	expect(author.stderr + reviewer.stderr).toBe("");
});

test("L7, D11: a file of 100 MB in new/ is set aside without being read, and the good mail behind it arrives", async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	const boxes = join(home.mailRoot, reviewer.sessionId);
	const name = `${"1".padStart(15, "0")}-${randomUUID()}.json`;
	writeFileSync(join(boxes, "tmp", name), "");
	truncateSync(join(boxes, "tmp", name), 100 * 1024 * 1024);
	renameSync(join(boxes, "tmp", name), join(boxes, "new", name));
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	expect(reviewer.notifications()).toEqual([
		`mailbox: ${join(boxes, "cur", name)} cannot be delivered and was set aside: it has 104857600 bytes, more than the limit of 4194304`,
	]);
	expect(namesIn(home, reviewer.sessionId, "new")).toEqual([]);
	await allClosed(home, reviewer.sessionId);
});

test("L7: with ten thousand unreadable files in new/ the session answers each prompt within 2 s, and good mail arrives", {
	timeout: 120_000,
}, async () => {
	const home = makeHome();
	const [author, reviewer] = await authorAndReviewer(home);
	const goOn = pause(home, reviewer);
	const inbox = join(home.mailRoot, reviewer.sessionId, "new");
	// Before any mail, between mails and after.
	for (let n = 0; n < 10_000; n++) {
		const stamp = n % 3 === 2 ? `${Date.now() + n}` : `${n}`;
		writeFileSync(join(inbox, `${stamp.padStart(15, "0")}-${randomUUID()}.json`), "no mail");
	}
	goOn();
	for (let n = 0; n < 3; n++) {
		const start = performance.now();
		await reviewer.prompt(`!say answer ${n}`);
		await reviewer.settled();
		expect(performance.now() - start).toBeLessThan(2000);
	}
	// A full inbox takes no mail; as soon as there is room, it does.
	await eventually(() => namesIn(home, reviewer.sessionId, "new").length < 256, { timeoutMs: 60_000 });
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	expect(reviewer.notifications().length).toBeLessThan(60);
	await allClosed(home, reviewer.sessionId);
});
