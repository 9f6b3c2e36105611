import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { parseArgument } from "../../src/commands/mailbox.ts";
import { maxUnread } from "../../src/mail/deliver.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { FakePi, makePeer, pathsInRoot, startFakePi } from "../support/fake-pi.ts";

describe("what was typed after /mailbox", () => {
	const names = ["review", "review team", "o'hara", "a.b"];

	test.each<[string, string, string]>([
		["reviewer please look", "reviewer", "please look"],
		["  lines\nof text ".trimStart(), "lines", "of text"],
		["x \n two\n lines ", "x", "two\n lines"],
		["review team please", "review team", "please"],
		["review teamwork please", "review", "teamwork please"],
		["review\tplease", "review", "please"],
		["reviewers please", "reviewers", "please"],
		["o'hara please", "o'hara", "please"],
		["a.b please", "a.b", "please"],
		["axb please", "axb", "please"],
		['"review team" please "look"', "review team", 'please "look"'],
		["'my session' please", "my session", "please"],
		["'it's me' please", "it's me", "please"],
		['"unfinished please', '"unfinished', "please"],
	])("PSM-037 %j goes to %j: %j", (argument, to, text) => {
		expect(parseArgument(argument, names)).toEqual({ to, text });
		expect(parseArgument(argument, names.toReversed())).toEqual({ to, text });
	});

	test.each(["reviewer", "review team", '"review team"', '"" please', "reviewer  ", ""])(
		"%j is not enough",
		(argument) => {
			expect(parseArgument(argument, names)).toBeUndefined();
		},
	);
});

