import { closedAddress, shortAddress } from "../mail/address.ts";
import { worstFirst } from "../mail/doctor.ts";
import type { Finding, Findings } from "../mail/finding.ts";
import type { RunningSession } from "../mail/running.ts";
import { field } from "../mail/text.ts";
import type { CallView, PendingTicket } from "../session/calls.ts";
import type { Listed } from "../session/overview.ts";
import type { MailSession } from "../session/session.ts";
import type { ClosedSession } from "../session/sessions.ts";
import { approvalMarks } from "../session/tool-words.ts";
import type { Row } from "./frame.ts";
import type { Memory, Tab } from "./memory.ts";
import {
	callRow,
	chainText,
	findingRows,
	heading,
	mailRow,
	type SessionRow,
	sessionRow,
	shortTime,
	stateOf,
	textRow,
	ticketRow,
} from "./rows.ts";

/** An entry of a list, and what it stands for. */
export interface Item {
	key: string;
	row: (width: number) => Row;
	listed?: Listed;
	/** A session that can be written to. */
	address?: string;
	/** A session that runs, which can be paused, stopped and so on. */
	running?: RunningSession;
	call?: CallView;
	/** A call that waits for a decision. */
	ticket?: PendingTicket;
	isHeading?: boolean;
	/** What a search looks at besides the key. */
	words?: () => readonly string[];
}

/** The entries of a tab. */
export interface Items {
	count: number;
	at: (index: number) => Item | undefined;
	/** The place of a key, or -1. */
	placeOf: (key: string) => number;
	/** What says that there are none, or that they are still being read. */
	empty: string;
}

/** What there is in each tab of the screen. Throws the disk's errors. */
export interface Lists {
	/** The entries of a tab. For a moment from now their rows may read mail; what is missing then comes with the next picture. */
	itemsOf(tab: Tab, width: number): Items;
	/** The folders were listed anew: so is what was counted in others'. */
	relisted(): void;
	/** How many mails of this session were unread then. */
	readonly unread: number;
	/** Looks once more for what is wrong. */
	examine(): void;
	/** Looks once more which sessions are closed. */
	readClosed(): void;
}

export interface ListsParts {
	session: Pick<MailSession, "overview" | "sessions" | "mailbox" | "calls">;
	memory: Memory;
	diagnose: () => Findings;
	/** Does bulk work in slices, one of a kind at a time; draws at its end, and calls `done` before that unless it has failed. */
	work: <T>(kind: string, generator: Generator<T, unknown>, step: (item: T) => void, done: () => void) => void;
	/** Whether work of this kind goes on. */
	isWorking: (kind: string) => boolean;
	/** Draws once more soon, since something was not read in time for this picture. */
	drawSoon: () => void;
}

/** How long one picture may read mail; what is missing comes with the next. */
const readMs = 5;

