import { existsSync, readdirSync } from "node:fs";
import { join, relative } from "node:path";
import { describe, expect, test, vi } from "vitest";
import type { Draft } from "../../src/mail/deliver.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { openTicketStore } from "../../src/policy/tickets.ts";
import { createLedger, mailDetails } from "../../src/session/ledger.ts";
import { faultCodes, type Operation } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer } from "../support/fake-pi.ts";
import { isSoak } from "../support/soak.ts";
import { openWorld, playOn, type World } from "./world.ts";

// Time alone notices mail, so that the n-th operation is the same one at every run.
vi.mock("chokidar", () => ({ watch: () => ({ on: () => {}, close: async () => {} }) }));

useFakeMachine();

interface Fault {
	title: string;
	/** It begins with the n-th operation from now. */
	arm(world: World, n: number): void;
	/** The machine stops: what is under way then ends nowhere. */
	isStop: boolean;
	/** How the session ends. */
	end: "quit" | "kill";
}

function once(code: string, end: Fault["end"]): Fault {
	return {
		title: `fails once with ${code}, then ${end}`,
		isStop: false,
		arm: (world, n) => world.faults.failAt(n, code),
		end,
	};
}

/** From the n-th operation on, until the session has gone on for 40 s. */
function outage(code: string, end: Fault["end"]): Fault {
	return {
		title: `fails with ${code}, and all later ones for 40 s, then ${end}`,
		isStop: false,
		arm: (world, n) => world.faults.failWith((done) => (done >= n ? code : undefined)),
		end,
	};
}

const stop: Fault = {
	title: "is where the machine stops",
	isStop: true,
	arm: (world, n) => world.stopAt((done) => done === n),
	end: "kill",
};

/** In the short form each code has one of the two ends. */
const faults = [
	...faultCodes.flatMap((code, index) =>
		(["quit", "kill"] as const).filter((_end, other) => isSoak || other === index % 2).map((end) => once(code, end)),
	),
	stop,
	outage("ENOSPC", "quit"),
	outage("EIO", "kill"),
];

interface Scenario {
	title: string;
	settings: object;
	/** Faults come from `arm` on. */
	act(world: World, pi: FakePi, arm: () => void): Promise<void>;
	/** What the laws say of it when all is over. */
	check(world: World, pi: FakePi, fault: Fault): void;
}

/** The results of tools, as the model saw them. */
function toolResults(pi: FakePi): string[] {
	return pi.session.getEntries().flatMap((entry) => {
		if (entry.type !== "message" || entry.message.role !== "toolResult") return [];
		return [entry.message.content.map((part) => (part.type === "text" ? part.text : "")).join("")];
	});
}

/** The texts of the results that came as mail. */
function resultMails(pi: FakePi): string[] {
	return pi.session.getEntries().flatMap((entry) => {
		if (entry.type !== "custom_message" || mailDetails(entry.details)?.kind !== "result") return [];
		return [String(entry.content)];
	});
}

/** The ids of the calls whose model was given its turn back. */
function detachedIds(pi: FakePi): string[] {
	return toolResults(pi).flatMap((text) => /"tool_call_id":"([^"]+)"/.exec(text)?.[1] ?? []);
}

function filesIn(world: World, pi: FakePi, box: string): string[] {
	const folder = join(world.root, pi.address, box);
	return existsSync(folder) ? readdirSync(folder) : [];
}

/** A run that calls bash so many times, and goes on when it has its turn back or, without that, when they have ended. */
async function callBash(world: World, pi: FakePi, count: number): Promise<void> {
	const bash = pi.tools.get("bash");
	let over = 0;
	if (bash !== undefined) {
		const execute: typeof bash.execute = (...args) => bash.execute(...args).finally(() => over++);
		pi.tools.set("bash", { ...bash, execute });
	}
	const calls = Array.from({ length: count }, (_, n) => ({ name: "bash", args: { command: `make ${n}` } }));
	await pi.run({
		prompt: "build it",
		turns: [
			{
				tools: calls,
				async during() {
					await later(1500);
					// The disk did not take that they go on.
					if (over < count) endJobs(world);
					await later(0);
				},
			},
		],
		text: "It is being built.",
	});
}

function endJobs(world: World): void {
	for (const job of world.jobs) job.end(`built by ${job.command}`);
}

/** Each call of bash in the conversation has one result: in its place, or as one mail. */
function checkCalls(pi: FakePi, { isStop }: Fault, count: number): void {
	const mails = resultMails(pi);
	const detached = detachedIds(pi);
	for (const id of detached) {
		const own = mails.filter((text) => text.includes(`Your call ${id} (bash)`));
		expect([id, own]).toEqual([id, [expect.any(String)]]);
		// It ended while its process ran on.
		if (!isStop) expect(own[0]).toContain("\n\nbuilt by make");
	}
	if (!isStop)
		expect(detached.length + toolResults(pi).filter((text) => text.startsWith("built by")).length).toBe(count);
	expect(new Set(mails).size).toBe(mails.length);
	expect(mails.length).toBeLessThanOrEqual(count);
}

