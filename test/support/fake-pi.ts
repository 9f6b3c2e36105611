import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
	type CustomMessageEntry,
	createEventBus,
	type ExtensionAPI,
	type ExtensionCommandContext,
	type ExtensionContext,
	type MessageEndEventResult,
	type MessageRenderer,
	type RegisteredCommand,
	SessionManager,
	type SessionShutdownEvent,
	type SessionStartEvent,
	type ToolCallEventResult,
	type TurnEndEvent,
	type TurnEndEventResult,
} from "@earendil-works/pi-coding-agent";
import sessionMail from "../../src/index.ts";
import type { Draft } from "../../src/mail/deliver.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import type { Envelope } from "../../src/mail/envelope.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";
import { ensureRoot, mailRoot } from "../../src/mail/root.ts";

export type Extension = (pi: ExtensionAPI) => unknown;

export interface FakePiOptions {
	/** A session file to open, such as that of an earlier fake. Default: a new session. */
	readonly file?: string;
	/** The id of the new session. */
	readonly id?: string;
	readonly name?: string;
	readonly mode?: Mode;
	/** False: `--no-session`. */
	readonly isSaved?: boolean;
	/** In load order. Default: this package. */
	readonly extensions?: readonly Extension[];
	/** The tools of Pi itself that are switched on. They do nothing. Default: none. */
	readonly builtIns?: readonly string[];
	/** Whether the person trusts the project. Default: not. */
	readonly isTrusted?: boolean;
}

/** What the model and the person do in a run. */
export interface RunScript {
	/** What a person types to start it. Without: the run that an extension has started. */
	readonly prompt?: string;
	/** The turns before the last. */
	readonly turns?: readonly Turn[];
	/** What the model says last. */
	readonly text?: string;
	/** What happens while it says that. */
	readonly during?: () => unknown;
	readonly end?: "stop" | "error" | "aborted";
	/** What an `error` says. */
	readonly error?: string;
}

export interface Turn {
	/** Calls of tools: how many of one that does nothing, or which of those that extensions registered. */
	readonly tools?: number | readonly Call[];
	/** What happens while the tools run, while Pi waits to retry, or else while the model speaks. */
	readonly during?: () => unknown;
	/** What happens from when the first tool is called, also while extensions keep its call waiting. */
	readonly whileCalled?: () => unknown;
	readonly text?: string;
	/** The request fails with this error, and Pi tries again. */
	readonly fails?: string;
	/** The tools' results end the run. */
	readonly terminate?: boolean;
	readonly end?: RunScript["end"];
	readonly error?: string;
}

export interface Call {
	readonly name?: string;
	readonly args?: object;
}

/** A started session, its resources discovered. Its gate opens 1 s later. */
export async function startFakePi(options: FakePiOptions & { readonly reason?: SessionStartEvent["reason"] } = {}) {
	const pi = new FakePi(options);
	await pi.start(options.reason);
	await pi.discover();
	return pi;
}

/**
 * A fake of Pi 1.6 for breadth: no process, no model, and no time passes by itself. It drives extensions only through
 * their register function. What it does comes from pi-facts 2 and 3 and from Pi's `agent-session.ts`; session, entries and
 * event bus are Pi's own. A part of Pi that it does not have throws when it is used.
 */
export class FakePi {
	/** Pi's own session, with all that a test may want to do to it (`branch`, `appendMessage`, …). */
	readonly session: SessionManager;
	readonly mode: Mode;
	/** The bus that the session's extensions share. */
	readonly events = createEventBus();
	/** The names of the events so far. Each `context` is a request to the model. */
	readonly log: string[] = [];
	readonly notifications: string[] = [];
	/** What the footer shows, by key. */
	readonly status = new Map<string, string>();
	/** What a person has typed and not sent. */
	editor = "";
	/** The text of every `pi.sendMessage` so far, and whether it was to start a run. */
	readonly sent: { text: string; startsRun: boolean }[] = [];
	/** What handlers threw, and what else Pi reports as `extension_error`. A test that expects some takes it out. */
	readonly errors: string[] = [];
	readonly commands = new Map<string, Omit<RegisteredCommand, "name" | "sourceInfo">>();
	readonly tools = new Map<string, Tool>();
	readonly renderers = new Map<string, MessageRenderer>();
	readonly shortcuts = new Map<string, Shortcut>();
	/** The terminal: its size, and what was written to it besides what is drawn. */
	readonly terminal = {
		rows: 24,
		columns: 80,
		written: "",
		write(data: string) {
			this.written += data;
		},
	};
	/** How many calls of tools have begun and not ended. */
	callsUnderWay = 0;
	/** How often a component asked to be drawn again. */
	renderRequests = 0;
	/** What stands in the place of the editor. */
	shown: Shown | undefined;
	readonly #listeners = new Set<TerminalListener>();

