import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterAll, afterEach, describe, expect, test, vi } from "vitest";
import { boxesOf } from "../../src/mail/boxes.ts";
import { openCallStore } from "../../src/mail/call-store.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { awaitsAnswer, type Envelope, isExpected, parseEnvelope } from "../../src/mail/envelope.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { openTicketStore, type Ticket } from "../../src/policy/tickets.ts";
import { mailDetails } from "../../src/session/ledger.ts";
import { callsHost } from "../support/calls.ts";
import { later } from "../support/fake-machine.ts";
import { type FakePi, machine, startFakePi } from "../support/fake-pi.ts";
import { isSoak } from "../support/soak.ts";
import { type Call, type Traced, trace, whyNoTrace } from "../support/strace.ts";
import { packageHere } from "./package-here.ts";
import { alice, approveAll, bob, carol, environmentOf, receiptsIn, sessionFiles, shapeOf } from "./tree.ts";

const program = ["--import", join(import.meta.dirname, "parts-of-pi.mjs"), join(import.meta.dirname, "scenario.ts")];
const scenarios = ["send", "claim", "hand over", "settle", "prune", "start", "hand back", "control", "ticket", "grant"];
/** Of those that go on with what an earlier process has left: the one that leaves it. */
const preparations = new Map([
	["start", "before start"],
	["grant", "before grant"],
]);
/** Processes at a time. */
const atOnce = 2;

const suite = mkdtempSync(join(tmpdir(), "kill-"));
afterAll(() => rmSync(suite, { recursive: true }));

vi.setConfig({ testTimeout: 60 * 60_000 });

let made = 0;

function newFolder(): string {
	const folder = join(suite, `${++made}`);
	mkdirSync(folder);
	return folder;
}

/** A run of the scenario program in a folder of its own. */
interface Played extends Traced {
	readonly folder: string;
	/** The call that it was to be killed at, without what differs from run to run. */
	readonly shape: string;
	readonly isAsMeant: boolean;
}

interface Scenario {
	readonly name: string;
	/** What it finds in its folder. */
	readonly before: string;
	/** The receipts of what lies there. */
	readonly receipts: string;
}

function environment(folder: string): { [name: string]: string } {
	// Most of its time a process would compile what it imports.
	return { ...environmentOf(folder), NODE_COMPILE_CACHE: join(suite, "cache") };
}

function makeScenario(name: string): Scenario {
	const before = newFolder();
	const preparation = preparations.get(name);
	if (preparation === undefined) return { name, before, receipts: "" };
	const env = { ...process.env, ...environment(before) };
	const receipts = execFileSync(process.execPath, [...program, preparation, before], { env, encoding: "utf8" });
	return { name, before, receipts };
}

async function play({ name, before, receipts }: Scenario, target?: Call, shape = "its end"): Promise<Played> {
	const folder = newFolder();
	cpSync(before, folder, { recursive: true, preserveTimestamps: true });
	const traced = await trace({ args: [...program, name, folder], env: environment(folder) }, target);
	const last = traced.calls.at(-1);
	const isAsMeant = traced.isKilled && last !== undefined && shapeOf(last, folder) === shape;
	return { ...traced, output: receipts + traced.output, folder, shape, isAsMeant };
}

/** Kills a scenario at each target: where other threads came in between and it was killed elsewhere, it is tried again. */
async function killAll(scenario: Scenario, whole: Played, targets: readonly Call[]): Promise<Played[]> {
	const played: Played[] = [];
	const left = targets.flatMap((target) => [{ target, tries: 3 }]);
	const worker = async () => {
		for (let next = left.shift(); next !== undefined; next = left.shift()) {
			const { target, tries } = next;
			const killed = await play(scenario, target, shapeOf(target, whole.folder));
			played.push(killed);
			if (!killed.isAsMeant && tries > 1) left.push({ target, tries: tries - 1 });
		}
	};
	await Promise.all(Array.from({ length: atOnce }, worker));
	return played;
}

/**
 * Whether a call changes what a process that is started later finds. To a session's file is always appended: it is killed
 * when it opens it, since other threads are written to as well and blur the count of writes.
 */
function changesFiles({ name, line, paths }: Call): boolean {
	if (line.includes(" = -1 ")) return false;
	if (name.startsWith("open")) return line.includes("O_CREAT");
	if (name === "write") return paths.every((path) => !path.endsWith(".jsonl"));
	return /^(pwrite|rename|link|unlink|mkdir|rmdir)/.test(name);
}

/**
 * The calls to be killed at: all in the long form. In the short form each that changes something, once for each that it
 * can follow: what the processes killed at any other call leave is the same.
 */
