import type { Delivered } from "../mail/deliver.ts";
import type { Envelope } from "../mail/envelope.ts";
import type { Mailbox, OpenMail } from "../mail/mailbox.ts";
import type { Running, RunningSession } from "../mail/running.ts";
import type { Outbox, SendRefusal, Sent } from "./outbox.ts";
import type { Presence } from "./presence.ts";

/** How a waiting ask ended. */
export type AskOutcome =
	| { outcome: "answered"; id: string; to: string; reply: OpenMail }
	| {
			outcome: "timed-out" | "stopped-running" | "stopped-by-user" | "withdrawn" | "taken-back" | "interrupted";
			id: string;
			to: string;
	  };

/** Why nothing was asked: the code for programs, one sentence for people. */
export interface AskRefusal {
	ok: false;
	code: SendRefusal["code"] | "already_waiting" | "not_owner" | "not_running" | "not_receiving" | "ring" | "answered";
	message: string;
}

/** What the person sees while an ask waits. */
export interface AskProgress {
	/** The record of the session that it waits for; undefined when that one could not be found just now. */
	target: RunningSession | undefined;
	waitedMs: number;
}

/** An ask that is to be sent and waited for. */
export interface Ask {
	to: string;
	message: string;
	hops: number;
	/** The caller's choice (see `Draft`): with the id of an ask that was sent before, its answer is waited for. */
	id: string | undefined;
	/** How long it waits; default: `askTimeoutMs`. */
	timeoutMs?: number;
	signal: AbortSignal | undefined;
	/** Called at once and about once a second. */
	onProgress: (progress: AskProgress) => void;
}

/** The one ask that this session may wait for (PSM-075 to 077). */
export interface Asks {
	/** Sends an ask and waits for its end; a refusal has written nothing. */
	ask(ask: Ask): Promise<AskOutcome | AskRefusal>;
	/** Whether an ask waits for this reply. */
	awaits(reply: Envelope): boolean;
	/** Gives a reply to the ask that waits for it; false when none does. */
	take(reply: OpenMail): boolean;
	/** Another mail was sent in the place of this one: an ask that waits then waits for the answer to that. */
	replaced(id: string, by: Delivered): void;
	/** Whether an ask waits. */
	readonly isWaiting: boolean;
	/** Ends the wait, for mail that interrupts it. */
	interrupt(): void;
	/** Ends the wait, at the end of the session. */
	close(): void;
}

export const askTimeoutMs = 10 * 60 * 1000;
const checkMs = 1000;
/** A target counts as gone when its record was missing twice, this far apart: a `/reload` may take it away for a moment. */
const goneMs = 2000;
/** A check that comes later than this was kept by a clock that was set, or by a machine that slept. */
const maxStepMs = 10_000;

interface AsksParts {
	mailbox: Mailbox;
	running: Running;
	outbox: Outbox;
	presence: Presence;
	/** Looks for mail now. */
	scan: () => void;
	/** Whether the mail folders can be used: without them nobody can be seen to run. */
	isUsable: () => boolean;
	/** Milliseconds since 1970. */
	now: () => number;
	/** What the asker sends mail with that needs no answer, for hints. */
	sendsWith?: string;
}

