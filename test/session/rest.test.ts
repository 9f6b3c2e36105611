import { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test, vi } from "vitest";
import sessionMail from "../../src/index.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";
import { systemProcesses } from "../../src/mail/process.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { createRest, type Rest } from "../../src/session/rest.ts";
import { fail, type Operation, temporaryFolder, watchedDisk } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { makePeer, startFakePi } from "../support/fake-pi.ts";

// Time alone notices mail.
vi.mock("chokidar", () => ({ watch: () => ({ on: () => {}, close: async () => {} }) }));

useFakeMachine();

const minuteMs = 60_000;
/** The disk has its own clock, which no test can move. */
const realNow = Date.now;

describe("what a session looks at", () => {
	let root: string;
	let box: string;
	let rest: Rest;
	let isBroken: boolean;
	let clockMs: number;
	beforeEach(() => {
		isBroken = false;
		clockMs = realNow() + minuteMs;
		root = join(temporaryFolder(), "root");
		mkdirSync(root);
		box = join(root, "box");
		mkdirSync(box);
		const disk = watchedDisk(() => isBroken && fail("EIO"));
		rest = createRest(disk, [root, box], () => clockMs);
	});

	function breakDisk(): void {
		isBroken = true;
	}

	function replace(make: (path: string) => void, path = box): void {
		renameSync(path, join(path, "..", "aside"));
		make(path);
	}

	test("L10 need not be looked at again while nothing changes, and is now and then all the same", () => {
		rest.note();
		const looks = Array.from({ length: 10 }, () => rest.isUndisturbed());
		expect(looks).toEqual([...Array.from({ length: 9 }, () => true), false]);
		rest.note();
		expect(rest.isUndisturbed()).toBe(true);
	});

	test("L5 is looked at before anything is known of it", () => {
		expect(rest.isUndisturbed()).toBe(false);
	});

	test.each<[what: string, change: () => void]>([
		["something comes into it", () => writeFileSync(join(box, "mail"), "")],
		["it is removed", () => rmSync(box, { recursive: true })],
		["another takes its place", () => replace(mkdirSync)],
		["a link to it takes its place", () => replace((path) => symlinkSync("aside", path))],
		["a file takes the place of what it is in", () => replace((path) => writeFileSync(path, ""), root)],
		["it cannot be looked at", () => breakDisk()],
	])("L5 is looked at again when %s", (_what, change) => {
		rest.note();
		expect(rest.isUndisturbed()).toBe(true);
		change();
		expect(rest.isUndisturbed()).toBe(false);
	});

	test("L5 is looked at again when it could not be at first", () => {
		isBroken = true;
		rest.note();
		expect(rest.isUndisturbed()).toBe(false);
	});

	test("L5 is looked at again while its last change is so fresh that another may not show", () => {
		clockMs = realNow() + 1000;
		rest.note();
		expect(rest.isUndisturbed()).toBe(false);
	});
});

describe("a session", () => {
	/** One that has had nothing to do for a while, on a disk where nothing is fresh; and what it asks of the disk. */
	async function restingPi() {
		vi.setSystemTime(realNow() + minuteMs);
		const operations: Operation[] = [];
		const disk = watchedDisk((operation) => operations.push(operation), nodeDisk());
		const pi = await startFakePi({
			extensions: [
				(api) =>
					sessionMail(api, {
						disk,
						processes: systemProcesses(),
						now: Date.now,
						root: mailRoot,
						settingsFile: () => "nowhere",
						whileAlone: (_root, work) => work(() => {}),
					}),
			],
		});
		await pi.run({ prompt: "hello" });
		await later(2500);
		operations.splice(0);
		return { pi, operations };
	}

	test("L10 that is at rest asks the disk six things a second, and does not list or read", async () => {
		const { operations } = await restingPi();
		await later(5000);
		expect(operations.map(({ name }) => name)).toEqual(Array.from({ length: 30 }, () => "changed"));
	});

	test("L10 that is at rest is so beside mail on hold as well", async () => {
		const { pi, operations } = await restingPi();
		makePeer().send(pi);
		const [name = ""] = pi.names("new");
		openMailbox({
			disk: nodeDisk(),
			root: mailRoot(),
			address: pi.address,
			now: Date.now,
			isDurable: () => false,
		}).hold(name);
		// It notices that something came, and that this is on hold; until that is no longer fresh.
		await later(minuteMs + 5000);
		operations.splice(0);
		await later(5000);
		expect(operations.map(({ name }) => name)).toEqual(Array.from({ length: 30 }, () => "changed"));
		expect([pi.hasRunToPlay, pi.status.get("mailbox")]).toEqual([false, "✉ 1 pending"]);
	});

	test("L5 that is at rest notices a mail within a second", async () => {
		const { pi } = await restingPi();
		const id = makePeer().send(pi);
		await later(1000);
		await pi.run();
		expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
	});

	test("L3 that is at rest saves within a second what it awaits", async () => {
		const { pi } = await restingPi();
		// A new folder would be noticed.
		const { address: to } = makePeer();
		const awaited = () =>
			Object.keys(JSON.parse(readFileSync(join(mailRoot(), pi.address, "state.json"), "utf8")).awaiting);
		for (const count of [1, 2]) {
			pi.events.emit("message:send", { to, body: "please" });
			await later(1000);
			expect(awaited()).toHaveLength(count);
			// At rest once more: the first has reserved stamps for the second.
			await later(2000);
		}
	});

	test("L5 that is at rest scans its inbox every ten seconds all the same", async () => {
		const { operations } = await restingPi();
		await later(10_000);
		expect(operations.filter(({ name }) => name === "list")).toHaveLength(1);
	});
});
