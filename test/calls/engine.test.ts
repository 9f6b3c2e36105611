import { beforeEach, describe, expect, test, vi } from "vitest";
import { createEngine, type Engine, type ToolResult, type Work } from "../../src/calls/engine.ts";
import type { EndedCall, OpenCall } from "../../src/mail/call-store.ts";
import { alice } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";

useFakeMachine();

/** A session that keeps what it is told of calls. */
function session() {
	return {
		maxCalls: 4,
		mayDetach: true,
		hasMail: false,
		takesOpen: true,
		takesEnd: true,
		opened: [] as OpenCall[],
		ended: [] as EndedCall[],
		changes: 0,
	};
}

let at = session();
let engine: Engine;

beforeEach(() => {
	at = session();
	engine = createEngine({
		address: alice,
		now: Date.now,
		hops: () => 3,
		maxCalls: () => at.maxCalls,
		mayDetach: () => at.mayDetach,
		hasMail: () => at.hasMail,
		open({ id, tool, arguments: args, started, hops, ticket }) {
			const asked = ticket === undefined ? {} : { ticket };
			if (at.takesOpen) at.opened.push({ id, tool, arguments: args, started, hops, ...asked });
			return at.takesOpen;
		},
		end(call) {
			if (at.takesEnd) at.ended.push(call);
			return at.takesEnd;
		},
		ended: (id) => at.ended.find((call) => call.id === id),
		pathOf: (id) => id,
		changed: () => at.changes++,
	});
});

function text(of: string): ToolResult {
	return { content: [{ type: "text", text: of }], details: undefined };
}

/** Work that ends when it is told to, and how it was begun and stopped. */
function job({ isDeaf = false } = {}) {
	const { promise, resolve, reject } = Promise.withResolvers<ToolResult>();
	const made = {
		isBegun: false,
		isStopped: false,
		say: (_text: string) => {},
		end: (of: string) => resolve(text(of)),
		fail: (why: string) => reject(new Error(why)),
		work: ((signal, onUpdate) => {
			made.isBegun = true;
			made.say = (of) => onUpdate(text(of));
			signal.addEventListener("abort", () => {
				made.isStopped = true;
				if (!isDeaf) reject(new Error("stopped"));
			});
			return promise;
		}) satisfies Work,
	};
	return made;
}

/** A call, and what its model is told in the end. */
function call(work: Work, attachMs?: number, signal?: AbortSignal, onUpdate?: (of: ToolResult) => void) {
	const given = { result: undefined as ToolResult | undefined, error: undefined as unknown };
	engine.run({ tool: "bash", args: { command: "make" }, attachMs }, work, signal, onUpdate).then(
		(result) => {
			given.result = result;
		},
		(error) => {
			given.error = error;
		},
	);
	return given;
}

/** The id of the n-th call that runs. */
const idOf = (n = 0) => engine.views()[n]?.id ?? expect.fail("no call runs");
const shown = (result: ToolResult | undefined) =>
	result?.content.map((part) => ("text" in part ? part.text : part.type));
const question = { id: "ticket-a", tool: "bash" };
const told = (result: ToolResult | undefined) => JSON.parse(shown(result)?.join("") ?? "null");

test("SMB-024 a call that cannot be handed back when its time has come is handed back as soon as it can", async () => {
	const made = job();
	at.takesOpen = false;
	let told: ToolResult | undefined;
	engine
		.run({ tool: "bash", args: {}, attachMs: 1000 }, made.work, undefined, undefined)
		.then((result) => (told = result));
	await later(5000);
	expect(told).toBeUndefined();
	at.takesOpen = true;
	await later(1000);
	expect(JSON.stringify(told?.content)).toContain("still running after 1 s");
	made.end("done");
	await later(0);
	expect(at.ended).toHaveLength(1);
	expect(vi.getTimerCount()).toBe(0);
});

test("what a call has left behind when it ended takes no place that nobody gives back", async () => {
	at.maxCalls = 1;
	const asked = Promise.withResolvers<void>();
	const left = call(async (_signal, _update, turn) => {
		void turn.aside(() => asked.promise);
		return text("done");
	});
	await later(0);
	expect(shown(left.result)).toEqual(["done"]);
	asked.resolve();
	await later(0);
	const next = call(async () => text("made"));
	await later(0);
	expect(shown(next.result)).toEqual(["made"]);
});

