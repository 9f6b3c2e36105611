import { spawn, spawnSync } from "node:child_process";
import { renameSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import * as z from "zod/mini";
import { type Command, commands } from "../../src/cli/commands.ts";
import { schemas } from "../../src/cli/schemas.ts";
import { maxBodyBytes } from "../../src/mail/envelope.ts";
import { temporaryFolder } from "../support/disk.ts";
import { cleanUp, eventually, repository } from "../support/pi.ts";
import { type ProgramHome, programHome } from "../support/program.ts";

const bob = "01980f5e-7a3c-7d10-8f00-00000000000b";
const other = "11111111-2222-4333-8444-555555555555";
/** script(1) of util-linux gives a program a terminal. */
const hasScript = process.platform === "linux" && spawnSync("script", ["--version"]).status === 0;
const hostile = "\x1b[2J\x9b1m\u202eevil\x07\r\n\u2028next\x7f";

afterEach(cleanUp);

let home: ProgramHome;
beforeEach(() => {
	home = programHome(temporaryFolder());
});

describe("help", () => {
	test("names every command and exit code, and goes to standard output when it was asked for", async () => {
		const { code, stdout, stderr } = await home.run(["--help"]);
		expect([code, stderr]).toEqual([0, ""]);
		for (const name of Object.keys(commands)) expect(stdout).toMatch(new RegExp(`^  ${name} `, "m"));
		for (const exit of [0, 1, 2, 3, 4, 130]) expect(stdout).toMatch(new RegExp(`^  ${exit} `, "m"));
		for (const { exits } of Object.values<Command>(commands)) {
			for (const meaning of Object.values(exits)) expect(stdout).toContain(meaning);
		}
		expect(await home.run([])).toMatchObject({ code: 2, stdout: "" });
	});

	test.each(Object.entries(commands))(
		"of %s says how it is used, with its options",
		async (name, { usage, options }) => {
			const { code, stdout } = await home.run([name, "--help"]);
			expect(code).toBe(0);
			expect(stdout.split("\n")[0]).toBe(`Usage: pi-session-mail ${name} ${usage}`.trim());
			for (const option of Object.keys(options)) expect(stdout).toContain(`--${option}`);
			expect(await home.run(["help", name])).toMatchObject({ stdout });
		},
	);

	test("--version is that of the package", async () => {
		const { version } = await import(join(repository, "package.json"), { with: { type: "json" } }).then(
			(m) => m.default,
		);
		expect(await home.run(["--version"])).toMatchObject({ code: 0, stdout: `${version}\n` });
	});
});

test("--from and --json may stand before the command as well as behind it", async () => {
	home.session(bob, { name: "bob" });
	const before = await home.run(["--json", "--from", "ci", "send", "bob", "hi"]);
	expect(before).toMatchObject({ code: 0, stderr: "" });
	expect(JSON.parse(before.stdout)).toMatchObject({ from: "ci", to: bob });
	expect(await home.run(["--from=ci", "sent"])).toMatchObject({ code: 0, stdout: expect.stringContaining("hi") });
	expect(await home.run(["--from", "ci"])).toMatchObject({ code: 2 });
});

describe("what cannot be understood ends with 2, sends nothing, and says the nearest", () => {
	test.each([
		[["lst"], "there is no command lst, did you mean list"],
		[["--hepl"], "did you mean --help"],
		[["send", "bob", "hi", "--jsn"], "did you mean --json"],
		[["ask", "bob", "hi", "--timeout", "soon"], "--timeout takes a whole number"],
		[["ask", "bob", "hi", "--timeout"], "--timeout"],
		[["send"], "say who gets the mail"],
		[["read", "a", "b", "--from", "ci"], "read takes one id"],
		[["completion", "fish"], "bash or zsh"],
		[["send", "bob", "hi", "--request", "--quiet", "--from", "ci"], "a request cannot be quiet"],
		[["send", "bob", "hi", "--id", "x"], "give --from NAME"],
	])("%j", async (args, said) => {
		home.session(bob, { name: "bob" });
		expect(await home.run(args)).toMatchObject({ code: 2, stdout: "", stderr: expect.stringContaining(said) });
		expect(home.mails(bob, "new")).toEqual([]);
	});

	test("with --json the error is JSON on standard error", async () => {
		const { code, stdout, stderr } = await home.run(["send", "nobody", "hi", "--json"]);
		expect([code, stdout]).toEqual([1, ""]);
		expect(JSON.parse(stderr)).toMatchObject({
			error: { code: "unknown", message: expect.stringContaining("Nothing was sent") },
		});
	});
});

describe("a message", () => {
	test("without a name comes from an address that is gone when it was sent", async () => {
		const session = home.session(bob, { name: "bob" });
		expect(await home.run(["send", "bob", "the", "build", "is", "green"])).toMatchObject({
			code: 0,
			stdout: expect.stringMatching(/^Sent .* to bob/),
		});
		const mail = await session.take();
		expect(mail).toMatchObject({ kind: "message", body: "the build is green", x: { program: true } });
		expect(home.names().filter((name) => name.includes("send-"))).toEqual([]);
		expect(session.mailbox.deliver({ to: mail.from, kind: "message", body: "thanks", hops: 0 })).toMatchObject({
			ok: false,
			code: "ended",
		});
	});

	test.each(["inbox", "read", "sent"])("of nobody in particular: %s says that it needs a name", async (command) => {
		expect(await home.run([command])).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("Nothing was done: say whose mail it is with --from NAME"),
		});
		expect(home.names("running")).toEqual([]);
	});

	test("can be given on standard input, and a request without a name is refused with what to do", async () => {
		const session = home.session(bob, { name: "bob" });
		expect(await home.run(["send", "bob"], { input: "from a pipe\n" })).toMatchObject({ code: 0 });
		expect((await session.take()).body).toBe("from a pipe");
		expect(await home.run(["send", "bob", "-"], { input: "as well" })).toMatchObject({ code: 0 });
		expect((await session.take()).body).toBe("as well");
		expect(await home.run(["send", "bob", "do it", "--request"])).toMatchObject({
			code: 1,
			stderr: expect.stringMatching(/--from NAME, or use ask/),
		});
	});

	test("L7 from a pipe that never ends is cut off at the limit, and nothing is sent", async () => {
		home.session(bob, { name: "bob" });
		const sending = home.start(["send", "bob", "-"]);
		const part = "x".repeat(64 * 1024);
		let isOver = false;
		void sending.ended.then(() => {
			isOver = true;
		});
		for (let bytes = 0; !isOver && bytes < 100 * maxBodyBytes; bytes += part.length) {
			sending.child.stdin.write(part);
			await sleep(1);
		}
		expect(await sending.ended).toMatchObject({
			code: 1,
			stdout: "",
			stderr: expect.stringContaining(`${maxBodyBytes} bytes`),
		});
		expect(home.mails(bob, "new")).toEqual([]);
	});

	test("that is no UTF-8 is refused", async () => {
		home.session(bob, { name: "bob" });
		expect(await home.run(["send", "bob"], { input: new Uint8Array([0xff, 0xfe]) })).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("UTF-8"),
		});
	});

	test("of the same id is sent once", async () => {
		home.session(bob, { name: "bob" });
		const id = "11111111-2222-4333-8444-555555555555";
		const args = ["send", "bob", "hello", "--from", "ci", "--id", id];
		expect(await home.json(args)).toMatchObject({ id, duplicate: false });
		expect(await home.json(args)).toMatchObject({ id, duplicate: true });
		expect(home.mails(bob, "new")).toHaveLength(1);
	});
});

