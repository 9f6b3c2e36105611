import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterAll, afterEach, describe, expect, test, vi } from "vitest";
import { boxesOf } from "../../src/mail/boxes.ts";
import { awaitsAnswer, type Envelope, parseEnvelope } from "../../src/mail/envelope.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { mailDetails } from "../../src/session/ledger.ts";
import { later } from "../support/fake-machine.ts";
import { type FakePi, machine, startFakePi } from "../support/fake-pi.ts";
import { isSoak } from "../support/soak.ts";
import { type Call, type Traced, trace, whyNoTrace } from "../support/strace.ts";
import { packageHere } from "./package-here.ts";
import { alice, bob, carol, environmentOf, receiptsIn, sessionFiles, shapeOf } from "./tree.ts";

const program = ["--import", join(import.meta.dirname, "parts-of-pi.mjs"), join(import.meta.dirname, "scenario.ts")];
const scenarios = ["send", "claim", "hand over", "settle", "prune", "start"];
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
	if (name !== "start") return { name, before, receipts: "" };
	const env = { ...process.env, ...environment(before) };
	const receipts = execFileSync(process.execPath, [...program, "before start", before], { env, encoding: "utf8" });
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

/** Starts all sessions there are, lets everything happen that is due, and ends them. */
async function comeToRest(): Promise<FakePi[]> {
	const sessions: FakePi[] = [];
	for (const file of sessionFiles(machine.home))
		sessions.push(await startFakePi({ file, extensions: [packageHere()] }));
	const playRuns = async () => {
		await later(2500);
		for (const pi of sessions) while (pi.hasRunToPlay) await pi.run({ text: "it is well" });
	};
	await playRuns();
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
		claim(count === 1, `a ${kind} is in the conversation ${count} times`);
		const copied = copies.filter((copy) => copy.envelope.id === id).length;
		claim(copied === (kind === "reply" ? 0 : 1), `a ${kind} has ${copied} copies`);
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

/** What does not hold after the sessions of a folder were started again, twice. */
async function brokenAfter({ folder, output }: Played): Promise<string[]> {
	enter(folder);
	const first = await comeToRest();
	const again = await comeToRest();
	const errors = [...first, ...again].flatMap((pi) => pi.errors);
	return [...errors, ...brokenLaws(again, receiptsIn(output))];
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
			const { calls, folder } = await play(scenario);
			const counted = calls.findIndex((call) => /^rename alice\/cur\/.*open$/.test(shapeOf(call, folder)));
			const saved = calls.find((call, n) => n > counted && shapeOf(call, folder) === "open sessions/alice.jsonl");
			const killed = await play(scenario, saved);
			expect(killed.isKilled).toBe(true);
			scenario = { ...scenario, before: killed.folder };
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
