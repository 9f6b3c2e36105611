import { chmodSync } from "node:fs";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { type Disk, ensureFolderAndParents, UnfitError } from "./disk.ts";

/**
 * Where all mail on this machine lies: `$XDG_STATE_HOME/pi-session-mail`, or `~/.local/state/pi-session-mail` when the
 * variable is unset or not absolute. Computed at every call, so that a changed variable moves it at once (PSM-003).
 */
export function mailRoot(env: NodeJS.ProcessEnv = process.env): string {
	const stateHome = env.XDG_STATE_HOME;
	const base = stateHome !== undefined && isAbsolute(stateHome) ? stateHome : join(homedir(), ".local", "state");
	return join(base, "pi-session-mail");
}

/** Makes the root, and closes it to other users even when it was there before; a root that cannot be changed is still used (PSM-006). */
export function ensureRoot(disk: Disk, root: string): void {
	ensureFolderAndParents(disk, root);
	try {
		chmodSync(root, 0o700);
	} catch {
		// Not ours to change, for example on a file system without modes.
	}
}

/** Throws unless the root is a folder, and no link to one: it may have been moved or replaced while a session runs. */
export function checkRoot(disk: Disk, root: string): void {
	const type = disk.entry(root);
	if (type === undefined) throw new Error(`the mail root ${root} is missing`);
	if (type !== "folder") throw new UnfitError(`the mail root ${root} is not a folder`);
}

/** The folder of the running-session records. */
export function runningFolder(root: string): string {
	return join(root, "running");
}
