import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { expect, test } from "vitest";
import { mailRoot } from "../../src/mail/root.ts";
import { createWarnings } from "../../src/session/warnings.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { makePeer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

test("a person who stops a run hears that the request in it is held, once", async () => {
	const pi = await startFakePi();
	makePeer().send(pi);
	await later(1000);
	await pi.run({ end: "aborted", text: "half" });
	const notice = "The mail request in this run is held: your next run that completes answers it.";
	expect(pi.notifications).toEqual([notice]);
	await pi.run({ prompt: "no", end: "aborted" });
	expect(pi.notifications).toEqual([notice]);
});

test("a terminal shows a warning of the start when it has drawn the conversation that it resumes", async () => {
	const id = "0197a3f2-3333-7000-8000-00000000000c";
	mkdirSync(join(mailRoot(), id), { recursive: true, mode: 0o755 });
	const pi = await startFakePi({ id, mode: "tui" });
	expect(pi.notifications).toEqual([]);
	await later(500);
	expect(pi.notifications).toEqual([expect.stringMatching(/other users can look into this session's mailbox/)]);
});

test("L10 a warning that a terminal has yet to show does not end Pi when its session is over by then", async () => {
	const id = "0197a3f2-3333-7000-8000-00000000000c";
	mkdirSync(join(mailRoot(), id), { recursive: true, mode: 0o755 });
	const pi = await startFakePi({ id, mode: "tui" });
	pi.dispose();
	await later(500);
	expect(pi.notifications).toEqual([]);
});

test("L7 after fifty different warnings one says that there are more, and no other follows", () => {
	const told: string[] = [];
	const ui = { notify: (text: string) => told.push(text) };
	const warn = createWarnings({ hasUI: true, mode: "rpc", sessionManager: {}, ui } as unknown as ExtensionContext);
	for (let n = 1; n <= 60; n++) warn(`problem ${n}`);
	expect([told.length, told[49]]).toEqual([51, "mailbox: problem 50"]);
	expect(told[50]).toBe("mailbox: there are more problems like these; they are not shown any more");
});

test("D7 /mailbox says that another process receives this session's mail, and switches nothing there", async () => {
	const id = "0197a3f2-3333-7000-8000-00000000000c";
	const folder = join(mailRoot(), "running");
	mkdirSync(folder, { recursive: true });
	const record = { address: id, cwd: "/", pid: process.ppid, state: "idle", waitingOn: "", updated: "" };
	writeFileSync(join(folder, `${id}.json`), JSON.stringify(record));
	const pi = await startFakePi({ id });
	await pi.type("/mailbox");
	expect(pi.notifications.at(-1)).toMatch(/Mail: another process has this session open/);
	await pi.type("/mailbox off");
	expect(pi.notifications.at(-1)).toMatch(/^Nothing was changed: another process/);
});
