import { displayName } from "../mail/resolve.ts";
import type { RunningSession } from "../mail/running.ts";
import { counted, field, pathField } from "../mail/text.ts";
import type { WakeOn } from "../mail/wake-on.ts";
import { type CurrentSession, mailboxIsOff, renderCallLine, result, type Tool, textParameters } from "./tool.ts";

/** `session_mail_list`: which sessions run (PSM-074). */
export function listTool(current: CurrentSession): Tool {
	return {
		name: "session_mail_list",
		label: "Mail: sessions",
		description:
			"Lists the running Pi sessions on this machine that have a mailbox: name, full id, working directory, whether each is idle or busy, and whom it is waiting on. Marks this session.",
		promptSnippet: "List the other running Pi sessions that mail can be sent to",
		parameters: textParameters({}),
		annotations: { readOnlyHint: true },
		renderCall: renderCallLine("mail: sessions", "", ""),
		async execute() {
			const session = current();
			if (session === undefined) return mailboxIsOff;
			const sessions = session.running.list();
			const self = session.mailbox.address;
			const details = { sessions: sessions.map(summary), self };
			return result(describeSessions(sessions, self), details);
		},
	};
}

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
		const marks = [
			...(session.x.receiving === false ? ["takes no mail now"] : []),
			...(session.x.paused === true ? ["paused by its user"] : []),
			...(session.x.wakeOn === undefined ? [] : wakers(session.x.wakeOn)),
			...(session.judgement === "unknown" ? ["cannot be looked into from here"] : []),
			...(session.address === self ? ["this session"] : []),
		];
		const name = displayName(session, addresses);
		return [
			`- ${name} (${session.address})`,
			pathField(session.cwd),
			session.state,
			...waiting,
			...marks.map((mark) => `(${mark})`),
		].join(", ");
	});
	return [`${counted(sessions.length, "running session")}:`, ...lines].join("\n");
}

/** Which mail starts a run of a session whose settings name some; nothing when they name none. */
function wakers({ kinds, from }: WakeOn): string[] {
	if (kinds?.length === 0 || from?.length === 0) return ["no mail starts a turn of it"];
	if (kinds === undefined && from === undefined) return [];
	const senders = from === undefined ? "" : ` from ${from.map((sender) => field(sender, 60)).join(", ")}`;
	return [`only ${kinds?.map((kind) => `${kind}s`).join(", ") ?? "mail"}${senders} may start a turn of it`];
}

function summary({ address, name, cwd, pid, state, waitingOn, updated }: RunningSession) {
	return {
		address,
		name: name === undefined ? undefined : field(name),
		cwd: pathField(cwd),
		pid,
		state,
		waitingOn: field(waitingOn),
		updated: field(updated, 40),
	};
}
