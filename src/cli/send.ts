import { describeSent } from "../session/tool-words.ts";
import { bodyOf } from "./body.ts";
import { type Call, UsageError } from "./call.ts";
import { asMember, refused } from "./machine.ts";
import { replyOf, sentOf } from "./mail-line.ts";

/** `send`: a message, or a request. */
export async function send(call: Call): Promise<number> {
	const { out } = call;
	const [to, ...words] = call.words;
	if (to === undefined) throw new UsageError("say who gets the mail: pi-session-mail send TO TEXT");
	if (call.has("request") && call.has("quiet")) throw new UsageError("a request cannot be quiet");
	const kind = call.has("request") ? "request" : "message";
	const body = await bodyOf(words, call);
	if (!body.ok) return refused(call, body);
	return asMember(call, "send", async (member) => {
		const id = call.text("id");
		if (id !== undefined && member.who.type === "passing") {
			throw new UsageError("an id of your own is remembered under a name only: give --from NAME");
		}
		const priority = call.has("interrupt") ? "interrupt" : undefined;
		const outcome = member.send({ to, kind, body: body.text, id, quiet: call.has("quiet"), priority });
		if (!outcome.ok) return refused(call, outcome);
		if (out.isJson) await out.printJson(sentOf(outcome, kind));
		else await out.print(describeSent(outcome).join("\n"));
		return 0;
	});
}

/** `reply`: the answer to a request or ask. */
export async function reply(call: Call): Promise<number> {
	const { out } = call;
	const [id, ...words] = call.words;
	if (id === undefined) throw new UsageError("say what is answered: pi-session-mail reply ID TEXT --from NAME");
	const body = await bodyOf(words, call);
	if (!body.ok) return refused(call, body);
	return asMember(call, "send", async (member) => {
		const outcome = member.reply(id, body.text, call.has("failed") ? "failed" : "done");
		if (!outcome.ok) return refused(call, outcome);
		const printed = replyOf(outcome.envelope);
		if (out.isJson) await out.printJson(printed);
		else await out.print(`Answered ${printed.inReplyTo.join(", ")} of ${printed.to}.`);
		return 0;
	});
}
