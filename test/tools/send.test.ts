import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { maxUnread } from "../../src/mail/deliver.ts";
import type { Disk } from "../../src/mail/disk.ts";
import { maxBodyBytes } from "../../src/mail/envelope.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { fail, type Operation, watchedDisk } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, pathsInRoot, startFakePi } from "../support/fake-pi.ts";

/** What happens before each operation on disk. */
const faults = vi.hoisted(() => ({ wrap: (disk: Disk): Disk => disk }));
vi.mock(import("../../src/mail/disk.ts"), async (importOriginal) => {
	const real = await importOriginal();
	return { ...real, nodeDisk: () => faults.wrap(real.nodeDisk()) };
});
let before: (operation: Operation) => void = () => {};
faults.wrap = (disk) => watchedDisk((operation) => before(operation), disk);

useFakeMachine();

const ids = {
	author: "0197a3f2-1111-7000-8000-00000000000a",
	reviewer: "0197a3f2-2222-7000-8000-00000000000b",
	tester: "0197a3f2-3333-7000-8000-00000000000c",
	nobody: "0197a3f2-4444-7000-8000-00000000000d",
};

let author: FakePi;
let reviewer: FakePi;
beforeEach(async () => {
	author = await startFakePi({ name: "author", id: ids.author });
	reviewer = await startFakePi({ name: "reviewer", id: ids.reviewer });
	await later(1000);
});
afterEach(() => {
	before = () => {};
});

interface Result {
	content: { text: string }[];
	details: { id: string; to: string; running: boolean; duplicate?: true; error?: { code: string; message: string } };
	isError?: boolean;
}

function send(args: { to: string; message: string; id?: string; quiet?: boolean }, pi = author): Promise<Result> {
	const { execute } = pi.tools.get("session_mail_send") as unknown as {
		execute: (...args: unknown[]) => Promise<Result>;
	};
	return execute("call-1", args, new AbortController().signal, undefined);
}

const textIn = (result: Result) => result.content[0]?.text;

/** All files, but for what sessions keep rewriting about themselves. */
function onDisk(): string[] {
	return pathsInRoot().filter((path) => !/state\.json$|\.open$|\.read$|^running/.test(path));
}

function mailsIn(address: string, box: "new" | "cur" | "sent") {
	const folder = join(mailRoot(), address, box);
	const names = readdirSync(folder).filter((name) => name.endsWith(".json"));
	return names.map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")));
}

