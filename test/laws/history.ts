import {
	copyFileSync,
	existsSync,
	mkdirSync,
	mkdtempSync,
	readdirSync,
	readFileSync,
	rmSync,
	statSync,
	writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type ExtensionAPI, SessionManager } from "@earendil-works/pi-coding-agent";
import { vi } from "vitest";
import { createCalls } from "../../src/calls/index.ts";
import sessionMail from "../../src/index.ts";
import { type Boxes, boxesOf } from "../../src/mail/boxes.ts";
import type { Delivered } from "../../src/mail/deliver.ts";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { type Control, type Envelope, parseEnvelope } from "../../src/mail/envelope.ts";
import { holdOf, mailOfHold } from "../../src/mail/hold.ts";
import { type Mailbox, openMailbox } from "../../src/mail/mailbox.ts";
import type { Processes } from "../../src/mail/process.ts";
import { ensureRoot } from "../../src/mail/root.ts";
import { openRunning } from "../../src/mail/running.ts";
import type { Machine } from "../../src/session/session.ts";
import { callsHost, type Job } from "../support/calls.ts";
import { dayMs, fail, type Operation, startMs, watchedDisk } from "../support/disk.ts";
import { type Call, FakePi, machine, type RunScript, type Turn } from "../support/fake-pi.ts";
import { type AnswerStep, type DecideStep, refusalsIn, Tickets, type Told } from "./history-tickets.ts";
import { BrokenLaw, hold, Model, type ModelMail, type Shown } from "./model.ts";

/** One thing that happens. What cannot happen at that moment is passed over, so that every part of a history is one. */
export type Step =
	/** Mail from the peer, from a person (`/mailbox`) or from another extension (`message:send`). */
	| { do: "send"; from: "peer"; to: number; kind: Envelope["kind"] | "quiet" }
	| { do: "send"; from: number; to: number | "peer"; by: "command" | "hook" | "quiet command" }
	| { do: "pass"; ms: number }
	| { do: "scan"; who: number }
	/** The session's oldest call that goes on by itself ends. */
	| { do: "end call"; who: number; how: "done" | "failed" }
	/** The peer sends control mail, or the person says it. */
	| { do: "control"; who: number; op: ControlOp; by: "peer" | "person" }
	| DecideStep
	| AnswerStep
	/** Plays the run that mail has started, or that of a prompt. The step `inside` happens while it goes on. */
	| { do: "run"; who: number; end: RunEnd; tools: number; call?: ToolCall; inside?: Step; second?: boolean }
	/** A listener takes over the next mails. */
	| { do: "takeOver"; who: number; mails: number }
	| { do: "receive"; who: number; isOn: boolean }
	/** A person presses `h` on the newest mail in the screen: puts it on hold, or releases it. */
	| { do: "press h"; who: number }
	/** A person drops that mail: nobody answers it, and it enters no conversation. */
	| { do: "press p"; who: number }
	/** Another extension drops what ours adds at the end of a turn, or no longer does. */
	| { do: "drop"; who: number; isOn: boolean }
	| { do: "quit"; who: number; second: boolean }
	| { do: "kill"; who: number; second: boolean }
	/** It is killed before the n-th operation on disk from now on. */
	| { do: "killAt"; who: number; n: number }
	/** The n-th operation on disk from now on fails. */
	| { do: "fail"; who: number; n: number; code: string }
	| { do: "resume"; who: number }
	/** Another process opens the session as well. */
	| { do: "second"; who: number }
	| { do: "reload"; who: number }
	/** It is killed and starts again, so many times, each time just after it was handed what waited. */
	| { do: "crashes"; who: number; times: number }
	| { do: "fork"; who: number }
	| { do: "tree"; who: number; back: number }
	| { do: "compact"; who: number; inside: Step }
	/** Typed, but handled by another extension: no run starts. */
	| { do: "input"; who: number }
	| { do: "clock"; offset: "hour back" | "40 days ahead" | "right" }
	| { do: "prune"; who: number }
	/** The peer takes its last mail back, or changes it. */
	| { do: "retract" }
	| { do: "edit" }
	/** A mail that was claimed lies in the inbox once more. */
	| { do: "again"; who: number };

type RunEnd = "done" | "stopped" | "failed" | "stopped before a retry";

type ControlOp = Control["op"] | "cancel newest";

export interface ToolCall {
	/** Somebody is asked about the last four: of bash, which waits by itself, and of a tool that is called again. */
	tool: "send" | "ask" | "reply" | "bash" | "status" | "asked bash" | "asked bash again" | "deploy" | "deploy again";
	to: number | "peer";
}

export interface History {
	/** Whether the third session is saved. */
	isSaved: boolean;
	steps: readonly Step[];
}

/** Plays a history, holds the laws after each step, brings everything to rest, and holds them again. */
export async function play({ isSaved, steps }: History): Promise<void> {
	const world = new World(isSaved);
	let limit: NodeJS.Timeout | undefined;
	const hangs = new Promise<never>((_resolve, reject) => {
		limit = realTimeout(() => reject(new BrokenLaw("something is waited for that never ends")), settleMs);
	});
	try {
		await Promise.race([playIn(world, steps), hangs]);
	} finally {
		clearRealTimeout(limit);
		await world.close();
	}
}

async function playIn(world: World, steps: readonly Step[]): Promise<void> {
	await world.open();
	for (const step of steps) {
		await world.take(step);
		world.holdLaws();
	}
	await world.rest();
	world.holdLaws();
	world.holdAwaiting();
	world.answerAll();
	await world.rest();
	world.holdLaws();
	world.holdEnd();
	const before = world.summary();
	await world.rest();
	const after = world.summary();
	hold(before === after, () => `a second rest changes something:\n${before}\n${after}`);
}

/** How long a question waits, in seconds, and its model for the decision. */
const ticketTtl = 20;
const attachSeconds = 2;
const toolPolicy = {
	rules: [{ tool: "bash", attachSeconds: 0 }],
	permissions: {
		rules: [
			{ pattern: "bash(asked *)", behavior: "ask", attachSeconds },
			{ pattern: "deploy", behavior: "ask", attachSeconds },
		],
	},
	ticketTtlHours: ticketTtl / 3600,
};
const offsets = { "hour back": -dayMs / 24, "40 days ahead": 40 * dayMs, right: 0 };
const peerAddress = "01980f5e-7a3c-7d10-8f00-0000000000aa";
const addressOf = (index: number) => `01980f5e-7a3c-7d10-8f00-00000000000${index}`;

// Taken before the tests' clock replaces it.
const realImmediate = setImmediate;
const realTimeout = setTimeout;
const clearRealTimeout = clearTimeout;
/** A history takes a hundredth of this. */
const settleMs = 20_000;
const promisesKept = () => new Promise((resolve) => realImmediate(resolve));

/** Lets time pass. Nothing in a history waits for anything but timers and promises. */
async function pass(ms: number): Promise<void> {
	for (let left = ms; left > 0; left -= 500) {
		vi.advanceTimersByTime(Math.min(left, 500));
		await promisesKept();
	}
	// What follows from it at once, such as slices of bulk work.
	for (let round = 0; round < 4; round++) {
		vi.advanceTimersByTime(0);
		await promisesKept();
	}
}

/** A process with a session open. */
interface Host {
	readonly pi: FakePi;
	readonly pid: number;
	/** The calls that its model has made and that have not ended by themselves. */
	readonly jobs: Job[];
	isDead: boolean;
	hasFailed: boolean;
	/** Before which operation on disk it is killed, or the disk fails, counted down. */
	dies: number | undefined;
	fails: { in: number; code: string } | undefined;
	/** Mails that the listener still takes. */
	takes: number;
	drops: boolean;
	/** No run may start by itself before this time, unless one has started since `gateLog`. */
	gateOpensAt: number;
	gateLog: number;
	/** The mails that were handed to it, and are not in the session's file. */
	readonly given: Set<string>;
}

