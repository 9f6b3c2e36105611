import { defineConfig } from "tsdown";

// One file, libraries included, no lazy chunks: an update must not remove a chunk under a running session,
// and Pi must be able to import it natively (an import it cannot resolve would send the bundle through Babel).
export default defineConfig({
	entry: { core: "src/index.ts" },
	format: "esm",
	platform: "node",
	target: "node22.19",
	minify: true,
	dts: false,
	outExtensions: () => ({ js: ".mjs" }),
	deps: { alwaysBundle: [/.*/], neverBundle: [/^node:/], onlyBundle: false },
	outputOptions: { codeSplitting: false },
});
