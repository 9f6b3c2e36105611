import { displayName } from "../mail/resolve.ts";
import type { RunningSession } from "../mail/running.ts";
import { counted, field, pathField } from "../mail/text.ts";
import type { WakeOn } from "../mail/wake-on.ts";
import type { AskOutcome, AskProgress } from "./asks.ts";
import { senderName, shownBody } from "./label.ts";
import type { Sent } from "./outbox.ts";

/** What a model is told of the tools, and what they answer: the same in a Pi session and in an MCP client. */
export const toolWords = {
	list: "Lists the running Pi sessions on this machine that have a mailbox: name, full id, working directory, whether each is idle or busy, and whom it is waiting on. Marks this session.",
	ask: "Asks another running Pi session a question and waits for its answer, at most 10 minutes. The result is its answer, or says why there is none. One ask at a time.",
	send: "Sends a message to another Pi session and goes on without waiting. It expects no answer; use session_mail_ask when you need one. To a closed session, give its full id: the message waits until it starts again.",
	to: "Name or id of the session, as session_mail_list shows it",
	question: "The question; the other session knows nothing of this conversation",
	text: "The text; the other session knows nothing of this conversation",
	answer: "The answer",
	ownId: "UUID of your choice; repeating a call with it sends nothing twice",
	quiet: "Start no turn there; it is read with the next one.",
};

/** The list as text, one line a session. */
export function describeSessions(sessions: readonly RunningSession[], self: string): string {
	if (sessions.length === 0) return "No Pi sessions are running with a mailbox.";
	const addresses = sessions.map(({ address }) => address);
	const byAddress = new Map(sessions.map((session) => [session.address, session]));
	const lines = sessions.map((session) => {
		const waitedFor = byAddress.get(session.waitingOn);
		const waiting =
			session.waitingOn === ""
				? []
				: [
						`waiting on ${waitedFor === undefined ? "a session that is not running" : displayName(waitedFor, addresses)} (${field(session.waitingOn)})`,
					];
		const name = displayName(session, addresses);
		return [
			`- ${name} (${session.address})`,
			pathField(session.cwd),
			session.state,
			...waiting,
			...marksOf(session, self).map((mark) => `(${mark})`),
		].join(", ");
	});
	return [`${counted(sessions.length, "running session")}:`, ...lines].join("\n");
}

/** What a sender should know of a session that runs, each in a few words. `self` is the address of whoever asks. */
export function marksOf(session: RunningSession, self: string | undefined): string[] {
	const { address, judgement, x } = session;
	return [
		...(x.program === true ? ["a program"] : []),
		...(x.receiving === false ? ["takes no mail now"] : []),
		...approvalMarks(session),
		...(x.paused === true ? ["paused by its user"] : []),
		...(x.wakeOn === undefined ? [] : wakers(x.wakeOn)),
		...(judgement === "unknown" ? ["cannot be looked into from here"] : []),
		...(address === self ? ["this session"] : []),
	];
}

/** What is said of a session that waits for somebody to decide about its calls. */
export function approvalMarks({ x: { approvals = [] } }: RunningSession): string[] {
	return approvals.length === 0 ? [] : [`waits for ${counted(approvals.length, "approval")}`];
}

/** Which mail starts a run of a session whose settings name some; nothing when they name none. */
function wakers({ kinds, from }: WakeOn): string[] {
	if (kinds?.length === 0 || from?.length === 0) return ["no mail starts a turn of it"];
	if (kinds === undefined && from === undefined) return [];
	const senders = from === undefined ? "" : ` from ${from.map((sender) => field(sender, 60)).join(", ")}`;
	return [`only ${kinds?.map((kind) => `${kind}s`).join(", ") ?? "mail"}${senders} may start a turn of it`];
}

/** What became of a send, in whole sentences. */
export function describeSent({ envelope: { id, to }, recipient, notes, duplicate }: Sent): string[] {
	const whom = recipient === undefined ? to : `${displayName(recipient, [])} (${to})`;
	const done = duplicate ? `${id} was sent to ${whom} before; nothing was sent now.` : `Sent ${id} to ${whom}.`;
	return [done, ...notes];
}

/** How far an ask is. */
export function describeProgress({ target, waitedMs }: AskProgress): string {
	const seconds = Math.round(waitedMs / 1000);
	if (target === undefined) return `Waited ${seconds} s; the session cannot be found just now.`;
	const waiting = target.waitingOn === "" ? "" : ` and waits on ${field(target.waitingOn)}`;
	return `Waiting for ${displayName(target, [])}, ${seconds} s; it is ${target.state}${waiting}.`;
}

/** The answer to an ask, as the model sees it. `name` is what its running record calls the sender. */
export function describeAnswer(
	{ reply }: Extract<AskOutcome, { outcome: "answered" }>,
	name: string | undefined,
): string {
	const { envelope } = reply;
	const who = `${senderName(envelope, name)} (${field(envelope.from)})`;
	const label =
		envelope.status === "done"
			? `Answer from ${who}, status done:`
			: `No answer: the run of ${who} ended with status ${field(envelope.status)}. What follows is not an answer:`;
	return [label, "", ...shownBody(envelope.body, reply.path)].join("\n");
}
