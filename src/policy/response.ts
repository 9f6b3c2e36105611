import { isEqual, isRecord } from "./json.ts";

/** A JSON Schema of what a decision brings along. */
export type ResponseSchema = Record<string, unknown>;

/**
 * Why a value does not fit a schema; undefined when it does. Of JSON Schema there are `type` (one or a list),
 * `properties`, `required`, `enum` and `items` (one schema for all); `title`, `description`, `default`, `examples`
 * and `$schema` say nothing. A schema with anything else fits no value: what it asks for must not go unchecked.
 */
export function misfit(schema: ResponseSchema, value: unknown): string | undefined {
	return responseSchemaProblem(schema) ?? misfitAt(schema, value, "the payload");
}

/** What of a schema is not understood; undefined when all of it is. */
export function responseSchemaProblem(schema: unknown, at = "the response schema", depth = 0): string | undefined {
	if (!isRecord(schema)) return `${at} is no object`;
	if (depth > maxDepth) return `${at} is more than ${maxDepth} levels deep`;
	for (const [keyword, value] of Object.entries(schema)) {
		const problem = keywordProblem(keyword, value, at, depth);
		if (problem !== undefined) return problem;
	}
	return undefined;
}

const maxDepth = 32;
const types = new Set<unknown>(["null", "boolean", "object", "array", "number", "integer", "string"]);
const remarks = new Set(["title", "description", "default", "examples", "$schema"]);

function keywordProblem(keyword: string, value: unknown, at: string, depth: number): string | undefined {
	const wrong = `${at} has "${keyword}" that is not understood`;
	switch (keyword) {
		case "type":
			return listOf(value).every((type) => types.has(type)) ? undefined : wrong;
		case "required":
			return Array.isArray(value) && value.every((name) => typeof name === "string") ? undefined : wrong;
		case "enum":
			return Array.isArray(value) ? undefined : wrong;
		case "items":
			return responseSchemaProblem(value, `${at}, items,`, depth + 1);
		case "properties":
			if (!isRecord(value)) return wrong;
			return first(Object.entries(value), ([name, part]) =>
				responseSchemaProblem(part, `${at}, property "${name}",`, depth + 1),
			);
		default:
			return remarks.has(keyword) ? undefined : wrong;
	}
}

/** The schema is understood, and so not deeper than it may be. */
function misfitAt(schema: ResponseSchema, value: unknown, at: string): string | undefined {
	const { type, required, properties, items } = schema;
	if (type !== undefined && !listOf(type).some((each) => isOfType(value, each))) {
		return `${at} is not of type ${listOf(type).join(" or ")}`;
	}
	if (Array.isArray(schema.enum) && !schema.enum.some((each) => isEqual(each, value))) {
		return `${at} is none of ${JSON.stringify(schema.enum)}`;
	}
	if (isRecord(value)) {
		const missing = listOf(required ?? []).find((name) => !Object.hasOwn(value, String(name)));
		if (missing !== undefined) return `${at} lacks "${missing}"`;
		return first(Object.entries(isRecord(properties) ? properties : {}), ([name, part]) =>
			isRecord(part) && Object.hasOwn(value, name) ? misfitAt(part, value[name], `${at}.${name}`) : undefined,
		);
	}
	if (!Array.isArray(value) || !isRecord(items)) return undefined;
	return first([...value.entries()], ([index, part]) => misfitAt(items, part, `${at}[${index}]`));
}

function isOfType(value: unknown, type: unknown): boolean {
	if (type === "null") return value === null;
	if (type === "object") return isRecord(value);
	if (type === "array") return Array.isArray(value);
	return type === "integer" ? Number.isInteger(value) : typeof value === type;
}

function listOf(value: unknown): unknown[] {
	return Array.isArray(value) ? value : [value];
}

function first<T>(parts: readonly T[], problemOf: (part: T) => string | undefined): string | undefined {
	for (const part of parts) {
		const problem = problemOf(part);
		if (problem !== undefined) return problem;
	}
	return undefined;
}