test("what a call has left behind that waits for a place when it ends takes none either", async () => {
	at.maxCalls = 1;
	const made = job();
	const asked = Promise.withResolvers<void>();
	const end = Promise.withResolvers<void>();
	const left = call(async (_signal, _update, turn) => {
		void turn.aside(() => asked.promise);
		await end.promise;
		return text("done");
	});
	await later(0);
	const other = call(made.work);
	await later(0);
	asked.resolve();
	await later(0);
	end.resolve();
	await later(0);
	expect(shown(left.result)).toEqual(["done"]);
	made.end("other");
	await later(0);
	expect(shown(other.result)).toEqual(["other"]);
	const next = call(async () => text("made"));
	await later(0);
	expect(shown(next.result)).toEqual(["made"]);
});

describe("a call that is attached", () => {
	test("SMB-023 gives its result as it is, with its details, and leaves nothing", async () => {
		const result = { ...text("built"), details: { exit: 0 }, structuredContent: { output: "built" } };
		const given = call(async () => result, 10_000);
		await later(0);
		expect(given.result).toBe(result);
		expect([at.opened, at.ended, engine.views()]).toEqual([[], [], []]);
		await later(20_000);
		expect(at.ended).toEqual([]);
	});

	test("throws what its work throws", async () => {
		const error = new Error("exit 3");
		const given = call(() => Promise.reject(error));
		await later(0);
		expect(given.error).toBe(error);
		expect(engine.views()).toEqual([]);
	});

	test("shows its progress, in its place and in the list", async () => {
		const seen: unknown[] = [];
		const made = job();
		call(made.work, undefined, undefined, (partial) => seen.push(shown(partial)));
		await later(0);
		made.say("1 of 2\n");
		expect(seen).toEqual([["1 of 2\n"]]);
		expect(engine.views()[0]?.progress).toEqual(["1 of 2"]);
	});

	test("SMB-046 is cancelled with all others that are; what goes on by itself goes on", async () => {
		const [first, second, other] = [job(), job(), job()];
		const given = [call(first.work), call(second.work, 60_000)];
		call(other.work, 0);
		await later(0);
		expect(engine.cancelAttached()).toEqual([idOf(0), idOf(1)]);
		await later(0);
		expect([first.isStopped, second.isStopped, other.isStopped]).toEqual([true, true, false]);
		expect(given.map(({ error }) => error)).toEqual([new Error("stopped"), new Error("stopped")]);
		expect([engine.cancelAttached(), at.ended]).toEqual([[], []]);
	});

	test("ends when the user stops the run, and is no mail", async () => {
		const stop = new AbortController();
		const made = job();
		const given = call(made.work, 10_000, stop.signal);
		await later(0);
		stop.abort();
		await later(0);
		expect([made.isStopped, given.error]).toEqual([true, new Error("stopped")]);
		await later(20_000);
		expect([at.opened, at.ended]).toEqual([[], []]);
	});

	test("that is made in a run that was stopped before does not begin", async () => {
		const made = job();
		const given = call(made.work, undefined, AbortSignal.abort());
		await later(0);
		expect([made.isBegun, given.error]).toEqual([false, expect.any(Error)]);
	});

	test("L3 that does not listen when the user stops the run holds it for five seconds, and is no mail afterwards", async () => {
		const stop = new AbortController();
		const made = job({ isDeaf: true });
		const given = call(made.work, 2000, stop.signal);
		await later(1000);
		stop.abort();
		engine.interrupt();
		await later(4900);
		expect(given).toEqual({ result: undefined, error: undefined });
		await later(200);
		expect(given.error).toEqual(new Error("it did not end when it was told to"));
		made.end("too late");
		await later(0);
		expect([at.opened, at.ended]).toEqual([[], []]);
	});

	test("is waited for where its result could not come as mail", async () => {
		at.mayDetach = false;
		const made = job();
		const given = call(made.work, 1000);
		await later(5000);
		engine.interrupt();
		await later(0);
		expect(given.result).toBeUndefined();
		made.end("built");
		await later(0);
		expect(shown(given.result)).toEqual(["built"]);
	});

	test("L2 is waited for when the disk does not take that it goes on", async () => {
		at.takesOpen = false;
		const made = job();
		const given = call(made.work, 1000);
		await later(2000);
		expect(given.result).toBeUndefined();
		made.end("built");
		await later(0);
		expect(shown(given.result)).toEqual(["built"]);
		expect(at.ended).toEqual([]);
	});
});