describe("session_mail_send", () => {
	test("PSM-081 leaves a message, trimmed, and says its id and whom it went to", async () => {
		const sent = await send({ to: "reviewer", message: "  the parser\nis done \n" });
		const { id } = sent.details;
		expect(textIn(sent)).toBe(`Sent ${id} to reviewer (${ids.reviewer}).`);
		expect(sent.details).toEqual({ id, to: ids.reviewer, running: true });
		expect(sent.isError).toBeUndefined();
		const mail = { id, from: ids.author, to: ids.reviewer, kind: "message", hops: 0, body: "the parser\nis done" };
		expect(mailsIn(ids.reviewer, "new")).toEqual([{ ...mail, in_reply_to: [], status: "", ts: expect.any(String) }]);
		expect(mailsIn(ids.author, "sent")).toEqual(mailsIn(ids.reviewer, "new"));
		// PSM-039: nothing is awaited.
		expect(author.status.get("mailbox")).toBeUndefined();
	});

	test("design 4.6 leaves a quiet one, which starts no turn", async () => {
		const sent = await send({ to: "reviewer", message: "x", quiet: true });
		expect(mailsIn(ids.reviewer, "new")).toMatchObject([{ id: sent.details.id, kind: "message", x: { quiet: true } }]);
		await later(60_000);
		expect([reviewer.hasRunToPlay, reviewer.mails().length]).toEqual([false, 1]);
		// A quiet one is another mail than one that starts a turn.
		const id = "11111111-2222-4333-8444-555555555555";
		await send({ to: "reviewer", message: "x", id });
		expect((await send({ to: "reviewer", message: "x", id, quiet: true })).details.error?.code).toBe("id_used");
		await later(1000);
		await reviewer.run();
	});

	test("L2 with an id of its own sends once: a repetition says so, and another text under it is refused", async () => {
		const id = "11111111-2222-4333-8444-555555555555";
		expect((await send({ to: "reviewer", message: "x", id })).details).toEqual({ id, to: ids.reviewer, running: true });
		const again = await send({ to: "reviewer", message: "x", id });
		expect([textIn(again), again.isError]).toEqual([
			`${id} was sent to reviewer (${ids.reviewer}) before; nothing was sent now.`,
			undefined,
		]);
		expect(again.details).toEqual({ id, to: ids.reviewer, running: true, duplicate: true });
		const other = await send({ to: "reviewer", message: "y", id });
		expect([textIn(other), other.isError]).toEqual([`Nothing was sent: the id ${id} was used for another mail.`, true]);
		expect(other.details).toMatchObject({ error: { code: "id_used" } });
		const wrong = await send({ to: "reviewer", message: "y", id: "branch-x" });
		expect(textIn(wrong)).toBe('Nothing was sent: the id "branch-x" is not a UUID.');
		expect(mailsIn(ids.reviewer, "new").map((mail) => mail.id)).toEqual([id]);
	});

	test("L2 with an id of its own says that it was sent before also when it could not be sent now", async () => {
		const id = "11111111-2222-4333-8444-555555555555";
		await send({ to: "reviewer", message: "x", id });
		await reviewer.shutDown();
		const again = await send({ to: "reviewer", message: "x", id });
		expect([textIn(again), again.details.duplicate]).toEqual([
			`${id} was sent to ${ids.reviewer} before; nothing was sent now.`,
			true,
		]);
	});

	test.each([ids.reviewer, ids.reviewer.toUpperCase(), ids.reviewer.slice(0, 13)])(
		"PSM-030/031/081 takes an id as well (%s)",
		async (to) => {
			expect((await send({ to, message: "x" })).details).toMatchObject({ to: ids.reviewer, running: true });
		},
	);

	test("PSM-081 to a session that is closed says that it waits there", async () => {
		makePeer(ids.tester);
		const sent = await send({ to: ids.tester, message: "x" });
		expect(textIn(sent)).toBe(
			`Sent ${sent.details.id} to ${ids.tester}. That session is not running; the mail waits until it starts. 1 mail waits there.`,
		);
		expect(sent.details.running).toBe(false);
		expect(mailsIn(ids.tester, "new")).toHaveLength(1);
	});

	test("D16/PSM-081 to an id that nobody has seen says that no session with this id was seen", async () => {
		const sent = await send({ to: ids.nobody, message: "x" });
		expect(textIn(sent)).toBe(
			`Sent ${sent.details.id} to ${ids.nobody}. No session with this id has been seen on this machine; the mail waits for one.`,
		);
		expect(mailsIn(ids.nobody, "new")).toHaveLength(1);
	});

	test("L4 says so when the session takes no mail now", async () => {
		const file = join(mailRoot(), "running", `${ids.reviewer}.json`);
		writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, "utf8")), x: { receiving: false } }));
		expect(textIn(await send({ to: "reviewer", message: "x" }))).toMatch(
			/That session takes no mail now; the mail waits until its user types \/mailbox on\.$/,
		);
	});

	test("L4 says so when the disk did not confirm it", async () => {
		before = ({ name }) => {
			if (name === "syncFolder") fail("EIO");
		};
		const sent = await send({ to: "reviewer", message: "x" });
		expect(textIn(sent)).toMatch(/The disk did not confirm it: a power cut could still undo it\.$/);
		expect(mailsIn(ids.reviewer, "new")).toHaveLength(1);
	});

	test("PSM-048/081 its recipient owes nothing for it", async () => {
		const peer = makePeer(ids.tester);
		await send({ to: ids.tester, message: "x" });
		expect(peer.received().map(({ kind }) => kind)).toEqual(["message"]);
		peer.send(author, { kind: "message", body: "and back" });
		await later(1000);
		await author.run({ text: "fine" });
		expect(peer.received()).toHaveLength(1);
	});

	test("PSM-081 sends while an ask of this session waits", async () => {
		const name = "session_mail_ask";
		const run = author.run({
			prompt: "both",
			turns: [
				{
					tools: [
						{ name, args: { to: "reviewer", message: "?" } },
						{ name: "session_mail_send", args: { to: ids.tester, message: "x" } },
					],
				},
			],
		});
		await later(500);
		expect(mailsIn(ids.tester, "new")).toHaveLength(1);
		author.abort();
		await run;
	});
});

