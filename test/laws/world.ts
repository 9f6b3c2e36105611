import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { vi } from "vitest";
import { systemProcesses } from "../../src/mail/process.ts";
import { mailRoot } from "../../src/mail/root.ts";
import type { Machine } from "../../src/session/session.ts";
import { callsHost, type Job } from "../support/calls.ts";
import { type FaultyDisk, faultyDisk, type Operation } from "../support/disk.ts";
import { later } from "../support/fake-machine.ts";
import { FakePi, type FakePiOptions, machine } from "../support/fake-pi.ts";
import { type Mail, mailsIn, type State, stateOf } from "./states.ts";

/** Sessions on one mail root and one disk, which fails on command. */
export interface World {
	readonly root: string;
	readonly faults: FaultyDisk;
	/** The calls of bash that models have made, where the settings name it. */
	readonly jobs: readonly Job[];
	/** Those that run now, by name. */
	readonly pis: Map<string, FakePi>;
	/** Starts a session, or one again that ended: from its file, or with its id when it has none. */
	start(name: string, options?: FakePiOptions): Promise<FakePi>;
	/** Starts one and gives it a first run, so that its file is there and its gate open. */
	season(name: string, options?: FakePiOptions): Promise<FakePi>;
	pi(name: string): FakePi;
	/** Ends a session. Of a kill only what was on disk at the first failure stays, when there was one. */
	end(name: string, how: "quit" | "kill"): Promise<void>;
	/** Starts every session that ended. */
	restart(): Promise<void>;
	/** Called before each settle of a run. */
	beforeSettle: () => void;
	/** From now on Pi cannot write to its session files, or can again. */
	fillSessions(isFull: boolean): void;
	/** The machine stops before the first operation that `isIt`, counted from 1: that one and all later ones change nothing. */
	stopAt(isIt: (n: number, operation: Operation) => boolean): void;
	/** What the people at all sessions were told, ended ones included. */
	notifications(): string[];
	/** What handlers threw. What Pi itself could not write while sessions were full is none of it. */
	errors(): string[];
	/** All entries of a session, by its address. */
	entries(address: string): readonly unknown[];
	/** Every mail of which there is a file, and the state that it is in. Throws when one is in no legal state. */
	states(): { mail: ReturnType<typeof mailsIn>[number]; state: State }[];
	stateOf(mail: Mail): State;
	close(): Promise<void>;
}

const processes = systemProcesses();
/** Thousands of small trees: where there is a file system in memory, they need not wait for a disk. */
const memory = ["/dev/shm"].find((folder) => existsSync(folder));

