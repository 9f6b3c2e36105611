import { type FSWatcher, watch } from "chokidar";
import { errorMessage } from "../mail/disk.ts";

/** Notices mail in a folder: by a watch, and by looking again and again, which needs no watch (design L5). */
export interface Watch {
	/** Watches anew, after the folder was made again: the watch was of the one that was there before. */
	renew(): void;
	/**
	 * While the folder holds a backlog it is not watched: its files are looked at one after the other anyway, and for each that
	 * goes the watcher would do more work than whoever takes it.
	 */
	rest(hasBacklog: boolean): void;
	/** Something new was found: more may come soon. */
	found(): void;
	/** Why the folder is looked into again and again instead of watched; undefined while the watch works. */
	readonly lostBecause: string | undefined;
	close(): void;
}

/** How often is looked while the watch works: it may lose an event. */
const sweepMs = 1000;
/** How often is looked without a watch: soon after something came, and when nothing came for a while. */
const pollMs = { active: 250, quiet: 2000 };
const activeMs = 30_000;
/** After this long a watch that was refused or lost is tried again. */
const retryMs = 60_000;

/**
 * Calls `onMail` soon after something was added to the folder, and `onSweep` from time to time in any case. `say` hears of
 * a watch that is lost, and that it is back.
 */
export function createWatch(
	folder: string,
	onMail: () => void,
	say: (text: string) => void,
	onSweep: () => void = onMail,
): Watch {
	let watcher: FSWatcher | undefined;
	let lostBecause: string | undefined;
	let retryAt = 0;
	let activeUntil = 0;
	let isComing = false;
	let isResting = false;
	let timer: NodeJS.Timeout;

	function close(): void {
		watcher?.close().catch(() => {});
		watcher = undefined;
	}

	function renew(): void {
		close();
		if (isResting) return;
		const opened = watch(folder, { ignoreInitial: true, persistent: false });
		watcher = opened;
		const isCurrent = () => watcher === opened;
		opened.on("add", () => isCurrent() && added());
		opened.on("ready", () => isCurrent() && works());
		opened.on("error", (error) => isCurrent() && lost(errorMessage(error)));
	}

	function added(): void {
		if (isComing) return;
		isComing = true;
		setImmediate(() => {
			isComing = false;
			if (watcher !== undefined) onMail();
		});
	}

	function lost(reason: string): void {
		close();
		retryAt = performance.now() + retryMs;
		if (lostBecause === undefined)
			say(`new mail cannot be watched for and is looked for every ${pollMs.quiet / 1000} s instead: ${reason}`);
		lostBecause = reason;
	}

	function works(): void {
		if (lostBecause !== undefined) say("new mail is watched for again");
		lostBecause = undefined;
	}

	function schedule(): void {
		clearTimeout(timer);
		const isActive = performance.now() < activeUntil;
		timer = setTimeout(look, lostBecause === undefined ? sweepMs : isActive ? pollMs.active : pollMs.quiet).unref();
	}

	function look(): void {
		schedule();
		if (watcher === undefined && performance.now() >= retryAt) renew();
		onSweep();
	}

	// The start of a session does not wait for it; what comes before it is found by looking.
	const opening = setImmediate(renew);
	schedule();
	return {
		renew,
		rest(hasBacklog) {
			if (hasBacklog === isResting) return;
			isResting = hasBacklog;
			if (lostBecause === undefined) renew();
		},
		found() {
			activeUntil = performance.now() + activeMs;
		},
		get lostBecause() {
			return lostBecause;
		},
		close() {
			clearImmediate(opening);
			clearTimeout(timer);
			close();
		},
	};
}
