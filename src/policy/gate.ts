import { randomUUID } from "node:crypto";
import { join } from "node:path";
import type {
	ExtensionContext,
	MessageEndEvent,
	MessageEndEventResult,
	ToolCallEvent,
	ToolCallEventResult,
	ToolResultEvent,
	ToolResultEventResult,
} from "@earendil-works/pi-coding-agent";
import type { NewCall, ToolResult, Work } from "../calls/engine.ts";
import { errorMessage } from "../mail/disk.ts";
import { field } from "../mail/text.ts";
import { defaultTicketTtlHours, type Permissions, type ToolPolicy, type Wrapper } from "../mail/tool-policy.ts";
import type { PolicyParts } from "../session/calls.ts";
import { askInDialog, type Said } from "./dialog.ts";
import { askAllBefore, contentOf, type HookParts, tellAllAfter } from "./hooks.ts";
import type { ToolCall } from "./pattern.ts";
import {
	compile,
	deniedOutright,
	evaluate,
	explain,
	narrow,
	type Policy,
	patternProblems,
	rulesForNoTool,
	type Verdict,
} from "./permissions.ts";
import { type Decision, openTicketStore, type Ticket, type TicketStore } from "./tickets.ts";
import { createResultCache, toolHooks, truncated, wrap, wrapperProblems, wrappersFor } from "./wrappers.ts";

/** What stands before each call of a session's model: permissions, hooks, and those who decide. */
export interface Gate {
	/** Before a call: lets it pass, changes its arguments, or blocks it. Throws nothing: what goes wrong blocks. */
	toolCall(event: ToolCallEvent, ctx: ExtensionContext): Promise<ToolCallEventResult | undefined>;
	/** After a call of a tool that is not wrapped. */
	toolResult(event: ToolResultEvent, ctx: ExtensionContext): Promise<ToolResultEventResult | undefined>;
	/** A call has ended, whether it was made or not. */
	toolEnded(id: string, isNested: boolean): void;
	/** A blocked call whose text is no error. */
	messageEnd(event: MessageEndEvent): MessageEndEventResult | undefined;
	/** Puts around the work of a call of a wrapped tool what the policy says: its wrappers, and the wait for a decision. */
	around(id: string, call: ToolCall, ctx: ExtensionContext, work: WorkWith): Work;
	/** How long the model waits for the decision about a call, in milliseconds; undefined when none is waited for, or no limit is set. */
	attachMsOf(id: string): number | undefined;
	/** The wait for the decision about a call, to be done before {@link around} does it; undefined when there is none. */
	firstOf(id: string, ctx: ExtensionContext): NewCall["first"];
	/** Which rule decides about a call, as lines for people. */
	explain(call: ToolCall, ctx: ExtensionContext): string[];
	/** Ends the waits for decisions: the calls go on waiting by themselves. */
	interrupt(): void;
	/** What of the policy cannot be done, one sentence each. */
	problems(ctx: ExtensionContext, tools: readonly string[], isWrapped: (tool: string) => boolean): string[];
	/** The tools of which every call is denied. */
	denied(ctx: ExtensionContext, tools: readonly string[]): string[];
	close(): void;
}

/** The work of a call with the arguments that were decided on. */
export type WorkWith = (args: unknown, ...rest: Parameters<Work>) => Promise<ToolResult>;

export interface GateParts {
	session: PolicyParts;
	/** The policy as it is set now. */
	policy: () => ToolPolicy;
	/** The permissions that a trusted project sets; undefined when it sets none. */
	projectPermissions: (ctx: ExtensionContext) => Permissions | undefined;
	/** Whether a call of this tool goes through `around`. */
	isWrapped: (tool: string) => boolean;
	/** What ends a call that another call made with a signal of its own. */
	signalOf: (id: string) => AbortSignal | undefined;
	/** Runs a tool for a hook; its result as text. */
	callTool: HookParts["callTool"];
	/** Adds a rule to the person's settings. Throws the disk's errors. */
	addRule: (rule: { pattern: string; behavior: "allow" }) => void;
	/** Where those lie, for people. */
	settingsFile: string;
	warn: (text: string) => void;
}

