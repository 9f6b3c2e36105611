import { relative } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { nodeDisk } from "../../src/mail/disk.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";
import { createLedger } from "../../src/session/ledger.ts";
import { faultCodes, type Operation } from "../support/disk.ts";
import { later, pressOnScreen, useFakeMachine } from "../support/fake-machine.ts";
import type { FakePi } from "../support/fake-pi.ts";
import { isSoak } from "../support/soak.ts";
import { entriesOf, heldBy, type Mail, stepsOf } from "./states.ts";
import { openWorld, playOn, type World } from "./world.ts";

// Time alone notices mail, so that the n-th operation is the same one at every run.
vi.mock("chokidar", () => ({ watch: () => ({ on: () => {}, close: async () => {} }) }));

useFakeMachine();

/** What was said to whoever sent something. */
interface Post {
	/** With a receipt. */
	accepted: Omit<Mail, "name">[];
	/** The texts of what was not sent. */
	refused: string[];
}

interface Scenario {
	title: string;
	durability?: "durable";
	/** Also played with a disk that fails for a while. */
	hasOutage?: true;
	/** Without faults. */
	prepare(world: World, post: Post): Promise<void>;
	/** Faults come from `arm` on. */
	act(world: World, post: Post, arm: () => void): Promise<void>;
}

/** By command, from one session to another. */
async function type(world: World, post: Post, from: string, to: string, body: string): Promise<void> {
	const pi = world.pi(from);
	const before = pi.notifications.length;
	await pi.type(`/mailbox ${world.pi(to).address} ${body}`);
	const said = pi.notifications.slice(before).join("\n");
	const [, id] = /^Sent (\S+) to/m.exec(said) ?? [];
	if (id !== undefined) post.accepted.push({ id, from: pi.address, to: world.pi(to).address });
	else {
		expect(said).toContain("Nothing was sent");
		post.refused.push(body);
	}
}

/** By a tool of the model, in a run of its own. `during` goes on while the tool works. */
async function call(
	world: World,
	post: Post,
	tool: string,
	message: string,
	during: (isOver: () => boolean) => unknown = () => {},
): Promise<void> {
	const [alice, bob] = [world.pi("alice"), world.pi("bob")];
	let isOver = false;
	const over = alice.tools.get(tool);
	if (over !== undefined) {
		const execute: typeof over.execute = (...args) => over.execute(...args).finally(() => (isOver = true));
		alice.tools.set(tool, { ...over, execute });
	}
	await alice.run({
		prompt: "mail it",
		turns: [{ tools: [{ name: tool, args: { to: bob.address, message } }], during: () => during(() => isOver) }],
	});
	if (over !== undefined) alice.tools.set(tool, over);
	const result = alice.session
		.getEntries()
		.findLast((entry) => entry.type === "message" && "toolName" in entry.message);
	const details: unknown = result?.type === "message" && "details" in result.message && result.message.details;
	if (typeof details === "object" && details !== null && "id" in details) {
		post.accepted.push({ id: String(details.id), from: alice.address, to: bob.address });
	} else {
		expect(JSON.stringify(result)).toContain("Nothing was sent");
		post.refused.push(message);
	}
}

/** By another extension. */
function emit(world: World, post: Post, body: string): void {
	const [alice, bob] = [world.pi("alice"), world.pi("bob")];
	const payload: { to: string; body: string; envelope?: { id: string }; error?: string } = { to: bob.address, body };
	alice.events.emit("message:send", payload);
	if (payload.envelope !== undefined) {
		post.accepted.push({ id: payload.envelope.id, from: alice.address, to: bob.address });
	} else {
		expect(payload.error).toContain("Nothing was sent");
		post.refused.push(body);
	}
}

/** What the screen says of a fault is a word to the person as well. */
async function pressH(pi: FakePi): Promise<string> {
	const shown = await pressOnScreen(pi, "h");
	const [said] = /Nothing was done: .*|That did not work: .*|The mailbox .* cannot be .*/.exec(shown) ?? [];
	if (said !== undefined) pi.notifications.push(`mailbox: ${said}`);
	return shown;
}

/** A person releases what is on hold. */
function releaseAll(world: World): void {
	for (const { mail, state } of world.states()) {
		if (!state.id.includes("on hold")) continue;
		const options = { disk: nodeDisk(), root: world.root, address: mail.to, now: Date.now, isDurable: () => false };
		openMailbox(options).release(mail.name);
	}
}

