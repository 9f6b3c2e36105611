import { type PruneOptions, type PruneStep, prune } from "../mail/prune.ts";
import { inSlices } from "./slices.ts";

/** Lets one process at a time prune a mail root: runs `work`, which calls `end` when it is done, or does nothing. */
export type WhileAlone = (root: string, work: (end: () => void) => void) => void;

/**
 * Prunes in slices, unless another process does. `done` hears how many folders were removed. The returned function gives
 * the rest up; what is half done is finished by the next one that prunes.
 */
export function pruneInSlices(
	options: PruneOptions,
	whileAlone: WhileAlone,
	warn: (text: string) => void,
	done: (count: number) => void,
): () => void {
	let giveUp = () => {
		isGivenUp = true;
	};
	let isGivenUp = false;
	let count = 0;

	function step(found: PruneStep): void {
		if (found === undefined) return;
		if ("removed" in found) count++;
		else warn(found.warning);
	}

	whileAlone(options.root, (end) => {
		if (isGivenUp) {
			end();
			return;
		}
		const cancel = inSlices(
			prune(options),
			step,
			() => {
				end();
				done(count);
			},
			warn,
		);
		giveUp = () => {
			cancel();
			end();
		};
	});
	return () => giveUp();
}
