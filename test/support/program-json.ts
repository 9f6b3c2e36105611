import * as z from "zod/mini";
import { parts, schemas } from "../../src/cli/schemas.ts";

/** What the program prints with `--json`, as the types that README.md shows. */
export function jsonTypes(): string {
	const shapes = Object.entries(parts).map(([name, schema]) => [titled(name), JSON.stringify(bare(schema))] as const);
	const nameOf = (schema: object) => shapes.find(([, text]) => text === JSON.stringify(schema))?.[0];
	const declared = (name: string, schema: z.core.$ZodType) =>
		`type ${titled(name)} = ${typeText(bare(schema), nameOf, 0)};`;
	const inner = Object.entries(parts).map(([name, schema]) => {
		const itself = (other: object) => (nameOf(other) === titled(name) ? undefined : nameOf(other));
		return `type ${titled(name)} = ${typeText(bare(schema), itself, 0)};`;
	});
	return [...inner, ...Object.entries(schemas).map(([name, schema]) => declared(`${name}-output`, schema))]
		.join("\n")
		.replaceAll("= \n", "=\n");
}

interface Schema {
	type?: string;
	enum?: string[];
	const?: string;
	items?: Schema;
	anyOf?: Schema[];
	properties?: Record<string, Schema>;
	required?: string[];
}

function bare(schema: z.core.$ZodType): Schema {
	const { $schema: _, ...rest } = z.toJSONSchema(schema);
	return rest as Schema;
}

function typeText(schema: Schema, nameOf: (schema: object) => string | undefined, depth: number): string {
	const name = nameOf(schema);
	if (name !== undefined) return name;
	if (schema.const !== undefined) return JSON.stringify(schema.const);
	if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
	if (schema.anyOf !== undefined) {
		return schema.anyOf.map((one) => `\n\t| ${typeText(one, nameOf, depth + 1)}`).join("");
	}
	if (schema.type === "array") return `${typeText(schema.items ?? {}, nameOf, depth)}[]`;
	if (schema.type !== "object") return schema.type === "integer" ? "number" : (schema.type ?? "unknown");
	const fields = Object.entries(schema.properties ?? {}).map(([key, value]) => {
		return `${key}${schema.required?.includes(key) ? "" : "?"}: ${typeText(value, nameOf, depth + 1)}`;
	});
	const line = `{ ${fields.join("; ")} }`;
	if (line.length < 90 || depth > 0) return line;
	return `{\n${fields.map((field) => `\t${field};`).join("\n")}\n}`;
}

function titled(name: string): string {
	return name.replace(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
