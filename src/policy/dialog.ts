import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { pathField } from "../mail/text.ts";
import { maxPatternLength } from "../mail/tool-policy.ts";
import { hasRoom, type Question, questionText, terminalSize } from "../view/dialog-text.ts";
import { parsePattern } from "./pattern.ts";
import { wholeCall } from "./ticket-words.ts";
import type { Ticket } from "./tickets.ts";

/** What a person says to a call that asks. */
export interface Said {
	action: "resume" | "cancel";
	reason?: string;
	/** What is allowed from now on: this call in this session, or for good the calls of a pattern. */
	allows?: "this call" | { pattern: string };
}

const decideLater = "Decide later";
const once = "Allow once";
const forSession = "Allow this call for the session";
const always = "Always allow …";
const no = "No";
const noBecause = "No, with a reason …";
const others = "More …";

/** Asks the person at the session; undefined when the question was put aside, or is over by `signal`. */
export async function askInDialog(
	ctx: ExtensionContext,
	ticket: Ticket,
	settingsFile: string,
	signal: AbortSignal,
): Promise<Said | undefined> {
	const pattern = patternOf(ticket);
	let showsAll = false;
	for (;;) {
		const size = terminalSize();
		const all = choicesFor(ticket, pattern);
		// Where not all of them leave room for the call, the rarer ones come after one more key.
		const isShort = !showsAll && !hasRoom(all.length, size);
		const ways = isShort
			? [...all.filter((way) => !isRare(way)), others]
			: showsAll
				? [decideLater, ...all.filter(isRare)]
				: all;
		const choice = await ctx.ui.select(questionText(questionOf(ticket), ways.length, size), ways, { signal });
		showsAll = false;
		switch (choice) {
			case once:
				return { action: "resume" };
			case forSession:
				return { action: "resume", allows: "this call" };
			case always: {
				if (pattern === undefined) continue;
				const question = `Add this rule to ${pathField(settingsFile)}?`;
				const rule = JSON.stringify({ pattern, behavior: "allow" });
				const text = questionText({ before: question, text: rule }, 2, terminalSize());
				const [title = "", ...rows] = text.split("\n");
				if (await ctx.ui.confirm(title, rows.join("\n"), { signal })) {
					return { action: "resume", allows: { pattern } };
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
			case others:
				showsAll = true;
				continue;
			default:
				return undefined;
		}
	}
}

/** The first one decides nothing: an Enter that was meant for the editor may come when the dialog has just opened. */
function choicesFor({ resume, response, asker }: Ticket, pattern: string | undefined): string[] {
	// A decision that has to bring something along cannot be made here.
	if (resume !== "replay_tool_call" || response !== undefined) return [decideLater, no, noBecause];
	// No rule of the person's settings keeps a hook, or a project, from asking.
	const isForGood = asker !== "project" && pattern !== undefined;
	const lasting = asker === "hook" ? [] : isForGood ? [forSession, always] : [forSession];
	return [decideLater, once, ...lasting, no, noBecause];
}

function isRare(way: string): boolean {
	return way === forSession || way === always || way === noBecause;
}

function questionOf(ticket: Ticket): Question {
	const { id, message, rule, resume, response } = ticket;
	const notes = [
		...(rule === undefined ? [] : [`Asked by ${rule}.`]),
		...(resume === "replay_tool_call" && response === undefined
			? []
			: [`It needs an answer: pi-session-mail approve ${id} --payload JSON`]),
	];
	return { before: message, text: wholeCall(ticket), after: notes };
}

/** The pattern of calls with these arguments; undefined when none of the settings can say that. */
function patternOf({ tool, arguments: args }: Ticket): string | undefined {
	const given = typeof args === "object" && args !== null ? args : {};
	// One of very many arguments is too long, whatever they are.
	if (Object.keys(given).length > maxPatternLength) return undefined;
	const fields = Object.entries(given);
	const conditions = fields.map(([name, value]) => {
		const text = typeof value === "string" ? value : JSON.stringify(value);
		return `${name}="${text.replace(/["\\]/g, "\\$&")}"`;
	});
	const pattern = conditions.length === 0 ? tool : `${tool}(${conditions.join(", ")})`;
	// In a pattern a name with a dot or a star means something else.
	const isSaid = pattern.length <= maxPatternLength && fields.every(([name]) => /^[\w$-]+$/.test(name));
	return isSaid && parsePattern(pattern).ok ? pattern : undefined;
}
