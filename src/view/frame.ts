import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { columnsOf, cut, pad, wrap } from "./columns.ts";

/** Pi's theme, of which the screen uses the colours. */
export type Theme = Pick<ExtensionContext["ui"]["theme"], "fg" | "bold" | "inverse">;
type Colour = Parameters<Theme["fg"]>[0];

/** A part of a row: so many columns, or as many as its text has. The last one that has no width gets the rest. */
export interface Cell {
	text: string;
	columns?: number;
	colour?: Colour;
	bold?: boolean;
}

/** A row of a list; a heading cannot be selected. */
export interface Row {
	cells: readonly Cell[];
	isHeading?: boolean;
}

/** What the screen shows, without its size. */
export interface Frame {
	tabs: readonly string[];
	/** The tab that is shown, by its place. */
	tab: number;
	/** A line below the tabs. */
	title: Row | undefined;
	/** How many rows there are, and one of them for a width; only those that are seen are asked for. */
	count: number;
	rowAt: (index: number, width: number) => Row;
	/** The row under the cursor, or -1: then `top` alone says what is seen. */
	selected: number;
	/** The first row that is seen, moved so that the selected one is seen. */
	top: number;
	/** Said when there are no rows. */
	empty: string;
	message: { text: string; colour: Colour } | undefined;
	/** What each key does, the most useful first. */
	keys: readonly string[];
}

/** Rows of the screen: exactly `height` of them, of at most `width` columns each, and what has become of `top`. */
export interface Drawn {
	rows: string[];
	top: number;
	/** How many rows of the list are seen. */
	page: number;
}

/** Draws a frame. The lower the terminal, the less is around the list: its row and the keys come first. */
export function drawFrame(frame: Frame, width: number, height: number, theme: Theme): Drawn {
	const style = (cell: Cell, text: string) => {
		const coloured = cell.colour === undefined || text.trim() === "" ? text : theme.fg(cell.colour, text);
		return cell.bold === true ? theme.bold(coloured) : coloured;
	};
	const draw = ({ cells }: Row, room: number) => {
		let left = room;
		return cells
			.map((cell) => {
				const text = cell.columns === undefined ? cut(cell.text, left) : pad(cell.text, Math.min(left, cell.columns));
				left -= columnsOf(text);
				return style(cell, text);
			})
			.join("");
	};
	const head = height >= 3 ? [tabBar(frame, width, theme)] : [];
	const border = height >= 8 ? head.push("") - 1 : -1;
	if (frame.title !== undefined && height >= 4) head.push(draw(frame.title, width));
	const foot: string[] = [];
	if (frame.message !== undefined && height >= 2) {
		const { text, colour } = frame.message;
		for (const row of wrap(text, width).slice(0, height >= 8 ? 3 : 1)) foot.push(theme.fg(colour, row));
	}
	if (height - head.length - foot.length >= 2) {
		for (const row of keyRows(frame.keys, width, height >= 8 ? 3 : 1)) foot.push(theme.fg("dim", row));
	}
	const page = Math.max(1, height - head.length - foot.length);
	const top = topFor(frame, page);
	if (border >= 0) head[border] = theme.fg("borderMuted", borderRow(frame.count - top - page, width));
	const list: string[] = [];
	if (frame.count === 0) list.push(...wrap(frame.empty, width).map((row) => theme.fg("muted", row)));
	for (let index = top; index < Math.min(frame.count, top + page); index++) {
		const row = frame.rowAt(index, Math.max(1, width - marker.length));
		const isSelected = index === frame.selected;
		// The sign says it too: a terminal without colours shows no other difference.
		const mark = frame.selected < 0 ? "" : isSelected ? theme.fg("accent", marker) : " ".repeat(marker.length);
		list.push(mark + draw(row, width - (frame.selected < 0 ? 0 : marker.length)));
	}
	const shown = list.slice(0, page);
	while (shown.length < page) shown.push("");
	return { rows: [...head, ...shown, ...foot].slice(-height), top, page };
}

const marker = "→ ";

/** A line, which says how many rows there are below what is seen. */
function borderRow(below: number, width: number): string {
	const said = below > 0 ? ` ${below} more below ──` : "";
	return columnsOf(said) < width ? "─".repeat(width - columnsOf(said)) + said : "─".repeat(width);
}

function topFor({ count, selected, top }: Frame, page: number): number {
	const last = Math.max(0, count - page);
	if (selected < 0) return Math.min(Math.max(0, top), last);
	const lowest = Math.max(0, selected - page + 1);
	return Math.min(Math.max(top, lowest), Math.max(0, selected), Math.max(last, lowest));
}

/** All tabs with the shown one in brackets, or only that one when there is no room. */
function tabBar({ tabs, tab }: Frame, width: number, theme: Theme): string {
	const labels = tabs.map((name, index) => (index === tab ? `[${index + 1} ${name}]` : ` ${index + 1} ${name} `));
	const fits = columnsOf(labels.join(" ")) <= width;
	const shown = fits ? labels : labels.map((label, index) => (index === tab ? label : `${index + 1}`));
	if (columnsOf(shown.join(" ")) > width) return theme.fg("accent", theme.bold(cut(labels[tab] ?? "", width)));
	return shown
		.map((label, index) => (index === tab ? theme.fg("accent", theme.bold(label)) : theme.fg("muted", label)))
		.join(" ");
}

/** The keys in at most so many rows; those for which there is no room are left out. */
function keyRows(keys: readonly string[], width: number, maxRows: number): string[] {
	const rows: string[] = [];
	let row = "";
	for (const key of keys) {
		const longer = row === "" ? key : `${row} · ${key}`;
		if (columnsOf(longer) <= width) {
			row = longer;
			continue;
		}
		if (rows.length === maxRows - 1) continue;
		rows.push(row);
		row = key;
	}
	return [...rows, row].filter((text) => text !== "").map((text) => cut(text, width));
}