	readonly #extensions: readonly Extension[];
	readonly #builtIns: readonly string[];
	readonly #isTrusted: boolean;
	#generation: Generation = { isStale: true, handlers: [] };
	#run: Run | undefined;
	#isCompacting = false;
	#isSettling = false;
	/** What was asked for while extensions heard that a run settled. */
	#deferred: (() => unknown)[] = [];
	/** Messages without a trigger that came during a turn. */
	#pending: CustomMessage[] = [];
	/** Messages that steer the run. */
	#queue: Message[] = [];

	constructor(options: FakePiOptions = {}) {
		const { file, id, name, mode = "rpc", isSaved = true, extensions = [sessionMail], builtIns = [] } = options;
		const fields = id === undefined ? {} : { id };
		if (file !== undefined) this.session = SessionManager.open(file);
		else if (isSaved) this.session = SessionManager.create(machine.home, join(machine.home, "sessions"), fields);
		else this.session = SessionManager.inMemory(machine.home, fields);
		if (name !== undefined) this.session.appendSessionInfo(name);
		this.mode = mode;
		this.#extensions = extensions;
		this.#builtIns = builtIns;
		this.#isTrusted = options.isTrusted === true;
		machine.sessions.add(this);
	}

	get address(): string {
		return this.session.getSessionId();
	}

	get file(): string {
		return this.session.getSessionFile() ?? "";
	}

	get isIdle(): boolean {
		return this.#run === undefined && !this.#isCompacting;
	}

	/** Whether an extension has started a run that {@link run} has yet to play. */
	get hasRunToPlay(): boolean {
		return this.#run?.isPlaying === false;
	}

	/** The mail in the conversation, on any branch, oldest first. */
	mails(): { id: string; text: string }[] {
		return this.session.getEntries().flatMap((entry) => {
			if (entry.type !== "custom_message" || entry.customType !== "mailbox") return [];
			const { mail } = entry.details as { mail: { id: string } };
			return [{ id: mail.id, text: String(entry.content) }];
		});
	}

	/** The names in one of this session's boxes, sorted. */
	names(box: "tmp" | "new" | "cur" | "sent"): string[] {
		return readdirSync(join(mailRoot(), this.address, box)).sort();
	}

	/** How many mails are marked open. */
	get openCount(): number {
		return this.names("cur").filter((name) => name.endsWith(".open")).length;
	}

