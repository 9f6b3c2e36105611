import { randomUUID } from "node:crypto";
import {
	mkdirSync,
	readdirSync,
	readFileSync,
	renameSync,
	rmSync,
	utimesSync,
	writeFileSync,
	writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { mock } from "node:test";
import { setImmediate as soon } from "node:timers/promises";
import { boxesOf, makeBoxes } from "../../src/mail/boxes.ts";
import type { Delivered, Draft } from "../../src/mail/deliver.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { settingsPath } from "../../src/mail/settings.ts";
import { type Note, noteType } from "../../src/session/ledger.ts";
import { callsHost } from "../support/calls.ts";
import { type FakePi, type FakePiOptions, machine, startFakePi } from "../support/fake-pi.ts";
import { waitForTrace } from "../support/strace.ts";
import { packageHere } from "./package-here.ts";
import { alice, approveAll, bob, carol, dave, eve, receiptOf, sessionFile } from "./tree.ts";

/**
 * The program that the kill suite kills: `node scenario.ts NAME FOLDER`. It hosts sessions on the real disk, prepares in
 * FOLDER, waits until it is traced, and plays the scenario. It writes a receipt for each mail whose sender was told that it
 * is sent, and ends as a killed process does.
 */
const scenarios: { readonly [name: string]: () => Promise<unknown> } = {
	async send() {
		await closedSession(bob);
		const pi = await idleSession();
		// A mailbox that has to be made, too.
		rmSync(boxesOf(mailRoot(), bob).folder, { recursive: true });
		waitForTrace();
		await typeMail(pi, bob);
	},
	async claim() {
		await closedSession(bob);
		const pi = await idleSession();
		await pi.run({
			prompt: "go on",
			during() {
				send({ kind: "request" });
				send({ kind: "message" });
				waitForTrace();
				pi.events.emit("message:scan", {});
				end();
			},
		});
	},
	async "hand over"() {
		await closedSession(bob);
		const pi = await idleSession();
		send({ kind: "message" });
		send({ kind: "request" });
		waitForTrace();
		pi.events.emit("message:scan", {});
		await pi.run({ during: end });
	},
	async settle() {
		await closedSession(bob);
		const pi = await idleSession();
		send({ kind: "request" });
		send({ kind: "ask" });
		await pi.run({ prompt: "go on", turns: [{ tools: 1 }], text: "it is well", during: waitForTrace });
	},
	async prune() {
		for (const address of [dave, eve]) await closedSession(address);
		const pi = await idleSession();
		// Closed, and nothing in it is unread.
		const closed = boxesOf(mailRoot(), carol);
		makeBoxes(nodeDisk(), closed);
		for (const box of [closed.cur, closed.sent]) writeFileSync(join(box, "old.txt"), "");
		// Moved aside by a process that was killed then, while a mail came in.
		await typeMail(pi, dave);
		moveAside(dave);
		// The same, and another mail came afterwards.
		await typeMail(pi, eve);
		moveAside(eve);
		await typeMail(pi, eve);
		waitForTrace();
		await pi.type("/mailbox prune");
		while (!pi.notifications.some((text) => text.startsWith("Removed"))) await soon();
	},
	/** Not to be killed: leaves what a process can leave that was. */
	async "before start"() {
		await closedSession(bob);
		const pi = await idleSession();
		const [own, others] = [boxesOf(mailRoot(), alice), boxesOf(mailRoot(), bob)];
		const note = (content: Note) => pi.session.appendCustomEntry(noteType, content);
		const answered = send({}).envelope.id;
		const during = () => {
			// A reply that is planned and not written.
			const reply = {
				id: randomUUID(),
				to: bob,
				inReplyTo: [answered],
				status: "done" as const,
				hops: 0,
				body: "well",
			};
			note({ address: alice, type: "settling", replies: [reply], held: [], because: "stop" });
			// A claimed mail.
			send({});
			pi.events.emit("message:scan", {});
			// A claim that ended before its rename.
			writeFileSync(join(own.cur, `${send({ kind: "message" }).name}.open`), "");
			// The same, and the mail was taken back.
			writeFileSync(join(own.cur, `000000000000000-${randomUUID()}.json.open`), "");
			// A copy of a mail that was sent, and one of a mail that was not: a `.part` that leads nowhere.
			const { name } = send({ to: bob }, alice);
			renameSync(join(own.sent, name), join(own.sent, `${name}.part`));
			const text = readFileSync(join(others.new, name), "utf8");
			const unsent = randomUUID();
			writeFileSync(join(own.sent, `999999999999999-${unsent}.json.part`), text.replace(/(?<="id":")[^"]*/, unsent));
			const old = join(own.tmp, `000000000000000-${randomUUID()}.json`);
			writeFileSync(old, "{");
			utimesSync(old, 0, 0);
			end();
		};
		await pi.run({ prompt: "go on", turns: [{ tools: 1 }], during });
	},
	async start() {
		waitForTrace();
		const pi = await startedSession({ file: sessionFile(machine.home, alice) });
		await pi.run({ prompt: "go on", turns: [{ tools: 1 }] });
	},
	/** One of two calls that are handed back ends in the middle of the run, and the other after it. */
	async "hand back"() {
		set({ rules: [{ tool: "bash", attachSeconds: 0 }] });
		const pi = await idleSession();
		waitForTrace();
		await callBash(pi, ["make", "test"], () => endJob(0));
		await endJob(1);
		await playRuns(pi);
	},
	/** A pause by mail, and a cancel of one of two calls; the other ends by itself. */
	async control() {
		set({ rules: [{ tool: "bash", attachSeconds: 0 }] });
		await closedSession(bob);
		const pi = await idleSession();
		await callBash(pi, ["make", "test"]);
		const [open = ""] = readdirSync(join(boxesOf(mailRoot(), alice).folder, "calls"));
		const calls = [basename(open, ".json")];
		send({ kind: "control", body: "pause", control: { op: "pause" } });
		send({ kind: "control", body: "cancel", control: { op: "cancel", calls } });
		waitForTrace();
		pi.events.emit("message:scan", {});
		for (const index of host.jobs.keys()) await endJob(index);
	},
	/** A call that is asked about, approved by another process, and made. */
	async ticket() {
		set(asksAboutBash);
		const pi = await idleSession();
		waitForTrace();
		await askAboutBash(pi);
		approve();
		await soon();
	},
	/** Not to be killed: leaves a call that is asked about. */
	async "before grant"() {
		set(asksAboutBash);
		await askAboutBash(await idleSession());
	},
	/** What an earlier process has asked about is approved; the model is told so, and makes the call. */
	async grant() {
		const pi = await startedSession({ file: sessionFile(machine.home, alice) });
		mock.timers.tick(1000);
		await playRuns(pi);
		waitForTrace();
		approve();
		await callBash(pi, ["make"], async () => {
			await soon();
			end();
		});
	},
};

const asksAboutBash = { permissions: { rules: [{ pattern: "bash", behavior: "ask", attachSeconds: 0 }] } };

/** The calls of bash write a receipt, too. */
const host = callsHost(() => writeSync(1, "made\n"));

const [, , name = "", folder = ""] = process.argv;
// No look that a slow machine would do in between: each run makes the same calls.
mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
machine.home = folder;
await scenarios[name]?.();
end();

/** Ends without a word to anybody, as a killed process does. */
function end(): never {
	process.exit();
}

/** A session that is idle and has a file. */
async function idleSession(address = alice): Promise<FakePi> {
	const pi = await startedSession({ id: address });
	// Its first run opens the gate.
	await pi.run({ prompt: "hello" });
	await soon();
	return pi;
}

/** A session that has taken in what was left. */
async function startedSession(options: FakePiOptions): Promise<FakePi> {
	const { promise: hasPruned, resolve } = Promise.withResolvers<void>();
	const pi = await startFakePi({ ...options, extensions: [packageHere(resolve, host)], builtIns: ["bash"] });
	await hasPruned;
	return pi;
}

async function closedSession(address: string): Promise<void> {
	const pi = await idleSession(address);
	await pi.shutDown();
}

/** Sends a mail as a person does, and writes its receipt when the person sees it. */
async function typeMail(pi: FakePi, to: string): Promise<void> {
	await pi.type(`/mailbox ${to} please look at branch x`);
	const [, id] = /^Sent (\S+)/.exec(pi.notifications.at(-1) ?? "") ?? [];
	if (id !== undefined) writeReceipt(id);
}

/** Sends a mail that is there before the scenario begins: from Bob to Alice, unless the draft says otherwise. */
function send(draft: Partial<Draft>, from = bob): Delivered {
	const options = { disk: nodeDisk(), root: mailRoot(), now: Date.now, isDurable: () => false };
	const mailbox = openMailbox({ ...options, address: from });
	const sent = mailbox.deliver({ to: alice, kind: "request", body: "please", hops: 0, ...draft });
	if (!sent.ok) throw new Error(sent.message);
	writeReceipt(sent.envelope.id);
	return sent;
}

function writeReceipt(id: string): void {
	writeSync(1, receiptOf(id));
}

/** Sets what stands around the calls of models. */
function set(toolPolicy: object): void {
	mkdirSync(dirname(settingsPath()), { recursive: true });
	writeFileSync(settingsPath(), JSON.stringify({ toolPolicy }));
}

/** A run that calls bash so often. */
function callBash(pi: FakePi, commands: readonly string[], during?: () => unknown): Promise<void> {
	const tools = commands.map((command) => ({ name: "bash", args: { command } }));
	// One that mail has started is played instead.
	return pi.run({ ...(!pi.hasRunToPlay && { prompt: "build it" }), turns: [{ tools, ...(during && { during }) }] });
}

/** Ends a call of bash, unless it was stopped; what follows happens. */
async function endJob(index: number): Promise<void> {
	await soon();
	host.jobs[index]?.end("built");
	await soon();
}

async function askAboutBash(pi: FakePi): Promise<void> {
	await callBash(pi, ["make"]);
	writeSync(1, "asked\n");
}

/** Approves what waits, and lets the session see that. */
function approve(): void {
	approveAll();
	writeSync(1, "approved\n");
	mock.timers.tick(1000);
}

/** Plays what mail has started, or is about to. */
async function playRuns(pi: FakePi): Promise<void> {
	await soon();
	while (pi.hasRunToPlay) {
		await pi.run();
		await soon();
	}
}

/** As pruning does, but under a name that is the same in each run: folders are walked in the order of names. */
function moveAside(address: string): void {
	renameSync(boxesOf(mailRoot(), address).folder, join(mailRoot(), `.pruning.${address}.${address}`));
}
