import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { openState } from "../../src/mail/state.ts";
import { alice, bob, dayMs, fail, startMs, temporaryFolder, watchedDisk } from "../support/disk.ts";

/** A disk that holds `state.json` alone, in memory, and counts how often it is written. */
function memoryDisk(text?: string) {
	const kept = { text, writes: 0 };
	const disk: Disk = {
		...nodeDisk(),
		read: () => kept.text ?? fail("ENOENT"),
		replace(_, changed) {
			kept.text = changed;
			kept.writes++;
		},
	};
	const saved = (): { stamp: number } => JSON.parse(kept.text ?? '{"stamp":0}');
	return { disk, kept, saved };
}

const open = (disk: Disk) => openState(disk, "/mail/alice");
/** A name in `sent/`; later numbers are later names. */
const copy = (n: number) => `${String(n).padStart(15, "0")}-${alice}.json`;

describe("stamps", () => {
	/** What happens between two mails: the clock moves, and the session may be saved and started again, or killed and started again. */
	const step = fc.record({
		moveMs: fc.oneof(fc.integer({ min: -5000, max: 5000 }), fc.integer({ min: -dayMs, max: dayMs })),
		end: fc.constantFrom("none", "none", "saved", "killed"),
	});

	test("D14 strictly increase whatever the clock does within a day, over restarts and kills", () => {
		fc.assert(
			fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
				const { disk } = memoryDisk();
				let state = open(disk);
				let now = startMs;
				let latest = now;
				let last = 0;
				for (const { moveMs, end } of steps) {
					now += moveMs;
					latest = Math.max(latest, now);
					// Each kill may skip a minute of stamps.
					now = Math.max(now, latest - dayMs + steps.length * 60_002);
					if (end === "saved") state.close();
					if (end !== "none") state = open(disk);
					const stamp = state.nextStamp(now);
					expect(stamp).toBeGreaterThan(last);
					expect(stamp).toBeGreaterThanOrEqual(now);
					last = stamp;
				}
			}),
			{ numRuns: 500 },
		);
	});

	test("D14 go on with the clock after an end that was saved, and a minute ahead at most after a kill", () => {
		const { disk } = memoryDisk();
		const first = open(disk);
		first.nextStamp(startMs);
		const second = open(disk);
		expect(second.nextStamp(startMs)).toBe(startMs + 60_001);
		second.close();
		expect(open(disk).nextStamp(startMs)).toBe(startMs + 60_002);
	});

	test("D7 D14 are not given back when another process of the session has reserved more", () => {
		const { disk } = memoryDisk();
		const [first, second] = [open(disk), open(disk)];
		first.nextStamp(startMs);
		const stamp = second.nextStamp(startMs + 10);
		first.close();
		expect(open(disk).nextStamp(startMs)).toBeGreaterThan(stamp);
	});

	test("D14 are never more than a day ahead of the clock, also after it was years ahead", () => {
		const clocks = fc.array(fc.nat({ max: 10 * dayMs }), { minLength: 1 });
		fc.assert(
			fc.property(clocks, fc.nat({ max: 2 ** 52 }), (times, saved) => {
				const { disk } = memoryDisk(JSON.stringify({ stamp: saved, counted: "", awaiting: {} }));
				const state = open(disk);
				for (const now of times) {
					const stamp = state.nextStamp(now);
					expect(stamp).toBeGreaterThanOrEqual(now);
					expect(stamp).toBeLessThanOrEqual(now + dayMs);
				}
			}),
		);
	});

	test.each([dayMs, dayMs + 1, 300 * dayMs])(
		"D14 increase over a kill also after the clock was %d ms ahead and set right",
		(aheadMs) => {
			const { disk } = memoryDisk(JSON.stringify({ stamp: startMs + aheadMs, counted: "", awaiting: {} }));
			const first = open(disk).nextStamp(startMs);
			expect(first).toBe(startMs);
			expect(open(disk).nextStamp(startMs - 1000)).toBeGreaterThan(first);
		},
	);

	test("D14 are on disk before they are given out, so that a kill repeats none; not every mail writes", () => {
		const { disk, kept, saved } = memoryDisk();
		const state = open(disk);
		for (let n = 0; n < 3000; n++) {
			const stamp = state.nextStamp(startMs);
			expect(saved().stamp).toBeGreaterThanOrEqual(stamp);
		}
		expect(kept.writes).toBeLessThan(10);
	});

	test("D14 are on disk before they are given out, also after a moment in which the disk was full", () => {
		const { disk, saved } = memoryDisk();
		let isFull = true;
		const state = open(watchedDisk(({ name }) => name === "replace" && isFull && fail("ENOSPC"), disk));
		expect(() => state.nextStamp(startMs)).toThrow("ENOSPC");
		isFull = false;
		const stamp = state.nextStamp(startMs);
		expect(saved().stamp).toBeGreaterThanOrEqual(stamp);
	});
});

