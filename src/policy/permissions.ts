import { nearestOf } from "../mail/slips.ts";
import { field } from "../mail/text.ts";
import type { PermissionRule, Permissions, ToolPolicy } from "../mail/tool-policy.ts";
import type { PolicyProblem } from "../session/calls.ts";
import { isRecord } from "./json.ts";
import {
	all,
	createRegexRunner,
	type Fit,
	type Pattern,
	parsePattern,
	type RegexRunner,
	type ToolCall,
} from "./pattern.ts";

export type Behavior = Permissions["default"];

/** What happens with a call, and why. */
export interface Verdict {
	behavior: Behavior;
	/** The rule that decides; undefined when none fits. */
	rule?: PermissionRule;
	/** One clause, such as `rule 2 of the settings: deny bash(rm *)`. */
	why: string;
}

/** Permissions that were made ready to be evaluated once, for as long as the settings are the same. */
export interface Policy {
	readonly layers: readonly Layer[];
	readonly runner: RegexRunner;
}

/**
 * Makes permissions ready. `source` says for people where they were read.
 *
 * Each call has one verdict: a rule that denies beats one that allows, which beats one that asks; of those the most
 * specific decides, of these the first in the list (AWK-011); where no rule fits, the default. A rule whose pattern
 * does not compile denies every call of the tools that it names, or all where that cannot be told. What a regular
 * expression does not decide in time counts as fitting for deny and ask, and as not fitting for allow.
 */
export function compile(
	permissions: Permissions & Pick<ToolPolicy, "brokenBecause">,
	source = "the settings",
	runner: RegexRunner = createRegexRunner(),
): Policy {
	const rules = permissions.rules.map((rule, index): Compiled => {
		const parsed = parsePattern(rule.pattern);
		const name = `rule ${index + 1} of ${source}: ${field(`${rule.behavior} ${rule.pattern}`, maxShown)}`;
		if (parsed.ok) return { ...parsed.pattern, rule, name, index, behavior: rule.behavior, problem: undefined };
		const { specificity, fitsTool } = parsed.tool ?? { specificity: 0, fitsTool: () => true };
		const fitsArguments = () => true;
		const none = { tools: "", paths: [], isOfArguments: false };
		const problem = field(parsed.problem, maxShown);
		return { ...none, specificity, fitsTool, fitsArguments, rule, name, index, behavior: "deny", problem };
	});
	// The first that fits decides.
	rules.sort((a, b) => rank[a.behavior] - rank[b.behavior] || b.specificity - a.specificity || a.index - b.index);
	const { default: otherwise, brokenBecause = "no rule fits" } = permissions;
	return { layers: [{ source, default: otherwise, since: brokenBecause, rules, ofTool: new Map() }], runner };
}

/** The permissions of a policy, to be compiled: without any, every call is allowed. */
export function permissionsOf({ permissions, brokenBecause }: ToolPolicy): Parameters<typeof compile>[0] {
	const { default: otherwise, rules } = permissions ?? { default: "allow", rules: [] };
	return { default: otherwise, rules, ...(brokenBecause !== undefined && { brokenBecause }) };
}

/**
 * The permissions of the user, narrowed by those of a project. Each is evaluated by itself, with its own default, and
 * the stricter verdict holds; when both are as strict, the user's. So a project can deny, and ask about, what the
 * user allows, and its rules that allow only make exceptions from its own.
 */
export function narrow(user: Policy, project: Policy): Policy {
	return { layers: [...user.layers, ...project.layers], runner: user.runner };
}

/** What happens with a call. It is fast enough to be asked before each. Throws for arguments that JSON cannot hold. */
export function evaluate(policy: Policy, call: ToolCall): Verdict {
	return strictest(fittingIn(policy, call)).verdict;
}

/** What decides about a call, and which other rules fit and why they do not decide, as lines for people, who know the tool as `tool`. */
export function explain(policy: Policy, call: ToolCall, tool = field(call.tool)): string[] {
	const found = fittingIn(policy, call);
	const winner = strictest(found);
	const words = { allow: "is allowed", ask: "is asked about", deny: "is denied" }[winner.verdict.behavior];
	const lines = [`This call of ${tool} ${words}, by ${winner.verdict.why}.`];
	for (const judged of [winner, ...found.filter((other) => other !== winner)]) {
		if (judged !== winner) lines.push(beside(judged, winner));
		for (const lost of judged.fitting) {
			if (lost === judged.decides) continue;
			lines.push(`It fits, too, and loses: ${lost.name}${note(lost)} (${whyLost(lost, judged.decides)}).`);
		}
		for (const name of judged.undecided) lines.push(`It could not be tried in time, and ${name}.`);
	}
	return lines;
}

/** The tools of which every call is denied, whatever its arguments: what the model need not be told of (AWK-016). */
export function deniedOutright(policy: Policy, tools: readonly string[]): string[] {
	return tools.filter((tool) =>
		policy.layers.some((layer) => {
			const rules = rulesOf(layer, policy.runner, tool);
			if (rules.some(({ behavior, isOfArguments }) => behavior === "deny" && !isOfArguments)) return true;
			return layer.default === "deny" && rules.every(({ behavior }) => behavior === "deny");
		}),
	);
}

