import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { counted } from "../mail/text.ts";

/** What the footer counts (PSM-039). */
export interface MailCounts {
	/** On its way to this session's model. */
	pending: number;
	/** In its conversation. */
	read: number;
	/** Requests and asks of this session that nobody has answered. */
	awaiting: number;
	/** Calls of this session's model that go on by themselves. */
	calls: number;
	/** Calls of this session that wait for a decision. */
	toDecide: number;
}

/** The footer's text; undefined when there is nothing to say. */
export function footerText(
	counts: MailCounts,
	{ isReceiving, isPaused }: { isReceiving: boolean; isPaused: boolean },
): string | undefined {
	const shown = [
		...(isReceiving ? [] : ["off"]),
		...(isPaused ? ["paused"] : []),
		...(["pending", "read", "awaiting"] as const).flatMap((what) =>
			counts[what] > 0 ? [`${counts[what]} ${what}`] : [],
		),
		...(counts.calls > 0 ? [counted(counts.calls, "call")] : []),
		...(counts.toDecide > 0 ? [`${counts.toDecide} to decide`] : []),
	];
	return shown.length === 0 ? undefined : `✉ ${shown.join(" · ")}`;
}

/** This session's place in the footer, where this mode has one. */
export interface Footer {
	/** Shows a text; undefined takes it away. */
	show(text: string | undefined): void;
}

export function createFooter(ctx: ExtensionContext): Footer {
	let shown: string | undefined;
	return {
		show(text) {
			if (text === shown || !ctx.hasUI) return;
			ctx.ui.setStatus("mailbox", text);
			shown = text;
		},
	};
}