export function createAsks({
	mailbox,
	running,
	outbox,
	presence,
	scan,
	isUsable,
	now,
	sendsWith = "session_mail_send",
}: AsksParts): Asks {
	let waiting: { mail: Delivered; finish: (reply: OpenMail | "closed" | "interrupted") => void } | undefined;

	/**
	 * Whether this session's wait closes a ring of waiting sessions, and its ticket is the latest in it (design D13): then a
	 * chain of earlier waits leads from the target back to this session.
	 */
	function mustWithdraw(target: string, ticket: number): boolean {
		const mine = { ticket, address: mailbox.address };
		const met = new Set<string>();
		const chain = [target];
		for (let next = chain.pop(); next !== undefined; next = chain.pop()) {
			if (next === mailbox.address) return true;
			if (met.has(next)) continue;
			met.add(next);
			const earlier = waitsOf(next).filter((wait) => !isLater({ ticket: wait.ticket, address: wait.from }, mine));
			chain.push(...earlier.map((wait) => wait.to));
		}
		return false;
	}

	/** On whom a session waits, itself or by programs in its shell. */
	function waitsOf(from: string): { from: string; to: string; ticket: number }[] {
		const session = running.find(from);
		if (session === undefined) return [];
		const ofShell = running.shellWaits(from).map(({ to, ticket }) => ({ from, to, ticket }));
		if (session.waitingOn === "") return ofShell;
		// A copy that knows no tickets was there before.
		return [{ from, to: session.waitingOn, ticket: session.x.ticket ?? Number.NEGATIVE_INFINITY }, ...ofShell];
	}

	function awaits({ kind, from, in_reply_to }: Envelope): boolean {
		if (kind !== "reply" || waiting === undefined) return false;
		const { id, to } = waiting.mail.envelope;
		return from === to && in_reply_to.includes(id);
	}

	/** Whether an ask is back before its recipient claimed it. When the disk does not let it, it stays there. */
	function takeBack(sent: Delivered): boolean {
		try {
			return mailbox.retract(sent);
		} catch {
			return false;
		}
	}

	/** Whether a person has taken it back. */
	function isTakenBack({ name }: Delivered): boolean {
		try {
			return mailbox.isTakenBack(name);
		} catch {
			return false;
		}
	}

	/** Whom an ask goes to, or why it cannot be made now. */
	function recipientOf({ to, message, hops, id }: Ask): { ok: true; address: string } | AskRefusal {
		if (waiting !== undefined) {
			return refuse("already_waiting", "another ask of this session is waiting; wait for its answer first");
		}
		if (!presence.isOwner()) {
			return refuse(
				"not_owner",
				"another process has this session open and gets its mail, so no answer would come here",
			);
		}
		const earlier = mailbox.sentBefore(id);
		if (earlier?.kind === "ask" && !mailbox.awaits(earlier.id)) {
			return refuse("answered", `the ask ${earlier.id} was sent before, and its answer has come as mail`);
		}
		const found = outbox.resolve(to);
		if (!found.ok) return found;
		if (message.trim() === "") return refuse("empty", "the message is empty");
		const { address } = found;
		const limit = earlier === undefined ? outbox.hopRefusal(hops) : undefined;
		if (limit !== undefined) return limit;
		const target = running.find(address);
		if (target === undefined) {
			const hint = earlier === undefined ? `${sendsWith} leaves a message for it` : "the ask sent before waits there";
			return refuse("not_running", `${address} is not running; ${hint}`);
		}
		if (target.x.receiving === false) {
			return refuse("not_receiving", `${address} takes no mail now; ${sendsWith} leaves a message for it`);
		}
		if (target.x.paused === true) {
			return refuse("not_receiving", `${address} is paused by its user; ${sendsWith} leaves a message for it`);
		}
		return outbox.notAccepted(address, "ask", id) ?? found;
	}

	async function ask(asked: Ask): Promise<AskOutcome | AskRefusal> {
		const found = recipientOf(asked);
		if (!found.ok) return found;
		const { address } = found;
		const ticket = now();
		try {
			presence.update({ waitingOn: address, ticket });
			if (mustWithdraw(address, ticket)) {
				return refusedRing(address);
			}
			const { message, hops, id } = asked;
			const sent = outbox.send({ to: address, kind: "ask", body: message, hops, id });
			if (!sent.ok) return sent;
			return await answerTo(sent, ticket, asked);
		} finally {
			waiting = undefined;
			presence.update({ waitingOn: "", ticket: undefined });
		}
	}

	/** Waits for the end of an ask that was sent. */
	function answerTo(
		sent: Sent,
		ticket: number,
		{ timeoutMs = askTimeoutMs, signal, onProgress }: Ask,
	): Promise<AskOutcome | AskRefusal> {
		const target = sent.envelope.to;
		return new Promise((resolve) => {
			let checkedAt = now();
			let waitedMs = 0;
			let missingSinceMs: number | undefined;
			/** The mail whose answer is waited for: another one once a person has changed it. */
			const current = () => waiting?.mail ?? sent;
			const asked = () => ({ id: current().envelope.id, to: target });
			const finish = (end: AskOutcome | AskRefusal) => {
				clearInterval(timer);
				signal?.removeEventListener("abort", stop);
				resolve(end);
			};
			const stop = () => finish({ outcome: "stopped-by-user", ...asked() });
			waiting = {
				mail: sent,
				finish(reply) {
					if (reply === "closed") stop();
					else if (reply === "interrupted") finish({ outcome: "interrupted", ...asked() });
					else finish({ outcome: "answered", ...asked(), reply });
				},
			};
			const check = () => {
				// Not the difference to the start: a clock that is set must neither end the wait nor prolong it.
				waitedMs += Math.min(Math.max(0, now() - checkedAt), maxStepMs);
				checkedAt = now();
				const session = running.find(target);
				if (session === undefined && isUsable()) missingSinceMs ??= waitedMs;
				else missingSinceMs = undefined;
				// An answer that was written just before the end still counts.
				scan();
				if (isTakenBack(current())) finish({ outcome: "taken-back", ...asked() });
				else if (missingSinceMs !== undefined && waitedMs - missingSinceMs >= goneMs) {
					finish({ outcome: "stopped-running", ...asked() });
				} else if (waitedMs >= timeoutMs) {
					finish({ outcome: "timed-out", ...asked() });
				} else if (mustWithdraw(target, ticket)) {
					finish(takeBack(current()) ? refusedRing(target) : { outcome: "withdrawn", ...asked() });
				} else onProgress({ target: session, waitedMs });
			};
			const timer = setInterval(check, checkMs);
			if (signal?.aborted === true) stop();
			else signal?.addEventListener("abort", stop);
			check();
		});
	}

	return {
		ask,
		awaits,
		take(reply) {
			if (waiting === undefined || !awaits(reply.envelope)) return false;
			waiting.finish(reply);
			return true;
		},
		replaced(id, by) {
			if (waiting?.mail.envelope.id === id) waiting.mail = by;
		},
		get isWaiting() {
			return waiting !== undefined;
		},
		interrupt: () => waiting?.finish("interrupted"),
		close() {
			waiting?.finish("closed");
		},
	};
}

function refusedRing(target: string): AskRefusal {
	return refuse("ring", `${target} is itself waiting for this session, directly or through others`);
}

function isLater(a: { ticket: number; address: string }, b: { ticket: number; address: string }): boolean {
	return a.ticket === b.ticket ? a.address > b.address : a.ticket > b.ticket;
}

function refuse(code: AskRefusal["code"], why: string): AskRefusal {
	return { ok: false, code, message: `Nothing was sent: ${why}.` };
}
