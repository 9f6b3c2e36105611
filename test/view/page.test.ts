import { expect, test } from "vitest";
import type { Envelope } from "../../src/mail/envelope.ts";
import type { Overview } from "../../src/session/overview.ts";
import { createPage } from "../../src/view/page.ts";

const id = "01234567-0123-0123-0123-0123456789ab";
const listed = { box: "cur", name: `000000000000001-${id}.json`, path: "/root/mail.json" } as const;
const address = "0197a3f2-1111-7000-8000-00000000000a";

function overviewOf(body: string): Overview & { version: number } {
	const mail = { id, from: address, to: address, kind: "message", hops: 0, in_reply_to: [], status: "" } as const;
	const envelope: Envelope = { ...mail, in_reply_to: [], ts: "2026-11-29T12:00:00.000Z", body };
	const known = { version: 1, status: () => ({ word: "read" }), whole: () => ({ envelope }), nameOf: () => "worker" };
	return known as unknown as Overview & { version: number };
}

test("what is missing in a thread is said to be, and the rest of it is shown", () => {
	const parts = [
		{ relation: "answers", id: "gone", listed: undefined },
		{ relation: "answered by", id: "there", listed: undefined, text: "yes" },
	];
	const overview = Object.assign(overviewOf("one"), {
		*thread() {
			yield undefined;
			return parts;
		},
	});
	const page = createPage(overview, (work, done) => {
		for (const _ of work);
		done();
	});
	page.rowsOf(listed, 80);
	const texts = page.rowsOf(listed, 80).flatMap(({ cells }) => cells.map(({ text }) => text));
	expect(texts).toContain("answers gone: not here any more");
	expect(texts).toContain("answered by there: yes");
});

test("a text is wrapped once for each width, and not each time when mail comes", () => {
	const overview = overviewOf("one\ntwo");
	const page = createPage(overview, () => {});
	const before = page.rowsOf(listed, 80);
	overview.version++;
	const after = page.rowsOf(listed, 80);
	expect(after).not.toBe(before);
	expect(after.at(-1)).toBe(before.at(-1));
	expect(page.rowsOf(listed, 40).at(-1)).not.toBe(before.at(-1));
	expect(after.flatMap(({ cells }) => cells.map(({ text }) => text)).slice(-2)).toEqual(["one", "two"]);
});
