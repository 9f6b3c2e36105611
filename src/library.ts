/**
 * What `pi-session-mail/mail` exports, for programs that take part in mail on their own. The one file that exports what
 * others define: it is the package's entry, and nothing in the package imports it.
 */

import { boxesOf } from "./mail/boxes.ts";
import { type Resolved, resolve } from "./mail/resolve.ts";
import type { RunningSession } from "./mail/running.ts";
import type { MailSettings } from "./mail/settings.ts";
import { machineFor, runningOn } from "./member/machine.ts";
import { type Member, type MemberRefusal, openMember } from "./member/member.ts";
import { surroundingSession, type WhoRefusal, whoIsIt } from "./member/who.ts";

export {
	type Control,
	type Envelope,
	type Extras,
	type MailKind,
	maxBodyBytes,
	type ParsedEnvelope,
	parseEnvelope,
	type ReplyStatus,
	serialiseEnvelope,
} from "./mail/envelope.ts";
export type { SentStatus } from "./mail/progress.ts";
export type { ResolveCode, Resolved } from "./mail/resolve.ts";
export { mailRoot } from "./mail/root.ts";
export type { RunningSession } from "./mail/running.ts";
export type { MailSettings } from "./mail/settings.ts";
export type { WakeOn } from "./mail/wake-on.ts";
export type {
	Done,
	Member,
	MemberRefusal,
	ProgramAsk,
	ProgramMail,
	ReadMail,
	SentMail,
	WaitingMail,
} from "./member/member.ts";
export type { WhoRefusal } from "./member/who.ts";
export type { AskOutcome, AskProgress, AskRefusal } from "./session/asks.ts";
export type { SendRefusal, Sent } from "./session/outbox.ts";

/** How `openMail` looks at this machine. */
export interface MailOptions {
	/**
	 * Where the mail root and the settings lie, and whether this is the shell of a Pi session: `XDG_STATE_HOME`,
	 * `PI_CODING_AGENT_DIR`, `PI_SESSION_ID`. Default: `process.env`.
	 */
	env?: NodeJS.ProcessEnv;
	/** Hears of what cannot be used or cleaned, each thing once, one line each. Default: nobody does. */
	warn?: (text: string) => void;
}

/** As whom a program takes part. */
export interface JoinOptions {
	/**
	 * Its lasting address: letters, digits, dots, hyphens and underscores, at most 128. Without it the program gets an
	 * address that goes with `close`: it can send messages and ask. Inside the shell of a Pi session leave it out: the
	 * program is that session then.
	 */
	name?: string;
	/** What a program without a name is called in lists. Default: `program`. */
	title?: string;
	/** The folder that lists show. Default: that of the process. */
	cwd?: string;
}

/** The mail of this machine. */
export interface Mail {
	/** The folder in which all mail lies; it need not exist. */
	readonly root: string;
	/** The settings as they are now; what is missing or broken has its default. Never throws. */
	settings(): MailSettings;
	/**
	 * The sessions and programs that run, by name; those without one come first. Never throws. Names and folders may hold
	 * anything: clean them before you show them.
	 */
	running(): RunningSession[];
	/**
	 * What somebody typed as a recipient, as an address: a full id, the exact name of one that runs, or at least 8
	 * characters of its id. `send` and `ask` do the same with their `to`. Never throws.
	 */
	resolve(to: string): Resolved;
	/** Opens a mailbox. Refuses a name that cannot be one, or that is a Pi session's. Throws the errors of the disk. */
	join(options?: JoinOptions): { ok: true; member: Member } | MemberRefusal | WhoRefusal;
}

/** The mail of this machine. Before `join` nothing is written; `running` removes the records of processes that are gone. */
export function openMail({ env = process.env, warn = () => {} }: MailOptions = {}): Mail {
	const machine = machineFor(env, warn);
	const { disk, processes, root } = machine;
	const running = runningOn(machine);

	function hasMailbox(address: string): boolean {
		try {
			return disk.entry(boxesOf(root, address).folder) === "folder";
		} catch {
			return false;
		}
	}

	return {
		root,
		settings: machine.settings,
		running: running.list,
		resolve: (to) => resolve(to, { running: running.list(), self: "", hasMailbox }),
		join({ name, title = "program", cwd = process.cwd() } = {}) {
			const as = whoIsIt(name, surroundingSession(env, running, processes));
			return as.ok ? openMember({ machine, who: as.who, name: title, purpose: "send", cwd }) : as;
		},
	};
}