describe("session_mail_send is refused, and nothing is written,", () => {
	async function refused(args: { to: string; message: string }, code: string, why: string | RegExp): Promise<void> {
		await later(1000);
		const there = onDisk();
		const result = await send(args);
		expect(onDisk()).toEqual(there);
		expect(result.isError).toBe(true);
		expect(result.details).toEqual({ error: { code, message: textIn(result) } });
		expect(textIn(result)).toMatch(why);
	}

	test("PSM-033/082 when `to` names nobody", async () => {
		await refused(
			{ to: "rewiever", message: "x" },
			"unknown",
			`Nothing was sent: no running session is called "rewiever"; running: reviewer (${ids.reviewer}); a closed session is reached by its full id.`,
		);
	});

	test("PSM-033/082 when `to` is the start of an id, too short", async () => {
		await refused({ to: "0197a3f", message: "x" }, "unknown", /too short for an id: type at least 8 characters/);
	});

	test("PSM-032/082 when `to` names several", async () => {
		await startFakePi({ name: "reviewer", id: ids.tester });
		await refused({ to: "reviewer", message: "x" }, "ambiguous", /could be .*; use the full id\.$/);
	});

	test.each(["author", ids.author, ids.author.toUpperCase()])(
		"PSM-034/082 when `to` is the session itself (%s)",
		async (to) => {
			await refused(
				{ to, message: "x" },
				"self",
				"Nothing was sent: that is this session, and a session cannot send mail to itself.",
			);
		},
	);

	test("PSM-034/082 when `to` is the start of this session's own id", async () => {
		await refused({ to: ids.author.slice(0, 13), message: "x" }, "self", /that is this session/);
	});

	test.each(["", " \n\t "])("PSM-082 when the text is empty (%j)", async (message) => {
		await refused({ to: "reviewer", message }, "empty", /^Nothing was sent: the text is empty\.$/);
	});

	test("PSM-082 when `to` is empty", async () => {
		await refused({ to: "", message: "x" }, "empty", /^Nothing was sent: say who gets the mail/);
	});

	test.each(["..", "../../etc", "running", "a/b", ".hidden", "x\0y"])(
		"PSM-002/082 when `to` is a path (%j)",
		async (to) => {
			await refused({ to, message: "x" }, "unknown", /^Nothing was sent: /);
		},
	);

	test("PSM-082 when the text is empty for a session that has no mailbox yet: none is made", async () => {
		await refused({ to: ids.nobody, message: "  " }, "empty", /the text is empty/);
	});

	test("D11 when the text is longer than a mebibyte", async () => {
		await refused({ to: "reviewer", message: "é".repeat(maxBodyBytes / 2 + 1) }, "too_large", /1048578 bytes/);
	});

	test("D10 when 256 mails wait there unread", async () => {
		const peer = makePeer(ids.tester);
		const full = makePeer(ids.nobody);
		for (let n = 0; n < maxUnread; n++) peer.send(full, { kind: "message" });
		await refused({ to: ids.nobody, message: "x" }, "mailbox_full", /already has 256 unread mails/);
	});

	test("PSM-022 when the disk refuses", async () => {
		before = ({ name, paths }) => {
			if (name === "rename" && paths[1]?.includes(`${ids.reviewer}/new/`)) fail("ENOSPC");
		};
		await refused({ to: "reviewer", message: "x" }, "io", "Nothing was sent: ENOSPC: made to fail.");
	});

	test("D9 when its mailbox is no folder", async () => {
		writeFileSync(join(mailRoot(), ids.tester), "");
		await refused({ to: ids.tester, message: "x" }, "unfit_mailbox", /^Nothing was sent: its mailbox cannot be used: /);
		rmSync(join(mailRoot(), ids.tester));
	});

	test("PSM-080 after the session has ended", async () => {
		const { execute } = author.tools.get("session_mail_send") as unknown as {
			execute: (...args: unknown[]) => Promise<Result>;
		};
		await author.shutDown();
		const there = onDisk();
		expect(await execute("call-1", { to: "reviewer", message: "x" })).toMatchObject({
			isError: true,
			details: { error: { code: "mailbox_off" } },
		});
		expect(onDisk()).toEqual(there);
	});
});

