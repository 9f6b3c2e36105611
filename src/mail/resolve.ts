import { canonicalAddress, isAddress, isPassingAddress, isUuid, shortAddress, shortIdLength } from "./address.ts";
import { field, seen } from "./text.ts";

/** What resolving needs to know of a running session. */
export interface Addressee {
	address: string;
	name?: string | undefined;
	x?: { program?: boolean | undefined };
}

/** An address, or one sentence that says why there is none and what to do. */
export type Resolved = { ok: true; address: string } | { ok: false; code: ResolveCode; message: string };

/** Why a text is no recipient, for programs. */
export type ResolveCode = "empty" | "self" | "ambiguous" | "unknown";

export interface Directory {
	/** The sessions that run, this one included. */
	running: readonly Addressee[];
	/** The address of the session that asks. */
	self: string;
	/** Whether an address has a mailbox on this machine. */
	hasMailbox: (address: string) => boolean;
}

/**
 * What somebody typed as a recipient, as an address (PSM-030…034): a running session's address or a full session id as it
 * is; then a running session's exact name; then the full id of a closed session that is no UUID; then a prefix of a
 * running session's id, of at least 8 characters. Several are refused, naming each; so are none, and the session itself.
 */
export function resolve(to: string, { running, self, hasMailbox }: Directory): Resolved {
	if (to === "") return refuse("empty", 'say who gets the mail: a session\'s name or id, such as "reviewer"');
	const address = canonicalAddress(to);
	// Programs choose their addresses: one must not get the mail of a session that is called the same. What waits for a single
	// answer is no recipient.
	const named = running.filter((session) => session.name === to && !isPassingAddress(session.address));
	const isSession = (other: Addressee) => other.address === address && other.x?.program !== true;
	if (isUuid(to) || running.some(isSession)) return found(address);
	if (named.length > 0) return oneOf(named);
	if (isPassingAddress(to) && !hasMailbox(address)) return refuse("unknown", `the program ${to} has ended`);
	if (isAddress(to) && hasMailbox(address)) return found(address);
	const prefixes = [to, to.toLowerCase()];
	const startsWith = running.filter((session) => prefixes.some((prefix) => session.address.startsWith(prefix)));
	if (to.length >= shortIdLength && startsWith.length > 0) return oneOf(startsWith);
	const hint = "a closed session is reached by its full id";
	if (startsWith.length > 0) {
		return refuse("unknown", `${quote(to)} is too short for an id: type at least ${shortIdLength} characters of it`);
	}
	const others = running.filter((session) => session.address !== self);
	if (others.length === 0) return refuse("unknown", `no other session is running; ${hint}`);
	return refuse("unknown", `no running session is called ${quote(to)}; running: ${listed(others)}; ${hint}`);

	function oneOf(candidates: readonly Addressee[]): Resolved {
		const [first, second] = candidates;
		if (first !== undefined && second === undefined) return found(first.address);
		return refuse("ambiguous", `${quote(to)} could be ${listed(candidates)}; use the full id`);
	}

	function found(address: string): Resolved {
		if (address === self) return refuse("self", "that is this session, and a session cannot send mail to itself");
		return { ok: true, address };
	}

	function listed(sessions: readonly Addressee[]): string {
		const addresses = running.map((session) => session.address);
		const shown = sessions.slice(0, maxListed).map((session) => {
			return `${displayName(session, addresses)} (${session.address})`;
		});
		if (sessions.length > maxListed) shown.push(`${sessions.length - maxListed} more`);
		return shown.join(", ");
	}
}

/**
 * How a session that runs is called: its name when a reader sees one, or the shortest part of its id that none of `addresses`
 * shares (design D6).
 */
export function displayName(session: Addressee, addresses: Iterable<string>, maxCharacters = maxShown): string {
	return seen(field(session.name ?? "", maxCharacters)) ?? shortAddress(session.address, addresses);
}

const maxListed = 10;
const maxShown = 60;

function refuse(code: ResolveCode, why: string): Resolved {
	return { ok: false, code, message: `Nothing was sent: ${why}.` };
}

function quote(text: string): string {
	return `"${field(text, maxShown)}"`;
}
