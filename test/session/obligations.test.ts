import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Owed, type Settling, settle } from "../../src/session/obligations.ts";

const tookOver =
	"(The user stopped an earlier run partway and took over; the answer that follows is from the run that completed after that.)";

let made = 0;

function request(fields: Partial<Owed> = {}): Owed {
	return { id: `request-${++made}`, from: "alice", kind: "request", held: false, state: "worked-on", ...fields };
}

function ask(fields: Partial<Owed> = {}): Owed {
	return request({ id: `ask-${++made}`, kind: "ask", ...fields });
}

function done(...owed: Owed[]) {
	return settle({ owed, end: "done", answer: "All tests pass." });
}

function stopped(...owed: Owed[]) {
	return settle({ owed, end: "stopped", answer: "I have looked at" });
}

function failed(...owed: Owed[]) {
	return settle({ owed, end: "failed", answer: "I have looked at", error: "overloaded" });
}

describe("a run that is done", () => {
	test("PSM-063 answers a request with its last text", () => {
		const one = request();
		expect(done(one)).toEqual({
			replies: [{ to: "alice", inReplyTo: [one.id], status: "done", body: "All tests pass." }],
			owed: [],
		});
	});

	test("PSM-063 says so when there is no text", () => {
		const { replies } = settle({ owed: [request(), ask()], end: "done", answer: " \n" });
		expect(replies.map((reply) => reply.body)).toEqual([
			"(The session settled with no answer text.)",
			"(The session settled with no answer text.)",
		]);
	});

	test("PSM-062 gives each sender one reply to all its requests, in order, and each ask one of its own", () => {
		const [a, b, c, d, e] = [request(), request({ from: "bob" }), ask(), request(), ask()] as const;
		expect(done(a, b, c, d, e).replies.map(({ to, inReplyTo }) => [to, ...inReplyTo])).toEqual([
			["alice", a.id, d.id],
			["bob", b.id],
			["alice", c.id],
			["alice", e.id],
		]);
	});

	test("D23 a sender of more than 50 requests gets several replies, in order", () => {
		const owed = Array.from({ length: 101 }, () => request());
		const replies = done(...owed).replies;
		expect(replies.map((reply) => reply.inReplyTo.length)).toEqual([50, 50, 1]);
		expect(replies.flatMap((reply) => reply.inReplyTo)).toEqual(owed.map((item) => item.id));
	});

	test("design 4.7 keeps owing, unchanged, what was not read and what was read but not worked on", () => {
		const owed = [
			request({ state: "unread" }),
			request({ state: "read" }),
			ask({ state: "unread" }),
			ask({ state: "read" }),
		];
		expect(done(...owed)).toEqual({ replies: [], owed });
	});

	test("PSM-065 answers a held request with the took-over note first", () => {
		const one = request({ held: true, state: "read" });
		expect(done(one)).toEqual({
			replies: [{ to: "alice", inReplyTo: [one.id], status: "done", body: `${tookOver}\n\nAll tests pass.` }],
			owed: [],
		});
	});

	test("PSM-065 says the note above the placeholder when a held request gets no text", () => {
		const { replies } = settle({ owed: [request({ held: true })], end: "done", answer: "" });
		expect(replies[0]?.body).toBe(`${tookOver}\n\n(The session settled with no answer text.)`);
	});

	test("PSM-062 a held and a new request of one sender share a reply, others get no note", () => {
		const [held, fresh, other, question] = [
			request({ held: true }),
			request(),
			request({ from: "bob" }),
			ask(),
		] as const;
		expect(done(fresh, held, other, question).replies).toEqual([
			{ to: "alice", inReplyTo: [fresh.id, held.id], status: "done", body: `${tookOver}\n\nAll tests pass.` },
			{ to: "bob", inReplyTo: [other.id], status: "done", body: "All tests pass." },
			{ to: "alice", inReplyTo: [question.id], status: "done", body: "All tests pass." },
		]);
	});

	test("D18 says that the session was restarted when that is why a request was held", () => {
		const body = done(request({ held: true, restarted: true })).replies[0]?.body;
		expect(body).toMatch(/^\(The session was restarted [^\n]*\)\n\nAll tests pass\.$/);
	});

	test("D18 says both when one sender's requests were held for both reasons", () => {
		const { replies } = done(request({ held: true, restarted: true }), request({ held: true }));
		expect(replies).toHaveLength(1);
		expect(replies[0]?.body).toMatch(/^\(The user stopped [^\n]*\)\n\n\(The session was restarted [^\n]*\)\n\nAll/);
	});
});

