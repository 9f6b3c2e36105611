import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import * as z from "zod/mini";
import { commands } from "../src/cli/commands.ts";
import { parseArgument } from "../src/commands/mailbox.ts";
import { defaultSettings, settingsSchema } from "../src/mail/settings.ts";
import { footer, namesIn, startedPi, untilInTool } from "./e2e/mail.ts";
import { cleanUp, environment, makeHome, repository, run } from "./support/pi.ts";
import { jsonTypes } from "./support/program-json.ts";
import { hasTmux, openTerminal } from "./support/terminal.ts";

afterEach(cleanUp);

const readme = readFileSync(join(repository, "README.md"), "utf8");

/** The fenced block that follows a `<!-- capture: … -->` comment. */
function capture(of: string): string {
	const block = new RegExp(`<!-- capture: ${of} -->\n\`\`\`\n(.*?)\n\`\`\``, "s").exec(readme)?.[1];
	if (block === undefined) throw new Error(`README.md has no capture of ${of}`);
	return block;
}

/** A screen without what differs from run to run and from one width to another. */
function essence(screen: string): string {
	return screen
		.replace(/\d\d-\d\d \d\d:\d\d/g, "<time>")
		.replace(/\s+/g, "")
		.replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>")
		.replace(/workingin[^)]*\)/g, "workingin<folder>)");
}