describe("a program with a name", () => {
	test("gets its mail like a session: it waits, is read once, and is answered once", async () => {
		const session = home.session(bob, { name: "bob" });
		expect(await home.json(["send", "bob", "do it", "--request", "--from", "ci"])).toMatchObject({
			kind: "request",
			from: "ci",
		});
		const request = await session.take();
		session.answer(request, "done so");
		const asked = session.mailbox.deliver({ to: "ci", kind: "ask", body: "which branch?", hops: 0 });
		if (!asked.ok) throw new Error(asked.message);
		expect(await home.json(["inbox", "--from", "ci"])).toMatchObject({ mails: [{ kind: "reply" }, { kind: "ask" }] });

		expect(await home.run(["read", "--from", "ci"])).toMatchObject({
			code: 0,
			stdout: expect.stringContaining("\n\ndone so\n"),
		});
		expect(await home.json(["read", "--from", "ci"])).toMatchObject({
			mails: [{ id: asked.envelope.id, body: "which branch?" }],
		});
		expect(await home.json(["read", "--from", "ci"])).toEqual({ mails: [] });
		expect(await home.json(["read", asked.envelope.id.slice(0, 8), "--from", "ci"])).toMatchObject({
			mails: [{ body: "which branch?" }],
		});

		const reply = ["reply", asked.envelope.id, "--from", "ci"];
		expect(await home.run([...reply, "main"])).toMatchObject({ code: 0 });
		expect(await session.take()).toMatchObject({
			kind: "reply",
			status: "done",
			body: "main",
			in_reply_to: [asked.envelope.id],
		});
		expect(await home.run([...reply, "another"])).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("already answered"),
		});
		expect(await home.run(["reply", request.id, "no", "--from", "ci"])).toMatchObject({ code: 1 });
		expect(session.mailbox.waiting()).toEqual([]);
	});

	test("L2 has nothing open that it was shown, and is shown once more what a reader that was killed had claimed", async () => {
		const session = home.session(bob, { name: "bob" });
		const open = () => home.names("ci", "cur").filter((name) => name.endsWith(".open"));
		for (const body of ["first", "second", "third"]) {
			session.mailbox.deliver({ to: "ci", kind: "message", body, hops: 0 });
		}
		expect(await home.run(["read", "--from", "ci"])).toMatchObject({ stdout: expect.stringContaining("first") });
		expect(await home.json(["read", "--from", "ci"])).toMatchObject({ mails: [{ body: "second" }] });
		expect(open()).toEqual([]);
		const [name = ""] = home.names("ci", "new");
		renameSync(join(home.root, "ci/new", name), join(home.root, "ci/cur", name));
		const mark = join(home.root, "ci/cur", `${name}.open`);
		writeFileSync(mark, "");
		// Another reader may be showing it just now.
		expect(await home.json(["read", "--from", "ci"])).toEqual({ mails: [] });
		await sleep(2500);
		expect(await home.json(["read", "--from", "ci"])).toMatchObject({ mails: [{ body: "third" }] });
		expect(open()).toEqual([]);
	});

	/** Marks the mail that was read as claimed by a reader that was killed. */
	function markLeft(): void {
		const [name = ""] = home.names("ci", "cur");
		const mark = join(home.root, "ci", "cur", `${name}.open`);
		writeFileSync(mark, "");
		// Not just now, or another reader may be showing it; by a clock that was ahead.
		utimesSync(mark, Date.now() / 1000 + 60, Date.now() / 1000 + 60);
	}

	test("L2 does not wait for mail while there is some that a reader that was killed had claimed", async () => {
		home.session(bob, { name: "bob" }).mailbox.deliver({ to: "ci", kind: "message", body: "left", hops: 0 });
		await home.run(["read", "--from", "ci"]);
		markLeft();
		expect(await home.json(["read", "--wait", "1", "--from", "ci"])).toMatchObject({ mails: [{ body: "left" }] });
	});

	test("L2 is shown once what a reader that was killed had claimed, also with all that waits and as JSON", async () => {
		const session = home.session(bob, { name: "bob" });
		for (const body of ["left", "waits"]) session.mailbox.deliver({ to: "ci", kind: "message", body, hops: 0 });
		await home.run(["read", "--from", "ci"]);
		markLeft();
		const { mails } = z.parse(schemas.read, await home.json(["read", "--all", "--from", "ci"]));
		expect(mails.map(({ body }) => body)).toEqual(["left", "waits"]);
		expect(home.names("ci", "cur").filter((name) => name.endsWith(".open"))).toEqual([]);
	});

	test.each(["claimed by now", "left by a reader that was killed"])(
		"L3 D12 an ask that cannot be read, %s, is answered so and set aside",
		async (state) => {
			home.session(bob, { name: "bob" });
			await home.run(["read", "--from", "ci"]);
			const name = `000000000000001-${other}.json`;
			const ask = {
				id: other,
				from: bob,
				to: "ci",
				kind: "ask",
				hops: -1,
				in_reply_to: [],
				status: "",
				ts: "",
				body: "x",
			};
			const isLeft = state.startsWith("left");
			writeFileSync(join(home.root, "ci", isLeft ? "cur" : "new", name), JSON.stringify(ask));
			if (isLeft) markLeft();
			const { stdout, stderr } = await home.run(["read", "--from", "ci"]);
			expect([stdout, stderr]).toEqual([
				"",
				expect.stringMatching(`^warning: .*${name} cannot be read and was set aside: `),
			]);
			expect(home.names("ci", "cur")).toEqual([name, `${name}.reason`]);
			expect(home.mails(bob, "new")).toMatchObject([{ kind: "reply", status: "failed", in_reply_to: [other] }]);
		},
	);

	test("can wait for its mail, is listed meanwhile, and ends with 4 when none comes", async () => {
		const session = home.session(bob, { name: "bob" });
		const reading = home.start(["read", "--wait", "60", "--json", "--from", "ci"]);
		await eventually(() => home.names("running").includes("ci.json"));
		expect(await home.run(["read", "--wait", "1", "--from", "ci"])).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("already waits"),
		});
		session.mailbox.deliver({ to: "ci", kind: "message", body: "here", hops: 0 });
		const { code, stdout } = await reading.ended;
		expect([code, JSON.parse(stdout).mails[0].body]).toEqual([0, "here"]);
		expect(await home.run(["read", "--wait", "1", "--from", "ci"])).toMatchObject({ code: 4, stdout: "" });
		expect(home.names("running")).toEqual([`${bob}.json`]);
	});

	test("D28 sees what became of what it sent, and takes back what nobody has claimed", async () => {
		const session = home.session(bob, { name: "bob" });
		await home.run(["send", "bob", "first", "--from", "ci"]);
		await session.take();
		await home.run(["send", "bob", "second", "--from", "ci"]);
		const sent = z.parse(schemas.sent, await home.json(["sent", "--from", "ci"]));
		expect(sent.mails).toMatchObject([
			{ body: "second", status: "queued" },
			{ body: "first", status: "taken" },
		]);
		const [second, first] = sent.mails;
		expect(await home.json(["retract", second?.id ?? "", "--from", "ci"])).toMatchObject({ id: second?.id });
		expect(home.mails(bob, "new")).toEqual([]);
		expect(await home.run(["retract", first?.id ?? "", "--from", "ci"])).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("has it already"),
		});
		for (const again of [
			["retract", second?.id ?? ""],
			["edit", second?.id ?? "", "new"],
		]) {
			expect(await home.run([...again, "--from", "ci"])).toMatchObject({
				code: 1,
				stderr: expect.stringContaining("it was taken back already"),
			});
		}
	});

	test("sees what became of the rest when a power cut has left one of the copies unreadable", async () => {
		home.session(bob, { name: "bob" });
		for (const body of ["first", "second"]) await home.run(["send", "bob", body, "--from", "ci"]);
		const [first = ""] = home.names("ci", "sent");
		writeFileSync(join(home.root, "ci", "sent", first), Buffer.alloc(10, 0xff));
		expect(await home.json(["sent", "--from", "ci"])).toMatchObject({ mails: [{ body: "second", status: "queued" }] });
	});

	test("D28 changes what nobody has claimed: its recipient sees the new text only, from a program as before", async () => {
		const session = home.session(bob, { name: "bob" });
		await home.run(["send", "bob", "old", "--quiet", "--from", "ci"]);
		const [old] = home.mails(bob, "new");
		const edited = z.parse(schemas.edit, await home.json(["edit", (old?.id ?? "").slice(0, 8), "new", "--from", "ci"]));
		expect(edited).toMatchObject({ to: bob, replaces: old?.id });
		expect(await session.take()).toMatchObject({
			id: edited.id,
			kind: "message",
			body: "new",
			x: { quiet: true, program: true, replaces: old?.id },
		});
		expect(home.mails(bob, "new")).toEqual([]);
		expect(await home.json(["sent", "--from", "ci"])).toMatchObject({
			mails: [
				{ id: edited.id, status: "taken" },
				{ id: old?.id, status: "retracted" },
			],
		});
		expect(await home.run(["edit", edited.id, "-", "--from", "ci"], { input: "newer" })).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("Nothing was changed: its recipient has it already"),
		});
		expect(await home.run(["edit", edited.id, " ", "--from", "ci"])).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("the text is empty"),
		});
		expect(await home.run(["edit", "--from", "ci"])).toMatchObject({ code: 2 });
	});

	test("L2 sends with its next command the new text of a mail that a killed edit had taken back", async () => {
		const session = home.session(bob, { name: "bob" });
		await home.run(["send", "bob", "old", "--request", "--from", "ci"]);
		const [name = ""] = home.names(bob, "new");
		const old = await session.take();
		const text = JSON.stringify({ ...old, id: other, body: "new", x: { program: true, replaces: old.id } });
		renameSync(join(home.root, "ci", "sent", name), join(home.root, "ci", "sent", `${name}.retracted`));
		writeFileSync(join(home.root, "ci", "tmp", `${name}.edit`), text);
		// Another program of this name may be at it.
		await home.run(["inbox", "--from", "ci"]);
		expect(home.mails(bob, "new")).toEqual([]);
		await sleep(2500);
		for (let time = 0; time < 2; time++) await home.run(["inbox", "--from", "ci"]);
		expect(home.mails(bob, "new")).toMatchObject([{ id: other, body: "new", x: { program: true, replaces: old.id } }]);
		expect(home.names("ci", "tmp")).toEqual([]);
	});

	test("D28 does not change an ask whose answer one of its programs waits for", async () => {
		home.session(bob, { name: "bob" });
		const ask = home.start(["ask", "bob", "is it green?", "--from", "ci"]);
		const sent = await eventually(() => home.mails("ci", "sent")[0], { what: "The ask" });
		expect(await home.run(["edit", sent.id, "is it red?", "--from", "ci", "--json"])).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("waited_for"),
		});
		ask.child.kill("SIGINT");
		await ask.ended;
	});

	test.each([
		[bob, "is the id of a Pi session"],
		["ask-aaaaaaaaaaaaaaaa", "programs without a name"],
		["../etc", "cannot be a name"],
		["running", "is the name of one of the mailbox's own folders"],
	])("cannot be called %s", async (name, said) => {
		expect(await home.run(["inbox", "--from", name])).toMatchObject({ code: 1, stderr: expect.stringContaining(said) });
	});

	test("L2 cannot take the mail of a session that is not running", async () => {
		home.session("nightly").record.release();
		const session = home.session(bob, { name: "bob" });
		const mailbox = home.session("nightly");
		mailbox.mailbox.deliver({ to: bob, kind: "message", body: "hi", hops: 0 });
		expect(await home.run(["read", "--from", "nightly"])).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("a Pi session"),
		});
		mailbox.record.release();
		session.mailbox.deliver({ to: "nightly", kind: "request", body: "for the session", hops: 0 });
		expect(await home.run(["read", "--from", "nightly"])).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("a Pi session"),
		});
		expect(home.mails("nightly", "new")).toHaveLength(1);
	});

	test("does not get the mail of a session that is called the same", async () => {
		home.session(bob, { name: "reviewer" });
		const watching = home.start(["watch", "--from", "reviewer"]);
		await eventually(() => home.names("running").includes("reviewer.json"));
		expect(await home.run(["send", "reviewer", "hello"])).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("could be"),
		});
		watching.child.kill("SIGTERM");
		await watching.ended;
		expect(await home.run(["send", "reviewer", "hello"])).toMatchObject({ code: 0 });
		expect(home.mails(bob, "new")).toHaveLength(1);
		expect(home.mails("reviewer", "new")).toEqual([]);
	});
});

