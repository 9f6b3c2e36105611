import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { type Control, stampInName } from "../mail/envelope.ts";
import type { OpenMail } from "../mail/mailbox.ts";
import type { Asks } from "./asks.ts";
import type { Calls } from "./calls.ts";
import { type Ledger, type Note, noteType, type TakenMail, takenMailOf } from "./ledger.ts";

/** What a person does with the runs of a session, and what mail that interrupts does: pause, resume, stop, cancel, cut short. */
export interface RunControl {
	/**
	 * Does what control mail says. What has to last is noted together with the mail, and what ends with the process is done
	 * after. Throws when it cannot be noted.
	 */
	receive(mail: OpenMail): void;
	/** Does what a person wants of the session. Throws when it cannot be noted. */
	perform(control: Control): void;
	/** The model gets its turn back: whatever it waits for ends. */
	interrupt(): void;
	/** Starts a run that goes on with what was cut short, unless mail has started one. */
	goOn(): void;
	/** Pi is told to start a run: it goes on with what was cut short. */
	runRequested(): void;
	/** A run has begun. */
	runStarted(): void;
	/** The model is asked. */
	modelAsked(): void;
	/** It has written, and a tool begins. */
	toolStarted(): void;
	/** A turn ends, with or without results of tools; true when the run ends with it, and takes no more mail. */
	turnEnded(hasResults: boolean): boolean;
	/** A run has settled; true when it was cut short here, so that what is owed stays so. */
	settled(aborted: boolean): boolean;
}

interface RunControlParts {
	pi: Pick<ExtensionAPI, "sendMessage">;
	ctx: Pick<ExtensionContext, "abort" | "isIdle" | "signal">;
	address: string;
	ledger: Pick<Ledger, "isPaused" | "pausedBy">;
	asks: Pick<Asks, "interrupt">;
	/** The calls of the session's model, where they may be suspended. */
	calls: () => Calls | undefined;
	/** Milliseconds since 1970: now, and when the session was opened. */
	now: () => number;
	since: number;
	/** Whether a run goes on. */
	isRunning: () => boolean;
	/** Whether an interrupt stops a model that is writing. */
	stopsWriting: () => boolean;
	/** Adds a note to the session. Throws when that fails. */
	note: (content: Note) => void;
	/** The session was paused, or may go on. */
	onPaused: () => void;
}

export function createRunControl(parts: RunControlParts): RunControl {
	const { pi, ctx, address, ledger, asks, calls, note } = parts;
	/** Whether the model is asked and no tool runs. */
	let isWriting = false;
	/** Why this process itself ends the run: what is owed stays so, and is answered by the run that goes on with it. */
	let cut: keyof typeof goingOn | undefined;
	/** Pi was told to start a run, which has not begun. */
	let isStarting = false;
	/** What has ended a run that has yet to go on. */
	let cutShort: typeof cut;

	function runRequested(): void {
		isStarting = true;
		cutShort = undefined;
	}

	function endWaits(): void {
		calls()?.interrupt();
		asks.interrupt();
	}

	function setPaused(isOn: boolean, mail?: TakenMail): void {
		const wasPaused = ledger.isPaused;
		if (isOn === wasPaused && mail === undefined) return;
		note({ address, type: "paused", isOn, mail });
		if (isOn === wasPaused) return;
		parts.onPaused();
		if (isOn && parts.isRunning()) {
			cut = "pause";
			endWaits();
		}
		// A run that was stopped for it already goes on by another.
		else if (!isOn && cut === "pause" && ctx.signal?.aborted !== true) cut = undefined;
	}

	function perform({ op, calls: ids }: Control): void {
		switch (op) {
			case "pause":
			case "resume":
				setPaused(op === "pause");
				return;
			case "cancel":
				calls()?.cancel(ids);
				return;
			case "cancel-attached":
				calls()?.cancelAttached();
				return;
			case "stop":
				if (!ctx.isIdle()) ctx.abort();
		}
	}

	return {
		receive(mail) {
			const wanted = mail.envelope.x?.control;
			const taken = takenMailOf(mail);
			const lasts = wanted?.op === "pause" || wanted?.op === "resume";
			// One that could not be taken in before a later one was must not undo that. By a clock that was ahead, every one is later.
			const isLater = mail.name > ledger.pausedBy || stampInName(ledger.pausedBy) > parts.now() + maxAheadMs;
			if (lasts && isLater) {
				setPaused(wanted.op === "pause", taken);
				return;
			}
			note({ address, type: "taken", mail: taken });
			// What goes on now was begun after a mail that had waited for this start.
			const isMeant = Date.parse(mail.envelope.ts) >= parts.since;
			if (wanted !== undefined && !lasts && isMeant) perform(wanted);
		},
		perform,
		interrupt() {
			endWaits();
			if (!isWriting || ctx.isIdle() || !parts.stopsWriting()) return;
			cut = "interrupt";
			ctx.abort();
		},
		goOn() {
			if (cutShort === undefined || ledger.isPaused || !ctx.isIdle()) return;
			const content = goingOn[cutShort];
			runRequested();
			pi.sendMessage({ customType: noteType, content, display: true }, { triggerTurn: true });
		},
		runRequested,
		runStarted() {
			cutShort = undefined;
			// The pause came while Pi prepared the run.
			if (isStarting && ledger.isPaused) cut = "pause";
			isStarting = false;
		},
		modelAsked() {
			isWriting = true;
		},
		toolStarted() {
			isWriting = false;
		},
		turnEnded(hasResults) {
			isWriting = false;
			if (cut !== "pause") return false;
			// A last answer is one, and what it answers goes back.
			if (hasResults) ctx.abort();
			return true;
		},
		settled(aborted) {
			isWriting = false;
			const isCut = cut !== undefined && aborted;
			if (isCut) cutShort = cut;
			cut = undefined;
			return isCut;
		},
	};
}

/** A stamp further ahead is from a clock that was. A sender that was killed leaves some a minute ahead (see `state.ts`). */
const maxAheadMs = 5 * 60_000;

/** What the model is told where a run goes on that was cut short. */
const goingOn = {
	pause: "[mailbox] The user paused this session, and lets it go on now.",
	interrupt: "[mailbox] Mail that interrupts has ended your last answer. Go on.",
};
