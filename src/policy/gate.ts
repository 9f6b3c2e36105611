import type {
	ExtensionContext,
	ExtensionToolContext,
	MessageEndEvent,
	MessageEndEventResult,
	ToolCallEvent,
	ToolCallEventResult,
	ToolResultEvent,
	ToolResultEventResult,
} from "@earendil-works/pi-coding-agent";
import type { Outer, Question, ToolResult, Work } from "../calls/engine.ts";
import { errorMessage } from "../mail/disk.ts";
import { field } from "../mail/text.ts";
import { defaultTicketTtlHours, type Wrapper } from "../mail/tool-policy.ts";
import type { PolicyParts, PolicyProblem } from "../session/calls.ts";
import { createApprovals, type HowToWait } from "./approvals.ts";
import { askAllBefore, contentOf, type HookParts, isOfHook, tellAllAfter, toolCaller } from "./hooks.ts";
import { createInForce, type InForceParts, type KnownTools } from "./in-force.ts";
import { isEqual } from "./json.ts";
import type { ToolCall } from "./pattern.ts";
import type { Verdict } from "./permissions.ts";
import { refusalText, waitingNote } from "./ticket-words.ts";
import type { Ticket } from "./tickets.ts";
import { createResultCache, labelOf, truncated, wrap, wrappersFor } from "./wrappers.ts";

/** What stands before each call of a session's model: permissions, hooks, and those who decide. */
export interface Gate {
	/** Before a call: lets it pass, changes its arguments, or blocks it. Throws nothing: what goes wrong blocks. */
	toolCall(event: ToolCallEvent, ctx: ExtensionContext): Promise<ToolCallEventResult | undefined>;
	/** After a call of a tool that is not wrapped. */
	toolResult(event: ToolResultEvent, ctx: ExtensionContext): Promise<ToolResultEventResult | undefined>;
	/** A call has ended, whether it was made or not. */
	toolEnded(id: string, isNested: boolean): void;
	/** A call that was not made and whose text is no error. */
	messageEnd(event: MessageEndEvent): MessageEndEventResult | undefined;
	/**
	 * Inside a call of a wrapped tool, where a tool can be called: does what `toolCall` could not do before it, since a hook
	 * is a tool. Changes `args`; returns why the call is not made.
	 */
	inside(id: string, call: ToolCall, ctx: ExtensionToolContext): Promise<string | undefined>;
	/** The result of a call of a wrapped tool that a hook has given: it is not made. */
	given(id: string): ToolResult | undefined;
	/** How long the model waits for the decision about a call of a wrapped tool, in milliseconds; undefined when nobody is asked. */
	asked(id: string): { attachMs: number | undefined; ticket: Question } | undefined;
	/**
	 * Puts around the work of a call of a wrapped tool what the policy says: its wrappers and, first and aside, the wait
	 * for a decision.
	 */
	around(id: string, call: ToolCall, ctx: ExtensionContext, work: WorkWith): Work;
	/** How long the model would wait for the decision about a call, in milliseconds; undefined when no rule says. */
	attachMsFor(call: ToolCall, ctx: ExtensionContext): number | undefined;
	/** Which rule decides about a call, as lines for people. */
	explain(call: ToolCall, ctx: ExtensionContext): string[];
	/** This process receives the session's mail from now on: what earlier ones have asked is its own. */
	takeInLeft(): void;
	/** Ends the waits for decisions: the calls go on waiting by themselves. */
	interrupt(): void;
	/** What of the policy cannot be done. */
	problems(ctx: ExtensionContext, tools: KnownTools): PolicyProblem[];
	/** The tools of which every call is denied. */
	denied(ctx: ExtensionContext, tools: readonly string[]): string[];
	close(): void;
}

/** The work of a call with the arguments that were decided on. */
export type WorkWith = (args: unknown, signal: AbortSignal, onUpdate: Parameters<Work>[1]) => Promise<ToolResult>;

