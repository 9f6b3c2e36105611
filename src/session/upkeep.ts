import { type Disk, errorReason } from "../mail/disk.ts";
import type { Mailbox } from "../mail/mailbox.ts";
import { ensureRoot } from "../mail/root.ts";

/** Looks after the folders of a running session's mailbox: somebody may remove them, move them away or put a link in their place. */
export interface Upkeep {
	/** Makes again what is missing. False while the mailbox cannot be used, which is said once, and once more when it is over. */
	isUsable(): boolean;
	/** Whether it could be used when that was last asked. */
	readonly isWell: boolean;
}

interface UpkeepParts {
	disk: Disk;
	root: string;
	mailbox: Mailbox;
	/** Milliseconds of a clock that nobody sets. */
	now: () => number;
	/** Told when folders are there again that were not, or not ours. */
	onMended: () => void;
	/** Tells the person, each time. */
	say: (text: string) => void;
}

/** How long a root that is missing is left to whoever moved it, and wants to move it back, before it is made again. */
const rootMissingMs = 30_000;

export function createUpkeep({ disk, root, mailbox, now, onMended, say }: UpkeepParts): Upkeep {
	let isOut = false;
	let rootMissingSince: number | undefined;
	let timesMended = 0;

	/** Whether something was missing since the last time, and is there again. */
	function mend(): boolean {
		if (disk.entry(root) !== undefined) rootMissingSince = undefined;
		else {
			rootMissingSince ??= now();
			if (now() - rootMissingSince >= rootMissingMs) ensureRoot(disk, root);
		}
		mailbox.mend();
		const wasMade = mailbox.timesMended > timesMended;
		timesMended = mailbox.timesMended;
		return wasMade;
	}

	return {
		get isWell() {
			return !isOut;
		},
		isUsable() {
			let wasMade: boolean;
			try {
				wasMade = mend();
			} catch (error) {
				if (!isOut)
					say(`this session's mail is out of order: ${errorReason(error)}. It goes on as soon as that is mended.`);
				isOut = true;
				return false;
			}
			if (!isOut && !wasMade) return true;
			if (wasMade) say(`folders in ${mailbox.folder} were missing and were made again; mail that lay in them is gone.`);
			if (isOut) say("this session's mail works again.");
			isOut = false;
			onMended();
			return true;
		},
	};
}
