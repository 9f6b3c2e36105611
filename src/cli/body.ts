import { maxBodyBytes } from "../mail/envelope.ts";
import { type Call, UsageError } from "./call.ts";

/** The text of a mail, or why there is none. */
export type Body = { ok: true; text: string } | { ok: false; code: string; message: string };

/**
 * The text that the words of a command make, or what comes on standard input when there are none or a single `-`. A
 * pipe that gives more than a mail may hold is cut off.
 */
export async function bodyOf(words: readonly string[], { out }: Call): Promise<Body> {
	if (words.length > 0 && !(words.length === 1 && words[0] === "-")) return { ok: true, text: words.join(" ") };
	const { stdin } = process;
	if (stdin.isTTY) {
		if (words.length === 0)
			throw new UsageError("there is no text: write it behind the recipient, or give it on standard input");
		if (out.isInteractive) out.note("Type the text, and end it with Ctrl+D.");
	}
	const chunks: Buffer[] = [];
	let bytes = 0;
	for await (const chunk of stdin) {
		const part = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
		chunks.push(part);
		bytes += part.length;
		if (bytes <= maxBodyBytes) continue;
		// To leave the loop closes standard input.
		const message = `Nothing was sent: standard input gives more than ${maxBodyBytes} bytes, which is the limit of a mail.`;
		return { ok: false, code: "too_large", message };
	}
	try {
		return { ok: true, text: new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks)) };
	} catch {
		return { ok: false, code: "invalid", message: "Nothing was sent: standard input is no UTF-8 text." };
	}
}
