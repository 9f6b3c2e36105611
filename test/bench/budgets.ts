/** What something may cost, as it stands in the table of budgets (design section 6) or follows from a law (L6, L10). */
export interface Budget {
	readonly text: string;
	/** The budget holds for values between these two. */
	readonly least?: number;
	readonly most?: number;
}

/** All budgets. Each is the budget of at least one row of a report. */
export const budgets = {
	warmStart: { text: "≤ empty + 20 ms", most: 20 },
	coldStart: { text: "≤ empty + 40 ms", most: 40 },
	program: { text: "≤ 2.5 × empty", most: 2.5 },
	durable: { text: "≤ 1.3 × bare", most: 1.3 },
	fast: { text: "≥ 5000 mails/s", least: 5000 },
	notice: { text: "≤ 15 ms", most: 15 },
	lateNotice: { text: "≤ 100 ms, p99", most: 100 },
	scan: { text: "≤ 100 ms", most: 100 },
	hold: { text: "≤ 20 ms at a stretch", most: 20 },
	open: { text: "≤ 150 ms", most: 150 },
	age: { text: "≤ 1.2 × empty", most: 1.2 },
	calls: { text: "as many as empty", most: 1 },
	list: { text: "≤ 50 ms", most: 50 },
	crowd: { text: "≤ 1.2 × one", most: 1.2 },
	call: { text: "≤ bare + 1 ms", most: 1 },
	policy: { text: "≤ none + 0.05 ms", most: 0.05 },
	memory: { text: "≤ empty + 20 MB", most: 20 },
	// Memory is counted in whole pages.
	peak: { text: "≤ 3 × its size", most: 3.05 },
	idle: { text: "≤ 0.1 % of a core", most: 0.1 },
	watches: { text: "1 watch", least: 1, most: 1 },
} satisfies Record<string, Budget>;

/** Whether a value keeps to a budget, as part of a row. */
export function judged(value: number, budget: Budget | undefined): { budget?: string; holds?: boolean } {
	if (budget === undefined) return {};
	const { text, least = Number.NEGATIVE_INFINITY, most = Number.POSITIVE_INFINITY } = budget;
	return { budget: text, holds: value >= least && value <= most };
}

/**
 * What `--check` compares of a value that is a ratio or a count, as part of a row: it fails above `room` times the budget.
 * A ratio of two times is noise to three times its size where others use the disk as well; a count is not.
 */
export function checked(
	value: number,
	{ most }: { readonly most: number },
	room = 5,
): { check: { value: number; most: number } } {
	return { check: { value, most: room * most } };
}

/** The room of counts. */
export const countRoom = 1.5;