const attachOneSecond = { toolPolicy: { rules: [{ tool: "bash", attachSeconds: 1 }] } };

const scenarios: Scenario[] = [
	{
		title: "a call that is handed back, ends, and whose result comes",
		settings: attachOneSecond,
		async act(world, pi, arm) {
			arm();
			await callBash(world, pi, 1);
			endJobs(world);
			await later(1000);
			if (pi.hasRunToPlay) await pi.run({ text: "It is built." });
		},
		check: (_world, pi, fault) => checkCalls(pi, fault, 1),
	},
	{
		title: "two calls whose results come in the middle of a run",
		settings: attachOneSecond,
		async act(world, pi, arm) {
			await callBash(world, pi, 2);
			arm();
			const during = async () => {
				endJobs(world);
				await later(1000);
			};
			await pi.run({ prompt: "and?", turns: [{ tools: [{ name: "none" }], during }] });
		},
		check: (_world, pi, fault) => checkCalls(pi, fault, 2),
	},
	{
		title: "a call whose result the model has read",
		settings: attachOneSecond,
		async act(world, pi, arm) {
			await callBash(world, pi, 1);
			const id = detachedIds(pi)[0] ?? "";
			arm();
			const during = async () => {
				await later(500);
				endJobs(world);
				await later(500);
			};
			const status = { name: "session_call_status", args: { id, wait_seconds: 1 } };
			await pi.run({ prompt: "and?", turns: [{ tools: [status], during }] });
		},
		check(_world, pi) {
			const id = detachedIds(pi)[0] ?? "";
			const mails = resultMails(pi);
			expect(mails).toEqual([expect.stringContaining(`Your call ${id} (bash)`)]);
			const wasRead = toolResults(pi).some((text) => text.startsWith(`${id} (bash): completed.`));
			if (wasRead) expect(mails[0]).toContain("You have read its result already.");
		},
	},
	{
		title: "a session that is closed with two calls running",
		settings: attachOneSecond,
		async act(world, pi, arm) {
			await callBash(world, pi, 2);
			arm();
			await world.end("alice", "quit");
		},
		check(_world, pi) {
			const mails = resultMails(pi);
			const ids = detachedIds(pi);
			expect(ids).toHaveLength(2);
			for (const id of ids) expect(mails.filter((text) => text.includes(`Your call ${id} (bash)`))).toHaveLength(1);
			for (const text of mails) expect(text).toMatch(/was cancelled|process that ran it has ended/);
		},
	},
	{
		title: "a start that finds the calls of a process that was killed",
		settings: attachOneSecond,
		async act(world, pi, arm) {
			await callBash(world, pi, 2);
			// One had ended, and its result was kept and no mail yet.
			world.faults.failWith((_n, { name, paths }) =>
				name === "rename" && paths[1]?.includes("/new/") ? "EIO" : undefined,
			);
			world.jobs[0]?.end("built by make 0");
			await later(100);
			world.stopAt(() => true);
			await world.end("alice", "kill");
			world.faults.heal();
			arm();
			await world.restart();
			await later(2000);
		},
		check(_world, pi) {
			const mails = resultMails(pi);
			expect(mails.toSorted()).toHaveLength(2);
			expect(mails.filter((text) => text.includes("\n\nbuilt by make 0\n"))).toHaveLength(1);
			expect(mails.filter((text) => text.includes("the process that ran it has ended"))).toHaveLength(1);
		},
	},
	...(["resume", "cancel"] as const).map((action): Scenario => {
		return {
			title: `a start that finds a call that was decided about meanwhile: ${action}`,
			settings: { toolPolicy: { permissions: { rules: [{ pattern: "bash", behavior: "ask", attachSeconds: 0 }] } } },
			async act(world, pi, arm) {
				await callBash(world, pi, 1);
				await world.end("alice", "quit");
				const store = openTicketStore(nodeDisk(), join(world.root, pi.address), Date.now);
				const by = { kind: "person", who: "Ann" } as const;
				store.decide(store.listPending()[0]?.id ?? "", { decision_id: "d", action, by, at: Date.now() });
				arm();
				await world.restart();
				await later(2000);
			},
			check(_world, pi) {
				const said = action === "resume" ? "was approved by Ann" : "was refused: by Ann";
				expect(resultMails(pi)).toEqual([expect.stringContaining(said)]);
			},
		};
	}),
	{
		title: "a pause by mail",
		settings: {},
		async act(_world, pi, arm) {
			control(pi, "pause");
			arm();
			await later(1000);
		},
		check(_world, pi) {
			expect(isPaused(pi)).toBe(true);
			expect(controlsDone(pi)).toBe(1);
		},
	},
	{
		title: "a pause and its end by mail, one after the other",
		settings: {},
		async act(_world, pi, arm) {
			control(pi, "pause");
			control(pi, "resume");
			arm();
			await later(1000);
		},
		check(_world, pi) {
			expect(isPaused(pi)).toBe(false);
			expect(controlsDone(pi)).toBe(2);
		},
	},
	{
		title: "a stop by mail",
		settings: {},
		async act(_world, pi, arm) {
			arm();
			const during = async () => {
				control(pi, "stop");
				await later(1500);
			};
			await pi.run({ prompt: "write", during });
		},
		check: (_world, pi) => expect(controlsDone(pi)).toBe(1),
	},
];