/** The rules whose pattern does not compile, or that another one beats in all their calls. */
export function ruleProblems(policy: Policy): PolicyProblem[] {
	return policy.layers.flatMap((layer) =>
		inOrder(layer.rules).flatMap((rule): PolicyProblem[] => {
			if (rule.problem !== undefined) return [{ what: `${rule.name}${note(rule)}`, mend }];
			const beats = layer.rules.slice(0, layer.rules.indexOf(rule)).find((other) => {
				return other.behavior !== rule.behavior && fitsAllOf(other, rule, policy.runner);
			});
			if (beats === undefined) return [];
			const why = `${beats.name} fits all its calls, and ${beats.behavior} beats ${rule.behavior}`;
			return [{ what: `${rule.name}, which never decides: ${why}`, mend }];
		}),
	);
}

/** The rules that are about none of the tools that there are, such as one for `Bash`. */
export function rulesForNoTool(policy: Policy, tools: readonly string[]): PolicyProblem[] {
	return policy.layers.flatMap((layer) => {
		const used = new Set(tools.flatMap((tool) => rulesOf(layer, policy.runner, tool)));
		return inOrder(layer.rules)
			.filter((rule) => rule.problem === undefined && !used.has(rule))
			.map(({ name, tools: meant }) => ({ ...noSuchTool(name, meant, tools), mend }));
	});
}

/** The rules that name an argument which their tool does not have. `schemaOf` says the JSON Schema of a tool's arguments where it is known. */
export function rulesForNoArgument(policy: Policy, schemaOf: (tool: string) => unknown): PolicyProblem[] {
	return policy.layers.flatMap((layer) =>
		inOrder(layer.rules).flatMap(({ name, tools, paths, rule }): PolicyProblem[] => {
			const schema = isOneTool(tools) ? schemaOf(tools) : undefined;
			const slips = [...paths.map((path) => slipIn(schema, path)), colonIn(schema, rule.pattern)];
			return slips.flatMap((slip) => (slip === undefined ? [] : [{ what: `${name}, which ${slip}`, mend }]));
		}),
	);
}

/** What is wrong with the path of an argument, as a clause. */
function slipIn(schema: unknown, path: string): string | undefined {
	const keys = path.split(".");
	const none = (meant: string[] | undefined) =>
		`names an argument that its tool does not have: ${path}${meant === undefined ? "" : `; did you mean ${meant.join(".")}?`}`;
	let at = schema;
	for (const [index, key] of keys.entries()) {
		if (!isRecord(at)) return undefined;
		if (isRecord(at.properties) && key !== "*") {
			const names = Object.keys(at.properties);
			const nearest = nearestOf(key, names);
			if (!names.includes(key)) return none(nearest === undefined ? undefined : keys.with(index, nearest));
			at = at.properties[key];
		} else {
			if (isRecord(at.items) && !/^(?:\*|\d+)$/.test(key)) return none(keys.toSpliced(index, 0, "*"));
			at = at.items;
		}
	}
	return undefined;
}

