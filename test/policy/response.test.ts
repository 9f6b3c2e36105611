import { expect, test } from "vitest";
import { misfit, responseSchemaProblem } from "../../src/policy/response.ts";

const schema = {
	$schema: "https://json-schema.org/draft/2020-12/schema",
	title: "An answer",
	type: "object",
	required: ["color"],
	properties: {
		color: { enum: ["red", { deep: [1, 2] }] },
		sizes: { type: "array", items: { type: ["integer", "null"] } },
		note: { type: "string", description: "For people." },
	},
};

test.each([
	[{ color: "red" }, undefined],
	[{ color: { deep: [1, 2] }, sizes: [1, null], note: "", more: 1 }, undefined],
	["red", "the payload is not of type object"],
	[[], "the payload is not of type object"],
	[undefined, "the payload is not of type object"],
	[{}, 'the payload lacks "color"'],
	[{ color: "blue" }, 'the payload.color is none of ["red",{"deep":[1,2]}]'],
	[{ color: "red", sizes: [1, 1.5] }, "the payload.sizes[1] is not of type integer or null"],
	[{ color: "red", note: 1 }, "the payload.note is not of type string"],
])("%j fits the schema, or it is said where it does not: %s", (value, problem) => {
	expect(misfit(schema, value)).toBe(problem);
});

test("each type is told from the others", () => {
	const values = { null: null, boolean: false, object: {}, array: [], number: 0.5, string: "" };
	for (const type of Object.keys(values)) {
		for (const [name, value] of Object.entries(values)) {
			expect(misfit({ type }, value) === undefined).toBe(name === type);
		}
	}
	expect([misfit({ type: "integer" }, 1), misfit({ type: "number" }, 1)]).toEqual([undefined, undefined]);
});

test("a schema that asks for what is not looked at fits nothing, and says what that is", () => {
	expect(misfit({ type: "string", pattern: "^a" }, "a")).toBe(
		'the response schema has "pattern" that is not understood',
	);
	expect(responseSchemaProblem({ properties: { a: { items: { $ref: "#" } } } })).toBe(
		'the response schema, property "a",, items, has "$ref" that is not understood',
	);
	for (const bad of [
		{ type: "text" },
		{ type: [], enum: 1 },
		{ required: "a" },
		{ required: [1] },
		{ properties: [] },
		{ items: [] },
		[],
	]) {
		expect(responseSchemaProblem(bad)).toBeDefined();
	}
	let deep = {};
	for (let n = 0; n < 10_000; n++) deep = { items: deep };
	expect(responseSchemaProblem(deep)).toContain("more than 32 levels deep");
});

test("what an object inherits is none of its properties", () => {
	expect(misfit({ required: ["toString"] }, {})).toBe('the payload lacks "toString"');
	expect(misfit({ properties: { constructor: { type: "string" } } }, {})).toBe(undefined);
});
