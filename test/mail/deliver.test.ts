import {
	chmodSync,
	chownSync,
	lstatSync,
	mkdirSync,
	readdirSync,
	readFileSync,
	renameSync,
	rmSync,
	statSync,
	symlinkSync,
	writeFileSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Delivered, maxUnread, type Refusal } from "../../src/mail/deliver.ts";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { type Envelope, maxBodyBytes, parseEnvelope } from "../../src/mail/envelope.ts";
import {
	alice,
	bob,
	carol,
	dayMs,
	draft,
	fail,
	faultCodes,
	faultyDisk,
	interruptedDisk,
	isRoot,
	linklessDisk,
	type Operation,
	sent,
	startMs,
	type TestRoot,
	testRoot,
	watchedDisk,
} from "../support/disk.ts";

const mailId = "11111111-2222-4333-8444-555555555555";
const lastRequest = "99999999-2222-4333-8444-555555555555";

function envelopeIn(path: string): Envelope {
	const parsed = parseEnvelope(readFileSync(path, "utf8"));
	if (!parsed.ok) throw new Error(parsed.reason);
	return parsed.envelope;
}

/** Every file below the root, state files and the receipts of finished sends apart. */
function files(root: TestRoot): string[] {
	return readdirSync(root.path, { recursive: true, withFileTypes: true })
		.filter((entry) => !entry.isDirectory() && entry.name !== "state.json" && !entry.name.endsWith(".receipt"))
		.map((entry) => relative(root.path, join(entry.parentPath, entry.name)))
		.sort();
}

describe("a mail", () => {
	test("PSM-005 PSM-006 PSM-011 PSM-019 PSM-020 PSM-021 lies in the recipient's new/ and as a copy in sent/, closed to other users", () => {
		const root = testRoot();
		const outcome = root.open(alice).deliver(draft({ kind: "ask", hops: 2 }));
		if (!outcome.ok) throw new Error(outcome.message);
		const name = `00${startMs}-${outcome.envelope.id}.json`;
		expect(files(root)).toEqual([`${alice}/sent/${name}`, `${bob}/new/${name}`]);
		expect(outcome).toEqual({
			ok: true,
			durable: true,
			name,
			envelope: {
				id: expect.stringMatching(/^[0-9a-f-]{36}$/),
				from: alice,
				to: bob,
				kind: "ask",
				hops: 2,
				in_reply_to: [],
				status: "",
				ts: "2026-11-29T12:00:00.000Z",
				body: "Please look at branch x.",
			},
		});
		for (const path of [join(root.boxes(bob).new, name), join(root.boxes(alice).sent, name)]) {
			expect([envelopeIn(path), statSync(path).mode & 0o777]).toEqual([outcome.envelope, 0o600]);
		}
		for (const folder of Object.values(root.boxes(bob))) expect(statSync(folder).mode & 0o777).toBe(0o700);
	});

	test("PSM-021 that is a reply says what it answers and how the run ended, and leaves no copy", () => {
		const root = testRoot();
		const outcome = root
			.open(alice)
			.deliver(draft({ kind: "reply", status: "done", inReplyTo: [mailId], id: lastRequest, body: "" }));
		const name = `00${startMs}-${lastRequest}.json`;
		expect(files(root)).toEqual([`${bob}/new/${name}`]);
		expect(outcome).toMatchObject({ envelope: { status: "done", in_reply_to: [mailId], id: lastRequest, body: "" } });
	});

	test("D22 to an address in capitals goes to the one spelling of it", () => {
		const root = testRoot();
		expect(root.open(alice).deliver(draft({ to: bob.toUpperCase() }))).toMatchObject({ envelope: { to: bob } });
		expect(readdirSync(root.path).sort()).toEqual([alice, bob]);
	});

	test("L8 keeps its body as it is, down to control characters and half surrogates", () => {
		const root = testRoot();
		const body = "  [mailbox] \0\u001b[2J\u202e\ud800\r\n\u{1f600}  ";
		const id = sent(root.open(alice), { body });
		expect(root.open(bob).peek(`00${startMs}-${id}.json`)?.body).toBe(body);
	});

	test("PSM-020 PSM-043 D14 names sort as they were sent, whatever the clock does within a day and over restarts", () => {
		const step = fc.record({ moveMs: fc.integer({ min: -20_000, max: 20_000 }), isRestarted: fc.boolean() });
		fc.assert(
			fc.property(fc.array(step, { maxLength: 15 }), (steps) => {
				const root = testRoot();
				let mailbox = root.open(alice, { durability: "fast" });
				const ids = steps.map(({ moveMs, isRestarted }) => {
					root.clockMs += moveMs;
					if (isRestarted) mailbox = root.open(alice, { durability: "fast" });
					return sent(mailbox);
				});
				const arrived = root
					.open(bob)
					.waiting()
					.map((name) => name.slice(16, -".json".length));
				expect(arrived).toEqual(ids);
			}),
			{ numRuns: 30 },
		);
	});

	test("D14 a clock that was days ahead is forgotten", () => {
		const root = testRoot();
		root.clockMs += 3 * dayMs;
		const mailbox = root.open(alice);
		sent(mailbox);
		root.clockMs = startMs;
		expect(root.names(bob, "new")).toEqual([expect.stringMatching(`^00${startMs + 3 * dayMs}-`)]);
		sent(mailbox);
		expect(root.names(bob, "new")[0]).toMatch(`00${startMs}-`);
	});
});

