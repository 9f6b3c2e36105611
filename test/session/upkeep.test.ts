import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { mailRoot } from "../../src/mail/root.ts";
import { isRoot } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

async function seasonedPi(name: string): Promise<FakePi> {
	const made = await startFakePi({ name });
	await made.run({ prompt: "hello" });
	await later(1000);
	return made;
}

let pi: FakePi;
let peer: Peer;
beforeEach(async () => {
	pi = await seasonedPi("reviewer");
	peer = makePeer();
	pi.notifications.splice(0);
});

const folder = (box = "") => join(mailRoot(), pi.address, box);
const record = () => join(mailRoot(), "running", `${pi.address}.json`);
const aside = (path: string) => `${path}.aside`;
const moveAway = (path: string) => renameSync(path, aside(path));
const moveBack = (path: string) => renameSync(aside(path), path);
const isOut = (why: string) =>
	expect.stringMatching(
		`^mailbox: this session's mail is out of order: ${why}\\. It goes on as soon as that is mended\\.$`,
	);
const works = "mailbox: this session's mail works again.";
const wereMade = expect.stringMatching(
	/^mailbox: folders in \S+ were missing and were made again; mail that lay in them/,
);

/** A mail comes, and gets its answer. */
async function exchange(): Promise<void> {
	peer = makePeer();
	const id = peer.send(pi);
	await later(1000);
	await pi.run({ text: "Here." });
	await later(1000);
	expect(peer.received().map((reply) => reply.in_reply_to)).toContainEqual([id]);
}