/** A session, with the processes that have it open, the oldest first. */
interface Session {
	readonly address: string;
	readonly isSaved: boolean;
	hosts: Host[];
	file: string | undefined;
	/** Of its file: how much of it was read, and what that shows. */
	readBytes: number;
	shown: Shown[];
	/** The last word on whether it receives. */
	isOn: boolean;
	/** The mails that a person was told are on hold, by name. */
	onHold: Map<string, string>;
	/** Those that a person has dropped before they were read. */
	dropped: Set<string>;
	/** How often a process of it was killed or failed. */
	crashes: number;
	/** One that is not saved and has ended. */
	isOver: boolean;
	hasBranched: boolean;
	/** Which folder it had: one that is pruned may be made again within a step, by a reply that comes to it. */
	folder: string | undefined;
	hadSecond: boolean;
	hadFault: boolean;
	/** Its folder was removed, or a copy could not be read when its reply came: what it awaits is not known for sure. */
	mayMiscount: boolean;
	/** A file could not be opened: its mail is set aside unread, and nothing of it can be answered. */
	mayBury: boolean;
	/** The calls of which its model knows that they go on by themselves. */
	handedBack: Set<string>;
	/** Those that it has from the session that it is a fork of. */
	copied: ReadonlySet<string>;
	/** The entries that it has from there. */
	copiedEntries: ReadonlySet<string>;
	/** Whether it is paused, by what it noted; and the last word on that, undefined when the order is not known. */
	isPaused: boolean;
	lastWord: boolean | undefined;
	/** The last call of each tool that somebody was asked about. */
	lastAsked: Map<string, string>;
	/** How often each refusal was told, and the tickets that were told of by mail. */
	refusals: Map<string, number>;
	/** The refusals that its model has looked up. */
	lookedUp: Set<string>;
	/** How often it was told that a call was stopped. */
	stops: number;
	/** The tickets that were open when its last process was killed. */
	leftOpen: Set<string>;
	/** It ended in the middle of a run. */
	wasCut: boolean;
	/** The calls of its last turn that have no result yet. */
	unanswered: Set<string>;
	takenOver: Map<string, number>;
	/** How often a process was killed after it was handed a mail. */
	endedWith: Map<string, number>;
}

class World {
	readonly #model = new Model();
	readonly #tickets: Tickets;
	readonly #sessions: Session[];
	readonly #touched = new Map<string, number>();
	readonly #base: Disk;
	readonly #root: string;
	readonly #alive = new Set<number>();
	readonly #gone: string[] = [];
	readonly #buried = new Set<string>();
	readonly #peerSaw = new Map<string, string>();
	#peer: Mailbox | undefined;
	#lastSent: { mail: ModelMail; receipt: Delivered } | undefined;
	#lastStamp = 0;
	#nextPid = 1000;
	#offsetMs = 0;
	#prunes = 0;
	/** Whether the clock was always right. */
	#isTimely = true;

