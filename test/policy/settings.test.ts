import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import * as z from "zod/mini";
import { nodeDisk } from "../../src/mail/disk.ts";
import { defaultSettings, openSettings } from "../../src/mail/settings.ts";
import { defaultTicketTtlHours, toolPolicySchema } from "../../src/mail/tool-policy.ts";
import { temporaryFolder } from "../support/disk.ts";

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
	["permissions.rules.0", { permissions: { rules: [{ pattern: "bash", behavior: "deny", pttern: "x" }] } }],
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
	expect(holds).toEqual({ rules: [], maxCalls: 4, permissions: { default: "ask", rules: [] } });
	expect(warnings).toEqual([
		expect.stringMatching(`^toolPolicy.${path} cannot be .*, so every call of a tool is asked about$`),
	]);
});

test("a policy that forbids nothing is passed over when it is not valid, however much is wrong with it", () => {
	const { toolPolicy, warnings } = read({ rules: [{ tool: 1 }], maxCalls: "x" });
	expect(toolPolicy).toBe(undefined);
	expect(warnings).toEqual(["toolPolicy.rules.0.tool cannot be 1, so its default holds"]);
	expect(read(7)).toEqual({ toolPolicy: undefined, warnings: ["toolPolicy cannot be 7, so its default holds"] });
});