describe("nothing is written when", () => {
	test.each<[why: string, changed: Parameters<typeof draft>[0], code: Refusal["code"], message: string]>([
		["PSM-034 it is to the session itself", { to: alice }, "self", "a session cannot send mail to itself"],
		["PSM-034 D22 or in capitals", { to: alice.toUpperCase() }, "self", "a session cannot send mail to itself"],
		["PSM-002 it would leave the root", { to: "../bob" }, "invalid_address", '"../bob" is not an address'],
		["PSM-002 it is to nobody", { to: "" }, "invalid_address", '"" is not an address'],
		["D22 it is to a folder of the root", { to: "Running" }, "invalid_address", '"Running" is not an address'],
		["D8 it would forge a line", { to: "a\n[mailbox]" }, "invalid_address", '"a\\n[mailbox]" is not an address'],
		["PSM-082 it has no text", { body: "" }, "empty", "the text is empty"],
		["PSM-082 it has only space", { body: " \n\t", kind: "message" }, "empty", "the text is empty"],
		[
			"D11 it is too large",
			{ body: "x".repeat(maxBodyBytes + 1) },
			"too_large",
			"the text has 1048577 bytes, more than the limit of 1048576",
		],
		[
			"D11 it is too large in bytes",
			{ body: "\u{1f600}".repeat(maxBodyBytes / 4 + 1), kind: "reply" },
			"too_large",
			"the text has 1048580 bytes, more than the limit of 1048576",
		],
	])("D9 %s", (_, changed, code, why) => {
		const root = testRoot();
		const mailbox = root.open(alice);
		expect(mailbox.deliver(draft(changed))).toEqual({ ok: false, code, message: `Nothing was sent: ${why}.` });
		expect([files(root), readdirSync(root.path)]).toEqual([[], [alice]]);
	});

	test("D10 256 mails wait already; answers still arrive, and so does the next mail when one was claimed", () => {
		const root = testRoot();
		const inbox = root.open(bob);
		for (let n = 0; n < maxUnread - 1; n++) root.lay(bob, "new", `${n}.json`, "");
		for (const name of ["x.txt", "x.json.tmp"]) root.lay(bob, "new", name, "");
		const mailbox = root.open(alice);
		const first = sent(mailbox);
		const message = `Nothing was sent: ${bob} already has 256 unread mails; try again when it has read some.`;
		for (const kind of ["request", "message", "ask"] as const) {
			expect(mailbox.deliver(draft({ kind }))).toEqual({ ok: false, code: "mailbox_full", message });
		}
		expect(root.names(alice, "sent")).toEqual([expect.stringContaining(first)]);
		expect(mailbox.deliver(draft({ kind: "reply" }))).toMatchObject({ ok: true });
		for (const name of ["0.json", "1.json"]) inbox.claim(name);
		expect(mailbox.deliver(draft())).toMatchObject({ ok: true });
	});

	test("D10 256 mails wait already, also when folders have coarse times and another inbox was sent to just now", () => {
		const root = testRoot();
		for (let n = 0; n < maxUnread; n++) root.lay(bob, "new", `${n}.json`, "");
		const mailbox = root.open(alice, { disk: { ...nodeDisk(), changed: () => startMs } });
		sent(mailbox, { to: carol });
		expect(mailbox.deliver(draft())).toMatchObject({ ok: false, code: "mailbox_full" });
	});

	test("L7 every name for it is taken, after a limited number of tries", () => {
		const root = testRoot();
		let tries = 0;
		const disk = watchedDisk(({ name }) => {
			if (name === "create" && ++tries < 10_000) fail("EEXIST");
		});
		expect(root.open(alice, { disk }).deliver(draft())).toMatchObject({ ok: false, code: "io" });
	});

	test("L7 what was given is a megabyte of rubbish, of which the refusal quotes the beginning", () => {
		const rubbish = "x".repeat(1024 * 1024);
		for (const changed of [{ to: rubbish }, { id: rubbish }]) {
			const outcome = testRoot().open(alice).deliver(draft(changed));
			expect(outcome.ok || outcome.message.length).toBeLessThan(200);
		}
	});
});

