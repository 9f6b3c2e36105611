import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
	awaitsAnswer,
	type Envelope,
	envelopeFileName,
	invalidBecause,
	type ParsedEnvelope,
	parseEnvelope,
	serialiseEnvelope,
} from "../../src/mail/envelope.ts";
import { alice, bob, envelopeText } from "../support/disk.ts";

const id = "11111111-2222-4333-8444-555555555555";

function parsed(changed: Record<string, unknown>): Envelope {
	const outcome = parseEnvelope(envelopeText(changed));
	if (!outcome.ok) throw new Error(outcome.reason);
	return outcome.envelope;
}

describe("an envelope", () => {
	const envelopes: fc.Arbitrary<Envelope> = fc.record({
		id: fc.uuid(),
		from: fc.uuid(),
		to: fc.constantFrom(bob, "My-Session", "v1.2"),
		kind: fc.constantFrom("request", "reply", "message", "ask"),
		hops: fc.nat(),
		in_reply_to: fc.array(fc.string({ unit: "binary" }), { maxLength: 50 }),
		status: fc.constantFrom("", "done", "stopped", "failed"),
		ts: fc.date({ noInvalidDate: true }).map((date) => date.toISOString()),
		body: fc.oneof(
			fc.string({ unit: "binary" }),
			fc.string({ unit: fc.constantFrom("\0", "\ud800", "\n", '"', "\\") }),
		),
	});

	test("PSM-011 is read as it was written, whatever its body holds", () => {
		fc.assert(
			fc.property(envelopes, (envelope) => {
				const bytes = serialiseEnvelope(envelope);
				const text = bytes.toString();
				expect(parseEnvelope(text)).toEqual({ ok: true, envelope });
				expect(text.trimEnd()).not.toContain("\n");
				expect(Buffer.from(text)).toEqual(bytes);
			}),
		);
	});

	test("PSM-017 is refused before it is sent for just what its reader would set it aside for", () => {
		const anyOne = fc.record({
			envelope: envelopes,
			from: fc.oneof(fc.constantFrom(alice, "running", "../bob", "a b", ""), fc.string({ unit: "binary" })),
			hops: fc.oneof(fc.nat(), fc.double(), fc.constantFrom(-1, -0, 0.5, 2 ** 53)),
			in_reply_to: fc.array(fc.constant(id), { maxLength: 60 }),
		});
		fc.assert(
			fc.property(anyOne, ({ envelope, ...given }) => {
				const made = { ...envelope, ...given };
				const read = parseEnvelope(JSON.stringify(made));
				expect(invalidBecause(made)).toBe(read.ok ? undefined : read.reason);
			}),
		);
	});

	test("PSM-011 has exactly the fields that older copies know", () => {
		const fields = ["body", "from", "hops", "id", "in_reply_to", "kind", "status", "to", "ts"];
		expect(Object.keys(JSON.parse(serialiseEnvelope(parsed({ x: { future: 1 } })).toString())).sort()).toEqual(fields);
	});

	test("D1 may carry more than this version knows, and prototype names are fields like any other", () => {
		const text = envelopeText({ x: { colour: "red" }, future: [1] }).replace(
			"{",
			'{"__proto__":{"hops":7},"constructor":1,',
		);
		expect(parseEnvelope(text)).toEqual({ ok: true, envelope: parsed({}) });
		expect(parseEnvelope(`{"__proto__":${envelopeText()}}`)).toEqual({ ok: false, reason: "id is missing" });
	});

	test("D22 addresses are compared in one spelling", () => {
		expect(parsed({ from: alice.toUpperCase(), to: bob.toUpperCase() })).toMatchObject({ from: alice, to: bob });
	});

	test.each<[kind: unknown, inReplyTo: unknown, expected: string]>([
		["request", undefined, "request"],
		["reply", undefined, "reply"],
		["message", [id], "message"],
		["ask", undefined, "ask"],
		["control", undefined, "control"],
		["result", undefined, "message"],
		["constructor", [id], "message"],
		["", undefined, "message"],
		[undefined, undefined, "request"],
		[undefined, [], "request"],
		[undefined, [id], "reply"],
	])("PSM-012 PSM-013 PSM-014 of kind %j that answers %j is read as a %s", (kind, in_reply_to, expected) => {
		expect(parsed({ kind, in_reply_to }).kind).toBe(expected);
	});

	test("PSM-014 from before kind, hops and status existed is a request without hops", () => {
		const old = { kind: undefined, hops: undefined, status: undefined, in_reply_to: undefined };
		expect(parsed(old)).toMatchObject({ kind: "request", hops: 0, status: "", in_reply_to: [] });
	});

	test.each<[Envelope["kind"], boolean]>([
		["request", true],
		["ask", true],
		["message", false],
		["reply", false],
	])("PSM-012 a %s waits for an answer: %j", (kind, expected) => {
		expect(awaitsAnswer(parsed({ kind }))).toBe(expected);
	});

	test("PSM-016 may answer 50 requests, whatever their ids look like", () => {
		const in_reply_to = ["", "../../etc/passwd", "__proto__", ...Array<string>(47).fill(id)];
		expect(parsed({ kind: "reply", in_reply_to }).in_reply_to).toEqual(in_reply_to);
	});
});

