import { join, sep } from "node:path";
import { closedAddress } from "../mail/address.ts";
import { boxesOf } from "../mail/boxes.ts";
import { type Disk, errorMessage } from "../mail/disk.ts";
import {
	awaitsAnswer,
	type Envelope,
	idInName,
	type MailKind,
	maxEnvelopeBytes,
	parseEnvelope,
} from "../mail/envelope.ts";
import { holdOf } from "../mail/hold.ts";
import type { Mailbox } from "../mail/mailbox.ts";
import { type SentStatus, sentStatus } from "../mail/progress.ts";
import { displayName } from "../mail/resolve.ts";
import type { Running, RunningSession } from "../mail/running.ts";
import { field, firstLine } from "../mail/text.ts";
import type { Ledger } from "./ledger.ts";
import { newestFirst, openFolder } from "./listing.ts";

/** A mail of this session as its folder names it: nothing of it has been read. */
export interface Listed {
	box: "new" | "cur" | "sent";
	/** The name that it was sent under. */
	name: string;
	/** Where it lies now. */
	path: string;
}

/** How a mail to this session stands, in one word. */
export type InboxStatus = "unread" | "on hold" | "read" | "answered" | "held" | "stopped" | "failed" | "dead";
export type MailStatus = InboxStatus | SentStatus;

/** What a list shows of a mail. A file that is no mail has only a `problem`. */
export interface Glance {
	id: string;
	from: string;
	to: string;
	kind: MailKind | undefined;
	/** ISO 8601. */
	ts: string;
	inReplyTo: readonly string[];
	/** The mail that this one was sent instead of. */
	replaces: string | undefined;
	/** The start of its text, as sent. */
	head: string;
	problem: string | undefined;
}

/** A mail in a thread; `listed` is undefined when it is not here any more, and `text` an answer that has no file here. */
export interface ThreadPart {
	relation: "answers" | "answered by" | "replaces" | "replaced by";
	id: string;
	listed: Listed | undefined;
	text?: string;
}

/**
 * A session's mail as a person sees it. Names are listed in slices, envelopes read only for what is shown, and nothing is
 * written but what a person asks for. Throws the disk's errors.
 */
export interface Overview {
	/** Mail to this session, newest first, as of the last `relist`. */
	readonly inbox: readonly Listed[];
	/** The copies of what it sent, newest first, as of the last `relist`. */
	readonly sent: readonly Listed[];
	/** The mail of the inbox that waits for the conversation, newest first. */
	unread(): Listed[];
	/** Grows with each `relist` that found something else. */
	readonly version: number;
	/** Lists what has changed since the last call. Undefined is a place to pause. */
	relist(): Generator<undefined>;
	/** What a list shows of a mail; undefined when it is gone by now. */
	glance(listed: Listed): Glance | undefined;
	/** Whether the next `glance` at it reads nothing. */
	hasGlance(listed: Listed): boolean;
	/** How it stands, and why when it is dead. */
	status(listed: Listed): { word: MailStatus; reason?: string };
	/** The whole mail, or why it cannot be read. */
	whole(listed: Listed): { envelope: Envelope } | { problem: string };
	/** The mails around one: what it answers, what answers it, what it replaces. Reads what was not read yet. */
	thread(listed: Listed): Generator<undefined, ThreadPart[]>;
	/** A mail of either list by the id in its name. */
	find(box: "inbox" | "sent", id: string): Listed | undefined;
	/** What a session is called: its name, of one that is closed the last that is known, otherwise the start of its id. It can be shown as it is. */
	nameOf(address: string): string;
	/** The sessions that run. Asked of the disk at most once between two calls of `relist`. */
	running(): readonly RunningSession[];
	/** Removes a mail that was set aside, with its reason. Throws when it is not. */
	removeDead(listed: Listed): void;
}

export interface OverviewParts {
	disk: Disk;
	root: string;
	mailbox: Pick<Mailbox, "address">;
	running: Running;
	ledger: Pick<Ledger, "has" | "get" | "nameOf">;
}

/** As much of a text as lists and the search know. */
const headCharacters = 2000;