async function twoSessions(world: World): Promise<void> {
	await world.season("alice");
	await world.season("bob");
}

/** A request, a message and an ask of Alice's, which Bob has not seen yet. */
async function threeMails(world: World, post: Post): Promise<void> {
	const [alice, bob] = [world.pi("alice"), world.pi("bob")];
	await type(world, post, "alice", "bob", "waiting request");
	await call(world, post, "session_mail_send", "waiting message");
	await call(world, post, "session_mail_ask", "waiting ask", () => alice.abort());
	expect([post.accepted.length, bob.names("new").length]).toEqual([3, 3]);
}

const scenarios: Scenario[] = [
	{
		title: "a request by command",
		durability: "durable",
		prepare: twoSessions,
		act(world, post, arm) {
			arm();
			return type(world, post, "alice", "bob", "by command");
		},
	},
	{
		title: "a message by session_mail_send",
		prepare: twoSessions,
		act(world, post, arm) {
			arm();
			return call(world, post, "session_mail_send", "by tool");
		},
	},
	{
		title: "a request by message:send",
		prepare: twoSessions,
		async act(world, post, arm) {
			arm();
			emit(world, post, "by hook");
		},
	},
	{
		title: "mail that comes to an idle session",
		hasOutage: true,
		prepare: twoSessions,
		async act(world, post, arm) {
			await threeMails(world, post);
			arm();
			await later(1000);
			if (world.pi("bob").hasRunToPlay) await world.pi("bob").run({ text: "All is well." });
		},
	},
	{
		title: "mail that comes to a session without a file",
		hasOutage: true,
		async prepare(world) {
			await world.season("alice");
			await world.start("bob");
			await later(1000);
		},
		async act(world, post, arm) {
			await threeMails(world, post);
			arm();
			await later(1000);
			if (world.pi("bob").hasRunToPlay) await world.pi("bob").run({ text: "All is well." });
			await later(1000);
		},
	},
	{
		title: "mail that comes between two tool calls",
		hasOutage: true,
		prepare: twoSessions,
		async act(world, post, arm) {
			const during = async () => {
				await threeMails(world, post);
				arm();
				await later(1000);
			};
			await world.pi("bob").run({ prompt: "work", turns: [{ tools: 1, during }, { tools: 1 }], text: "All is well." });
		},
	},
	{
		title: "a settle",
		hasOutage: true,
		prepare: twoSessions,
		async act(world, post, arm) {
			await threeMails(world, post);
			await later(1000);
			await world.pi("bob").run({ text: "All is well.", during: arm });
			await later(1000);
		},
	},
	{
		title: "a settle, the answer being in the session",
		hasOutage: true,
		prepare: twoSessions,
		async act(world, post, arm) {
			await threeMails(world, post);
			await later(1000);
			world.beforeSettle = arm;
			await world.pi("bob").run({ text: "All is well." });
			world.beforeSettle = () => {};
			await later(1000);
		},
	},
	{
		title: "a settle after the user's stop",
		prepare: twoSessions,
		async act(world, post, arm) {
			const bob = world.pi("bob");
			const during = async () => {
				await type(world, post, "alice", "bob", "unread request");
				await call(world, post, "session_mail_send", "unread message");
				await call(world, post, "session_mail_ask", "unread ask", () => world.pi("alice").abort());
				arm();
				bob.abort();
			};
			await bob.run({
				prompt: "work",
				turns: [
					{ tools: 1, during: () => threeMails(world, post) },
					{ tools: 1, during },
				],
			});
			await later(1000);
		},
	},
	{
		title: "a mail that a person puts on hold and releases",
		hasOutage: true,
		async prepare(world) {
			await world.season("alice");
			await world.season("bob", { mode: "tui" });
		},
		async act(world, post, arm) {
			const bob = world.pi("bob");
			let isOnHold = false;
			const during = async () => {
				await type(world, post, "alice", "bob", "on hold");
				arm();
				isOnHold = (await pressH(bob)).includes("On hold: ");
			};
			await bob.run({ prompt: "work", turns: [{ tools: 1, during }, { tools: 1 }] });
			await later(2000);
			if (isOnHold) expect([bob.hasRunToPlay, bob.mails()]).toEqual([false, []]);
			await pressH(bob);
			await later(1000);
			if (bob.hasRunToPlay) await bob.run({ text: "All is well." });
		},
	},
	{
		title: "/mailbox prune",
		async prepare(world, post) {
			await twoSessions(world);
			await world.season("carol");
			await world.season("dave");
			await type(world, post, "carol", "dave", "read before the prune");
			await playOn(world, 1000);
			await world.end("dave", "quit");
			const carol = world.pi("carol");
			const { address } = carol;
			await world.end("carol", "quit");
			await world.pi("alice").type(`/mailbox ${address} unread at the prune`);
			const id = /^Sent (\S+) to/.exec(world.pi("alice").notifications.at(-1) ?? "")?.[1] ?? "";
			post.accepted.push({ id, from: world.pi("alice").address, to: address });
		},
		async act(world, _post, arm) {
			arm();
			await world.pi("alice").type("/mailbox prune");
			await later(1000);
		},
	},
	{
		title: "a start that finds what a kill left",
		async prepare(world, post) {
			await twoSessions(world);
			const [alice, bob] = [world.pi("alice"), world.pi("bob")];
			// Answered, and the answer not written; its mark not removed.
			await type(world, post, "alice", "bob", "answered at the kill");
			await later(1000);
			await bob.run({ text: "All is well.", during: () => world.faults.failWith(() => "EIO") });
			world.faults.heal();
			// Claimed and not in the conversation; waiting; and a copy without its name.
			await type(world, post, "alice", "bob", "claimed at the kill");
			bob.events.emit("message:scan", {});
			world.faults.failWith((_n, { name, paths }) =>
				name === "rename" && paths[0]?.endsWith(".part") ? "EIO" : undefined,
			);
			await type(world, post, "alice", "bob", "waiting at the kill");
			world.faults.heal();
			expect(world.states().map(({ state }) => state.id)).toContain("claimed");
			expect(alice.names("sent").filter((name) => name.endsWith(".part"))).toHaveLength(1);
			await world.end("bob", "kill");
			await world.end("alice", "kill");
		},
		async act(world, _post, arm) {
			arm();
			await world.start("bob");
			await world.start("alice");
			await later(1000);
		},
	},
	{
		title: "an ask and its answer",
		prepare: twoSessions,
		async act(world, post, arm) {
			arm();
			const [alice, bob] = [world.pi("alice"), world.pi("bob")];
			await call(world, post, "session_mail_ask", "what is it?", async (isOver) => {
				for (let seconds = 0; seconds < 60 && !isOver(); seconds++) {
					await later(1000);
					if (bob.hasRunToPlay) await bob.run({ text: "It is this." });
				}
				if (!isOver()) alice.abort();
			});
		},
	},
];

