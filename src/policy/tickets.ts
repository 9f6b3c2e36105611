import { join } from "node:path";
import * as z from "zod/mini";
import { createSafe, linkless } from "../mail/deliver.ts";
import { type Disk, errorCode, UnfitError } from "../mail/disk.ts";
import { randomName } from "../mail/running-folder.ts";
import { field } from "../mail/text.ts";
import { isEqual, isRecord } from "./json.ts";
import { misfit } from "./response.ts";

const decisionSchema = z.object({
	/** Chosen by whoever decides: the same decision twice is one. */
	decision_id: z.string().check(z.minLength(1), z.maxLength(128)),
	action: z.enum(["resume", "cancel"]),
	/** What the resume mode makes of it. */
	payload: z.optional(z.unknown()),
	reason: z.optional(z.string().check(z.maxLength(4096))),
	/** `time` when nobody decided in time. */
	by: z.object({ kind: z.enum(["person", "model", "time"]), who: z.string().check(z.maxLength(256)) }),
	/** Milliseconds since 1970. */
	at: z.number(),
});

const ticketSchema = z.object({
	/** `ticket-` and 16 letters and digits. */
	id: z.string(),
	/** The address of the session whose model made the call. */
	session: z.string(),
	/** The id that Pi gave the call. */
	callId: z.string(),
	tool: z.string(),
	/** What a wrapper calls such calls. */
	label: z.optional(z.string()),
	/** As its model sent them. */
	arguments: z.unknown(),
	/** What whoever decides is told. */
	message: z.string(),
	/** The JSON Schema of what a decision brings along. */
	response: z.optional(z.record(z.string(), z.unknown())),
	resume: z.enum(["replay_tool_call", "use_decision_as_tool_result", "pass_decision_to_tool"]),
	/** The rule that asked, as it is shown. */
	rule: z.optional(z.string()),
	/** What asks whatever the person's settings allow. */
	asker: z.optional(z.enum(["hook", "project"])),
	/** The session whose model may decide as well, as the rule names it. */
	approver: z.optional(z.string()),
	/** When it was opened, in milliseconds since 1970. */
	since: z.number(),
});

/** The answer to a ticket (AWK-005). */
export type Decision = z.infer<typeof decisionSchema>;

type Written = z.infer<typeof ticketSchema>;

/** A call that somebody has to decide about (AWK-001, AWK-020). */
export interface Ticket extends Written {
	/**
	 * `pending` until it is decided. `decided`: what follows of it is still to be done; an approval that nobody has
	 * used is a grant. `closed`: the approval was used, or the refusal told.
	 */
	state: "pending" | "decided" | "closed";
	/** How it was decided; absent while it is pending. */
	decision?: Decision;
}

/** What is known of a call that is to be decided about. */
export type NewTicket = Omit<Written, "id" | "since">;

/** What became of a decision. */
export type Decided =
	| {
			ok: true;
			ticket: Ticket;
			decision: Decision;
			/** It had been made before under this id: nothing was changed now. */
			repeated: boolean;
	  }
	/** `message` is one sentence for people; `decided` comes with the decision that holds. */
	| { ok: false; code: "unknown" | "decided" | "not_allowed" | "invalid"; message: string; decision?: Decision };

/**
 * The tickets of one address, in its folder `tickets/`:
 *
 *   <id>.json            a ticket that is pending or decided
 *   <id>.decision.json   the decision; never changed, and there is one at most
 *   <id>.told.json       the ticket from before its decision is told as mail, as nobody waits for it: only an equal call uses it
 *   <id>.closed.json     the ticket after its decision was used or told: the file gets this name
 *   .<id>.<random>.tmp   is being written, or its writer has ended meanwhile
 *
 * A decision is linked to its name, so one of several wins, also between processes. A decision is used by renaming
 * the ticket, so one use of several wins, and after a crash it is either unused or gone; so is it given over to be told. Nothing is approved by a
 * start: what is there without a decision is pending, and is cancelled by `expire` in the end.
 *
 * All methods throw the disk's errors; then nothing was decided, used or closed, unless it says otherwise. A file
 * that is no ticket is passed over; a decision that cannot be read counts as a refusal.
 */
