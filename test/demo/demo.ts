/**
 * `npm run demo`: one mail between two real Pi sessions, author and reviewer, with a scripted model. Needs no network, no
 * API key and no settings; all of it happens in a temporary home. Shows both terminals side by side, or, on a machine
 * without tmux, both conversations. Ends with 0, or with 1 and the reason.
 */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { cleanUp, eventually, makeHome, type Patience, type Pi, type PiOptions, startPi } from "../support/pi.ts";
import { hasTmux, openTerminal } from "../support/terminal.ts";

const mail = "/mailbox reviewer please check the parser";
const finding = "It loses the last word when the text does not end in a space.";
const parser = `export function words(text: string): string[] {
	return text.split(" ").slice(0, -1);
}
`;
const withYourOwnModel = `
Both were real Pi sessions; only the model's words were written beforehand.
With your own model: open two terminals in this folder, and type

  npm start                                      npm start
  /name author                                   /name reviewer
  ${mail}
`;

const deadline = Date.now() + 20_000;
const patience = (what: string): Patience => ({ timeoutMs: Math.max(0, deadline - Date.now()), what });

try {
	await Promise.race([demo(), ...(["SIGINT", "SIGTERM", "SIGHUP"] as const).map(interruption)]);
} catch (error) {
	console.error(`\nThe demo failed: ${error instanceof Error ? error.message : error}`);
	process.exitCode = 1;
} finally {
	await cleanUp();
}

async function demo(): Promise<void> {
	const home = makeHome();
	writeFileSync(join(home.agentDir, "settings.json"), JSON.stringify({ quietStartup: true }));
	writeFileSync(join(home.workDir, "parser.ts"), parser);
	const script = `!tool read {"path":"parser.ts"}\n!next\n!slow 1500 ${finding}`;
	const author = { home, name: "author" };
	const reviewer = { home, name: "reviewer", rules: [{ if: "please check the parser", script }] };
	await (hasTmux() ? showTerminals(author, reviewer) : showConversations(author, reviewer));
	console.log(withYourOwnModel);
}

async function interruption(signal: NodeJS.Signals): Promise<never> {
	await once(process, signal);
	throw new Error(`stopped by ${signal}`);
}

async function showTerminals(author: PiOptions, reviewer: PiOptions): Promise<void> {
	const columns = process.stdout.columns ?? 120;
	const size = { width: Math.min(Math.max(Math.floor((columns - 3) / 2), 38), 72), height: 30 };
	const left = await openTerminal({ ...author, ...size });
	const right = await openTerminal({ ...reviewer, ...size });
	const show = (title: string) => {
		const [lines, others] = [squeeze(left.screen()), squeeze(right.screen())];
		const rows = Array.from({ length: Math.max(lines.length, others.length) }, (_, row) =>
			`${(lines[row] ?? "").padEnd(size.width)} │ ${others[row] ?? ""}`.trimEnd(),
		);
		console.log(["", `== ${title}`, "", ...rows].join("\n"));
	};

	show("Two Pi sessions, author and reviewer.");
	left.type(mail);
	await left.waitForScreen(mail, patience("what was typed"));
	show("In author, a person types a mail to reviewer.");
	await left.press("Enter");
	await right.waitForScreen("read parser.ts", patience("the reviewer reading"));
	show("It wakes reviewer, whose model reads the file.");
	await left.waitForScreen(finding, patience("the reply"));
	show("What reviewer said last has gone back to author by itself.");
}

async function showConversations(author: PiOptions, reviewer: PiOptions): Promise<void> {
	const left = await startPi(author);
	const right = await startPi(reviewer);
	const show = async (title: string, pi: Pi) => console.log(["", `== ${title}`, "", await conversation(pi)].join("\n"));

	console.log(`\n== In author, a person types a mail to reviewer.\n\n${mail}`);
	await left.prompt(mail);
	await right.settled(patience("end of the reviewer's run"));
	await show("It wakes reviewer, whose model reads the file.", right);
	await eventually(async () => (await conversation(left)).includes(finding), patience("The reply"));
	await show("What reviewer said last has gone back to author by itself.", left);
}

/** What a session's user and model have before them, as text. */
async function conversation(pi: Pi): Promise<string> {
	const response = await pi.command({ type: "get_messages" });
	if (!response.success || response.command !== "get_messages") throw new Error(JSON.stringify(response));
	const lines: string[] = [];
	for (const message of response.data.messages) {
		if (!("content" in message) || message.role === "system") continue;
		for (const part of typeof message.content === "string" ? [message.content] : message.content) {
			if (typeof part === "string") lines.push(part);
			else if (part.type === "text") lines.push(part.text);
			else if (part.type === "toolCall") lines.push(`(${part.name} ${JSON.stringify(part.arguments)})`);
		}
	}
	return lines.join("\n");
}

/** With one blank line wherever there are several. */
function squeeze(lines: readonly string[]): string[] {
	return lines.filter((line, row) => line !== "" || lines[row - 1] !== "");
}
