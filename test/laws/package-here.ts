import { thisMachine } from "../../src/index.ts";
import { callsHost } from "../support/calls.ts";
import type { Extension } from "../support/fake-pi.ts";

/**
 * This package on this machine, except that it prunes without the lock: that one is made on another thread, and does no
 * more than spare work. `hasPruned` hears that a pass has ended, as one does at the end of each start. Of Pi, calls that
 * may be suspended find `host`.
 */
export function packageHere(hasPruned = () => {}, host = callsHost()): Extension {
	return host.extension({ ...thisMachine(), whileAlone: (_root, work) => work(hasPruned) });
}
