import { dirname, join, resolve } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalAddress, isAddress, isReservedAddress, isUuid, shortAddress } from "../../src/mail/address.ts";
import { alice, bob } from "../support/disk.ts";

const upper = alice.toUpperCase();

describe("an address", () => {
	test.each([alice, upper, "a", "A1", "my_session-2", "v1.2", "a..b", "x".repeat(128), "constructor"])(
		"D22 PSM-002 is any id that Pi accepts: %j",
		(id) => {
			expect(isAddress(id)).toBe(true);
		},
	);

	test.each([
		"",
		".",
		"..",
		"../escape",
		"a/b",
		"a\\b",
		"/etc",
		".hidden",
		"-flag",
		"_a",
		"a.",
		"a-",
		"a b",
		"a\n",
		"\na",
		"a\0",
		"ä",
		"running\0",
		"__proto__",
		"x".repeat(129),
	])("PSM-002 I-PSM-8 is nothing that could leave the mail root or be hidden in it: %j", (id) => {
		expect(isAddress(id)).toBe(false);
	});

	test.each(["running", "Running", "RUNNING"])("D22 is not the name of one of the root's own folders: %j", (id) => {
		expect(isAddress(id)).toBe(false);
		expect(isReservedAddress(id)).toBe(true);
		expect(isReservedAddress(`${id}1`)).toBe(false);
	});

	test("I-PSM-8 whatever passes is one folder directly under the root", () => {
		const text = fc.oneof(fc.string(), fc.string({ unit: "grapheme" }), fc.stringMatching(/^[./\\A-Za-z0-9_-]{0,12}$/));
		fc.assert(
			fc.property(text, (id) => {
				fc.pre(isAddress(id));
				expect(dirname(resolve("/root", id))).toBe("/root");
				expect(join("/root", id)).toBe(`/root/${id}`);
			}),
			{ numRuns: 500 },
		);
	});
});

describe("one spelling", () => {
	test.each([
		[upper, alice],
		[alice, alice],
		["My-Session", "My-Session"],
		[`${upper}x`, `${upper}x`],
	])("D22 a UUID is written in lower case, anything else as it is: %j", (id, canonical) => {
		expect(canonicalAddress(id)).toBe(canonical);
		expect(canonicalAddress(canonicalAddress(id))).toBe(canonical);
	});

	test.each([
		[alice, true],
		[upper, true],
		[`../${alice}`, false],
		[`${alice}/..`, false],
		[alice.slice(1), false],
		[`${alice}\n`, false],
		[alice.replaceAll("-", ""), false],
		[alice.replace("a", "g"), false],
	])("PSM-030 a full session id is a whole UUID and nothing around it: %j is one: %j", (text, expected) => {
		expect(isUuid(text)).toBe(expected);
	});
});

describe("a short id", () => {
	test.each<[address: string, others: string[], short: string]>([
		[alice, [], "01980f5e"],
		[alice, [alice], "01980f5e"],
		[alice, ["11980f5e"], "01980f5e"],
		[alice, [bob], alice],
		[alice, ["01980f5e-7b00", "01980f5e-0000"], "01980f5e-7a"],
		["abc", ["abd"], "abc"],
		["nightly-1", ["nightly-1-2"], "nightly-1"],
	])(
		"D6 is the shortest prefix of at least 8 characters that nobody else has: %j among %j is %j",
		(address, others, short) => {
			expect(shortAddress(address, others)).toBe(short);
		},
	);

	test("D6 is unique for every session of any set, and never longer than it has to be", () => {
		const ids = fc.uniqueArray(fc.stringMatching(/^0198[ab]{4,8}$/), { minLength: 1, maxLength: 8 });
		fc.assert(
			fc.property(ids, (addresses) => {
				for (const address of addresses) {
					const short = shortAddress(address, addresses);
					const matches = (prefix: string) => addresses.filter((other) => other.startsWith(prefix));
					expect(address.startsWith(short)).toBe(true);
					// An address that begins another one cannot be told from it by any prefix.
					if (short !== address) expect(matches(short)).toEqual([address]);
					if (short.length > 8) expect(matches(short.slice(0, -1)).length).toBeGreaterThan(1);
				}
			}),
		);
	});
});
