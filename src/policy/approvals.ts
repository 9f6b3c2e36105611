import { randomUUID } from "node:crypto";
import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { Turn } from "../calls/engine.ts";
import { errorMessage } from "../mail/disk.ts";
import { field, pathField } from "../mail/text.ts";
import type { PolicyParts } from "../session/calls.ts";
import { askInDialog, type Said } from "./dialog.ts";
import type { ToolCall } from "./pattern.ts";
import { approverText, closedText, grantText, lapsedText, lateRefusalText, leftText, theUser } from "./ticket-words.ts";
import { type Decision, type NewTicket, openTicketStore, type Ticket } from "./tickets.ts";

/** Who waits for decisions about the calls of a session, and what becomes of a decision that nobody waits for. */
export interface Approvals {
	/** What earlier processes have left is this one's from now on, which receives the session's mail. */
	takeInLeft(): void;
	/** Opens a ticket, and tells its approver. Throws the disk's errors. */
	ask(ticket: NewTicket): Ticket;
	/** Waits until a ticket is decided, the run is stopped, or the wait is put aside. */
	wait(ticket: Ticket, ctx: ExtensionContext, how: HowToWait): Promise<Outcome>;
	/** Uses the decision that was waited for, once. False when it was used, or told as mail. */
	take(ticket: Ticket): boolean;
	/** Uses an approval that nobody waited for. */
	takeGrant(call: ToolCall): boolean;
	/** The call that was asked about is not made. */
	withdraw(ticket: Ticket): void;
	/** Puts the waits aside whose calls cannot be handed back. */
	interrupt(): void;
	/** Ends all waits. Their tickets stay, unless nobody will resume the session: who decides later gives a grant. */
	end(): void;
}

/** What ends a wait beside a decision. */
export interface HowToWait {
	/** Stops it, with the run. */
	signal: AbortSignal | undefined;
	/** For a call that can be handed back, and then waits on by itself. */
	turn?: Turn | undefined;
	/** How long it lasts at most, in milliseconds. */
	limitMs?: number | undefined;
}

/** How a wait ended. */
export type Outcome = { ticket: Ticket } | "stopped" | "put aside";

interface ApprovalsParts {
	session: PolicyParts;
	/** How long a question waits, in milliseconds. */
	ttlMs: () => number;
	/** The person allows such calls for the session, or for good. Throws when that cannot be written. */
	allow: (allowed: NonNullable<Said["allows"]>, ticket: Ticket) => void;
	/** Where the person's settings lie, for people. */
	settingsFile: string;
	warn: (text: string) => void;
}

interface Waiter {
	ticket: Ticket;
	/** Whether an interrupt hands its call back. */
	hasTurn: boolean;
	end: (outcome: Outcome) => void;
}

const lookMs = 1000;
/** How often the owner looks for what another process of the session has left. */
const leftMs = 60_000;
/** Whoever waits for a decision has it within this time. */
const noticedMs = 10_000;
const expireMs = 60 * 60 * 1000;

