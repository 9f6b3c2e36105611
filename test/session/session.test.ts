import {
	appendFileSync,
	chmodSync,
	existsSync,
	mkdirSync,
	readdirSync,
	readFileSync,
	renameSync,
	rmdirSync,
	rmSync,
	statSync,
	writeFileSync,
} from "node:fs";
import { stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SessionManager } from "@earendil-works/pi-coding-agent";
import type { FSWatcher } from "chokidar";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import sessionMail from "../../src/index.ts";
import type { Draft } from "../../src/mail/deliver.ts";
import type { Disk } from "../../src/mail/disk.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { envelopeText, fail, type Operation, watchedDisk } from "../support/disk.ts";
import { later, seasonedPi, useFakeMachine } from "../support/fake-machine.ts";
import { FakePi, makePeer, type Peer, startFakePi } from "../support/fake-pi.ts";

const seams = vi.hoisted(() => ({ wrap: (disk: Disk): Disk => disk, watchers: [] as FSWatcher[] }));
vi.mock(import("../../src/mail/disk.ts"), async (importOriginal) => {
	const real = await importOriginal();
	return { ...real, nodeDisk: () => seams.wrap(real.nodeDisk()) };
});
vi.mock(import("chokidar"), async (importOriginal) => {
	const real = await importOriginal();
	const watch: typeof real.watch = (...given) => {
		const watcher = real.watch(...given);
		seams.watchers.push(watcher);
		return watcher;
	};
	return { ...real, watch };
});
/** What happens before each operation on disk. */
let before: (operation: Operation) => void = () => {};
seams.wrap = (disk) => watchedDisk((operation) => before(operation), disk);

useFakeMachine();

let peer: Peer;
beforeEach(() => {
	peer = makePeer();
});
afterEach(() => {
	before = () => {};
	seams.watchers.splice(0);
});

const recordPath = (address: string) => join(mailRoot(), "running", `${address}.json`);
const record = (pi: FakePi) => JSON.parse(readFileSync(recordPath(pi.address), "utf8"));
const footer = (pi: FakePi) => pi.status.get("mailbox");
const reply: Partial<Draft> = { kind: "reply", status: "done" };

describe("the running record", () => {
	test("PSM-023/024 says what the session is called, where it works and whether it is busy", async () => {
		const pi = await startFakePi({ name: "reviewer" });
		expect(record(pi)).toMatchObject({ address: pi.address, name: "reviewer", state: "idle", pid: process.pid });
		expect(record(pi).cwd).toBe(pi.session.getCwd());
		await pi.rename("critic");
		await pi.run({ prompt: "work", during: () => expect(record(pi)).toMatchObject({ name: "critic", state: "busy" }) });
		expect(record(pi)).toMatchObject({ name: "critic", state: "idle" });
		await pi.rename(undefined);
		expect(record(pi)).not.toHaveProperty("name");
	});

	test("stays busy from the first attempt of a run to its settle, whatever Pi tries again", async () => {
		const pi = await seasonedPi();
		const during = () => expect(record(pi).state).toBe("busy");
		await pi.run({
			prompt: "work",
			turns: [
				{ fails: "503", during },
				{ tools: 1, during },
			],
			during,
		});
		expect(record(pi).state).toBe("idle");
	});

	test.each(["quit", "new", "resume", "fork"] as const)(
		"PSM-025 is removed at the end of the session (%s)",
		async (reason) => {
			const pi = await seasonedPi();
			await pi.shutDown(reason);
			expect(existsSync(recordPath(pi.address))).toBe(false);
		},
	);

	test("D7 stays over a /reload", async () => {
		const pi = await seasonedPi();
		let isThere = false;
		before = () => {
			isThere = existsSync(recordPath(pi.address));
			if (!isThere) fail("EIO");
		};
		await pi.reload();
		expect([isThere, pi.notifications]).toEqual([true, []]);
	});

	test("L10 is removed also when nothing else can be saved at the end", async () => {
		const pi = await seasonedPi();
		await pi.type(`/mailbox ${peer.address} please`);
		before = ({ name, paths }) => name === "replace" && paths[0]?.endsWith("state.json") && fail("ENOSPC");
		await pi.type(`/mailbox ${peer.address} please`);
		await pi.shutDown();
		expect(pi.notifications.join("\n")).toMatch(/the counts could not be saved/);
		expect(existsSync(recordPath(pi.address))).toBe(false);
	});

	test("L10 is removed also when the mark of mail that is open cannot be written at the end", async () => {
		const pi = await seasonedPi();
		peer.send(pi);
		await later(1000);
		before = ({ name, paths }) => name === "replace" && paths[0]?.endsWith(".open") && fail("ENOSPC");
		await pi.shutDown();
		expect([pi.openCount, existsSync(recordPath(pi.address))]).toEqual([1, false]);
	});

	test("L4 says idle after a run also when what it left cannot be had", async () => {
		const pi = await seasonedPi();
		const during = () => vi.spyOn(pi.session, "getBranch").mockImplementationOnce(() => fail("EIO"));
		await pi.run({ prompt: "work", during });
		expect([record(pi).state, pi.notifications]).toEqual(["idle", [expect.stringMatching(/EIO/)]]);
	});
});

test("L2 L4 a folder that another session prunes before the running record stands is there all the same, and nothing is said", async () => {
	const pi = new FakePi();
	let isPruned = false;
	before = ({ name, paths }) => {
		if (isPruned || name !== "create" || !paths[0]?.includes("/running/")) return;
		isPruned = true;
		rmSync(join(mailRoot(), pi.address), { recursive: true });
	};
	await pi.start();
	await later(2000);
	expect([isPruned, pi.names("new"), pi.notifications]).toEqual([true, [], []]);
});

