export const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
export const dayMs = 24 * hourMs;

/** A span in milliseconds in its largest whole unit, in at most five columns or so: `7 s`, `90 min`, `36 h`, `12 d`. */
export function shortSpan(ms: number): string {
	const [count, unit] =
		ms < 2 * minuteMs
			? [ms / 1000, "s"]
			: ms < 2 * hourMs
				? [ms / minuteMs, "min"]
				: ms < 2 * dayMs
					? [ms / hourMs, "h"]
					: [ms / dayMs, "d"];
	return `${Math.max(0, Math.floor(count))} ${unit}`;
}

/** A span of more than an hour in milliseconds, as people say it: in minutes, hours or days. */
export function duration(ms: number): string {
	const [count, unit] =
		ms < 2 * hourMs ? [ms / minuteMs, "minutes"] : ms < 2 * dayMs ? [ms / hourMs, "hours"] : [ms / dayMs, "days"];
	return `${Math.floor(count)} ${unit}`;
}
