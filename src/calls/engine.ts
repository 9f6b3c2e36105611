import type { AgentToolResult, AgentToolUpdateCallback, ExtensionToolContext } from "@earendil-works/pi-coding-agent";
import { type EndedCall, type OpenCall, type ResultPart, resultPartOf } from "../mail/call-store.ts";
import { randomName } from "../mail/running-folder.ts";
import { field, firstLine } from "../mail/text.ts";
import type { CallsParts, CallView } from "../session/calls.ts";

/** What a tool returns. */
export type ToolResult = AgentToolResult<unknown>;
type Update = AgentToolUpdateCallback<unknown>;

/** A call to be made. */
export interface NewCall {
	tool: string;
	args: unknown;
	/** How long its model waits for it, in milliseconds; undefined for as long as it takes, or an interrupt comes. */
	attachMs: number | undefined;
	/** The question that its work waits for first, {@link Turn.aside}: it takes its place after that. */
	question?: Question;
}

/** What somebody has to decide before a call is made. */
export interface Question {
	/** Id of the ticket. */
	id: string;
	/** The tool of the call that is asked about. */
	tool: string;
}

/** The work of a call. It ends early when the signal aborts. */
export type Work = (signal: AbortSignal, onUpdate: Update, turn: Turn) => Promise<ToolResult>;

/** The model's turn, and the place among the calls that run at once, of a call that works. */
export interface Turn {
	/** Gives the model its turn back, for a reason, where that is possible now. */
	giveBack(why: string): void;
	/** Aborts when the model has it back. */
	readonly isBack: AbortSignal;
	/** Waits for somebody, and leaves the place to another call meanwhile. A call that was stopped gets none again. */
	aside<T>(wait: () => Promise<T>, question?: Question): Promise<T>;
}

/** A call that makes others, which have no turn and no place of their own. */
export interface Outer {
	readonly signal: AbortSignal;
	readonly turn: Turn;
	readonly executeTool: ExecuteTool;
}

/** Runs another tool from inside a call, which is where Pi lets one. */
export type ExecuteTool = ExtensionToolContext["executeTool"];

/** Why a wait ended. */
export type Woken = { by: "call"; id: string } | { by: "mail" | "timeout" | "interrupt" | "stop" };

/**
 * Runs calls whose model may get its turn back before they end. A call is attached first: its end is the end of the tool
 * call, and Esc ends it. Detached, by its time limit or an interrupt, it goes on by itself, and its end becomes mail.
 */
export interface Engine {
	/** Makes a call. Returns its result, or what the model is told when it was detached; throws what the work throws. */
	run(call: NewCall, work: Work, signal: AbortSignal | undefined, onUpdate: Update | undefined): Promise<ToolResult>;
	/** Ends all waits and detaches every attached call. */
	interrupt(): void;
	/** Cancels calls by their ids, or all detached ones; returns the ids of those that ran. */
	cancel(ids?: readonly string[]): string[];
	/** Cancels the calls that their model waits for: it is told that they were. Returns their ids. */
	cancelAttached(): string[];
	/** Waits until one of these calls has ended, or mail came that the model is to read; at most so long. */
	wait(ids: readonly string[], timeoutMs: number, signal: AbortSignal | undefined): Promise<Woken>;
	/** Mail may have come. */
	mailCame(): void;
	/** The calls that run or wait for their turn, in the order in which they were made. */
	views(): CallView[];
	/** The last of those that have ended after they were detached, the newest first. */
	recent(): CallView[];
	/** Calls `listener` when a call has begun, said something, been detached or ended. The returned function ends that. */
	watch(listener: () => void): () => void;
	/**
	 * Ends all calls. Those that are detached become mail as cancelled. Unless the session goes on at once, one that nobody
	 * has decided about stays open for the next start, which says that it was not made, or how it was decided meanwhile.
	 */
	close(goesOn: boolean): void;
}

interface LiveCall extends OpenCall {
	state: "pending" | "running";
	progress: string[];
	controller: AbortController;
	/** Aborts when it is detached. */
	back: AbortController;
	isDetached: boolean;
	isCancelled: boolean;
	/** Whether it has one of the places of calls that run at once. */
	hasPlace: boolean;
	/** It was not made yet: its question waits. */
	isUndecided: boolean;
	/** How many waits leave its place to others. */
	waits: number;
	/** It waits for a place again. */
	placing: Promise<void> | undefined;
	/** How it has ended; what follows only tells so. */
	outcome: Outcome | undefined;
	/** Gives the model its turn back, for a reason; while it is attached. */
	detach: (why: string) => void;
	/** Ends it, whatever its work does. */
	give: (outcome: Outcome) => void;
}

