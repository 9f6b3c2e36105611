import { visibleWidth } from "@earendil-works/pi-tui";
import { beforeEach, describe, expect, test, vi } from "vitest";
import type { EndedCall, ResultPart } from "../../src/mail/call-store.ts";
import type { CallView } from "../../src/session/calls.ts";
import { type CallPage, createCallPage } from "../../src/view/call-page.ts";
import type { OpenedCall, OpenedTicket } from "../../src/view/memory.ts";

const id = "call-0123456789abcdef";
const started = Date.parse("2026-11-29T12:00:00.000Z");
const running: CallView = {
	...{ id, tool: "bash", arguments: '{"command":"make"}', started },
	...{ state: "running", isDetached: true, progress: ["compiling", "linking"] },
};
const over: CallView = { ...running, state: "completed", finished: started + 62_000, resultLine: "built" };

let live: CallView[];
let recent: CallView[];
let ended: (id: string) => EndedCall | undefined;
let reading: Generator<undefined> | undefined;
let slices: number;
let page: CallPage;

beforeEach(() => {
	vi.useFakeTimers({ now: started + 5000 });
	live = [];
	recent = [over];
	slices = 0;
	ended = () => endedWith({ type: "text", text: "built" });
	const calls = { views: () => live, recent: () => recent, ended: (of: string) => ended(of) };
	page = createCallPage({ ...calls, pathOf: (of) => `/mail/results/${of}.json` }, (work) => {
		reading = work;
	});
	return () => vi.useRealTimers();
});

function endedWith(...content: ResultPart[]): EndedCall {
	const { tool, arguments: args } = running;
	return { id, tool, arguments: args, started, hops: 0, state: "completed", finished: started + 62_000, content };
}

/** What is drawn of it at once. */
function draw(opened: OpenedCall | OpenedTicket, width = 80): string[] {
	const { count, at } = page.rowsOf(opened, width);
	return Array.from({ length: count }, (_, index) => (at(index)?.cells ?? []).map(({ text }) => text).join(""));
}

/** The same when it is read. */
function whole(opened: OpenedCall | OpenedTicket, width = 80): string[] {
	draw(opened, width);
	for (; reading?.next().done === false; ) slices++;
	return draw(opened, width);
}

const opened = (call: CallView = over): OpenedCall => ({ call, top: 0 });

