import { join } from "node:path";
import type {
	AgentSettledEvent,
	ExtensionAPI,
	ExtensionContext,
	SessionShutdownEvent,
	SessionStartEvent,
	TurnEndEvent,
	TurnEndEventResult,
} from "@earendil-works/pi-coding-agent";
import { canonicalAddress, isAddress, isPassingAddress, uuidOf } from "../mail/address.ts";
import { boxesOf, makeBoxes } from "../mail/boxes.ts";
import { type OpenCall, openCallStore } from "../mail/call-store.ts";
import type { Delivered } from "../mail/deliver.ts";
import { type Disk, errorMessage } from "../mail/disk.ts";
import type { Control } from "../mail/envelope.ts";
import { mayInterrupt } from "../mail/interrupt-from.ts";
import { type Mailbox, type OpenMail, openMailbox, type SentCopy } from "../mail/mailbox.ts";
import type { Processes } from "../mail/process.ts";
import { ensureRoot } from "../mail/root.ts";
import { openRunning, type Running, type ShellWait } from "../mail/running.ts";
import { recordPath } from "../mail/running-folder.ts";
import { openSettings, projectSettingsPath } from "../mail/settings.ts";
import { signsFolder } from "../mail/signs.ts";
import { dayMs } from "../mail/time.ts";
import { mayWake } from "../mail/wake-on.ts";
import { type Answers, createAnswers } from "./answers.ts";
import { type Asks, createAsks } from "./asks.ts";
import { type ByHand, createByHand } from "./by-hand.ts";
import { type Calls, detachedCalls, type PolicyParts, unusedPolicy } from "./calls.ts";
import { createRunControl } from "./control.ts";
import { endLastLine, isBehindFile, openConversation, savedEntries } from "./conversation.ts";
import { createFooter, footerText } from "./footer.ts";
import { createGate } from "./gate.ts";
import { type Arrival, createHandover } from "./handover.ts";
import { createHops } from "./hops.ts";
import { createInbox } from "./inbox.ts";
import { createLedger, type MailDetails, type Note, noteType, takenMailOf } from "./ledger.ts";
import { createMessages } from "./messages.ts";
import { createOutbox, type Outbox, type SendRefusal } from "./outbox.ts";
import { createOverview, type Overview } from "./overview.ts";
import { createPresence } from "./presence.ts";
import { pruneInSlices, type WhileAlone } from "./pruning.ts";
import { takeInLeftOvers } from "./recovery.ts";
import { createRest } from "./rest.ts";
import { createResults } from "./results.ts";
import { createSessions, type Sessions } from "./sessions.ts";
import { createUpkeep } from "./upkeep.ts";
import { createWarnings, isStale, tell } from "./warnings.ts";

/** What a session needs of the machine. Tests pass their own. */
export interface Machine {
	disk: Disk;
	processes: Processes;
	/** Milliseconds since 1970. */
	now: () => number;
	/** The mail root (see `root.ts`). */
	root: () => string;
	/** Path of the settings file (see `settings.ts`). */
	settingsFile: () => string;
	whileAlone: WhileAlone;
}

/** Offers a mail to other extensions before it is shown; true when one took it over. */
export type Announce = (mail: OpenMail, requests: readonly SentCopy[]) => boolean;

