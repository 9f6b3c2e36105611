import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { boxesOf } from "../../src/mail/boxes.ts";
import { parseEnvelope } from "../../src/mail/envelope.ts";
import { holdOf } from "../../src/mail/hold.ts";
import { type Progress, progressSteps } from "../../src/mail/progress.ts";

/** A mail under one of its names. A reply that was written again after a crash has two names and one id. */
export interface Mail {
	id: string;
	from: string;
	to: string;
	name: string;
}

/** Where a file of one mail lies, `<name>` being that of the mail. Its recipient's boxes: */
type RecipientFile = "tmp" | "new" | "new.hold" | "cur" | "cur.open" | "cur.reason";
/** and its sender's; `back` is the mail itself, and `edit` its new version, in the sender's `tmp/`. */
type SenderFile = "sent.part" | "sent" | "sent.retracted" | "back" | "edit";

/**
 * What the recipient's session says of it: nothing; an entry that carries its id; a note that somebody took it over; or
 * only the plan of a reply, which answered it unread.
 */
export type Held = "nothing" | "entry" | "taken" | "answered";

/** A legal set of files of one mail, and what it means. */
export interface State {
	id: string;
	/** At the recipient: exactly these, or any. `aside`: any, in a folder that a prune has moved aside. */
	recipient: readonly RecipientFile[] | "any" | "aside";
	/** At the sender: one of these sets. */
	sender: readonly (readonly SenderFile[])[];
	held: readonly Held[];
	/** One sentence. */
	meaning: string;
	/** What the next start does with it. */
	next: string;
}

const anything: readonly Held[] = ["nothing", "entry", "taken", "answered"];
const somewhere: readonly Held[] = ["entry", "taken", "answered"];
/** A reply has no copy, and neither has the mail of a sender whose folder was pruned. */
const sentOrNot: readonly (readonly SenderFile[])[] = [[], ["sent.part"], ["sent"]];

