import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Addressee, displayName, resolve } from "../../src/mail/resolve.ts";
import { alice, bob, carol } from "../support/disk.ts";

const dave = "11980f5e-7a3c-7d10-8f00-00000000000d";
const closed = "71980f5e-7a3c-7d10-8f00-000000000001";

const running: Addressee[] = [
	{ address: alice, name: "worker" },
	{ address: bob, name: "reviewer" },
	{ address: carol, name: "reviewer" },
	{ address: dave },
	{ address: "nightly-build", name: dave.slice(0, 8) },
];

/** What Alice gets when she types `to`. */
function typed(to: string, sessions: readonly Addressee[] = running, known: readonly string[] = []) {
	return resolve(to, { running: sessions, self: alice, hasMailbox: (address) => known.includes(address) });
}

describe("a recipient is found", () => {
	const named = [...running, { address: "x-1", name: "nightly-build" }, { address: "x-2", name: closed }];
	test.each<[why: string, to: string, address: string, sessions?: Addressee[], known?: string[]]>([
		["PSM-030 a running session's id", bob, bob],
		["PSM-030 D22 in capitals", bob.toUpperCase(), bob],
		["PSM-030 a running session's id that is no UUID", "nightly-build", "nightly-build"],
		["PSM-030 an id before a name that reads the same", "nightly-build", "nightly-build", named],
		["PSM-030 D16 a full id that nobody has seen", closed, closed],
		["PSM-030 D16 a full id before a name that reads the same", closed, closed, named],
		[
			"PSM-030 the id of a closed session that is no UUID",
			"my-old-session",
			"my-old-session",
			running,
			["my-old-session"],
		],
		["PSM-031 a name before a closed session's id", "docs", bob, [{ address: bob, name: "docs" }], ["docs"]],
		["PSM-031 a name", "reviewer", bob, [{ address: bob, name: "reviewer" }]],
		["PSM-031 a name before an id prefix", dave.slice(0, 8), "nightly-build"],
		["PSM-031 a name of one character", "r", bob, [{ address: bob, name: "r" }]],
		["PSM-031 a prefix of 8 characters", dave.slice(0, 8), dave, [{ address: dave }, { address: bob }]],
		["PSM-031 D22 a prefix in capitals", "11980F5E-7A", dave],
		["PSM-031 the prefix that tells two apart", bob.slice(0, -1), bob, [{ address: bob }, { address: dave }]],
		["PSM-031 a prefix of an id that has capitals", "Nightly-", "Nightly-Build", [{ address: "Nightly-Build" }]],
	])("%s: %j", (_, to, address, sessions, known) => {
		expect(typed(to, sessions, known)).toEqual({ ok: true, address });
	});
});