describe("what the program prints", () => {
	test("L8 cannot control the terminal, whatever a name or a mail holds", async () => {
		const session = home.session(bob, { name: `bob${hostile}`, cwd: `/tmp/${hostile}` });
		session.mailbox.deliver({ to: "ci", kind: "message", body: `${hostile}${"x".repeat(100_000)}`, hops: 0 });
		home.names();
		const outputs = [
			await home.run(["list"]),
			await home.run(["list", "--names"]),
			await home.run(["list", "--json"]),
			await home.run(["inbox", "--from", "ci"]),
			await home.run(["send", hostile, "hi"]),
			await home.run([hostile]),
			await home.run(["read", "--json", "--from", "ci"]),
			await home.run(["doctor"]),
		];
		for (const { stdout, stderr } of outputs) {
			// biome-ignore lint/suspicious/noControlCharactersInRegex: that is what must not come
			expect(stdout + stderr).not.toMatch(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]/);
		}
		const [printed] = z.parse(schemas.read, JSON.parse(outputs[6]?.stdout ?? "")).mails;
		expect(printed?.body.startsWith(hostile.slice(0, 4))).toBe(true);
	});

	test("ends quietly when nobody reads on, and the mail that was not seen waits on", async () => {
		const session = home.session(bob, { name: "bob" });
		for (let n = 0; n < 30; n++) {
			session.mailbox.deliver({ to: "ci", kind: "message", body: `${n} ${"x".repeat(50_000)}`, hops: 0 });
		}
		const env = { PATH: process.env.PATH, XDG_STATE_HOME: join(home.root, "..") };
		const command = `"${process.execPath}" "${join(repository, "src/cli.cjs")}" read --all --from ci | head -n 3; echo "\${PIPESTATUS[0]}"`;
		const child = spawn("bash", ["--norc", "-c", command], { env });
		const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
		expect(stderr).toBe("");
		expect(stdout.trim().endsWith("\n0")).toBe(true);
		const left = z.parse(schemas.inbox, await home.json(["inbox", "--from", "ci"])).mails.length;
		expect(left).toBeGreaterThan(20);
	});

	test.skipIf(!hasScript)(
		"is ASCII on a terminal without Unicode, and has colours only on a terminal that has some",
		async () => {
			home.session(bob, { name: "b\u00f6b \u2709" });
			const onTerminal = async (env: Record<string, string>) => {
				const child = spawn(
					"script",
					["-qec", `"${process.execPath}" "${join(repository, "src/cli.cjs")}" list`, "/dev/null"],
					{
						env: { PATH: process.env.PATH ?? "", XDG_STATE_HOME: join(home.root, ".."), TERM: "xterm", ...env },
					},
				);
				child.stdin.end();
				return text(child.stdout);
			};
			const ascii = await onTerminal({ LANG: "C", NO_COLOR: "1" });
			expect(ascii).toContain("b?b");
			// biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII
			expect(ascii).toMatch(/^[\x00-\x7f]*$/);
			expect(ascii).not.toContain("\x1b");
			expect(await onTerminal({ LANG: "C.UTF-8" })).toContain("\x1b[1mb\u00f6b \u2709\x1b[0m");
			expect((await home.run(["list"])).stdout).not.toContain("\x1b");
		},
	);
});

