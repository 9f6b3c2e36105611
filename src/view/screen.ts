import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { errorMessage, errorReason } from "../mail/disk.ts";
import type { Control } from "../mail/envelope.ts";
import type { Findings } from "../mail/finding.ts";
import type { RunningSession } from "../mail/running.ts";
import { field, pathField } from "../mail/text.ts";
import type { Holdable } from "../session/by-hand.ts";
import type { CallView, PendingTicket } from "../session/calls.ts";
import { canAnswer, type Listed, type MailStatus } from "../session/overview.ts";
import type { MailSession } from "../session/session.ts";
import { inSlices } from "../session/slices.ts";
import { createCallPage } from "./call-page.ts";
import { wrap } from "./columns.ts";
import { type Drawn, drawFrame, type Frame, type Row, type Theme } from "./frame.ts";
import { type Input, type Key, type Keybindings, readKey } from "./keys.ts";
import { createLists, type Item, type Items } from "./lists.ts";
import {
	type Memory,
	type OpenedCall,
	type OpenedMail,
	type OpenedTicket,
	type Place,
	type Tab,
	tabs,
} from "./memory.ts";
import { createPage } from "./page.ts";
import { textRow } from "./rows.ts";

/** What the screen is done with: it is closed, or a dialog of Pi has to be shown before it is shown again. */
export type Action =
	| { type: "close" }
	| { type: "write"; to: string }
	| { type: "reply" | "edit" | "drop" | "delete"; listed: Listed }
	| { type: "control"; to: RunningSession; control: Control }
	| { type: "cancelAttached" }
	| { type: "decide"; ticket: PendingTicket; isApproved: boolean };

/** What the screen shows, and what draws it. */
export interface ScreenParts {
	session: Pick<MailSession, "overview" | "sessions" | "mailbox" | "byHand" | "refresh" | "calls">;
	memory: Memory;
	diagnose: () => Findings;
	/** The terminal: how high it is, what writes to it as it is, and what draws it again. */
	terminal: { readonly rows: number; write(data: string): void };
	requestRender: () => void;
	theme: Theme;
	keybindings: Keybindings;
	done: (action: Action) => void;
}

/** The screen as Pi draws it; `dispose` ends its timer and all that it reads. */
export type Screen = Awaited<ReturnType<Parameters<ExtensionContext["ui"]["custom"]>[0]>> & {
	handleInput(data: string): void;
	dispose(): void;
};

/** A picture of what is opened. */
type Opened = Pick<Frame, "title" | "count" | "rowAt" | "keys">;

/** Between two looks at the folders, while the screen is open. */
const refreshMs = 1000;
/**
 * How long a slice of bulk work may hold the event loop. Slices of several works and a picture may come in one turn, and the
 * memory that they use be collected in it.
 */
const sliceMs = 4;
/** The keys that do something with a mail; what is pasted is none of them. */
const mailKeys: ReadonlySet<string> = new Set("rxeydph");
/** What is done with a call that waits for a decision. */
const ticketKeys = ["a approve", "n deny", "y copy id"];
/** What Pi shows below the screen. */
const footerRows = 4;

/** Whether a tab is a text to scroll, in which nothing is selected. */
function isText(tab: Tab): boolean {
	return tab === "doctor";
}

