import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as soon } from "node:timers/promises";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import sessionMail from "../../src/index.ts";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { type Mailbox, openMailbox } from "../../src/mail/mailbox.ts";
import { type Processes, systemProcesses } from "../../src/mail/process.ts";
import { FakePi, machine } from "../support/fake-pi.ts";
import { firstPid } from "./fixtures.ts";

export interface HostOptions {
	readonly root: string;
	readonly address: string;
	readonly disk?: Disk;
	readonly processes?: Processes;
	readonly now?: () => number;
	/** Durable by default. */
	readonly isFast?: boolean;
	/** Called when a mail was given to Pi, with what the model will see. */
	readonly onMessage?: (text: string) => void;
	/** `rpc` by default. */
	readonly mode?: "tui";
	/** Whether a run gives other work a turn of the event loop now and then, as one of the real Pi does all the time. */
	readonly breathes?: boolean;
}

/** A session of this process, with the extension as Pi loads it from a checkout, and real time. */
export interface Host {
	readonly pi: FakePi;
	/** Fulfilled when what a start looks through, pruning included, is done with. */
	readonly isSettledIn: Promise<void>;
}

/** Makes a session that is not started yet. */
export function makeHost(options: HostOptions): Host {
	const { root, address, disk = nodeDisk(), processes = systemProcesses(), now = Date.now } = options;
	const settings = join(tmpdir(), `${options.isFast ? "fast" : "durable"}.json`);
	writeFileSync(settings, JSON.stringify({ durability: options.isFast ? "fast" : "durable" }));
	const { promise: isSettledIn, resolve } = Promise.withResolvers<void>();
	const ours = (api: ExtensionAPI) =>
		sessionMail(options.onMessage === undefined ? api : overheard(api, options.onMessage), {
			disk,
			processes,
			now,
			root: () => root,
			settingsFile: () => settings,
			// Without the lock, which another thread makes.
			whileAlone: (_root, work) => work(resolve),
		});
	machine.home = tmpdir();
	const mode = options.mode ?? "rpc";
	const pi = new FakePi({ id: address, mode, extensions: options.breathes ? [breathe, ours] : [ours] });
	return { pi, isSettledIn };
}

/** Starts a session and waits until it is idle, has a file, and may be woken. */
export async function startHost(options: HostOptions): Promise<FakePi> {
	const { pi, isSettledIn } = makeHost(options);
	await pi.start();
	await pi.discover();
	await isSettledIn;
	await pi.run({ prompt: "hello" });
	await soon();
	return pi;
}

/** A mailbox without a session. */
export function openPeer(root: string, address: string, disk = nodeDisk(), isDurable = false): Mailbox {
	return openMailbox({ disk, root, address, now: Date.now, isDurable: () => isDurable });
}

/** Sends a mail that must arrive; returns its id. */
export function sendFrom(mailbox: Mailbox, draft: Partial<Parameters<Mailbox["deliver"]>[0]> & { to: string }): string {
	const sent = mailbox.deliver({ kind: "request", body: "please look at branch x", hops: 0, ...draft });
	if (!sent.ok) throw new Error(sent.message);
	return sent.envelope.id;
}

/** `message:scan`, which must work. */
export function scan(pi: FakePi): void {
	const payload: { scanned?: boolean } = {};
	pi.events.emit("message:scan", payload);
	if (payload.scanned !== true) throw new Error(`message:scan did nothing. ${pi.errors.join(" ")}`);
}

/** `message:send`, which must work; returns the id. */
export function sendRequest(pi: FakePi, to: string): string {
	const payload: { to: string; body: string; envelope?: { id: string }; error?: string } = { to, body: "please" };
	pi.events.emit("message:send", payload);
	if (payload.envelope === undefined) throw new Error(payload.error);
	return payload.envelope.id;
}

/**
 * The processes of the records that `layRecords` lays. Each stands for this process: asked about so many of them, the
 * system is asked about this one as often.
 */
export function manyProcesses(): Processes {
	const real = systemProcesses();
	const { pid } = real.self;
	return {
		self: real.self,
		exists: (asked) => real.exists(asked >= firstPid ? pid : asked),
		startTokens(pids) {
			const tokens = new Map<number, string>();
			for (const asked of pids) {
				const token = real
					.startTokens([asked >= firstPid ? pid : asked])
					.values()
					.next().value;
				if (token !== undefined) tokens.set(asked, token);
			}
			return tokens;
		},
	};
}

/** A turn of the event loop, in ms: the longest by the clock, and the longest by what this thread computed in it. */
export interface Held {
	readonly heldMs: number;
	/** Without waiting for the disk, or for a core that others have. */
	readonly heldCpuMs: number;
}

/** Watches the turns of the event loop between now and `end`, whatever is done in them. */
export function watchLoop(): { end(): Held } {
	let held: Held = { heldMs: 0, heldCpuMs: 0 };
	let last = now();
	let next = setImmediate(look);

	function look(): void {
		measure();
		next = setImmediate(look);
	}

	function measure(): void {
		const current = now();
		held = {
			heldMs: Math.max(held.heldMs, current.ms - last.ms),
			heldCpuMs: Math.max(held.heldCpuMs, current.cpuMs - last.cpuMs),
		};
		last = current;
	}

	function now(): { ms: number; cpuMs: number } {
		const { user, system } = process.threadCpuUsage();
		return { ms: performance.now(), cpuMs: (user + system) / 1000 };
	}

	return {
		end() {
			clearImmediate(next);
			measure();
			return held;
		},
	};
}

/** Milliseconds that some work took. */
export function timed(work: () => unknown): number {
	const begin = performance.now();
	work();
	return performance.now() - begin;
}

/** The same extension, and somebody who hears of each mail that it gives to Pi. */
function overheard(api: ExtensionAPI, onMessage: (text: string) => void): ExtensionAPI {
	const sendMessage: ExtensionAPI["sendMessage"] = (message, options) => {
		api.sendMessage(message, options);
		onMessage(String(message.content));
	};
	return new Proxy(api, {
		get: (target, key) => (key === "sendMessage" ? sendMessage : Reflect.get(target, key)),
	});
}

function breathe(api: ExtensionAPI): void {
	const turn = async () => void (await soon());
	api.on("before_agent_start", turn);
	api.on("context", turn);
	api.on("agent_before_settle", turn);
	api.on("agent_settled", turn);
}
