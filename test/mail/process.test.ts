import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { describe, expect, test, vi } from "vitest";
import { endedToken, parsePs, parseStat, systemProcesses } from "../../src/mail/process.ts";

/** Whether there is a /proc. */
const proc = vi.hoisted(() => ({ isThere: true }));
vi.mock("node:fs", async (importOriginal) => {
	const fs = await importOriginal<typeof import("node:fs")>();
	const look = () => {
		if (!proc.isThere) throw new Error("ENOENT");
	};
	const readFileSync = (path: string, encoding: BufferEncoding) => {
		look();
		return fs.readFileSync(path, encoding);
	};
	const readlinkSync = (path: string) => {
		look();
		return fs.readlinkSync(path);
	};
	return { ...fs, readFileSync, readlinkSync };
});

const onLinux = test.runIf(process.platform === "linux");

/** A line of /proc/<pid>/stat whose field 22 is `ticks`. */
function stat(command: string, state: string, ticks: string): string {
	const upTo21 = Array.from({ length: 18 }, (_, index) => String(index + 100));
	return `4242 (${command}) ${[state, ...upTo21, ticks, "23", "24"].join(" ")}\n`;
}

describe("the start token of /proc/<pid>/stat", () => {
	test.each(["pi", "a b c", "x) S 1 2 (y", "((", ") ) )", "new\nline)", ""])(
		"PSM-028 is field 22 after the last parenthesis, whatever the command is called: %j",
		(command) => {
			expect(parseStat(stat(command, "S", "987654"))).toBe("987654");
		},
	);

	test.each([
		"",
		"4242",
		"4242 (pi",
		"4242 (pi)",
		"4242 (pi) S 1 2 3",
		stat("pi", "S", "soon"),
		stat("pi", "S", "1").replace(")", ""),
	])("PSM-028 is missing in a text that is cut or odd: %j", (text) => {
		expect(parseStat(text)).toBeUndefined();
	});

	test("PSM-026 says of a zombie that it has ended", () => {
		expect(parseStat(stat("pi", "Z", "987654"))).toBe(endedToken);
	});
});

describe("the start tokens of ps", () => {
	test("PSM-028 are the start texts, as printed", () => {
		const output = "    1 Sun Nov 29 20:45:16 2026    \n81234 Mon Nov  9 05:45:16 2026\n";
		expect([...parsePs(output)]).toEqual([
			[1, "Sun Nov 29 20:45:16 2026"],
			[81234, "Mon Nov  9 05:45:16 2026"],
		]);
	});

	test("PSM-028 are missing for lines that are cut or odd", () => {
		expect(parsePs("").size).toBe(0);
		expect(parsePs("\n  12\n  13 \nps: illegal\n  14 Sun Nov 29 20:4\n  PID STARTED\n").size).toBe(0);
	});

	onLinux("PSM-028 can be asked of a real ps in the form used on macOS", () => {
		const { stdout, error } = spawnSync("/bin/ps", ["-o", "pid=", "-o", "lstart=", "-p", `${process.pid},999999999`], {
			encoding: "utf8",
			env: { LC_ALL: "C", TZ: "UTC" },
		});
		if (error === undefined) expect([...parsePs(stdout).keys()]).toEqual([process.pid]);
	});
});

describe("the processes of this machine", () => {
	const processes = systemProcesses();

	test("PSM-026 this one exists, ids that no process can have do not", () => {
		expect(processes.exists(process.pid)).toBe(true);
		for (const pid of [0, -1, -process.pid, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31, 2 ** 40]) {
			expect(processes.exists(pid), String(pid)).toBe(false);
		}
	});

	test("PSM-026 one that may not be signalled exists", ({ onTestFinished }) => {
		const { kill } = process;
		onTestFinished(() => {
			process.kill = kill;
		});
		process.kill = () => {
			throw Object.assign(new Error("kill EPERM"), { code: "EPERM" });
		};
		expect(processes.exists(1)).toBe(true);
	});

	test("PSM-026 one that has ended does not exist and has no token", async () => {
		const child = spawn(process.execPath, ["-e", ""]);
		await once(child, "exit");
		const pid = child.pid ?? 0;
		expect(pid).toBeGreaterThan(0);
		expect(processes.exists(pid)).toBe(false);
		expect(processes.startTokens([pid]).size).toBe(0);
	});

	onLinux("PSM-028 have tokens that stay, asked in one go; ids that cannot be are left out", () => {
		const tokens = processes.startTokens([process.pid, process.ppid, process.pid, 0, -1, 1.5, 999999999]);
		expect([...tokens.keys()].sort()).toEqual([process.pid, process.ppid].sort());
		expect(tokens.get(process.pid)).toMatch(/^\d+$/);
		expect(tokens.get(process.pid)).toBe(processes.self.started);
		expect(systemProcesses().self).toEqual(processes.self);
		expect(processes.startTokens([]).size).toBe(0);
	});

	test.runIf(existsSync("/bin/ps"))(
		"PSM-028 have tokens on macOS also when one of the ids that ps is asked for cannot be",
		({ onTestFinished }) => {
			const { platform } = process;
			onTestFinished(() => void Object.defineProperty(process, "platform", { value: platform }));
			Object.defineProperty(process, "platform", { value: "darwin" });
			expect([...processes.startTokens([process.pid, -1, 1.5]).keys()]).toEqual([process.pid]);
		},
	);

	test("PSM-028 D7 this one knows its id also where there is no /proc", ({ onTestFinished }) => {
		onTestFinished(() => {
			proc.isThere = true;
		});
		proc.isThere = false;
		expect(systemProcesses().self).toMatchObject({ pid: process.pid, boot: undefined, namespace: undefined });
	});

	onLinux("D7 this one knows its machine's boot and its pid namespace", () => {
		expect(processes.self).toMatchObject({
			pid: process.pid,
			boot: readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(),
			namespace: expect.stringMatching(/^pid:\[\d+\]$/),
		});
	});
});
