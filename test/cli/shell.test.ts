import { spawn } from "node:child_process";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { temporaryFolder } from "../support/disk.ts";
import { atCleanUp, cleanUp, eventually, repository } from "../support/pi.ts";
import { type PlayedSession, type ProgramHome, programHome } from "../support/program.ts";

const ann = "01980f5e-7a3c-7d10-8f00-00000000000a";
const bob = "01980f5e-7a3c-7d10-8f00-00000000000b";
const inAnn = { env: { PI_SESSION_ID: ann } };

afterEach(cleanUp);

let home: ProgramHome;
let session: PlayedSession;
beforeEach(() => {
	home = programHome(temporaryFolder());
	session = home.session(bob, { name: "bob" });
});

describe("in the shell of a Pi session a program", () => {
	test("sends as that session, with the hops of its run, and is not called a program", async () => {
		home.around(ann, { name: "ann", hops: 3 });
		expect(await home.run(["send", "bob", "hello"], inAnn)).toMatchObject({ code: 0, stderr: "" });
		const mail = await session.take();
		expect(mail).toMatchObject({ from: ann, kind: "message", hops: 3, body: "hello" });
		expect(mail).not.toHaveProperty("x");
		expect(home.mails(ann, "sent")).toMatchObject([{ id: mail.id }]);
	});

	test.each([
		["send", "bob", "hello"],
		["ask", "bob", "well?"],
	])("PSM-086 is stopped by the hop limit (%s)", async (...args) => {
		home.around(ann, { hops: 5 });
		expect(await home.run(args, inAnn)).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("sessions have woken each other 5 times in a row, and the limit is 5"),
		});
		expect(session.mailbox.waiting()).toEqual([]);
	});

	test.skipIf(process.platform !== "linux")(
		"PSM-086 is stopped as well when the command has dropped the variable",
		async () => {
			home.around(ann, { hops: 5 });
			expect(await home.run(["send", "bob", "hello"])).toMatchObject({
				code: 1,
				stderr: expect.stringContaining("limit is 5"),
			});
		},
	);

	test("cannot send a request, nor take another name", async () => {
		home.around(ann);
		expect(await home.run(["send", "bob", "do it", "--request"], inAnn)).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("a request is the user's alone"),
		});
		expect(await home.run(["send", "bob", "do it", "--from", "ci"], inAnn)).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("leave --from out"),
		});
		expect(await home.run(["send", "bob", "hi"], { env: { ...inAnn.env, PI_SESSION_MAIL_NAME: "ci" } })).toMatchObject({
			code: 0,
		});
		expect(await session.take()).toMatchObject({ from: ann, body: "hi" });
		expect(session.mailbox.waiting()).toEqual([]);
	});

	test("takes no mail from the session, and takes none of its mail back", async () => {
		const around = home.around(ann);
		session.mailbox.deliver({ to: ann, kind: "request", body: "do it", hops: 0 });
		const [request] = home.mails(ann, "new");
		const sent = around.mailbox.deliver({ to: bob, kind: "request", body: "of the user", hops: 0 });
		if (!sent.ok) throw new Error(sent.message);
		for (const args of [["read"], ["reply", request?.id ?? "", "no"], ["retract", sent.envelope.id]]) {
			expect(await home.run(args, inAnn)).toMatchObject({
				code: 1,
				stderr: expect.stringContaining("inside a Pi session"),
			});
		}
		expect(home.mails(ann, "new")).toHaveLength(1);
		expect(home.mails(bob, "new")).toMatchObject([{ body: "of the user" }]);
		expect(await home.json(["inbox"], inAnn)).toMatchObject({ mails: [{ body: "do it" }] });
	});

	test("is refused when the session is of an older copy, which does not say its hops", async () => {
		home.around(ann, { hops: undefined });
		expect(await home.run(["send", "bob", "hello"], inAnn)).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("restart Pi"),
		});
		expect(session.mailbox.waiting()).toEqual([]);
	});

	test.skipIf(process.platform !== "linux")(
		"that was told the id of another session by hand is none of that session's",
		async () => {
			expect(await home.run(["send", "bob", "hello"], { env: { PI_SESSION_ID: bob } })).toMatchObject({ code: 0 });
			expect((await session.take()).from).toMatch(/^send-/);
		},
	);

	test("that has left its shell is still that session's", async () => {
		home.session(ann, { hops: 5 });
		const env = {
			PATH: process.env.PATH ?? "",
			LANG: "C.UTF-8",
			XDG_STATE_HOME: join(home.root, ".."),
			PI_SESSION_ID: ann,
		};
		const child = spawn(process.execPath, [join(repository, "src/cli.cjs"), "send", "bob", "hello"], {
			env,
			detached: true,
		});
		atCleanUp(() => child.kill("SIGKILL"));
		const code = await new Promise((resolve) => child.on("close", resolve));
		expect(code).toBe(1);
		expect(session.mailbox.waiting()).toEqual([]);
	});
});

describe("an ask from the shell of a Pi session", () => {
	test("D13 waits under the session's name, prints the answer, and never writes the session's record", async () => {
		const around = home.around(ann, { name: "ann", hops: 1 });
		const asking = home.start(["ask", "bob", "well?"], inAnn);
		const mail = await session.take();
		expect(mail).toMatchObject({ from: ann, kind: "ask", hops: 1 });
		expect(home.names(ann, "waiting")).toEqual([`${mail.id}.json`]);
		expect(await home.json(["list"])).toMatchObject({ sessions: [{ name: "ann", waitingOn: "" }, { name: "bob" }] });
		session.answer(mail, "yes");
		expect(await asking.ended).toEqual({ code: 0, signal: null, stdout: "yes\n", stderr: "" });
		expect(home.names(ann, "waiting")).toEqual([]);
		expect(around.record.isOwner()).toBe(true);
		// Claimed and done: nothing would bring it into the conversation.
		expect(home.names(ann, "new")).toEqual([]);
		expect(home.names(ann, "cur").filter((name) => name.endsWith(".open"))).toEqual([]);
	});

	test("D13 is refused when the target waits for the session, itself or by a program in its own shell", async () => {
		home.around(ann, { hops: 0 });
		session.record.update({ waitingOn: ann, ticket: 1 });
		expect(await home.run(["ask", "bob", "well?"], inAnn)).toMatchObject({
			code: 1,
			stderr: expect.stringContaining("itself waiting"),
		});
		expect(session.mailbox.waiting()).toEqual([]);
		expect(home.names(ann, "waiting")).toEqual([]);
	});

	test("that is interrupted is taken back, and its sign goes", async () => {
		home.around(ann, { hops: 0 });
		const asking = home.start(["ask", "bob", "well?"], inAnn);
		await eventually(() => session.mailbox.waiting().length === 1);
		asking.child.kill("SIGTERM");
		expect(await asking.ended).toMatchObject({ code: 143 });
		expect(session.mailbox.waiting()).toEqual([]);
		expect(home.names(ann, "waiting")).toEqual([]);
	});

	test("L2 that is killed leaves a sign that the session removes; the answer then waits for the session", async () => {
		home.around(ann, { hops: 0 });
		const asking = home.start(["ask", "bob", "well?"], inAnn);
		const mail = await session.take();
		asking.child.kill("SIGKILL");
		await asking.ended;
		session.answer(mail, "yes");
		expect(home.names(ann, "waiting")).toHaveLength(1);
		expect(home.mails(ann, "new")).toMatchObject([{ kind: "reply", body: "yes" }]);
	});
});
