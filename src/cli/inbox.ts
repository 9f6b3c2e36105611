import { field, manyLines } from "../mail/text.ts";
import type { ProgramMember, ReadMail } from "../member/member.ts";
import { type Call, UsageError } from "./call.ts";
import { untilInterrupted } from "./interrupt.ts";
import { asMember, refused } from "./machine.ts";
import { mailLine, mailOf } from "./mail-line.ts";
import { wholeNumber } from "./number.ts";
import type { Printed } from "./schemas.ts";
import { untilMail } from "./until-mail.ts";

type Mail = Printed["read"]["mails"][number];

/** `inbox`: what waits. */
export async function inbox(call: Call): Promise<number> {
	const { out } = call;
	return asMember(call, "send", async (member) => {
		const waiting = member.inbox();
		if ("ok" in waiting) return refused(call, waiting);
		const mails = waiting.map(({ envelope }) => mailOf(envelope, member.running));
		const printed: Printed["inbox"] = { mails };
		if (out.isJson) await out.printJson(printed);
		else if (mails.length === 0) await out.print("No mail waits.");
		else await out.print(mails.map((mail) => mailLine(mail)).join("\n"));
		return 0;
	});
}

/** `read`: claims mail and prints it. */
export async function read(call: Call): Promise<number> {
	const { out } = call;
	const [id, ...rest] = call.words;
	const isAll = call.has("all");
	if (rest.length > 0 || (isAll && id !== undefined)) throw new UsageError("read takes one id, or --all");
	const seconds = wholeNumber(call, "wait", maxWaitSeconds);
	return asMember(call, "send", async (member) => {
		const mails: Mail[] = [];
		const unseen: ReadMail[] = [];
		for (let count = 0; count < (isAll ? maxAtOnce : 1); count++) {
			let mail = member.read(id);
			if (mail === undefined && count === 0 && seconds !== undefined) {
				const code = await waitForMail(call, member, seconds);
				if (code !== 0) return code;
				mail = member.read();
			}
			if (mail !== undefined && "ok" in mail) return refused(call, mail);
			if (mail === undefined) break;
			// What has not been shown yet is found again when that takes long.
			if (unseen.some(({ name }) => name === mail.name)) continue;
			const shown = mailOf(mail.envelope, member.running);
			if (!out.isJson && !(await out.print(mailText(shown, count > 0)))) return 0;
			if (!out.isJson && !mail.isOld) member.done(mail);
			mails.push(shown);
			if (out.isJson && !mail.isOld) unseen.push(mail);
		}
		const printed: Printed["read"] = { mails };
		if (out.isJson && (await out.printJson(printed))) for (const mail of unseen) member.done(mail);
		if (mails.length === 0 && out.isInteractive && !out.isJson) out.note("No mail waits.");
		return 0;
	});
}

const maxWaitSeconds = 7 * 24 * 60 * 60;

/** Waits until mail comes, listed like a session; returns 0 or the exit code. */
async function waitForMail(call: Call, member: ProgramMember, seconds: number): Promise<number> {
	const interrupt = untilInterrupted();
	const seen = member.appear();
	if (!seen.ok) return refused(call, seen);
	const why = await untilMail(member, seconds, interrupt.signal);
	interrupt.end();
	return { mail: 0, late: noMail, over: interrupt.exitCode ?? 130 }[why];
}

const noMail = 4;

/** An inbox holds no more than that, answers excepted. */
const maxAtOnce = 1000;

function mailText(mail: Mail, isNext: boolean): string {
	const { id, from, fromName, kind, ts, status, inReplyTo, body } = mail;
	return [
		...(isNext ? [""] : []),
		`From: ${fromName} (${from})`,
		`Kind: ${kind}${kind === "reply" ? `, status ${field(status, 20)}` : ""}`,
		`Id: ${field(id, 40)}`,
		...(inReplyTo.length === 0 ? [] : [`Answers: ${inReplyTo.map((answered) => field(answered, 40)).join(", ")}`]),
		`Date: ${field(ts, 40)}`,
		"",
		manyLines(body),
	].join("\n");
}
