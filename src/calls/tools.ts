import type { ExtensionToolContext } from "@earendil-works/pi-coding-agent";
import type { EndedCall } from "../mail/call-store.ts";
import { field } from "../mail/text.ts";
import type { ToolPolicy } from "../mail/tool-policy.ts";
import { decideAs } from "../policy/decide-as.ts";
import type { Gate } from "../policy/gate.ts";
import type { CallsParts, CallView, PolicyParts } from "../session/calls.ts";
import { shownBody } from "../session/label.ts";
import type { SeenResults } from "../session/ledger.ts";
import { isSet, mailboxIsOff, refusal, renderCallLine, result, type Tool, textOf } from "../tools/tool.ts";
import type { Engine, Outer, ToolResult, Woken } from "./engine.ts";
import { attachMsOf } from "./wrap.ts";

/** The names of the tools for calls. */
export const callToolNames = [
	"session_mail_wait",
	"session_call_run",
	"session_call_status",
	"session_call_list",
	"session_call_cancel",
	"session_ticket_decide",
];

/** Longest wait, in seconds (SMB-037). */
const maxWaitSeconds = 300;
const defaultWaitSeconds = 60;
/** A day, as in the settings: a timer takes no more than 24 of them. */
const maxAttachSeconds = 86_400;

export interface CallToolsParts {
	policy: () => ToolPolicy;
	/** Undefined when the session has no mailbox, or has ended. */
	current: () => { engine: Engine; gate: Pick<Gate, "attachMsFor">; session: PolicyParts } | undefined;
	/** The tool calls that run others as calls, by their ids, for as long as they do. */
	outers: Map<string, Outer>;
}

const callId = { type: "string", description: "Id of the call, as the tool that was suspended gave it" } as const;
const seconds = (what: string) => ({ type: "number", description: `${what}, in seconds; at most ${maxWaitSeconds}` });

