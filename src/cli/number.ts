import { type Call, UsageError } from "./call.ts";

/** The value of an option that is a whole number from 1 on. Throws `UsageError` for anything else. */
export function wholeNumber(call: Call, option: string, most: number): number | undefined {
	const text = call.text(option);
	if (text === undefined) return undefined;
	const value = /^\d{1,9}$/.test(text) ? Number(text) : 0;
	if (value < 1 || value > most) throw new UsageError(`--${option} takes a whole number from 1 to ${most}`);
	return value;
}
