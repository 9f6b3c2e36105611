import { execFile, execFileSync } from "node:child_process";
import {
	chmodSync,
	existsSync,
	lstatSync,
	mkdirSync,
	readdirSync,
	readFileSync,
	renameSync,
	rmSync,
	statSync,
	symlinkSync,
	truncateSync,
	unlinkSync,
	writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { nodeDisk } from "../../src/mail/disk.ts";
import type { Claim, OpenMail } from "../../src/mail/mailbox.ts";
import {
	alice,
	bob,
	carol,
	dayMs,
	draft,
	envelopeText,
	fail,
	faultCodes,
	faultyDisk,
	interruptedDisk,
	isRoot,
	type Operation,
	sent,
	startMs,
	type TestRoot,
	testRoot,
	watchedDisk,
} from "../support/disk.ts";

const mailId = "11111111-2222-4333-8444-555555555555";
const otherId = "99999999-2222-4333-8444-555555555555";
const name = `00${startMs}-${mailId}.json`;
const nameOf = (stamp: number, id = mailId) => `${String(stamp).padStart(15, "0")}-${id}.json`;

function claimed(claim: Claim): OpenMail {
	if (claim.result !== "claimed") throw new Error(JSON.stringify(claim));
	return claim.mail;
}

/** What a start finds left open, as the ids of the mail. */
const idsLeftOpen = (root: TestRoot, address = bob) => root.start(address).left.map((one) => claimed(one).envelope.id);

interface Hostile {
	what: string;
	lay: (path: string) => void;
	/** What a claim makes of it, and why. */
	result: "claimed" | "dead" | "left";
	reason?: string;
	/** What it is besides, when it can be read as a mail. */
	kind?: "request" | "reply";
}

const file = (text: string | Uint8Array) => (path: string) => writeFileSync(path, text);
const dead = (what: string, text: string | Uint8Array, reason: string): Hostile => {
	return { what, lay: file(text), result: "dead", reason };
};
const left = (what: string, lay: Hostile["lay"]): Hostile => {
	return { what, lay, result: "left", reason: "it is not a regular file" };
};
const mail = (what: string, text: string, kind: "request" | "reply"): Hostile => {
	return { what, lay: file(text), result: "claimed", kind };
};
const reply = (in_reply_to: string[]) => envelopeText({ kind: "reply", in_reply_to });

/** Things that may lie where a mail should. */
const hostile: Hostile[] = [
	dead("an empty file", "", "it is empty"),
	dead("a text", "hello", "it is not JSON"),
	dead("half a mail", envelopeText().slice(0, 100), "it is not JSON"),
	dead("a list", "[]", "it is not a JSON object"),
	dead("a mail with hops in words", envelopeText({ hops: "0" }), 'invalid hops "0"'),
	dead("a mail with negative hops", envelopeText({ hops: -1 }), "invalid hops -1"),
	dead("a mail that answers 51 requests", reply(Array(51).fill("")), "invalid in_reply_to of 51 items"),
	dead("a mail whose id is a path", envelopeText({ id: "../../escape" }), 'invalid id "../../escape"'),
	dead("a mail whose sender is a path", envelopeText({ from: "../escape" }), 'invalid from "../escape"'),
	{
		...dead("a mail to somebody else", envelopeText({ to: carol }), "it is addressed to another session"),
		kind: "request",
	},
	dead("invalid UTF-8", Buffer.from([0x7b, 0xff, 0x7d]), "it is not valid UTF-8"),
	{
		...dead("5 MiB", "", "it has 5242880 bytes, more than the limit of 4194304"),
		lay: (path) => [writeFileSync(path, envelopeText()), truncateSync(path, 5 * 1024 * 1024)],
	},
	left("a folder", (path) => mkdirSync(path)),
	left("a FIFO", (path) => execFileSync("/usr/bin/mkfifo", [path])),
	left("a dangling link", (path) => symlinkSync("nowhere", path)),
	left("a link to a mail outside", (path) => {
		writeFileSync(outside(path), envelopeText());
		symlinkSync(outside(path), path);
	}),
	mail("a mail with a byte order mark", `\ufeff${envelopeText()}`, "request"),
	mail("a mail that answers 50 requests without an id", reply(Array(50).fill("")), "reply"),
	mail("a mail that answers paths and prototypes", reply(["../../x", "__proto__", "constructor"]), "reply"),
	mail(
		"a mail with prototype names",
		envelopeText({ toString: 1 }).replace("{", '{"__proto__":{"to":"x"},'),
		"request",
	),
];

/** Errors that say something of the machine, and nothing of the file that is read. */
const isTemporary = (code: string) => ["EIO", "EMFILE"].includes(code);

/** A file beside the mail root. */
function outside(path: string): string {
	return join(path, "..", "..", "..", "..", "outside.json");
}

describe("opening", () => {
	test("PSM-005 PSM-006 makes the boxes, closed to other users, and says where to look for mail", () => {
		const root = testRoot();
		const mailbox = root.open(bob);
		const boxes = root.boxes(bob);
		expect(readdirSync(boxes.folder).sort()).toEqual(["cur", "new", "sent", "tmp"]);
		for (const folder of Object.values(boxes)) expect(statSync(folder).mode & 0o777).toBe(0o700);
		expect([mailbox.address, mailbox.folder, mailbox.newFolder]).toEqual([bob, boxes.folder, boxes.new]);
	});

	test("PSM-007 PSM-009 changes nothing of what is there", () => {
		const root = testRoot();
		sent(root.open(alice));
		chmodSync(root.boxes(bob).folder, 0o755);
		root.open(bob);
		expect([root.names(bob, "new").length, statSync(root.boxes(bob).folder).mode & 0o777]).toEqual([1, 0o755]);
	});

	test.each(["folder", "new", "cur", "sent", "tmp"] as const)("PSM-008 I-PSM-8 is refused when %s is a link", (box) => {
		const root = testRoot();
		const path = root.boxes(bob)[box];
		if (box !== "folder") mkdirSync(root.boxes(bob).folder);
		symlinkSync(root.path, path);
		expect(() => root.open(bob)).toThrow("is a symlink");
	});

	test("D16 an address is known when it has a folder", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		writeFileSync(root.boxes(carol).folder, "");
		symlinkSync(root.boxes(alice).folder, join(root.path, "linked"));
		expect([alice, bob, carol, "linked"].map(mailbox.isKnown)).toEqual([true, false, false, false]);
		root.open(bob);
		expect(mailbox.isKnown(bob)).toBe(true);
	});
});

