import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { Permissions, ToolPolicy } from "../mail/tool-policy.ts";
import type { PolicyProblem } from "../session/calls.ts";
import { isEqual } from "./json.ts";
import type { ToolCall } from "./pattern.ts";
import {
	compile,
	deniedOutright,
	evaluate,
	explain,
	narrow,
	type Policy,
	permissionsOf,
	ruleProblems,
	rulesForNoArgument,
	rulesForNoTool,
	type Verdict,
} from "./permissions.ts";
import { shownTool } from "./ticket-words.ts";
import { labelOf, toolHooks, wrapperProblems } from "./wrappers.ts";

/** The policy that holds in a session: what its person has set, and allowed since, narrowed by what a project has set. */
export interface InForce {
	/** As it was at most a second ago. */
	policy(ctx: ExtensionContext): ToolPolicy;
	/** What happens with a call. Throws for arguments that JSON cannot hold. */
	verdict(call: ToolCall, ctx: ExtensionContext): Verdict;
	/** Whether the project's settings keep a call from being allowed, whatever the person's say. */
	isNarrowed(call: ToolCall, ctx: ExtensionContext): boolean;
	/** The policy is read anew when it is used next. */
	readAgain(): void;
	/** The person allows such calls for as long as the session lives, whoever asks about them. */
	allow(pattern: string): void;
	/** The same for this call: another one has other arguments, or more. */
	allowCall(call: ToolCall): void;
	/** Which rule decides about a call, as lines for people. */
	explain(call: ToolCall, ctx: ExtensionContext): string[];
	/** What of it cannot be done for the tools that there are. */
	problems(ctx: ExtensionContext, tools: KnownTools): PolicyProblem[];
	/** The tools of which every call is denied. */
	denied(ctx: ExtensionContext, tools: readonly string[]): string[];
}

/** What is known of the tools that there are. */
export interface KnownTools {
	/** Their names. */
	tools: readonly string[];
	/** Whether it is one of Pi's own that is wrapped. */
	isWrapped: (tool: string) => boolean;
	/** The JSON Schema of its arguments, where they are known for certain. */
	schemaOf: (tool: string) => unknown;
}

export interface InForceParts {
	/** The policy as it is set now. */
	policy: () => ToolPolicy;
	/** The policy that a trusted project sets, of which the permissions hold; undefined when it sets none. */
	projectPolicy: (ctx: ExtensionContext) => ToolPolicy | undefined;
}

/** How old what was read of the settings may be. */
const freshMs = 1000;

export function createInForce(parts: InForceParts): InForce {
	let read: { at: number; policy: ToolPolicy; compiled: Policy; project: Policy | undefined } | undefined;
	const allowed: Permissions["rules"] = [];
	const allowedCalls: ToolCall[] = [];

	function current(ctx: ExtensionContext): NonNullable<typeof read> {
		const now = performance.now();
		if (read !== undefined && now - read.at < freshMs) return read;
		const policy = parts.policy();
		const narrowing = parts.projectPolicy(ctx);
		const user = compiledOf(policy);
		const project = narrowing && compiledOf(narrowing, "the project's settings");
		const compiled = project === undefined ? user : narrow(user, project);
		read = { at: now, policy, compiled, project };
		return read;
	}

	/** What the person allows for this session holds for what the project asks about as well. */
	function compiledOf(policy: ToolPolicy, source?: string): Policy {
		const permissions = permissionsOf(policy);
		return compile({ ...permissions, rules: [...permissions.rules, ...allowed] }, source);
	}

	function isAllowedCall({ tool, args }: ToolCall): boolean {
		return allowedCalls.some((call) => call.tool === tool && isEqual(call.args, args));
	}

	return {
		policy: (ctx) => current(ctx).policy,
		verdict(call, ctx) {
			const verdict = evaluate(current(ctx).compiled, call);
			if (verdict.behavior !== "ask" || !isAllowedCall(call)) return verdict;
			return { behavior: "allow", why: "it was allowed for the session" };
		},
		isNarrowed(call, ctx) {
			const { project } = current(ctx);
			return project !== undefined && evaluate(project, call).behavior !== "allow";
		},
		readAgain() {
			read = undefined;
		},
		allow(pattern) {
			allowed.push({ pattern, behavior: "allow" });
			read = undefined;
		},
		allowCall: (call) => allowedCalls.push(call),
		explain(call, ctx) {
			const { policy, compiled } = current(ctx);
			const lines = explain(compiled, call, shownTool(call.tool, labelOf(policy.wrappers ?? [], call.tool)));
			return isAllowedCall(call) ? [...lines, "It was allowed for the session: it is not asked about."] : lines;
		},
		problems(ctx, { tools, isWrapped, schemaOf }) {
			const { policy, compiled } = current(ctx);
			const { wrappers = [] } = policy;
			return [
				...ruleProblems(compiled),
				...rulesForNoTool(compiled, tools),
				...rulesForNoArgument(compiled, schemaOf),
				...wrapperProblems(wrappers, tools, isWrapped),
				...toolHooks(wrappers, isWrapped),
			];
		},
		denied: (ctx, tools) => deniedOutright(current(ctx).compiled, tools),
	};
}
