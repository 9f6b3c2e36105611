import type { MessageRenderer } from "@earendil-works/pi-coding-agent";
import wrapAnsi from "wrap-ansi";

/** Something that Pi's terminal draws. */
export type Component = NonNullable<ReturnType<MessageRenderer>>;

/**
 * Lines of styled text, wrapped to the width of the terminal; with `maxRows` each line is cut after so many rows. Pi's
 * own text component would do the same, but a bundle that imports it takes Pi seconds to load (design D4).
 */
export function drawLines(
	lines: readonly string[],
	{ indent = 0, maxRows = Number.POSITIVE_INFINITY } = {},
): Component {
	const margin = " ".repeat(indent);
	let drawn: { width: number; rows: string[] } = { width: 0, rows: [] };
	return {
		render(width) {
			// Pi asks again for each frame.
			if (width !== drawn.width) {
				const rowsOf = (line: string) => wrapped(line, width - indent).slice(0, maxRows);
				drawn = { width, rows: lines.flatMap((line) => rowsOf(line).map((row) => margin + row)) };
			}
			return drawn.rows;
		},
		invalidate() {},
	};
}

/**
 * What Pi counts as more columns than `wrap-ansi` does: spacing marks, the vowels am of Thai and Lao, single letters of
 * flags, and what follows a mark in the same cluster. Counting too much makes a row shorter; a row that has too many
 * columns ends Pi, unless it draws on the full screen.
 */
const wider = /[\p{Mc}\p{Me}\u0e33\u0eb3\u{1f1e6}-\u{1f1ff}]|(?<=[\p{M}\u200c\u200d])\P{M}/gu;

function wrapped(line: string, width: number): string[] {
	for (let columns = width; ; columns = Math.floor(columns * 0.8)) {
		const rows = wrapAnsi(line, columns, { hard: true, trim: false }).split("\n");
		if (columns <= 1 || rows.every((row) => columns + (row.match(wider)?.length ?? 0) <= width)) return rows;
	}
}
