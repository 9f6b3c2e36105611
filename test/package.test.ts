import { cpSync, existsSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { delimiter, join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { packAndInstall } from "./support/install.ts";
import { mcpClient } from "./support/mcp.ts";
import { cleanUp, environment, type Home, makeHome, type PiOptions, repository, run, startPi } from "./support/pi.ts";

afterEach(cleanUp);

/** Two sessions, of an installed package unless `extensions` says otherwise, exchange a request and its answer. */
async function exchangeMail(
	home: Home,
	{ env = {}, extensions = [] }: Pick<PiOptions, "env" | "extensions"> = {},
): Promise<void> {
	const author = await startPi({ home, name: "author", extensions, env });
	const reviewer = await startPi({ home, name: "reviewer", extensions, env });
	await author.prompt("/mailbox reviewer !say It is fine.");
	await reviewer.settled();
	await author.waitFor((event) => event.type === "message_end" && event.message.role === "custom", {
		what: "the reply",
	});
	await author.prompt("what did it say?");
	await author.settled();
	const seen = author
		.modelRequests()
		.at(-1)
		?.messages.find(({ text }) => text.startsWith("[mailbox] From reviewer"));
	expect(seen?.text).toContain("\nIt is fine.\n");
	expect([author.stderr, reviewer.stderr]).toEqual(["", ""]);
	expect(await reviewer.stop()).toBe(0);
	expect(await author.stop()).toBe(0);
}

test("D4 the published package, installed as a user would, carries mail, and is one package of a few files", async () => {
	const home = makeHome();
	const folder = await packAndInstall(home);
	const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
	expect(files.map(({ parentPath, name }) => join(parentPath, name).slice(folder.length + 1)).sort()).toEqual([
		"CHANGELOG.md",
		"LICENSE",
		"README.md",
		"SECURITY.md",
		"dist/calls.mjs",
		"dist/cli.mjs",
		"dist/core.mjs",
		"dist/hooks.d.ts",
		"dist/mail.d.ts",
		"dist/mail.mjs",
		"dist/mcp.mjs",
		"package.json",
		"session-mail.schema.json",
		"skills/session-mail/SKILL.md",
		"src/cli.cjs",
		"src/extension.js",
	]);
	expect(readdirSync(join(folder, "..")).filter((name) => !name.startsWith("."))).toEqual(["pi-session-mail"]);
	await exchangeMail(home);
});

test("the published package brings its skill, which Pi lists and tells the model of at the price that README.md names", async () => {
	const home = makeHome();
	const folder = await packAndInstall(home);
	const pi = await startPi({ home, extensions: [] });
	const response = await pi.command({ type: "get_commands" });
	const commands = response.success && response.command === "get_commands" ? response.data.commands : [];
	expect(commands.filter(({ source }) => source === "skill")).toEqual([
		expect.objectContaining({
			name: "skill:session-mail",
			sourceInfo: expect.objectContaining({ path: join(folder, "skills/session-mail/SKILL.md"), origin: "package" }),
		}),
	]);
	await pi.prompt("/skill:session-mail Who is there?");
	await pi.settled();
	const [system, user] = pi.modelRequests()[0]?.messages ?? [];
	const told = system?.text.split(/(?=<skill>)/).find((part) => part.includes("<name>session-mail<")) ?? "";
	expect(told).toContain("<description>How to work with other Pi sessions");
	const [, always] = /(\d+) are always in the prompt/.exec(readFileSync(join(repository, "README.md"), "utf8")) ?? [];
	const cost = told.slice(0, told.indexOf("</skill>") + "</skill>".length).replace(home.path, "").length / 4;
	expect(Math.abs(Number(always) - cost)).toBeLessThan(15);
	expect(user?.text).toContain("# Mail between sessions");
	expect(user?.text).toContain("Who is there?");
});

test("D4 a checkout without a bundle loads its source, and carries mail as well", async () => {
	const home = makeHome();
	const checkout = join(home.path, "checkout");
	cpSync(join(repository, "src"), join(checkout, "src"), { recursive: true });
	cpSync(join(repository, "package.json"), join(checkout, "package.json"));
	symlinkSync(join(repository, "node_modules"), join(checkout, "node_modules"));
	await exchangeMail(home, { extensions: [join(checkout, "src/extension.js")] });
});

const oldestNode = process.env.OLDEST_NODE ?? "";

test.skipIf(!existsSync(oldestNode))("D2 the published package works on Pi's oldest Node, 22.19", async () => {
	const home = makeHome();
	const PATH = [oldestNode, environment(home).PATH].join(delimiter);
	const { stdout } = await run("node", ["--version"], { env: { ...environment(home), PATH }, cwd: home.workDir });
	expect(stdout.trim()).toBe("v22.19.0");
	await packAndInstall(home);
	await exchangeMail(home, { env: { PATH } });
});

test("the installed package brings the program, which npx finds, and an old Node is told in one sentence", async () => {
	const home = makeHome();
	const project = join(await packAndInstall(home), "../..");
	const env = { ...environment(home), npm_config_offline: "true", npm_config_update_notifier: "false" };
	const { version } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8"));
	const asked = await run("npx", ["--no-install", "pi-session-mail", "--version"], { env, cwd: project });
	expect(asked).toMatchObject({ code: 0, stdout: `${version}\n`, stderr: "" });
	const listed = await run("npx", ["--no-install", "pi-session-mail", "list"], { env, cwd: project });
	expect(listed).toMatchObject({ code: 0, stdout: "No Pi session is running with a mailbox.\n", stderr: "" });

	const args = ["--no-install", "pi-session-mail", "mcp", "--from", "claude"];
	const { call } = await mcpClient({ cwd: project, env, command: "npx", args });
	expect((await call("session_mail_list")).text).toContain("claude (claude)");

	const program = join(project, "node_modules/pi-session-mail/src/cli.cjs");
	const old = `Object.defineProperty(process.versions, "node", { value: "20.1.0" }); require(${JSON.stringify(program)})`;
	const refused = await run("node", ["-e", old], { env, cwd: project });
	expect(refused).toMatchObject({ code: 1, stdout: "" });
	expect(refused.stderr).toMatch(/^pi-session-mail needs Node 22\.19 or later, and this is v.*\.\n$/);
});

test("a checkout without a bundle runs the program from its source", async () => {
	const home = makeHome();
	const checkout = join(home.path, "checkout");
	cpSync(join(repository, "src"), join(checkout, "src"), { recursive: true });
	cpSync(join(repository, "package.json"), join(checkout, "package.json"));
	symlinkSync(join(repository, "node_modules"), join(checkout, "node_modules"));
	const listed = await run("node", [join(checkout, "src/cli.cjs"), "list"], {
		env: environment(home),
		cwd: home.workDir,
	});
	expect(listed).toMatchObject({ code: 0, stdout: "No Pi session is running with a mailbox.\n", stderr: "" });
	const args = [join(checkout, "src/cli.cjs"), "mcp", "--from", "claude"];
	const { call } = await mcpClient({ cwd: home.workDir, env: environment(home), command: "node", args });
	expect((await call("session_mail_list")).text).toContain("claude (claude)");
});
