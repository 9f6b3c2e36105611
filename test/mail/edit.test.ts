import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Delivered, maxUnread } from "../../src/mail/deliver.ts";
import { type Disk, nodeDisk } from "../../src/mail/disk.ts";
import { maxBodyBytes } from "../../src/mail/envelope.ts";
import { type Mailbox, openMailbox } from "../../src/mail/mailbox.ts";
import { prune } from "../../src/mail/prune.ts";
import {
	alice,
	bob,
	carol,
	dayMs,
	draft,
	faultCodes,
	faultyDisk,
	interruptedDisk,
	type TestRoot,
	testRoot,
	watchedDisk,
} from "../support/disk.ts";

const callersId = "11111111-2222-4333-8444-555555555555";
const newText = "Please look at branch y.";
const oldText = draft().body;

/** Alice's mailbox, with one mail to Bob that waits there. */
function setUp({ disk = nodeDisk(), durability = "durable" as "durable" | "fast", changed = {} } = {}) {
	const root = testRoot();
	root.open(bob);
	const mailbox = root.open(alice, { disk, durability });
	const old = mailbox.deliver(draft(changed));
	if (!old.ok) throw new Error(old.message);
	return { root, mailbox, old };
}

function textsIn(root: TestRoot, box: "new" | "cur"): string[] {
	const names = root.names(bob, box).filter((name) => name.endsWith(".json"));
	return names.map((name) => JSON.parse(readFileSync(join(root.boxes(bob)[box], name), "utf8")).body);
}

const copies = (root: TestRoot) =>
	root.names(alice, "sent").map((name) => name.replace(/^.*(?=\.json)|^.*(?=\.receipt)/, ""));