export interface GateParts extends InForceParts {
	session: PolicyParts;
	/** Whether a call of this tool goes through `around`. */
	isWrapped: (tool: string) => boolean;
	/** What runs a call that another one made, where that is run as a call. */
	outerOf: (id: string) => Outer | undefined;
	/** Adds a rule to the person's settings. Throws the disk's errors. */
	addRule: (rule: { pattern: string; behavior: "allow" }) => void;
	/** Where those lie, for people. */
	settingsFile: string;
	warn: (text: string) => void;
}

/**
 * What stands before each call where the session has no mailbox: what is allowed is made, and all else is blocked, since
 * nobody can be asked.
 */
export function createGateWithoutMailbox(parts: InForceParts): Gate["toolCall"] {
	const inForce = createInForce(parts);
	return async ({ toolName: tool, input }, ctx) => {
		try {
			const { wrappers = [] } = inForce.policy(ctx);
			const verdict = inForce.verdict({ tool, args: input }, ctx);
			if (verdict.behavior === "deny") return blocked(deniedText(tool, verdict));
			const isHooked = wrappersFor(wrappers, tool).some(({ before }) => before !== undefined);
			if (verdict.behavior === "allow" && !isHooked) return undefined;
			const why = verdict.behavior === "allow" ? "by a hook" : verdict.why;
			return blocked(
				`Tool '${field(tool)}' was to be asked about (${why}), which needs the mailbox that this session does not have.`,
			);
		} catch (error) {
			return blocked(untoldText(error));
		}
	};
}

/** Tools of our own that only pass on what is looked at by itself. */
const passedOn = new Set(["session_call_run"]);
/** How long a session without a screen waits for another session's decision. */
const unseenMs = 300_000;

