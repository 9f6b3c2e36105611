import type { RunningSession } from "../mail/running.ts";
import { field } from "../mail/text.ts";
import type { Machine, ProgramMember } from "../member/member.ts";
import type { Call } from "./call.ts";
import { untilInterrupted } from "./interrupt.ts";
import { lineOf, summaryOf } from "./list.ts";
import { asMember, refused, thisMachine } from "./machine.ts";
import { mailLine, mailOf } from "./mail-line.ts";
import type { Printed } from "./schemas.ts";

type Event = Printed["watch"];

/** `watch`: a line for each event as it happens. */
export async function watch(call: Call): Promise<number> {
	const { out } = call;
	const machine = thisMachine(call);
	const interrupt = untilInterrupted();
	const run = async (member: ProgramMember) => {
		const seen = member.who.type === "named" ? member.appear() : undefined;
		if (seen !== undefined && !seen.ok) return refused(call, seen);
		return new Promise<number>((resolve) => {
			const changes = createChanges(member, machine);
			const look = () => {
				for (const event of changes()) {
					const text = out.isJson ? out.printJson(event) : out.print(eventLine(event, member));
					text.then((isRead) => isRead || end(0));
				}
			};
			const end = (code: number) => {
				stop();
				resolve(code);
			};
			const stop = member.watch(look);
			const interrupted = () => end(interrupt.exitCode ?? 130);
			interrupt.signal.addEventListener("abort", interrupted);
			look();
			if (interrupt.signal.aborted) interrupted();
		});
	};
	return asMember(call, "send", run, machine).finally(interrupt.end);
}

/** How many of the last sent mails are looked after. */
const watchedMails = 200;

/** What happened since the last call. The first one tells who runs and what waits. */
function createChanges(member: ProgramMember, { now, warn }: Machine): () => Event[] {
	const isNamed = member.who.type === "named";
	let sessions = new Map<string, RunningSession>();
	let mails = new Set<string>();
	const statuses = new Map<string, string>();
	let isFirst = true;

	function* find(): Generator<Event> {
		const at = new Date(now()).toISOString();
		const running = new Map(member.running.list().map((session) => [session.address, session]));
		running.delete(member.address);
		for (const session of running.values()) {
			const before = sessions.get(session.address);
			const shown = summaryOf(session, undefined);
			if (before === undefined) yield { event: "started", at, session: shown };
			else if (isOther(before, session)) yield { event: "changed", at, session: shown };
		}
		for (const session of sessions.values()) {
			if (!running.has(session.address)) yield { event: "ended", at, session: summaryOf(session, undefined) };
		}
		sessions = running;
		if (!isNamed) return;
		const waiting = member.inbox();
		if ("ok" in waiting) warn(waiting.message);
		else {
			for (const { name, envelope } of waiting) {
				if (!mails.has(name)) yield { event: "mail", at, mail: mailOf(envelope, member.running) };
			}
			mails = new Set(waiting.map(({ name }) => name));
		}
		const sent = member.sent(watchedMails);
		if ("ok" in sent) warn(sent.message);
		for (const { name, envelope, status } of "ok" in sent ? [] : sent) {
			const before = statuses.get(name);
			statuses.set(name, status);
			if (before === status || isFirst) continue;
			yield { event: "sent", at, id: envelope.id, to: envelope.to, status };
		}
		isFirst = false;
	}

	return () => [...find()];
}

function isOther(a: RunningSession, b: RunningSession): boolean {
	const essence = ({ name, cwd, state, waitingOn, x }: RunningSession) =>
		JSON.stringify([name, cwd, state, waitingOn, x.receiving, x.paused]);
	return essence(a) !== essence(b);
}

function eventLine(event: Event, { running }: ProgramMember): string {
	const time = event.at.slice(11, 19);
	if (event.event === "mail") return `${time}  mail     ${mailLine(event.mail)}`;
	if (event.event === "sent") return `${time}  sent     ${event.id}  ${event.status}  ${field(event.to)}`;
	const { session } = event;
	const known = running.find(session.address);
	const line =
		known === undefined
			? [session.name ?? session.address, session.address].join("  ")
			: lineOf(known, [known], undefined, (text) => text);
	return `${time}  ${event.event.padEnd(7)}  ${line}`;
}
