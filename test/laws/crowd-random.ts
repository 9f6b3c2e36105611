/** Random numbers that a seed decides: the same seed makes the same choices (mulberry32). */
export interface Random {
	/** At least 0, less than 1. */
	next(): number;
	/** A whole number of at least `from` and at most `to`. */
	between(from: number, to: number): number;
	pick<T>(items: readonly T[]): T;
	/** Whether something happens that happens in this share of all cases. */
	happens(share: number): boolean;
}

export function randomFrom(seed: number): Random {
	let state = seed >>> 0;
	function next(): number {
		state = (state + 0x6d2b79f5) >>> 0;
		let mixed = Math.imul(state ^ (state >>> 15), state | 1);
		mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
		return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
	}
	return {
		next,
		between: (from, to) => from + Math.floor(next() * (to - from + 1)),
		pick(items) {
			const picked = items[Math.floor(next() * items.length)];
			if (picked === undefined) throw new Error("nothing to pick from");
			return picked;
		},
		happens: (share) => next() < share,
	};
}
