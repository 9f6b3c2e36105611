/** What the footer counts (PSM-039). */
export interface MailCounts {
	/** On its way to this session's model. */
	pending: number;
	/** In its conversation. */
	read: number;
	/** Requests and asks of this session that nobody has answered. */
	awaiting: number;
}

/** The footer's text; undefined when there is nothing to say. */
export function footerText(counts: MailCounts, isReceiving: boolean): string | undefined {
	const shown = [
		...(isReceiving ? [] : ["off"]),
		...(["pending", "read", "awaiting"] as const).flatMap((what) =>
			counts[what] > 0 ? [`${counts[what]} ${what}`] : [],
		),
	];
	return shown.length === 0 ? undefined : `✉ ${shown.join(" · ")}`;
}
