import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, vi } from "vitest";
import { type FakePi, machine, startFakePi } from "./fake-pi.ts";

/** Lets time pass, and happen what is due by then. */
export async function later(ms: number): Promise<void> {
	await vi.advanceTimersByTimeAsync(ms);
}

/** Presses keys on the screen that is open, and lets what they start come to its end. */
export async function pressKeys(pi: FakePi, ...keys: string[]): Promise<void> {
	pi.screen();
	await later(0);
	for (const key of keys) {
		await pi.press(key);
		pi.screen();
		await later(0);
	}
}

/**
 * What a person does who opens the mailbox screen, presses this key and closes it again; returns what stood there
 * before, then, and once the word about the key was gone.
 */
export async function pressOnScreen(pi: FakePi, key: string): Promise<string> {
	pi.shortcut("alt+m");
	pi.screen();
	await later(0);
	const pictures = [...pi.screen()];
	await pi.press(key);
	pictures.push(...pi.screen());
	await later(0);
	await pi.press("\u001b[A");
	pictures.push(...pi.screen());
	const text = pictures.join(" ").replace(/\s+/g, " ");
	await pi.press("q");
	return text;
}

/** Sets the clock to the time that files bear, for what is compared with it. */
export function useFileTime(): void {
	vi.setSystemTime(statSync(machine.home).mtimeMs);
}

/** A session whose file exists: its user has typed something, and nothing goes on. */
export async function seasonedPi(options: Parameters<typeof startFakePi>[0] = {}): Promise<FakePi> {
	const pi = await startFakePi(options);
	await pi.run({ prompt: "hello" });
	await later(0);
	return pi;
}

/**
 * Gives each test of a file an empty mail root and a clock that only {@link later} moves, and ends its sessions. A test in
 * which an extension failed and that did not expect it fails.
 */
export function useFakeMachine(): void {
	beforeEach(() => {
		machine.home = mkdtempSync(join(tmpdir(), "fake-pi-"));
		vi.stubEnv("XDG_STATE_HOME", join(machine.home, "state"));
		vi.useFakeTimers({ now: Date.parse("2026-11-29T12:00:00.000Z") });
	});
	afterEach(async () => {
		for (const pi of machine.sessions) await pi.shutDown();
		const errors = [...machine.sessions].flatMap((pi) => pi.errors);
		machine.sessions.clear();
		vi.useRealTimers();
		vi.unstubAllEnvs();
		rmSync(machine.home, { recursive: true, force: true });
		if (errors.length > 0) throw new Error(`an extension failed: ${errors.join("; ")}`);
	});
}
