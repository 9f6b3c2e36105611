import type * as Pi from "@earendil-works/pi-coding-agent";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { field } from "../mail/text.ts";
import { ruleFor, type ToolPolicy } from "../mail/tool-policy.ts";
import type { Gate } from "../policy/gate.ts";
import { isOfHook } from "../policy/hooks.ts";
import { noSuchTool } from "../policy/permissions.ts";
import { wrappersFor } from "../policy/wrappers.ts";
import type { PolicyProblem } from "../session/calls.ts";
import type { Tool } from "../tools/tool.ts";
import type { Engine, Outer } from "./engine.ts";

/** What is taken of Pi's own module, which is there only where calls are used (see `extension.js`). */
export type Host = typeof Pi;

/** How long the model waits for a call of a tool, in milliseconds, as a rule says; undefined until its end or an interrupt. */
export function attachMsOf(policy: ToolPolicy, tool: string): number | undefined {
	const seconds = ruleFor(policy, tool)?.attachSeconds;
	return seconds === undefined ? undefined : seconds * 1000;
}

interface WrapParts {
	pi: ExtensionAPI;
	ctx: ExtensionContext;
	host: Host;
	/** The rules as they are now. */
	policy: () => ToolPolicy;
	/** Undefined when the session has ended. */
	current: () => { engine: Pick<Engine, "run">; gate: Pick<Gate, "around" | "asked" | "given" | "inside"> } | undefined;
	/** Decides about a call when it has. */
	withoutMailbox: Gate["toolCall"];
	/** The call that made a call, when that is run as one. */
	outerOf: (toolCallId: string) => Outer | undefined;
}

/**
 * Puts a tool of the same name before each of Pi's own tools that a rule names, which runs Pi's as a call. It keeps all that
 * Pi's has; one that is switched off stays off. Returns which tools these are, and what could not be done.
 */
export function wrapBuiltIns({ pi, ctx, host, policy, current, withoutMailbox, outerOf }: WrapParts): {
	wrapped: ReadonlySet<string>;
	problems: PolicyProblem[];
} {
	const all = pi.getAllTools();
	const active = pi.getActiveTools();
	const problems: PolicyProblem[] = [];
	const wrapped = new Set<string>();
	const makers = makersOf(host, pi, ctx.cwd);
	for (const name of makers.keys()) {
		if (!isNamed(policy(), name)) continue;
		const found = all.find((tool) => tool.name === name);
		if (found === undefined) continue;
		if (found.sourceInfo.source !== "builtin") {
			problems.push({
				what: `the tool ${name} is that of another extension and is left alone`,
				mend: "take that extension away, or what toolPolicy says of the tool, and restart Pi",
			});
			continue;
		}
		const own = makers.get(name)?.();
		if (own === undefined) continue;
		wrapped.add(name);
		pi.registerTool({
			...own,
			...(active.includes(name) ? {} : { defaultActive: false }),
			async execute(id, params, signal, onUpdate, context) {
				const now = current();
				if (isOfHook(id, name)) return own.execute(id, params, signal, onUpdate, context);
				if (now === undefined) {
					// It may have been let pass to be decided about in here, by a session that has ended meanwhile.
					const input = { ...(params as object) };
					const event = { type: "tool_call" as const, toolName: name, toolCallId: id, input };
					const refusal = await withoutMailbox(event, context);
					if (refusal !== undefined) throw new Error(refusal.reason);
					return own.execute(id, params, signal, onUpdate, context);
				}
				const { engine, gate } = now;
				const refused = await gate.inside(id, { tool: name, args: params }, context);
				if (refused !== undefined) throw new Error(refused);
				const given = gate.given(id);
				if (given !== undefined) return given;
				const asked = gate.asked(id);
				const work = gate.around(id, { tool: name, args: params }, context, (args, stop, update) =>
					own.execute(id, args, stop, update, context),
				);
				const outer = outerOf(id);
				// What runs it is a call already.
				if (outer !== undefined) return work(signal ?? outer.signal, onUpdate ?? (() => {}), outer.turn);
				const attachMs = asked?.attachMs ?? attachMsOf(policy(), name);
				const call = { tool: name, args: params, attachMs, ...(asked && { question: asked.ticket }) };
				return engine.run(call, work, signal, onUpdate);
			},
		});
	}
	return { wrapped, problems };
}

/** The rules that cannot hold for the calls of their tool. */
export function suspendProblems({ rules }: ToolPolicy, tools: readonly string[]): PolicyProblem[] {
	const mend = "change toolPolicy.rules in the settings";
	return rules.flatMap(({ tool }): PolicyProblem[] => {
		if (tool === "*" || builtIns.has(tool)) return [];
		const name = `the rule for ${field(tool)}`;
		if (!tools.includes(tool)) return [{ ...noSuchTool(name, tool, tools), mend }];
		const why = "Pi gives no way to suspend the tools of others";
		return [{ what: `${name} holds only for calls by session_call_run: ${why}`, mend }];
	});
}

const builtIns = new Set(["bash", "powershell", "read", "edit", "write", "grep", "find", "ls"]);

/** Whether something is to be done around the calls of a tool that only a wrapper of it can do. */
function isNamed(policy: ToolPolicy, tool: string): boolean {
	const { permissions, wrappers = [] } = policy;
	const mayAsk = permissions !== undefined && (permissions.default === "ask" || permissions.rules.length > 0);
	return ruleFor(policy, tool) !== undefined || mayAsk || wrappersFor(wrappers, tool).length > 0;
}

/** Pi's own tools, made with what the user has set for them in Pi. */
function makersOf(host: Host, pi: ExtensionAPI, cwd: string): Map<string, () => Tool> {
	const { shellCommandPrefix, shellPath, images } = pi.getSettings();
	const shell = {
		...(shellCommandPrefix !== undefined && { commandPrefix: shellCommandPrefix }),
		...(shellPath !== undefined && { shellPath }),
	};
	const makers: Record<string, () => unknown> = {
		bash: () => host.createBashToolDefinition(cwd, shell),
		powershell: () => host.createPowerShellToolDefinition(cwd),
		read: () => host.createReadToolDefinition(cwd, { autoResizeImages: images?.autoResize ?? true }),
		edit: () => host.createEditToolDefinition(cwd),
		write: () => host.createWriteToolDefinition(cwd),
		grep: () => host.createGrepToolDefinition(cwd),
		find: () => host.createFindToolDefinition(cwd),
		ls: () => host.createLsToolDefinition(cwd),
	};
	return new Map(Object.entries(makers).map(([name, make]) => [name, () => make() as Tool]));
}
