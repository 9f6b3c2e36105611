import { initTheme, type MessageRenderer, type Theme } from "@earendil-works/pi-coding-agent";
import { visibleWidth } from "@earendil-works/pi-tui";
import { describe, expect, test } from "vitest";
import { labelled } from "../../src/session/label.ts";
import type { MailDetails } from "../../src/session/ledger.ts";
import { renderMail } from "../../src/view/mail.ts";

const widths = [20, 80, 200];

/** Marks what is styled, as far as the tests care: `<title>` and the like are not part of the width. */
const theme = {
	fg: (_color: string, text: string) => `\x1b[36m${text}\x1b[39m`,
	bold: (text: string) => `\x1b[1m${text}\x1b[22m`,
} as unknown as Theme;

const mail: MailDetails = {
	address: "0197a3f2-2222-7000-8000-00000000000b",
	id: "11111111-2222-4333-8444-555555555555",
	from: "0197a3f2-1111-7000-8000-00000000000a",
	kind: "request",
	status: "",
	inReplyTo: [],
	file: "1.json",
	sender: "author",
	firstLine: "check the parser",
};

interface Shown {
	details?: unknown;
	content?: string | ({ type: "text"; text: string } | { type: "image"; data: string; mimeType: string })[];
	expanded?: boolean;
	width?: number;
	outputPad?: number;
}