describe("the hop count", () => {
	/** Sends in the middle of a run, and says with what count, or with what code it was refused. */
	async function hopsIn(
		script: { prompt?: string; earlier?: () => unknown; before?: () => unknown } = {},
	): Promise<unknown> {
		let count: unknown;
		const during = async () => {
			await script.before?.();
			const there = onDisk();
			const sent = await send({ to: "reviewer", message: "x" });
			if (sent.details.error !== undefined) expect(onDisk()).toEqual(there);
			count = sent.details.error?.code ?? mailsIn(ids.reviewer, "new").find(({ id }) => id === sent.details.id)?.hops;
		};
		await author.run({
			...(script.prompt === undefined ? {} : { prompt: script.prompt }),
			turns: [...(script.earlier === undefined ? [] : [{ tools: 1, during: script.earlier }]), { tools: 1, during }],
		});
		return count;
	}

	const arrive = async (hops: number, kind: "request" | "message" | "ask" = "message") => {
		makePeer(ids.tester).send(author, { kind, hops });
		await later(1000);
		expect(author.hasRunToPlay).toBe(true);
	};

	test("PSM-083/086 is 0 in a run that a person starts", async () => {
		expect(await hopsIn({ prompt: "go" })).toBe(0);
	});

	test.each(["request", "message", "ask"] as const)(
		"PSM-084/086 is one more than that of the %s that woke the session",
		async (kind) => {
			await arrive(2, kind);
			expect(await hopsIn()).toBe(3);
		},
	);

	test("PSM-086 L4 at its limit does not hide that a message was sent before", async () => {
		const mail = { to: "reviewer", message: "x", id: "11111111-2222-4333-8444-555555555555" };
		await send(mail);
		await arrive(4);
		let again: Result | undefined;
		const during = async () => {
			expect((await send({ to: "reviewer", message: "y" })).details.error?.code).toBe("hop_limit");
			again = await send(mail);
		};
		await author.run({ turns: [{ tools: 1, during }] });
		expect(again?.details).toMatchObject({ id: mail.id, duplicate: true });
	});

	test("PSM-084 is one more than the highest that came in the run", async () => {
		const peer = makePeer(ids.tester);
		await arrive(1);
		let count: unknown;
		await author.run({
			turns: [
				{ tools: 1, during: () => peer.send(author, { kind: "message", hops: 3 }) },
				{
					tools: 1,
					during: async () => {
						const { id } = (await send({ to: "reviewer", message: "x" })).details;
						count = mailsIn(ids.reviewer, "new").find((mail) => mail.id === id)?.hops;
					},
				},
			],
		});
		expect(count).toBe(4);
	});

	test("PSM-084 does not count a reply that was shown quietly", async () => {
		const peer = makePeer(ids.tester);
		peer.send(author, { kind: "reply", inReplyTo: [], status: "done", hops: 4, body: "x" });
		await later(1000);
		expect(author.mails()).toHaveLength(1);
		await arrive(0);
		expect(await hopsIn()).toBe(1);
	});

	test("PSM-084 counts a reply that another extension took over in the run", async () => {
		author.events.on("message:inbound", (mail) => {
			(mail as { handled?: boolean }).handled = true;
		});
		makePeer(ids.tester).send(author, { kind: "message", hops: 2 });
		author.events.emit("message:scan", {});
		const { id } = (await send({ to: "reviewer", message: "x" })).details;
		expect(mailsIn(ids.reviewer, "new").find((mail) => mail.id === id)?.hops).toBe(3);
	});

	test("PSM-086 refuses at the limit, before anything is written, and says how to start again", async () => {
		await arrive(4);
		const there = onDisk();
		let text: string | undefined;
		await author.run({
			turns: [
				{
					tools: 1,
					during: async () => {
						text = textIn(await send({ to: "reviewer", message: "x" }));
					},
				},
			],
		});
		expect(text).toBe(
			"Nothing was sent: sessions have woken each other 5 times in a row, and the limit is 5. A person who types in either session starts the count again.",
		);
		expect(onDisk()).toEqual(there);
	});

	test("PSM-083 is 0 again when the user types into the run", async () => {
		await arrive(4);
		expect(await hopsIn({ before: () => author.typeAhead("go on") })).toBe(0);
	});

	test("PSM-083 stays 0 in a run that the user typed into, however long it takes and whatever mail comes later", async () => {
		await arrive(4);
		const earlier = async () => {
			await author.typeAhead("go on");
			await later(6000);
			makePeer(ids.tester).send(author, { kind: "message", hops: 9 });
		};
		expect(await hopsIn({ earlier })).toBe(0);
	});

	test("PSM-084 is that of the mail when what the user typed before started no run", async () => {
		await author.typeAhead("what another extension handles");
		await later(6000);
		await arrive(4);
		expect(await hopsIn()).toBe("hop_limit");
	});

	test("PSM-085 starts anew after a run has settled", async () => {
		await arrive(4);
		expect(await hopsIn()).toBe("hop_limit");
		await arrive(0);
		expect(await hopsIn()).toBe(1);
	});

	test("PSM-070 automatic answers carry it, also past the limit", async () => {
		const peer = makePeer(ids.tester);
		peer.send(author, { kind: "request", hops: 7 });
		await later(1000);
		await author.run({ text: "done" });
		expect(peer.received()).toMatchObject([{ kind: "reply", hops: 8, status: "done" }]);
	});

	test("PSM-079 so does session_mail_reply", async () => {
		const peer = makePeer(ids.tester);
		const ask = peer.send(author, { kind: "ask", hops: 7 });
		await later(1000);
		await author.run({ turns: [{ tools: [{ name: "session_mail_reply", args: { ask, message: "yes" } }] }] });
		expect(peer.received()).toMatchObject([{ kind: "reply", hops: 8, status: "done", body: "yes" }]);
	});

	test("PSM-087 /mailbox sends 0, also in a run at the limit", async () => {
		await arrive(9);
		await author.run({ turns: [{ tools: 1, during: () => author.type(`/mailbox ${ids.nobody} please`) }] });
		expect(mailsIn(ids.nobody, "new")).toMatchObject([{ kind: "request", hops: 0 }]);
	});

	test("PSM-087 message:send sends 0 when idle and the run's count in a run, and is never refused", async () => {
		const emit = () => {
			const payload: { to: string; body: string; envelope?: { hops: number }; error?: string } = {
				to: ids.nobody,
				body: "x",
			};
			author.events.emit("message:send", payload);
			return payload.error ?? payload.envelope?.hops;
		};
		expect(emit()).toBe(0);
		await arrive(9);
		const counts: unknown[] = [];
		await author.run({ turns: [{ tools: 1, during: () => counts.push(emit()) }] });
		expect([...counts, emit()]).toEqual([10, 0]);
	});

	test("PSM-086 the limit is that of the settings at this moment", async () => {
		const folder = join(author.session.getCwd(), "agent");
		vi.stubEnv("PI_CODING_AGENT_DIR", folder);
		mkdirSync(folder);
		await author.reload();
		await later(1000);
		writeFileSync(join(folder, "session-mail.json"), JSON.stringify({ hopLimit: 2 }));
		await arrive(1);
		expect(await hopsIn()).toBe("hop_limit");
		writeFileSync(join(folder, "session-mail.json"), JSON.stringify({ hopLimit: 9 }));
		await arrive(5);
		expect(await hopsIn()).toBe(6);
	});
});
