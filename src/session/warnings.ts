import type { ExtensionContext } from "@earendil-works/pi-coding-agent";

/** Tells the person of a problem, once per text, where this mode shows it. */
export function createWarnings(ctx: ExtensionContext): (text: string) => void {
	const given = new Set<string>();
	return (text) => {
		if (given.has(text)) return;
		given.add(text);
		tell(ctx, text);
	};
}

/** One warning: on the screen, or on standard error where there is none. */
export function tell(ctx: ExtensionContext, text: string): void {
	if (ctx.hasUI) ctx.ui.notify(`mailbox: ${text}`, "warning");
	else console.error(`mailbox: ${text}`);
}
