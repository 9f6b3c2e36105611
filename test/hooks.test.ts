import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createEventBus, type ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import sessionMail from "../src/index.ts";
import { maxUnread } from "../src/mail/deliver.ts";
import type { Disk } from "../src/mail/disk.ts";
import type { Envelope } from "../src/mail/envelope.ts";
import type { SentCopy } from "../src/mail/mailbox.ts";
import { mailRoot } from "../src/mail/root.ts";
import { envelopeText, fail, type Operation, watchedDisk } from "./support/disk.ts";
import { later, seasonedPi, useFakeMachine } from "./support/fake-machine.ts";
import { type Extension, FakePi, makePeer, type Peer, startFakePi } from "./support/fake-pi.ts";

const seams = vi.hoisted(() => ({ wrap: (disk: Disk): Disk => disk }));
vi.mock(import("../src/mail/disk.ts"), async (importOriginal) => {
	const real = await importOriginal();
	return { ...real, nodeDisk: () => seams.wrap(real.nodeDisk()) };
});
/** What happens before each operation on disk. */
let before: (operation: Operation) => unknown = () => {};
seams.wrap = (disk) => watchedDisk((operation) => before(operation), disk);

useFakeMachine();

let peer: Peer;
let bareBus: ReturnType<typeof createEventBus>;
beforeEach(() => {
	peer = makePeer();
	bareBus = createEventBus();
});
afterEach(() => {
	before = () => {};
});

/** What another extension emits and reads back. */
interface Payload {
	[key: string]: unknown;
	to?: unknown;
	body?: unknown;
	envelope?: Envelope;
	error?: string;
	scanned?: boolean;
}

interface Inbound {
	envelope: Envelope;
	path: string;
	requests: SentCopy[];
	handled?: boolean;
}

function send(pi: FakePi, to: unknown = peer.address, body: unknown = "please"): Payload {
	const payload: Payload = { to, body };
	pi.events.emit("message:send", payload);
	return payload;
}

function scan(pi: FakePi): Payload {
	const payload: Payload = {};
	pi.events.emit("message:scan", payload);
	return payload;
}

/** Listens to `message:inbound`; returns what came so far. */
function announced(pi: FakePi, listener: (payload: Inbound) => unknown = () => {}): Inbound[] {
	const heard: Inbound[] = [];
	pi.events.on("message:inbound", (payload) => {
		heard.push({ ...(payload as Inbound) });
		return listener(payload as Inbound);
	});
	return heard;
}

const ids = (heard: readonly Inbound[]) => heard.map(({ envelope }) => envelope.id);
const take = (payload: Inbound) => {
	payload.handled = true;
};

/** Puts a file into a session's inbox, as an older copy or a script may write it. */
function lay(pi: FakePi, name: string, changed: Record<string, unknown>): void {
	const folder = join(mailRoot(), pi.address, "new");
	mkdirSync(folder, { recursive: true });
	writeFileSync(join(folder, name), envelopeText({ from: peer.address, to: pi.address, ...changed }));
}

/** The record of another process that has this address, and runs. */
function anotherOwner(address: string): string {
	const path = join(mailRoot(), "running", `${address}.json`);
	mkdirSync(join(mailRoot(), "running"), { recursive: true });
	const record = { address, cwd: "/", pid: process.ppid, state: "idle", waitingOn: "", updated: "" };
	writeFileSync(path, JSON.stringify(record));
	return path;
}

/** A second extension; `api` is what Pi gave it last. */
function otherExtension(set: (pi: ExtensionAPI) => unknown = () => {}) {
	const other = {
		api: undefined as ExtensionAPI | undefined,
		load: ((pi) => {
			other.api = pi;
			return set(pi);
		}) as Extension,
	};
	return other;
}