type Outcome = { value: ToolResult } | { error: unknown };

interface Wait {
	ids: ReadonlySet<string>;
	end: (woken: Woken) => void;
}

/** Most entries of progress that are kept of a call, and most characters of one. */
const maxProgress = 50;
const maxProgressLength = 200;
/** Most calls that have ended and are still listed. */
const maxRecent = 50;
/** How long a cancelled call has to end by itself. */
const graceMs = 5000;
/** How long after a call could not be handed back that is tried again. */
const againMs = 1000;
/** How long after the disk refused a result it is tried again. */
const retryMs = 30_000;

export function createEngine(parts: CallsParts): Engine {
	const live = new Map<string, LiveCall>();
	const recent: CallView[] = [];
	const queue: (() => void)[] = [];
	const waits = new Set<Wait>();
	const timers = new Set<NodeJS.Timeout>();
	const watchers = new Set<() => void>();
	let running = 0;
	let isClosed = false;

	function later(ms: number, action: () => void): () => void {
		const timer = setTimeout(() => {
			timers.delete(timer);
			action();
		}, ms).unref();
		timers.add(timer);
		return () => {
			clearTimeout(timer);
			timers.delete(timer);
		};
	}

	function changed(): void {
		for (const listener of [...watchers]) listener();
	}

	function countChanged(): void {
		parts.changed();
		changed();
	}

	/** Waits for one of the places of calls that run at once, or until the call is aborted. */
	function place(call: LiveCall): Promise<void> {
		const { signal } = call.controller;
		return new Promise((resolve) => {
			if (signal.aborted) return resolve();
			const begin = () => {
				resolve();
				// What one that has ended had left behind needs none, and nobody would give it back.
				if (call.outcome !== undefined) return;
				running++;
				call.hasPlace = true;
				call.state = "running";
				changed();
			};
			queue.push(begin);
			signal.addEventListener("abort", () => {
				if (queue.includes(begin)) queue.splice(queue.indexOf(begin), 1);
				resolve();
			});
			fillPlaces();
		});
	}

	function fillPlaces(): void {
		while (running < parts.maxCalls()) {
			const begin = queue.shift();
			if (begin === undefined) return;
			begin();
		}
	}

	/** Also of a call that was given up: one that does not listen must not keep all others waiting. */
	function leavePlace(call: LiveCall): void {
		if (!call.hasPlace) return;
		call.hasPlace = false;
		running--;
		fillPlaces();
	}

	async function work(call: LiveCall, action: Work, update: Update): Promise<ToolResult> {
		const { signal } = call.controller;
		if (!call.isUndecided) {
			await place(call);
			signal.throwIfAborted();
		}
		return await action(signal, update, { giveBack: call.detach, isBack: call.back.signal, aside });

		async function aside<T>(wait: () => Promise<T>, question?: Question): Promise<T> {
			call.waits++;
			if (question !== undefined) ask(call, question);
			call.state = "pending";
			leavePlace(call);
			changed();
			try {
				return await wait();
			} finally {
				call.waits--;
				call.isUndecided = false;
				// Another one may have ended before there was a place.
				if (call.waits === 0 && !call.hasPlace) call.placing ??= place(call);
				await call.placing;
				call.placing = undefined;
			}
		}
	}

	/** Only of the whole call can be said that it was not made: one that makes others has begun. */
	function ask(call: LiveCall, { id, tool }: Question): void {
		if (field(tool) !== call.tool) return;
		call.isUndecided = true;
		if (call.ticket === id) return;
		call.ticket = id;
		if (call.isDetached) parts.open(call);
	}

	function note(call: LiveCall, { content }: ToolResult): void {
		const text = content.map((part) => (part.type === "text" ? part.text : "")).join("\n");
		const line = field(text.trimEnd().split("\n").at(-1) ?? "", maxProgressLength);
		if (line === "" || line === call.progress.at(-1)) return;
		call.progress.push(line);
		if (call.progress.length > maxProgress) call.progress.shift();
		changed();
	}

	/** Hands a call back after a while; as soon as that is possible, when it is not then. The returned function ends that. */
	function untilDetached(call: LiveCall, ms: number): () => void {
		let stop = later(ms, attempt);
		function attempt(): void {
			const span = `${ms / 1000} s`;
			call.detach(call.isUndecided ? `nobody has decided about it within ${span}` : `still running after ${span}`);
			if (!call.isDetached && call.outcome === undefined) stop = later(againMs, attempt);
		}
		return () => stop();
	}

	/** The call has ended by itself, or was given up. */
	function finish(call: LiveCall): void {
		if (!live.has(call.id) || call.outcome === undefined || isClosed) return;
		const ended = endedCall(call, call.outcome, parts.now());
		if (!parts.end(ended)) {
			later(retryMs, () => finish(call));
			return;
		}
		live.delete(call.id);
		const { state, finished, content } = ended;
		const said = firstLine(content.map((part) => ("text" in part ? part.text : "(image)")).join("\n"));
		recent.unshift({ ...viewOf(call), state, finished, resultLine: said || "(no output)" });
		recent.splice(maxRecent);
		for (const wait of [...waits]) if (wait.ids.has(call.id)) wait.end({ by: "call", id: call.id });
		countChanged();
	}

	function abort(call: LiveCall): void {
		call.controller.abort();
		// One that does not listen goes on, but nobody waits for it any more.
		later(graceMs, () => call.give({ error: new Error("it did not end when it was told to") }));
	}

	async function run(
		{ tool, args, attachMs, question }: NewCall,
		action: Work,
		signal: AbortSignal | undefined,
		onUpdate: Update | undefined,
	): Promise<ToolResult> {
		let give: LiveCall["give"] = () => {};
		const given = new Promise<Outcome>((resolve) => {
			give = resolve;
		});
		let detach: LiveCall["detach"] = () => {};
		const detached = new Promise<string>((resolve) => {
			detach = resolve;
		});
		const call: LiveCall = {
			id: `call-${randomName()}`,
			tool: field(tool),
			arguments: JSON.stringify(args) ?? "",
			started: parts.now(),
			hops: parts.hops(),
			state: "pending",
			progress: [],
			controller: new AbortController(),
			back: new AbortController(),
			isDetached: false,
			isCancelled: false,
			hasPlace: false,
			...(question !== undefined && { ticket: question.id }),
			isUndecided: question !== undefined,
			waits: 0,
			placing: undefined,
			outcome: undefined,
			detach(why) {
				// One that was stopped ends soon, and its end must start no turn.
				const isEnding = call.outcome !== undefined || call.controller.signal.aborted;
				if (call.isDetached || isEnding || !parts.mayDetach()) return;
				// From here on a crash must be told of.
				if (!parts.open(call)) return;
				call.isDetached = true;
				countChanged();
				call.back.abort();
				detach(why);
			},
			give(outcome) {
				call.outcome ??= outcome;
				give(call.outcome);
			},
		};
		live.set(call.id, call);
		countChanged();
		const stop = () => {
			if (!call.isDetached) abort(call);
		};
		if (signal?.aborted === true) stop();
		signal?.addEventListener("abort", stop);
		if (attachMs === 0) call.detach("at once");
		const cancelLimit = attachMs === undefined || attachMs === 0 ? () => {} : untilDetached(call, attachMs);
		const update: Update = (partial) => {
			note(call, partial);
			if (!call.isDetached) onUpdate?.(partial);
		};
		work(call, action, update).then(
			(value) => call.give({ value }),
			(error) => call.give({ error }),
		);
		given.then(() => {
			leavePlace(call);
			if (call.isDetached) finish(call);
		});
		const over = await Promise.race([given, detached]);
		signal?.removeEventListener("abort", stop);
		cancelLimit();
		if (typeof over === "string") return placeholder(call, over);
		live.delete(call.id);
		countChanged();
		if ("error" in over) throw over.error;
		return over.value;
	}

	function cancel(ids?: readonly string[]): string[] {
		const meant = [...live.values()].filter((call) => ids?.includes(call.id) ?? call.isDetached);
		for (const call of meant) {
			// The disk has yet to take how it ended.
			if (call.outcome !== undefined) continue;
			call.isCancelled = true;
			abort(call);
		}
		return meant.map(({ id }) => id);
	}

	return {
		run,
		interrupt() {
			for (const call of live.values()) call.detach("interrupted by mail");
			for (const wait of [...waits]) wait.end({ by: "interrupt" });
		},
		cancel,
		cancelAttached() {
			const meant = [...live.values()].filter((call) => !call.isDetached);
			for (const call of meant) abort(call);
			return meant.map(({ id }) => id);
		},
		wait(ids, timeoutMs, signal) {
			const over = ids.find((id) => !live.has(id));
			if (over !== undefined) return Promise.resolve({ by: "call", id: over });
			if (parts.hasMail()) return Promise.resolve({ by: "mail" });
			return new Promise((resolve) => {
				const stop = () => wait.end({ by: "stop" });
				const cancelLimit = later(timeoutMs, () => wait.end({ by: "timeout" }));
				const wait: Wait = {
					ids: new Set(ids),
					end(woken) {
						waits.delete(wait);
						cancelLimit();
						signal?.removeEventListener("abort", stop);
						resolve(woken);
					},
				};
				waits.add(wait);
				if (signal?.aborted === true) stop();
				else signal?.addEventListener("abort", stop);
			});
		},
		mailCame() {
			if (waits.size > 0 && parts.hasMail()) for (const wait of [...waits]) wait.end({ by: "mail" });
		},
		views: () => [...live.values()].map(viewOf),
		recent: () => [...recent],
		watch(listener) {
			watchers.add(listener);
			return () => watchers.delete(listener);
		},
		close(goesOn) {
			const calls = [...live.values()];
			for (const call of calls) {
				const isLeft = !goesOn && call.isDetached && call.isUndecided;
				call.controller.abort();
				if (call.outcome === undefined && !isLeft) {
					call.isCancelled = true;
					const why = call.isUndecided
						? notMadeText(call.ticket ?? "")
						: "the session was closed, or loaded its extensions again";
					call.give({ error: new Error(why) });
				}
				if (call.isDetached) finish(call);
			}
			isClosed = true;
			for (const timer of timers) clearTimeout(timer);
			for (const wait of [...waits]) wait.end({ by: "stop" });
			live.clear();
		},
	};
}