/** That an argument is named with a colon, which makes it a part of the text that the main argument has to fit. */
function colonIn(schema: unknown, pattern: string): string | undefined {
	const key = /^[^(]+\(\s*([\w$-]+):\s/.exec(pattern)?.[1];
	if (key === undefined || !isRecord(schema) || !isRecord(schema.properties)) return undefined;
	const nearest = nearestOf(key, Object.keys(schema.properties));
	if (nearest === undefined) return undefined;
	return `takes "${key}:" for a part of the text that it looks for; did you mean ${nearest}~"…"?`;
}

/** What is said of something that is about none of the tools that there are; such as are not always there may be meant. */
export function noSuchTool(
	name: string,
	meant: string,
	tools: readonly string[],
): Pick<PolicyProblem, "what" | "isMaybeMeant"> {
	const nearest = isOneTool(meant) ? nearestOf(meant, tools) : undefined;
	const what = `${name}, which fits none of the tools that there are`;
	return nearest === undefined ? { what, isMaybeMeant: true } : { what: `${what}; did you mean ${field(nearest)}?` };
}

const mend = "change toolPolicy.permissions in the file that has it: it holds as soon as that is saved";

/** Whether a rule is about every call that another one is about. */
function fitsAllOf(rule: Compiled, other: Compiled, runner: RegexRunner): boolean {
	if (rule.problem !== undefined || rule.isOfArguments) return false;
	if (rule.tools === "*" || rule.tools === other.tools) return true;
	const fits = () =>
		fittingOf(
			[rule],
			(it) => it.fitsTool(other.tools),
			runner,
			() => {},
		);
	return isOneTool(other.tools) && fits().length > 0;
}

function isOneTool(tools: string): boolean {
	return !tools.startsWith("/") && !tools.includes("*");
}

function inOrder(rules: readonly Compiled[]): Compiled[] {
	return rules.toSorted((a, b) => a.index - b.index);
}

/** The permissions of one file. */
interface Layer {
	readonly source: string;
	readonly default: Behavior;
	/** Why the default decides where it does. */
	readonly since: string;
	/** What decides first stands first. */
	readonly rules: readonly Compiled[];
	/** Those that are about a tool, by its name. */
	readonly ofTool: Map<string, readonly Compiled[]>;
}

interface Compiled extends Omit<Pattern, "text"> {
	readonly rule: PermissionRule;
	/** What it is called for people. */
	readonly name: string;
	readonly index: number;
	readonly behavior: Behavior;
	/** Why its pattern does not compile. */
	readonly problem: string | undefined;
}

/** The verdict of one layer. */
interface Judged {
	source: string;
	verdict: Verdict;
	decides: Compiled | undefined;
	fitting: readonly Compiled[];
	/** What is said of those that could not be tried in time. */
	undecided: readonly string[];
}

/** What stands first beats what stands behind it (AWK-011). */
const rank = { deny: 0, allow: 1, ask: 2 };
const strictness = { allow: 0, ask: 1, deny: 2 };
/** Longest text of a rule that is shown. */
const maxShown = 200;
/** Most tools whose rules are kept. */
const maxTools = 1000;

function fittingIn(policy: Policy, call: ToolCall): Judged[] {
	return policy.layers.map((layer) => judge(layer, policy.runner, call));
}

function judge(layer: Layer, runner: RegexRunner, call: ToolCall): Judged {
	const rules = rulesOf(layer, runner, call.tool);
	const undecided: string[] = [];
	const fitting = fittingOf(
		rules,
		(rule) => rule.fitsArguments(call),
		runner,
		({ name, behavior }) => {
			undecided.push(`counts as ${behavior === "allow" ? "not fitting" : "fitting"}: ${name}`);
		},
	);
	const decides = fitting[0];
	const verdict =
		decides === undefined
			? { behavior: layer.default, why: `the default of ${layer.source}, since ${layer.since}` }
			: { behavior: decides.behavior, rule: decides.rule, why: `${decides.name}${note(decides)}` };
	return { source: layer.source, verdict, decides, fitting, undecided };
}

/** The rules that are about a tool: its name is looked at once. */
function rulesOf(layer: Layer, runner: RegexRunner, tool: string): readonly Compiled[] {
	const known = layer.ofTool.get(tool);
	if (known !== undefined) return known;
	const rules = fittingOf(
		layer.rules,
		(rule) => rule.fitsTool(tool),
		runner,
		() => {},
	);
	if (layer.ofTool.size >= maxTools) layer.ofTool.clear();
	layer.ofTool.set(tool, rules);
	return rules;
}

/** The rules that fit, in their order; `isUndecided` hears of those that could not be tried in time. */
function fittingOf(
	rules: readonly Compiled[],
	fitOf: (rule: Compiled) => Fit,
	runner: RegexRunner,
	isUndecided: (rule: Compiled) => void,
): Compiled[] {
	const fits = rules.map(fitOf);
	const tests = fits.flatMap((fit) => (typeof fit === "boolean" ? [] : fit));
	const results = tests.length === 0 ? [] : runner.run(tests);
	let next = 0;
	return rules.filter((rule, index) => {
		const fit = fits[index] ?? false;
		if (typeof fit === "boolean") return fit;
		const result = all(results.slice(next, next + fit.length));
		next += fit.length;
		if (result === undefined) isUndecided(rule);
		return result ?? rule.behavior !== "allow";
	});
}

function strictest(judged: readonly Judged[]): Judged {
	const [first = nothing, ...others] = judged;
	return others.reduce((strict, other) => (isStricter(other, strict) ? other : strict), first);
}

/** A policy without layers allows everything. */
const nothing: Judged = {
	source: "",
	verdict: { behavior: "allow", why: "there are no permissions" },
	decides: undefined,
	fitting: [],
	undecided: [],
};

function isStricter({ verdict: a }: Judged, { verdict: b }: Judged): boolean {
	return strictness[a.behavior] > strictness[b.behavior];
}

/** What another file says than the one that decides. */
function beside({ source, verdict }: Judged, winner: Judged): string {
	const words = { allow: "allow it", ask: "ask about it", deny: "deny it" }[verdict.behavior];
	const than = strictness[verdict.behavior] < strictness[winner.verdict.behavior] ? "less strict" : "as strict";
	return `By ${source} alone: ${verdict.why}. That would ${words}, which is ${than}.`;
}

function note({ problem }: Compiled): string {
	return problem === undefined ? "" : `, which does not compile and so denies (${problem})`;
}

function whyLost(lost: Compiled, winner: Compiled | undefined): string {
	if (winner === undefined || winner.behavior !== lost.behavior) return `${winner?.behavior} beats ${lost.behavior}`;
	return winner.specificity > lost.specificity ? "it is less exact" : "it stands further down";
}