function targetsIn({ calls, folder }: Played): Call[] {
	const own = calls.filter(({ paths }) => paths.some((path) => path.startsWith(folder)));
	if (isSoak) return own;
	const steps = new Map<string, Call>();
	let before = "";
	for (const call of own.filter(changesFiles)) {
		const shape = shapeOf(call, folder);
		const step = `${before}, ${shape}`;
		if (!steps.has(step)) steps.set(step, call);
		before = shape;
	}
	return [...steps.values()];
}

/** From here on this process has its sessions in a folder, and time passes only when it is told to. */
function enter(folder: string): void {
	for (const [name, value] of Object.entries(environmentOf(folder))) vi.stubEnv(name, value);
	vi.useFakeTimers({ now: Date.now() });
	machine.home = folder;
}

function startSession(file: string, host = callsHost()): Promise<FakePi> {
	return startFakePi({ file, extensions: [packageHere(() => {}, host)], builtIns: ["bash"] });
}

/** Starts all sessions there are, lets everything happen that is due, and ends them. */
async function comeToRest(): Promise<FakePi[]> {
	const sessions: FakePi[] = [];
	for (const file of sessionFiles(machine.home)) sessions.push(await startSession(file));
	const playRuns = async () => {
		await later(2500);
		for (const pi of sessions) while (pi.hasRunToPlay) await pi.run({ text: "it is well" });
	};
	await playRuns();
	for (const pi of sessions) await pi.type("/mailbox resume");
	// Answers what a restart holds.
	for (const pi of sessions) await pi.run({ prompt: "go on" });
	await playRuns();
	await playRuns();
	for (const pi of sessions) await pi.shutDown();
	return sessions;
}

interface Found {
	readonly path: string;
	readonly envelope: Envelope;
}

function mailIn(box: string): Found[] {
	const files = existsSync(box) ? readdirSync(box).filter((name) => name.endsWith(".json")) : [];
	return files.flatMap((name) => {
		const parsed = parseEnvelope(readFileSync(join(box, name), "utf8"));
		return parsed.ok ? [{ path: join(box, name), envelope: parsed.envelope }] : [];
	});
}

/** Files that say that something is not finished, or that a mail could not be delivered. */
const halfDone = /\.(part|open|reason)$/;

/** What does not hold of a folder whose sessions have come to rest, in sentences; nothing when all is well. */
function brokenLaws(sessions: readonly FakePi[], receipts: readonly string[]): string[] {
	const broken: string[] = [];
	const claim = (isTrue: boolean, sentence: string) => {
		if (!isTrue) broken.push(sentence);
	};
	const root = mailRoot();
	const addresses = sessions.map(({ address }) => address);
	const mails = addresses.flatMap((address) => mailIn(boxesOf(root, address).cur));
	const copies = addresses.flatMap((address) => mailIn(boxesOf(root, address).sent));
	const details = new Map(
		sessions.map((pi) => [
			pi.address,
			pi.session
				.getEntries()
				.flatMap((entry) => (entry.type === "custom_message" ? (mailDetails(entry.details) ?? []) : [])),
		]),
	);

	// A reply may be written twice, under one id; it enters the conversation once.
	const once = mails.filter(({ envelope }) => envelope.kind !== "reply").map(({ envelope }) => envelope.id);
	for (const id of new Set([...receipts, ...once])) {
		const count = mails.filter(({ envelope }) => envelope.id === id).length;
		claim(count === 1, `a mail that was sent is there ${count} times`);
	}
	for (const { envelope } of mails) {
		const { id, from, to, kind } = envelope;
		const count = details.get(to)?.filter((mail) => mail.id === id && mail.from === from).length;
		claim(count === (kind === "control" ? 0 : 1), `a ${kind} is in the conversation ${count} times`);
		const copied = copies.filter((copy) => copy.envelope.id === id).length;
		claim(copied === (isExpected(envelope) ? 0 : 1), `a ${kind} has ${copied} copies`);
		if (!awaitsAnswer(envelope)) continue;
		const answers = details.get(from)?.filter(({ inReplyTo }) => inReplyTo.includes(id)).length;
		claim(answers === 1, `a ${kind} has ${answers} answers`);
	}
	for (const { envelope } of copies) {
		const isSent = mails.some((mail) => mail.envelope.id === envelope.id);
		claim(isSent, `a ${envelope.kind} has a copy and was not sent`);
	}
	for (const name of readdirSync(root)) claim(!name.startsWith(".pruning"), `${name} was left`);
	for (const address of addresses) {
		const { new: inbox, cur, sent } = boxesOf(root, address);
		claim(readdirSync(inbox).length === 0, "mail was left in new/");
		for (const box of [cur, sent]) {
			const left = readdirSync(box).filter((name) => halfDone.test(name));
			for (const name of left) claim(false, `${name} was left in ${basename(box)}/`);
		}
	}
	const { folder, cur, sent } = boxesOf(root, carol);
	const isWhole = [cur, sent].every((box) => existsSync(join(box, "old.txt")));
	claim(isWhole || !existsSync(folder), "a folder is removed in part");
	return broken;
}