test("a root that is not there yet is no error: nobody runs, nothing is pruned, and mail can wait", async () => {
	expect(await home.json(["list"])).toEqual({ sessions: [] });
	expect(await home.json(["prune"])).toEqual({ removed: [], warnings: [] });
	expect(await home.run(["doctor"])).toMatchObject({ code: 0 });
	expect(home.names()).toEqual([]);
	expect(await home.run(["send", bob, "for later"])).toMatchObject({
		code: 0,
		stdout: expect.stringContaining("No session with this id has been seen"),
	});
	expect(home.mails(bob, "new")).toHaveLength(1);
});

test("prune removes the folders of closed sessions, keeps unread mail, and says how many", async () => {
	home.session(bob).record.release();
	const closed = home.session("01980f5e-7a3c-7d10-8f00-00000000000c");
	closed.record.release();
	home.session("open", { name: "open" }).mailbox.deliver({ to: bob, kind: "message", body: "unread", hops: 0 });
	expect(await home.json(["prune"])).toEqual({ removed: [closed.address], warnings: [] });
	expect(home.mails(bob, "new")).toHaveLength(1);
	expect(await home.run(["prune"])).toMatchObject({
		code: 0,
		stdout: "Removed 0 mailbox folders of closed sessions.\n",
	});
});