/** Tools of our own that only pass on what is looked at by itself. */
const passedOn = new Set(["session_call_run"]);
/** How old what was read of the settings may be. */
const freshMs = 1000;
const lookMs = 1000;
const expireMs = 60 * 60 * 1000;
/** How long a session without a screen waits for another session's decision. */
const unseenMs = 300_000;

/** How a wait for a decision ended. */
type Outcome = { ticket: Ticket } | "stopped" | "put aside";

export function createGate(parts: GateParts): Gate {
	const { session, warn } = parts;
	const store: TicketStore = openTicketStore(session.disk, session.folder, session.now);
	const cache = createResultCache(session.now);
	let read: { at: number; policy: ToolPolicy; compiled: Policy } | undefined;
	/** What the person has allowed for as long as the session lives. */
	const allowed: Permissions["rules"] = [];
	/** What each tracked ticket is waited for by; nobody, when the call was handed back or another process made it. */
	const tracked = new Map<string, ((outcome: Outcome) => void) | undefined>();
	/** Those of `tracked` that belong to calls which may be handed back: an interrupt leaves their waits alone. */
	const handed = new Set<(outcome: Outcome) => void>();
	/** Calls of wrapped tools that somebody has to decide about, by the id of the call. */
	const held = new Map<string, { ticket: Ticket; attachMs: number | undefined; outcome?: Outcome }>();
	/** Calls whose result a hook or a decision has given. */
	const given = new Map<string, ToolResult>();
	const failures = { before: 0, after: 0 };
	let lastFailure = "";
	let timer: NodeJS.Timeout | undefined;
	let expiredAt = Number.NEGATIVE_INFINITY;
	let dialogs: Promise<unknown> = Promise.resolve();
	begin();

	/** What earlier processes have left. */
	function begin(): void {
		try {
			for (const { id } of [...store.listPending(), ...store.listDecided()]) tracked.set(id, undefined);
		} catch (error) {
			warn(`calls that were asked about before cannot be read: ${errorMessage(error)}`);
		}
		watchTickets();
	}

	function current(ctx: ExtensionContext): { policy: ToolPolicy; compiled: Policy } {
		const now = performance.now();
		if (read !== undefined && now - read.at < freshMs) return read;
		const policy = parts.policy();
		const { permissions = { default: "allow", rules: [] } } = policy;
		const user = compile({ ...permissions, rules: [...permissions.rules, ...allowed] });
		const project = parts.projectPermissions(ctx);
		const compiled =
			project === undefined
				? user
				: // What the person allows for this session holds for what the project asks about as well.
					narrow(user, compile({ ...project, rules: [...project.rules, ...allowed] }, "the project's settings"));
		read = { at: now, policy, compiled };
		return read;
	}

	function hooksOf(when: "before" | "after", policy: ToolPolicy, tool: string) {
		return wrappersFor(policy.wrappers ?? [], tool).flatMap((wrapper) => wrapper[when] ?? []);
	}

	function hookParts(ctx: ExtensionContext, signal: AbortSignal | undefined): HookParts {
		return {
			cwd: ctx.cwd,
			callTool: parts.callTool,
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
		if (passedOn.has(tool)) return undefined;
		try {
			const { policy } = current(ctx);
			const input: Record<string, unknown> = event.input;
			const hooks = hooksOf("before", policy, tool);
			let deferred: string | undefined;
			if (hooks.length > 0) {
				const call = { tool, arguments: input, session_id: session.address, tool_call_id: id };
				const answer = await askAllBefore(hooks, call, hookParts(ctx, signalOf(id, ctx)));
				if (answer.action === "deny") return blocked(answer.message);
				if (answer.action === "answer") return answered(id, { content: contentOf(answer.result), details: undefined });
				deferred = answer.deferred;
				if (answer.arguments !== undefined) replace(input, answer.arguments);
			}
			const verdict = verdictOf(ctx, { tool, args: input });
			if (verdict.behavior === "deny") return blocked(deniedText(tool, verdict));
			if (verdict.behavior === "allow" && deferred === undefined) return undefined;
			expire();
			if (store.takeGrant(tool, input) !== undefined) return undefined;
			return await asked(event, ctx, verdict, deferred);
		} catch (error) {
			return blocked(`This call was not made, since what is to be done with it cannot be told: ${errorMessage(error)}`);
		}
	}

	function verdictOf(ctx: ExtensionContext, call: ToolCall): Verdict {
		return evaluate(current(ctx).compiled, call);
	}

	/** Opens a ticket, and waits for its decision where Pi lets only the handler wait. */
	async function asked(
		event: ToolCallEvent,
		ctx: ExtensionContext,
		{ rule, why }: Verdict,
		deferred: string | undefined,
	): Promise<ToolCallEventResult | undefined> {
		const { toolName: tool, toolCallId: id } = event;
		const input: Record<string, unknown> = event.input;
		const approver = rule?.approver;
		if (!ctx.hasUI && !(approver !== undefined && session.isRunning(approver))) {
			return blocked(`Tool '${field(tool)}' was to be asked about (${why}), and nobody can be asked here.`);
		}
		const ticket = store.open({
			session: session.address,
			callId: id,
			tool,
			arguments: structuredClone(input),
			message: rule?.message ?? deferred ?? `Permission required for tool '${field(tool)}'`,
			resume: rule?.resume ?? "replay_tool_call",
			rule: why,
			...(rule?.response !== undefined && { response: rule.response }),
			...(approver !== undefined && { approver }),
		});
		if (approver !== undefined) session.askApprover(approver, approverText(ticket));
		const seconds = rule?.attachSeconds;
		const attachMs = seconds === undefined ? (ctx.hasUI ? undefined : unseenMs) : 1000 * seconds;
		if (parts.isWrapped(tool) && session.mayDetach()) {
			held.set(id, { ticket, attachMs });
			return undefined;
		}
		const outcome = await decided(ticket, ctx, signalOf(id, ctx), attachMs);
		if (outcome === "stopped") return blocked("The user stopped the run before anybody decided about this call.");
		if (outcome === "put aside") {
			return answered(id, {
				content: [{ type: "text", text: JSON.stringify(waitingNote(ticket)) }],
				details: undefined,
			});
		}
		const done = used(ctx, outcome.ticket, { tool, args: input });
		if ("problem" in done) return blocked(done.problem);
		if ("result" in done) return answered(id, done.result);
		if (done.args !== input) replace(input, done.args);
		return undefined;
	}

	/** What ends a call: that of a call which made it, where that has one of its own. */
	function signalOf(id: string, ctx: ExtensionContext): AbortSignal | undefined {
		return parts.signalOf(id) ?? ctx.signal;
	}

	/** Waits until a ticket is decided, the run is stopped, or the wait is put aside. */
	function decided(
		ticket: Ticket,
		ctx: ExtensionContext,
		signal: AbortSignal | undefined,
		attachMs: number | undefined,
		detach?: (why: string) => void,
	): Promise<Outcome> {
		return new Promise((resolve) => {
			const closing = new AbortController();
			// It keeps the process of a session without a screen, where nothing else does while it waits.
			const limit = attachMs === undefined ? undefined : setTimeout(() => end("put aside"), attachMs);
			const stop = () => end("stopped");
			const end = (outcome: Outcome) => {
				if (closing.signal.aborted) return;
				closing.abort();
				clearTimeout(limit);
				signal?.removeEventListener("abort", stop);
				handed.delete(end);
				// One that is put aside is told of as mail, and so is one that the disk does not let be cancelled now.
				const isLeft = outcome === "put aside" || (outcome === "stopped" && !cancel(ticket.id, "the run was stopped"));
				if (isLeft) tracked.set(ticket.id, undefined);
				else tracked.delete(ticket.id);
				session.waitsForApproval(approvals());
				resolve(outcome);
			};
			tracked.set(ticket.id, end);
			// The engine hands such a call back.
			if (detach !== undefined) handed.add(end);
			session.waitsForApproval(approvals());
			watchTickets();
			if (signal?.aborted === true) stop();
			else signal?.addEventListener("abort", stop);
			// A call that can be suspended waits on by itself.
			const aside = () => (detach === undefined ? end("put aside") : detach("the user put the question aside"));
			if (ctx.hasUI) showDialog(ticket, ctx, closing.signal, aside);
		});
	}

	/** One dialog at a time. */
	function showDialog(ticket: Ticket, ctx: ExtensionContext, signal: AbortSignal, putAside: () => void): void {
		dialogs = dialogs
			.then(async () => {
				if (signal.aborted) return;
				const said = await askInDialog(ctx, ticket, parts.settingsFile, signal);
				if (signal.aborted) return;
				if (said === undefined) {
					putAside();
					return;
				}
				if (said.allows !== undefined) allow(said.allows);
				const outcome = store.decide(ticket.id, decision(said.action, said.reason));
				if (!outcome.ok) warn(outcome.message);
				look();
			})
			.catch((error) => {
				warn(`the question about ${field(ticket.tool)} was put aside: ${errorMessage(error)}`);
				if (!signal.aborted) putAside();
			});
	}

	function allow({ pattern, isLasting }: NonNullable<Said["allows"]>): void {
		const rule = { pattern, behavior: "allow" as const };
		allowed.push(rule);
		read = undefined;
		try {
			if (isLasting) parts.addRule(rule);
		} catch (error) {
			warn(`the rule holds for this session only, since the settings could not be changed: ${errorMessage(error)}`);
		}
	}

	/** Cancels a ticket of a call that is over; false when the disk does not let it. */
	function cancel(id: string, reason: string): boolean {
		try {
			store.decide(id, decision("cancel", reason));
			store.close(id);
			return true;
		} catch {
			return false;
		}
	}

	function decision(action: Decision["action"], reason?: string): Decision {
		const by = { kind: "person" as const, who: "the user of the session" };
		return { decision_id: randomUUID(), action, by, at: session.now(), ...(reason !== undefined && { reason }) };
	}

	/** What becomes of a decided call, and that its approval is used. */
	function used(
		ctx: ExtensionContext,
		ticket: Ticket,
		call: ToolCall,
	): { problem: string } | { result: ToolResult } | { args: unknown } {
		const { decision: made, resume } = ticket;
		if (made?.action !== "resume") {
			quietly(() => store.close(ticket.id));
			return { problem: refusalText(ticket) };
		}
		const { payload } = made;
		const args = resume === "pass_decision_to_tool" ? payload : call.args;
		// The rules may have changed meanwhile: what is denied now stays denied (AWK-014).
		read = undefined;
		const verdict = verdictOf(ctx, { tool: call.tool, args });
		if (!store.take(ticket.id)) return { problem: "The approval of this call was used before." };
		if (verdict.behavior === "deny") return { problem: deniedText(call.tool, verdict) };
		if (resume === "use_decision_as_tool_result") {
			return { result: { content: contentOf(payload), details: undefined } };
		}
		return { args };
	}

	/** Looks whether tracked tickets are decided, and tells of those that nobody waits for. */
	function look(): void {
		expire();
		for (const [id, waiter] of [...tracked]) {
			try {
				const ticket = store.find(id);
				if (ticket === undefined || ticket.state === "closed") {
					tracked.delete(id);
					if (ticket !== undefined) waiter?.({ ticket });
				} else if (ticket.state === "decided") {
					if (waiter !== undefined) waiter({ ticket });
					else if (tell(ticket)) tracked.delete(id);
				}
			} catch (error) {
				warn(`the decision about ${id} cannot be read: ${errorMessage(error)}`);
			}
		}
		if (tracked.size === 0) unwatch();
	}

	/** As mail; an approval that is not used then waits as a grant. */
	function tell(ticket: Ticket): boolean {
		const text = ticket.decision?.action === "resume" ? grantText(ticket) : refusalText(ticket);
		if (!say(ticket, text)) return false;
		if (ticket.decision?.action !== "resume" || ticket.resume === "use_decision_as_tool_result") store.close(ticket.id);
		return true;
	}

	function say({ id, tool }: Ticket, text: string): boolean {
		return session.tell({ id, tool: field(tool), state: "decided" }, text);
	}

	function expire(): void {
		if (performance.now() - expiredAt < expireMs) return;
		expiredAt = performance.now();
		const hours = parts.policy().ticketTtlHours ?? defaultTicketTtlHours;
		quietly(() => {
			const { cancelled, lapsed } = store.expire(session.now(), hours * 60 * 60 * 1000);
			for (const { id } of cancelled) if (!tracked.has(id)) tracked.set(id, undefined);
			// An approval that was never used holds no longer than a question. One that was told is not told again.
			for (const ticket of lapsed) {
				if (tracked.get(ticket.id) !== undefined || !say(ticket, lapsedText(ticket))) continue;
				store.close(ticket.id);
				tracked.delete(ticket.id);
			}
		});
	}

	function watchTickets(): void {
		if (tracked.size > 0) timer ??= setInterval(look, lookMs).unref();
	}

	function unwatch(): void {
		clearInterval(timer);
		timer = undefined;
	}

	/** What is waited for, for others to see. */
	function approvals(): string[] {
		return [...tracked].flatMap(([id, waiter]) => (waiter === undefined ? [] : [id]));
	}

	function answered(id: string, result: ToolResult): ToolCallEventResult {
		given.set(id, result);
		return { block: true, reason: textOf(result) };
	}

	return {
		toolCall,
		async toolResult(event, ctx) {
			const { toolName: tool, toolCallId: id } = event;
			if (passedOn.has(tool) || parts.isWrapped(tool)) return undefined;
			const { policy } = current(ctx);
			const status = event.isError ? "failed" : "completed";
			const result = { content: event.content, details: undefined };
			const about = { id, status, durationMs: 0, signal: signalOf(id, ctx) } as const;
			const changed = await finished(policy.wrappers ?? [], { tool, args: event.input }, result, ctx, about);
			return changed === result ? undefined : { content: changed.content };
		},
		toolEnded(id, isNested) {
			// Of a nested call there is no message.
			if (isNested) given.delete(id);
			const waiting = held.get(id);
			held.delete(id);
			// Something else has kept it from being made.
			if (waiting !== undefined && !cancel(waiting.ticket.id, "the call was not made")) {
				tracked.set(waiting.ticket.id, undefined);
				watchTickets();
			}
		},
		messageEnd({ message }) {
			if (message.role !== "toolResult") return undefined;
			const result = given.get(message.toolCallId);
			if (result === undefined) return undefined;
			given.delete(message.toolCallId);
			return { message: { ...message, content: result.content, isError: false } };
		},
		around(id, call, ctx, work) {
			const waiting = held.get(id);
			held.delete(id);
			const { wrappers = [] } = current(ctx).policy;
			return async (signal, update, detach) => {
				const begin = performance.now();
				let args = call.args;
				if (waiting !== undefined) {
					const outcome = waiting.outcome ?? (await decided(waiting.ticket, ctx, signal, undefined, detach));
					if (outcome === "stopped") throw new Error("The call was stopped before anybody decided about it.");
					if (outcome === "put aside") throw new Error("Nobody has decided about this call.");
					const done = used(ctx, outcome.ticket, call);
					if ("problem" in done) throw new Error(done.problem);
					if ("result" in done) return done.result;
					args = done.args;
				}
				const meant = { tool: call.tool, args };
				const whole = wrap((stop, onUpdate) => work(args, stop, onUpdate, detach), wrappers, meant, cache);
				const made = await whole(signal, update).then(
					(result) => ({ result, isThrown: false }),
					(error: unknown) => ({ result: failure(error), isThrown: true }),
				);
				const status = made.result.isError === true ? "failed" : "completed";
				const about = { id, status, durationMs: performance.now() - begin, signal } as const;
				const changed = await finished(wrappers, meant, made.result, ctx, about);
				if (made.isThrown) throw new Error(textOf(changed));
				return changed;
			};
		},
		attachMsOf: (id) => held.get(id)?.attachMs,
		firstOf(id, ctx) {
			const waiting = held.get(id);
			if (waiting === undefined) return undefined;
			return async (signal, detach) => {
				waiting.outcome = await decided(waiting.ticket, ctx, signal, undefined, detach);
			};
		},
		explain: (call, ctx) => explain(current(ctx).compiled, call),
		interrupt() {
			for (const waiter of [...tracked.values()]) if (waiter !== undefined && !handed.has(waiter)) waiter("put aside");
		},
		problems(ctx, tools, isWrapped) {
			const { policy, compiled } = current(ctx);
			const count = failures.before + failures.after;
			return [
				...patternProblems(compiled),
				...rulesForNoTool(compiled, tools),
				...wrapperProblems(policy.wrappers ?? [], tools, isWrapped),
				...toolHooks(policy.wrappers ?? []),
				...(count === 0
					? []
					: [`${count} times a hook failed in this session, the last time: ${field(lastFailure, 300)}`]),
			];
		},
		denied: (ctx, tools) => deniedOutright(current(ctx).compiled, tools),
		close() {
			unwatch();
			// The tickets stay: who decides later gives a grant.
			for (const waiter of [...tracked.values()]) waiter?.("put aside");
			tracked.clear();
		},
	};

	/** What hooks and limits make of a result. */
	async function finished(
		wrappers: readonly Wrapper[],
		call: ToolCall,
		result: ToolResult,
		ctx: ExtensionContext,
		{ id, status, durationMs, signal }: Ended,
	): Promise<ToolResult> {
		const fitting = wrappersFor(wrappers, call.tool);
		const hooks = fitting.flatMap(({ after }) => after ?? []);
		let changed = result;
		if (hooks.length > 0) {
			const about = { tool: call.tool, arguments: call.args, session_id: session.address, tool_call_id: id };
			const told = { ...about, status, duration_ms: Math.round(durationMs) };
			changed = await tellAllAfter(hooks, told, changed, hookParts(ctx, signal));
		}
		for (const { truncate } of fitting) if (truncate !== undefined) changed = truncated(changed, truncate.maxBytes);
		return changed;
	}
}

interface Ended {
	id: string;
	status: "completed" | "failed";
	durationMs: number;
	signal: AbortSignal | undefined;
}

/** What a tool threw, as a result. */
function failure(error: unknown): ToolResult {
	const text = error instanceof Error ? error.message : String(error);
	return { content: [{ type: "text", text }], details: undefined, isError: true };
}

function textOf({ content }: ToolResult): string {
	return content.map((part) => (part.type === "text" ? part.text : "")).join("\n");
}

/** Where a project's own settings lie. */
export function projectSettingsPath(cwd: string): string {
	return join(cwd, ".pi", "session-mail.json");
}

function replace(input: Record<string, unknown>, args: unknown): void {
	for (const key of Object.keys(input)) delete input[key];
	if (typeof args === "object" && args !== null) Object.assign(input, args);
}

function blocked(reason: string): ToolCallEventResult {
	return { block: true, reason };
}

function deniedText(tool: string, { rule, why }: Verdict): string {
	const message = rule?.message === undefined ? "" : ` ${rule.message}`;
	return `Tool '${field(tool)}' denied by permission rules (${why}).${message}`;
}

function refusalText({ tool, decision }: Ticket): string {
	const who =
		decision === undefined || decision.by.kind === "time" ? "nobody decided in time" : `by ${field(decision.by.who)}`;
	const model = decision?.by.kind === "model" ? ", a model" : "";
	const reason = decision?.reason === undefined ? "" : ` Reason: ${decision.reason}`;
	return `The call of ${field(tool)} was refused: ${who}${model}.${reason}`;
}

function grantText({ tool, decision, arguments: args, resume }: Ticket): string {
	const who = field(decision?.by.who ?? "");
	if (resume === "use_decision_as_tool_result") {
		return `The call of ${field(tool)} was decided by ${who}. Its result:\n${JSON.stringify(decision?.payload)}`;
	}
	const wanted = resume === "pass_decision_to_tool" ? decision?.payload : args;
	return `The call of ${field(tool)} was approved by ${who}. Make it again now, once, with exactly these arguments:\n${JSON.stringify(wanted)}`;
}

function lapsedText({ tool, decision }: Ticket): string {
	const who = field(decision?.by.who ?? "");
	return `The call of ${field(tool)} was approved by ${who}, too long ago to be made now. Make it again if it is still needed: it is asked about again.`;
}

function approverText({ id, session, tool, arguments: args, message }: Ticket): string {
	return [
		`A call waits for your decision: ${message}`,
		`Session ${session}, ticket ${id}: ${field(tool)} ${JSON.stringify(args).slice(0, 4000)}`,
		"Decide with session_ticket_decide.",
	].join("\n");
}

function waitingNote({ id }: Ticket) {
	return {
		status: "waiting",
		ticket: id,
		message:
			"Nobody has decided about this call yet. Go on with something else: the decision comes as mail, and when it is approved, make the same call again.",
	};
}

function quietly(action: () => void): void {
	try {
		action();
	} catch {
		// It is looked at again.
	}
}
