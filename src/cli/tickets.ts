import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { errorMessage } from "../mail/disk.ts";
import { displayName } from "../mail/resolve.ts";
import { projectSettingsPath } from "../mail/settings.ts";
import { bothEnds, field } from "../mail/text.ts";
import { shortSpan } from "../mail/time.ts";
import { noToolPolicy, typedArguments } from "../mail/tool-policy.ts";
import { runningOn } from "../member/machine.ts";
import type { Machine } from "../member/member.ts";
import { surroundingSession } from "../member/who.ts";
import { pendingIn, storeOf } from "../policy/all-tickets.ts";
import { compile, explain, permissionsOf } from "../policy/permissions.ts";
import { approvedText, shownTool } from "../policy/ticket-words.ts";
import { type Decision, isTicketId, type Ticket } from "../policy/tickets.ts";
import { labelOf } from "../policy/wrappers.ts";
import { type Call, UsageError } from "./call.ts";
import { untilInterrupted } from "./interrupt.ts";
import { refused, thisMachine } from "./machine.ts";
import type { Printed } from "./schemas.ts";

/** `tickets`: the calls that wait for a decision. */
export async function tickets(call: Call): Promise<number> {
	const { out } = call;
	const machine = thisMachine(call);
	const failed = (error: unknown) => machine.warn(`the tickets of a session cannot be read: ${errorMessage(error)}`);
	const print = (pending: readonly Ticket[]) =>
		out.isJson
			? out.printJson(printedOf(pending))
			: out.print(pending.map((ticket) => lineOf(ticket, machine)).join("\n"));
	if (call.has("watch")) {
		const tell = (ticket: Ticket) =>
			out.isJson ? out.printJson(printedOf([ticket])) : out.print(decisionLine(ticket));
		const decided = (id: string) => storeOf(machine, id)?.find(id);
		return untilNobodyReads(() => pendingIn(machine, failed), decided, print, tell);
	}
	const pending = pendingIn(machine, failed);
	if (pending.length > 0 || out.isJson) await print(pending);
	else await out.print("No call waits for a decision.");
	return 0;
}

/** Prints what waits, what comes, and how it was decided, until it is interrupted or nobody reads. */
async function untilNobodyReads(
	look: () => Ticket[],
	decided: (id: string) => Ticket | undefined,
	print: (tickets: readonly Ticket[]) => Promise<boolean>,
	tell: (ticket: Ticket) => Promise<boolean>,
): Promise<number> {
	const interrupt = untilInterrupted();
	const met = new Map<string, Ticket>();
	try {
		while (!interrupt.signal.aborted) {
			const pending = look();
			const found = pending.filter(({ id }) => !met.has(id));
			for (const [id, known] of [...met]) {
				if (pending.some((ticket) => ticket.id === id)) continue;
				const ticket = decided(id) ?? { ...known, state: "closed" };
				// It could not be read now, with others of its session.
				if (ticket.state === "pending") continue;
				met.delete(id);
				if (!(await tell(ticket))) return 0;
			}
			for (const ticket of found) met.set(ticket.id, ticket);
			if (found.length > 0 && !(await print(found))) return 0;
			await sleep(lookMs, undefined, { signal: interrupt.signal }).catch(() => {});
		}
		return interrupt.exitCode ?? 130;
	} finally {
		interrupt.end();
	}
}

const lookMs = 500;

function printedOf(found: readonly Ticket[]): Printed["tickets"] {
	return {
		tickets: found.map((ticket) => {
			const { id, session, tool, arguments: args, message } = ticket;
			const since = new Date(ticket.since).toISOString();
			return { id, session, tool, arguments: JSON.stringify(args), message, since, state: stateOf(ticket) };
		}),
	};
}

/** `approve`: lets a call be made. */
export function approve(call: Call): Promise<number> {
	const payload = call.text("payload");
	try {
		return decide(call, "resume", payload === undefined ? undefined : JSON.parse(payload));
	} catch {
		throw new UsageError("--payload is no JSON");
	}
}

