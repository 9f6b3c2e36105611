import { describeSent, toolWords } from "../session/tool-words.ts";
import {
	type CurrentSession,
	isSet,
	mailboxIsOff,
	ownId,
	refusal,
	renderCallLine,
	result,
	type Tool,
	textOf,
	textParameters,
} from "./tool.ts";

/** `session_mail_send`: a message that expects no answer (PSM-081, PSM-082). */
export function sendTool(current: CurrentSession): Tool {
	return {
		name: "session_mail_send",
		label: "Mail: send",
		description: toolWords.send,
		promptSnippet: "Send a message to another Pi session without waiting for an answer",
		parameters: textParameters({ to: toolWords.to, message: toolWords.text }, ownId, {
			quiet: toolWords.quiet,
			interrupt: "End what the session waits for, if its user lets this one",
		}),
		renderCall: renderCallLine("mail", "to", "message"),
		async execute(_id, params) {
			const session = current();
			if (session === undefined) return mailboxIsOff;
			const { hops } = session;
			const chosen = textOf(params, "id") || undefined;
			// To say that it was sent before, nothing is sent.
			const refused = session.mailbox.sentBefore(chosen) === undefined ? session.outbox.hopRefusal(hops) : undefined;
			if (refused !== undefined) return refusal(refused.code, refused.message);
			const sent = session.outbox.send({
				to: textOf(params, "to"),
				kind: "message",
				body: textOf(params, "message"),
				hops,
				id: chosen,
				quiet: isSet(params, "quiet"),
				priority: isSet(params, "interrupt") ? "interrupt" : undefined,
			});
			session.refresh();
			if (!sent.ok) return refusal(sent.code, sent.message);
			const { id, to } = sent.envelope;
			const { recipient, duplicate } = sent;
			return result(describeSent(sent).join(" "), {
				id,
				to,
				running: recipient !== undefined,
				...(duplicate && { duplicate }),
			});
		},
	};
}