/** Every legal state of a mail (design 4, D12, D17, D28). */
export const states: readonly State[] = [
	{
		id: "nowhere",
		recipient: [],
		sender: [[]],
		held: anything,
		meaning: "It was refused, or pruned on both sides.",
		next: "nothing",
	},
	{
		id: "writing",
		recipient: ["tmp"],
		sender: [[], ["sent.part"]],
		held: anything,
		meaning: "It is being written, or its sender ended meanwhile: not sent (a reply is, under a second name).",
		next: "the sender removes its `.part` and says that the mail was not sent",
	},
	{
		id: "unsent",
		recipient: [],
		sender: [["sent.part"]],
		held: ["nothing"],
		meaning: "It could not be sent, and its unfinished copy not removed.",
		next: "the same",
	},
	{
		id: "waiting",
		recipient: ["new"],
		sender: sentOrNot,
		held: ["nothing"],
		meaning: "It is delivered.",
		next: "the recipient claims it; the sender gives a `.part` its name, here and below",
	},
	{
		id: "repeated",
		recipient: ["new"],
		sender: sentOrNot,
		held: somewhere,
		meaning: "It was delivered once more after a crash of its sender.",
		next: "the recipient claims it and shows nothing",
	},
	{
		id: "on hold",
		recipient: ["new", "new.hold"],
		sender: sentOrNot,
		held: anything,
		meaning: "It is delivered, and a person keeps it waiting.",
		next: "nothing, until a person releases it, which removes the mark",
	},
	{
		id: "claiming",
		recipient: ["new", "cur.open"],
		sender: sentOrNot,
		held: anything,
		meaning: "A claim was cut short: it still waits.",
		next: "the recipient removes the mark and claims it",
	},
	{
		id: "answering on hold",
		recipient: ["new", "new.hold", "cur.open"],
		sender: sentOrNot,
		held: anything,
		meaning: "A person answered or dropped what was on hold, and the claim was cut short.",
		next: "the recipient removes the mark in `cur/`: it is on hold",
	},
	{
		id: "claimed",
		recipient: ["cur", "cur.open"],
		sender: sentOrNot,
		held: ["nothing"],
		meaning: "It is on its way into the conversation.",
		next: "the recipient hands it over again, and sets it aside after three ends of Pi",
	},
	{
		id: "read",
		recipient: ["cur", "cur.open"],
		sender: sentOrNot,
		held: somewhere,
		meaning: "The conversation holds it, and its mark is about to go.",
		next: "the recipient removes the mark",
	},
	{
		id: "done",
		recipient: ["cur"],
		sender: sentOrNot,
		held: somewhere,
		meaning: "The conversation holds it.",
		next: "nothing",
	},
	{
		id: "old",
		recipient: ["cur"],
		sender: sentOrNot,
		held: ["nothing"],
		meaning: "An older copy took it, or the conversation that held it is gone.",
		next: "nothing: it never comes back",
	},
	{
		id: "burying",
		recipient: ["cur", "cur.open", "cur.reason"],
		sender: sentOrNot,
		held: anything,
		meaning: "It is being set aside.",
		next: "the recipient sets it aside, or hands it over if it can be read by now",
	},
	{
		id: "dead",
		recipient: ["cur", "cur.reason"],
		sender: sentOrNot,
		held: anything,
		meaning: "It was set aside, for the reason in the file beside it.",
		next: "nothing",
	},
	{
		id: "stray",
		recipient: ["cur.open"],
		sender: [...sentOrNot, ["back"], ["sent", "back"], ["sent.retracted", "back"], ["sent.retracted"]],
		held: anything,
		meaning: "It was taken back while a claim that was cut short began.",
		next: "the recipient removes the mark",
	},
	{
		id: "back",
		recipient: [],
		sender: [["back"], ["sent", "back"], ["sent.part", "back"], ["sent.retracted", "back"]],
		held: ["nothing"],
		meaning: "It was taken back, and its sender ended meanwhile.",
		next: "the sender gives its copy the ending `.retracted`",
	},
	{
		id: "retracted",
		recipient: [],
		sender: [["sent.retracted"]],
		held: ["nothing"],
		meaning: "It was taken back.",
		next: "nothing",
	},
	{
		id: "editing",
		recipient: "any",
		sender: [["edit"], ["sent", "edit"], ["sent.part", "edit"]],
		held: anything,
		meaning: "Its new version is written, and it is not taken back.",
		next: "the sender removes the new version and says that the mail was not changed",
	},
	{
		id: "edited",
		recipient: [],
		sender: [
			["back", "edit"],
			["sent", "back", "edit"],
			["sent.part", "back", "edit"],
			["sent.retracted", "back", "edit"],
			["sent.retracted", "edit"],
		],
		held: ["nothing"],
		meaning: "It was taken back for its new version, which may be sent already.",
		next: "the sender sends the new version, and removes it from its `tmp/` as soon as that has worked",
	},
	{
		id: "pruned",
		recipient: [],
		sender: [["sent"], ["sent.part"]],
		held: anything,
		meaning: "The recipient's folder was pruned, and the sender's copy is left.",
		next: "nothing; the sender removes a `.part`, and says that nobody can tell whether it was sent",
	},
	{
		id: "aside",
		recipient: "aside",
		sender: sentOrNot,
		held: anything,
		meaning: "A prune that was cut short has moved the recipient's folder aside.",
		next: "the next prune removes the folder, or puts it back when mail in it is unread or its session runs",
	},
];

/**
 * The state of a mail in a mail root. `entries` are those of the recipient's session. Throws what it saw when that is
 * legal in no state.
 */
