import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openMail } from "../src/library.ts";
import { packAndInstall } from "./support/install.ts";
import { atCleanUp, cleanUp, environment, eventually, type Home, makeHome, repository, run } from "./support/pi.ts";

let home: Home;
let project: string;
beforeAll(async () => {
	home = makeHome();
	project = await makeProject();
}, 60_000);
afterAll(cleanUp);

const readme = readFileSync(join(repository, "README.md"), "utf8");
const examples = [...readme.matchAll(/<!-- library: (\S+) -->\n```ts\n(.*?)^```$/gms)].map(
	([, file = "", code = ""]) => ({
		file,
		code,
	}),
);

/** A project of somebody else's with README.md's examples, which has the packed package and the types of Node, and nothing else. */
async function makeProject(): Promise<string> {
	const installed = await packAndInstall(home);
	const project = join(home.path, "project");
	mkdirSync(join(project, "node_modules/@types"), { recursive: true });
	// Its own imports are looked up from where it is installed, which has no neighbours: no zod, no Pi.
	symlinkSync(installed, join(project, "node_modules/pi-session-mail"));
	for (const name of ["@types/node", "undici-types"]) {
		symlinkSync(join(repository, "node_modules", name), join(project, "node_modules", name));
	}
	writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module" }));
	for (const { file, code } of examples) writeFileSync(join(project, file), code);
	writeFileSync(join(project, "hooks.ts"), `export * from "pi-session-mail/hooks";\n`);
	return project;
}

/** What the compiler says of files of the project. */
async function check(files: readonly string[], options: { [option: string]: unknown }): Promise<string> {
	const compilerOptions = {
		...{ target: "es2024", lib: ["es2024"], types: ["node"], strict: true, noEmit: true, skipLibCheck: false },
		...options,
	};
	writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files }));
	const { stdout, stderr } = await run("tsc", ["-p", project], { env: environment(home), cwd: project });
	return stdout + stderr;
}

test("a member written with the library alone type-checks, is listed, gets mail and answers an ask, without Pi", async () => {
	expect(examples.map(({ file }) => file)).toEqual(["answering.ts", "asking.ts", "extension.ts"]);
	for (const options of [
		{ module: "nodenext", exactOptionalPropertyTypes: true },
		{ module: "esnext", moduleResolution: "bundler" },
	]) {
		expect(await check(["answering.ts", "asking.ts", "hooks.ts"], options)).toBe("");
	}

	const env = environment(home);
	const clock = spawn("node", ["answering.ts"], { cwd: project, env, stdio: ["ignore", "pipe", "pipe"] });
	atCleanUp(() => clock.kill("SIGKILL"));
	let heard = "";
	for (const stream of [clock.stdout, clock.stderr]) {
		stream.setEncoding("utf8").on("data", (chunk: string) => {
			heard += chunk;
		});
	}
	const program = join(repository, "src/cli.cjs");
	const list = async () => (await run("node", [program, "list"], { env, cwd: project })).stdout;
	await eventually(async () => /^clock .*idle/m.test(await list()), { what: "the member in the list" });

	const asked = await run("node", ["asking.ts"], { env, cwd: project });
	expect(asked).toMatchObject({ code: 0, stdout: "clock idle\nIt is noon.\n", stderr: "" });
	expect(heard).toMatch(/^message from send-\w+: Lunch is at noon\.\nask from send-\w+: What time is it\?\n$/);

	const code = `import { openMail, parseEnvelope, serialiseEnvelope } from "pi-session-mail/mail";
const mail = openMail();
const member = mail.join({ name: "caller" }).member;
const { envelope } = member.send({ to: "clock", kind: "message", body: "é" });
console.log(JSON.stringify([
	mail.root, mail.settings().hopLimit, mail.resolve("clock").address, mail.resolve("nobody").code,
	mail.join({ name: "a b" }).code, parseEnvelope("{}").ok,
	parseEnvelope(serialiseEnvelope(envelope).toString()).envelope.body, member.sent(5).length,
]));
member.close();`;
	const told = await run("node", ["--input-type=module", "-e", code], { env, cwd: project });
	const expected = [home.mailRoot, 5, "clock", "unknown", "invalid_name", false, "é", 1];
	expect([told.stderr, JSON.parse(told.stdout)]).toEqual(["", expected]);

	const ended = once(clock, "close");
	clock.kill("SIGTERM");
	expect(await ended).toEqual([0, null]);
	expect(await list()).not.toContain("clock");
});

test("a member that was closed refuses, and leaves nothing", async () => {
	const mail = openMail({ env: environment(home) });
	const member = (name?: string) => {
		const joined = mail.join(name === undefined ? {} : { name });
		if (!joined.ok) throw new Error(joined.message);
		return joined.member;
	};
	const reader = member("reader");
	const passing = member();
	expect(passing.send({ to: "reader", kind: "message", body: "first" }).ok).toBe(true);
	passing.close();
	const refusal = { ok: false, code: "closed", message: "Nothing was done: this member was closed; join again." };
	expect(passing.send({ to: "reader", kind: "message", body: "second" })).toEqual(refusal);
	expect(await passing.ask({ to: "reader", message: "third" })).toEqual(refusal);
	passing.close();
	expect(readdirSync(mail.root).filter((name) => name.startsWith("send-"))).toEqual([]);
	expect(reader.inbox()).toEqual([expect.objectContaining({ envelope: expect.objectContaining({ body: "first" }) })]);
	reader.close();
	expect(reader.inbox()).toEqual(refusal);
});

test("PSM-095 an extension that is typed with the hooks type-checks beside Pi's own types", async () => {
	symlinkSync(join(repository, "node_modules/@earendil-works"), join(project, "node_modules/@earendil-works"));
	const options = { module: "nodenext", exactOptionalPropertyTypes: true, skipLibCheck: true };
	expect(await check(["extension.ts"], options)).toBe("");
});

test("what does not fit the types is refused by the compiler", async () => {
	writeFileSync(
		join(project, "wrong.ts"),
		`import { openMail } from "pi-session-mail/mail";
import type { MailEventBus, SendRequest } from "pi-session-mail/hooks";
export const port: number = openMail().settings().durability;
export const request = { to: "ci", text: "x" } satisfies SendRequest;
export const emit = (bus: MailEventBus) => bus.emit("message:sent", {});
`,
	);
	const said = await check(["wrong.ts"], { module: "nodenext" });
	expect([...said.matchAll(/wrong\.ts\((\d+),/g)].map(([, line]) => line)).toEqual(["3", "4", "5"]);
});

test("the library loads nothing of Pi, and the hooks are types alone", async () => {
	const imports = readFileSync(join(project, "node_modules/pi-session-mail/dist/mail.mjs"), "utf8");
	const outside = [...imports.matchAll(/(?:from|import|import\()\s*["']([^"']+)["']/g)].map(([, name = ""]) => name);
	expect(outside.length).toBeGreaterThan(3);
	expect(outside.filter((name) => !name.startsWith("node:"))).toEqual([]);
	for (const types of ["mail.d.ts", "hooks.d.ts"]) {
		const text = readFileSync(join(project, "node_modules/pi-session-mail/dist", types), "utf8");
		expect(text).not.toMatch(/\bimport\b|zod|earendil/);
	}
	const code = 'import("pi-session-mail/hooks").catch(({ code }) => console.log(code))';
	const { stdout } = await run("node", ["-e", code], { env: environment(home), cwd: project });
	expect(stdout).toBe("ERR_PACKAGE_PATH_NOT_EXPORTED\n");
});
