import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Disk } from "../../src/mail/disk.ts";
import { refusalText } from "../../src/policy/ticket-words.ts";
import { type Decided, type Decision, openTicketStore, type Ticket } from "../../src/policy/tickets.ts";
import { watchedDisk } from "../support/disk.ts";
import { hold } from "./model.ts";

/** Somebody decides about a call, from another process. */
export interface DecideStep {
	do: "decide";
	/** Which of all tickets, those first that wait. */
	nth: number;
	as: Verdict;
	/** The same is decided again, or another process decides at the n-th operation of this one. */
	also?: "again" | { as: Verdict; at: number };
}

/** A person answers the dialog that is open. */
export interface AnswerStep {
	do: "answer dialog";
	with: "Allow once" | "No" | "Decide later";
}

type Verdict = "approve" | "deny";
type Action = Decision["action"];

/** What is known of a ticket from what lay on the disk. */
interface Seen {
	readonly ticket: Ticket;
	/** The call that it is about. */
	readonly call: string;
	decision: Decision | undefined;
	/** What people have tried to decide. */
	readonly tried: Set<Action>;
}

/** What is to be told of the decisions about the calls of a session, and what was. */
export interface Told {
	readonly address: string;
	/** How often each refusal is told in its conversation. */
	readonly refusals: ReadonlyMap<string, number>;
	/** Those that its model has looked up: it is not told them again. */
	readonly lookedUp: ReadonlySet<string>;
	/** How often it is told that a call was stopped: what was decided about that one comes too late. */
	readonly stops: number;
	/** The tickets of which it was told by a mail of their own. */
	readonly mails: ReadonlySet<string>;
	/** The tickets that a process which was killed has left open: they are told of by mail, or a grant is used. */
	readonly left: ReadonlySet<string>;
	/** What was decided may be told nowhere: its process was killed, or a listener took the mail. */
	readonly mayMiss: boolean;
}

/** The tickets of all sessions of a history, as they lie on the disk, what people decide about them, and what follows. */
export class Tickets {
	readonly #seen = new Map<string, Seen>();
	readonly #names = new Map<string, string>();
	/** How often each call was made. */
	readonly #made = new Map<string, number>();
	readonly #broken: string[] = [];
	readonly #root: string;
	readonly #disk: Disk;
	readonly #now: () => number;
	#lastDecision = 0;

	constructor(root: string, disk: Disk, now: () => number) {
		this.#root = root;
		this.#disk = disk;
		this.#now = now;
	}

