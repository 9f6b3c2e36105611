import * as z from "zod/mini";
import { controlOps, mailKinds } from "../mail/envelope.ts";

/** What the commands print with `--json`. README.md's table is made of this; the program itself takes only the types. */

const kind = z.enum(mailKinds);

const session = z.strictObject({
	address: z.string(),
	name: z.optional(z.string()),
	cwd: z.string(),
	pid: z.int(),
	state: z.enum(["idle", "busy"]),
	waitingOn: z.string(),
	updated: z.string(),
	program: z.boolean(),
	receiving: z.boolean(),
	paused: z.boolean(),
	self: z.boolean(),
});

const mail = z.strictObject({
	id: z.string(),
	from: z.string(),
	fromName: z.string(),
	to: z.string(),
	kind,
	hops: z.int(),
	inReplyTo: z.array(z.string()),
	status: z.string(),
	ts: z.string(),
	program: z.boolean(),
	body: z.string(),
});

const status = z.enum(["queued", "taken", "read", "held", "failed", "answered", "retracted"]);

/** What stands in several of them. */
export const parts = { kind, session, mail, status };

export const schemas = {
	list: z.strictObject({ sessions: z.array(session) }),
	send: z.strictObject({
		id: z.string(),
		from: z.string(),
		to: z.string(),
		kind: z.enum(["message", "request"]),
		running: z.boolean(),
		durable: z.boolean(),
		duplicate: z.boolean(),
		notes: z.array(z.string()),
	}),
	ask: z.strictObject({
		id: z.string(),
		to: z.string(),
		outcome: z.enum([
			"answered",
			"timed-out",
			"stopped-running",
			"withdrawn",
			"taken-back",
			"interrupted",
			"stopped-by-user",
		]),
		answer: z.optional(z.strictObject({ status: z.string(), fromName: z.string(), body: z.string() })),
	}),
	inbox: z.strictObject({ mails: z.array(mail) }),
	read: z.strictObject({ mails: z.array(mail) }),
	reply: z.strictObject({ id: z.string(), to: z.string(), inReplyTo: z.array(z.string()), status: z.string() }),
	sent: z.strictObject({
		mails: z.array(
			z.strictObject({
				id: z.string(),
				to: z.string(),
				kind,
				ts: z.string(),
				status,
				body: z.string(),
			}),
		),
	}),
	edit: z.strictObject({ id: z.string(), to: z.string(), replaces: z.string() }),
	retract: z.strictObject({ id: z.string(), to: z.string() }),
	calls: z.strictObject({
		calls: z.array(
			z.strictObject({
				id: z.string(),
				session: z.string(),
				tool: z.string(),
				arguments: z.string(),
				started: z.string(),
			}),
		),
	}),
	cancel: z.strictObject({ id: z.string(), to: z.string() }),
	control: z.strictObject({ op: z.enum(controlOps), to: z.string() }),
	tickets: z.strictObject({
		tickets: z.array(
			z.strictObject({
				id: z.string(),
				session: z.string(),
				tool: z.string(),
				arguments: z.string(),
				message: z.string(),
				since: z.string(),
				state: z.enum(["pending", "approved", "refused", "gone"]),
			}),
		),
	}),
	approve: z.strictObject({ id: z.string(), session: z.string(), action: z.enum(["resume", "cancel"]) }),
	deny: z.strictObject({ id: z.string(), session: z.string(), action: z.enum(["resume", "cancel"]) }),
	policy: z.strictObject({ lines: z.array(z.string()) }),
	watch: z.union([
		z.strictObject({ event: z.enum(["started", "ended", "changed"]), at: z.string(), session }),
		z.strictObject({ event: z.literal("mail"), at: z.string(), mail }),
		z.strictObject({ event: z.literal("sent"), at: z.string(), id: z.string(), to: z.string(), status }),
	]),
	doctor: z.strictObject({
		findings: z.array(
			z.strictObject({
				level: z.enum(["ok", "warning", "error"]),
				what: z.string(),
				mend: z.optional(z.string()),
			}),
		),
	}),
	prune: z.strictObject({ removed: z.array(z.string()), warnings: z.array(z.string()) }),
};

/** The shape of what a command prints. */
export type Printed = { [Name in keyof typeof schemas]: z.infer<(typeof schemas)[Name]> };
