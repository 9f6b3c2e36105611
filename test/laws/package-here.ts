import sessionMail from "../../src/index.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { systemProcesses } from "../../src/mail/process.ts";
import { mailRoot } from "../../src/mail/root.ts";
import { settingsPath } from "../../src/mail/settings.ts";
import type { Extension } from "../support/fake-pi.ts";

/**
 * This package on this machine, except that it prunes without the lock: that one is made on another thread, and does no
 * more than spare work. `hasPruned` hears that a pass has ended, as one does at the end of each start.
 */
export function packageHere(hasPruned = () => {}): Extension {
	return (pi) =>
		sessionMail(pi, {
			disk: nodeDisk(),
			processes: systemProcesses(),
			now: Date.now,
			root: mailRoot,
			settingsFile: settingsPath,
			whileAlone: (_root, work) => work(hasPruned),
		});
}