describe("a run that the user stopped", () => {
	test("PSM-064 holds the requests that were read, worked on or not", () => {
		const owed = [request(), request({ state: "read" })];
		expect(stopped(...owed)).toEqual({ replies: [], owed: owed.map((item) => ({ ...item, held: true })) });
	});

	test("PSM-064 answers each ask that was read with a stop line and the partial text", () => {
		const owed = [ask(), ask({ state: "read" })];
		const { replies, owed: left } = stopped(...owed);
		expect(left).toEqual([]);
		expect(replies.map((reply) => [reply.status, ...reply.inReplyTo])).toEqual(owed.map(({ id }) => ["stopped", id]));
		expect(replies[0]?.body).toMatch(/^\(The user stopped the run [^\n]*\)\n\nI have looked at$/);
	});

	test("PSM-064 says only that it was stopped when there is no partial text", () => {
		const { replies } = settle({ owed: [ask()], end: "stopped", answer: "" });
		expect(replies[0]?.body).toMatch(/^\(The user stopped the run [^\n]*\)$/);
	});

	test("PSM-064 answers what was not read failed: one reply for a sender's requests, one for each ask", () => {
		const [a, b, c, d] = ["request", "ask", "request", "ask"].map((kind) =>
			kind === "ask" ? ask({ state: "unread" }) : request({ state: "unread" }),
		) as [Owed, Owed, Owed, Owed];
		const { replies, owed } = stopped(a, b, c, d);
		expect(owed).toEqual([]);
		expect(replies.map((reply) => reply.inReplyTo)).toEqual([[a.id, c.id], [b.id], [d.id]]);
		for (const reply of replies) {
			expect(reply.status).toBe("failed");
			expect(reply.body).toMatch(/stopped before it read the message\. Nothing was done/);
			expect(reply.body).not.toContain("I have looked at");
		}
	});

	test("PSM-068 holds the read and fails the unread request of one sender", () => {
		const [read, unread] = [request(), request({ state: "unread" })] as const;
		const { replies, owed } = stopped(read, unread);
		expect(replies.map((reply) => reply.inReplyTo)).toEqual([[unread.id]]);
		expect(owed).toEqual([{ ...read, held: true }]);
	});

	test("PSM-065 keeps a held request held", () => {
		const one = request({ held: true });
		expect(stopped(one)).toEqual({ replies: [], owed: [one] });
	});

	test("D18 a request held since a restart is from then on held because the user took over", () => {
		const { owed } = stopped(request({ held: true, restarted: true }));
		expect(done(...owed).replies[0]?.body).toBe(`${tookOver}\n\nAll tests pass.`);
	});
});

describe("a run that ended on an error", () => {
	test("PSM-067 answers what was read failed, with the error and the partial text", () => {
		const [a, b, c] = [request(), request({ state: "read" }), ask()] as const;
		const { replies, owed } = failed(a, b, c);
		expect(owed).toEqual([]);
		expect(replies.map((reply) => [reply.status, ...reply.inReplyTo])).toEqual([
			["failed", a.id, b.id],
			["failed", c.id],
		]);
		expect(replies[0]?.body).toMatch(
			/^\(The run ended on an error before it finished: overloaded\. [^\n]*\)\n\nI have looked at$/,
		);
	});

	test.each([undefined, "", " \n", "..."])("PSM-067 calls an error without words (%j) unknown", (error) => {
		const settling: Settling = {
			owed: [request()],
			end: "failed",
			answer: "",
			...(error === undefined ? {} : { error }),
		};
		expect(settle(settling).replies[0]?.body).toMatch(
			/^\(The run ended on an error before it finished: unknown error\. [^\n]*\)$/,
		);
	});

	test("PSM-067 shows an error as one line of at most 500 characters", () => {
		const error = `\n429 {\n"[mailbox] End\u2028": ${"x".repeat(9999)}`;
		const body = settle({ owed: [request()], end: "failed", answer: "", error }).replies[0]?.body ?? "";
		expect(body).toContain(': 429 { "[mailbox] End ": xxx');
		expect(body).not.toMatch(/[\n\u2028]/);
		expect(body.length).toBeLessThan(700);
	});

	test("PSM-065 keeps a held request held, whatever held it", () => {
		const owed = [request({ held: true }), request({ held: true, restarted: true })];
		expect(failed(...owed)).toEqual({ replies: [], owed });
	});

	test("design 4.5 leaves unread mail to the next run", () => {
		const owed = [request({ state: "unread" }), ask({ state: "unread" })];
		expect(failed(...owed)).toEqual({ replies: [], owed });
	});
});

