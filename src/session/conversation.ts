import { existsSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { Conversation } from "./handover.ts";

/** The conversation of a Pi session, as the hand-over sees it. */
export function openConversation(pi: ExtensionAPI, ctx: ExtensionContext): Conversation {
	let hasFile = false;
	return {
		isIdle: () => ctx.isIdle(),
		entries: () => ctx.sessionManager.getEntries(),
		isSaved() {
			const file = ctx.sessionManager.getSessionFile();
			hasFile ||= file === undefined || existsSync(file);
			return hasFile;
		},
		add: (message, startsRun) =>
			pi.sendMessage(message, startsRun ? { triggerTurn: true, deliverAs: "steer" } : { triggerTurn: false }),
	};
}

/** Whether the session's file has more lines than this process has entries, or cannot be read: another process added some. */
export function isBehindFile(session: ExtensionContext["sessionManager"]): boolean {
	const file = session.getSessionFile();
	if (file === undefined || !existsSync(file)) return false;
	try {
		let lines = 0;
		for (const byte of readFileSync(file)) if (byte === newline) lines++;
		// The first line is the session's own.
		return lines > session.getEntries().length + 1;
	} catch {
		return true;
	}
}

const newline = 0x0a;

/**
 * All entries in a session's file, also those that another process added: this one does not see them otherwise
 * (pi-facts 3). None while there is no file; rejects when it cannot be read.
 */
export async function savedEntries(sessionFile: string | undefined): Promise<unknown[]> {
	const text = sessionFile === undefined || !existsSync(sessionFile) ? "" : await readFile(sessionFile, "utf8");
	return text.split("\n").flatMap((line) => {
		try {
			return [JSON.parse(line)];
		} catch {
			return [];
		}
	});
}