/** What is not true of a session's calls and of the control mail that came to it, in sentences. */
function brokenCalls(pi: FakePi, kept: ReadonlyMap<string, string>): string[] {
	const broken: string[] = [];
	const claim = (isTrue: boolean, sentence: string) => {
		if (!isTrue) broken.push(sentence);
	};
	const { folder, cur } = boxesOf(mailRoot(), pi.address);
	const entries = pi.session.getEntries();
	const mails = mailIn(cur).map(({ envelope }) => envelope);
	const told = mails.flatMap(({ x }) => (x?.call === undefined || x.call.state === "decided" ? [] : [x.call]));
	const ends = resultsIn(folder);
	const handedBack = [...JSON.stringify(entries).matchAll(/"tool_call_id\W+(call-[a-z0-9]{16})/g)];
	for (const id of new Set([...handedBack.map(([, id = ""]) => id), ...ends.keys(), ...told.map(({ id }) => id)])) {
		const states = told.filter((call) => call.id === id).map(({ state }) => state);
		// Of one that was decided about and not made, the decision is mail enough.
		const { ticket, content } = openCallStore(nodeDisk(), folder).ended(id) ?? {};
		const isDecided = JSON.stringify(content ?? "").includes("It was not made: the decision about it comes as mail.");
		const decisions = mails.filter(({ x }) => x?.call?.state === "decided" && x.call.id === ticket).length;
		const times = isDecided ? states.length + decisions : states.length;
		claim(times === 1, `a call was told of ${times} times`);
		const end = kept.get(id) ?? ends.get(id);
		claim(
			states.every((state) => state === end),
			`a call was told of as ${states}, and was ${end}`,
		);
	}
	claim(!namesIn(join(folder, "calls")).some((name) => name.endsWith(".json")), "a call was left open");
	const cancelled = mails.flatMap(({ x }) => x?.control?.calls ?? []);
	for (const { id, state } of cancelled.length === 0 ? [] : told) {
		const end = cancelled.includes(id) ? "cancelled" : "completed";
		claim([end, "orphaned"].includes(state), `a call was to be ${end} and is ${state}`);
	}
	const notes = entries.flatMap((entry) => (entry.type === "custom" ? [JSON.stringify(entry.data)] : []));
	for (const { id, kind, x } of mails) {
		if (kind !== "control") continue;
		const done = notes.filter((note) => note.includes(id));
		claim(done.length === 1, `${x?.control?.op} was done ${done.length} times`);
		const isPause = done.every((note) => note.includes('"type":"paused","isOn":true'));
		claim(isPause === (x?.control?.op === "pause"), `${x?.control?.op} was noted as ${done}`);
	}
	return broken;
}

/** The calls of which the end is kept, with how they ended. */
function resultsIn(folder: string): Map<string, string> {
	const store = openCallStore(nodeDisk(), folder);
	const ids = namesIn(join(folder, "results")).map((name) => basename(name, ".json"));
	return new Map(ids.flatMap((id) => store.ended(id) ?? []).map(({ id, state }) => [id, state]));
}

function namesIn(folder: string): string[] {
	return existsSync(folder) ? readdirSync(folder) : [];
}

function ticketsIn(folder: string): Ticket[] {
	const store = openTicketStore(nodeDisk(), folder, Date.now);
	const ids = namesIn(join(folder, "tickets")).flatMap((name) => /^ticket-[a-z0-9]{16}/.exec(name) ?? []);
	return [...new Set(ids)].flatMap((id) => store.find(id) ?? []);
}

/** What is not true of a call that asks, once it was approved, in sentences. Its model makes it twice more. */
async function brokenGrants(asked: readonly Ticket[], output: string): Promise<string[]> {
	if (asked.length === 0) return [];
	const host = callsHost();
	const { jobs } = host;
	const [file = ""] = sessionFiles(machine.home).filter((path) => path.includes(alice));
	const pi = await startSession(file, host);
	await later(2500);
	const broken: string[] = [];
	while (pi.hasRunToPlay) {
		broken.push("what has come to rest starts a run");
		await pi.run();
	}
	const during = async () => {
		await later(0);
		for (const job of jobs) job.end("built");
	};
	const made: number[] = [];
	for (const prompt of ["once", "twice"]) {
		await pi.run({ prompt, turns: [{ tools: [{ name: "bash", args: { command: "make" } }], during }] });
		made.push(jobs.length);
	}
	await pi.shutDown();
	broken.push(...pi.errors);
	const wasMade = linesOf(output, "made");
	const isUnused = asked.some(({ state }) => state !== "closed");
	if (isUnused && wasMade > 0) broken.push("a call was made, and its approval is there again");
	const [before, after] = isUnused ? [1, 1] : [0, 0];
	if (made[0] !== before || made[1] !== after)
		broken.push(`an approval (used before: ${!isUnused}) made ${made} calls`);
	return broken;
}

/** What does not hold after the sessions of a folder were started again, twice. */
async function brokenAfter({ folder, output }: Played): Promise<string[]> {
	enter(folder);
	const own = boxesOf(mailRoot(), alice).folder;
	const [kept, asked] = [resultsIn(own), ticketsIn(own)];
	const first = await comeToRest();
	const broken: string[] = [];
	const states = (tickets: readonly Ticket[]) =>
		tickets
			.map(({ id, state }) => `${id} ${state}`)
			.sort()
			.join();
	if (states(asked) !== states(ticketsIn(own)))
		broken.push(`a start made of ${states(asked)}: ${states(ticketsIn(own))}`);
	if (asked.length < linesOf(output, "asked")) broken.push("a call that was asked about is forgotten");
	if (linesOf(output, "approved") > 0 && asked.some(({ state }) => state === "pending"))
		broken.push("an approval is lost");
	approveAll();
	const again = await comeToRest();
	broken.push(...[...first, ...again].flatMap((pi) => pi.errors), ...brokenLaws(again, receiptsIn(output)));
	for (const pi of again) broken.push(...brokenCalls(pi, pi.address === alice ? kept : new Map()));
	const mails = mailIn(boxesOf(mailRoot(), alice).cur).flatMap(({ envelope }) => envelope.x?.call ?? []);
	for (const { id, state } of asked) {
		const count = mails.filter((call) => call.id === id).length;
		if (state !== "closed" && count !== 1) broken.push(`a decision was told ${count} times`);
	}
	return [...broken, ...(await brokenGrants(asked, output))];
}

/** How often the scenario program has said that something happened. */
function linesOf(output: string, line: string): number {
	return output.split("\n").filter((found) => found === line).length;
}

describe.skipIf(whyNoTrace() !== undefined)("a session that is killed", () => {
	afterEach(() => {
		vi.useRealTimers();
		vi.unstubAllEnvs();
		machine.sessions.clear();
	});

	test.each(scenarios)(
		"L2 L3 loses nothing, brings nothing twice and answers once: at each call of %s",
		async (name) => {
			const scenario = makeScenario(name);
			const whole = await play(scenario);
			const targets = targetsIn(whole);
			const killed = await killAll(scenario, whole, targets);
			const broken: string[] = [];
			for (const played of [whole, ...killed]) {
				for (const sentence of await brokenAfter(played)) broken.push(`killed at ${played.shape}: ${sentence}`);
				rmSync(played.folder, { recursive: true });
			}
			expect(broken).toEqual([]);
			const hits = killed.filter(({ isAsMeant }) => isAsMeant).length;
			expect(targets).not.toEqual([]);
			expect(hits, "kills that came where they were meant").toBeGreaterThanOrEqual(0.9 * targets.length);
		},
	);

	test("L7 D12: does not die of the same mail for ever: the third time it is set aside, and answered failed", async () => {
		let scenario = makeScenario("start");
		for (const _ of ["second", "third"]) {
			const whole = await play(scenario);
			const { calls, folder } = whole;
			const counted = calls.findIndex((call) => /^rename alice\/cur\/.*open$/.test(shapeOf(call, folder)));
			const saved = calls.filter((call, n) => n > counted && shapeOf(call, folder) === "open sessions/alice.jsonl");
			const killed = await killAll(scenario, whole, saved.slice(0, 1));
			const { folder: before = "" } = killed.find(({ isAsMeant }) => isAsMeant) ?? {};
			expect(before).not.toBe("");
			scenario = { ...scenario, before };
		}
		enter(scenario.before);
		await comeToRest();
		const { cur } = boxesOf(mailRoot(), alice);
		const reasons = readdirSync(cur).filter((file) => file.endsWith(".reason"));
		expect(reasons).toHaveLength(1);
		const [reason = ""] = reasons;
		expect(readFileSync(join(cur, reason), "utf8")).toContain("Pi ended 3 times");
		const dead = mailIn(cur).find(({ path }) => path === join(cur, reason.slice(0, -".reason".length)));
		const answers = mailIn(boxesOf(mailRoot(), bob).cur).filter(({ envelope }) =>
			envelope.in_reply_to.includes(dead?.envelope.id ?? ""),
		);
		expect(answers.map(({ envelope }) => envelope.status)).toEqual(["failed"]);
	});
});
