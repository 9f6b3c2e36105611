import { randomUUID } from "node:crypto";
import { appendFileSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
	type AssistantMessage,
	type AssistantMessageEventStream,
	createAssistantMessageEventStream,
	getCurrentTools,
	getSystemMessageText,
	type Message,
} from "@earendil-works/pi-ai";
import type { ExtensionAPI, ProviderConfig } from "@earendil-works/pi-coding-agent";

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
		streamSimple: reply,
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

/** The stop reason of a reply that was neither cut off nor failed. */
type Ending = "stop" | "toolUse";

const reply: NonNullable<ProviderConfig["streamSimple"]> = (model, { messages }, options) => {
	log(messages);
	const stream = createAssistantMessageEventStream();
	const message: AssistantMessage = {
		role: "assistant",
		content: [],
		api: model.api,
		provider: model.provider,
		model: model.id,
		usage: {
			input: 0,
			output: 0,
			cacheRead: 0,
			cacheWrite: 0,
			totalTokens: 0,
			cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
		},
		stopReason: "pending",
		timestamp: Date.now(),
	};
	stream.push({ type: "start", partial: message });
	play(nextStep(messages), message, stream, options?.signal).then(
		(reason) => stream.push({ type: "done", reason, message: { ...message, stopReason: reason } }),
		(failure: Error) => {
			const reason = options?.signal?.aborted ? "aborted" : "error";
			const error = { ...message, stopReason: reason, errorMessage: failure.message } as const;
			stream.push({ type: "error", reason, error });
		},
	);
	return stream;
};

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

/** Puts the step into `message` and its events into `stream`. Rejects when the reply fails or is aborted. */
async function play(
	step: Step,
	message: AssistantMessage,
	stream: AssistantMessageEventStream,
	signal: AbortSignal | undefined,
): Promise<Ending> {
	let ending: Ending = "stop";
	for (const { verb, rest } of step) {
		signal?.throwIfAborted();
		if (verb === "say") await speak(rest, 0, message, stream, signal);
		if (verb === "slow") {
			const [, durationMs, text = ""] = /^(\d+) (.*)$/.exec(rest) ?? [];
			await speak(text, Number(durationMs), message, stream, signal);
		}
		if (verb === "tool") {
			callTool(rest, message, stream);
			ending = "toolUse";
		}
		if (verb === "error") throw new Error(rest);
		if (verb === "hang") await sleep(2 ** 31 - 1, undefined, { signal });
	}
	return ending;
}

async function speak(
	text: string,
	durationMs: number,
	message: AssistantMessage,
	stream: AssistantMessageEventStream,
	signal: AbortSignal | undefined,
): Promise<void> {
	const content = text.replaceAll("\\n", "\n");
	const block = { type: "text" as const, text: "" };
	const contentIndex = message.content.push(block) - 1;
	stream.push({ type: "text_start", contentIndex, partial: message });
	const deltas = durationMs > 0 ? [...content] : [content];
	for (const delta of deltas) {
		if (durationMs > 0) await sleep(durationMs / deltas.length, undefined, { signal });
		block.text += delta;
		stream.push({ type: "text_delta", contentIndex, delta, partial: message });
	}
	stream.push({ type: "text_end", contentIndex, content, partial: message });
}

function callTool(call: string, message: AssistantMessage, stream: AssistantMessageEventStream): void {
	const [, name = "", json = "{}"] = /^(\S+)(?: (.*))?$/.exec(call) ?? [];
	const toolCall = { type: "toolCall" as const, id: randomUUID(), name, arguments: JSON.parse(json) };
	const contentIndex = message.content.push(toolCall) - 1;
	stream.push({ type: "toolcall_start", contentIndex, partial: message });
	stream.push({ type: "toolcall_delta", contentIndex, delta: json, partial: message });
	stream.push({ type: "toolcall_end", contentIndex, toolCall, partial: message });
}

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