	/** Loads the extensions and starts the session; nothing more happens before {@link discover}. */
	async start(reason: SessionStartEvent["reason"] = "startup"): Promise<void> {
		this.#generation = { isStale: false, handlers: [] };
		// Pi makes them anew with each runner.
		this.tools.clear();
		this.commands.clear();
		this.renderers.clear();
		this.shortcuts.clear();
		for (const extension of this.#extensions) await extension(this.#api());
		await this.emit("session_start", { reason });
	}

	async discover(): Promise<void> {
		await this.emit("resources_discover", { cwd: machine.home, reason: "startup" });
	}

	/** Ends the session. */
	async shutDown(reason: SessionShutdownEvent["reason"] = "quit"): Promise<void> {
		await this.emit("session_shutdown", { reason });
		this.dispose();
	}

	/** Ends the session as a host does that forgets `session_shutdown` (pi-facts 6): what it handed out is stale. */
	dispose(): void {
		this.shown = undefined;
		this.#listeners.clear();
		this.#generation.isStale = true;
		this.#generation = { isStale: true, handlers: [] };
		this.#run = undefined;
		this.#deferred = [];
		this.status.clear();
	}

	/** As kill -9: nothing more happens, and what is on disk stays as it is. */
	async kill(): Promise<void> {
		const state = join(mailRoot(), this.address, "state.json");
		const saved = existsSync(state) ? readFileSync(state) : undefined;
		// The end that leaves the running record in place; all that it writes is undone.
		await this.shutDown("reload");
		if (saved === undefined) rmSync(state, { force: true });
		else writeFileSync(state, saved);
	}

	/** `/reload` */
	async reload(): Promise<void> {
		await this.shutDown("reload");
		await this.start("reload");
		await this.discover();
	}

	/** Types a command: `/name argument`. */
	async type(text: string): Promise<void> {
		const [, name = "", argument = ""] = /^\/(\S+) ?(.*)$/s.exec(text) ?? [];
		const command = this.commands.get(name);
		if (command === undefined) throw new Error(`there is no command in ${text}`);
		try {
			await command.handler(argument, this.#context<ExtensionCommandContext>());
		} catch (error) {
			this.errors.push(`command: ${messageOf(error)}`);
		}
	}

	/** Presses the key of a shortcut. Like Pi it waits for nothing. */
	shortcut(key: string): void {
		const handled = this.shortcuts.get(key)?.handler(this.#context());
		Promise.resolve(handled).catch((error) => this.errors.push(`shortcut: ${messageOf(error)}`));
	}

	/** Presses keys, each as the terminal sends it, where a component or a dialog stands in the place of the editor. */
	async press(...keys: readonly string[]): Promise<void> {
		for (const key of keys) {
			let data = key;
			for (const listener of [...this.#listeners]) data = listener(data)?.data ?? data;
			const { shown } = this;
			if (shown === undefined) throw new Error(`nothing is shown that takes ${JSON.stringify(key)}`);
			shown.press(data);
			// What waited for it goes on.
			for (let n = 0; n < 20; n++) await undefined;
		}
	}

	/** What is shown in the place of the editor, as Pi draws it. */
	screen(width = this.terminal.columns): readonly string[] {
		return this.shown?.render(width) ?? [];
	}

	/** A person types while a run goes on, and steers it; or types what another extension handles, so that no run starts. */
	async typeAhead(text: string): Promise<void> {
		const streamingBehavior = this.#run === undefined ? undefined : "steer";
		await this.emit("input", { text, source: "interactive", streamingBehavior });
		if (this.#run !== undefined) this.#queue.push(userMessage(text));
	}

	/** Esc, or `ctx.abort()`: cuts short what goes on. */
	abort(): void {
		if (this.#run === undefined) return;
		this.#run.isAborted = true;
		this.#run.abortion.abort();
		this.#queue = [];
	}

	async rename(name: string | undefined): Promise<void> {
		this.session.appendSessionInfo(name ?? "");
		await this.emit("session_info_changed", { name });
	}

	/** Manual compaction; `during` happens in its middle. */
	async compact(during: () => unknown): Promise<void> {
		this.#isCompacting = true;
		await this.emit("session_before_compact", {});
		await during();
		this.session.appendCompaction("summary", this.session.getLeafId(), 1000);
		this.#isCompacting = false;
		await this.emit("session_compact", {});
	}

	/** Pi drops what it put off until extensions had heard that a run settled, as it does when the first of it fails. */
	forget(): void {
		this.#deferred = [];
	}

	/** The run that was started ends before it began, since Pi could not prepare it. Its message is lost. */
	failToStart(): void {
		if (!this.hasRunToPlay) throw new Error("no run waits to be played");
		this.#run = undefined;
		this.#flushPending();
	}

	/**
	 * Plays a run to its end: that of a `prompt`, or the one that an extension has started. A prompt that is typed while
	 * extensions still hear that the last run settled only waits: the next call without one plays its run.
	 */
	async run(script: RunScript = {}): Promise<void> {
		const { prompt } = script;
		if (prompt !== undefined && this.#isSettling) {
			this.#deferred.push(() => this.#prompt(prompt));
			return;
		}
		if (prompt !== undefined) await this.#prompt(prompt);
		const run = this.#run;
		if (run === undefined) throw new Error("nothing has started a run");
		run.isPlaying = true;
		try {
			await this.#play(run, script);
		} catch (error) {
			if (error instanceof SessionEnded) return;
			if (!(error instanceof Unwritten)) throw error;
			this.errors.push(error.message);
		}
		if (this.#run === run) await this.#settle(run);
	}

	/** Emits an event to every handler, in load order. One that throws stops no other. */
	async emit(type: string, event: object): Promise<void> {
		await this.#emit(type, () => event);
	}

	async #emit(type: string, event: () => object, onResult?: (result: unknown) => void): Promise<void> {
		this.log.push(type);
		const { handlers } = this.#generation;
		for (const { handler } of handlers.filter((registered) => registered.type === type)) {
			try {
				const result = await handler({ type, ...event() }, this.#context());
				onResult?.(result);
			} catch (error) {
				this.errors.push(`${type}: ${messageOf(error)}`);
			}
		}
	}

	async #prompt(text: string): Promise<void> {
		if (this.#isCompacting) throw new Error("Cannot submit a prompt while compaction is in progress.");
		await this.emit("input", { text, source: "interactive" });
		if (this.#run !== undefined) throw new Error("Agent is already processing.");
		this.#begin(userMessage(text));
	}

	#begin(first: Message): void {
		this.#run = { first, isPlaying: false, isAborted: false, abortion: new AbortController() };
	}

	async #play(run: Run, { turns = [], text = "done", end = "stop", error = "boom", during }: RunScript): Promise<void> {
		const script: Turn[] = [...turns, { text, end, error, ...(during === undefined ? {} : { during }) }];
		await this.emit("before_agent_start", { messageType: run.first.role });
		this.#flushPending();
		await this.emit("agent_start", {});
		await this.emit("turn_start", { turnIndex: 0 });
		await this.#add(run.first);
		for (let turnIndex = 0; ; turnIndex++) {
			if (turnIndex > 0) await this.emit("turn_start", { turnIndex });
			for (const message of this.#queue.splice(0)) await this.#add(message);
			await this.emit("context", {});
			const turn = script.shift() ?? { text };
			const outcome = await this.#turn(run, turnIndex, turn);
			if (outcome === "goes on") continue;
			await this.emit("agent_end", {});
			if (outcome === "ended") break;
			await turn.during?.();
			if (run.isAborted) break;
			await this.emit("agent_start", {});
		}
		if (!run.isAborted) await this.emit("agent_before_settle", {});
	}

	/** One request to the model, and the tools that it calls. */
	async #turn(run: Run, turnIndex: number, turn: Turn): Promise<"goes on" | "ended" | "is retried"> {
		const text = run.isAborted ? "" : turn.text;
		const calls = callsOf(turn, turnIndex);
		if (calls.length === 0 && turn.fails === undefined && !run.isAborted) await turn.during?.();
		if (turn.end === "aborted") this.abort();
		const error = turn.fails ?? (turn.end === "error" ? turn.error : undefined);
		const stopReason = run.isAborted
			? "aborted"
			: error !== undefined
				? "error"
				: calls.length > 0
					? "toolUse"
					: "stop";
		const isComplete = stopReason === "toolUse" || stopReason === "stop";
		const message = assistantMessage(stopReason, text, isComplete ? calls : [], error);
		const messageEntryId = await this.#add(message);
		const toolResults = isComplete ? await this.#runTools(run, calls, turn) : [];
		const toolResultEntryIds: string[] = [];
		for (const result of toolResults) toolResultEntryIds.push(await this.#add(result));
		const outcome = isComplete ? "completed" : stopReason;
		const continues = await this.#endTurn({
			turnIndex,
			message,
			messageEntryId,
			toolResults,
			toolResultEntryIds,
			outcome,
		});
		if (stopReason === "error" && turn.fails !== undefined) {
			this.session.appendContextEdit(messageEntryId, null);
			return "is retried";
		}
		const hasMore = (toolResults.length > 0 && turn.terminate !== true) || this.#queue.length > 0 || continues;
		return isComplete && hasMore ? "goes on" : "ended";
	}

	async #runTools(run: Run, calls: readonly NumberedCall[], { during, whileCalled }: Turn): Promise<ToolResult[]> {
		if (calls.length === 0) return [];
		this.callsUnderWay += calls.length;
		const meanwhile = Promise.resolve(whileCalled?.());
		// When that fails, nothing may ever end what it was to end.
		const failed = meanwhile.then(() => new Promise<never>(() => {}));
		/** Why calls are not made, by their id. */
		const blocked = new Map<string, string>();
		for (const { id, name, args } of calls) {
			await this.emit("tool_execution_start", { toolCallId: id, toolName: name, args });
			const hears = this.#emit(
				"tool_call",
				() => ({ toolCallId: id, toolName: name, input: args }),
				(result) => {
					const { block, reason = "" } = (result ?? {}) as ToolCallEventResult;
					if (block === true) blocked.set(id, reason);
				},
			);
			await Promise.race([hears, failed]);
		}
		const executions = calls.map(async ({ id, name, args }): Promise<ToolResult> => {
			const given = { role: "toolResult", toolCallId: id, toolName: name, timestamp: Date.now() } as const;
			try {
				const reason = blocked.get(id);
				if (reason !== undefined) throw new Error(reason);
				const made = await this.tools.get(name)?.execute(id, args, run.abortion.signal, undefined, this.#context());
				return { ...given, ...(made ?? { content: textBlocks("ok") }), isError: false };
			} catch (error) {
				return { ...given, content: textBlocks(messageOf(error)), isError: true };
			} finally {
				this.callsUnderWay--;
			}
		});
		await during?.();
		const results = await Promise.race([Promise.all(executions), failed]);
		await meanwhile;
		for (const { toolCallId, toolName } of results) {
			await this.emit("tool_result", { toolCallId, toolName });
			await this.emit("tool_execution_end", { toolCallId, toolName });
		}
		return results;
	}

	/** `turn_end`: each handler sees what the ones before it want to add, and may drop it. Says whether one wants to go on. */
	async #endTurn(event: Omit<TurnEndEvent, "type" | "context" | "entries" | "continue">): Promise<boolean> {
		let state: Required<TurnEndEventResult> = { entries: [], continue: false };
		await this.#emit(
			"turn_end",
			() => ({ ...event, ...state }),
			(result) => {
				state = { ...state, ...(result as TurnEndEventResult | undefined) };
			},
		);
		for (const draft of state.entries) {
			orUnwritten(() => {
				if (draft.type === "custom") this.session.appendCustomEntry(draft.customType, draft.data);
				else if (draft.type === "custom_message") this.#append(draft);
				else throw new Error(`${draft.type} at a turn's end is not faked`);
			});
		}
		this.#flushPending();
		return state.continue;
	}

	async #settle(run: Run): Promise<void> {
		this.#run = undefined;
		this.#flushPending();
		const earlier = this.#deferred.splice(0);
		this.#isSettling = true;
		await this.emit("agent_settled", { aborted: run.isAborted });
		this.#isSettling = false;
		this.#deferred.push(...earlier);
		await this.#deferred.shift()?.();
	}

	/** A message of a run: extensions hear of it before it is in the session. One that cannot be written ends the run. */
	async #add(message: Message): Promise<string> {
		if (this.#run === undefined) throw new SessionEnded();
		await this.emit("message_start", { message });
		let written = message;
		await this.#emit(
			"message_end",
			() => ({ message: written }),
			(result) => {
				written = ((result as MessageEndEventResult | undefined)?.message as Message | undefined) ?? written;
			},
		);
		return orUnwritten(() => (written.role === "custom" ? this.#append(written) : this.session.appendMessage(written)));
	}

	#append({ customType, content, display, details }: Omit<CustomMessage, "role">): string {
		return this.session.appendCustomMessageEntry(customType, content, display, details);
	}

	#flushPending(): void {
		for (const message of this.#pending.splice(0)) this.#append(message);
	}

	/** `pi.sendMessage` (pi-facts 2.1). Throws nothing: Pi reports. */
	#send(message: CustomMessage, { triggerTurn, deliverAs }: SendOptions = {}): void {
		this.sent.push({ text: String(message.content), startsRun: triggerTurn === true });
		if (deliverAs === "nextTurn" || deliverAs === "followUp") throw new Error(`${deliverAs} is not faked`);
		if (this.#run !== undefined) {
			(triggerTurn === false ? this.#pending : this.#queue).push(message);
		} else if (triggerTurn === true) {
			if (this.#isSettling) this.#deferred.push(() => this.#begin(message));
			else this.#begin(message);
		} else {
			try {
				this.#append(message);
			} catch (error) {
				this.errors.push(`send_message: ${messageOf(error)}`);
			}
		}
	}

	/** A component in the place of the editor, whose text Pi gives back afterwards. */
	async #custom(factory: CustomFactory): Promise<unknown> {
		const { editor, terminal } = this;
		const shownNow = () => (this.shown === undefined ? [] : [this.shown]);
		const tui = {
			terminal,
			requestRender: () => this.renderRequests++,
			get children() {
				return shownNow();
			},
		};
		return new Promise((resolve) => {
			const component = factory(tui, plainTheme, keybindings, (result) => {
				this.shown = undefined;
				this.editor = editor;
				resolve(result);
				component.dispose();
			});
			this.shown = {
				title: "",
				text: "",
				press: (data) => component.handleInput(data),
				render: (width) => component.render(width),
			};
		});
	}

	/** Pi's editor for a text; Escape loses what was typed. */
	#dialog(title: string, prefill: string): Promise<string | undefined> {
		const isOnTop = (shown: Shown) => this.shown === shown;
		return new Promise((resolve) => {
			const shown: Shown = {
				title,
				get focused() {
					return isOnTop(shown);
				},
				text: prefill,
				press: (data) => {
					const [pasted, rest = ""] = data.split("\u001b[201~");
					if (pasted?.startsWith("\u001b[200~")) {
						shown.text += pasted.slice("\u001b[200~".length);
						if (rest !== "") shown.press(rest);
						return;
					}
					if (data !== "\r" && data !== "\u001b") {
						shown.text += data;
						return;
					}
					if (data === "\r" && shown.text.endsWith("\\")) {
						shown.text = `${shown.text.slice(0, -1)}\n`;
						return;
					}
					this.shown = undefined;
					resolve(data === "\r" ? shown.text.trim() : undefined);
				},
				render: () => [title, shown.text],
			};
			this.shown = shown;
		});
	}

	/** Pi's list of options, the first of which is selected; it goes when the signal aborts. */
	#select(title: string, options: readonly string[], signal?: AbortSignal): Promise<string | undefined> {
		const below = this.shown;
		return new Promise((resolve) => {
			let at = 0;
			const close = (choice: string | undefined) => {
				if (this.shown === shown) this.shown = below;
				resolve(choice);
			};
			const press = (data: string) => {
				if (data === "\u001b[B") at = Math.min(at + 1, options.length - 1);
				if (data === "\r" || data === "\u001b") close(data === "\r" ? options[at] : undefined);
			};
			const shown: Shown = { title, text: "", press, render: () => [title, ...options] };
			this.shown = shown;
			signal?.addEventListener("abort", () => close(undefined));
		});
	}