export function stateOf(root: string, mail: Mail, entries: readonly unknown[]): State {
	const aside = asideFolders(root, mail.to).flatMap((folder) => filesIn(folder, mail));
	const recipient = filesIn(mail.to, mail);
	const sender = filesIn(mail.from, mail).map((file) => (file === "tmp" ? "back" : file));
	const held = heldBy(entries, mail);
	const found = states.find(
		(state) =>
			(state.recipient === "aside"
				? aside.length > 0
				: aside.length === 0 && (state.recipient === "any" || isSame(state.recipient, recipient))) &&
			state.sender.some((set) => isSame(set, sender)) &&
			state.held.includes(held),
	);
	if (found !== undefined) return found;
	const saw = { recipient, aside, sender, session: held };
	throw new Error(`a mail is in no legal state: ${JSON.stringify({ ...mail, ...saw })}`);

	/** The files of this mail in a folder: where they lie, once for each, so that two of a kind are seen. */
	function filesIn(address: string, { name }: Mail): string[] {
		const boxes = boxesOf(root, address);
		const list = (box: "tmp" | "new" | "cur" | "sent") => {
			const names = existsSync(boxes[box]) ? readdirSync(boxes[box]) : [];
			const isOurs = (file: string) => isNamed(file, name) && mayBe(join(boxes[box], file), mail);
			return { names, ours: names.filter(isOurs) };
		};
		const { names, ours } = list("cur");
		// A mark whose mail is not there belongs to the one of that name.
		const marked = [...ours, ...(names.includes(name) ? [] : [name])];
		const beside = (ending: string) => marked.flatMap((one) => (names.includes(one + ending) ? [`cur${ending}`] : []));
		const strays = names.filter((file) => {
			const marks = file.slice(0, -".open".length);
			return file.endsWith(".open") && marks !== name && isNamed(marks, name) && !names.includes(marks);
		});
		return [
			...list("tmp").ours.map(() => "tmp"),
			...list("new").ours.map(() => "new"),
			// Without its mail a hold means nothing.
			...list("new").ours.flatMap((one) => (list("new").names.includes(holdOf(one)) ? ["new.hold"] : [])),
			...ours.map(() => "cur"),
			...beside(".open"),
			...strays.map(() => "cur.open"),
			...beside(".reason"),
			...list("sent").ours.map(() => "sent"),
			...(list("sent").names.includes(`${name}.part`) && mayBe(join(boxes.sent, `${name}.part`), mail)
				? ["sent.part"]
				: []),
			...(list("sent").names.includes(`${name}.retracted`) ? ["sent.retracted"] : []),
			...(list("tmp").names.includes(`${name}.edit`) ? ["edit"] : []),
		];
	}
}

/** The steps that are noted beside the sender's copy of a mail. */
export function stepsOf(root: string, { from, name }: Pick<Mail, "from" | "name">): Progress[] {
	const { sent } = boxesOf(root, from);
	const names = existsSync(sent) ? readdirSync(sent) : [];
	return progressSteps.filter((step) => names.includes(`${name}.${step}`));
}

/** What the recipient's session says of a mail; only entries that were made for its address count (design 4.9). */
export function heldBy(entries: readonly unknown[], { id, from, to }: Omit<Mail, "name">): Held {
	if (entriesOf(entries, { id, from, to }).length > 0) return "entry";
	const notes = entries.filter(isNote).map(({ data }) => data);
	const ours = notes.filter(({ address }) => address === to);
	if (ours.some(({ mail }) => mail?.id === id && mail.from === from)) return "taken";
	const planned = ours.flatMap(({ replies = [] }) => replies).filter((reply) => typeof reply !== "string");
	return planned.some((reply) => reply.to === from && reply.inReplyTo.includes(id)) ? "answered" : "nothing";
}

/** The entries of a session that carry a mail: messages, and results of asks. */
export function entriesOf(entries: readonly unknown[], { id, from, to }: Omit<Mail, "name">): unknown[] {
	return entries.filter((entry) => {
		const mail = detailsOf(entry);
		return mail?.id === id && mail.from === from && mail.address === to;
	});
}