describe("a call that is detached", () => {
	test("SMB-027 is kept first, then its model is told, and its end becomes mail, once", async () => {
		const made = job();
		const given = call(made.work, 2000);
		await later(1999);
		expect([given.result, at.opened]).toEqual([undefined, []]);
		await later(1);
		const id = idOf();
		const started = Date.now() - 2000;
		expect(at.opened).toEqual([{ id, tool: "bash", arguments: '{"command":"make"}', started, hops: 3 }]);
		expect(told(given.result)).toEqual({
			status: "running",
			tool_call_id: id,
			detached: "still running after 2 s",
			message: expect.stringContaining("will arrive as mail"),
		});
		expect(given.result?.structuredContent).toEqual(told(given.result));
		await later(1000);
		made.end("built");
		await later(0);
		const [open] = at.opened;
		expect(at.ended).toEqual([
			{ ...open, state: "completed", finished: Date.now(), content: [{ type: "text", text: "built" }] },
		]);
		expect(engine.views()).toEqual([]);
	});

	test("that nobody has decided about yet is said not to be made, and runs like any other after that", async () => {
		const [decision, made] = [Promise.withResolvers<void>(), job()];
		const work: Work = async (signal, onUpdate, turn) => {
			await turn.aside(() => decision.promise, question);
			return await made.work(signal, onUpdate);
		};
		const run = (attachMs: number) =>
			engine.run({ tool: "bash", args: {}, attachMs, question }, work, undefined, undefined);
		const [atOnce, late] = [run(0), run(2000)];
		await later(2000);
		expect(told(await atOnce)).toMatchObject({ status: "pending", detached: "at once" });
		expect(told(await late)).toEqual({
			status: "pending",
			tool_call_id: idOf(1),
			detached: "nobody has decided about it within 2 s",
			message: expect.stringMatching(
				/^Nobody has decided about it yet, and it has not been made. Do not make it again/,
			),
		});
		expect(at.opened.map(({ ticket }) => ticket)).toEqual(["ticket-a", "ticket-a"]);
		decision.resolve();
		await later(0);
		const decided = run(2000);
		await later(2000);
		expect(told(await decided)).toMatchObject({ status: "running", detached: "still running after 2 s" });
	});

	test("whose question waits when the session closes stays open for the next start, which says that it was not made", async () => {
		const waiting = (tool: string): Work => {
			return (_signal, _onUpdate, turn) => turn.aside(() => new Promise(() => {}), { ...question, tool });
		};
		call(waiting("bash"), 0);
		// Its model waits, and is told so at once.
		const attached = call(waiting("bash"));
		// A script that has begun, whose own call is asked about.
		call(waiting("read"), 0);
		await later(0);
		expect(at.opened.map(({ ticket }) => ticket)).toEqual([undefined, undefined, "ticket-a"]);
		engine.close(false);
		await later(0);
		expect(attached.error).toMatchObject({
			message: "It was not made. The question ticket-a still waits: its decision comes as mail.",
		});
		expect(at.ended.map(({ content }) => content)).toEqual([
			[{ type: "text", text: "the session was closed, or loaded its extensions again" }],
		]);
	});

	test.each([
		[0, "at once"],
		[undefined, "interrupted by mail"],
	])("SMB-024 after %s ms is told why", async (attachMs, why) => {
		const given = call(job().work, attachMs);
		engine.interrupt();
		await later(0);
		expect(told(given.result).detached).toBe(why);
	});

	test("SMB-041 an interrupt detaches every one, those that wait for their turn too", async () => {
		at.maxCalls = 1;
		const given = [call(job().work), call(job().work), call(job().work)];
		await later(0);
		engine.interrupt();
		await later(0);
		expect(given.map(({ result }) => told(result).detached)).toEqual(Array(3).fill("interrupted by mail"));
		expect(engine.views().map(({ state, isDetached }) => [state, isDetached])).toEqual([
			["running", true],
			["pending", true],
			["pending", true],
		]);
	});

	test("SMB-032 goes on when the user stops the run", async () => {
		const stop = new AbortController();
		const made = job();
		call(made.work, 1000, stop.signal);
		await later(1000);
		stop.abort();
		await later(10_000);
		expect(made.isStopped).toBe(false);
		made.end("built");
		await later(0);
		expect(at.ended).toMatchObject([{ state: "completed" }]);
	});

	test("tells of its progress in the list alone", async () => {
		const seen: unknown[] = [];
		const made = job();
		call(made.work, 0, undefined, (partial) => seen.push(partial));
		await later(0);
		made.say("1 of 2");
		expect(seen).toEqual([]);
		expect(engine.views()[0]?.progress).toEqual(["1 of 2"]);
	});

	test("that throws has failed, and says why in its own lines", async () => {
		const made = job();
		call(made.work, 0);
		await later(0);
		made.fail("line 1\nline 2");
		await later(0);
		expect(at.ended).toMatchObject([{ state: "failed", content: [{ type: "text", text: "line 1\nline 2" }] }]);
	});

	test("whose tool says that it failed has failed", async () => {
		call(async () => ({ ...text("no such file"), isError: true }), 0);
		await later(0);
		expect(at.ended).toMatchObject([{ state: "failed", content: [{ text: "no such file" }] }]);
	});

	test("SMB-033 that is cancelled is stopped, and becomes mail as cancelled", async () => {
		const made = job();
		call(made.work, 0);
		await later(0);
		const id = idOf();
		expect(engine.cancel([id])).toEqual([id]);
		await later(0);
		expect(made.isStopped).toBe(true);
		expect(at.ended).toMatchObject([{ id, state: "cancelled", content: [{ text: "stopped" }] }]);
		expect(engine.cancel([id])).toEqual([]);
	});

	test("SMB-033 to cancel without ids cancels those that nobody waits for", async () => {
		const [waited, first, second] = [job(), job(), job()];
		call(waited.work);
		call(first.work, 0);
		call(second.work, 0);
		await later(0);
		expect(engine.cancel()).toHaveLength(2);
		await later(0);
		expect([waited.isStopped, first.isStopped, second.isStopped]).toEqual([false, true, true]);
	});

	test("L3 that does not listen when it is cancelled is given up after five seconds, and frees its place", async () => {
		at.maxCalls = 1;
		const deaf = job({ isDeaf: true });
		const next = job();
		call(deaf.work, 0);
		call(next.work, 0);
		await later(0);
		engine.cancel([idOf()]);
		await later(4900);
		expect([at.ended, next.isBegun]).toEqual([[], false]);
		await later(200);
		expect(at.ended).toMatchObject([
			{ state: "cancelled", content: [{ text: expect.stringContaining("did not end") }] },
		]);
		expect(next.isBegun).toBe(true);
		deaf.end("after all");
		await later(0);
		expect(at.ended).toHaveLength(1);
	});

	test("L2 L4 whose end the disk does not take runs on for everybody, is tried again, and is not cancelled any more", async () => {
		const made = job();
		call(made.work, 0);
		await later(0);
		at.takesEnd = false;
		made.end("built");
		await later(0);
		expect(engine.views()).toHaveLength(1);
		engine.cancel([idOf()]);
		await later(29_000);
		at.takesEnd = true;
		await later(900);
		expect(at.ended).toEqual([]);
		await later(200);
		expect(at.ended).toMatchObject([{ state: "completed", content: [{ text: "built" }] }]);
		expect(engine.views()).toEqual([]);
	});

	test("L2 whose end the disk did not take before the session was closed ends as it did", async () => {
		const made = job();
		call(made.work, 0);
		await later(0);
		at.takesEnd = false;
		made.end("built");
		await later(0);
		at.takesEnd = true;
		engine.close(false);
		expect(at.ended).toMatchObject([{ state: "completed", content: [{ text: "built" }] }]);
	});

	test.each<[string, unknown]>([
		["no content", undefined],
		["a text for its content", "built"],
	])("L7 whose tool returns %s ends all the same", async (_what, content) => {
		call(async () => Object.assign(text(""), { content }), 0);
		await later(0);
		expect(at.ended).toMatchObject([{ state: "completed", content: [] }]);
	});

	test("L7 whose tool returns parts that are none ends all the same, with the others", async () => {
		const content = [{ type: "resource", uri: "file:///x" }, null, { type: "text" }, ...text("built").content];
		call(async () => Object.assign(text(""), { content }), 0);
		await later(0);
		const none = { type: "text", text: "(a part that is neither text nor an image)" };
		expect(at.ended).toMatchObject([{ content: [none, none, none, { type: "text", text: "built" }] }]);
	});

	test("L7 keeps 8 MiB of what its tool returns, and no image in part", async () => {
		const megabytes = 1024 * 1024;
		const image = { type: "image" as const, data: "x".repeat(3 * megabytes), mimeType: "image/png" };
		const long = text("y".repeat(6 * megabytes)).content;
		call(async () => ({ content: [image, ...long, image], details: undefined }), 0);
		await later(0);
		const [first, second, third] = at.ended[0]?.content ?? [];
		expect(first).toEqual(image);
		expect(second).toMatchObject({
			type: "text",
			text: expect.stringMatching(/y\n\(The result was cut here: it was too large\.\)$/),
		});
		expect(third).toEqual({ type: "text", text: "(an image that was too large)" });
	});

	test("L7 keeps the last 50 lines of progress, each of 200 characters, and none twice in a row", async () => {
		const made = job();
		call(made.work, 0);
		await later(0);
		for (let n = 0; n < 60; n++) {
			made.say(`step ${n}\n`);
			made.say(`step ${n}`);
		}
		made.say("");
		made.say("z".repeat(1000));
		const progress = engine.views()[0]?.progress ?? [];
		expect([progress.length, progress[0], progress[48]]).toEqual([50, "step 11", "step 59"]);
		expect(progress[49]).toHaveLength(200);
	});
});