	/** Those that wait for a decision, or for what follows of it to be done. */
	open(address: string): string[] {
		return filesIn(this.#folder(address)).filter((name) => /^ticket-\w+\.json$/.test(name));
	}

	/** Takes in what has changed on the disk: a decision stands, and an approval is somebody's. */
	look(address: string): void {
		const folder = this.#folder(address);
		const names = filesIn(folder);
		if (this.#names.get(folder) === names.join()) return;
		this.#names.set(folder, names.join());
		for (const name of names) {
			const [, id = "", kind] = /^(ticket-\w+)(?:\.(told|closed|decision))?\.json$/.exec(name) ?? [];
			if (id === "" || kind === "decision" || this.#seen.has(id)) continue;
			const ticket: Ticket = JSON.parse(readFileSync(join(folder, name), "utf8"));
			const call = callOf(address, ticket.tool, ticket.arguments);
			this.#seen.set(id, { ticket, call, decision: undefined, tried: new Set() });
		}
		for (const name of names.filter((found) => found.endsWith(".decision.json"))) {
			const seen = this.#seen.get(name.slice(0, -".decision.json".length));
			if (seen === undefined) continue;
			const decision: Decision = JSON.parse(readFileSync(join(folder, name), "utf8"));
			const isSame = seen.decision === undefined || seen.decision.decision_id === decision.decision_id;
			hold(isSame, () => `${seen.ticket.id} was decided about twice`);
			const isTried = decision.action === "cancel" || seen.tried.has("resume");
			hold(isTried, () => `nobody has approved ${seen.ticket.id}, and it is approved`);
			seen.decision = decision;
		}
	}

	/** The first decision holds; the same again is none. */
	decide({ nth, as, also }: DecideStep): void {
		for (const address of filesIn(this.#root)) this.look(address);
		const there = [...this.#seen.values()].filter(({ ticket }) => this.#hasFile(ticket));
		const waiting = there.filter(({ decision }) => decision === undefined);
		const all = [...waiting, ...there.filter(({ decision }) => decision !== undefined)];
		const seen = all[nth % Math.max(1, all.length)];
		if (seen === undefined) return;
		const address = seen.ticket.session;
		const wasDecided = seen.decision !== undefined;
		const outcomes: Decided[] = [];
		const first = this.#decision(seen, as, "Ann");
		const second = typeof also === "object" ? this.#decision(seen, also.as, "Bob") : first;
		let left = typeof also === "object" ? also.at : 0;
		const decideOn = (disk: Disk, decision: Decision) =>
			outcomes.push(openTicketStore(disk, join(this.#root, address), this.#now).decide(seen.ticket.id, decision));
		decideOn(
			watchedDisk(() => {
				if (left > 0 && --left === 0) decideOn(this.#disk, second);
			}, this.#disk),
			first,
		);
		if (also === "again") decideOn(this.#disk, first);
		const won = outcomes.filter((outcome) => outcome.ok && !outcome.repeated).length;
		hold(won === (wasDecided ? 0 : 1), () => `${seen.ticket.id}: ${JSON.stringify(outcomes)}`);
		const isTrue = outcomes.every((outcome) => outcome.ok || outcome.code === "decided" || wasDecided);
		hold(isTrue, () => `${seen.ticket.id}: ${JSON.stringify(outcomes)}`);
		this.look(address);
	}

	/** The person of a session is about to say this in the dialog. */
	answering(address: string, choice: AnswerStep["with"]): void {
		this.look(address);
		const action = choice === "Allow once" ? "resume" : "cancel";
		if (choice !== "Decide later") for (const seen of this.#of(address)) seen.tried.add(action);
	}

	/** A call is made that somebody is asked about: there is an approval for each time. */
	made(address: string, tool: string, args: unknown): void {
		this.look(address);
		const call = callOf(address, tool, args);
		const times = (this.#made.get(call) ?? 0) + 1;
		this.#made.set(call, times);
		const approvals = this.#approvals(call);
		if (times > approvals) this.#broken.push(`${call} was made ${times} times, and approved ${approvals} times`);
	}

	/** What must be true at any moment. */
	holdLaws({ address, refusals }: Told): void {
		this.look(address);
		hold(this.#broken.length === 0, () => this.#broken.join("; "));
		for (const [text, times] of refusals) {
			const count = this.#refused(address, text);
			hold(times <= count, () => [`${address} was told ${times} times, and refused ${count} times:`, text].join(" "));
		}
	}

	/** At rest nobody waits any more, and each decision was told, or its call made. */
	holdEnd({ address, refusals, lookedUp, stops, mails, left, mayMiss }: Told): void {
		const waits = this.open(address);
		hold(waits.length === 0, () => `${address} is at rest, and ${waits.join(", ")} still waits`);
		for (const seen of this.#of(address).filter(({ ticket }) => left.has(ticket.id))) {
			const isUsed = isApproved(seen) && this.#made.has(seen.call);
			hold(isUsed || mails.has(seen.ticket.id), () => `${address} was never told of ${seen.ticket.id}: ${seen.call}`);
		}
		if (mayMiss) return;
		const decided = this.#of(address);
		const missing: string[] = [];
		for (const call of new Set(decided.map((seen) => seen.call))) {
			const told = decided.filter((seen) => seen.call === call && mails.has(seen.ticket.id) && isApproved(seen)).length;
			const left = this.#approvals(call) - told - (this.#made.get(call) ?? 0);
			for (let n = 0; n < left; n++) missing.push(`the approval of ${call}`);
		}
		for (const text of new Set(decided.flatMap((seen) => refusalOf(seen) ?? []))) {
			const left = lookedUp.has(text) ? 0 : this.#refused(address, text) - (refusals.get(text) ?? 0);
			for (let n = 0; n < left; n++) missing.push(text);
		}
		hold(
			missing.length <= stops,
			() => `${address} was not told: ${missing.join("; ")} (and ${stops} times of a stop)`,
		);
	}

	#decision({ ticket, tried }: Seen, as: Verdict, who: string): Decision {
		const action = as === "approve" ? "resume" : "cancel";
		tried.add(action);
		const decision_id = `decision ${++this.#lastDecision}`;
		return { decision_id, action, by: { kind: "person", who }, at: this.#now(), reason: `said of ${ticket.id}` };
	}

	#of(address: string): Seen[] {
		return [...this.#seen.values()].filter(({ ticket }) => ticket.session === address);
	}

	#approvals(call: string): number {
		return [...this.#seen.values()].filter((seen) => seen.call === call && isApproved(seen)).length;
	}

	#refused(address: string, text: string): number {
		return this.#of(address).filter((seen) => refusalOf(seen) === text).length;
	}

	#hasFile({ session, id }: Ticket): boolean {
		return filesIn(this.#folder(session)).some((name) => name.startsWith(id));
	}

	#folder(address: string): string {
		return join(this.#root, address, "tickets");
	}
}

/** The refusals in what a model reads. */
export function refusalsIn(text: string): string[] {
	return text.split("\n").filter((line) => /^The call of \S+ was refused: /.test(line));
}

function isApproved({ decision }: Seen): boolean {
	return decision?.action === "resume";
}

/** What its model is to read of a call that was refused. */
function refusalOf({ ticket, decision }: Seen): string | undefined {
	return decision?.action === "cancel" ? refusalText({ ...ticket, decision }) : undefined;
}

function callOf(address: string, tool: string, args: unknown): string {
	return `${tool} ${JSON.stringify(args)} of ${address}`;
}

function filesIn(folder: string): string[] {
	try {
		return readdirSync(folder).sort();
	} catch {
		return [];
	}
}