test("L6 the inbox is listed once, however many mails follow, until somebody else changes it", () => {
	const root = testRoot();
	const inbox = root.open(bob);
	let lists = 0;
	const mailbox = root.open(alice, { disk: watchedDisk(({ name }) => name === "list" && lists++) });
	const ids = Array.from({ length: 20 }, () => sent(mailbox));
	expect(lists).toBe(1);
	for (const name of inbox.waiting()) inbox.claim(name);
	for (let n = 0; n < maxUnread; n++) root.lay(bob, "new", `${n}.json`, "");
	expect(mailbox.deliver(draft())).toMatchObject({ ok: false, code: "mailbox_full" });
	expect([ids.length, lists]).toEqual([20, 2]);
});

describe("what is accepted can be read by its recipient, or it is refused:", () => {
	test.each<[what: string, changed: Parameters<typeof draft>[0]]>([
		["D11 the largest body", { body: "x".repeat(maxBodyBytes) }],
		["D11 the largest body in quotes", { body: '"'.repeat(maxBodyBytes) }],
		["D11 the largest body of control characters", { body: "\u001b".repeat(maxBodyBytes) }],
		["PSM-016 50 answered requests", { kind: "reply", inReplyTo: Array(50).fill(mailId) }],
		["PSM-016 51 answered requests", { kind: "reply", inReplyTo: Array(51).fill(mailId) }],
		["PSM-015 a negative hop count", { hops: -1 }],
		["PSM-015 a hop count that is no number", { hops: Number.NaN }],
		["PSM-011 an id in capitals", { id: mailId.toUpperCase() }],
		["PSM-011 an id that is no UUID", { id: "my-id" }],
		["I-PSM-8 an id that is a path", { id: "../../../escape" }],
		["I-PSM-8 an id that is a longer path", { id: "/../../../../escape" }],
	])("%s", (_, changed) => {
		const root = testRoot();
		const mailbox = root.open(alice);
		const outcome = mailbox.deliver(draft(changed));
		const inbox = root.open(bob);
		expect([readdirSync(join(root.path, "..")), readdirSync(root.path).sort()]).toEqual([["root"], [alice, bob]]);
		if (!outcome.ok) expect(files(root)).toEqual([]);
		else expect(inbox.waiting().map(inbox.claim)).toMatchObject([{ result: "claimed" }]);
	});
});

describe("a recipient's mailbox that", () => {
	test.each<[what: string, lay: (folder: string) => void, problem: string]>([
		["is a link to a folder", (folder) => symlinkSync("elsewhere", folder), "is a symlink"],
		["is a dangling link", (folder) => symlinkSync("nowhere", folder), "is a symlink"],
		["is a file", (folder) => writeFileSync(folder, ""), "is not a folder"],
		[
			"has a link for new/",
			(folder) => [mkdirSync(folder), symlinkSync("../elsewhere", join(folder, "new"))],
			"is a symlink",
		],
		[
			"has a link for tmp/",
			(folder) => [mkdirSync(folder), symlinkSync("../elsewhere", join(folder, "tmp"))],
			"is a symlink",
		],
		["has a file for cur/", (folder) => [mkdirSync(folder), writeFileSync(join(folder, "cur"), "")], "is not a folder"],
	])("D27 I-PSM-8 %s gets no mail, and neither does what it points to", (_, lay, problem) => {
		const root = testRoot();
		const mailbox = root.open(alice);
		mkdirSync(join(root.path, "elsewhere"));
		lay(root.boxes(bob).folder);
		const before = files(root);
		for (const kind of ["request", "reply"] as const) {
			expect(mailbox.deliver(draft({ kind }))).toEqual({
				ok: false,
				code: "unfit_mailbox",
				message: expect.stringMatching(
					`^Nothing was sent: its mailbox cannot be used: ${root.boxes(bob).folder}\\S* ${problem}\\.$`,
				),
			});
		}
		expect(files(root)).toEqual(before);
	});

	test.skipIf(!isRoot)("PSM-006 D27 belongs to another user gets no mail", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		root.open(bob);
		chownSync(root.boxes(bob).new, 12345, 12345);
		expect(mailbox.deliver(draft())).toMatchObject({ ok: false, code: "unfit_mailbox" });
		expect(files(root)).toEqual([]);
	});

	test.skipIf(isRoot)("PSM-022 is read-only gets no mail, with the system's reason, and nothing is left", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		root.open(bob);
		chmodSync(root.boxes(bob).new, 0o500);
		const message = expect.stringMatching(/^Nothing was sent: EACCES: permission denied/);
		expect(mailbox.deliver(draft())).toEqual({ ok: false, code: "io", message });
		expect(files(root)).toEqual([]);
	});

	test("D1 an older copy made, without some of the boxes, gets its mail", () => {
		const root = testRoot();
		mkdirSync(root.boxes(bob).new, { recursive: true });
		const id = sent(root.open(alice));
		expect(root.names(bob, "new")).toEqual([`00${startMs}-${id}.json`]);
	});
});

const aside = (root: TestRoot) => `${root.path}.aside`;
const back = (root: TestRoot) => renameSync(aside(root), root.path);

