import { readFileSync } from "node:fs";
import { machineFor, runningOn } from "../member/machine.ts";
import { type Machine, openMember, type ProgramMember } from "../member/member.ts";
import { surroundingSession, type Who, whoIsIt } from "../member/who.ts";
import type { Call } from "./call.ts";

/** The machine that this program runs on. What goes wrong is said on standard error. */
export function thisMachine({ env, out }: Call): Machine {
	return machineFor(env, (text) => out.note(`warning: ${text}`));
}

/** As whom a command acts now. */
export function whoCalls(call: Call, machine: Machine): ReturnType<typeof whoIsIt> {
	const inside = surroundingSession(call.env, runningOn(machine), machine.processes);
	const named = inside === undefined ? call.env.PI_SESSION_MAIL_NAME || undefined : undefined;
	return whoIsIt(call.text("from") ?? named, inside);
}

/** Opens the member that a command acts as. Throws the disk's errors. */
export function openFor(who: Who, purpose: "ask" | "send", machine: Machine): ReturnType<typeof openMember> {
	return openMember({ machine, who, name: callerName(), purpose, cwd: process.cwd() });
}

/** Runs what a command does as its member, and ends the membership. The exit code is 1 when it can be no member. */
export async function asMember(
	call: Call,
	purpose: "ask" | "send",
	run: (member: ProgramMember) => Promise<number>,
	machine = thisMachine(call),
): Promise<number> {
	const who = whoCalls(call, machine);
	const opened = who.ok ? openFor(who.who, purpose, machine) : who;
	if (!opened.ok) return refused(call, opened);
	const { member } = opened;
	try {
		return await run(member);
	} finally {
		member.close();
	}
}

/** Says why something was not done; the exit code for that. */
export function refused({ out }: Call, { code, message }: { code: string; message: string }): number {
	out.fail(code, message);
	return 1;
}

/** What a program without a name is called in lists: what has started it. */
function callerName(): string {
	try {
		return readFileSync(`/proc/${process.ppid}/comm`, "utf8").trim() || "shell";
	} catch {
		return "shell";
	}
}
