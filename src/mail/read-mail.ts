import { type Disk, errorCode, errorMessage, UnfitError } from "./disk.ts";
import {
	type Envelope,
	maxEnvelopeBytes,
	type Owing,
	owingIn,
	type ParsedEnvelope,
	parseEnvelope,
} from "./envelope.ts";

/** What a file turned out to be; of what is no mail, whether it can still be answered. */
export type MailFile = Extract<ParsedEnvelope, { ok: true }> | { ok: false; reason: string; owing?: Owing | undefined };

/** Reads a file that should be a mail. Throws the errors that say something of the machine: worth another try later. */
export function readMail(disk: Disk, path: string): MailFile {
	try {
		const text = disk.read(path, maxEnvelopeBytes);
		const parsed = parseEnvelope(text);
		return parsed.ok ? parsed : { ...parsed, owing: owingIn(text) };
	} catch (error) {
		if (error instanceof UnfitError) return { ok: false, reason: error.message };
		if (errorsOfTheFile.has(errorCode(error) ?? "")) return { ok: false, reason: errorMessage(error) };
		throw error;
	}
}

/** The mail at a path where a folder or a FIFO may lie as well, and only a mail is of interest. Throws like `readMail`. */
export function mailAt(disk: Disk, path: string): Envelope | undefined {
	if (disk.entry(path) !== "file") return undefined;
	const parsed = readMail(disk, path);
	return parsed.ok ? parsed.envelope : undefined;
}

/** Errors that say something of the file. */
const errorsOfTheFile = new Set(["EACCES", "EPERM", "ENOENT"]);
