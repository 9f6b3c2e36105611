import type { CallView, PendingTicket } from "../session/calls.ts";
import type { Listed } from "../session/overview.ts";

/** The tabs of the screen, in their order; each is also a word of `/mailbox`. The last two are there where a policy for tools is set. */
export const tabs = ["inbox", "sent", "waiting", "sessions", "doctor", "calls", "approvals"] as const;
export type Tab = (typeof tabs)[number];

/** What is said to a person below the list. */
export interface Said {
	text: string;
	isError: boolean;
}

/** What outlives the screen: where a person was, and what was typed and not sent. */
export interface Memory {
	tab: Tab;
	places: Record<Tab, Place>;
	/** Whether what is typed goes into the search. */
	isSearching: boolean;
	opened: OpenedMail | OpenedCall | OpenedTicket | undefined;
	/** The tab to go back to once a recipient is picked. */
	picksFor: Tab | undefined;
	showsClosed: boolean;
	message: Said | undefined;
	/** The id of a mail that was just sent: among those that were sent, the cursor goes to it as soon as it is listed. */
	sentId: string | undefined;
	/** Texts that were not sent, by what they were for. */
	drafts: Map<string, string>;
}

/** A mail that is opened, and its first row that is seen. */
export interface OpenedMail {
	listed: Listed;
	top: number;
}

/** A call that is opened, as it was seen last. */
export interface OpenedCall {
	call: CallView;
	top: number;
}

/** A call that waits for a decision and is opened. */
export interface OpenedTicket {
	ticket: PendingTicket;
	top: number;
}

/** Where a person is in a tab. */
export interface Place {
	query: string;
	selected: number;
	/** What is selected: it stays under the cursor when mail arrives above it. */
	key: string | undefined;
	top: number;
}

/** Where a person is who sees the screen for the first time. */
export function newMemory(): Memory {
	const place = (): Place => ({ query: "", selected: 0, key: undefined, top: 0 });
	return {
		tab: "inbox",
		places: {
			inbox: place(),
			sent: place(),
			waiting: place(),
			sessions: place(),
			doctor: place(),
			calls: place(),
			approvals: place(),
		},
		isSearching: false,
		opened: undefined,
		picksFor: undefined,
		showsClosed: false,
		message: undefined,
		sentId: undefined,
		drafts: new Map(),
	};
}
