import { boxesOf } from "../mail/boxes.ts";
import { type OpenCall, openCallStore } from "../mail/call-store.ts";
import { errorMessage } from "../mail/disk.ts";
import { type Control, controlOps } from "../mail/envelope.ts";
import { displayName, resolve } from "../mail/resolve.ts";
import type { RunningSession } from "../mail/running.ts";
import { field } from "../mail/text.ts";
import { shortSpan } from "../mail/time.ts";
import { runningOn } from "../member/machine.ts";
import type { Machine } from "../member/member.ts";
import { type Call, UsageError } from "./call.ts";
import { asMember, refused, thisMachine } from "./machine.ts";
import type { Printed } from "./schemas.ts";

/** `calls`: the calls of running sessions that go on by themselves. */
export async function calls(call: Call): Promise<number> {
	const { out } = call;
	const [to, ...rest] = call.words;
	if (rest.length > 0) throw new UsageError("calls takes one session");
	const machine = thisMachine(call);
	const sessions = runningOn(machine).list();
	let address: string | undefined;
	if (to !== undefined) {
		const resolved = resolve(to, { running: sessions, self: "", hasMailbox: () => false });
		if (!resolved.ok) return refused(call, resolved);
		address = resolved.address;
	}
	const found = openCalls(machine, sessions).filter(
		({ session }) => address === undefined || session.address === address,
	);
	const printed: Printed["calls"] = {
		calls: found.map(({ session, open: { id, tool, arguments: args, started } }) => {
			return { id, session: session.address, tool, arguments: args, started: new Date(started).toISOString() };
		}),
	};
	if (out.isJson) await out.printJson(printed);
	else if (found.length === 0) await out.print("No call goes on by itself.");
	else await out.print(found.map(({ session, open }) => lineOf(session, open)).join("\n"));
	return 0;
}

/** `cancel`: one call. */
export async function cancel(call: Call): Promise<number> {
	const [id, ...rest] = call.words;
	if (id === undefined || rest.length > 0) throw new UsageError("cancel takes the id of one call");
	const machine = thisMachine(call);
	const found = openCalls(machine, runningOn(machine).list()).find(({ open }) => open.id === id);
	if (found === undefined) {
		return refused(call, { code: "unknown_id", message: `Nothing was done: no call ${field(id, 40)} goes on.` });
	}
	const { address } = found.session;
	return controlled(call, address, { op: "cancel", calls: [id] }, { id }, `cancel ${id}`);
}

/** `control`: what a person does with a session. */
export async function control(call: Call): Promise<number> {
	const [typed, to, ...rest] = call.words;
	const op = controlOps.find((known) => known === typed);
	if (op === undefined || to === undefined || rest.length > 0) {
		throw new UsageError(`say what and to whom: pi-session-mail control ${controlOps.join("|")} TO`);
	}
	return controlled(call, to, { op }, { op }, told[op]);
}

const told: Record<Control["op"], string> = {
	pause: "pause",
	resume: "go on",
	stop: "end its run",
	cancel: "cancel its calls",
	"cancel-attached": "cancel the calls that its model waits for",
};

function controlled(
	call: Call,
	to: string,
	control: Control,
	about: Omit<Printed["cancel"], "to"> | Omit<Printed["control"], "to">,
	what: string,
): Promise<number> {
	const { out } = call;
	return asMember(call, "send", async (member) => {
		const outcome = member.control(to, control);
		if (!outcome.ok) return refused(call, outcome);
		const { to: address } = outcome.envelope;
		const whose = displayName(outcome.recipient ?? { address }, []);
		const printed: Printed["cancel"] | Printed["control"] = { ...about, to: address };
		if (out.isJson) await out.printJson(printed);
		else await out.print(`Told ${whose} (${address}) to ${what}.`);
		return 0;
	});
}

function openCalls(
	{ disk, root, warn }: Machine,
	sessions: readonly RunningSession[],
): { session: RunningSession; open: OpenCall }[] {
	return sessions.flatMap((session) => {
		const store = openCallStore(disk, boxesOf(root, session.address).folder);
		const failed = (error: unknown) => {
			warn(`the calls of ${session.address} cannot be read: ${errorMessage(error)}`);
		};
		return store.listOpen(failed).map((open) => ({ session, open }));
	});
}

function lineOf(session: RunningSession, { id, tool, arguments: args, started }: OpenCall): string {
	const age = shortSpan(Date.now() - started);
	return [id, displayName(session, []), field(tool, 40), field(args, 100), age].join("  ");
}