describe("a recipient is refused, with what to do", () => {
	const others = `reviewer (${bob}), reviewer (${carol}), 11980f5e (${dave}), 11980f5e (nightly-build)`;
	test.each<[why: string, to: string, code: string, message: string, sessions?: Addressee[]]>([
		["nothing", "", "empty", 'say who gets the mail: a session\'s name or id, such as "reviewer"'],
		[
			"PSM-032 two of one name",
			"reviewer",
			"ambiguous",
			`"reviewer" could be reviewer (${bob}), reviewer (${carol}); use the full id`,
		],
		[
			"PSM-032 D6 a shared prefix, each with an id that is unique",
			"01980f5e",
			"ambiguous",
			`"01980f5e" could be ${bob} (${bob}), ${carol} (${carol}); use the full id`,
			[{ address: bob }, { address: carol }],
		],
		[
			"PSM-033 an unknown name",
			"boss",
			"unknown",
			`no running session is called "boss"; running: ${others}; a closed session is reached by its full id`,
		],
		[
			"PSM-033 with nobody else there",
			"boss",
			"unknown",
			"no other session is running; a closed session is reached by its full id",
			[{ address: alice }],
		],
		[
			"PSM-033 a short prefix",
			dave.slice(0, 7),
			"unknown",
			`"${dave.slice(0, 7)}" is too short for an id: type at least 8 characters of it`,
		],
		["PSM-034 itself by id", alice, "self", "that is this session, and a session cannot send mail to itself"],
		[
			"PSM-034 itself by id in capitals",
			alice.toUpperCase(),
			"self",
			"that is this session, and a session cannot send mail to itself",
		],
		["PSM-034 itself by name", "worker", "self", "that is this session, and a session cannot send mail to itself"],
		[
			"PSM-034 itself by prefix",
			alice.slice(0, 8),
			"self",
			"that is this session, and a session cannot send mail to itself",
			[{ address: alice }],
		],
	])("D9 %s", (_, to, code, why, sessions) => {
		expect(typed(to, sessions)).toEqual({ ok: false, code, message: `Nothing was sent: ${why}.` });
	});

	test("PSM-034 itself also when its own record is not there", () => {
		expect(typed(alice, [])).toMatchObject({ code: "self" });
		expect(typed("worker", [])).toMatchObject({ code: "unknown" });
	});

	test.each(["running", "../bob", "a/b", "__proto__", "constructor"])(
		"I-PSM-8 no folder is asked for what is no address of a mailbox: %j",
		(to) => {
			const asked: string[] = [];
			const hasMailbox = (address: string) => asked.push(address) > 0 && address !== "constructor";
			expect(resolve(to, { running, self: alice, hasMailbox })).toMatchObject({ ok: false, code: "unknown" });
			expect(asked).toEqual(to === "constructor" ? ["constructor"] : []);
		},
	);

	test("D8 names and what was typed cannot forge a line or fill the screen", () => {
		const hostile = `a\n[mailbox] From you${"x".repeat(200)}`;
		const outcome = typed(`${hostile}\u202e`, [{ address: bob, name: hostile }]);
		expect(outcome).toMatchObject({ ok: false, message: expect.stringMatching(/^\P{Cc}{50,400}$/u) });
		expect(typed(hostile, [{ address: bob, name: hostile }])).toEqual({ ok: true, address: bob });
	});

	test("PSM-032 of many candidates ten are named and the others counted", () => {
		const sessions = Array.from({ length: 25 }, (_, i) => ({ address: `session-${String(i + 10)}`, name: "twin" }));
		const outcome = typed("twin", sessions);
		expect(outcome).toMatchObject({ message: expect.stringContaining("twin (session-19), 15 more; use the full id") });
	});
});

test("PSM-034 I-PSM-8 whatever is typed and runs, the result is an address of somebody else or one sentence", () => {
	const address = fc.constantFrom(alice, bob, carol, dave, "nightly-build", "Nightly");
	const text = fc.oneof(address, fc.constantFrom("worker", "reviewer", "constructor", ".."), fc.string());
	const part = fc.tuple(text, fc.nat({ max: 40 })).map(([whole, length]) => whole.slice(0, length));
	const session = fc.record({ address, name: fc.option(text, { nil: undefined }) });
	fc.assert(
		fc.property(fc.oneof(text, part), fc.array(session), fc.array(text), address, (to, sessions, known, self) => {
			const outcome = resolve(to, { running: sessions, self, hasMailbox: (one) => known.includes(one) });
			if (!outcome.ok) {
				expect(outcome.message).toMatch(/^Nothing was sent: .*\.$/);
				return;
			}
			expect(outcome.address).not.toBe(self);
			expect([...sessions.map((one) => one.address), ...known, to.toLowerCase()]).toContain(outcome.address);
		}),
		{ numRuns: 500 },
	);
});

test("D6 a session is shown by its name, and without one by the shortest id that nobody else has", () => {
	const addresses = [alice, bob, dave];
	expect(displayName({ address: bob, name: "reviewer" }, addresses)).toBe("reviewer");
	expect(displayName({ address: dave }, addresses)).toBe("11980f5e");
	expect(displayName({ address: bob }, addresses)).toBe(bob);
	expect(displayName({ address: bob, name: "x".repeat(80) }, addresses)).toBe(`${"x".repeat(59)}…`);
});
