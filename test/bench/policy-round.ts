/** One round of the question in policy.ts, in a process of its own; prints a {@link PolicyRound}. */
import type { PermissionRule } from "../../src/mail/tool-policy.ts";
import { compile, evaluate } from "../../src/policy/permissions.ts";
import { finish, ordersOf } from "./rounds.ts";

export interface PolicyOrders {
	/** Calls that are looked at, of each kind, by turns. */
	readonly calls: number;
}

/** Milliseconds for each call. */
export interface PolicyRound {
	/** With 200 rules, of which 150 are about the tool and one fits. */
	readonly many: number[];
	/** The same, and one of them has a regular expression. */
	readonly regex: number[];
	/** With no rules. */
	readonly none: number[];
}

const { calls }: PolicyOrders = ordersOf();
const rules = Array.from({ length: 200 }, (_, n): PermissionRule => {
	const behavior = n % 2 === 0 ? "ask" : "deny";
	if (n % 4 === 0) return { pattern: `mcp__server${n}__*`, behavior };
	return { pattern: n % 4 === 1 ? `bash(command~"*tool${n} *", timeout="1")` : `bash(*tool${n} --option *)`, behavior };
});
const many = compile({ default: "allow", rules });
const regex = compile({
	default: "allow",
	rules: [...rules, { pattern: 'bash(command=~"rm\\\\s+-")', behavior: "ask" }],
});
const none = compile({ default: "allow", rules: [] });
const round: PolicyRound = { many: [], regex: [], none: [] };
for (let n = 0; n < calls; n++) {
	const call = {
		tool: "bash",
		args: { command: `cd packages/${n} && npm run build && tool199 --option x`, timeout: 5 },
	};
	for (const [policy, times] of [
		[many, round.many],
		[regex, round.regex],
		[none, round.none],
	] as const) {
		const begin = performance.now();
		evaluate(policy, call);
		times.push(performance.now() - begin);
	}
}
finish(round);
