import { join } from "node:path";
import { isCanonicalAddress } from "../mail/address.ts";
import { boxesOf, lastChanged, mailsIn } from "../mail/boxes.ts";
import type { Disk } from "../mail/disk.ts";
import { idInName } from "../mail/envelope.ts";
import type { Mailbox } from "../mail/mailbox.ts";
import type { Ledger } from "./ledger.ts";
import type { Listed, Overview } from "./overview.ts";

/** A session that does not run, by its mailbox. */
export interface ClosedSession {
	address: string;
	/** When something in its folders changed last, in milliseconds since 1970. */
	lastActiveMs: number;
}

/** Sessions of which each waits for the next one's answer. */
export interface Chain {
	addresses: string[];
	/** The last waits for the first: none of them goes on by itself. */
	isRing: boolean;
}

/** A mail that somebody waits for; `listed` is undefined when its file is not here any more. */
export interface Waiting {
	id: string;
	listed: Listed | undefined;
}

/** Who is there besides this session, and who waits for whom. Throws the disk's errors. */
export interface Sessions {
	/**
	 * How many mails wait for a session. Of this one: those that are unread. Of another: those that it has not claimed, since
	 * what has become of the rest only it knows.
	 */
	waitingCount(address: string): number;
	/** The sessions that have a mailbox here and do not run, the latest first. Undefined is a place to pause. */
	closed(): Generator<undefined, ClosedSession[]>;
	/** The requests and asks of this session that nobody has answered, newest first. */
	awaited(): Listed[];
	/** What waits for this session: the mail that is unread, newest first, then what is owed, oldest first. */
	waiting(): Waiting[];
	/** Which sessions wait for which. */
	chains(): Chain[];
}

export interface SessionsParts {
	disk: Disk;
	root: string;
	mailbox: Pick<Mailbox, "awaits" | "address">;
	ledger: Pick<Ledger, "unanswered">;
	overview: Overview;
}

export function createSessions({ disk, root, mailbox, ledger, overview }: SessionsParts): Sessions {
	return {
		waitingCount(address) {
			if (address === mailbox.address) return overview.unread().length;
			const folder = boxesOf(root, address).new;
			return disk.entry(folder) === "folder" ? mailsIn(disk, folder).length : 0;
		},
		*closed() {
			const running = new Set(overview.running().map(({ address }) => address));
			const found: ClosedSession[] = [];
			for (const name of disk.walk(root)) {
				yield undefined;
				if (!isCanonicalAddress(name) || running.has(name) || disk.entry(join(root, name)) !== "folder") continue;
				found.push({ address: name, lastActiveMs: lastChanged(disk, boxesOf(root, name)) });
			}
			return found.sort((a, b) => b.lastActiveMs - a.lastActiveMs);
		},
		awaited: () => overview.sent.filter(({ name }) => mailbox.awaits(idInName(name))),
		waiting() {
			const unread = overview.unread().map((listed) => ({ id: idInName(listed.name), listed }));
			const owed = ledger.unanswered().map(({ id }) => ({ id, listed: overview.find("inbox", id) }));
			const shown = new Set(unread.map(({ id }) => id));
			return [...unread, ...owed.filter(({ id }) => !shown.has(id))];
		},
		chains() {
			const next = new Map(
				overview
					.running()
					.flatMap(({ address, waitingOn }) => (waitingOn === "" ? [] : [[address, waitingOn] as const])),
			);
			return chainsOf(next);
		},
	};
}

/** The chains in "each waits for at most one other": every waiting session is in one, and a ring has no beginning. */
export function chainsOf(next: ReadonlyMap<string, string>): Chain[] {
	const targets = new Set(next.values());
	const met = new Set<string>();
	const chains: Chain[] = [];
	// First what nobody waits for: what is left after that are rings.
	const starts = [...next.keys()].sort((a, b) => Number(targets.has(a)) - Number(targets.has(b)));
	for (const start of starts) {
		if (met.has(start)) continue;
		const path: string[] = [];
		let at: string | undefined = start;
		// The end of one chain may go on in another, which is said there.
		while (at !== undefined && !path.includes(at) && !(at !== start && met.has(at))) {
			path.push(at);
			met.add(at);
			at = next.get(at);
		}
		const ringStart = at === undefined ? -1 : path.indexOf(at);
		if (ringStart < 0) chains.push({ addresses: at === undefined ? path : [...path, at], isRing: false });
		else if (ringStart > 0) chains.push({ addresses: path.slice(0, ringStart + 1), isRing: false });
		if (ringStart >= 0) chains.push({ addresses: path.slice(ringStart), isRing: true });
	}
	return chains;
}
