import type { SessionEntry } from "@earendil-works/pi-coding-agent";
import type { ReplyStatus } from "../mail/envelope.ts";

/** What a run left on the session's branch. */
export interface RunOutcome {
	end: ReplyStatus;
	/** The text of its last assistant message. */
	answer: string;
	/** What it failed on, when Pi said so. */
	error?: string;
	/** Where its last assistant message stands on the branch; -1 when it has none. */
	lastAssistant: number;
}

/**
 * The outcome of the run that began after the entry `startId` (undefined: with the session). A run without an assistant
 * message failed. `aborted` is Pi's word that the user stopped it, also between two attempts (Pi 1.1 and later).
 */
export function outcomeOfRun(branch: readonly SessionEntry[], startId: string | null, aborted: boolean): RunOutcome {
	const start = branch.findIndex((entry) => entry.id === startId);
	const lastAssistant = branch.findLastIndex((entry, index) => index > start && isAssistant(entry));
	const message = messageAt(branch, lastAssistant);
	const stopReason = message?.stopReason;
	const end = aborted || stopReason === "aborted" ? "stopped" : isFailed(stopReason) ? "failed" : "done";
	const error = message?.errorMessage;
	return { end, answer: textOf(message), ...(error === undefined ? {} : { error }), lastAssistant };
}

/** The last assistant message that finished its run: an answer, even if nobody was there any more to send it (design D18). */
export function lastFinished(branch: readonly SessionEntry[]): { answer: string; index: number } | undefined {
	const index = branch.findLastIndex(isAssistant);
	const message = messageAt(branch, index);
	if (message === undefined || (message.stopReason !== "stop" && message.stopReason !== "length")) return undefined;
	if (message.content.some((block) => block.type === "toolCall")) return undefined;
	return { answer: textOf(message), index };
}

type AssistantMessage = Extract<Extract<SessionEntry, { type: "message" }>["message"], { role: "assistant" }>;

function isAssistant(entry: SessionEntry): boolean {
	return entry.type === "message" && entry.message.role === "assistant";
}

function messageAt(branch: readonly SessionEntry[], index: number): AssistantMessage | undefined {
	const entry = branch[index];
	return entry?.type === "message" && entry.message.role === "assistant" ? entry.message : undefined;
}

function isFailed(stopReason: AssistantMessage["stopReason"] | undefined): boolean {
	return stopReason === undefined || stopReason === "error";
}

function textOf(message: AssistantMessage | undefined): string {
	const blocks = message?.content ?? [];
	return blocks
		.flatMap((block) => (block.type === "text" ? [block.text] : []))
		.join("\n\n")
		.trim();
}