/** What goes wrong, and until when. */
interface Fault {
	title: string;
	/** It begins with the n-th operation from now. */
	arm(world: World, n: number): void;
	/** Lets time pass until the disk is well again, and goes on. */
	heal(world: World): Promise<void>;
	/** How the sessions end. */
	end: "quit" | "kill";
	/** Only one operation fails. */
	isOnce?: true;
	/** Time goes on with a healthy disk before the sessions end. */
	isHealed: boolean;
}

function once(code: string, end: Fault["end"]): Fault {
	return {
		title: `fails once with ${code}, then ${end}`,
		isOnce: true,
		isHealed: true,
		arm: (world, n) => world.faults.failAt(n, code),
		async heal(world) {
			world.faults.heal();
			await calmDown(world);
		},
		end,
	};
}

/** Two operations, `gap` apart. */
function twice(code: string, gap: number): Fault {
	const { isOnce: _, ...fault } = once(code, "kill");
	return {
		...fault,
		title: `and the ${gap}th after it fail with ${code}`,
		arm: (world, n) => world.faults.failWith((done) => (done === n || done === n + gap ? code : undefined)),
	};
}

/** Time goes on until what was put off is done. */
async function calmDown(world: World): Promise<void> {
	await playOn(world, 2000);
	if (underWay(world).length === 0) return;
	await playOn(world, 65_000);
	await playOn(world, 2000);
}

/** The machine stops before the n-th operation. */
const stop: Fault = {
	title: "is where the machine stops",
	isHealed: false,
	arm: (world, n) => world.stopAt((done) => done === n),
	heal: async () => {},
	end: "kill",
};

interface Outage {
	code: "ENOSPC" | "EROFS" | "EIO";
	/** Pi cannot write to its session files either. */
	isPiHit?: true;
	/** Until the sessions have ended, and not for 40 s. */
	isLasting?: true;
	end: Fault["end"];
}

