import { shortAddress } from "../mail/address.ts";
import { counted, field, pathField } from "../mail/text.ts";
import { shortSpan } from "../mail/time.ts";
import { detachedCalls, lastLine } from "../session/calls.ts";
import { type Listed, subjectOf } from "../session/overview.ts";
import type { MailSession } from "../session/session.ts";
import { columnsOf, pad } from "../view/columns.ts";
import type { Tab } from "../view/memory.ts";
import { callAge, chainText, shortTime, stateOf, waitingWord } from "../view/rows.ts";

/** Most lines of one kind; what is older is counted. */
const maxLines = 50;

/** What a tab of the screen shows, as text, for modes that have no screen. Undefined is a place to pause. */
export function* describe(session: MailSession, tab: Exclude<Tab, "doctor">): Generator<undefined, string> {
	yield* session.overview.relist();
	switch (tab) {
		case "inbox":
			return inbox(session);
		case "sent":
			return sent(session);
		case "waiting":
			return waiting(session);
		case "sessions":
			return sessionTable(session);
		case "calls":
			return callTable(session);
		case "approvals":
			return approvalTable(session);
	}
}

function inbox(session: MailSession): string {
	const { inbox } = session.overview;
	const unread = session.overview.unread().length;
	return [`Inbox: ${counted(inbox.length, "mail")}, ${unread} unread`, ...mailTable(session, inbox)].join("\n");
}

function sent(session: MailSession): string {
	const { sent } = session.overview;
	return [`Sent: ${counted(sent.length, "mail")}`, ...mailTable(session, sent)].join("\n");
}

function waiting(session: MailSession): string {
	const { overview, sessions } = session;
	const here = sessions.waiting();
	const lost = here.flatMap(({ id, listed }) =>
		listed === undefined ? [`${id} (its file is not here any more)`] : [],
	);
	const chains = sessions.chains().map(({ addresses, isRing }) => {
		const names = addresses.map(overview.nameOf);
		return chainText({ names, isRing });
	});
	const parts: [string, string[]][] = [
		["This session waits for an answer to", mailTable(session, sessions.awaited())],
		[
			"Waits for this session",
			[
				...mailTable(
					session,
					here.flatMap(({ listed }) => listed ?? []),
				),
				...lost,
			],
		],
		["Who waits for whom", chains],
	];
	const shown = parts.filter(([, lines]) => lines.length > 0);
	if (shown.length === 0) return "Nobody waits for anybody.";
	return shown.map(([title, lines]) => [`${title}:`, ...lines].join("\n")).join("\n");
}

function sessionTable({ overview, sessions, mailbox }: MailSession): string {
	const running = overview.running();
	const addresses = running.map(({ address }) => address);
	const rows = running.slice(0, maxLines).map((session) => {
		const { address, cwd, waitingOn } = session;
		const about = [
			pathField(cwd),
			...(waitingOn === "" ? [] : [`waits for ${overview.nameOf(waitingOn)}`]),
			...(address === mailbox.address ? ["this session"] : []),
		];
		return [
			overview.nameOf(address),
			shortAddress(address, addresses),
			stateOf(session),
			`${sessions.waitingCount(address)} ${waitingWord(address === mailbox.address)}`,
			about.join(" · "),
		];
	});
	return [`Sessions: ${running.length} running`, ...aligned(rows), ...more(running.length)].join("\n");
}

function callTable({ calls }: MailSession): string {
	if (calls === undefined) return "No call is suspended here: toolPolicy in the settings names none.";
	const shown = [...detachedCalls(calls), ...calls.recent()];
	if (shown.length === 0) return "No call goes on by itself.";
	const rows = shown.map((call) => {
		const { id, state, tool } = call;
		return [state, callAge(call, Date.now()), id, field(tool, 40), field(lastLine(call), 100)];
	});
	return aligned(rows).join("\n");
}

function approvalTable({ calls, overview }: MailSession): string {
	const tickets = calls?.tickets() ?? [];
	if (tickets.length === 0) return "No call waits for a decision.";
	const rows = tickets.map(({ id, session, call, since }) => {
		return [shortSpan(Date.now() - since), id, overview.nameOf(session), field(call, 200)];
	});
	return aligned(rows).join("\n");
}

function mailTable({ overview }: MailSession, list: readonly Listed[]): string[] {
	const rows = list.slice(0, maxLines).flatMap((listed) => {
		const mail = overview.glance(listed);
		if (mail === undefined) return [];
		const { word, reason } = overview.status(listed);
		const other = listed.box === "sent" ? mail.to : mail.from;
		const who = other === "" ? "?" : overview.nameOf(other);
		return [[word, shortTime(mail.ts), mail.kind ?? "", who, mail.id, field(reason ?? subjectOf(mail), 100)]];
	});
	return [...aligned(rows), ...more(list.length)];
}

function more(count: number): string[] {
	return count > maxLines ? [`and ${count - maxLines} more, which are not shown`] : [];
}

/** Rows with their columns below one another; the last one is as long as it is. */
function aligned(rows: readonly string[][]): string[] {
	const widths: number[] = [];
	for (const row of rows) {
		for (const [index, text] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, columnsOf(text));
	}
	return rows.map((row) =>
		row.map((text, index) => (index === row.length - 1 ? text : pad(text, widths[index] ?? 0))).join("  "),
	);
}
