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
	return {
		render(width) {
			return lines.flatMap((line) => {
				const rows = wrapAnsi(line, Math.max(1, width - indent), { hard: true, trim: false }).split("\n");
				return rows.slice(0, maxRows).map((row) => margin + row);
			});
		},
		invalidate() {},
	};
}
