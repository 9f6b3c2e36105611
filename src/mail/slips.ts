import { distance } from "fastest-levenshtein";
import * as z from "zod/mini";
import { field } from "./text.ts";

type Issue = z.core.$ZodIssue;

/** What is wrong with a value at a key of settings, as a clause; of several things a key that is not known comes first. */
export function slipOf(
	schema: z.core.$ZodType,
	json: unknown,
	issues: readonly Issue[],
): { what: string; path: readonly PropertyKey[] } {
	const unknown = issues.find(isUnknownKey);
	if (unknown !== undefined) {
		const [key = ""] = unknown.keys;
		const known = [...new Set(keysAt(schema, unknown.path))];
		const nearest = nearestOf(key, known);
		const hint = nearest === undefined ? ` (known: ${known.join(", ")})` : ` (did you mean "${nearest}"?)`;
		return { what: `${nameOf(unknown.path)} has the unknown key "${field(key, 60)}"${hint}`, path: unknown.path };
	}
	const [first] = issues;
	const path = first?.path ?? [];
	const wrong = path.reduce<unknown>((value, part) => (isObject(value) ? value[String(part)] : undefined), json);
	const wanted = first && wantedBy(first, schema, path);
	const hint = wanted === undefined ? "" : ` (it is ${wanted})`;
	return { what: `${nameOf(path)} cannot be ${field(JSON.stringify(wrong) ?? "left out", 60)}${hint}`, path };
}

/** Where an unknown key of the settings was to stand, when it reads like a policy for tools, which must not be passed over. */
export function misplacedPolicy(key: string, value?: unknown): string | undefined {
	const plain = key.toLowerCase().replaceAll(/[^a-z]/g, "");
	const meant = policyKeys.find(({ reads }) => distance(plain, reads) <= 2)?.meant;
	if (meant !== undefined) return meant;
	const isAbout = /tool|polic|perm|wrap|^rules?$/.test(plain);
	// Also one that stands a level too deep.
	return isAbout || (isObject(value) && Object.keys(value).some((inner) => misplacedPolicy(inner) !== undefined))
		? "toolPolicy"
		: undefined;
}

const policyKeys = [
	{ reads: "toolpolicy", meant: "toolPolicy" },
	{ reads: "toolpolicies", meant: "toolPolicy" },
	{ reads: "toolspolicy", meant: "toolPolicy" },
	{ reads: "policy", meant: "toolPolicy" },
	{ reads: "permissions", meant: "toolPolicy.permissions" },
	{ reads: "wrappers", meant: "toolPolicy.wrappers" },
];

/** The name that a text was meant to be; undefined when none is much like it. */
export function nearestOf(text: string, names: readonly string[]): string | undefined {
	const plain = text.toLowerCase();
	const far = (name: string) => (name.toLowerCase().startsWith(plain) ? 0 : distance(plain, name.toLowerCase()));
	const [nearest] = names.toSorted((a, b) => far(a) - far(b));
	return nearest !== undefined && far(nearest) <= Math.max(1, nearest.length / 2) ? nearest : undefined;
}

function isUnknownKey(issue: Issue): issue is z.core.$ZodIssueUnrecognizedKeys {
	return issue.code === "unrecognized_keys";
}

function nameOf(path: readonly PropertyKey[]): string {
	return field(path.join("."));
}

/** What would be valid, as a clause after "it is"; undefined when it cannot be said shortly. */
function wantedBy(issue: Issue, schema: z.core.$ZodType, path: readonly PropertyKey[]): string | undefined {
	switch (issue.code) {
		case "invalid_value":
			return anyOf(issue.values.map(String));
		case "invalid_type": {
			const keys = [...new Set(keysAt(schema, path))];
			if (issue.expected === "object" && keys.length > 0) return `an object with ${keys.join(", ")}`;
			return typeNames[issue.expected];
		}
		case "invalid_union": {
			const wanted = issue.errors.flatMap(([first]) => (first && wantedBy(first, schema, path)) ?? []);
			return wanted.length === 0 ? undefined : anyOf([...new Set(wanted)]);
		}
		case "too_small":
			if (!numbers.has(issue.origin)) return undefined;
			return `${issue.inclusive === true ? "at least" : "more than"} ${issue.minimum}`;
		case "too_big":
			return numbers.has(issue.origin) ? `at most ${issue.maximum}` : undefined;
		default:
			return undefined;
	}
}

const numbers = new Set(["number", "int"]);
const typeNames: Record<string, string> = {
	string: "a text",
	number: "a number",
	int: "a whole number",
	boolean: "true or false",
	array: "a list",
	object: "an object",
	record: "an object",
};

function anyOf(words: readonly string[]): string {
	const last = words.at(-1) ?? "";
	return words.length < 2 ? last : `${words.slice(0, -1).join(", ")} or ${last}`;
}

/** The keys that an object at a path may have. */
function keysAt(schema: z.core.$ZodType, [key, ...rest]: readonly PropertyKey[]): string[] {
	if (schema instanceof z.ZodMiniOptional || schema instanceof z.ZodMiniDefault) {
		return keysAt(schema.def.innerType, key === undefined ? [] : [key, ...rest]);
	}
	if (schema instanceof z.ZodMiniUnion) {
		return schema.def.options.flatMap((option) => keysAt(option, key === undefined ? [] : [key, ...rest]));
	}
	if (schema instanceof z.ZodMiniArray) return key === undefined ? [] : keysAt(schema.def.element, rest);
	if (!(schema instanceof z.ZodMiniObject)) return [];
	if (key === undefined) return Object.keys(schema.def.shape);
	const inner: z.core.$ZodType | undefined = Object.getOwnPropertyDescriptor(schema.def.shape, key)?.value;
	return inner === undefined ? [] : keysAt(inner, rest);
}

function isObject(value: unknown): value is Record<string, unknown> {
	return typeof value === "object" && value !== null;
}
