/**
 * A value as JSON in which the keys of every object are in order: two values are equal when these texts are.
 * Undefined for what is no JSON, or nested too deeply.
 */
export function canonicalJson(value: unknown): string | undefined {
	try {
		return JSON.stringify(value, (_, part: unknown) => (isRecord(part) ? inOrder(part) : part));
	} catch {
		return undefined;
	}
}

/** Whether two values are equal as JSON, in which the order of keys says nothing. What is no JSON equals nothing. */
export function isEqual(a: unknown, b: unknown): boolean {
	const text = canonicalJson(a);
	return text !== undefined && text === canonicalJson(b);
}

/** An object that is no array. */
export function isRecord(value: unknown): value is Record<string, unknown> {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

function inOrder(record: Record<string, unknown>): Record<string, unknown> {
	return Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1)));
}