export interface TicketStore {
	/** Opens a ticket. It survives a power cut. Throws when it is too large, or 256 are open. */
	open(ticket: NewTicket): Ticket;
	/** A ticket by its id, closed ones included; undefined when there is none. */
	find(id: string): Ticket | undefined;
	/** The tickets that wait for a decision, the oldest first. */
	listPending(): Ticket[];
	/** The tickets that are decided and not closed, the oldest first: at a start, what is still to be told or used. */
	listDecided(): Ticket[];
	/**
	 * Decides. The first decision holds (AWK-008). A model's counts only where the ticket names an approver; that it
	 * is the approver's model is for the caller to check. The payload of an approval has to fit the response schema.
	 * It has to be an object with `pass_decision_to_tool`, and to be there with `use_decision_as_tool_result`. An
	 * error of the disk may come after the decision is made: the same decision again then says so.
	 */
	decide(id: string, decision: Decision): Decided;
	/**
	 * Uses the decision about one ticket, to make its call now or to tell its model of the refusal: true for one caller, who
	 * closes it by this. False for one that is told as mail. When it throws, the decision may be used up.
	 */
	take(id: string): boolean;
	/** Whoever waited for a decision does so no longer: it is told as mail. False when it was used, or is none yet. */
	giveOver(id: string): boolean;
	/**
	 * Uses an approval for a call of this tool with equal arguments, if there is one: its ticket, once. With
	 * `pass_decision_to_tool` these are the arguments that came with the decision; with `use_decision_as_tool_result`
	 * no call is to be made, and there is no grant. When it throws, the approval may be used up.
	 */
	takeGrant(tool: string, args: unknown): Ticket | undefined;
	/** What followed of a decision is done. False for a ticket that is pending, closed or unknown. */
	close(id: string): boolean;
	/**
	 * Cancels the tickets that have waited for `ttlMs`, and removes what was closed, or left unfinished, so long ago.
	 * Any process may do so for any address. Returns the tickets cancelled now, and the approvals that nobody has
	 * used for `ttlMs`: the caller says so of those that it can `close`. A time in the future counts as well: a clock
	 * may have been ahead.
	 */
	expire(now: number, ttlMs: number): { cancelled: Ticket[]; lapsed: Ticket[] };
}

/** Whether a text can be the id of a ticket: a path is built from it. */
export function isTicketId(text: string): boolean {
	return idPattern.test(text);
}

