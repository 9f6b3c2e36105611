import { hourMs } from "../mail/time.ts";
import { createHops } from "../session/hops.ts";

/** The loop guard of a program whose turns nobody sees, such as an MCP client's model. */
export interface Chain {
	/** What the next mail carries: the highest hops of the mail that was read, plus one, until none was read for an hour. */
	readonly count: number;
	/** A mail with these hops was read. */
	read(hops: number): void;
}

/** `now` is in milliseconds, and never steps back. */
export function createChain(now: () => number): Chain {
	const hops = createHops();
	let readAt = 0;
	return {
		get count() {
			if (now() - readAt >= hourMs) hops.settled();
			return hops.count;
		},
		read(count) {
			if (now() - readAt >= hourMs) hops.settled();
			hops.arrived(count);
			readAt = now();
		},
	};
}
