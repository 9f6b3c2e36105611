import { describe, expect, test } from "vitest";
import { newestFirst } from "../../src/session/listing.ts";

/** Names of mails, the newest first; some have what a claim puts before a name. */
const names = Array.from({ length: 3000 }, (_, n) => {
	const id = `01234567-0123-0123-0123-${String(n * 7).padStart(12, "0")}`;
	const stamp = String(9999 - Math.floor(n / 3)).padStart(15, "0");
	return {
		key: `${stamp}-${id}`,
		name: `${n % 5 === 0 ? "ffffffff-0123-0123-0123-0123456789ab-" : ""}${stamp}-${id}.json`,
	};
})
	.sort((a, b) => (a.key < b.key ? 1 : -1))
	.map(({ name }) => name);

describe("mails by the stamps in their names", () => {
	test("L6 are sorted whatever order the disk lists them in, with many places to pause", () => {
		// Neither forwards nor backwards: 7 has no divisor in common with the number of names.
		const listed = names.map((_, n) => names[(n * 7) % names.length] ?? "");
		let pauses = 0;
		const sorting = newestFirst(listed, (name) => ({ name }));
		for (;;) {
			const step = sorting.next();
			if (step.done === true) {
				expect(step.value.map(({ name }) => name)).toEqual(names);
				break;
			}
			pauses++;
		}
		expect(pauses).toBeGreaterThan(10);
	});
});
