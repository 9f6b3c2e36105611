import type { RunningSession } from "../mail/running.ts";
import { field, pathField } from "../mail/text.ts";
import { describeSessions, toolWords } from "../session/tool-words.ts";
import { type CurrentSession, mailboxIsOff, renderCallLine, result, type Tool, textParameters } from "./tool.ts";

/** `session_mail_list`: which sessions run (PSM-074). */
export function listTool(current: CurrentSession): Tool {
	return {
		name: "session_mail_list",
		label: "Mail: sessions",
		description: toolWords.list,
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
