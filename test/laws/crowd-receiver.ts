import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import sessionMail from "../../src/index.ts";
import { FakePi, machine, type RunScript } from "../support/fake-pi.ts";
import { randomFrom } from "./crowd-random.ts";

/** What a receiver of the crowd is told, as JSON in its first argument. `XDG_STATE_HOME` says where the mail lies. */
export interface ReceiverOrders {
	home: string;
	address: string;
	seed: number;
	/** It lets everything come to rest, and ends by itself. */
	isLast: boolean;
}

const { home, address, seed, isLast }: ReceiverOrders = JSON.parse(process.argv[2] ?? "");
const random = randomFrom(seed);
machine.home = home;
process.on("disconnect", () => process.exit());

const sessions = join(home, "sessions");
const known = existsSync(sessions)
	? readdirSync(sessions).find((name) => name.endsWith(`_${address}.jsonl`))
	: undefined;
const extensions = [dawdle, sessionMail];
const pi = new FakePi({ extensions, ...(known === undefined ? { id: address } : { file: join(sessions, known) }) });
process.on("SIGTERM", () => void pi.shutDown().then(() => process.exit()));
await pi.start();
await pi.discover();
// A session without a file has no place for mail yet.
if (known === undefined) await pi.run({ prompt: "hello" });
process.send?.("ready");

if (isLast) await comeToRest();
else for (;;) await live();

/** Another extension, which takes its time: a process is killed between any two steps of ours. */
function dawdle(api: ExtensionAPI): void {
	const wait = () => sleep(random.next() * 30);
	api.on("before_agent_start", wait);
	api.on("context", wait);
	api.on("agent_before_settle", wait);
	api.on("agent_settled", wait);
}

/** A moment in a session's life. */
async function live(): Promise<void> {
	if (pi.hasRunToPlay) await pi.run(script(random.happens(0.05) ? "error" : "stop"));
	else if (random.happens(0.005)) await pi.run({ prompt: "something else", ...script("stop") });
	else await sleep(10);
	complain();
}

function script(end: "stop" | "error"): RunScript {
	const during = () => sleep(random.next() * 40);
	const turns = Array.from({ length: random.between(0, 2) }, () => ({ tools: 1, during }));
	return { turns, text: "an answer", during, end };
}

async function comeToRest(): Promise<void> {
	const isBusy = () => pi.hasRunToPlay || pi.openCount > 0 || pi.names("new").length > 0;
	do {
		while (isBusy()) await live();
		// What was held over a restart is answered by the next run that completes.
		await pi.run({ prompt: "the last word" });
		await sleep(1500);
		complain();
	} while (isBusy());
	await pi.shutDown();
	complain();
	process.exit();
}

/** Ends the process when an extension failed. */
function complain(): void {
	if (pi.errors.length > 0) throw new Error(pi.errors.join("\n"));
}
