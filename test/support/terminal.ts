import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { atCleanUp, eventually, launch, type Patience, type PiOptions } from "./pi.ts";

/** Whether this machine has tmux, which {@link openTerminal} needs. */
export function hasTmux(): boolean {
	return spawnSync("tmux", ["-V"]).status === 0;
}

/** Opens Pi as a person sees it, in a terminal of tmux, and waits until it is {@link Terminal.ready}. */
export async function openTerminal(
	options: PiOptions & { readonly width?: number; readonly height?: number },
): Promise<Terminal> {
	const { home, width = 110, height = 40 } = options;
	const { label, command, args, env, cwd } = launch(options, []);
	const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
	// A tmux server of the home's own, so that nobody's tmux is touched; it ends with its last session.
	const socket = join(home.path, "tmux");
	const pid = tmux(
		socket,
		...["new-session", "-d", "-P", "-F", "#{pane_pid}", "-s", label, "-x", `${width}`, "-y", `${height}`, "-c", cwd],
		...["--", "env", "-i", "TERM=xterm-256color", ...variables, command, ...args],
		// What Pi showed last stays readable after its end.
		...[";", "set-option", "-t", label, "remain-on-exit", "on"],
	);
	const terminal = new Terminal(socket, label, Number(pid));
	await terminal.ready();
	return terminal;
}

/** A terminal with Pi in it. */
export class Terminal {
	/** Pi's process id. */
	readonly pid: number;

	readonly #socket: string;
	readonly #session: string;
	#isClosed = false;

	/**
	 * @param socket of the tmux server
	 * @param session name of the tmux session
	 * @param pid of Pi in it
	 */
	constructor(socket: string, session: string, pid: number) {
		this.#socket = socket;
		this.#session = session;
		this.pid = pid;
		atCleanUp(() => this.#remove());
	}

	/** Types `text` as it stands, without Enter. */
	type(text: string): void {
		tmux(this.#socket, "send-keys", "-t", this.#session, "-l", "--", text);
	}

	/** Presses a key by its tmux name: `Enter`, `Escape`, `Tab`, `Up`, `C-c`, `M-m`. */
	async press(key: string): Promise<void> {
		tmux(this.#socket, "send-keys", "-t", this.#session, key);
		// What follows an Escape at once would be read as Alt and that key.
		if (key === "Escape") await sleep(100);
	}

	/** Makes the terminal another size, as a person who drags its corner. */
	resize(width: number, height: number): void {
		tmux(this.#socket, "resize-window", "-t", this.#session, "-x", `${width}`, "-y", `${height}`);
	}

	/** The lines on the screen, without trailing blanks and trailing empty lines. */
	screen(): string[] {
		return this.#capture();
	}

	/** Waits until Pi has started its session, extensions included: only then does it set the title of the terminal. */
	async ready(): Promise<void> {
		const title = () => tmux(this.#socket, "display-message", "-p", "-t", this.#session, "#{pane_title}");
		await this.#until(() => title().startsWith("π"), { what: "Pi's title" });
	}

	/**
	 * Waits until the screen shows `expected`, and returns its lines. A string counts also where it is wrapped between two
	 * words; a pattern is matched against the lines joined by `\n`. Throws, with the screen, when it does not come in time
	 * or Pi has ended.
	 */
	async waitForScreen(expected: string | RegExp, patience: Patience = {}): Promise<string[]> {
		const matching = () => {
			const screen = this.screen();
			return shows(screen, expected) && screen;
		};
		return this.#until(matching, { what: `${expected}`, ...patience });
	}

	/** Whether Pi has ended. What it showed last is still on the screen. */
	hasEnded(): boolean {
		return this.#isClosed || tmux(this.#socket, "display-message", "-p", "-t", this.#session, "#{pane_dead}") === "1";
	}

	/** Sends Pi `signal` and waits for its end. */
	async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
		if (!this.hasEnded()) process.kill(this.pid, signal);
		await eventually(() => this.hasEnded(), { what: `The end of ${this.#session}` });
	}

	/** Closes the terminal as a person closes a window, which sends Pi SIGHUP, and waits for Pi's end. */
	async close(): Promise<void> {
		await this.kill("SIGHUP");
		this.#remove();
	}

	async #until<T>(attempt: () => T | false, { timeoutMs = 15_000, what }: Patience): Promise<T> {
		const deadline = Date.now() + timeoutMs;
		for (;;) {
			const hasEnded = this.hasEnded();
			const result = attempt();
			if (result !== false) return result;
			if (hasEnded || Date.now() > deadline) {
				const when = hasEnded ? "before its end" : `within ${timeoutMs} ms`;
				const shown = this.#capture("-S", "-").filter((line) => line !== "");
				throw new Error([`${this.#session} did not show ${what} ${when}. Its screen:`, ...shown].join("\n"));
			}
			await sleep(50);
		}
	}

	#remove(): void {
		if (this.#isClosed) return;
		if (!this.hasEnded()) process.kill(this.pid, "SIGKILL");
		tmux(this.#socket, "kill-session", "-t", this.#session);
		this.#isClosed = true;
	}

	#capture(...range: string[]): string[] {
		const captured = tmux(this.#socket, "capture-pane", "-p", "-t", this.#session, ...range);
		return captured.split("\n").map((line) => line.trimEnd());
	}
}

/** Runs a tmux command; returns what it prints, without trailing blank lines. */
function tmux(socket: string, ...args: string[]): string {
	return execFileSync("tmux", ["-S", socket, "-f", "/dev/null", ...args], {
		encoding: "utf8",
		stdio: "pipe",
	}).trimEnd();
}

function shows(screen: readonly string[], expected: string | RegExp): boolean {
	if (expected instanceof RegExp) return expected.test(screen.join("\n"));
	const unwrapped = (text: string) => text.replaceAll(/\s+/g, " ");
	return unwrapped(screen.join(" ")).includes(unwrapped(expected));
}
