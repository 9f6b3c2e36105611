import { randomUUID } from "node:crypto";
import { canonicalAddress, uuidOf } from "../mail/address.ts";
import { boxesOf } from "../mail/boxes.ts";
import { type Disk, errorReason } from "../mail/disk.ts";
import { resolve } from "../mail/resolve.ts";
import type { Running } from "../mail/running.ts";
import { field } from "../mail/text.ts";
import { storeOf } from "./all-tickets.ts";
import { approvedText, theUser } from "./ticket-words.ts";
import { isTicketId, openTicketStore } from "./tickets.ts";

/** What is needed to decide about the calls of other sessions. */
interface DecideParts {
	/** The session that decides. */
	address: string;
	disk: Disk;
	root: string;
	/** Milliseconds since 1970. */
	now: () => number;
	running: Pick<Running, "find" | "list">;
}

/** Decides about a call of another session as the session of an address, whose model wants it; refused unless the ticket names it. */
export function decideAs(
	{ address: self, disk, root, now, running }: DecideParts,
	session: string,
	id: string,
	{ isApproved, reason }: { isApproved: boolean; reason?: string },
): { ok: true; message: string } | { ok: false; code: string; message: string } {
	const refuse = (code: string, why: string) => ({ ok: false as const, code, message: `Nothing was decided: ${why}.` });
	try {
		const hasMailbox = (other: string) => disk.entry(boxesOf(root, other).folder) === "folder";
		const resolved = resolve(session, { running: running.list(), self: "", hasMailbox });
		if (!resolved.ok)
			return { ...resolved, message: resolved.message.replace("Nothing was sent", "Nothing was decided") };
		const { address } = resolved;
		if (!isTicketId(id)) return refuse("unknown", "there is no such ticket");
		const store = openTicketStore(disk, boxesOf(root, address).folder, now);
		const ticket = store.find(id);
		if (ticket === undefined) {
			return refuse("unknown", `${field(session, 60)} has no ticket ${field(id, 40)}; give the session's full id`);
		}
		const name = running.find(self)?.name;
		const isNamed = ticket.approver !== undefined && [self, name].includes(canonicalAddress(ticket.approver));
		if (address === self || !isNamed) return refuse("not_allowed", "the rule names another session to decide, or none");
		const decided = store.decide(id, {
			// The same again is no other decision.
			decision_id: uuidOf(`${self} ${id} ${isApproved} ${reason ?? ""}`),
			action: isApproved ? "resume" : "cancel",
			by: { kind: "model", who: name === undefined ? self : `${field(name, 100)} (${self})` },
			at: now(),
			...(reason !== undefined && { reason: reason.slice(0, 4096) }),
		});
		if (!decided.ok) return { ok: false, code: decided.code, message: decided.message };
		return { ok: true, message: `${isApproved ? "Approved" : "Denied"}: ${field(ticket.tool)} of ${address}.` };
	} catch (error) {
		return refuse("io", errorReason(error));
	}
}

/** Decides about a call of any session, as the person at the screen of one. */
export function decideAtScreen(
	parts: DecideParts,
	id: string,
	isApproved: boolean,
	reason: string | undefined,
): { ok: boolean; message: string } {
	try {
		const store = storeOf(parts, id);
		const ticket = store?.find(id);
		const follows = ticket && approvedText(ticket, parts.running);
		const decided = store?.decide(id, {
			decision_id: randomUUID(),
			action: isApproved ? "resume" : "cancel",
			by: { kind: "person", who: ticket?.session === parts.address ? theUser : `the user of session ${parts.address}` },
			at: parts.now(),
			...(reason !== undefined && { reason: reason.slice(0, 4096) }),
		});
		if (decided === undefined) return { ok: false, message: "Nothing was decided: the ticket is gone." };
		if (!decided.ok) return { ok: false, message: decided.message };
		return { ok: true, message: isApproved ? `Approved: ${follows}.` : "Denied: the model reads why." };
	} catch (error) {
		return { ok: false, message: `Nothing was decided: ${errorReason(error)}.` };
	}
}
