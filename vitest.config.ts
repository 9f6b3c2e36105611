import { defineConfig } from "vitest/config";

export default defineConfig({
	test: {
		include: ["test/**/*.test.ts"],
		globalSetup: ["test/support/node-version.mjs"],
		reporters: ["default", "./test/support/closing-line.ts"],
		restoreMocks: true,
		// Each end-to-end test starts two or three Pi processes: more files at a time than cores only make them wait.
		maxWorkers: 2,
		testTimeout: 30_000,
	},
});
