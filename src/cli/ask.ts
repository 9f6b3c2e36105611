import { field, manyLines } from "../mail/text.ts";
import type { ProgramMember } from "../member/member.ts";
import type { AskOutcome } from "../session/asks.ts";
import { senderName } from "../session/label.ts";
import { describeProgress } from "../session/tool-words.ts";
import { bodyOf } from "./body.ts";
import { type Call, UsageError } from "./call.ts";
import { untilInterrupted } from "./interrupt.ts";
import { asMember, refused } from "./machine.ts";
import { wholeNumber } from "./number.ts";
import type { Printed } from "./schemas.ts";

/** `ask`: waits for the answer and prints it. */
export async function ask(call: Call): Promise<number> {
	const { out } = call;
	const [to, ...words] = call.words;
	if (to === undefined) throw new UsageError("say who is asked: pi-session-mail ask TO TEXT");
	const seconds = wholeNumber(call, "timeout", maxSeconds);
	const body = await bodyOf(words, call);
	if (!body.ok) return refused(call, body);
	const interrupt = untilInterrupted();
	return asMember(call, "ask", async (member) => {
		const outcome = await member.ask({
			to,
			message: body.text,
			...(seconds !== undefined && { timeoutMs: seconds * 1000 }),
			signal: interrupt.signal,
			onProgress: (progress) => out.progress(describeProgress(progress)),
		});
		out.progress(undefined);
		if ("ok" in outcome) return refused(call, outcome);
		return printed(call, member, outcome, interrupt.exitCode);
	}).finally(interrupt.end);
}

const maxSeconds = 7 * 24 * 60 * 60;

async function printed(
	{ out }: Call,
	member: ProgramMember,
	outcome: AskOutcome,
	interruptedCode: number | undefined,
): Promise<number> {
	const { id, to } = outcome;
	if (outcome.outcome !== "answered") {
		const print: Printed["ask"] = { id, to, outcome: outcome.outcome };
		if (out.isJson) await out.printJson(print);
		else out.note(`pi-session-mail: ${ends[outcome.outcome]} Ask id: ${id}.`);
		return outcome.outcome === "stopped-by-user" ? (interruptedCode ?? 130) : 4;
	}
	const { envelope } = outcome.reply;
	const fromName = senderName(envelope, member.running.find(envelope.from)?.name);
	const status = field(envelope.status);
	const print: Printed["ask"] = { id, to, outcome: "answered", answer: { status, fromName, body: envelope.body } };
	const wasSeen = out.isJson ? await out.printJson(print) : await out.print(manyLines(envelope.body));
	if (wasSeen) member.done(outcome.reply);
	if (status === "done") return 0;
	if (!out.isJson) out.note(`pi-session-mail: no answer: the run of ${fromName} ended with status ${status}.`);
	return 3;
}

const ends: Record<Exclude<AskOutcome["outcome"], "answered">, string> = {
	"timed-out": "no answer came in time.",
	"stopped-running": "the session stopped running before it answered.",
	withdrawn: "the session began to wait for this one at the same moment, so neither could have answered.",
	"taken-back": "the ask was taken back before it was read, so nobody will answer it.",
	interrupted: "interrupted.",
	"stopped-by-user": "interrupted.",
};
