import * as z from "zod/mini";
import { canonicalAddress, isAddress, isUuid } from "./address.ts";
import { field } from "./text.ts";

/**
 * One mail as it lies on disk (seed "Envelopes", PSM-011). Extra fields are allowed under `x` alone; readers that do
 * not know them ignore them (design D1).
 */
export interface Envelope {
	/** UUID; what a reply names in `in_reply_to`. */
	id: string;
	/** Address of the sender. */
	from: string;
	/** Address of the recipient. */
	to: string;
	kind: MailKind;
	/** How many times the chain of mail has woken or steered a session with no person typing. */
	hops: number;
	/** The ids that a reply answers, at most 50; empty for other kinds. */
	in_reply_to: string[];
	/** How the answering run ended, on replies; otherwise empty. */
	status: string;
	/** When it was written, ISO 8601. */
	ts: string;
	body: string;
	/** What copies of this package older than these fields do not know (design D1). */
	x?: Extras | undefined;
}

/** Further fields of an envelope. */
export interface Extras {
	/** Of a message: it starts no turn (design 4.6). */
	quiet?: true | undefined;
	/** The id of the mail that its sender took back for this one (design D28). */
	replaces?: string | undefined;
	/** A program sent it under an address of its own, and no Pi session. */
	program?: true | undefined;
	/** It is to reach the recipient's model with its next request, and ends what that one waits for. */
	priority?: "interrupt" | undefined;
	/** Of a result: the call whose result it is. */
	call?: CallOfResult | undefined;
	/** Of control mail: what is to be done. */
	control?: Control | undefined;
}

/** The states that a call can end in. */
export const callStates = ["completed", "failed", "cancelled", "orphaned"] as const;

/** A call that a session's model made, whose result came after the model was given the turn back. */
export interface CallOfResult {
	id: string;
	tool: string;
	/** `decided`: somebody has said whether it may be made. */
	state: (typeof callStates)[number] | "decided";
}

/** What a person can do with a session; see `Control`. */
export const controlOps = ["pause", "resume", "stop", "cancel", "cancel-attached"] as const;

/**
 * What a person does with another session: `pause` keeps it from running until `resume`, `stop` ends its run as Esc does,
 * `cancel` ends the calls of these ids, or without ids all that its model does not wait for; `cancel-attached` ends those that
 * it waits for, and the run goes on.
 */
export interface Control {
	op: (typeof controlOps)[number];
	calls?: string[] | undefined;
}

/**
 * The kinds of mail; one that a reader does not know is read as `message`. A `result` is from the session itself; `control`
 * is done and never shown to a model.
 */
export const mailKinds = ["request", "reply", "message", "ask", "result", "control"] as const;
export type MailKind = (typeof mailKinds)[number];
/** How the run that answers ended; `stopped`: by its user. Only `done` is an answer. */
export type ReplyStatus = "done" | "stopped" | "failed";

/** Most ids that one reply may name (PSM-016). */
export const maxInReplyTo = 50;
/** Largest body that is sent, in bytes of UTF-8 (design D11). */
export const maxBodyBytes = 1024 * 1024;
/** Largest envelope file that is read, in bytes (design D11). */
export const maxEnvelopeBytes = 4 * 1024 * 1024;

/** Whether a mail is answered: requests and asks are. */
export function awaitsAnswer<M extends { kind: MailKind }>(mail: M): mail is M & { kind: "request" | "ask" } {
	return mail.kind === "request" || mail.kind === "ask";
}

/** Whether it is an answer or a result, which a session has asked for itself, or control mail: none of these is ever refused or put off. */
export function isExpected({ kind }: { kind: MailKind }): boolean {
	return kind === "reply" || kind === "result" || kind === "control";
}

/** Whether its sender wants it to start no turn. Only messages can be quiet: who asks wants an answer. */
export function isQuiet({ kind, x }: Envelope): boolean {
	return kind === "message" && x?.quiet === true;
}

