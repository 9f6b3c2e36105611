import { oneLine, textLines } from "../mail/text.ts";
import { cut, wrap } from "./columns.ts";

/** The rows and columns of a terminal; as many as most have where there is none, as behind RPC. */
export interface Size {
	rows: number;
	columns: number;
}

/** What a dialog of Pi says above its choices. */
export interface Question {
	/** Said first; left out where there is no room for it beside what is said last. */
	before: string;
	/** Shown as far as there is room: its start and its end. */
	text: string;
	/** Said last, always. */
	after?: readonly string[];
}

/** The size of the terminal that this process has. */
export function terminalSize({ rows, columns }: Partial<Size> = process.stdout): Size {
	return { rows: rows || 24, columns: columns || 80 };
}

/** Rows of a dialog and of what Pi shows below it that are neither its text nor its choices. */
const otherRows = 10;
/** As many of these as may be above the screen: a line and an empty row. */
const spareRows = 2;
/** Fewest rows of text that a decision can be made on. */
const fewestRows = 3;

/** Whether so many choices leave room for what they are about. */
export function hasRoom(choices: number, { rows }: Size): boolean {
	return rows - otherRows + spareRows - choices >= fewestRows;
}

/** The text of a dialog with so many choices, in so few rows that all of these are on the screen (D8). */
export function questionText({ before, text, after = [] }: Question, choices: number, { rows, columns }: Size): string {
	const width = columns - 2;
	const room = Math.max(fewestRows, rows - otherRows - choices);
	const isLow = room <= fewestRows;
	const begin = (line: string) => beginning(line, isLow ? 1 : 2, width);
	const first = isLow && after.length > 0 ? [] : [begin(before)];
	const last = after.map(begin);
	const left = room - countRows([...first, ...last].join("\n"), width);
	return [...first, shortened(text, Math.max(1, left), width), ...last].join("\n");
}

function beginning(text: string, rows: number, width: number): string {
	const wrapped = wrap(oneLine(text), width);
	if (wrapped.length <= rows) return oneLine(text);
	return [...wrapped.slice(0, rows - 1), cut(`${wrapped[rows - 1]}…`, width)].join(" ");
}

/** As much of the start and the end of a text as fits into so many rows, with its line breaks and how much is left out. */
function shortened(text: string, rows: number, width: number): string {
	const fits = (shown: string, room: number) => countRows(shown, width) <= room;
	// More of it is not looked at than could be seen.
	if (text.length <= rows * width && fits(cleaned(text), rows)) return cleaned(text);
	const most = Math.min(rows * width, Math.floor(text.length / 2));
	const start = (count: number) => text.slice(0, count).replace(/[\ud800-\udbff]$/, "");
	const end = (count: number) => text.slice(text.length - count).replace(/^[\udc00-\udfff]/, "");
	const note = (count: number) => `… ${text.length - count} characters left out …`;
	if (rows <= fewestRows) {
		// In one piece: there is no room for lines.
		const both = (count: number) =>
			[start(count), note(2 * count), end(count)].map((part) => oneLine(part.replaceAll("\n", " ⏎ "))).join(" ");
		return both(highest(most, (count) => fits(both(count), rows)));
	}
	const below = Math.floor((rows - 1) / 2);
	const first = start(highest(most, (count) => fits(cleaned(start(count)), rows - 1 - below)));
	const last = end(highest(most, (count) => fits(cleaned(end(count)), below)));
	return [cleaned(first), note(first.length + last.length), cleaned(last)].join("\n");
}

/** The highest number up to `most` that fits, where those below it do; 0 when none does. */
function highest(most: number, fits: (count: number) => boolean): number {
	let low = 0;
	let high = most + 1;
	while (high - low > 1) {
		const middle = Math.floor((low + high) / 2);
		if (fits(middle)) low = middle;
		else high = middle;
	}
	return low;
}

function cleaned(text: string): string {
	return textLines(text).join("\n");
}

function countRows(text: string, width: number): number {
	return text === "" ? 0 : text.split("\n").reduce((count, line) => count + wrap(line, width).length, 0);
}
