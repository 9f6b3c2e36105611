import type { ExtensionContext } from "@earendil-works/pi-coding-agent";

type Factory = Parameters<ExtensionContext["ui"]["custom"]>[0];
/** What Pi knows of the person's key bindings. */
export type Keybindings = Pick<Parameters<Factory>[2], "matches" | "getKeys">;

/** What a key means on the screen; any other is a character that was typed. */
export type Key =
	| "up"
	| "down"
	| "pageUp"
	| "pageDown"
	| "home"
	| "end"
	| "enter"
	| "cancel"
	| "nextTab"
	| "previousTab"
	| "backspace";

/** What a person did: pressed a key of the screen, or typed or pasted a text. */
export type Input = { key: Key } | { text: string };

/** By Pi's own bindings, so that who has changed them finds them here as well. */
const bindings = [
	["up", "tui.select.up"],
	["down", "tui.select.down"],
	["pageUp", "tui.select.pageUp"],
	["pageDown", "tui.select.pageDown"],
	["home", "tui.editor.cursorLineStart"],
	["end", "tui.editor.cursorLineEnd"],
	["enter", "tui.select.confirm"],
	["cancel", "tui.select.cancel"],
	["nextTab", "tui.input.tab"],
	["nextTab", "tui.editor.cursorRight"],
	["previousTab", "tui.editor.cursorLeft"],
	["backspace", "tui.editor.deleteCharBackward"],
] as const satisfies readonly (readonly [Key, Parameters<Keybindings["matches"]>[1]])[];

const esc = "\u001b";

/** What the terminal sent, as a key of the screen or as the text that was typed or pasted; undefined for all else. */
export function readKey(data: string, keybindings: Keybindings): Input | undefined {
	const sequence = data.startsWith(esc) ? data.slice(1) : "";
	const pasted = sequence.startsWith("[200~") ? sequence.slice("[200~".length).split(`${esc}[201~`, 1)[0] : undefined;
	if (pasted !== undefined) return { text: pasted.replace(/\p{Cc}+/gu, " ") };
	if (/^\[(?:Z|9;2(?::[12])?u)$/.test(sequence)) return { key: "previousTab" };
	const bound = bindings.find(([, binding]) => keybindings.matches(data, binding));
	if (bound !== undefined) return { key: bound[0] };
	const text = encodedCharacter(sequence) ?? data;
	return text === "" || /\p{Cc}/u.test(text) ? undefined : { text };
}

/** A character that the terminal sends as a number, alone or with Shift (the protocols of kitty and xterm). */
function encodedCharacter(sequence: string): string | undefined {
	const kitty = /^\[(\d+)(?::(\d*))?(?::\d*)?(?:;([12])(?::[12])?)?u$/.exec(sequence);
	const code = kitty?.[3] === "2" ? kitty[2] || kitty[1] : (kitty?.[1] ?? /^\[27;[12];(\d+)~$/.exec(sequence)?.[1]);
	const number = Number(code);
	return code === undefined || number > 0x10ffff ? undefined : String.fromCodePoint(number);
}

/**
 * Whether what the terminal sent cancels a dialog of Pi. The release of a key, which some terminals report, does nothing.
 */
export function isCancel(data: string, keybindings: Keybindings): boolean {
	return !/:3[u~]$/.test(data) && keybindings.matches(data, "tui.select.cancel");
}

/** What submits Pi's editor; undefined when it is a key that cannot be written as one. */
export function submitKey(keybindings: Keybindings): string | undefined {
	for (const key of keybindings.getKeys("tui.input.submit")) {
		if (key === "enter" || key === "return") return "\r";
		const letter = /^ctrl\+([a-z])$/.exec(key)?.[1];
		if (letter !== undefined) return String.fromCharCode(letter.charCodeAt(0) - 96);
	}
	return undefined;
}
