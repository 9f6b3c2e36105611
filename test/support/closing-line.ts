import type { Reporter, TestModule } from "vitest/node";

/** Ends the output with one line that programs can read: `N passed, N failed`, and `, N skipped` when there are some. */
export default class ClosingLine implements Reporter {
	onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
		const tests = modules.flatMap((module) => [...module.children.allTests()]);
		const count = (state: string) => tests.filter((test) => test.result().state === state).length;
		// A file that cannot be loaded and an error outside any test fail the run without a test of their own.
		const broken = modules.filter((module) => module.errors().length > 0).length + unhandledErrors.length;
		const skipped = count("skipped");
		console.log(`Node ${process.version}`);
		console.log(
			`${count("passed")} passed, ${count("failed") + broken} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`,
		);
	}
}
