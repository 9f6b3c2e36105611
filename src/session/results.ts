import { uuidOf } from "../mail/address.ts";
import type { CallStore, EndedCall, ResultPart } from "../mail/call-store.ts";
import { errorReason } from "../mail/disk.ts";
import { type CallOfResult, maxBodyBytes } from "../mail/envelope.ts";
import type { Mailbox } from "../mail/mailbox.ts";
import { start } from "../mail/text.ts";
import type { NotMade } from "./calls.ts";

/** Makes mail to the session itself of how its calls ended. */
export interface Results {
	/** Keeps how a call ended and makes it mail; false when the disk did not take it yet. The same call makes one mail. */
	end(call: EndedCall): boolean;
	/** Makes mail of what was decided about a call; false when the disk did not take it yet. Of one call once. */
	tell(call: CallOfResult, text: string): boolean;
	/**
	 * Ends the calls that a process has left open; what is `isLive` goes on. `notMade` says so of one that was asked about;
	 * of one that is decided about, the decision is mail enough. False when not all of them could be.
	 */
	endLeft(isLive: (id: string) => boolean, notMade?: (ticket: string) => NotMade | undefined): boolean;
}

interface ResultsParts {
	mailbox: Pick<Mailbox, "address" | "deliver">;
	store: CallStore;
	/** Milliseconds since 1970. */
	now: () => number;
	warn: (text: string) => void;
}

export function createResults({ mailbox, store, now, warn }: ResultsParts): Results {
	const { address } = mailbox;

	function end(call: EndedCall): boolean {
		const { id, tool, state, hops, content } = call;
		try {
			store.keep(call);
			const body = bodyOf(content, store.pathOf(id));
			const mailId = uuidOf(`${address} ${id} result`);
			const mail = { to: address, kind: "result", body, hops, id: mailId, call: { id, tool, state } } as const;
			const sent = mailbox.deliver(mail);
			// It is mail already, with whatever was known of it then.
			if (!sent.ok && sent.code !== "id_used") throw new Error(sent.message);
			store.close(id);
			return true;
		} catch (error) {
			warn(`the result of ${id} (${tool}) could not be kept and will be tried again: ${errorReason(error)}`);
			return false;
		}
	}

	return {
		end,
		tell(call, text) {
			const id = uuidOf(`${address} ${call.id} ${call.state}`);
			const sent = mailbox.deliver({
				...({ to: address, kind: "result", hops: 0, id, call } as const),
				body: fitted(text, "It was cut here: it is too large for a mail"),
			});
			if (sent.ok || sent.code === "id_used") return true;
			warn(`what was decided about ${call.tool} could not be told and will be tried again: ${sent.message}`);
			return false;
		},
		endLeft(isLive, notMade = () => undefined) {
			let isDone = true;
			const failed = (error: unknown) => {
				isDone = false;
				warn(`a call in ${address} cannot be looked at and is tried again: ${errorReason(error)}`);
			};
			for (const open of store.listOpen(failed)) {
				if (isLive(open.id)) continue;
				try {
					const kept = store.ended(open.id);
					// What has ended by itself says how, also that it was refused.
					const isEnded = kept !== undefined && kept.state !== "orphaned";
					const left = open.ticket === undefined || isEnded ? undefined : notMade(open.ticket);
					const content: ResultPart[] = left === undefined ? [] : [{ type: "text", text: left.text }];
					const ended = kept ?? { ...open, state: "orphaned", finished: now(), content };
					if (left?.isDecided === true) {
						store.keep(ended);
						store.close(open.id);
					} else isDone = end(ended) && isDone;
				} catch (error) {
					failed(error);
				}
			}
			return isDone;
		},
	};
}

/** What of a result is text, for the body of its mail. */
function bodyOf(content: readonly ResultPart[], path: string): string {
	const text = content
		.map((part) => (part.type === "text" ? part.text : "(image)"))
		.join("\n")
		.trimEnd();
	if (text.trim() === "") return "(no output)";
	return fitted(text, `The result was cut here; all of it is in ${path}`);
}

/** A text that a mail holds: the start of one that it does not, with a note. */
function fitted(text: string, note: string): string {
	// As it lies in the envelope, where a control character is six.
	if (Buffer.byteLength(JSON.stringify(text)) <= maxBodyBytes) return text;
	return `${start(text, maxCutBytes)}\n(${note})`;
}

const maxCutBytes = 32 * 1024;