/** What a reader made of an envelope file. The reason is one short line, such as `invalid hops -1`. */
export type ParsedEnvelope = { ok: true; envelope: Envelope } | { ok: false; reason: string };

/** What has to be known of a request or ask to answer it. */
export type Owing = Pick<Envelope, "id" | "from" | "to"> & { kind: "request" | "ask" };

/**
 * Reads an envelope. A kind that this version does not know is read as `message` (PSM-013); one without `kind` and
 * `hops`, from before they existed, as a reply when it answers something and as a request otherwise (PSM-014).
 */
export function parseEnvelope(text: string): ParsedEnvelope {
	let json: unknown;
	try {
		json = JSON.parse(text);
	} catch {
		return { ok: false, reason: text.trim() === "" ? "it is empty" : "it is not JSON" };
	}
	const parsed = z.safeParse(envelopeSchema, json);
	if (!parsed.success) return { ok: false, reason: reasonOf(parsed.error.issues[0], json) };
	const { kind, x, ...fields } = parsed.data;
	return { ok: true, envelope: { ...fields, kind: kindOf(kind, fields), ...extras(x) } };
}

/** Of a text that is no envelope: the request or ask in it that can still be answered (design D12). */
export function owingIn(text: string): Owing | undefined {
	try {
		return z.safeParse(owingSchema, JSON.parse(text)).data;
	} catch {
		return undefined;
	}
}

/**
 * Why a reader would set a mail aside that was made here, of whose fields the type leaves these open; undefined when none would.
 * The schema says the same, ten times slower: this runs for each mail, after the wait for the disk has made all code cold.
 */
export function invalidBecause({ from, hops, in_reply_to }: Envelope): string | undefined {
	if (!isAddress(from)) return `invalid from ${field(JSON.stringify(from), 60)}`;
	if (!Number.isSafeInteger(hops) || hops < 0) return `invalid hops ${JSON.stringify(hops)}`;
	if (in_reply_to.length > maxInReplyTo) return `invalid in_reply_to of ${in_reply_to.length} items`;
	return undefined;
}

/** An envelope's file, as bytes. */
export function serialiseEnvelope(envelope: Envelope): Buffer {
	const content = contentOf(envelope);
	return typeof content === "string" ? Buffer.from(content) : content;
}

/**
 * The same, as a text while that is short, which a disk encodes on the way. A large body is encoded piece by piece into one
 * buffer: it is held as few times as can be.
 */
export function contentOf(envelope: Envelope): string | Buffer {
	if (envelope.body.length <= maxWhole) return `${JSON.stringify(envelope)}\n`;
	const { body, ...fields } = envelope;
	const head = `${JSON.stringify(fields).slice(0, -1)},"body":"`;
	// Longer than needed: memory that nobody touches costs nothing.
	const bytes = Buffer.allocUnsafe(maxEscapedBytes * (head.length + body.length) + tail.length);
	let length = bytes.write(head);
	for (const piece of piecesOf(body)) length += bytes.write(JSON.stringify(piece).slice(1, -1), length);
	length += bytes.write(tail, length);
	return bytes.subarray(0, length);
}

/**
 * The name of an envelope's file: a 15-digit stamp (milliseconds, see `state.ts`) and the id, so that names sort in
 * send order (PSM-020). A reader trusts the parsed id, never the name.
 */
export function envelopeFileName(stamp: number, id: string): string {
	return `${String(stamp).padStart(stampDigits, "0")}-${id}.json`;
}

/** The stamp in the name of an envelope's file, which a claim may have put something before. */
export function stampInName(name: string): number {
	return Number(name.slice(-nameLength).slice(0, stampDigits));
}

/** The id in the name of an envelope's file, which a claim may have put something before. */
export function idInName(name: string): string {
	return name.slice(-"01234567-0123-0123-0123-0123456789ab.json".length, -".json".length);
}

