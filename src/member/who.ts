import { readFileSync } from "node:fs";
import { canonicalAddress, isAddress, isPassingAddress, isReservedAddress, isUuid } from "../mail/address.ts";
import type { Processes } from "../mail/process.ts";
import type { Running, RunningSession } from "../mail/running.ts";
import { field } from "../mail/text.ts";

/** As whom a program takes part. */
export type Who =
	/** Under a lasting address, which is its name: its mail waits like a session's. */
	| { type: "named"; address: string }
	/** Under an address that lives as long as this one ask or message. */
	| { type: "passing" }
	/** As the Pi session in whose shell it runs: what it sends is the model's. */
	| { type: "session"; session: RunningSession };

/** Why a program cannot take part as it wants: the code for programs, one sentence for people. */
export interface WhoRefusal {
	ok: false;
	code: "invalid_name" | "in_session";
	message: string;
}

/**
 * As whom the program takes part: the session that it runs in, else the name that it was given, else nobody in
 * particular. A name inside a session is refused: the mail of a model must stay its own.
 */
export function whoIsIt(
	name: string | undefined,
	inside: RunningSession | undefined,
): { ok: true; who: Who } | WhoRefusal {
	if (inside !== undefined) {
		if (name === undefined) return { ok: true, who: { type: "session", session: inside } };
		const message = "Nothing was done: inside a Pi session mail is sent as that session; leave --from out.";
		return { ok: false, code: "in_session", message };
	}
	if (name === undefined) return { ok: true, who: { type: "passing" } };
	const problem = nameProblem(name);
	if (problem === undefined) return { ok: true, who: { type: "named", address: canonicalAddress(name) } };
	return { ok: false, code: "invalid_name", message: `Nothing was done: "${field(name, 60)}" ${problem}.` };
}

/** What keeps a text from being a program's lasting address; undefined when nothing does. */
function nameProblem(name: string): string | undefined {
	if (isUuid(name)) return "is the id of a Pi session; choose another name";
	if (isPassingAddress(name)) return "is an address of the kind that programs without a name get; choose another name";
	if (isAddress(name)) return undefined;
	if (isReservedAddress(name)) return "is the name of one of the mailbox's own folders; choose another";
	return "cannot be a name: use letters, digits, dots, hyphens and underscores, at most 128, the first and last a letter or digit";
}

/**
 * The Pi session in whose shell this process runs: that of `PI_SESSION_ID` when this process descends from it or that
 * cannot be told, else the one whose process is among the ancestors of this one, since a command can drop the variable.
 * A command that leaves its shell for good and drops the variable is not found out: the limit stops loops, no malice.
 */
export function surroundingSession(
	env: NodeJS.ProcessEnv,
	running: Running,
	processes: Processes,
): RunningSession | undefined {
	const id = env.PI_SESSION_ID;
	const named = id !== undefined && isAddress(id) ? running.find(canonicalAddress(id)) : undefined;
	if (named !== undefined && named.x.program !== true && mayDescend(named, processes.self.pid)) return named;
	const ancestors = new Set(ancestorsOf(processes.self.pid).map(({ pid }) => pid));
	if (ancestors.size === 0) return undefined;
	const isAround = ({ pid, judgement, x }: RunningSession) =>
		judgement === "running" && x.program !== true && ancestors.has(pid);
	return running.list().find(isAround);
}

/** A process above this one. */
interface Ancestor {
	pid: number;
	/** The session of processes that it belongs to (setsid(2)). */
	group: number;
}

const maxAncestors = 100;

/** The processes above this one, nearest first, itself included; none where the system does not tell (Linux does). */
function ancestorsOf(self: number): Ancestor[] {
	const ancestors: Ancestor[] = [];
	for (let pid = self; pid > 0 && ancestors.length < maxAncestors; ) {
		const stat = read(`/proc/${pid}/stat`);
		const fields = stat?.slice(stat.lastIndexOf(")") + 2).split(" ");
		if (fields === undefined) break;
		ancestors.push({ pid, group: Number(fields[3]) });
		pid = Number(fields[1]);
	}
	return ancestors;
}

/**
 * Whether this process may come from a session's. A process whose parents have ended belongs to another one then, and
 * nobody can tell any more. It does not come from the session when the outermost process that began with the variable
 * still stands beside its own parent: somebody has set the variable there.
 */
function mayDescend(session: RunningSession, self: number): boolean {
	if (session.judgement !== "running") return true;
	const ancestors = ancestorsOf(self);
	if (ancestors.length === 0 || ancestors.some(({ pid }) => pid === session.pid)) return true;
	const outermost = ancestors.findLastIndex(({ pid }) => hasVariable(pid, session.address));
	const [child, parent] = [ancestors[outermost], ancestors[outermost + 1]];
	return child !== undefined && child.group !== parent?.group;
}

function hasVariable(pid: number, address: string): boolean {
	const variables = read(`/proc/${pid}/environ`)?.split("\0") ?? [];
	return variables.some((text) => text.toLowerCase() === `PI_SESSION_ID=${address}`.toLowerCase());
}

function read(path: string): string | undefined {
	if (process.platform !== "linux") return undefined;
	try {
		return readFileSync(path, "utf8");
	} catch {
		return undefined;
	}
}
