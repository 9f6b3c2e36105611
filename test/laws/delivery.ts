import { writeSync } from "node:fs";
import { nodeDisk } from "../../src/mail/disk.ts";
import { mailKinds } from "../../src/mail/envelope.ts";
import { openMailbox } from "../../src/mail/mailbox.ts";
import { ensureRoot, mailRoot } from "../../src/mail/root.ts";
import { waitForTrace } from "../support/strace.ts";
import { alice, bob, receiptOf } from "./tree.ts";

/**
 * The program whose system calls the durability suite reads: `node delivery.ts DURABILITY KIND known|new` sends one mail
 * from Alice to Bob's mailbox, and then writes its receipt.
 */
const [, , durability, kind = "", recipient] = process.argv;
const disk = nodeDisk();
const root = mailRoot();
ensureRoot(disk, root);
const options = { disk, root, now: Date.now, isDurable: () => durability === "durable" };
if (recipient === "known") openMailbox({ ...options, address: bob });
const mailbox = openMailbox({ ...options, address: alice });
const draft = { to: bob, kind: mailKinds.find((known) => known === kind) ?? "message", body: "please", hops: 0 };
waitForTrace();
const sent = mailbox.deliver(draft);
if (!sent.ok) throw new Error(sent.message);
writeSync(1, receiptOf(sent.envelope.id));
