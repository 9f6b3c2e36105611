import { cpSync, existsSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { packAndInstall } from "../support/install.ts";
import { cleanUp, type Home, makeHome, type Pi, repository, startPi } from "../support/pi.ts";
import {
	fixture,
	footer,
	mailEntries,
	ours,
	replyTo,
	runningRecord,
	sendRequest,
	startedPi,
	typeMailbox,
} from "./mail.ts";

afterEach(cleanUp);

/** Our files in another place, as a second installation has them. */
function copyOfThePackage(home: Home): string {
	const folder = join(home.path, "copy");
	mkdirSync(folder);
	for (const part of ["src", "dist"]) {
		if (existsSync(join(repository, part))) cpSync(join(repository, part), join(folder, part), { recursive: true });
	}
	symlinkSync(join(repository, "node_modules"), join(folder, "node_modules"));
	return join(folder, "src/extension.js");
}

async function mailboxCommands(pi: Pi): Promise<string[]> {
	const response = await pi.command({ type: "get_commands" });
	if (!response.success || response.command !== "get_commands") throw new Error(JSON.stringify(response));
	return response.data.commands.map(({ name }) => name).filter((name) => name.startsWith("mailbox"));
}

const loadedTwice =
	"mailbox: pi-session-mail is loaded twice, so this copy does nothing; remove one of the two with: pi remove <source>";

test("D25: of two copies one works and the other says so, in every session of the process", async () => {
	const home = makeHome();
	const extensions = [ours, copyOfThePackage(home)];
	const author = await startedPi({ home, name: "author", extensions });
	const reviewer = await startedPi({ home, name: "reviewer", extensions });
	for (const pi of [author, reviewer]) {
		expect(pi.notifications()).toEqual([loadedTwice]);
		expect(await mailboxCommands(pi)).toEqual(["mailbox"]);
	}
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	expect(mailEntries(reviewer)).toHaveLength(1);
	expect(reviewer.modelRequests()).toHaveLength(2);

	await reviewer.command({ type: "new_session" });
	expect(reviewer.notifications()).toEqual([loadedTwice, loadedTwice]);
	expect(await mailboxCommands(reviewer)).toEqual(["mailbox"]);
	const toNew = await sendRequest(author, reviewer.sessionId, "who are you? ;; %say A new one.");
	expect((await replyTo(home, author, toNew)).body).toBe("A new one.");
});

test("D25: the package as npm packs it works when it is installed; given with -e besides, one copy says that it is too many", async () => {
	const home = makeHome();
	await packAndInstall(home);
	const author = await startedPi({ home, name: "author", extensions: [ours] });
	const reviewer = await startedPi({ home, name: "reviewer", extensions: [] });
	expect(author.notifications()).toEqual([loadedTwice]);
	expect(reviewer.notifications()).toEqual([]);
	for (const pi of [author, reviewer]) expect(await mailboxCommands(pi)).toEqual(["mailbox"]);
	const id = await sendRequest(author, "reviewer", "check the parser ;; %say It is fine.");
	expect((await replyTo(home, author, id)).body).toBe("It is fine.");
	expect(mailEntries(author)).toHaveLength(1);
});

test.each(["before", "after"])(
	"D25: beside an older copy, loaded %s it, ours steps back and says so",
	async (order) => {
		const home = makeHome();
		const older = fixture("older-copy.js");
		const pi = await startPi({ home, extensions: order === "before" ? [ours, older] : [older, ours] });
		expect(pi.notifications()).toEqual([
			"mailbox: another extension already has the tool session_mail_list, so this copy does nothing; remove one of the two with: pi remove <source>",
		]);
		expect(await mailboxCommands(pi)).toEqual(["mailbox"]);
		expect(await typeMailbox(pi, "")).toBe("the older copy");
		expect(runningRecord(home, pi.sessionId)).toBeUndefined();
		expect(existsSync(home.mailRoot)).toBe(false);
		await pi.prompt("!tool session_mail_list {}\n!next\n!say done");
		await pi.settled();
		expect(pi.modelRequests().at(-1)?.messages.at(-1)).toEqual({ role: "toolResult", text: "the older copy" });
		await footer(pi, undefined);
	},
);

test("D4: when the files of the package are missing, Pi starts and says how to get them back", async () => {
	const home = makeHome();
	const entry = join(home.path, "broken/src/extension.js");
	cpSync(ours, entry);
	const pi = await startPi({ home, extensions: [entry] });
	expect(pi.notifications()).toEqual([
		"pi-session-mail is off, because its files are missing; install it again with: pi install npm:pi-session-mail",
	]);
	await pi.prompt("!say hello");
	await pi.settled();
	expect(await mailboxCommands(pi)).toEqual([]);
	expect(pi.stderr).toBe("");
});
