import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import * as z from "zod/mini";
import { nodeDisk } from "../../src/mail/disk.ts";
import { defaultSettings, openSettings } from "../../src/mail/settings.ts";
import { defaultTicketTtlHours, toolPolicySchema } from "../../src/mail/tool-policy.ts";
import { addPermission } from "../../src/policy/add-permission.ts";
import { fail, temporaryFolder, watchedDisk } from "../support/disk.ts";

/** What is read of a settings file with this tool policy, and the warnings. */
function read(toolPolicy: unknown) {
	const file = join(temporaryFolder(), "session-mail.json");
	writeFileSync(file, JSON.stringify({ toolPolicy, hopLimit: 7 }));
	const warnings: string[] = [];
	const warn = (text: string) => warnings.push(text.replace(`${file}: `, ""));
	const settings = openSettings({ disk: nodeDisk(), file, now: () => 0, warn }).read();
	expect(settings.hopLimit).toBe(7);
	return { toolPolicy: settings.toolPolicy, warnings };
}

const everything = {
	permissions: {
		default: "deny",
		rules: [
			{ pattern: "read", behavior: "allow" },
			{
				pattern: 'edit(path~"src/*")',
				behavior: "ask",
				message: "Is this file yours?",
				approver: "boss",
				attachSeconds: 0,
				resume: "pass_decision_to_tool",
				response: { type: "object", required: ["path"], properties: { path: { type: "string" } } },
			},
		],
	},
	wrappers: [
		{
			match: { tool: "mcp__*" },
			timeoutSeconds: 60,
			retries: { count: 2, backoffMs: 500 },
			cache: true,
			label: "remote",
			truncate: { maxBytes: 65536 },
			before: { command: ["./look", "--strict"], timeoutSeconds: 5 },
			after: { tool: "note" },
		},
		{ match: { tool: "bash" }, cache: { seconds: 5 }, retries: { count: 1 }, before: { command: "./look" } },
	],
	ticketTtlHours: 1,
};

test("everything that can be set is read as it stands", () => {
	expect(read(everything)).toEqual({ toolPolicy: { rules: [], maxCalls: 4, ...everything }, warnings: [] });
});

test("what is not set is not there, and the default of tickets is that of the description", () => {
	expect(read({})).toEqual({ toolPolicy: { rules: [], maxCalls: 4 }, warnings: [] });
	expect(defaultSettings).not.toHaveProperty("toolPolicy");
	expect(read({ permissions: {} }).toolPolicy?.permissions).toEqual({ default: "allow", rules: [] });
	expect(JSON.stringify(z.toJSONSchema(toolPolicySchema))).toContain(`cancelled; ${defaultTicketTtlHours} without it.`);
});

test.each([
	["permissions.default", { permissions: { default: "maybe" } }],
	["permissions.rules.0.behavior", { permissions: { rules: [{ pattern: "bash", behavior: "dney" }] } }],
	["permissions.rules.0.pattern", { permissions: { rules: [{ behavior: "deny" }] } }],
	["permissions.rules.0.pattern", { permissions: { rules: [{ pattern: "x".repeat(1001), behavior: "deny" }] } }],
	["permissions.rules.0.resume", { permissions: { rules: [{ pattern: "a", behavior: "ask", resume: "later" }] } }],
	["permissions.rules", { permissions: { rules: Array(201).fill({ pattern: "a", behavior: "ask" }) } }],
	["wrappers.0.match", { wrappers: [{ timeoutSeconds: 1 }] }],
	["wrappers.0.timeoutSeconds", { wrappers: [{ match: { tool: "a" }, timeoutSeconds: 0 }] }],
	["wrappers.0.retries.count", { wrappers: [{ match: { tool: "a" }, retries: { count: 21 } }] }],
	["wrappers.0.before.command", { wrappers: [{ match: { tool: "a" }, before: { command: [] } }] }],
	["wrappers.0.after", { wrappers: [{ match: { tool: "a" }, after: { command: "x", tool: "y" } }] }],
	["wrappers.0.truncate.maxBytes", { wrappers: [{ match: { tool: "a" }, truncate: { maxBytes: 0 } }] }],
	["ticketTtlHours", { permissions: {}, ticketTtlHours: 0 }],
])("a slip at %s is named there, and every call is then asked about", (path, toolPolicy) => {
	const { toolPolicy: holds, warnings } = read(toolPolicy);
	expect(holds).toMatchObject({ rules: [], maxCalls: 4, permissions: { default: "ask", rules: [] } });
	expect(warnings).toEqual([
		expect.stringMatching(
			`^toolPolicy.${path} cannot be .*, so every call of a tool is asked about until it is mended \\(line 1\\)$`,
		),
	]);
});

