import { parseArgs } from "node:util";
import { type Run, UsageError } from "./call.ts";
import { type Command, type CommandName, commandNamed, commands, commonOptions, type Option } from "./commands.ts";
import { commandHelp, nearest, overallHelp } from "./help.ts";
import { createOutput, type Output } from "./output.ts";
import { version } from "./version.ts";

/** Runs the program and sets its exit code. Throws nothing. */
export async function main(argv: readonly string[]): Promise<void> {
	const isJson = argv.includes("--json");
	const out = createOutput(isJson);
	try {
		process.exitCode = await dispatch(argv, out);
	} catch (error) {
		const isUsage = error instanceof UsageError;
		out.fail(isUsage ? "usage" : "failed", error instanceof Error ? error.message : String(error));
		process.exitCode = isUsage ? 2 : 1;
	}
}

async function dispatch(argv: readonly string[], out: Output): Promise<number> {
	const [first, ...rest] = commandFirst(argv);
	if (first === undefined) {
		out.note(overallHelp());
		return 2;
	}
	if (first === "--version") {
		await out.print(version);
		return 0;
	}
	if (first === "--help" || first === "-h" || first === "help") {
		const about = rest[0] === undefined ? undefined : await known(rest[0]);
		await out.print(about === undefined ? overallHelp() : commandHelp(...about));
		return 0;
	}
	const [name, command] = await known(first);
	const { values, positionals } = await parsed(name, command, rest);
	if (values.help === true) {
		await out.print(commandHelp(name, command));
		return 0;
	}
	const run = await load[name]();
	return run({
		words: positionals,
		text(option) {
			const value = values[option];
			return typeof value === "string" ? value : undefined;
		},
		has: (option) => values[option] === true,
		out,
		env: process.env,
	});
}

/** Puts options that were typed before the command behind it, where the command reads them. */
function commandFirst(argv: readonly string[]): string[] {
	let at = 0;
	while (argv[at] === "--json" || argv[at]?.startsWith("--from")) at += argv[at] === "--from" ? 2 : 1;
	return [...argv.slice(at, at + 1), ...argv.slice(0, at), ...argv.slice(at + 1)];
}

/** Each command's code, loaded when it is called. */
const load: Record<CommandName, () => Promise<Run>> = {
	list: async () => (await import("./list.ts")).list,
	send: async () => (await import("./send.ts")).send,
	ask: async () => (await import("./ask.ts")).ask,
	inbox: async () => (await import("./inbox.ts")).inbox,
	read: async () => (await import("./inbox.ts")).read,
	reply: async () => (await import("./send.ts")).reply,
	sent: async () => (await import("./sent.ts")).sent,
	edit: async () => (await import("./sent.ts")).edit,
	retract: async () => (await import("./sent.ts")).retract,
	mcp: async () => (await import("./mcp.ts")).mcp,
	calls: async () => (await import("./control.ts")).calls,
	cancel: async () => (await import("./control.ts")).cancel,
	control: async () => (await import("./control.ts")).control,
	tickets: async () => (await import("./tickets.ts")).tickets,
	approve: async () => (await import("./tickets.ts")).approve,
	deny: async () => (await import("./tickets.ts")).deny,
	policy: async () => (await import("./tickets.ts")).policy,
	watch: async () => (await import("./watch.ts")).watch,
	doctor: async () => (await import("./doctor.ts")).doctor,
	prune: async () => (await import("./prune.ts")).prune,
	completion: async () => (await import("./completion.ts")).completion,
};

async function known(typed: string): Promise<[CommandName, Command]> {
	const found = commandNamed(typed);
	if (found !== undefined) return found;
	const names = [...Object.keys(commands), "--help", "--version"];
	const what = typed.startsWith("-") ? "option" : "command";
	throw new UsageError(`there is no ${what} ${shown(typed)}${await nearest(typed, names)}. ${seeHelp()}`);
}

async function parsed(name: string, command: Command, args: readonly string[]) {
	const options: Record<string, Option> = { ...command.options, ...commonOptions };
	try {
		const config = Object.fromEntries(
			Object.entries(options).map(([option, { type, short }]) => [option, { type, ...(short && { short }) }]),
		);
		return parseArgs({ args: [...args], options: config, allowPositionals: true });
	} catch (error) {
		const message = error instanceof Error ? error.message : String(error);
		const [, typed] = /^Unknown option '(--?[^']*)'/.exec(message) ?? [];
		if (typed === undefined) throw new UsageError(`${firstSentence(message)}. ${seeHelp(name)}`);
		const names = Object.keys(options).map((option) => `--${option}`);
		throw new UsageError(
			`${name} has no option ${shown(typed)}${await nearest(typed, names)}. A text that begins with - goes behind --. ${seeHelp(name)}`,
		);
	}
}

function seeHelp(name?: string): string {
	return `See: pi-session-mail ${name === undefined ? "" : `${name} `}--help`;
}

function firstSentence(text: string): string {
	return text.split(/\.(?:\s|$)/, 1)[0] ?? text;
}

/** What was typed, as part of a line. */
function shown(typed: string): string {
	return typed.replace(/[^\x20-\x7e]/g, "?").slice(0, 60);
}