describe("waiting mail", () => {
	test("PSM-018 PSM-043 I-PSM-6 is listed oldest first; other names are passed over and stay", () => {
		const root = testRoot();
		const base = nodeDisk();
		const inbox = root.open(bob, { disk: { ...base, list: (folder) => base.list(folder).reverse() } });
		const names = [nameOf(9), nameOf(10), nameOf(100), "a.json"];
		const others = ["x.txt", ".json.swp", "x.json.tmp", "x.JSON"];
		for (const one of [...names, ...others]) root.lay(bob, "new", one, "");
		expect(inbox.waiting()).toEqual(names);
		expect(root.names(bob, "new")).toEqual([...names, ...others].sort());
	});

	test.each(hostile)("PSM-018 design 4.2 can be looked at without claiming it: $what", ({ lay, kind }) => {
		const root = testRoot();
		const inbox = root.open(bob);
		lay(join(root.boxes(bob).new, name));
		expect(inbox.peek(name)?.kind).toBe(kind);
		expect([root.names(bob, "new"), root.names(bob, "cur")]).toEqual([[name], []]);
	});

	test("design 4.2 that is gone cannot be looked at", () => {
		expect(testRoot().open(bob).peek(name)).toBeUndefined();
	});
});

describe("a claim", () => {
	test("PSM-041 design 4.3 moves the mail to cur/ and marks it open until it is closed", () => {
		const root = testRoot();
		const inbox = root.open(bob);
		sent(root.open(alice), { id: mailId, body: "x" });
		const mail = claimed(inbox.claim(name));
		expect(mail).toMatchObject({ name, path: join(root.boxes(bob).cur, name), tries: 0, envelope: { body: "x" } });
		expect([root.names(bob, "new"), root.names(bob, "cur")]).toEqual([[], [name, `${name}.open`]]);
		expect(statSync(`${mail.path}.open`).mode & 0o777).toBe(0o600);
		inbox.close(name);
		inbox.close(name);
		expect(root.names(bob, "cur")).toEqual([name]);
		expect(inbox.claim(name)).toEqual({ result: "gone" });
	});

	test.each(hostile)(
		"PSM-016 PSM-017 PSM-018 D12 of $what is $result, and later mail still comes",
		({ lay, result, reason }) => {
			const root = testRoot();
			const inbox = root.open(bob);
			const [from, to] = [join(root.boxes(bob).new, name), join(root.boxes(bob).cur, name)];
			lay(from);
			sent(root.open(alice), { id: otherId });
			const [claim, next] = inbox.waiting().map(inbox.claim);
			expect(next).toMatchObject({ result: "claimed", mail: { envelope: { id: otherId } } });
			if (result === "left") {
				expect(claim).toEqual({ result, path: from, reason });
				expect([root.names(bob, "new"), existsSync(to)]).toEqual([[name], false]);
			} else if (result === "dead") {
				expect(claim).toMatchObject({ result, path: to, reason });
				// One that can be answered is open until it was.
				if (claim?.result === "dead" && claim.owing !== undefined) inbox.bury(name, claim.reason);
				expect(readFileSync(`${to}.reason`, "utf8")).toBe(`${reason}\n`);
			} else {
				expect(claim).toMatchObject({ result, mail: { path: to, envelope: { id: mailId, from: alice } } });
			}
			// A dead mail is never tried again, and an open one is.
			expect(idsLeftOpen(root)).toHaveLength(result === "claimed" ? 2 : 1);
			expect(root.open(bob).waiting()).toEqual(result === "left" ? [name] : []);
		},
	);

	test.each<[what: string, changed: Record<string, unknown>, canBeAnswered: boolean]>([
		["a request", { body: 1 }, true],
		["an ask", { kind: "ask", hops: -1 }, true],
		["a message", { kind: "message", hops: -1 }, false],
		["one without a kind", { kind: undefined, hops: -1 }, false],
		["one whose sender is a path", { from: "../../x" }, false],
		["one whose id is a path", { id: "../../x" }, false],
		["one to somebody else", { to: carol, hops: -1 }, false],
	])("D12 of what cannot be read says whom to answer, and stays open until then: %s", (_, changed, canBeAnswered) => {
		const root = testRoot();
		const inbox = root.open(bob);
		root.lay(bob, "new", name, envelopeText(changed));
		const { kind } = { kind: "request", ...changed };
		const owing = { id: mailId, from: alice, to: bob, kind };
		const claim = inbox.claim(name);
		expect(claim).toMatchObject({ result: "dead" });
		expect(claim).toEqual(canBeAnswered ? expect.objectContaining({ owing }) : expect.not.objectContaining({ owing }));
		expect(root.names(bob, "cur")).toEqual([name, `${name}.${canBeAnswered ? "open" : "reason"}`]);
	});

	test("D12 of a file that this user may not read sets it aside", () => {
		const root = testRoot();
		const path = root.lay(bob, "new", name, envelopeText());
		chmodSync(path, 0);
		// Root may read everything: there the disk refuses.
		const disk = watchedDisk(
			(operation) => isRoot && operation.name === "read" && operation.paths[0] === path && fail("EACCES"),
		);
		expect(root.open(bob, { disk }).claim(name)).toMatchObject({
			result: "dead",
			reason: expect.stringContaining("EACCES"),
		});
		expect(root.names(bob, "cur")).toEqual([name, `${name}.reason`]);
	});

	test("D12 of what cannot be set aside now says so all the same, and the next start sets it aside", () => {
		const root = testRoot();
		root.lay(bob, "new", name, "rubbish");
		const disk = watchedDisk(({ name: what }) => what === "replace" && fail("ENOSPC"));
		expect(root.open(bob, { disk }).claim(name)).toMatchObject({ result: "dead", reason: "it is not JSON" });
		expect(root.start(bob).left).toMatchObject([{ result: "dead" }]);
		expect(root.names(bob, "cur")).toEqual([name, `${name}.reason`]);
	});

	test.each(["EMFILE", "ENFILE", "ENOMEM", "EIO", "EINTR", "EAGAIN"])(
		"L2 that the machine cannot make now (%s) leaves the mail waiting",
		(code) => {
			const root = testRoot();
			root.lay(bob, "new", name, envelopeText());
			let isBroken = true;
			const disk = watchedDisk(
				(operation) => isBroken && operation.paths[0]?.endsWith(name) && operation.name === "read" && fail(code),
			);
			const inbox = root.open(bob, { disk });
			expect(() => inbox.claim(name)).toThrow(code);
			expect(() => inbox.peek(name)).toThrow(code);
			expect([inbox.waiting(), root.names(bob, "cur")]).toEqual([[name], []]);
			isBroken = false;
			expect(inbox.claim(name)).toMatchObject({ result: "claimed" });
		},
	);

	test("L2 never takes the place of an older mail with the same name; both are kept and found", () => {
		const root = testRoot();
		const inbox = root.open(bob);
		for (const body of ["first", "second", "third"]) {
			root.lay(bob, "new", name, envelopeText({ body }));
			expect(claimed(inbox.claim(name))).toMatchObject({ envelope: { body }, path: expect.stringMatching(`${name}$`) });
		}
		const bodies = root.start(bob).left.map((one) => claimed(one).envelope.body);
		expect(bodies.sort()).toEqual(["first", "second", "third"]);
	});

	test.each([
		["a.json", envelopeText()],
		["--help.json", envelopeText()],
		["..json", envelopeText()],
		["line\nend\u202e.json", envelopeText()],
		["__proto__.json", envelopeText()],
		[`${"x".repeat(200)}.json`, envelopeText()],
	])("D14 trusts the id inside, not the name: %j", (odd, text) => {
		const root = testRoot();
		root.lay(bob, "new", odd, text);
		const inbox = root.open(bob);
		expect(inbox.waiting().map(inbox.claim)).toMatchObject([{ result: "claimed", mail: { envelope: { id: mailId } } }]);
		expect(idsLeftOpen(root)).toEqual([mailId]);
	});

	test("D12 of a name that is too long to be marked neither throws for ever nor loses it", () => {
		const root = testRoot();
		const long = `${"x".repeat(250)}.json`;
		root.lay(bob, "new", long, envelopeText());
		const inbox = root.open(bob);
		expect(["claimed", "dead", "left"]).toContain(inbox.claim(long).result);
		expect([...root.names(bob, "new"), ...root.names(bob, "cur")].filter((one) => one.startsWith("x"))).not.toEqual([]);
	});

	test("L6 and a delivery look into no folder that grows with age", () => {
		const root = testRoot();
		const looked: string[] = [];
		const disk = watchedDisk(
			(operation) => /^(list|walk)$/.test(operation.name) && looked.push(operation.paths[0] ?? ""),
		);
		const inbox = root.open(bob, { disk });
		sent(root.open(alice, { disk }), { id: mailId });
		claimed(inbox.claim(name));
		inbox.close(name);
		expect(looked).toEqual([root.boxes(bob).new]);
	});
});

