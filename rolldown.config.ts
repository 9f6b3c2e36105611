import { readFileSync } from "node:fs";
import { defineConfig, type Plugin, type RolldownOptions } from "rolldown";
import { dts } from "rolldown-plugin-dts";

const { version } = JSON.parse(readFileSync("package.json", "utf8"));

/**
 * Regular expressions with classes of Unicode take a third of the start, and most are never used: each is made when it is
 * used first. A string asks an object for these methods as it asks a regular expression.
 */
const lateRegExps: Plugin = {
	name: "late-regular-expressions",
	renderChunk: (code) =>
		`${code.replace(/^const (\w+) = (\/.*\\p\{.*\/[a-z]*);$/gim, "const $1 = lateRegExp(() => $2);")}
function lateRegExp(make) {
	let made;
	const late = {};
	for (const key of ["test", "exec", Symbol.match, Symbol.matchAll, Symbol.replace, Symbol.search, Symbol.split]) {
		late[key] = (...args) => (made ??= make())[key](...args);
	}
	return late;
}
`,
};

// One file each, libraries included, no lazy chunks: an update must not remove a chunk under a running process.
const bundle: RolldownOptions = {
	platform: "node",
	external: [/^node:/],
	// What graceful-fs adds, a queue for when too many files are open, the one call that proper-lockfile makes does not need.
	resolve: { alias: { "graceful-fs": "node:fs" } },
	// write-file-atomic is CommonJS and asks for the name of its file.
	transform: { define: { __filename: "import.meta.filename", PACKAGE_VERSION: JSON.stringify(version) } },
	plugins: [lateRegExps],
	output: { dir: "dist", format: "esm", entryFileNames: "[name].mjs", codeSplitting: false, minify: true },
};

/** What the program hardly ever needs, or late: to load it takes as long as a third of a start of Node. */
const late: Record<string, string> = {
	"node:crypto": `
		const load = () => process.getBuiltinModule("node:crypto");
		export const randomUUID = () => load().randomUUID();
		export const createHash = (name) => load().createHash(name);`,
	"node:child_process": `
		export const spawnSync = (...args) => process.getBuiltinModule("node:child_process").spawnSync(...args);`,
};

const loadLate: Plugin = {
	name: "load-late",
	resolveId: { order: "pre", handler: (id) => (id in late ? `\0${id}` : undefined) },
	load: (id) => late[id.slice(1)],
};

/** The MCP server, which brings libraries of its own, is loaded as it is called: the other commands do not pay for it. */
const mcpApart: Plugin = {
	name: "mcp-apart",
	resolveId: { order: "pre", handler: (id) => (id === "./mcp.ts" ? { id: "./mcp.mjs", external: true } : undefined) },
};

export default defineConfig([
	// It imports nothing of Pi: what Pi cannot import natively goes through Babel, which takes seconds.
	{ ...bundle, input: { core: "src/index.ts" } },
	{ ...bundle, input: { calls: "src/calls/index.ts" } },
	{
		...bundle,
		input: { cli: "src/cli/main.ts" },
		external: /^node:(?!crypto$|child_process$)/,
		plugins: [lateRegExps, loadLate, mcpApart],
	},
	{ ...bundle, input: { mcp: "src/cli/mcp.ts" } },
	{ ...bundle, input: { mail: "src/library.ts" } },
	// What both declare is written into each, so that one file says all of an entry. The logger is silent: at each build it
	// would say that TypeScript 7.1 has a better way.
	...Object.entries({ "mail.d": "src/library.ts", "hooks.d": "src/hook-events.ts" }).map(([name, input]) => ({
		input: { [name]: input },
		// A user has none of the libraries: nothing of theirs may stand in what is exported.
		external: /^(?!src\/)[a-z@]/,
		plugins: [dts({ dtsOnly: true, generator: "tsgo", logger: { ...console, info() {}, warn() {} } })],
		checks: { pluginTimings: false },
		output: { dir: "dist", format: "esm" as const },
	})),
]);
