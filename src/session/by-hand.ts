import { errorReason } from "../mail/disk.ts";
import { awaitsAnswer, type Envelope, isExpected, type MailKind } from "../mail/envelope.ts";
import type { Mailbox, OpenMail } from "../mail/mailbox.ts";
import type { Answers } from "./answers.ts";
import type { Handover } from "./handover.ts";
import type { Inbox } from "./inbox.ts";
import type { Ledger } from "./ledger.ts";
import type { Listed } from "./overview.ts";

/** Kinds that can wait: answers, results and control mail never do. */
export type Holdable = Exclude<MailKind, "reply" | "result" | "control">;

/** What a person did with a mail of the inbox; the message says it in one sentence. */
export interface ByHandOutcome {
	ok: boolean;
	message: string;
}

/**
 * What a person does with mail to this session instead of its model. The ledger notes it first: from then on no run answers
 * the mail again, and it enters no conversation that it has not entered yet.
 */
export interface ByHand {
	/** Answers a request or ask in its user's name. */
	reply(listed: Listed, mail: Envelope, text: string): ByHandOutcome;
	/** Ends a mail that waits: a request or ask is answered `failed`, a message is never shown to the model. */
	drop(listed: Listed, mail: Envelope): ByHandOutcome;
	/** Keeps a request, ask or message that nobody has claimed yet from being claimed, over restarts too, until `release`. */
	hold(listed: Listed, kind: Holdable): ByHandOutcome;
	/** Ends that: the mail comes as if it had just arrived. */
	release(listed: Listed): ByHandOutcome;
}

export interface ByHandParts {
	mailbox: Pick<Mailbox, "claim" | "close">;
	inbox: Pick<Inbox, "hold" | "release">;
	ledger: Ledger;
	answers: Pick<Answers, "answerByHand">;
	handover: Pick<Handover, "dismiss" | "isInFlight" | "resume">;
	/** Why nothing can be done now; undefined when it can. */
	refusal: () => string | undefined;
	/** Whether a mail of this name was claimed. */
	isClaimed: (name: string) => boolean;
	/** Notes a mail that enters no conversation. */
	noteTaken: (mail: { envelope: Envelope; name: string }) => void;
	/** Looks for mail and shows the counts, afterwards. */
	pump: () => void;
}

export function createByHand(parts: ByHandParts): ByHand {
	const { mailbox, inbox, ledger, answers, handover } = parts;

	/**
	 * Takes a mail that still waits out of the inbox first, so that its sender cannot take it back while it is answered.
	 * Undefined when it is claimed already; a text when that is not possible.
	 */
	function take({ box, name }: Listed, mail: Envelope): OpenMail | string | undefined {
		const refusal = parts.refusal();
		if (refusal !== undefined) return refusal;
		if (handover.isInFlight(mail)) return "it is just entering the conversation; try again in a moment";
		if (box !== "new" || ledger.has(mail)) return undefined;
		const claim = mailbox.claim(name);
		switch (claim.result) {
			case "claimed":
				return claim.mail;
			case "gone":
				// It may have been claimed while the person typed.
				return parts.isClaimed(name) ? undefined : "its sender has taken it back";
			default:
				return claim.reason;
		}
	}

	/** `action` says besides whether the mail is done with on disk, whatever becomes of this process. */
	function act(listed: Listed, mail: Envelope, action: () => ByHandOutcome & { isDone: boolean }): ByHandOutcome {
		const taken = take(listed, mail);
		if (typeof taken === "string") return nothingDone(taken);
		let isDone = false;
		try {
			const outcome = action();
			isDone = outcome.isDone;
			return { ok: outcome.ok, message: outcome.message };
		} finally {
			if (isDone && taken !== undefined) mailbox.close(taken.name);
			else if (isDone) handover.dismiss(mail);
			// With its note in the ledger it is closed as soon as that is saved; without, it is handed over as usual.
			else if (taken !== undefined) handover.resume(taken, false);
			parts.pump();
		}
	}

	/** `action` is false when the mail does not wait in `new/` any more, and then does nothing. */
	function whileWaiting({ name }: Listed, action: (name: string) => boolean, done: string): ByHandOutcome {
		const refusal = parts.refusal();
		if (refusal !== undefined) return nothingDone(refusal);
		try {
			if (action(name)) return { ok: true, message: done };
			return nothingDone(parts.isClaimed(name) ? "it was claimed just now" : "its sender has taken it back");
		} catch (error) {
			return nothingDone(errorReason(error));
		} finally {
			parts.pump();
		}
	}

	function answer({ name }: Listed, { id, from }: Envelope, status: "done" | "failed", text: string, done: string) {
		const outcome = answers.answerByHand({ id, from, name }, status, text);
		if (!outcome.ok) return { ok: false, isDone: false, message: outcome.message };
		const kept = "The disk did not take the answer yet: it is kept, and tried again.";
		return { ok: true, isDone: outcome.isWritten, message: outcome.isWritten ? done : kept };
	}

	return {
		reply: (listed, mail, text) =>
			act(listed, mail, () => answer(listed, mail, "done", text, "Answered: no run of this session answers it again.")),
		drop(listed, mail) {
			if (isExpected(mail)) return nothingDone(`a ${mail.kind} waits for nobody; it only informs`);
			return act(listed, mail, () => {
				if (awaitsAnswer(mail)) return answer(listed, mail, "failed", droppedText, "Dropped: its sender is told so.");
				if (ledger.has(mail)) return { isDone: false, ...nothingDone("it is in the conversation already") };
				parts.noteTaken({ envelope: mail, name: listed.name });
				return { ok: true, isDone: true, message: "Dropped: the model will not see it." };
			});
		},
		hold(listed, kind) {
			const asker = kind === "ask" ? " Its sender waits no longer than it would have." : "";
			return whileWaiting(listed, inbox.hold, `On hold: it waits until it is released.${asker}`);
		},
		release(listed) {
			const done = ledger.isPaused
				? "Released: it waits, as all mail does while this session is paused."
				: ledger.isReceiving
					? "Released: it comes as if it had just arrived."
					: "Released: it waits, as all mail does while mail is off.";
			return whileWaiting(listed, inbox.release, done);
		},
	};
}

function nothingDone(why: string): ByHandOutcome & { ok: false } {
	return { ok: false, message: `Nothing was done: ${why}.` };
}

const droppedText = "(Dropped by its user: nobody will answer it. Send it again if it is still wanted.)";