test("every command that README.md tells to run is one of package.json", () => {
	const { scripts } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8"));
	const commands = [...readme.matchAll(/(?:^|`|&& )npm (?:run )?(\w+)/gm)].map(([, name]) => name);
	expect(commands).toContain("demo");
	for (const name of new Set(commands)) {
		if (name !== "ci" && name !== "pack" && name !== "install") expect(Object.keys(scripts)).toContain(name);
	}
});

test("PSM-088 the settings that README.md shows are valid, but for wakeOn the defaults, and its table names them all", () => {
	const example = JSON.parse(/### Settings\n.*?```json\n(.*?)\n```/s.exec(readme)?.[1] ?? "");
	const { $schema, wakeOn, ...settings } = z.parse(settingsSchema, example);
	expect(settings).toEqual(defaultSettings);
	// By default it is not set, so that every mail wakes.
	expect(wakeOn).toEqual({ kinds: expect.anything(), from: expect.anything() });
	expect($schema).toMatch(/node_modules\/pi-session-mail\/session-mail\.schema\.json$/);
	for (const key of Object.keys(settingsSchema.shape).slice(1)) expect(readme).toContain(`| \`${key}\` |`);
});

test.each([
	['/mailbox "code reviewer" look at this', "code reviewer", "look at this"],
	["/mailbox prune please", "prune", "please"],
	["/mailbox reviewer please check the parser", "reviewer", "please check the parser"],
])("README.md's %s is mail to %s", (typed, to, text) => {
	expect(readme).toContain(typed);
	expect(parseArgument(typed.slice("/mailbox ".length), ["reviewer"])).toEqual({ to, text });
});

test.skipIf(!hasTmux())("first use looks as README.md shows it", async () => {
	const home = makeHome();
	writeFileSync(join(home.agentDir, "settings.json"), JSON.stringify({ quietStartup: true }));
	writeFileSync(join(home.workDir, "parser.ts"), "export {};\n");
	const finding = "It loses the last word when the text does not end in a space.";
	const script = `!tool read {"path":"parser.ts"}\n!next\n!say ${finding}`;
	const author = await openTerminal({ home, name: "author", width: 100 });
	const reviewer = await openTerminal({ home, width: 100, rules: [{ if: "please check the parser", script }] });
	reviewer.type("/name reviewer");
	await reviewer.press("Enter");
	await reviewer.waitForScreen("• reviewer");

	author.type("/mailbox reviewer please check the parser");
	await author.press("Enter");
	await author.waitForScreen("✉ Reply from reviewer");
	await reviewer.waitForScreen("1 read");
	expect(essence(author.screen().join("\n"))).toContain(essence(capture("author")));
	const [conversation = "", footer = ""] = capture("reviewer").split(/\n\n ✉/);
	const screen = essence(reviewer.screen().join("\n"));
	expect(screen).toContain(essence(conversation));
	expect(screen).toContain(essence(`✉${footer}`));

	await reviewer.press("C-o");
	const expanded = await reviewer.waitForScreen("End of the mail from author");
	expect(essence(expanded.join("\n"))).toContain(essence(capture("expanded")));
});

test.skipIf(!hasTmux())("the mailbox screen looks as README.md shows it", async () => {
	const home = makeHome();
	const finding = "It loses the last word when the text does not end in a space.";
	const idOf = (place: number) => ["--session-id", `0197a3f${place}-1111-7000-8000-00000000000a`];
	const author = await openTerminal({
		home,
		name: "author",
		args: idOf(1),
		width: 96,
		height: 24,
		rules: [{ if: "which branch", script: "!say The branch parser-fix." }],
	});
	const reviewer = await startedPi({
		home,
		name: "reviewer",
		args: idOf(2),
		rules: [{ if: "please check the parser", script: `!say ${finding}` }],
	});
	const tester = await startedPi({ home, name: "tester", args: idOf(3) });
	const say = async (text: string, expected: string) => {
		author.type(text);
		await author.press("Enter");
		await author.waitForScreen(expected);
	};
	await say("%say hello", "hello");
	await reviewer.prompt("/mailbox author which branch do you mean?");
	await author.waitForScreen("1 read");
	await footer(reviewer, "✉ 1 read");
	await say("/mailbox reviewer please check the parser", "2 read");
	await tester.prompt('!tool bash {"command":"while [ ! -e done ]; do sleep 0.02; done"}');
	await untilInTool(tester);
	await say("/mailbox tester run the tests on parser-fix", "✉ 2 read · 1 awaiting");
	await reviewer.prompt('!tool session_mail_ask {"to":"tester","message":"Are the tests green?"}');
	await untilInTool(reviewer);
	// What the recipient notes of a mail that it has answered.
	const address = idOf(1)[1] ?? "";
	const [sent = ""] = namesIn(home, address, "sent");
	writeFileSync(join(home.mailRoot, address, "sent", `${sent}.answered`), "");

	await author.press("M-m");
	for (const [index, tab] of ["Inbox", "Sent", "Waiting", "Sessions"].entries()) {
		author.type(`${index + 1}`);
		await author.waitForScreen(`[${index + 1} ${tab}]`);
		await author.waitForScreen("→ ");
		const screen = author.screen().join("\n").replaceAll(home.workDir, "/home/me/parser");
		expect(essence(screen)).toContain(essence(capture(`screen ${tab}`)));
	}
	author.type("5");
	await author.waitForScreen("no settings are set");
	// Rows are wrapped where the paths of this machine end.
	const words = (text: string) => text.replaceAll(/\s+/g, " ").replace(/Pi [\d.]+ runs/, "Pi runs");
	const shown = words(author.screen().join(" "))
		.replaceAll(home.mailRoot, "/home/me/.local/state/pi-session-mail")
		.replaceAll(home.agentDir, "/home/me/.pi/agent");
	expect(shown).toContain(words(capture("screen Doctor")).trim());
});

test("README.md's table of the screen's keys names each that the screen shows, and no other", () => {
	const section = /### The mailbox screen\n(.*?)\n### /s.exec(readme)?.[1] ?? "";
	const named = [...section.matchAll(/^\| `([^|]*)` \|/gm)].flatMap(([, keys = ""]) => keys.split("`, `"));
	const source = readFileSync(join(repository, "src/view/screen.ts"), "utf8");
	const shown = [...source.matchAll(/"([a-z/]) [a-z ]+"/g)].map(([, key = ""]) => key);
	expect(shown.length).toBeGreaterThan(8);
	expect(new Set(named.filter((key) => /^[a-z/]$/.test(key)))).toEqual(new Set(shown));
});

test("the settings for calls that README.md shows are what the schema makes of them", () => {
	const examples = [...readme.matchAll(/```json settings\n(.*?)\n```/gs)].map(([, text = ""]) => JSON.parse(text));
	expect(examples).toHaveLength(2);
	for (const example of examples) expect(z.parse(settingsSchema, example)).toEqual({ ...defaultSettings, ...example });
});

test("the types of --json in README.md are those of the schema", () => {
	expect(/<!-- json -->\n```ts\n(.*?)\n```/s.exec(readme)?.[1]).toBe(jsonTypes());
});

test("every command of the program has its place in README.md", () => {
	const section = /### From the shell\n(.*?)\n### /s.exec(readme)?.[1] ?? "";
	for (const name of Object.keys(commands)) expect(section).toContain(name);
});

test("the shell session in README.md goes as it is shown", async () => {
	const home = makeHome();
	const cwd = join(home.path, "parser");
	mkdirSync(cwd);
	await startedPi({
		home,
		name: "reviewer",
		cwd,
		rules: [
			{ if: "is the parser safe to change?", script: "!say Yes: it has tests for every token." },
			{ if: "please run the tests", script: "!say All tests pass." },
		],
	});
	const bin = join(home.path, "bin");
	mkdirSync(bin);
	writeFileSync(join(bin, "pi-session-mail"), `#!/bin/sh\nexec node '${join(repository, "src/cli.cjs")}' "$@"\n`);
	chmodSync(join(bin, "pi-session-mail"), 0o755);
	const shown = /<!-- shell -->\n```console\n(.*?)\n```/s.exec(readme)?.[1] ?? "";
	const typed = [...shown.matchAll(/^\$ (.*)$/gm)].map(([, command = ""]) => command);
	expect(typed.length).toBeGreaterThan(5);
	// Each command is printed before it runs, as a terminal shows it.
	const script = typed.map((command) => `printf '$ %s\\n' '${command.replaceAll("'", "'\\''")}'\n${command}`);
	const env = { ...environment(home), PATH: `${bin}:${environment(home).PATH}` };
	const { stdout, stderr } = await run("bash", ["--norc", "-c", `exec 2>&1\n${script.join("\n")}`], {
		env,
		cwd: home.workDir,
	});
	expect(stderr).toBe("");
	const same = (text: string) =>
		text
			.replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>")
			// Said when the session is not so quick as a reader.
			.replace(/^(?:That session is busy\.|\d+ mails? waits? there).*\n/gm, "")
			.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "<time>")
			.replace(/\/\S*\/parser/g, "<folder>")
			.trim();
	expect(same(stdout)).toBe(same(shown));
});
