import { fileURLToPath } from "node:url";
import type {
	ExtensionAPI,
	ExtensionContext,
	SessionShutdownEvent,
	SessionStartEvent,
} from "@earendil-works/pi-coding-agent";
import type { CallsModule, SettingsReader } from "./calls/index.ts";
import { registerMailboxCommand } from "./commands/mailbox.ts";
import { createScreenControl } from "./commands/screen.ts";
import { announceMail, provideHooks } from "./hooks.ts";
import { errorMessage, nodeDisk } from "./mail/disk.ts";
import { systemProcesses } from "./mail/process.ts";
import { whileAlone } from "./mail/prune.ts";
import { mailRoot } from "./mail/root.ts";
import { openSettings, projectPolicy, type Settings, settingsPath } from "./mail/settings.ts";
import { unusedPolicy } from "./session/calls.ts";
import { diagnoseSession } from "./session/doctor.ts";
import { mailType } from "./session/ledger.ts";
import { type Announce, type Machine, type MailSession, openSession } from "./session/session.ts";
import { tell } from "./session/warnings.ts";
import { mailTools, registerTools, rememberTools, toolNames } from "./tools/register.ts";
import { renderMail } from "./view/mail.ts";

/**
 * The extension: makes the parts and connects them to Pi. Nothing is registered before `session_start`, where a second
 * copy of this package can still step back (design D25). `createCalls` makes what suspends calls, where the settings asked
 * for it when Pi was started.
 */
export default function sessionMail(
	pi: ExtensionAPI,
	machine: Machine = thisMachine(),
	createCalls?: (settings: SettingsReader, settingsFile: () => string) => CallsModule,
): void {
	const otherCopies = new Set<string>();
	const owner: Owner = { isGone: () => isStale(pi), met: (path) => otherCopies.add(path) };
	let session: MailSession | undefined;
	let isRegistered = false;
	let offBecause = "it has ended";
	let calls: CallsModule | undefined;
	const current = () => session;
	const tools = () => [...mailTools(current), ...(calls?.tools ?? [])];
	const reasonOff = () => offBecause;
	const diagnose = (ctx: ExtensionContext) => {
		const parts = { pi, ctx, machine, session: session ?? offBecause, tools: tools() };
		return diagnoseSession({ ...parts, otherCopies: [...otherCopies] });
	};
	const screen = createScreenControl(current, reasonOff, diagnose);

	function end(event: SessionShutdownEvent): void {
		session?.shutDown(event);
		session = undefined;
	}

	function start(event: SessionStartEvent, ctx: ExtensionContext): void {
		// Pi before 1.6 fires this twice on some session changes.
		end({ type: "session_shutdown", reason: "reload" });
		const rival = isRegistered ? undefined : rivalOf(pi, ctx);
		if (rival !== undefined) {
			tell(ctx, rival);
			return;
		}
		owners.set(ctx.sessionManager, owner);
		if (!isRegistered) {
			const unused = (at: ExtensionContext) => unusedPolicy(machine, at);
			registerMailboxCommand(pi, { current, reasonOff, screen, diagnose, unused });
			if (ctx.mode === "tui") registerShortcut();
			if (settings().toolPolicy !== undefined || hasProjectPolicy(ctx))
				calls = createCalls?.(settings, machine.settingsFile);
			registerTools(pi, ctx, tools());
			calls?.wrap(ctx);
			provideHooks(pi, current);
			pi.registerMessageRenderer(mailType, renderMail);
			isRegistered = true;
		}
		try {
			const announce: Announce = (mail, requests) => announceMail(pi, mail, requests);
			session = openSession(pi, ctx, event, announce, machine, calls?.open);
		} catch (error) {
			offBecause = errorMessage(error);
			tell(ctx, `mailbox is off: ${offBecause}`);
		}
	}

	/** At the start, the session says what is wrong with them. */
	function settings(warn: (text: string) => void = () => {}): Settings {
		const { disk, settingsFile, now } = machine;
		return openSettings({ disk, file: settingsFile(), now, warn }).read();
	}

	function hasProjectPolicy(ctx: ExtensionContext): boolean {
		const { disk, now } = machine;
		return ctx.isProjectTrusted() && projectPolicy(ctx.cwd, { disk, now, warn() {} }) !== undefined;
	}

	function registerShortcut(): void {
		const { shortcut } = settings();
		if (shortcut === false || !isKey(shortcut)) return;
		pi.registerShortcut(shortcut, { description: "Open the mailbox", handler: (ctx) => screen.open(ctx) });
	}

	pi.on("session_start", start);
	pi.on("resources_discover", () => session?.resourcesDiscovered());
	pi.on("input", () => session?.input());
	pi.on("agent_start", () => session?.agentStarted());
	pi.on("context", () => session?.context());
	pi.on("tool_execution_start", () => session?.toolStarted());
	pi.on("turn_end", (event) => session?.turnEnded(event));
	pi.on("agent_settled", (event) => session?.settled(event));
	pi.on("session_info_changed", ({ name }) => session?.renamed(name));
	pi.on("session_shutdown", (event, ctx) => {
		owners.delete(ctx.sessionManager);
		screen.close();
		end(event);
		// Of a copy that stepped back, none of the tools is its own.
		if (isRegistered) rememberTools(pi, ctx, tools());
	});
}

/** What the extension uses of the machine that it runs on. */
export function thisMachine(): Machine {
	return {
		disk: nodeDisk(),
		processes: systemProcesses(),
		now: Date.now,
		root: mailRoot,
		settingsFile: settingsPath,
		whileAlone,
	};
}

/** Any text may be the name of a key; Pi never meets one that is none. */
function isKey(name: string): name is Parameters<ExtensionAPI["registerShortcut"]>[0] {
	return name !== "";
}

/** A copy of the package that has a session's mailbox. Copies of different versions may meet: keep its shape. */
interface Owner {
	/** Whether Pi has dropped it without a `session_shutdown`. */
	isGone(): boolean;
	/** Told by a copy that steps back for this one, where it lies. The first version has no such method. */
	met?(path: string): void;
}

/** The owner of each session, by its session manager. On `globalThis`, since each copy is a module of its own. */
const owners = ownersOf(globalThis);

function ownersOf(scope: { [key: symbol]: unknown }): WeakMap<object, Owner> {
	const key = Symbol.for("pi-session-mail.owners");
	const found = scope[key];
	if (found instanceof WeakMap) return found;
	const made = new WeakMap<object, Owner>();
	scope[key] = made;
	return made;
}

/** Pi throws at every use of what it handed out to an extension that is reloaded or replaced. */
function isStale(pi: ExtensionAPI): boolean {
	try {
		pi.getSessionName();
		return false;
	} catch {
		return true;
	}
}

/** What else has this session's mailbox, as one sentence; undefined when nothing has. */
function rivalOf(pi: ExtensionAPI, ctx: ExtensionContext): string | undefined {
	const owner = owners.get(ctx.sessionManager);
	if (owner?.isGone() === false) {
		owner.met?.(fileURLToPath(import.meta.url));
		return "pi-session-mail is loaded twice, so this copy does nothing; remove one of the two with: pi remove <source>";
	}
	const foreign = pi.getAllTools().find((tool) => toolNames.includes(tool.name));
	if (foreign === undefined) return undefined;
	return `another extension already has the tool ${foreign.name}, so this copy does nothing; remove one of the two with: pi remove <source>`;
}
