import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { visibleWidth } from "@earendil-works/pi-tui";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { thisMachine } from "../../src/index.ts";
import { callsHost } from "../support/calls.ts";
import { later, pressKeys, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, machine, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

const enter = "\r";
const esc = "\u001b";
const down = "\u001b[B";
const bash = { name: "bash", args: { command: "make" } };

let host: ReturnType<typeof callsHost>;
let pi: FakePi;
beforeEach(async () => {
	host = callsHost();
	const settingsFile = () => join(machine.home, "session-mail.json");
	writeFileSync(settingsFile(), JSON.stringify({ toolPolicy: { rules: [{ tool: "bash", attachSeconds: 1 }] } }));
	const extensions = [host.extension({ ...thisMachine(), settingsFile })];
	pi = await startFakePi({ builtIns: ["bash"], extensions, mode: "tui" });
	await pi.run({ prompt: "hello" });
	await later(1000);
});

/** Lets the model call bash, which is handed back, and opens the screen at it. */
async function openAtCall(): Promise<void> {
	await pi.run({ prompt: "build it", turns: [{ tools: [bash], during: () => later(1000) }] });
	await open();
}

async function open(): Promise<void> {
	pi.shortcut("alt+m");
	await press("6");
}

const press = (...keys: string[]) => pressKeys(pi, ...keys);

const shown = () => pi.screen().join("\n");
const said = () => shown().replace(/\s+/g, " ");

/** Whether something asks for a new picture while this happens, before any time has passed. */
async function isDrawnAgain(action: () => void): Promise<boolean> {
	const { renderRequests } = pi;
	action();
	await later(0);
	return pi.renderRequests > renderRequests;
}

describe("a call that goes on by itself, in the screen", () => {
	test("SMB-035 Enter waits for it: what it says comes at once, and so does its result", async () => {
		await openAtCall();
		expect(said()).toMatch(/→ running 1 s bash \{"command":"make"\} .*Enter wait · x cancel · y copy id/);
		await press(enter);
		expect(said()).toMatch(
			/Waiting for call-[a-z0-9]{16}\. Esc ends the wait, and not the call\. bash · running · 1 s/,
		);
		expect(await isDrawnAgain(() => host.jobs[0]?.say("linking"))).toBe(true);
		expect(said()).toContain("What it said, the newest first linking");
		expect(await isDrawnAgain(() => host.jobs[0]?.end("first\n\nlast"))).toBe(true);
		pi.screen();
		await later(0);
		expect(shown()).toMatch(/^bash · completed · took 1 s$/m);
		expect(shown()).toMatch(/^first\s*\n\s*\nlast\s*$/m);
		expect(said()).not.toContain("Waiting for");
		expect(said()).toContain("↑↓ scroll · y copy id · Esc back");
		await press(esc);
		expect(said()).toMatch(/Ended → completed 1 s bash first .*Enter open · y copy id/);
		await press("q");
	});

	test("Esc ends the wait, and the call goes on", async () => {
		await openAtCall();
		await press(enter, esc);
		expect(said()).toMatch(/→ running 1 s bash/);
		expect(host.jobs[0]?.isStopped).toBe(false);
		await press("q");
		host.jobs[0]?.end("built");
		await later(1000);
		await pi.run({ text: "It is built." });
		expect(pi.mails()).toEqual([expect.objectContaining({ text: expect.stringContaining("built") })]);
	});

	test("SMB-033 x cancels it, also while it is waited for, and its end is shown", async () => {
		await openAtCall();
		await press(enter, "x");
		await later(0);
		expect(host.jobs[0]?.isStopped).toBe(true);
		expect(said()).toMatch(/bash · cancelled · .* Command aborted .*Cancelled: what it gave so far comes as mail\./);
		await press("x");
		expect(said()).toContain("It has ended already.");
		await press("q", "q");
	});

	test("that has ended scrolls as a mail does", async () => {
		await openAtCall();
		host.jobs[0]?.end(Array.from({ length: 200 }, (_, line) => `line ${line}.`).join("\n"));
		await later(0);
		await press(enter);
		expect(shown()).toContain("line 0.");
		await press("\u001b[F");
		expect(shown()).toContain("line 199.");
		await press("\u001b[5~");
		expect(shown()).not.toContain("line 199.");
		await press("\u001b[H", down);
		expect(shown()).not.toContain("bash · completed");
		await press(esc, "q");
	});

	test("L10 once the screen is closed nothing is done about what it says", async () => {
		await openAtCall();
		await press(enter, esc, "q");
		const timers = vi.getTimerCount();
		host.jobs[0]?.say("linking");
		expect(vi.getTimerCount()).toBe(timers);
		host.jobs[0]?.end("built");
	});

	test("L10 what it says draws nothing while another tab is shown", async () => {
		await openAtCall();
		await press("1");
		expect(await isDrawnAgain(() => host.jobs[0]?.say("linking"))).toBe(false);
		await press("q");
	});

	test.each([
		[20, 5],
		[80, 24],
		[200, 50],
	])("on %i columns and %i rows nothing is wider or higher", async (columns, rows) => {
		Object.assign(pi.terminal, { columns, rows });
		await openAtCall();
		for (const keys of [[], [enter], ["y"], ["x"], [down], [esc]]) {
			await press(...keys);
			const drawn = pi.screen();
			expect(drawn.length).toBeLessThanOrEqual(Math.max(3, rows - 4));
			for (const row of drawn) expect(visibleWidth(row)).toBeLessThanOrEqual(columns);
		}
		await press("q");
	});
});

describe("the calls that the model waits for, in the screen", () => {
	/** While it waits for two, and one goes on by itself. */
	async function whileAttached(action: () => Promise<void>): Promise<void> {
		await pi.run({ prompt: "build it", turns: [{ tools: [bash], during: () => later(1000) }] });
		await pi.run({ prompt: "and that", turns: [{ tools: [bash, bash], during: action }, { tools: 0 }] });
	}

	const stopped = () => host.jobs.map(({ isStopped }) => isStopped);

	test("SMB-046 X cancels them all, after a question: Enter alone does nothing; the run and what goes on by itself go on", async () => {
		await whileAttached(async () => {
			await open();
			expect(said()).toMatch(/Go on by themselves → running .* The model waits for running .* running /);
			expect(said()).toContain("X cancel all that the model waits for");
			await press("X");
			expect(pi.shown?.title).toContain("Cancel all calls that the model waits for?");
			await press(enter);
			expect(stopped()).toEqual([false, false, false]);
			await press("X", down, enter);
			expect(stopped()).toEqual([false, true, true]);
			expect(said()).toContain("Cancelled 2 calls: the model is told so.");
			await press("q");
		});
		expect(pi.hasRunToPlay).toBe(false);
		host.jobs[0]?.end("built");
	});

	test("x cancels one of them, and Enter opens none: its result comes in the conversation", async () => {
		await whileAttached(async () => {
			await open();
			await press(down, enter);
			expect(said()).toContain("The model waits for it: its result comes in the conversation.");
			await press("x");
			expect(stopped()).toEqual([false, true, false]);
			expect(said()).toContain("Cancelled: the model is told so.");
			host.jobs[2]?.end("built");
			await press("q");
		});
		host.jobs[0]?.end("built");
	});

	test("L4 that ended while it was asked about them are said to have ended", async () => {
		await whileAttached(async () => {
			await open();
			await press("X");
			for (const job of host.jobs.slice(1)) job.end("built");
			await press(down, enter);
			expect(said()).toContain("Nothing was cancelled: they have ended already.");
			await press("X");
			expect(said()).toContain("The model waits for no call.");
			await press("q");
		});
		host.jobs[0]?.end("built");
	});
});
