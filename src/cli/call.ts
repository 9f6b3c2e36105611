import type { Output } from "./output.ts";

/** What a command is given. */
export interface Call {
	/** The words behind its name. */
	words: readonly string[];
	/** The value of an option; undefined when it was not given. */
	text(option: string): string | undefined;
	/** Whether an option without a value was given. */
	has(option: string): boolean;
	out: Output;
	env: NodeJS.ProcessEnv;
}

/** Runs a command and returns its exit code. Throws {@link UsageError}. */
export type Run = (call: Call) => Promise<number>;

/** The command cannot be understood; the message says why. */
export class UsageError extends Error {
	override readonly name = "UsageError";
}
