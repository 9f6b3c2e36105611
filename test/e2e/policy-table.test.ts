import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cleanUp, environment, eventually, makeHome, type Pi, printPi, repository, run } from "../support/pi.ts";
import { fixture, ours, results, startedPi } from "./mail.ts";

/** The table of CONTRIBUTING.md: what becomes of a call, by whose it is and by what is done about it. */
const [header = [], ...rows] =
	readFileSync(join(repository, "CONTRIBUTING.md"), "utf8")
		.split("\n## What becomes of a call that a policy is about\n")[1]
		?.split("\n## ")[0]
		?.split("\n")
		.filter((line) => line.startsWith("| "))
		.map((line) =>
			line
				.split("|")
				.slice(1, -1)
				.map((cell) => cell.trim()),
		) ?? [];

const bash = (word: string) => ({ command: `echo ${word} >> "$NOTE_FILE"` });
const byRun = (tool: string, args: object) =>
	`session_call_run ${JSON.stringify({ tool, arguments: args, attach_seconds: 1 })}`;
const script = (tool: string, args: object) =>
	`codemode ${JSON.stringify({ code: `const made = await tools.${tool}(${JSON.stringify(args)}); text(JSON.stringify(made))` })}`;
const mcp = "mcp__notes__note";

/** The calls of the rows, with a word that says what the rules do about it. */
const calls: Record<string, (word: string) => string> = {
	"Pi's own tool": (word) => `bash ${JSON.stringify(bash(word))}`,
	"another extension's tool": (text) => `other ${JSON.stringify({ text })}`,
	"another extension's tool, by a codemode script": (text) => script("other", { text }),
	"another extension's tool, by `session_call_run`": (text) => byRun("other", { text }),
	"an MCP server's tool": (text) => `${mcp} ${JSON.stringify({ text })}`,
	"Pi's own tool, by a codemode script": (word) => script("bash", bash(word)),
	"an MCP server's tool, by a codemode script": (text) => script(mcp, { text }),
	"Pi's own tool, by `session_call_run`": (word) => byRun("bash", bash(word)),
	"an MCP server's tool, by `session_call_run`": (text) => byRun(mcp, { text }),
};

const rule = (word: string, behavior: string, more: object = {}) =>
	["bash(command", "other(text", `${mcp}(text`].map((start) => ({
		...{ pattern: `${start}~"*${word}*")`, behavior, ...more },
	}));
const permissions = {
	rules: [...rule("ask", "ask"), ...rule("late", "ask", { attachSeconds: 0.2 }), ...rule("deny", "deny")],
};

let pi: Pi;
let notes: string;
/** Prompts a script with these calls in a mode without a person; what Pi prints. */
let print: (call: string, mode: "text" | "json") => Promise<string>;
/** Runs this package's program. */
let program: (...args: string[]) => ReturnType<typeof run>;

beforeAll(async () => {
	const home = makeHome();
	notes = join(home.workDir, "notes.txt");
	const env = { NOTE_FILE: notes };
	const server = { command: process.execPath, args: [fixture("note-server.mjs")], env, exposure: "direct" };
	writeFileSync(join(home.agentDir, "mcp.json"), JSON.stringify({ mcpServers: { notes: server } }));
	writeFileSync(join(home.agentDir, "session-mail.json"), JSON.stringify({ toolPolicy: { permissions } }));
	const options = { home, env, extensions: [ours, fixture("other-tool.ts")], args: ["--tools", "+codemode"] };
	pi = await startedPi(options);
	program = (...args) =>
		run(process.execPath, [join(repository, "src/cli.cjs"), ...args], { env: environment(home), cwd: home.workDir });
	print = async (call, mode) => {
		const args = [...options.args, "--mode", mode];
		const { code, stdout } = await printPi({ ...options, args, prompt: `!tool ${call}\n!next\n!say went on` });
		expect(code).toBe(0);
		return stdout;
	};
}, 30_000);
afterAll(cleanUp);

const made = (word: string) => existsSync(notes) && readFileSync(notes, "utf8").split("\n").includes(word);

/** What becomes of a call in RPC, where a person allows what is asked, unless it is to be `late`. */
async function inRpc(call: string, kind: string, word: string): Promise<string> {
	await pi.prompt(`!tool ${call}\n!next\n!say went on`);
	const isAsked = kind === "ask" || kind === "late";
	const dialog = isAsked
		? await pi.waitFor((event) => event.type === "extension_ui_request" && event.method === "select" && event, {
				what: "a dialog",
			})
		: undefined;
	if (dialog !== undefined && made(word)) return "made before it was asked";
	if (kind === "ask" && dialog !== undefined) pi.answer(dialog, { value: "Allow once" });
	await pi.settled();
	const text = (results(pi).at(-1) ?? "").replaceAll("\\", "");
	if (kind === "late" && dialog !== undefined) {
		if (text.includes('"status":"waiting"')) return "may be made again";
		pi.mark(pi.events.at(-1));
		const waiting: { id: string }[] = JSON.parse((await program("tickets", "--json")).stdout).tickets;
		expect((await program("approve", waiting.at(-1)?.id ?? "")).code).toBe(0);
		await eventually(() => made(word), { what: "the call" });
		await pi.settled();
		return /"status":"(?:pending|running)"/.test(text) ? "waits" : text;
	}
	if (made(word)) return isAsked ? "asked" : "made";
	return text.includes("denied by") ? "refused" : text;
}

describe.each(rows.filter(([name]) => name !== undefined && !name.startsWith("-")))("%s", (name, ...cells) => {
	test.each(cells.map((cell, column) => ({ cell, column: header[column + 1] ?? "" })))(
		"$column: $cell",
		async ({ cell, column }) => {
			const call = calls[name] ?? expect.fail(`no call is known for ${name}`);
			const [what = ""] = column.split(",");
			const kind = { allow: "allow", ask: "ask", undecided: "late", deny: "deny" }[what] ?? expect.fail(column);
			const isPrint = column.endsWith("print or JSON");
			const word = `${kind}${rows.findIndex(([row]) => row === name)}${isPrint ? "p" : "r"}`;
			if (!isPrint) expect(await inRpc(call(word), kind, word)).toBe(cell);
			if (isPrint || column === "allow") {
				for (const mode of ["text", "json"] as const) {
					expect(await print(call(word + mode), mode)).toContain("went on");
					expect(made(word + mode) ? "made" : "refused").toBe(cell);
				}
			}
		},
		20_000,
	);
});