/** `deny`: keeps a call from being made. */
export function deny(call: Call): Promise<number> {
	return decide(call, "cancel", undefined);
}

async function decide(call: Call, action: Decision["action"], payload: unknown): Promise<number> {
	const { out } = call;
	const [id, ...words] = call.words;
	if (id === undefined) throw new UsageError("say which call: pi-session-mail tickets lists them");
	const machine = thisMachine(call);
	if (surroundingSession(call.env, runningOn(machine), machine.processes) !== undefined) {
		const message = "Nothing was decided: what a model runs in its shell decides about no call.";
		return refused(call, { code: "in_session", message });
	}
	const store = isTicketId(id) ? storeOf(machine, id) : undefined;
	if (store === undefined) {
		return refused(call, { code: "unknown_id", message: `Nothing was decided: there is no ticket ${field(id, 40)}.` });
	}
	const reason = words.join(" ").trim();
	const waiting = store.find(id);
	const follows = waiting && approvedText(waiting, runningOn(machine));
	const decided = store.decide(id, {
		decision_id: randomUUID(),
		action,
		by: { kind: "person", who: "a person at a shell" },
		at: machine.now(),
		...(payload !== undefined && { payload }),
		...(reason !== "" && { reason }),
	});
	if (!decided.ok) return refused(call, { code: decided.code, message: decided.message });
	const { session, tool } = decided.ticket;
	const printed: Printed["approve"] = { id, session, action };
	if (out.isJson) await out.printJson(printed);
	else if (action === "cancel") await out.print(`Denied: ${field(tool)} of ${session}.`);
	else await out.print(`Approved: ${field(tool)} of ${session}; ${follows}.`);
	return 0;
}

/** `policy`: what decides about a call. */
export async function policy(call: Call): Promise<number> {
	const { out } = call;
	const [tool, ...words] = call.words;
	if (tool === undefined) throw new UsageError("say which call: pi-session-mail policy TOOL [ARGUMENT]");
	const set = thisMachine(call).settings().toolPolicy ?? noToolPolicy;
	const typed = { tool, args: typedArguments(tool, words.join(" ")) };
	const lines = explain(compile(permissionsOf(set)), typed, shownTool(tool, labelOf(set.wrappers ?? [], tool)));
	if (existsSync(projectSettingsPath("."))) {
		lines.push(
			`The settings in ./${projectSettingsPath(".")} were not looked at: where Pi trusts this folder, they narrow this.`,
		);
	}
	const printed: Printed["policy"] = { lines };
	if (out.isJson) await out.printJson(printed);
	else await out.print(lines.join("\n"));
	return 0;
}

function stateOf({ state, decision }: Ticket): Printed["tickets"]["tickets"][number]["state"] {
	if (decision === undefined) return state === "pending" ? "pending" : "gone";
	return decision.action === "resume" ? "approved" : "refused";
}

function lineOf({ id, session, tool, label, arguments: args, message, since }: Ticket, machine: Machine): string {
	const found = runningOn(machine).find(session);
	const name = found === undefined ? `${session} (closed)` : displayName(found, []);
	const shown = [shownTool(tool, label), bothEnds(JSON.stringify(args), 200), shortSpan(machine.now() - since)];
	return [id, name, ...shown, field(message, 200)].join("  ");
}

function decisionLine({ id, tool, decision }: Ticket): string {
	if (decision === undefined) return `${id}  is gone`;
	const { action, by, reason } = decision;
	const who = by.kind === "time" ? "nobody decided in time" : `by ${field(by.who, 200)}`;
	const why = reason === undefined ? "" : `: ${field(reason, 200)}`;
	return `${id}  ${field(tool)}  ${action === "resume" ? "approved" : "refused"}, ${who}${why}`;
}