describe("what waits for an answer", () => {
	test("PSM-039 is remembered over a restart, under the name of its copy", () => {
		const { disk } = memoryDisk();
		const state = open(disk);
		state.sent(copy(1), alice);
		state.sent(copy(2), undefined);
		state.sent(copy(3), bob);
		state.answered([bob, "never-asked", "__proto__", ""]);
		state.save();
		expect([...open(disk).awaiting()]).toEqual([[alice, copy(1)]]);
	});

	test.each(["__proto__", "constructor", "toString", "hasOwnProperty"])("is found under any id, also %s", (id) => {
		const { disk } = memoryDisk();
		const state = open(disk);
		expect(state.awaiting().has(id)).toBe(false);
		state.sent(copy(1), id);
		state.sent(copy(2), alice);
		state.save();
		const again = open(disk);
		again.answered([id]);
		expect([...again.awaiting()]).toEqual([[alice, copy(2)]]);
	});

	test("L7 is remembered for the newest 5,000 at most", () => {
		const { disk } = memoryDisk();
		const state = open(disk);
		for (let n = 0; n < 5001; n++) state.sent(copy(n), `id-${n}`);
		state.save();
		const ids = [...open(disk).awaiting().keys()];
		expect([ids.length, ids[0], ids.at(-1)]).toEqual([5000, "id-1", "id-5000"]);
	});

	test("L10 is written only when it changed", () => {
		const { disk, kept } = memoryDisk();
		const state = open(disk);
		state.save();
		state.recounted();
		state.answered([alice]);
		state.save();
		expect(kept.writes).toBe(0);
		state.sent(copy(1), alice);
		state.save();
		state.save();
		expect(kept.writes).toBe(1);
		state.answered([alice]);
		state.save();
		open(disk).close();
		expect(kept.writes).toBe(2);
	});

	test("L6 L7 has the name of its copy also when it was answered lately, and no longer after 256 others", () => {
		const { disk } = memoryDisk();
		const state = open(disk);
		for (let n = 0; n < 257; n++) state.sent(copy(n), `id-${n}`);
		state.answered(["id-0"]);
		expect(state.copyOf("id-0")).toBe(copy(0));
		state.answered([...state.awaiting().keys()]);
		expect([0, 1, 256].map((n) => state.copyOf(`id-${n}`))).toEqual([undefined, copy(1), copy(256)]);
	});
});