	constructor(isSaved: boolean) {
		machine.home = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "history-"));
		vi.setSystemTime(startMs);
		this.#root = join(machine.home, "root");
		writeFileSync(this.#settingsFile, JSON.stringify({ toolPolicy }));
		this.#base = this.#datedDisk();
		this.#tickets = new Tickets(this.#root, this.#base, () => this.#now());
		this.#sessions = [true, true, isSaved].map((saved, index) => newSession(addressOf(index), saved));
	}

	async open(): Promise<void> {
		ensureRoot(this.#base, this.#root);
		this.#peer = openMailbox({
			disk: this.#base,
			root: this.#root,
			address: peerAddress,
			now: () => this.#now(),
			isDurable: () => false,
		});
		// It runs as well, so that it can be asked and its folder stays.
		openRunning({
			disk: this.#base,
			root: this.#root,
			processes: this.#processesOf(this.#nextPid),
			now: () => this.#now(),
			warn: (path, reason) => hold(false, () => `${path}: ${reason}`),
		}).own(peerAddress, { cwd: "", state: "idle", waitingOn: "" });
		this.#alive.add(this.#nextPid++);
		for (const session of this.#sessions.slice(0, 2)) await this.#start(session, "startup");
	}

	async close(): Promise<void> {
		for (const session of this.#sessions) for (const host of [...session.hosts]) await this.#kill(session, host);
		machine.sessions.clear();
		vi.clearAllTimers();
		rmSync(machine.home, { recursive: true, force: true });
	}

	async take(step: Step): Promise<void> {
		await this.#do(step);
		await pass(0);
		await this.#bury();
	}

	async #do(step: Step): Promise<void> {
		if (step.do === "pass") return pass(step.ms);
		if (step.do === "clock") {
			this.#offsetMs = offsets[step.offset];
			this.#isTimely &&= this.#offsetMs === 0;
			return;
		}
		if (step.do === "retract") return this.#retract();
		if (step.do === "edit") return this.#edit();
		if (step.do === "decide") return this.#tickets.decide(step);
		if (step.do === "answer dialog") return this.#answer(step.with);
		if (step.do === "send" && step.from === "peer") return void this.#sendFromPeer(step);
		const session = this.#session(step.do === "send" ? Number(step.from) : "who" in step ? step.who : 0);
		if (step.do === "control" && (step.by === "peer" || !isPauseWord(step.op))) return this.#control(session, step.op);
		const host = session.hosts.at("second" in step && step.second ? -1 : 0);
		if (step.do === "resume") {
			if (host === undefined && !session.isOver) await this.#start(session, "resume");
			return;
		}
		if (host === undefined) return;
		const { pi } = host;
		switch (step.do) {
			case "send":
				return this.#sendFrom(session, host, step.to, step.by);
			case "scan":
				pi.events.emit("message:scan", {});
				return;
			case "run":
				return this.#run(session, host, step);
			case "takeOver":
				host.takes = step.mails;
				return;
			case "receive":
				return pi.commands.has("mailbox") ? pi.type(step.isOn ? "/mailbox on" : "/mailbox off") : undefined;
			case "press h":
			case "press p":
				return this.#press(session, host, step.do === "press h" ? "h" : "p");
			case "drop":
				host.drops = step.isOn;
				return;
			case "quit":
				return this.#quit(session, host);
			case "kill":
				return this.#kill(session, host);
			case "crashes":
				return this.#crash(session, step.times);
			case "killAt":
				host.dies = step.n;
				return;
			case "fail":
				host.fails = { in: step.n, code: step.code };
				session.hadFault = true;
				return;
			case "second":
				if (session.hosts.length < 2 && session.file !== undefined) await this.#start(session, "resume");
				return;
			case "reload":
				return isQuiet(pi) ? this.#reload(host) : undefined;
			case "fork":
				return this.#fork(session);
			case "tree": {
				if (!isQuiet(pi)) return;
				const branch = pi.session.getBranch();
				const entry = branch.at(-1 - step.back);
				if (entry === undefined) return;
				session.hasBranched = true;
				pi.session.branch(entry.id);
				return;
			}
			case "compact":
				return isQuiet(pi) && pi.session.getLeafId() !== null ? pi.compact(() => this.#do(step.inside)) : undefined;
			case "input":
				if (!pi.isIdle) return;
				host.gateOpensAt = Date.now() + 5000;
				host.gateLog = pi.log.length;
				return pi.typeAhead("handled elsewhere");
			case "prune":
				this.#prunes++;
				return pi.commands.has("mailbox") ? pi.type("/mailbox prune") : undefined;
			case "again":
				return this.#again(session);
			case "end call":
				this.#endCall(host, step.how);
				return;
			case "control":
				if (!pi.commands.has("mailbox") || host.isDead) return;
				session.lastWord = this.#hasControl(session) ? undefined : step.op === "pause";
				return pi.type(`/mailbox ${step.op}`);
		}
	}

	// Control

	#control(session: Session, op: ControlOp): void {
		const { address } = session;
		const mail = this.#model.sending(peerAddress, address, "control");
		const newest = [...session.handedBack].slice(-1);
		const control: Control = op === "cancel newest" ? { op: "cancel", calls: newest } : { op };
		const receipt = this.#peer?.deliver({ to: address, kind: "control", body: mail.tag, hops: 0, control });
		mail.state = receipt?.ok ? "accepted" : "refused";
		if (!receipt?.ok) return;
		mail.id = receipt.envelope.id;
		this.#holdStamp(Number.parseInt(receipt.name, 10));
		if (isPauseWord(op)) session.lastWord = op === "pause";
	}

	/** Whether control mail still waits to be taken in. */
	#hasControl({ address }: Session): boolean {
		const { new: inbox } = this.#boxes(address);
		return namesIn(inbox).some((name) => envelopeIn(join(inbox, name))?.kind === "control");
	}

	/** A session is paused when the last word was that; where all went well, and nothing that was said still waits. */
	#holdPauses(): void {
		for (const session of this.#sessions) {
			const { address, hosts, isPaused, lastWord, crashes, hadFault, hadSecond } = session;
			const isSure = this.#isTimely && hosts.length > 0 && crashes === 0 && !hadFault && !hadSecond;
			if (!isSure || lastWord === undefined || this.#hasControl(session)) continue;
			hold(isPaused === lastWord, () => `${address} is ${isPaused ? "" : "not "}paused, and was told otherwise`);
		}
	}

	/** The person of a session that shows one answers the dialog about a call. */
	async #answer(choice: AnswerStep["with"]): Promise<void> {
		const pi = this.#hosts().find((host) => host.pi.shown !== undefined && host.pi.screen().includes(choice))?.pi;
		if (pi === undefined) return;
		const at = pi.screen().indexOf(choice) - 1;
		this.#tickets.answering(pi.address, choice);
		await pi.press(...Array.from({ length: at }, () => "\u001b[B"), "\r");
	}

	// Sending

	#sendFromPeer(step: { to: number; kind: Envelope["kind"] | "quiet" }, inReplyTo: readonly string[] = []): void {
		const { address } = this.#session(step.to);
		const quiet = step.kind === "quiet";
		const kind = step.kind === "quiet" ? "message" : step.kind;
		const mail = this.#model.sending(peerAddress, address, kind, inReplyTo, quiet);
		const receipt = this.#peer?.deliver({
			to: address,
			kind,
			body: mail.tag,
			hops: 0,
			inReplyTo,
			quiet,
			...(kind === "reply" ? { status: "done" } : {}),
		});
		mail.state = receipt?.ok ? "accepted" : "refused";
		if (!receipt?.ok) return;
		mail.id = receipt.envelope.id;
		this.#holdStamp(Number.parseInt(receipt.name, 10));
		this.#lastSent = { mail, receipt };
	}

	/** D14: one sender's names are in order, whatever the clock does, and never a day ahead of it. */
	#holdStamp(stamp: number): void {
		const soon = this.#now() + dayMs;
		hold(
			stamp < soon,
			() => `a mail of ${new Date(this.#now()).toISOString()} is dated ${new Date(stamp).toISOString()}`,
		);
		hold(stamp > this.#lastStamp || this.#lastStamp >= soon, () => "a mail is dated before the one sent before it");
		this.#lastStamp = stamp;
	}

	#retract(): void {
		const last = this.#lastSent;
		this.#lastSent = undefined;
		if (last !== undefined && this.#peer?.retract(last.receipt) === true) last.mail.state = "retracted";
	}

	/** D28: the recipient has the old version or the new one. */
	#edit(): void {
		const last = this.#lastSent;
		if (last === undefined || last.mail.kind === "reply") return;
		const { to, kind, isQuiet } = last.mail;
		const mail = this.#model.sending(peerAddress, to, kind, [], isQuiet);
		const edited = this.#peer?.edit(last.receipt, mail.tag);
		hold(edited?.ok === true || edited?.code === "claimed", () => `an edit: ${JSON.stringify(edited)}`);
		if (edited?.ok !== true) {
			mail.state = "refused";
			return;
		}
		last.mail.state = "retracted";
		Object.assign(mail, { id: edited.envelope.id, state: "accepted" });
		this.#holdStamp(Number.parseInt(edited.name, 10));
		this.#lastSent = { mail, receipt: edited };
	}

	async #sendFrom(
		session: Session,
		host: Host,
		whom: number | "peer",
		by: "command" | "hook" | "quiet command",
	): Promise<void> {
		const { pi } = host;
		if (!pi.commands.has("mailbox")) return;
		const isQuiet = by === "quiet command";
		const kind = isQuiet ? "message" : "request";
		const mail = this.#model.sending(session.address, this.#addressOf(whom), kind, [], isQuiet);
		if (by === "hook") {
			const payload: { to: string; body: string; envelope?: Envelope; error?: string } = {
				to: mail.to,
				body: mail.tag,
			};
			pi.events.emit("message:send", payload);
			this.#learn(host, mail, payload.envelope?.id);
			return;
		}
		const told = pi.notifications.length;
		await pi.type(`/mailbox ${isQuiet ? "--quiet " : ""}${mail.to} ${mail.tag}`);
		const words = pi.notifications.slice(told).join("\n");
		this.#learn(host, mail, /^Sent (\S+) to/m.exec(words)?.[1]);
	}

	/** A sender that was killed learns nothing: then the inbox says whether the mail was sent. */
	#learn(host: Host, mail: ModelMail, id: string | undefined): void {
		const found = id ?? (host.isDead ? this.#idOf(mail) : undefined);
		if (found !== undefined) Object.assign(mail, { id: found, state: "accepted" });
		else if (!host.isDead) mail.state = "refused";
	}

	#idOf(mail: ModelMail): string | undefined {
		const { new: inbox, cur } = this.#boxes(mail.to);
		for (const path of [inbox, cur].flatMap((box) => namesIn(box).map((name) => join(box, name)))) {
			const envelope = path.endsWith(".json") ? envelopeIn(path) : undefined;
			if (envelope?.body === mail.tag) return envelope.id;
		}
		return undefined;
	}

	// Runs

	async #run(session: Session, host: Host, step: Extract<Step, { do: "run" }>): Promise<void> {
		const { pi } = host;
		if (!pi.hasRunToPlay && !isQuiet(pi)) return;
		const { call, end } = step;
		const mail =
			call?.tool === "send" || call?.tool === "ask"
				? this.#model.sending(session.address, this.#addressOf(call.to), call.tool === "ask" ? "ask" : "message")
				: undefined;
		const asked = call === undefined ? undefined : this.#asked(session, call);
		const made = call?.tool === "bash" ? this.#model.calling(session.address) : undefined;
		const command = made?.tag ?? asked?.args.command;
		const isWaiting = () => pi.callsUnderWay > 0;
		const during = async () => {
			if (command !== undefined) await pass(0);
			if (made !== undefined) made.isHandedBack = !isWaiting();
			if (step.inside !== undefined) await this.#do(step.inside);
			if (call?.tool === "ask") await this.#awaitAnswer(pi, isWaiting, call.to);
			else await pass(asked === undefined ? 0 : attachSeconds * 1000 + 500);
			// Its model may make it again later.
			hold(asked?.name !== "deploy" || !isWaiting(), () => `${session.address} still waits: ${command}`);
			// It could not be handed back: it ends, or first those that have its place.
			for (let round = 0; isWaiting(); round++) {
				hold(round < 100, () => `a call of ${session.address} hangs: ${call?.tool} ${command}`);
				const own = host.jobs.findIndex((job) => job.command === command && !job.isStopped);
				if (own >= 0) host.jobs.splice(own, 1)[0]?.end("attached");
				else if (!this.#endCall(host, "done")) pi.abort();
				await pass(100);
			}
		};
		const ask = call?.tool === "reply" ? this.#openAsk(session) : undefined;
		const turns: Turn[] = Array.from({ length: step.tools }, (_, index) => ({
			tools: [{ name: "none" }],
			text: `step ${index}`,
			...(index === 0 && call === undefined ? { during } : {}),
		}));
		if (mail !== undefined) {
			const args = { to: mail.to, message: mail.tag };
			turns.unshift({ tools: [{ name: `session_mail_${call?.tool}`, args }], during });
		} else if (call?.tool === "reply") {
			const args = { ask: ask ?? "none", message: "answered early" };
			turns.unshift({ tools: [{ name: "session_mail_reply", args }], during });
		} else if (made !== undefined) {
			turns.unshift({ tools: [{ name: "bash", args: { command: made.tag } }], during });
		} else if (asked !== undefined) {
			turns.unshift({ tools: [asked], whileCalled: during });
		} else if (call?.tool === "status") {
			const id = [...session.handedBack].at(-1) ?? "none";
			turns.unshift({ tools: [{ name: "session_call_status", args: { id } }], during });
		}
		if (end === "stopped before a retry") turns.push({ fails: "503", during: () => pi.abort() });
		const isFirst = turns.length === 0 || (step.tools === 0 && call === undefined);
		const script: RunScript = {
			...(pi.hasRunToPlay ? {} : { prompt: "go on" }),
			turns,
			text: `answer ${pi.log.length}`,
			end: end === "failed" ? "error" : end === "stopped" ? "aborted" : "stop",
			...(isFirst ? { during } : {}),
		};
		const seen = pi.session.getEntries().length;
		await pi.run(script);
		if (mail === undefined) return;
		const result = pi.session
			.getEntries()
			.slice(seen)
			.map((entry) => (entry.type === "message" && entry.message.role === "toolResult" ? entry.message : undefined))
			.find((message) => message?.toolName === `session_mail_${call?.tool}`);
		const details: unknown = result?.details;
		const id = typeof details === "object" && details !== null ? Reflect.get(details, "id") : undefined;
		// A run that ended with its session leaves no result.
		if (result === undefined) {
			mail.id = this.#idOf(mail);
			if (mail.id !== undefined) mail.state = "accepted";
		} else this.#learn(host, mail, typeof id === "string" ? id : undefined);
	}

	/** While an ask waits: the other session works, if it can; else the user stops the wait. */
	async #awaitAnswer(pi: FakePi, isWaiting: () => boolean, whom: number | "peer"): Promise<void> {
		await pass(1000);
		const other = whom === "peer" ? undefined : this.#session(whom).hosts[0];
		if (other !== undefined && other.pi !== pi && other.pi.hasRunToPlay) await other.pi.run({ text: "the answer" });
		await pass(2000);
		if (isWaiting()) pi.abort();
		await pass(0);
	}

	/** A call that somebody is asked about: a new one, or the last one again. */
	#asked(
		{ address, lastAsked }: Session,
		{ tool }: ToolCall,
	): (Required<Call> & { args: { command: string } }) | undefined {
		const [, name, again] = /^(?:asked )?(bash|deploy)( again)?$/.exec(tool) ?? [];
		if (name === undefined || tool === "bash") return undefined;
		const last = again === undefined ? undefined : lastAsked.get(name);
		const command = last ?? this.#model.calling(address, "asked").tag;
		lastAsked.set(name, command);
		return { name, args: { command } };
	}

	/** Ends the oldest call that goes on. */
	#endCall({ jobs, isDead }: Host, how: "done" | "failed"): boolean {
		const job = isDead ? undefined : jobs.find(({ isStopped }) => !isStopped);
		if (job === undefined) return false;
		jobs.splice(jobs.indexOf(job), 1);
		const call = this.#model.calls.get(job.command);
		if (call !== undefined) call.hasEnded = true;
		if (how === "done") job.end(job.command);
		else job.fail(job.command);
		return true;
	}

	#openAsk(session: Session): string | undefined {
		return session.shown.findLast(({ kind }) => kind === "ask")?.id;
	}

	async #press(session: Session, { pi, isDead }: Host, key: "h" | "p"): Promise<void> {
		if (isDead || pi.shown !== undefined || !pi.shortcuts.has("alt+m")) return;
		// That a mail was dropped is noted in memory only until the session has a file: one that is killed just then answers twice.
		if (key === "p" && session.file === undefined) return;
		pi.shortcut("alt+m");
		pi.screen();
		await pass(0);
		// Without a mailbox there is none; a dialog may have come before it.
		if (!isScreen(pi)) return;
		pi.screen();
		const { new: folder, cur } = this.#boxes(session.address);
		const before = namesIn(folder);
		const unread = this.#unread(session);
		await pi.press(key);
		await pass(0);
		if (dialogOf(pi).startsWith("Drop the ")) await pi.press("\u001b[B", "\r");
		await pass(0);
		const after = namesIn(folder);
		const said = pi.screen().join("\n");
		if (isScreen(pi)) await pi.press("q");
		if (said.includes("Dropped: ")) {
			this.#read(session);
			const left = this.#unread(session);
			for (const done of unread.filter((found) => !left.includes(found))) {
				const tag = envelopeIn(join(cur, done))?.body;
				if (tag !== undefined && !session.shown.some(({ firstLine }) => firstLine === tag)) session.dropped.add(tag);
			}
		}
		const [put] = after.filter((name) => mailOfHold(name) !== undefined && !before.includes(name));
		const name = mailOfHold(put ?? "");
		// L4: a file shows it.
		const isSomeHeld = after.some((found) => after.includes(mailOfHold(found) ?? ""));
		if (said.includes("On hold: ")) hold(isSomeHeld, () => `${session.address} says "on hold", and nothing is`);
		const tag = name === undefined ? undefined : envelopeIn(join(folder, name))?.body;
		this.#read(session);
		// A copy of what the conversation has.
		const isShown = session.shown.some(({ firstLine }) => firstLine === tag);
		if (name !== undefined && tag !== undefined && !isShown) session.onHold.set(name, tag);
		for (const held of session.onHold.keys()) if (!after.includes(holdOf(held))) session.onHold.delete(held);
	}

	/** The mail that waits, or was claimed and is in no conversation. */
	#unread({ address }: Session): string[] {
		const { new: inbox, cur } = this.#boxes(address);
		const claimed = namesIn(cur).filter((name) => name.endsWith(".open"));
		return [...namesIn(inbox), ...claimed.map((name) => name.slice(0, -".open".length))];
	}

	/** Releases what is on hold, as a person does in the end. */
	#releaseAll({ address, onHold }: Session): void {
		const folder = this.#boxes(address).new;
		for (const name of namesIn(folder)) if (mailOfHold(name) !== undefined) this.#base.remove(join(folder, name));
		onHold.clear();
	}

	// Processes

	async #start(session: Session, reason: "startup" | "resume" | "fork"): Promise<Host> {
		const pid = this.#nextPid++;
		const place =
			session.file !== undefined ? { file: session.file } : { id: session.address, isSaved: session.isSaved };
		const made = (tool: string, args: { command: string }) => {
			if (!host.isDead && args.command.startsWith("asked ")) this.#tickets.made(session.address, tool, args);
		};
		const { jobs, host: hostOfCalls } = callsHost(({ command }) => made("bash", { command }));
		const host: Host = {
			pid,
			jobs,
			isDead: false,
			hasFailed: false,
			dies: undefined,
			fails: undefined,
			takes: 0,
			drops: false,
			gateOpensAt: Number.POSITIVE_INFINITY,
			gateLog: 0,
			given: new Set(),
			pi: new FakePi({
				...place,
				mode: "tui",
				builtIns: ["bash"],
				extensions: [
					(pi) =>
						sessionMail(
							pi,
							this.#machineOf(session, pid, () => host),
							(settings, file) => createCalls(pi, hostOfCalls, settings, file),
						),
					(pi: ExtensionAPI) =>
						pi.on("turn_end", ({ continue: goesOn }) => {
							if (goesOn && isPaused(host.pi)) host.pi.errors.push(`a paused session takes a turn: ${session.address}`);
							return host.drops ? { entries: [] } : undefined;
						}),
					(pi: ExtensionAPI) => pi.registerTool(deploy((args) => made("deploy", args))),
				],
			}),
		};
		this.#alive.add(pid);
		session.hosts.push(host);
		session.hadSecond ||= session.hosts.length > 1;
		this.#listen(session, host);
		this.#watchRuns(session, host);
		await host.pi.start(reason);
		await this.#discover(host);
		return host;
	}

	async #discover(host: Host): Promise<void> {
		host.gateOpensAt = Date.now() + 1000;
		host.gateLog = host.pi.log.length;
		await host.pi.discover();
		await pass(0);
	}

	async #reload(host: Host): Promise<void> {
		const { pi } = host;
		await pi.shutDown("reload");
		// Pi takes an extension's listeners off with it.
		pi.events.clear();
		const session = this.#sessions.find(({ hosts }) => hosts.includes(host));
		if (session !== undefined) this.#listen(session, host);
		await pi.start("reload");
		await this.#discover(host);
	}

	#listen(session: Session, host: Host): void {
		host.pi.events.on("message:inbound", (payload) => {
			if (host.takes === 0 || host.isDead || typeof payload !== "object" || payload === null) return;
			host.takes--;
			const envelope: Envelope = Reflect.get(payload, "envelope");
			const { id, from } = envelope;
			const key = `${from} ${id}`;
			const times = (session.takenOver.get(key) ?? 0) + 1;
			session.takenOver.set(key, times);
			hold(times <= 1 + session.crashes, () => `${session.address} announced ${key} ${times} times`);
			Reflect.set(payload, "handled", true);
			if (envelope.x?.call !== undefined) this.#buried.add(envelope.x.call.id);
			if (envelope.kind === "reply") this.#model.answered({ ...envelope, inReplyTo: envelope.in_reply_to }, true);
		});
	}

	/** Mail starts a run only in an idle session whose gate is open and whose user wants mail. */
	#watchRuns(session: Session, host: Host): void {
		const { pi } = host;
		const { sent } = pi;
		/** What was handed over at this moment: one of it must be what starts the run. */
		let batch = { at: 0, wakes: false };
		sent.push = (...messages) => {
			for (const { startsRun, text } of messages) {
				if (host.isDead) continue;
				const tag = /^mail \d+$/m.exec(text)?.[0];
				if (tag !== undefined) this.#given(session, host, tag);
				if (this.#model.mails.get(tag ?? "")?.kind === "control") pi.errors.push(`control mail was shown: ${text}`);
				if (batch.at !== Date.now()) batch = { at: Date.now(), wakes: false };
				const wasSeen = text.endsWith("You have read its result already.");
				const isQuiet = wasSeen || this.#model.mails.get(tag ?? "")?.isQuiet === true;
				batch.wakes ||= !isQuiet;
				if (!startsRun) continue;
				if (!batch.wakes) host.pi.errors.push(`quiet mail alone started a run in ${session.address}: ${tag}`);
				const where = `in ${session.address}`;
				const isOpen =
					Date.now() >= host.gateOpensAt ||
					pi.log.slice(host.gateLog).some((event) => event === "agent_start" || event === "agent_settled");
				if (!isOpen) host.pi.errors.push(`a run was started ${where} before its gate was open`);
				if (!pi.isIdle) host.pi.errors.push(`a run was started ${where}, which was not idle`);
				this.#read(session);
				// What a pause has cut short is the user's own: it goes on whether mail is wanted or not.
				const goesOn = text.startsWith("[mailbox] The user paused this session");
				if (!session.isOn && !goesOn) host.pi.errors.push(`a run was started ${where}, which wants no mail`);
				if (session.isPaused) host.pi.errors.push(`a run was started ${where}, which is paused`);
				if (this.#ownerOf(session) !== host) host.pi.errors.push(`a run was started ${where} by a second process`);
			}
			return Array.prototype.push.apply(sent, messages);
		};
	}

	/** D12: a mail with which Pi ended three times is not handed over again. */
	#given(session: Session, host: Host, tag: string): void {
		if ((session.endedWith.get(tag) ?? 0) >= 3) host.pi.errors.push(`${tag} was handed over once more`);
		host.given.add(tag);
	}

	#ownerOf(session: Session): Host | undefined {
		try {
			const record = JSON.parse(readFileSync(join(this.#root, "running", `${session.address}.json`), "utf8"));
			return session.hosts.find(({ pid }) => pid === record.pid) ?? session.hosts[0];
		} catch {
			return session.hosts[0];
		}
	}

	async #quit(session: Session, host: Host): Promise<void> {
		session.wasCut ||= !host.pi.isIdle;
		// Whatever kills it now, the mail that it has does not.
		host.given.clear();
		await host.pi.shutDown("quit");
		this.#ended(session, host);
	}

	async #kill(session: Session, host: Host): Promise<void> {
		this.#die(session, host);
		// The end that leaves everything in place; nothing that it writes arrives.
		await host.pi.shutDown("reload");
		this.#ended(session, host);
	}

	async #crash(session: Session, times: number): Promise<void> {
		for (let time = 0; time < times && !session.isOver; time++) {
			for (const host of [...session.hosts]) await this.#kill(session, host);
			if (!session.isOver) await this.#start(session, "resume");
			await pass(1000);
		}
	}

	#die(session: Session, host: Host): void {
		if (host.isDead) return;
		for (const tag of host.given) session.endedWith.set(tag, (session.endedWith.get(tag) ?? 0) + 1);
		host.isDead = true;
		for (const name of session.hosts.length > 1 ? [] : this.#tickets.open(session.address))
			session.leftOpen.add(name.slice(0, -".json".length));
		session.crashes++;
		this.#alive.delete(host.pid);
		Object.assign(host.pi.session, { _persist() {} });
	}

	#ended(session: Session, host: Host): void {
		this.#alive.delete(host.pid);
		if (!host.isDead) this.#gone.push(...host.pi.errors);
		session.file ??= existsSync(host.pi.file) ? host.pi.file : undefined;
		session.hosts = session.hosts.filter((other) => other !== host);
		machine.sessions.delete(host.pi);
		if (!session.isSaved && session.hosts.length === 0) session.isOver = true;
		if (session.file === undefined && session.hosts.length === 0) {
			session.shown = [];
			session.isOn = true;
			session.isPaused = false;
			session.lastWord = undefined;
		}
	}

	/** Ends the processes that were killed in the middle of the step. */
	async #bury(): Promise<void> {
		for (const session of this.#sessions) {
			for (const host of session.hosts.filter(({ isDead }) => isDead)) await this.#kill(session, host);
		}
	}

	async #fork(session: Session): Promise<void> {
		if (session.file === undefined || this.#sessions.length > 3) return;
		const folder = join(machine.home, "forks");
		mkdirSync(folder, { recursive: true });
		const manager = SessionManager.forkFrom(session.file, folder, folder, { id: addressOf(3) });
		this.#read(session);
		const copied = new Set(session.handedBack);
		const copiedEntries = new Set(manager.getEntries().map(({ id }) => id));
		const fork = { ...newSession(addressOf(3), true), file: manager.getSessionFile(), copied, copiedEntries };
		this.#sessions.push(fork);
		await this.#start(fork, "fork");
	}

	#processesOf(pid: number): Processes {
		return {
			self: { pid, started: `${pid}`, boot: "boot", namespace: "namespace" },
			exists: (other) => this.#alive.has(other),
			startTokens: (pids) =>
				new Map(pids.filter((other) => this.#alive.has(other)).map((other) => [other, `${other}`])),
		};
	}

	#machineOf(session: Session, pid: number, host: () => Host): Machine {
		const before = ({ name, paths }: Operation) => {
			const self = host();
			if (self.dies !== undefined && --self.dies <= 0) this.#die(session, self);
			if (self.isDead) fail("EIO");
			if (self.fails === undefined || --self.fails.in > 0) return;
			const { code } = self.fails;
			self.fails = undefined;
			self.hasFailed = true;
			session.mayBury ||= name === "read" && code === "EACCES";
			session.mayMiscount ||=
				["entry", "read", "list"].includes(name) && paths[0]?.startsWith(this.#boxes(session.address).sent) === true;
			session.crashes++;
			fail(code);
		};
		return {
			disk: watchedDisk(before, this.#base),
			processes: this.#processesOf(pid),
			now: () => this.#now(),
			root: () => this.#root,
			settingsFile: () => this.#settingsFile,
			whileAlone: (_root, work) => work(() => {}),
		};
	}

	#now(): number {
		return Date.now() + this.#offsetMs;
	}

	/** A disk whose files have the times of the machine's clock, as it was set when they changed. */
	#datedDisk(): Disk {
		const touch = (...paths: string[]) => {
			for (const path of paths) this.#touched.set(path, this.#now());
		};
		const disk = watchedDisk(({ name, paths }) => {
			const [path = "", to = ""] = paths;
			if (name === "create" || name === "replace" || name === "remove") touch(path, dirname(path));
			if (name === "link") touch(to, dirname(to));
			if (name === "rename") touch(to, dirname(path), dirname(to));
		}, nodeDisk());
		return {
			...disk,
			changed: (path) => (disk.entry(path) === undefined ? undefined : (this.#touched.get(path) ?? startMs)),
			ensureFolder: (path) => {
				const isMade = disk.ensureFolder(path);
				if (isMade) touch(path, dirname(path));
				return isMade;
			},
		};
	}

	#again(session: Session): void {
		const { address } = session;
		const { cur, new: inbox } = this.#boxes(address);
		const names = namesIn(cur);
		// One that was set aside for good would be tried again, as whoever brings it back wants.
		const name = names.findLast((found) => found.endsWith(".json") && !names.includes(`${found}.reason`));
		// To take back the second copy would take nothing back.
		this.#lastSent = undefined;
		if (name === undefined || !existsSync(inbox)) return;
		copyFileSync(join(cur, name), join(inbox, name));
		// Whoever brings it back wants it to be tried once more.
		const mail = envelopeIn(join(cur, name));
		if (mail === undefined) return;
		session.endedWith.delete(mail.body);
		session.dropped.delete(mail.body);
	}

	// Laws

	/** What must be true at any moment. */
	holdLaws(): void {
		for (const session of this.#sessions) {
			this.#read(session);
			this.#model.judge(session.address, session.shown);
			for (const { pi } of session.hosts) hold(pi.errors.length === 0, () => pi.errors.join("; "));
			if (session.crashes >= 3 || session.mayBury) this.#readBuried(session);
			for (const tag of [...session.onHold.values(), ...session.dropped]) {
				const isShown = session.shown.some(({ firstLine }) => firstLine === tag);
				hold(!isShown, () => `${session.address} has ${tag}, which is on hold or dropped`);
			}
			this.#holdFolder(session);
			this.#holdSwitch(session);
			this.#tickets.holdLaws(this.#told(session));
		}
		hold(this.#gone.length === 0, () => this.#gone.join("; "));
		this.#readPeer();
		this.#holdSteps();
	}

	#told(session: Session): Told {
		const { address, shown, refusals, lookedUp, stops, hadSecond, hadFault, crashes, takenOver, mayBury } = session;
		const mails = new Set(shown.flatMap(({ call }) => (call?.startsWith("ticket-") ? [call] : [])));
		const mayLose = session.isOver || mayBury || takenOver.size > 0;
		const left = mayLose || hadFault || hadSecond || crashes >= 3 ? new Set<string>() : session.leftOpen;
		const mayMiss = mayLose || session.wasCut || crashes > 0;
		return { address, refusals, lookedUp, stops, mails, left, mayMiss };
	}

	/** A reply that was set aside for good has come all the same. */
	#readBuried(session: Session): void {
		const { cur } = this.#boxes(session.address);
		for (const name of namesIn(cur).filter((found) => found.endsWith(".reason"))) {
			const reply = envelopeIn(join(cur, name.slice(0, -".reason".length)));
			// Its folder may be pruned afterwards.
			if (reply !== undefined) this.#buried.add(reply.x?.call?.id ?? reply.id);
			if (session.crashes >= 3 && reply?.kind === "reply")
				this.#model.answered({ ...reply, inReplyTo: reply.in_reply_to }, true);
		}
	}

	/** Mail is off only where a user said so. A second process does not see what the first one was told. */
	#holdSwitch({ address, hosts, isOn, hadSecond }: Session): void {
		const footer = hosts[0]?.pi.status.get("mailbox") ?? "";
		hold(hadSecond || !isOn || !footer.includes("off"), () => `${address} shows ${footer}, and nobody said so`);
	}

	#holdFolder(session: Session): void {
		const stats = statSync(this.#boxes(session.address).folder, { throwIfNoEntry: false });
		const folder = stats && `${stats.ino} ${stats.birthtimeMs}`;
		session.mayMiscount ||= session.folder !== undefined && session.folder !== folder;
		if (session.folder !== undefined && folder === undefined) {
			hold(this.#prunes > 0, () => `the folder of ${session.address} is gone, and nobody asked for that`);
			// A session whose record the disk did not take counts as closed.
			hold(
				session.hosts.length === 0 || session.hadFault,
				() => `the folder of ${session.address} was pruned while it ran`,
			);
		}
		session.folder = folder;
	}

	/** L4: what is noted beside the peer's copies has happened. */
	#holdSteps(): void {
		const { sent } = this.#boxes(peerAddress);
		for (const file of namesIn(sent)) {
			const [, copy = "", step] = /^(.*\.json)\.(read|held|failed|answered)$/.exec(file) ?? [];
			const mail = step === undefined ? undefined : envelopeIn(join(sent, copy));
			if (mail === undefined) continue;
			const model = this.#model.mails.get(mail.body);
			const session = this.#sessions.find(({ address }) => address === mail.to);
			// What one that is not saved has read ends with it.
			if (session === undefined || session.isOver) continue;
			const isShown = session.shown.some(
				({ id, from, as }) => id === mail.id && from === peerAddress && as !== "answered unread",
			);
			const isTrue = step === "read" || step === "held" ? isShown : model !== undefined && this.#model.isPlanned(model);
			hold(isTrue === true, () => `${mail.body} is said to be ${step}, and is not`);
		}
	}

	#readPeer(): void {
		for (const name of this.#peer?.waiting() ?? []) {
			if (this.#peerSaw.has(name)) continue;
			const envelope = this.#peer?.peek(name);
			if (envelope === undefined) continue;
			this.#peerSaw.set(name, envelope.id);
			if (envelope.kind === "reply") this.#model.answered({ ...envelope, inReplyTo: envelope.in_reply_to }, true);
			else {
				const mail = this.#model.mails.get(envelope.body);
				hold(mail?.to === peerAddress, () => `the peer has a mail that was not sent to it: ${envelope.body}`);
			}
		}
	}

	/** Reads what was added to a session: from its file, or from memory while it has none. */
	#read(session: Session): void {
		session.file ??= session.hosts.map(({ pi }) => pi.file).find((file) => file !== "" && existsSync(file));
		if (session.file === undefined) {
			const [host] = session.hosts;
			if (host === undefined) return;
			this.#forget(session);
			for (const entry of host.pi.session.getEntries()) this.#readEntry(session, entry);
			return;
		}
		if (session.readBytes === 0) this.#forget(session);
		const size = statSync(session.file).size;
		if (size === session.readBytes) return;
		const text = readFileSync(session.file).subarray(session.readBytes).toString();
		session.readBytes = size;
		for (const line of text.split("\n")) if (line !== "") this.#readEntry(session, JSON.parse(line));
	}

	#forget(session: Session): void {
		session.shown = [];
		session.handedBack.clear();
		session.refusals.clear();
		session.unanswered.clear();
		session.stops = 0;
	}

	#readEntry(session: Session, entry: unknown): void {
		const { address } = session;
		if (!session.copiedEntries.has(String(at(entry, "id")))) this.#readTold(session, entry);
		if (at(entry, "message", "toolName") === "bash") {
			const [id] = /call-[a-z0-9]{16}/.exec(JSON.stringify(entry)) ?? [];
			if (id !== undefined && !session.copied.has(id)) session.handedBack.add(id);
		}
		const details = at(entry, "details", "mail") ?? at(entry, "message", "details", "mail");
		if (at(details, "address") === address) {
			const shown: Shown = {
				id: String(at(details, "id")),
				from: String(at(details, "from")),
				kind: String(at(details, "kind")),
				firstLine: String(at(details, "firstLine")),
				inReplyTo: texts(at(details, "inReplyTo")),
				as: "entry",
				call: /^\[mailbox\] Your call ((?:call|ticket)-\w+) /.exec(String(at(entry, "content")))?.[1],
			};
			session.shown.push(shown);
			if (shown.kind === "reply") this.#model.answered({ ...shown, to: address }, true);
		}
		const note = at(entry, "customType") === "session-mail" ? at(entry, "data") : undefined;
		if (at(note, "address") !== address) return;
		if (at(note, "type") === "receiving") session.isOn = at(note, "isOn") === true;
		if (at(note, "type") === "paused") session.isPaused = at(note, "isOn") === true;
		const mail = at(note, "type") === "taken" || at(note, "type") === "paused" ? at(note, "mail") : undefined;
		if (mail !== undefined) {
			session.shown.push({
				id: String(at(mail, "id")),
				from: String(at(mail, "from")),
				kind: String(at(mail, "kind")),
				firstLine: "",
				inReplyTo: [],
				as: "taken",
			});
		}
		if (at(note, "type") !== "settling") return;
		for (const reply of list(at(note, "replies"))) {
			const { id, to, body } = { id: at(reply, "id"), to: at(reply, "to"), body: at(reply, "body") };
			const planned = { id: String(id), from: address, to: String(to), body: String(body) };
			this.#model.answered({ ...planned, inReplyTo: texts(at(reply, "inReplyTo")) }, false);
			for (const id of texts(at(reply, "inReplyTo"))) {
				const from = String(at(reply, "to"));
				if (session.shown.some((shown) => shown.id === id && shown.from === from)) continue;
				session.shown.push({ id, from, kind: "request", firstLine: "", inReplyTo: [], as: "answered unread" });
			}
		}
	}

	/** What its model was told of calls; each call has one result, whatever came in between. */
	#readTold(session: Session, entry: unknown): void {
		const role = at(entry, "message", "role");
		const content = role === "toolResult" ? at(entry, "message", "content") : at(entry, "content");
		const text = Array.isArray(content) ? content.map((part) => at(part, "text")).join("\n") : String(content);
		// What the model has looked up is no news.
		const isAsked = String(at(entry, "message", "toolName")).startsWith("session_call_");
		for (const line of refusalsIn(text)) {
			if (isAsked) session.lookedUp.add(line);
			else session.refusals.set(line, (session.refusals.get(line) ?? 0) + 1);
		}
		if (!isAsked && /before anybody decided about|was cancelled/.test(text)) session.stops++;
		if (session.crashes > 0 || session.hadSecond || session.wasCut) return;
		const { unanswered, address } = session;
		if (role === "toolResult") {
			const id = String(at(entry, "message", "toolCallId"));
			hold(unanswered.delete(id), () => `${address} has a result of ${id} too many`);
		} else if (role === "assistant") {
			hold(unanswered.size === 0, () => `${address} has no result of ${[...unanswered].join()}`);
			for (const part of list(at(entry, "message", "content")))
				if (at(part, "type") === "toolCall") unanswered.add(String(at(part, "id")));
		}
	}

	/** At rest, a session says how many of its requests nobody has answered. */
	holdAwaiting(): void {
		for (const session of this.#sessions) {
			const [host] = session.hosts;
			if (host === undefined || session.mayMiscount) continue;
			const due = this.#model.owed().filter((mail) => mail.from === session.address && !this.#model.isAnswered(mail));
			hold(this.#awaiting(host) === due.length, () =>
				[`${session.address} says`, this.#awaiting(host), "awaiting and has", due.map(({ tag }) => tag)].join(" "),
			);
		}
	}

	#awaiting({ pi }: Host): number {
		return Number(/(\d+) awaiting/.exec(pi.status.get("mailbox") ?? "")?.[1] ?? 0);
	}

	/** The peer answers everything that it was asked. */
	answerAll(): void {
		for (const mail of this.#model.owed()) {
			if (mail.to !== peerAddress || mail.id === undefined || this.#model.isAnswered(mail)) continue;
			const to = this.#sessions.findIndex(({ address }) => address === mail.from);
			this.#sendFromPeer({ to, kind: "reply" }, [mail.id]);
		}
	}

	/** What must be true when nothing is under way any more. */
	holdEnd(): void {
		const over = new Set(this.#sessions.filter(({ isOver }) => isOver).map(({ address }) => address));
		for (const mail of this.#model.accepted()) {
			if (over.has(mail.to) || over.has(mail.from)) continue;
			if (mail.to === peerAddress) {
				hold([...this.#peerSaw.values()].includes(mail.id ?? ""), () => `${mail.tag} to the peer is lost`);
				continue;
			}
			const session = this.#sessions.find(({ address }) => address === mail.to);
			const isThere = session?.shown.some(({ id, from }) => id === mail.id && from === mail.from) === true;
			const isDropped = session?.dropped.has(mail.tag) === true;
			const isTaken = session?.takenOver.has(`${mail.from} ${mail.id}`) === true;
			const isDead = session !== undefined && (session.mayBury || session.crashes >= 3) && this.#isDead(mail);
			hold(isThere || isTaken || isDead || isDropped, () => `${mail.tag} (${mail.kind}) to ${mail.to} is lost`);
		}
		for (const mail of this.#model.owed()) {
			if (over.has(mail.to) || over.has(mail.from)) continue;
			const mayBury = this.#sessions.some((session) => session.address === mail.to && session.mayBury);
			if (mayBury && this.#isDead(mail)) continue;
			hold(this.#model.isAnswered(mail), () => `${mail.tag} (${mail.kind}) to ${mail.to} has no answer`);
		}
		for (const session of this.#sessions) {
			this.#holdCalls(session);
			this.#holdClosed(session);
			// One that was killed, and that nobody can resume, has had no time to cancel what waits.
			if (!session.isOver || session.crashes === 0) this.#tickets.holdEnd(this.#told(session));
		}
	}

	/** Each call that its model knows of was told of, and as done when nothing has gone wrong. */
	#holdCalls(session: Session): void {
		const { address, handedBack, shown, isOver, mayBury, crashes, hadSecond } = session;
		if (isOver) return;
		const results = new Set(shown.map(({ call }) => call));
		for (const id of handedBack) {
			// Of one that was decided about while nobody waited the decision is told.
			const ticket = at(jsonIn(join(this.#root, address, "results", `${id}.json`)), "ticket");
			const isDecided = typeof ticket === "string" && results.has(ticket);
			const mayBeDead = mayBury || crashes >= 3 || session.takenOver.size > 0;
			const isDead = mayBeDead && [id, ticket].some((mail) => this.#buried.has(String(mail)));
			hold(results.has(id) || isDecided || isDead, () => `${address} was never told of ${id}`);
		}
		if (crashes > 0 || hadSecond || session.takenOver.size > 0) return;
		// Of one whose process is gone nothing is known but that; one that a session ends is cancelled.
		const isGone = shown.some(({ call, firstLine }) => call !== undefined && firstLine === "(no output)");
		hold(!isGone, () => `${address} was told that a process of it was gone`);
		for (const call of this.#model.calls.values()) {
			if (call.address !== address || !call.hasEnded || !call.isHandedBack) continue;
			hold(
				shown.some(({ firstLine }) => firstLine === call.tag),
				() => `the result of ${call.tag} of ${address} is lost`,
			);
		}
	}

	#isDead(mail: ModelMail): boolean {
		return this.#buried.has(mail.id ?? "");
	}

	#holdClosed(session: Session): void {
		const [host] = session.hosts;
		if (host === undefined) return;
		const left = this.#openIn(session);
		hold(left.length === 0, () => `${session.address} is at rest and has open: ${left.join(", ")}`);
		const footer = host.pi.status.get("mailbox") ?? "";
		const isDue = this.#model.owed().some((mail) => mail.from === session.address && !this.#model.isAnswered(mail));
		hold(!/pending|off|paused|decide/.test(footer), () => `${session.address} is at rest and shows ${footer}`);
		hold(
			isDue || session.mayMiscount || !/awaiting/.test(footer),
			() => `${session.address} has all its answers and shows ${footer}`,
		);
	}

	/** Marks stay until the session has a file. */
	#isUnderWay(session: Session): boolean {
		return this.#openIn(session).some(
			(name) => !name.endsWith(".open") || !session.isSaved || session.file !== undefined,
		);
	}

	#openIn({ address, hosts, mayMiscount }: Session): string[] {
		if (hosts.length === 0) return [];
		const { cur, new: inbox, sent } = this.#boxes(address);
		return [
			...namesIn(inbox),
			...namesIn(join(this.#root, address, "calls")).filter((name) => name.endsWith(".json")),
			...namesIn(cur).filter((name) => name.endsWith(".open")),
			...this.#tickets.open(address),
			// One that lay in a folder that was aside during the start is finished by the next.
			...namesIn(sent).filter((name) => name.endsWith(".part") && !mayMiscount),
		];
	}

	summary(): string {
		return JSON.stringify([
			this.#sessions.map(({ address, shown, hosts }) => [address, shown, hosts[0]?.pi.status.get("mailbox")]),
			[...this.#peerSaw],
		]);
	}

	// Rest

	/** All sessions run, mail is on, the clock is right and the disk healthy, and what was started has ended. */
	async rest(): Promise<void> {
		this.#offsetMs = 0;
		for (const host of this.#hosts())
			Object.assign(host, { dies: undefined, fails: undefined, takes: 0, drops: false });
		for (const session of this.#sessions) {
			this.#releaseAll(session);
			for (const host of session.hosts.slice(1)) await this.#quit(session, host);
			const [host] = session.hosts;
			if (host === undefined && !session.isOver) await this.#start(session, "resume");
			else if (host?.hasFailed === true) {
				host.hasFailed = false;
				await this.#playAll();
				await this.#reload(host);
			}
		}
		// For a process that takes a session over, and reads its file first.
		await pass(3000);
		this.holdLaws();
		this.#holdPauses();
		// A pause that came last would undo what the person says now.
		const hasControl = () => this.#sessions.some((session) => session.hosts.length > 0 && this.#hasControl(session));
		for (let seconds = 0; seconds < 60 && hasControl(); seconds++) {
			await pass(1000);
			this.holdLaws();
		}
		for (const { pi } of this.#hosts()) await pi.type("/mailbox on");
		for (const { pi } of this.#hosts()) await pi.type("/mailbox resume");
		for (const session of this.#sessions) session.lastWord = undefined;
		for (const host of this.#hosts()) while (this.#endCall(host, "done")) await pass(0);
		await this.#playAll();
		await this.#complete();
		// What is not on the branch any more is held at a start, and answered by the next run.
		for (const session of this.#sessions.filter(({ hasBranched }) => hasBranched)) {
			session.hasBranched = false;
			for (const host of session.hosts) await this.#quit(session, host);
			if (!session.isOver) await this.#start(session, "resume");
			await pass(1000);
			await this.#complete();
		}
	}

	/** A run that completes, in each session that owes something or has no file yet for its mail. */
	async #complete(): Promise<void> {
		for (const session of this.#sessions) {
			const owes = this.#model.owed().some((mail) => mail.to === session.address && !this.#model.isAnswered(mail));
			for (const { pi } of owes || this.#openIn(session).length > 0 ? session.hosts : [])
				if (isQuiet(pi)) await pi.run({ prompt: "go on" });
		}
		await this.#playAll();
	}

	/** Plays what mail starts until nothing waits any more, or for as long as a session may pause after failures. */
	async #playAll(): Promise<void> {
		for (let seconds = 0; seconds < 150; seconds++) {
			await pass(1000);
			const waiting = this.#hosts().filter(({ pi }) => pi.hasRunToPlay);
			for (const { pi } of waiting) if (pi.hasRunToPlay) await pi.run({ text: `rest ${pi.log.length}` });
			this.holdLaws();
			if (waiting.length === 0 && !this.#sessions.some((session) => this.#isUnderWay(session))) return;
		}
	}

	#hosts(): Host[] {
		return this.#sessions.flatMap(({ hosts }) => hosts);
	}

	#session(index: number): Session {
		const session = this.#sessions[index % this.#sessions.length];
		if (session === undefined) throw new Error(`there is no session ${index}`);
		return session;
	}

	get #settingsFile(): string {
		return join(machine.home, "settings.json");
	}

	#addressOf(whom: number | "peer"): string {
		return whom === "peer" ? peerAddress : this.#session(whom).address;
	}

	#boxes(address: string): Boxes {
		return boxesOf(this.#root, address);
	}
}

function newSession(address: string, isSaved: boolean): Session {
	return {
		address,
		isSaved,
		hosts: [],
		file: undefined,
		readBytes: 0,
		shown: [],
		isOn: true,
		onHold: new Map(),
		dropped: new Set(),
		crashes: 0,
		isOver: false,
		hasBranched: false,
		folder: undefined,
		hadSecond: false,
		hadFault: false,
		mayMiscount: false,
		mayBury: false,
		handedBack: new Set(),
		copied: new Set(),
		copiedEntries: new Set(),
		isPaused: false,
		lastWord: undefined,
		lastAsked: new Map(),
		refusals: new Map(),
		lookedUp: new Set(),
		stops: 0,
		leftOpen: new Set(),
		wasCut: false,
		unanswered: new Set(),
		takenOver: new Map(),
		endedWith: new Map(),
	};
}

/** A tool of another extension, about whose calls somebody is asked; it does nothing. */
function deploy(made: (args: { command: string }) => void): Parameters<ExtensionAPI["registerTool"]>[0] {
	return {
		name: "deploy",
		label: "deploy",
		description: "Deploys",
		parameters: { type: "object", properties: { command: { type: "string" } } },
		async execute(_id, args) {
			made({ command: String(at(args, "command")) });
			return { content: [{ type: "text", text: "deployed" }], details: undefined };
		},
	};
}

/** Whether the session of a process is paused, by the last that it noted. */
function isPaused({ session, address }: FakePi): boolean {
	const notes = session.getEntries().map((entry) => at(entry, "data"));
	const last = notes.findLast((note) => at(note, "type") === "paused" && at(note, "address") === address);
	return at(last, "isOn") === true;
}

/** What the dialog that takes the keys asks. */
function dialogOf({ shown }: FakePi): string {
	return shown?.title ?? "";
}

/** Whether the mailbox screen takes the keys, and no dialog. */
function isScreen({ shown }: FakePi): boolean {
	return shown?.title === "";
}

function isPauseWord(op: ControlOp): op is "pause" | "resume" {
	return op === "pause" || op === "resume";
}

/** Idle, and nothing is about to change that. */
function isQuiet(pi: FakePi): boolean {
	return pi.isIdle && !pi.hasRunToPlay;
}

function namesIn(folder: string): string[] {
	try {
		return readdirSync(folder).sort();
	} catch {
		return [];
	}
}

function envelopeIn(path: string): Envelope | undefined {
	try {
		const parsed = parseEnvelope(readFileSync(path, "utf8"));
		return parsed.ok ? parsed.envelope : undefined;
	} catch {
		return undefined;
	}
}

function jsonIn(path: string): unknown {
	try {
		return JSON.parse(readFileSync(path, "utf8"));
	} catch {
		return undefined;
	}
}

/** What lies under these keys of something that was parsed. */
function at(value: unknown, ...keys: string[]): unknown {
	let found = value;
	for (const key of keys) found = typeof found === "object" && found !== null ? Reflect.get(found, key) : undefined;
	return found;
}

function list(value: unknown): unknown[] {
	return Array.isArray(value) ? value : [];
}

function texts(value: unknown): string[] {
	return list(value).map(String);
}