describe("while a session runs", () => {
	test("L2 the mail root is moved away for ten seconds: said once, nothing is lost, and mail goes on when it is back", async () => {
		const id = peer.send(pi);
		moveAway(mailRoot());
		await later(10_000);
		await pi.run({ prompt: "meanwhile" });
		expect(pi.notifications).toEqual([isOut(`the mail root \\S+ is missing`)]);
		// Somebody who wants to move it back must find its place free.
		expect(existsSync(mailRoot())).toBe(false);
		pi.notifications.splice(0);
		for (const to of [peer.address, "nobody"]) await pi.type(`/mailbox ${to} please`);
		const refused = expect.stringMatching(/^Nothing was sent: the mail root \S+ is missing\.$/);
		expect(pi.notifications.splice(0)).toEqual([refused, refused]);
		moveBack(mailRoot());
		await later(1000);
		expect(pi.notifications).toEqual([works]);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run();
		expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
		await exchange();
	});

	test("L2 the mail root is moved away once more: its place stays free as long as the first time", async () => {
		for (let n = 0; n < 2; n++) {
			moveAway(mailRoot());
			await later(20_000);
			expect(existsSync(mailRoot())).toBe(false);
			moveBack(mailRoot());
			await later(1000);
		}
		await exchange();
	});

	test("L2 the mail root is deleted: after half a minute it is made anew, and mail goes on", async () => {
		rmSync(mailRoot(), { recursive: true });
		await later(29_000);
		expect([existsSync(mailRoot()), pi.notifications.length]).toEqual([false, 1]);
		await later(2000);
		expect(pi.notifications.slice(1)).toEqual([wereMade, works]);
		expect(existsSync(record())).toBe(true);
		await exchange();
	});

	test("L2 the mail root is deleted for ten seconds and made again by somebody: mail goes on", async () => {
		rmSync(mailRoot(), { recursive: true });
		await later(10_000);
		mkdirSync(mailRoot());
		await later(1000);
		expect(pi.notifications).toEqual([isOut(`the mail root \\S+ is missing`), wereMade, works]);
		expect(existsSync(record())).toBe(true);
		await exchange();
	});

	test("L2 its folder is deleted: it is made again at once, which is said, and mail goes on", async () => {
		rmSync(folder(), { recursive: true });
		await later(1000);
		expect(pi.notifications).toEqual([wereMade]);
		expect(readdirSync(folder())).toEqual(expect.arrayContaining(["cur", "new", "sent", "tmp"]));
		await exchange();
	});

	test("L4 its folder is deleted, and made again by a mail that is sent just then: it is said all the same", async () => {
		rmSync(folder(), { recursive: true });
		await pi.type(`/mailbox ${peer.address} please`);
		expect(pi.notifications.splice(0)).toEqual([expect.stringMatching(/^Sent /)]);
		await later(1000);
		expect(pi.notifications).toEqual([wereMade]);
		expect(peer.received()).toHaveLength(1);
	});

	test.each(["tmp", "new", "cur", "sent"])("L2 its %s/ is deleted: it is made again, and mail goes on", async (box) => {
		rmSync(folder(box), { recursive: true });
		await later(1000);
		expect(pi.notifications).toEqual([wereMade]);
		await exchange();
	});

	test.each<[what: string, why: string, spoil: (path: string) => void]>([
		["a file", "\\S+ is not a folder", (path) => writeFileSync(path, "")],
		["a link", "\\S+ is a symlink", (path) => symlinkSync(aside(path), path)],
		["a link to nowhere", "\\S+ is a symlink", (path) => symlinkSync("nowhere", path)],
	])(
		"I-PSM-8 one of its boxes becomes %s: said once, not followed, and mended when it is back",
		async (_, why, spoil) => {
			for (const box of ["new", "cur", ""]) {
				const path = folder(box);
				moveAway(path);
				spoil(path);
				await later(5000);
				await pi.run({ prompt: "meanwhile" });
				expect(pi.notifications.splice(0), box).toEqual([isOut(why)]);
				rmSync(path);
				moveBack(path);
				await later(1000);
				expect(pi.notifications.splice(0), box).toEqual([works]);
				await exchange();
			}
		},
	);

	test("I-PSM-8 the mail root becomes a link: nothing is read or written through it", async () => {
		peer.send(pi);
		moveAway(mailRoot());
		const names = () => readdirSync(aside(mailRoot()), { recursive: true }).filter((name) => name !== ".prune.lock");
		const before = names();
		symlinkSync(aside(mailRoot()), mailRoot());
		await later(5000);
		await pi.run({ prompt: "meanwhile" });
		expect([pi.notifications, pi.mails()]).toEqual([[isOut("the mail root \\S+ is not a folder")], []]);
		expect(names()).toEqual(before);
		rmSync(mailRoot());
		moveBack(mailRoot());
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test("D7 its running record is deleted: others see it again within a second", async () => {
		for (const path of [record(), join(mailRoot(), "running")]) {
			rmSync(path, { recursive: true });
			await later(1000);
			expect([existsSync(record()), pi.notifications]).toEqual([true, []]);
		}
	});

	test("L3 an answer that falls due while the root is away is sent when it is back", async () => {
		const id = peer.send(pi);
		await later(1000);
		await pi.run({ text: "Done.", during: () => moveAway(mailRoot()) });
		await later(10_000);
		moveBack(mailRoot());
		await later(31_000);
		expect(peer.received().map((reply) => [reply.in_reply_to, reply.body])).toEqual([[[id], "Done."]]);
		expect(pi.openCount).toBe(0);
	});

	test.skipIf(isRoot)(
		"L2 its boxes become read-only: said once, and mail comes when they are not any more",
		async () => {
			for (const box of ["new", "cur"]) chmodSync(folder(box), 0o500);
			expect(() => peer.send(pi)).toThrow(/EACCES/);
			chmodSync(folder("new"), 0o700);
			const sent = peer.send(pi);
			await later(5000);
			expect(pi.notifications).toEqual([
				expect.stringMatching(/could not be taken in and will be tried again: EACCES/),
			]);
			chmodSync(folder("cur"), 0o700);
			await later(1000);
			await pi.run();
			expect(pi.mails().map((mail) => mail.id)).toEqual([sent]);
		},
	);
});

test("L10 a mailbox that is out of order when its session ends leaves nothing behind", async () => {
	moveAway(mailRoot());
	await later(2000);
	await pi.shutDown();
	await later(60_000);
	expect(existsSync(mailRoot())).toBe(false);
});

test.each(["message:scan", "a turn's end", "a stop"])(
	"I-PSM-8 no link in the place of new/ is followed at %s",
	async (when) => {
		const inbox = join(mailRoot(), pi.address, "new");
		const elsewhere = `${mailRoot()}.elsewhere`;
		mkdirSync(elsewhere);
		peer.send(pi, { kind: "message" });
		for (const name of readdirSync(inbox)) renameSync(join(inbox, name), join(elsewhere, name));
		renameSync(inbox, aside(inbox));
		symlinkSync(elsewhere, inbox);
		if (when === "message:scan") {
			const payload: { scanned?: true } = {};
			pi.events.emit("message:scan", payload);
			expect(payload.scanned).toBeUndefined();
		} else if (when === "a turn's end") await pi.run({ prompt: "work", turns: [{ tools: 1 }] });
		else await pi.run({ prompt: "work", turns: [{ tools: 1, during: () => pi.abort() }] });
		expect(readdirSync(elsewhere)).toHaveLength(1);
		expect(pi.mails()).toEqual([]);
	},
);

test("L4 an ask waits on while the mail root is away: nobody can be seen to run", async () => {
	const author = await seasonedPi("author");
	const reviewer = pi;
	const args = { to: "reviewer", message: "is it fine?" };
	const run = author.run({ prompt: "ask", turns: [{ tools: [{ name: "session_mail_ask", args }] }] });
	await later(1000);
	moveAway(mailRoot());
	await later(8000);
	moveBack(mailRoot());
	await later(1000);
	await reviewer.run({ text: "It is." });
	await later(1000);
	await run;
	expect(JSON.stringify(author.session.getEntries())).toContain("Answer from reviewer");
});
