import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Draft } from "../../src/mail/deliver.ts";
import type { Disk } from "../../src/mail/disk.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { fail, type Operation, watchedDisk } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, type Peer, pathsInRoot, startFakePi } from "../support/fake-pi.ts";

/** What happens before each operation on disk. */
const faults = vi.hoisted(() => ({ wrap: (disk: Disk): Disk => disk }));
vi.mock(import("../../src/mail/disk.ts"), async (importOriginal) => {
	const real = await importOriginal();
	return { ...real, nodeDisk: () => faults.wrap(real.nodeDisk()) };
});
let before: (operation: Operation) => void = () => {};
faults.wrap = (disk) => watchedDisk((operation) => before(operation), disk);

useFakeMachine();

let peer: Peer;
let pi: FakePi;
beforeEach(async () => {
	peer = makePeer();
	pi = await startFakePi({ name: "reviewer" });
	await pi.run({ prompt: "hello" });
	await later(1000);
});
afterEach(() => {
	before = () => {};
});

interface Result {
	content: { text: string }[];
	details: { id?: string; to?: string; isWritten?: boolean; error?: { code: string; message: string } };
	isError?: boolean;
}

function reply(ask: string, message: string): Promise<Result> {
	const { execute } = pi.tools.get("session_mail_reply") as unknown as {
		execute: (...args: unknown[]) => Promise<Result>;
	};
	return execute("call-1", { ask, message }, new AbortController().signal, undefined);
}

const textIn = (result: Result | undefined) => result?.content[0]?.text;
const send = (kind: Draft["kind"], draft: Partial<Draft> = {}) => peer.send(pi, { kind, ...draft });
const replies = () => peer.received().map(({ in_reply_to, status, body }) => [in_reply_to, status, body]);

/** Plays the run that mail starts; `during` happens while a tool runs. */
async function inRun(during: () => unknown, text = "The last word."): Promise<void> {
	await later(1000);
	expect(pi.hasRunToPlay).toBe(true);
	await pi.run({ turns: [{ tools: 1, during }], text });
}

describe("session_mail_reply", () => {
	test("PSM-079 answers an ask at once, trimmed and done, and the run goes on", async () => {
		const id = send("ask");
		await inRun(async () => {
			const answered = await reply(id, "  yes, it is \n");
			expect(textIn(answered)).toBe(`Answered ask ${id}.`);
			expect(answered.details).toEqual({ id, to: peer.address, isWritten: true });
			expect(answered.isError).toBeUndefined();
			expect(replies()).toEqual([[[id], "done", "yes, it is"]]);
			expect(pi.isIdle).toBe(false);
		});
		// The settle leaves that ask out.
		expect(replies()).toHaveLength(1);
		await pi.run({ prompt: "again" });
		expect(replies()).toHaveLength(1);
	});

	test("PSM-079 leaves the sender's other asks and requests to the settle", async () => {
		const [answered, ask, request] = [send("ask"), send("ask"), send("request")];
		await inRun(() => reply(answered, "at once"));
		expect(replies()).toEqual([
			[[answered], "done", "at once"],
			[[ask], "done", "The last word."],
			[[request], "done", "The last word."],
		]);
	});

	test("PSM-079 answers an ask of an earlier run that is still open, and one with blanks around its id", async () => {
		const id = send("ask");
		await later(1000);
		await pi.run({ turns: [{ tools: 1, during: () => reply(` ${id}\n`, "yes") }] });
		expect(replies()).toEqual([[[id], "done", "yes"]]);
	});

	test("PSM-079 answers asks of several senders, each to its own, also under one id", async () => {
		const other = makePeer("0197a3f2-9999-7000-8000-00000000000f");
		const id = "11111111-2222-4333-8444-555555555555";
		send("ask", { id });
		await later(5);
		other.send(pi, { kind: "ask", id });
		await inRun(async () => {
			const to = [(await reply(id, "one")).details.to, (await reply(id, "two")).details.to];
			expect(to.sort()).toEqual([other.address, peer.address]);
			expect((await reply(id, "three")).details.error?.code).toBe("answered");
		});
		const bodies = [peer, other].map((asker) => asker.received().map(({ body }) => body));
		expect(bodies.sort()).toEqual([["one"], ["two"]]);
	});

	test("PSM-079 holds what the model answered, also when the user then stops the run", async () => {
		const id = send("ask");
		await inRun(async () => {
			await reply(id, "yes");
			pi.abort();
		});
		expect(replies()).toEqual([[[id], "done", "yes"]]);
	});

	test("PSM-079, L2 is not repeated after a crash", async () => {
		const id = send("ask");
		await inRun(async () => {
			await reply(id, "yes");
			await pi.kill();
		});
		pi = await startFakePi({ file: pi.file });
		await later(5000);
		expect(replies()).toEqual([[[id], "done", "yes"]]);
	});

	test("PSM-071, L4 says that an answer is kept when the disk refuses it; it is written when the run ends", async () => {
		const id = send("ask");
		await inRun(async () => {
			before = ({ name, paths }) => {
				if (name === "rename" && paths[1]?.includes(peer.address)) fail("ENOSPC");
			};
			const answered = await reply(id, "yes");
			expect(textIn(answered)).toBe(
				`The answer to ask ${id} could not be written yet; it is kept, and tried again when this run ends.`,
			);
			expect(answered.details).toMatchObject({ isWritten: false });
			expect(replies()).toEqual([]);
			expect((await reply(id, "or no")).details.error?.code).toBe("answered");
			before = () => {};
		});
		expect(replies()).toEqual([[[id], "done", "yes"]]);
		expect(pi.notifications.join("\n")).toContain(`could not reply to ${peer.address}: Nothing was sent: ENOSPC`);
	});

	test("L2 an answer that was sent fails no call, though the session cannot keep that it was, and is sent once", async () => {
		const id = send("ask");
		await inRun(async () => {
			const append = pi.session.appendCustomEntry.bind(pi.session);
			const disk = vi.spyOn(pi.session, "appendCustomEntry").mockImplementation((type, data) => {
				const { type: what } = data as { type: string };
				return what === "settled" ? fail("ENOSPC") : append(type, data);
			});
			expect((await reply(id, "yes")).details).toMatchObject({ id, to: peer.address });
			disk.mockRestore();
		});
		await later(60_000);
		expect(replies()).toEqual([[[id], "done", "yes"]]);
	});

	test("D27, L4 does not say that it answered when the answer can never be delivered", async () => {
		const id = send("ask");
		await inRun(async () => {
			rmSync(join(mailRoot(), peer.address), { recursive: true });
			writeFileSync(join(mailRoot(), peer.address), "");
			const answered = await reply(id, "yes");
			expect(textIn(answered)).not.toBe(`Answered ask ${id}.`);
			expect(answered.details).not.toMatchObject({ isWritten: true });
		});
	});
});