	#confirm(title: string): Promise<boolean> {
		const below = this.shown;
		return new Promise((resolve) => {
			const press = (data: string) => {
				this.shown = below;
				resolve(data === "\r");
			};
			this.shown = { title, text: "", press, render: () => [title] };
		});
	}

	/** What the transcript says last of each tool; one of which it says nothing is on. */
	#activeTools(): string[] {
		const active = new Set([...this.tools.keys(), ...this.#builtIns]);
		for (const entry of this.session.getBranch()) {
			if (entry.type !== "message" || entry.message.role !== "system") continue;
			for (const { name } of entry.message.toolsRemoved ?? []) active.delete(name);
			for (const { name } of entry.message.toolsAdded ?? []) active.add(name);
		}
		return [...active];
	}

	#api(): ExtensionAPI {
		const generation = this.#generation;
		return only<ExtensionAPI>("pi", generation, {
			events: this.events,
			on: (type: string, handler: Handler) => {
				generation.handlers.push({ type, handler });
			},
			registerCommand: this.commands.set.bind(this.commands),
			registerTool: (tool: Tool) => {
				if (!this.tools.has(tool.name)) this.tools.set(tool.name, tool);
			},
			getAllTools: () => [
				...[...this.tools.values()].map((tool) => ({ ...tool, sourceInfo: { source: "local" } })),
				...this.#builtIns
					.filter((name) => !this.tools.has(name))
					.map((name) => ({ name, sourceInfo: { source: "builtin" } })),
			],
			getSettings: () => ({}),
			getActiveTools: () => this.#activeTools(),
			registerMessageRenderer: (customType: string, renderer: MessageRenderer) => {
				this.renderers.set(customType, renderer);
			},
			sendMessage: (message: Omit<CustomMessage, "role">, options?: SendOptions) =>
				this.#send({ role: "custom", ...message }, options),
			appendEntry: (customType: string, data: unknown) => {
				this.session.appendCustomEntry(customType, data);
			},
			registerShortcut: (key: string, shortcut: Shortcut) => {
				this.shortcuts.set(key, shortcut);
			},
			getSessionName: () => this.session.getSessionName(),
		});
	}

	#context<T extends ExtensionContext = ExtensionContext>(): T {
		const { mode, session } = this;
		const hasUI = mode === "tui" || mode === "rpc";
		const abortSignal = () => this.#run?.abortion.signal;
		return only<T>("ctx", this.#generation, {
			mode,
			hasUI,
			cwd: machine.home,
			sessionManager: session,
			isIdle: () => this.isIdle,
			isProjectTrusted: () => this.#isTrusted,
			abort: () => this.abort(),
			get signal() {
				return abortSignal();
			},
			ui: only("ctx.ui", this.#generation, {
				notify: (text: string) => {
					if (hasUI) this.notifications.push(text);
				},
				setStatus: (key: string, text: string | undefined) => {
					if (!hasUI) this.errors.push("setStatus without a UI");
					if (text === undefined) this.status.delete(key);
					else this.status.set(key, text);
				},
				custom: (factory: CustomFactory) => this.#custom(factory),
				editor: (title: string, prefill = "") => this.#dialog(title, prefill),
				select: (title: string, options: readonly string[], { signal }: { signal?: AbortSignal } = {}) =>
					this.#select(title, options, signal),
				confirm: (title: string, message: string) => this.#confirm(`${title}\n${message}`),
				onTerminalInput: (listener: TerminalListener) => {
					this.#listeners.add(listener);
					return () => this.#listeners.delete(listener);
				},
				getEditorText: () => this.editor,
				setEditorText: (text: string) => {
					this.editor = text;
				},
			}),
		});
	}
}