/** A Pi session with its mailbox, from `session_start` to `session_shutdown`. */
export interface MailSession {
	readonly mailbox: Mailbox;
	readonly running: Running;
	readonly outbox: Outbox;
	readonly asks: Asks;
	/** Its mail, and the sessions around it, as a person sees them. */
	readonly overview: Overview;
	readonly sessions: Sessions;
	/** What a person does with its mail. */
	readonly byHand: ByHand;
	/** The calls of its model; undefined where the settings name none that may be suspended. */
	readonly calls: Calls | undefined;
	/** The hop count of the current turn. */
	readonly hops: number;
	/** Whether this process receives the session's mail, and not another one that has it open. */
	readonly isOwner: boolean;
	/** False while mail is switched off. */
	readonly isReceiving: boolean;
	/** Whether its user keeps it from running. */
	readonly isPaused: boolean;
	/** Why new mail is looked for instead of watched for; undefined while it is watched for, and in print mode. */
	readonly unwatchedBecause: string | undefined;
	/** A request of another extension, to an address, or with `quiet` a message; `id` is its choice (see `Draft`). */
	request(to: string, body: string, id: string | undefined, quiet: boolean): Delivered | SendRefusal;
	/** Answers one open ask now. */
	answerAsk(id: string, text: string): ReturnType<Answers["answerAsk"]>;
	/**
	 * Claims and announces all mail that waits; false when not all of it could be, or this process does not receive the
	 * session's mail, or not yet.
	 */
	scan(): boolean;
	/** What to keep beside the result of an ask that this mail answered. */
	detailsOf(mail: OpenMail): MailDetails;
	/** Notes a mail that enters no entry of its own. */
	noteTaken(mail: OpenMail): void;
	/** Switches mail off, or on again. Throws when the session's file does not take that: then nothing is changed. */
	receive(isOn: boolean): void;
	/** Does what a person wants of it. Throws as `receive` does. */
	control(control: Control): void;
	/** Removes the folders of closed sessions whatever their age; `done` hears how many. */
	prune(done: (count: number) => void): void;
	/** Shows in the footer what changed. */
	refresh(): void;

	resourcesDiscovered(): void;
	input(): void;
	agentStarted(): void;
	/** Before each request to the model. */
	context(): void;
	/** The model has written, and a tool begins. */
	toolStarted(): void;
	turnEnded(event: TurnEndEvent): TurnEndEventResult | undefined;
	settled(event: AgentSettledEvent): void;
	renamed(name: string | undefined): void;
	shutDown(event: SessionShutdownEvent): void;
}

/** How long after an error of the machine something is tried again. */
const retryMs = 30_000;

/**
 * Opens the mailbox of the session that just started and begins to receive. Throws when it can have none: the mail root
 * cannot be used, or its id cannot be an address.
 */
