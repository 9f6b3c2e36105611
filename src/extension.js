// What Pi loads. Plain JavaScript, because a transpiled entry costs every start of Pi a quarter of a second; it must
// never throw, because an extension that does not load ends Pi.
import { existsSync } from "node:fs";

const bundle = new URL("../dist/core.mjs", import.meta.url);
const source = new URL("./index.ts", import.meta.url);

/** @param {import("@earendil-works/pi-coding-agent").ExtensionAPI} pi */
export default async function sessionMail(pi) {
	try {
		const core = existsSync(bundle) ? await import("../dist/core.mjs") : await import("./index.ts");
		core.default(pi);
	} catch (error) {
		const missing = existsSync(bundle) || existsSync(source) ? String(error) : "its files are missing";
		const text = `pi-session-mail is off, because ${missing}; install it again with: pi install npm:pi-session-mail`;
		pi.on("session_start", (_event, ctx) => {
			if (ctx.hasUI) ctx.ui.notify(text, "warning");
			else console.error(text);
		});
	}
}