describe("D28 a mail that is changed before its recipient claimed it", () => {
	test("is taken back, and its new version sent under an id of its own that names the old one", () => {
		const { root, mailbox, old } = setUp({ changed: { kind: "message", quiet: true, hops: 3 } });
		const sent = mailbox.edit(old, ` ${newText}\n`);
		expect(sent).toMatchObject({
			ok: true,
			durable: true,
			envelope: { from: alice, to: bob, kind: "message", hops: 3, body: newText, x: { quiet: true } },
		});
		if (!sent.ok) return;
		expect(sent.envelope.id).not.toBe(old.envelope.id);
		expect(sent.envelope.x?.replaces).toBe(old.envelope.id);
		expect([textsIn(root, "new"), root.names(alice, "tmp"), root.names(bob, "new")]).toEqual([
			[newText],
			[],
			[sent.name],
		]);
		expect(copies(root).sort()).toEqual([".json", ".json.retracted", ".receipt"]);
		expect(root.start(alice).warnings).toEqual([]);
	});

	test.each(["durable", "fast"] as const)(
		"D5 has its new text on disk before it is taken back, and safe from a power cut when that was asked for (%s)",
		(durability) => {
			const seen: string[] = [];
			const disk = watchedDisk(({ name, paths }) =>
				seen.push(`${name} ${paths.map((path) => path.slice(-8)).join(" ")}`),
			);
			const { mailbox, old } = setUp({ disk, durability });
			seen.splice(0);
			mailbox.edit(old, newText);
			const created = seen.findIndex((step) => /^create .*\.edit$/.test(step));
			const back = seen.findIndex((step) => step.startsWith("rename"));
			const between = durability === "durable" ? ["syncFile son.edit", "syncFolder 000a/tmp"] : [];
			expect([created > -1, seen.slice(created + 1, back)]).toEqual([true, between]);
		},
	);

	test("L4 is awaited under its new id only", () => {
		const { mailbox, old } = setUp();
		const sent = mailbox.edit(old, newText);
		expect([mailbox.awaitingCount(), mailbox.awaits(old.envelope.id)]).toEqual([1, false]);
		expect(sent.ok && mailbox.awaits(sent.envelope.id)).toBe(true);
	});

	test.each(["at once", "by the next start"])(
		"L2 is not sent once more in its old version under the id that its caller chose (finished %s)",
		(when) => {
			const root = testRoot();
			const faults = faultyDisk();
			const mailbox = root.open(alice, { disk: faults.disk });
			const draft = { to: bob, kind: "request", body: oldText, hops: 0, id: callersId } as const;
			const old = mailbox.deliver(draft);
			if (!old.ok) throw new Error(old.message);
			if (when === "by the next start") {
				faults.failWith((_n, { name, paths }) =>
					name === "rename" && /\/new\//.test(paths[1] ?? "") ? "EIO" : undefined,
				);
			}
			mailbox.edit(old, newText);
			faults.heal();
			root.start(alice);
			expect([textsIn(root, "new"), root.names(alice, "tmp")]).toEqual([[newText], []]);
			const again = root.open(alice).deliver(draft);
			expect(again).toMatchObject({ ok: true, duplicate: true, name: root.names(bob, "new")[0] });
			expect(textsIn(root, "new")).toEqual([newText]);
			expect(root.open(alice).deliver({ ...draft, body: "another" })).toMatchObject({ code: "id_used" });
			root.open(bob).claim(root.names(bob, "new")[0] ?? "");
			expect(root.open(alice).deliver(draft)).toMatchObject({ duplicate: true });
		},
	);

	test.each(["taken back", "changed once more"])(
		"L2 whose leftover could not be removed is not sent by the next start when it was %s since",
		(what) => {
			const root = testRoot();
			const faults = faultyDisk();
			const mailbox = root.open(alice, { disk: faults.disk });
			const old = mailbox.deliver({ to: bob, kind: "request", body: oldText, hops: 0 });
			if (!old.ok) throw new Error(old.message);
			faults.failWith((_n, { name, paths }) => (name === "remove" && paths[0]?.endsWith(".edit") ? "EIO" : undefined));
			const changed = mailbox.edit(old, newText);
			faults.heal();
			if (!changed.ok) throw new Error(changed.message);
			if (what === "taken back") expect(mailbox.retract(changed)).toBe(true);
			else expect(mailbox.edit(changed, "Please look at branch z.").ok).toBe(true);
			expect(root.start(alice).warnings).toEqual([]);
			const left = what === "taken back" ? [] : ["Please look at branch z."];
			expect([textsIn(root, "new"), root.names(alice, "tmp")]).toEqual([left, []]);
		},
	);

	test("is left as it is when its recipient was faster", () => {
		const { root, mailbox, old } = setUp();
		root.open(bob).claim(old.name);
		expect(mailbox.edit(old, newText)).toEqual({
			ok: false,
			code: "claimed",
			message: "Nothing was changed: its recipient has it already.",
		});
		expect([textsIn(root, "cur"), textsIn(root, "new"), root.names(alice, "tmp"), copies(root)]).toEqual([
			[oldText],
			[],
			[],
			[".json"],
		]);
	});

	test.each([
		["empty", " \n"],
		["too_large", "x".repeat(maxBodyBytes + 1)],
		// Each of these characters is six in JSON.
		["too_large", "\u0001".repeat(maxBodyBytes)],
	])("is left as it is when the new text is %s", (code, text) => {
		const { root, mailbox, old } = setUp();
		expect(mailbox.edit(old, text)).toMatchObject({ ok: false, code });
		expect([textsIn(root, "new"), root.names(alice, "tmp"), copies(root)]).toEqual([[oldText], [], [".json"]]);
	});

	test("is claimed or changed, never both, when its recipient claims it at the same instant", () => {
		for (let n = 1; ; n++) {
			const interrupted = interruptedDisk();
			const { root, mailbox, old } = setUp({ disk: interrupted.disk });
			let claim = "";
			interrupted.arm(n, () => {
				claim = root.open(bob).claim(old.name).result;
			});
			const edited = mailbox.edit(old, newText);
			if (!interrupted.acted) break;
			const isFaster = claim === "claimed";
			expect([n, edited.ok || edited.code]).toEqual([n, isFaster ? "claimed" : true]);
			expect([textsIn(root, "cur"), textsIn(root, "new")]).toEqual(isFaster ? [[oldText], []] : [[], [newText]]);
			expect([root.names(alice, "tmp"), root.start(alice).warnings]).toEqual([[], []]);
		}
	});

	test.each(faultCodes)("L2, L4 is there once, old or new, as was said, whichever operation fails with %s", (code) => {
		let kept = 0;
		for (let n = 1; ; n++) {
			const faults = faultyDisk();
			const { root, mailbox, old } = setUp({ disk: faults.disk });
			faults.failAt(n, code);
			const edited = mailbox.edit(old, newText);
			const { failed } = faults;
			faults.heal();
			if (failed === undefined) break;
			const where = `operation ${n}, ${failed.name} ${failed.paths.join(" ")}`;
			const said = edited.ok ? "" : edited.message;
			const isKept = said.includes("The mail was taken back, and its new text is kept");
			if (isKept) kept++;
			else expect(edited.ok || said, where).toSatisfy((it) => it === true || /^Nothing was changed/.test(`${it}`));
			const waiting = isKept ? [] : [edited.ok ? newText : oldText];
			expect(textsIn(root, "new"), where).toEqual(waiting);
			const { warnings } = root.start(alice);
			expect(textsIn(root, "new"), where).toEqual([waiting.includes(oldText) ? oldText : newText]);
			// What could not be removed is found again, and harmless.
			if (edited.ok || isKept) expect(warnings, where).toEqual([]);
			expect([root.start(alice).warnings, root.names(alice, "tmp")], where).toEqual([[], []]);
		}
		expect(kept).toBeGreaterThan(0);
	});

	test.each(["durable", "fast"] as const)(
		"L2 is there once, old or new, when its sender is killed at any operation (%s)",
		(durability) => {
			const ends: string[] = [];
			for (let n = 1; ; n++) {
				const faults = faultyDisk();
				const { root, mailbox, old } = setUp({ disk: faults.disk, durability });
				faults.dieAt(n);
				mailbox.edit(old, newText);
				if (faults.failed === undefined) break;
				const { mailbox: again, warnings } = root.start(alice);
				const texts = textsIn(root, "new");
				expect(texts, `operation ${n}`).toHaveLength(1);
				const isOld = texts[0] === oldText;
				if (!isOld) expect(warnings, `operation ${n}`).toEqual([]);
				expect(warnings.every((text) => /^a mail was not changed, .* change it again$/.test(text))).toBe(true);
				expect(again.awaitingCount()).toBe(1);
				expect([root.start(alice).warnings, root.names(alice, "tmp"), textsIn(root, "new")]).toEqual([[], [], texts]);
				ends.push(isOld ? (warnings.length > 0 ? "said" : "old") : "new");
			}
			// In this order, and each of them.
			expect(ends.join(" ")).toMatch(/^(old )+(said )+(new )+new$/);
		},
	);

	test("L2 keeps its new text when the start that is to send it is killed, too, at any operation", () => {
		for (let n = 1; ; n++) {
			const first = faultyDisk();
			const { root, mailbox, old } = setUp({ disk: first.disk });
			first.failWith((_n, { name, paths }) =>
				name === "rename" && /\/new\//.test(paths[1] ?? "") ? "EIO" : undefined,
			);
			expect(mailbox.edit(old, newText).ok).toBe(false);
			const second = faultyDisk();
			const dying = root.open(alice, { disk: second.disk });
			second.dieAt(n);
			try {
				for (const _ of dying.recount());
			} catch {}
			if (second.failed === undefined) break;
			expect([n, root.start(alice).warnings, textsIn(root, "new")]).toEqual([n, [], [newText]]);
		}
	});

	test("L2 keeps its new text while the inbox is full or the disk, also for longer than rubbish is kept", () => {
		const root = testRoot();
		root.open(bob);
		let fill = () => {};
		const mailbox = root.open(alice, {
			disk: watchedDisk(({ name, paths }) => name === "rename" && /retracted$/.test(paths[1] ?? "") && fill()),
		});
		const old = mailbox.deliver(draft());
		if (!old.ok) throw new Error(old.message);
		fill = () => fillInbox(root.open(carol));
		expect(mailbox.edit(old, newText)).toEqual({
			ok: false,
			code: "mailbox_full",
			message: `Nothing was sent: ${bob} already has 256 unread mails; try again when it has read some. The mail was taken back, and its new text is kept: the next start sends it.`,
		});
		root.clockMs += 40 * dayMs;
		for (const _ of mailbox.removeLeftovers());
		expect(root.start(alice).warnings).toEqual([
			expect.stringMatching(
				/^the new text of a mail that was taken back waits for the next start \(.*\.edit\): Nothing/,
			),
		]);
		rmSync(root.boxes(bob).new, { recursive: true });
		expect([root.start(alice).warnings, textsIn(root, "new"), root.names(alice, "tmp")]).toEqual([[], [newText], []]);
	});

	test("is not changed twice at the same instant", () => {
		const { root, mailbox, old } = setUp();
		root.lay(alice, "tmp", `${old.name}.edit`, "{");
		expect(mailbox.edit(old, newText)).toEqual({
			ok: false,
			code: "io",
			message: "Nothing was changed: it is being changed already.",
		});
		expect(textsIn(root, "new")).toEqual([oldText]);
	});

	test("that is no mail is left where it lies, and said, when the old one was taken back", () => {
		const { root, mailbox, old } = setUp();
		mailbox.retract(old);
		const path = root.lay(alice, "tmp", `${old.name}.edit`, "{");
		expect(root.start(alice).warnings).toEqual([
			`the new text of a mail that was taken back cannot be read (${path}); send it again, and remove that file`,
		]);
		expect(root.names(alice, "tmp")).toHaveLength(1);
	});

	test("PSM-090 keeps its sender's folder from being pruned, and is whole when a prune is cut short", () => {
		for (let n = 1; ; n++) {
			const faults = faultyDisk();
			const { root, mailbox, old } = setUp({ disk: faults.disk });
			faults.failWith((_n, { name, paths }) =>
				name === "rename" && /\/new\//.test(paths[1] ?? "") ? "EIO" : undefined,
			);
			mailbox.edit(old, newText);
			faults.heal();
			const disk = watchedDisk((operation) => {
				// The session starts at the moment when its folder is aside.
				if (operation.name === "rename" && operation.paths[1]?.includes(".pruning.")) return;
				if (operation.name === "entry" && operation.paths[0]?.includes(".pruning.")) open();
			});
			const open = () =>
				openMailbox({
					disk: nodeDisk(),
					root: root.path,
					address: alice,
					now: () => root.clockMs,
					isDurable: () => false,
				});
			const dying = faultyDisk(disk);
			pruneAll(root, dying.disk, "");
			expect(root.names(alice, "tmp")).toHaveLength(1);
			// One that was moved aside before the text was written.
			moveAside(root);
			dying.dieAt(n);
			pruneAll(root, dying.disk, "");
			const isOver = dying.failed === undefined;
			dying.heal();
			// A disk that names what was moved aside last.
			pruneAll(
				root,
				{
					...nodeDisk(),
					*walk(path) {
						yield* readdirSync(path).sort().reverse();
					},
				},
				"",
			);
			expect([n, root.start(alice).warnings, textsIn(root, "new")]).toEqual([n, [], [newText]]);
			if (isOver) break;
		}
	});
});

function moveAside(root: TestRoot): void {
	nodeDisk().rename(
		root.boxes(alice).folder,
		join(root.path, `.pruning.${alice}.${"0".repeat(8)}-0000-4000-8000-${"0".repeat(12)}`),
	);
}

function pruneAll(root: TestRoot, disk: Disk, self: string): void {
	const running = { mayRun: () => false, hasStandby: () => false };
	for (const _ of prune({ disk, root: root.path, self, running, now: () => root.clockMs, olderThanMs: undefined }));
}

function fillInbox(mailbox: Mailbox): void {
	const outcomes: (Delivered | { ok: false })[] = [];
	for (let n = 0; n < maxUnread; n++) outcomes.push(mailbox.deliver(draft({ kind: "message" })));
	expect(outcomes.every(({ ok }) => ok)).toBe(true);
}
