import { createContext, Script } from "node:vm";
import { errorMessage } from "../mail/disk.ts";

/** A call of a tool, as its model made it. */
export interface ToolCall {
	tool: string;
	/** Its arguments; in what is no object no rule finds anything. */
	args: unknown;
}

/** A regular expression and the texts of which one has to match. */
export interface RegexTest {
	regex: RegExp;
	texts: readonly string[];
}

/**
 * What is known without regular expressions: it fits or does not, or it fits if all of these do, which a
 * {@link RegexRunner} says.
 */
export type Fit = boolean | readonly RegexTest[];

/**
 * Which calls a rule is about (AWK-012). What stands before the parenthesis names tools:
 *
 *   bash                 this tool
 *   mcp__*               every tool whose name fits; `*` stands for any text, and nothing else is special (SMB-061)
 *   /^(read|grep)$/i     a regular expression, found anywhere in the name unless it is anchored
 *
 * What stands in it names arguments; all of them must fit:
 *
 *   bash(npm *)                              the primary argument, see {@link primaryArgument}
 *   edit(path="a.ts")                        this text
 *   edit(path~"src/*")                       `*` as above
 *   edit(edits.0.newText=~"/TODO/i")         a regular expression, with or without slashes
 *   edit(path~"src/*", edits.*.newText=~"x") both; `*` in a path is any element
 *
 * A text stands in double or single quotes, in which a backslash protects a quote and a backslash. What is no text is
 * compared as its JSON. A call without the argument does not fit. A pattern looks at texts, and knows nothing of
 * shells: `bash(npm *)` fits `npm test; make` as well.
 */
export interface Pattern {
	readonly text: string;
	/** What stands before the parenthesis. */
	readonly tools: string;
	/** The more exact the higher: any argument counts more than the name of the tool, more of them more than fewer. */
	readonly specificity: number;
	/** The paths of the arguments that it names, such as `edits.0.newText`. */
	readonly paths: readonly string[];
	/** Whether it depends on the arguments which calls of a tool fit. */
	readonly isOfArguments: boolean;
	/** Whether it is about this tool. */
	fitsTool(tool: string): Fit;
	/** Whether the arguments of a call of such a tool fit. */
	fitsArguments(call: ToolCall): Fit;
}

/** A pattern; or what is wrong with its text, and which tools it names when that can be told. */
export type ParsedPattern =
	| { ok: true; pattern: Pattern }
	| { ok: false; problem: string; tool: Pick<Pattern, "specificity" | "fitsTool"> | undefined };

export function parsePattern(text: string): ParsedPattern {
	let tool: Pick<Pattern, "specificity" | "fitsTool"> | undefined;
	try {
		const [name, rest] = toolPart(text.trim());
		const { fits, weight } = matcherOf(name);
		tool = { specificity: weight, fitsTool: (other) => fits([other]) };
		const conditions = conditionsOf(rest);
		return {
			ok: true,
			pattern: {
				...tool,
				text,
				tools: name,
				specificity: weight + conditions.reduce((sum, condition) => sum + argumentWeight * condition.weight, 0),
				paths: conditions.flatMap(({ path }) => path ?? []),
				isOfArguments: conditions.length > 0,
				fitsArguments: (call) => allOf(conditions.map(({ fits }) => fits(call))),
			},
		};
	} catch (error) {
		if (!(error instanceof PatternError)) throw error;
		return { ok: false, problem: error.message, tool };
	}
}

/** Whether a call fits a pattern; undefined when that cannot be told in time. */
export function match(pattern: Pattern, call: ToolCall, runner: RegexRunner): boolean | undefined {
	const fit = allOf([pattern.fitsTool(call.tool), pattern.fitsArguments(call)]);
	return typeof fit === "boolean" ? fit : all(runner.run(fit));
}

/**
 * Whether a text fits one in which each `*` stands for any text. It takes no more time than the texts are long, times
 * their number.
 */
export function fitsGlob(glob: string, text: string): boolean {
	return globTest(glob)(text);
}

/** Runs regular expressions in a bounded time. */
export interface RegexRunner {
	/** For each whether it matches; undefined for those that were not done in time, or whose text is too long. */
	run(tests: readonly RegexTest[]): (boolean | undefined)[];
}

