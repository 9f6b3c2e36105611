import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { nodeDisk } from "../../src/mail/disk.ts";
import type { MailKind } from "../../src/mail/envelope.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";
import { randomFrom } from "./crowd-random.ts";

/** What a sender of the crowd is told, as JSON in its first argument. */
export interface SenderOrders {
	root: string;
	address: string;
	receivers: string[];
	/** Where it notes each receipt, a {@link NotedMail} a line, before it sends the next mail. */
	notes: string;
	seed: number;
	/** The mean pause between two mails; undefined: it ends what an earlier process left, and sends nothing. */
	pauseMs?: number;
}

/** A mail whose receipt its sender got. */
export interface NotedMail {
	id: string;
	to: string;
	kind: MailKind;
	name: string;
}

const orders: SenderOrders = JSON.parse(process.argv[2] ?? "");
const { root, address, receivers, notes, seed, pauseMs } = orders;
const random = randomFrom(seed);
let isOver = pauseMs === undefined;
process.on("SIGTERM", () => {
	isOver = true;
});
// Without whoever started it there is nobody to end it.
process.on("disconnect", () => process.exit());

const mailbox = openMailbox({ disk: nodeDisk(), root, address, now: Date.now, isDurable: () => random.happens(0.2) });
for (const _ of mailbox.recount());
mailbox.saveState();
while (!isOver) {
	const kind = random.pick<MailKind>(["request", "request", "request", "ask", "message", "message"]);
	const body = `${kind} ${"x".repeat(random.happens(0.02) ? 20_000 : random.between(0, 200))}`;
	const sent = mailbox.deliver({ to: random.pick(receivers), kind, body, hops: 0 });
	if (sent.ok) {
		const noted: NotedMail = { id: sent.envelope.id, to: sent.envelope.to, kind, name: sent.name };
		appendFileSync(notes, `${JSON.stringify(noted)}\n`);
		mailbox.saveState();
	} else if (sent.code !== "mailbox_full") throw new Error(sent.message);
	await sleep(random.next() * 2 * (pauseMs ?? 0));
}
process.exit();
