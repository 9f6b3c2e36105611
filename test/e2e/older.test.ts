import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, eventually, type Home, makeHome } from "../support/pi.ts";
import { allClosed, conversation, footer, mailEntries, mailsIn, namesIn, startedPi, typeMailbox } from "./mail.ts";

afterEach(cleanUp);

const older = "01980f5e-7a3c-7d10-8f00-0000000000cc";

/** Makes the files of a session of an older copy, which runs in the process of this test. */
function openOlderSession(home: Home): void {
	for (const box of ["tmp", "new", "cur", "sent"]) {
		mkdirSync(join(home.mailRoot, older, box), { recursive: true, mode: 0o700 });
	}
	mkdirSync(join(home.mailRoot, "running"), { recursive: true, mode: 0o700 });
	const record = {
		address: older,
		name: "older",
		cwd: "/home/me/older",
		pid: process.pid,
		state: "idle",
		waitingOn: "",
		updated: new Date().toISOString(),
	};
	writeFileSync(join(home.mailRoot, "running", `${older}.json`), JSON.stringify(record), { mode: 0o600 });
}

/** Writes a mail as an older copy does: into tmp/, then the rename into new/. */
function sendFromOlder(home: Home, to: string, mail: Record<string, unknown> & { id: string }): void {
	const envelope = { from: older, to, ts: new Date().toISOString(), ...mail };
	const name = `${String(Date.now()).padStart(15, "0")}-${mail.id}.json`;
	writeFileSync(join(home.mailRoot, to, "tmp", name), JSON.stringify(envelope), { mode: 0o600 });
	renameSync(join(home.mailRoot, to, "tmp", name), join(home.mailRoot, to, "new", name));
}

const id = (n: number) => `11111111-2222-4333-8444-${String(n).padStart(12, "0")}`;

test("PSM-013/014/027, D1 a session of an older copy and one of ours exchange requests and answers", async () => {
	const home = makeHome();
	openOlderSession(home);
	const pi = await startedPi({ home, name: "newer" });

	const said = await typeMailbox(pi, "older please check the parser");
	expect(said).toMatch(new RegExp(`^Sent \\S+ to ${older}$`));
	const [request] = mailsIn(home, older, "new");
	expect(Object.keys(request ?? {}).sort()).toEqual(
		["body", "from", "hops", "id", "in_reply_to", "kind", "status", "to", "ts"].sort(),
	);
	expect(namesIn(home, older, "new")).toEqual([expect.stringMatching(new RegExp(`^\\d{15}.*${request?.id}\\.json$`))]);
	await footer(pi, "✉ 1 awaiting");

	// From before there were kinds and hops.
	sendFromOlder(home, pi.sessionId, {
		id: id(1),
		in_reply_to: [`${request?.id}`],
		status: "done",
		body: "It is fine.",
	});
	await footer(pi, "✉ 1 read");
	expect(mailEntries(pi)[0]?.text).toMatch(
		new RegExp(
			`^\\[mailbox\\] From older \\(${older}, working in /home/me/older\\).*\\n> please check the parser\\n.*It is fine\\.`,
			"s",
		),
	);
	expect(pi.modelRequests()).toHaveLength(1);

	sendFromOlder(home, pi.sessionId, {
		id: id(2),
		in_reply_to: [],
		status: "",
		body: "and the lexer? ;; %say It is broken.",
	});
	const reply = await eventually(() => mailsIn(home, older, "new").find(({ kind }) => kind === "reply"));
	expect(reply).toMatchObject({
		from: pi.sessionId,
		in_reply_to: [id(2)],
		status: "done",
		hops: 1,
		body: "It is broken.",
	});

	// A kind from after us, with fields from after us.
	const later = { id: id(3), kind: "poke", hops: 0, in_reply_to: [], status: "", body: "hello", x: { seq: 1 }, cc: [] };
	sendFromOlder(home, pi.sessionId, later);
	await eventually(() => mailEntries(pi).length === 3 && pi.modelRequests().length === 3);
	await allClosed(home, pi.sessionId);
	await footer(pi, "✉ 3 read");
	expect(conversation(pi).slice(-2)).toEqual(["mail", "assistant"]);
	expect(mailsIn(home, older, "new")).toHaveLength(2);

	expect(readdirSync(join(home.mailRoot, "running")).sort()).toEqual([`${older}.json`, `${pi.sessionId}.json`].sort());
	const record = JSON.parse(readFileSync(join(home.mailRoot, "running", `${pi.sessionId}.json`), "utf8"));
	expect(record).toMatchObject({ address: pi.sessionId, name: "newer", cwd: home.workDir, waitingOn: "" });
	expect(record.started).toEqual(expect.any(String));
	expect([pi.notifications().length, pi.stderr]).toEqual([1, ""]);
});
