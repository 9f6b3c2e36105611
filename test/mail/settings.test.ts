import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { getAgentDir } from "@earendil-works/pi-coding-agent";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { defaultSettings, openSettings, type SettingsFile, settingsPath } from "../../src/mail/settings.ts";
import { fail, isRoot, startMs, temporaryFolder, watchedDisk } from "../support/disk.ts";

const defaults = { hopLimit: 5, pruneAfterDays: 30, durability: "durable", shortcut: "alt+m" };

let file: string;
let clockMs: number;
let warnings: string[];
let settings: SettingsFile;
beforeEach(() => {
	file = join(temporaryFolder(), "session-mail.json");
	clockMs = startMs;
	open();
});

function open(disk: Disk = nodeDisk()): void {
	warnings = [];
	settings = openSettings({ disk, file, now: () => clockMs, warn: (text) => warnings.push(text) });
}

/** Saves the file, whatever lies there. */
function save(content: string | Uint8Array | object): void {
	const isText = typeof content === "string" || content instanceof Uint8Array;
	writeFileSync(file, isText ? content : JSON.stringify(content));
}

/** Reads it once, and says what that made of it and warned of. */
function read() {
	warnings.splice(0);
	return { ...settings.read(), warnings: [...warnings] };
}

describe("PSM-088 what a person sets holds", () => {
	test("nothing set, nothing said: the defaults", () => {
		expect(defaultSettings).toEqual(defaults);
		expect(read()).toEqual({ ...defaults, warnings: [] });
		save("{}");
		expect(read()).toEqual({ ...defaults, warnings: [] });
	});

	test.each([
		{ hopLimit: 1 },
		{ hopLimit: 1000 },
		{ pruneAfterDays: 1 },
		{ pruneAfterDays: 36500 },
		{ durability: "fast" },
		{ durability: "durable" },
		{ shortcut: false },
		{ shortcut: "ctrl+shift+f2" },
		{ shortcut: "alt+pageUp" },
		{ hopLimit: 2, pruneAfterDays: 3, durability: "fast" },
		{ wakeOn: {} },
		{ wakeOn: { kinds: ["ask", "request", "message"], from: ["planner", "01980f5e-7a3c-7d10-8f00-00000000000a"] } },
		{ wakeOn: { kinds: [], from: [] } },
	])("%j, and the other keys keep their defaults", (set) => {
		save(set);
		expect(read()).toEqual({ ...defaults, ...set, warnings: [] });
	});

	test.each([
		["a byte order mark", '\ufeff{"hopLimit": 2}'],
		["blank lines", '\n\n{ "hopLimit":\n2 }\n\n'],
		["a number written with a fraction of nothing", '{"hopLimit": 2.0}'],
		["where its schema is", '{"$schema": "./session-mail.schema.json", "hopLimit": 2}'],
		["a key twice: the last one counts, as in all JSON", '{"hopLimit": 7, "hopLimit": 2}'],
	])("with %s", (_, text) => {
		save(text);
		expect(read()).toMatchObject({ ...defaults, hopLimit: 2, warnings: [] });
	});

	test("$schema is nothing that is set", () => {
		save({ $schema: "https://example.org/schema.json" });
		expect(
			Object.keys(settings.read())
				.filter((key) => key !== "$schema")
				.sort(),
		).toEqual(Object.keys(defaults).sort());
	});

	test("from the next read on, with no restart", () => {
		for (const hopLimit of [2, 9, 3]) {
			save({ hopLimit });
			expect(read()).toMatchObject({ hopLimit, warnings: [] });
		}
		rmSync(file);
		expect(read()).toEqual({ ...defaults, warnings: [] });
	});
});

