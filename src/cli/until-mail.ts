import type { Member } from "../member/member.ts";

/**
 * Waits until a mail waits for a member or its inbox cannot be read (`mail`), the time is up (`late`), or `over` says that
 * nobody wants it any more (`over`).
 */
export function untilMail(member: Member, seconds: number, over: AbortSignal): Promise<"mail" | "late" | "over"> {
	if (over.aborted) return Promise.resolve("over");
	if (hasMail(member)) return Promise.resolve("mail");
	return new Promise((resolve) => {
		const end = (why: "mail" | "late" | "over") => {
			clearTimeout(timer);
			stop();
			resolve(why);
		};
		const timer = setTimeout(() => end("late"), seconds * 1000);
		const stop = member.watch(() => hasMail(member) && end("mail"));
		over.addEventListener("abort", () => end("over"), { once: true });
	});
}

/** Whether a mail waits for a member, or its inbox cannot be read, which whoever reads is told. */
function hasMail(member: Member): boolean {
	const waiting = member.inbox();
	return "ok" in waiting || waiting.length > 0;
}