export function openSession(
	pi: ExtensionAPI,
	ctx: ExtensionContext,
	start: SessionStartEvent,
	announce: Announce,
	machine: Machine,
	openCalls?: (parts: PolicyParts) => Calls,
): MailSession {
	const { disk, now } = machine;
	const id = ctx.sessionManager.getSessionId();
	if (!isAddress(id) || isPassingAddress(id))
		throw new Error(`the session id "${id}" cannot be an address; start Pi with another --session-id`);
	const address = canonicalAddress(id);
	const say = createWarnings(ctx);
	const root = machine.root();
	ensureRoot(disk, root);
	const settings = openSettings({ disk, file: machine.settingsFile(), now, warn: say });
	const isDurable = () => settings.read().durability === "durable";
	const mailbox = openMailbox({ disk, root, address, now, isDurable });
	warnIfOpenToOthers(disk, mailbox.folder, say);
	const upkeep = createUpkeep({
		disk,
		root,
		mailbox,
		now: () => performance.now(),
		onMended: () => inbox.rewatch(),
		say: (text) => tell(ctx, text),
	});
	// What else goes wrong while the folders are out of order comes from that.
	const warn = (text: string) => {
		if (upkeep.isUsable()) say(text);
	};
	const running = openRunning({
		disk,
		root,
		processes: machine.processes,
		now,
		warn: (path, why) => warn(`${path}: ${why}`),
	});

	// Before the parts, whose timers read it.
	/** In print and JSON mode a run that mail starts would make the prompt fail (design D20). */
	const canWake = ctx.mode === "tui" || ctx.mode === "rpc";
	let isOwner = false;
	/** Whether what earlier processes left is taken in: until then nothing is handed over, to keep the order. */
	let isReady = false;
	/** Whether another process has had the session, and what it added is not read yet. */
	let isBehind = false;
	let isClosed = false;
	/** Ends the bulk work that is under way. */
	const cancels: (() => void)[] = [];
	/** The last entry before the run; undefined while none runs. */
	let runStart: { leaf: string | null } | undefined;
	/** By a clock that nobody sets, as all pauses. */
	let repliesNotBefore = 0;
	/** Which mail may start a run. */
	let { wakeOn, interruptFrom } = settings.read();
	/** When files of settings were changed, at the last look. */
	const lastChanged = new Map<string, number | undefined>();
	/** The asks that programs in this session's shell wait for, at the last look. */
	let shellWaits: readonly ShellWait[] = [];
	/** How many calls of this session wait for a decision. */
	let toDecide = 0;
	/** Nobody will ever resume the session. */
	let isOver = false;

	const conversation = openConversation(pi, ctx, () => runControl.runRequested());
	const ledger = createLedger(address);
	ledger.read(conversation.entries());
	const footer = createFooter(ctx);
	const hops = createHops();
	const gate = createGate(guarded(opened));
	const outbox = createOutbox({ mailbox, running, hopLimit: () => settings.read().hopLimit, isDurable, now });
	const presence = createPresence(
		running,
		address,
		{
			...{ name: pi.getSessionName(), cwd: ctx.cwd, state: "idle" as const, waitingOn: "", hops: 0 },
			...{ wakeOn, interruptFrom, accepts: ["control"], ...receiving() },
		},
		warn,
	);
	const asks = createAsks({ mailbox, running, outbox, presence, scan: guarded(pump), isUsable: upkeep.isUsable, now });
	const inbox = createInbox(mailbox, (mail) => answers.setAside(mail), warn, lookIntoShell);
	const looked = [
		...[root, mailbox.folder, mailbox.newFolder, signsFolder(mailbox.folder, "waiting")],
		...[recordPath(root, address), machine.settingsFile()],
	];
	const rest = createRest(disk, looked, now);
	const store = openCallStore(disk, mailbox.folder);
	const results = createResults({ mailbox, store, now, warn });
	const messages = createMessages({
		mailbox,
		running,
		hasSeenResult: ledger.hasSeenResult,
		endedCall: store.ended,
		warn,
	});
	const runControl = createRunControl({
		pi,
		ctx,
		address,
		now,
		since: now(),
		ledger,
		asks,
		calls: () => calls,
		isRunning: () => runStart !== undefined,
		stopsWriting: () => settings.read().interruptCompletions === true,
		note,
		onPaused() {
			presence.update(receiving());
			setImmediate(guarded(pump));
		},
	});
	const nameOf = (from: string) => running.find(from)?.name;
	const handover = createHandover({
		mailbox,
		inbox,
		ledger,
		conversation,
		requestsOf: messages.requestsOf,
		messageOf: messages.messageOf,
		answersAsk: asks.take,
		isTakenOver,
		isOff,
		isPaused: () => ledger.isPaused,
		hasSeenResult: ledger.hasSeenResult,
		control: runControl.receive,
		mayInterrupt: (mail) => mayInterrupt(interruptFrom, mail, () => nameOf(mail.from)),
		onInterrupt: runControl.interrupt,
		mayWake: (mail) => mayWake(wakeOn, mail, () => nameOf(mail.from)),
		onWake: hops.arrived,
		onQuiet: (count) => (runStart === undefined ? hops.shown(count) : hops.arrived(count)),
		now: () => performance.now(),
		warn,
	});
	const answers = createAnswers({
		mailbox,
		ledger,
		branch: () => ctx.sessionManager.getBranch(),
		note,
		warn,
		say,
	});

	const calls = openCalls?.({
		address,
		folder: mailbox.folder,
		disk,
		now,
		hops: () => hops.count,
		maxCalls: () => settings.read().toolPolicy?.maxCalls ?? 1,
		mayDetach: () => isOwner && isReady && canWake,
		hasMail() {
			if (!isOwner || !isReady) return false;
			inbox.look();
			return handover.hasNext || (!isOff() && inbox.waitingCount > 0);
		},
		open: noteOpenCall,
		end(call) {
			const isDone = isOver || results.end(call);
			// Later: whoever waits for this call hears of that first, and a session that ends starts no run for it.
			setImmediate(guarded(pump));
			return isDone;
		},
		ended: store.ended,
		pathOf: store.pathOf,
		changed: guarded(refresh),
		tell(call, text) {
			const isTold = results.tell(call, text);
			guarded(pump)();
			return isTold;
		},
		isOver: () => isOver,
		isRunning: (name) =>
			outbox.resolve(name).ok && running.list().some((other) => other.name === name || other.address === name),
		askApprover(ticket, name, text) {
			const id = uuidOf(`ask the approver of ${ticket}`);
			const sent = outbox.send({ id, to: name, kind: "message", body: text, hops: hops.count });
			// The name may be that of another session by now: the one that was asked is who decides.
			if (!sent.ok && sent.code !== "id_used") warn(`${name} could not be asked to decide: ${sent.message}`);
		},
		root,
		running,
		waitsForApproval(tickets, count) {
			presence.update({ approvals: tickets.length === 0 ? undefined : [...tickets] });
			toDecide = count;
			guarded(refresh)();
		},
		notify(text) {
			if (!isStale(ctx) && ctx.hasUI) ctx.ui.notify(text, "info");
		},
		warn,
	});
	const overview = createOverview({ disk, root, mailbox, running, ledger });
	const sessions = createSessions({ disk, root, mailbox, ledger, overview });
	const byHand = createByHand({
		mailbox,
		inbox,
		ledger,
		answers,
		handover,
		noteTaken,
		isClaimed: (name) => disk.entry(join(boxesOf(root, address).cur, name)) !== undefined,
		refusal: () => {
			if (!isOwner) return "another process has this session open and receives its mail";
			return isReady && upkeep.isUsable()
				? undefined
				: "this session does not receive mail just now; try again in a moment";
		},
		pump: guarded(pump),
	});

	try {
		// Asked before the record is ours: that of another process means that this one was not the last to have the session.
		const wasOurs = running.find(address)?.pid === machine.processes.self.pid;
		isOwner = presence.isOwner();
		// Until its record stood, another session could prune its folder as that of a closed one.
		makeBoxes(disk, boxesOf(root, address));
		const isReload = start.reason === "reload";
		// What another process added before a /reload, this one's entries lack as much as they did then.
		if (isOwner && isReload && isBehindFile(ctx.sessionManager)) takeOver(!wasOurs);
		else if (isOwner) recover(!isReload);
		if (canWake) inbox.watch(guarded(pump), guarded(sweep));
	} catch (error) {
		end(false);
		throw error;
	}

	/** Mail that arrives, a gate that opens, a run that settled, an ask that waits: all of it ends here. */
	function pump(): void {
		if (upkeep.isUsable()) lookForMail();
		calls?.mailCame();
		saveState();
		refresh();
	}

	function isAtRest(): boolean {
		const mails = inbox.waitingCount + handover.claimedCount + handover.unsavedCount;
		// A program that is killed changes nothing on the disk.
		const isShellQuiet = shellWaits.length === 0;
		return isOwner && isReady && upkeep.isWell && inbox.isReadable && mails === 0 && !answers.hasOpen && isShellQuiet;
	}

	/** What is done every second. While nothing is under way it costs six looks at when something changed. */
	function sweep(): void {
		if (isAtRest() && rest.isUndisturbed()) {
			saveState();
			refresh();
			return;
		}
		rest.note();
		pump();
	}

	/** Whether a file may say something else than at the last look. */
	function isNew(file: string): boolean {
		const changed = changedOrUnknown(disk, file);
		// One that was just changed may be half saved.
		const isSettled = changed === undefined || Math.abs(now() - changed) > settlingMs;
		if (changed === lastChanged.get(file) && isSettled) return false;
		lastChanged.set(file, changed);
		return true;
	}

	/** Keeps what others read of the settings true. */
	function lookAtSettings(): void {
		const isOwnNew = isNew(machine.settingsFile());
		if (calls === undefined && (isNew(projectSettingsPath(ctx.cwd)) || isOwnNew)) {
			const unused = unusedPolicy(machine, ctx);
			if (unused !== undefined) say(`${unused.what}: ${unused.mend}`);
		}
		if (!isOwnNew) return;
		({ wakeOn, interruptFrom } = settings.read());
		presence.update({ wakeOn, interruptFrom });
	}

	/** In one line, since it is said at each start. */
	function sayWhatCannotApply(): void {
		const [first, ...others] = (calls?.problems() ?? []).filter(({ isMaybeMeant }) => isMaybeMeant !== true);
		if (first === undefined) return;
		say(
			others.length === 0
				? `toolPolicy: ${first.what}`
				: `${others.length + 1} parts of toolPolicy cannot apply: /mailbox doctor names them`,
		);
	}

	function isOff(): boolean {
		return !ledger.isReceiving || ledger.isPaused;
	}

	function noteOpenCall(call: OpenCall): boolean {
		try {
			store.open(call);
			return true;
		} catch (error) {
			warn(
				`the call of ${call.tool} is waited for, since the disk did not take that it goes on: ${errorMessage(error)}`,
			);
			return false;
		}
	}

	/** Nothing of them becomes mail. */
	function forgetCalls(): void {
		for (const { id } of store.listOpen(() => {})) store.close(id);
	}

	function lookForMail(): void {
		lookAtSettings();
		const wasOwner = isOwner;
		isOwner = presence.isOwner();
		if (isOwner && !wasOwner) takeOver(true);
		if (isOwner) showShellWait();
		if (!isOwner || !isReady) return;
		if (answers.hasOpen && performance.now() >= repliesNotBefore) {
			repliesNotBefore = performance.now() + retryMs;
			answers.retry();
		}
		let hasMore = false;
		// In print mode replies stay where they are, unless an ask waits for one of them.
		if (!ctx.isIdle()) hasMore = (canWake || asks.isWaiting) && handover.whenBusy();
		else if (canWake && gate.isOpen) {
			const wasPaused = ledger.isPaused;
			hasMore = handover.whenIdle();
			// When mail has ended the pause just now, what waited comes first: the next look has it.
			if (!wasPaused) runControl.goOn();
		} else inbox.look();
		if (hasMore) setImmediate(guarded(pump));
	}

	function lookIntoShell(): readonly ShellWait[] {
		shellWaits = running.shellWaits(address);
		return shellWaits;
	}

	/** Says in the record on whom a program in this session's shell waits; an ask of the session itself comes first. */
	function showShellWait(): void {
		if (asks.isWaiting) return;
		const [wait] = lookIntoShell();
		presence.update({ waitingOn: wait?.to ?? "", ticket: wait?.ticket });
	}

	/**
	 * Says in the record what mail of this run carries, for its shell. At the end of a run it stays: what the run has started
	 * and left behind must not count anew.
	 */
	function showHops(): void {
		presence.update({ hops: hops.count });
	}

	/** No prompt came, or the one that came started no run: what mail starts now is its own. */
	function opened(): void {
		if (ctx.isIdle()) hops.settled();
		pump();
	}

	/** Another process has had this session. What it added is in the session's file, and not in this process. */
	function takeOver(isRestart: boolean): void {
		isReady = false;
		isBehind = true;
		savedEntries(ctx.sessionManager.getSessionFile()).then(
			(entries) =>
				guarded(() => {
					ledger.include(entries);
					isBehind = false;
					// What the other process had answered, this one still awaits.
					mailbox.miscounted();
					presence.update(receiving());
					recover(isRestart);
				})(),
			(error) =>
				guarded(() => {
					// Without what it holds, mail could enter twice: the next look takes over again.
					isOwner = false;
					warn(`the session's file cannot be read, so no mail is received yet: ${errorMessage(error)}`);
				})(),
		);
	}

	/** Takes in what earlier processes left; receives from then on, and prunes. */
	function recover(isRestart: boolean): void {
		// First, and at once: a run that settles before must not answer what was answered already.
		if (isRestart) guarded(answers.settleRestart)();
		calls?.takeInLeft();
		const areCallsEnded = results.endLeft(
			(id) => calls?.views().some((call) => call.id === id) === true,
			(ticket) => calls?.notMade(ticket),
		);
		const done = (hasFailed: boolean) => {
			isReady = true;
			guarded(pump)();
			if (hasFailed || !areCallsEnded) retryLater(() => recover(false));
			else startPruning(settings.read().pruneAfterDays * dayMs, () => {});
		};
		cancels.push(takeInLeftOvers({ mailbox, ledger, handover, answers, warn }, isRestart, done));
	}

	function retryLater(action: () => void): void {
		const timer = setTimeout(guarded(action), retryMs).unref();
		cancels.push(() => clearTimeout(timer));
	}

	function startPruning(
		olderThanMs: number | undefined,
		done: (count: number) => void,
		whileAlone = machine.whileAlone,
	): void {
		const options = { disk, root, self: address, running, now, olderThanMs };
		cancels.push(pruneInSlices(options, whileAlone, warn, done));
	}

	function isTakenOver(arrival: Arrival): boolean {
		if (!announce(arrival, arrival.requests)) return false;
		hops.arrived(arrival.envelope.hops);
		// Without the note it stays open, and is announced once more at the next start.
		noteTaken(arrival);
		return true;
	}

	function noteTaken(mail: Pick<OpenMail, "envelope" | "name">): void {
		note({ address, type: "taken", mail: takenMailOf(mail) });
	}

	function note(content: Note): void {
		endLastLine(ctx.sessionManager.getSessionFile());
		pi.appendEntry(noteType, content);
		ledger.read(conversation.entries());
	}

	function receiving(): { receiving: false | undefined; paused: true | undefined } {
		return { receiving: ledger.isReceiving ? undefined : false, paused: ledger.isPaused || undefined };
	}

	function refresh(): void {
		const counts = {
			pending: isOwner ? inbox.waitingCount + inbox.onHoldCount + handover.claimedCount : 0,
			read: ledger.readCount - handover.unsavedCount,
			awaiting: mailbox.awaitingCount(),
			calls: detachedCalls(calls).length,
			toDecide,
		};
		footer.show(footerText(counts, { isReceiving: ledger.isReceiving, isPaused: ledger.isPaused }));
	}

	function saveState(save = mailbox.saveState): void {
		// Another process gets the answers to what this one sends.
		if (!isOwner) mailbox.miscounted();
		try {
			save();
		} catch (error) {
			warn(`the counts could not be saved, and are taken from the disk at the next start: ${errorMessage(error)}`);
		}
	}

	/** For callbacks: after the end of the session they do nothing, and an error of ours does not end Pi. */
	function guarded(action: () => void): () => void {
		return () => {
			if (isClosed) return;
			try {
				action();
			} catch (error) {
				if (isStale(ctx)) end(false);
				else warn(errorMessage(error));
			}
		};
	}

	function end(keepRecord: boolean): void {
		isClosed = true;
		for (const cancel of cancels) cancel();
		calls?.close(false);
		asks.close();
		inbox.close();
		gate.close();
		presence.end(keepRecord);
	}

	return {
		mailbox,
		running,
		outbox,
		asks,
		overview,
		sessions,
		byHand,
		calls,
		get hops() {
			return hops.count;
		},
		get isOwner() {
			return isOwner;
		},
		get isReceiving() {
			return ledger.isReceiving;
		},
		get isPaused() {
			return ledger.isPaused;
		},
		get unwatchedBecause() {
			return inbox.unwatchedBecause;
		},
		request(to, body, id, quiet) {
			const refused = quiet ? undefined : outbox.notAccepted(canonicalAddress(to), "request", id);
			if (refused !== undefined) return refused;
			const count = runStart === undefined ? 0 : hops.count;
			const sent = mailbox.deliver({ to, kind: quiet ? "message" : "request", body, hops: count, id, quiet });
			refresh();
			return sent;
		},
		answerAsk(ask, text) {
			if (isOwner && !isBehind) return answers.answerAsk(ask, text, hops.count);
			// It may be answered already, and this process does not know.
			const message =
				"Nothing was sent: another process has, or had until now, this session open and answers its mail.";
			return { ok: false, code: "second_process", message };
		},
		scan() {
			if (!isOwner || !isReady || !upkeep.isUsable()) return false;
			const isComplete = handover.claimAll();
			guarded(pump)();
			return isComplete;
		},
		detailsOf: messages.detailsOf,
		noteTaken,
		receive(isOn) {
			if (isOn !== ledger.isReceiving) note({ address, type: "receiving", isOn });
			presence.update(receiving());
			guarded(pump)();
		},
		control: runControl.perform,
		// Also while another process prunes: a person wants to hear what became of it.
		prune: (done) => startPruning(undefined, done, (_root, work) => work(() => {})),
		refresh,

		resourcesDiscovered() {
			gate.resourcesLoaded();
			guarded(sayWhatCannotApply)();
		},
		input() {
			gate.prompted();
			hops.userInput();
			if (runStart !== undefined) guarded(showHops)();
		},
		agentStarted() {
			if (runStart !== undefined) return;
			runStart = { leaf: ctx.sessionManager.getLeafId() };
			runControl.runStarted();
			hops.started();
			handover.runStarted();
			presence.update({ state: "busy", hops: hops.count });
		},
		context() {
			runControl.modelAsked();
			guarded(handover.conclude)();
			guarded(showHops)();
			guarded(refresh)();
		},
		toolStarted: runControl.toolStarted,
		turnEnded({ outcome, toolResults, entries }) {
			if (runControl.turnEnded(toolResults.length > 0)) return undefined;
			if (!isOwner || !isReady || outcome !== "completed" || toolResults.length === 0) return undefined;
			// A turn whose tool the user stopped counts as completed for Pi.
			if (ctx.signal?.aborted === true || !upkeep.isUsable()) return undefined;
			endLastLine(ctx.sessionManager.getSessionFile());
			const { messages, wakes } = handover.atTurnEnd();
			if (messages.length === 0) return undefined;
			const added = messages.map((message) => ({ type: "custom_message" as const, ...message }));
			return { entries: [...entries, ...added], ...(wakes ? { continue: true } : {}) };
		},
		settled({ aborted }) {
			guarded(handover.conclude)();
			const isCut = runControl.settled(aborted);
			guarded(() => {
				// What the other process has answered must not be answered again; the rest is settled as after a restart.
				if (!isOwner || isBehind || isCut) return;
				const takeUnread = () => (isReady && upkeep.isUsable() ? handover.afterStop() : []);
				const run = { runStart: runStart?.leaf ?? null, aborted, hops: hops.count, takeUnread };
				const held = answers.settleRun(run);
				if (held > 0) ctx.ui.notify(heldNotice(held), "info");
			})();
			runStart = undefined;
			hops.settled();
			gate.settled();
			presence.update({ state: "idle" });
			setImmediate(guarded(pump));
			guarded(refresh)();
		},
		renamed: (name) => presence.update({ name }),
		shutDown({ reason }) {
			// Nobody will ever resume a session without a file.
			isOver = reason !== "reload" && ctx.sessionManager.getSessionFile() === undefined;
			guarded(() => calls?.close(reason === "reload"))();
			if (isOver) guarded(forgetCalls)();
			if (isOver) guarded(answers.settleEnd)();
			if (isOwner && reason !== "reload") guarded(handover.end)();
			guarded(() => saveState(mailbox.closeState))();
			footer.show(undefined);
			end(reason === "reload");
		},
	};
}

/** How long after a change the settings are read at each look. */
const settlingMs = 5000;

function changedOrUnknown(disk: Disk, path: string): number | undefined {
	try {
		return disk.changed(path);
	} catch {
		return undefined;
	}
}

function warnIfOpenToOthers(disk: Disk, folder: string, warn: (text: string) => void): void {
	if (process.platform === "win32" || ((disk.mode(folder) ?? 0) & 0o077) === 0) return;
	warn(`other users can look into this session's mailbox; run: chmod 700 ${folder}`);
}

function heldNotice(held: number): string {
	return held === 1
		? "The mail request in this run is held: your next run that completes answers it."
		: `The ${held} mail requests in this run are held: your next run that completes answers them.`;
}
