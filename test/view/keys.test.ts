import { KeybindingsManager, TUI_KEYBINDINGS } from "@earendil-works/pi-tui";
import { describe, expect, test } from "vitest";
import { isCancel, readKey, submitKey } from "../../src/view/keys.ts";

const bindings = new KeybindingsManager(TUI_KEYBINDINGS);

describe("keys, as terminals send them", () => {
	test.each([
		["\u001b[A", "up"],
		["\u001b[B", "down"],
		["\u001b[5~", "pageUp"],
		["\u001b[6~", "pageDown"],
		["\u001b[H", "home"],
		["\u001b[1~", "home"],
		["\u001b[F", "end"],
		["\r", "enter"],
		["\u001b", "cancel"],
		["\u0003", "cancel"],
		["\t", "nextTab"],
		["\u001b[C", "nextTab"],
		["\u001b[D", "previousTab"],
		["\u001b[Z", "previousTab"],
		["\u007f", "backspace"],
	])("%j is %s", (data, key) => {
		expect(readKey(data, bindings)).toEqual({ key });
	});

	test.each([
		["r", "r"],
		["日", "日"],
		[" ", " "],
		["\u001b[114u", "r"],
		["\u001b[97:65;2u", "A"],
		["\u001b[27;1;114~", "r"],
		["\u001b[200~two\nlines\u001b[201~", "two lines"],
	])("%j types %j", (data, text) => {
		expect(readKey(data, bindings)).toEqual({ text });
	});

	test.each(["\u001b[15~", "\u0001\u0002", "\u001b[I", "\u001b[99999999u"])("%j does nothing", (data) => {
		const read = readKey(data, bindings);
		expect(read === undefined || "key" in read).toBe(true);
	});

	test("whoever has bound other keys finds them here as well", () => {
		const own = new KeybindingsManager(TUI_KEYBINDINGS, {
			"tui.select.cancel": "ctrl+g",
			"tui.input.submit": "ctrl+s",
		});
		expect(readKey("\u0007", own)).toEqual({ key: "cancel" });
		expect([isCancel("\u0007", own), isCancel("\u001b", own)]).toEqual([true, false]);
		expect([submitKey(bindings), submitKey(own)]).toEqual(["\r", "\u0013"]);
	});

	test("the release of a key, which some terminals report, cancels nothing", () => {
		expect(isCancel("\u001b[27u", bindings)).toBe(true);
		expect(isCancel("\u001b[27;1:3u", bindings)).toBe(false);
	});
});