/** Everything below the mail root, without the lock of pruning: that may go while it is looked into. */
export function pathsInRoot(): string[] {
	return readdirSync(mailRoot())
		.filter((name) => name !== ".prune.lock")
		.flatMap((name) => [name, ...pathsBelow(name)])
		.sort();
}

function pathsBelow(name: string): string[] {
	const path = join(mailRoot(), name);
	if (!statSync(path).isDirectory()) return [];
	return readdirSync(path, { recursive: true, encoding: "utf8" }).map((below) => join(name, below));
}

/** An address without a session: sends and receives by hand. */
export interface Peer {
	readonly address: string;
	/** Sends a request with no hops, or what `draft` says instead, and returns its id. */
	send(to: { readonly address: string }, draft?: Partial<Draft>): string;
	/** What lies in its inbox, oldest first. */
	received(): Envelope[];
}

export function makePeer(address = "01980f5e-7a3c-7d10-8f00-0000000000aa"): Peer {
	const disk = nodeDisk();
	ensureRoot(disk, mailRoot());
	const mailbox = openMailbox({ disk, root: mailRoot(), address, now: Date.now, isDurable: () => false });
	return {
		address,
		send(to, draft = {}) {
			const outcome = mailbox.deliver({ to: to.address, kind: "request", body: "please", hops: 0, ...draft });
			if (!outcome.ok) throw new Error(outcome.message);
			return outcome.envelope.id;
		},
		received: () => mailbox.waiting().flatMap((name) => mailbox.peek(name) ?? []),
	};
}