test("a slip in a policy that seems to forbid nothing is one in any policy, and the first of several is named", () => {
	const { toolPolicy, warnings } = read({ rules: [{ tool: 1 }], maxCalls: "x" });
	expect(toolPolicy?.permissions?.default).toBe("ask");
	expect(warnings).toEqual([
		expect.stringMatching(/^toolPolicy.rules.0.tool cannot be 1 \(it is a text\), so every call .* \(line 1\)$/),
	]);
	expect(read(7).toolPolicy?.permissions?.default).toBe("ask");
});

const a = { match: { tool: "a" } };

test.each([
	[{ permission: {} }, 'toolPolicy has the unknown key "permission" (did you mean "permissions"?)'],
	[
		{ permissions: { rules: [{ pattern: "a", behaviour: "deny" }] } },
		'toolPolicy.permissions.rules.0 has the unknown key "behaviour" (did you mean "behavior"?)',
	],
	[{ wrappers: [{ ...a, timeout: 5 }] }, 'unknown key "timeout" (did you mean "timeoutSeconds"?)'],
	[{ wrappers: [{ ...a, retries: { max: 5 } }] }, 'unknown key "max" (known: count, backoffMs)'],
	[{ wrappers: [{ ...a, before: { command: "x", timeout: 5 } }] }, '0.before has the unknown key "timeout" (did'],
	[{ wrappers: [{ ...a, retries: 2 }] }, "0.retries cannot be 2 (it is an object with count, backoffMs)"],
	[{ wrappers: [{ ...a, retries: { count: 21 } }] }, "0.retries.count cannot be 21 (it is at most 20)"],
	[{ wrappers: [{ ...a, cache: 60 }] }, "0.cache cannot be 60 (it is true or an object with seconds)"],
	[{ permissions: { default: "no" } }, 'permissions.default cannot be "no" (it is allow, ask or deny)'],
	[{ wrappers: [{ ...a, after: { command: "x", tool: "y" } }] }, '0.after cannot be {"command":"x","tool":"y"}, so'],
])("the message about %j names the unknown key and the one that was meant, or what is valid", (toolPolicy, said) => {
	const { toolPolicy: holds, warnings } = read(toolPolicy);
	expect(warnings).toEqual([expect.stringContaining(said)]);
	expect(warnings[0]).toMatch(/, so every call of a tool is asked about until it is mended \(line 1\)$/);
	expect(holds?.permissions?.default).toBe("ask");
});

test.each([
	["toolpolicy", "toolPolicy"],
	["tool_policy", "toolPolicy"],
	["policy", "toolPolicy"],
	["permissions", "toolPolicy.permissions"],
	["Permission", "toolPolicy.permissions"],
	["wrappers", "toolPolicy.wrappers"],
	["tools", "toolPolicy"],
	["toolPermissions", "toolPolicy"],
	["policies", "toolPolicy"],
	["rules", "toolPolicy"],
])("L2 a key %s beside toolPolicy is a policy that was put wrongly: every call is asked about", (key, meant) => {
	const file = join(temporaryFolder(), "session-mail.json");
	writeFileSync(file, JSON.stringify({ [key]: {}, toolPolicy: {}, hopLimit: 7 }));
	const warnings: string[] = [];
	const { toolPolicy, hopLimit } = openSettings({
		disk: nodeDisk(),
		file,
		now: () => 0,
		warn: (text) => warnings.push(text),
	}).read();
	expect([toolPolicy?.permissions?.default, hopLimit]).toEqual(["ask", 7]);
	expect(warnings).toEqual([
		`${file} has the unknown key "${key}"; did you mean "${meant}"? So every call of a tool is asked about until it is mended (line 1).`,
	]);
});

