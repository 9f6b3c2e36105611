import { randomUUID } from "node:crypto";
import { type FSWatcher, watch } from "node:fs";
import { basename, join } from "node:path";
import { uuidOf } from "../mail/address.ts";
import { type Boxes, boxesOf } from "../mail/boxes.ts";
import { type Disk, errorMessage, errorReason } from "../mail/disk.ts";
import { awaitsAnswer, type Control, type Envelope } from "../mail/envelope.ts";
import { type DeadMail, type Mailbox, type OpenMail, openMailbox, type SentCopy } from "../mail/mailbox.ts";
import { removePassing } from "../mail/passing.ts";
import type { Processes } from "../mail/process.ts";
import { takeForProgram } from "../mail/program.ts";
import { noteProgress, type SentStatus, sentStatus } from "../mail/progress.ts";
import { mailAt } from "../mail/read-mail.ts";
import { ensureRoot } from "../mail/root.ts";
import { type OwnRecord, openRunning, type Running, type SessionFields } from "../mail/running.ts";
import { randomName } from "../mail/running-folder.ts";
import type { Settings } from "../mail/settings.ts";
import { unkeptState } from "../mail/state.ts";
import type { EditRefusal } from "../mail/take-back.ts";
import { type AskOutcome, type AskProgress, type AskRefusal, type Asks, createAsks } from "../session/asks.ts";
import { createOutbox, type Outbox, type SendRefusal, type Sent } from "../session/outbox.ts";
import type { Who } from "./who.ts";

/** What a program needs of the machine that it runs on. */
export interface Machine {
	disk: Disk;
	processes: Processes;
	/** Milliseconds since 1970. */
	now: () => number;
	/** The mail root, which need not exist. */
	root: string;
	/** The settings as they are now. */
	settings: () => Settings;
	/** Hears of what cannot be used or cleaned, one line each. */
	warn: (text: string) => void;
}

/** What a program may do with mail. Every refusal comes before anything is written, and nothing but to open it throws. */
export interface Member {
	/** Where mail to it goes. */
	readonly address: string;
	/**
	 * Takes a running record, so that others see this program; until `close`. Refused when another process has this name
	 * (`name_in_use`). Named and passing members only; `ask` does it by itself.
	 */
	appear(): { ok: true } | MemberRefusal;
	/** Sends to whom `to` resolves. Inside a session it is that session's, with the hops of its run, and no request. */
	send(mail: ProgramMail): Sent | SendRefusal | MemberRefusal;
	/**
	 * Sends an ask and waits for its end. What nobody waits for any more is taken back, or its recipient told. The answer
	 * waits in `cur/` until it is `close`d with `done`: call that when the caller has it.
	 */
	ask(ask: ProgramAsk): Promise<AskOutcome | AskRefusal | MemberRefusal>;
	/** Does with another session what its person wants. Never as a session: what a model wants is none of that. */
	control(to: string, control: Control): Sent | SendRefusal | MemberRefusal;
	/** The mail that waits, oldest first; without what a waiting ask of this member is about to take. Not of a passing member. */
	inbox(): WaitingMail[] | MemberRefusal;
	/**
	 * Claims a waiting mail: the oldest, or the one of this id or start of an id. One that was read before is found by its
	 * id as well. Undefined when nothing waits. Call `done` when the caller has it: until then it is found again.
	 */
	read(id?: string): ReadMail | MemberRefusal | undefined;
	/** The copies of what a mail answers, as far as they are there. */
	answeredBy(mail: WaitingMail): readonly SentCopy[];
	/** What was claimed has reached its reader. */
	done(mail: { name: string }): void;
	/** Answers a request or ask that this member got. */
	reply(id: string, text: string, status: "done" | "failed"): Done | MemberRefusal;
	/** What this member has sent, newest first, at most so many, with what is known of each. */
	sent(atMost: number): SentMail[] | MemberRefusal;
	/** Takes a mail back that its recipient has not claimed, and sends it with another text as a mail that replaces it. */
	edit(id: string, text: string): Done | MemberRefusal;
	/** Takes a mail back that its recipient has not claimed. */
	retract(id: string): Done | MemberRefusal;
	/**
	 * Calls `look` soon after something changed in the inbox, and about once a second. The returned function ends that;
	 * until then the process goes on.
	 */
	watch(look: () => void): () => void;
	/**
	 * Ends the membership: the record goes, and a passing address with its folder. What is wanted of it from then on is refused
	 * with `closed`. Never throws.
	 */
	close(): void;
}

