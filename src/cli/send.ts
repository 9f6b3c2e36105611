import { displayName } from "../mail/resolve.ts";
import { bodyOf } from "./body.ts";
import { type Call, UsageError } from "./call.ts";
import { asMember, refused } from "./machine.ts";
import type { Printed } from "./schemas.ts";

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
		const { envelope, recipient, durable, duplicate = false, notes } = outcome;
		if (out.isJson) {
			const printed: Printed["send"] = {
				id: envelope.id,
				from: envelope.from,
				to: envelope.to,
				kind,
				running: recipient !== undefined,
				durable,
				duplicate,
				notes,
			};
			await out.printJson(printed);
			return 0;
		}
		const whom = recipient === undefined ? envelope.to : `${displayName(recipient, [])} (${envelope.to})`;
		const done = duplicate
			? `${envelope.id} was sent to ${whom} before; nothing was sent now.`
			: `Sent ${envelope.id} to ${whom}.`;
		await out.print([done, ...notes].join("\n"));
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
		const { envelope } = outcome;
		const printed: Printed["reply"] = {
			id: envelope.id,
			to: envelope.to,
			inReplyTo: envelope.in_reply_to,
			status: envelope.status,
		};
		if (out.isJson) await out.printJson(printed);
		else await out.print(`Answered ${envelope.in_reply_to.join(", ")} of ${envelope.to}.`);
		return 0;
	});
}
