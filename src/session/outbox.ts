import { isUuid } from "../mail/address.ts";
import type { Delivered, Draft, Refusal } from "../mail/deliver.ts";
import { errorReason } from "../mail/disk.ts";
import { awaitsAnswer, type Control, extras, type MailKind } from "../mail/envelope.ts";
import { mayInterrupt } from "../mail/interrupt-from.ts";
import type { Mailbox } from "../mail/mailbox.ts";
import { displayName, type ResolveCode, resolve } from "../mail/resolve.ts";
import type { Running, RunningSession } from "../mail/running.ts";
import { counted } from "../mail/text.ts";
import { dayMs, hourMs, minuteMs } from "../mail/time.ts";
import { excludedBy } from "../mail/wake-on.ts";

/** A mail that was sent, and what is known of its recipient. */
export interface Sent extends Delivered {
	/** The recipient's record; undefined when it does not run. */
	recipient: RunningSession | undefined;
	/** What the sender should know: whole sentences, none when there is nothing to say. */
	notes: string[];
}

/** What is sent; see `Draft`. */
export type OutgoingMail = Pick<Draft, "to" | "kind" | "body" | "hops" | "id" | "quiet" | "program" | "priority">;

/** Why nothing was sent: the code for programs, one sentence for people. */
export interface SendRefusal {
	ok: false;
	code: Refusal["code"] | ResolveCode | "hop_limit" | "not_accepted" | "not_running";
	message: string;
}

/** What a person or a model sends: `to` is resolved, and every refusal comes before anything is written. */
export interface Outbox {
	/** Resolves what was typed as a recipient among the running sessions. */
	resolve(to: string): { ok: true; address: string } | SendRefusal;
	/** Sends to whom `to` resolves. `hops` is the count of the run that sends, or 0 for a person; the rest as in `Draft`. */
	send(mail: OutgoingMail): Sent | SendRefusal;
	/** Sends what a person wants done with another session; refused when that one does not run, or is too old for it. */
	control(to: string, control: Control, program?: boolean): Sent | SendRefusal;
	/** Why a request or ask may not be sent to an address: its session's settings let none of this session start a run. */
	notAccepted(address: string, kind: MailKind, id: string | undefined): SendRefusal | undefined;
	/** Why a model may not send any more, when the chain of mail has reached the limit (PSM-086). */
	hopRefusal(hops: number): SendRefusal | undefined;
}

interface OutboxParts {
	mailbox: Mailbox;
	running: Running;
	/** The limit as it is set now. */
	hopLimit: () => number;
	/** Whether mail is to survive a power cut. */
	isDurable: () => boolean;
	/** Milliseconds since 1970. */
	now: () => number;
	/** The sentence that says when hops are counted from none again. */
	countsAgain?: string;
}