/** A member, and what the program shows of it. */
export interface ProgramMember extends Member {
	readonly who: Who;
	/** The sessions and programs that run. */
	readonly running: Running;
}

/** Why something was not done: the code for programs, one sentence for people in the words of the program `pi-session-mail`. */
export interface MemberRefusal {
	ok: false;
	code:
		| "io"
		| "name_in_use"
		| "name_taken"
		| "in_session"
		| "no_name"
		| "unknown_id"
		| "not_owed"
		| "answered"
		| "claimed"
		| "waited_for"
		| "old_session"
		| "closed"
		| "empty"
		| "too_large"
		| "undeliverable";
	message: string;
}

/** What a program sends. */
export interface ProgramMail {
	to: string;
	kind: "message" | "request";
	body: string;
	/** A UUID of the caller's: the same id sends nothing twice. */
	id?: string | undefined;
	/**
	 * Hop count that the mail carries, held to the limit; without one it is 0 and no limit holds. Inside a session it is
	 * that of its run, whatever this says.
	 */
	hops?: number;
	/** It starts no turn. Messages only. */
	quiet?: boolean;
	/** It interrupts its recipient, if that one lets it. */
	priority?: "interrupt" | undefined;
}

/** What a program asks. */
export interface ProgramAsk {
	to: string;
	message: string;
	/** Default: 10 minutes. */
	timeoutMs?: number;
	/** See `ProgramMail`. */
	hops?: number;
	signal?: AbortSignal;
	/** Called at once and about once a second. */
	onProgress?: (progress: AskProgress) => void;
}

/** A mail that waits. */
export interface WaitingMail {
	name: string;
	envelope: Envelope;
}

/** A mail that was claimed. */
export interface ReadMail extends WaitingMail {
	/** Its file in `cur/`. */
	path: string;
	/** It was read before. */
	isOld: boolean;
}

/** A mail that was sent, and what is known of it. */
export interface SentMail extends WaitingMail {
	status: SentStatus;
}

/** Something was done, with this mail. */
export interface Done {
	ok: true;
	envelope: Envelope;
}

export interface MemberOptions {
	machine: Machine;
	who: Who;
	/** What a passing member is called in lists. */
	name: string;
	/** What it is there for, the start of its passing address. */
	purpose: "ask" | "send";
	cwd: string;
}

