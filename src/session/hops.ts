/**
 * The loop guard: how often the current chain of mail has woken or steered a session with no person typing
 * (PSM-083 to 085). New mail of the turn carries the count; the caller compares it with the limit (PSM-086).
 */
export interface Hops {
	/**
	 * 0 once the user started or steered this turn, and then for the rest of it: mail that comes later in a turn the
	 * user takes part in does not raise it (PSM-083 before PSM-084). Otherwise the highest `hops` that arrived, plus one.
	 */
	readonly count: number;
	/** The user started or steered the turn: any Pi `input` event. */
	userInput(): void;
	/** An envelope with these hops started or steered the turn: every kind, but none that was shown quietly. */
	arrived(hops: number): void;
	/** One that starts no turn was shown between two turns: it counts in the next one, which reads it. */
	shown(hops: number): void;
	/** A turn starts. */
	started(): void;
	/** The turn is over, or the input that was to start it started none: the next one counts from its own mail. */
	settled(): void;
}

/** The count of one session, at the start of a turn. */
export function createHops(): Hops {
	let ofMail = 0;
	let userTakesPart = false;
	/** Of what was shown since the last turn. */
	let unread: number | undefined;

	function arrived(hops: number): void {
		// A reader refuses larger numbers: without the bound, hops forged at it would make our answers unreadable.
		ofMail = Math.max(ofMail, Math.min(hops + 1, Number.MAX_SAFE_INTEGER));
	}

	return {
		get count() {
			return userTakesPart ? 0 : ofMail;
		},
		userInput() {
			userTakesPart = true;
		},
		arrived,
		shown(hops) {
			unread = Math.max(unread ?? 0, hops);
		},
		started() {
			if (unread !== undefined) arrived(unread);
			unread = undefined;
		},
		settled() {
			ofMail = 0;
			userTakesPart = false;
		},
	};
}
