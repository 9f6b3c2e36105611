import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { errorMessage, nodeDisk } from "../mail/disk.ts";
import { openSettings, type Settings } from "../mail/settings.ts";
import type { ToolPolicy } from "../mail/tool-policy.ts";
import { addPermission } from "../policy/add-permission.ts";
import { pendingIn } from "../policy/all-tickets.ts";
import { decideAtScreen } from "../policy/decide-as.ts";
import { shownCall } from "../policy/dialog.ts";
import { createGate, type Gate, projectSettingsPath } from "../policy/gate.ts";
import type { Calls, PolicyParts } from "../session/calls.ts";
import type { Tool } from "../tools/tool.ts";
import { createEngine, type Engine } from "./engine.ts";
import { callTools } from "./tools.ts";
import { type Host, wrapBuiltIns } from "./wrap.ts";

/** What stands around the calls of a model, in a session whose settings ask for it: it may suspend them, and ask about them. */
export interface CallsModule {
	/** The tools for the model. */
	tools: Tool[];
	/** Wraps what the policy names; once in a session, after the tools are registered. */
	wrap(ctx: ExtensionContext): void;
	/** The calls of a session that has just started. */
	open(session: PolicyParts): Calls;
}

interface Current {
	engine: Engine;
	gate: Gate;
	session: PolicyParts;
}

/** `settings`: as they are now, from this file. `host` is Pi's own module. */
export function createCalls(
	pi: ExtensionAPI,
	host: Host,
	settings: () => Settings,
	settingsFile: () => string,
): CallsModule {
	const nothing: ToolPolicy = { rules: [], maxCalls: 4 };
	const policy = () => settings().toolPolicy ?? nothing;
	let current: Current | undefined;
	let context: ExtensionContext | undefined;
	let problems: string[] = [];
	/** The tools that were wrapped, and where Pi says that they come from. */
	let wrapped: ReadonlyMap<string, string | undefined> = new Map();
	/** What the policy has taken from the model's list. */
	let takenAway: string[] = [];
	const inner = new Map<string, AbortSignal>();
	/** A nested call's id is that of its parent, a slash and a number. */
	const signalOf = (id: string) => [...inner].find(([parent]) => id.startsWith(`${parent}/`))?.[1];
	const isInner = (id: string) => signalOf(id) !== undefined;
	const pathOf = (tool: string) => pi.getAllTools().find(({ name }) => name === tool)?.sourceInfo.path;
	/** Later another extension, which Pi loads first, may have put its own tool before ours. */
	const isWrapped = (tool: string) => wrapped.has(tool) && pathOf(tool) === wrapped.get(tool);

	pi.on("tool_call", (event, ctx) => current?.gate.toolCall(event, ctx));
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

	return {
		tools: callTools({ policy, current: () => current, inner }),
		wrap(ctx) {
			context = ctx;
			const result = wrapBuiltIns({ pi, ctx, host, policy, current: () => current, isInner });
			problems = result.problems;
			wrapped = new Map([...result.wrapped].map((tool) => [tool, pathOf(tool)]));
			takeAway(ctx);
		},
		open(session) {
			const engine = createEngine(session);
			const gate = createGate({
				session,
				policy,
				projectPermissions(ctx) {
					if (!ctx.isProjectTrusted()) return undefined;
					const file = projectSettingsPath(ctx.cwd);
					const read = openSettings({ disk: nodeDisk(), file, now: session.now, warn: session.warn }).read();
					return read.toolPolicy?.permissions;
				},
				isWrapped,
				signalOf,
				callTool() {
					throw new Error("tools do not work as hooks yet");
				},
				addRule: (rule) => addPermission(session.disk, settingsFile(), rule),
				settingsFile: settingsFile(),
				warn: session.warn,
			});
			current = { engine, gate, session };
			return {
				interrupt() {
					engine.interrupt();
					gate.interrupt();
				},
				cancel: engine.cancel,
				cancelAttached: engine.cancelAttached,
				mailCame: engine.mailCame,
				views: engine.views,
				recent: engine.recent,
				watch: engine.watch,
				ended: session.ended,
				pathOf: session.pathOf,
				tickets: () =>
					pendingIn(session, (error) => session.warn(`tickets cannot be read: ${errorMessage(error)}`)).map(
						(ticket) => {
							const { id, session: of, message, since } = ticket;
							return { id, session: of, call: shownCall(ticket), message, since };
						},
					),
				decide: (id, isApproved, reason) => decideAtScreen(session, id, isApproved, reason),
				explain: (tool, args) => (context === undefined ? [] : gate.explain({ tool, args }, context)),
				problems() {
					if (context === undefined) return problems;
					const tools = pi.getAllTools().map(({ name }) => name);
					return [...problems, ...gate.problems(context, tools, isWrapped)];
				},
				close() {
					gate.close();
					engine.close();
					if (current?.engine === engine) current = undefined;
				},
			};
		},
	};
}