/** Opens the mailbox of a member. Throws the disk's errors; refuses a name that is a Pi session's. */
export function openMember({
	machine,
	who,
	name,
	purpose,
	cwd,
}: MemberOptions): { ok: true; member: ProgramMember } | MemberRefusal {
	const { disk, processes, now, root } = machine;
	ensureRoot(disk, root);
	const isDurable = () => machine.settings().durability === "durable";
	const running = openRunning({ disk, root, processes, now, warn: (path, why) => machine.warn(`${path}: ${why}`) });
	const address =
		who.type === "named" ? who.address : who.type === "session" ? who.session.address : `${purpose}-${randomName()}`;
	const boxes: Boxes = boxesOf(root, address);
	const isSession = who.type === "session";
	const fields: SessionFields = {
		name: who.type === "named" ? address : name,
		cwd,
		state: "idle",
		waitingOn: "",
		program: true,
	};
	let record: OwnRecord | undefined;
	let opened: Mailbox | undefined;
	let isClosed = false;
	/** The mail that was open when it was last looked for, and when that was. */
	const left: OpenMail[] = [];
	let lookedAt = Number.NEGATIVE_INFINITY;
	/** The ask that waits. */
	let asking: Pick<Asks, "awaits"> | undefined;

	if (who.type === "named") {
		const there = running.find(address);
		const isFree = there === undefined || there.x.program === true;
		if (!isFree || !takeForProgram(disk, root, address)) {
			return refuse("name_taken", `${address} is the address of a Pi session; choose another name`);
		}
	}

	function mailbox(): Mailbox {
		const state = who.type === "named" ? {} : { state: unkeptState() };
		if (opened !== undefined) return opened;
		opened = openMailbox({ disk, root, address, now, isDurable, ...state });
		if (who.type === "named") finishEdits(opened);
		return opened;
	}

	/** Sends what an edit that was cut short has left, unless another program of this name may be at it. */
	function finishEdits(box: Mailbox): void {
		guarded(() => {
			const isLeft = (name: string) => isPast(disk.changed(join(boxes.tmp, name)));
			if (!disk.list(boxes.tmp).some((name) => name.endsWith(".edit") && isLeft(name))) return;
			for (const warning of box.recount()) if (warning !== undefined) machine.warn(warning);
		});
	}

	/** Whether what was changed then is long done by whoever did it. */
	function isPast(changed: number | undefined): boolean {
		return changed !== undefined && Math.abs(now() - changed) > showingMs;
	}

	function outbox() {
		return createOutbox({
			mailbox: mailbox(),
			running,
			hopLimit: () => machine.settings().hopLimit,
			isDurable,
			now,
			...(!isSession && { countsAgain: "The count starts again an hour after the last mail was read." }),
		});
	}

	function appear(changed: Partial<SessionFields> = {}): { ok: true } | MemberRefusal {
		if (record !== undefined) {
			const updated = record.update(changed);
			return updated.ok ? updated : refuse("io", updated.message);
		}
		const owned = running.own(address, { ...fields, ...changed });
		if (owned.ok) {
			record = owned.record;
			return { ok: true };
		}
		if (owned.code !== "held") return refuse("io", `its running record could not be written: ${owned.message}`);
		return refuse("name_in_use", `process ${owned.holder.pid} already waits under the name ${address}`);
	}

	/** The hops of what is sent; undefined when they cannot be known. */
	function hopsOf(given: number | undefined): number | undefined {
		if (who.type !== "session") return given ?? 0;
		return running.find(address)?.x.hops;
	}

	function oldSession(): MemberRefusal {
		return refuse("old_session", "this Pi session runs an older version of pi-session-mail; restart Pi");
	}

	function closed(): MemberRefusal {
		return refuse("closed", "this member was closed; join again");
	}

	/** How a waiting ask is seen by others. */
	function presenceOf(askId: string) {
		if (who.type !== "session") {
			return {
				isOwner: () => true,
				update: (changed: Partial<SessionFields>) => void record?.update(changed),
				end() {},
			};
		}
		let stop = () => {};
		return {
			isOwner: () => true,
			update({ waitingOn = "", ticket = 0 }: Partial<SessionFields>) {
				stop();
				stop = waitingOn === "" ? () => {} : running.waitInShell(address, { id: askId, to: waitingOn, ticket }, fields);
			},
			end: () => stop(),
		};
	}

	async function ask({
		to,
		message,
		timeoutMs,
		hops,
		signal,
		onProgress,
	}: ProgramAsk): Promise<AskOutcome | AskRefusal | MemberRefusal> {
		if (isClosed) return closed();
		const count = hopsOf(hops);
		if (count === undefined) return oldSession();
		if (asking !== undefined) {
			const why = "another ask of this program is waiting; wait for its answer first";
			return { ok: false, code: "already_waiting", message: `Nothing was sent: ${why}.` };
		}
		// The record stands before the folder: nobody may take it for left.
		const seen = isSession ? ({ ok: true } as const) : appear();
		if (!seen.ok) return seen;
		// A session leaves the answer to the id that it was told before.
		const id = isSession ? randomUUID() : undefined;
		const box = mailbox();
		const presence = presenceOf(id ?? "");
		const foreign = new Set<string>();
		const asks = createAsks({
			mailbox: box,
			running,
			outbox: isSession ? outbox() : ofProgram(outbox(), hops !== undefined),
			presence,
			scan: () => guarded(scan),
			isUsable: () => disk.entry(root) === "folder",
			now,
			sendsWith: "pi-session-mail send",
		});

		/** Gives the ask what waits for it; all else stays. */
		function scan(): void {
			for (const waiting of box.waiting()) {
				if (foreign.has(waiting)) continue;
				const envelope = box.peek(waiting);
				if (envelope === undefined || !asks.awaits(envelope)) {
					if (envelope !== undefined) foreign.add(waiting);
					continue;
				}
				const claim = box.claim(waiting);
				if (claim.result === "claimed") asks.take(claim.mail);
			}
		}

		const unwatch = watchFolder(box.newFolder, () => guarded(scan));
		asking = asks;
		try {
			const outcome = await asks.ask({
				to,
				message,
				hops: count,
				id,
				...(timeoutMs !== undefined && { timeoutMs }),
				signal,
				onProgress: onProgress ?? (() => {}),
			});
			if ("outcome" in outcome && outcome.outcome !== "answered") giveUp(outcome);
			return outcome;
		} catch (error) {
			return refuse("io", errorReason(error));
		} finally {
			asking = undefined;
			unwatch();
			presence.end();
		}
	}

	/** Nobody waits any more: takes the ask back, or tells its recipient. An ask of a session is answered by mail. */
	function giveUp({ id, to, outcome }: Exclude<AskOutcome, { outcome: "answered" }>): void {
		guarded(() => {
			const box = mailbox();
			const [copy] = box.sentCopies([id]);
			if (copy === undefined) return;
			if (isSession && outcome !== "stopped-by-user") return;
			if (box.retract({ envelope: copy.envelope, name: basename(copy.path).replace(/\.part$/, "") })) return;
			if (isSession || outcome === "stopped-running") return;
			const kept = who.type === "named" ? "An answer is kept for it." : "An answer cannot reach it any more.";
			const body = `The program that sent the ask ${id} has stopped waiting. ${kept}`;
			box.deliver({ to, kind: "message", body, hops: copy.envelope.hops, program: true, quiet: true });
		});
	}

	function guarded(action: () => void): void {
		try {
			action();
		} catch (error) {
			machine.warn(errorMessage(error));
		}
	}

	/** Refuses what only a member with a name of its own can do. */
	function nameless(what: string): MemberRefusal | undefined {
		if (who.type === "named") return undefined;
		if (isSession) {
			return refuse("in_session", `${what} inside a Pi session; its mail enters its conversation by itself`);
		}
		return noName();
	}

	function waitingMails(): WaitingMail[] {
		return mailbox()
			.waiting()
			.flatMap((waiting) => {
				const envelope = mailbox().peek(waiting);
				return envelope === undefined || asking?.awaits(envelope) ? [] : [{ name: waiting, envelope }];
			});
	}

	/** Mails of a folder by the start of an id; the id inside decides. */
	function find(folder: string, id: string): WaitingMail[] {
		const typed = id.toLowerCase();
		return disk.list(folder).flatMap((file) => {
			// The name is a hint that spares reading all of them.
			if (!mailPattern.test(file) || !file.includes(`-${typed}`)) return [];
			const envelope = mailAt(disk, join(folder, file));
			return envelope?.id.startsWith(typed) ? [{ name: nameIn(file), envelope }] : [];
		});
	}

	/** The one mail that an id stands for. */
	function one(folders: readonly string[], id: string, whose: string): WaitingMail | MemberRefusal {
		const found = id.length < minIdLength ? [] : folders.flatMap((folder) => find(folder, id));
		const ids = new Set(found.map(({ envelope }) => envelope.id));
		const [first] = found;
		if (first !== undefined && ids.size === 1) return first;
		if (ids.size > 1) return refuse("unknown_id", `several mails begin with ${id}; type more of the id`);
		const short = id.length < minIdLength ? `; type at least ${minIdLength} characters of the id` : "";
		return refuse("unknown_id", `no mail ${whose} has the id "${id.slice(0, 40)}"${short}`);
	}

	/** Claims by name; undefined when it is gone or is no mail. */
	function claim(waiting: string): ReadMail | undefined {
		const claimed = mailbox().claim(waiting);
		if (claimed.result === "dead") setAside(claimed);
		if (claimed.result === "left") machine.warn(`${claimed.path} is not mail and is passed over: ${claimed.reason}`);
		return claimed.result === "claimed" ? readMail(claimed.mail) : undefined;
	}

	/** Says that a mail was set aside, and does so where it has to be answered first (design D12). */
	function setAside({ path, reason, owing }: DeadMail): void {
		if (owing !== undefined) {
			const body = `(This mail could not be read: ${reason}. Send it again if it is still wanted.)`;
			const sent = answer({ ...owing, hops: 0 }, body, "failed");
			if (!sent.ok && sent.code === "io") {
				machine.warn(`${path} cannot be read, and that cannot be answered yet; it is tried again: ${sent.message}`);
				return;
			}
			mailbox().bury(basename(path), reason);
		}
		machine.warn(`${path} cannot be read and was set aside: ${reason}`);
	}

	/** Answers a mail. The same answer again is no second one, and there is none but the first. */
	function answer({ id, from, hops }: Pick<Envelope, "id" | "from" | "hops">, body: string, status: "done" | "failed") {
		return mailbox().deliver({
			to: from,
			kind: "reply",
			body,
			hops: Math.min(hops + 1, Number.MAX_SAFE_INTEGER),
			inReplyTo: [id],
			status,
			id: uuidOf(`${address} ${from} ${id} answer`),
			program: true,
		});
	}

	function readMail({ name, path, envelope }: OpenMail): ReadMail {
		mailbox().answered(envelope.kind === "reply" ? envelope.in_reply_to : []);
		return { name, path, envelope, isOld: false };
	}

	function noted(mail: ReadMail): ReadMail {
		noteProgress(disk, root, { from: mail.envelope.from, name: mail.name }, "read");
		return mail;
	}

	/** What a process that died claimed and never showed. To look for it takes the longer the older the mailbox is. */
	function leftOpen(): ReadMail | undefined {
		if (left.length === 0 && isPast(lookedAt)) {
			for (const found of mailbox().leftOpen()) {
				if (found?.result === "claimed") left.push(found.mail);
				else if (found?.result === "dead" && isPast(disk.changed(`${found.path}.open`))) setAside(found);
			}
			lookedAt = now();
		}
		for (let mail = left.pop(); mail !== undefined; mail = left.pop()) {
			// Another process of this name may be showing it, or have shown it.
			if (isPast(disk.changed(`${mail.path}.open`))) return readMail(mail);
		}
		return undefined;
	}

	function attempt<T>(action: () => T): T | MemberRefusal {
		if (isClosed) return closed();
		try {
			return action();
		} catch (error) {
			return refuse("io", errorReason(error));
		}
	}

	const member: ProgramMember = {
		address,
		who,
		running,
		appear: () => attempt(() => (isSession ? ({ ok: true } as const) : appear())),
		send({ to, kind, body, id, hops, quiet, priority }) {
			return attempt(() => {
				const count = hopsOf(hops);
				if (count === undefined) return oldSession();
				if (isSession && kind === "request") {
					return refuse("in_session", "a request is the user's alone; send a message, or ask");
				}
				if (who.type === "passing" && kind === "request") {
					return refuse(
						"no_name",
						"a request needs an address for its answer: say who you are with --from NAME, or use ask",
					);
				}
				const out = outbox();
				const isLimited = isSession || hops !== undefined;
				const limit = isLimited && mailbox().sentBefore(id) === undefined ? out.hopRefusal(count) : undefined;
				return limit ?? out.send({ to, kind, body, hops: count, id, quiet, priority, program: !isSession });
			});
		},
		ask,
		control(to, control) {
			if (isSession) return refuse("in_session", "another session is paused, stopped or interrupted by its user alone");
			return attempt(() => outbox().control(to, control, true));
		},
		inbox: () => (who.type === "passing" ? noName() : attempt(waitingMails)),
		read(id) {
			const refused = nameless("mail cannot be read by a program");
			if (refused !== undefined) return refused;
			return attempt(() => {
				if (id === undefined) {
					const left = leftOpen();
					if (left !== undefined) return left;
					for (const waiting of mailbox().waiting()) {
						const envelope = asking && mailbox().peek(waiting);
						if (envelope !== undefined && asking?.awaits(envelope)) continue;
						const mail = claim(waiting);
						if (mail !== undefined) return noted(mail);
					}
					return undefined;
				}
				const found = one([boxes.new, boxes.cur], id, "here");
				if ("ok" in found) return found;
				const claimed = claim(found.name);
				if (claimed !== undefined) return noted(claimed);
				return { ...found, path: join(boxes.cur, found.name), isOld: true };
			});
		},
		answeredBy: ({ envelope }) => {
			const copies = attempt(() => mailbox().sentCopies(envelope.kind === "reply" ? envelope.in_reply_to : []));
			return "ok" in copies ? [] : copies;
		},
		done({ name }) {
			guarded(() => mailbox().close(name));
		},
		reply(id, text, status) {
			const refused = nameless(
				"answer with session_mail_reply, or by the last message of the run, and not by a program",
			);
			if (refused !== undefined) return refused;
			return attempt(() => {
				const found = one([boxes.new, boxes.cur], id, "here");
				if ("ok" in found) return found;
				const { envelope } = found;
				if (!awaitsAnswer(envelope)) {
					return refuse("not_owed", `${envelope.id} is a ${envelope.kind}, which expects no answer`);
				}
				if (text.trim() === "") return refuse("empty", "the answer is empty");
				const claimed = claim(found.name);
				const outcome = answer(envelope, text.trim(), status);
				if (!outcome.ok && outcome.code === "id_used") return refuse("answered", `${envelope.id} is already answered`);
				if (!outcome.ok) return refusalOf(outcome);
				if (claimed !== undefined) mailbox().close(claimed.name);
				noteProgress(disk, root, { from: envelope.from, name: found.name }, status === "done" ? "answered" : "failed");
				return { ok: true, envelope: outcome.envelope };
			});
		},
		sent(atMost) {
			if (who.type === "passing") return noName();
			return attempt(() => {
				const names = disk.list(boxes.sent);
				const all = new Set(names);
				const copies = names
					.filter((file) => mailPattern.test(file))
					.sort()
					.reverse();
				return copies.slice(0, atMost).flatMap((file) => {
					const envelope = mailAt(disk, join(boxes.sent, file));
					const name = nameIn(file);
					if (envelope === undefined) return [];
					return [{ name, envelope, status: sentStatus(disk, root, boxes, { name, to: envelope.to }, all) }];
				});
			});
		},
		edit(id, text) {
			const refused = nameless("mail is changed in the mailbox screen, and not by a program");
			if (refused !== undefined) return refused;
			return attempt(() => {
				const found = one([boxes.sent], id, "that was sent from here");
				if ("ok" in found) return found;
				const { kind, to } = found.envelope;
				// Whoever waits knows the id of the old one alone.
				if (kind === "ask" && running.find(address)?.waitingOn === to) {
					return refuse("waited_for", "a program of this name waits for its answer; interrupt that one, and ask again");
				}
				const outcome = mailbox().edit(found, text);
				return outcome.ok ? { ok: true, envelope: outcome.envelope } : refusalOf(outcome);
			});
		},
		retract(id) {
			const refused = nameless("mail is taken back with /mailbox, and not by a program");
			if (refused !== undefined) return refused;
			return attempt(() => {
				const found = one([boxes.sent], id, "that was sent from here");
				if ("ok" in found) return found;
				if (mailbox().retract(found)) return { ok: true, envelope: found.envelope };
				const isBack = mailbox().isTakenBack(found.name);
				return refuse("claimed", isBack ? "it was taken back already" : "its recipient has it already");
			});
		},
		watch(look) {
			const guardedLook = () => guarded(look);
			const unwatch = watchFolder(boxes.new, guardedLook);
			const timer = setInterval(guardedLook, sweepMs);
			return () => {
				clearInterval(timer);
				unwatch();
			};
		},
		close() {
			guarded(() => {
				if (who.type === "named") opened?.closeState();
				record?.release();
				if (who.type === "passing") removePassing(disk, root, address);
			});
			record = undefined;
			isClosed = true;
		},
	};
	return { ok: true, member };
}

