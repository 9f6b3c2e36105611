import { randomUUID } from "node:crypto";
import { appendFileSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
	type Api,
	type AssistantMessage,
	createAssistantMessageEventStream,
	getCurrentTools,
	getSystemMessageText,
	type Message,
	type Model,
} from "@earendil-works/pi-ai";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

/**
 * A Pi extension with an offline, deterministic model: `pi -e scripted-model.ts --model scripted/s1`.
 *
 * What it replies is written in what it reads. A line of a user-role message (a typed prompt, or a mail: Pi shows
 * custom messages to models as role user) that starts with `!` is a directive:
 *
 *     !say TEXT           answer with TEXT; \n in it is a line break
 *     !slow MS TEXT       the same, streamed over MS milliseconds
 *     !tool NAME {json}   call a tool; several in one step are parallel calls
 *     !error TEXT         fail with TEXT
 *     !hang               never finish; only an abort ends it
 *     !next               the directives below it are for the next reply
 *
 * In the terminal, where a leading `!` is a shell command, write `%` for `!` and ` ;; ` for a line break.
 *
 * The steps between `!next` lines are played one per reply. The script in force is that of the newest user-role
 * message that has one, so a mail with a script takes over a run and a mail without one does not disturb it. A reply
 * that calls no tool ends the run and its script. With no step left, the model says `echo: <start of the last message>`.
 *
 * Environment:
 * - `PI_SCRIPT_RULES`: file with a JSON array of {@link Rule}, read at every request. The first rule that fits a
 *   message gives that message its script, whatever the message says itself.
 * - `PI_SCRIPT_LOG`: file that gets one line of JSON, a {@link ModelRequest}, per request.
 */
export default function scriptedModel(pi: ExtensionAPI): void {
	pi.registerProvider("scripted", {
		baseUrl: "http://localhost:0",
		apiKey: "none",
		api: "scripted",
		models: [
			{
				id: "s1",
				name: "Scripted",
				reasoning: false,
				input: ["text"],
				cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
				contextWindow: 200_000,
				maxTokens: 8192,
			},
		],
		streamSimple: (model, { messages }, options) => {
			log(messages);
			const reply = new Reply(model, options?.signal);
			void reply.play(nextStep(messages));
			return reply.stream;
		},
	});
}

/** Gives a message that contains `if` (or matches it, when it reads `/pattern/flags`) the script `script`. */
export interface Rule {
	readonly if: string;
	readonly script: string;
}

/** What the model saw in one request: every message in full, and the names of the tools it could call. */
export interface ModelRequest {
	readonly messages: readonly { readonly role: Message["role"]; readonly text: string }[];
	readonly tools: readonly string[];
}

interface Directive {
	readonly verb: string;
	readonly rest: string;
}

type Step = readonly Directive[];

/** One reply on its way to Pi. */
class Reply {
	readonly stream = createAssistantMessageEventStream();

	readonly #message: AssistantMessage;
	readonly #signal: AbortSignal | undefined;

