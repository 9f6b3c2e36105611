import { mkdirSync, readdirSync, readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import {
	type Decision,
	decidedHow,
	isTicketId,
	type NewTicket,
	openTicketStore,
	type Ticket,
} from "../../src/policy/tickets.ts";
import { faultCodes, faultyDisk, interruptedDisk, linklessDisk, startMs, temporaryFolder } from "../support/disk.ts";

const dayMs = 24 * 60 * 60 * 1000;
const args = { command: "rm -rf build", timeout: 5 };

function newTicket(changed: Partial<NewTicket> = {}): NewTicket {
	return {
		session: "s",
		callId: "c",
		tool: "bash",
		arguments: args,
		message: "Permission required for tool 'bash'",
		resume: "replay_tool_call",
		...changed,
	};
}

function approval(changed: Partial<Decision> = {}): Decision {
	return { decision_id: "d1", action: "resume", by: { kind: "person", who: "Ann" }, at: startMs, ...changed };
}

function refusal(changed: Partial<Decision> = {}): Decision {
	return approval({ decision_id: "d2", action: "cancel", by: { kind: "person", who: "Bob" }, ...changed });
}

/** The tickets of a new folder, with a clock that can be set. */
function tickets({ disk = nodeDisk(), folder = temporaryFolder() }: { disk?: Disk; folder?: string } = {}) {
	const clock = { now: startMs };
	return { folder, clock, box: join(folder, "tickets"), store: openTicketStore(disk, folder, () => clock.now) };
}

function opened(store: { open(ticket: NewTicket): Ticket }, changed?: Partial<NewTicket>): string {
	return store.open(newTicket(changed)).id;
}

function namesIn(box: string): string[] {
	return readdirSync(box).sort();
}

test("a ticket lies in a file of its owner's alone, and waits until it is decided", () => {
	const { store, box } = tickets();
	expect([store.listPending(), store.listDecided(), store.takeGrant("bash", args)]).toEqual([[], [], undefined]);
	const ticket = store.open(newTicket({ rule: "ask bash", approver: "boss", response: { type: "object" } }));
	expect(ticket).toEqual({
		...newTicket({ rule: "ask bash", approver: "boss", response: { type: "object" } }),
		id: ticket.id,
		since: startMs,
		state: "pending",
	});
	expect(isTicketId(ticket.id)).toBe(true);
	expect(store.find(ticket.id)).toEqual(ticket);
	expect(store.listPending()).toEqual([ticket]);
	expect(namesIn(box)).toEqual([`${ticket.id}.json`]);
	expect([box, join(box, `${ticket.id}.json`)].map((path) => statSync(path).mode & 0o777)).toEqual([0o700, 0o600]);
});

test("the oldest ticket comes first", () => {
	const { store, clock } = tickets();
	const ids = [3, 1, 2].map((at) => {
		clock.now = startMs + at;
		return opened(store);
	});
	expect(store.listPending().map(({ id }) => id)).toEqual([ids[1], ids[2], ids[0]]);
});

test("AWK-008 the first decision holds; the same again is none; a later one is told who decided what when", () => {
	const { store, folder } = tickets();
	const id = opened(store);
	expect(store.decide(id, approval())).toMatchObject({ ok: true, repeated: false, ticket: { state: "decided" } });
	expect(store.listPending()).toEqual([]);
	expect(store.listDecided()).toMatchObject([{ id, decision: approval() }]);
	// Another process.
	const other = tickets({ folder }).store;
	expect(other.decide(id, approval())).toMatchObject({ ok: true, repeated: true, decision: approval() });
	expect(other.decide(id, refusal())).toEqual({
		ok: false,
		code: "decided",
		message: `Nothing was decided: ${id} was approved by Ann on 2026-11-29 12:00:00 UTC.`,
		decision: approval(),
	});
	expect(store.close(id)).toBe(true);
	expect(other.decide(id, approval())).toMatchObject({ ok: true, repeated: true, ticket: { state: "closed" } });
	expect(other.decide(id, refusal())).toMatchObject({ ok: false, code: "decided" });
});

test("it is said who decided what when, on one line", () => {
	const said = (changed: Partial<Decision>) => decidedHow(refusal(changed));
	expect(said({ reason: "not\nnow" })).toBe("was refused by Bob on 2026-11-29 12:00:00 UTC: not now");
	expect(said({ by: { kind: "model", who: "boss" } })).toContain("by the model of boss on");
	expect(said({ by: { kind: "time", who: "" } })).toBe("was refused on 2026-11-29 12:00:00 UTC");
	expect(said({ at: 1e300 })).toContain("was refused");
});

test("when two decide at once one of them wins, at whatever step the other one comes", () => {
	let steps = 0;
	for (let n = 1; ; n++) {
		const disk = interruptedDisk();
		const { store, folder } = tickets({ disk: disk.disk });
		const other = tickets({ folder }).store;
		const id = opened(store);
		let second: ReturnType<typeof store.decide> | undefined;
		disk.arm(n, () => {
			second = other.decide(id, refusal());
		});
		const first = store.decide(id, approval());
		if (!disk.acted || second === undefined) break;
		steps++;
		expect([first.ok, second.ok].sort()).toEqual([false, true]);
		const won = first.ok ? approval() : refusal();
		expect(store.find(id)?.decision).toEqual(won);
		expect([first, second].find(({ ok }) => !ok)).toMatchObject({ code: "decided", decision: won });
	}
	expect(steps).toBeGreaterThan(3);
});

test("a decision for a ticket that is unknown, closed or no ticket's id changes nothing", () => {
	const { store, box, folder } = tickets();
	for (const id of ["", "..", "../x", `ticket-${"a".repeat(16)}`, "perm_1", `ticket-${"a".repeat(16)}/../x`]) {
		expect(store.decide(id, approval())).toMatchObject({ ok: false, code: "unknown" });
		expect([store.find(id), store.close(id), store.take(id)]).toEqual([undefined, false, false]);
	}
	expect(namesIn(folder)).toEqual([]);
	const id = opened(store);
	writeFileSync(join(folder, "x.json"), JSON.stringify({ ...newTicket(), id: "../x", since: 0 }));
	expect([store.find("../x"), store.decide("../x", approval()).ok]).toEqual([undefined, false]);
	expect(namesIn(folder)).toEqual(["tickets", "x.json"]);
	renameSync(join(box, `${id}.json`), join(box, `${id}.closed.json`));
	expect(store.decide(id, approval())).toMatchObject({
		ok: false,
		code: "unknown",
		message: expect.stringContaining("is closed"),
	});
	expect(namesIn(box)).toEqual([`${id}.closed.json`]);
});

test("a model decides only about a ticket whose rule names an approver", () => {
	const { store } = tickets();
	const model = approval({ by: { kind: "model", who: "boss" } });
	const id = opened(store);
	expect(store.decide(id, model)).toMatchObject({ ok: false, code: "not_allowed" });
	expect(store.decide(opened(store, { approver: "boss" }), model)).toMatchObject({ ok: true });
	expect(store.find(id)?.state).toBe("pending");
});

test("a payload has to fit what its ticket asks for; a refusal needs none", () => {
	const { store } = tickets();
	const response = { type: "object", required: ["color"] };
	const id = opened(store, { response });
	expect(store.decide(id, approval({ payload: {} }))).toEqual({
		ok: false,
		code: "invalid",
		message: 'Nothing was decided: the payload lacks "color".',
	});
	expect(store.decide(id, refusal({ payload: 7 }))).toMatchObject({ ok: true });
	expect(store.decide(opened(store, { response }), approval({ payload: { color: 1 } }))).toMatchObject({ ok: true });

	const asResult = opened(store, { resume: "use_decision_as_tool_result" });
	expect(store.decide(asResult, approval())).toMatchObject({ ok: false, code: "invalid" });
	expect(store.decide(asResult, approval({ payload: "done" }))).toMatchObject({ ok: true });
	const asArguments = opened(store, { resume: "pass_decision_to_tool" });
	expect(store.decide(asArguments, approval({ payload: "ls" }))).toMatchObject({ ok: false, code: "invalid" });
	expect(store.decide(asArguments, approval({ payload: { command: "ls" } }))).toMatchObject({ ok: true });
	for (const bad of [
		{ decision_id: "" },
		{ reason: "x".repeat(5000) },
		{ at: Number.NaN },
		{ payload: "x".repeat(5 * 1024 * 1024) },
	]) {
		expect(store.decide(opened(store), approval(bad))).toMatchObject({ ok: false, code: "invalid" });
	}
});

test("L2 an approval is used once, and a refusal told once, by whoever comes first", () => {
	const { store, folder } = tickets();
	const other = tickets({ folder }).store;
	const id = opened(store);
	expect([store.take(id), store.close(id)]).toEqual([false, false]);
	store.decide(id, approval());
	expect([other.take(id), store.take(id), store.close(id)]).toEqual([true, false, false]);
	expect(store.find(id)).toMatchObject({ state: "closed", decision: approval() });
	const refused = opened(store);
	store.decide(refused, refusal());
	expect([other.take(refused), store.take(refused), store.close(refused)]).toEqual([true, false, false]);
	const told = opened(store);
	store.decide(told, refusal());
	expect([store.giveOver(told), other.take(told), store.close(told)]).toEqual([true, false, true]);
});

test("an approval is a grant for the same tool with equal arguments, once", () => {
	const { store } = tickets();
	const id = opened(store);
	const same = { timeout: 5, command: "rm -rf build" };
	expect(store.takeGrant("bash", same)).toBe(undefined);
	store.decide(id, approval());
	expect(store.takeGrant("read", same)).toBe(undefined);
	expect(store.takeGrant("bash", { ...same, more: 1 })).toBe(undefined);
	expect(store.takeGrant("bash", same)).toMatchObject({ id, decision: approval() });
	expect(store.takeGrant("bash", same)).toBe(undefined);
	// Two approvals are two calls.
	for (let n = 0; n < 2; n++) store.decide(opened(store), approval());
	expect([1, 2, 3].map(() => store.takeGrant("bash", args) !== undefined)).toEqual([true, true, false]);
	store.decide(opened(store), refusal());
	expect(store.takeGrant("bash", args)).toBe(undefined);
});

test("AWK-003 AWK-004 a decision that brings arguments grants the call with these, and one that is the result grants none", () => {
	const { store } = tickets();
	store.decide(opened(store, { resume: "pass_decision_to_tool" }), approval({ payload: { command: "ls" } }));
	store.decide(opened(store, { resume: "use_decision_as_tool_result" }), approval({ payload: "done" }));
	expect(store.takeGrant("bash", args)).toBe(undefined);
	expect(store.takeGrant("bash", { command: "ls" })).toBeDefined();
});

test("a ticket that nobody decides about is cancelled in time, whatever the clock does, and nothing is left in the end", () => {
	for (const late of [dayMs, -dayMs]) {
		const { store, clock, box } = tickets();
		const id = opened(store);
		expect(store.expire(startMs + late - Math.sign(late), dayMs)).toEqual({ cancelled: [], lapsed: [] });
		clock.now += late;
		const { cancelled } = store.expire(clock.now, dayMs);
		expect(cancelled).toMatchObject([{ id, state: "decided", decision: { action: "cancel", by: { kind: "time" } } }]);
		expect(store.decide(id, approval())).toMatchObject({ ok: false, code: "decided" });
		// Until it is told it is found again, but cancelled only once.
		expect(store.expire(clock.now, dayMs).cancelled).toEqual([]);
		expect(store.listDecided()).toHaveLength(1);
		store.close(id);
		expect(namesIn(box)).toHaveLength(2);
		for (let n = 0; n < 2; n++) store.expire(Date.now() + 2 * dayMs, dayMs);
		expect(namesIn(box)).toEqual([]);
	}
});

test("an approval that nobody uses lapses, and is no grant once it is closed", () => {
	const { store } = tickets();
	const id = opened(store);
	store.decide(id, approval({ at: startMs + 5 }));
	expect(store.expire(startMs + dayMs, dayMs).lapsed).toEqual([]);
	expect(store.expire(startMs + dayMs + 5, dayMs).lapsed).toMatchObject([{ id }]);
	expect(store.close(id)).toBe(true);
	expect(store.takeGrant("bash", args)).toBe(undefined);
});

test("a ticket that waits is not removed, however old its file is", () => {
	const { store, box } = tickets();
	const [waiting, granted] = [opened(store), opened(store)];
	store.decide(granted, approval({ at: Date.now() + dayMs }));
	writeFileSync(
		join(box, `${waiting}.json`),
		JSON.stringify({ ...newTicket(), id: waiting, since: Date.now() + dayMs }),
	);
	store.expire(Date.now() + dayMs, dayMs);
	expect(namesIn(box)).toEqual([`${granted}.decision.json`, `${granted}.json`, `${waiting}.json`].sort());
});

test("what is no ticket is passed over, removed with time when it is ours, and left alone otherwise", () => {
	const { store, box, clock } = tickets();
	const id = opened(store);
	const fake = (letter: string) => `ticket-${letter.repeat(16)}`;
	writeFileSync(join(box, "notes.txt"), "mine");
	writeFileSync(join(box, `${fake("a")}.json`), "{");
	writeFileSync(join(box, `${fake("b")}.json`), JSON.stringify({ ...newTicket(), id: fake("c"), since: 0 }));
	mkdirSync(join(box, `${fake("d")}.json`));
	symlinkSync("/etc/passwd", join(box, `${fake("e")}.json`));
	writeFileSync(join(box, `${fake("f")}.json`), "x".repeat(5 * 1024 * 1024));
	const deep = `${"[".repeat(50_000)}${"]".repeat(50_000)}`;
	const granted = JSON.stringify({ ...newTicket(), id: fake("i"), since: Date.now() + 2 * dayMs });
	writeFileSync(join(box, `${fake("i")}.json`), granted.replace(JSON.stringify(args), deep));
	writeFileSync(join(box, `${fake("i")}.decision.json`), JSON.stringify(approval({ at: Date.now() + 2 * dayMs })));
	writeFileSync(join(box, `${fake("g")}.decision.json`), JSON.stringify(approval()));
	writeFileSync(join(box, `.${fake("h")}.${"x".repeat(16)}.tmp`), "");
	expect(store.listPending().map((ticket) => ticket.id)).toEqual([id]);
	expect([store.listDecided().length, store.takeGrant("bash", args)]).toEqual([1, undefined]);
	store.close(fake("i"));
	expect(store.decide(fake("a"), approval())).toMatchObject({ ok: false, code: "unknown" });
	clock.now = Date.now() + 2 * dayMs;
	store.expire(clock.now, dayMs);
	expect(namesIn(box)).toEqual(["notes.txt", `${fake("d")}.json`, `${id}.decision.json`, `${id}.json`].sort());
	expect(readFileSync("/etc/passwd", "utf8")).not.toBe("");
});

test("a decision that cannot be read is a refusal, once nobody can be writing it any more", () => {
	for (const write of [
		(path: string) => writeFileSync(path, '{"decision_id":"d1","action":"resume"'),
		(path: string) => mkdirSync(path),
		(path: string) => symlinkSync("/etc/passwd", path),
		(path: string) => writeFileSync(path, JSON.stringify({ ...approval(), action: "allow" })),
	]) {
		const { store, clock, box } = tickets();
		clock.now = Date.now();
		const id = opened(store);
		write(join(box, `${id}.decision.json`));
		expect(store.find(id)?.state).toBe("pending");
		expect(store.decide(id, approval())).toMatchObject({
			ok: false,
			code: "decided",
			message: expect.stringContaining("is being written"),
		});
		clock.now += 60_000;
		expect(store.listDecided()).toMatchObject([{ id, decision: { action: "cancel" } }]);
		expect(store.decide(id, approval())).toMatchObject({ ok: false, code: "decided" });
		expect([store.takeGrant("bash", args), store.take(id), store.close(id)]).toEqual([undefined, true, false]);
	}
});

test("L7 at most 256 tickets of an address are open, and none is larger than its reader takes", () => {
	const { store, box } = tickets();
	expect(() => opened(store, { arguments: "x".repeat(5 * 1024 * 1024) })).toThrow("is too large to wait");
	const ids = Array.from({ length: 256 }, () => opened(store));
	expect(() => opened(store)).toThrow("256 calls wait to be decided already");
	store.decide(ids[0] ?? "", refusal());
	store.close(ids[0] ?? "");
	opened(store);
	expect(namesIn(box)).toHaveLength(258);
});

test("without links decisions work as well, and are one", () => {
	const { store, box } = tickets({ disk: linklessDisk() });
	const id = opened(store);
	expect(store.decide(id, approval())).toMatchObject({ ok: true });
	expect(store.decide(id, refusal())).toMatchObject({ ok: false, code: "decided" });
	expect(namesIn(box)).toEqual([`${id}.decision.json`, `${id}.json`]);
	expect(store.takeGrant("bash", args)).toMatchObject({ id });
});

test("a ticket that could not be opened is not there, and an approval that the disk does not take is not used", () => {
	const faulty = faultyDisk();
	const { store, box } = tickets({ disk: faulty.disk });
	faulty.failWith((_, { name }) => (name === "syncFolder" ? "EIO" : undefined));
	expect(() => opened(store)).toThrow("EIO");
	expect(namesIn(box)).toEqual([]);
	faulty.heal();
	const id = opened(store);
	store.decide(id, approval());
	faulty.failWith((_, { name }) => (name === "rename" ? "EIO" : undefined));
	expect(() => store.take(id)).toThrow("EIO");
	expect(() => store.takeGrant("bash", args)).toThrow("EIO");
	expect(() => store.close(id)).toThrow("EIO");
	faulty.heal();
	expect(store.takeGrant("bash", args)).toMatchObject({ id, state: "closed" });
});

/** What a process was told before it ended. */
interface Told {
	id?: string;
	approved: boolean;
	refused: boolean;
	/** How often an approval let a call be made. */
	used: number;
}

/** What one process does with a ticket; whatever fails, it goes on with the next. */
function work({ store }: ReturnType<typeof tickets>): Told {
	const told: Told = { approved: false, refused: false, used: 0 };
	const steps = [
		() => {
			told.id = opened(store);
		},
		() => {
			told.approved = told.id !== undefined && store.decide(told.id, approval()).ok;
		},
		() => {
			told.refused = told.id !== undefined && store.decide(told.id, refusal()).ok;
		},
		() => {
			if (told.approved && told.id !== undefined && store.take(told.id)) told.used++;
		},
		() => {
			if (store.takeGrant("bash", args) !== undefined) told.used++;
		},
	];
	for (const step of steps) {
		try {
			step();
		} catch {
			// The disk refused it.
		}
	}
	return told;
}

test("L2 whatever operation fails, or ends the process: one decision at most, used once at most, and nothing waits for ever", () => {
	let steps = 0;
	for (const fault of ["die", ...faultCodes]) {
		for (let n = 1; ; n++) {
			const faulty = faultyDisk();
			const before = tickets({ disk: faulty.disk });
			if (fault === "die") faulty.dieAt(n);
			else faulty.failAt(n, fault);
			const told = work(before);
			if (faulty.failed === undefined) break;
			steps++;

			// Another start: what is on disk holds.
			const { store, clock, box } = tickets({ folder: before.folder });
			const names = () => (nodeDisk().entry(box) === "folder" ? namesIn(box) : []);
			const found = told.id === undefined ? undefined : store.find(told.id);
			if (told.id !== undefined) expect(found).toBeDefined();
			expect(told.approved && told.refused).toBe(false);
			if (told.approved) expect(found?.decision).toEqual(approval());
			if (told.refused) expect(found?.decision).toEqual(refusal());
			if (told.used > 0) expect(found).toMatchObject({ state: "closed", decision: approval() });
			// A ticket that its session was not told of may be there, and then waits.
			if (told.id === undefined) expect(store.listDecided()).toEqual([]);
			for (const { id } of store.listPending()) expect(store.take(id)).toBe(false);
			if (store.takeGrant("bash", args) !== undefined) {
				expect(found?.decision).toEqual(approval());
				told.used++;
			}
			expect(told.used).toBeLessThanOrEqual(1);

			clock.now = Date.now() + 2 * dayMs;
			for (let pass = 0; pass < 3; pass++) {
				const { lapsed } = store.expire(clock.now, dayMs);
				for (const { id } of [...lapsed, ...store.listDecided()]) store.close(id);
			}
			expect(store.listPending()).toEqual([]);
			expect(names()).toEqual([]);
		}
	}
	expect(steps).toBeGreaterThan(100);
});

test("when two use one approval at once one of them may, at whatever step the other one comes", () => {
	let steps = 0;
	for (let n = 1; ; n++) {
		const disk = interruptedDisk();
		const { store, folder } = tickets({ disk: disk.disk });
		const other = tickets({ folder }).store;
		const id = opened(store);
		store.decide(id, approval());
		let second = false;
		disk.arm(n, () => {
			second = n % 2 === 0 ? other.take(id) : other.close(id);
		});
		const first = store.takeGrant("bash", args) !== undefined;
		if (!disk.acted) break;
		steps++;
		expect([first, second].filter(Boolean)).toHaveLength(1);
	}
	expect(steps).toBeGreaterThan(3);
});

test("L2 an approval is used by who waits for it, or told as mail and used once after that, at whatever step the other comes", () => {
	let steps = 0;
	for (let n = 1; ; n++) {
		const disk = interruptedDisk();
		const { store, folder } = tickets({ disk: disk.disk });
		const other = tickets({ folder }).store;
		const id = opened(store);
		expect(store.giveOver(id)).toBe(false);
		store.decide(id, approval());
		let isUsed = false;
		disk.arm(n, () => {
			isUsed = other.take(id);
		});
		const isTold = store.giveOver(id);
		if (!disk.acted) break;
		steps++;
		expect([isTold, isUsed].filter(Boolean)).toHaveLength(1);
		expect(store.take(id)).toBe(false);
		// Told once more after a crash.
		expect([store.listDecided().length, store.giveOver(id)]).toEqual(isTold ? [1, true] : [0, false]);
		expect(other.takeGrant("bash", args) !== undefined).toBe(isTold);
		expect([store.giveOver(id), other.takeGrant("bash", args)]).toEqual([false, undefined]);
	}
	expect(steps).toBeGreaterThan(3);
});

test("what was told is closed, and removed in time", () => {
	const { store, box } = tickets();
	const id = opened(store);
	store.decide(id, refusal());
	expect([store.giveOver(id), store.close(id), store.close(id)]).toEqual([true, true, false]);
	for (let n = 0; n < 2; n++) store.expire(Date.now() + 2 * dayMs, dayMs);
	expect(namesIn(box)).toEqual([]);
});

test("L2 an approval that ran out at the same moment as somebody decided is one or the other", () => {
	let steps = 0;
	for (let n = 1; ; n++) {
		const disk = interruptedDisk();
		const { store, folder } = tickets({ disk: disk.disk });
		const other = tickets({ folder }).store;
		const id = opened(store);
		let decided: ReturnType<typeof store.decide> | undefined;
		disk.arm(n, () => {
			decided = other.decide(id, approval());
		});
		const { cancelled } = store.expire(startMs + dayMs, dayMs);
		if (!disk.acted || decided === undefined) break;
		steps++;
		expect(cancelled.length > 0).toBe(!decided.ok);
		expect(store.find(id)?.decision?.action).toBe(decided.ok ? "resume" : "cancel");
	}
	expect(steps).toBeGreaterThan(3);
});