/** The tickets in the folder of an address, which has to exist. */
export function openTicketStore(disk: Disk, addressFolder: string, now: () => number): TicketStore {
	const folder = join(addressFolder, "tickets");
	const pathOf = (id: string, ending = "") => join(folder, `${id}${ending}.json`);

	/** The JSON of a regular file; undefined when there is none, `unfit` when it is no such file. */
	function read(path: string): unknown {
		try {
			return JSON.parse(disk.read(path, maxBytes));
		} catch (error) {
			if (errorCode(error) === "ENOENT") return undefined;
			if (error instanceof SyntaxError || error instanceof UnfitError) return unfit;
			throw error;
		}
	}

	/** Puts a file under a name that must be free; false when it is not. */
	function place(path: string, id: string, text: string): boolean {
		const unfinished = join(folder, `.${id}.${randomName()}.tmp`);
		try {
			createSafe(disk, unfinished, text, true);
			link(unfinished, path, text);
		} catch (error) {
			if (errorCode(error) === "EEXIST") return false;
			throw error;
		} finally {
			removeQuietly(unfinished);
		}
		disk.syncFolder(folder);
		return true;
	}

	function link(from: string, to: string, text: string): void {
		try {
			disk.link(from, to);
		} catch (error) {
			if (!linkless.has(errorCode(error) ?? "")) throw error;
			createSafe(disk, to, text, true);
		}
	}

	/** What is left of it is removed by `expire`. */
	function removeQuietly(path: string): void {
		try {
			disk.remove(path);
		} catch {}
	}

	function written(id: string, ending = ""): Written | undefined {
		const { data } = z.safeParse(ticketSchema, read(pathOf(id, ending)));
		return data?.id === id ? data : undefined;
	}

	function decisionOf(id: string): Decision | undefined {
		const path = pathOf(id, ".decision");
		const json = read(path);
		if (json === undefined) return undefined;
		const { data } = z.safeParse(decisionSchema, json);
		if (data !== undefined) return data;
		const changed = disk.changed(path);
		// Where there are no links another process may be writing it.
		if (changed === undefined || Math.abs(now() - changed) < writingMs) return undefined;
		return {
			decision_id: "unreadable",
			action: "cancel",
			reason: "its decision cannot be read",
			by: { kind: "time", who: "" },
			at: changed,
		};
	}

	function find(id: string): Ticket | undefined {
		if (!isTicketId(id)) return undefined;
		const open = written(id) ?? written(id, ".told");
		const ticket = open ?? written(id, ".closed");
		if (ticket === undefined) return undefined;
		const decision = decisionOf(id);
		const state = open === undefined ? "closed" : decision === undefined ? "pending" : "decided";
		return { ...ticket, state, ...(decision !== undefined && { decision }) };
	}

	function names(): string[] {
		return disk.entry(folder) === "folder" ? disk.list(folder) : [];
	}

	/** The tickets that are not closed. */
	function open(): Ticket[] {
		return names()
			.filter(isTicketFile)
			.flatMap((name) => find(name.slice(0, name.indexOf("."))) ?? [])
			.filter(({ state }) => state !== "closed")
			.sort((a, b) => a.since - b.since || (a.id < b.id ? -1 : 1));
	}

	function decide(id: string, decision: Decision): Decided {
		const ticket = find(id);
		if (ticket === undefined) return refuse("unknown", `there is no ticket ${field(id, 40)}`);
		if (ticket.decision !== undefined) return after(ticket, ticket.decision, decision);
		if (ticket.state === "closed") return refuse("unknown", `the ticket ${id} is closed`);
		const valid = z.safeParse(decisionSchema, decision).data;
		if (valid === undefined) return refuse("invalid", "the decision is not of the form that it must have");
		if (valid.by.kind === "model" && ticket.approver === undefined) {
			return refuse("not_allowed", `only a person may decide about ${id}: its rule names no approver`);
		}
		const problem = valid.action === "resume" ? payloadProblem(ticket, valid.payload) : undefined;
		if (problem !== undefined) return refuse("invalid", problem);
		const text = `${JSON.stringify(valid)}\n`;
		if (Buffer.byteLength(text) > maxBytes) return refuse("invalid", "the payload is too large");
		if (!place(pathOf(id, ".decision"), id, text)) {
			const first = decisionOf(id);
			if (first === undefined) return refuse("decided", `another decision about ${id} is being written`);
			return after(ticket, first, decision);
		}
		return { ok: true, ticket: { ...ticket, state: "decided", decision: valid }, decision: valid, repeated: false };
	}

	function rename(id: string, from: "" | ".told", to: ".told" | ".closed"): boolean {
		try {
			disk.rename(pathOf(id, from), pathOf(id, to));
		} catch (error) {
			if (errorCode(error) === "ENOENT") return false;
			throw error;
		}
		// After a power cut an approval must not be there again.
		disk.syncFolder(folder);
		return true;
	}

	/** Whether it could be closed. */
	function close(id: string): boolean {
		return rename(id, "", ".closed") || rename(id, ".told", ".closed");
	}

	function isApproved(id: string): boolean {
		const ticket = find(id);
		return ticket?.state === "decided" && ticket.decision?.action === "resume";
	}

	return {
		open(ticket) {
			const opened: Written = { ...ticket, id: `ticket-${randomName()}`, since: now() };
			const text = `${JSON.stringify(opened)}\n`;
			if (Buffer.byteLength(text) > maxBytes) throw new Error(`the call of ${field(ticket.tool)} is too large to wait`);
			disk.ensureFolder(folder);
			if (names().filter(isTicketFile).length >= maxOpen)
				throw new Error(`${maxOpen} calls wait to be decided already`);
			try {
				if (!place(pathOf(opened.id), opened.id, text)) throw new Error(`the ticket ${opened.id} exists already`);
			} catch (error) {
				// Nobody would wait for it. Where this fails, too, it is cancelled in time.
				removeQuietly(pathOf(opened.id));
				throw error;
			}
			return { ...opened, state: "pending" };
		},
		find,
		listPending: () => open().filter(({ state }) => state === "pending"),
		listDecided: () => open().filter(({ state }) => state === "decided"),
		decide,
		take: (id) => find(id)?.state === "decided" && rename(id, "", ".closed"),
		giveOver(id) {
			if (find(id)?.state !== "decided") return false;
			return rename(id, "", ".told") || disk.entry(pathOf(id, ".told")) === "file";
		},
		takeGrant(tool, args) {
			const ticket = open().find((each) => {
				const granted = grantedArguments(each);
				return (
					granted !== undefined &&
					each.tool === tool &&
					isEqual(granted.args, args) &&
					isApproved(each.id) &&
					close(each.id)
				);
			});
			return ticket && { ...ticket, state: "closed" };
		},
		close: (id) => find(id)?.state === "decided" && close(id),
		expire(time, ttlMs) {
			const isOld = (at: number) => Math.abs(time - at) >= ttlMs;
			const cancelled: Ticket[] = [];
			const lapsed: Ticket[] = [];
			for (const ticket of open()) {
				const { id, since, decision } = ticket;
				if (decision === undefined) {
					if (!isOld(since)) continue;
					const reason = "nobody decided in time";
					const by = { kind: "time", who: "" } as const;
					const made = decide(id, { decision_id: `expired-${id}`, action: "cancel", reason, by, at: time });
					if (made.ok) cancelled.push(made.ticket);
				} else if (decision.action === "resume" && isOld(decision.at)) lapsed.push(ticket);
			}
			for (const name of names()) {
				const id = filePattern.exec(name)?.[1];
				const path = join(folder, name);
				const changed = id === undefined ? undefined : disk.changed(path);
				if (id === undefined || changed === undefined || !isOld(changed)) continue;
				// A decision stays as long as its ticket does, and so does the ticket itself.
				const isNeeded = name.endsWith(".tmp") || name.endsWith(".closed.json") ? false : find(id) !== undefined;
				if (!isNeeded && disk.entry(path) !== "folder") disk.remove(path);
			}
			return { cancelled, lapsed };
		},
	};
}