/** Every mail of which a mail root has a file that can be read, once for each of its names. */
export function mailsIn(root: string): (Mail & { kind: string; body: string; inReplyTo: string[] })[] {
	const found = new Map<string, ReturnType<typeof mailsIn>[number]>();
	for (const folder of readdirSync(root)) {
		const boxes = boxesOf(root, folder);
		for (const box of [boxes.tmp, boxes.new, boxes.cur, boxes.sent]) {
			for (const file of existsSync(box) ? readdirSync(box) : []) {
				const name = /\d{15}-[0-9a-f-]{36}\.json(?=(\.part|\.retracted)?$)/.exec(file)?.[0];
				const envelope = name === undefined ? undefined : read(join(box, file));
				if (name === undefined || envelope === undefined) continue;
				const { id, from, to, kind, body, in_reply_to: inReplyTo } = envelope;
				found.set(`${from} ${name}`, { id, from, to, kind, body, inReplyTo, name });
			}
		}
	}
	return [...found.values()];
}

/** The states as CONTRIBUTING.md shows them. */
export function stateTable(): string {
	const words: Record<RecipientFile | SenderFile, string> = {
		tmp: "`tmp/<name>`",
		new: "`new/<name>`",
		"new.hold": "`new/<name>.hold`",
		cur: "`cur/<name>`",
		"cur.open": "`cur/<name>.open`",
		"cur.reason": "`cur/<name>.reason`",
		"sent.part": "`sent/<name>.part`",
		sent: "`sent/<name>`",
		"sent.retracted": "`sent/<name>.retracted`",
		back: "`tmp/<name>`",
		edit: "`tmp/<name>.edit`",
	};
	const set = (files: readonly (RecipientFile | SenderFile)[]) => files.map((file) => words[file]).join(" ") || "–";
	const rows = states.map(({ recipient, sender, held, meaning, next }) => {
		const files = recipient === "aside" ? "moved aside" : recipient === "any" ? "any" : set(recipient);
		const senders = sender === sentOrNot ? "any" : sender.map(set).join(" or ");
		const says = held === anything ? "any" : held === somewhere ? "yes" : "no";
		return `| ${files} | ${senders} | ${says} | ${meaning} | ${next} |`;
	});
	return [
		"| recipient | sender | held | what it means | what the next start does |",
		"|---|---|---|---|---|",
		...rows,
	].join("\n");
}

/** A claim whose name was taken puts a UUID before it. */
function isNamed(file: string, name: string): boolean {
	return file === name || /^[0-9a-f-]{36}-$/.test(file.slice(0, -name.length)) ? file.endsWith(name) : false;
}

/** Names are a hint: another sender's mail may have this one. A file that cannot be read may be any. */
function mayBe(path: string, { id, from }: Mail): boolean {
	const envelope = read(path);
	return envelope === undefined || (envelope.id === id && envelope.from === from);
}

function read(path: string) {
	try {
		const parsed = parseEnvelope(readFileSync(path, "utf8"));
		return parsed.ok ? parsed.envelope : undefined;
	} catch {
		return undefined;
	}
}

function asideFolders(root: string, address: string): string[] {
	return readdirSync(root).filter((name) => name.startsWith(`.pruning.${address}.`));
}

function isSame(set: readonly string[], files: readonly string[]): boolean {
	return [...set].sort().join() === [...files].sort().join();
}

interface Note {
	data: {
		address: string;
		mail?: { id: string; from: string };
		replies?: (string | { to: string; inReplyTo: string[] })[];
	};
}

function isNote(entry: unknown): entry is Note {
	return isRecord(entry) && entry.type === "custom" && entry.customType === "session-mail";
}

function detailsOf(entry: unknown): Record<string, unknown> | undefined {
	if (!isRecord(entry)) return undefined;
	const holder = entry.type === "message" ? entry.message : entry.customType === "mailbox" ? entry : undefined;
	const details = isRecord(holder) ? holder.details : undefined;
	return isRecord(details) && isRecord(details.mail) ? details.mail : undefined;
}

function isRecord(value: unknown): value is Record<string, unknown> {
	return typeof value === "object" && value !== null;
}