/** The model's tools for calls that were suspended (T-SMB-5). */
export function callTools({ policy, current, outers }: CallToolsParts): Tool[] {
	/** How a call stands; undefined when there is none of this id. */
	function stateOf(id: string): CallView | EndedCall | undefined {
		const now = current();
		return now?.engine.views().find((call) => call.id === id) ?? now?.session.ended(id);
	}

	function unknown(id: string): ToolResult {
		return refusal(
			"unknown_call",
			`Nothing was done: there is no call "${field(id, 40)}"; session_call_list names them.`,
		);
	}

	const wait: Tool = {
		name: "session_mail_wait",
		label: "Mail: wait",
		description: `Waits until a suspended call has ended or mail comes, at most ${maxWaitSeconds} seconds, and says which. It reads nothing: mail is shown after it. Use it only when nothing else is left to do.`,
		promptSnippet: "Wait for the result of a suspended call, or for mail",
		parameters: {
			type: "object",
			properties: {
				for: {
					anyOf: [{ type: "string" }, { type: "array", items: { type: "string" }, minItems: 1, maxItems: 50 }],
					description:
						'Id of a call or a list of ids, "any-call" for whichever ends first, or "mail". Mail ends every wait.',
				},
				timeout_seconds: seconds(`How long to wait; default ${defaultWaitSeconds}`),
			},
			required: ["for"],
			additionalProperties: false,
		},
		renderCall: renderCallLine("mail: wait", "for", ""),
		async execute(_id, params, signal) {
			const now = current();
			if (now === undefined) return mailboxIsOff;
			const asked = wantedOf(params);
			const live = now.engine.views().map(({ id }) => id);
			if (asked.includes("any-call") && live.length === 0) {
				return refusal("no_call", "Nothing was waited for: no call runs.");
			}
			const missing = asked.find((id) => !["mail", "any-call"].includes(id) && stateOf(id) === undefined);
			if (missing !== undefined) return unknown(missing);
			const ids = asked.flatMap((id) => (id === "any-call" ? live : id === "mail" ? [] : [id]));
			const limit = secondsOf(params, "timeout_seconds", defaultWaitSeconds);
			const woken = await now.engine.wait(ids, 1000 * limit, signal);
			return result(describeWoken(woken, limit), woken);
		},
	};

	const status: Tool = {
		name: "session_call_status",
		label: "Call: status",
		description:
			"Says how a suspended call stands, with its result when it has ended. With wait_seconds it waits for that; mail ends the wait.",
		parameters: {
			type: "object",
			properties: { id: callId, wait_seconds: seconds("How long to wait for its end; default 0") },
			required: ["id"],
			additionalProperties: false,
		},
		renderCall: renderCallLine("call: status", "id", ""),
		async execute(_id, params, signal) {
			const now = current();
			if (now === undefined) return mailboxIsOff;
			const id = textOf(params, "id").trim();
			if (stateOf(id) === undefined) return unknown(id);
			const limit = secondsOf(params, "wait_seconds", 0);
			if (limit > 0) await now.engine.wait([id], 1000 * limit, signal);
			const call = stateOf(id);
			if (call === undefined) return unknown(id);
			return "content" in call ? shownResult(call, now.session) : result(describeCall(call, now.session.now()), call);
		},
	};

	const list: Tool = {
		name: "session_call_list",
		label: "Call: list",
		description:
			"Lists the calls of this session that run or wait for their turn, with how long and what they said last.",
		parameters: { type: "object", properties: {}, additionalProperties: false },
		annotations: { readOnlyHint: true },
		renderCall: renderCallLine("call: list", "", ""),
		async execute() {
			const now = current();
			if (now === undefined) return mailboxIsOff;
			const calls = now.engine.views().filter(({ isDetached }) => isDetached);
			const lines = calls.map((call) => `- ${describeCall(call, now.session.now())}`);
			return result(lines.length === 0 ? "No call runs." : lines.join("\n"), { calls });
		},
	};

	const cancel: Tool = {
		name: "session_call_cancel",
		label: "Call: cancel",
		description: "Cancels a suspended call and all that it has started. What it gave so far comes as mail.",
		parameters: { type: "object", properties: { id: callId }, required: ["id"], additionalProperties: false },
		renderCall: renderCallLine("call: cancel", "id", ""),
		async execute(_id, params) {
			const now = current();
			if (now === undefined) return mailboxIsOff;
			const id = textOf(params, "id").trim();
			if (now.engine.cancel([id]).length > 0) return result(`Cancelled ${id}.`, { id, cancelled: true });
			const call = stateOf(id);
			if (call === undefined) return unknown(id);
			return result(`${id} has ended before: ${call.state}.`, { id, cancelled: false, state: call.state });
		},
	};

	const decide: Tool = {
		name: "session_ticket_decide",
		label: "Ticket: decide",
		description:
			"Decides about a call of another session that was put to this one by mail, as the session that its rule names. Say why when you deny.",
		parameters: {
			type: "object",
			properties: {
				session: { type: "string", description: "Name or id of the session, as the mail gives it" },
				ticket: { type: "string", description: "Id of the ticket" },
				approve: { type: "boolean", description: "Whether the call may be made" },
				reason: { type: "string", description: "Why; the other session's model reads it" },
			},
			required: ["session", "ticket", "approve"],
			additionalProperties: false,
		},
		renderCall: renderCallLine("ticket: decide", "ticket", "reason"),
		async execute(_id, params) {
			const now = current();
			if (now === undefined) return mailboxIsOff;
			const ticket = textOf(params, "ticket").trim();
			const reason = textOf(params, "reason").trim();
			const outcome = decideAs(now.session, textOf(params, "session").trim(), ticket, {
				isApproved: isSet(params, "approve"),
				...(reason !== "" && { reason }),
			});
			return outcome.ok ? result(outcome.message, { ticket }) : refusal(outcome.code, outcome.message);
		},
	};

	const run: Tool = {
		name: "session_call_run",
		label: "Call: run",
		description:
			"Runs another tool and gives the turn back after some time, while the tool goes on; its result then comes as mail. For work that takes long and need not be waited for.",
		promptSnippet: "Run a tool that takes long without waiting for it",
		parameters: {
			type: "object",
			properties: {
				tool: { type: "string", description: "Name of the tool" },
				arguments: { type: "object", description: "Its arguments", additionalProperties: true },
				attach_seconds: { type: "number", minimum: 0, description: "How long to wait for it; default 0" },
			},
			required: ["tool", "arguments"],
			additionalProperties: false,
		},
		renderCall: renderCallLine("call: run", "tool", ""),
		execute(id, params, signal, onUpdate, ctx) {
			const now = current();
			if (now === undefined) return Promise.resolve(mailboxIsOff);
			const tool = textOf(params, "tool").trim();
			const args = argumentsOf(params);
			const problem = refusedTool(tool, ctx);
			if (problem !== undefined) return Promise.resolve(problem);
			const given = numberOf(params, "attach_seconds");
			const byRule = () => now.gate.attachMsFor({ tool, args }, ctx) ?? attachMsOf(policy(), tool) ?? 0;
			const attachMs = given === undefined ? byRule() : 1000 * Math.min(maxAttachSeconds, Math.max(0, given));
			return now.engine.run(
				{ tool, args, attachMs },
				async (stop, _onUpdate, turn) => {
					outers.set(id, { signal: stop, turn, executeTool: ctx.executeTool });
					try {
						const { result: outcome, isError } = await ctx.executeTool(tool, args, { signal: stop });
						return { ...outcome, ...(isError && { isError }) };
					} finally {
						outers.delete(id);
					}
				},
				signal,
				onUpdate,
			);
		},
	};

	return [wait, run, status, list, cancel, decide];
}

