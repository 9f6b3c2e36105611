import { describe, expect, test } from "vitest";
import { ruleFor, toolPolicySchema } from "../../src/mail/tool-policy.ts";

describe("the policy for tools", () => {
	test("has no rules and runs four calls at once unless a person says otherwise", () => {
		expect(toolPolicySchema.parse({})).toEqual({ rules: [], maxCalls: 4 });
	});

	test.each([
		[{ rules: [{ tool: "" }] }],
		[{ rules: [{ tool: "x".repeat(129) }] }],
		[{ rules: [{ attachSeconds: 1 }] }],
		[{ rules: [{ tool: "bash", attachSeconds: -1 }] }],
		[{ rules: [{ tool: "bash", attachSeconds: 86_401 }] }],
		[{ rules: [{ tool: "bash", attachSeconds: "10" }] }],
		[{ rules: [{ tool: "bash", attach: 10 }] }],
		[{ rules: Array(201).fill({ tool: "bash" }) }],
		[{ rules: { tool: "bash" } }],
		[{ maxCalls: 0 }],
		[{ maxCalls: 65 }],
		[{ maxCalls: 1.5 }],
		[{ maximum: 1 }],
		["bash"],
	])("L7 does not take %j", (policy) => {
		expect(toolPolicySchema.safeParse(policy).success).toBe(false);
	});

	test("SMB-025 is the first rule that fits", () => {
		const rules = [
			{ tool: "bash", attachSeconds: 1 },
			{ tool: "bash" },
			{ tool: "*", attachSeconds: 3 },
			{ tool: "read" },
		];
		const policy = toolPolicySchema.parse({ rules });
		expect(["bash", "read", "mcp__a__b"].map((tool) => ruleFor(policy, tool)?.attachSeconds)).toEqual([1, 3, 3]);
		expect(ruleFor(toolPolicySchema.parse({ rules: [{ tool: "bash" }] }), "read")).toBeUndefined();
	});
});
