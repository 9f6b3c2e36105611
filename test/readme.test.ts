import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import * as z from "zod/mini";
import { parseArgument } from "../src/commands/mailbox.ts";
import { defaultSettings, settingsSchema } from "../src/mail/settings.ts";
import { cleanUp, makeHome, repository } from "./support/pi.ts";
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
		.replace(/\s+/g, "")
		.replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>")
		.replace(/workingin[^)]*\)/g, "workingin<folder>)");
}

test("every command that README.md tells to run is one of package.json", () => {
	const { scripts } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8"));
	const commands = [...readme.matchAll(/(?:^|`|&& )npm (?:run )?(\w+)/gm)].map(([, name]) => name);
	expect(commands).toContain("demo");
	for (const name of new Set(commands)) {
		if (name !== "ci" && name !== "pack") expect(Object.keys(scripts)).toContain(name);
	}
});

test("PSM-088 the settings that README.md shows are the defaults, and its table names them all", () => {
	const example = JSON.parse(/```json\n(.*?)\n```/s.exec(readme)?.[1] ?? "");
	const { $schema, ...settings } = z.parse(settingsSchema, example);
	expect(settings).toEqual(defaultSettings);
	expect($schema).toMatch(/node_modules\/pi-session-mail\/session-mail\.schema\.json$/);
	for (const key of Object.keys(defaultSettings)) expect(readme).toContain(`| \`${key}\` |`);
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