describe("a sender whose own mailbox", () => {
	test("PSM-022 was deleted while it runs has it again, and sends", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		sent(mailbox);
		rmSync(root.boxes(alice).folder, { recursive: true });
		const id = sent(mailbox);
		expect(root.names(alice, "sent")).toEqual([expect.stringContaining(id)]);
	});

	test.each<[what: string, spoil: (root: TestRoot) => void, restore: (root: TestRoot) => void, why: string]>([
		[
			"the mail root is moved away",
			(root) => renameSync(root.path, aside(root)),
			back,
			"the mail root \\S+ is missing",
		],
		[
			"the mail root is a link",
			(root) => [renameSync(root.path, aside(root)), symlinkSync(aside(root), root.path)],
			(root) => [rmSync(root.path), back(root)],
			"the mail root \\S+ is not a folder",
		],
		[
			"its sent/ is a link",
			(root) => [
				rmSync(root.boxes(alice).sent, { recursive: true }),
				symlinkSync(root.boxes(bob).new, root.boxes(alice).sent),
			],
			(root) => rmSync(root.boxes(alice).sent),
			"\\S+/sent is a symlink",
		],
	])("I-PSM-8 is out of order because %s sends no request until it is back", (_, spoil, restore, why) => {
		const root = testRoot();
		root.open(bob);
		const mailbox = root.open(alice);
		const before = files(root);
		spoil(root);
		const message = expect.stringMatching(`^Nothing was sent: ${why}\\.$`);
		expect(mailbox.deliver(draft())).toEqual({ ok: false, code: "io", message });
		restore(root);
		expect(files(root)).toEqual(before);
		sent(mailbox);
	});

	test.each(["tmp", "new", "cur", "sent"] as const)(
		"I-PSM-8 has a file for %s/, and needs no such box for an answer, sends the answer",
		(box) => {
			const root = testRoot();
			root.open(bob);
			const mailbox = root.open(alice);
			rmSync(root.boxes(alice)[box], { recursive: true });
			writeFileSync(root.boxes(alice)[box], "");
			expect(mailbox.deliver(draft({ kind: "reply" }))).toMatchObject({ ok: true });
			expect(root.names(bob, "new")).toHaveLength(1);
		},
	);
});

describe("a power cut", () => {
	/** What a send does on disk, as `operation place`, after the checks. */
	function operationsOf(
		root: TestRoot,
		durability: "durable" | "fast",
		kind: "request" | "reply",
		base = nodeDisk(),
	): string[] {
		const log: string[] = [];
		const place = (path: string) => relative(root.path, path).replace(alice, "alice").replace(bob, "bob");
		const disk = watchedDisk(({ name, paths }) => log.push([name, ...paths.map(place)].join(" ")), base);
		const mailbox = root.open(alice, { disk, durability });
		mailbox.deliver(draft());
		log.length = 0;
		mailbox.deliver(draft({ kind }));
		return log
			.filter((line) => !/^(entry|changed|list|walk|ensureFolder|replace) /.test(line))
			.map((line) => line.replaceAll(/\d{15}-[0-9a-f-]{36}\.json/g, "<name>"));
	}

	test("PSM-022 D5 undoes no mail whose receipt says durable: content, then names, then the receipt", () => {
		expect(operationsOf(testRoot(), "durable", "request")).toEqual([
			"create bob/tmp/<name>",
			"link bob/tmp/<name> alice/sent/<name>.part",
			"syncFile bob/tmp/<name>",
			"rename bob/tmp/<name> bob/new/<name>",
			"syncFolder bob/new",
			"syncFolder alice/sent",
			"rename alice/sent/<name>.part alice/sent/<name>",
		]);
		expect(operationsOf(testRoot(), "durable", "reply")).toEqual([
			"create bob/tmp/<name>",
			"syncFile bob/tmp/<name>",
			"rename bob/tmp/<name> bob/new/<name>",
			"syncFolder bob/new",
		]);
	});

	test("D5 undoes no copy that is a file of its own", () => {
		const written = ["create alice/sent/<name>.part", "syncFile alice/sent/<name>.part"];
		expect(operationsOf(testRoot(), "durable", "request", linklessDisk()).join()).toContain(written.join());
		const gone = watchedDisk(({ name, paths }) => name === "rename" && paths[0]?.endsWith(".part") && fail("ENOENT"));
		expect(operationsOf(testRoot(), "durable", "request", gone).slice(-2)).toEqual([
			"create alice/sent/<name>",
			"syncFile alice/sent/<name>",
		]);
	});

	test("D5 is not guarded against in fast mode, and the receipt says so", () => {
		expect(operationsOf(testRoot(), "fast", "request")).toEqual([
			"create bob/tmp/<name>",
			"link bob/tmp/<name> alice/sent/<name>.part",
			"rename bob/tmp/<name> bob/new/<name>",
			"rename alice/sent/<name>.part alice/sent/<name>",
		]);
		expect(testRoot().open(alice, { durability: "fast" }).deliver(draft())).toMatchObject({ ok: true, durable: false });
	});

	test.each<[what: string, prepare: (root: TestRoot, disk: Disk) => void]>([
		["that the sender makes", () => {}],
		["that its own session made", (root, disk) => root.open(bob, { disk })],
		["of which only the folder is there", (root) => mkdirSync(root.boxes(bob).folder)],
	])("D5 undoes no mail whose receipt says durable, and no folder above it, in a mailbox %s", (_, prepare) => {
		const root = testRoot();
		/** Folders with names that a power cut could still undo. */
		const unsynced = new Set<string>();
		const base = nodeDisk();
		const disk: Disk = {
			...base,
			ensureFolder(path) {
				const isMade = base.ensureFolder(path);
				if (isMade) unsynced.add(dirname(path));
				return isMade;
			},
			rename(from, to) {
				base.rename(from, to);
				unsynced.add(dirname(to));
			},
			syncFolder(folder) {
				base.syncFolder(folder);
				unsynced.delete(folder);
			},
		};
		prepare(root, disk);
		expect(root.open(alice, { disk }).deliver(draft())).toMatchObject({ ok: true, durable: true });
		const { folder, new: inbox } = root.boxes(bob);
		expect([root.path, folder, inbox].filter((one) => unsynced.has(one))).toEqual([]);
	});

	test.each([
		["new/ of the recipient", true, (root: TestRoot) => root.boxes(bob).new],
		["sent/ of the sender", true, (root: TestRoot) => root.boxes(alice).sent],
		["a new mailbox", false, (root: TestRoot) => root.boxes(bob).folder],
		["the mail root, which got a new mailbox", false, (root: TestRoot) => root.path],
	])(
		"D5 L4 could undo a mail when %s was not synced: it is delivered, and not said to be durable",
		(_, isKnown, folder) => {
			const root = testRoot();
			root.open(alice);
			if (isKnown) root.open(bob);
			const disk = watchedDisk(
				({ name, paths: [path] }) => name === "syncFolder" && path === folder(root) && fail("EIO"),
			);
			const outcome = root.open(alice, { disk }).deliver(draft({ id: mailId }));
			expect(root.names(bob, "new")).toHaveLength(1);
			expect(outcome).toMatchObject({ ok: true, durable: false });
		},
	);
});

