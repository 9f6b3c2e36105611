import { nodeDisk } from "../mail/disk.ts";
import { systemProcesses } from "../mail/process.ts";
import { mailRoot } from "../mail/root.ts";
import { openRunning, type Running } from "../mail/running.ts";
import { openSettings, settingsPath } from "../mail/settings.ts";
import type { Machine } from "./member.ts";

/** The machine that this process runs on. `say` hears of what cannot be used or cleaned, each thing once, one line each. */
export function machineFor(env: NodeJS.ProcessEnv, say: (text: string) => void): Machine {
	const said = new Set<string>();
	const warn = (text: string) => {
		if (said.has(text)) return;
		said.add(text);
		say(text);
	};
	const disk = nodeDisk();
	const now = Date.now;
	const settings = openSettings({ disk, file: settingsPath(env), now, warn });
	return { disk, processes: systemProcesses(), now, root: mailRoot(env), settings: settings.read, warn };
}

/** The sessions and programs that run, for a command that is no member. */
export function runningOn({ disk, processes, now, root, warn }: Machine): Running {
	return openRunning({ disk, root, processes, now, warn: (path, why) => warn(`${path}: ${why}`) });
}
