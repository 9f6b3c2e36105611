import { errorReason } from "../mail/disk.ts";
import type { Machine, ProgramMember } from "../member/member.ts";
import type { Call } from "./call.ts";
import { openFor, whoCalls } from "./machine.ts";

/** Why a program is no member just now; one sentence for people. */
export interface Unseated {
	ok: false;
	message: string;
}

/** The membership of a program that runs on, and may have none at times: another process has its name, or the disk fails. */
export interface Seat {
	/** The member that this program is now, listed; tried anew at each call. */
	take(): ProgramMember | Unseated;
	/** The member without a look at whether it still is one. */
	held(): ProgramMember | undefined;
	/** Ends the membership. Never throws. */
	leave(): void;
}

/** Looks at each `take` who this program is: a Pi session that started it may be listed later than it. */
export function createSeat(call: Call, machine: Machine): Seat {
	let member: ProgramMember | undefined;
	let seated: string | undefined;

	function leave(): void {
		member?.close();
		member = undefined;
	}

	function tried(): ProgramMember | Unseated {
		const called = whoCalls(call, machine);
		const who = called.ok ? called.who : undefined;
		const seat = who?.type === "session" ? who.session.address : JSON.stringify(who);
		if (seat !== seated) leave();
		seated = seat;
		if (!called.ok) return called;
		if (called.who.type === "passing") return nameless;
		if (member?.appear().ok) return member;
		// A record that was lost for good, as with a removed root, is taken anew.
		leave();
		const opened = openFor(called.who, "send", machine);
		if (!opened.ok) return opened;
		const seen = opened.member.appear();
		if (!seen.ok) {
			opened.member.close();
			return seen;
		}
		member = opened.member;
		return member;
	}

	return {
		take() {
			try {
				return tried();
			} catch (error) {
				return { ok: false, message: `Nothing was done: ${errorReason(error)}.` };
			}
		},
		held: () => member,
		leave,
	};
}

const nameless: Unseated = {
	ok: false,
	message:
		"Nothing was done: this server has no name. Put --from NAME behind mcp in the client's configuration, or set PI_SESSION_MAIL_NAME there.",
};