describe("the footer, PSM-039", () => {
	test("says how many mails wait, were read, and are not answered, and nothing when there are none", async () => {
		const pi = await seasonedPi();
		expect(footer(pi)).toBeUndefined();
		await pi.type(`/mailbox ${peer.address} one`);
		await pi.type(`/mailbox ${peer.address} two`);
		expect(footer(pi)).toBe("✉ 2 awaiting");
		peer.send(pi, reply);
		await later(1000);
		expect(footer(pi)).toBe("✉ 1 read · 2 awaiting");
		const inReplyTo = [peer.received()[0]?.id ?? ""];
		const during = async () => {
			peer.send(pi, { kind: "message", inReplyTo });
			await later(1000);
			expect(footer(pi)).toBe("✉ 1 pending · 1 read · 2 awaiting");
		};
		await pi.run({ prompt: "speak", during });
		await later(1000);
		await pi.run();
		expect(footer(pi)).toBe("✉ 2 read · 2 awaiting");
		peer.send(pi, { ...reply, inReplyTo });
		await later(1000);
		expect(footer(pi)).toBe("✉ 3 read · 1 awaiting");
		await pi.emit("session_shutdown", { reason: "quit" });
		expect(footer(pi)).toBeUndefined();
	});

	test("L10 is written when it changes, and not at every look", async () => {
		const pi = await seasonedPi();
		const shown = vi.spyOn(pi.status, "set");
		await pi.type(`/mailbox ${peer.address} one`);
		await later(10_000);
		expect(shown.mock.calls).toEqual([["mailbox", "✉ 1 awaiting"]]);
	});

	test("survives a restart, a /reload and a lost state.json", async () => {
		const pi = await seasonedPi();
		await pi.type(`/mailbox ${peer.address} one`);
		peer.send(pi, reply);
		await later(1000);
		await pi.reload();
		await later(0);
		expect(footer(pi)).toBe("✉ 1 read · 1 awaiting");
		await pi.kill();
		rmSync(join(mailRoot(), pi.address, "state.json"));
		const again = await startFakePi({ file: pi.file });
		await later(0);
		expect(footer(again)).toBe("✉ 1 read · 1 awaiting");
	});

	test("an answer that has come is not awaited any more, though the model has not seen it", async () => {
		const pi = await seasonedPi();
		await pi.type(`/mailbox ${peer.address} one`);
		const during = async () => {
			peer.send(pi, { ...reply, inReplyTo: [peer.received()[0]?.id ?? ""] });
			await later(1000);
			expect(footer(pi)).toBe("✉ 1 pending");
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1, during }], during: () => expect(footer(pi)).toBe("✉ 1 read") });
	});

	test("L4 an answer that was in the conversation when Pi was killed is not awaited afterwards", async () => {
		const first = await seasonedPi();
		await first.type(`/mailbox ${peer.address} one`);
		await later(1000);
		const during = () => peer.send(first, { ...reply, inReplyTo: [peer.received()[0]?.id ?? ""] });
		const { emit } = FakePi.prototype;
		const spy = vi.spyOn(first, "emit");
		const killAtNextTurn = async () => {
			await during();
			spy.mockImplementation(async (type, fields) =>
				type === "turn_start" ? first.kill() : emit.call(first, type, fields),
			);
		};
		await first.run({ prompt: "work", turns: [{ tools: 1, during: killAtNextTurn }] });
		const pi = await startFakePi({ file: first.file });
		await later(1000);
		expect([pi.mails().length, footer(pi)]).toEqual([1, "✉ 1 read"]);
	});
});

describe("D20 without a person at the session", () => {
	test.each(["print", "json"] as const)(
		"%s mode: mail enters where a request is due anyway, and its sender gets an answer",
		async (mode) => {
			const pi = await startFakePi({ mode });
			const [first] = [peer.send(pi), later(0)];
			await pi.run({ prompt: "work", turns: [{ tools: 1, during: () => later(0) }], text: "All is well." });
			expect(pi.mails().map(({ id }) => id)).toEqual([first]);
			expect(peer.received()).toMatchObject([{ in_reply_to: [first], body: "All is well." }]);
			expect([pi.sent, pi.openCount]).toEqual([[], 0]);
		},
	);

	test.each([
		["print", 60_000],
		["json", 60_000],
		// Before the session has looked at what was left open.
		["print", 0],
	] as const)(
		"%s mode: mail never starts a run, and stays in new/ (the prompt comes after %i ms)",
		async (mode, ms) => {
			const pi = await startFakePi({ mode });
			peer.send(pi);
			peer.send(pi, reply);
			// The prompt of `pi -p` may be long in coming: other extensions handle it first.
			if (ms > 0) await later(ms);
			expect(pi.hasRunToPlay).toBe(false);
			await pi.run({ prompt: "speak", during: () => later(2000) });
			await later(60_000);
			expect([pi.sent, pi.names("new").length, pi.names("cur")]).toEqual([[], 2, []]);
			// Nobody has to hear of new mail at once.
			expect(seams.watchers).toEqual([]);
		},
	);

	test("warnings go to the error output", async () => {
		const error = vi.spyOn(console, "error").mockImplementation(() => {});
		const pi = await startFakePi({ mode: "print" });
		writeFileSync(join(mailRoot(), pi.address, "new", "1.json"), "{");
		await later(0);
		await pi.run({ prompt: "work", turns: [{ tools: 1 }] });
		expect(error.mock.calls).toEqual([
			[expect.stringMatching(/^mailbox: .*1\.json cannot be delivered and was set aside/)],
		]);
	});
});

describe("warnings", () => {
	test.skipIf(process.platform === "win32")(
		"PSM-007 an address folder that others can look into is named at the start, and not changed",
		async () => {
			const first = await startFakePi();
			const folder = join(mailRoot(), first.address);
			await first.shutDown();
			chmodSync(folder, 0o750);
			const pi = await startFakePi({ id: first.address });
			expect(pi.notifications).toEqual([
				`mailbox: other users can look into this session's mailbox; run: chmod 700 ${folder}`,
			]);
			expect(statSync(folder).mode & 0o777).toBe(0o750);
		},
	);

	test("PSM-017 mail that cannot be read is named once, and later mail comes", async () => {
		const pi = await seasonedPi();
		writeFileSync(join(mailRoot(), pi.address, "new", "000000000000001-x.json"), "{");
		peer.send(pi);
		await later(10_000);
		expect(pi.hasRunToPlay).toBe(true);
		expect(pi.notifications).toEqual([
			expect.stringMatching(/1-x\.json cannot be delivered and was set aside: it is not JSON/),
		]);
	});

	test("what an earlier process left unreadable or unsent is named at the start", async () => {
		const pi = await seasonedPi();
		await pi.shutDown();
		const folder = join(mailRoot(), pi.address);
		writeFileSync(join(folder, "cur", "1.json"), "{");
		writeFileSync(join(folder, "cur", "1.json.open"), "");
		writeFileSync(join(folder, "sent", "2.json.part"), "{");
		const again = await startFakePi({ file: pi.file });
		await later(0);
		expect(again.notifications).toEqual([
			expect.stringMatching(/1\.json cannot be delivered and was set aside: it is not JSON/),
			expect.stringMatching(
				/a mail was not sent, since the session ended while it was being written \(2\.json\); send it again/,
			),
		]);
	});

	test("a fault of the disk is named once, ends nothing, and is over when the disk is well", async () => {
		const pi = await seasonedPi();
		before = ({ name, paths }) => name === "create" && paths[0]?.includes("/cur/") && fail("ENOSPC");
		peer.send(pi);
		await later(10_000);
		expect(pi.notifications).toEqual([expect.stringMatching(/could not be taken in and will be tried again: ENOSPC/)]);
		before = () => {};
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
	});
});

