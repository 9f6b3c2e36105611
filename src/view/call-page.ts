import type { ResultPart } from "../mail/call-store.ts";
import { errorReason } from "../mail/disk.ts";
import { field, pathField, textLines } from "../mail/text.ts";
import type { Calls, CallView, PendingTicket } from "../session/calls.ts";
import { wrap } from "./columns.ts";
import type { Row } from "./frame.ts";
import type { OpenedCall, OpenedTicket } from "./memory.ts";
import { callAge, heading, shortTime, textRow } from "./rows.ts";

/** A call that is opened. */
export interface CallPage {
	/**
	 * All that is known of it by now: the call as it stands, its result, what it said. Whoever waits for a call sees its result
	 * from the top as soon as it has ended. The result is read once, and its rows come as they are wrapped. So are those of
	 * a call that waits for a decision.
	 */
	rowsOf(opened: OpenedCall | OpenedTicket, width: number): { count: number; at: (index: number) => Row | undefined };
}

/** `read` does bulk work in slices, one at a time, and draws as it goes on. */
export function createCallPage(
	calls: Pick<Calls, "views" | "recent" | "ended" | "pathOf">,
	read: (work: Generator<undefined>) => void,
): CallPage {
	let result: Result | undefined;

	function rowsOf(opened: OpenedCall | OpenedTicket, width: number): ReturnType<CallPage["rowsOf"]> {
		if ("ticket" in opened)
			return longPage(opened, width, ticketHead(opened.ticket, width), opened.ticket.whole, () => []);
		const { id, finished } = opened.call;
		// Of those that have ended only the last are listed.
		opened.call = [...calls.views(), ...calls.recent()].find((call) => call.id === id) ?? opened.call;
		if (opened.call.finished === undefined) return pageOf(headOf(opened.call, width), [], saidBy(opened.call, width));
		if (finished === undefined) opened.top = 0;
		const { call } = opened;
		return longPage(
			opened,
			width,
			headOf(call, width),
			() => resultText(id),
			() => saidBy(call, width),
		);
	}

	/** A page with a long text in it, which is wrapped piece by piece. */
	function longPage(
		of: OpenedCall | OpenedTicket,
		width: number,
		head: Row[],
		textOf: () => string,
		rest: () => Row[],
	): ReturnType<CallPage["rowsOf"]> {
		if (result?.of !== of || result.width !== width) {
			const text = result?.of === of ? result.text : undefined;
			result = { of, width, text, rows: [], isWhole: false };
			read(wrapResult(result, textOf));
		}
		return pageOf(head, result.rows, result.isWhole ? rest() : [textRow("Reading …", "muted")]);
	}

	function headOf(call: CallView, width: number): Row[] {
		const { id, tool, state, arguments: args, started, finished } = call;
		const rows = (text: string, colour: "accent" | "muted") => wrap(text, width).map((row) => textRow(row, colour));
		const age = callAge(call, Date.now());
		const times = [
			`started ${shortTime(started)}`,
			...(finished === undefined ? [] : [`ended ${shortTime(finished)}`]),
		];
		return [
			...rows(`${field(tool)} · ${state} · ${finished === undefined ? age : `took ${age}`}`, "accent"),
			...rows(`${times.join(" · ")} · id ${id}`, "muted"),
			...rows(`Arguments: ${field(args, maxArguments)}`, "muted"),
			...(finished === undefined ? [] : rows(`File: ${pathField(calls.pathOf(id))}`, "muted")),
			textRow(""),
		];
	}

	function* wrapResult(of: Result, textOf: () => string): Generator<undefined> {
		const text = of.text ?? textOf();
		of.text = text;
		yield undefined;
		for (const piece of pieces(text)) {
			for (const line of textLines(piece)) of.rows.push(...wrap(line, of.width));
			yield undefined;
		}
		of.isWhole = true;
	}

	function resultText(id: string): string {
		try {
			const content = calls.ended(id)?.content;
			if (content === undefined) return "(Nothing is kept of its result.)";
			return content.map(partText).join("\n").trimEnd() || "(no output)";
		} catch (error) {
			return `(Its result cannot be read: ${errorReason(error)}.)`;
		}
	}

	return { rowsOf };
}

/** The long text of a page: the result of a call, or the call that somebody is to decide about. */
interface Result {
	of: OpenedCall | OpenedTicket;
	width: number;
	/** Undefined until it is read. */
	text: string | undefined;
	/** As much of it as is wrapped. There may be very many: each is no more than its text. */
	rows: string[];
	isWhole: boolean;
}

/** As much of its arguments as a call keeps on the disk while it runs. */
const maxArguments = 4096;
/** Most characters that are wrapped at once. */
const maxPiece = 8192;

function pageOf(head: Row[], result: string[], rest: Row[]): ReturnType<CallPage["rowsOf"]> {
	const end = head.length + result.length;
	return {
		count: end + rest.length,
		at(index) {
			if (index >= end) return rest[index - end];
			return index < head.length ? head[index] : textRow(result[index - head.length] ?? "");
		},
	};
}

function ticketHead({ id, session, message, since }: PendingTicket, width: number): Row[] {
	const rows = (text: string, colour: "accent" | "muted") => wrap(text, width).map((row) => textRow(row, colour));
	return [
		...rows(field(message, 1000), "accent"),
		...rows(`asked ${shortTime(since)} · by session ${session} · id ${id}`, "muted"),
		textRow(""),
	];
}

/** The newest first: it is seen without scrolling while the call runs. */
function saidBy({ progress, finished }: CallView, width: number): Row[] {
	if (progress.length === 0) return finished === undefined ? [textRow("It has said nothing yet.", "muted")] : [];
	const rows = progress
		.toReversed()
		.flatMap((line) => wrap(field(line, 400), width).map((row) => textRow(row, "muted")));
	return [...(finished === undefined ? [] : [textRow("")]), heading("What it said, the newest first"), ...rows];
}

function partText(part: ResultPart): string {
	if (part.type === "text") return part.text;
	const kibibytes = Math.ceil(Buffer.byteLength(part.data, "base64") / 1024);
	return `(an image: ${part.mimeType}, ${kibibytes} KiB)`;
}

/** A text in pieces that end where a line does; a line that is longer than a piece is broken. */
function* pieces(text: string): Generator<string> {
	for (let at = 0; at < text.length; ) {
		const piece = text.slice(at, at + maxPiece);
		const lineEnd = at + maxPiece < text.length ? piece.lastIndexOf("\n") : piece.length;
		// Not between the two halves of a character.
		const length = lineEnd >= 0 ? lineEnd : /[\ud800-\udbff]$/.test(piece) ? piece.length - 1 : piece.length;
		yield piece.slice(0, length);
		at += lineEnd >= 0 ? length + 1 : length;
	}
}