describe("mail that an earlier process left open", () => {
	test("L1 is found at each start until it is closed, with the number of tries", () => {
		const root = testRoot();
		const inbox = root.open(bob);
		for (const id of [mailId, otherId]) sent(root.open(alice), { id });
		for (const one of inbox.waiting()) inbox.claim(one);
		const [first] = root
			.start(bob)
			.left.map(claimed)
			.filter((mail) => mail.name === name);
		if (first === undefined) throw new Error("not left open");
		inbox.countTry(first);
		inbox.countTry(first);
		expect(first.tries).toBe(2);
		const again = root.start(bob).left.map(claimed);
		expect(again.map((mail) => [mail.envelope.id, mail.tries]).sort()).toEqual([
			[mailId, 2],
			[otherId, 0],
		]);
		inbox.close(first.name);
		expect(idsLeftOpen(root)).toEqual([otherId]);
	});

	test("L2 is found also beside one that cannot be read for now, which says so", () => {
		const root = testRoot();
		for (const id of [mailId, otherId]) {
			root.lay(bob, "cur", nameOf(1, id), envelopeText({ id }));
			root.lay(bob, "cur", `${nameOf(1, id)}.open`, "");
		}
		const disk = watchedDisk(
			({ name, paths }) => name === "read" && paths[0]?.endsWith(`${otherId}.json`) && fail("EMFILE"),
		);
		const { left } = root.start(bob, disk);
		expect(left.map(({ result }) => result).sort()).toEqual(["claimed", "failed"]);
	});

	test.each(["", "x", "-", "9".repeat(100), "\0"])("D12 counts as tried never when its mark holds %j", (text) => {
		const root = testRoot();
		root.lay(bob, "cur", name, envelopeText());
		root.lay(bob, "cur", `${name}.open`, text);
		expect(root.start(bob).left).toMatchObject([{ mail: { tries: 0 } }]);
	});

	test("D12 is never tried again once it is buried, and stays with its reason", () => {
		const root = testRoot();
		const inbox = root.open(bob);
		sent(root.open(alice), { id: mailId });
		inbox.bury(claimed(inbox.claim(name)).name, "Pi ended 3 times");
		expect([root.names(bob, "cur"), idsLeftOpen(root)]).toEqual([[name, `${name}.reason`], []]);
		expect(readFileSync(join(root.boxes(bob).cur, `${name}.reason`), "utf8")).toBe("Pi ended 3 times\n");
	});

	test.each(hostile)(
		"PSM-018 L2 may be $what: nothing hangs, and the second start finds only mail",
		({ lay, result, reason }) => {
			const root = testRoot();
			root.open(bob);
			const path = join(root.boxes(bob).cur, name);
			lay(path);
			writeFileSync(`${path}.open`, "");
			const before = lstatSync(path).mode;
			const { mailbox, left } = root.start(bob);
			for (const claim of left)
				if (claim.result === "dead" && claim.owing !== undefined) mailbox.bury(name, claim.reason);
			expect(left).toMatchObject(
				result === "left"
					? []
					: result === "dead"
						? [{ result, path, reason }]
						: [{ mail: { envelope: { id: mailId } } }],
			);
			expect(idsLeftOpen(root)).toEqual(result === "claimed" ? [mailId] : []);
			expect(lstatSync(path).mode).toBe(before);
		},
	);

	test("design 4.3 is not what was marked only, which still waits or was taken back, nor any other name", () => {
		const root = testRoot();
		root.lay(bob, "new", name, envelopeText());
		for (const one of [name, nameOf(1)]) root.lay(bob, "cur", `${one}.open`, "");
		const others = ["notes.open", "x.json.open.1234", "x.json.reason"];
		for (const one of others) root.lay(bob, "cur", one, "");
		expect([root.start(bob).left, root.names(bob, "cur"), root.names(bob, "new")]).toEqual([[], others, [name]]);
	});

	test("L6 is found without reading the mail that is closed", () => {
		const root = testRoot();
		for (let n = 0; n < 50; n++) root.lay(bob, "cur", nameOf(n), envelopeText());
		root.start(bob);
		const reads: string[] = [];
		root.start(
			bob,
			watchedDisk((operation) => operation.name === "read" && reads.push(operation.paths[0] ?? "")),
		);
		expect(reads).toEqual([join(root.boxes(bob).folder, "state.json")]);
	});
});

