import { field, firstLine } from "../mail/text.ts";
import { bodyOf } from "./body.ts";
import { type Call, UsageError } from "./call.ts";
import { asMember, refused } from "./machine.ts";
import { wholeNumber } from "./number.ts";
import type { Printed } from "./schemas.ts";

/** `sent`: what was sent, and what became of it. */
export async function sent(call: Call): Promise<number> {
	const { out } = call;
	const limit = wholeNumber(call, "limit", 100_000) ?? 20;
	return asMember(call, "send", async (member) => {
		const copies = member.sent(limit);
		if ("ok" in copies) return refused(call, copies);
		const mails: Printed["sent"]["mails"] = copies.map(({ envelope: { id, to, kind, ts, body }, status }) => {
			return { id, to, kind, ts, status, body };
		});
		if (out.isJson) await out.printJson({ mails });
		else if (mails.length === 0) await out.print("Nothing was sent.");
		else await out.print(mails.map(sentLine).join("\n"));
		return 0;
	});
}

/** `edit`: gives a mail another text. */
export async function edit(call: Call): Promise<number> {
	const { out } = call;
	const [id, ...words] = call.words;
	if (id === undefined) throw new UsageError("say which mail is changed: pi-session-mail edit ID TEXT --from NAME");
	const body = await bodyOf(words, call);
	if (!body.ok) return refused(call, body);
	return asMember(call, "send", async (member) => {
		const outcome = member.edit(id, body.text);
		if (!outcome.ok) return refused(call, outcome);
		const { id: newId, to, x } = outcome.envelope;
		const printed: Printed["edit"] = { id: newId, to, replaces: x?.replaces ?? "" };
		if (out.isJson) await out.printJson(printed);
		else await out.print(`Sent ${newId} to ${to} instead of ${printed.replaces}.`);
		return 0;
	});
}

/** `retract`: takes a mail back. */
export async function retract(call: Call): Promise<number> {
	const { out } = call;
	const [id, ...rest] = call.words;
	if (id === undefined || rest.length > 0) throw new UsageError("retract takes the id of one mail");
	return asMember(call, "send", async (member) => {
		const outcome = member.retract(id);
		if (!outcome.ok) return refused(call, outcome);
		const printed: Printed["retract"] = { id: outcome.envelope.id, to: outcome.envelope.to };
		if (out.isJson) await out.printJson(printed);
		else await out.print(`Took back ${printed.id} to ${printed.to}.`);
		return 0;
	});
}

function sentLine({ id, to, kind, ts, status, body }: Printed["sent"]["mails"][number]): string {
	return [field(id, 40), field(ts, 24), status.padEnd(8), kind, field(to), field(firstLine(body), 100)].join("  ");
}