/** Where fake sessions live, and those that were made since it was cleared. Set `home` before the first. */
export const machine = { home: "", sessions: new Set<FakePi>() };

type Mode = ExtensionContext["mode"];
type Handler = (event: object, ctx: ExtensionContext) => unknown;
type SessionMessage = Parameters<SessionManager["appendMessage"]>[0];
type AssistantMessage = Extract<SessionMessage, { role: "assistant" }>;
type ToolResult = Extract<SessionMessage, { role: "toolResult" }>;
type CustomMessage = Pick<CustomMessageEntry, "customType" | "content" | "display" | "details"> & { role: "custom" };
type Message = AssistantMessage | ToolResult | Extract<SessionMessage, { role: "user" }> | CustomMessage;
type NumberedCall = Required<Call> & { readonly id: string };

interface SendOptions {
	readonly triggerTurn?: boolean;
	readonly deliverAs?: string;
}

/** What Pi hands out from a `session_start` to the next is stale afterwards. */
interface Generation {
	isStale: boolean;
	readonly handlers: { readonly type: string; readonly handler: Handler }[];
}

interface Run {
	readonly first: Message;
	isPlaying: boolean;
	isAborted: boolean;
	readonly abortion: AbortController;
}

interface Tool {
	readonly name: string;
	execute(id: string, args: object, signal: AbortSignal, onUpdate: undefined, ctx: ExtensionContext): Promise<Made>;
}