export function createGate(parts: GateParts): Gate {
	const { session, outerOf, warn } = parts;
	const inForce = createInForce(parts);
	const approvals = createApprovals({
		session,
		ttlMs: () => (parts.policy().ticketTtlHours ?? defaultTicketTtlHours) * 60 * 60 * 1000,
		allow(allowed, { tool, arguments: args }) {
			if (allowed === "this call") return inForce.allowCall({ tool, args });
			inForce.allow(allowed.pattern);
			parts.addRule({ pattern: allowed.pattern, behavior: "allow" });
		},
		settingsFile: parts.settingsFile,
		warn,
	});
	const cache = createResultCache(session.now);
	/** Calls of wrapped tools that somebody has to decide about, by the id of the call. */
	const held = new Map<string, { ticket: Ticket; attachMs: number | undefined }>();
	/** Calls whose result a hook or a decision has given. */
	const given = new Map<string, ToolResult>();
	/** What hooks have made of the arguments of calls, which is said with their results. */
	const rewritten = new Map<string, unknown>();
	const failures = { before: 0, after: 0 };
	let lastFailure = "";
	/** Calls of wrapped tools about which something inside them decides. */
	const left = new Set<string>();
	/** The tools of others whose result, given by a hook or a decision, reached the call that made theirs as an error. */
	const lost = new Set<string>();

	function hookParts(
		id: string,
		ctx: ExtensionContext | ExtensionToolContext,
		signal: AbortSignal | undefined,
	): HookParts {
		return {
			cwd: ctx.cwd,
			callTool: toolCaller(id, "executeTool" in ctx ? ctx.executeTool : outerOf(id)?.executeTool),
			signal,
			failed(when, why) {
				// The user has ended it.
				if (signal?.aborted === true) return;
				failures[when]++;
				lastFailure = why;
				warn(`a hook ${when} a call failed: ${field(why, 300)}`);
			},
		};
	}

	async function toolCall(event: ToolCallEvent, ctx: ExtensionContext): Promise<ToolCallEventResult | undefined> {
		const { toolName: tool, toolCallId: id } = event;
		if (passedOn.has(tool) || isOfHook(id, tool)) return undefined;
		try {
			const { wrappers = [] } = inForce.policy(ctx);
			const input: Record<string, unknown> = event.input;
			const hooks = wrappersFor(wrappers, tool).flatMap(({ before }) => before ?? []);
			if (!("executeTool" in ctx) && parts.isWrapped(tool) && hooks.some((hook) => "tool" in hook)) {
				left.add(id);
				return undefined;
			}
			let deferred: Deferred;
			if (hooks.length > 0) {
				const call = { tool, arguments: input, session_id: session.address, tool_call_id: id };
				const answer = await askAllBefore(hooks, call, hookParts(id, ctx, signalOf(id, ctx)));
				if (answer.action === "deny") return blocked(answer.message);
				if (answer.action === "answer")
					return answered(event, { content: contentOf(answer.result), details: undefined });
				const { deferred: by } = answer;
				const number = wrappers.findIndex(({ before }) => before !== undefined && before === by?.hook) + 1;
				deferred = by && { reason: by.reason, rule: `a hook before the call (wrapper ${number})` };
				if (answer.arguments !== undefined && !isEqual(answer.arguments, input)) {
					replace(input, answer.arguments);
					rewritten.set(id, answer.arguments);
				}
			}
			const call = { tool, args: input };
			const verdict = inForce.verdict(call, ctx);
			if (verdict.behavior === "deny") return blocked(deniedText(tool, verdict));
			if (verdict.behavior === "allow" && deferred === undefined) return undefined;
			if (approvals.takeGrant(call)) return undefined;
			return await asked(event, ctx, verdict, deferred, labelOf(wrappers, tool));
		} catch (error) {
			return blocked(untoldText(error));
		}
	}

	/** Opens a ticket, and waits for its decision where the tool cannot. */
	async function asked(
		event: ToolCallEvent,
		ctx: ExtensionContext,
		{ behavior, rule, why }: Verdict,
		deferred: Deferred,
		label: string | undefined,
	): Promise<ToolCallEventResult | undefined> {
		const { toolName: tool, toolCallId: id } = event;
		const input: Record<string, unknown> = event.input;
		const approver = rule?.approver;
		if (!ctx.hasUI && !(approver !== undefined && session.isRunning(approver))) {
			return blocked(`Tool '${field(tool)}' was to be asked about (${why}), and nobody can be asked here.`);
		}
		const isNarrowed = inForce.isNarrowed({ tool, args: input }, ctx);
		const asker = deferred !== undefined ? "hook" : isNarrowed ? "project" : undefined;
		const ticket = approvals.ask({
			session: session.address,
			callId: id,
			tool,
			...(label !== undefined && { label }),
			arguments: structuredClone(input),
			message: rule?.message ?? deferred?.reason ?? `Permission required for tool '${field(tool)}'`,
			resume: rule?.resume ?? "replay_tool_call",
			rule: behavior === "allow" && deferred !== undefined ? deferred.rule : why,
			...(asker !== undefined && { asker }),
			...(rule?.response !== undefined && { response: rule.response }),
			...(approver !== undefined && { approver }),
		});
		const attachMs = attachMsOf(rule) ?? (ctx.hasUI ? undefined : unseenMs);
		const outer = outerOf(id);
		const mayDetach = session.mayDetach();
		if (outer === undefined && mayDetach && parts.isWrapped(tool)) {
			held.set(id, { ticket, attachMs });
			return undefined;
		}
		const how: HowToWait = {
			signal: signalOf(id, ctx),
			...(mayDetach && outer !== undefined ? { turn: outer.turn } : { limitMs: attachMs }),
		};
		const wait = () => approvals.wait(ticket, ctx, how);
		const outcome = await (outer === undefined ? wait() : outer.turn.aside(wait, ticket));
		if (outcome === "stopped") return blocked("The user stopped the run before anybody decided about this call.");
		if (outcome === "put aside") {
			const note = waitingNote(ticket);
			given.set(id, { content: [{ type: "text", text: note }], details: undefined });
			return blocked(note);
		}
		const done = used(ctx, outcome.ticket, { tool, args: input });
		if ("problem" in done) return blocked(done.problem);
		if ("result" in done) return answered(event, done.result);
		if (done.args !== input) replace(input, done.args);
		return undefined;
	}

	/** What ends a call: that of a call which made it, where that has one of its own. */
	function signalOf(id: string, ctx: ExtensionContext): AbortSignal | undefined {
		return outerOf(id)?.signal ?? ctx.signal;
	}

	/** What becomes of a decided call, and that its decision is used. */
	function used(
		ctx: ExtensionContext,
		ticket: Ticket,
		call: ToolCall,
	): { problem: string } | { result: ToolResult } | { args: unknown } {
		try {
			const { decision: made, resume } = ticket;
			const elsewhere = { problem: "This call was not made: its decision came as mail, or was used before." };
			// Without a decision its ticket is gone: nobody else tells of it.
			if (made === undefined) return { problem: refusalText(ticket) };
			if (made.action === "cancel") return approvals.take(ticket) ? { problem: refusalText(ticket) } : elsewhere;
			const { payload } = made;
			const args = resume === "pass_decision_to_tool" ? payload : call.args;
			// The rules may have changed meanwhile: what is denied now stays denied (AWK-014).
			inForce.readAgain();
			const verdict = inForce.verdict({ tool: call.tool, args }, ctx);
			if (!approvals.take(ticket)) return elsewhere;
			if (verdict.behavior === "deny") return { problem: deniedText(call.tool, verdict) };
			if (resume === "use_decision_as_tool_result") {
				return { result: { content: contentOf(payload), details: undefined } };
			}
			return { args };
		} catch (error) {
			return { problem: untoldText(error) };
		}
	}

	/** Pi knows no result of a call that is not made but an error: a wrapped tool gives it, and of others its message is changed. */
	function answered(event: ToolCallEvent, result: ToolResult): ToolCallEventResult | undefined {
		const { toolName: tool, toolCallId: id, parentToolCallId } = event;
		given.set(id, result);
		if (parts.isWrapped(tool)) return undefined;
		// Of a call that another one made there is no message.
		if (parentToolCallId !== undefined) lost.add(tool);
		return { block: true, reason: textOf(result) };
	}

	return {
		toolCall,
		async toolResult(event, ctx) {
			const { toolName: tool, toolCallId: id } = event;
			if (passedOn.has(tool) || parts.isWrapped(tool) || isOfHook(id, tool)) return undefined;
			const { wrappers = [] } = inForce.policy(ctx);
			const status = event.isError ? "failed" : "completed";
			const result = { content: event.content, details: undefined };
			const about = { id, status, durationMs: 0, signal: signalOf(id, ctx), changedTo: rewritten.get(id) } as const;
			const changed = await finished(wrappers, { tool, args: event.input }, result, ctx, about);
			return changed === result ? undefined : { content: changed.content };
		},
		toolEnded(id, isNested) {
			// Of a nested call there is no message.
			if (isNested) given.delete(id);
			rewritten.delete(id);
			left.delete(id);
			const waiting = held.get(id);
			held.delete(id);
			// Something else has kept it from being made.
			if (waiting !== undefined) approvals.withdraw(waiting.ticket);
		},
		messageEnd({ message }) {
			if (message.role !== "toolResult") return undefined;
			const result = given.get(message.toolCallId);
			if (result === undefined) return undefined;
			given.delete(message.toolCallId);
			return { message: { ...message, content: result.content, isError: false } };
		},
		async inside(toolCallId, { tool, args }, ctx) {
			if (!left.delete(toolCallId)) return undefined;
			const input = args as Record<string, unknown>;
			const event = { type: "tool_call" as const, toolName: tool, toolCallId, input };
			return (await toolCall(event, ctx))?.reason;
		},
		given: (id) => given.get(id),
		asked: (id) => held.get(id),
		around(id, call, ctx, work) {
			const waiting = held.get(id);
			held.delete(id);
			const changedTo = rewritten.get(id);
			const { wrappers = [] } = inForce.policy(ctx);
			return async (signal, update, turn) => {
				const begin = performance.now();
				let args = call.args;
				if (waiting !== undefined) {
					const outcome = await turn.aside(() => approvals.wait(waiting.ticket, ctx, { signal, turn }), waiting.ticket);
					if (outcome === "stopped") throw new Error("The call was stopped before anybody decided about it.");
					if (outcome === "put aside") throw new Error("Nobody has decided about this call.");
					signal.throwIfAborted();
					const done = used(ctx, outcome.ticket, call);
					if ("problem" in done) throw new Error(done.problem);
					if ("result" in done) return done.result;
					args = done.args;
				}
				const meant = { tool: call.tool, args };
				const whole = wrap((stop, onUpdate) => work(args, stop, onUpdate), wrappers, meant, cache);
				const made = await whole(signal, update).then(
					(result) => ({ result, isThrown: false }),
					(error: unknown) => ({ result: failure(error), isThrown: true }),
				);
				const status = made.result.isError === true ? "failed" : "completed";
				const about = { id, status, durationMs: performance.now() - begin, signal, changedTo } as const;
				const changed = await finished(wrappers, meant, made.result, ctx, about);
				if (made.isThrown) throw new Error(textOf(changed));
				return changed;
			};
		},
		attachMsFor(call, ctx) {
			const { behavior, rule } = inForce.verdict(call, ctx);
			return behavior === "ask" ? attachMsOf(rule) : undefined;
		},
		explain: inForce.explain,
		takeInLeft: approvals.takeInLeft,
		interrupt: approvals.interrupt,
		problems(ctx, tools) {
			const count = failures.before + failures.after;
			return [
				...inForce.problems(ctx, tools),
				...[...lost].map((tool) => ({
					what: `what was answered in place of a call of ${field(tool)} reached the script or call that made it as an error: Pi gives no other way`,
					mend: "leave such calls to the model itself",
				})),
				...(count === 0
					? []
					: [
							{
								what: `${count} times a hook failed in this session, the last time: ${field(lastFailure, 300)}`,
								mend: "mend the hook, or change toolPolicy.wrappers in the settings",
							},
						]),
			];
		},
		denied: inForce.denied,
		close: approvals.end,
	};

	/** What hooks and limits make of a result. */
	async function finished(
		wrappers: readonly Wrapper[],
		call: ToolCall,
		result: ToolResult,
		ctx: ExtensionContext,
		{ id, status, durationMs, signal, changedTo }: Ended,
	): Promise<ToolResult> {
		const fitting = wrappersFor(wrappers, call.tool);
		const hooks = fitting.flatMap(({ after }) => after ?? []);
		let changed = result;
		if (hooks.length > 0) {
			const about = { tool: call.tool, arguments: call.args, session_id: session.address, tool_call_id: id };
			const told = { ...about, status, duration_ms: Math.round(durationMs) };
			changed = await tellAllAfter(hooks, told, changed, hookParts(id, ctx, signal));
		}
		for (const { truncate } of fitting) if (truncate !== undefined) changed = truncated(changed, truncate.maxBytes);
		if (changedTo === undefined) return changed;
		const note = `[A hook has changed this call before it was made, to: ${field(JSON.stringify(changedTo), 1000)}]`;
		return { ...changed, content: [...changed.content, { type: "text", text: note }] };
	}
}

