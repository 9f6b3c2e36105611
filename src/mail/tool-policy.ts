import * as z from "zod/mini";

/** How long the model waits for a call of a tool before it is given its turn back. */
const ruleSchema = z.strictObject({
	tool: z.string().check(z.minLength(1), z.maxLength(128), z.describe("The name of a tool, or * for every tool.")),
	attachSeconds: z
		.optional(z.number().check(z.gte(0), z.lte(86_400)))
		.check(z.describe("For how many seconds the model waits; 0 for not at all. Without it, until an interrupt.")),
});

/** What a person sets about the calls of a session's model. */
export const toolPolicySchema = z.strictObject({
	rules: z
		._default(z.array(ruleSchema).check(z.maxLength(200)), [])
		.check(
			z.describe("Which calls may go on after the model was given its turn back. The first rule that fits holds."),
		),
	maxCalls: z
		._default(z.int().check(z.gte(1), z.lte(64)), 4)
		.check(z.describe("How many of these calls run at once. The next one waits for its turn.")),
});

/** The same, written out: the published types name no library. */
export interface ToolPolicy {
	rules: { tool: string; attachSeconds?: number | undefined }[];
	maxCalls: number;
}

/** The rule that holds for a tool; undefined when none does. */
export function ruleFor(policy: ToolPolicy, tool: string): ToolPolicy["rules"][number] | undefined {
	return policy.rules.find((rule) => rule.tool === "*" || rule.tool === tool);
}