test("L5 folders that were made again are watched, and those that were there before not any more", async () => {
	const pi = await seasonedPi();
	rmSync(join(mailRoot(), pi.address), { recursive: true });
	await later(5000);
	expect(seams.watchers.map((watcher) => watcher.closed)).toEqual([true, false]);
});

test("D15 what a crash left half written is removed by the first start that finds it 36 hours old", async () => {
	const pi = await seasonedPi();
	const folder = join(mailRoot(), pi.address);
	const left = [
		...["tmp/1.json", "cur/2.json.open.123", "cur/2.json.reason.123", "sent/3.receipt.123", "state.json.123"],
		...["calls/call-aaaaaaaaaaaaaaaa.json.123", "results/call-aaaaaaaaaaaaaaaa.json.123"],
	];
	const others = ["tmp/folder", "cur/4.json", "sent/5.json", "results/call-bbbbbbbbbbbbbbbb.json", "state.json"];
	const present = () => [...left, ...others].filter((name) => existsSync(join(folder, name)));
	await pi.shutDown();
	for (const name of ["tmp/folder", "calls", "results"]) mkdirSync(join(folder, name));
	for (const name of [...left, ...others.slice(1)]) writeFileSync(join(folder, name), "");
	// Files have the real time.
	for (const ageHours of [35, 37]) {
		vi.setSystemTime(Date.now() + 1);
		const { ctimeMs } = statSync(join(folder, "tmp/1.json"));
		vi.setSystemTime(ctimeMs + ageHours * 60 * 60 * 1000);
		const again = await startFakePi({ file: pi.file });
		await later(2000);
		expect(present()).toEqual(ageHours === 35 ? [...left, ...others] : others);
		await again.shutDown();
	}
});