describe("more calls than run at once", () => {
	test("wait for their turn, in order", async () => {
		at.maxCalls = 2;
		const jobs = [job(), job(), job(), job()];
		const given = jobs.map(({ work }) => call(work));
		await later(0);
		const begun = () => jobs.map(({ isBegun }) => isBegun);
		expect(begun()).toEqual([true, true, false, false]);
		expect(engine.views().map(({ state }) => state)).toEqual(["running", "running", "pending", "pending"]);
		jobs[1]?.end("second");
		await later(0);
		expect(begun()).toEqual([true, true, true, false]);
		jobs[0]?.fail("first");
		await later(0);
		expect(begun()).toEqual([true, true, true, true]);
		jobs[3]?.end("fourth");
		jobs[2]?.end("third");
		await later(0);
		expect(given.map(({ result }) => shown(result)?.[0])).toEqual([undefined, "second", "third", "fourth"]);
	});

	test("that is stopped while it waits takes nobody's turn", async () => {
		at.maxCalls = 1;
		const stop = new AbortController();
		const [first, second, third] = [job(), job(), job()];
		call(first.work);
		const given = call(second.work, undefined, stop.signal);
		call(third.work);
		await later(0);
		stop.abort();
		await later(0);
		expect(given.error).toBeInstanceOf(Error);
		expect([second.isBegun, third.isBegun]).toEqual([false, false]);
		first.end("done");
		await later(0);
		expect([second.isBegun, third.isBegun]).toEqual([false, true]);
	});

	test("that is cancelled while it waits never begins, takes nobody's turn, and becomes mail", async () => {
		at.maxCalls = 1;
		const [first, second, third] = [job(), job(), job()];
		for (const { work } of [first, second, third]) call(work, 0);
		await later(0);
		const id = idOf(1);
		engine.cancel([id]);
		await later(0);
		expect(at.ended).toMatchObject([{ id, state: "cancelled" }]);
		expect([second.isBegun, third.isBegun]).toEqual([false, false]);
		first.end("done");
		await later(0);
		expect(third.isBegun).toBe(true);
	});

	test("have the place of one that waits for somebody, which takes one again after that", async () => {
		at.maxCalls = 1;
		const [decision, other, done] = [Promise.withResolvers<void>(), job(), job()];
		call(async (signal, onUpdate, turn) => {
			await turn.aside(() => decision.promise);
			return await done.work(signal, onUpdate);
		});
		await later(0);
		expect(engine.views().map(({ state }) => state)).toEqual(["pending"]);
		call(other.work);
		await later(0);
		expect(other.isBegun).toBe(true);
		decision.resolve();
		await later(0);
		expect(done.isBegun).toBe(false);
		other.end("done");
		await later(0);
		expect([done.isBegun, engine.views().map(({ state }) => state)]).toEqual([true, ["running"]]);
	});

	test("have one place of a call that waits twice, however its waits meet", async () => {
		at.maxCalls = 1;
		const [one, two, begin] = [1, 2, 3].map(() => Promise.withResolvers<void>());
		const [last, other, third, fourth] = [job(), job(), job(), job()];
		call(async (signal, onUpdate, turn) => {
			const first = turn.aside(async () => one?.promise);
			await begin?.promise;
			await Promise.all([first, turn.aside(async () => two?.promise)]);
			return await last.work(signal, onUpdate);
		});
		await later(0);
		call(other.work);
		await later(0);
		// The first ends while there is no place, and the second begins and ends after that.
		for (const step of [one, begin, two]) {
			step?.resolve();
			await later(0);
		}
		expect([other.isBegun, last.isBegun]).toEqual([true, false]);
		other.end("done");
		await later(0);
		expect(last.isBegun).toBe(true);
		for (const { work } of [third, fourth]) call(work);
		await later(0);
		expect(third.isBegun).toBe(false);
		last.end("done");
		await later(0);
		expect([third.isBegun, fourth.isBegun]).toEqual([true, false]);
	});

	test("are not waited for by one that begins with a wait for somebody", async () => {
		at.maxCalls = 1;
		const [other, asked] = [job(), Promise.withResolvers<void>()];
		call(other.work);
		let isAsked = false;
		const work: Work = async (_signal, _onUpdate, turn) => {
			await turn.aside(() => {
				isAsked = true;
				return asked.promise;
			});
			return text("made");
		};
		const made = engine.run({ tool: "bash", args: {}, attachMs: undefined, question }, work, undefined, undefined);
		await later(0);
		expect(isAsked).toBe(true);
		asked.resolve();
		other.end("done");
		expect(shown(await made)).toEqual(["made"]);
	});

	test("begin as many as the settings allow by then", async () => {
		at.maxCalls = 1;
		const jobs = [job(), job(), job(), job()];
		for (const { work } of jobs) call(work, 0);
		await later(0);
		at.maxCalls = 2;
		jobs[0]?.end("done");
		await later(0);
		expect(jobs.map(({ isBegun }) => isBegun)).toEqual([true, true, true, false]);
		at.maxCalls = 1;
		jobs[1]?.end("done");
		await later(0);
		expect(jobs[3]?.isBegun).toBe(false);
		jobs[2]?.end("done");
		await later(0);
		expect(jobs[3]?.isBegun).toBe(true);
	});
});

