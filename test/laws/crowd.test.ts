import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { FileEntry } from "@earendil-works/pi-coding-agent";
import { afterEach, expect, test } from "vitest";
import { type Boxes, boxesOf } from "../../src/mail/boxes.ts";
import { awaitsAnswer, type Envelope } from "../../src/mail/envelope.ts";
import type { MailDetails } from "../../src/session/ledger.ts";
import { isSoak } from "../support/soak.ts";
import { type Random, randomFrom } from "./crowd-random.ts";
import type { ReceiverOrders } from "./crowd-receiver.ts";
import type { NotedMail, SenderOrders } from "./crowd-sender.ts";

const stormMs = isSoak ? 5 * 60_000 : 20_000;
const restMs = isSoak ? 5 * 60_000 : 60_000;
const pauseMs = isSoak ? 300 : 150;
const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const senders = Array.from({ length: 20 }, (_, n) => `sender-${n + 1}`);
const receivers = Array.from({ length: 5 }, (_, n) => `receiver-${n + 1}`);

const actors: Actor[] = [];
afterEach(async () => {
	for (const actor of actors.splice(0)) await actor.end("SIGKILL");
});

test(`L1, L2, L3: of ${senders.length} senders and ${receivers.length} sessions that are killed, stopped and started again at random for ${stormMs / 1000} s, every mail arrives once and every request is answered once (SEED=${seed})`, {
	timeout: stormMs + restMs + 30_000,
}, async () => {
	const crowd = new Crowd(mkdtempSync(join(tmpdir(), "crowd-")));
	console.log(`SEED=${seed}`);
	await crowd.storm(randomFrom(seed));
	await crowd.rest();
	const { counts, wrong } = crowd.count();
	console.log(JSON.stringify(counts));
	expect(wrong).toEqual({
		lost: [],
		twice: [],
		"not sent": [],
		"more unnoted than kills": [],
		"out of order": [],
		"without a copy": [],
		"copies of nothing": [],
		"without an answer": [],
		"answered twice": [],
		"answers to nothing": [],
		"still there": [],
	});
	expect(counts.noted).toBeGreaterThan(stormMs / 400);
	expect(counts.kills).toBeGreaterThan(stormMs / 500);
	expect(counts["set aside"]).toBeLessThan(counts.noted / 100);
	expect(counts["replies written again"]).toBeLessThan(counts.kills);
	await rm(crowd.home, { recursive: true });
});

/** A process that is started again whenever it ends, or one that ends once. */
class Actor {
	child: ChildProcess | undefined;
	/** How often it was ended. */
	kills = 0;
	readonly #start: () => ChildProcess;
	#stderr = "";
	#ending: NodeJS.Signals | undefined;

	constructor(start: () => ChildProcess) {
		this.#start = start;
		actors.push(this);
	}

	get isRunning(): boolean {
		return this.child !== undefined;
	}

