/** Where the parts of a JSON text stand. */
export interface JsonLines {
	/** The line at which it stops being JSON, counted from 1; undefined when it is JSON. */
	slip: number | undefined;
	/** The paths at which an object has a value more than once. `JSON.parse` passes over all but the last. */
	twice: readonly (readonly PropertyKey[])[];
	/** The line of the value at a path, or of the nearest one around it that is there. */
	lineOf(path: readonly PropertyKey[]): number;
}

/** Looks at a JSON text for a person who has to find a slip in it. `JSON.parse` names no place for some of them. */
export function jsonLines(text: string): JsonLines {
	const places = new Map<string, number>();
	const twice: (readonly PropertyKey[])[] = [];
	let at = 0;

	function take(token: RegExp): string | undefined {
		at += match(/\s*/y)?.length ?? 0;
		const found = match(token);
		at += found?.length ?? 0;
		return found;
	}

	function match(token: RegExp): string | undefined {
		token.lastIndex = at;
		return token.exec(text)?.[0];
	}

	/** One that is nested more deeply than anything a person writes is a slip. */
	function takesValue(path: readonly PropertyKey[]): boolean {
		take(/(?:)/y);
		const place = keyOf(path);
		if (places.has(place)) twice.push(path);
		places.set(place, at);
		const opening = take(/[{[]/y);
		if (opening === undefined) return (take(string) ?? take(word)) !== undefined;
		const closing = opening === "{" ? /\}/y : /\]/y;
		if (take(closing) !== undefined) return true;
		let index = 0;
		do {
			const name = opening === "{" ? take(string) : undefined;
			if (opening === "{" && (name === undefined || take(/:/y) === undefined)) return false;
			const key = name === undefined ? index++ : String(JSON.parse(name));
			if (path.length > maxDepth || !takesValue([...path, key])) return false;
		} while (take(/,/y) !== undefined);
		return take(closing) !== undefined;
	}

	function lineAt(place: number): number {
		return text.slice(0, place).split("\n").length;
	}

	const isWhole = takesValue([]) && take(/$/y) !== undefined;
	return {
		slip: isWhole ? undefined : lineAt(at),
		twice,
		lineOf(path) {
			const found = [...path.keys(), path.length]
				.toReversed()
				.map((length) => places.get(keyOf(path.slice(0, length))));
			return lineAt(found.find((place) => place !== undefined) ?? 0);
		},
	};
}

const maxDepth = 100;
const string = /"(?:[^"\\[\p{Cc}--[\x7f-\x9f]]]|\\(?:["\\\/bfnrt]|u[\da-fA-F]{4}))*"/vy;
const word = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

function keyOf(path: readonly PropertyKey[]): string {
	return JSON.stringify(path.map(String));
}
