import { mkdirSync, readdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { type CallStore, type EndedCall, isCallId, type OpenCall, openCallStore } from "../../src/mail/call-store.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import { fail, temporaryFolder, watchedDisk } from "../support/disk.ts";

const id = "call-0123456789abcdef";
const otherId = "call-abcdefghijklmnop";
const open: OpenCall = { id, tool: "bash", arguments: '{"command":"make"}', started: 1000, hops: 2 };
const ended: EndedCall = {
	...open,
	state: "completed",
	finished: 2000,
	content: [
		{ type: "text", text: "built \u0000 \ud83d\ude00" },
		{ type: "image", data: "aGk=", mimeType: "image/png" },
	],
};

let folder: string;
let store: CallStore;
let operations: string[];

beforeEach(() => {
	folder = temporaryFolder();
	operations = [];
	const disk = watchedDisk(({ name, paths }) => operations.push(`${name} ${paths[0]?.slice(folder.length + 1)}`));
	store = openCallStore(disk, folder);
});

function lay(box: "calls" | "results", name: string, content: string): string {
	mkdirSync(join(folder, box), { recursive: true, mode: 0o700 });
	writeFileSync(join(folder, box, name), content);
	return join(folder, box, name);
}

/** The ids of the calls that are open, and what could not be read. */
function listed(of = store): { ids: string[]; failed: string[] } {
	const failed: string[] = [];
	return { ids: of.listOpen((error) => failed.push(String(error))).map((call) => call.id), failed };
}

describe("the calls of an address", () => {
	test("are open until they are closed, and cost nothing where none was", () => {
		expect(listed()).toEqual({ ids: [], failed: [] });
		expect(readdirSync(folder)).toEqual([]);
		store.open(open);
		expect(store.listOpen(() => {})).toEqual([open]);
		store.close(id);
		store.close(id);
		expect(listed().ids).toEqual([]);
	});

	test("L7 keep 4096 characters of their arguments", () => {
		store.open({ ...open, arguments: "x".repeat(100_000) });
		expect(store.listOpen(() => {})[0]?.arguments).toHaveLength(4096);
	});

	test("D5 are flushed with their folder when their end is kept", () => {
		store.keep(ended);
		expect(operations).toEqual([
			"ensureFolder results",
			`replace results/${id}.json`,
			`syncFile results/${id}.json`,
			"syncFolder results",
		]);
		expect(store.ended(id)).toEqual(ended);
		expect(store.pathOf(id)).toBe(join(folder, "results", `${id}.json`));
	});

	test("L7 are read though all 8 MiB that are kept of a result are control characters", () => {
		const content = [{ type: "text" as const, text: "\u0000".repeat(8 * 1024 * 1024) }];
		store.keep({ ...ended, content });
		expect(store.ended(id)?.content[0]).toEqual(content[0]);
	});

	test.each(["", "x", "../state", "call-0123456789abcde/", "call-../../../../x.", "CALL-0123456789abcdef", `${id}\n`])(
		"L7 cannot have %j for an id: a path is made of it",
		(hostile) => {
			expect(isCallId(hostile)).toBe(false);
			expect(() => store.open({ ...open, id: hostile })).toThrow("is no id of a call");
			expect(() => store.keep({ ...ended, id: hostile })).toThrow("is no id of a call");
			expect(store.ended(hostile)).toBeUndefined();
			expect(readdirSync(folder)).toEqual([]);
		},
	);
});

describe("what lies among the calls and is none", () => {
	test.each<[string, string, string]>([
		["is not JSON", `${id}.json`, "{"],
		["is empty", `${id}.json`, ""],
		["is null", `${id}.json`, "null"],
		["lacks what a call has", `${id}.json`, JSON.stringify({ id })],
		["has another's id", `${id}.json`, JSON.stringify({ ...open, id: otherId })],
		["has a path for its id", `${id}.json`, JSON.stringify({ ...open, id: "../x" })],
		["has hops that are none", `${id}.json`, JSON.stringify({ ...open, hops: -1 })],
		["is not UTF-8 in its name", "call-0123456789abcde\u00e9.json", JSON.stringify(open)],
		["has a foreign name", "notes.txt", JSON.stringify(open)],
		["has no end", id, JSON.stringify(open)],
		["is half written", `${id}.json.1234`, JSON.stringify(open)],
	])("L7 is passed over when it %s", (_what, name, content) => {
		lay("calls", name, content);
		store.open({ ...open, id: otherId });
		expect(listed()).toEqual({ ids: [otherId], failed: [] });
	});

	test("L7 is passed over when it is a folder, a symlink, or huge", () => {
		store.open({ ...open, id: otherId });
		const target = lay("results", "elsewhere", JSON.stringify(open));
		symlinkSync(target, join(folder, "calls", `${id}.json`));
		mkdirSync(join(folder, "calls", "call-ffffffffffffffff.json"));
		truncateSync(lay("calls", "call-gggggggggggggggg.json", ""), 1024 ** 3);
		writeFileSync(join(folder, "calls", "call-hhhhhhhhhhhhhhhh.json"), Buffer.from([0xff, 0xfe]));
		expect(listed()).toEqual({ ids: [otherId], failed: [] });
	});

	test("L7 is passed over when the folder itself is a symlink, and nothing is written there", () => {
		const elsewhere = temporaryFolder();
		writeFileSync(join(elsewhere, `${id}.json`), JSON.stringify(open));
		symlinkSync(elsewhere, join(folder, "calls"));
		expect(listed().ids).toEqual([]);
		expect(() => store.open({ ...open, id: otherId })).toThrow("is a symlink");
		expect(readdirSync(elsewhere)).toEqual([`${id}.json`]);
	});

	test("L7 keeps no other out when it cannot be read now, and is said", () => {
		store.open(open);
		store.open({ ...open, id: otherId });
		const disk = watchedDisk(({ name, paths }) => name === "read" && paths[0]?.includes(id) && fail("EIO"));
		expect(listed(openCallStore(disk, folder))).toEqual({ ids: [otherId], failed: [expect.stringContaining("EIO")] });
	});

	test("L7 is said when their folder cannot be listed now", () => {
		store.open(open);
		const disk = watchedDisk(({ name }) => name === "list" && fail("EACCES"));
		expect(listed(openCallStore(disk, folder))).toEqual({ ids: [], failed: [expect.stringContaining("EACCES")] });
	});

	test.each<[string, string]>([
		["not JSON", "{"],
		["of a state that there is not", JSON.stringify({ ...ended, state: "running" })],
		["of a part that there is not", JSON.stringify({ ...ended, content: [{ type: "audio", data: "" }] })],
		["without content", JSON.stringify({ ...ended, content: undefined })],
	])("L7 is no result when it is %s", (_what, content) => {
		lay("results", `${id}.json`, content);
		expect(store.ended(id)).toBeUndefined();
	});

	test("L7 is no result when it is a symlink or a folder, and a result takes the place of a link", () => {
		const target = lay("results", "elsewhere", JSON.stringify(ended));
		symlinkSync(target, join(folder, "results", `${id}.json`));
		mkdirSync(join(folder, "results", `${otherId}.json`));
		expect([store.ended(id), store.ended(otherId)]).toEqual([undefined, undefined]);
		store.keep({ ...ended, state: "failed" });
		expect(store.ended(id)?.state).toBe("failed");
		expect(JSON.parse(readFileSync(target, "utf8")).state).toBe("completed");
	});

	test("L4 a result that cannot be read now is no missing one", () => {
		store.keep(ended);
		const disk = watchedDisk(({ name }) => name === "read" && fail("EIO"), nodeDisk());
		expect(() => openCallStore(disk, folder).ended(id)).toThrow("EIO");
	});
});