describe("what is no envelope says why", () => {
	test.each<[text: string, reason: string]>([
		["", "it is empty"],
		[" \n", "it is empty"],
		[envelopeText().slice(0, -1), "it is not JSON"],
		["\0\0\0\0", "it is not JSON"],
		["[]", "it is not a JSON object"],
		[`[${envelopeText()}]`, "it is not a JSON object"],
		["null", "it is not a JSON object"],
		["7", "it is not a JSON object"],
		['"id"', "it is not a JSON object"],
		["{}", "id is missing"],
	])("PSM-017 %j: %s", (text, reason) => {
		expect(parseEnvelope(text)).toEqual({ ok: false, reason });
	});

	test.each<[changed: Record<string, unknown>, reason: string]>([
		[{ id: undefined }, "id is missing"],
		[{ id: "../../escape" }, 'invalid id "../../escape"'],
		[{ id: "" }, 'invalid id ""'],
		[{ id: 7 }, "invalid id 7"],
		[{ id: `${id}\n` }, `invalid id "${id}\\n"`],
		[{ from: "../bob" }, 'invalid from "../bob"'],
		[{ from: "running" }, 'invalid from "running"'],
		[{ from: null }, "invalid from null"],
		[{ to: "a/b" }, 'invalid to "a/b"'],
		[{ kind: 1 }, "invalid kind 1"],
		[{ kind: null }, "invalid kind null"],
		[{ hops: -1 }, "invalid hops -1"],
		[{ hops: 0.5 }, "invalid hops 0.5"],
		[{ hops: "0" }, 'invalid hops "0"'],
		[{ hops: 2 ** 53 }, "invalid hops 9007199254740992"],
		[{ in_reply_to: Array(51).fill(id) }, "invalid in_reply_to of 51 items"],
		[{ in_reply_to: Array(51).fill("") }, "invalid in_reply_to of 51 items"],
		[{ in_reply_to: id }, `invalid in_reply_to "${id}"`],
		[{ in_reply_to: [1] }, "invalid in_reply_to of 1 items"],
		[{ status: null }, "invalid status null"],
		[{ ts: "yesterday" }, 'invalid ts "yesterday"'],
		[{ ts: 1 }, "invalid ts 1"],
		[{ body: undefined }, "body is missing"],
		[{ body: ["x"] }, "invalid body of 1 items"],
	])("PSM-011 PSM-015 PSM-016 PSM-017 %j: %s", (changed, reason) => {
		expect(parseEnvelope(envelopeText(changed))).toEqual({ ok: false, reason });
	});

	test("PSM-017 L7 with a long value shows its beginning", () => {
		const reason = expect.stringMatching(/^invalid id "x{50,60}…$/);
		expect(parseEnvelope(envelopeText({ id: "x".repeat(100_000) }))).toEqual({ ok: false, reason });
	});

	test("PSM-017 nothing that another program may write makes the reader throw, and each reason is one short line", () => {
		const base: Record<string, unknown> = JSON.parse(envelopeText());
		const changed = fc
			.dictionary(fc.constantFrom(...Object.keys(base), "x", "__proto__", "constructor"), fc.jsonValue())
			.map((fields) => JSON.stringify({ ...base, ...fields }));
		const texts = fc.oneof(changed, fc.json(), fc.string({ unit: "binary" }));
		fc.assert(
			fc.property(texts, (text) => {
				const outcome: ParsedEnvelope = parseEnvelope(text);
				if (outcome.ok) return;
				expect(outcome.reason).toMatch(/^\P{Cc}{1,100}$/u);
			}),
			{ numRuns: 1000 },
		);
	});

	test.each([
		["[", "]", "it is not a JSON object"],
		['{"a":', "}", "id is missing"],
		['{"id":', "}", expect.stringContaining("id")],
	])("PSM-017 not even one that is nested 100,000 deep: %s", (open, close, reason) => {
		const text = `${open.repeat(100_000)}1${close.repeat(100_000)}`;
		expect(parseEnvelope(text)).toEqual({ ok: false, reason });
	});

	test("D8 a reason is shown to people: it holds no marks that turn a line round", () => {
		const outcome = parseEnvelope(envelopeText({ id: "\u202e\u2028\u009b" }));
		expect(outcome).toMatchObject({ ok: false, reason: expect.not.stringMatching(/[\u202e\u2028\u009b]/) });
	});
});

describe("the file", () => {
	test("PSM-020 D14 is named so that names sort as they were sent, and ends in the id", () => {
		const stamp = fc.nat({ max: 999_999_999_999_999 });
		fc.assert(
			fc.property(stamp, stamp, fc.uuid(), fc.uuid(), (a, b, first, second) => {
				fc.pre(a !== b);
				const names = [envelopeFileName(a, first), envelopeFileName(b, second)].sort();
				expect(names[0]).toBe(a < b ? envelopeFileName(a, first) : envelopeFileName(b, second));
			}),
		);
		expect(envelopeFileName(1_700_000_000_000, id)).toBe(`001700000000000-${id}.json`);
		expect(envelopeFileName(0, id)).toBe(`000000000000000-${id}.json`);
	});
});