describe("PSM-089 a file that cannot be used means the defaults, and a warning that names it", () => {
	test.each<[string, () => void, RegExp]>([
		["a folder", () => mkdirSync(file), /not a regular file|EISDIR/],
		["a FIFO, which nobody writes to", () => execFileSync("mkfifo", [file]), /not a regular file/],
		["a link to nowhere", () => symlinkSync("/nowhere/at/all", file), /it is a symlink/],
		["more than 64 KiB", () => save(`{"hopLimit": 2}${" ".repeat(64 * 1024)}`), /more than the limit of 65536/],
		["no UTF-8", () => save(new Uint8Array([0x7b, 0xff, 0x7d])), /not valid UTF-8/],
		["empty", () => save(""), /it is not JSON/],
		["half of it", () => save('{"hopLimit": 2'), /it is not JSON/],
		["JSON with comments", () => save('{\n// my limit\n"hopLimit": 2}'), /it is not JSON/],
		["a list", () => save([{ hopLimit: 2 }]), /it is not a JSON object/],
		["null", () => save("null"), /it is not a JSON object/],
		["a number", () => save("2"), /it is not a JSON object/],
		["a text", () => save('"hopLimit"'), /it is not a JSON object/],
		["true", () => save("true"), /it is not a JSON object/],
	])("%s", (_, make, why) => {
		make();
		const { toolPolicy, ...found } = read();
		expect(found).toEqual({ ...defaults, warnings: [expect.stringMatching(why)] });
		// What cannot be read may be a policy.
		expect(toolPolicy?.permissions?.default).toBe(`${why}`.includes("JSON") ? undefined : "ask");
		expect(found.warnings[0]?.startsWith(`${file} is not used: `)).toBe(true);
		expect(read()).toMatchObject(found);
	});

	test.each(["EACCES", "EIO", "EMFILE"])("an error of the disk (%s)", (code) => {
		open(watchedDisk(({ name }) => name === "read" && fail(code)));
		save({ hopLimit: 2 });
		expect(read()).toMatchObject({ ...defaults, warnings: [expect.stringContaining(code)] });
	});

	test.skipIf(isRoot)("one that may not be read", () => {
		writeFileSync(file, "{}", { mode: 0 });
		expect(read()).toMatchObject({ ...defaults, warnings: [expect.stringContaining("EACCES")] });
	});
});

describe("PSM-089 an invalid value means the default of its key only, and a warning that names both", () => {
	const notPositive = [0, -1, 1.5, 2 ** 53, "5", "", true, false, null, [], [5], {}, { value: 5 }];

	test.each([
		...notPositive.map((value) => ["hopLimit", value] as const),
		...notPositive.map((value) => ["pruneAfterDays", value] as const),
		...["slow", "Fast", "", true, 1, null, [], ["fast"], {}].map((value) => ["durability", value] as const),
		...["", "alt+", "hyper+m", "alt m", "ctrl+zzz", "nonsense", 1, null, true, []].map(
			(value) => ["shortcut", value] as const,
		),
		...[1, null, true, [], {}].map((value) => ["$schema", value] as const),
	])("%s: %j", (key, value) => {
		const others = { hopLimit: 2, pruneAfterDays: 3, durability: "fast" };
		const { [key as "hopLimit"]: _, ...kept } = others;
		save({ ...others, [key]: value });
		expect(read()).toEqual({
			...defaults,
			...kept,
			warnings: [
				expect.stringMatching(
					new RegExp(`^[^ ]+: [$]?${key.replace("$", "")} cannot be .+( \\(it is .+\\))?, so its default holds$`),
				),
			],
		});
	});

	test("each of several has its own warning", () => {
		save({ hopLimit: 0, pruneAfterDays: "soon", durability: "fast" });
		expect(read()).toEqual({
			...defaults,
			durability: "fast",
			warnings: [
				`${file}: hopLimit cannot be 0 (it is more than 0), so its default holds`,
				`${file}: pruneAfterDays cannot be "soon" (it is a number), so its default holds`,
			],
		});
	});

	test("a long or wild value is cut and stays on one line", () => {
		save({ durability: `x\n[mailbox] ${"y".repeat(1000)}` });
		const [warning = ""] = read().warnings;
		expect(warning).not.toContain("\n");
		expect(warning.length).toBeLessThan(file.length + 150);
	});

	test.each([
		["hoplimit", "hopLimit"],
		["hopLimits", "hopLimit"],
		["pruneAfter", "pruneAfterDays"],
		["durable", "durability"],
		["schema", "$schema"],
	])("an unknown key %s: did you mean %s?", (key, nearest) => {
		save({ [key]: 7, hopLimit: 2 });
		expect(read()).toEqual({
			...defaults,
			hopLimit: 2,
			warnings: [`${file} has the unknown key "${key}"; did you mean "${nearest}"?`],
		});
	});

	test.each(["__proto__", "constructor", "toString", "", "x".repeat(5000), "a\nb"])(
		"the unknown key %j changes nothing else",
		(key) => {
			save(`{${JSON.stringify(key)}: {"hopLimit": 9}, "pruneAfterDays": 3}`);
			const found = read();
			expect(found).toMatchObject({ ...defaults, pruneAfterDays: 3 });
			expect(found.warnings).toEqual([
				expect.stringMatching(/^[^\n]* has the unknown key "[^\n]{0,70}"; did you mean/),
			]);
			expect(settings.read().hopLimit).toBe(5);
		},
	);
});

