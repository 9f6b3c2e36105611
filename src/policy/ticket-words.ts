import { field } from "../mail/text.ts";
import { primaryArgument } from "./pattern.ts";
import type { Ticket } from "./tickets.ts";

/** Most characters of the arguments that are shown. */
const maxShown = 1500;

/** What a tool is called for people: by the label that a wrapper gives its calls, too. */
export function shownTool(tool: string, label: string | undefined): string {
	return label === undefined ? field(tool) : `${field(label)} (${field(tool)})`;
}

/** A call for a person: its main argument, or all of them. */
export function shownCall({ tool, label, arguments: args }: Pick<Ticket, "tool" | "label" | "arguments">): string {
	const main = primaryArgument({ tool, args });
	const text = typeof main === "string" ? main : JSON.stringify(args);
	const cut =
		text.length > maxShown ? `${text.slice(0, maxShown)} … (${text.length - maxShown} more characters)` : text;
	return `${shownTool(tool, label)}: ${field(cut, maxShown + 60)}`;
}

/** What a model reads of a call that was refused. */
export function refusalText({ tool, decision }: Ticket): string {
	const who =
		decision === undefined || decision.by.kind === "time" ? "nobody decided in time" : `by ${field(decision.by.who)}`;
	const model = decision?.by.kind === "model" ? ", a model" : "";
	const reason = decision?.reason === undefined ? "" : ` Reason: ${decision.reason}`;
	return `The call of ${field(tool)} was refused: ${who}${model}.${reason}`;
}

/** What a model reads of an approval that nobody waits for. */
export function grantText({ tool, decision, arguments: args, resume }: Ticket): string {
	const who = field(decision?.by.who ?? "");
	if (resume === "use_decision_as_tool_result") {
		return `The call of ${field(tool)} was decided by ${who}. Its result:\n${JSON.stringify(decision?.payload)}`;
	}
	const wanted = resume === "pass_decision_to_tool" ? decision?.payload : args;
	return `The call of ${field(tool)} was approved by ${who}. Make it again now, once, with exactly these arguments:\n${JSON.stringify(wanted)}`;
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
		`Session ${session}, ticket ${id}: ${field(tool)} ${JSON.stringify(args).slice(0, 4000)}`,
		"Decide with session_ticket_decide.",
	].join("\n");
}

/** What the person reads whose dialog was closed. */
export function closedText(ticket: Ticket): string {
	return `This call still waits for your decision, and the model goes on: ${shownCall(ticket)}\nDecide in /mailbox, tab Approvals, or with: pi-session-mail approve ${ticket.id}`;
}

/** What a model reads of a call that is not decided about yet, and that it has to make again. */
export function waitingNote({ id }: Ticket): string {
	return JSON.stringify({
		status: "waiting",
		ticket: id,
		message:
			"Nobody has decided about this call yet. Go on with something else: the decision comes as mail, and when it is approved, make the same call again.",
	});
}
