import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { temporaryFolder } from "../support/disk.ts";
import { type Call, trace, whyNoTrace } from "../support/strace.ts";
import { environmentOf, receiptsIn, shapeOf } from "./tree.ts";

/** What the system is asked to change or to make safe while a process sends one mail, in order, and when it has its receipt. */
async function delivered(durability: "durable" | "fast", kind: string, recipient: "known" | "new"): Promise<string[]> {
	const folder = temporaryFolder();
	const args = [join(import.meta.dirname, "delivery.ts"), durability, kind, recipient];
	const { calls, output } = await trace({ args, env: environmentOf(folder) });
	expect(receiptsIn(output)).toHaveLength(1);
	return calls.flatMap((call) => stepOf(call, folder));
}

function stepOf(call: Call, folder: string): string[] {
	const isReceipt = call.name === "write" && call.line.startsWith("write(1<");
	if (isReceipt) return ["receipt"];
	// `state.json` can be rebuilt: it is not made safe.
	if (!call.paths.some((path) => path.startsWith(folder) && !path.includes("/state.json"))) return [];
	const shape = shapeOf(call, folder);
	const [, mode] = /, (0\d+)\)/.exec(call.line) ?? [];
	if (/^mkdir/.test(shape)) return [`${shape} ${mode}`];
	if (/^open/.test(shape) && call.line.includes("O_CREAT")) {
		return [`${shape} ${mode}${call.line.includes("O_EXCL") ? " exclusively" : ""}`];
	}
	return /^(write|fsync|fdatasync|link|rename|unlink|rmdir|chmod|ftruncate)/.test(shape) ? [shape] : [];
}

const written = ["open bob/tmp/N-ID.json 0600 exclusively", "write bob/tmp/N-ID.json"];
const copied = "link bob/tmp/N-ID.json alice/sent/N-ID.json.part";
const published = "rename bob/tmp/N-ID.json bob/new/N-ID.json";
const done = "rename alice/sent/N-ID.json.part alice/sent/N-ID.json";
/** What a durable request takes, its recipient's boxes being there. */
const durably = [
	...written,
	copied,
	"fsync bob/tmp/N-ID.json",
	published,
	"fsync bob/new",
	"fsync alice/sent",
	done,
	"receipt",
];
const boxesMade = ["bob", "bob/tmp", "bob/new", "bob/cur", "bob/sent"].map((folder) => `mkdir ${folder} 0700`);

describe.skipIf(whyNoTrace() !== undefined)("the system calls of a delivery", () => {
	test("L2 D5: a mail and its copy are safe from a power cut before the sender has its receipt", async () => {
		expect(await delivered("durable", "request", "known")).toEqual(durably);
	});

	test("L2 D5: so is a mailbox that had to be made for it", async () => {
		expect(await delivered("durable", "request", "new")).toEqual([...boxesMade, "fsync bob", "fsync ", ...durably]);
	});

	test("L2 D5: so is a reply, which has no copy", async () => {
		expect(await delivered("durable", "reply", "known")).toEqual([
			...written,
			"fsync bob/tmp/N-ID.json",
			published,
			"fsync bob/new",
			"receipt",
		]);
	});

	test("D5: with fast durability nothing waits for the disk, and the order is the same", async () => {
		const rest = [...written, copied, published, done, "receipt"];
		expect(await delivered("fast", "request", "known")).toEqual(rest);
		expect(await delivered("fast", "request", "new")).toEqual([...boxesMade, ...rest]);
	});
});