describe("a copy in sent/", () => {
	test("PSM-052 is found by the id inside it, whether its mail is answered or not", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		const id = sent(mailbox, { body: "x" });
		const path = join(root.boxes(alice).sent, nameOf(startMs, id));
		expect(mailbox.sentCopies([id])[0]).toMatchObject({ path, envelope: { id, body: "x" } });
		mailbox.answered([id]);
		expect(mailbox.sentCopies([id])[0]).toMatchObject({ path });
		expect(root.start(alice).mailbox.sentCopies([id])[0]).toMatchObject({ path });
	});

	test.each(hostile)(
		"PSM-018 PSM-052 may be $what: it is the copy only when it is a mail with this id",
		({ lay, kind }) => {
			const root = testRoot();
			const mailbox = root.open(alice);
			const { sent } = root.boxes(alice);
			lay(join(sent, name));
			expect(mailbox.sentCopies([mailId])[0]?.envelope.kind).toBe(kind);
			renameSync(join(sent, name), join(sent, nameOf(startMs, otherId)));
			expect([mailbox.sentCopies([mailId])[0], mailbox.sentCopies([otherId])[0]]).toEqual([undefined, undefined]);
		},
	);

	test.each(["", "../new/x", "__proto__", "constructor", ".json", mailId.slice(1), `/${mailId}`])(
		"I-PSM-8 is not looked for when what is named is no id: %j",
		(id) => {
			const root = testRoot();
			let looked = 0;
			const mailbox = root.open(alice, { disk: watchedDisk(() => looked++) });
			root.lay(alice, "sent", name, envelopeText());
			looked = 0;
			expect([mailbox.sentCopies([id])[0], looked]).toEqual([undefined, 0]);
		},
	);

	test("design 4.10 is found though state.json has another name for it", () => {
		const root = testRoot();
		root.lay(alice, "sent", name, envelopeText());
		const state = { stamp: 1, counted: "", awaiting: { [mailId]: "../../elsewhere.json" } };
		writeFileSync(join(root.boxes(alice).folder, "state.json"), JSON.stringify(state));
		expect(root.open(alice).sentCopies([mailId])[0]).toMatchObject({ envelope: { id: mailId } });
	});

	test("PSM-052 is found also when the disk did not let it have its name", () => {
		const root = testRoot();
		const mailbox = root.open(alice, {
			disk: watchedDisk(({ name, paths }) => name === "rename" && paths[0]?.endsWith(".part") && fail("EIO")),
		});
		const id = sent(mailbox, { body: "x" });
		const path = join(root.boxes(alice).sent, `${nameOf(startMs, id)}.part`);
		expect(mailbox.sentCopies([id])).toEqual([{ path, envelope: expect.objectContaining({ id, body: "x" }) }]);
	});

	test("L6 of a mail that waits for its answer is found without listing sent/", () => {
		const root = testRoot();
		const looked: string[] = [];
		const disk = watchedDisk(
			(operation) => /^(list|walk)$/.test(operation.name) && looked.push(operation.paths[0] ?? ""),
		);
		const mailbox = root.open(alice, { disk });
		const id = sent(mailbox);
		looked.length = 0;
		expect([mailbox.sentCopies([id])[0]?.envelope.id, looked]).toEqual([id, []]);
	});
});

