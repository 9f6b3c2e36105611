/** One round of the question in screen.ts; prints a {@link ScreenRound}. */
import { setImmediate as soon } from "node:timers/promises";
import { alice } from "./fixtures.ts";
import { type Held, makeHost, watchLoop } from "./host.ts";
import { finish, ordersOf } from "./rounds.ts";

/** What a round is told. */
export interface ScreenOrders {
	/** The root with so many mails in Alice's `cur/` and `sent/`. */
	readonly root: string;
	readonly size: number;
}

/** What one round gave. */
export interface ScreenRound {
	readonly openMs: number;
	readonly open: Held;
	readonly scroll: Held;
	readonly search: Held;
	readonly searchMs: number;
}

const { root, size }: ScreenOrders = ordersOf();
const { pi, isSettledIn } = makeHost({ root, address: alice, isFast: true, mode: "tui" });
await pi.start();
await pi.discover();
await isSettledIn;
await pi.run({ prompt: "hello" });
await soon();

let drawn = pi.renderRequests;
/** Draws as Pi does: when something has asked for it, and in a turn of its own. */
async function draw(): Promise<string> {
	await soon();
	drawn = pi.renderRequests;
	return pi.screen().join("\n");
}

async function until(isThere: (screen: string) => boolean): Promise<void> {
	while (!isThere(await draw())) if (performance.now() - begin > 60_000) throw new Error("the screen does not come");
}

let begin = performance.now();
let loop = watchLoop();
pi.shortcut("alt+m");
await until((screen) => screen.includes("please look at branch x"));
const openMs = performance.now() - begin;
const open = loop.end();

loop = watchLoop();
for (let row = 0; row < size; row += 15) {
	await pi.press("\u001b[6~");
	await draw();
}
await pi.press("\u001b[H");
await draw();
const scroll = loop.end();

loop = watchLoop();
begin = performance.now();
await pi.press("/");
for (const letter of "branch") {
	await pi.press(letter);
	await draw();
}
await pi.press("\r");
// All are found when the last one can be gone to, and nothing asks for another picture.
for (let quiet = 0; quiet < 20; ) {
	await draw();
	quiet = pi.renderRequests === drawn ? quiet + 1 : 0;
}
const searchMs = performance.now() - begin;
const search = loop.end();
await pi.press("\u001b", "q");
finish({ openMs, open, scroll, search, searchMs } satisfies ScreenRound);