	/** Starts it, and returns it as soon as it says that it is ready (`message`), or at once. */
	start(): ChildProcess {
		const child = this.#start();
		this.child = child;
		this.#ending = undefined;
		this.#stderr = "";
		child.stderr?.on("data", (chunk) => {
			this.#stderr += chunk;
		});
		child.once("exit", (code, signal) => {
			this.child = undefined;
			if (code === 0 || (signal !== null && signal === this.#ending)) return;
			failures.push(this.#stderr || `a process ended with ${code ?? signal}`);
		});
		return child;
	}

	/** Ends it and waits for its end. A process that is stopped goes on first, to hear of it. */
	async end(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
		const { child } = this;
		if (child === undefined) return;
		const exit = once(child, "exit");
		this.#ending = signal;
		// Also SIGTERM kills one that has just begun to start.
		this.kills++;
		child.kill(signal);
		child.kill("SIGCONT");
		await exit;
	}

	async pause(ms: number): Promise<void> {
		const { child } = this;
		child?.kill("SIGSTOP");
		await sleep(ms);
		child?.kill("SIGCONT");
	}
}

/** What processes of the crowd said as they ended without being told to. */
const failures: string[] = [];

class Crowd {
	readonly home: string;
	readonly #root: string;
	readonly #seeds = randomFrom(seed + 1);
	readonly #senders = new Map<string, Actor>();
	readonly #receivers: { address: string; actor: Actor }[] = [];

	constructor(home: string) {
		this.home = home;
		this.#root = join(home, "state/pi-session-mail");
		mkdirSync(this.#root, { recursive: true });
		for (const address of senders)
			this.#senders.set(address, new Actor(() => this.#fork(this.#send(address, pauseMs))));
		for (const address of receivers) {
			this.#receivers.push({ address, actor: new Actor(() => this.#fork(this.#receive(address, false))) });
		}
	}

	/** Lets them all run, and ends or pauses one after the other. */
	async storm(random: Random): Promise<void> {
		// First, so that each has a file: a new session has no place for mail.
		for (const { actor } of this.#receivers) await once(actor.start(), "message");
		for (const actor of this.#senders.values()) actor.start();
		const isOver = AbortSignal.timeout(stormMs);
		const each = (actors: Actor[], paceMs: number) =>
			Promise.all(
				actors.map(async (actor) => {
					for (;;) {
						await sleep(random.next() * 2 * paceMs, undefined, { signal: isOver }).catch(() => {});
						if (isOver.aborted || failures.length > 0) return;
						if (actor.isRunning) await this.#disturb(actor, random);
						else actor.start();
					}
				}),
			);
		const progress = setInterval(() => {
			console.log(`${this.#noted().length} mails, ${this.#kills()} ends`);
		}, 5000);
		const sessions = this.#receivers.map(({ actor }) => actor);
		// A second process on a session: it receives nothing until the first has ended.
		const seconds = receivers.map((address) => new Actor(() => this.#fork(this.#receive(address, false))));
		await Promise.all([each([...this.#senders.values()], 1000), each(sessions, 2500), each(seconds, 4000)]);
		clearInterval(progress);
		expect(failures).toEqual([]);
	}

	/** Ends them all, and lets one process after the other end what is left. */
	async rest(): Promise<void> {
		for (const actor of this.#senders.values()) await actor.end("SIGTERM");
		for (const actor of actors) await actor.end("SIGKILL");
		for (const address of senders) await once(this.#fork(this.#send(address)), "exit");
		const last = receivers.map((address) => new Actor(() => this.#fork(this.#receive(address, true))));
		await Promise.all(last.map((actor) => once(actor.start(), "exit")));
		expect(failures).toEqual([]);
	}

	async #disturb(actor: Actor, random: Random): Promise<void> {
		if (random.happens(0.3)) await actor.pause(random.between(10, 1500));
		else await actor.end(random.happens(0.75) ? "SIGKILL" : "SIGTERM");
	}

	#fork([script, orders]: [string, SenderOrders | ReceiverOrders]): ChildProcess {
		const env = {
			PATH: process.env.PATH,
			XDG_STATE_HOME: join(this.home, "state"),
			NODE_COMPILE_CACHE: join(tmpdir(), "node-compile-cache"),
		};
		const [execArgv, stdio]: [string[], ("pipe" | "ignore" | "ipc")[]] = [[], ["ignore", "ignore", "pipe", "ipc"]];
		return fork(new URL(script, import.meta.url), [JSON.stringify(orders)], { cwd: this.home, env, execArgv, stdio });
	}

	#send(address: string, pauseMs?: number): [string, SenderOrders] {
		const notes = join(this.home, `${address}.notes`);
		const seed = this.#seeds.between(0, 2 ** 31);
		return [
			"./crowd-sender.ts",
			{ root: this.#root, address, receivers, notes, seed, ...(pauseMs === undefined ? {} : { pauseMs }) },
		];
	}

	#receive(address: string, isLast: boolean): [string, ReceiverOrders] {
		return ["./crowd-receiver.ts", { home: this.home, address, seed: this.#seeds.between(0, 2 ** 31), isLast }];
	}

	#kills(): number {
		return actors.reduce((kills, actor) => kills + actor.kills, 0);
	}

	#notedBy(address: string): NotedMail[] {
		const file = join(this.home, `${address}.notes`);
		if (!existsSync(file)) return [];
		const lines = readFileSync(file, "utf8").split("\n");
		return lines.slice(0, -1).map((line) => JSON.parse(line));
	}

	#noted(): NotedMail[] {
		return senders.flatMap((address) => this.#notedBy(address));
	}

	/** What is wrong, in lists of ids and paths, and how much there was of everything. */
	count() {
		const wrong = {
			lost: [] as string[],
			twice: [] as string[],
			"not sent": [] as string[],
			"more unnoted than kills": [] as string[],
			"out of order": [] as string[],
			"without a copy": [] as string[],
			"copies of nothing": [] as string[],
			"without an answer": [] as string[],
			"answered twice": [] as string[],
			"answers to nothing": [] as string[],
			"still there": [] as string[],
		};
		const read = new Map<string, { to: string; from: string; name: string; place: number }>();
		const owed = new Set<string>();
		let setAside = 0;
		for (const address of receivers) {
			const boxes = boxesOf(this.#root, address);
			const inBox = new Map(jsonIn(boxes.cur).map((name) => [envelopeIn(boxes.cur, name).id, name]));
			for (const [place, { id, from, kind, file }] of this.#conversation(address).entries()) {
				if (read.has(id)) wrong.twice.push(id);
				if (!inBox.has(id)) wrong["not sent"].push(id);
				read.set(id, { to: address, from, name: file, place });
				if (awaitsAnswer({ kind })) owed.add(id);
			}
			// What Pi was killed with three times before it was in the conversation is not tried again (design D12).
			for (const [id, name] of inBox) {
				const reason = join(boxes.cur, `${name}.reason`);
				if (read.has(id) || !existsSync(reason)) continue;
				expect(readFileSync(reason, "utf8")).toMatch(/^Pi ended 3 times/);
				const { from, kind } = envelopeIn(boxes.cur, name);
				read.set(id, { to: address, from, name, place: -1 });
				if (awaitsAnswer({ kind })) owed.add(id);
				setAside++;
			}
			if (inBox.size !== jsonIn(boxes.cur).length) wrong.twice.push(boxes.cur);
			const open = namesIn(boxes.cur).filter((name) => name.endsWith(".open"));
			wrong["still there"].push(...open, ...namesIn(boxes.new), ...excess(boxes.tmp, this.#kills()));
		}

		for (const { id, to } of this.#noted()) if (read.get(id)?.to !== to) wrong.lost.push(id);
		const again = senders.reduce((sum, address) => sum + this.#countSender(address, read, owed, wrong), 0);
		wrong["without an answer"].push(...owed);
		const running = join(this.#root, "running");
		// What a rewrite leaves when it is cut short, the next list of sessions removes.
		wrong["still there"].push(...namesIn(running).filter((name) => !/\.json\.\d+$/.test(name)));
		return {
			counts: {
				noted: this.#noted().length,
				unnoted: read.size - this.#noted().length,
				"set aside": setAside,
				"replies written again": again,
				kills: this.#kills(),
			},
			wrong,
		};
	}

	#countSender(
		address: string,
		read: ReadonlyMap<string, { from: string; to: string; name: string; place: number }>,
		owed: Set<string>,
		wrong: Record<string, string[]>,
	): number {
		const boxes = boxesOf(this.#root, address);
		const noted = new Set(this.#notedBy(address).map(({ id }) => id));
		const mine = [...read].filter(([, { from }]) => from === address);
		const unnoted = mine.filter(([id]) => !noted.has(id));
		if (unnoted.length > (this.#senders.get(address)?.kills ?? 0)) {
			wrong["more unnoted than kills"]?.push(...unnoted.map(([id]) => id));
		}
		const copies = new Set(jsonIn(boxes.sent).map((name) => envelopeIn(boxes.sent, name).id));
		wrong["without a copy"]?.push(...mine.filter(([id]) => !copies.has(id)).map(([id]) => id));
		wrong["copies of nothing"]?.push(...[...copies].filter((id) => !read.has(id)));
		wrong["still there"]?.push(...namesIn(boxes.sent).filter((name) => name.endsWith(".part")));
		for (const receiver of receivers) {
			const places = mine.filter(([, { to, place }]) => to === receiver && place >= 0);
			const names = places.sort(([, a], [, b]) => a.place - b.place).map(([, { name }]) => name);
			for (const [index, name] of names.entries()) {
				if (index > 0 && name < `${names[index - 1]}`) wrong["out of order"]?.push(name);
			}
		}
		// A reply that a crash has made written again is the same one: its recipient passes over the second (design 4.8).
		const replies = new Map<string, Envelope>();
		let again = 0;
		for (const box of [boxes.new, boxes.cur]) {
			for (const name of jsonIn(box)) {
				const reply = envelopeIn(box, name);
				const same = replies.get(reply.id);
				if (same !== undefined) again++;
				if (same !== undefined && same.body !== reply.body) wrong["answered twice"]?.push(reply.id);
				replies.set(reply.id, reply);
			}
		}
		const answered = new Set<string>();
		for (const id of [...replies.values()].flatMap((reply) => reply.in_reply_to)) {
			if (answered.has(id)) wrong["answered twice"]?.push(id);
			else if (read.get(id)?.from !== address || !owed.delete(id)) wrong["answers to nothing"]?.push(id);
			answered.add(id);
		}
		wrong["still there"]?.push(...excess(boxes.tmp, this.#kills()));
		return again;
	}

	/** The mails in a session's file, in order. */
	#conversation(address: string): MailDetails[] {
		const sessions = join(this.home, "sessions");
		const file = readdirSync(sessions).filter((name) => name.endsWith(`_${address}.jsonl`));
		expect(file).toHaveLength(1);
		const lines = readFileSync(join(sessions, `${file[0]}`), "utf8")
			.trimEnd()
			.split("\n");
		return lines.flatMap((line) => {
			const entry: FileEntry = JSON.parse(line);
			if (entry.type !== "custom_message" || entry.customType !== "mailbox") return [];
			const { mail } = entry.details as { mail: MailDetails };
			return [mail];
		});
	}
}

type Box = Boxes[keyof Boxes];

function namesIn(box: Box): string[] {
	return existsSync(box) ? readdirSync(box) : [];
}

function jsonIn(box: Box): string[] {
	return namesIn(box).filter((name) => name.endsWith(".json"));
}

function envelopeIn(box: Box, name: string): Envelope {
	return JSON.parse(readFileSync(join(box, name), "utf8"));
}

/** More names in a folder than processes were killed that may have left one. */
function excess(box: Box, kills: number): string[] {
	return namesIn(box).slice(kills);
}
