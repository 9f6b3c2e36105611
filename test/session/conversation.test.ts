import { appendFileSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { endLastLine, isBehindFile, savedEntries } from "../../src/session/conversation.ts";
import { temporaryFolder } from "../support/disk.ts";
import { useFakeMachine } from "../support/fake-machine.ts";
import { startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

describe("the last line of a session's file", () => {
	test.each([
		["", ""],
		["{}\n", "{}\n"],
		["{}\n{", "{}\n{\n"],
		["{", "{\n"],
	])("L1 is ended when a full disk cut it short, and only then: %j becomes %j", (text, ended) => {
		const file = join(temporaryFolder(), "session.jsonl");
		writeFileSync(file, text);
		endLastLine(file);
		expect(readFileSync(file, "utf8")).toBe(ended);
	});

	test("L10 is looked at for every mail, and no file stays open", () => {
		const file = join(temporaryFolder(), "session.jsonl");
		writeFileSync(file, "{}\n");
		const open = () => readdirSync("/dev/fd").length;
		const before = open();
		endLastLine(file);
		// It opens, and cannot be read.
		expect(() => endLastLine(dirname(file))).toThrow("EISDIR");
		expect(open()).toBe(before);
	});
});

describe("D7 what another process added to a session's file", () => {
	test("is seen by its lines; a file that cannot be read may hold some, one that is not there none", async () => {
		const pi = await startFakePi();
		expect([isBehindFile(pi.session), await savedEntries(pi.file)]).toEqual([false, []]);
		await pi.run({ prompt: "hello" });
		expect(isBehindFile(pi.session)).toBe(false);
		appendFileSync(pi.file, "{}\n");
		expect(isBehindFile(pi.session)).toBe(true);
		renameSync(pi.file, `${pi.file}.away`);
		mkdirSync(pi.file);
		expect(isBehindFile(pi.session)).toBe(true);
		await expect(savedEntries(pi.file)).rejects.toThrow("EISDIR");
	});
});
