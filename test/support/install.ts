import { cpSync, mkdtempSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { basename, join } from "node:path";
import { environment, type Home, repository, run } from "./pi.ts";

/**
 * Packs the package in `folder` as `npm publish` does, and installs it into `home` as a user does: with `pi install`.
 * Returns the folder it lies in afterwards. Start sessions of that home with `extensions: []`. Uses no network, so the
 * package must have no dependencies. Throws when a step fails, with what it printed.
 *
 * Of the ways to name a tarball only `npm:<name>@file:<path>` gives a package that Pi also finds at its next start:
 * without the name Pi installs it and never loads it, and a bare path is recorded as an extension file.
 */
export async function packAndInstall(home: Home, folder = repository): Promise<string> {
	const { name }: { name: string } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
	const tarball = await pack(home, folder);
	await runOrThrow(home, home.workDir, "pi", "install", `npm:${name}@file:${tarball}`);
	return join(home.agentDir, "npm/node_modules", name);
}

/** Packs a copy, so that its `prepack` builds from nothing and does not touch what other tests are loading. */
async function pack(home: Home, folder: string): Promise<string> {
	const scratch = mkdtempSync(join(home.path, "pack-"));
	const copy = join(scratch, "package");
	cpSync(folder, copy, { recursive: true, filter: (path) => path === folder || !leftOut.has(basename(path)) });
	symlinkSync(join(repository, "node_modules"), join(copy, "node_modules"));
	await runOrThrow(home, copy, "npm", "pack", "--pack-destination", scratch);
	const tarball = readdirSync(scratch).find((file) => file.endsWith(".tgz"));
	if (tarball === undefined) throw new Error(`npm pack left no tarball in ${scratch}`);
	return join(scratch, tarball);
}

const leftOut = new Set(["node_modules", ".git", "dist"]);

async function runOrThrow(home: Home, cwd: string, command: string, ...args: string[]): Promise<void> {
	const env = { ...environment(home), npm_config_offline: "true", npm_config_update_notifier: "false" };
	const { code, stdout, stderr } = await run(command, args, { env, cwd });
	if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${code}:\n${stdout}${stderr}`);
}