const idPattern = /^ticket-[a-z0-9]{16}$/;
/** Most tickets of one address that are not closed. */
const maxOpen = 256;
/** Largest file of a ticket, in bytes. */
const maxBytes = 4 * 1024 * 1024;
/** How long a decision may take to be written. */
const writingMs = 10_000;
const unfit = Symbol("unfit");

/** The names of all files in the folder, with the id in them. */
const filePattern = /^\.?(ticket-[a-z0-9]{16})(?:\.[a-z0-9]{16}\.tmp|(?:\.closed|\.decision|\.told)?\.json)$/;

/** Whether a file is that of a ticket that is not closed. */
function isTicketFile(name: string): boolean {
	return /^ticket-[a-z0-9]{16}(?:\.told)?\.json$/.test(name);
}

/** The arguments of the call that an approval lets through. */
function grantedArguments({ state, decision, resume, arguments: args }: Ticket): { args: unknown } | undefined {
	if (state !== "decided" || decision?.action !== "resume" || resume === "use_decision_as_tool_result")
		return undefined;
	return { args: resume === "pass_decision_to_tool" ? decision.payload : args };
}

function payloadProblem({ response, resume }: Ticket, payload: unknown): string | undefined {
	if (resume === "use_decision_as_tool_result" && payload === undefined) {
		return "the result of the call has to come with the decision, as its payload";
	}
	if (resume === "pass_decision_to_tool" && !isRecord(payload)) {
		return "the arguments of the call have to come with the decision, as an object in its payload";
	}
	return response === undefined ? undefined : misfit(response, payload);
}

/** What a decision is told that is not the first. */
function after(ticket: Ticket, first: Decision, second: Decision): Decided {
	if (first.decision_id === second.decision_id) {
		const state = ticket.state === "pending" ? "decided" : ticket.state;
		return { ok: true, ticket: { ...ticket, state, decision: first }, decision: first, repeated: true };
	}
	return { ...refuse("decided", `${ticket.id} ${decidedHow(first)}`), decision: first };
}

/** Who decided what when, after the name of what was decided: `was approved by Ann on 2026-11-29 12:00:00 UTC`. */
export function decidedHow({ action, by, at, reason }: Decision): string {
	const what = action === "resume" ? "approved" : "refused";
	const who = by.kind === "time" ? "" : ` by ${by.kind === "model" ? "the model of " : ""}${field(by.who)}`;
	const time = new Date(Math.min(Math.max(at, 0), maxTime)).toISOString();
	const when = `on ${time.slice(0, 10)} ${time.slice(11, 19)} UTC`;
	return `was ${what}${who} ${when}${reason === undefined || reason === "" ? "" : `: ${field(reason, 200)}`}`;
}

/** The last moment that a date can be. */
const maxTime = 8.64e15;

function refuse(code: Exclude<Decided, { ok: true }>["code"], why: string): Exclude<Decided, { ok: true }> {
	return { ok: false, code, message: `Nothing was decided: ${why}.` };
}
