import sessionMail, { thisMachine } from "../../src/index.ts";
import type { Extension } from "../support/fake-pi.ts";

/**
 * This package on this machine, except that it prunes without the lock: that one is made on another thread, and does no
 * more than spare work. `hasPruned` hears that a pass has ended, as one does at the end of each start.
 */
export function packageHere(hasPruned = () => {}): Extension {
	return (pi) => sessionMail(pi, { ...thisMachine(), whileAlone: (_root, work) => work(hasPruned) });
}