test("D12 a request that cannot be read is answered failed, once, also when Pi ends in the middle of that", async () => {
	const id = "11111111-2222-4333-8444-555555555555";
	for (const box of ["new", "cur"]) {
		const pi = await seasonedPi();
		const file = join(mailRoot(), pi.address, box, "000000000000001-x.json");
		await pi.shutDown();
		writeFileSync(file, envelopeText({ id, from: peer.address, to: pi.address, hops: -1 }));
		if (box === "cur") writeFileSync(`${file}.open`, "");
		before = ({ name, paths }) => name === "replace" && paths[0]?.endsWith(".reason") && fail("EIO");
		const killed = await startFakePi({ file: pi.file });
		await later(2000);
		await killed.kill();
		before = () => {};
		for (const _ of [1, 2]) {
			const again = await startFakePi({ file: pi.file });
			await later(2000);
			await again.shutDown();
		}
		expect(peer.received().map((reply) => [reply.in_reply_to, reply.status])).toEqual([[[id], "failed"]]);
		expect(peer.received()[0]?.body).toMatch(/^\(This mail could not be handed over: invalid hops -1\. Send it again/);
		expect(existsSync(join(mailRoot(), pi.address, "cur", "000000000000001-x.json.reason"))).toBe(true);
		expect(pi.openCount).toBe(0);
		peer = makePeer("01980f5e-7a3c-7d10-8f00-0000000000ab");
	}
});

test("D12 L3 a request that cannot be read is answered before it is set aside", async () => {
	const pi = await seasonedPi();
	const answers: number[] = [];
	before = ({ name, paths }) => {
		if (name === "replace" && paths[0]?.endsWith(".reason")) answers.push(peer.received().length);
	};
	const text = envelopeText({ from: peer.address, to: pi.address, hops: -1 });
	writeFileSync(join(mailRoot(), pi.address, "new", "000000000000001-x.json"), text);
	await later(1000);
	expect(answers).toEqual([1]);
});

test.each([
	["a mail that cannot be read for the moment", "read", "-x.json", {}, ""],
	["a dead mail that cannot be set aside for the moment", "replace", "-x.json.reason", { hops: -1 }, ""],
	["a mail given up that cannot be set aside for the moment", "replace", "-x.json.reason", {}, "3"],
] as const)(
	"L2 a start that meets %s goes on with the rest, and looks again",
	async (_, operation, end, fields, tries) => {
		const pi = await seasonedPi();
		await pi.shutDown();
		const folder = join(mailRoot(), pi.address);
		const file = join(folder, "cur", "000000000000001-x.json");
		writeFileSync(file, envelopeText({ from: peer.address, to: pi.address, ...fields }));
		writeFileSync(`${file}.open`, tries);
		writeFileSync(join(folder, "sent", "2.json.part"), "{");
		before = ({ name, paths }) => name === operation && paths[0]?.endsWith(end) && fail("EIO");
		const again = await startFakePi({ file: pi.file });
		await later(5000);
		const said = again.notifications.join("\n");
		expect(said).toMatch(/-x\.json .*will be tried again: EIO/);
		expect(said).toMatch(/a mail was not sent/);
		expect([again.hasRunToPlay, again.openCount]).toEqual([false, 1]);
		before = () => {};
		await later(31_000);
		expect([again.hasRunToPlay, again.openCount]).toEqual(operation === "read" ? [true, 1] : [false, 0]);
	},
);

test("L2 a start that cannot look at all that was left open looks again, and hands it over then", async () => {
	const pi = await seasonedPi();
	await pi.shutDown();
	const name = "000000000000001-x.json";
	writeFileSync(join(mailRoot(), pi.address, "cur", name), envelopeText({ from: peer.address, to: pi.address }));
	writeFileSync(join(mailRoot(), pi.address, "cur", `${name}.open`), "");
	before = ({ name, paths }) => name === "walk" && paths[0]?.endsWith("/cur") && fail("EIO");
	const again = await startFakePi({ file: pi.file });
	await later(5000);
	expect([again.mails(), again.notifications]).toEqual([[], [expect.stringMatching(/EIO/)]]);
	before = () => {};
	await later(31_000);
	await again.run();
	expect(again.mails()).toHaveLength(1);
});

test("D18 a start that looks again at what was left open does not take it for a restart in the run that goes on", async () => {
	const pi = await seasonedPi();
	await pi.shutDown();
	before = ({ name, paths }) => name === "walk" && paths[0]?.endsWith("/cur") && fail("EIO");
	const again = await startFakePi({ file: pi.file });
	await later(2000);
	before = () => {};
	peer.send(again, { kind: "ask" });
	await later(1000);
	await again.run({ turns: [{ tools: 1, during: () => later(31_000) }], text: "All is well." });
	expect(peer.received().map(({ status, body }) => [status, body])).toEqual([["done", "All is well."]]);
});

test.each([false, true])(
	"D18 a /reload is no restart: what waits for an answer is not failed (the session's file has more: %s)",
	async (hasMore) => {
		const pi = await seasonedPi();
		pi.events.on("message:inbound", (payload) => Object.assign(payload as object, { handled: true }));
		const id = peer.send(pi, { kind: "ask" });
		await later(1000);
		// What another process added, before this one had the session.
		if (hasMore) SessionManager.open(pi.file).appendCustomEntry("other", {});
		await pi.reload();
		await fileIsRead(pi);
		await later(2000);
		expect(peer.received()).toEqual([]);
		await pi.run({ prompt: "go on", text: "All is well." });
		expect(peer.received()).toMatchObject([{ in_reply_to: [id], status: "done", body: "All is well." }]);
	},
);

/** The session's file is being read meanwhile, for real. */
async function fileIsRead(pi: FakePi): Promise<void> {
	for (let n = 0; n < 10; n++) await stat(pi.file);
}

describe("mail that was left open", () => {
	/** Starts a session that finds so much of it, where another extension takes 4 ms for each mail; how many it was offered in each turn of the event loop. */
	async function turnsAfterStart(count: number): Promise<{ pi: FakePi; turns: number[] }> {
		const earlier = await seasonedPi();
		await earlier.kill();
		const cur = join(mailRoot(), earlier.address, "cur");
		for (let n = 0; n < count; n++) {
			const name = `${String(n).padStart(15, "0")}-x.json`;
			const id = `11111111-2222-4333-8444-${String(n).padStart(12, "0")}`;
			writeFileSync(join(cur, name), envelopeText({ id, from: peer.address, to: earlier.address }));
			writeFileSync(join(cur, `${name}.open`), "");
		}
		let clockMs = 0;
		const clock = vi.spyOn(performance, "now").mockImplementation(() => clockMs);
		const pi = new FakePi({ file: earlier.file });
		let offered = 0;
		pi.events.on("message:inbound", () => {
			clockMs += 4;
			offered++;
		});
		await pi.start();
		const turns: number[] = [];
		for (let turn = 0; turn < 100; turn++) {
			offered = 0;
			vi.advanceTimersToNextTimer();
			if (offered > 0) turns.push(offered);
		}
		clock.mockRestore();
		return { pi, turns };
	}

	test("L10 is taken in at once when it is little", async () => {
		expect((await turnsAfterStart(3)).turns).toEqual([3]);
	});

	test("L2, L10 is taken in without holding the event loop for more than 20 ms when it is much, and all of it comes", async () => {
		const { pi, turns } = await turnsAfterStart(100);
		expect(Math.max(...turns)).toBeLessThanOrEqual(4);
		expect(turns.reduce((sum, offered) => sum + offered)).toBe(100);
		await pi.discover();
		await later(1000);
		for (let run = 0; run < 10 && pi.hasRunToPlay; run++) {
			await pi.run();
			await later(1000);
		}
		expect(new Set(pi.mails().map(({ id }) => id)).size).toBe(100);
		expect(pi.openCount).toBe(0);
	});
});

test("L7 a thousand files that cannot be read, before a good mail: it comes, and no look takes more than twenty of them", async () => {
	const pi = await seasonedPi();
	const id = peer.send(pi);
	for (let n = 0; n < 1000; n++) {
		writeFileSync(join(mailRoot(), pi.address, "new", `${String(n).padStart(15, "0")}-x.json`), "{");
	}
	let claims = 0;
	let most = 0;
	before = ({ name, paths }) => {
		if (name !== "rename" || !paths[0]?.includes("/new/")) return;
		most = Math.max(most, ++claims);
		// Before that, nothing else of the process can go on.
		queueMicrotask(() => {
			claims = 0;
		});
	};
	for (let n = 0; n < 500 && !pi.hasRunToPlay; n++) await later(10);
	await pi.run();
	expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
	expect(most).toBeLessThanOrEqual(20);
});

/** What a full disk leaves of a line that Pi could not write as a whole. */
const tear = (pi: FakePi) => appendFileSync(pi.session.getSessionFile() ?? "", '{"type":"custom_message","customTy');
const saved = (pi: FakePi) =>
	SessionManager.open(pi.session.getSessionFile() ?? "")
		.getEntries()
		.map((entry) => JSON.stringify(entry))
		.join("\n");

test("L1 a line of the session's file that a full disk cut short takes no mail and no note with it", async () => {
	const pi = await seasonedPi();
	tear(pi);
	const id = peer.send(pi, { kind: "reply", status: "done" });
	await later(1000);
	expect(saved(pi)).toMatch(new RegExp(`"customType":"mailbox".*"id":"${id}"`));
	tear(pi);
	await pi.type("/mailbox off");
	expect(saved(pi)).toMatch(/"type":"receiving"/);
});

test("L1 nor does one that was cut short at the end of a turn", async () => {
	let isFull = false;
	const other = (api: Parameters<typeof sessionMail>[0]) => api.on("turn_end", () => void (isFull && tear(pi)));
	const pi: FakePi = await seasonedPi({ extensions: [other, sessionMail] });
	isFull = true;
	let id = "";
	const during = () => {
		id = peer.send(pi);
	};
	await pi.run({ prompt: "work", turns: [{ tools: 1, during }], text: "fine" });
	expect(saved(pi)).toMatch(new RegExp(`"customType":"mailbox".*"id":"${id}"`));
});

test("D12 a session without a file that dies when it has answered what it sets aside does not answer it twice", async () => {
	const first = await startFakePi();
	await later(2000);
	const id = peer.send(first);
	const box = (name: string) => join(mailRoot(), first.address, name);
	const [name = ""] = readdirSync(box("new"));
	writeFileSync(
		join(box("new"), name),
		JSON.stringify({ id, from: peer.address, to: first.address, kind: "request", hops: -1 }),
	);
	await later(2000);
	expect(peer.received()).toHaveLength(1);
	await first.kill();
	// What its death before the mail was buried leaves.
	rmSync(join(box("cur"), `${name}.reason`));
	writeFileSync(join(box("cur"), `${name}.open`), "");
	await startFakePi({ id: first.address });
	await later(2000);
	expect(readdirSync(box("cur"))).toContain(`${name}.reason`);
	expect(peer.received()).toHaveLength(1);
});

describe("D7 what another process of a session got an answer to, meanwhile,", () => {
	const alive = process.ppid;
	const dead = 2 ** 22 + 1;

	function layRecord(address: string, pid: number): void {
		const fields = { address, cwd: "/", pid, state: "idle", waitingOn: "", updated: new Date().toISOString() };
		writeFileSync(recordPath(address), JSON.stringify(fields));
	}

	async function sendFrom(pi: FakePi): Promise<void> {
		await pi.type(`/mailbox ${peer.address} please`);
		expect(footer(pi)).toBe("✉ 1 awaiting");
	}

	/** The other process gets the answer. */
	function answerOther(pi: FakePi): void {
		const box = (name: string) => join(mailRoot(), pi.address, name);
		peer.send(pi, { ...reply, inReplyTo: [peer.received()[0]?.id ?? ""] });
		for (const name of readdirSync(box("new"))) renameSync(join(box("new"), name), join(box("cur"), name));
	}

	/** A second process of a session that has a file. */
	async function secondPi(): Promise<FakePi> {
		const first = await seasonedPi();
		await first.shutDown();
		layRecord(first.address, alive);
		const pi = await startFakePi({ file: first.file });
		await later(1000);
		return pi;
	}

	test("is not awaited by the one that takes over", async () => {
		const pi = await secondPi();
		await sendFrom(pi);
		answerOther(pi);
		layRecord(pi.address, dead);
		await later(2000);
		await fileIsRead(pi);
		await later(2000);
		expect(footer(pi)).toBeUndefined();
	});

	test("is not awaited by one that takes over as soon as it has started", async () => {
		const first = await seasonedPi();
		await sendFrom(first);
		await first.shutDown();
		layRecord(first.address, alive);
		answerOther(first);
		const pi = await startFakePi({ file: first.file });
		layRecord(pi.address, dead);
		await later(2000);
		await fileIsRead(pi);
		await later(2000);
		expect(footer(pi)).toBeUndefined();
	});

	test.each(["shutDown", "kill"] as const)(
		"is not awaited by the next start, after the one that had lost the address has ended as well (%s)",
		async (end) => {
			const first = await seasonedPi();
			await sendFrom(first);
			layRecord(first.address, alive);
			await later(2000);
			answerOther(first);
			await first[end]();
			layRecord(first.address, dead);
			const pi = await startFakePi({ file: first.file });
			await later(2000);
			expect(footer(pi)).toBeUndefined();
		},
	);
});

test("L10 no timer of a session keeps its process alive", async () => {
	const spies = [vi.spyOn(globalThis, "setTimeout"), vi.spyOn(globalThis, "setInterval")];
	before = ({ name, paths }) => name === "walk" && paths[0]?.endsWith("/cur") && fail("EIO");
	const pi = await startFakePi({ mode: "tui" });
	await pi.run({ prompt: "hello" });
	peer.send(pi);
	await later(3000);
	const timers: NodeJS.Timeout[] = spies.flatMap((spy) => spy.mock.results.map(({ value }) => value));
	expect(timers.length).toBeGreaterThan(5);
	expect(timers.filter((timer) => timer.hasRef()).map(String)).toEqual([]);
});

describe("after the end of a session", () => {
	test("PSM-045, L10 nothing is delivered, and no timer or watcher is left", async () => {
		const pi = await startFakePi();
		await later(0);
		peer.send(pi);
		await pi.run({ prompt: "speak" });
		// What the settle put off until the next turn of the event loop must not happen.
		await pi.shutDown();
		await later(60_000);
		expect([pi.sent, pi.names("new").length, vi.getTimerCount()]).toEqual([[], 1, 0]);
		expect(seams.watchers.map((watcher) => watcher.closed)).toEqual([true]);
	});

	test("PSM-045 nothing more is delivered when it ends between two looks at much mail", async () => {
		const pi = await seasonedPi();
		let ended: Promise<void> | undefined;
		pi.events.on("message:inbound", () =>
			queueMicrotask(() => {
				ended ??= pi.shutDown();
			}),
		);
		for (let n = 0; n < 25; n++) peer.send(pi, reply);
		await later(1000);
		await ended;
		await later(2000);
		expect([pi.sent.length, pi.names("new").length, existsSync(recordPath(pi.address))]).toEqual([20, 5, false]);
	});

	test("PSM-045 nothing is delivered while other extensions still hear of it", async () => {
		const pi = await startFakePi();
		peer.send(pi);
		await pi.run({ prompt: "speak" });
		await pi.emit("session_shutdown", { reason: "quit" });
		await later(2000);
		expect([pi.sent, pi.names("new").length, existsSync(recordPath(pi.address))]).toEqual([[], 1, false]);
	});

	test("PSM-044 what an earlier process left is not taken in, and comes at the next start", async () => {
		let pi = await seasonedPi();
		const id = peer.send(pi);
		await later(1000);
		await pi.kill();
		pi = await startFakePi({ file: pi.file });
		await pi.shutDown();
		await later(60_000);
		expect([pi.sent, pi.openCount]).toEqual([[], 1]);
		pi = await startFakePi({ file: pi.file });
		await later(1000);
		await pi.run();
		expect([pi.mails().map((mail) => mail.id), pi.openCount]).toEqual([[id], 0]);
	});

	test("PSM-045 mail with which Pi ended three times is not set aside any more", async () => {
		const first = await seasonedPi();
		// It would be set aside without a word to anybody.
		peer.send(first, { kind: "message" });
		await later(1000);
		await first.kill();
		const [mark = ""] = first.names("cur").filter((name) => name.endsWith(".open"));
		writeFileSync(join(mailRoot(), first.address, "cur", mark), "3");
		const pi = await startFakePi({ file: first.file });
		await pi.shutDown();
		await later(10_000);
		expect([pi.openCount, pi.names("cur").length]).toEqual([1, 2]);
	});

	test("L10 no timer is left when it ends before mail may wake it", async () => {
		const pi = await startFakePi();
		await later(10);
		await pi.shutDown();
		expect(vi.getTimerCount()).toBe(0);
	});

	test("L10 no timer is left when it ends before it looks again at what was left open", async () => {
		const first = await seasonedPi();
		await first.shutDown();
		before = ({ name, paths }) => name === "walk" && paths[0]?.endsWith("/cur") && fail("EIO");
		const pi = await startFakePi({ file: first.file });
		await later(10_000);
		await pi.shutDown();
		expect(vi.getTimerCount()).toBe(0);
	});

	test("PSM-045 a second end changes nothing", async () => {
		const pi = await seasonedPi();
		await pi.emit("session_shutdown", { reason: "quit" });
		const next = await startFakePi({ file: pi.file });
		await pi.shutDown();
		expect(record(next).pid).toBe(process.pid);
	});

	test("L10 a host that forgets session_shutdown does not have its process ended by our timers", async () => {
		const pi = await seasonedPi();
		peer.send(pi);
		pi.dispose();
		await later(10_000);
		expect([pi.sent, pi.names("new").length]).toEqual([[], 1]);
		expect([vi.getTimerCount(), existsSync(recordPath(pi.address))]).toEqual([0, false]);
	});

	test("L10 nor does one that does so before the gate opens, without a person", async () => {
		const pi = await startFakePi({ mode: "print" });
		await later(10);
		pi.dispose();
		await later(10_000);
		expect([vi.getTimerCount(), existsSync(recordPath(pi.address))]).toEqual([0, false]);
	});

	test("L10 nor does one that does so while an ask waits, without a person", async () => {
		const asked = await startFakePi();
		const pi = await seasonedPi({ mode: "print" });
		const args = { to: asked.address, message: "well?" };
		const during = async () => {
			await later(0);
			expect(asked.names("new")).toHaveLength(1);
			pi.dispose();
			await later(10_000);
		};
		await pi.run({ prompt: "go", turns: [{ tools: [{ name: "session_mail_ask", args }], during }] });
		expect(existsSync(recordPath(pi.address))).toBe(false);
	});

	test("L10 nor does one that does so while the session takes in what an earlier process left", async () => {
		const first = await seasonedPi();
		peer.send(first);
		await later(1000);
		await first.kill();
		const pi = await startFakePi({ file: first.file });
		pi.dispose();
		await later(10_000);
		expect(pi.openCount).toBe(1);
	});
});

describe("L1 mail that a process had claimed when it ended", () => {
	test("is handed over again when the conversation does not hold it, before newer mail", async () => {
		let pi = await seasonedPi();
		const ids = [peer.send(pi), peer.send(pi)];
		// Pi appends all but the last at once.
		await later(1000);
		await pi.kill();
		await later(10);
		ids.push(peer.send(pi));
		pi = await startFakePi({ file: pi.file });
		await later(1000);
		await pi.run();
		await later(60_000);
		expect([pi.mails().map((mail) => mail.id), pi.openCount, pi.isIdle]).toEqual([ids, 0, true]);
	});

	test("comes first also when a run is faster than the look at what is left", async () => {
		let pi = await seasonedPi();
		const ids = [peer.send(pi)];
		await later(1000);
		await pi.kill();
		ids.push(peer.send(pi));
		pi = await startFakePi({ file: pi.file });
		const during = async () => {
			expect(pi.mails()).toEqual([]);
			await later(0);
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1 }, { tools: 1, during }] });
		expect(pi.mails().map((mail) => mail.id)).toEqual(ids);
	});

	test("D17 comes first also when the user stops a run before the look at what is left", async () => {
		let pi = await seasonedPi();
		await pi.shutDown();
		const id = peer.send(pi);
		pi = await startFakePi({ file: pi.file });
		await pi.run({ prompt: "work", end: "aborted" });
		expect([pi.names("new").length, peer.received()]).toEqual([1, []]);
		await later(1000);
		await pi.run();
		expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
	});

	test("is handed over again after a /reload while Pi could not start its run", async () => {
		const pi = await seasonedPi();
		const id = peer.send(pi);
		await later(1000);
		pi.failToStart();
		await pi.reload();
		await later(1000);
		await pi.run();
		expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
	});

	test("keeps its open mark when the session cannot write what it settles at the start", async () => {
		const first = await seasonedPi();
		peer.send(first, { kind: "ask" });
		await later(1000);
		const during = async () => {
			peer.send(first, reply);
			await later(1000);
			await first.kill();
		};
		await first.run({ turns: [{ tools: 1, during }] });
		const pi = new FakePi({ file: first.file });
		vi.spyOn(pi.session, "appendCustomEntry").mockImplementationOnce(() => fail("ENOSPC"));
		await pi.start();
		await later(0);
		expect([pi.mails().length, pi.openCount]).toEqual([1, 1]);
		await pi.discover();
		await later(1000);
		expect([pi.mails().length, pi.openCount]).toEqual([2, 0]);
	});

	test("a copy of a request that cannot be looked up for the moment does not keep its reply back", async () => {
		const pi = await seasonedPi();
		const copies = join(mailRoot(), pi.address, "sent");
		const ids = [peer.send(pi, { ...reply, inReplyTo: ["01980f5e-7a3c-4d10-8f00-000000000001"] }), peer.send(pi)];
		before = ({ name, paths }) => name === "list" && paths[0] === copies && fail("EIO");
		await later(5000);
		expect(pi.hasRunToPlay).toBe(true);
		await pi.run();
		expect(pi.mails().map((mail) => mail.id)).toEqual(ids);
	});

	test("L4 an answer whose request could not be looked up for the moment is not awaited after the next start", async () => {
		const pi = await seasonedPi();
		await pi.type(`/mailbox ${peer.address} one`);
		const copies = join(mailRoot(), pi.address, "sent");
		before = ({ name, paths }) => name === "read" && paths[0]?.startsWith(copies) && fail("EIO");
		peer.send(pi, { ...reply, inReplyTo: [peer.received()[0]?.id ?? ""] });
		await later(1000);
		expect(footer(pi)).toBe("✉ 1 read · 1 awaiting");
		before = () => {};
		await pi.shutDown();
		const again = await startFakePi({ file: pi.file });
		await later(1000);
		expect(footer(again)).toBe("✉ 1 read");
	});
});

