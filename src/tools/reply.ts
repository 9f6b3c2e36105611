import { toolWords } from "../session/tool-words.ts";
import {
	type CurrentSession,
	mailboxIsOff,
	refusal,
	renderCallLine,
	result,
	type Tool,
	textOf,
	textParameters,
} from "./tool.ts";

/** `session_mail_reply`: answers one open ask before the run ends (PSM-079, PSM-080). */
export function replyTool(current: CurrentSession): Tool {
	return {
		name: "session_mail_reply",
		label: "Mail: reply",
		description:
			"Answers one ask that another session sent to this one, at once and without ending this run. Only asks are answered with it: requests are answered by themselves when the run ends, messages and replies never.",
		parameters: textParameters({
			ask: "Id of the ask, as the mail gives it",
			message: toolWords.answer,
		}),
		renderCall: renderCallLine("mail: reply", "ask", "message"),
		async execute(_id, params) {
			const session = current();
			if (session === undefined) return mailboxIsOff;
			const answered = session.answerAsk(textOf(params, "ask").trim(), textOf(params, "message"));
			if (!answered.ok) return refusal(answered.code, answered.message);
			const { id, to, isWritten } = answered;
			const text = isWritten
				? `Answered ask ${id}.`
				: `The answer to ask ${id} could not be written yet; it is kept, and tried again when this run ends.`;
			return result(text, { id, to, isWritten });
		},
	};
}
