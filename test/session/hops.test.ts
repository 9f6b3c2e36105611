import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createHops } from "../../src/session/hops.ts";

describe("the hop count of a turn", () => {
	test("is 0 before anything arrived", () => {
		expect(createHops().count).toBe(0);
	});

	test("PSM-083 is 0 in a turn that the user starts", () => {
		const hops = createHops();
		hops.userInput();
		expect(hops.count).toBe(0);
	});

	test("PSM-083 falls to 0 when the user steers a turn that mail started", () => {
		const hops = createHops();
		hops.arrived(3);
		hops.userInput();
		expect(hops.count).toBe(0);
	});

	test("PSM-083 stays 0 when mail arrives later in a turn that the user takes part in", () => {
		const hops = createHops();
		hops.userInput();
		hops.arrived(3);
		expect(hops.count).toBe(0);
	});

	test("PSM-084 is one more than the highest hops that arrived, in any order", () => {
		const hops = createHops();
		hops.arrived(0);
		expect(hops.count).toBe(1);
		hops.arrived(3);
		hops.arrived(1);
		expect(hops.count).toBe(4);
	});

	test("PSM-085 counts the next turn from its own mail only, also after the user took part in the last", () => {
		const hops = createHops();
		hops.arrived(4);
		hops.settled();
		expect(hops.count).toBe(0);
		hops.userInput();
		hops.settled();
		hops.arrived(1);
		expect(hops.count).toBe(2);
	});

	test("PSM-015 forged hops never make a count that a reader refuses", () => {
		const hops = createHops();
		hops.arrived(Number.MAX_SAFE_INTEGER);
		expect(hops.count).toBe(Number.MAX_SAFE_INTEGER);
	});

	test("I-PSM-7 two sessions that wake each other reach any limit, whatever they were doing before", () => {
		fc.assert(
			fc.property(fc.integer({ min: 1, max: 50 }), fc.boolean(), (limit, userBefore) => {
				const sessions = [createHops(), createHops()] as const;
				if (userBefore) for (const session of sessions) session.userInput();
				for (const session of sessions) session.settled();
				let mailHops = 0;
				for (let turn = 0; turn < limit; turn++) {
					const session = turn % 2 === 0 ? sessions[0] : sessions[1];
					session.arrived(mailHops);
					mailHops = session.count;
					session.settled();
				}
				expect(mailHops).toBe(limit);
			}),
		);
	});
});
