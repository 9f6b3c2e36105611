import type { Envelope } from "./envelope.ts";
import { isAmong } from "./senders.ts";

/**
 * Whether a mail may interrupt a session whose settings let these senders do so: names of sessions, full session ids, or
 * `*` for all. A person may always: no model sends requests, and none is behind a program.
 */
export function mayInterrupt(
	senders: readonly string[] | undefined,
	{ kind, from, x }: Pick<Envelope, "kind" | "from" | "x">,
	nameOf: () => string | undefined,
): boolean {
	if (kind === "request" || x?.program === true) return true;
	return senders !== undefined && (senders.includes("*") || isAmong(senders, from, nameOf));
}
