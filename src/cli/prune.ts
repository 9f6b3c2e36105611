import { prune as pruneFolders } from "../mail/prune.ts";
import { oneLine } from "../mail/text.ts";
import { dayMs } from "../mail/time.ts";
import { runningOn } from "../member/machine.ts";
import type { Call } from "./call.ts";
import { thisMachine } from "./machine.ts";
import { wholeNumber } from "./number.ts";
import type { Printed } from "./schemas.ts";

const progressMs = 100;

/** `prune`: removes the folders of closed sessions. */
export async function prune(call: Call): Promise<number> {
	const { out } = call;
	const machine = thisMachine(call);
	const { disk, root, now } = machine;
	const days = wholeNumber(call, "days", 100_000);
	const printed: Printed["prune"] = { removed: [], warnings: [] };
	if (disk.entry(root) !== undefined) {
		const running = runningOn(machine);
		const olderThanMs = days === undefined ? undefined : days * dayMs;
		let looked = 0;
		let shownAt = 0;
		for (const step of pruneFolders({ disk, root, self: "", running, now, olderThanMs })) {
			looked++;
			if (step !== undefined && "removed" in step) printed.removed.push(step.removed);
			else if (step !== undefined) printed.warnings.push(step.warning);
			if (performance.now() - shownAt < progressMs) continue;
			shownAt = performance.now();
			out.progress(`Looked at ${looked} files and folders, removed ${printed.removed.length} mailboxes`);
			// Ctrl+C and the terminal get their turn.
			await new Promise((resolve) => setImmediate(resolve));
		}
		out.progress(undefined);
	}
	if (out.isJson) await out.printJson(printed);
	else {
		for (const warning of printed.warnings) out.note(`warning: ${oneLine(warning)}`);
		await out.print(`Removed ${printed.removed.length} mailbox folders of closed sessions.`);
	}
	return printed.warnings.length > 0 ? 1 : 0;
}