describe("while an editor saves the file", () => {
	const half = '{"hopLimit": ';

	test.each([
		["half of it is there", () => save(half)],
		["nothing is there yet", () => save("")],
	])("%s: the last good settings hold, and nothing is said", (_, saveHalf) => {
		save({ hopLimit: 2 });
		read();
		saveHalf();
		expect(read()).toMatchObject({ hopLimit: 2, warnings: [] });
		clockMs += 1999;
		expect(read()).toMatchObject({ hopLimit: 2, warnings: [] });
		save({ hopLimit: 3 });
		expect(read()).toMatchObject({ hopLimit: 3, warnings: [] });
	});

	test("one that is still broken after 2 s is said to be, and the defaults hold", () => {
		save({ hopLimit: 2 });
		read();
		save(half);
		read();
		clockMs += 2000;
		expect(read()).toEqual({ ...defaults, warnings: [`${file} is not used: it is not JSON (line 1)`] });
	});

	test("two saves, each caught in its middle, do not add up", () => {
		save({ hopLimit: 2 });
		read();
		for (let saves = 0; saves < 3; saves++) {
			save(half);
			expect(read()).toMatchObject({ hopLimit: 2, warnings: [] });
			clockMs += 1500;
			save({ hopLimit: 2 });
			expect(read()).toMatchObject({ hopLimit: 2, warnings: [] });
		}
	});

	test("for the first time: the defaults hold, and nothing is said", () => {
		read();
		save(half);
		expect(read()).toEqual({ ...defaults, warnings: [] });
		save({ hopLimit: 2 });
		expect(read()).toMatchObject({ hopLimit: 2, warnings: [] });
	});

	test("that was removed before: the defaults hold, not what the removed one said", () => {
		save({ hopLimit: 2 });
		read();
		rmSync(file);
		read();
		save(half);
		expect(read()).toEqual({ ...defaults, warnings: [] });
	});

	test("a clock that steps back does not keep a broken file from being told of", () => {
		save({ hopLimit: 2 });
		read();
		save(half);
		read();
		clockMs -= 24 * 60 * 60 * 1000;
		read();
		clockMs += 2000;
		expect(read().warnings).toEqual([`${file} is not used: it is not JSON (line 1)`]);
	});

	test("one that was broken before the session started is told of at once", () => {
		save(half);
		expect(read()).toEqual({ ...defaults, warnings: [`${file} is not used: it is not JSON (line 1)`] });
	});
});

describe("PSM-004/088 the file lies in Pi's own agent directory", () => {
	afterEach(() => {
		vi.unstubAllEnvs();
	});

	test.each([
		["unset", undefined, join(homedir(), ".pi/agent/session-mail.json")],
		["empty", "", join(homedir(), ".pi/agent/session-mail.json")],
		["absolute", "/srv/agent", "/srv/agent/session-mail.json"],
		["with a slash at its end", "/srv/agent/", "/srv/agent/session-mail.json"],
		["the home", "~", join(homedir(), "session-mail.json")],
		["below the home", "~/my agent", join(homedir(), "my agent/session-mail.json")],
		["a name that begins with ~", "~agent", "~agent/session-mail.json"],
		["a ~ in its middle", "/srv/~/agent", "/srv/~/agent/session-mail.json"],
	])("PI_CODING_AGENT_DIR %s", (_, directory, path) => {
		expect(settingsPath(directory === undefined ? {} : { PI_CODING_AGENT_DIR: directory })).toBe(path);
	});

	test.each([undefined, "", "/srv/agent", "~", "~/agent", "~agent", "relative/agent"])(
		"as Pi itself finds it, with PI_CODING_AGENT_DIR %j",
		(directory) => {
			vi.stubEnv("PI_CODING_AGENT_DIR", directory);
			expect(settingsPath()).toBe(join(getAgentDir(), "session-mail.json"));
		},
	);

	test.each(["/home/a$&b", "/home/$1", "/home/$$"])("a home called %s", (home) => {
		vi.stubEnv("HOME", home);
		expect(settingsPath({ PI_CODING_AGENT_DIR: "~/agent" })).toBe(`${home}/agent/session-mail.json`);
	});
});