test("L1 D12 a session without a file that ends well, however often, keeps its mail: only crashes count", async () => {
	let pi = await startFakePi();
	const id = peer.send(pi, { kind: "reply", status: "done" });
	for (let n = 0; n < 6; n++) {
		await later(2000);
		expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
		await (n === 2 ? pi.kill() : pi.shutDown());
		pi = await startFakePi({ id: pi.address });
	}
	await pi.run({ prompt: "hello" });
	await later(2000);
	expect([pi.mails().length, pi.openCount]).toEqual([1, 0]);
});

describe("D12 mail with which Pi ended three times", () => {
	/** Starts and kills the session until the mail is no longer handed over; says how often it was. */
	async function killUntilSetAside(first: FakePi): Promise<{ pi: FakePi; handovers: number }> {
		let pi = first;
		for (let handovers = 0; ; handovers++) {
			await later(1000);
			if (!pi.hasRunToPlay || handovers > 10) return { pi, handovers };
			await pi.kill();
			pi = await startFakePi({ file: pi.file });
		}
	}

	test("is set aside with its reason, and a warning names it", async () => {
		const first = await seasonedPi();
		peer.send(first);
		const { pi, handovers } = await killUntilSetAside(first);
		expect(pi.names("cur")).toEqual([expect.stringMatching(/\.json$/), expect.stringMatching(/\.json\.reason$/)]);
		expect(pi.notifications).toEqual([
			expect.stringMatching(/was set aside: Pi ended 3 times before this mail was in the conversation/),
		]);
		expect(handovers).toBe(3);
		peer.send(pi);
		await later(1000);
		expect(pi.hasRunToPlay).toBe(true);
	});

	test.each(["request", "ask"] as const)("L3 its sender gets an answer to the %s", async (kind) => {
		const first = await seasonedPi();
		const id = peer.send(first, { kind });
		await killUntilSetAside(first);
		expect(peer.received()).toMatchObject([{ in_reply_to: [id], status: "failed" }]);
	});

	test("is not set aside when it was in the conversation all the same", async () => {
		let pi = await seasonedPi();
		const id = peer.send(pi);
		await later(1000);
		await pi.kill();
		const [name = ""] = pi.names("cur").filter((other) => other.endsWith(".open"));
		writeFileSync(join(mailRoot(), pi.address, "cur", name), "3");
		const details = {
			mail: { address: pi.address, id, from: peer.address, kind: "request", hops: 0, inReplyTo: [], file: name },
		};
		SessionManager.open(pi.file).appendCustomMessageEntry("mailbox", "please", true, details);
		pi = await startFakePi({ file: pi.file });
		await later(1000);
		expect([pi.openCount, pi.notifications, pi.names("cur").length]).toEqual([0, [], 1]);
	});

	test("is set aside also when it lies there twice: the ends with either count", async () => {
		const first = await seasonedPi();
		await first.shutDown();
		for (const name of ["1-x.json", "2-x.json"]) {
			const file = join(mailRoot(), first.address, "cur", name);
			writeFileSync(file, envelopeText({ from: peer.address, to: first.address }));
			writeFileSync(`${file}.open`, "1");
		}
		const pi = await startFakePi({ file: first.file });
		await later(2000);
		expect([pi.hasRunToPlay, pi.openCount]).toEqual([false, 0]);
		expect(peer.received()).toMatchObject([{ status: "failed" }]);
	});

	test("a run that Pi could not start is no end", async () => {
		let pi = await seasonedPi();
		peer.send(pi);
		await later(1000);
		await pi.kill();
		pi = await startFakePi({ file: pi.file });
		await later(1000);
		for (let n = 0; n < 4; n++) {
			pi.failToStart();
			await later(20_000);
		}
		await pi.kill();
		pi = await startFakePi({ file: pi.file });
		await later(1000);
		expect([pi.hasRunToPlay, pi.notifications]).toEqual([true, []]);
	});

	test("a quit before Pi has begun its run is no end", async () => {
		let pi = await seasonedPi();
		peer.send(pi);
		for (let n = 0; n < 6; n++) {
			await later(2000);
			expect(pi.hasRunToPlay).toBe(true);
			await (n === 2 ? pi.kill() : pi.shutDown());
			pi = await startFakePi({ file: pi.file });
		}
	});

	test("a /reload is no end", async () => {
		const pi = await seasonedPi();
		peer.send(pi);
		await later(1000);
		for (let n = 0; n < 5; n++) {
			pi.failToStart();
			await pi.reload();
			await later(1000);
			expect(pi.hasRunToPlay).toBe(true);
		}
	});
});

