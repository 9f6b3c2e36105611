import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { boxesOf } from "./boxes.ts";
import { type Delivered, type Draft, deliver, draftedEnvelope, type Refusal, type Sender } from "./deliver.ts";
import { errorCode, errorReason, quietly } from "./disk.ts";
import type { Envelope } from "./envelope.ts";
import { mailAt, readMail } from "./read-mail.ts";
import { followEdit, readReceipt } from "./receipt.ts";

/** Why a mail was not replaced; `claimed`: its recipient has it. */
export type EditRefusal = Refusal | { ok: false; code: "claimed"; message: string };

/** Ending of the new version of a mail in `tmp/`, until it is sent. */
export const editEnding = ".edit";

/** Takes mail back that its recipient has not claimed, alone or for another text (design D28). */
export interface TakingBack {
	/**
	 * Moves a mail from its recipient's inbox into this address's `tmp/`, which from then on says that it was taken back; false
	 * when it is not in that inbox any more.
	 */
	takeBack(envelope: Envelope, name: string): boolean;
	/** Whether a mail of this name was taken back, by whichever process. */
	isTakenBack(name: string): boolean;
	/** See `Mailbox.edit`. The text is safe in `tmp/<old name>.edit` before the mail is taken back, until its new version is delivered. */
	edit(sent: { envelope: Envelope; name: string }, text: string): Delivered | EditRefusal;
	/** Gives the copies of what was taken back their names, where a crash came first. */
	finish(): Generator<undefined>;
	/**
	 * Delivers the new versions whose old ones were taken back, and drops those whose were not. Yields a warning for each that
	 * was not; undefined is a place to pause. Returns the ids that it sent.
	 */
	finishEdits(): Generator<string | undefined, ReadonlySet<string>>;
}

export function createTakingBack(sender: Sender): TakingBack {
	const { disk, root, address, boxes, state, isDurable, mend } = sender;

	function* finish(): Generator<undefined> {
		for (const name of disk.list(boxes.tmp)) {
			yield undefined;
			// All else in here is what others write to this address.
			if (name.endsWith(editEnding) || mailAt(disk, join(boxes.tmp, name))?.from !== address) continue;
			keepAsTakenBack(name);
		}
	}

	function takeBack(envelope: Envelope, name: string): boolean {
		try {
			disk.rename(join(boxesOf(root, envelope.to).new, name), join(boxes.tmp, name));
		} catch (error) {
			if (errorCode(error) === "ENOENT") return false;
			throw error;
		}
		state.answered([envelope.id]);
		// It is taken back, whatever becomes of its copy: the next start does this as well.
		try {
			keepAsTakenBack(name);
		} catch {}
		return true;
	}

	/** Renames the copy of a mail that was taken back; without one, what was taken back becomes it. One of the two names always says so. */
	function keepAsTakenBack(name: string): void {
		const back = join(boxes.tmp, name);
		const kept = join(boxes.sent, `${name}.retracted`);
		const copy = [name, `${name}.part`].find((file) => disk.entry(join(boxes.sent, file)) !== undefined);
		if (copy !== undefined) disk.rename(join(boxes.sent, copy), kept);
		if (copy === undefined && disk.entry(kept) === undefined) disk.rename(back, kept);
		else disk.remove(back);
	}

	function isTakenBack(name: string): boolean {
		const signs = [join(boxes.sent, `${name}.retracted`), join(boxes.tmp, name)];
		return signs.some((path) => disk.entry(path) !== undefined);
	}

	function edit({ envelope, name }: { envelope: Envelope; name: string }, text: string): Delivered | EditRefusal {
		const { to, kind, hops, id, x } = envelope;
		const draft = { id: randomUUID(), to, kind, hops, body: text.trim(), ...x, replaces: id };
		const drafted = draftedEnvelope(sender, draft);
		if (!drafted.ok) return drafted;
		const path = join(boxes.tmp, name + editEnding);
		const unchanged = "Nothing was changed: ";
		let isWritten = false;
		try {
			mend(["tmp", "sent"]);
			disk.create(path, drafted.content);
			isWritten = true;
			if (isDurable()) {
				disk.syncFile(path);
				disk.syncFolder(boxes.tmp);
			}
			if (!takeBack(envelope, name)) {
				quietly(() => disk.remove(path));
				const why = isTakenBack(name) ? "it was taken back already" : "its recipient has it already";
				return { ok: false, code: "claimed", message: `${unchanged}${why}.` };
			}
		} catch (error) {
			if (isWritten) quietly(() => disk.remove(path));
			const isUnderWay = !isWritten && errorCode(error) === "EEXIST";
			const why = isUnderWay ? "it is being changed already" : errorReason(error);
			return { ok: false, code: "io", message: `${unchanged}${why}.` };
		}
		const sent = deliverEdited(draft, path);
		if (!sent.ok) {
			const kept = "The mail was taken back, and its new text is kept: the next start sends it.";
			return { ...sent, message: `${sent.message} ${kept}` };
		}
		return sent;
	}

	/** What fails here is done by the next start, as long as the new version lies at `path`. */
	function deliverEdited(draft: Draft, path: string): Delivered | Refusal {
		const sent = deliver(sender, draft);
		if (!sent.ok) return sent;
		const { name, envelope } = sent;
		quietly(() => {
			if (draft.replaces !== undefined) followEdit(disk, boxes.sent, draft.replaces, { name, id: envelope.id });
			disk.remove(path);
		});
		return sent;
	}

	function* finishEdits(): Generator<string | undefined, ReadonlySet<string>> {
		const edited = new Set<string>();
		for (const name of disk.list(boxes.tmp)) {
			yield undefined;
			const path = join(boxes.tmp, name);
			if (!name.endsWith(editEnding) || disk.entry(path) !== "file") continue;
			const old = name.slice(0, -editEnding.length);
			const parsed = readMail(disk, path);
			if (!isTakenBack(old)) {
				disk.remove(path);
				yield `a mail was not changed, since the session ended meanwhile (${old}); change it again`;
			} else if (!parsed.ok || parsed.envelope.from !== address) {
				yield `the new text of a mail that was taken back cannot be read (${path}); send it again, and remove that file`;
			} else if (wasTakenBack(parsed.envelope.id)) {
				// Sent before, and only this file was left of the edit.
				disk.remove(path);
			} else {
				const { id, to, kind, body, hops, x } = parsed.envelope;
				const sent = deliverEdited({ id, to, kind, body, hops, ...x }, path);
				edited.add(id);
				if (!sent.ok)
					yield `the new text of a mail that was taken back waits for the next start (${path}): ${sent.message}`;
			}
		}
		return edited;
	}

	/** Whether the mail that was sent under an id of the sender's choice was taken back. */
	function wasTakenBack(id: string): boolean {
		const receipt = readReceipt(disk, boxes.sent, id);
		return receipt !== undefined && isTakenBack(receipt.name);
	}

	return { takeBack, isTakenBack, edit, finish, finishEdits };
}