describe("session_mail_reply is refused, and nothing is sent,", () => {
	async function refused(ask: string, message: string, code: string, why: string): Promise<void> {
		const there = pathsInRoot();
		const entries = pi.session.getEntries().length;
		const result = await reply(ask, message);
		expect(textIn(result)).toBe(`Nothing was sent: ${why}.`);
		expect(result).toMatchObject({ isError: true, details: { error: { code, message: textIn(result) } } });
		expect(pathsInRoot()).toEqual(there);
		expect(pi.session.getEntries()).toHaveLength(entries);
	}

	test("PSM-080 for an ask that it has answered", async () => {
		const id = send("ask");
		await inRun(async () => {
			await reply(id, "yes");
			await refused(id, "no", "answered", `the ask ${id} is already answered`);
		});
		expect(replies()).toHaveLength(1);
	});

	test("PSM-080 for an ask that the end of a run has answered", async () => {
		const id = send("ask");
		await inRun(() => {});
		await refused(id, "no", "answered", `the ask ${id} is already answered`);
		expect(replies()).toHaveLength(1);
	});

	test("PSM-080 for a request", async () => {
		const id = send("request");
		await inRun(() => refused(id, "yes", "not_an_ask", `${id} is a request, which is answered when the run ends`));
		expect(replies()).toEqual([[[id], "done", "The last word."]]);
	});

	test("PSM-080 for a message", async () => {
		const id = send("message");
		await inRun(() => refused(id, "yes", "not_an_ask", `${id} is a message, which expects no answer`));
		expect(replies()).toEqual([]);
	});

	test("PSM-080 for a reply", async () => {
		const id = send("reply", { inReplyTo: [], status: "done" });
		await later(1000);
		await refused(id, "yes", "not_an_ask", `${id} is a reply, which expects no answer`);
	});

	test.each(["11111111-2222-4333-8444-555555555555", "nonsense", ""])(
		"PSM-080 for an id that never reached it (%j)",
		async (id) => {
			await refused(id, "yes", "unknown", `no ask with the id ${id} has reached this session`);
		},
	);

	test("PSM-060/080 for an id full of control characters, in one short line", async () => {
		const result = await reply(`${"x\n\x1b[2J".repeat(1000)}`, "yes");
		expect(textIn(result)).not.toMatch(/\p{Cc}/u);
		expect(textIn(result)?.length).toBeLessThan(250);
	});

	test("PSM-080 for an ask that waits unread: it has not reached the session", async () => {
		await pi.run({
			prompt: "go",
			turns: [
				{
					tools: 1,
					during: async () => {
						const id = send("ask");
						await refused(id, "yes", "unknown", `no ask with the id ${id} has reached this session`);
					},
				},
			],
		});
		expect(replies()).toHaveLength(1);
	});

	test.each(["", " \n "])("PSM-080 without a text (%j)", async (message) => {
		const id = send("ask");
		await inRun(() => refused(id, message, "empty", "the answer is empty"));
		expect(replies()).toEqual([[[id], "done", "The last word."]]);
	});

	test("PSM-080 after the session has ended", async () => {
		const id = send("ask");
		await inRun(() => {});
		const { execute } = pi.tools.get("session_mail_reply") as unknown as {
			execute: (...args: unknown[]) => Promise<Result>;
		};
		await pi.shutDown();
		const result = await execute("call-1", { ask: id, message: "yes" });
		expect(textIn(result)).toBe("Nothing was done: this session has no mailbox.");
		expect(result).toMatchObject({ isError: true, details: { error: { code: "mailbox_off" } } });
		expect(replies()).toHaveLength(1);
	});

	test("D17/PSM-080 for an ask that a stop failed before it was read", async () => {
		let id = "";
		await pi.run({
			prompt: "go",
			turns: [
				{
					tools: 1,
					during: () => {
						id = send("ask");
						pi.abort();
					},
				},
			],
		});
		expect(replies()).toMatchObject([[[id], "failed", expect.any(String)]]);
		const result = await reply(id, "yes");
		expect(result.isError).toBe(true);
		expect(replies()).toHaveLength(1);
	});
});

test("PSM-056/079 the label of an ask names the id that session_mail_reply takes", async () => {
	const id = send("ask");
	await inRun(() => {});
	expect(pi.mails()[0]?.text).toContain(
		`It sent an ask, id ${id}, and is waiting for the answer. Give it with session_mail_reply and this id; otherwise this run's last message is sent as the answer.`,
	);
	expect(readFileSync(pi.file, "utf8")).toContain(id);
});