export function createApprovals({ session, ttlMs, allow, settingsFile, warn }: ApprovalsParts): Approvals {
	const store = openTicketStore(session.disk, session.folder, session.now);
	/** What each tracked ticket is waited for by; nobody, when the wait was put aside or another process made the call. */
	const tracked = new Map<string, Waiter | undefined>();
	let timer: NodeJS.Timeout | undefined;
	let leftTimer: NodeJS.Timeout | undefined;
	/** What was told here. */
	const told = new Set<string>();
	let expiredAt = Number.NEGATIVE_INFINITY;
	let dialogs: Promise<unknown> = Promise.resolve();
	/** Closes the dialog about a call that its model does not wait for: it gives way to the next one. */
	let giveWay = () => {};
	let isOver = false;
	/** How many calls wait since an earlier process. It is said at the next look: at a start Pi still puts the conversation below it. */
	let leftToTell = 0;

	function track(id: string, waiter: Waiter | undefined): void {
		tracked.set(id, waiter);
		timer ??= setInterval(look, lookMs).unref();
	}

	function showWaits(): void {
		const waiting = [...tracked].flatMap(([id, waiter]) => (waiter === undefined ? [] : [id]));
		session.waitsForApproval(waiting, tracked.size);
	}

	function wait(ticket: Ticket, ctx: ExtensionContext, { signal, turn, limitMs }: HowToWait): Promise<Outcome> {
		return new Promise((resolve) => {
			const over = new AbortController();
			// It keeps the process of a session without a screen, where nothing else does while it waits.
			const limit = limitMs === undefined ? undefined : setTimeout(() => end("put aside"), limitMs);
			const stop = () => end("stopped");
			function end(outcome: Outcome): void {
				if (over.signal.aborted) return;
				over.abort(outcome);
				clearTimeout(limit);
				signal?.removeEventListener("abort", stop);
				// One that is put aside is told of as mail, and so is one that the disk does not let be cancelled now.
				const isLeft = outcome === "put aside" || (outcome === "stopped" && !cancel(ticket.id, "the run was stopped"));
				if (isLeft) track(ticket.id, undefined);
				else tracked.delete(ticket.id);
				showWaits();
				resolve(outcome);
			}
			track(ticket.id, { ticket, hasTurn: turn !== undefined, end });
			showWaits();
			if (signal?.aborted === true) stop();
			else signal?.addEventListener("abort", stop);
			const putAside = () => (turn === undefined ? end("put aside") : turn.giveBack("the user put the question aside"));
			if (ctx.hasUI && !over.signal.aborted) showDialog(ticket, ctx, over.signal, turn?.isBack, putAside);
		});
	}

	/** One dialog at a time, for as long as the model waits; when it does not wait at all, until the next one. */
	function showDialog(
		ticket: Ticket,
		ctx: ExtensionContext,
		over: AbortSignal,
		isBack: AbortSignal | undefined,
		putAside: () => void,
	): void {
		const closing = new AbortController();
		const { signal } = closing;
		const close = () => {
			const stillWaits = !over.aborted || (over.reason === "put aside" && !isOver);
			if (!signal.aborted && stillWaits) session.notify(closedText(ticket, over.aborted || isBack?.aborted === true));
			closing.abort();
		};
		over.addEventListener("abort", close);
		giveWay();
		giveWay = isBack?.aborted === true ? close : () => {};
		isBack?.addEventListener("abort", close);
		dialogs = dialogs
			.then(async () => {
				if (signal.aborted) return;
				const said = await askInDialog(ctx, ticket, settingsFile, signal);
				if (signal.aborted) return;
				if (said === undefined) {
					putAside();
					close();
					return;
				}
				if (said.allows !== undefined) allowed(said.allows, ticket);
				const outcome = store.decide(ticket.id, decision(said.action, said.reason));
				if (!outcome.ok) warn(outcome.message);
				look();
			})
			.catch((error) => {
				warn(`the question about ${field(ticket.tool)} was put aside: ${errorMessage(error)}`);
				if (!signal.aborted) putAside();
				close();
			});
	}

	function allowed(what: NonNullable<Said["allows"]>, ticket: Ticket): void {
		try {
			allow(what, ticket);
			if (what !== "this call") {
				const rule = `allow ${field(what.pattern, 300)}`;
				session.notify(`Added to toolPolicy.permissions in ${pathField(settingsFile)}: ${rule}`);
			}
		} catch (error) {
			warn(`the rule holds for this session only, since the settings could not be changed: ${errorMessage(error)}`);
		}
	}

	/** Cancels a ticket of a call that is over; false when the disk does not let it. */
	function cancel(id: string, reason: string): boolean {
		try {
			store.decide(id, decision("cancel", reason));
			store.close(id);
			return true;
		} catch {
			return false;
		}
	}

	function cancelAll(): void {
		try {
			for (const { id } of [...store.listPending(), ...store.listDecided()]) cancel(id, "the session has ended");
		} catch {
			// They go with its folder.
		}
	}

	function decision(action: Decision["action"], reason?: string): Decision {
		const by = { kind: "person" as const, who: theUser };
		return { decision_id: randomUUID(), action, by, at: session.now(), ...(reason !== undefined && { reason }) };
	}

	/** Looks whether tracked tickets are decided, and tells of those that nobody waits for. */
	function look(): void {
		expire();
		const before = tracked.size;
		for (const [id, waiter] of [...tracked]) {
			try {
				const ticket = store.find(id);
				if (ticket === undefined) {
					// Somebody has removed it: no decision comes any more.
					waiter?.end({ ticket: waiter.ticket });
					tracked.delete(id);
				} else if (ticket.state === "pending") continue;
				else if (waiter !== undefined) waiter.end({ ticket });
				else if (ticket.state === "closed" || tell(ticket)) tracked.delete(id);
			} catch (error) {
				warn(`the decision about ${id} cannot be read: ${errorMessage(error)}`);
			}
		}
		if (tracked.size < before) showWaits();
		if (leftToTell > 0) session.notify(leftText(leftToTell));
		leftToTell = 0;
		if (tracked.size === 0) unwatch();
	}

	/** As mail; an approval that is not used then waits as a grant. True when nothing of it is left to do. */
	function tell(ticket: Ticket): boolean {
		// Another process, which waits for it, has used it.
		if (!store.giveOver(ticket.id)) return false;
		const isApproved = ticket.decision?.action === "resume";
		if (!say(ticket, isApproved ? grantText(ticket) : lateRefusalText(ticket))) return false;
		told.add(ticket.id);
		if (!isApproved || ticket.resume === "use_decision_as_tool_result") store.close(ticket.id);
		return true;
	}

	function say({ id, tool }: Ticket, text: string): boolean {
		return session.tell({ id, tool: field(tool), state: "decided" }, text);
	}

	function expire(): void {
		try {
			if (performance.now() - expiredAt < Math.min(expireMs, ttlMs())) return;
			expiredAt = performance.now();
			const { cancelled, lapsed } = store.expire(session.now(), ttlMs());
			for (const { id } of cancelled) if (!tracked.has(id)) track(id, undefined);
			// An approval that was never used holds no longer than a question. One that was told is not told again.
			for (const ticket of lapsed) {
				if (tracked.get(ticket.id) !== undefined || !say(ticket, lapsedText(ticket))) continue;
				store.close(ticket.id);
				if (tracked.delete(ticket.id)) showWaits();
			}
		} catch {
			// It is looked at again.
		}
	}

	/** Another process of this session may have ended, whose calls nobody waits for since. */
	function lookForLeft(): void {
		expire();
		try {
			const isLeft = ({ id, decision }: Ticket) =>
				!tracked.has(id) && !told.has(id) && Math.abs(session.now() - (decision?.at ?? 0)) > noticedMs;
			for (const { id } of store.listDecided().filter(isLeft)) track(id, undefined);
		} catch {
			// It is looked at again.
		}
	}

	function askApprover(ticket: Ticket): void {
		const { id, approver } = ticket;
		if (approver !== undefined) session.askApprover(id, approver, approverText(ticket));
	}

	function unwatch(): void {
		clearInterval(timer);
		timer = undefined;
	}

	return {
		takeInLeft() {
			leftTimer ??= setInterval(lookForLeft, leftMs).unref();
			try {
				const pending = store.listPending();
				const isNew = pending.some(({ id }) => !tracked.has(id));
				for (const { id } of [...pending, ...store.listDecided()]) if (!tracked.has(id)) track(id, undefined);
				showWaits();
				if (isNew) leftToTell = pending.length;
				// A process may have ended before it could.
				for (const ticket of pending) askApprover(ticket);
			} catch (error) {
				warn(`calls that were asked about before cannot be read: ${errorMessage(error)}`);
			}
		},
		ask(ticket) {
			expire();
			const opened = store.open(ticket);
			askApprover(opened);
			return opened;
		},
		wait,
		take: ({ id }) => store.take(id),
		takeGrant({ tool, args }) {
			expire();
			return store.takeGrant(tool, args) !== undefined;
		},
		withdraw({ id }) {
			if (!cancel(id, "the call was not made")) track(id, undefined);
		},
		interrupt() {
			for (const waiter of [...tracked.values()]) if (waiter?.hasTurn === false) waiter.end("put aside");
		},
		end() {
			isOver = true;
			for (const waiter of [...tracked.values()]) waiter?.end("put aside");
			tracked.clear();
			if (session.isOver()) cancelAll();
			unwatch();
			clearInterval(leftTimer);
		},
	};
}