/** Ids that people type are at least this long. */
const minIdLength = 8;
/** A mail in any box; a copy of one that was taken back has the ending besides. */
const mailPattern = /\.json(?:\.retracted)?$/;
/** How often a folder is looked at though nothing is heard of it: a watch may lose an event (design L5). */
const sweepMs = 1000;
/** How long another process of this name may take to show what it has claimed, or to send what it has changed. */
const showingMs = 2000;

/** The name that a mail was sent under, by that of its file. */
function nameIn(file: string): string {
	return file.replace(/\.retracted$/, "");
}

function refusalOf({ code, message }: EditRefusal): MemberRefusal {
	const isKnown = code === "io" || code === "too_large" || code === "empty" || code === "claimed";
	return { ok: false, code: isKnown ? code : "undeliverable", message };
}

function refuse(code: MemberRefusal["code"], why: string): MemberRefusal {
	return { ok: false, code, message: `Nothing was done: ${why}.` };
}

function noName(): MemberRefusal {
	return refuse("no_name", "say whose mail it is with --from NAME, or set PI_SESSION_MAIL_NAME");
}

/** What is sent is a program's. One that counts no hops is held to no limit. */
function ofProgram(outbox: Outbox, isLimited: boolean): Outbox {
	const send: Outbox["send"] = (mail) => outbox.send({ ...mail, program: true });
	return isLimited ? { ...outbox, send } : { ...outbox, send, hopRefusal: () => undefined };
}

/** A watch is a hint: without one the sweep finds everything. */
function watchFolder(folder: string, onChange: () => void): () => void {
	let watcher: FSWatcher | undefined;
	try {
		watcher = watch(folder, { persistent: false }, onChange);
		watcher.on("error", () => watcher?.close());
	} catch {}
	return () => watcher?.close();
}
