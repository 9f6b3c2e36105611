import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { nodeDisk } from "../../src/mail/disk.ts";
import type { RunningSession } from "../../src/mail/running.ts";
import { decideAtScreen } from "../../src/policy/decide-as.ts";
import { openTicketStore } from "../../src/policy/tickets.ts";
import { alice, bob, startMs, temporaryFolder } from "../support/disk.ts";

/** A ticket of bob's, who runs and waits for these; decided on by the person at a session. */
function decided(self: string, approvals: ((id: string) => string[]) | undefined, isApproved = true) {
	const root = temporaryFolder();
	const folder = join(root, bob);
	mkdirSync(folder);
	const store = openTicketStore(nodeDisk(), folder, () => startMs);
	const call = { tool: "bash", arguments: {}, message: "May I?", resume: "replay_tool_call" } as const;
	const { id } = store.open({ session: bob, callId: "c", ...call });
	const record = approvals && ({ x: { approvals: approvals(id) } } as RunningSession);
	const running = { list: () => [], find: (address: string) => (address === bob ? record : undefined) };
	const { message } = decideAtScreen(
		{ address: self, disk: nodeDisk(), root, now: () => startMs, running },
		id,
		isApproved,
		undefined,
	);
	return { message, by: store.find(id)?.decision?.by.who };
}

test("who approves reads whether the call is made, or the session may make it later, or is closed", () => {
	expect(decided(alice, (id) => [id]).message).toBe("Approved: the call is made.");
	expect(decided(alice, () => []).message).toBe("Approved: the model is told, and may make the call once.");
	expect(decided(alice, undefined).message).toBe(
		"Approved: when its session is open again, its model may make the call, once.",
	);
});

test("the person at the session of the call is called the same wherever the decision was made", () => {
	expect(decided(bob, () => [], false).by).toBe("the user of the session");
	expect(decided(alice, () => [], false).by).toBe(`the user of session ${alice}`);
});