test.each([
	['{ "toolPolicy": { "permissions": { "default": "deny" } },\n "toolPolicy": {} }', "has toolPolicy twice", 2],
	[
		'{ "toolPolicy": { "permissions": { "default": "deny" },\n\n "permissions": {} } }',
		"has toolPolicy.permissions twice",
		3,
	],
	['{\n "mail": { "toolPolicy": { "permissions": { "default": "deny" } } } }', 'the unknown key "mail"', 2],
])("L2 a policy that would be passed over is a slip, and every call is asked about: %s", (text, said, line) => {
	const file = join(temporaryFolder(), "session-mail.json");
	writeFileSync(file, text);
	const warnings: string[] = [];
	const warn = (warning: string) => warnings.push(warning);
	const { toolPolicy } = openSettings({ disk: nodeDisk(), file, now: () => 0, warn }).read();
	expect(toolPolicy?.permissions?.default).toBe("ask");
	expect(warnings).toEqual([expect.stringContaining(said)]);
	expect(warnings[0]).toContain(`every call of a tool is asked about until it is mended (line ${line})`);
});

test("L2 a policy in a file of two bytes for each letter is not passed over", () => {
	const file = join(temporaryFolder(), "session-mail.json");
	for (const start of ["", "\ufeff"]) {
		writeFileSync(file, Buffer.from(`${start}{ "toolPolicy": { "permissions": { "default": "deny" } } }`, "utf16le"));
		const { toolPolicy } = openSettings({ disk: nodeDisk(), file, now: () => 0, warn() {} }).read();
		expect(toolPolicy?.permissions?.default).toBe("ask");
	}
});

test("a rule is not added where the settings would be broken by it, or are already", () => {
	const file = join(temporaryFolder(), "session-mail.json");
	const rules = Array.from({ length: 200 }, () => ({ pattern: "a", behavior: "ask" }));
	for (const toolPolicy of [{ permissions: { rules } }, { permission: {} }]) {
		const text = JSON.stringify({ toolPolicy });
		writeFileSync(file, text);
		expect(() => addPermission(nodeDisk(), file, { pattern: "b", behavior: "allow" })).toThrow(/toolPolicy is broken/);
		expect(readFileSync(file, "utf8")).toBe(text);
	}
	writeFileSync(file, JSON.stringify({ toolPolicy: {}, $schema: "x".repeat(65_400) }));
	expect(() => addPermission(nodeDisk(), file, { pattern: "b", behavior: "allow" })).toThrow(/too large/);
});