function viewOf({ id, tool, arguments: args, started, state, progress, isDetached }: LiveCall): CallView {
	return { id, tool, arguments: args, started, state, isDetached, progress: [...progress] };
}

function endedCall(call: LiveCall, outcome: Outcome, finished: number): EndedCall {
	const { id, tool, arguments: args, started, hops, isCancelled } = call;
	const isOk = "value" in outcome && outcome.value.isError !== true;
	const content = "value" in outcome ? contentOf(outcome.value) : [text(messageOf(outcome.error))];
	const state = isCancelled ? "cancelled" : isOk ? "completed" : "failed";
	return { id, tool, arguments: args, started, hops, state, finished, content };
}

/** On several lines, as its tool wrote it. */
function messageOf(error: unknown): string {
	return error instanceof Error ? error.message : String(error);
}

/** Most characters of text of a result that are kept: a tool may return what no file should hold. */
const maxKept = 8 * 1024 * 1024;

function contentOf({ content }: ToolResult): ResultPart[] {
	let left = maxKept;
	// What the tools of other extensions return was checked by nobody.
	const given: readonly unknown[] = Array.isArray(content) ? content : [];
	return given.flatMap((unknownPart): ResultPart[] => {
		const part = resultPartOf(unknownPart);
		if (part === undefined) return [text("(a part that is neither text nor an image)")];
		const size = part.type === "text" ? part.text.length : part.data.length;
		const kept = Math.min(left, size);
		left -= kept;
		if (part.type === "text") {
			return [
				text(kept < size ? `${part.text.slice(0, kept)}\n(The result was cut here: it was too large.)` : part.text),
			];
		}
		const { data, mimeType } = part;
		return [kept < size ? text("(an image that was too large)") : { type: "image", data, mimeType }];
	});
}

function text(of: string): ResultPart & { type: "text" } {
	return { type: "text", text: of };
}

/** What is said of a call that has ended though its question waits. */
export function notMadeText(ticket: string): string {
	return `It was not made. The question ${ticket} still waits: its decision comes as mail.`;
}

/** What the model is told in place of a result (T-SMB-5); of a call that was not made yet it must not hear that it runs. */
function placeholder({ id, isUndecided }: LiveCall, why: string): ToolResult {
	const goOn = "Go on with something else, or use session_mail_wait, session_call_status or session_call_cancel.";
	const waits =
		"Nobody has decided about it yet, and it has not been made. Do not make it again: when it is approved it";
	const told = {
		status: isUndecided ? "pending" : "running",
		tool_call_id: id,
		detached: why,
		message: isUndecided
			? `${waits} is made by itself, and its result or the refusal will arrive as mail. ${goOn}`
			: `Its result will arrive as mail. ${goOn}`,
	};
	return { content: [text(JSON.stringify(told))], details: undefined, structuredContent: told };
}
