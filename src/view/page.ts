import { field, pathField, textLines } from "../mail/text.ts";
import type { Listed, Overview, ThreadPart } from "../session/overview.ts";
import { wrap } from "./columns.ts";
import type { Row } from "./frame.ts";
import { shortTime, textRow } from "./rows.ts";

/** A mail that is opened. */
export interface Page {
	/** The whole mail, wrapped. Its thread comes as soon as it is read. */
	rowsOf(listed: Listed, width: number): Row[];
}

/** `read` does bulk work in slices, and calls `done` at its end. */
export function createPage(overview: Overview, read: (work: Generator<undefined>, done: () => void) => void): Page {
	let page: { of: Listed; version: number; width: number; rows: Row[] } | undefined;
	/** A text never changes, and a long one takes a while to be wrapped. */
	let text: { of: string; width: number; rows: readonly Row[] } | undefined;
	let thread: { of: Listed; version: number; parts: ThreadPart[] | undefined } | undefined;

	/** A whole mail, wrapped: what it is, its thread, where it lies, its text. */
	function rowsOf(listed: Listed, width: number): Row[] {
		const { version } = overview;
		if (thread?.of.name !== listed.name || thread.version !== version) readThread(listed);
		if (page?.of === listed && page.version === version && page.width === width) return page.rows;
		let rows: Row[] = [];
		const add = (text: string, colour?: "muted" | "text" | "error" | "accent") =>
			rows.push(...wrap(text, width).map((row) => textRow(row, colour)));
		const { word, reason } = overview.status(listed);
		const found = overview.whole(listed);
		const isSent = listed.box === "sent";
		if ("envelope" in found) {
			const { id, from, to, kind, status, ts } = found.envelope;
			const other = isSent ? to : from;
			add(`${isSent ? "To" : "From"}: ${overview.nameOf(other)} (${other})`, "accent");
			add(`${kind}${status === "" ? "" : ` (${field(status)})`} · ${word} · ${shortTime(ts)} · id ${id}`, "muted");
		} else add(`${word} · it cannot be read: ${field(found.problem, 500)}`, "error");
		if (reason !== undefined) add(`Set aside: ${field(reason, 500)}`, "error");
		add(`File: ${pathField(listed.path)}`, "muted");
		for (const line of threadLines(listed)) add(line, "muted");
		add("");
		if ("envelope" in found) rows = rows.concat(textRows(listed, found.envelope.body, width));
		page = { of: listed, version, width, rows };
		return rows;
	}

	function textRows({ name }: Listed, body: string, width: number): readonly Row[] {
		if (text?.of !== name || text.width !== width) {
			const rows = textLines(body).flatMap((line) => wrap(line, width).map((row) => textRow(row, "text")));
			text = { of: name, width, rows };
		}
		return text.rows;
	}

	function readThread(listed: Listed): void {
		// What is known of it stays until it is read again.
		const known = thread?.of.name === listed.name ? thread.parts : undefined;
		const reading = { of: listed, version: overview.version, parts: known };
		thread = reading;
		function* look(): Generator<undefined> {
			reading.parts = yield* overview.thread(listed);
		}
		read(look(), () => {
			page = undefined;
		});
	}

	function threadLines(listed: Listed): string[] {
		const known = thread?.of.name === listed.name ? thread.parts : undefined;
		if (known === undefined) return ["Thread: reading …"];
		return known.map(({ relation, id, listed: other, text }) => {
			const mail = other === undefined ? undefined : overview.glance(other);
			const said = text ?? mail?.head;
			const what = said === undefined ? "not here any more" : field(said.trim(), 120);
			return `${relation} ${field(id)}: ${what}`;
		});
	}

	return { rowsOf };
}