export function createOutbox({
	mailbox,
	running,
	hopLimit,
	isDurable,
	now,
	countsAgain = aPerson,
}: OutboxParts): Outbox {
	function resolved(to: string): { ok: true; address: string } | SendRefusal {
		try {
			// Without its folders nobody would be found, which would be no reason.
			mailbox.mend();
			// A full id is one whoever runs: no other record has to be read for it.
			const others = isUuid(to) ? [] : running.list();
			return resolve(to, { running: others, self: mailbox.address, hasMailbox: mailbox.isKnown });
		} catch (error) {
			return { ok: false, code: "io", message: `Nothing was sent: ${errorReason(error)}.` };
		}
	}

	/** Which rule of another session's settings keeps a mail of this one from starting a run there. */
	function ruleOf(address: string, kind: MailKind) {
		const mail = { kind, from: mailbox.address };
		return excludedBy(running.wakeOn(address), mail, () => running.find(mailbox.address)?.name);
	}

	function notAccepted(address: string, kind: MailKind, id: string | undefined): SendRefusal | undefined {
		const rule = awaitsAnswer({ kind }) ? ruleOf(address, kind) : undefined;
		if (rule === undefined || mailbox.sentBefore(id) !== undefined) return undefined;
		const whose = `${displayName(running.find(address) ?? { address }, [])} (${address})`;
		const what = rule === "kinds" ? `no ${kind}s` : `${kind}s from some sessions only, and not from this one`;
		const message = `Nothing was sent: by its settings (wakeOn.${rule}), ${whose} takes ${what}; leave a message for it.`;
		return { ok: false, code: "not_accepted", message };
	}

	/** How long mail may wait there, in whole sentences. */
	function waitNotes(recipient: RunningSession | undefined, address: string): string[] {
		try {
			const { waiting, lastActiveMs } = mailbox.lookInto(address);
			const since = recipient === undefined ? lastActiveMs : Date.parse(recipient.updated);
			// It was quick: nothing has to wait.
			if (waiting === 0) return [];
			const mails = waiting === 1 ? "1 mail waits there" : `${waiting} mails wait there`;
			return [`${mails}${since ? `; it was last active ${ago(now() - since)}` : ""}.`];
		} catch {
			return [];
		}
	}

	function notesOf(recipient: RunningSession | undefined, wasKnown: boolean, sent: Delivered): string[] {
		const { to, kind, x } = sent.envelope;
		const notes: string[] = [];
		if (recipient === undefined) {
			notes.push(
				wasKnown
					? "That session is not running; the mail waits until it starts."
					: "No session with this id has been seen on this machine; the mail waits for one.",
			);
		} else if (recipient.x.paused === true) {
			notes.push("That session is paused; the mail waits until its user lets it go on.");
		} else if (recipient.x.receiving === false) {
			notes.push("That session takes no mail now; the mail waits until its user types /mailbox on.");
		} else if (recipient.state === "busy") notes.push("That session is busy.");
		if (recipient === undefined ? wasKnown : recipient.state === "busy") notes.push(...waitNotes(recipient, to));
		if (recipient !== undefined && x?.quiet === undefined && ruleOf(to, kind) !== undefined) {
			notes.push("By its settings, the mail starts no turn there.");
		}
		if (!sent.durable && isDurable()) notes.push("The disk did not confirm it: a power cut could still undo it.");
		return notes;
	}

	/** The priority that the recipient's settings let a mail of this session have. */
	function allowedPriority(address: string, { kind, program, priority }: OutgoingMail): OutgoingMail["priority"] {
		if (priority === undefined) return undefined;
		const mail = { kind, from: mailbox.address, ...extras({ program: program || undefined }) };
		const senders = running.find(address)?.x.interruptFrom;
		return mayInterrupt(senders, mail, () => running.find(mailbox.address)?.name) ? priority : undefined;
	}

	return {
		resolve: resolved,
		send(mail) {
			const { to, kind, body, hops, id, quiet, program } = mail;
			let wasKnown: boolean;
			let address: string;
			try {
				const found = resolved(to);
				// Whoever it was sent to may have ended since, or have another name.
				const earlier = found.ok ? undefined : mailbox.sentBefore(id);
				if (!found.ok && earlier === undefined) return found;
				address = found.ok ? found.address : (earlier?.to ?? "");
				wasKnown = mailbox.isKnown(address);
			} catch (error) {
				return { ok: false, code: "io", message: `Nothing was sent: ${errorReason(error)}.` };
			}
			const refused = notAccepted(address, kind, id);
			if (refused !== undefined) return refused;
			const priority = allowedPriority(address, mail);
			const outcome = mailbox.deliver({ to: address, kind, body: body.trim(), hops, id, quiet, program, priority });
			if (!outcome.ok) return outcome;
			const recipient = running.find(address);
			// Of what was sent before it is not known whether it still waits.
			if (outcome.duplicate) return { ...outcome, recipient, notes: [] };
			const lostPriority = priority === mail.priority ? [] : [notInterrupted];
			return { ...outcome, recipient, notes: [...lostPriority, ...notesOf(recipient, wasKnown, outcome)] };
		},
		control(to, control, program) {
			const found = resolved(to);
			if (!found.ok) return { ...found, message: found.message.replace("Nothing was sent", "Nothing was done") };
			const recipient = running.find(found.address);
			const whose = recipient === undefined ? found.address : displayName(recipient, []);
			if (recipient === undefined) {
				return { ok: false, code: "not_running", message: `Nothing was done: ${whose} is not running.` };
			}
			if (recipient.x.accepts?.includes("control") !== true) {
				const why = recipient.x.program ? "is a program" : "runs an older version of pi-session-mail; restart Pi there";
				return { ok: false, code: "not_accepted", message: `Nothing was done: ${whose} ${why}.` };
			}
			const mail = { to: found.address, kind: "control", body: control.op, hops: 0, control, program } as const;
			const outcome = mailbox.deliver(mail);
			return outcome.ok ? { ...outcome, recipient, notes: [] } : outcome;
		},
		notAccepted,
		hopRefusal(hops) {
			const limit = hopLimit();
			if (hops < limit) return undefined;
			return {
				ok: false,
				code: "hop_limit",
				message: `Nothing was sent: sessions have woken each other ${counted(hops, "time")} in a row, and the limit is ${limit}. ${countsAgain}`,
			};
		},
	};
}

const aPerson = "A person who types in either session starts the count again.";
const notInterrupted = "Its user has not let this session interrupt it: it was sent as mail that does not.";

/** How long ago, in the largest unit that fits. A time to come, by another clock, is now. */
function ago(ms: number): string {
	const units = [
		["day", dayMs],
		["hour", hourMs],
		["minute", minuteMs],
	] as const;
	for (const [unit, unitMs] of units) {
		const count = Math.floor(ms / unitMs);
		if (count > 0) return `${counted(count, unit)} ago`;
	}
	return "less than a minute ago";
}