/** From the n-th operation on. A full or read-only disk can still be read. */
function outage({ code, isPiHit, isLasting, end }: Outage): Fault {
	const fails = (name: string) => code === "EIO" || writes.has(name) || (code === "EROFS" && name === "remove");
	return {
		isHealed: isLasting !== true,
		title: `fails with ${code}, and all later ones ${isLasting === true ? "until the" : "for 40 s, then"} ${end}`,
		arm(world, n) {
			world.faults.failWith((done, { name }) => {
				if (done < n) return undefined;
				if (done === n && isPiHit === true) world.fillSessions(true);
				return fails(name) ? code : undefined;
			});
		},
		async heal(world) {
			for (const ms of [1000, 19_000, 20_000]) {
				await later(ms);
				for (const pi of world.pis.values()) if (pi.hasRunToPlay) await pi.run({ text: "Answered." });
				if (isLasting === true) return;
			}
			world.faults.heal();
			world.fillSessions(false);
			await calmDown(world);
		},
		end,
	};
}

const writes = new Set(["create", "replace", "link", "rename", "removeFolder", "syncFile", "syncFolder"]);

/** One history with the n-th operation failing; what failed, if there were as many. */
async function play(scenario: Scenario, fault: Fault, n: number): Promise<string | undefined> {
	const world = openWorld(scenario.durability);
	const post: Post = { accepted: [], refused: [] };
	try {
		await scenario.prepare(world, post);
		const warnings = () => world.notifications().filter(isWarning).length;
		let warningsBefore = 0;
		await scenario.act(world, post, () => {
			warningsBefore = warnings();
			fault.arm(world, n);
		});
		const { failed } = world.faults;
		await explained(world, n, failed, async () => {
			await fault.heal(world);
			world.states();
			// Sessions that go on wait for no restart.
			if (fault.isHealed) expect(underWay(world)).toEqual([]);
			if (fault.isOnce === true) checkLittleLeft(world, post, failed);
			const isTold = post.refused.length > 0 || warnings() > warningsBefore;
			if (failed !== undefined && fault !== stop && !isTold) silent.add(shown(world, failed));
			for (const name of [...world.pis.keys()]) await world.end(name, fault.end);
			world.faults.heal();
			world.fillSessions(false);
			world.states();
			await world.restart();
			await playOn(world, 2000);
			releaseAll(world);
			await playOn(world, 2000);
			for (const pi of [...world.pis.values()]) {
				await pi.run({ prompt: "go on" });
				await playOn(world, 2000);
			}
			checkLaws(world, post);
		});
		return failed === undefined ? undefined : shown(world, failed);
	} finally {
		await world.close();
	}
}

/** What failed, and nobody was told. */
const silent = new Set<string>();

function isWarning(text: string): boolean {
	return text.startsWith("mailbox:") || text.includes("could still undo");
}

/** What running sessions have yet to do: mail on its way, and replies that are not written. */
function underWay(world: World): object[] {
	// What could not be set aside is by the next start.
	const isOnItsWay = /waiting|repeated|claiming|claimed|read/;
	return [...world.pis.values()].flatMap((pi) => {
		// It said so, and waits for its next start.
		if (pi.notifications.some((text) => text.includes("mailbox is off"))) return [];
		const ledger = createLedger(pi.address);
		ledger.read(pi.session.getEntries());
		const mails = world.states().filter(({ mail, state }) => mail.to === pi.address && isOnItsWay.test(state.id));
		return [...mails, ...ledger.openReplies()];
	});
}

/** What one fault leaves: nothing of what was refused, and an unfinished copy only where it could not be finished. */
function checkLittleLeft(world: World, post: Post, failed: Operation | undefined): void {
	expect(world.states().filter(({ mail }) => post.refused.includes(mail.body))).toEqual([]);
	const parts = [...world.pis.values()].flatMap((pi) => pi.names("sent").filter((name) => name.endsWith(".part")));
	if (failed === undefined) expect(parts).toEqual([]);
}

