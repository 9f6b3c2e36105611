import { expect, test } from "vitest";
import { dayMs, hourMs, minuteMs, shortSpan } from "../../src/mail/time.ts";

test.each([
	[-5000, "0 s"],
	[999, "0 s"],
	[119_999, "119 s"],
	[2 * minuteMs, "2 min"],
	[2 * hourMs - 1, "119 min"],
	[2 * hourMs, "2 h"],
	[2 * dayMs - 1, "47 h"],
	[30 * dayMs, "30 d"],
])("a span of %i ms is shown as %s", (ms, text) => {
	expect(shortSpan(ms)).toBe(text);
});