describe("how many answers are awaited", () => {
	test("PSM-039 is the number of requests and asks that nobody answered, over restarts", () => {
		const root = testRoot();
		const { mailbox } = root.start(alice);
		const ids = (["request", "ask", "message", "reply", "request"] as const).map((kind) => sent(mailbox, { kind }));
		expect(mailbox.awaitingCount()).toBe(3);
		mailbox.answered([ids[0] ?? "", ids[2] ?? "", "__proto__", otherId]);
		expect(mailbox.awaitingCount()).toBe(2);
		mailbox.saveState();
		expect([root.open(alice), root.start(alice).mailbox].map((one) => one.awaitingCount())).toEqual([2, 2]);
	});

	test.each([
		["PSM-039 after state.json was lost", (file: string) => unlinkSync(file)],
		["design 4.10 after state.json was broken", (file: string) => writeFileSync(file, "{")],
	])("%s is counted again: copies less what cur/ answers", (_, harm) => {
		const root = testRoot();
		const mailbox = root.open(alice);
		const [first] = [sent(mailbox), sent(mailbox, { kind: "message" }), sent(mailbox, { kind: "ask" })];
		mailbox.saveState();
		root.lay(
			alice,
			"cur",
			nameOf(1, otherId),
			envelopeText({ from: bob, to: alice, kind: "reply", in_reply_to: [first] }),
		);
		harm(join(root.boxes(alice).folder, "state.json"));
		const { mailbox: again } = root.start(alice);
		expect(again.awaitingCount()).toBe(1);
		expect(root.open(alice).awaitingCount()).toBe(1);
	});

	test("PSM-039 includes what was sent after the last save", () => {
		const root = testRoot();
		const { mailbox } = root.start(alice);
		sent(mailbox);
		expect(root.open(alice).awaitingCount()).toBe(0);
		expect(root.start(alice).mailbox.awaitingCount()).toBe(1);
	});

	test("PSM-039 includes what was sent after the last save when a clock had been days ahead", () => {
		const root = testRoot();
		root.clockMs += 3 * dayMs;
		const { mailbox } = root.start(alice);
		sent(mailbox, { kind: "message" });
		mailbox.saveState();
		root.clockMs = startMs;
		sent(mailbox);
		expect(root.start(alice).mailbox.awaitingCount()).toBe(1);
	});

	test("PSM-039 leaves out what was answered before a start had looked at every copy", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		const id = sent(mailbox);
		root.lay(
			alice,
			"new",
			nameOf(1, otherId),
			envelopeText({ from: bob, to: alice, kind: "reply", in_reply_to: [id] }),
		);
		claimed(mailbox.claim(nameOf(1, otherId)));
		mailbox.answered([id]);
		mailbox.saveState();
		expect(root.start(alice).mailbox.awaitingCount()).toBe(0);
	});

	test("L8 counts as answered only what the session answered that was asked", () => {
		const root = testRoot();
		const id = sent(root.open(alice));
		const reply = (from: string) => envelopeText({ id: otherId, from, to: alice, kind: "reply", in_reply_to: [id] });
		root.lay(alice, "cur", nameOf(1, otherId), reply(carol));
		rmSync(join(root.boxes(alice).folder, "state.json"));
		expect(root.start(alice).mailbox.awaitingCount()).toBe(1);
		root.lay(alice, "cur", nameOf(2, otherId), reply(bob));
		rmSync(join(root.boxes(alice).folder, "state.json"));
		expect(root.start(alice).mailbox.awaitingCount()).toBe(0);
	});

	test("PSM-039 D7 leaves out what was answered when a process looks again, as at a takeover", () => {
		const root = testRoot();
		const { mailbox } = root.start(alice);
		mailbox.answered([sent(mailbox)]);
		expect([[...mailbox.recount()].filter((warning) => warning !== undefined), mailbox.awaitingCount()]).toEqual([
			[],
			0,
		]);
	});

	test.each(hostile)("PSM-018 L2 is right though $what lies in sent/ and cur/, and nothing hangs", ({ lay, kind }) => {
		const root = testRoot();
		sent(root.open(alice), { id: otherId });
		lay(join(root.boxes(alice).sent, name));
		lay(join(root.boxes(alice).cur, nameOf(1)));
		expect(root.start(alice).mailbox.awaitingCount()).toBe(kind === "request" ? 2 : 1);
	});

	test("PSM-018 L2 is right though what lies in sent/ and cur/ cannot be opened at all, such as a socket", () => {
		const root = testRoot();
		sent(root.open(alice), { id: otherId });
		for (const box of ["sent", "cur"] as const) mkdirSync(join(root.boxes(alice)[box], name));
		const disk = watchedDisk(({ name: what, paths }) => what === "read" && paths[0]?.endsWith(name) && fail("ENXIO"));
		expect(root.start(alice, disk).mailbox.awaitingCount()).toBe(1);
	});

	test("PSM-039 leaves out a mail whose copy is gone, and no other", () => {
		const root = testRoot();
		const { mailbox } = root.start(alice);
		const [removed] = [sent(mailbox), sent(mailbox)];
		mailbox.saveState();
		unlinkSync(join(root.boxes(alice).sent, nameOf(startMs, removed)));
		expect(root.start(alice).mailbox.awaitingCount()).toBe(1);
	});

	test("PSM-039 includes a mail of which cannot be told yet whether it was sent", () => {
		const root = testRoot();
		const faults = faultyDisk();
		const mailbox = root.open(alice, { disk: faults.disk });
		faults.failWith((_, { name, paths: [path] }) =>
			(name === "rename" || name === "read") && path?.endsWith(".part") ? "EIO" : undefined,
		);
		sent(mailbox);
		expect([...mailbox.recount()].filter((warning) => warning !== undefined)).toHaveLength(1);
		expect(mailbox.awaitingCount()).toBe(1);
	});

	test("L6 a start reads no copy that an earlier one counted", () => {
		const root = testRoot();
		for (let n = 0; n < 50; n++) root.lay(alice, "sent", nameOf(n), envelopeText({ from: alice }));
		root.lay(alice, "sent", `${mailId}.receipt`, "");
		root.start(alice);
		const reads: string[] = [];
		root.start(
			alice,
			watchedDisk((operation) => operation.name === "read" && reads.push(operation.paths[0] ?? "")),
		);
		expect(reads).toEqual([join(root.boxes(alice).folder, "state.json")]);
	});
});

