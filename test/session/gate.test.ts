import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createGate, type Gate } from "../../src/session/gate.ts";

let gate: Gate;
let opened: number;

beforeEach(() => {
	vi.useFakeTimers();
	opened = 0;
	gate = createGate(() => opened++);
});
afterEach(() => {
	gate.close();
	vi.useRealTimers();
});

/** Shut now, and open after exactly so long. */
function expectToOpenAfter(ms: number): void {
	vi.advanceTimersByTime(ms - 1);
	expect([gate.isOpen, opened]).toEqual([false, 0]);
	vi.advanceTimersByTime(1);
	expect([gate.isOpen, opened]).toEqual([true, 1]);
}

describe("at the start of a session, design 4.4: mail wakes it", () => {
	test("1 s after the resources are loaded when nobody typed", () => {
		vi.advanceTimersByTime(4000);
		gate.resourcesLoaded();
		expectToOpenAfter(1000);
	});

	test("after 5 s when Pi never says that the resources are loaded", () => {
		expectToOpenAfter(5000);
	});

	test("not while a prompt from the command line is on its way, whichever comes first", () => {
		gate.prompted();
		gate.resourcesLoaded();
		expectToOpenAfter(5000);
	});

	test("as soon as a run has settled", () => {
		gate.resourcesLoaded();
		gate.settled();
		expect([gate.isOpen, opened]).toEqual([true, 0]);
	});
});

describe("when a person types, design 4.4: mail does not wake the session", () => {
	beforeEach(() => gate.settled());

	test("until a run has settled", () => {
		gate.prompted();
		expect(gate.isOpen).toBe(false);
		gate.settled();
		expect(gate.isOpen).toBe(true);
	});

	test("or until 5 s after the last prompt, when none of them became a run", () => {
		gate.prompted();
		vi.advanceTimersByTime(3000);
		gate.prompted();
		expectToOpenAfter(5000);
	});

	test("and resources that are loaded meanwhile change nothing", () => {
		gate.resourcesLoaded();
		expect(gate.isOpen).toBe(true);
		gate.prompted();
		gate.resourcesLoaded();
		expectToOpenAfter(5000);
	});
});

test.each<[string, () => void]>([
	["a run", () => gate.settled()],
	["the end of the session", () => gate.close()],
])("no timer is left after %s", (_, end) => {
	gate.prompted();
	end();
	vi.advanceTimersByTime(60_000);
	expect(opened).toBe(0);
	expect(vi.getTimerCount()).toBe(0);
});