export function openWorld(durability: "durable" | "fast" = "fast", settings: object = {}): World {
	const base = machine.home;
	const home = mkdtempSync(join(memory ?? base, "world-"));
	machine.home = home;
	vi.stubEnv("XDG_STATE_HOME", join(home, "state"));
	const root = mailRoot();
	const settingsFile = join(home, "session-mail.json");
	writeFileSync(settingsFile, JSON.stringify({ durability, ...settings }));
	const faults = faultyDisk();
	const parts: Machine = {
		disk: faults.disk,
		processes,
		now: Date.now,
		root: () => root,
		settingsFile: () => settingsFile,
		whileAlone: (_root, work) => work(() => {}),
	};
	const { jobs, extension } = callsHost();
	const pis = new Map<string, FakePi>();
	const all: { name: string; pi: FakePi }[] = [];
	const atDeath = join(home, "at-death");
	let isDead = false;
	let isFull = false;

	/** What Pi itself wrote until now; what it writes from here on will not have been. */
	function die(): void {
		if (isDead) return;
		isDead = true;
		mkdirSync(atDeath, { recursive: true });
		for (const [name, pi] of pis) if (existsSync(pi.file)) copyFileSync(pi.file, join(atDeath, name));
	}

	const world: World = {
		root,
		faults,
		jobs,
		pis,
		async start(name, options = {}) {
			const earlier = all.findLast((one) => one.name === name)?.pi;
			const pi = new FakePi({
				extensions: [(api) => api.on("agent_end", () => world.beforeSettle()), extension(parts)],
				builtIns: ["bash"],
				...(earlier === undefined ? {} : existsSync(earlier.file) ? { file: earlier.file } : { id: earlier.address }),
				...options,
			});
			pis.set(name, pi);
			all.push({ name, pi });
			const methods = ["appendMessage", "appendCustomMessageEntry", "appendCustomEntry"] as const;
			for (const method of methods) refuse(pi.session, method, () => isFull);
			await pi.start();
			await pi.discover();
			return pi;
		},
		async season(name, options) {
			const pi = await world.start(name, options);
			await pi.run({ prompt: "hello" });
			await later(0);
			return pi;
		},
		pi(name) {
			const pi = pis.get(name);
			if (pi === undefined) throw new Error(`${name} does not run`);
			return pi;
		},
		async end(name, how) {
			const pi = world.pi(name);
			await (how === "kill" ? pi.kill() : pi.shutDown());
			pis.delete(name);
			const saved = join(atDeath, name);
			if (!isDead) return;
			if (existsSync(saved)) copyFileSync(saved, pi.file);
			else rmSync(pi.file, { force: true });
		},
		async restart() {
			isDead = false;
			for (const name of new Set(all.map((one) => one.name))) if (!pis.has(name)) await world.start(name);
		},
		beforeSettle: () => {},
		fillSessions(is) {
			isFull = is;
		},
		stopAt(isIt) {
			isDead = false;
			rmSync(atDeath, { recursive: true, force: true });
			faults.failWith((n, operation) => {
				if (!isDead && isIt(n, operation)) die();
				return isDead ? "EIO" : undefined;
			});
		},
		notifications: () => all.flatMap(({ pi }) => pi.notifications),
		errors: () => all.flatMap(({ pi }) => pi.errors.filter((error) => !unwritten.test(error))),
		entries(address) {
			const found = all.findLast(({ pi }) => pi.address === address);
			if (found === undefined) return [];
			// What one that was killed had in memory is gone.
			return pis.get(found.name) === found.pi ? found.pi.session.getEntries() : linesOf(found.pi.file);
		},
		states: () => mailsIn(root).map((mail) => ({ mail, state: world.stateOf(mail) })),
		stateOf: (mail) => stateOf(root, mail, world.entries(mail.to)),
		async close() {
			faults.heal();
			for (const { pi } of all) {
				await pi.shutDown();
				machine.sessions.delete(pi);
			}
			machine.home = base;
			rmSync(home, { recursive: true, force: true });
		},
	};
	return world;
}

/** Plays every run that mail has started, until time starts no more of them. */
export async function playOn(world: World, ms: number, text = "Answered."): Promise<void> {
	for (let rounds = 0; ; rounds++) {
		if (rounds > 20) throw new Error("sessions go on waking each other");
		await later(ms);
		const woken = [...world.pis.values()].filter((pi) => pi.hasRunToPlay);
		if (woken.length === 0) return;
		for (const pi of woken) await pi.run({ text });
	}
}

/** How Pi says that it could not write to a session file. */
const unwritten = /^(send_message: )?ENOSPC: the session is full$/;

/** Pi takes an entry back that it could not write, and throws (pi-facts 3). */
function refuse<M extends "appendMessage" | "appendCustomMessageEntry" | "appendCustomEntry">(
	session: FakePi["session"],
	method: M,
	isFull: () => boolean,
): void {
	const append: unknown = session[method];
	if (typeof append !== "function") return;
	Object.assign(session, {
		[method]: (...args: unknown[]) => {
			if (isFull()) throw Object.assign(new Error("ENOSPC: the session is full"), { code: "ENOSPC" });
			return append.apply(session, args);
		},
	});
}

function linesOf(file: string): unknown[] {
	if (!existsSync(file)) return [];
	const lines = readFileSync(file, "utf8").split("\n");
	return lines.filter((line) => line !== "").map((line) => JSON.parse(line));
}