export function createOverview({ disk, root, mailbox, running, ledger }: OverviewParts): Overview {
	const boxes = boxesOf(root, mailbox.address);
	const folders = {
		new: openFolder(disk, boxes.new),
		cur: openFolder(disk, boxes.cur),
		sent: openFolder(disk, boxes.sent),
	};
	let inbox: Listed[] = [];
	let sent: Listed[] = [];
	/** Those of the inbox that are not known to be in the conversation. */
	let open: Listed[] = [];
	let version = 0;
	let glances = new Map<string, Glance>();
	let byId: { inbox: Map<string, Listed>; sent: Map<string, Listed> } | undefined;
	let names = new Map<string, string>();
	/** Those of sessions that ran when they were asked for. */
	const lastNames = new Map<string, string>();
	let sessions: RunningSession[] | undefined;

	function* relist(): Generator<undefined> {
		names = new Map();
		sessions = undefined;
		const hasNew = yield* folders.new.relist();
		const hasCur = yield* folders.cur.relist();
		if (hasNew || hasCur) {
			// A mail that is claimed in between is in both lists for a moment.
			const { names: claimed, mails } = folders.cur;
			const waiting = folders.new.mails.filter((name) => !claimed.has(name));
			const found = yield* newestFirst([...waiting, ...mails], (file, index) =>
				listedIn(index < waiting.length ? "new" : "cur", file),
			);
			const foundOpen: Listed[] = [];
			for (const listed of found) {
				if (isOpen(listed)) foundOpen.push(listed);
				yield undefined;
			}
			inbox = found;
			open = foundOpen;
			changed();
		}
		if (!(yield* folders.sent.relist())) return;
		sent = yield* newestFirst(folders.sent.mails, (file) => listedIn("sent", file));
		changed();
	}

	function changed(): void {
		byId = undefined;
		version++;
	}

	function listedIn(box: Listed["box"], file: string): Listed {
		const name = file.endsWith(".retracted") ? file.slice(0, -".retracted".length) : file;
		// Not joined, which makes a whole new text of each: there may be many thousands.
		return { box, name, path: `${boxes[box]}${sep}${file}` };
	}

	function read(listed: Listed): { envelope: Envelope } | { problem: string } | undefined {
		const { path } = listed;
		if (disk.entry(path) !== "file") return undefined;
		try {
			const parsed = parseEnvelope(disk.read(path, maxEnvelopeBytes));
			return parsed.ok ? { envelope: parsed.envelope } : { problem: parsed.reason };
		} catch (error) {
			return { problem: errorMessage(error) };
		}
	}

	function glance(listed: Listed): Glance | undefined {
		// A mail keeps its name when it is claimed, and what it says.
		const known = glances.get(keyOf(listed));
		if (known !== undefined) return known;
		const found = read(listed);
		if (found === undefined) return undefined;
		const made = "envelope" in found ? glanceAt(found.envelope) : { ...noGlance, problem: found.problem };
		// What was forgotten is read again.
		if (glances.size >= maxGlances) glances = new Map();
		if (made.problem === undefined) glances.set(keyOf(listed), made);
		return made;
	}

	function unread(): Listed[] {
		return open.filter((listed) => {
			if (isDead(listed)) return false;
			// What the session knows is done with: answered by hand, or its mark is about to go.
			const known = glances.get(keyOf(listed));
			return known === undefined || !ledger.has(known);
		});
	}

	function isOpen({ box, name }: Listed): boolean {
		return box === "new" || folders.cur.names.has(`${name}.open`);
	}

	function isOnHold({ box, name }: Listed): boolean {
		return box === "new" && folders.new.names.has(holdOf(name));
	}

	function isDead({ box, name }: Listed): boolean {
		return box === "cur" && folders.cur.names.has(`${name}.reason`);
	}

	function status(listed: Listed): { word: MailStatus; reason?: string } {
		if (isDead(listed)) return { word: "dead", reason: reasonOf(listed) };
		if (isOnHold(listed)) return { word: "on hold" };
		const mail = glance(listed);
		if (mail === undefined || mail.problem !== undefined) return { word: listed.box === "sent" ? "taken" : "unread" };
		if (listed.box === "sent") return { word: sentWord(listed, mail.to) };
		const received = ledger.get(mail);
		if (received === undefined) return { word: isOpen(listed) ? "unread" : "read" };
		if (received.answer !== undefined)
			return { word: received.answer.status === "done" ? "answered" : received.answer.status };
		return { word: received.heldBy === undefined ? "read" : "held" };
	}

	function sentWord({ name }: Listed, to: string): SentStatus {
		const word = sentStatus(disk, root, boxes, { name, to }, folders.sent.names);
		// What is in no inbox any more may have been taken back since the last look.
		return word === "taken" ? sentStatus(disk, root, boxes, { name, to }) : word;
	}

	function reasonOf({ name }: Listed): string {
		try {
			return disk.read(join(boxes.cur, `${name}.reason`), maxReasonBytes).trim();
		} catch (error) {
			return errorMessage(error);
		}
	}

	function listRunning(): readonly RunningSession[] {
		sessions ??= running.list();
		return sessions;
	}

	/** The others are listed only for one that has no name. */
	function* addresses(): Generator<string> {
		for (const { address } of listRunning()) yield address;
	}

	function nameNow(address: string): string {
		// Of its own a session knows the name also while it has no record.
		const session = running.find(address);
		if (session === undefined)
			return lastNames.get(address) ?? field(ledger.nameOf(address) ?? closedAddress(address), maxNameCharacters);
		const name = displayName({ address, name: session.name }, addresses(), maxNameCharacters);
		if (!address.startsWith(name)) lastNames.set(address, name);
		return name;
	}

	function find(box: "inbox" | "sent", id: string): Listed | undefined {
		byId ??= { inbox: idsOf(inbox), sent: idsOf(sent) };
		return byId[box].get(id);
	}

	function* thread(listed: Listed): Generator<undefined, ThreadPart[]> {
		const mail = glance(listed);
		if (mail === undefined || mail.problem !== undefined) return [];
		const isSent = listed.box === "sent";
		const parts: ThreadPart[] = [];
		// A reply answers what the other side sent.
		for (const id of new Set(mail.inReplyTo)) {
			parts.push({ relation: "answers", id, listed: find(isSent ? "inbox" : "sent", id) });
		}
		if (mail.replaces !== undefined) {
			parts.push({ relation: "replaces", id: mail.replaces, listed: find(isSent ? "sent" : "inbox", mail.replaces) });
		}
		const answer = isSent ? undefined : ledger.get(mail)?.answer;
		// Replies have no copy in sent/: the session itself holds what it answered.
		if (answer !== undefined)
			parts.push({ relation: "answered by", id: answer.id, listed: undefined, text: answer.body });
		for (const other of isSent ? [...inbox, ...sent] : inbox) {
			yield undefined;
			const found = glance(other);
			if (found === undefined) continue;
			if (isSent && found.from === mail.to && found.inReplyTo.includes(mail.id)) {
				parts.push({ relation: "answered by", id: found.id, listed: other });
			}
			if (found.from === mail.from && found.replaces === mail.id) {
				parts.push({ relation: "replaced by", id: found.id, listed: other });
			}
		}
		return parts;
	}

	return {
		get inbox() {
			return inbox;
		},
		get sent() {
			return sent;
		},
		unread,
		get version() {
			return version;
		},
		relist,
		glance,
		hasGlance: (listed) => glances.has(keyOf(listed)),
		status,
		whole: (listed) => read(listed) ?? { problem: "it is not here any more" },
		thread,
		find,
		nameOf(address) {
			const name = names.get(address) ?? nameNow(address);
			names.set(address, name);
			return name;
		},
		running: listRunning,
		removeDead(listed) {
			const reason = join(boxes.cur, `${listed.name}.reason`);
			if (listed.box !== "cur" || disk.entry(reason) === undefined) throw new Error("only a dead mail can be deleted");
			if (disk.entry(join(boxes.cur, `${listed.name}.open`)) !== undefined) {
				throw new Error("it is being set aside just now; try again in a moment");
			}
			// In this order: without its reason it would be taken for a mail that was read.
			disk.remove(listed.path);
			disk.remove(reason);
		},
	};
}

