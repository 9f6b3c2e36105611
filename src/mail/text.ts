/**
 * A text from outside as part of one line: control characters, line separators and bidirectional marks become spaces,
 * and more than `maxCharacters` code points are cut at the end, the last shown being `…` (PSM-060, design D8).
 */
export function field(text: string, maxCharacters = 128): string {
	// A code point has at most two units: the slice spares spreading what is cut anyway.
	const characters = [...oneLine(text.slice(0, 2 * (maxCharacters + 1)))];
	return characters.length > maxCharacters
		? `${characters.slice(0, maxCharacters - 1).join("")}…`
		: characters.join("");
}

/** The same, cut in the middle: what a command does may stand at its end. */
export function bothEnds(text: string, maxCharacters: number): string {
	const characters = [...oneLine(text)];
	if (characters.length <= maxCharacters) return characters.join("");
	const half = Math.floor((maxCharacters - 3) / 2);
	return `${characters.slice(0, half).join("")} … ${characters.slice(-half).join("")}`;
}

/** The same for a path, of at most 512 code points. It is cut at the start: what tells one file or folder from another is its end. */
export function pathField(path: string): string {
	const characters = [...oneLine(path.slice(-2 * (maxPathCharacters + 1)))];
	return characters.length > maxPathCharacters
		? `…${characters.slice(1 - maxPathCharacters).join("")}`
		: characters.join("");
}

/** Marks that change the direction in which a line is read, as the inside of a character class. */
export const bidiMarks = "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069";
export const loneSurrogate = /\p{Cs}/gu;

/** What a reader does not see: spaces, zero-width and other format characters, combining marks, the blank Braille cell. */
export const unseen = /[\s\p{Cf}\p{M}\p{Default_Ignorable_Code_Point}\u2800]/gu;

/** The text, or undefined when a reader sees nothing of it. */
export function seen(text: string): string | undefined {
	return text.replace(unseen, "") === "" ? undefined : text;
}

/** A text from outside as several lines: of the control characters only tabs and the ends of lines are left (design D8). */
export function manyLines(text: string): string {
	return text
		.replace(/\r\n|[\u2028\u2029]/g, "\n")
		.replace(notInBody, " ")
		.replace(loneSurrogate, "\ufffd");
}

const notInBody = new RegExp(`[^\\P{Cc}\\n\\t]|[${bidiMarks}]`, "gu");
const notInLine = new RegExp(`[\\p{Cc}\\u2028\\u2029${bidiMarks}]`, "gu");
const maxPathCharacters = 512;
/** How far into a text its first line is looked for: a large one may be nothing but short lines. */
const maxSearched = 4096;

/** The lines of a text for a person: tabs are spaces, and nothing in them acts on a terminal. */
export function textLines(text: string): string[] {
	return text
		.replace(/\r\n|[\u2028\u2029]/g, "\n")
		.split("\n")
		.map((line) => oneLine(line.replaceAll("\t", "    ")));
}

/** The first line that a reader sees something of, cleaned: a remark in brackets, such as that the user took over, is none when more follows. */
export function firstLine(text: string): string {
	const lines = text
		.slice(0, maxSearched)
		.split("\n")
		.flatMap((line) => seen(oneLine(line.trim())) ?? []);
	return lines.find((line) => !/^\(.*\)$/.test(line.trim())) ?? lines[0] ?? "";
}

/** A count with its noun, whose plural ends in `s`: `1 mail`, `2 mails`. */
export function counted(count: number, noun: string): string {
	return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** The whole text as part of one line. */
export function oneLine(text: string): string {
	return text.replace(notInLine, " ").replace(loneSurrogate, "\ufffd");
}

/** The longest start of a text that has at most `maxBytes` in UTF-8; it ends between two code points. */
export function start(text: string, maxBytes: number): string {
	// The encoder takes memory for all that it is given.
	const characters = text.slice(0, maxBytes);
	return characters.slice(0, new TextEncoder().encodeInto(characters, new Uint8Array(maxBytes)).read);
}