const stampDigits = 15;
const nameLength = "000000000000000-01234567-0123-0123-0123-0123456789ab.json".length;
const tail = '"}\n';
/** Most bytes that JSON makes of one UTF-16 code unit: `\u0000`. */
const maxEscapedBytes = 6;
const pieceLength = 16 * 1024;
/** Longest body that is encoded at once, which is faster. */
const maxWhole = 128 * 1024;

/** Cuts a text, and no pair of surrogates: half of one is not the same in JSON. */
function* piecesOf(text: string): Generator<string> {
	for (let begin = 0, end = 0; begin < text.length; begin = end) {
		end = begin + pieceLength;
		if (/[\ud800-\udbff]/.test(text.charAt(end - 1))) end--;
		yield text.slice(begin, end);
	}
}

const maxCallField = 128;

const address = z
	.string()
	.check(z.refine((text: string) => isAddress(text)))
	.check(z.overwrite(canonicalAddress));
const id = z.string().check(z.refine((text: string) => isUuid(text)));
/** What is not as it should be under `x` is as unknown as all else there. */
const extrasSchema = z.catch(
	z.object({
		quiet: z.catch(z.optional(z.literal(true)), undefined),
		replaces: z.catch(z.optional(id), undefined),
		program: z.catch(z.optional(z.literal(true)), undefined),
		priority: z.catch(z.optional(z.literal("interrupt")), undefined),
		call: z.catch(
			z.optional(
				z.object({
					id: z.string().check(z.maxLength(maxCallField)),
					tool: z.string().check(z.maxLength(maxCallField)),
					state: z.enum([...callStates, "decided"]),
				}),
			),
			undefined,
		),
		control: z.catch(
			z.optional(
				z.object({
					op: z.enum(controlOps),
					calls: z.optional(z.array(z.string().check(z.maxLength(maxCallField))).check(z.maxLength(50))),
				}),
			),
			undefined,
		),
	}),
	{},
);
const envelopeSchema = z.object({
	id,
	from: address,
	to: address,
	kind: z.optional(z.string()),
	hops: z._default(z.int().check(z.gte(0)), 0),
	in_reply_to: z._default(z.array(z.string()).check(z.maxLength(maxInReplyTo)), []),
	status: z._default(z.string(), ""),
	ts: z.string().check(z.refine((text: string) => !Number.isNaN(Date.parse(text)))),
	body: z.string(),
	x: z.optional(extrasSchema),
});

const owingSchema = z.object({ id, from: address, to: address, kind: z.enum(["request", "ask"]) });

/** The key `x` with what is set of these, or nothing. */
export function extras(given: Extras = {}): { x?: Extras } {
	const { quiet, replaces, program, priority, call, control } = given;
	const known = Object.entries({ quiet, replaces, program, priority, call, control });
	const set = known.filter(([, value]) => value !== undefined);
	return set.length === 0 ? {} : { x: Object.fromEntries(set) };
}

function kindOf(kind: string | undefined, mail: { from: string; to: string; in_reply_to: string[] }): MailKind {
	if (kind === undefined) return mail.in_reply_to.length > 0 ? "reply" : "request";
	// Only a session itself knows of its calls.
	if (kind === "result" && mail.from !== mail.to) return "message";
	return mailKinds.find((known) => known === kind) ?? "message";
}

function reasonOf(issue: { path: PropertyKey[] } | undefined, json: unknown): string {
	const key = issue?.path[0];
	if (typeof key !== "string" || typeof json !== "object" || json === null) return "it is not a JSON object";
	const value = Object.entries(json).find(([name]) => name === key)?.[1];
	if (value === undefined) return `${key} is missing`;
	if (Array.isArray(value)) return `invalid ${key} of ${value.length} items`;
	if (typeof value === "object" && value !== null) return `invalid ${key} of an object`;
	return `invalid ${key} ${field(JSON.stringify(value), 60)}`;
}
