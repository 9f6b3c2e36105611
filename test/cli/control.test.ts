import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openCallStore } from "../../src/mail/call-store.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { temporaryFolder } from "../support/disk.ts";
import { cleanUp } from "../support/pi.ts";
import { type PlayedSession, type ProgramHome, programHome } from "../support/program.ts";

const alice = "01980f5e-7a3c-7d10-8f00-00000000000a";
const bob = "01980f5e-7a3c-7d10-8f00-00000000000b";

afterEach(cleanUp);

let home: ProgramHome;
beforeEach(() => {
	home = programHome(temporaryFolder());
});

function callOf({ mailbox }: PlayedSession, id: string): void {
	openCallStore(nodeDisk(), mailbox.folder).open({ id, tool: "bash", arguments: "{}", started: Date.now(), hops: 0 });
}

describe("calls", () => {
	test("of one session are its own, whether it is named, or known by an id of any kind", async () => {
		callOf(home.session(bob, { name: "bob" }), "call-0000000000000001");
		callOf(home.session("Nightly"), "call-0000000000000002");
		const ids = async (...to: string[]) => (await home.run(["calls", ...to])).stdout.match(/^call-\d+/gm);
		expect((await ids())?.length).toBe(2);
		for (const to of ["bob", bob, bob.toUpperCase(), bob.slice(0, 8)]) {
			expect(await ids(to)).toEqual(["call-0000000000000001"]);
		}
		expect(await ids("Nightly")).toEqual(["call-0000000000000002"]);
	});

	test("L4 of a name that nobody has are not said to be none", async () => {
		home.session(bob, { name: "bob" });
		const { code, stdout, stderr } = await home.run(["calls", "bbo"]);
		expect([code, stdout]).toEqual([1, ""]);
		expect(stderr).toContain('no running session is called "bbo"; running: bob');
	});
});

describe("control", () => {
	test.each([
		["control", "pause", "bob"],
		["control", "stop", "bob"],
		["control", "cancel", "bob"],
		["control", "pause", alice],
		["control", "pause", "bob", "--from", "ci"],
	])("SMB-043 %s %s %s %s from the shell of a model's session does nothing", async (...args) => {
		home.around(alice, { name: "alice", accepts: ["control"] });
		home.session(bob, { name: "bob", accepts: ["control"] });
		const { code, stderr } = await home.run(args);
		expect(code).toBe(1);
		expect(stderr).toContain("Nothing was done: ");
		expect([...home.names(bob, "new"), ...home.names(alice, "new")]).toEqual([]);
	});

	test("of a session that takes none is refused, and leaves nothing", async () => {
		home.session(bob, { name: "old" });
		for (const to of ["old", alice, "ci"]) {
			expect(await home.run(["control", "pause", to])).toMatchObject({ code: 1, stdout: "" });
		}
		expect(home.names(bob, "new")).toEqual([]);
		expect(home.names()).toEqual([bob, "running"]);
	});
});
