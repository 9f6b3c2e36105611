import { appendFileSync, closeSync, existsSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { Conversation } from "./handover.ts";

/** The conversation of a Pi session, as the hand-over sees it; `onRun` is told of each run that mail is to start. */
export function openConversation(pi: ExtensionAPI, ctx: ExtensionContext, onRun: () => void): Conversation {
	return {
		isIdle: () => ctx.isIdle(),
		entries: () => ctx.sessionManager.getEntries(),
		isSaved() {
			const file = ctx.sessionManager.getSessionFile();
			return file === undefined || existsSync(file);
		},
		add(message, startsRun) {
			endLastLine(ctx.sessionManager.getSessionFile());
			if (startsRun) onRun();
			pi.sendMessage(message, startsRun ? { triggerTurn: true, deliverAs: "steer" } : { triggerTurn: false });
		},
	};
}

/**
 * A full disk cuts a line of the session's file short, and what Pi adds next stands on that line: nobody can read it any
 * more, though Pi shows it. Ends such a line, as Pi does when it opens a file. Throws when the disk does not take that either.
 */
export function endLastLine(file: string | undefined): void {
	if (file === undefined || !existsSync(file)) return;
	const last = Buffer.alloc(1, newline);
	const descriptor = openSync(file, "r");
	try {
		// Of an empty file nothing is read.
		readSync(descriptor, last, 0, 1, fstatSync(descriptor).size - 1);
	} finally {
		closeSync(descriptor);
	}
	if (last[0] !== newline) appendFileSync(file, "\n");
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
