/** One round of the question in calls.ts, in a process of its own; prints a {@link CallsRound}. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createEngine, type ToolResult } from "../../src/calls/engine.ts";
import { attachMsOf } from "../../src/calls/wrap.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { openSettings } from "../../src/mail/settings.ts";
import { finish, ordersOf } from "./rounds.ts";

export interface CallsOrders {
	/** An empty folder. */
	readonly root: string;
	/** Calls of each kind, by turns. */
	readonly calls: number;
}

/** Milliseconds for each call. */
export interface CallsRound {
	readonly wrapped: number[];
	readonly bare: number[];
}

const { root, calls }: CallsOrders = ordersOf();
const file = join(root, "session-mail.json");
writeFileSync(file, JSON.stringify({ toolPolicy: { rules: [{ tool: "bash", attachSeconds: 10 }] } }));
const settings = openSettings({ disk: nodeDisk(), file, now: Date.now, warn: () => {} });
const policy = () => settings.read().toolPolicy ?? { rules: [], maxCalls: 4 };
const engine = createEngine({
	address: "",
	now: Date.now,
	hops: () => 0,
	maxCalls: () => policy().maxCalls,
	mayDetach: () => true,
	hasMail: () => false,
	open: () => true,
	end: () => true,
	ended: () => undefined,
	pathOf: (id) => id,
	changed: () => {},
});
const result: ToolResult = { content: [{ type: "text", text: "done" }], details: undefined };
const work = async () => result;
const round: CallsRound = { wrapped: [], bare: [] };
for (let call = 0; call < calls; call++) {
	let begin = performance.now();
	const args = { command: "true" };
	const attachMs = attachMsOf(policy(), "bash");
	await engine.run({ tool: "bash", args, attachMs }, work, undefined, undefined);
	round.wrapped.push(performance.now() - begin);
	begin = performance.now();
	await work();
	round.bare.push(performance.now() - begin);
}
engine.close(false);
finish(round);
