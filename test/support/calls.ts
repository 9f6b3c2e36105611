import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import type { Outer, Turn } from "../../src/calls/engine.ts";
import { createCalls } from "../../src/calls/index.ts";
import type { Host } from "../../src/calls/wrap.ts";
import sessionMail from "../../src/index.ts";
import type { Machine } from "../../src/session/session.ts";
import type { Tool } from "../../src/tools/tool.ts";

type Result = Awaited<ReturnType<Tool["execute"]>>;

/** A call of the bash of {@link callsHost}. */
export interface Job {
	command: string;
	isStopped: boolean;
	/** Says this while it goes on. */
	say(text: string): void;
	/** Ends it with this as what it printed. */
	end(text: string): void;
	/** Ends it with this result. */
	endWith(content: Result["content"]): void;
	/** Ends it with this error. */
	fail(text: string): void;
}

/** The turn of a call whose model waits, until it is given back. */
export function fakeTurn(): Turn {
	const back = new AbortController();
	return { giveBack: () => back.abort(), isBack: back.signal, aside: (wait) => wait() };
}

/** A call that makes others. */
export function outerCall(signal: AbortSignal): Outer {
	return { signal, turn: fakeTurn(), executeTool: () => Promise.reject(new Error("nothing is called here")) };
}

/**
 * As much of Pi's own module as calls use: a bash whose calls end when a test says so, or when they are stopped. `made`
 * hears of each.
 */
export function callsHost(made: (job: Job) => void = () => {}) {
	const jobs: Job[] = [];
	const bash: Tool = {
		name: "bash",
		label: "bash",
		description: "Runs a command",
		parameters: { type: "object", properties: { command: { type: "string" } } },
		execute(_id, params, signal, onUpdate) {
			const { promise, resolve, reject } = Promise.withResolvers<Result>();
			const job: Job = {
				command: String(Reflect.get(Object(params), "command")),
				isStopped: signal?.aborted === true,
				say: (text) => onUpdate?.({ content: [{ type: "text", text }], details: undefined }),
				end: (text) => job.endWith([{ type: "text", text }]),
				endWith: (content) => resolve({ content, details: undefined }),
				fail: (text) => reject(new Error(text)),
			};
			jobs.push(job);
			made(job);
			signal?.addEventListener("abort", () => {
				job.isStopped = true;
				reject(new Error("Command aborted"));
			});
			return promise;
		},
	};
	const host = { createBashToolDefinition: () => bash } as unknown as Host;
	return {
		jobs,
		host,
		/** This package, with what suspends calls, as `extension.js` loads it. */
		extension: (machine: Machine) => (pi: ExtensionAPI) =>
			sessionMail(pi, machine, (settings, file) => createCalls(pi, host, settings, file)),
	};
}
