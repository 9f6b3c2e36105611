import * as z from "zod/mini";

const toolName = z.string().check(z.minLength(1), z.maxLength(128));
/** Longest pattern of a rule, in characters. */
export const maxPatternLength = 1000;
const shortText = z.string().check(z.minLength(1), z.maxLength(maxPatternLength));
const attachSeconds = z.number().check(z.gte(0), z.lte(86_400));

/** How long the model waits for a call of a tool before it is given its turn back. */
const ruleSchema = z.strictObject({
	tool: toolName.check(z.describe("The name of a tool, or * for every tool.")),
	attachSeconds: z
		.optional(attachSeconds)
		.check(z.describe("For how many seconds the model waits; 0 for not at all. Without it, until an interrupt.")),
});

const behaviorSchema = z.enum(["allow", "ask", "deny"]);

/** What happens with the calls that fit a pattern. */
const permissionRuleSchema = z.strictObject({
	pattern: shortText.check(
		z.describe(
			'The calls: a tool (bash), several (mcp__*), a regular expression (/^mcp__/), a primary argument (bash(npm *)), or named ones (edit(path~"src/*", edits.0.newText=~"/TODO/"): ~ with *, =~ a regular expression, = exact). A pattern looks at the text of a call: bash(npm *) also fits "npm test; make".',
		),
	),
	behavior: behaviorSchema.check(
		z.describe(
			"What happens with them. Deny beats allow, allow beats ask; of the same the most exact pattern decides.",
		),
	),
	message: z
		.optional(shortText)
		.check(z.describe("What whoever decides is told, or the model when its call is denied.")),
	approver: z
		.optional(z.string().check(z.minLength(1), z.maxLength(128)))
		.check(z.describe("The session, by its name or id, whose model may decide as well. Without it only a person may.")),
	attachSeconds: z
		.optional(attachSeconds)
		.check(z.describe("For how many seconds the model waits for the decision before it is given its turn back.")),
	resume: z
		.optional(z.enum(["replay_tool_call", "use_decision_as_tool_result", "pass_decision_to_tool"]))
		.check(
			z.describe(
				"What an approval does: make the call (the default), be its result, or be the arguments with which it is made.",
			),
		),
	response: z
		.optional(z.record(z.string().check(z.maxLength(128)), z.unknown()))
		.check(
			z.describe(
				"The JSON Schema of what a decision brings along; of its keywords type, properties, required, enum and items.",
			),
		),
});

const permissionsSchema = z.strictObject({
	default: z._default(behaviorSchema, "allow").check(z.describe("What happens with a call that no rule fits.")),
	rules: z
		._default(z.array(permissionRuleSchema).check(z.maxLength(200)), [])
		.check(z.describe("What happens with the calls that fit.")),
});

const timeoutSeconds = z.number().check(z.gt(0), z.lte(3600));

/** What is asked before a call, or told after it. */
const hookSchema = z.union([
	z.strictObject({
		command: z
			.union([
				z.string().check(z.minLength(1), z.maxLength(4096)),
				z.array(z.string().check(z.maxLength(4096))).check(z.minLength(1), z.maxLength(64)),
			])
			.check(
				z.describe(
					"A program and its arguments, or one text for a shell. It reads the call as JSON and prints its answer as JSON.",
				),
			),
		timeoutSeconds: z.optional(timeoutSeconds).check(z.describe("How long it may take; 10 seconds without it.")),
	}),
	z.strictObject({
		tool: toolName.check(z.describe("A tool that is given the call as its arguments and answers with JSON.")),
		timeoutSeconds: z.optional(timeoutSeconds).check(z.describe("How long it may take; 10 seconds without it.")),
	}),
]);

/** What is put around the calls of some tools. */
const wrapperSchema = z.strictObject({
	match: z
		.strictObject({
			tool: toolName.check(z.describe("The name of a tool, in which * stands for any text.")),
		})
		.check(z.describe("The tools.")),
	timeoutSeconds: z
		.optional(z.number().check(z.gt(0), z.lte(86_400)))
		.check(z.describe("After how many seconds a call fails, all its tries together.")),
	retries: z
		.optional(
			z.strictObject({
				count: z.int().check(z.gte(1), z.lte(20), z.describe("How often a failed call is made again.")),
				backoffMs: z
					.optional(z.int().check(z.gte(0), z.lte(60_000)))
					.check(
						z.describe("How long to wait before the first time, in milliseconds; twice as long before each further."),
					),
			}),
		)
		.check(z.describe("Whether a failed call is made again.")),
	cache: z
		.optional(
			z.union([
				z.literal(true),
				z.strictObject({
					seconds: z
						.optional(z.number().check(z.gt(0), z.lte(86_400)))
						.check(z.describe("For how long a result is used again; 600 seconds without it.")),
				}),
			]),
		)
		.check(z.describe("Whether an equal call in the same session is answered with the result of the first.")),
	label: z
		.optional(z.string().check(z.minLength(1), z.maxLength(128)))
		.check(z.describe("What these calls are called where they are shown.")),
	truncate: z
		.optional(
			z.strictObject({
				maxBytes: z.int().check(z.gte(1), z.lte(8 * 1024 * 1024), z.describe("The most bytes of text, in UTF-8.")),
			}),
		)
		.check(z.describe("Whether the text of a result is cut.")),
	before: z.optional(hookSchema).check(z.describe("What is asked before a call. When it fails the call is denied.")),
	after: z.optional(hookSchema).check(z.describe("What may change a result. When it fails the result stays as it is.")),
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
	permissions: z.optional(permissionsSchema).check(z.describe("Which calls may be made, and which are asked about.")),
	wrappers: z
		.optional(z.array(wrapperSchema).check(z.maxLength(200)))
		.check(z.describe("What is put around calls. Every one that fits holds; the first is the outermost.")),
	ticketTtlHours: z
		.optional(z.number().check(z.gt(0), z.lte(8760)))
		.check(
			z.describe("After how many hours without a decision a call that was asked about is cancelled; 24 without it."),
		),
});

export type ToolPolicy = z.infer<typeof toolPolicySchema> & {
	/** Of one that holds instead of a broken one: what is broken, as a clause. */
	brokenBecause?: string;
};
export type Permissions = z.infer<typeof permissionsSchema>;
export type PermissionRule = z.infer<typeof permissionRuleSchema>;
export type Wrapper = z.infer<typeof wrapperSchema>;
export type Hook = z.infer<typeof hookSchema>;

/** The policy where none is set. */
export const noToolPolicy: ToolPolicy = z.parse(toolPolicySchema, {});

/** What holds while the file of a policy is broken and none was read from it before: a slip must not allow what was forbidden. */
export function askAboutAll(brokenBecause: string): ToolPolicy {
	return { ...z.parse(toolPolicySchema, { permissions: { default: "ask" } }), brokenBecause };
}

/** The `ticketTtlHours` of a policy that sets none. */
export const defaultTicketTtlHours = 24;

/** The rule that holds for a tool; undefined when none does. */
export function ruleFor(policy: ToolPolicy, tool: string): ToolPolicy["rules"][number] | undefined {
	return policy.rules.find((rule) => rule.tool === "*" || rule.tool === tool);
}

/** What was typed as the arguments of a call: JSON, or its primary argument. */
export function typedArguments(tool: string, typed: string): unknown {
	if (typed.trim().startsWith("{")) {
		try {
			return JSON.parse(typed);
		} catch {
			// It is a text that begins so.
		}
	}
	if (typed === "") return {};
	const names: Record<string, string> = { bash: "command", powershell: "command", grep: "pattern", find: "pattern" };
	return { [names[tool] ?? "path"]: typed };
}
