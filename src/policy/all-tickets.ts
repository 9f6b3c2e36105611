import { join } from "node:path";
import { isCanonicalAddress } from "../mail/address.ts";
import type { Disk } from "../mail/disk.ts";
import { openTicketStore, type Ticket, type TicketStore } from "./tickets.ts";

/** The mail root, whose sessions' tickets are meant. */
interface Root {
	disk: Disk;
	root: string;
	/** Milliseconds since 1970. */
	now: () => number;
}

/** The tickets of all sessions that wait for a decision, the oldest first. `failed` hears of those that cannot be read. */
export function pendingIn(root: Root, failed: (error: unknown) => void): Ticket[] {
	const found: Ticket[] = [];
	for (const store of storesIn(root)) {
		try {
			found.push(...store.listPending());
		} catch (error) {
			failed(error);
		}
	}
	return found.sort((a, b) => a.since - b.since);
}

/** Where the ticket of an id lies; undefined when there is none. Throws the disk's errors. */
export function storeOf(root: Root, id: string): TicketStore | undefined {
	return storesIn(root).find((store) => store.find(id) !== undefined);
}

function storesIn({ disk, root, now }: Root): TicketStore[] {
	if (disk.entry(root) !== "folder") return [];
	return disk.list(root).flatMap((name) => {
		const folder = join(root, name);
		const hasTickets = isCanonicalAddress(name) && disk.entry(join(folder, "tickets")) === "folder";
		return hasTickets ? [openTicketStore(disk, folder, now)] : [];
	});
}
