import * as z from "zod/mini";
import { canonicalAddress } from "./address.ts";

/** Senders, as a person names them in the settings. They stand in the running record, whose size is bounded. */
export const sendersSchema = z.array(z.string().check(z.maxLength(128))).check(z.maxLength(64));

/**
 * Whether these names of sessions and full session ids name the session of this address. `nameOf` gives its name; it is
 * asked only when a name decides, and whoever does not run has none.
 */
export function isAmong(senders: readonly string[], address: string, nameOf: () => string | undefined): boolean {
	if (senders.some((sender) => canonicalAddress(sender) === address)) return true;
	const name = nameOf();
	return name !== undefined && senders.includes(name);
}
