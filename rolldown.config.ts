import { defineConfig } from "rolldown";

// One file, libraries included, no lazy chunks: an update must not remove a chunk under a running session. It imports
// nothing of Pi: what Pi cannot import natively goes through Babel, which takes seconds.
export default defineConfig({
	input: { core: "src/index.ts" },
	platform: "node",
	external: [/^node:/],
	// write-file-atomic is CommonJS and asks for the name of its file.
	transform: { define: { __filename: "import.meta.filename" } },
	output: { dir: "dist", format: "esm", entryFileNames: "[name].mjs", codeSplitting: false, minify: true },
});
