import type { Running } from "../mail/running.ts";
import { counted, field } from "../mail/text.ts";
import { primaryArgument } from "./pattern.ts";
import type { Ticket } from "./tickets.ts";

/** Most characters of a call that are shown in a line. */
const maxShown = 400;
/** Most characters of the arguments that a session which decides is told. */
const maxToDecide = 4000;
/** Who decides in the dialog of a session, or on its screen. */
export const theUser = "the user of the session";

/** What a tool is called for people: by the label that a wrapper gives its calls, too. */
export function shownTool(tool: string, label: string | undefined): string {
	return label === undefined ? field(tool) : `${field(label)} (${field(tool)})`;
}

/** A call for a person in one line: its main argument, or all of them. */
export function shownCall({ tool, label, arguments: args }: Pick<Ticket, "tool" | "label" | "arguments">): string {
	const main = primaryArgument({ tool, args });
	const text = (typeof main === "string" ? main : JSON.stringify(args)).trimEnd();
	return field(`${shownTool(tool, label)}: ${text.replace(/\r?\n/g, " ⏎ ")}`, maxShown);
}

/** A whole call for a person: its main argument, and below it all others, with their line breaks. */
export function wholeCall({ tool, label, arguments: args }: Pick<Ticket, "tool" | "label" | "arguments">): string {
	const main = primaryArgument({ tool, args });
	const lines = [shownTool(tool, label)];
	let hasMain = false;
	addValues(args, undefined, (path, value) => {
		if (value !== main || hasMain) lines.push(named(path, value));
		else lines[0] += `: ${main}`;
		hasMain ||= value === main;
	});
	return lines.join("\n");
}

/** Says the values in a call's arguments that hold no others, and where they are. */
function addValues(value: unknown, path: string | undefined, add: (path: string, value: string) => void): void {
	const isText = typeof value === "string";
	const names = isText ? [] : Object.keys(Object(value));
	for (const name of names) {
		addValues(Reflect.get(Object(value), name), path === undefined ? name : `${path}.${name}`, add);
	}
	if (names.length === 0 && path !== undefined) add(path, isText ? value : JSON.stringify(value));
}

function named(path: string, value: string): string {
	return value.includes("\n") ? `${path}:\n${value}` : `${path}: ${value}`;
}

/** What a model reads of a call that was refused. */
export function refusalText({ tool, decision }: Ticket): string {
	const who =
		decision === undefined || decision.by.kind === "time" ? "nobody decided in time" : `by ${field(decision.by.who)}`;
	const model = decision?.by.kind === "model" ? ", a model" : "";
	const reason = decision?.reason === undefined ? "" : ` Reason: ${decision.reason}`;
	return `The call of ${field(tool)} was refused: ${who}${model}.${reason}`;
}

/** What a model reads of a refusal that nobody waits for. */
export function lateRefusalText(ticket: Ticket): string {
	return `${refusalText(ticket)}\nIt was not made: ${shownCall(ticket)}`;
}

/** What a model reads of an approval that nobody waits for. */
export function grantText({ tool, decision, arguments: args, resume }: Ticket): string {
	const who = field(decision?.by.who ?? "");
	if (resume === "use_decision_as_tool_result") {
		return `The call of ${field(tool)} was decided by ${who}. Its result:\n${JSON.stringify(decision?.payload)}`;
	}
	const wanted = resume === "pass_decision_to_tool" ? decision?.payload : args;
	return `The call of ${field(tool)} was approved by ${who}. It was not made: make it again now, once, with exactly these arguments:\n${JSON.stringify(wanted)}`;
}

/** What a model reads of an approval that was not used in time. */
export function lapsedText({ tool, decision }: Ticket): string {
	const who = field(decision?.by.who ?? "");
	return `The call of ${field(tool)} was approved by ${who}, too long ago to be made now. Make it again if it is still needed: it is asked about again.`;
}

/** What the session that may decide is told. */
export function approverText({ id, session, tool, arguments: args, message }: Ticket): string {
	return [
		`A call waits for your decision: ${message}`,
		`Session ${session}, ticket ${id}: ${field(tool)} ${startAndEnd(JSON.stringify(args))}`,
		"Decide with session_ticket_decide.",
	].join("\n");
}

/** Of what is too long for a mail: what a call does may stand at its end. */
function startAndEnd(text: string): string {
	if (text.length <= maxToDecide) return text;
	const half = maxToDecide / 2;
	const [first, last] = [text.slice(0, half).toWellFormed(), text.slice(-half).toWellFormed()];
	return `${first}\n(Of ${text.length} characters ${text.length - maxToDecide} are left out here; the end is:)\n${last}`;
}

/** What the person reads whose dialog was closed, by whether the model has its turn back. */
export function closedText(ticket: Ticket, goesOn: boolean): string {
	const model = goesOn ? "the model goes on" : "so does the model, since the call could not be put aside";
	return `This call still waits for your decision, and ${model}: ${shownCall(ticket)}\n${whereText}`;
}

/** What the person reads at the start of a session whose calls wait since an earlier one. */
export function leftText(count: number): string {
	return `${counted(count, "call")} of this session still ${count === 1 ? "waits" : "wait"} for your decision.\n${whereText}`;
}

/** What follows of an approval, by whether the session of the call waits for it, runs, or is closed. */
export function approvedText({ id, session }: Pick<Ticket, "id" | "session">, running: Pick<Running, "find">): string {
	const record = running.find(session);
	if (record === undefined) return "when its session is open again, its model may make the call, once";
	return record.x.approvals?.includes(id) === true
		? "the call is made"
		: "the model is told, and may make the call once";
}

const whereText = "Decide in /mailbox (alt+m), tab Approvals, or find it with: pi-session-mail tickets";

/** What a model reads of a call that is not decided about yet, and that it has to make again. */
export function waitingNote({ id }: Ticket): string {
	return JSON.stringify({
		status: "waiting",
		ticket: id,
		message:
			"Nobody has decided about this call yet. Go on with something else: the decision comes as mail, and when it is approved, make the same call again.",
	});
}
