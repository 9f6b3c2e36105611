/** A wait that ends when the program is told to end. */
export interface Interrupt {
	readonly signal: AbortSignal;
	/** 128 and the number of the signal that came, as shells have it. */
	readonly exitCode: number | undefined;
	/** From now on signals do again what they do by themselves. */
	end(): void;
}

const exitCodes = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/** Listens for Ctrl+C and its like. A second one ends the program at once. */
export function untilInterrupted(): Interrupt {
	const controller = new AbortController();
	let exitCode: number | undefined;
	const listeners = Object.entries(exitCodes).map(([name, code]) => {
		const listener = () => {
			if (exitCode !== undefined) process.exit(code);
			exitCode = code;
			controller.abort();
		};
		process.on(name, listener);
		return [name, listener] as const;
	});
	return {
		signal: controller.signal,
		get exitCode() {
			return exitCode;
		},
		end() {
			for (const [name, listener] of listeners) process.off(name, listener);
		},
	};
}