/** Why a hook asks for a decision, and which. */
type Deferred = { reason: string; rule: string } | undefined;

interface Ended {
	id: string;
	status: "completed" | "failed";
	durationMs: number;
	signal: AbortSignal | undefined;
	/** What a hook has made of its arguments. */
	changedTo: unknown;
}

/** What a tool threw, as a result. */
function failure(error: unknown): ToolResult {
	const text = error instanceof Error ? error.message : String(error);
	return { content: [{ type: "text", text }], details: undefined, isError: true };
}

function textOf({ content }: ToolResult): string {
	return content.map((part) => (part.type === "text" ? part.text : "")).join("\n");
}

function replace(input: Record<string, unknown>, args: unknown): void {
	for (const key of Object.keys(input)) delete input[key];
	if (typeof args === "object" && args !== null) Object.assign(input, args);
}

function blocked(reason: string): ToolCallEventResult {
	return { block: true, reason };
}

function untoldText(error: unknown): string {
	return `This call was not made, since what is to be done with it cannot be told: ${errorMessage(error)}`;
}

function attachMsOf(rule: Verdict["rule"]): number | undefined {
	return rule?.attachSeconds === undefined ? undefined : 1000 * rule.attachSeconds;
}

function deniedText(tool: string, { rule, why }: Verdict): string {
	const message = rule?.message === undefined ? "" : ` ${rule.message}`;
	return `Tool '${field(tool)}' denied by permission rules (${why}).${message}`;
}