describe("watch", () => {
	test("prints a line for each event as it happens, and its record goes when it is interrupted", async () => {
		const session = home.session(bob, { name: "bob" });
		const watching = home.start(["watch", "--json", "--from", "ci"]);
		const events = () =>
			watching
				.printed()
				.split("\n")
				.slice(0, -1)
				.map((line) => z.parse(schemas.watch, JSON.parse(line)));
		const until = (event: object) =>
			eventually(() => {
				expect(events()).toContainEqual(expect.objectContaining(event));
				return true;
			});
		await until({ event: "started", session: expect.objectContaining({ name: "bob" }) });
		expect(await home.json(["list"])).toMatchObject({ sessions: [{}, { address: "ci", program: true }] });
		session.record.update({ state: "busy" });
		await until({ event: "changed", session: expect.objectContaining({ state: "busy" }) });
		session.mailbox.deliver({ to: "ci", kind: "message", body: "hello", hops: 0 });
		await until({ event: "mail", mail: expect.objectContaining({ body: "hello" }) });
		await home.run(["send", "bob", "look", "--from", "ci"]);
		await until({ event: "sent", status: "queued" });
		await session.take();
		await until({ event: "sent", status: "taken" });
		session.record.release();
		await until({ event: "ended" });
		watching.child.kill("SIGINT");
		expect(await watching.ended).toMatchObject({ code: 130, stderr: "" });
		expect(home.names("running")).toEqual([]);
		// It claimed nothing.
		expect(home.mails("ci", "new")).toHaveLength(1);
	});

	test("says once that it cannot look at its mail any more, and watches the sessions on", async () => {
		const watching = home.start(["watch", "--from", "ci"]);
		await eventually(() => home.names("running").includes("ci.json"));
		rmSync(join(home.root, "ci", "sent"), { recursive: true });
		writeFileSync(join(home.root, "ci", "sent"), "");
		home.session(bob, { name: "bob" });
		await eventually(() => watching.printed().includes("bob"));
		watching.child.kill("SIGTERM");
		const { stderr } = await watching.ended;
		expect(stderr).toMatch(/^warning: Nothing was done: ENOTDIR.*\n$/);
	});

	test("ends quietly when nobody reads its lines any more", async () => {
		const session = home.session(bob, { name: "bob" });
		const watching = home.start(["watch"]);
		await eventually(() => watching.printed() !== "");
		watching.child.stdout.destroy();
		session.record.update({ state: "busy" });
		expect(await watching.ended).toMatchObject({ code: 0, stderr: "" });
	});
});

