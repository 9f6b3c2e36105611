import { field } from "../mail/text.ts";
import type { AskOutcome } from "../session/asks.ts";
import { describeAnswer, describeProgress, toolWords } from "../session/tool-words.ts";
import {
	type CurrentSession,
	mailboxIsOff,
	ownId,
	refusal,
	renderCallLine,
	result,
	type Tool,
	textOf,
	textParameters,
} from "./tool.ts";

/** `session_mail_ask`: a question whose answer is the result (PSM-075 to 078). */
export function askTool(current: CurrentSession): Tool {
	return {
		name: "session_mail_ask",
		label: "Mail: ask",
		description: toolWords.ask,
		promptSnippet: "Ask another running Pi session a question and wait for its answer",
		parameters: textParameters({ to: toolWords.to, message: toolWords.question }, ownId),
		renderCall: renderCallLine("mail: ask", "to", "message"),
		async execute(callId, params, signal, onUpdate) {
			const session = current();
			if (session === undefined) return mailboxIsOff;
			const outcome = await session.asks.ask({
				to: textOf(params, "to"),
				message: textOf(params, "message"),
				hops: session.hops,
				id: textOf(params, "id") || undefined,
				signal,
				onProgress: (progress) => onUpdate?.(result(describeProgress(progress), { waitedMs: progress.waitedMs })),
			});
			session.refresh();
			if ("ok" in outcome) return refusal(outcome.code, outcome.message);
			const { id, to } = outcome;
			if (outcome.outcome !== "answered") return result(describeEnd(outcome), { id, to, outcome: outcome.outcome });
			const { envelope } = outcome.reply;
			// A call made by another tool leaves no result in the transcript that could prove the answer.
			if (callId.includes("/")) session.noteTaken(outcome.reply);
			const name = session.running.find(envelope.from)?.name;
			return result(describeAnswer(outcome, name), {
				id,
				to,
				outcome: "answered",
				status: field(envelope.status),
				body: envelope.body,
				mail: session.detailsOf(outcome.reply),
			});
		},
	};
}

const ends: Record<Exclude<AskOutcome["outcome"], "answered">, string> = {
	"timed-out": "No answer yet after 10 minutes. The ask stays with the other session; a later answer comes as mail.",
	"stopped-running": "The other session stopped running before it answered. The ask stays in its mailbox.",
	withdrawn:
		"The other session began to wait for this one at the same moment, so neither could have answered: this session stopped waiting. Its answer comes as mail.",
	"taken-back": "The user took the ask back before the other session had read it: nobody will answer it.",
	interrupted:
		"Mail that interrupts has come, and ended the wait. The ask stays with the other session; its answer comes as mail.",
	"stopped-by-user": "The user stopped the wait. The ask stays with the other session; a later answer comes as mail.",
};

function describeEnd({ id, outcome }: { id: string; outcome: keyof typeof ends }): string {
	return `${ends[outcome]} Ask id: ${id}.`;
}
