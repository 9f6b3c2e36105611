import * as z from "zod/mini";
import { awaitsAnswer, type Envelope, isQuiet } from "./envelope.ts";
import { isAmong, sendersSchema } from "./senders.ts";

/** Which mail may start a run of a session, as its user has set it: what an absent key says nothing about may. */
export const wakeOnSchema = z.strictObject({
	kinds: z.optional(
		z.array(z.enum(["request", "ask", "message"])).check(z.maxLength(3), z.describe("The kinds that may.")),
	),
	from: z.optional(sendersSchema.check(z.describe("The senders that may: names of sessions, or full session ids."))),
});

/** See `wakeOnSchema`. */
export interface WakeOn {
	/** The kinds of mail that may; all when it is not set. */
	kinds?: ("request" | "ask" | "message")[] | undefined;
	/** The senders that may: names of sessions, or full session ids; all when it is not set. */
	from?: string[] | undefined;
}

/**
 * The rule by which a mail starts no run; undefined when none keeps it from that. A late answer to an ask counts as a
 * message. `senderName` is asked only when a name decides; whoever does not run has none.
 */
export function excludedBy(
	wakeOn: WakeOn | undefined,
	{ kind, from }: Pick<Envelope, "kind" | "from">,
	senderName: () => string | undefined,
): keyof WakeOn | undefined {
	if (wakeOn?.kinds?.some((may) => may === (awaitsAnswer({ kind }) ? kind : "message")) === false) return "kinds";
	return wakeOn?.from === undefined || isAmong(wakeOn.from, from, senderName) ? undefined : "from";
}

/** Whether a mail may start a run, as far as its sender and these settings say. */
export function mayWake(wakeOn: WakeOn | undefined, mail: Envelope, senderName: () => string | undefined): boolean {
	return !isQuiet(mail) && excludedBy(wakeOn, mail, senderName) === undefined;
}
