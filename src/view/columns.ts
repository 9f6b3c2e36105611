/**
 * Texts in columns of the terminal. Each character counts as at least the columns that Pi counts for it, since a row that
 * has too many ends Pi: letters of the Latin, Greek, Cyrillic and like alphabets one, all that may be wide two. Counting too
 * much makes a row shorter. The texts hold no control characters and no styles (see `mail/text.ts`).
 */
export function columnsOf(text: string): number {
	if (plain.test(text)) return text.length;
	let columns = 0;
	for (const character of text) columns += columnsOfOne(character);
	return columns;
}

/** The text in at most so many columns; where it is cut, it ends in `…`. */
export function cut(text: string, columns: number): string {
	if (columnsOf(text) <= columns) return text;
	if (columns < 1) return "";
	let room = columns - 1;
	let kept = "";
	for (const character of text) {
		room -= columnsOfOne(character);
		if (room < 0) break;
		kept += character;
	}
	return `${kept}…`;
}

/** The text in exactly so many columns. */
export function pad(text: string, columns: number): string {
	const shown = cut(text, columns);
	return shown + " ".repeat(Math.max(0, columns - columnsOf(shown)));
}

/** A line in rows of at most so many columns, broken after a space where there is one. An empty line is one row. */
export function wrap(line: string, columns: number): string[] {
	const width = Math.max(2, columns);
	const rows: string[] = [];
	let start = 0;
	while (start < line.length) {
		const end = endOfRow(line, start, width);
		rows.push(line.slice(start, end).trimEnd());
		start = end;
	}
	return rows.length > 0 ? rows : [""];
}

const plain = /^[\x20-\x7e]*$/;
/** Signs of this program that every terminal draws in one column, as Pi counts them. */
const narrowSigns = new Set("…·→↑↓│─›✉");
/** Two by Pi's count in spite of their place: the vowels am of Thai and Lao. */
const wideVowels = new Set("\u0e33\u0eb3");

function columnsOfOne(character: string): number {
	const code = character.codePointAt(0) ?? 0;
	if (code < 0x1100) return wideVowels.has(character) ? 2 : 1;
	return (code >= 0x1e00 && code < 0x2100) || narrowSigns.has(character) ? 1 : 2;
}

function endOfRow(line: string, start: number, width: number): number {
	let columns = 0;
	let space = -1;
	let at = start;
	while (at < line.length) {
		const character = String.fromCodePoint(line.codePointAt(at) ?? 0);
		columns += columnsOfOne(character);
		if (columns > width) return character === " " ? at + 1 : space > start ? space : Math.max(at, start + 1);
		at += character.length;
		if (character === " ") space = at;
	}
	return at;
}