/**
 * One that never ends is given up after `timeoutMs`, and all are after four times that. A run costs about 0.1 ms:
 * nothing runs without tests.
 */
export function createRegexRunner(timeoutMs = 100): RegexRunner {
	let run: ((tests: readonly RegexTest[], done: boolean[]) => void) | undefined;

	function prepare(): NonNullable<typeof run> {
		// Only what runs in a context can be stopped.
		const box: { tests: readonly RegexTest[]; done: boolean[] } = { tests: [], done: [] };
		const context = createContext(box);
		const script = new Script(
			"for (const { regex, texts } of tests) done.push(texts.some((text) => regex.test(text)));",
		);
		return (tests, done) => {
			Object.assign(box, { tests, done });
			try {
				script.runInContext(context, { timeout: timeoutMs });
			} catch {
				// It was stopped: what is not done stays unknown.
			} finally {
				Object.assign(box, { tests: [], done: [] });
			}
		};
	}

	return {
		run(tests) {
			const short = tests.filter(isShort);
			const done: (boolean | undefined)[] = [];
			for (let runs = 0; done.length < short.length && runs < maxRuns; runs++) {
				run ??= prepare();
				const results: boolean[] = [];
				run(short.slice(done.length), results);
				done.push(...results);
				// Only the first of a run had all its time for itself; any other is the first of the next.
				if (results.length === 0) done.push(undefined);
			}
			let next = 0;
			return tests.map((test) => (isShort(test) ? done[next++] : undefined));
		},
	};
}

/** True when all are, false when one is not, else undefined. */
export function all(results: readonly (boolean | undefined)[]): boolean | undefined {
	if (results.includes(false)) return false;
	return results.includes(undefined) ? undefined : true;
}

/**
 * The argument that a pattern without names is about: the command of a shell, the path of a file, the pattern of a
 * search, else the first text.
 */
export function primaryArgument({ tool, args }: ToolCall): string | undefined {
	if (typeof args !== "object" || args === null) return undefined;
	const name = primaryNames.get(tool);
	return name === undefined ? Object.values(args).find(isText) : valuesAt(args, [name]).map(textOf)[0];
}

const primaryNames = new Map([
	...["bash", "powershell"].map((tool) => [tool, "command"] as const),
	...["read", "edit", "write", "ls"].map((tool) => [tool, "path"] as const),
	...["grep", "find"].map((tool) => [tool, "pattern"] as const),
]);

/** Longest text, in characters, that a regular expression is tried on. */
const maxRegexText = 1024 * 1024;
const maxRuns = 4;
/** How much more an argument counts than the name of a tool. */
const argumentWeight = 10_000;
const weights = { exact: 3000, glob: 2000, regex: 1000 };
const maxLiteral = 999;

function isShort({ texts }: RegexTest): boolean {
	return texts.every(({ length }) => length <= maxRegexText);
}

class PatternError extends Error {}

/** A test of texts, of which one has to pass. */
interface Matcher {
	fits: (texts: readonly string[]) => Fit;
	weight: number;
}

/** A test of an argument of a call, which stands at a path where it is named. */
interface Condition {
	path?: string;
	fits: (call: ToolCall) => Fit;
	weight: number;
}