interface Shortcut {
	handler(ctx: ExtensionContext): Promise<void> | void;
}

type TerminalListener = (data: string) => { data?: string } | undefined;

/** What takes the keys instead of the editor. */
interface Shown {
	readonly title: string;
	/** Whether it is what the keys go to; of a dialog that is told so. */
	readonly focused?: boolean;
	text: string;
	press(data: string): void;
	render(width: number): readonly string[];
}

type CustomFactory = (
	tui: object,
	theme: object,
	keybindings: object,
	done: (result: unknown) => void,
) => { render(width: number): readonly string[]; handleInput(data: string): void; dispose(): void };

/** A theme without colours. */
export const plainTheme = {
	fg: (_colour: string, text: string) => text,
	bold: (text: string) => text,
	inverse: (text: string) => text,
};

const boundKeys: Record<string, readonly string[]> = {
	"tui.select.up": ["\u001b[A"],
	"tui.select.down": ["\u001b[B"],
	"tui.select.pageUp": ["\u001b[5~"],
	"tui.select.pageDown": ["\u001b[6~"],
	"tui.select.confirm": ["\r"],
	"tui.select.cancel": ["\u001b", "\u0003"],
	"tui.editor.cursorLineStart": ["\u001b[H"],
	"tui.editor.cursorLineEnd": ["\u001b[F"],
	"tui.editor.cursorRight": ["\u001b[C"],
	"tui.editor.cursorLeft": ["\u001b[D"],
	"tui.editor.deleteCharBackward": ["\u007f"],
	"tui.input.tab": ["\t"],
};

