import type { Reporter, TestModule } from "vitest/node";
import { whyNoTrace } from "./strace.ts";

/** Ends the output with one line that programs can read: `N passed, N failed`, and `, N skipped` when there are some. */
export default class ClosingLine implements Reporter {
	onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
		const tests = modules.flatMap((module) => [...module.children.allTests()]);
		const count = (state: string) => tests.filter((test) => test.result().state === state).length;
		// A file that cannot be loaded and an error outside any test fail the run without a test of their own.
		const broken = modules.filter((module) => module.errors().length > 0).length + unhandledErrors.length;
		const counts = { passed: count("passed"), failed: count("failed") + broken, skipped: count("skipped") };
		console.log(`Node ${process.version}`);
		for (const line of lastLines(counts, whyNoTrace)) console.log(line);
	}
}

/** The closing line, and before it what a reader of its numbers has to know. */
export function lastLines(
	{ passed, failed, skipped }: { passed: number; failed: number; skipped: number },
	whyUntraced: () => string | undefined,
): string[] {
	const why = skipped > 0 ? whyUntraced() : undefined;
	return [
		...(why === undefined ? [] : [`The suites that trace system calls did not run: ${why}`]),
		`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`,
	];
}
