/** The value that half of the values do not exceed. NaN when there are none. */
export function median(values: readonly number[]): number {
	return percentile(values, 50);
}

/** The value that `percent` of the values do not exceed, by nearest rank. NaN when there are none. */
export function percentile(values: readonly number[], percent: number): number {
	const sorted = values.toSorted((a, b) => a - b);
	return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)] ?? Number.NaN;
}
