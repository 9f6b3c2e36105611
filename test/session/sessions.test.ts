import { describe, expect, test } from "vitest";
import { chainsOf } from "../../src/session/sessions.ts";

describe("who waits for whom", () => {
	test.each<[string, [string, string][], string[]]>([
		["nobody", [], []],
		["one for another", [["a", "b"]], ["a b"]],
		[
			"one behind the other",
			[
				["b", "c"],
				["a", "b"],
			],
			["a b c"],
		],
		[
			"two for one, of which the way on is said once",
			[
				["a", "c"],
				["b", "c"],
				["c", "d"],
			],
			["a c d", "b c"],
		],
		[
			"two for each other: a ring",
			[
				["a", "b"],
				["b", "a"],
			],
			["a b (ring)"],
		],
		[
			"three in a ring, and one who waits for one of them",
			[
				["x", "a"],
				["a", "b"],
				["b", "c"],
				["c", "a"],
			],
			["x a", "a b c (ring)"],
		],
		["one for itself", [["a", "a"]], ["a (ring)"]],
	])("%s", (_, waits, expected) => {
		const said = chainsOf(new Map(waits)).map(
			({ addresses, isRing }) => `${addresses.join(" ")}${isRing ? " (ring)" : ""}`,
		);
		expect(said).toEqual(expected);
	});
});