test("D12 a /reload is no end, also after two that were", async () => {
	const pi = await seasonedPi();
	peer.send(pi);
	await later(1000);
	pi.failToStart();
	const [mark = ""] = pi.names("cur").filter((name) => name.endsWith(".open"));
	writeFileSync(join(mailRoot(), pi.address, "cur", mark), "2");
	await pi.reload();
	await later(1000);
	expect([pi.hasRunToPlay, pi.openCount]).toEqual([true, 1]);
});

describe("D7 while another process has the session open", () => {
	/** Lays the record of a process that lives, of one that does not, or none. */
	function layRecord(pi: Pick<FakePi, "address">, pid: number): void {
		mkdirSync(dirname(recordPath(pi.address)), { recursive: true });
		const fields = {
			address: pi.address,
			cwd: "/other",
			pid,
			state: "idle",
			waitingOn: "",
			updated: "2026-11-29T11:00:00.000Z",
		};
		writeFileSync(recordPath(pi.address), JSON.stringify(fields));
	}

	async function secondPi(): Promise<FakePi> {
		const first = await seasonedPi();
		await first.shutDown();
		layRecord(first, process.ppid);
		const pi = await startFakePi({ file: first.file });
		await later(1000);
		return pi;
	}

	/** Loses the address while it runs. */
	async function losingPi(): Promise<FakePi> {
		const pi = await seasonedPi();
		layRecord(pi, process.ppid);
		await later(2000);
		return pi;
	}

	test("this one says so once, can send, claims nothing, answers nothing and leaves the record alone", async () => {
		const pi = await secondPi();
		peer.send(pi);
		peer.send(pi, reply);
		await later(10_000);
		await pi.run({ prompt: "work", turns: [{ tools: 1, during: () => later(1000) }], end: "aborted" });
		await pi.type(`/mailbox ${peer.address} please`);
		await later(1000);
		expect(pi.notifications).toEqual([
			expect.stringMatching(new RegExp(`process ${process.ppid} has this session open as well and receives its mail`)),
			expect.stringMatching(/^Sent /),
		]);
		expect([pi.names("new").length, pi.names("cur"), pi.mails()]).toEqual([2, [], []]);
		expect([footer(pi), record(pi).pid, peer.received().length]).toEqual(["✉ 1 awaiting", process.ppid, 1]);
		await pi.shutDown();
		expect(record(pi).pid).toBe(process.ppid);
	});

	test("this one answers nothing, at its start or at a settle, that the other owes", async () => {
		const first = await seasonedPi();
		peer.send(first, { kind: "ask" });
		peer.send(first);
		await later(1000);
		await first.run({ turns: [{ tools: 1, during: () => first.kill() }] });
		layRecord(first, process.ppid);
		const pi = await startFakePi({ file: first.file });
		await later(1000);
		await pi.run({ prompt: "hello" });
		await pi.shutDown();
		expect([pi.mails().length, peer.received()]).toEqual([2, []]);
	});

	test("one that loses the address in a run gives and claims nothing more", async () => {
		const pi = await seasonedPi();
		const during = async () => {
			layRecord(pi, process.ppid);
			peer.send(pi);
			peer.send(pi, reply);
			await later(2000);
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1, during }] });
		await later(2000);
		expect([pi.mails(), pi.names("new").length, pi.isIdle]).toEqual([[], 2, true]);
	});

	test("L4 one that loses the address shows no mail as pending that the other receives", async () => {
		const pi = await seasonedPi();
		const during = async () => {
			peer.send(pi);
			await later(1000);
			expect(footer(pi)).toBe("✉ 1 pending");
			layRecord(pi, process.ppid);
			await later(1000);
			expect(footer(pi)).toBeUndefined();
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1, during }] });
	});

	test("one that has lost the address leaves alone at its end what the other has read meanwhile", async () => {
		const pi = await seasonedPi();
		const during = async () => {
			peer.send(pi);
			pi.events.emit("message:scan", {});
			const [mark = ""] = pi.names("cur").filter((name) => name.endsWith(".open"));
			layRecord(pi, process.ppid);
			await later(2000);
			rmSync(join(mailRoot(), pi.address, "cur", mark));
			await pi.shutDown();
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1, during }] });
		expect([pi.openCount, pi.names("cur").length]).toEqual([0, 1]);
	});

	test("PSM-094 one that has lost the address scans nothing", async () => {
		const pi = await seasonedPi();
		layRecord(pi, process.ppid);
		await later(2000);
		peer.send(pi);
		const payload = {};
		pi.events.emit("message:scan", payload);
		expect([payload, pi.names("new").length]).toEqual([{}, 1]);
	});

	test.each<[string, () => Promise<FakePi>]>([
		["that started second", secondPi],
		["that had the address before", losingPi],
	])("one %s takes over when that process ends, and brings nothing that it brought", async (_, start) => {
		const pi = await start();
		const [old, left, waiting] = [peer.send(pi), peer.send(pi), peer.send(pi)];
		const cur = join(mailRoot(), pi.address, "cur");
		for (const id of [old, left]) {
			const [name = ""] = pi.names("new").filter((other) => other.includes(id));
			renameSync(join(mailRoot(), pi.address, "new", name), join(cur, name));
			writeFileSync(join(cur, `${name}.open`), "");
		}
		const details = {
			mail: { address: pi.address, id: old, from: peer.address, kind: "message", hops: 0, inReplyTo: [], file: "" },
		};
		SessionManager.open(pi.file).appendCustomMessageEntry("mailbox", "please", true, details);
		layRecord(pi, 2 ** 22 + 1);
		await later(1000);
		await vi.waitFor(() => expect(pi.hasRunToPlay).toBe(true));
		await pi.run();
		expect(pi.mails().map((mail) => mail.id)).toEqual([left, waiting]);
		expect([pi.openCount, record(pi).pid, footer(pi)]).toEqual([0, process.pid, "✉ 3 read"]);
	});

	test("L3 it fails the ask that the other had not answered, also when a /reload is what takes over", async () => {
		const pi = await secondPi();
		const id = peer.send(pi, { kind: "ask" });
		rmSync(join(mailRoot(), pi.address, "new", pi.names("new")[0] ?? ""));
		const mail = { address: pi.address, id, from: peer.address, kind: "ask", hops: 0, inReplyTo: [], file: "" };
		SessionManager.open(pi.file).appendCustomMessageEntry("mailbox", "please", true, { mail });
		layRecord(pi, 2 ** 22 + 1);
		await pi.reload();
		await fileIsRead(pi);
		await later(1000);
		expect(peer.received()).toMatchObject([{ in_reply_to: [id], status: "failed" }]);
	});

	test("L2 when the session's file cannot be read then, it says so, and takes over as soon as it can", async () => {
		const pi = await secondPi();
		peer.send(pi);
		renameSync(pi.file, `${pi.file}.away`);
		mkdirSync(pi.file);
		layRecord(pi, 2 ** 22 + 1);
		const isSaid = () => /cannot be read, so no mail is received yet: EISDIR/.test(pi.notifications.at(-1) ?? "");
		for (let n = 0; n < 100 && !isSaid(); n++) await later(100).then(() => fileIsRead(pi));
		expect(isSaid()).toBe(true);
		expect([pi.sent, pi.names("new").length]).toEqual([[], 1]);
		rmdirSync(pi.file);
		renameSync(`${pi.file}.away`, pi.file);
		for (let n = 0; n < 100 && !pi.hasRunToPlay; n++) await later(100).then(() => fileIsRead(pi));
		expect(pi.hasRunToPlay).toBe(true);
	});

	test.each([true, false])(
		"PSM-045 after its end in the middle of taking over nothing is set aside or said (the file can be read: %s)",
		async (isReadable) => {
			const pi = await secondPi();
			pi.notifications.splice(0);
			const left = join(mailRoot(), pi.address, "cur", "000000000000001-x.json");
			writeFileSync(left, "{");
			writeFileSync(`${left}.open`, "");
			if (!isReadable) {
				renameSync(pi.file, `${pi.file}.away`);
				mkdirSync(pi.file);
			}
			layRecord(pi, 2 ** 22 + 1);
			let ended: Promise<void> | undefined;
			before = ({ name, paths }) => {
				if (name !== "remove" || !paths[0]?.includes("/standby/")) return;
				queueMicrotask(() => {
					ended ??= pi.emit("session_shutdown", { reason: "quit" });
				});
			};
			await later(1000);
			await ended;
			expect(ended).toBeDefined();
			await fileIsRead(pi);
			await later(10_000);
			expect([pi.openCount, pi.notifications]).toEqual([1, []]);
		},
	);

	test("L10 its end in the middle of taking over does not end the process", async () => {
		const pi = await secondPi();
		peer.send(pi);
		layRecord(pi, 2 ** 22 + 1);
		await later(1000);
		await pi.shutDown();
		await fileIsRead(pi);
		await later(10_000);
		expect([pi.sent, pi.names("new").length]).toEqual([[], 1]);
	});
});