describe("where a file cannot have two names", () => {
	test.each(["EXDEV", "EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"])(
		"PSM-021 (%s) the copy in sent/ is a file of its own",
		(code) => {
			const root = testRoot();
			const id = sent(root.open(alice, { disk: linklessDisk(code) }));
			const name = `00${startMs}-${id}.json`;
			const [copy, mail] = [join(root.boxes(alice).sent, name), join(root.boxes(bob).new, name)];
			expect(files(root)).toEqual([`${alice}/sent/${name}`, `${bob}/new/${name}`]);
			expect([envelopeIn(copy), statSync(copy).mode & 0o777]).toEqual([envelopeIn(mail), 0o600]);
			expect(lstatSync(copy).ino).not.toBe(lstatSync(mail).ino);
		},
	);

	test("PSM-022 because the disk is full, nothing is sent", () => {
		const root = testRoot();
		expect(root.open(alice, { disk: linklessDisk("ENOSPC") }).deliver(draft())).toMatchObject({
			ok: false,
			code: "io",
		});
		expect(files(root)).toEqual([]);
	});
});

const situations = (["request", "reply"] as const).flatMap((kind) =>
	[true, false].flatMap((isKnown) =>
		(kind === "reply" ? [true] : [true, false]).map((hasLinks) => ({
			kind,
			isKnown,
			hasLinks,
			title: `a ${kind} to a ${isKnown ? "known" : "new"} mailbox${hasLinks ? "" : " where links do not work"}`,
		})),
	),
);