/** The one line that says what a mail is about: the first that is no remark in brackets. */
export function subjectOf({ head, problem }: Glance, maxCharacters = 200): string {
	if (problem !== undefined) return field(`cannot be read: ${problem}`, maxCharacters);
	return field(firstLine(head).trim(), maxCharacters);
}

/** Whether a person can answer a mail of that kind which stands so; to any other only a new mail can be written. */
export function canAnswer(kind: MailKind | undefined, word: MailStatus): boolean {
	if (kind === undefined || !awaitsAnswer({ kind })) return false;
	return word === "unread" || word === "on hold" || word === "read" || word === "held";
}

const maxNameCharacters = 60;
const maxReasonBytes = 4096;
/** Some 50 MB at most. */
const maxGlances = 20_000;

const noGlance: Glance = {
	id: "",
	from: "",
	to: "",
	kind: undefined,
	ts: "",
	inReplyTo: [],
	replaces: undefined,
	head: "",
	problem: undefined,
};

function glanceAt(envelope: Envelope): Glance {
	const { id, from, to, kind, ts, in_reply_to, body, x } = envelope;
	const head = Buffer.from(body.slice(0, headCharacters)).toString();
	return {
		id,
		from,
		to,
		kind,
		ts,
		inReplyTo: in_reply_to,
		replaces: x?.replaces,
		head,
		problem: undefined,
	};
}

function keyOf({ box, name }: Listed): string {
	return box === "sent" ? `sent ${name}` : name;
}

function idsOf(list: readonly Listed[]): Map<string, Listed> {
	return new Map(list.map((listed) => [idInName(listed.name), listed]));
}