/** The part that names tools, and all that follows it. */
function toolPart(text: string): [name: string, rest: string] {
	const isRegex = text.startsWith("/");
	const found = (isRegex ? /^\/(?:[^/\\]|\\.)+\/[a-z]*(?=\(|$)/su : /^[^\s()]+/u).exec(text);
	if (found === null) throw new PatternError(isRegex ? "its regular expression does not end with a slash" : noTool);
	return [found[0], text.slice(found[0].length).trim()];
}

const noTool = "it does not begin with the name of a tool";

function matcherOf(text: string): Matcher {
	if (text.startsWith("/")) return regexMatcher(text);
	return text.includes("*") ? globMatcher(text) : exactMatcher(text);
}

function exactMatcher(text: string): Matcher {
	return { fits: (texts) => texts.includes(text), weight: weights.exact + Math.min(maxLiteral, text.length) };
}

function globMatcher(text: string): Matcher {
	const literal = text.replaceAll("*", "").length;
	const fits = globTest(text);
	return { fits: (texts) => texts.some(fits), weight: weights.glob + Math.min(maxLiteral, literal) };
}

function regexMatcher(text: string): Matcher {
	const [, body, flags] = /^\/(.*)\/([a-z]*)$/s.exec(text) ?? [undefined, text, ""];
	if (/[gy]/.test(flags ?? "")) throw new PatternError(`the flags of ${text} can only be d, i, m, s, u and v`);
	try {
		const regex = new RegExp(body ?? "", flags);
		const weight = weights.regex + Math.min(maxLiteral, text.length);
		return { fits: (texts) => texts.length > 0 && [{ regex, texts }], weight };
	} catch (error) {
		throw new PatternError(errorMessage(error));
	}
}

function globTest(glob: string): (text: string) => boolean {
	const [first = "", ...middle] = glob.split("*");
	const last = middle.pop();
	if (last === undefined) return (text) => text === first;
	return (text) => {
		if (!text.startsWith(first) || !text.endsWith(last)) return false;
		let from = first.length;
		for (const part of middle) {
			const at = text.indexOf(part, from);
			if (at === -1) return false;
			from = at + part.length;
		}
		return from <= text.length - last.length;
	};
}

const fieldPattern = /\s*([\w$*-]+(?:\.[\w$*-]+)*)\s*(=~|~|=)\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*(,|$)/suy;

function conditionsOf(rest: string): Condition[] {
	if (rest === "") return [];
	if (!/^\(.*\)$/s.test(rest)) throw new PatternError(`"${rest}" is no argument in parentheses`);
	const text = rest.slice(1, -1).trim();
	if (text === "") throw new PatternError("there is nothing in its parentheses");
	// What looks like named arguments and is not whole must not be taken for a text that nothing fits.
	if (/^[\w$*-]+(?:\.[\w$*-]+)*\s*(?:=?~|=\s*["'])/.test(text)) return namedConditions(text);
	// It holds whatever the argument is.
	if (/^\*+$/.test(text)) return [];
	const { fits, weight } = text.includes("*") ? globMatcher(text) : exactMatcher(text);
	return [
		{
			weight,
			fits(call) {
				const value = primaryArgument(call);
				return value !== undefined && fits([value]);
			},
		},
	];
}

function namedConditions(text: string): Condition[] {
	const conditions: Condition[] = [];
	fieldPattern.lastIndex = 0;
	for (let isLast = false; !isLast; ) {
		const at = fieldPattern.lastIndex;
		const found = fieldPattern.exec(text);
		if (found === null) {
			throw new PatternError(`"${text.slice(at).trim()}" is not like path~"src/*", path="a text" or path=~"/regex/"`);
		}
		const [, path = "", operator = "", quoted = "", end = ""] = found;
		isLast = end === "";
		conditions.push(fieldCondition(path, operator, quoted.slice(1, -1)));
	}
	return conditions;
}

function fieldCondition(path: string, operator: string, quoted: string): Condition {
	// In a regular expression a backslash has a meaning of its own.
	const text = operator === "=~" ? quoted.replace(/\\(["'])/g, "$1") : quoted.replace(/\\(["'\\])/g, "$1");
	const { fits, weight } =
		operator === "=" ? exactMatcher(text) : operator === "~" ? globMatcher(text) : regexMatcher(text);
	const keys = path.split(".");
	return { path, weight, fits: ({ args }) => fits(valuesAt(args, keys).map(textOf)) };
}

/** What lies at a path; several for one with a `*`. */
function valuesAt(value: unknown, keys: readonly string[]): unknown[] {
	const [key, ...rest] = keys;
	if (key === undefined) return [value];
	if (typeof value !== "object" || value === null) return [];
	if (key === "*") return Object.values(value).flatMap((each) => valuesAt(each, rest));
	const found: unknown = Object.getOwnPropertyDescriptor(value, key)?.value;
	return found === undefined ? [] : valuesAt(found, rest);
}

function textOf(value: unknown): string {
	return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

function isText(value: unknown): value is string {
	return typeof value === "string";
}

/** True when all are, false when one is not, else what is left to try. */
function allOf(fits: readonly Fit[]): Fit {
	const tests: RegexTest[] = [];
	for (const fit of fits) {
		if (fit === false) return false;
		if (fit !== true) tests.push(...fit);
	}
	return tests.length === 0 || tests;
}