describe.each(situations)("I-PSM-3 PSM-022 L2 $title", ({ kind, isKnown, hasLinks }) => {
	function prepare() {
		const root = testRoot();
		if (isKnown) root.open(bob);
		const faults = faultyDisk(hasLinks ? nodeDisk() : linklessDisk());
		return { root, faults, mailbox: root.open(alice, { disk: faults.disk }) };
	}

	const name = `00${startMs}-${mailId}.json`;
	/** The files that a delivered and finished mail leaves. */
	const whole = kind === "reply" ? [`${bob}/new/${name}`] : [`${alice}/sent/${name}`, `${bob}/new/${name}`];
	const at = (operation: Operation | undefined, code = "") =>
		`${code} at ${operation?.name} ${operation?.paths.join(" ")}`;

	test.each(faultCodes)("is delivered once or refused with nothing left, whichever operation fails with %s", (code) => {
		for (let n = 1; ; n++) {
			const { root, faults, mailbox } = prepare();
			faults.failAt(n, code);
			const outcome = mailbox.deliver(draft({ id: mailId, kind }));
			faults.heal();
			const where = at(faults.failed, code);
			const left = files(root).map((path) => path.replace(/\.part$/, ""));
			expect(left, where).toEqual(outcome.ok ? whole : []);
			if (!outcome.ok) expect(outcome, where).toMatchObject({ code: "io", message: expect.stringContaining(code) });

			const next = mailbox.deliver(draft({ id: lastRequest, kind }));
			expect(next, where).toMatchObject({ ok: true });
			expect(root.start(alice), where).toMatchObject({ warnings: [], left: [] });
			const nextFiles = files(root).filter((path) => path.includes(lastRequest));
			expect(nextFiles, where).toHaveLength(whole.length);
			expect(files(root), where).toEqual([...(outcome.ok ? whole : []), ...nextFiles].sort());
			if (faults.failed === undefined) return expect(outcome).toMatchObject({ ok: true, durable: true });
		}
	});

	test("is delivered once or not at all after a kill at any moment, and the next start puts sent/ in order", () => {
		for (let n = 1; ; n++) {
			const { root, faults, mailbox } = prepare();
			faults.dieAt(n);
			const outcome = mailbox.deliver(draft({ id: mailId, kind }));
			const where = at(faults.failed);
			const isDelivered = root.names(bob, "new").length === 1;
			expect(isDelivered, where).toBe(outcome.ok);

			root.clockMs += 60 * 60 * 1000;
			const { mailbox: again, warnings } = root.start(alice);
			const rubbish = isDelivered ? [] : root.names(bob, "tmp").map((one) => `${bob}/tmp/${one}`);
			expect(files(root), where).toEqual([...(isDelivered ? whole : []), ...rubbish]);
			if (isDelivered || kind === "reply") expect(warnings, where).toEqual([]);
			expect(root.start(alice).warnings, where).toEqual([]);
			expect(again.awaitingCount(), where).toBe(isDelivered && kind === "request" ? 1 : 0);

			sent(again, { id: lastRequest, kind });
			const arrived = root.names(bob, "new").map((one) => one.slice(16, -".json".length));
			expect(arrived, where).toEqual(isDelivered ? [mailId, lastRequest] : [lastRequest]);
			if (faults.failed === undefined) return;
		}
	});
});