describe("a wait", () => {
	/** What a wait ended by; undefined while it goes on. */
	function wait(ids: readonly string[], timeoutMs = 60_000, signal?: AbortSignal) {
		const woken = { by: undefined as string | undefined, id: undefined as string | undefined };
		engine.wait(ids, timeoutMs, signal).then((ended) => Object.assign(woken, ended));
		return woken;
	}

	async function twoCalls() {
		const jobs = [job(), job()] as const;
		for (const { work } of jobs) call(work, 0);
		await later(0);
		return { jobs, ids: [idOf(0), idOf(1)] as const };
	}

	test("SMB-035 ends when its call has ended, and the result is kept by then", async () => {
		const { jobs, ids } = await twoCalls();
		const woken = wait([ids[1]]);
		jobs[0].end("first");
		await later(0);
		expect(woken.by).toBeUndefined();
		jobs[1].end("second");
		await later(0);
		expect(woken).toEqual({ by: "call", id: ids[1] });
		expect(at.ended.map(({ id }) => id)).toContain(ids[1]);
	});

	test("SMB-035 for several calls ends with the first", async () => {
		const { jobs, ids } = await twoCalls();
		const woken = wait(ids);
		jobs[1].end("second");
		await later(0);
		expect(woken).toEqual({ by: "call", id: ids[1] });
	});

	test("L4 does not end before the disk has taken the result", async () => {
		const { jobs, ids } = await twoCalls();
		const woken = wait([ids[0]]);
		at.takesEnd = false;
		jobs[0].end("first");
		await later(29_000);
		expect(woken.by).toBeUndefined();
		at.takesEnd = true;
		await later(2000);
		expect(woken.by).toBe("call");
	});

	test("for a call that has ended before ends at once", async () => {
		const { jobs, ids } = await twoCalls();
		jobs[0].end("first");
		await later(0);
		const woken = wait(ids);
		await later(0);
		expect(woken).toEqual({ by: "call", id: ids[0] });
	});

	test("SMB-036 ends when mail has come, at once when it was there", async () => {
		const woken = wait([]);
		engine.mailCame();
		await later(0);
		expect(woken.by).toBeUndefined();
		at.hasMail = true;
		engine.mailCame();
		const late = wait([]);
		await later(0);
		expect([woken.by, late.by]).toEqual(["mail", "mail"]);
	});

	test("SMB-037 ends after its time", async () => {
		const woken = wait([], 5000);
		await later(4999);
		expect(woken.by).toBeUndefined();
		await later(1);
		expect(woken.by).toBe("timeout");
	});

	test.each<[string, (stop: AbortController) => void]>([
		["interrupt", () => engine.interrupt()],
		["stop", (stop) => stop.abort()],
		["stop", () => engine.close(false)],
	])("ends by an %s", async (by, act) => {
		const stop = new AbortController();
		const woken = wait([], 60_000, stop.signal);
		act(stop);
		await later(0);
		expect(woken.by).toBe(by);
		expect(vi.getTimerCount()).toBe(0);
	});

	test("of a run that was stopped before ends at once", async () => {
		const woken = wait([], 60_000, AbortSignal.abort());
		await later(0);
		expect(woken.by).toBe("stop");
	});
});

