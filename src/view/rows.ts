import type { Finding } from "../mail/finding.ts";
import type { RunningSession } from "../mail/running.ts";
import { field, pathField } from "../mail/text.ts";
import { shortSpan } from "../mail/time.ts";
import { type CallView, lastLine, type PendingTicket } from "../session/calls.ts";
import { type Glance, type MailStatus, subjectOf } from "../session/overview.ts";
import { wrap } from "./columns.ts";
import type { Cell, Row } from "./frame.ts";

/** The colour of each status; the word alone says it as well. */
const colours = {
	unread: "accent",
	"on hold": "warning",
	queued: "accent",
	taken: "muted",
	read: "muted",
	answered: "success",
	held: "warning",
	stopped: "warning",
	failed: "error",
	dead: "error",
	retracted: "dim",
} as const satisfies Record<MailStatus, Cell["colour"]>;

/** A mail in a list. */
export interface MailRow {
	status: { word: MailStatus; reason?: string };
	/** The other side: who sent it, or to whom it was sent. */
	who: string;
	mail: Glance;
}

/** A mail as a row of a list; the narrower, the fewer columns. */
export function mailRow({ status, who, mail }: MailRow, width: number): Row {
	const time = width >= 64 ? [{ text: shortTime(mail.ts), columns: 12, colour: "dim" } as const] : [];
	const kind = width >= 50 ? [{ text: mail.kind ?? "", columns: 8, colour: "muted" } as const] : [];
	const subject = status.reason ?? subjectOf(mail);
	return {
		cells: [
			{
				text: status.word,
				columns: width >= 30 ? 10 : status.word.length + 1,
				colour: colours[status.word],
				bold: status.word === "unread",
			},
			...time,
			...kind,
			{ text: `${field(who)} `, columns: whoColumns(width) },
			{ text: field(subject, 400), colour: status.word === "dead" ? "error" : "text" },
		],
	};
}

/** A session in a list. */
export interface SessionRow {
	name: string;
	/** As much of its id as tells it from others; not where that is its name. */
	short?: string;
	/** Not of a closed one. */
	cwd?: string;
	/** `idle`, `busy`, `closed`, or that nobody can tell. */
	state: string;
	isSelf?: boolean;
	/** What else is said of it. */
	marks?: readonly string[];
	/** Whom its ask waits for; empty when it does not wait. */
	waitingOn?: string;
	/** Mail that waits for it; left out where it is not counted. */
	waiting?: number;
	/** Of a closed one: when something changed last. */
	lastActive?: string;
}

/** A session as a row of a list; the narrower, the fewer columns. */
export function sessionRow(session: SessionRow, width: number): Row {
	const {
		name,
		short = "",
		cwd = "",
		state,
		isSelf = false,
		marks = [],
		waitingOn = "",
		waiting = 0,
		lastActive,
	} = session;
	const about = [
		...(isSelf ? ["this session"] : []),
		...marks,
		...(waitingOn === "" ? [] : [`waits for ${field(waitingOn)}`]),
		...(waiting === 0 ? [] : [`${waiting} ${waitingWord(isSelf)}`]),
		lastActive === undefined ? pathField(cwd) : `last active ${lastActive}`,
	];
	const id =
		width >= 50 && short !== ""
			? [{ text: `${short} `, columns: Math.max(9, short.length + 1), colour: "dim" } as const]
			: [];
	return {
		cells: [
			{
				text: field(state),
				columns: 9,
				colour: state === "busy" ? "warning" : state === "closed" ? "dim" : "success",
			},
			{ text: `${field(name)} `, columns: whoColumns(width) },
			...id,
			{ text: about.join(" · "), colour: "muted" },
		],
	};
}

/** The age of a call, or how long it took. */
export function callAge({ started, finished }: CallView, now: number): string {
	return shortSpan((finished ?? now) - started);
}

/** A call in a list: its age, and what it said last. */
export function callRow(call: CallView, now: number, width: number): Row {
	const { state, tool } = call;
	return {
		cells: [
			{ text: state, columns: 10, colour: callColours[state] },
			{ text: `${callAge(call, now)} `, columns: 8, colour: "dim" },
			{ text: `${field(tool)} `, columns: whoColumns(width) },
			{ text: field(lastLine(call), 400), colour: "muted" },
		],
	};
}

/** A call that waits for a decision, in a list. */
export function ticketRow({ call, since }: PendingTicket, who: string, now: number, width: number): Row {
	return {
		cells: [
			{ text: `${shortSpan(now - since)} `, columns: 8, colour: "dim" },
			{ text: `${field(who)} `, columns: whoColumns(width) },
			{ text: field(call, 400), colour: "warning" },
		],
	};
}

const callColours = {
	pending: "muted",
	running: "accent",
	completed: "success",
	failed: "error",
	cancelled: "warning",
	orphaned: "error",
} as const satisfies Record<CallView["state"], Cell["colour"]>;

/** What mail that waits is called: of another session only that is known which it has not claimed. */
export function waitingWord(isSelf: boolean): string {
	return isSelf ? "unread" : "queued";
}

/** Sessions of which each waits for the next, by their names. */
export function chainText({ names, isRing }: { names: readonly string[]; isRing: boolean }): string {
	return isRing ? `${[...names, names[0]].join(" → ")} (a ring: none of them goes on by itself)` : names.join(" → ");
}

/** What a running record says of a session's state. */
export function stateOf({ state, judgement, x }: RunningSession): string {
	if (judgement === "unknown") return "unknown";
	if (x.paused === true) return "paused";
	return x.receiving === false ? "mail off" : state;
}

/** A finding, and below it what mends it, wrapped. */
export function findingRows({ level, what, mend }: Finding, width: number): Row[] {
	const colour = level === "ok" ? "success" : level;
	const lines = [
		...wrap(field(what, 1000), width - levelColumns).map((text) => ({ text, colour: "text" as const })),
		...(mend === undefined ? [] : wrap(`→ ${field(mend, 1000)}`, width - levelColumns)).map((text) => ({
			text,
			colour: "accent" as const,
		})),
	];
	return lines.map((line, index) => ({
		cells: [{ text: index === 0 ? level : "", columns: levelColumns, colour }, line],
	}));
}

const levelColumns = 8;

export function heading(text: string): Row {
	return { cells: [{ text, colour: "muted", bold: true }], isHeading: true };
}

export function textRow(text: string, colour: Cell["colour"] = "text"): Row {
	return { cells: [{ text, colour }] };
}

/** `11-29 12:00`, by the clock of whoever reads it. */
export function shortTime(time: string | number | undefined): string {
	const date = new Date(time ?? "");
	if (Number.isNaN(date.getTime())) return "";
	const two = (number: number) => String(number).padStart(2, "0");
	return `${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

function whoColumns(width: number): number {
	return Math.min(24, Math.max(8, Math.floor(width / 5)));
}
