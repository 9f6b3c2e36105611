import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { inSlices } from "../../src/session/slices.ts";

let clockMs: number;
let steps: number[];
let warnings: string[];
let done: number;
/** How many works have begun and not ended. */
let open: number;

beforeEach(() => {
	vi.useFakeTimers();
	vi.spyOn(performance, "now").mockImplementation(() => clockMs);
	[clockMs, steps, warnings, done, open] = [0, [], [], 0, 0];
});
afterEach(() => vi.useRealTimers());

/** Seven items, each of which takes 4 ms. */
function* work(): Generator<number> {
	open++;
	try {
		for (let item = 0; item < 7; item++) {
			clockMs += 4;
			yield item;
		}
	} finally {
		open--;
	}
}

function start({ step = (item: number): void => void steps.push(item), end = () => {} } = {}): () => void {
	const finish = () => {
		done++;
		end();
	};
	return inSlices(work(), step, finish, (text) => warnings.push(text));
}

function fail(): never {
	throw new Error("the disk\nis gone");
}

describe("bulk work, design 6", () => {
	test("begins in a later turn of the event loop, and gives it back about every 10 ms", () => {
		start();
		expect(steps).toEqual([]);
		vi.advanceTimersToNextTimer();
		expect(steps).toEqual([0, 1, 2]);
		vi.advanceTimersToNextTimer();
		expect([steps.length, done]).toEqual([6, 0]);
		vi.runAllTimers();
		expect([steps.length, done]).toEqual([7, 1]);
	});

	test("of more than one slice is followed by what comes next in a turn of its own, unless it is given up before", () => {
		const giveUp = start();
		for (let turn = 0; turn < 3; turn++) vi.advanceTimersToNextTimer();
		expect([steps.length, open, done]).toEqual([7, 0, 0]);
		giveUp();
		start();
		for (let turn = 0; turn < 4; turn++) vi.advanceTimersToNextTimer();
		expect([steps.length, open, done]).toEqual([14, 0, 1]);
	});

	test("in shorter ones when somebody watches", () => {
		inSlices(work(), (item) => steps.push(item), fail, fail, 5);
		vi.advanceTimersToNextTimer();
		expect(steps).toEqual([0, 1]);
	});

	test("stops for good when it is given up, at its beginning or in its middle", () => {
		start()();
		const giveUp = start();
		vi.advanceTimersToNextTimer();
		expect(open).toBe(1);
		giveUp();
		vi.runAllTimers();
		expect([steps, done, open]).toEqual([[0, 1, 2], 0, 0]);
	});

	test("stops for good when it gives itself up, and closes what it has open", () => {
		let isClosed = false;
		const giveUp = inSlices(
			(function* () {
				try {
					yield* work();
				} finally {
					isClosed = true;
				}
			})(),
			(item) => {
				steps.push(item);
				if (item === 1) giveUp();
			},
			() => done++,
			(text) => warnings.push(text),
		);
		vi.runAllTimers();
		expect([steps, done, isClosed]).toEqual([[0, 1], 0, true]);
	});

	test("is over when it fails, and a warning says why", () => {
		start({ step: fail });
		vi.runAllTimers();
		expect([warnings, done]).toEqual([["the disk is gone"], 1]);
	});

	test("ends once, also when what comes after it fails", () => {
		start({ end: fail });
		try {
			vi.runAllTimers();
		} catch {
			// Who hears of it does not matter here.
		}
		expect(done).toBe(1);
	});
});