describe("while the file is broken", () => {
	const policy = { permissions: { default: "deny", rules: [{ pattern: "read", behavior: "allow" }] } };
	const good = `{\n\t"toolPolicy": ${JSON.stringify(policy)}\n}`;

	/** A settings file, and what is read of it after each change, by a reader of its own. */
	function setUp() {
		const file = join(temporaryFolder(), "session-mail.json");
		let code: string | undefined;
		const disk = watchedDisk(({ name }) => {
			if (code !== undefined && name === "read") fail(code);
		});
		// The disk has the clock of this machine.
		let now = Date.now();
		function read() {
			const warnings: string[] = [];
			const warn = (text: string) => warnings.push(text.replaceAll(file, "FILE"));
			const { toolPolicy } = openSettings({ disk, file, now: () => now, warn }).read();
			return { toolPolicy, warnings };
		}
		return {
			read,
			save: (text: string) => writeFileSync(file, text),
			remove: () => rmSync(file),
			wait(ms: number) {
				now += ms;
			},
			breakDisk: (with_: string | undefined) => {
				code = with_;
			},
			/** What holds when it is read now, and once nobody can be saving it any more. */
			later() {
				const first = read();
				now += 2000;
				return { first, ...read() };
			},
		};
	}

	const slips: [string, (at: ReturnType<typeof setUp>) => void, string][] = [
		["is not JSON", (at) => at.save(good.replace("}\n}", "},\n]")), "is not used: it is not JSON (line 3), so"],
		["is empty", (at) => at.save(""), "is not used: it is not JSON (line 1), so"],
		["is a list", (at) => at.save("[]"), "is not used: it is not a JSON object, so"],
		[
			"is not of the schema",
			(at) => at.save(good.replace('"allow"', '"alow"')),
			'behavior cannot be "alow" (it is allow, ask or deny), so',
		],
		["cannot be read", (at) => at.breakDisk("EIO"), "is not used: EIO"],
	];
	test.each(slips)("L2 one that %s, the last good policy holds, and that is said", (_, slip, said) => {
		const at = setUp();
		at.save(good);
		expect(at.read()).toMatchObject({ toolPolicy: policy, warnings: [] });
		slip(at);
		const { first, toolPolicy, warnings } = at.later();
		expect([first.toolPolicy, toolPolicy]).toEqual([expect.objectContaining(policy), expect.objectContaining(policy)]);
		expect(toolPolicy).not.toHaveProperty("brokenBecause");
		expect(warnings).toEqual([expect.stringContaining(said)]);
		expect(warnings[0]).toContain("the last good toolPolicy holds until it is mended");
		at.breakDisk(undefined);
		at.save('{ "toolPolicy": {} }');
		expect(at.read()).toEqual({ toolPolicy: { rules: [], maxCalls: 4 }, warnings: [] });
	});

	test.each([
		["is not JSON", (at: ReturnType<typeof setUp>) => at.save(`${good}}`), "FILE is broken at line 3"],
		[
			"is not of the schema",
			(at: ReturnType<typeof setUp>) => at.save(good.replace("deny", "no")),
			"FILE is broken at line 2",
		],
		["cannot be read", (at: ReturnType<typeof setUp>) => at.breakDisk("EACCES"), "FILE cannot be read"],
	])("L2 one that %s, and from which none was read in this process, every call is asked about", (_, slip, because) => {
		const at = setUp();
		at.save(good);
		slip(at);
		const { toolPolicy, warnings } = at.read();
		expect(toolPolicy?.permissions).toEqual({ default: "ask", rules: [] });
		expect(toolPolicy?.brokenBecause?.replace(/^.*session-mail.json/, "FILE")).toBe(because);
		expect(warnings).toEqual([expect.stringContaining("every call of a tool is asked about until it is mended")]);
		// What holds instead is not the last good policy.
		expect(at.later().toolPolicy?.permissions?.default).toBe("ask");
		at.breakDisk(undefined);
		at.save(`\n\n\n${good.replace("deny", "no")}`);
		expect(at.read().toolPolicy?.brokenBecause).toContain("at line 5");
	});

	test("one that has no policy costs nothing", () => {
		const at = setUp();
		at.save('{ "hopLimit": ');
		expect(at.read()).toEqual({ toolPolicy: undefined, warnings: ["FILE is not used: it is not JSON (line 1)"] });
	});

	const gone = { toolPolicy: undefined, warnings: [] };

	test("L2 one that an editor removes and writes anew has its policy all the while", () => {
		const at = setUp();
		at.save(good);
		for (let n = 0; n < 2; n++) {
			const before = at.read();
			at.remove();
			for (let looks = 0; looks < 3; looks++) expect(at.read()).toEqual(before);
			at.save(good);
			expect(at.read()).toEqual(before);
			at.wait(2000);
		}
	});

	test("one that is not there for two seconds was removed, however much its folder changes", () => {
		const at = setUp();
		at.save(good);
		at.read();
		at.remove();
		at.read();
		at.wait(2000);
		at.save("");
		at.remove();
		expect(at.read()).toEqual(gone);
	});

	test("one that was removed is not broken, and its policy is gone, also at the first look after a while", () => {
		const at = setUp();
		at.save(good);
		at.read();
		at.remove();
		at.wait(3000);
		expect(at.read()).toEqual(gone);
		at.save(`${good}}`);
		expect(at.later().toolPolicy?.permissions?.default).toBe("ask");
	});
});