describe("a call that has ended", () => {
	test("is its record, its whole result, and what it said, the newest first", () => {
		ended = () => endedWith({ type: "text", text: "built\n\n\tall\n" });
		const [what, when, ...rest] = whole(opened());
		expect(what).toBe("bash · completed · took 62 s");
		expect(when).toMatch(/^started 11-29 \d\d:\d\d · ended 11-29 \d\d:\d\d · id call-0123456789abcdef$/);
		expect(rest).toEqual([
			'Arguments: {"command":"make"}',
			"File: /mail/results/call-0123456789abcdef.json",
			...["", "built", "", "    all"],
			...["", "What it said, the newest first", "linking", "compiling"],
		]);
	});

	test("is there while its result is being read, and says so", () => {
		expect(draw(opened()).slice(-2)).toEqual(["", "Reading …"]);
	});

	test("L10 is read once, however often it is drawn, and in however many widths", () => {
		const read = vi.fn(ended);
		ended = read;
		const one = opened();
		for (const width of [80, 80, 40, 80]) expect(whole(one, width).join("\n")).toContain("built");
		expect(read).toHaveBeenCalledTimes(1);
		whole(opened());
		expect(read).toHaveBeenCalledTimes(2);
	});

	test("an image is named, with its type and size", () => {
		const data = Buffer.alloc(3000).toString("base64");
		ended = () => endedWith({ type: "text", text: "see" }, { type: "image", data, mimeType: "image/png" });
		expect(whole(opened()).slice(5, 7)).toEqual(["see", "(an image: image/png, 3 KiB)"]);
	});

	test.each([
		[[], "(no output)"],
		[[{ type: "text", text: " \n" } as const], "(no output)"],
	])("that gave nothing (%j) says so", (content, said) => {
		ended = () => endedWith(...content);
		expect(whole(opened())[5]).toBe(said);
	});

	test("L4 says when nothing is kept of its result, and why it cannot be read", () => {
		ended = () => undefined;
		expect(whole(opened())).toContain("(Nothing is kept of its result.)");
		ended = () => {
			throw new Error("EIO: i/o error, read '/mail/results/x.json'");
		};
		expect(whole(opened())).toContain("(Its result cannot be read: EIO: i/o error.)");
	});

	test("is still shown when so many have ended since that it is in no list any more", () => {
		recent = [];
		expect(whole(opened())).toContain("built");
	});

	test("L10 a large result is wrapped in slices, and comes whole", () => {
		const lines = Array.from({ length: 20_000 }, (_, n) => `line ${n}`);
		const long = `x${"🙂".repeat(20_001)}`;
		const text = `${lines.join("\n")}\n${"\n".repeat(10_000)}${long}`;
		ended = () => endedWith({ type: "text", text });
		const rows = whole(opened()).slice(5, -4);
		expect(slices).toBeGreaterThan(text.length / 10_000);
		expect(rows.slice(0, 20_000)).toEqual(lines);
		expect(rows.slice(20_000, 30_000).join("")).toBe("");
		expect(rows.slice(30_000).join("")).toBe(long);
	});

	test("L8 nothing in it acts on the terminal, and no row is wider than that", () => {
		const nasty = "\u001b[2J\u001b]52;c;AAAA\u0007\u009b31m\u202e日本語\u0e33👩‍👩‍👧 tab\there\r\n\u2028".repeat(30);
		recent = [{ ...over, tool: nasty, arguments: nasty, progress: [nasty] }];
		ended = () => endedWith({ type: "text", text: nasty }, { type: "image", data: "", mimeType: nasty });
		for (const width of [80, 200, 40]) {
			for (const row of whole(opened(), width)) {
				expect(row).not.toMatch(/[\p{Cc}\u202e\u2028]/u);
				expect(visibleWidth(row)).toBeLessThanOrEqual(width);
			}
		}
	});
});

describe("a call that runs", () => {
	beforeEach(() => {
		live = [running];
		recent = [];
	});

	test("is what it is and says by now; nothing is read", () => {
		reading = undefined;
		const one = opened(running);
		expect(draw(one)[0]).toBe("bash · running · 5 s");
		live = [{ ...running, progress: ["compiling", "linking", "testing"] }];
		expect(draw(one).slice(3)).toEqual(["", "What it said, the newest first", "testing", "linking", "compiling"]);
		live = [{ ...running, progress: [] }];
		expect(draw(one).at(-1)).toBe("It has said nothing yet.");
		expect(reading).toBeUndefined();
	});

	test("SMB-035 whoever waits for it sees its result from the top as soon as it has ended", () => {
		const one = { ...opened(running), top: 7 };
		draw(one);
		expect(one.top).toBe(7);
		live = [];
		recent = [over];
		expect(whole(one)).toContain("built");
		expect([one.top, one.call.state]).toEqual([0, "completed"]);
		one.top = 3;
		draw(one);
		expect(one.top).toBe(3);
	});
});

test("a call that waits for a decision is what is asked about it and all of the call, line by line", () => {
	const ticket = { id: "ticket-0123456789abcdef", session: "s", call: "write: a", message: "May I?", since: started };
	const text = `write: a\ncontent:\n\tfirst\n${"more\n".repeat(5000)}last`;
	const shown = { ticket: { ...ticket, whole: () => text }, top: 0 };
	expect(draw(shown)).toContain("Reading …");
	const rows = whole(shown);
	expect(rows.slice(0, 2)).toEqual(["May I?", expect.stringMatching(/^asked .* · by session s · id ticket-0123/)]);
	expect(rows.slice(3, 6)).toEqual(["write: a", "content:", "    first"]);
	expect([rows.length, rows.at(-1)]).toEqual([5007, "last"]);
	expect(slices).toBeGreaterThan(2);
});
