import { mkdirSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { beforeEach, describe, expect, test, vi } from "vitest";
import sessionMail, { thisMachine } from "../../src/index.ts";
import { maxUnread } from "../../src/mail/deliver.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { diagnoseSession, piVersion, type SessionDiagnosis } from "../../src/session/doctor.ts";
import { temporaryFolder } from "../support/disk.ts";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, makePeer, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();
beforeEach(() => {
	// Files bear the time of the machine.
	vi.setSystemTime(vi.getRealSystemTime());
	vi.stubEnv("PI_CODING_AGENT_DIR", temporaryFolder());
});

/** What `/mailbox doctor` says, line by line. */
async function doctor(pi: FakePi): Promise<string[]> {
	pi.notifications.splice(0);
	const typed = pi.type("/mailbox doctor");
	await later(10);
	await typed;
	expect(pi.notifications).toHaveLength(1);
	return pi.notifications[0]?.split("\n") ?? [];
}

/** The same without what is well. */
async function problems(pi: FakePi): Promise<string[]> {
	return (await doctor(pi)).filter((line) => !line.startsWith("ok: "));
}

/** What is found of a session, without its Pi and its mail root. */
function found(changed: Partial<SessionDiagnosis> = {}) {
	const session = { isOwner: true, isReceiving: true, unwatchedBecause: undefined, running: { find: () => undefined } };
	const given = {
		pi: { getAllTools: () => [], getActiveTools: () => [] },
		ctx: { mode: "rpc", sessionManager: { getSessionId: () => "worker" }, isProjectTrusted: () => false },
		machine: { ...thisMachine(), root: () => join(temporaryFolder(), "none") },
		session,
		tools: [],
		otherCopies: [],
		...changed,
	};
	return [...diagnoseSession(given as unknown as SessionDiagnosis)].filter((finding) => finding !== undefined);
}

describe("/mailbox doctor", () => {
	test("says for each area that it is well, while the session is", async () => {
		const pi = await startFakePi({ name: "reviewer" });
		expect(await doctor(pi)).toEqual([
			"ok: this process receives the session's mail, which is watched for",
			expect.stringMatching(/^ok: Pi.* runs one copy of this package, whose tools are on$/),
			expect.stringMatching(/^ok: the mail root \S+ is a folder of yours/),
			expect.stringMatching(/^ok: the file system of /),
			expect.stringMatching(/^ok: the mailbox \S+ is whole$/),
			"ok: 1 session runs, and every record is one of them",
			"ok: no mail is stuck or was set aside in 1 mailbox",
			"ok: no prune was cut short",
			"ok: nothing bears a time that has not come",
			expect.stringMatching(/^ok: no settings are set: \S+session-mail\.json is not there$/),
		]);
	});

	test("says what is wrong first, and how to mend it below", async () => {
		const pi = await startFakePi();
		writeFileSync(join(mailRoot(), "running", "-x-.json"), "");
		const { address } = makePeer();
		for (let n = 0; n < maxUnread; n++) writeFileSync(join(mailRoot(), address, "new", `${n}.json`), "");
		const lines = await doctor(pi);
		expect(lines.slice(0, 5)).toEqual([
			`error: 256 mails wait for ${address}; more is refused`,
			`    in the folder where it worked, run: pi --session-id ${address}`,
			expect.stringMatching(/^warning: \S+-x-\.json is no record of a running session: its name is not an address$/),
			expect.stringMatching(/^ {4}if nobody needs it, run: rm -r -- '\S+-x-\.json'$/),
			expect.stringMatching(/^ok: /),
		]);
	});

	test("PSM-008 works in a session that can have no mailbox, and says what to do", async () => {
		mkdirSync(dirname(mailRoot()), { recursive: true });
		writeFileSync(mailRoot(), "");
		const pi = await startFakePi();
		expect(await problems(pi)).toEqual([
			expect.stringMatching(/^error: this session has no mailbox, because \S+ is not a folder$/),
			"    mend what else is found here, and type /reload",
			expect.stringMatching(/^error: \S+pi-session-mail is not a folder$/),
			expect.stringMatching(/^ {4}to keep what is there and begin with an empty folder, run: mv -i -- /),
		]);
		rmSync(mailRoot());
		await pi.reload();
		expect(await problems(pi)).toEqual([]);
	});

	test("D22 names the id that cannot be an address", async () => {
		const pi = await startFakePi({ id: "running" });
		expect((await problems(pi)).slice(0, 2)).toEqual([
			expect.stringMatching(
				/^error: this session has no mailbox, because the session id "running" cannot be an address/,
			),
			"    start Pi with another --session-id",
		]);
	});

	test("says that mail is off, until it is on", async () => {
		const pi = await startFakePi();
		await pi.type("/mailbox off");
		expect(await problems(pi)).toEqual(["warning: mail is off in this session: it waits", "    type /mailbox on"]);
		await pi.type("/mailbox on");
		expect(await problems(pi)).toEqual([]);
	});

	test("D7 says which process receives the session's mail, when another does", async () => {
		const first = await startFakePi();
		const file = join(mailRoot(), "running", `${first.address}.json`);
		const record = JSON.stringify({
			address: first.address,
			cwd: "/",
			pid: process.ppid,
			state: "idle",
			updated: "",
			x: {},
		});
		writeFileSync(file, record);
		await later(1000);
		expect(await problems(first)).toEqual([
			`warning: process ${process.ppid} has this session open and receives its mail; this one only sends`,
			"    close one of the two",
		]);
		rmSync(file);
		await later(1000);
		expect(await problems(first)).toEqual([]);
	});

	test("D25 names another copy of the package, and where it lies", async () => {
		const pi = await startFakePi({ extensions: [sessionMail, sessionMail] });
		const twice = [
			expect.stringMatching(/^warning: another copy of this package is loaded and does nothing: \/.*\/src\/index\.ts$/),
			expect.stringMatching(/run: pi remove <source>$/),
		];
		expect(await problems(pi)).toEqual(twice);
		await pi.reload();
		expect(await problems(pi)).toEqual(twice);
	});

	test("D25 names a tool that another extension has put in place of ours", async () => {
		const pi = await startFakePi();
		pi.tools.set("session_mail_send", {
			name: "session_mail_send",
			execute: async () => ({ content: [], details: {} }),
		});
		expect(await problems(pi)).toEqual([
			"error: the tool session_mail_send is that of another extension",
			expect.stringMatching(/run: pi remove <source>$/),
		]);
	});

	test("D25 names the tools that are switched off", async () => {
		const pi = await startFakePi();
		const toolsRemoved = ["session_mail_ask", "bash"].map((name) => ({ name }));
		pi.session.appendMessage({ role: "system", content: "", toolsRemoved, timestamp: 0 } as never);
		expect((await problems(pi))[0]).toBe(
			"warning: the model of this session cannot use session_mail_ask: switched off",
		);
	});

	test("L1 mail that was claimed and is stuck is gone from the findings when its session has started, as they say", async () => {
		const closed = await startFakePi();
		await closed.run({ prompt: "hello" });
		await later(1000);
		makePeer().send(closed);
		await later(1000);
		await closed.kill();
		rmSync(join(mailRoot(), "running", `${closed.address}.json`));
		expect(closed.openCount).toBe(1);
		const pi = await startFakePi();
		vi.setSystemTime(Date.now() + 25 * 60 * 60 * 1000);
		const lines = await problems(pi);
		expect(lines).toEqual([
			expect.stringMatching(
				`^warning: 1 mail for ${closed.address}, claimed 25 hours ago, did not get into its conversation`,
			),
			`    in the folder where it worked, run: pi --session-id ${closed.address}`,
		]);
		await startFakePi({ file: closed.file, reason: "resume" });
		await later(2000);
		expect(await problems(pi)).toEqual([]);
	});

	test("D26 a prune that was cut short is ended by the command that the finding names", async () => {
		const peer = makePeer();
		const aside = join(mailRoot(), `.pruning.${peer.address}.0197a3f2-1111-7000-8000-00000000000a`);
		const pi = await startFakePi();
		await vi.waitFor(() => expect(readdirSync(mailRoot())).not.toContain(".prune.lock"));
		renameSync(join(mailRoot(), peer.address), aside);
		vi.setSystemTime(Date.now() + 60 * 60 * 1000);
		expect((await problems(pi))[1]).toMatch(/^ {4}in a Pi session type \/mailbox prune/);
		await pi.type("/mailbox prune");
		await vi.waitFor(async () => {
			await later(10);
			expect(readdirSync(mailRoot()).filter((name) => name.startsWith(".pruning"))).toEqual([]);
		});
		expect(await problems(pi)).toEqual([]);
	});

	test("L10 says nothing when the session has ended meanwhile", async () => {
		const pi = await startFakePi();
		const typed = pi.type("/mailbox doctor");
		await pi.shutDown();
		await later(10);
		await typed;
		expect([pi.notifications, pi.errors]).toEqual([[], []]);
	});

	test("prints in print mode, where mail is not watched for", async () => {
		const pi = await startFakePi({ mode: "json" });
		const error = vi.spyOn(console, "error").mockImplementation(() => {});
		const typed = pi.type("/mailbox doctor");
		await later(10);
		await typed;
		expect(error.mock.calls).toEqual([[expect.stringMatching(/^ok: .*looked for between two tool calls/)]]);
	});

	test("is a session's name when a text is behind it", async () => {
		const other = await startFakePi({ name: "doctor" });
		const pi = await startFakePi();
		await pi.type("/mailbox doctor please");
		expect(pi.notifications).toEqual([expect.stringMatching(`^Sent .* to ${other.address}$`)]);
	});
});

describe("what a session knows of its watch", () => {
	const onLinux = test.skipIf(process.platform !== "linux");

	test("L5 a watch that was lost is named with its reason", () => {
		const session = {
			isOwner: true,
			isReceiving: true,
			unwatchedBecause: "EIO: x",
			running: { find: () => undefined },
		};
		expect(found({ session: session as never })[0]).toMatchObject({
			level: "warning",
			what: expect.stringMatching(/^new mail is looked for every two seconds instead of watched for: EIO: x/),
		});
	});

	onLinux.each([
		["ENOSPC: System limit for number of file watchers reached", "max_user_watches"],
		["EMFILE: too many open files, watch", "max_user_instances"],
	])("L5 on Linux with the limits, and the command that doubles the one that was reached: %s", (reason, limit) => {
		const session = { isOwner: true, isReceiving: true, unwatchedBecause: reason, running: { find: () => undefined } };
		const { what, mend = "" } = found({ session: session as never })[0] ?? { what: "" };
		expect(what).toMatch(/\(fs\.inotify\.max_user_watches is \d+, fs\.inotify\.max_user_instances is \d+\)$/);
		const [, now] = new RegExp(`${limit} is (\\d+)`).exec(what) ?? [];
		expect(mend).toMatch(new RegExp(`run: sudo sysctl -w fs\\.inotify\\.${limit}=${2 * Number(now)}$`));
	});
});

describe("Pi's version", () => {
	function program(version: unknown, name = "@earendil-works/pi-coding-agent"): string {
		const folder = temporaryFolder();
		mkdirSync(join(folder, "dist/bundle"), { recursive: true });
		writeFileSync(join(folder, "package.json"), JSON.stringify({ name, version }));
		writeFileSync(join(folder, "dist/bundle/cli.js"), "");
		const link = join(temporaryFolder(), "pi");
		symlinkSync(join(folder, "dist/bundle/cli.js"), link);
		return link;
	}

	test("is that of the package of the program that runs, behind its link", () => {
		expect(piVersion(program("1.6.0"))).toBe("1.6.0");
	});

	test.each([
		["another host", () => program("3.0.0", "some-host")],
		["a package without one", () => program(undefined)],
		["no such program", () => "/nowhere/pi"],
		["no program", () => undefined],
	])("cannot be told of %s", (_, make) => {
		expect(piVersion(make())).toBeUndefined();
	});

	test("D2 one that is too old is a finding, and 1.0 is not", () => {
		vi.spyOn(process, "argv", "get").mockReturnValue(["node", program("0.87.2")]);
		expect(found()[1]).toEqual({
			level: "error",
			what: "Pi 0.87.2 is too old: 1.0 or later is needed",
			mend: "run: pi update",
		});
		vi.spyOn(process, "argv", "get").mockReturnValue(["node", program("1.0.3")]);
		expect(found()[1]).toMatchObject({ level: "ok", what: expect.stringMatching(/^Pi 1\.0\.3 runs one copy/) });
	});
});
