import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { ToolPolicy } from "../mail/tool-policy.ts";
import type { Calls, CallsParts } from "../session/calls.ts";
import type { Tool } from "../tools/tool.ts";
import { createEngine, type Engine } from "./engine.ts";
import { callTools } from "./tools.ts";
import { type Host, wrapBuiltIns } from "./wrap.ts";

/** What suspends calls, in a session whose settings ask for it. */
export interface CallsModule {
	/** The tools for the model. */
	tools: Tool[];
	/** Wraps what the rules name; once in a session, after the tools are registered. */
	wrap(ctx: ExtensionContext): void;
	/** The calls of a session that has just started. */
	open(session: CallsParts): Calls;
}

/** `policy`: the settings as they are now. `host` is Pi's own module. */
export function createCalls(pi: ExtensionAPI, host: Host, policy: () => ToolPolicy): CallsModule {
	let current: { engine: Engine; session: CallsParts } | undefined;
	let problems: string[] = [];
	const inner = new Set<string>();
	/** A nested call's id is that of its parent, a slash and a number. */
	const isInner = (id: string) => [...inner].some((parent) => id.startsWith(`${parent}/`));
	return {
		tools: callTools({ policy, current: () => current, inner }),
		wrap(ctx) {
			problems = wrapBuiltIns({ pi, ctx, host, policy, engine: () => current?.engine, isInner });
		},
		open(session) {
			const engine = createEngine(session);
			current = { engine, session };
			return {
				interrupt: engine.interrupt,
				cancel: engine.cancel,
				mailCame: engine.mailCame,
				views: engine.views,
				recent: engine.recent,
				problems: () => problems,
				close() {
					engine.close();
					if (current?.engine === engine) current = undefined;
				},
			};
		},
	};
}
