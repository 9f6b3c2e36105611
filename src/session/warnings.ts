import type { ExtensionContext } from "@earendil-works/pi-coding-agent";

/** So many different warnings in one session are enough: whoever reads them knows where to look. */
const maxWarnings = 50;

/** Tells the person of a problem, once per text, where this mode shows it. Does nothing once the session is over. */
export function createWarnings(ctx: ExtensionContext): (text: string) => void {
	const given = new Set<string>();
	return (text) => {
		if (isStale(ctx) || given.has(text) || given.size > maxWarnings) return;
		given.add(text);
		tell(ctx, given.size > maxWarnings ? "there are more problems like these; they are not shown any more" : text);
	};
}

/** Whether a host has ended the session, also without a `session_shutdown` (pi-facts 6): then every use of `ctx` throws. */
export function isStale(ctx: ExtensionContext): boolean {
	try {
		return ctx.sessionManager === undefined;
	} catch {
		return true;
	}
}

/** One warning: on the screen, or on standard error where there is none. */
export function tell(ctx: ExtensionContext, text: string): void {
	const warning = `mailbox: ${text}`;
	if (!ctx.hasUI) console.error(warning);
	else if (ctx.mode !== "tui") ctx.ui.notify(warning, "warning");
	// A terminal shows what is said at the start above the conversation that it resumes, where nobody sees it.
	else setTimeout(() => !isStale(ctx) && ctx.ui.notify(warning, "warning"), afterFirstDrawMs).unref();
}

const afterFirstDrawMs = 500;
