import { errorMessage } from "../mail/disk.ts";

/** How long one slice may hold the event loop, where nothing else is said. */
const usualSliceMs = 10;

/**
 * Runs bulk work in slices, each in a turn of the event loop of its own, so that nothing else waits for it. `step` gets
 * what the work yields; `done` is called at the end, also when the work fails, which `warn` then hears of. The returned
 * function gives the rest up, `done` too. `sliceMs` is how long a slice may hold the event loop.
 */
export function inSlices<T>(
	work: Generator<T>,
	step: (item: T) => void,
	done: () => void,
	warn: (text: string) => void,
	sliceMs = usualSliceMs,
): () => void {
	let next: NodeJS.Immediate | undefined;
	let isGivenUp = false;
	let isFirst = true;

	function slice(): void {
		let isDone = true;
		try {
			isDone = isFinished();
		} catch (error) {
			warn(errorMessage(error));
		}
		if (isGivenUp) return;
		// What follows much work may be as much again.
		if (isDone && isFirst) done();
		else next = setImmediate(isDone ? done : slice);
		isFirst = false;
	}

	function isFinished(): boolean {
		const end = performance.now() + sliceMs;
		while (!isGivenUp && performance.now() < end) {
			const next = work.next();
			if (next.done === true) return true;
			step(next.value);
		}
		return false;
	}

	next = setImmediate(slice);
	return () => {
		isGivenUp = true;
		clearImmediate(next);
		// Closes the folders that it reads.
		work.return(undefined);
	};
}
