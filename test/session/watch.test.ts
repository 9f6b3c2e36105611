import { EventEmitter } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createInbox } from "../../src/session/inbox.ts";
import { createWatch, type Watch } from "../../src/session/watch.ts";
import { bob, envelopeText, testRoot } from "../support/disk.ts";

/** The watchers that were opened, in order; what the system tells them is told by hand. */
const opened = vi.hoisted(
	() => [] as (EventEmitter & { isClosed: boolean; options: object; close(): Promise<void> })[],
);
vi.mock("chokidar", () => ({
	watch: (_folder: string, options: object) => {
		const watcher = Object.assign(new EventEmitter(), {
			options,
			isClosed: false,
			async close() {
				this.isClosed = true;
			},
		});
		opened.push(watcher);
		return watcher;
	},
}));

let looks: number;
let said: string[];
let watch: Watch;
beforeEach(() => {
	vi.useFakeTimers();
	opened.splice(0);
	looks = 0;
	said = [];
	watch = createWatch(
		"/mail/new",
		() => looks++,
		(text) => said.push(text),
	);
	vi.advanceTimersByTime(0);
});
afterEach(() => {
	watch.close();
	vi.useRealTimers();
});

/** How often is looked in so many milliseconds. */
function looksIn(ms: number): number {
	looks = 0;
	vi.advanceTimersByTime(ms);
	return looks;
}

test("L5 looks when the watch says so, once for several files, and every second in any case", () => {
	opened[0]?.emit("ready");
	for (const name of ["a", "b", "c"]) opened[0]?.emit("add", name);
	expect(looksIn(1)).toBe(1);
	opened[0]?.emit("add", "d");
	expect(looksIn(1)).toBe(1);
	expect(looksIn(10_000)).toBe(10);
	expect(said).toEqual([]);
});

test("L5 without a watch looks often as long as mail comes, and rarely when none does; it is said once", () => {
	opened[0]?.emit("error", Object.assign(new Error("ENOSPC: no space left for watchers"), { code: "ENOSPC" }));
	expect(said).toEqual([expect.stringMatching(/^new mail cannot be watched for .* ENOSPC/)]);
	expect(opened[0]?.isClosed).toBe(true);
	expect(looksIn(10_000)).toBe(5);
	watch.found();
	vi.advanceTimersByTime(2000);
	expect(looksIn(10_000)).toBe(40);
	vi.advanceTimersByTime(30_000);
	expect(looksIn(10_000)).toBe(5);
	expect(said).toHaveLength(1);
});

test("L5 a watch that was lost is tried again each minute, and is back when the system gives one", () => {
	opened[0]?.emit("ready");
	opened[0]?.emit("error", new Error("EMFILE"));
	vi.advanceTimersByTime(58_000);
	expect(opened).toHaveLength(1);
	vi.advanceTimersByTime(4000);
	expect(opened).toHaveLength(2);
	opened[1]?.emit("error", new Error("EMFILE"));
	vi.advanceTimersByTime(62_000);
	expect(opened).toHaveLength(3);
	opened[2]?.emit("ready");
	expect(said.slice(1)).toEqual(["new mail is watched for again"]);
	vi.advanceTimersByTime(2000);
	expect(looksIn(10_000)).toBe(10);
	opened[2]?.emit("add", "a");
	expect(looksIn(1)).toBe(1);
});

test("L4 a watch that was given up is not said to be back, whatever it still says of itself", () => {
	opened[0]?.emit("error", new Error("EMFILE"));
	opened[0]?.emit("ready");
	expect(said).toHaveLength(1);
});

test("L10 one that cannot be closed ends nothing", async () => {
	const [first] = opened;
	if (first !== undefined) first.close = () => Promise.reject(new Error("EIO"));
	watch.renew();
	await vi.advanceTimersByTimeAsync(1);
	opened[1]?.emit("add", "a");
	expect(looksIn(1)).toBe(1);
});

test("L10 what is no mail and stays in the inbox is no reason to look often", () => {
	const root = testRoot();
	const inbox = createInbox(
		root.open(bob),
		() => {},
		() => {},
	);
	inbox.watch(() => {
		looks++;
		inbox.claim(20);
	});
	vi.advanceTimersByTime(0);
	opened[1]?.emit("error", new Error("EMFILE"));
	mkdirSync(join(root.boxes(bob).new, "1.json"));
	vi.advanceTimersByTime(60_000);
	watch.close();
	expect(looksIn(10_000)).toBe(5);
	inbox.close();
});

test("L10 keeps no process alive", () => {
	expect(opened[0]?.options).toMatchObject({ persistent: false });
});

test("L10 one that is closed at once is never opened", () => {
	createWatch(
		"/mail/new",
		() => looks++,
		(text) => said.push(text),
	).close();
	expect([looksIn(120_000) > 0, opened.length]).toEqual([true, 1]);
});

test("L10 after its end nothing fires, whatever the system still says", () => {
	opened[0]?.emit("add", "a");
	watch.close();
	opened[0]?.emit("add", "b");
	opened[0]?.emit("error", new Error("EMFILE"));
	expect([looksIn(120_000), said, vi.getTimerCount(), opened.length]).toEqual([0, [], 0, 1]);
});

test("L5 renewed, it listens to the new folder and not to the old", () => {
	watch.renew();
	expect([opened.length, opened[0]?.isClosed]).toEqual([2, true]);
	opened[0]?.emit("add", "a");
	expect(looksIn(1)).toBe(0);
	opened[1]?.emit("add", "a");
	expect(looksIn(1)).toBe(1);
});

test("L6 a backlog is not watched, which is no loss of the watch, and is again when it is gone", () => {
	opened[0]?.emit("ready");
	watch.rest(true);
	watch.rest(true);
	expect(opened[0]?.isClosed).toBe(true);
	watch.renew();
	expect(looksIn(70_000)).toBe(70);
	expect([opened.length, watch.lostBecause, said]).toEqual([1, undefined, []]);
	watch.rest(false);
	opened[1]?.emit("ready");
	opened[1]?.emit("add", "a");
	expect(looksIn(1)).toBe(1);
});

test("L5 L6 the inbox itself says when there is a backlog", () => {
	const root = testRoot();
	const inbox = createInbox(
		root.open(bob),
		() => {},
		(text) => said.push(text),
	);
	for (let n = 100; n < 357; n++) root.lay(bob, "new", `${n}.json`, envelopeText({ kind: "message" }));
	inbox.look();
	inbox.watch(() => looks++);
	vi.advanceTimersByTime(0);
	expect(opened).toHaveLength(1);
	inbox.claim(1);
	inbox.look();
	expect([opened.length, opened.at(-1)?.isClosed]).toEqual([2, false]);
	root.lay(bob, "new", "400.json", envelopeText({ kind: "message" }));
	inbox.look();
	expect(opened.at(-1)?.isClosed).toBe(true);
	inbox.close();
});