export function createLists({ session, memory, diagnose, work, isWorking, drawSoon }: ListsParts): Lists {
	const { overview, sessions, mailbox } = session;
	let isListed = false;
	let readUntil = 0;
	let found: Search | undefined;
	let closed: ClosedSession[] | undefined;
	/** How many mails wait for each session. */
	let waiting = new Map<string, number>();
	let unread = 0;
	let findings: Finding[] | undefined;
	let isExamined = false;

	function itemsOf(tab: Tab, width: number): Items {
		readUntil = performance.now() + readMs;
		switch (tab) {
			case "inbox":
			case "sent":
				return mailItems(tab);
			case "waiting":
				return itemsIn(waitingItems(), "Nobody waits for anybody.");
			case "sessions":
				return itemsIn(sessionItems(), "No other session is running.");
			case "calls":
				return itemsIn(callItems(), "No call runs.");
			case "approvals":
				return itemsIn(approvalItems(), "No call waits for a decision.");
			case "doctor":
				return itemsIn(doctorItems(width), "Looking …");
		}
	}

	function mailItems(tab: "inbox" | "sent"): Items {
		const list = listOf(tab);
		const nothing = tab === "inbox" ? "No mail has come yet." : "Nothing was sent yet.";
		const isSearch = memory.places[tab].query !== "";
		const isReading = !isListed || (isSearch && found?.isComplete !== true);
		return {
			count: list.length,
			at: (index) => mailItem(list[index]),
			placeOf: (key) => list.findIndex((listed) => listed.name === key),
			empty: isReading ? "Reading …" : isSearch ? "Nothing has these words." : nothing,
		};
	}

	function listOf(tab: "inbox" | "sent"): readonly Listed[] {
		const list = overview[tab];
		const { query } = memory.places[tab];
		if (query.trim() === "") return list;
		const { version } = overview;
		const isSame = found?.tab === tab && found.query === query;
		// One that runs comes to its end first: with mail that comes all the time there would be none.
		if (found !== undefined && isSame && (found.version === version || isWorking("search"))) return shownOf(found);
		const before = found !== undefined && isSame ? shownOf(found) : [];
		const search: Search = { tab, query, version, before, list: [], isComplete: false };
		found = search;
		const words = wordsOf(query);
		function* look(): Generator<Listed | undefined> {
			for (const listed of list) yield isMeant(listed, words) ? listed : undefined;
		}
		work(
			"search",
			look(),
			(listed) => {
				if (listed === undefined) return;
				search.list.push(listed);
				drawSoon();
			},
			() => {
				search.isComplete = true;
			},
		);
		return shownOf(search);
	}

	function isMeant(listed: Listed, words: readonly string[]): boolean {
		const mail = overview.glance(listed);
		if (mail === undefined) return false;
		const { id, from, to, kind = "", head } = mail;
		const other = listed.box === "sent" ? to : from;
		return matches(words, [id, other, overview.nameOf(other), kind, overview.status(listed).word, head]);
	}

	function mailItem(listed: Listed | undefined): Item | undefined {
		if (listed === undefined) return undefined;
		return {
			key: listed.name,
			listed,
			row(width) {
				if (!overview.hasGlance(listed) && performance.now() > readUntil) {
					drawSoon();
					return textRow("…", "dim");
				}
				const mail = overview.glance(listed);
				if (mail === undefined) return textRow("(it is not here any more)", "dim");
				const other = listed.box === "sent" ? mail.to : mail.from;
				const who = other === "" ? "?" : overview.nameOf(other);
				return mailRow({ status: overview.status(listed), who, mail }, width);
			},
		};
	}

	function waitingItems(): Item[] {
		const awaited = sessions.awaited().flatMap((listed) => mailItem(listed) ?? []);
		const here = sessions.waiting().map(
			({ id, listed }): Item =>
				mailItem(listed) ?? {
					key: id,
					row: () => textRow(`owed to the sender of ${id}, whose file is not here any more`),
				},
		);
		const chains = sessions.chains().map(({ addresses, isRing }): Item => {
			const text = chainText({
				names: addresses.map((address) => field(overview.nameOf(address), 40)),
				isRing,
			});
			return { key: `chain ${addresses[0]}`, row: () => textRow(text, isRing ? "error" : "text") };
		});
		return [
			...headed("This session waits for an answer to", awaited),
			...headed("Waits for this session", here),
			...headed("Who waits for whom", chains),
		];
	}

	function sessionItems(): Item[] {
		const running = overview.running();
		const addresses = running.map(({ address }) => address);
		const item = (address: string, session: SessionRow): Item => ({
			key: address,
			row: (width) => sessionRow({ ...session, waiting: waitingFor(address) }, width),
			// Without the mail that waits, for which each inbox would have to be listed.
			words: () => sessionRow(session, 400).cells.map(({ text }) => text),
			...(address === mailbox.address ? {} : { address }),
		});
		// Nobody writes to itself.
		const others = running.filter(({ address }) => address !== mailbox.address || memory.picksFor === undefined);
		const items = others.map((session): Item => {
			const { address, cwd, waitingOn } = session;
			const shown = item(address, {
				name: overview.nameOf(address),
				isSelf: address === mailbox.address,
				short: shortAddress(address, addresses),
				cwd,
				state: stateOf(session),
				marks: approvalMarks(session),
				waitingOn: waitingOn === "" ? "" : overview.nameOf(waitingOn),
			});
			return { ...shown, running: session };
		});
		if (memory.showsClosed) {
			items.push(headingItem(closed === undefined ? "Closed: reading …" : `Closed: ${closed.length}`));
			for (const { address, lastActiveMs } of closed ?? []) {
				const name = overview.nameOf(address);
				const short = address.startsWith(name) ? "" : closedAddress(address);
				items.push(item(address, { name, short, state: "closed", lastActive: shortTime(lastActiveMs) }));
			}
		}
		const words = wordsOf(memory.places.sessions.query);
		if (words.length === 0) return items;
		return items.filter((item) => matches(words, [item.key, ...(item.words?.() ?? [])]));
	}

	function waitingFor(address: string): number {
		const count = waiting.get(address) ?? sessions.waitingCount(address);
		waiting.set(address, count);
		return count;
	}

	function callItems(): Item[] {
		const items = (calls: CallView[]) =>
			calls.map((call): Item => ({ key: call.id, row: (width) => callRow(call, Date.now(), width), call }));
		const live = session.calls?.views() ?? [];
		return [
			...headed("Go on by themselves", items(live.filter(({ isDetached }) => isDetached))),
			...headed("The model waits for", items(live.filter(({ isDetached }) => !isDetached))),
			...headed("Ended", items(session.calls?.recent() ?? [])),
		];
	}

	function approvalItems(): Item[] {
		return (session.calls?.tickets() ?? []).map((ticket) => ({
			key: ticket.id,
			row: (width) => ticketRow(ticket, overview.nameOf(ticket.session), Date.now(), width),
			ticket,
		}));
	}

	function doctorItems(width: number): Item[] {
		if (findings === undefined) examine();
		const rows = worstFirst(findings ?? []).flatMap((finding) => findingRows(finding, width));
		if (isExamined && rows.length === 0) rows.push(textRow("Nothing was found to say."));
		return rows.map((row, index) => ({ key: `${index}`, row: () => row }));
	}

	function examine(): void {
		const list: Finding[] = [];
		findings = list;
		isExamined = false;
		work(
			"doctor",
			diagnose(),
			(finding) => {
				if (finding !== undefined) list.push(finding);
			},
			() => {
				isExamined = true;
			},
		);
	}

	function readClosed(): void {
		function* look(): Generator<undefined> {
			closed = yield* sessions.closed();
		}
		work(
			"closed",
			look(),
			() => {},
			() => {},
		);
	}

	return {
		itemsOf,
		relisted() {
			isListed = true;
			waiting = new Map();
			unread = waitingFor(mailbox.address);
		},
		get unread() {
			return unread;
		},
		examine,
		readClosed,
	};
}

/** A search in one of the lists. */
interface Search {
	tab: Tab;
	query: string;
	/** Of the list that is searched. */
	version: number;
	/** What the same search found in the list before: it is shown until there is something new. */
	before: Listed[];
	list: Listed[];
	isComplete: boolean;
}

/** Whether all these words are in these texts, in upper or lower case. */
function matches(words: readonly string[], texts: readonly string[]): boolean {
	const text = texts.join("\n").toLowerCase();
	return words.every((word) => text.includes(word));
}

/** The words of what was typed to search for. */
function wordsOf(query: string): string[] {
	return query.toLowerCase().split(/\s+/).filter(Boolean);
}

function shownOf({ before, list, isComplete }: Search): Listed[] {
	return isComplete || before.length === 0 ? list : before;
}

function headingItem(text: string): Item {
	return { key: `heading ${text}`, row: () => heading(text), isHeading: true };
}

/** Nothing where there are none. */
function headed(title: string, items: readonly Item[]): Item[] {
	return items.length === 0 ? [] : [headingItem(title), ...items];
}

function itemsIn(items: readonly Item[], empty: string): Items {
	return {
		count: items.length,
		at: (index) => items[index],
		placeOf: (key) => items.findIndex((item) => item.key === key),
		empty,
	};
}
