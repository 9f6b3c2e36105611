// What Pi loads. Plain JavaScript, because a transpiled entry costs every start of Pi a quarter of a second; it must
// never throw, because an extension that does not load ends Pi.
import { existsSync, readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

const bundle = new URL("../dist/core.mjs", import.meta.url);
const source = new URL("./index.ts", import.meta.url);
const host = usesCalls() ? await hostModule() : undefined;

/** @param {import("@earendil-works/pi-coding-agent").ExtensionAPI} pi */
export default async function sessionMail(pi) {
	try {
		const isBuilt = existsSync(bundle);
		const core = isBuilt ? await import("../dist/core.mjs") : await import("./index.ts");
		const calls = host && (isBuilt ? await import("../dist/calls.mjs") : await import("./calls/index.ts"));
		core.default(pi, undefined, calls && ((...settings) => calls.createCalls(pi, host, ...settings)));
	} catch (error) {
		const missing = existsSync(bundle) || existsSync(source) ? String(error) : "its files are missing";
		const text = `pi-session-mail is off, because ${missing}; install it again with: pi install npm:pi-session-mail`;
		pi.on("session_start", (_event, ctx) => {
			if (ctx.hasUI) ctx.ui.notify(text, "warning");
			else console.error(text);
		});
	}
}

/** Whether the settings, or those of a project, ask for what needs Pi's own module, or may: when they cannot be read now, every call is asked about. */
function usesCalls() {
	const agentDir = process.env.PI_CODING_AGENT_DIR?.replace(/^~(?=$|\/)/, () => homedir());
	const folders = [agentDir || join(homedir(), ".pi", "agent"), join(process.cwd(), ".pi")];
	return folders.some((folder) => mayHavePolicy(join(folder, "session-mail.json")));
}

function mayHavePolicy(settings) {
	try {
		return statSync(settings).isFile() && /tool|polic|perm|wrap/i.test(textOf(settings));
	} catch (error) {
		return error.code !== "ENOENT";
	}
}

/** Without what stands between the letters where an editor wrote two bytes for each. */
function textOf(file) {
	return readFileSync(file, "utf8").replaceAll("\0", "");
}

/**
 * Pi's own module. Where this file was imported as it is, which is how Pi tries first, nothing of that name is found: the
 * error makes Pi import this file its own way, in which it is. That costs a moment, and only those who use calls.
 */
async function hostModule() {
	const failed = Symbol.for("pi-session-mail.host-failed");
	try {
		return await import("@earendil-works/pi-coding-agent");
	} catch (error) {
		if (globalThis[failed]) return undefined;
		globalThis[failed] = true;
		throw error;
	}
}
