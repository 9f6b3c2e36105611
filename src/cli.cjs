#!/usr/bin/env node
// The program pi-session-mail. In old JavaScript, so that an old Node can say what is the matter.
const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 19)) {
	console.error(`pi-session-mail needs Node 22.19 or later, and this is ${process.version}.`);
	process.exitCode = 1;
} else {
	const { existsSync } = require("node:fs");
	const { enableCompileCache } = require("node:module");
	const { homedir } = require("node:os");
	const { isAbsolute, join } = require("node:path");
	// Not the system's folder for temporary files, where others could have put code. Where it cannot be written, nothing is kept.
	const cacheHome = process.env.XDG_CACHE_HOME || "";
	const [home, ...below] = isAbsolute(cacheHome) ? [cacheHome] : [homedir(), ".cache"];
	// Without this, Node tries for ever to make a folder below one that cannot exist, such as /proc/nothing.
	if (existsSync(home)) enableCompileCache(join(home, ...below, "pi-session-mail"));
	const bundle = join(__dirname, "../dist/cli.mjs");
	(existsSync(bundle) ? import("../dist/cli.mjs") : import("./cli/main.ts")).then(
		(program) => program.main(process.argv.slice(2)),
		(error) => {
			console.error(`pi-session-mail cannot start: ${error.message}. Install it again: npm install pi-session-mail`);
			process.exitCode = 1;
		},
	);
}