describe("/mailbox", () => {
	useFakeMachine();

	const id = "0197a3f2-1111-7000-8000-00000000000a";
	let pi: FakePi;
	beforeEach(async () => {
		pi = await startFakePi({ id });
	});

	/** What the command says. */
	async function type(argument: string, session = pi): Promise<string | undefined> {
		session.notifications.splice(0);
		await session.type(`/mailbox ${argument}`);
		expect(session.notifications.length).toBeLessThan(2);
		return session.notifications[0];
	}

	/** The addresses that have a mailbox, and all mail and copies in them. */
	function onDisk(): string[] {
		return pathsInRoot().filter((path) => !path.endsWith("state.json") && !path.startsWith("running"));
	}

	const idOfLast = () => pi.names("sent").at(-1)?.slice(16, -".json".length);

	describe("alone, PSM-036", () => {
		test("shows address and name", async () => {
			expect(await type("")).toBe(
				`Mailbox address: ${id}\nName: none; other sessions see 0197a3f2 (set one with /name)`,
			);
			await pi.rename("reviewer");
			expect(await type("  ")).toBe(`Mailbox address: ${id}\nName: reviewer`);
		});

		test("D6 shows as much of the id as tells it from the other running sessions", async () => {
			await startFakePi({ id: "0197a3f2-1122-7000-8000-00000000000b" });
			expect(await type("")).toContain("other sessions see 0197a3f2-111 (");
		});

		test("D8 shows a name on one line", async () => {
			pi.session.appendSessionInfo("a\u001b[31mb\u202ec");
			expect(await type("")).toBe(`Mailbox address: ${id}\nName: a [31mb c`);
		});
	});

	describe("with a recipient and a text, PSM-037/087", () => {
		test("sends a request that no hop count stops, and says so", async () => {
			const reviewer = await startFakePi({ name: "reviewer" });
			const said = await type("reviewer   please look at branch x \n");
			const [sent = ""] = pi.names("sent");
			expect(said).toBe(`Sent ${sent.slice(16, -".json".length)} to ${reviewer.address}`);
			expect(reviewer.names("new")).toEqual([sent]);
			await later(1000);
			await reviewer.run();
			expect(reviewer.mails()[0]?.text).toContain("It sent a request.");
			expect(reviewer.mails()[0]?.text).toContain("\nplease look at branch x\n");
		});

		test("design 4.6 with --quiet sends a message that starts no turn", async () => {
			const reviewer = await startFakePi({ name: "code reviewer" });
			await later(1000);
			expect(await type("--quiet  code reviewer the parser is done")).toMatch(/^Sent \S+ to \S+$/);
			await later(60_000);
			expect([reviewer.hasRunToPlay, pi.status.get("mailbox"), reviewer.mails().length]).toEqual([false, undefined, 1]);
			expect(reviewer.mails()[0]?.text).toMatch(/It sent a message.*\n\nthe parser is done\n/);
		});

		test("reaches a session named --quiet in quotes", async () => {
			const other = await startFakePi({ name: "--quiet" });
			expect(await type('"--quiet" please')).toBe(`Sent ${idOfLast()} to ${other.address}`);
			for (const argument of ["--quiet", "--quiet nobody", "--quiet please"]) {
				expect(await type(argument)).toMatch(/^Nothing was sent: type \/mailbox <to> <text>/);
			}
			const items = (await pi.commands.get("mailbox")?.getArgumentCompletions?.("--q")) ?? [];
			expect(items.map(({ value }) => value)).toEqual(['"--quiet" ', "--quiet "]);
		});

		test("carries 0 hops, also in a run that mail has started", async () => {
			const peer = makePeer();
			peer.send(pi, { hops: 4 });
			await later(1000);
			await pi.run({ during: () => type(`${peer.address} please`) });
			expect(peer.received().map(({ kind, hops, body }) => [kind, hops, body])).toEqual([
				["request", 0, "please"],
				["reply", 5, "done"],
			]);
		});

		test.each([
			["the name", "review team please"],
			["the name in quotes", '"review team" please'],
			["the id", "0197a3f2-1122-7000-8000-00000000000b please"],
			["the id in capitals", "0197A3F2-1122-7000-8000-00000000000B please"],
			["a part of the id that only it has", "0197a3f2-112 please"],
		])("reaches a running session by %s", async (_, argument) => {
			const other = await startFakePi({ id: "0197a3f2-1122-7000-8000-00000000000b", name: "review team" });
			expect(await type(argument)).toMatch(new RegExp(`^Sent [0-9a-f-]{36} to ${other.address}$`));
		});

		test("waits for a closed session that is named by its full id, and says so", async () => {
			const other = await startFakePi();
			await other.shutDown();
			expect(await type(`${other.address} please`)).toMatch(
				/^Sent .*\nThat session is not running; the mail waits until it starts\.\n1 mail waits there\.$/,
			);
		});

		test("D16 says when nobody with that id was ever seen here", async () => {
			expect(await type("0197a3f2-9999-7000-8000-00000000000c please")).toMatch(
				/^Sent .*\nNo session with this id has been seen on this machine; the mail waits for one\.$/,
			);
		});

		test("PSM-039 shows in the footer at once that an answer is awaited", async () => {
			await type("0197a3f2-9999-7000-8000-00000000000c please");
			expect(pi.status.get("mailbox")).toBe("✉ 1 awaiting");
		});

		test("PSM-038 a session called prune gets its mail", async () => {
			const other = await startFakePi({ name: "prune" });
			expect(await type("prune please")).toMatch(new RegExp(`^Sent .* to ${other.address}$`));
		});
	});

	describe("refuses, writes nothing, and says what to do", () => {
		test.each([
			["no text", "reviewer", /^Nothing was sent: type \/mailbox <to> <text>, where /],
			["itself by id", `${id} please`, /^Nothing was sent: that is this session/],
			["itself by name", "author please", /^Nothing was sent: that is this session/],
			["itself by a part of its id", "0197a3f2-1111 please", /^Nothing was sent: that is this session/],
			[
				"several of one name",
				"twin please",
				/^Nothing was sent: "twin" could be twin \(0197.*b\), twin \(0197.*c\); use the full id\.$/,
			],
			[
				"a part that several ids have",
				"0197a3f2 please",
				/^Nothing was sent: "0197a3f2" could be .*\(0197.*a\), .*use the full id\.$/,
			],
			["too little of an id", "0197a3f please", /^Nothing was sent: "0197a3f" is too short for an id: type at least 8/],
			[
				"nobody of that name",
				"nobody please",
				/^Nothing was sent: no running session is called "nobody"; running: .*; a closed session is reached by its full id\.$/,
			],
			["a path", "../../etc please", /^Nothing was sent: no running session is called "\.\.\/\.\.\/etc"/],
			[
				"a name of the root's own folders",
				"running please",
				/^Nothing was sent: no running session is called "running"/,
			],
			[
				"too long a text",
				`0197a3f2-9999-7000-8000-00000000000c ${"x".repeat(2 ** 20 + 1)}`,
				/^Nothing was sent: the text has 1048577 bytes, more than the limit of 1048576\.$/,
			],
		])("PSM-032/033/034, D11 %s", async (_, argument, message) => {
			await pi.rename("author");
			await startFakePi({ id: "0197a3f2-2222-7000-8000-00000000000b", name: "twin" });
			await startFakePi({ id: "0197a3f2-3333-7000-8000-00000000000c", name: "twin" });
			const found = onDisk();
			expect(await type(argument)).toMatch(message);
			expect(onDisk()).toEqual(found);
			expect(pi.status.get("mailbox")).toBeUndefined();
		});

		test("gives back what was typed, in a terminal where nothing else was typed since", async () => {
			const terminal = await startFakePi({ mode: "tui" });
			await type(" nobody  please \n", terminal);
			expect(terminal.editor).toBe("/mailbox nobody  please");
			terminal.editor = "something else";
			await type("nobody please", terminal);
			expect(terminal.editor).toBe("something else");
			await type("nobody please");
			expect(pi.editor).toBe("");
		});

		test("when no other session runs", async () => {
			expect(await type("nobody please")).toBe(
				"Nothing was sent: no other session is running; a closed session is reached by its full id.",
			);
		});

		test("D10 when the other has too much unread mail", async () => {
			const other = await startFakePi({ mode: "print" });
			const peer = makePeer();
			for (let n = 0; n < maxUnread; n++) peer.send(other, { kind: "message" });
			const found = onDisk();
			expect(await type(`${other.address} please`)).toBe(
				`Nothing was sent: ${other.address} already has 256 unread mails; try again when it has read some.`,
			);
			expect(onDisk()).toEqual(found);
		});

		test("after the session has ended", async () => {
			const { commands } = pi;
			await pi.shutDown();
			const later = new FakePi({ extensions: [] });
			await later.start();
			for (const [name, command] of commands) later.commands.set(name, command);
			expect(await type("nobody please", later)).toBe(
				"Nothing was sent: this session has no mailbox, because it has ended.",
			);
			expect(existsSync(join(mailRoot(), "nobody"))).toBe(false);
		});
	});

	describe("completes recipients", () => {
		/** What is offered, as what it would put in and how it is shown; undefined for nothing. */
		async function offered(typed: string) {
			const items = await pi.commands.get("mailbox")?.getArgumentCompletions?.(typed);
			return items?.map(({ value, label, description }) => [value, label, description]);
		}

		beforeEach(async () => {
			await startFakePi({ id: "0197a3f2-2222-7000-8000-00000000000b", name: "review team" });
			await startFakePi({ id: "0197a3f2-3333-7000-8000-00000000000c" });
		});

		test("by name or id, with what they do and where; itself is not among them", async () => {
			const cwd = pi.session.getCwd();
			const [unnamed, named] = [
				["0197a3f2-3 ", "0197a3f2-3", `idle · ${cwd}`],
				['"review team" ', "review team", `idle · ${cwd}`],
			];
			const words = (await offered("")) ?? [];
			expect(words.slice(0, 2)).toEqual([unnamed, named]);
			expect(words.slice(2).map(([value]) => value)).toEqual([
				...["off", "on", "pause", "resume", "prune"],
				...["inbox", "sent", "waiting", "sessions", "calls", "approvals", "policy", "doctor"],
			]);
			expect(await offered("of")).toEqual([["off", "off", "keep mail waiting"]]);
			expect(await offered("off")).toBeUndefined();
			expect(await offered("Rev")).toEqual([named]);
			expect(await offered('"rev')).toEqual([named]);
			expect(await offered("0197a3f2-2")).toEqual([named]);
			expect(await offered("0197a3f2")).toEqual([unnamed, named]);
			expect(await offered("--quiet Rev")).toEqual([[`--quiet ${named[0]}`, ...named.slice(1)]]);
			expect(await offered("--quiet of")).toBeUndefined();
		});

		test("no more once a text has begun, nor when nobody fits", async () => {
			expect(await offered("0197a3f2-3 please")).toBeUndefined();
			expect(await offered('"review team" ')).toBeUndefined();
			expect(await offered("x")).toBeUndefined();
		});

		test.each([
			"a name of more than sixty characters, which a list shows only the beginning of",
			'the "big" one',
			"tab\there",
		])("so that what was put in reaches the session: %j", async (name) => {
			const other = await startFakePi({ name });
			const items = (await pi.commands.get("mailbox")?.getArgumentCompletions?.(name.slice(0, 3))) ?? [];
			expect(items).toHaveLength(1);
			expect(await type(`${items[0]?.value}please`)).toMatch(new RegExp(`^Sent .* to ${other.address}$`));
		});

		test("with a text behind it policy is a command: a session of that name is completed in quotes", async () => {
			const other = await startFakePi({ name: "policy" });
			expect((await offered("pol"))?.map(([value]) => value)).toEqual(['"policy" ', "policy"]);
			expect(await type('"policy" please')).toMatch(new RegExp(`^Sent .* to ${other.address}$`));
			expect(await type("policy please")).toBe("No toolPolicy is set: every call is allowed.");
		});

		test("PSM-032 so that what was put in reaches the one of two sessions of a name that was picked", async () => {
			const twins = [await startFakePi({ name: "twin" }), await startFakePi({ name: "twin" })];
			const values = (await offered("twin"))?.map(([value]) => value) ?? [];
			const reached = [await type(`${values[0]}please`), await type(`${values[1]}please`)].join();
			for (const { address } of twins) expect(reached).toContain(` to ${address}`);
		});

		test("D8 without control characters, wherever the other works", async () => {
			const other = await startFakePi({ name: "other" });
			const file = join(mailRoot(), "running", `${other.address}.json`);
			const record = { ...JSON.parse(readFileSync(file, "utf8")), cwd: "/\x1b[2J\n" };
			writeFileSync(file, JSON.stringify(record));
			expect(await offered("other")).toEqual([["other ", "other", "idle · / [2J "]]);
		});
	});
});
