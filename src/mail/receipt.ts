import { createHash } from "node:crypto";
import { join } from "node:path";
import * as z from "zod/mini";
import { type Disk, errorCode, UnfitError } from "./disk.ts";
import { type Envelope, maxEnvelopeBytes, parseEnvelope } from "./envelope.ts";

/**
 * What a sender keeps of a mail whose id its caller chose, so that the same id is the same mail: `sent/<id>.receipt`, made
 * before the mail itself. A send that was cut short leaves one without a mail; the next try then sends.
 */
export interface Receipt {
	/** The name of the mail's file. */
	name: string;
	/** Whether the mail was sent to survive a power cut. */
	durable: boolean;
	/** The envelope without its body, of which it has the digest. Of a mail that was changed, with the id of the new version. */
	envelope: Envelope;
}

/**
 * The receipt that was kept under this id; one that a power cut left unreadable is made up for by the copy of the mail.
 * Undefined when there is neither. Throws the disk's errors.
 */
export function readReceipt(disk: Disk, sent: string, id: string): Receipt | undefined {
	try {
		return parseReceipt(disk.read(receiptPath(sent, id), maxEnvelopeBytes)) ?? receiptOfCopy(disk, sent, id);
	} catch (error) {
		if (errorCode(error) === "ENOENT") return undefined;
		if (error instanceof UnfitError) return receiptOfCopy(disk, sent, id);
		throw error;
	}
}

/** Keeps a receipt, in the place of one whose mail was never sent. */
export function writeReceipt(disk: Disk, sent: string, name: string, durable: boolean, envelope: Envelope): void {
	const receipt: Receipt = { name, durable, envelope: { ...envelope, body: digest(envelope.body) } };
	disk.replace(receiptPath(sent, envelope.id), `${JSON.stringify(receipt)}\n`);
}

/** Lets the receipt of a mail that was changed stand for its new version: under the old id nothing is sent any more (design D28). */
export function followEdit(disk: Disk, sent: string, id: string, version: { name: string; id: string }): void {
	const receipt = readReceipt(disk, sent, id);
	if (receipt === undefined) return;
	const followed: Receipt = { ...receipt, name: version.name, envelope: { ...receipt.envelope, id: version.id } };
	disk.replace(receiptPath(sent, id), `${JSON.stringify(followed)}\n`);
}

/** Where the receipt of an id lies in this `sent/`. */
export function receiptPath(sent: string, id: string): string {
	return join(sent, `${id}.receipt`);
}

/** Whether this is the mail of a receipt once more: what its caller said, not when it was first sent or after how many hops. */
export function isSameMail({ envelope }: Receipt, { to, kind, body, x }: Envelope): boolean {
	const isAsQuiet = envelope.x?.quiet === x?.quiet;
	return envelope.to === to && envelope.kind === kind && envelope.body === digest(body) && isAsQuiet;
}

function parseReceipt(text: string): Receipt | undefined {
	try {
		const { name, durable, envelope } = z.parse(receiptSchema, JSON.parse(text));
		const parsed = parseEnvelope(JSON.stringify(envelope));
		return parsed.ok ? { name, durable, envelope: parsed.envelope } : undefined;
	} catch {
		return undefined;
	}
}

function receiptOfCopy(disk: Disk, sent: string, id: string): Receipt | undefined {
	const name = disk.list(sent).find((copy) => copy.endsWith(`-${id}.json`));
	if (name === undefined) return undefined;
	const parsed = parseEnvelope(disk.read(join(sent, name), maxEnvelopeBytes));
	if (!parsed.ok) return undefined;
	return { name, durable: false, envelope: { ...parsed.envelope, body: digest(parsed.envelope.body) } };
}

const receiptSchema = z.object({ name: z.string(), durable: z.boolean(), envelope: z.record(z.string(), z.unknown()) });

function digest(body: string): string {
	return createHash("sha256").update(body).digest("hex");
}