/** What the laws say when all is over. */
function checkLaws(world: World, post: Post): void {
	expect(world.errors()).toEqual([]);
	const mails = world.states();
	const said = world.notifications().join("\n");
	for (const { mail, state } of mails) {
		// Whoever wrote it was told that it was not sent, or was not there any more.
		if (state.id === "writing") {
			expect(post.accepted.map(({ id }) => id)).not.toContain(mail.id);
			continue;
		}
		const times = entriesOf(world.entries(mail.to), mail).length;
		const isAnsweredUnread = times === 0 && state.id === "done";
		if (state.id === "dead") expect(said).toContain(`${mail.name} `);
		else expect([state.id, times]).toEqual([expect.stringMatching(/^(done|pruned)$/), isAnsweredUnread ? 0 : 1]);
		if (mail.kind !== "request" && mail.kind !== "ask") continue;
		const answers = mails.filter(({ mail: { kind, from, inReplyTo } }) => {
			return kind === "reply" && from === mail.to && inReplyTo.includes(mail.id);
		});
		const ids = new Set(answers.map((answer) => answer.mail.id));
		checkSteps(world, mail, answers);
		expect([mail.body, ids.size]).toEqual([mail.body, heldBy(world.entries(mail.to), mail) === "nothing" ? 0 : 1]);
	}
	for (const { id, from } of post.accepted) {
		expect(world.pi(nameOf(world, from)).names("sent")).toContainEqual(expect.stringMatching(`${id}.json$`));
		expect(said).not.toMatch(new RegExp(`not sent.*${id}`));
	}
	for (const body of post.refused) {
		expect(mails.filter(({ mail, state }) => mail.body === body && state.id !== "writing")).toEqual([]);
	}
	for (const pi of world.pis.values()) {
		expect(pi.status.get("mailbox") ?? "").not.toContain("pending");
		if (!mails.some(({ state }) => state.id === "dead"))
			expect(pi.status.get("mailbox") ?? "").not.toContain("awaiting");
	}
}

/** L4: a step that the recipient noted beside the sender's copy has been taken. */
function checkSteps(world: World, mail: Mail, answers: ReturnType<World["states"]>): void {
	const steps = stepsOf(world.root, mail);
	const isRead = ["entry", "taken"].includes(heldBy(world.entries(mail.to), mail));
	if (steps.includes("read") || steps.includes("held")) expect([mail.id, isRead]).toEqual([mail.id, true]);
	if (!steps.includes("answered") && !steps.includes("failed")) return;
	expect([mail.id, answers.length > 0]).toEqual([mail.id, true]);
	expect(steps.filter((step) => step === "answered" || step === "failed")).toHaveLength(1);
}

function nameOf(world: World, address: string): string {
	return [...world.pis].find(([, pi]) => pi.address === address)?.[0] ?? address;
}

/** What failed, without what differs from run to run. */
function shown(world: World, { name, paths }: Operation): string {
	const places = paths.map((path) =>
		relative(world.root, path)
			.replace(/\d{15}-[0-9a-f-]{36}/g, "<name>")
			.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "<id>")
			.replace(/\d+-[a-z0-9]{16}/g, "<random>"),
	);
	return [name, ...places].join(" ");
}

async function explained(world: World, n: number, failed: Operation | undefined, check: () => Promise<void>) {
	try {
		await check();
	} catch (error) {
		const operation = failed === undefined ? "nothing failed" : shown(world, failed);
		throw new Error(
			`operation ${n}, ${operation}: ${error instanceof Error ? error.message : error}\n${world.notifications().join("\n")}`,
		);
	}
}

const ends = ["quit", "kill"] as const;
/** In the short form each code has one of the two ends. */
const single = faultCodes.flatMap((code, index) => {
	return ends.filter((_end, other) => isSoak || other === index % 2).map((end) => once(code, end));
});
single.push(stop);
const outages = [
	outage({ code: "ENOSPC", end: "kill" }),
	outage({ code: "EROFS", end: "quit" }),
	outage({ code: "EIO", end: "kill" }),
	outage({ code: "ENOSPC", isPiHit: true, end: "quit" }),
	outage({ code: "ENOSPC", isPiHit: true, isLasting: true, end: "kill" }),
	outage({ code: "EROFS", isPiHit: true, isLasting: true, end: "quit" }),
];
const pairs = faultCodes.flatMap((code) => [1, 2, 3, 5, 8].map((gap) => twice(code, gap)));