	constructor({ api, provider, id }: Model<Api>, signal: AbortSignal | undefined) {
		const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 };
		const usage = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0, cost };
		const [timestamp, stopReason] = [Date.now(), "pending" as const];
		this.#message = { role: "assistant", content: [], api, provider, model: id, usage, stopReason, timestamp };
		this.#signal = signal;
	}

	/** Plays `step` until it is done, has failed or is aborted; the stream tells which. */
	async play(step: Step): Promise<void> {
		this.stream.push({ type: "start", partial: this.#message });
		try {
			for (const directive of step) await this.#follow(directive);
			const callsTool = this.#message.content.some((block) => block.type === "toolCall");
			const reason = callsTool ? "toolUse" : "stop";
			this.stream.push({ type: "done", reason, message: { ...this.#message, stopReason: reason } });
		} catch (failure) {
			const reason = this.#signal?.aborted ? "aborted" : "error";
			const errorMessage = failure instanceof Error ? failure.message : `${failure}`;
			this.stream.push({ type: "error", reason, error: { ...this.#message, stopReason: reason, errorMessage } });
		}
	}

	async #follow({ verb, rest }: Directive): Promise<void> {
		this.#signal?.throwIfAborted();
		switch (verb) {
			case "say":
				return this.#speak(rest, 0);
			case "slow": {
				const [, durationMs, text] = /^(\d+) (.*)$/.exec(rest) ?? [];
				if (text === undefined) throw new Error(`!slow wants MS TEXT, not: ${rest}`);
				return this.#speak(text, Number(durationMs));
			}
			case "tool":
				return this.#call(rest);
			case "hang":
				return sleep(2 ** 31 - 1, undefined, { signal: this.#signal });
			case "error":
				throw new Error(rest);
		}
	}

	async #speak(text: string, durationMs: number): Promise<void> {
		const content = text.replaceAll("\\n", "\n");
		const block = { type: "text" as const, text: "" };
		const contentIndex = this.#message.content.push(block) - 1;
		this.stream.push({ type: "text_start", contentIndex, partial: this.#message });
		const deltas = durationMs > 0 ? [...content] : [content];
		for (const delta of deltas) {
			if (durationMs > 0) await sleep(durationMs / deltas.length, undefined, { signal: this.#signal });
			block.text += delta;
			this.stream.push({ type: "text_delta", contentIndex, delta, partial: this.#message });
		}
		this.stream.push({ type: "text_end", contentIndex, content, partial: this.#message });
	}

	#call(text: string): void {
		const [, name = "", json = "{}"] = /^(\S+)(?: (.*))?$/.exec(text) ?? [];
		const toolCall = { type: "toolCall" as const, id: randomUUID(), name, arguments: JSON.parse(json) };
		const contentIndex = this.#message.content.push(toolCall) - 1;
		this.stream.push({ type: "toolcall_start", contentIndex, partial: this.#message });
		this.stream.push({ type: "toolcall_delta", contentIndex, delta: json, partial: this.#message });
		this.stream.push({ type: "toolcall_end", contentIndex, toolCall, partial: this.#message });
	}
}

/** The step that is due after `messages`. */
function nextStep(messages: readonly Message[]): Step {
	let steps: Step[] = [];
	for (const message of messages) {
		if (message.role === "user") {
			const script = parse(scriptOf(textOf(message)));
			if (script.length > 0) steps = script;
		} else if (message.role === "assistant") {
			steps = message.stopReason === "toolUse" ? steps.slice(1) : [];
		}
	}
	const last = messages.at(-1);
	return steps[0] ?? [{ verb: "say", rest: `echo: ${last ? textOf(last).slice(0, 200) : ""}` }];
}

/** The script for a message that reads `text`: a rule's, or the message itself. */
function scriptOf(text: string): string {
	const file = process.env.PI_SCRIPT_RULES;
	const rules: Rule[] = file ? JSON.parse(readFileSync(file, "utf8")) : [];
	return rules.find((rule) => fits(rule.if, text))?.script ?? text;
}

function fits(condition: string, text: string): boolean {
	const [, pattern, flags] = /^\/(.*)\/([a-z]*)$/s.exec(condition) ?? [];
	return pattern === undefined ? text.includes(condition) : new RegExp(pattern, flags).test(text);
}

/** The steps in `text`; none when it holds no directive. */
function parse(text: string): Step[] {
	const steps: Directive[][] = [];
	let step: Directive[] | undefined;
	for (const line of text.split(/\n| ;; /)) {
		const [, verb, rest = ""] = /^[!%](say|slow|tool|error|hang|next)(?: (.*))?$/.exec(line.trimEnd()) ?? [];
		if (verb === undefined) continue;
		if (step === undefined || verb === "next") {
			step = [];
			steps.push(step);
		}
		if (verb !== "next") step.push({ verb, rest });
	}
	return steps;
}

/** Writes the request to the log, if there is one. */
function log(messages: readonly Message[]): void {
	const file = process.env.PI_SCRIPT_LOG;
	if (!file) return;
	const request: ModelRequest = {
		messages: messages.map((message) => ({ role: message.role, text: textOf(message) })),
		tools: getCurrentTools(messages).map((tool) => tool.name),
	};
	appendFileSync(file, `${JSON.stringify(request)}\n`);
}

function textOf(message: Message): string {
	if (message.role === "system") return getSystemMessageText(message);
	if (typeof message.content === "string") return message.content;
	return message.content
		.map((block) => {
			if (block.type === "text") return block.text;
			return block.type === "toolCall" ? `<call ${block.name} ${JSON.stringify(block.arguments)}>` : `<${block.type}>`;
		})
		.join("\n");
}