function refusedTool(tool: string, ctx: ExtensionToolContext): ToolResult | undefined {
	if (callToolNames.includes(tool)) return refusal("own_tool", `Nothing was done: call ${tool} itself.`);
	if (ctx.tools.some(({ name }) => name === tool)) return undefined;
	return refusal("unknown_tool", `Nothing was done: there is no tool "${field(tool, 60)}" that can be called.`);
}

function shownResult(call: EndedCall, { address, pathOf }: CallsParts): ToolResult {
	const { id, tool, state, content } = call;
	const texts = content.flatMap((part) => (part.type === "text" ? [part.text] : []));
	const text = texts.join("\n").trimEnd() || "(no output)";
	const seen: SeenResults = { seenResults: { address, calls: [id] } };
	const shown = [`${id} (${tool}): ${state}.`, "", ...shownBody(text, pathOf(id))].join("\n");
	const images = content.filter((part) => part.type === "image");
	return { content: [{ type: "text", text: shown }, ...images], details: { id, state, ...seen } };
}

function describeCall({ id, tool, arguments: args, started, state, progress }: CallView, now: number): string {
	const age = Math.max(0, Math.round((now - started) / 1000));
	const last = progress.at(-1);
	const said = last === undefined ? "" : `; it said last: ${last}`;
	return `${id}: ${tool} ${field(args, 100)}, ${state}, ${age} s${said}`;
}

function describeWoken(woken: Woken, limit: number): string {
	switch (woken.by) {
		case "call":
			return `${woken.id} has ended. Its result comes as mail; session_call_status shows it now.`;
		case "mail":
			return "Mail has come; it follows.";
		case "interrupt":
			return "An interrupt has come; it follows.";
		case "timeout":
			return `Nothing came within ${limit} s.`;
		case "stop":
			return "The wait was stopped.";
	}
}

function wantedOf(params: unknown): string[] {
	const value = paramOf(params, "for");
	const texts = Array.isArray(value) ? value : [value];
	return texts.filter((text) => typeof text === "string").map((text) => text.trim());
}

function secondsOf(params: unknown, name: string, otherwise: number): number {
	return Math.min(maxWaitSeconds, Math.max(0, numberOf(params, name) ?? otherwise));
}

function numberOf(params: unknown, name: string): number | undefined {
	const value = paramOf(params, name);
	return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

function argumentsOf(params: unknown): unknown {
	return paramOf(params, "arguments") ?? {};
}

function paramOf(params: unknown, name: string): unknown {
	return typeof params === "object" && params !== null ? Reflect.get(params, name) : undefined;
}