test.each(["bash", "zsh"])("completion for %s is a script that this shell takes", async (shell) => {
	const { code, stdout } = await home.run(["completion", shell]);
	expect(code).toBe(0);
	expect(stdout).toContain("complete -F _pi_session_mail pi-session-mail");
	const child = spawn(
		"bash",
		[
			"--norc",
			"-c",
			`eval "$SCRIPT"; COMP_WORDS=(pi-session-mail se); COMP_CWORD=1; _pi_session_mail; echo "\${COMPREPLY[@]}"`,
		],
		{
			env: { PATH: process.env.PATH, SCRIPT: stdout.replace(/^autoload.*\n/, "") },
		},
	);
	expect((await text(child.stdout)).trim()).toBe("send sent");
});

describe("the schema of --json", () => {
	test("is that of what every command prints", async () => {
		const session = home.session(bob, { name: "bob" });
		z.parse(schemas.list, await home.json(["list"]));
		z.parse(schemas.send, await home.json(["send", "bob", "hi", "--from", "ci"]));
		z.parse(schemas.sent, await home.json(["sent", "--from", "ci"]));
		const asked = session.mailbox.deliver({ to: "ci", kind: "ask", body: "?", hops: 0 });
		if (!asked.ok) throw new Error(asked.message);
		z.parse(schemas.inbox, await home.json(["inbox", "--from", "ci"]));
		z.parse(schemas.read, await home.json(["read", "--from", "ci"]));
		z.parse(schemas.reply, await home.json(["reply", asked.envelope.id, "yes", "--from", "ci"]));
		const message = z.parse(schemas.send, await home.json(["send", "bob", "no", "--from", "ci"]));
		const edited = z.parse(schemas.edit, await home.json(["edit", message.id, "changed", "--from", "ci"]));
		z.parse(schemas.retract, await home.json(["retract", edited.id, "--from", "ci"]));
		z.parse(schemas.doctor, await home.json(["doctor"]));
		z.parse(schemas.prune, await home.json(["prune"]));
		const { stdout } = await home.run(["ask", "bob", "?", "--timeout", "1", "--json"]);
		expect(z.parse(schemas.ask, JSON.parse(stdout))).toMatchObject({ outcome: "timed-out" });
	});
});