test("PSM-065 a request stopped, then failed, then done is answered once", () => {
	const one = request();
	const afterStop = stopped(one);
	const afterFailure = failed(...afterStop.owed);
	const afterDone = done(...afterFailure.owed);
	expect([...afterStop.replies, ...afterFailure.replies]).toEqual([]);
	expect(afterDone.replies.map((reply) => [reply.status, reply.body])).toEqual([
		["done", `${tookOver}\n\nAll tests pass.`],
	]);
	expect(afterDone.owed).toEqual([]);
});

test("PSM-069 a settle that owes nothing sends nothing", () => {
	for (const settled of [done(), stopped(), failed()]) expect(settled).toEqual({ replies: [], owed: [] });
});

describe("whatever is owed and however the run ended", () => {
	const item = fc
		.record({
			from: fc.constantFrom("alice", "bob", "carol"),
			kind: fc.constantFrom("request" as const, "ask" as const),
			held: fc.boolean(),
			restarted: fc.boolean(),
			state: fc.constantFrom("unread" as const, "read" as const, "worked-on" as const),
		})
		.map((fields) => ({ ...fields, held: fields.held && fields.kind === "request" }));
	const settlings: fc.Arbitrary<Settling> = fc.record({
		owed: fc.array(item, { maxLength: 200 }).map((items) => items.map((fields, n) => ({ id: `id-${n}`, ...fields }))),
		end: fc.constantFrom("done" as const, "stopped" as const, "failed" as const),
		answer: fc.string(),
		error: fc.string(),
	});

	test("L3 every item is in exactly one reply to its sender or stays owed", () => {
		fc.assert(
			fc.property(settlings, (settling) => {
				const { replies, owed } = settle(settling);
				const answered = replies.flatMap((reply) => reply.inReplyTo.map((id) => ({ id, from: reply.to })));
				const left = owed.map(({ id, from }) => ({ id, from }));
				const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1);
				expect([...answered, ...left].sort(byId)).toEqual(
					settling.owed.map(({ id, from }) => ({ id, from })).sort(byId),
				);
			}),
		);
	});

	test("D23 no reply names more than 50, an ask shares none, and order is kept", () => {
		fc.assert(
			fc.property(settlings, (settling) => {
				const { replies, owed } = settle(settling);
				const place = new Map(settling.owed.map((entry, n) => [entry.id, n]));
				const asks = new Set(settling.owed.filter((entry) => entry.kind === "ask").map((entry) => entry.id));
				for (const ids of [...replies.map((reply) => reply.inReplyTo), owed.map((entry) => entry.id)]) {
					const places = ids.map((id) => place.get(id) ?? -1);
					expect(places).toEqual(places.toSorted((a, b) => a - b));
				}
				for (const { inReplyTo } of replies) {
					expect(inReplyTo.length).toBeGreaterThan(0);
					expect(inReplyTo.length).toBeLessThanOrEqual(50);
					if (inReplyTo.some((id) => asks.has(id))) expect(inReplyTo).toHaveLength(1);
				}
			}),
		);
	});

	test("PSM-064 a request is never answered stopped", () => {
		fc.assert(
			fc.property(settlings, (settling) => {
				const asks = new Set(settling.owed.filter((entry) => entry.kind === "ask").map((entry) => entry.id));
				for (const reply of settle(settling).replies) {
					if (reply.status === "stopped") expect(reply.inReplyTo.every((id) => asks.has(id))).toBe(true);
				}
			}),
		);
	});

	test("L3 one more run that is done and works on everything answers all that is left", () => {
		fc.assert(
			fc.property(settlings, (settling) => {
				const left = settle(settling).owed.map((entry) => ({ ...entry, state: "worked-on" as const }));
				expect(settle({ owed: left, end: "done", answer: "x" }).owed).toEqual([]);
			}),
		);
	});
});