/** Pi's own keys, as a terminal sends them. */
export const keybindings = {
	matches: (data: string, binding: string) => boundKeys[binding]?.includes(data) === true,
	getKeys: () => ["enter" as const],
};

type Made = Pick<ToolResult, "content" | "details">;

/** The session could not be written. */
class Unwritten extends Error {}

function orUnwritten<T>(append: () => T): T {
	try {
		return append();
	} catch (error) {
		throw new Unwritten(messageOf(error));
	}
}

/** The session ended in the middle of a run. */
class SessionEnded extends Error {}

/** An object that has these members and no others, and not even these once it is stale. */
function only<T extends object>(what: string, generation: Generation, members: object): T {
	const guarded = new Proxy(members, {
		get(target, key) {
			if (generation.isStale) throw new Error(`This extension ctx is stale: ${what}.${String(key)}`);
			if (!(key in target)) throw new Error(`the fake Pi has no ${what}.${String(key)}`);
			return Reflect.get(target, key);
		},
	});
	return guarded as T;
}

function callsOf({ tools = 0 }: Turn, turnIndex: number): NumberedCall[] {
	const calls: readonly Call[] = typeof tools === "number" ? Array.from({ length: tools }, () => ({})) : tools;
	return calls.map(({ name = "bash", args = {} }, index) => ({ id: `call-${turnIndex}-${index}`, name, args }));
}

function userMessage(text: string): Message {
	return { role: "user", content: textBlocks(text), timestamp: Date.now() };
}

function assistantMessage(
	stopReason: AssistantMessage["stopReason"],
	text: string | undefined,
	calls: readonly NumberedCall[],
	error: string | undefined,
): AssistantMessage {
	const toolCalls = calls.map(({ id, name, args }) => ({
		type: "toolCall" as const,
		id,
		name,
		arguments: { ...args },
	}));
	return {
		role: "assistant",
		content: [...(text === undefined ? [] : textBlocks(text)), ...toolCalls],
		api: "fake",
		provider: "fake",
		model: "fake",
		usage: {
			input: 0,
			output: 0,
			cacheRead: 0,
			cacheWrite: 0,
			totalTokens: 0,
			cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
		},
		stopReason,
		...(error === undefined ? {} : { errorMessage: error }),
		timestamp: Date.now(),
	};
}

function textBlocks(text: string): { type: "text"; text: string }[] {
	return [{ type: "text", text }];
}

function messageOf(error: unknown): string {
	return error instanceof Error ? error.message : String(error);
}