describe("which copies are counted", () => {
	test("L6 all up to the newest, once a start has looked at every one", () => {
		const { disk } = memoryDisk();
		const state = open(disk);
		expect(state.isCounted(copy(5))).toBe(false);
		state.sent(copy(5), alice);
		expect([copy(4), copy(5)].map(state.isCounted)).toEqual([false, true]);
		state.recounted();
		state.sent(copy(6), bob);
		state.save();
		expect([copy(1), copy(6), copy(7)].map(open(disk).isCounted)).toEqual([true, true, false]);
	});

	test("L2 none, when the session ended before it had looked at every one", () => {
		const { disk } = memoryDisk();
		const state = open(disk);
		state.sent(copy(5), alice);
		state.save();
		const again = open(disk);
		expect(again.awaiting().has(alice)).toBe(true);
		expect([copy(4), copy(5)].map(again.isCounted)).toEqual([false, false]);
	});

	test("PSM-039 none, over a restart as well, once one may have been answered unseen, until each was looked at again", () => {
		const { disk } = memoryDisk();
		const state = open(disk);
		state.sent(copy(5), alice);
		state.recounted();
		state.save();
		state.miscounted();
		expect(state.isCounted(copy(5))).toBe(false);
		state.save();
		expect(open(disk).isCounted(copy(5))).toBe(false);
		state.recounted();
		expect(state.isCounted(copy(5))).toBe(true);
		state.save();
		expect(open(disk).isCounted(copy(5))).toBe(true);
	});
});

describe("the file", () => {
	const whole = { stamp: 5, counted: copy(1), awaiting: { [alice]: copy(1) } };
	const write = (text: string | Uint8Array) => (file: string) => writeFileSync(file, text);

	test.each<[what: string, lay: (file: string) => void]>([
		["missing", () => {}],
		["empty", write("")],
		["half written", write(JSON.stringify(whole).slice(0, -1))],
		["zeros, as after a power cut", write(new Uint8Array(100))],
		["no object", write("[]")],
		["without a field", write(JSON.stringify({ ...whole, counted: undefined }))],
		["with a negative stamp", write(JSON.stringify({ ...whole, stamp: -1 }))],
		["with a stamp that is no number", write(JSON.stringify({ ...whole, stamp: "5" }))],
		["of a version that keeps a list", write(JSON.stringify({ ...whole, awaiting: [alice] }))],
		["with an id for a number", write(JSON.stringify({ ...whole, awaiting: { [alice]: 1 } }))],
		["not UTF-8", write(Buffer.from([0x7b, 0xff, 0x7d]))],
		["a folder", (file) => mkdirSync(file)],
		["a dangling link", (file) => symlinkSync("nowhere", file)],
		["huge", write(JSON.stringify(whole) + " ".repeat(5 * 1024 * 1024))],
	])("design 4.10 that is %s means that nothing is known, and stops nothing", (_, lay) => {
		const folder = temporaryFolder();
		lay(join(folder, "state.json"));
		const state = openState(nodeDisk(), folder);
		expect([state.awaiting().size, state.isCounted(copy(1))]).toEqual([0, false]);
	});

	test("design 4.10 D1 of a later version is understood as far as it is known", () => {
		const folder = temporaryFolder();
		writeFileSync(join(folder, "state.json"), JSON.stringify({ ...whole, receipts: { a: 1 }, version: 2 }));
		const state = openState(nodeDisk(), folder);
		expect([state.nextStamp(0), state.awaiting().get(alice)]).toEqual([6, copy(1)]);
	});

	test("PSM-006 lies in the mailbox's folder as state.json, is JSON and holds nothing more", () => {
		const folder = temporaryFolder();
		const state = openState(nodeDisk(), folder);
		state.sent(copy(1), alice);
		state.recounted();
		state.save();
		const text = readFileSync(join(folder, "state.json"), "utf8");
		expect(JSON.parse(text)).toEqual({ ...whole, stamp: 0 });
	});

	test.each(["EMFILE", "ENFILE"])(
		"L2 when %s keeps it from being read the mailbox does not open, rather than forget",
		(code) => {
			expect(() => open(watchedDisk(() => fail(code)))).toThrow(code);
		},
	);

	test.each(["ENOENT", "EACCES", "EIO", "ELOOP"])(
		"design 4.10 when it cannot be read (%s) nothing is known",
		(code) => {
			const state = open(watchedDisk(() => fail(code)));
			expect([state.awaiting().size, state.isCounted(copy(1))]).toEqual([0, false]);
		},
	);
});
