import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { field } from "../mail/text.ts";
import { shownCall } from "./ticket-words.ts";
import type { Ticket } from "./tickets.ts";

/** What a person says to a call that asks. */
export interface Said {
	action: "resume" | "cancel";
	reason?: string;
	/** The calls that are allowed from now on: in this session, or for good. */
	allows?: { pattern: string; isLasting: boolean };
}

const once = "Allow once";
const forSession = "Allow for this session";
const always = "Always allow …";
const no = "No";
const noBecause = "No, with a reason …";

/** Asks the person at the session; undefined when the question was put aside, or is over by `signal`. */
export async function askInDialog(
	ctx: ExtensionContext,
	ticket: Ticket,
	settingsFile: string,
	signal: AbortSignal,
): Promise<Said | undefined> {
	const pattern = patternOf(ticket);
	const title = [ticket.message, shownCall(ticket), ...(ticket.rule === undefined ? [] : [`Asked by ${ticket.rule}.`])];
	// A decision that has to bring something along cannot be made here.
	const needsPayload = ticket.resume !== "replay_tool_call" || ticket.response !== undefined;
	const ways = needsPayload ? [no, noBecause] : [once, forSession, always, no, noBecause];
	if (needsPayload) title.push(`It needs an answer: pi-session-mail approve ${ticket.id} --payload JSON`);
	for (;;) {
		const choice = await ctx.ui.select(title.join("\n"), ways, { signal });
		switch (choice) {
			case once:
				return { action: "resume" };
			case forSession:
				return { action: "resume", allows: { pattern, isLasting: false } };
			case always: {
				const question = `Add this rule to ${field(settingsFile, 300)}?`;
				const rule = JSON.stringify({ pattern, behavior: "allow" });
				if (await ctx.ui.confirm(question, rule, { signal })) {
					return { action: "resume", allows: { pattern, isLasting: true } };
				}
				if (signal.aborted) return undefined;
				continue;
			}
			case no:
				return { action: "cancel" };
			case noBecause: {
				const reason = await ctx.ui.input("Why not? The model reads it.", "", { signal });
				if (reason !== undefined) return { action: "cancel", ...(reason.trim() !== "" && { reason: reason.trim() }) };
				if (signal.aborted) return undefined;
				continue;
			}
			default:
				return undefined;
		}
	}
}

/** The pattern of calls with these arguments. */
function patternOf({ tool, arguments: args }: Ticket): string {
	const fields = typeof args === "object" && args !== null ? Object.entries(args) : [];
	const conditions = fields.map(([name, value]) => {
		const text = typeof value === "string" ? value : JSON.stringify(value);
		return `${name}="${text.replace(/["\\]/g, "\\$&")}"`;
	});
	return conditions.length === 0 ? tool : `${tool}(${conditions.join(", ")})`;
}
