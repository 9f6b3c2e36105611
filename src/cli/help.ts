import { type Command, commands, commonOptions, type Option } from "./commands.ts";

/** Exit codes of every command. */
const commonExits: Readonly<Record<number, string>> = {
	0: "it did what was asked",
	1: "it was refused, or failed; nothing was sent",
	2: "the command was not understood",
};

/** Help of the whole program. */
export function overallHelp(): string {
	const listed = Object.entries<Command>(commands).map(([name, { summary }]) => [name, summary] as const);
	return [
		"Usage: pi-session-mail COMMAND [OPTIONS]",
		"",
		"Mail between Pi sessions and programs on this machine.",
		"",
		"Commands:",
		...table(listed),
		"",
		"pi-session-mail COMMAND --help says more of each; --version prints the version.",
		"",
		"Who you are: with --from NAME, or PI_SESSION_MAIL_NAME, a lasting address whose mail waits; without,",
		"send and ask take an address that goes when they end. In a Pi session's shell: that session.",
		"",
		"Exit codes:",
		...table(Object.entries({ ...commonExits, ...allExits() })),
	].join("\n");
}

/** Help of one command. */
export function commandHelp(name: string, command: Command): string {
	const options = Object.entries<Option>({ ...command.options, ...commonOptions });
	return [
		`Usage: pi-session-mail ${name} ${command.usage}`.trimEnd(),
		"",
		sentence(command.summary),
		...command.detail,
		"",
		"Options:",
		...table(options.map(([option, { value, short, what }]) => [optionText(option, value, short), what] as const)),
		"",
		command.examples.length === 1 ? "Example:" : "Examples:",
		...command.examples.map((example) => `  ${example}`),
		"",
		"Exit codes:",
		...table(Object.entries({ ...commonExits, ...command.exits })),
	].join("\n");
}

/** Of what was typed and is not known: the nearest of what is, as a question; empty when nothing is near. */
export async function nearest(typed: string, known: readonly string[]): Promise<string> {
	const { closest, distance } = await import("fastest-levenshtein");
	const near = closest(typed.slice(0, 60), [...known]);
	return distance(typed.slice(0, 60), near) <= Math.max(2, near.length / 2) ? `, did you mean ${near}` : "";
}

/** What each exit code means, in the words of all commands that have it. */
function allExits(): Record<string, string> {
	const meanings: Record<string, string> = {};
	for (const { exits } of Object.values<Command>(commands)) {
		for (const [code, meaning] of Object.entries(exits)) {
			const before = meanings[code];
			if (before === undefined) meanings[code] = meaning;
			else if (!before.split("; or ").includes(meaning)) meanings[code] = `${before}; or ${meaning}`;
		}
	}
	return meanings;
}

function optionText(name: string, value: string | undefined, short: string | undefined): string {
	return `${short === undefined ? "" : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`;
}

function table(rows: readonly (readonly [string, string])[]): string[] {
	const width = Math.max(...rows.map(([first]) => first.length));
	return rows.map(([first, second]) => `  ${first.padEnd(width)}  ${second}`);
}

function sentence(text: string): string {
	return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