/** What may fail once without a word to the person, and why. */
const harmless = new Map([
	["link <id>/tmp/<name>.json <id>/sent/<name>.json.part", "the copy becomes a file of its own"],
	["rename <id>/sent/<name>.json.part <id>/sent/<name>.json", "it is the copy all the same; the next start names it"],
	["entry <id>/new/<name>.json", "looked at again soon"],
	["read <id>/new/<name>.json", "looked at again soon"],
	["read <id>/sent/<name>.json", "looked for under its id"],
	["entry <id>/sent/<name>.json.retracted", "an ask looks again in a second whether it was taken back"],
	["entry <id>/tmp/<name>.json", "the same"],
	["read <id>/cur/<name>.json.open", "counts as no try"],
	["read running/<id>.json", "read again soon"],
	["entry running/<id>.json", "looked at again soon"],
	["entry <id>/sent/<name>.json", "looked for under its id; or a step is not noted beside it: its sender knows less"],
	...["read", "held", "failed", "answered"].map(
		(step) => [`create <id>/sent/<name>.json.${step}`, "the sender knows less"] as const,
	),
	["changed ../../session-mail.json", "looked at again soon"],
	["changed ../../.pi/session-mail.json", "looked at again soon"],
	[
		"read ../../session-mail.json",
		"the session reads it again; where it names tools, their calls are waited for until the next start",
	],
	["changed <id>/new", "after a delivery: the inbox is listed for the next; in a sweep as below"],
	["changed ", "everything is looked at then"],
	["changed <id>", "everything is looked at then"],
	["changed running/<id>.json", "everything is looked at then"],
	["changed <id>/waiting", "everything is looked at then"],
	["read <id>/state.json", "made again from the files"],
	["replace <id>/state.json", "written again soon; a mark that depends on it stays until then"],
]);

/** Which faults each kind of operation has had. */
const tried = new Map<string, Set<Fault>>();

/**
 * Plays a scenario with one operation after the other going wrong, and says how many there are. In the short form each has
 * one of the faults, and each kind of operation all of them at least once in this file.
 */
async function playAll(scenario: Scenario, faults: readonly Fault[]): Promise<number> {
	for (let n = 1; ; n++) {
		const [first, ...others] = [...faults.slice(n % faults.length), ...faults.slice(0, n % faults.length)];
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

const timeoutMs = isSoak ? 3_600_000 : 120_000;
const laws = "nothing is lost, nothing comes twice, and every request and ask is answered once";

describe.each(scenarios)("$title", (scenario) => {
	test(`L2, L3, L4 ${laws}, whichever operation fails, or is where the machine stops`, {
		timeout: timeoutMs,
	}, async () => {
		expect(await playAll(scenario, single)).toBeGreaterThan(10);
	});

	test.runIf(scenario.hasOutage)(
		`L2, L3 ${laws}, from whichever operation on the disk is full, read-only or gone`,
		{ timeout: timeoutMs },
		async () => {
			expect(await playAll(scenario, outages)).toBeGreaterThan(10);
		},
	);

	test.runIf(isSoak)(`L2, L3 ${laws}, whichever two operations fail`, { timeout: timeoutMs }, async () => {
		expect(await playAll(scenario, pairs)).toBeGreaterThan(10);
	});
});

test("L2, L7 a mail that can never be read keeps no other out", async () => {
	const world = openWorld();
	const post: Post = { accepted: [], refused: [] };
	await twoSessions(world);
	await threeMails(world, post);
	const [first, ...others] = post.accepted.map(({ id }) => id);
	world.faults.failWith((_n, { name, paths }) =>
		name === "read" && paths[0]?.endsWith(`${first}.json`) === true ? "EIO" : undefined,
	);
	await playOn(world, 2000);
	expect(
		world
			.pi("bob")
			.mails()
			.map(({ id }) => id),
	).toEqual(others);
	world.faults.heal();
	await playOn(world, 2000);
	checkLaws(world, post);
	await world.close();
});

test("L4 a mail that is set aside while other faults are put down to folders that are out of order is said all the same", async () => {
	const world = openWorld();
	const post: Post = { accepted: [], refused: [] };
	await twoSessions(world);
	await threeMails(world, post);
	const first = post.accepted[0]?.id;
	let isOut = false;
	// Its file cannot be opened, and from then on no folder can be looked at.
	world.faults.failWith((_n, { name, paths: [path = ""] }) => {
		const isIt = name === "read" && path.endsWith(`${first}.json`);
		isOut ||= isIt;
		return isIt || (isOut && name !== "read" && !path.includes(".json")) ? "EACCES" : undefined;
	});
	await playOn(world, 1500);
	world.faults.heal();
	await playOn(world, 2000);
	expect(world.pi("bob").notifications.join("\n")).toMatch(
		new RegExp(`${first}\\.json cannot be delivered and was set aside`),
	);
	await world.close();
});

test("L4 only these fail without a word", () => {
	expect([...silent].filter((kind) => !harmless.has(kind)).sort()).toEqual([]);
});
