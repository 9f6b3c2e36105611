import type { MessageRenderer } from "@earendil-works/pi-coding-agent";
import { field } from "../mail/text.ts";
import { type MailDetails, mailDetails } from "../session/ledger.ts";
import { drawLines } from "./lines.ts";

/**
 * How a person sees a mail in the transcript: who, what kind, and its first line; expanded, the whole text that the model
 * was given, whose label says the rest. Mail of a version that this one cannot read is left to Pi.
 */
export const renderMail: MessageRenderer = (message, { expanded, outputPad, keyHint }, theme) => {
	const mail = mailDetails(message.details);
	if (mail === undefined) return undefined;
	const title = `${theme.fg("customMessageLabel", theme.bold(`✉ ${titleOf(mail)}`))}`;
	if (expanded) {
		const lines = textOf(message.content)
			.split("\n")
			.map((line) => theme.fg("customMessageText", line));
		return drawLines([title, ...lines], { indent: outputPad });
	}
	const hint = theme.fg("dim", `(${keyHint("app.tools.expand", "to expand")})`);
	const summary = theme.fg("customMessageText", field(mail.firstLine, 200));
	return drawLines([title, `${summary} ${hint}`], { indent: outputPad });
};

const titles: Record<MailDetails["kind"], string> = {
	request: "Request from",
	ask: "Ask from",
	message: "Message from",
	reply: "Reply from",
	result: "Result of",
	control: "Control from",
};

/** Images are left to Pi's own view of the session. */
function textOf(content: string | readonly { type: string; text?: string }[]): string {
	return typeof content === "string" ? content : content.map(({ text = "(image)" }) => text).join("\n");
}

function titleOf({ kind, sender, status }: MailDetails): string {
	const outcome = kind === "reply" && status !== "done" ? ` (${field(status, 40)})` : "";
	return `${titles[kind]} ${field(sender)}${outcome}`;
}