/** Makes the screen; it looks at the folders about once a second until it is disposed. */
export function createScreen(parts: ScreenParts): Screen {
	const { memory, theme, session } = parts;
	const { overview, mailbox } = session;
	const shownTabs: readonly Tab[] = tabs.filter(
		(tab) => (tab !== "calls" && tab !== "approvals") || session.calls !== undefined,
	);
	const cancels = new Map<string, () => void>();
	let isOver = false;
	let problem: string | undefined;
	/** The place of the next picture, and what it was drawn of. */
	let drawn: Drawn = { rows: [], top: 0, page: 1 };
	let isPictureWanted = false;
	const lists = createLists({
		session,
		memory,
		diagnose: parts.diagnose,
		work,
		isWorking: (kind) => cancels.has(kind),
		drawSoon,
	});
	const page = createPage(overview, (reading, done) => work("thread", reading, () => {}, done));
	const { calls } = session;
	const callPage = calls && createCallPage(calls, (reading) => work("result", reading, drawSoon, () => {}));
	/** How many rows what is opened had in the last picture. */
	let pageLength = 0;
	const unwatch = calls?.watch(() => {
		if (memory.tab === "calls") drawSoon();
	});

	if (memory.showsClosed) lists.readClosed();
	const timer = setInterval(refresh, refreshMs);
	timer.unref();
	refresh();

	/** Runs bulk work in slices, one of a kind at a time, until the screen is over. */
	function work<T>(kind: string, generator: Generator<T, unknown>, step: (item: T) => void, done: () => void): void {
		cancels.get(kind)?.();
		let hasFailed = false;
		const end = () => {
			cancels.delete(kind);
			if (isOver) return;
			if (!hasFailed) done();
			draw();
		};
		const fail = (text: string) => {
			hasFailed = true;
			problem = `The mailbox ${pathField(mailbox.folder)} cannot be read: ${text}.`;
		};
		cancels.set(kind, inSlices(generator, step, end, fail, sliceMs));
	}

	function refresh(): void {
		if (isOver || cancels.has("list")) return;
		let { version } = overview;
		work(
			"list",
			overview.relist(),
			() => {
				// The inbox is there before what was sent.
				if (overview.version !== version) drawSoon();
				version = overview.version;
			},
			() => {
				problem = undefined;
				lists.relisted();
			},
		);
	}

	function draw(): void {
		if (!isOver) parts.requestRender();
	}

	/** Draws once more soon, since something was not read in time for this picture. */
	function drawSoon(): void {
		if (isPictureWanted) return;
		isPictureWanted = true;
		setImmediate(() => {
			isPictureWanted = false;
			draw();
		});
	}

	// The picture.

	function frame(width: number): Frame {
		const { opened, tab } = memory;
		const said = memory.message ?? (problem === undefined ? undefined : { text: problem, isError: true });
		const message = said && {
			text: field(said.text, 500),
			colour: said.isError ? ("error" as const) : ("success" as const),
		};
		const base = { tabs: shownTabs.map((name) => titleOf(name)), tab: shownTabs.indexOf(tab), message };
		if (opened !== undefined) {
			const shown =
				"listed" in opened
					? mailFrame(opened, width)
					: "call" in opened
						? callFrame(opened, width)
						: ticketFrame(opened, width);
			pageLength = shown.count;
			return { ...base, ...shown, selected: -1, top: opened.top, empty: "" };
		}
		const place = memory.places[tab];
		const items = lists.itemsOf(tab, width);
		follow(place, items);
		return {
			...base,
			title: titleRow(),
			count: items.count,
			rowAt: (index, room) => items.at(index)?.row(room) ?? textRow(""),
			selected: isText(tab) || items.count === 0 ? -1 : place.selected,
			top: place.top,
			empty: items.empty,
			keys: listKeys(items.at(place.selected)),
		};
	}

	function mailFrame(opened: OpenedMail, width: number): Opened {
		// It may have been claimed or taken back since.
		const box = opened.listed.box === "sent" ? "sent" : "inbox";
		const { name } = opened.listed;
		// By its name, before which a claim may put something: another sender may have used the same id.
		opened.listed = overview[box].find((listed) => listed.name.endsWith(name)) ?? opened.listed;
		const rows = page.rowsOf(opened.listed, width);
		const keys = ["↑↓ scroll", ...keysFor(opened.listed), "Esc back"];
		return { title: undefined, count: rows.length, rowAt: (index) => rows[index] ?? textRow(""), keys };
	}

	function callFrame(opened: OpenedCall, width: number): Opened {
		const rows = callPage?.rowsOf(opened, width);
		const { call } = opened;
		const isWaiting = call.finished === undefined;
		return {
			title: isWaiting ? textRow(`Waiting for ${call.id}. Esc ends the wait, and not the call.`, "accent") : undefined,
			count: rows?.count ?? 0,
			rowAt: (index) => rows?.at(index) ?? textRow(""),
			keys: ["↑↓ scroll", ...callKeys(call), isWaiting ? "Esc stop waiting" : "Esc back"],
		};
	}

	function ticketFrame(opened: OpenedTicket, width: number): Opened {
		const rows = callPage?.rowsOf(opened, width);
		return {
			title: undefined,
			count: rows?.count ?? 0,
			rowAt: (index) => rows?.at(index) ?? textRow(""),
			keys: ["↑↓ scroll", ...ticketKeys, "Esc back"],
		};
	}

	function titleOf(tab: Tab): string {
		const name = tab.charAt(0).toUpperCase() + tab.slice(1);
		return tab === "inbox" && lists.unread > 0 ? `${name} (${lists.unread} unread)` : name;
	}

	function titleRow(): Row | undefined {
		const { query } = memory.places[memory.tab];
		if (memory.isSearching) return textRow(`/ ${field(query, 200)}▏`, "accent");
		if (memory.picksFor !== undefined) return textRow("Write to whom?", "accent");
		return query === "" ? undefined : textRow(`/ ${field(query, 200)}`, "accent");
	}

	/** Keeps the selected one selected when the list has changed around it, and the cursor off the headings. */
	function follow(place: Place, items: Items): void {
		const sent = place === memory.places.sent && memory.sentId !== undefined && overview.find("sent", memory.sentId);
		if (sent) {
			place.key = sent.name;
			memory.sentId = undefined;
		}
		if (place.key !== undefined && items.at(place.selected)?.key !== place.key) {
			const at = items.placeOf(place.key);
			if (at >= 0) place.selected = at;
		}
		place.selected = Math.max(0, Math.min(place.selected, items.count - 1));
		if (items.at(place.selected)?.isHeading === true && items.count > place.selected + 1) place.selected++;
		place.key = items.at(place.selected)?.key;
	}

	function listKeys(item: Item | undefined): string[] {
		if (memory.isSearching) return ["type to search", "Enter keep", "Esc clear"];
		const leave = memory.picksFor === undefined ? "q close" : "Esc back";
		// What both keys do first while only what was searched for is shown.
		const last = memory.places[memory.tab].query === "" ? leave : "Esc clear";
		const ends = memory.picksFor === undefined ? [`1-${shownTabs.length} Tab tabs`, last] : [last];
		switch (memory.tab) {
			case "sessions":
				return [
					"↑↓",
					"Enter write",
					...(memory.picksFor === undefined ? controlKeys(item?.running) : []),
					memory.showsClosed ? "c hide closed" : "c closed ones",
					"y copy id",
					"/ search",
					...ends,
				];
			case "calls": {
				const all = hasAttached() ? ["X cancel all that the model waits for"] : [];
				return ["↑↓", ...openKeys(item?.call), ...callKeys(item?.call), ...all, ...ends];
			}
			case "approvals":
				return ["↑↓", ...(item?.ticket === undefined ? [] : ["Enter open", ...ticketKeys]), ...ends];
			case "doctor":
				return ["↑↓ scroll", "Enter look again", ...ends];
			default:
				return ["↑↓", "Enter open", ...keysFor(item?.listed), ...(canSearch() ? ["/ search"] : []), ...ends];
		}
	}

	function canSearch(): boolean {
		return memory.tab === "inbox" || memory.tab === "sent" || memory.tab === "sessions";
	}

	function controlKeys(running: RunningSession | undefined): string[] {
		if (running === undefined) return [];
		const pause = running.x.paused === true ? "p go on" : "p pause";
		return [pause, ...(running.state === "busy" ? ["s stop run"] : []), "x cancel calls"];
	}

	/** What a person does with a session that runs; what cannot be undone is asked about first. */
	function onSession(key: string, to: RunningSession): void {
		if (key === "s" && to.state !== "busy") {
			say("It is idle: there is no run to end.", true);
			return;
		}
		const pause = to.x.paused === true ? "resume" : "pause";
		const op = key === "p" ? pause : key === "s" ? "stop" : "cancel";
		parts.done({ type: "control", to, control: { op } });
	}

	function openKeys(call: CallView | undefined): string[] {
		if (call?.isDetached !== true) return [];
		return [call.finished === undefined ? "Enter wait" : "Enter open"];
	}

	function callKeys(call: CallView | undefined): string[] {
		if (call === undefined) return [];
		return call.finished === undefined ? ["x cancel", "y copy id"] : ["y copy id"];
	}

	function hasAttached(): boolean {
		return calls?.views().some(({ isDetached }) => !isDetached) === true;
	}

	function onCall(key: string, { id, isDetached }: CallView): void {
		if (key === "y") copy(id);
		if (key !== "x") return;
		if (calls?.cancel([id]).length !== 1) say("It has ended already.", true);
		else say(isDetached ? "Cancelled: what it gave so far comes as mail." : "Cancelled: the model is told so.");
	}

	function onTicket(key: string, ticket: PendingTicket): void {
		if (key === "y") copy(ticket.id);
		else if (key === "a" || key === "n") parts.done({ type: "decide", ticket, isApproved: key === "a" });
	}

	/** What can be done with a mail: only that is shown. */
	function keysFor(listed: Listed | undefined): string[] {
		const write = "w write";
		if (listed === undefined) return [write];
		const { word } = overview.status(listed);
		if (listed.box === "sent") return [...(word === "queued" ? ["x retract", "e edit"] : []), write, "y copy id"];
		if (word === "dead") return ["d delete", write];
		// A session writes nothing to itself.
		if (isOfItself(listed)) return [write, "y copy id"];
		const reply = canAnswer(overview.glance(listed)?.kind, word) ? "r answer" : "r new request";
		const hold = word === "on hold" ? ["h release"] : holdable(listed, word) === undefined ? [] : ["h hold"];
		return [reply, ...(canDrop(listed, word) ? ["p drop"] : []), ...hold, write, "y copy id"];
	}

	/** The result of a call of this session, or control mail, which nobody answers. */
	function isOfItself(listed: Listed): boolean {
		const kind = overview.glance(listed)?.kind;
		return kind === "result" || kind === "control";
	}

	function canDrop(listed: Listed, word: MailStatus): boolean {
		const kind = overview.glance(listed)?.kind;
		return canAnswer(kind, word) || (kind === "message" && (word === "unread" || word === "on hold"));
	}

	/** The kind of a mail that can be put on hold: what was claimed is on its way, and replies and what is no mail never wait. */
	function holdable(listed: Listed, word: MailStatus): Holdable | undefined {
		const kind = overview.glance(listed)?.kind;
		if (word !== "unread" || listed.box !== "new") return undefined;
		return kind === "request" || kind === "ask" || kind === "message" ? kind : undefined;
	}

	// The keys.

	function handle(data: string): void {
		const input = readKey(data, parts.keybindings);
		if (input === undefined) return;
		memory.message = undefined;
		if (memory.opened !== undefined) onPage(memory.opened, input);
		else if (memory.isSearching) onSearch(input);
		else onList(input);
	}

	function onPage(opened: OpenedMail | OpenedCall | OpenedTicket, input: Input): void {
		if ("text" in input) {
			if (input.text === "q") memory.opened = undefined;
			else if ("call" in opened) onCall(input.text, opened.call);
			else if ("ticket" in opened) onTicket(input.text, opened.ticket);
			else onMail(input.text, opened.listed);
			return;
		}
		const height = drawn.page;
		const last = Math.max(0, pageLength - height);
		const steps: Partial<Record<Key, number>> = { up: -1, down: 1, pageUp: -height, pageDown: height };
		if (input.key === "cancel" || input.key === "backspace") memory.opened = undefined;
		else if (input.key === "home") opened.top = 0;
		else if (input.key === "end") opened.top = last;
		else opened.top = Math.max(0, Math.min(last, opened.top + (steps[input.key] ?? 0)));
	}

	function onSearch(input: Input): void {
		const place = memory.places[memory.tab];
		if ("text" in input) search(place, place.query + input.text);
		else if (input.key === "backspace") search(place, [...place.query].slice(0, -1).join(""));
		else if (input.key === "enter") memory.isSearching = false;
		else if (input.key === "cancel") {
			memory.isSearching = false;
			search(place, "");
		} else move(input.key);
	}

	function search(place: Place, query: string): void {
		place.query = query.slice(0, 200);
		place.selected = 0;
		place.key = undefined;
		place.top = 0;
	}

	function onList(input: Input): void {
		const place = memory.places[memory.tab];
		const items = lists.itemsOf(memory.tab, 80);
		// A key is for what was drawn, also when the list has changed since; for nothing when that is gone.
		const { key: drawnKey } = place;
		follow(place, items);
		const item = drawnKey === undefined || place.key === drawnKey ? items.at(place.selected) : undefined;
		if ("key" in input) {
			if (input.key === "cancel") back(place);
			else if (input.key === "enter") choose(item);
			else if (input.key === "nextTab") turn(1);
			else if (input.key === "previousTab") turn(-1);
			else move(input.key);
			return;
		}
		const { text } = input;
		const tab = shownTabs[Number(text) - 1];
		if (tab !== undefined) show(tab);
		else if (text === "q") back(place);
		else if (text === "/") memory.isSearching = canSearch();
		else if (text === "c" && memory.tab === "sessions") toggleClosed();
		else if (text === "X" && memory.tab === "calls") {
			if (hasAttached()) parts.done({ type: "cancelAttached" });
			else say("The model waits for no call.", true);
		} else if (/^[xy]$/.test(text) && item?.call !== undefined) onCall(text, item.call);
		else if (/^[any]$/.test(text) && item?.ticket !== undefined) onTicket(text, item.ticket);
		else if (/^[psx]$/.test(text) && item?.running !== undefined) {
			// Not where a person only looks for a recipient.
			if (memory.picksFor === undefined) onSession(text, item.running);
		} else if (text === "y" && item?.address !== undefined) copy(item.address);
		else if (text === "w" && item?.address !== undefined) parts.done({ type: "write", to: item.address });
		else onMail(text, item?.listed);
	}

	function onMail(key: string, listed: Listed | undefined): void {
		if (key === "w") pick();
		if (listed === undefined || !mailKeys.has(key)) return;
		const isSent = listed.box === "sent";
		const isDead = !isSent && overview.status(listed).word === "dead";
		if (key === "y") copyOf(listed);
		else if (key === "d")
			isDead ? parts.done({ type: "delete", listed }) : say("Only a dead mail can be deleted.", true);
		else if (key === "x") isSent ? retract(listed) : say("Only a mail that this session sent can be taken back.", true);
		else if (key === "e")
			isSent ? parts.done({ type: "edit", listed }) : say("Only a mail that this session sent can be edited.", true);
		else if (isDead) say("It is dead: it was never read, and d deletes it.", true);
		else if (isOfItself(listed)) say("Nobody waits for an answer: it is a result, or says what to do.", true);
		else if (isSent) say("It is a mail that this session sent: w writes to its recipient.", true);
		else if (key === "h") hold(listed);
		else parts.done({ type: key === "r" ? "reply" : "drop", listed });
	}

	function say(text: string, isError = false): void {
		memory.message = { text, isError };
	}

	function move(key: Key): void {
		const place = memory.places[memory.tab];
		const items = lists.itemsOf(memory.tab, 80);
		follow(place, items);
		const steps: Partial<Record<Key, number>> = {
			up: -1,
			down: 1,
			pageUp: -drawn.page,
			pageDown: drawn.page,
			home: -items.count,
			end: items.count,
		};
		const step = steps[key];
		if (step === undefined) return;
		if (isText(memory.tab)) {
			// The picture keeps it where there is text.
			place.top += step;
			return;
		}
		let at = Math.max(0, Math.min(items.count - 1, place.selected + step));
		const isFree = (index: number) => items.at(index)?.isHeading !== true;
		if (!isFree(at)) at += step < 0 && at > 0 && isFree(at - 1) ? -1 : 1;
		if (items.at(at) === undefined) return;
		place.selected = at;
		place.key = items.at(at)?.key;
	}

	function turn(step: number): void {
		const { length } = shownTabs;
		show(shownTabs[(shownTabs.indexOf(memory.tab) + step + length) % length] ?? "inbox");
	}

	function show(tab: Tab): void {
		memory.tab = tab;
		memory.picksFor = undefined;
	}

	function back(place: Place): void {
		if (place.query !== "") search(place, "");
		else if (memory.picksFor !== undefined) show(memory.picksFor);
		else parts.done({ type: "close" });
	}

	function pick(): void {
		const from = memory.tab;
		memory.opened = undefined;
		show("sessions");
		search(memory.places.sessions, "");
		memory.picksFor = from;
	}

	function choose(item: Item | undefined): void {
		if (memory.tab === "doctor") lists.examine();
		else if (item?.listed !== undefined) memory.opened = { listed: item.listed, top: 0 };
		else if (item?.call !== undefined) {
			if (item.call.isDetached) memory.opened = { call: item.call, top: 0 };
			else say("The model waits for it: its result comes in the conversation.", true);
		} else if (item?.ticket !== undefined) memory.opened = { ticket: item.ticket, top: 0 };
		else if (item?.address !== undefined) parts.done({ type: "write", to: item.address });
		else if (memory.tab === "sessions" && item !== undefined)
			say("That is this session: it cannot write to itself.", true);
	}

	function toggleClosed(): void {
		memory.showsClosed = !memory.showsClosed;
		if (memory.showsClosed) lists.readClosed();
	}

	function copyOf(listed: Listed): void {
		const id = overview.glance(listed)?.id ?? "";
		if (id === "") say("It has no id that can be read.", true);
		else copy(id);
	}

	function copy(id: string): void {
		// The terminal puts it into the clipboard, also over ssh, when it knows the sequence (OSC 52).
		parts.terminal.write(`\u001b]52;c;${Buffer.from(id).toString("base64")}\u0007`);
		say(`Copied, if the terminal allows it: ${id}`);
	}

	function hold(listed: Listed): void {
		const { byHand } = session;
		const { word } = overview.status(listed);
		const kind = holdable(listed, word);
		if (word !== "on hold" && kind === undefined) {
			say("Only a request, ask or message that is unread and not claimed yet can be put on hold.", true);
			return;
		}
		const { ok, message } = kind === undefined ? byHand.release(listed) : byHand.hold(listed, kind);
		say(message, !ok);
		refresh();
	}

	function retract(listed: Listed): void {
		if (overview.status(listed).word === "retracted") {
			say("It was taken back already.", true);
			return;
		}
		const found = overview.whole(listed);
		if (!("envelope" in found)) {
			say(`Nothing was taken back: ${found.problem}.`, true);
			return;
		}
		const { envelope } = found;
		const who = overview.nameOf(envelope.to);
		if (mailbox.retract({ envelope, name: listed.name }))
			say(`Taken back: ${who} had not claimed it and will not see it.`);
		else if (mailbox.isTakenBack(listed.name)) say("It was taken back already.", true);
		else say(`Not taken back: ${who} has claimed it already.`, true);
		session.refresh();
		refresh();
	}

	return {
		render(width) {
			try {
				drawn = drawFrame(frame(width), width, Math.max(3, parts.terminal.rows - footerRows), theme);
			} catch (error) {
				const text = `The mailbox cannot be shown: ${errorReason(error)}.`;
				drawn = { ...drawn, rows: wrap(field(text, 500), width).map((row) => theme.fg("error", row)) };
			}
			if (memory.opened === undefined) memory.places[memory.tab].top = drawn.top;
			else memory.opened.top = drawn.top;
			return drawn.rows;
		},
		handleInput(data) {
			if (isOver) return;
			try {
				handle(data);
			} catch (error) {
				say(`That did not work: ${errorMessage(error)}.`, true);
			}
			draw();
		},
		invalidate() {},
		dispose() {
			isOver = true;
			unwatch?.();
			clearInterval(timer);
			for (const cancel of cancels.values()) cancel();
		},
	};
}