describe("PSM-095 the examples of README.md do what they say", () => {
	const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
	const section = /^(#+) Hooks\n(.*?)(?=^#{1,3} )/ms.exec(readme)?.[2] ?? "";
	const blocks = new Map(
		[...section.matchAll(/^```js\s*(.*)\n([\s\S]*?)^```$/gm)].map(([, name = "", code = ""]) => [name, code]),
	);

	/** What each example runs in, and what it is good for besides its own assertions. */
	const runners: { [name: string]: (run: (pi: ExtensionAPI) => void, pi: FakePi, api: ExtensionAPI) => Promise<void> } =
		{
			async "message:send"(run, pi, api) {
				run(api);
				expect(peer.received()).toMatchObject([
					{ kind: "request", from: pi.address, body: "Please run the test suite." },
					{ kind: "request", from: pi.address, body: "Release 1.2 is out." },
				]);
			},
			async "message:inbound"(run, pi, api) {
				run(api);
				const request = peer.send(pi);
				await later(1000);
				await pi.run({ text: "yes" });
				expect(pi.mails().map(({ id }) => id)).toEqual([request]);
				const asked = send(pi, peer.address, "Is it done?").envelope?.id ?? "";
				const reply = peer.send(pi, { kind: "reply", status: "done", inReplyTo: [asked], body: "It is." });
				await later(1000);
				expect(pi.sent.at(-1)?.startsRun).toBe(true);
				expect(pi.sent.at(-1)?.text).toMatch(
					new RegExp(`^${peer.address} answered "Is it done\\?": It is\\. \\(/.*${reply}\\.json\\)$`),
				);
				await pi.run();
				expect(pi.mails().map(({ id }) => id)).toEqual([request]);
			},
			async "message:scan"(run, pi, api) {
				peer.send(pi, { kind: "reply", status: "done" });
				run(api);
				expect(pi.names("new")).toEqual([]);
			},
		};

	test.each(Object.keys(runners))("%s", async (name) => {
		const code = blocks.get(name);
		if (code === undefined) throw new Error(`README.md has no example called ${name} under Hooks`);
		const other = otherExtension();
		const pi = await seasonedPi({ extensions: [sessionMail, other.load] });
		const { api } = other;
		if (api === undefined) throw new Error("the other extension was not loaded");
		const example = new Function("pi", "peer", "bareBus", "assert", `"use strict";\n${code}`);
		// What a listener throws, the bus reports there.
		const complaints = vi.spyOn(console, "error");
		await runners[name]?.((given) => example(given, peer.address, bareBus, assert), pi, api);
		expect(complaints).not.toHaveBeenCalled();
	});

	test("each of them is run", () => {
		const fences = [...section.matchAll(/^```/gm)].length / 2;
		expect([...blocks.keys()].sort()).toEqual(Object.keys(runners).sort());
		expect(fences).toBe(blocks.size);
	});
});

describe("PSM-092 message:send", () => {
	test("sends a request from this session, and gives its envelope before emit returns", async () => {
		const pi = await seasonedPi();
		const { envelope, error } = send(pi, peer.address, "Please run the tests.");
		expect(error).toBeUndefined();
		expect(envelope).toEqual({
			id: expect.stringMatching(/^[0-9a-f-]{36}$/),
			from: pi.address,
			to: peer.address,
			kind: "request",
			hops: 0,
			in_reply_to: [],
			status: "",
			ts: new Date().toISOString(),
			body: "Please run the tests.",
		});
		expect(peer.received()).toEqual([envelope]);
		expect(pi.names("sent")).toEqual([expect.stringContaining(`${envelope?.id}.json`)]);
		expect(pi.status.get("mailbox")).toBe("✉ 1 awaiting");
	});

	test("L2 with an id sends once: a repetition gets the first envelope, and says that it was sent before", async () => {
		const pi = await seasonedPi();
		const emit = (payload: Record<string, unknown>) => {
			pi.events.emit("message:send", payload);
			return payload;
		};
		const mail = { to: peer.address, body: "please", id: "11111111-2222-4333-8444-555555555555" };
		const first = emit({ ...mail });
		expect(first).toEqual({ ...mail, envelope: expect.objectContaining({ id: mail.id }) });
		await later(1000);
		expect(emit({ ...mail })).toEqual({ ...first, duplicate: true });
		for (const [changed, why] of [
			[{ body: "other" }, `the id ${mail.id} was used for another mail`],
			[{ id: "x" }, 'the id "x" is not a UUID'],
			[{ id: 1 }, "id is not a text"],
		] as const) {
			expect(emit({ ...mail, ...changed })).toEqual({ ...mail, ...changed, error: `Nothing was sent: ${why}.` });
		}
		expect(peer.received().map(({ id }) => id)).toEqual([mail.id]);
	});

	test("the answer names the id that was given", async () => {
		const author = await seasonedPi();
		const reviewer = await seasonedPi();
		const heard = announced(author);
		const { envelope } = send(author, reviewer.address);
		await later(1000);
		await reviewer.run({ text: "fine" });
		await later(1000);
		expect(heard).toMatchObject([
			{ envelope: { in_reply_to: [envelope?.id], body: "fine" }, requests: [{ envelope }] },
		]);
	});

	test("takes an address in capitals for the same", async () => {
		const pi = await seasonedPi();
		expect(send(pi, peer.address.toUpperCase()).envelope?.to).toBe(peer.address);
	});

	test("PSM-087 carries the hop count of the run that it is sent in, and none when idle or when the user takes part", async () => {
		const pi = await seasonedPi();
		const hops: unknown[] = [];
		const note = () => hops.push(send(pi).envelope?.hops);
		note();
		peer.send(pi, { hops: 2 });
		await later(1000);
		await pi.run({ turns: [{ tools: 1, during: note }], during: note });
		note();
		await later(1000);
		await pi.run({ prompt: "hello", during: note });
		peer.send(pi, { hops: 2 });
		await later(1000);
		await pi.run({ turns: [{ tools: 1, during: () => pi.typeAhead("stop that") }], during: note });
		expect(hops).toEqual([0, 3, 3, 0, 0, 0]);
	});

	test("PSM-087 carries none while idle, also after an extension has taken over mail with hops", async () => {
		const pi = await seasonedPi();
		announced(pi, take);
		peer.send(pi, { kind: "reply", status: "done", hops: 3 });
		await later(1000);
		expect(send(pi).envelope?.hops).toBe(0);
	});

	test("PSM-087 carries it as soon as the run has begun", async () => {
		const hops: unknown[] = [];
		const other = otherExtension((api) => {
			for (const event of ["agent_start", "turn_start", "context"] as const) {
				api.on(event as "agent_start", () => {
					const payload: Payload = { to: peer.address, body: "please" };
					api.events.emit("message:send", payload);
					hops.push(payload.envelope?.hops);
				});
			}
		});
		const pi = await seasonedPi({ extensions: [sessionMail, other.load] });
		hops.splice(0);
		peer.send(pi, { hops: 2 });
		await later(1000);
		await pi.run();
		expect(hops).toEqual([3, 3, 3]);
	});

	test("PSM-086/087 is not refused for its hops, whatever the limit", async () => {
		const pi = await seasonedPi();
		peer.send(pi, { hops: 99 });
		await later(1000);
		const sent: Payload[] = [];
		await pi.run({ during: () => sent.push(send(pi)) });
		expect(sent).toMatchObject([{ envelope: { hops: 100 } }]);
	});

	test.each<[string, unknown, unknown]>([
		["no recipient", undefined, "please"],
		["a recipient that is no text", 5, "please"],
		["an empty recipient", "", "please"],
		["a path", "../running", "please"],
		["a path that is absolute", "/etc", "please"],
		["a name of the root's own", "running", "please"],
		["a session's name with a space", "my reviewer", "please"],
		["a longer recipient than an address can be", "x".repeat(129), "please"],
		["a recipient with a line break", "a\nb", "please"],
		["no body", "peer", undefined],
		["a body that is no text", "peer", { text: "please" }],
		["an empty body", "peer", ""],
		["a blank body", "peer", " \n "],
		["a body of more than 1 MiB", "peer", "x".repeat(2 ** 20 + 1)],
	])("PSM-035 sets error and writes nothing: %s", async (_, to, body) => {
		const pi = await seasonedPi();
		const payload: Payload = { to: to === "peer" ? peer.address : to, body };
		pi.events.emit("message:send", payload);
		expect(payload.envelope).toBeUndefined();
		expect(payload.error).toMatch(/^Nothing was sent: .*\.$/);
		expect([peer.received(), pi.names("sent")]).toEqual([[], []]);
	});

	test("design 4.6 with quiet sends a message that starts no turn, and awaits nothing", async () => {
		const pi = await seasonedPi();
		const payload: Payload = { to: peer.address, body: "for later", quiet: true };
		pi.events.emit("message:send", payload);
		expect(payload.envelope).toMatchObject({ kind: "message", hops: 0, body: "for later", x: { quiet: true } });
		expect([peer.received(), pi.status.get("mailbox")]).toEqual([[payload.envelope], undefined]);
		const loud: Payload = { to: peer.address, body: "please", quiet: false };
		pi.events.emit("message:send", loud);
		expect(loud.envelope).toMatchObject({ kind: "request" });
		expect(loud.envelope).not.toHaveProperty("x");
		const wrong: Payload = { to: peer.address, body: "please", quiet: "yes" };
		pi.events.emit("message:send", wrong);
		expect(wrong).toMatchObject({ error: "Nothing was sent: quiet is neither true nor false." });
	});

	test("sets error when the settings of the other session let no request wake it, but not for a quiet one", async () => {
		const [pi, other] = [await seasonedPi(), await startFakePi({ name: "other" })];
		const file = join(mailRoot(), "running", `${other.address}.json`);
		const record = JSON.parse(readFileSync(file, "utf8"));
		writeFileSync(file, JSON.stringify({ ...record, x: { ...record.x, wakeOn: { kinds: ["ask"] } } }));
		expect(send(pi, other.address.toUpperCase()).error).toBe(
			`Nothing was sent: by its settings (wakeOn.kinds), other (${other.address}) takes no requests; leave a message for it.`,
		);
		const payload: Payload = { to: other.address, body: "for later", quiet: true };
		pi.events.emit("message:send", payload);
		expect(payload.error).toBeUndefined();
	});

	test("sets error for this session itself, and for a full inbox", async () => {
		const pi = await seasonedPi();
		expect(send(pi, pi.address).error).toMatch(/^Nothing was sent: .*itself/);
		const other = await startFakePi({ mode: "print" });
		for (let n = 0; n < maxUnread; n++) peer.send(other, { kind: "message" });
		expect(send(pi, other.address).error).toMatch(/^Nothing was sent: .* already has 256 unread mails/);
	});

	test("does not resolve names", async () => {
		const pi = await seasonedPi();
		const other = await startFakePi({ name: "reviewer" });
		send(pi, "reviewer");
		expect(other.names("new")).toEqual([]);
		expect(existsSync(join(mailRoot(), "reviewer", "new"))).toBe(true);
	});

	test("leaves alone what another provider has answered, or refused", async () => {
		const pi = await seasonedPi();
		for (const answered of [{ envelope: {} }, { error: "no" }]) {
			const payload = { to: peer.address, body: "please", ...answered };
			pi.events.emit("message:send", payload);
			expect(payload).toEqual({ to: peer.address, body: "please", ...answered });
		}
		expect(peer.received()).toEqual([]);
	});

	test("a provider that was there first keeps ours from sending", async () => {
		const first = otherExtension((api) =>
			api.events.on("message:send", (payload) => Object.assign(payload as object, { error: "not now" })),
		);
		const pi = await startFakePi({ extensions: [first.load, sessionMail] });
		expect(send(pi)).toEqual({ to: peer.address, body: "please", error: "not now" });
		expect(peer.received()).toEqual([]);
	});

	test.each([undefined, null, 5, "please", []])("survives the payload %j", async (payload) => {
		const pi = await seasonedPi();
		const complaints = vi.spyOn(console, "error");
		for (const name of ["message:send", "message:scan"]) pi.events.emit(name, payload);
		expect(complaints).not.toHaveBeenCalled();
		expect(peer.received()).toEqual([]);
	});

	test("without a session it sets nothing but error", async () => {
		const pi = new FakePi();
		expect(send(pi)).toEqual({ to: peer.address, body: "please" });
		await pi.start();
		expect(send(pi).envelope).toBeDefined();
		await pi.shutDown();
		expect(send(pi)).toEqual({
			to: peer.address,
			body: "please",
			error: "Nothing was sent: this session has no mailbox.",
		});
	});

	test("PSM-008 sets error when the mailbox is off, since its folder cannot be used", async () => {
		rmSync(mailRoot(), { recursive: true });
		writeFileSync(mailRoot(), "");
		const pi = await startFakePi();
		expect(pi.notifications).toEqual([expect.stringMatching(/^mailbox: mailbox is off/)]);
		expect(send(pi).error).toBe("Nothing was sent: this session has no mailbox.");
		expect(scan(pi)).toEqual({});
		expect(pi.notifications).toHaveLength(1);
	});

	test("works in session_start, when another extension sends there", async () => {
		const payload: Payload = { to: peer.address, body: "please" };
		const other = otherExtension((api) => api.on("session_start", () => api.events.emit("message:send", payload)));
		await startFakePi({ extensions: [sessionMail, other.load] });
		expect(peer.received()).toEqual([payload.envelope]);
	});

	test("works while mail is off, and in a second process of the session", async () => {
		const pi = await seasonedPi();
		await pi.type("/mailbox off");
		expect(send(pi).envelope).toBeDefined();
		anotherOwner(pi.address);
		expect(send(pi).envelope).toBeDefined();
		expect(peer.received()).toHaveLength(2);
	});

	test("L4 gives the envelope of a mail that was sent, although nothing else can be saved", async () => {
		const pi = await seasonedPi();
		send(pi);
		before = ({ name, paths }) => name === "replace" && paths[0]?.endsWith("state.json") && fail("ENOSPC");
		const payload = send(pi);
		expect(peer.received()).toHaveLength(2);
		expect(payload.envelope).toEqual(peer.received()[1]);
	});

	test("sets error, and nothing is left, when the disk refuses the mail", async () => {
		const pi = await seasonedPi();
		before = ({ name }) => name === "create" && fail("ENOSPC");
		const payload = send(pi);
		before = () => {};
		expect(payload).toMatchObject({ error: expect.stringMatching(/^Nothing was sent: ENOSPC/) });
		expect([payload.envelope, peer.received(), pi.names("sent")]).toEqual([undefined, [], []]);
	});

	test("what the consumer does to the envelope afterwards changes nothing that was sent", async () => {
		const pi = await seasonedPi();
		const { envelope } = send(pi);
		const id = envelope?.id;
		if (envelope !== undefined) Object.assign(envelope, { id: "x", body: "x", in_reply_to: ["x"] });
		expect(peer.received()).toMatchObject([{ id, body: "please" }]);
		peer.send(pi, { kind: "reply", status: "done", inReplyTo: [id ?? ""] });
		await later(1000);
		expect(pi.status.get("mailbox")).toBe("✉ 1 read");
	});
});

describe("PSM-093 message:inbound", () => {
	test.each(["request", "ask", "message", "reply"] as const)("announces a %s before it is shown", async (kind) => {
		const pi = await seasonedPi();
		const heard = announced(pi, ({ path }) => {
			expect(existsSync(path)).toBe(true);
			expect(pi.mails()).toEqual([]);
			expect(pi.hasRunToPlay).toBe(false);
		});
		const complaints = vi.spyOn(console, "error");
		const id = peer.send(pi, { kind, ...(kind === "reply" ? { status: "done" } : {}) });
		await later(1000);
		expect(heard).toEqual([
			{
				envelope: expect.objectContaining({ id, kind, from: peer.address, to: pi.address, body: "please" }),
				path: join(mailRoot(), pi.address, "cur", pi.names("cur")[0]?.replace(/\.open$/, "") ?? ""),
				requests: [],
			},
		]);
		if (kind !== "reply") await pi.run();
		expect([pi.mails().map((mail) => mail.id), heard.length]).toEqual([[id], 1]);
		expect(complaints).not.toHaveBeenCalled();
	});

	test.each<[string, Record<string, unknown>, Partial<Envelope>]>([
		[
			"PSM-014 kind and hops that an old copy did not write",
			{ kind: undefined, hops: undefined },
			{ kind: "request", hops: 0 },
		],
		[
			"PSM-014 those of an old reply",
			{ kind: undefined, hops: undefined, in_reply_to: ["11111111-2222-4333-8444-666666666666"], status: "done" },
			{ kind: "reply", hops: 0, status: "done" },
		],
		["PSM-011 in_reply_to and status", { in_reply_to: undefined, status: undefined }, { in_reply_to: [], status: "" }],
		["PSM-013 a kind that this copy does not know", { kind: "poke" }, { kind: "message" }],
	])("fills in %s", async (_, changed, expected) => {
		const pi = await seasonedPi();
		const heard = announced(pi);
		lay(pi, "000000000000001-11111111-2222-4333-8444-555555555555.json", changed);
		await later(1000);
		expect(heard).toMatchObject([{ envelope: expected }]);
	});

	test("gives the requests that a reply answers, in its order, as far as there are copies", async () => {
		const pi = await seasonedPi();
		const heard = announced(pi);
		const [one, two, three] = ["one", "two", "three"].map((body) => send(pi, peer.address, body).envelope);
		for (const name of pi.names("sent")) {
			if (name.includes(two?.id ?? "-")) rmSync(join(mailRoot(), pi.address, "sent", name));
		}
		const inReplyTo = [three?.id ?? "", two?.id ?? "", one?.id ?? "", "11111111-2222-4333-8444-555555555555", "no id"];
		peer.send(pi, { kind: "reply", status: "done", inReplyTo });
		await later(1000);
		expect(heard[0]?.envelope.in_reply_to).toEqual(inReplyTo);
		expect(heard[0]?.requests).toEqual([
			{ envelope: three, path: expect.stringContaining(`/sent/`) },
			{ envelope: one, path: expect.stringContaining(`/sent/`) },
		]);
		for (const { path, envelope } of heard[0]?.requests ?? []) {
			expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(envelope);
		}
	});

	test("does not announce what cannot be read, nor the same mail a second time", async () => {
		const pi = await seasonedPi();
		const heard = announced(pi);
		lay(pi, "000000000000001-a.json", { id: "99999999-2222-4333-8444-555555555555", hops: -1 });
		lay(pi, "000000000000002-b.json", {});
		await later(1000);
		await pi.run();
		lay(pi, "000000000000003-b.json", {});
		await later(1000);
		expect(heard).toHaveLength(1);
		await pi.shutDown();
		const again = new FakePi({ file: pi.file });
		const heardAgain = announced(again);
		await again.start("resume");
		await again.discover();
		await later(5000);
		expect(heardAgain).toEqual([]);
	});

	describe("a listener that sets handled", () => {
		test("keeps a mail out of the conversation; it counts as read, and no run starts", async () => {
			const pi = await seasonedPi();
			const heard = announced(pi, take);
			const all = [peer.send(pi), peer.send(pi, { kind: "message" }), peer.send(pi, { kind: "reply", status: "done" })];
			await later(1000);
			expect(ids(heard)).toEqual(all);
			expect([pi.mails(), pi.sent, pi.hasRunToPlay]).toEqual([[], [], false]);
			expect(pi.status.get("mailbox")).toBe("✉ 3 read");
			expect([pi.names("new"), pi.openCount]).toEqual([[], 0]);
		});

		test("arms the answer: the next run that completes gives it", async () => {
			const pi = await seasonedPi();
			announced(pi, take);
			const id = peer.send(pi);
			await later(1000);
			expect(peer.received()).toEqual([]);
			await pi.run({ prompt: "look at this", text: "it is fine" });
			expect(peer.received()).toMatchObject([{ kind: "reply", status: "done", in_reply_to: [id], body: "it is fine" }]);
		});

		test("arms it also in the middle of a run", async () => {
			const pi = await seasonedPi();
			announced(pi, take);
			let id = "";
			const during = () => {
				id = peer.send(pi);
			};
			await pi.run({ prompt: "work", turns: [{ tools: 1, during }, { tools: 1 }], text: "it is fine" });
			expect(pi.mails()).toEqual([]);
			expect(peer.received()).toMatchObject([{ status: "done", in_reply_to: [id], body: "it is fine" }]);
		});

		test("PSM-084 the turn that it starts for a reply counts one hop more than the reply", async () => {
			const other = otherExtension((api) =>
				api.events.on("message:inbound", (payload) => {
					take(payload as Inbound);
					api.sendMessage(
						{ customType: "other", content: "a reply", display: true },
						{ triggerTurn: true, deliverAs: "steer" },
					);
				}),
			);
			const pi = await seasonedPi({ extensions: [sessionMail, other.load] });
			peer.send(pi, { kind: "reply", status: "done", hops: 3 });
			await later(1000);
			const sent: Payload[] = [];
			await pi.run({ during: () => sent.push(send(pi)) });
			expect(sent).toMatchObject([{ envelope: { hops: 4 } }]);
		});

		test("keeps it for good: neither /reload nor a restart announces or shows it again", async () => {
			const pi = await seasonedPi();
			const heard = announced(pi, take);
			const id = peer.send(pi);
			await later(1000);
			await pi.reload();
			await later(5000);
			await pi.kill();
			const again = new FakePi({ file: pi.file });
			const heardAgain = announced(again);
			await again.start("resume");
			await again.discover();
			await later(5000);
			expect([ids(heard), heardAgain, again.mails()]).toEqual([[id], [], []]);
			await again.run({ prompt: "go on", text: "fine" });
			expect(peer.received().flatMap((reply) => reply.in_reply_to)).toEqual([id]);
		});

		test("L3 keeps it open when the session cannot note that: it is announced, and answered, after the next start", async () => {
			const pi = await seasonedPi();
			announced(pi, take);
			const unwritable = vi.spyOn(pi.session, "appendCustomEntry").mockImplementation(() => fail("ENOSPC"));
			const id = peer.send(pi);
			await later(5000);
			expect([pi.mails(), pi.openCount, pi.hasRunToPlay]).toEqual([[], 1, false]);
			unwritable.mockRestore();
			// It holds up no other.
			peer.send(pi, { kind: "message" });
			await later(1000);
			expect([pi.names("new"), pi.openCount]).toEqual([[], 1]);
			await pi.kill();
			const again = new FakePi({ file: pi.file });
			const heard = announced(again, take);
			await again.start("resume");
			await again.discover();
			await later(2000);
			expect([ids(heard), again.openCount]).toEqual([[id], 0]);
			await again.run({ prompt: "go on", text: "fine" });
			expect(peer.received()).toMatchObject([{ in_reply_to: [id], status: "done", body: "fine" }]);
		});

		test.each([1, "yes", {}, null])("has to set it to true: %j does not count", async (handled) => {
			const pi = await seasonedPi();
			announced(pi, (payload) => Object.assign(payload, { handled }));
			const id = peer.send(pi);
			await later(1000);
			await pi.run();
			expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
		});
	});

	test.each(["before", "after"])("is never emitted in session_start, to an extension loaded %s", async (order) => {
		let isStarting = false;
		const heard: [string, boolean][] = [];
		const other = otherExtension((api) => {
			api.on("session_start", () => {
				isStarting = true;
				api.events.on("message:inbound", (payload) => heard.push([(payload as Inbound).envelope.id, isStarting]));
			});
		});
		const marker: Extension = (api) => {
			api.on("session_start", () => {
				isStarting = false;
			});
		};
		const pi = new FakePi({
			extensions: [...(order === "before" ? [other.load, sessionMail] : [sessionMail, other.load]), marker],
		});
		const id = peer.send(pi);
		isStarting = true;
		await pi.start();
		expect(heard).toEqual([]);
		await pi.discover();
		await later(1000);
		expect(heard).toEqual([[id, false]]);
	});

	test.each(["before", "after"])(
		"PSM-044 is not emitted there either when an extension loaded %s scans in its session_start",
		async (order) => {
			const heard: string[] = [];
			const payload: Payload = {};
			const scanner: Extension = (api) => {
				api.on("session_start", () => api.events.emit("message:scan", payload));
			};
			let waited = 0;
			const listener: Extension = (api) => {
				api.on("session_start", () => {
					waited = heard.length;
				});
				api.events.on("message:inbound", (inbound) => heard.push((inbound as Inbound).envelope.id));
			};
			const pi = new FakePi({
				extensions: order === "before" ? [scanner, sessionMail, listener] : [sessionMail, scanner, listener],
			});
			const id = peer.send(pi);
			await pi.start();
			expect([waited, heard, payload.scanned]).toEqual([0, [], undefined]);
			await pi.discover();
			await later(1000);
			expect(heard).toEqual([id]);
		},
	);

	test("a listener that throws stops neither the mail nor the other listeners", async () => {
		const complaints = vi.spyOn(console, "error").mockImplementation(() => {});
		const pi = await seasonedPi();
		announced(pi, () => {
			throw new Error("not today");
		});
		const heard = announced(pi);
		const all = [peer.send(pi), peer.send(pi)];
		await later(1000);
		await pi.run();
		expect([ids(heard), pi.mails().map(({ id }) => id)]).toEqual([all, all]);
		expect(peer.received()).toMatchObject([{ status: "done", in_reply_to: all }]);
		expect(complaints).toHaveBeenCalledTimes(2);
		expect(pi.notifications).toEqual([]);
	});

	test("a listener that changes what it was given changes neither the mail nor its answer", async () => {
		const pi = await seasonedPi();
		const asked = send(pi, peer.address, "Is it done?").envelope;
		announced(pi, ({ envelope, requests }) => {
			Object.assign(envelope, { id: "x", from: "nobody", to: "nobody", kind: "message", hops: 99, body: "forged" });
			envelope.in_reply_to.splice(0);
			for (const request of requests) Object.assign(request.envelope, { body: "forged" });
			requests.splice(1);
		});
		const id = peer.send(pi, { body: "genuine" });
		await later(1000);
		const hops: unknown[] = [];
		await pi.run({ during: () => hops.push(send(pi).envelope?.hops) });
		expect(pi.mails()).toMatchObject([{ id, text: expect.stringContaining("\ngenuine\n") }]);
		expect(hops).toEqual([1]);
		expect(peer.received().filter(({ kind }) => kind === "reply")).toMatchObject([
			{ to: peer.address, in_reply_to: [id] },
		]);
		peer.send(pi, { kind: "reply", status: "done", inReplyTo: [asked?.id ?? ""], body: "It is." });
		await later(1000);
		expect(pi.mails()[1]?.text).toContain("> Is it done?");
	});

	test("a listener that sets handled only after an await is too late: the mail is shown, once", async () => {
		const pi = await seasonedPi();
		announced(pi, async (payload) => {
			await Promise.resolve();
			take(payload);
		});
		const id = peer.send(pi);
		await later(1000);
		await pi.run();
		await later(5000);
		expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
		expect(peer.received()).toHaveLength(1);
	});

	test("a listener may send and scan: each mail is announced and shown once, in order", async () => {
		const pi = await seasonedPi();
		const scans: unknown[] = [];
		const heard = announced(pi, () => {
			scans.push(scan(pi).scanned);
			send(pi);
		});
		const all = [1, 2, 3].map((n) => peer.send(pi, { body: `mail ${n}` }));
		await later(1000);
		while (pi.hasRunToPlay) {
			await pi.run();
			await later(1000);
		}
		expect(ids(heard)).toEqual(all);
		expect(pi.mails().map(({ id }) => id)).toEqual(all);
		expect(pi.openCount).toBe(0);
		expect(peer.received().filter(({ kind }) => kind === "request")).toHaveLength(3);
	});

	test("4.5 when a listener starts a run, mail of the same moment does not go through Pi's own queue, where Esc drops it", async () => {
		const other = otherExtension((api) =>
			api.events.on("message:inbound", (payload) => {
				const inbound = payload as Inbound;
				if (inbound.envelope.kind !== "reply") return;
				take(inbound);
				api.sendMessage(
					{ customType: "other", content: "a reply", display: true },
					{ triggerTurn: true, deliverAs: "steer" },
				);
			}),
		);
		const pi = await seasonedPi({ extensions: [sessionMail, other.load] });
		peer.send(pi, { kind: "reply", status: "done" });
		const id = peer.send(pi, { kind: "message" });
		await later(1000);
		expect(pi.sent).toEqual([{ text: "a reply", startsRun: true }]);
		await pi.run({ turns: [{ tools: 1 }] });
		expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
		expect(pi.sent).toHaveLength(1);
	});
});

describe("PSM-094 message:scan", () => {
	test("announces everything that waits before emit returns, in order, and says that it has", async () => {
		const pi = await seasonedPi();
		const heard = announced(pi);
		const all = [peer.send(pi), peer.send(pi, { kind: "reply", status: "done" }), peer.send(pi, { kind: "message" })];
		expect(scan(pi)).toEqual({ scanned: true });
		expect([ids(heard), pi.names("new")]).toEqual([all, []]);
		await pi.run();
		expect(pi.mails().map(({ id }) => id)).toEqual(all);
	});

	test("with nothing there it has scanned as well", async () => {
		const pi = await seasonedPi();
		expect(scan(pi)).toEqual({ scanned: true });
		expect(pi.hasRunToPlay).toBe(false);
	});

	test("announces 256 waiting mails, and the answers beyond them, at once", async () => {
		const pi = await seasonedPi();
		const heard = announced(pi, take);
		const all: string[] = [];
		for (let n = 0; n < maxUnread; n++) all.push(peer.send(pi, { kind: "message" }));
		all.push(peer.send(pi, { kind: "reply", status: "done" }));
		expect(scan(pi).scanned).toBe(true);
		expect(ids(heard)).toEqual(all);
	});

	test("busy: what nobody handles waits, claimed, for the end of the turn", async () => {
		const pi = await seasonedPi();
		const heard = announced(pi, (payload) => payload.envelope.kind === "reply" && take(payload));
		let all: string[] = [];
		const during = () => {
			all = [peer.send(pi), peer.send(pi, { kind: "reply", status: "done" })];
			expect(scan(pi).scanned).toBe(true);
			expect([ids(heard), pi.names("new"), pi.mails()]).toEqual([all, [], []]);
			expect(pi.status.get("mailbox")).toBe("✉ 1 pending · 1 read");
		};
		await pi.run({ prompt: "work", turns: [{ tools: 1, during }] });
		expect(pi.mails().map(({ id }) => id)).toEqual(all.slice(0, 1));
		expect(heard).toHaveLength(2);
		expect(pi.sent).toEqual([]);
	});

	test("busy with its last words: what nobody handles starts the next run", async () => {
		const pi = await seasonedPi();
		let id = "";
		const during = () => {
			id = peer.send(pi);
			scan(pi);
		};
		await pi.run({ prompt: "work", during });
		expect(pi.mails()).toEqual([]);
		await later(1000);
		await pi.run({ text: "fine" });
		expect(pi.mails().map((mail) => mail.id)).toEqual([id]);
		expect(peer.received()).toMatchObject([{ in_reply_to: [id], body: "fine" }]);
	});

	test("while mail is off it announces the answers, and leaves the rest", async () => {
		const pi = await seasonedPi();
		const heard = announced(pi);
		await pi.type("/mailbox off");
		peer.send(pi);
		const reply = peer.send(pi, { kind: "reply", status: "done" });
		expect(scan(pi).scanned).toBe(true);
		expect([ids(heard), pi.names("new").length, pi.hasRunToPlay]).toEqual([[reply], 1, false]);
	});

	test("while mail is off, however much waits: an answer behind it is not overlooked", async () => {
		const pi = await seasonedPi();
		await pi.type("/mailbox off");
		for (let n = 0; n < maxUnread; n++) peer.send(pi, { kind: "message" });
		const reply = peer.send(pi, { kind: "reply", status: "done" });
		const heard = announced(pi);
		expect(scan(pi).scanned).toBe(true);
		expect(ids(heard)).toEqual([reply]);
	});

	test("D7 a second process of the session has not scanned, and claims nothing, until the first is gone", async () => {
		const pi = new FakePi();
		const record = anotherOwner(pi.address);
		await pi.start();
		await pi.discover();
		const heard = announced(pi);
		const id = peer.send(pi);
		await later(5000);
		expect([scan(pi), heard, pi.names("new").length]).toEqual([{}, [], 1]);
		rmSync(record);
		await later(2000);
		expect(ids(heard)).toEqual([id]);
		expect(scan(pi)).toEqual({ scanned: true });
	});

	test("has not scanned before what an earlier process left is taken in", async () => {
		const crashed = await seasonedPi();
		const id = peer.send(crashed);
		await later(1000);
		await crashed.kill();
		const pi = new FakePi({ file: crashed.file });
		const heard = announced(pi);
		const newer = peer.send(pi);
		await pi.start("resume");
		expect([scan(pi), heard]).toEqual([{}, []]);
		await pi.discover();
		await later(10);
		expect(scan(pi)).toEqual({ scanned: true });
		expect(ids(heard)).toEqual([id, newer]);
	});

	test("after the end of the session nothing is scanned", async () => {
		const pi = await seasonedPi();
		const heard = announced(pi);
		await pi.shutDown();
		peer.send(pi);
		expect([scan(pi), heard, pi.names("new").length]).toEqual([{}, [], 1]);
	});

	test("says so although nothing else can be saved", async () => {
		const pi = await seasonedPi();
		const asked = send(pi).envelope?.id ?? "";
		const heard = announced(pi, take);
		const reply = peer.send(pi, { kind: "reply", status: "done", inReplyTo: [asked] });
		before = ({ name, paths }) => name === "replace" && paths[0]?.endsWith("state.json") && fail("ENOSPC");
		expect(scan(pi)).toEqual({ scanned: true });
		expect(ids(heard)).toEqual([reply]);
	});

	test("says so although what was announced cannot be added to the session now", async () => {
		const pi = await seasonedPi();
		const heard = announced(pi);
		const id = peer.send(pi);
		renameSync(pi.file, `${pi.file}.away`);
		mkdirSync(pi.file);
		expect([scan(pi), ids(heard)]).toEqual([{ scanned: true }, [id]]);
		expect(pi.notifications).toEqual([expect.stringMatching(/EISDIR/)]);
	});

	test("has not scanned when a mail could not be claimed", async () => {
		const pi = await seasonedPi();
		peer.send(pi);
		before = ({ name, paths }) => name === "create" && paths[0]?.includes("/cur/") && fail("ENOSPC");
		expect(scan(pi)).toEqual({});
	});

	test.each(["on", "off"])("has not scanned when the inbox cannot be read (mail is %s)", async (state) => {
		const pi = await seasonedPi();
		await pi.type(`/mailbox ${state}`);
		peer.send(pi);
		before = ({ name, paths }) => name === "list" && paths[0]?.endsWith("/new") && fail("EMFILE");
		expect(scan(pi)).toEqual({});
	});
});
