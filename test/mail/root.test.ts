import { chmodSync, existsSync, lstatSync, mkdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { nodeDisk } from "../../src/mail/disk.ts";
import { ensureRoot, mailRoot, runningFolder } from "../../src/mail/root.ts";
import { temporaryFolder } from "../support/disk.ts";

const modeOf = (path: string) => statSync(path).mode & 0o777;

describe("where mail lies", () => {
	const inHome = join(homedir(), ".local", "state", "pi-session-mail");
	test.each<[string | undefined, string]>([
		["/state", "/state/pi-session-mail"],
		["/state/", "/state/pi-session-mail"],
		[undefined, inHome],
		["", inHome],
		["relative/state", inHome],
		["~/state", inHome],
	])("PSM-003 with XDG_STATE_HOME %j the root is %j", (value, root) => {
		expect(mailRoot(value === undefined ? {} : { XDG_STATE_HOME: value })).toBe(root);
	});

	test("PSM-003 PSM-004 a variable that changes moves the root at once, and no other variable does", () => {
		const env: NodeJS.ProcessEnv = { XDG_STATE_HOME: "/one", PI_SESSION_MAIL: "/no", PI_CODING_AGENT_DIR: "/no" };
		expect(mailRoot(env)).toBe("/one/pi-session-mail");
		env.XDG_STATE_HOME = "/two";
		expect(mailRoot(env)).toBe("/two/pi-session-mail");
	});

	test("PSM-023 running records lie beside the mailboxes", () => {
		expect(runningFolder("/root")).toBe("/root/running");
	});
});

describe("the root", () => {
	test("PSM-006 is made with its missing parents, all closed to other users", () => {
		const state = join(temporaryFolder(), "local", "state");
		const root = join(state, "pi-session-mail");
		ensureRoot(nodeDisk(), root);
		expect([root, state, join(state, "..")].map(modeOf)).toEqual([0o700, 0o700, 0o700]);
		ensureRoot(nodeDisk(), root);
		expect(modeOf(root)).toBe(0o700);
	});

	test("PSM-006 that was open to others is closed, and what lies above it is left alone", () => {
		const state = temporaryFolder();
		chmodSync(state, 0o755);
		const root = join(state, "pi-session-mail");
		mkdirSync(root);
		chmodSync(root, 0o777);
		ensureRoot(nodeDisk(), root);
		expect([modeOf(root), modeOf(state)]).toEqual([0o700, 0o755]);
	});

	test("PSM-006 whose mode cannot be changed is still used", () => {
		const root = join(temporaryFolder(), "pi-session-mail");
		// Where nothing lies, chmod fails as it does on a file system without modes.
		expect(() => ensureRoot({ ...nodeDisk(), ensureFolder: () => false }, root)).not.toThrow();
		expect(existsSync(root)).toBe(false);
	});

	test("PSM-003 may lie behind a link in the user's own folders", () => {
		const folder = temporaryFolder();
		mkdirSync(join(folder, "real"));
		symlinkSync("real", join(folder, "state"));
		ensureRoot(nodeDisk(), join(folder, "state", "pi-session-mail"));
		expect(lstatSync(join(folder, "real", "pi-session-mail")).isDirectory()).toBe(true);
	});

	test.each([
		["a symlink", (root: string) => symlinkSync(".", root), "is a symlink"],
		["a file", (root: string) => writeFileSync(root, ""), "is not a folder"],
	])("PSM-008 that is %s is refused and left alone", (_, lay, reason) => {
		const state = temporaryFolder();
		chmodSync(state, 0o755);
		const root = join(state, "pi-session-mail");
		lay(root);
		const before = lstatSync(root).mode;
		expect(() => ensureRoot(nodeDisk(), root)).toThrow(reason);
		expect([lstatSync(root).mode, modeOf(state)]).toEqual([before, 0o755]);
	});

	test("PSM-008 that cannot be made says why", () => {
		const file = join(temporaryFolder(), "file");
		writeFileSync(file, "");
		expect(() => ensureRoot(nodeDisk(), join(file, "state", "pi-session-mail"))).toThrow(
			`ENOTDIR: not a directory, mkdir`,
		);
	});
});