describe("an id that the caller chose", () => {
	const request = () => draft({ id: mailId });
	const snapshot = (root: TestRoot) =>
		readdirSync(root.path, { recursive: true, withFileTypes: true })
			.filter((entry) => !entry.isDirectory())
			.map((entry) => {
				const path = join(entry.parentPath, entry.name);
				return [path, readFileSync(path, "utf8"), statSync(path).mtimeMs];
			});

	test.each(["request", "message", "ask", "reply"] as const)(
		"L2 sends a %s once: the same again writes nothing and gets the first receipt",
		(kind) => {
			const root = testRoot();
			const mailbox = root.open(alice);
			const first = mailbox.deliver(draft({ id: mailId, kind, hops: 1 }));
			root.clockMs += 1000;
			const before = snapshot(root);
			const again = [mailbox, root.open(alice)].map((one) => one.deliver(draft({ id: mailId, kind, hops: 3 })));
			for (const outcome of again) expect(outcome).toEqual({ ...first, duplicate: true });
			expect(snapshot(root)).toEqual(before);
		},
	);

	test("PSM-022 is not remembered when the mail could not be sent", () => {
		const root = testRoot();
		const disk = watchedDisk(({ name }) => name === "rename" && fail("EIO"));
		expect(root.open(alice, { disk }).deliver(draft({ id: mailId }))).toMatchObject({ ok: false, code: "io" });
		expect([root.names(alice, "sent"), root.names(bob, "tmp")]).toEqual([[], []]);
	});

	test("I-PSM-3 leaves nothing in tmp/ when the name of its mail was taken", () => {
		const root = testRoot();
		root.lay(bob, "new", `00${startMs}-${mailId}.json`, "another's");
		expect(root.open(alice).deliver(draft({ id: mailId })).ok).toBe(true);
		expect([root.names(bob, "new").length, root.names(bob, "tmp")]).toEqual([2, []]);
	});

	test("L2 of a reply, of which no copy is kept, is remembered when it was claimed", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		const reply = draft({ id: mailId, kind: "reply" });
		const first = mailbox.deliver(reply);
		const inbox = root.open(bob);
		for (const name of inbox.waiting()) inbox.claim(name);
		expect(mailbox.deliver(reply)).toEqual({ ...first, duplicate: true });
		expect(root.names(bob, "new")).toEqual([]);
	});

	test("L2 is remembered when the mail was claimed, its mailbox pruned or full, and the sender restarted", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		const first = mailbox.deliver(request());
		const inbox = root.open(bob);
		for (const name of inbox.waiting()) inbox.claim(name);
		for (let n = 0; n < maxUnread; n++) root.lay(bob, "new", `${n}.json`, "");
		expect(mailbox.deliver(request())).toEqual({ ...first, duplicate: true });
		rmSync(root.boxes(bob).folder, { recursive: true });
		expect(root.start(alice).mailbox.deliver(request())).toEqual({ ...first, duplicate: true, durable: false });
		expect(readdirSync(root.path)).toEqual([alice]);
	});

	test("L2 is the same in capitals", () => {
		const mailbox = testRoot().open(alice);
		mailbox.deliver(draft({ id: "aaaaaaaa-2222-4333-8444-555555555555" }));
		expect(mailbox.deliver(draft({ id: "AAAAAAAA-2222-4333-8444-555555555555" }))).toMatchObject({ duplicate: true });
	});

	test.each<[what: string, changed: Parameters<typeof draft>[0]]>([
		["another text", { body: "Please look at branch y." }],
		["another recipient", { to: carol }],
		["another kind", { kind: "message" }],
	])("D9 is refused for %s, and the first mail stays as it is", (_, changed) => {
		const root = testRoot();
		const mailbox = root.open(alice);
		mailbox.deliver(request());
		const before = snapshot(root);
		expect(mailbox.deliver(draft({ id: mailId, ...changed }))).toEqual({
			ok: false,
			code: "id_used",
			message: `Nothing was sent: the id ${mailId} was used for another mail.`,
		});
		expect(snapshot(root)).toEqual(before);
	});

	test("L2 is another mail when another sender uses it, also in the same millisecond", () => {
		const root = testRoot();
		const outcomes = [alice, carol].map((address) => root.open(address).deliver(request()));
		expect(outcomes).toMatchObject([{ ok: true }, { ok: true }]);
		const inbox = root.open(bob);
		const senders = inbox.waiting().map((name) => inbox.peek(name)?.from);
		expect(senders.sort()).toEqual([alice, carol]);
	});

	test("L2 is another mail when another sender uses it at the same instant, whoever is first", () => {
		for (let n = 1; ; n++) {
			const root = testRoot();
			root.open(bob);
			const interrupted = interruptedDisk();
			const mailbox = root.open(alice, { disk: interrupted.disk });
			interrupted.arm(n, () => sent(root.open(carol), { id: mailId }));
			const outcome = mailbox.deliver(request());
			if (!interrupted.acted) return;
			expect(outcome).toMatchObject({ ok: true });
			expect(root.names(bob, "new"), `at operation ${n}`).toHaveLength(2);
		}
	});

	test("L2 that was taken back is sent again", () => {
		const root = testRoot();
		const mailbox = root.open(alice);
		const first = mailbox.deliver(request());
		if (!first.ok) throw new Error(first.message);
		mailbox.retract(first);
		expect(mailbox.sentBefore(mailId)).toBeUndefined();
		expect(mailbox.deliver(request())).not.toHaveProperty("duplicate");
		expect(root.names(bob, "new")).toHaveLength(1);
	});

	test("L2 tells in advance what was sent under it, in capitals as well, and nothing while the disk does not say", () => {
		const root = testRoot();
		const faults = faultyDisk();
		const mailbox = root.open(alice, { disk: faults.disk });
		const id = alice;
		expect(mailbox.sentBefore(id)).toBeUndefined();
		mailbox.deliver(draft({ id }));
		expect(mailbox.sentBefore(id.toUpperCase())).toMatchObject({ id, to: bob });
		faults.failAt(1, "EIO");
		expect(mailbox.sentBefore(id)).toBeUndefined();
	});

	test("I-PSM-8 is not looked for when it is no UUID", () => {
		const root = testRoot();
		let looked = 0;
		const mailbox = root.open(alice, { disk: watchedDisk(() => looked++) });
		looked = 0;
		expect([mailbox.sentBefore("../../x"), looked]).toEqual([undefined, 0]);
	});

	test.each(["", "{", '{"name":"x","durable":true,"envelope":{}}', Buffer.from([0xff])])(
		"L2 with a receipt that a power cut left as %j is known by the copy of the mail, and sent when there is none",
		(text) => {
			const root = testRoot();
			const mailbox = root.open(alice);
			root.lay(alice, "sent", `${mailId}.receipt`, text);
			const first = mailbox.deliver(request());
			expect(first).not.toHaveProperty("duplicate");
			root.lay(alice, "sent", `${mailId}.receipt`, text);
			expect(mailbox.deliver(request())).toEqual({ ...first, durable: false, duplicate: true });
			expect(mailbox.deliver({ ...request(), body: "other" })).toMatchObject({ ok: false, code: "id_used" });
		},
	);

	test("I-PSM-8 is no path: a text that is not a UUID is refused", () => {
		const root = testRoot();
		expect(root.open(alice).deliver(draft({ id: "../../x" }))).toEqual({
			ok: false,
			code: "invalid",
			message: 'Nothing was sent: the id "../../x" is not a UUID.',
		});
		expect(files(root)).toEqual([]);
	});

	test.each(faultCodes)("L2 is sent once however often it is tried while operations fail with %s", (code) => {
		for (let n = 1; ; n++) {
			const root = testRoot();
			const faults = faultyDisk();
			const mailbox = root.open(alice, { disk: faults.disk });
			faults.failAt(n, code);
			const first = mailbox.deliver(request());
			const { failed } = faults;
			faults.heal();
			const again = mailbox.deliver(request());
			expect(again).toMatchObject(first.ok ? { ok: true, duplicate: true } : { ok: true });
			expect(root.names(bob, "new"), `${failed?.name} ${failed?.paths}`).toHaveLength(1);
			if (failed === undefined) return;
			faults.failAt(n, code);
			const third = mailbox.deliver(request());
			if (third.ok) expect(third).toHaveProperty("duplicate");
			expect(root.names(bob, "new")).toHaveLength(1);
		}
	});

	test("L2 is sent once also when the process is killed at any moment and tries again after a start", () => {
		for (let n = 1; ; n++) {
			const root = testRoot();
			const faults = faultyDisk();
			const mailbox = root.open(alice, { disk: faults.disk });
			faults.dieAt(n);
			mailbox.deliver(request());
			root.clockMs += 1;
			expect(root.open(alice).deliver(request())).toMatchObject({ ok: true });
			expect(root.names(bob, "new"), `${faults.failed?.name} ${faults.failed?.paths}`).toHaveLength(1);
			root.start(alice);
			expect(root.names(alice, "sent")).toEqual([expect.stringMatching(/\.json$/), `${mailId}.receipt`]);
			if (faults.failed === undefined) return;
		}
	});
});

