import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { errorMessage, nodeDisk } from "../mail/disk.ts";
import { projectPolicy, type Settings } from "../mail/settings.ts";
import { field } from "../mail/text.ts";
import { noToolPolicy } from "../mail/tool-policy.ts";
import { addPermission } from "../policy/add-permission.ts";
import { pendingIn } from "../policy/all-tickets.ts";
import { decideAtScreen } from "../policy/decide-as.ts";
import { createGate, createGateWithoutMailbox, type Gate } from "../policy/gate.ts";
import type { InForceParts } from "../policy/in-force.ts";
import { lateRefusalText, shownCall, shownTool, wholeCall } from "../policy/ticket-words.ts";
import { openTicketStore } from "../policy/tickets.ts";
import { labelOf } from "../policy/wrappers.ts";
import type { Calls, CallView, PolicyParts, PolicyProblem } from "../session/calls.ts";
import type { Tool } from "../tools/tool.ts";
import { createEngine, type Engine, notMadeText, type Outer } from "./engine.ts";
import { callTools } from "./tools.ts";
import { type Host, suspendProblems, wrapBuiltIns } from "./wrap.ts";

/** What stands around the calls of a model, in a session whose settings ask for it: it may suspend them, and ask about them. */
export interface CallsModule {
	/** The tools for the model. */
	tools: Tool[];
	/** Wraps what the policy names; once in a session, after the tools are registered. */
	wrap(ctx: ExtensionContext): void;
	/** The calls of a session that has just started. */
	open(session: PolicyParts): Calls;
}

/** Reads the settings as they are now; `warn` hears what is wrong with them. */
export type SettingsReader = (warn: (text: string) => void) => Settings;

interface Current {
	engine: Engine;
	gate: Gate;
	session: PolicyParts;
}

const decidedText = "It was not made: the decision about it comes as mail.";

