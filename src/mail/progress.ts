import { join } from "node:path";
import { isAddress } from "./address.ts";
import { type Boxes, boxesOf } from "./boxes.ts";
import type { Disk } from "./disk.ts";

/**
 * How far a recipient has come with a mail. For each step it makes an empty file beside the sender's copy, which is all that
 * a sender knows of it: `sent/<name>.read`, `.held`, `.failed`, `.answered` (design 4.11).
 */
export const progressSteps = ["read", "held", "failed", "answered"] as const;
export type Progress = (typeof progressSteps)[number];

/**
 * What is known of a mail that was sent: it waits in the inbox (`queued`), was claimed (`taken`), or the last step that its
 * recipient has noted. `retracted`: it was taken back, and is named `sent/<name>.retracted`.
 */
export type SentStatus = "queued" | "taken" | Progress | "retracted";

/**
 * Notes a step beside the sender's copy, when there is one. `name` is that of the mail in `cur/`, where a claim that found the
 * name taken has put a UUID before it. A failure changes nothing that was promised: the sender knows less.
 */
export function noteProgress(disk: Disk, root: string, mail: { from: string; name: string }, step: Progress): void {
	// Both may come from a session's file, where anything may stand.
	if (!isAddress(mail.from) || !/^[^/\\]+\.json$/.test(mail.name)) return;
	try {
		const copy = join(boxesOf(root, mail.from).sent, mail.name.replace(claimPrefix, ""));
		// A quick recipient is here before the sender has given its copy its name.
		if ([copy, `${copy}.part`].some((path) => disk.entry(path) === "file")) disk.create(`${copy}.${step}`, "");
	} catch {}
}

/** The name of the copy whose step this file of `sent/` notes; undefined for any other file. */
export function copyOfMark(file: string): string | undefined {
	return markPattern.exec(file)?.[1];
}

const markPattern = new RegExp(`^(.*\\.json)\\.(?:${progressSteps.join("|")})$`);
const claimPrefix = /^(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-)+(?=\d{15}-)/;

/** The status of a copy in `sent/`. `names` are all names in that folder when the caller has listed it. Throws the disk's errors. */
export function sentStatus(
	disk: Disk,
	root: string,
	boxes: Boxes,
	copy: { name: string; to: string },
	names?: ReadonlySet<string>,
): SentStatus {
	const has = (ending: string) => {
		const name = `${copy.name}.${ending}`;
		return names?.has(name) ?? disk.entry(join(boxes.sent, name)) !== undefined;
	};
	if (has("retracted")) return "retracted";
	const step = progressSteps.findLast(has);
	if (step !== undefined) return step;
	return disk.entry(join(boxesOf(root, copy.to).new, copy.name)) === undefined ? "taken" : "queued";
}