describe("a copy that was not finished", () => {
	const part = `${name}.part`;

	test.each(["new", "cur"] as const)("L2 PSM-021 becomes the copy when its mail is in the recipient's %s/", (box) => {
		const root = testRoot();
		root.lay(bob, box, name, envelopeText());
		root.lay(alice, "sent", part, envelopeText());
		const { mailbox, warnings } = root.start(alice);
		expect([root.names(alice, "sent"), warnings, mailbox.awaitingCount()]).toEqual([[name], [], 1]);
		expect(root.start(alice).warnings).toEqual([]);
	});

	test("L4 is removed when its recipient's mailbox was pruned, and not said to be unsent: nobody can tell", () => {
		const root = testRoot();
		root.lay(alice, "sent", part, envelopeText());
		expect([root.start(alice).warnings, root.names(alice, "sent")]).toEqual([
			[`whether a mail was sent cannot be told any more, since its recipient's mailbox is gone (${name})`],
			[],
		]);
	});

	test.each(["", ".part"])(
		"D28 of a mail that a process took back before it ended the copy%s says so, and what others write here stays",
		(end) => {
			const root = testRoot();
			root.lay(alice, "tmp", name, envelopeText());
			root.lay(alice, "sent", `${name}${end}`, envelopeText());
			const written = nameOf(startMs, otherId);
			root.lay(alice, "tmp", written, envelopeText({ id: otherId, from: bob, to: alice }));
			const { mailbox, warnings } = root.start(alice);
			expect([root.names(alice, "sent"), root.names(alice, "tmp")]).toEqual([[`${name}.retracted`], [written]]);
			expect([mailbox.awaitingCount(), warnings]).toEqual([0, []]);
		},
	);

	test("D28 a mail is there with its copy, or its copy says that it was taken back, after a kill at any moment at which it is taken back", () => {
		for (let n = 1; ; n++) {
			const root = testRoot();
			const faults = faultyDisk();
			const mailbox = root.open(alice, { disk: faults.disk });
			const outcome = mailbox.deliver(draft());
			if (!outcome.ok) throw new Error(outcome.message);
			faults.dieAt(n);
			try {
				mailbox.retract(outcome);
			} catch (error) {
				expect(String(error)).toContain("made to fail");
			}
			const left = root.names(bob, "new");
			const { mailbox: again, warnings } = root.start(alice);
			const copy = left.length > 0 ? outcome.name : `${outcome.name}.retracted`;
			expect([root.names(alice, "sent"), root.names(alice, "tmp"), warnings]).toEqual([[copy], [], []]);
			expect(again.awaitingCount()).toBe(left.length);
			if (faults.failed === undefined) return expect(left).toEqual([]);
		}
	});

	test("D28 a mail is taken back also when its copy cannot be renamed now: the next start does", () => {
		const root = testRoot();
		const faults = faultyDisk();
		const mailbox = root.open(alice, { disk: faults.disk });
		const outcome = mailbox.deliver(draft());
		if (!outcome.ok) throw new Error(outcome.message);
		faults.failWith((_, { name, paths }) =>
			name === "rename" && paths[1]?.endsWith(".retracted") ? "EIO" : undefined,
		);
		expect([mailbox.retract(outcome), mailbox.awaitingCount()]).toEqual([true, 0]);
		const kept = [`${outcome.name}.retracted`];
		expect([root.start(alice).mailbox.awaitingCount(), root.names(alice, "sent")]).toEqual([0, kept]);
	});

	test("L4 is gone with a mail that is taken back", () => {
		const root = testRoot();
		const mailbox = root.open(alice, {
			disk: watchedDisk(({ name, paths }) => name === "rename" && paths[0]?.endsWith(".part") && fail("EIO")),
		});
		const sent = mailbox.deliver(draft());
		if (!sent.ok) throw new Error(sent.message);
		expect(mailbox.retract(sent)).toBe(true);
		expect(root.start(alice).warnings).toEqual([]);
	});

	test.each([
		["whole", envelopeText()],
		["half written", envelopeText().slice(0, 50)],
		["half written, to the middle of a character", Buffer.from('{"body":"\u{1f600}').subarray(0, -1)],
		["empty", ""],
	])("L4 I-PSM-3 is removed when its mail is nowhere, and said not to be sent: %s", (_, text) => {
		const root = testRoot();
		root.open(bob);
		root.lay(alice, "sent", part, text);
		const { mailbox, warnings } = root.start(alice);
		expect(warnings).toEqual([
			`a mail was not sent, since the session ended while it was being written (${name}); send it again`,
		]);
		expect([root.names(alice, "sent"), mailbox.awaitingCount(), root.start(alice).warnings]).toEqual([[], 0, []]);
	});

	test.each(hostile.filter(({ result }) => result !== "claimed"))(
		"PSM-018 L2 may be $what: a start is not held up, and mends the others",
		({ lay }) => {
			const root = testRoot();
			root.open(alice);
			lay(join(root.boxes(alice).sent, part));
			for (let n = 0; n < 3; n++) {
				const [one, id] = [nameOf(n, `${n}${otherId.slice(1)}`), `${n}${otherId.slice(1)}`];
				root.lay(bob, "new", one, envelopeText({ id }));
				root.lay(alice, "sent", `${one}.part`, envelopeText({ id }));
			}
			expect(root.start(alice).mailbox.awaitingCount()).toBe(3);
		},
	);
});