function control(pi: FakePi, op: "pause" | "resume" | "stop"): void {
	const draft: Partial<Draft> = { kind: "control", body: op, control: { op } };
	makePeer().send(pi, draft);
}

function isPaused(pi: FakePi): boolean {
	const ledger = createLedger(pi.address);
	ledger.read(pi.session.getEntries());
	return ledger.isPaused;
}

/** How often the session has noted that it has done what control mail says. */
function controlsDone(pi: FakePi): number {
	return pi.session.getEntries().filter((entry) => JSON.stringify(entry).includes('"kind":"control"')).length;
}

/** One history with the n-th operation failing; what failed, if there were as many. */
async function play(scenario: Scenario, fault: Fault, n: number): Promise<string | undefined> {
	const world = openWorld("durable", scenario.settings);
	try {
		await scenario.act(world, await world.season("alice"), () => fault.arm(world, n));
		const { failed } = world.faults;
		const shown = failed === undefined ? "nothing" : shownOf(world, failed);
		try {
			// While the disk is not well, and after that.
			for (const ms of [1000, 19_000, 20_000]) {
				await later(ms);
				for (const pi of world.pis.values()) if (pi.hasRunToPlay) await pi.run({ text: "Answered." });
				if (fault.isStop) break;
			}
			if (!fault.isStop) {
				world.faults.heal();
				await playOn(world, 65_000);
				// A session that goes on waits for no restart, unless it has said so.
				const isOff = world.notifications().some((text) => text.includes("mailbox is off"));
				if (!isOff) for (const pi of world.pis.values()) expect(filesIn(world, pi, "calls")).toEqual([]);
			}
			for (const name of [...world.pis.keys()]) await world.end(name, fault.end);
			world.faults.heal();
			await world.restart();
			await playOn(world, 2000);
			const pi = world.pi("alice");
			await pi.run({ prompt: "go on" });
			await playOn(world, 65_000);
			expect(world.errors()).toEqual([]);
			// What cannot be read is set aside, and its reader is told (design D12).
			if (!world.notifications().some((text) => text.includes("was set aside"))) scenario.check(world, pi, fault);
			expect(filesIn(world, pi, "calls")).toEqual([]);
			expect(pi.openCount).toBe(0);
			expect(pi.names("new")).toEqual([]);
			for (const { text } of pi.mails()) expect(text).not.toMatch(/^(pause|resume|stop)$/m);
		} catch (error) {
			const why = error instanceof Error ? error.message : error;
			throw new Error(`operation ${n}, ${shown}, ${fault.title}: ${why}\n${world.notifications().join("\n")}`);
		}
		return failed === undefined ? undefined : shown;
	} finally {
		await world.close();
	}
}

/** What failed, without what differs from run to run. */
function shownOf(world: World, { name, paths }: Operation): string {
	const places = paths.map((path) =>
		relative(world.root, path)
			.replace(/\d{15}-[0-9a-f-]{36}/g, "<name>")
			.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "<id>")
			.replace(/call-[a-z0-9]{16}/g, "<call>"),
	);
	return [name, ...places].join(" ");
}

const tried = new Map<string, Set<Fault>>();

/** In the short form each operation has one of the faults, and each kind of operation all of them at least once. */
async function playAll(scenario: Scenario): Promise<number> {
	for (let n = 1; ; n++) {
		const at = n % faults.length;
		const [first, ...others] = [...faults.slice(at), ...faults.slice(0, at)];
		const kind = first === undefined ? undefined : await play(scenario, first, n);
		if (first === undefined || kind === undefined) return n - 1;
		const had = tried.get(kind) ?? new Set();
		tried.set(kind, had.add(first));
		for (const fault of others.filter((other) => isSoak || !had.has(other))) {
			had.add(fault);
			await play(scenario, fault, n);
		}
	}
}

describe.each(scenarios)("$title", (scenario) => {
	test("L2 L3 nothing is lost, and nothing is done or comes twice, whichever operation fails, or is where the machine stops", {
		timeout: isSoak ? 3_600_000 : 120_000,
	}, async () => {
		expect(await playAll(scenario)).toBeGreaterThan(5);
	});
});
