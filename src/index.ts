import type { ExtensionAPI, ExtensionContext, SessionStartEvent } from "@earendil-works/pi-coding-agent";
import { registerMailboxCommand } from "./commands/mailbox.ts";
import { errorMessage, nodeDisk } from "./mail/disk.ts";
import { systemProcesses } from "./mail/process.ts";
import { mailRoot } from "./mail/root.ts";
import { type MailSession, openSession } from "./session/session.ts";

/**
 * The extension: makes the parts and connects them to Pi. Nothing is registered before `session_start`, where a second
 * copy of this package can still step back (design D25).
 */
export default function sessionMail(pi: ExtensionAPI): void {
	const machine = { disk: nodeDisk(), processes: systemProcesses(), now: Date.now, root: mailRoot };
	let session: MailSession | undefined;

	function start(event: SessionStartEvent, ctx: ExtensionContext): void {
		// Pi before 1.6 fires this twice on some session changes.
		session?.shutDown({ type: "session_shutdown", reason: "reload" });
		session = undefined;
		const rival = rivalOf(pi, ctx);
		if (rival !== undefined) {
			tell(ctx, rival);
			return;
		}
		owners.set(ctx.sessionManager, pi);
		registerMailboxCommand(pi, () => session);
		try {
			session = openSession(pi, ctx, event, machine);
		} catch (error) {
			tell(ctx, `mailbox is off: ${errorMessage(error)}`);
		}
	}

	pi.on("session_start", start);
	pi.on("resources_discover", () => session?.resourcesDiscovered());
	pi.on("input", () => session?.input());
	pi.on("agent_start", () => session?.agentStarted());
	pi.on("context", () => session?.context());
	pi.on("turn_end", (event) => session?.turnEnded(event));
	pi.on("agent_settled", (event) => session?.settled(event));
	pi.on("session_info_changed", ({ name }) => session?.renamed(name));
	pi.on("session_shutdown", (event, ctx) => {
		if (owners.get(ctx.sessionManager) === pi) owners.delete(ctx.sessionManager);
		session?.shutDown(event);
		session = undefined;
	});
}

/** Which copy of the package has a session's mailbox. On `globalThis`, since each copy is a module of its own. */
const owners: WeakMap<object, unknown> = ownersOf(globalThis);

function ownersOf(scope: { [key: symbol]: unknown }): WeakMap<object, unknown> {
	const key = Symbol.for("pi-session-mail.owners");
	const found = scope[key];
	if (found instanceof WeakMap) return found;
	const made = new WeakMap<object, unknown>();
	scope[key] = made;
	return made;
}

const toolNames = ["session_mail_list", "session_mail_ask", "session_mail_reply", "session_mail_send"];

/** What else has this session's mailbox, as one sentence; undefined when nothing has. */
function rivalOf(pi: ExtensionAPI, ctx: ExtensionContext): string | undefined {
	const owner = owners.get(ctx.sessionManager);
	if (owner !== undefined && owner !== pi) {
		return "pi-session-mail is loaded twice; this copy does nothing. Remove one of the two with: pi remove <source>";
	}
	const foreign = pi.getAllTools().find((tool) => toolNames.includes(tool.name));
	if (foreign === undefined) return undefined;
	return `another extension already has the tool ${foreign.name}, so this copy does nothing. Remove one of the two with: pi remove <source>`;
}

function tell(ctx: ExtensionContext, text: string): void {
	if (ctx.hasUI) ctx.ui.notify(`mailbox: ${text}`, "warning");
	else console.error(`mailbox: ${text}`);
}