describe("I-PSM-1 I-PSM-2 L2 a mail that is being claimed", () => {
	const texts = [
		{ what: "a mail", text: envelopeText(), isDead: false },
		{ what: "no mail", text: "rubbish", isDead: true },
	];
	const at = (operation: Operation | undefined, code = "") =>
		`${code} at ${operation?.name} ${operation?.paths.join(" ")}`;

	function prepare(text: string) {
		const root = testRoot();
		root.lay(bob, "new", name, text);
		const faults = faultyDisk();
		return { root, faults, inbox: root.open(bob, { disk: faults.disk }) };
	}

	/** Where the mail is now: still in `new/`, in `cur/` with its mark, or set aside there with its reason. */
	function fate(root: TestRoot): string {
		const cur = root.names(bob, "cur");
		const mails = [...root.names(bob, "new"), ...cur.filter((one) => one.endsWith(".json"))];
		if (mails.join() !== name) return `lost or doubled: ${mails.join()}`;
		if (!cur.includes(name)) return "waiting";
		return cur.includes(`${name}.open`) ? "open" : cur.includes(`${name}.reason`) ? "set aside" : "lost";
	}

	/** What the next start makes of it. */
	function atNextStart(root: TestRoot): string[] {
		const { mailbox, left } = root.start(bob);
		return [...left, ...mailbox.waiting().map(mailbox.claim)].map(({ result }) => result);
	}

	test.each(texts.flatMap((text) => faultCodes.map((code) => ({ ...text, code }))))(
		"waits still, or lies in cur/ with its mark, whichever operation fails with $code ($what)",
		({ text, isDead, code }) => {
			for (let n = 1; ; n++) {
				const { root, faults, inbox } = prepare(text);
				faults.failAt(n, code);
				let result: string;
				try {
					result = inbox.claim(name).result;
				} catch (error) {
					result = String(error);
				}
				faults.heal();
				const where = at(faults.failed, code);
				// What a read says of the file, and not of the machine, is a reason to set it aside.
				const failed = faults.failed?.name;
				// What could not be set aside for good keeps its mark, and is set aside at the next start.
				const keepsMark = failed === "replace" || failed === "remove";
				const isSetAside = result === "dead" && !keepsMark && (isDead || (failed === "read" && !isTemporary(code)));
				const fates = result === "claimed" ? ["open"] : isSetAside ? ["set aside"] : ["waiting", "open"];
				expect(fates, where).toContain(fate(root));
				expect(atNextStart(root), where).toEqual(isSetAside ? [] : [isDead ? "dead" : "claimed"]);
				expect(fate(root), where).toBe(isDead || isSetAside ? "set aside" : "open");
				if (faults.failed === undefined) return expect(result).toBe(isDead ? "dead" : "claimed");
			}
		},
	);

	test.each(texts)(
		"waits still, or lies in cur/ with its mark, after a kill at any moment ($what)",
		({ text, isDead }) => {
			for (let n = 1; ; n++) {
				const { root, faults, inbox } = prepare(text);
				faults.dieAt(n);
				try {
					inbox.claim(name);
				} catch {
					// The process is gone.
				}
				const where = at(faults.failed);
				const before = fate(root);
				expect(isDead ? ["waiting", "open", "set aside"] : ["waiting", "open"], where).toContain(before);
				expect(atNextStart(root), where).toEqual(before === "set aside" ? [] : [isDead ? "dead" : "claimed"]);
				expect(fate(root), where).toBe(isDead ? "set aside" : "open");
				if (faults.failed === undefined) return;
			}
		},
	);

	test.each([true, false])(
		"PSM-042 goes to one of two that claim it at the same instant (the other one closes it: %s)",
		(closes) => {
			for (let n = 1; ; n++) {
				const root = testRoot();
				root.lay(bob, "new", name, envelopeText());
				const interrupted = interruptedDisk();
				const inbox = root.open(bob, { disk: interrupted.disk });
				const claims: Claim[] = [];
				interrupted.arm(n, () => {
					const second = root.open(bob);
					claims.push(second.claim(name));
					if (closes && claims[0]?.result === "claimed") second.close(name);
				});
				claims.push(inbox.claim(name));
				if (!interrupted.acted) return;
				expect(claims.map((claim) => claim.result).sort(), String(n)).toEqual(["claimed", "gone"]);
				expect([root.names(bob, "new"), root.names(bob, "cur").filter((one) => one.endsWith(".json"))]).toEqual([
					[],
					[name],
				]);
				// Who did not close it may still need it: the next start must find it.
				if (!closes || claims[1]?.result === "claimed") expect(idsLeftOpen(root), String(n)).toEqual([mailId]);
			}
		},
	);

	test("keeps the mark of who claims it at the same instant when this claim fails", () => {
		const root = testRoot();
		root.lay(bob, "new", name, envelopeText());
		root.lay(bob, "cur", `${name}.open`, "");
		const inbox = root.open(bob, { disk: watchedDisk((operation) => operation.name === "rename" && fail("EIO")) });
		expect(() => inbox.claim(name)).toThrow("EIO");
		expect(root.names(bob, "cur")).toEqual([`${name}.open`]);
	});

	test("D28 is claimed or taken back, never both, when its sender takes it back at the same instant", () => {
		for (let n = 1; ; n++) {
			const root = testRoot();
			root.open(alice);
			root.lay(bob, "new", name, envelopeText());
			const interrupted = interruptedDisk();
			const inbox = root.open(bob, { disk: interrupted.disk });
			let isTakenBack = false;
			interrupted.arm(n, () => {
				if (!existsSync(join(root.boxes(bob).new, name))) return;
				renameSync(join(root.boxes(bob).new, name), join(root.boxes(alice).tmp, name));
				isTakenBack = true;
			});
			const { result } = inbox.claim(name);
			if (!interrupted.acted) return;
			expect(result, String(n)).toBe(isTakenBack ? "gone" : "claimed");
			expect(root.names(bob, "cur"), String(n)).toEqual(isTakenBack ? [] : [name, `${name}.open`]);
		}
	});
});