/** `settings`: as they are now, from this file. `host` is Pi's own module. */
export function createCalls(
	pi: ExtensionAPI,
	host: Host,
	settings: SettingsReader,
	settingsFile: () => string,
): CallsModule {
	const policy = () => settings((text) => warn(text)).toolPolicy ?? noToolPolicy;
	let current: Current | undefined;
	const warn = (text: string) => current?.session.warn(text);
	const inForceParts: InForceParts = {
		policy,
		projectPolicy: (ctx) =>
			ctx.isProjectTrusted() ? projectPolicy(ctx.cwd, { disk: nodeDisk(), now: Date.now, warn }) : undefined,
	};
	const withoutMailbox = createGateWithoutMailbox(inForceParts);
	let context: ExtensionContext | undefined;
	let problems: PolicyProblem[] = [];
	/** The tools that were wrapped, and where Pi says that they come from. */
	let wrapped: ReadonlyMap<string, string | undefined> = new Map();
	/** What the policy has taken from the model's list. */
	let takenAway: string[] = [];
	const outers = new Map<string, Outer>();
	/** A nested call's id is that of its parent, a slash and a number. */
	const outerOf = (id: string) => [...outers].find(([parent]) => id.startsWith(`${parent}/`))?.[1];
	const pathOf = (tool: string) => pi.getAllTools().find(({ name }) => name === tool)?.sourceInfo.path;
	/** Later another extension, which Pi loads first, may have put its own tool before ours. */
	const isWrapped = (tool: string) => wrapped.has(tool) && pathOf(tool) === wrapped.get(tool);

	pi.on("tool_call", (event, ctx) => (current?.gate.toolCall ?? withoutMailbox)(event, ctx));
	pi.on("tool_result", (event, ctx) => current?.gate.toolResult(event, ctx));
	pi.on("tool_execution_end", ({ toolCallId, parentToolCallId }) => {
		current?.gate.toolEnded(toolCallId, parentToolCallId !== undefined);
	});
	pi.on("message_end", (event) => current?.gate.messageEnd(event));
	pi.on("before_agent_start", (_event, ctx) => {
		takeAway(ctx);
	});

	/** Takes from the model's list what is denied whatever its arguments (AWK-016), and gives back what is not any more. */
	function takeAway(ctx: ExtensionContext): void {
		if (current === undefined) return;
		const all = pi.getAllTools().map(({ name }) => name);
		const denied = new Set(current.gate.denied(ctx, all));
		const active = pi.getActiveTools();
		const back = takenAway.filter((name) => !denied.has(name));
		const kept = active.filter((name) => !denied.has(name));
		takenAway = [...takenAway.filter((name) => denied.has(name)), ...active.filter((name) => denied.has(name))];
		if (back.length > 0 || kept.length < active.length) pi.setActiveTools([...kept, ...back]);
	}

	/** A call as people see it. */
	function labelled(call: CallView): CallView {
		return { ...call, tool: shownTool(call.tool, labelOf(policy().wrappers ?? [], call.tool)) };
	}

	return {
		tools: callTools({ policy, current: () => current, outers }),
		wrap(ctx) {
			context = ctx;
			const result = wrapBuiltIns({ pi, ctx, host, policy, current: () => current, withoutMailbox, outerOf });
			problems = result.problems;
			wrapped = new Map([...result.wrapped].map((tool) => [tool, pathOf(tool)]));
			takeAway(ctx);
		},
		open(session) {
			const engine = createEngine(session);
			const gate = createGate({
				session,
				...inForceParts,
				isWrapped,
				outerOf,
				addRule: (rule) => addPermission(session.disk, settingsFile(), rule),
				settingsFile: settingsFile(),
				warn: session.warn,
			});
			current = { engine, gate, session };
			return {
				takeInLeft: gate.takeInLeft,
				interrupt() {
					engine.interrupt();
					gate.interrupt();
				},
				cancel: engine.cancel,
				cancelAttached: engine.cancelAttached,
				mailCame: engine.mailCame,
				views: () => engine.views().map(labelled),
				recent: () => engine.recent().map(labelled),
				watch: engine.watch,
				ended: session.ended,
				pathOf: session.pathOf,
				tickets: () =>
					pendingIn(session, (error) => session.warn(`tickets cannot be read: ${errorMessage(error)}`)).map(
						(ticket) => {
							const { id, session: of, message, since } = ticket;
							return { id, session: of, call: shownCall(ticket), whole: () => wholeCall(ticket), message, since };
						},
					),
				decide: (id, isApproved, reason) => decideAtScreen(session, id, isApproved, reason),
				notMade(id) {
					const ticket = openTicketStore(session.disk, session.folder, session.now).find(id);
					if (ticket === undefined) return undefined;
					const { state, decision } = ticket;
					if (state === "pending") return { text: notMadeText(id), isDecided: false };
					if (state === "closed") {
						if (decision?.action !== "cancel") return undefined;
						// A process may have ended before it told the refusal. What was told is not told again.
						const isTold = session.tell({ id, tool: field(ticket.tool), state: "decided" }, lateRefusalText(ticket));
						if (!isTold) throw new Error(`its refusal ${id} cannot be told`);
					}
					return { text: decidedText, isDecided: true };
				},
				explain: (tool, args) => (context === undefined ? [] : gate.explain({ tool, args }, context)),
				problems() {
					if (context === undefined) return problems;
					const all = pi.getAllTools();
					const tools = all.map(({ name }) => name);
					const schemaOf = (tool: string) =>
						isWrapped(tool) ? all.find(({ name }) => name === tool)?.parameters : undefined;
					const known = { tools, isWrapped, schemaOf };
					return [...problems, ...suspendProblems(policy(), tools), ...gate.problems(context, known)];
				},
				close(goesOn) {
					gate.close();
					engine.close(goesOn);
					if (current?.engine === engine) current = undefined;
				},
			};
		},
	};
}