test.each(["context", "agent_settled"] as const)(
	"L3 entries that cannot be had for a moment keep no answer back (%s)",
	async (when) => {
		let isArmed = false;
		const other = (api: Parameters<typeof sessionMail>[0]) => {
			const handler = () => {
				if (isArmed) vi.spyOn(pi.session, "getEntries").mockImplementationOnce(() => fail("EIO"));
			};
			if (when === "context") api.on(when, handler);
			else api.on(when, handler);
		};
		const pi: FakePi = await seasonedPi({ extensions: [other, sessionMail] });
		const id = peer.send(pi);
		await later(1000);
		isArmed = true;
		await pi.run({ text: "fine" });
		expect(peer.received()).toMatchObject([{ in_reply_to: [id], status: "done", body: "fine" }]);
		expect(pi.notifications).toEqual([expect.stringMatching(/EIO/)]);
	},
);

test("a session that another extension adds to is read on from where it was read", async () => {
	const other = (pi: Parameters<typeof sessionMail>[0]) =>
		pi.on("agent_end", () => pi.appendEntry("other", { text: "note" }));
	const pi = await seasonedPi({ extensions: [other, sessionMail] });
	const id = peer.send(pi);
	await later(1000);
	await pi.run();
	expect(peer.received()).toMatchObject([{ in_reply_to: [id], status: "done" }]);
});
