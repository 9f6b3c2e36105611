import { randomUUID } from "node:crypto";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { nodeDisk } from "../../src/mail/disk.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { pendingIn, storeOf } from "../../src/policy/all-tickets.ts";
import type { Call } from "../support/strace.ts";

/** The session of the process that is killed. */
export const alice = "01980f5e-7a3c-7d10-8f00-00000000000a";
/** A session that sends and receives, and is closed in the meantime. */
export const bob = "01980f5e-7a3c-7d10-8f00-00000000000b";
/** A mailbox whose session is gone. */
export const carol = "01980f5e-7a3c-7d10-8f00-00000000000c";
/** Closed sessions with unread mail. */
export const dave = "01980f5e-7a3c-7d10-8f00-00000000000d";
export const eve = "01980f5e-7a3c-7d10-8f00-00000000000e";

/** The variables with which a process keeps everything in one folder. */
export function environmentOf(folder: string): { [name: string]: string } {
	return { HOME: folder, XDG_STATE_HOME: join(folder, "state"), PI_CODING_AGENT_DIR: join(folder, "agent") };
}

/** The files of the sessions in a folder. */
export function sessionFiles(folder: string): string[] {
	const sessions = join(folder, "sessions");
	return readdirSync(sessions).map((name) => join(sessions, name));
}

/** The file of one of them. */
export function sessionFile(folder: string, address: string): string {
	return sessionFiles(folder).find((file) => file.includes(address)) ?? "";
}

/** What the scenario program writes for a mail whose sender knows that it is sent. */
export function receiptOf(id: string): string {
	return `sent ${id}\n`;
}

/** The ids that its output has receipts for. */
export function receiptsIn(output: string): string[] {
	return [...output.matchAll(/^sent (\S+)$/gm)].map(([, id = ""]) => id);
}

/** Approves every call that waits for a decision, as `pi-session-mail approve` does; how many these were. */
export function approveAll(): number {
	const root = { disk: nodeDisk(), root: mailRoot(), now: Date.now };
	const failed = (error: unknown) => {
		throw error;
	};
	const waiting = pendingIn(root, failed);
	for (const { id } of waiting) {
		const by = { kind: "person", who: "a person at a shell" } as const;
		const made = storeOf(root, id)?.decide(id, { decision_id: randomUUID(), action: "resume", by, at: Date.now() });
		if (made?.ok !== true) throw new Error(made?.message ?? `${id} is gone`);
	}
	return waiting.length;
}

const names = new Map(Object.entries({ alice, bob, carol, dave, eve }).map(([name, address]) => [address, name]));

/** A call as a few words without what differs from run to run: `rename bob/tmp/N-ID.json bob/new/N-ID.json`. */
export function shapeOf({ name, paths }: Call, folder: string): string {
	const places = paths.map((path) =>
		path
			.slice(folder.length + 1)
			.replace(/^state\/pi-session-mail\/?/, "")
			.replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])/g, (id) => names.get(id) ?? "ID")
			.replace(/(?<=(call|ticket)-)[0-9a-z]{16}(\.[0-9a-z]{16})?/g, "ID")
			.replace(/\d{5,}(-[0-9a-z]{16})?/g, "N")
			.replace(/^sessions.*_/, "sessions/"),
	);
	// Some processors have only those that take a folder.
	return [name.replace(/(?<=open|rename|link|mkdir)at2?$/, ""), ...places].join(" ");
}
