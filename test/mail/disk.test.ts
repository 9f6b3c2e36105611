import { execFileSync } from "node:child_process";
import {
	chmodSync,
	chownSync,
	linkSync,
	lstatSync,
	mkdirSync,
	readdirSync,
	readFileSync,
	statSync,
	symlinkSync,
	truncateSync,
	utimesSync,
	writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { type Disk, errorCode, errorMessage, errorReason, nodeDisk, UnfitError } from "../../src/mail/disk.ts";
import { isRoot, temporaryFolder } from "../support/disk.ts";

/** What was fsynced, by inode. */
const synced = vi.hoisted((): number[] => []);
/** What another process does just before a folder is made or a file is read. */
const meanwhile = vi.hoisted(() => ({ act: () => {} }));
vi.mock("node:fs", async (importOriginal) => {
	const fs = await importOriginal<typeof import("node:fs")>();
	const fsyncSync = (file: number) => {
		synced.push(fs.fstatSync(file).ino);
		fs.fsyncSync(file);
	};
	const mkdirSync = (...args: Parameters<typeof fs.mkdirSync>) => {
		meanwhile.act();
		return fs.mkdirSync(...args);
	};
	// A system may give less than it was asked for.
	const readSync = (file: number, bytes: Uint8Array, offset: number, length: number, position: number) => {
		meanwhile.act();
		return fs.readSync(file, bytes, offset, Math.min(length, 2), position);
	};
	return { ...fs, fsyncSync, mkdirSync, readSync };
});

const disk = nodeDisk();
const modeOf = (path: string) => lstatSync(path).mode & 0o777;

/** Puts a thing of each kind at a path. */
const things = {
	file: (path: string) => writeFileSync(path, "whole"),
	folder: (path: string) => mkdirSync(path),
	fifo: (path: string) => execFileSync("/usr/bin/mkfifo", [path]),
	"link to a file": (path: string) => {
		writeFileSync(`${path}.target`, "outside");
		symlinkSync(`${path}.target`, path);
	},
	"link to a folder": (path: string) => symlinkSync("/", path),
	"dangling link": (path: string) => symlinkSync("nowhere", path),
};
type Thing = keyof typeof things;

function lay(thing: Thing): string {
	const path = join(temporaryFolder(), "it");
	things[thing](path);
	return path;
}

/** What calling it throws: the name and code of the error. */
function thrown(action: () => unknown): string {
	try {
		action();
	} catch (error) {
		return error instanceof UnfitError ? `unfit: ${error.message}` : (errorCode(error) ?? String(error));
	}
	return "nothing";
}

describe("a folder", () => {
	test("PSM-006 is made for this user alone, and only when it is not there", () => {
		const path = join(temporaryFolder(), "new");
		expect([disk.ensureFolder(path), modeOf(path), disk.ensureFolder(path)]).toEqual([true, 0o700, false]);
	});

	test("PSM-007 that is there keeps its mode", () => {
		const path = lay("folder");
		chmodSync(path, 0o755);
		expect([disk.ensureFolder(path), modeOf(path)]).toEqual([false, 0o755]);
	});

	test.each<[Thing, string]>([
		["file", "is not a folder"],
		["fifo", "is not a folder"],
		["link to a folder", "is a symlink"],
		["dangling link", "is a symlink"],
	])("I-PSM-8 is not used when it is a %s", (thing, problem) => {
		const path = lay(thing);
		expect(thrown(() => disk.ensureFolder(path))).toBe(`unfit: ${path} ${problem}`);
	});

	test.skipIf(!isRoot)("PSM-006 is not used when it belongs to another user", () => {
		const path = lay("folder");
		chownSync(path, 12345, 12345);
		expect(thrown(() => disk.ensureFolder(path))).toBe(`unfit: ${path} belongs to another user`);
	});

	test("I-PSM-8 is not used when another process puts a link there at the same instant", () => {
		const path = join(temporaryFolder(), "it");
		vi.spyOn(meanwhile, "act").mockImplementationOnce(() => things["link to a folder"](path));
		expect(thrown(() => disk.ensureFolder(path))).toBe(`unfit: ${path} is a symlink`);
	});

	test("PSM-008 without its parent, or under a file, is refused by the system", () => {
		expect(thrown(() => disk.ensureFolder(join(temporaryFolder(), "a", "b")))).toBe("ENOENT");
		expect(thrown(() => disk.ensureFolder(join(lay("file"), "b")))).toBe("ENOTDIR");
	});
});

describe("a new file", () => {
	test("PSM-006 is closed to other users and holds the whole text", () => {
		const path = join(temporaryFolder(), "mail");
		const text = "Grüße \u{1f600}\n".repeat(100_000);
		disk.create(path, text);
		expect([modeOf(path), readFileSync(path, "utf8") === text]).toEqual([0o600, true]);
	});

	test("D5 is on the disk when that is asked for, and so is a folder", () => {
		const folder = temporaryFolder();
		// The system gives the inodes of removed files to new ones.
		synced.splice(0);
		const paths = ["safe", "fast"].map((name) => join(folder, name));
		for (const path of paths) disk.create(path, "x");
		disk.syncFile(join(folder, "safe"));
		disk.syncFolder(folder);
		const inodes = [...paths, folder].map((path) => statSync(path).ino);
		expect(inodes.map((inode) => synced.includes(inode))).toEqual([true, false, true]);
	});

	test.each<Thing>(["file", "folder", "fifo", "link to a file", "dangling link"])(
		"L2 never takes the place of a %s",
		(thing) => {
			const path = lay(thing);
			const before = readdirSync(join(path, "..")).sort();
			expect(thrown(() => disk.create(path, "new"))).toBe("EEXIST");
			expect(readdirSync(join(path, "..")).sort()).toEqual(before);
			if (thing.endsWith("file")) expect(readFileSync(path, "utf8")).not.toBe("new");
		},
	);

	test.skipIf(process.platform !== "linux")("L2 that the disk has no room for leaves nothing", () => {
		const path = join(temporaryFolder(), "mail");
		// Files of this child may not grow beyond a few KiB: the write fails as on a full disk.
		const script = `
			import { existsSync } from "node:fs";
			import { nodeDisk } from ${JSON.stringify(new URL("../../src/mail/disk.ts", import.meta.url).href)};
			process.on("SIGXFSZ", () => {});
			try { nodeDisk().create(process.argv[1], "x".repeat(100_000)); } catch (error) { console.log(error.code, existsSync(process.argv[1])); }
		`;
		const command = `ulimit -f 8; exec "$0" --input-type=module -e "$1" "$2"`;
		expect(execFileSync("bash", ["-c", command, process.execPath, script, path], { encoding: "utf8" })).toBe(
			"EFBIG false\n",
		);
	});

	test("L10 that cannot be flushed is not left open", () => {
		const path = lay("file");
		const before = readdirSync("/dev/fd").length;
		vi.spyOn(synced, "push").mockImplementationOnce(() => {
			throw new Error("made to fail");
		});
		expect(thrown(() => disk.syncFile(path))).toBe("Error: made to fail");
		expect(readdirSync("/dev/fd").length).toBe(before);
	});
});

describe("a replaced file", () => {
	test("PSM-006 is seen as a whole by who reads it, and is closed to other users", () => {
		const path = lay("file");
		chmodSync(path, 0o644);
		linkSync(path, `${path}.old`);
		disk.replace(path, "new");
		expect([readFileSync(path, "utf8"), readFileSync(`${path}.old`, "utf8"), modeOf(path)]).toEqual([
			"new",
			"whole",
			0o600,
		]);
		expect(readdirSync(join(path, "..")).sort()).toEqual(["it", "it.old"]);
	});

	test.each<Thing>(["link to a file", "dangling link"])(
		"I-PSM-8 is never written through a link: a %s is replaced itself",
		(thing) => {
			const path = lay(thing);
			disk.replace(path, "new");
			expect([lstatSync(path).isFile(), readFileSync(path, "utf8")]).toEqual([true, "new"]);
			if (thing === "link to a file") expect(readFileSync(`${path}.target`, "utf8")).toBe("outside");
		},
	);

	test("L2 that cannot be replaced leaves nothing beside it", () => {
		const path = lay("folder");
		expect(thrown(() => disk.replace(path, "new"))).toBe("EISDIR");
		expect(readdirSync(join(path, ".."))).toEqual(["it"]);
	});
});

describe("reading", () => {
	test.each<[Thing, string]>([
		["folder", "unfit: it is not a regular file"],
		["fifo", "unfit: it is not a regular file"],
		["link to a file", "unfit: it is a symlink"],
		["dangling link", "unfit: it is a symlink"],
	])("PSM-018 neither waits for nor follows a %s", (thing, problem) => {
		expect(thrown(() => disk.read(lay(thing), 100))).toBe(problem);
	});

	test("D11 stops at its limit, before anything is read", () => {
		const path = lay("file");
		expect(disk.read(path, 5)).toBe("whole");
		expect(thrown(() => disk.read(path, 4))).toBe("unfit: it has 5 bytes, more than the limit of 4");
		truncateSync(path, 2 ** 40);
		expect(thrown(() => disk.read(path, 100))).toBe("unfit: it has 1099511627776 bytes, more than the limit of 100");
	});

	test.each<[what: string, bytes: number[], text: string]>([
		["nothing", [], ""],
		["a byte order mark", [0xef, 0xbb, 0xbf, 0x61], "a"],
		["zeros", [0, 0], "\0\0"],
		["invalid UTF-8", [0x61, 0xff], "unfit: it is not valid UTF-8"],
		["a character that was cut", [0xf0, 0x9f, 0x98], "unfit: it is not valid UTF-8"],
		["a surrogate", [0xed, 0xa0, 0x80], "unfit: it is not valid UTF-8"],
	])("PSM-017 of %s", (_, bytes, text) => {
		const path = join(temporaryFolder(), "mail");
		writeFileSync(path, Buffer.from(bytes));
		if (text.startsWith("unfit")) expect(thrown(() => disk.read(path, 100))).toBe(text);
		else expect(disk.read(path, 100)).toBe(text);
	});

	test("PSM-018 ends where a file ends that another process cuts meanwhile", () => {
		const path = lay("file");
		vi.spyOn(meanwhile, "act").mockImplementationOnce(() => truncateSync(path, 3));
		expect(disk.read(path, 100)).toBe("who");
	});

	test.skipIf(isRoot)("PSM-017 of a file that is closed to this user fails", () => {
		const path = lay("file");
		chmodSync(path, 0);
		expect(thrown(() => disk.read(path, 100))).toBe("EACCES");
	});

	test("L10 leaves no file open, whatever it met", () => {
		const open = () => readdirSync("/dev/fd").length;
		const paths = (["file", "folder", "fifo", "link to a file"] as const).map(lay);
		const before = open();
		for (const path of paths) thrown(() => disk.read(path, 2));
		disk.create(`${paths[0]}.new`, "whole");
		disk.syncFile(`${paths[0]}.new`);
		disk.syncFolder(join(paths[0] ?? "", ".."));
		for (const _ of disk.walk(join(paths[0] ?? "", ".."))) break;
		expect(open()).toBe(before);
	});
});

describe("names", () => {
	test.each<[Thing, ReturnType<Disk["entry"]>]>([
		["file", "file"],
		["folder", "folder"],
		["fifo", "other"],
		["link to a file", "other"],
		["link to a folder", "other"],
		["dangling link", "other"],
	])("PSM-018 what lies at a path is told without touching it: a %s is a %s", (thing, type) => {
		expect(disk.entry(lay(thing))).toBe(type);
		expect(disk.entry(join(temporaryFolder(), "nothing"))).toBeUndefined();
	});

	test("D15 D26 it was changed at the later of its two times, of which one can be set", () => {
		const path = lay("file");
		const changed = disk.changed(path);
		utimesSync(path, 0, 0);
		expect(disk.changed(path)).toBeGreaterThanOrEqual(changed ?? Number.NaN);
		utimesSync(path, 1e10, 1e10);
		expect(disk.changed(path)).toBe(1e13);
	});

	test("L2 a second name never takes the place of a file, a moved one does; removing twice is fine", () => {
		const path = lay("file");
		disk.link(path, `${path}2`);
		expect(statSync(path).ino).toBe(statSync(`${path}2`).ino);
		writeFileSync(`${path}3`, "other");
		expect(thrown(() => disk.link(path, `${path}3`))).toBe("EEXIST");
		disk.rename(`${path}3`, path);
		expect(readFileSync(path, "utf8")).toBe("other");
		disk.remove(path);
		disk.remove(path);
		expect(readdirSync(join(path, ".."))).toEqual(["it2"]);
	});

	test("D9 what cannot be removed is not taken for removed", () => {
		expect(thrown(() => disk.remove(lay("folder")))).not.toBe("nothing");
	});

	test("L6 a folder is listed at once or one by one, with the same result", () => {
		const folder = temporaryFolder();
		const names = Array.from({ length: 200 }, (_, i) => `n${i}`).sort();
		for (const name of names) writeFileSync(join(folder, name), "");
		expect(disk.list(folder).sort()).toEqual(names);
		expect([...disk.walk(folder)].sort()).toEqual(names);
		expect([thrown(() => disk.list(`${folder}/no`)), thrown(() => disk.walk(`${folder}/no`).next())]).toEqual([
			"ENOENT",
			"ENOENT",
		]);
		expect(thrown(() => disk.syncFolder(`${folder}/no`))).toBe("ENOENT");
	});
});

test.each<[unknown, string | undefined, string]>([
	[Object.assign(new Error("a\n  b"), { code: "EIO" }), "EIO", "a b"],
	[Object.assign(new Error("a"), { code: 5 }), undefined, "a"],
	[new UnfitError("it is a symlink"), undefined, "it is a symlink"],
	["text", undefined, "text"],
	[undefined, undefined, "undefined"],
	[{ code: "EIO" }, undefined, "[object Object]"],
])("D9 whatever is thrown has at most a code, and a message of one line: %s", (error, code, message) => {
	expect([errorCode(error), errorMessage(error)]).toEqual([code, message]);
});

test("D9 the same fault reads the same wherever it happens, without the names of files", () => {
	const reasons = ["/a/b", "/c/d-123"].map((path) => {
		try {
			return disk.link(join(temporaryFolder(), path), path);
		} catch (error) {
			return errorReason(error);
		}
	});
	expect(reasons).toEqual(["ENOENT: no such file or directory", "ENOENT: no such file or directory"]);
});