describe("L2 a start", () => {
	/** Alice's boxes with one of everything that a start has to put in order. */
	function prepare(): TestRoot {
		const root = testRoot();
		const ids = [0, 1, 2, 3].map((n) => `${n}${mailId.slice(1)}`);
		const [open, dead, finished, unsent] = ids.map((id, n) => nameOf(n, id));
		root.open(alice);
		root.open(bob);
		for (const [one, text] of [
			[open, envelopeText({ id: ids[0], to: alice, from: bob })],
			[dead, "rubbish"],
		] as const) {
			root.lay(alice, "cur", one ?? "", text);
			root.lay(alice, "cur", `${one}.open`, "");
		}
		root.lay(alice, "cur", "000-marked-only.json.open", "");
		root.lay(bob, "new", finished ?? "", envelopeText({ id: ids[2] }));
		root.lay(alice, "sent", `${finished}.part`, envelopeText({ id: ids[2] }));
		root.lay(alice, "sent", `${unsent}.part`, envelopeText({ id: ids[3] }));
		return root;
	}

	/** What is there after a start that was not disturbed. */
	function state(root: TestRoot) {
		const { mailbox, left } = root.start(alice);
		const cur = root.names(alice, "cur");
		return {
			left: left.map((claim) => claim.result),
			cur,
			sent: root.names(alice, "sent"),
			awaiting: mailbox.awaitingCount(),
		};
	}

	test.each([...faultCodes, "kill"])("that is cut short anywhere (%s) is made good by the next one", (code) => {
		const calm = prepare();
		calm.start(alice);
		const expected = state(calm);
		expect(expected).toMatchObject({ left: ["claimed"], awaiting: 1 });
		expect([expected.cur.length, expected.sent.length]).toEqual([4, 1]);
		for (let n = 1; ; n++) {
			const root = prepare();
			const faults = faultyDisk();
			if (code === "kill") faults.dieAt(n);
			else faults.failAt(n, code);
			try {
				root.start(alice, faults.disk);
			} catch (error) {
				expect(String(error)).toContain("made to fail");
			}
			// A read that fails for good sets its mail aside.
			if (faults.failed?.name === "read" && !isTemporary(code) && code !== "kill") continue;
			root.start(alice);
			expect(state(root), `${code} at ${faults.failed?.name} ${faults.failed?.paths.join(" ")}`).toEqual(expected);
			if (faults.failed === undefined) return;
		}
	});
});

describe("two processes", () => {
	const run = promisify(execFile);
	const mailboxModule = JSON.stringify(new URL("../../src/mail/mailbox.ts", import.meta.url).href);
	const diskModule = JSON.stringify(new URL("../../src/mail/disk.ts", import.meta.url).href);

	/** Runs code with `open(address)` in processes that begin at the same moment, and returns what each printed. */
	async function together(root: TestRoot, addresses: string[], code: string): Promise<string[]> {
		const script = `
			import { existsSync, writeFileSync } from "node:fs";
			import { nodeDisk } from ${diskModule};
			import { openMailbox } from ${mailboxModule};
			const [root, address, gate, me, all] = process.argv.slice(1);
			const open = (address) => openMailbox({ disk: nodeDisk(), root, address, now: Date.now, isDurable: () => false });
			writeFileSync(gate + me, "");
			while (![...Array(Number(all)).keys()].every((other) => existsSync(gate + other)));
			${code}
		`;
		const gate = join(root.path, "..", "gate");
		const outputs = await Promise.all(
			addresses.map((address, me) => {
				const args = [
					"--input-type=module",
					"-e",
					script,
					root.path,
					address,
					gate,
					String(me),
					String(addresses.length),
				];
				return run(process.execPath, args);
			}),
		);
		return outputs.map(({ stdout }) => stdout.trim());
	}

	test("L2 that send to one new mailbox at the same time lose nothing, and leave nothing half done", async () => {
		const root = testRoot();
		const code = `
			const mailbox = open(address);
			for (let n = 0; n < 100; n++) {
				const outcome = mailbox.deliver({ to: "${bob}", kind: "request", body: String(n), hops: 0 });
				if (!outcome.ok) console.log(outcome.message);
			}`;
		expect(await together(root, [alice, carol], code)).toEqual(["", ""]);
		expect([root.names(bob, "new").length, root.names(bob, "tmp")]).toEqual([200, []]);
		const inbox = root.open(bob);
		for (const from of [alice, carol]) {
			const bodies = inbox
				.waiting()
				.map(inbox.peek)
				.flatMap((mail) => (mail?.from === from ? [mail.body] : []));
			expect(bodies).toEqual([...Array(100).keys()].map(String));
			expect(root.names(from, "sent")).toHaveLength(100);
		}
	});

	test("PSM-042 that claim from one inbox at the same time get each mail once", async () => {
		const root = testRoot();
		const mailbox = root.open(alice, { durability: "fast" });
		for (let n = 0; n < 200; n++) sent(mailbox);
		const names = root.names(bob, "new");
		const code = `
			const mailbox = open(address);
			for (let names = mailbox.waiting(); names.length > 0; names = mailbox.waiting())
				for (const name of names) if (mailbox.claim(name).result === "claimed") console.log(name);`;
		const claims = (await together(root, [bob, bob], code)).map((output) =>
			output.split("\n").filter((one) => one !== ""),
		);
		expect(claims.flat().sort()).toEqual(names);
		expect(idsLeftOpen(root)).toHaveLength(200);
	});
});
