import { displayName } from "../mail/resolve.ts";
import type { RunningSession } from "../mail/running.ts";
import { field, pathField } from "../mail/text.ts";
import { runningOn } from "../member/machine.ts";
import { surroundingSession } from "../member/who.ts";
import { marksOf } from "../session/tool-words.ts";
import type { Call } from "./call.ts";
import { thisMachine } from "./machine.ts";
import type { Printed } from "./schemas.ts";

/** `list`: who runs. */
export async function list(call: Call): Promise<number> {
	const machine = thisMachine(call);
	const running = runningOn(machine);
	const { out } = call;
	const sessions = running.list();
	const self = surroundingSession(call.env, running, machine.processes)?.address;
	if (call.has("names")) {
		const addresses = sessions.map(({ address }) => address);
		const recipients = sessions.filter(({ address }) => address !== self);
		const names = recipients.map((session) => displayName(session, addresses));
		if (names.length > 0) await out.print(names.join("\n"));
	} else if (out.isJson) {
		const printed: Printed["list"] = { sessions: sessions.map((session) => summaryOf(session, self)) };
		await out.printJson(printed);
	} else if (sessions.length === 0) await out.print("No Pi session is running with a mailbox.");
	else await out.print(sessions.map((session) => lineOf(session, sessions, self, out.bold)).join("\n"));
	return 0;
}

/** What is printed of a session with `--json`. */
export function summaryOf(session: RunningSession, self: string | undefined): Printed["list"]["sessions"][number] {
	const { address, name, cwd, pid, state, waitingOn, updated, x } = session;
	return {
		address,
		...(name === undefined ? {} : { name: field(name) }),
		cwd: pathField(cwd),
		pid,
		state,
		waitingOn: field(waitingOn),
		updated: field(updated, 40),
		program: x.program === true,
		receiving: x.receiving !== false,
		paused: x.paused === true,
		self: address === self,
	};
}

/** A session as one line. */
export function lineOf(
	session: RunningSession,
	all: readonly RunningSession[],
	self: string | undefined,
	bold: (text: string) => string,
): string {
	const addresses = all.map(({ address }) => address);
	const target = all.find(({ address }) => address === session.waitingOn);
	return [
		bold(displayName(session, addresses)),
		session.address,
		session.state,
		pathField(session.cwd),
		...(session.waitingOn === ""
			? []
			: [`waits for ${target === undefined ? field(session.waitingOn) : displayName(target, addresses)}`]),
		...marksOf(session, self).map((mark) => `(${mark})`),
	].join("  ");
}