describe("whoever watches calls", () => {
	test("hears when one is made, begins, says something, is detached or ends, and nothing more once that is over", async () => {
		let heard: string[] = [];
		const stop = engine.watch(() => {
			heard = [...engine.views(), ...engine.recent()].map(({ state }) => state);
		});
		/** The states of the calls, as they were heard of last; none when nothing was. */
		const heardOf = async (action: () => unknown) => {
			heard = [];
			action();
			await later(0);
			return heard;
		};
		const made = job();
		const begin = Promise.withResolvers<void>();
		const call = { tool: "bash", args: {}, attachMs: 1000, question };
		const afterWait: Work = async (signal, onUpdate, turn) => {
			await turn.aside(() => begin.promise);
			return made.work(signal, onUpdate);
		};
		expect(await heardOf(() => engine.run(call, afterWait, undefined, undefined))).toEqual(["pending"]);
		expect(await heardOf(() => begin.resolve())).toEqual(["running"]);
		expect(await heardOf(() => made.say("linking"))).toEqual(["running"]);
		expect(await heardOf(() => made.say("linking"))).toEqual([]);
		expect(await heardOf(() => vi.advanceTimersByTime(1000))).toEqual(["running"]);
		expect(await heardOf(() => made.end("built"))).toEqual(["completed"]);
		const attached = job();
		await heardOf(() => engine.run({ ...call, attachMs: undefined }, attached.work, undefined, undefined));
		expect(await heardOf(() => attached.end("built"))).toEqual(["completed"]);
		stop();
		expect(await heardOf(() => engine.run(call, job().work, undefined, undefined))).toEqual([]);
	});

	test("sees how a result begins, besides what its call said", async () => {
		const [made, silent] = [job(), job()];
		call(made.work, 0);
		call(silent.work, 0);
		await later(0);
		made.say("linking");
		made.end("built\nall");
		await later(0);
		silent.end("");
		await later(0);
		expect(engine.recent()).toMatchObject([
			{ progress: [], resultLine: "(no output)" },
			{ progress: ["linking"], resultLine: "built" },
		]);
	});
});

describe("the end of a session", () => {
	test("L10 ends every call: what is detached becomes mail as cancelled, and no timer is left", async () => {
		const [waited, detached, deaf] = [job(), job(), job({ isDeaf: true })];
		const given = call(waited.work, 60_000);
		call(detached.work, 0);
		call(deaf.work, 0);
		await later(0);
		engine.close(false);
		expect(at.ended.map(({ state }) => state)).toEqual(["cancelled", "cancelled"]);
		await later(0);
		expect([waited.isStopped, detached.isStopped, deaf.isStopped]).toEqual([true, true, true]);
		expect(given.error).toEqual(new Error("the session was closed, or loaded its extensions again"));
		deaf.end("too late");
		await later(60_000);
		expect([at.ended.length, engine.views(), vi.getTimerCount()]).toEqual([2, [], 0]);
	});
});
