import { expect, test } from "vitest";
import { createChain } from "../../src/cli/chain.ts";

const hourMs = 3_600_000;

test("PSM-084 what is sent carries the highest hops of the mail that was read, plus one", () => {
	const chain = createChain(() => 0);
	expect(chain.count).toBe(0);
	chain.read(0);
	expect(chain.count).toBe(1);
	chain.read(3);
	chain.read(1);
	expect(chain.count).toBe(4);
});

test("L7 the count starts again when no mail was read for an hour, and not earlier", () => {
	let at = 10 * hourMs;
	const chain = createChain(() => at);
	chain.read(3);
	at += hourMs - 1;
	expect(chain.count).toBe(4);
	chain.read(0);
	at += hourMs - 1;
	expect(chain.count).toBe(4);
	at += 1;
	expect(chain.count).toBe(0);
	chain.read(1);
	at += hourMs;
	chain.read(0);
	expect(chain.count).toBe(1);
});
