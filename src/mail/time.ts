export const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
export const dayMs = 24 * hourMs;

/** A span of more than an hour in milliseconds, as people say it: in minutes, hours or days. */
export function duration(ms: number): string {
	const [count, unit] =
		ms < 2 * hourMs ? [ms / minuteMs, "minutes"] : ms < 2 * dayMs ? [ms / hourMs, "hours"] : [ms / dayMs, "days"];
	return `${Math.floor(count)} ${unit}`;
}