function render({
	details = { mail },
	content = "[mailbox] From author\n\nall of it",
	expanded = false,
	width = 80,
	outputPad = 1,
}: Shown = {}) {
	const message = { role: "custom", customType: "mailbox", content, display: true, details, timestamp: 0 };
	const options = {
		expanded,
		outputPad,
		keyText: () => "ctrl+o",
		keyHint: (_: string, what: string) => `ctrl+o ${what}`,
	};
	const component = renderMail(
		message as Parameters<MessageRenderer>[0],
		options as unknown as Parameters<MessageRenderer>[1],
		theme,
	);
	return component?.render(width);
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the styles of the theme above
const styles = /\x1b\[(?:36|39|1|22)m/g;
const plain = (rows: readonly string[] | undefined) => rows?.map((row) => row.replace(styles, ""));

/** The text for the model of a mail with this body. */
function textOf(body: string, name = "author"): string {
	const envelope = {
		id: mail.id,
		from: mail.from,
		to: mail.address,
		kind: "message",
		hops: 0,
		in_reply_to: [],
		status: "",
		ts: "",
		body,
	} as const;
	return labelled({
		envelope: { ...envelope, in_reply_to: [] },
		sender: { name, cwd: "/work" },
		path: "/x/1.json",
		requests: [],
		late: false,
	});
}

describe("a mail in the transcript", () => {
	test.each<[MailDetails["kind"], string, string]>([
		["request", "", "✉ Request from author"],
		["ask", "", "✉ Ask from author"],
		["message", "", "✉ Message from author"],
		["reply", "done", "✉ Reply from author"],
		["reply", "failed", "✉ Reply from author (failed)"],
		["reply", "stopped", "✉ Reply from author (stopped)"],
	])("says what it is (%s %s), from whom, and its first line", (kind, status, title) => {
		expect(plain(render({ details: { mail: { ...mail, kind, status } } }))).toEqual([
			` ${title}`,
			" check the parser (ctrl+o to expand)",
		]);
	});

	test("expanded is the whole text that the model saw", () => {
		expect(plain(render({ expanded: true }))).toEqual([
			" ✉ Request from author",
			" [mailbox] From author",
			" ",
			" all of it",
		]);
	});

	test("keeps to the padding that the user set", () => {
		for (const outputPad of [0, 1, 4]) {
			for (const row of plain(render({ outputPad, expanded: true })) ?? [])
				expect(row.slice(0, outputPad).trim()).toBe("");
		}
	});

	test("of a form that this version does not know is left to Pi", () => {
		expect(render({ details: null })).toBeUndefined();
		expect(render({ details: { mail: { ...mail, kind: "parcel" } } })).toBeUndefined();
	});

	test("that has images beside its text says so where they are", () => {
		const content = [
			{ type: "text" as const, text: "all of it" },
			{ type: "image" as const, data: "", mimeType: "image/png" },
		];
		expect(plain(render({ content, expanded: true }))?.slice(1)).toEqual([" all of it", " (image)"]);
	});

	/** Texts in which terminals and libraries count columns differently. */
	const scripts: [string, string][] = [
		["Latin", "The quick brown fox jumps over the lazy dog, and does it again. "],
		["one long word", "x".repeat(500)],
		["Chinese", "漢字かな交じり文、全角の文字。"],
		["Korean", "한국어 문장은 띄어쓰기가 있습니다. "],
		["Korean in parts", "\u1112\u1161\u11ab".repeat(10)],
		["Hindi", "यह क्षेत्र की भाषा में लिखा हुआ है और स्त्री श्रीमान क्ष्म्य । "],
		["Hindi without blanks", "क्षत्रियश्रीमान्"],
		["Thai", "ข้อความนี้ยาวมากและไม่มีช่องว่างจำนำทำกำ"],
		["Lao", "ນ້ຳຄຳທຳ"],
		["Burmese", "မြန်မာဘာသာစကားက္ကျွန်ုပ်"],
		["Tamil", "தமிழ்நாட்டின்க்ஷௌ"],
		["Bengali", "বাংলাক্ষ্মীস্ত্রীর"],
		["Arabic", "هذا نص طويل بالعربية لا معنى له "],
		["emoji", "👩‍👩‍👧‍👦🇩🇪👋🏽1️⃣©️☺️"],
		["single flags", "🇩 ".repeat(30)],
		["flag letters", "🇩🇪🇫".repeat(9)],
		["combining marks", "e\u0301\u0302\u0303a\u20dd"],
		["halfwidth", "ｶﾞｷﾞｸﾞ"],
		["tabs", "if (x)\t{\n\t\treturn\ty;\t}\t"],
		["zero width", "a\u200bb\u200dc\u2060d\ufeff"],
	];

	test.each(scripts)("is never wider than the terminal, which would end Pi: %s", (_name, text) => {
		const body = text.repeat(Math.ceil(500 / text.length));
		const firstLine = body.split("\n", 1)[0]?.slice(0, 200) ?? "";
		const details = { mail: { ...mail, sender: firstLine.slice(0, 100), firstLine } };
		for (const width of widths) {
			for (const expanded of [false, true]) {
				const rows = render({ details, content: textOf(body, firstLine.slice(0, 100)), expanded, width }) ?? [];
				const tooWide = rows.filter((row) => visibleWidth(row) > width);
				expect([width, expanded, tooWide]).toEqual([width, expanded, []]);
			}
		}
	});

	test.each([1, 2, 3, 5])("does not fail in a terminal %i columns wide", (width) => {
		expect(render({ width, expanded: true })?.length).toBeGreaterThan(0);
	});

	test("D8, L8 brings no escape sequence of a body or a name to the terminal", () => {
		const evil = "a\x1b[2J\x1b]0;title\x07b\x9b31m\x1bPq\x1b\\\r\x08\u202ec\x00";
		for (const expanded of [false, true]) {
			const rows = plain(render({ content: textOf(`${evil}\n${evil}`, evil), expanded })) ?? [];
			// biome-ignore lint/suspicious/noControlCharactersInRegex: that is what is looked for
			expect(rows.join("\n")).not.toMatch(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]/);
		}
	});

	test("D8, L8 brings none of what details of another copy hold to the terminal", () => {
		const evil = "a\x1b[2J\x07\n\u202e";
		const rows = plain(
			render({ details: { mail: { ...mail, sender: evil, firstLine: evil, status: evil, kind: "reply" } } }),
		);
		// biome-ignore lint/suspicious/noControlCharactersInRegex: that is what is looked for
		expect(rows?.join("")).not.toMatch(/[\x00-\x1f\x7f-\x9f\u202a-\u202e]/);
	});

	test("collapsed is short, however long the first line and the name are", () => {
		const details = { mail: { ...mail, sender: "s".repeat(128), firstLine: "x".repeat(200) } };
		for (const width of widths)
			expect(render({ details, width })?.length).toBeLessThan(1 + Math.ceil(400 / (width - 1)) + 1);
	});
});

initTheme("dark");