describe("two processes at one instant", () => {
	const copies = (root: TestRoot) => root.names(alice, "sent").filter((name) => name.endsWith(".json"));

	/** For each operation of Alice's send: `act` runs before it. Checked afterwards by `check`. */
	function atEachOperation(
		isKnown: boolean,
		act: (root: TestRoot) => void,
		check: (root: TestRoot, outcome: Delivered | Refusal) => void,
	): void {
		for (let n = 1; ; n++) {
			const root = testRoot();
			if (isKnown) root.open(bob);
			const interrupted = interruptedDisk();
			const mailbox = root.open(alice, { disk: interrupted.disk });
			interrupted.arm(n, () => act(root));
			const outcome = mailbox.deliver(draft({ id: mailId }));
			if (!interrupted.acted) return;
			check(root, outcome);
		}
	}

	test.each([true, false])("L2 both senders' mails arrive, each once (mailbox known: %s)", (isKnown) => {
		atEachOperation(
			isKnown,
			(root) => sent(root.open(carol), { id: lastRequest }),
			(root, outcome) => {
				expect(outcome).toMatchObject({ ok: true, durable: true });
				const name = (id: string) => `00${startMs}-${id}.json`;
				expect(files(root)).toEqual([
					`${alice}/sent/${name(mailId)}`,
					`${bob}/new/${name(mailId)}`,
					`${bob}/new/${name(lastRequest)}`,
					`${carol}/sent/${name(lastRequest)}`,
				]);
			},
		);
	});

	test("D7 two processes of one session both send", () => {
		atEachOperation(
			true,
			(root) => sent(root.open(alice), { id: lastRequest }),
			(root, outcome) => {
				expect(outcome).toMatchObject({ ok: true });
				const ids = [mailId, lastRequest].map((id) => expect.stringContaining(id));
				for (const names of [root.names(bob, "new"), copies(root)]) {
					expect(names.sort((a, b) => a.slice(16).localeCompare(b.slice(16)))).toEqual(ids);
				}
				expect(root.start(alice).mailbox.awaitingCount()).toBe(2);
			},
		);
	});

	test("L2 PSM-042 the recipient claims a mail only when it is whole, and once", () => {
		atEachOperation(
			true,
			(root) => {
				const inbox = root.open(bob);
				for (const one of inbox.waiting()) expect(inbox.claim(one)).toMatchObject({ result: "claimed" });
			},
			(root, outcome) => {
				expect(outcome).toMatchObject({ ok: true });
				expect([
					...root.names(bob, "new"),
					...root.names(bob, "cur").filter((one) => one.endsWith(".json")),
				]).toHaveLength(1);
			},
		);
	});

	test("D7 PSM-021 a session's start, while its second process sends, takes away neither the mail nor its copy", () => {
		atEachOperation(
			true,
			(root) => root.start(alice),
			(root, outcome) => {
				expect(outcome).toMatchObject({ ok: true });
				root.start(alice);
				const name = `00${startMs}-${mailId}.json`;
				expect(files(root)).toEqual([`${alice}/sent/${name}`, `${bob}/new/${name}`]);
			},
		);
	});

	test("PSM-022 a recipient's mailbox that is deleted meanwhile is a refusal or gets the mail whole", () => {
		atEachOperation(
			true,
			(root) => rmSync(root.boxes(bob).folder, { recursive: true }),
			(root, outcome) => {
				if (!outcome.ok) expect(files(root)).toEqual([]);
				else expect(copies(root)).toHaveLength(1);
			},
		);
	});
});
