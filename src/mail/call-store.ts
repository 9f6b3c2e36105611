import { join } from "node:path";
import * as z from "zod/mini";
import { type Disk, errorCode, UnfitError } from "./disk.ts";
import { callStates } from "./envelope.ts";

/** A part of what a tool returned. */
export type ResultPart = { type: "text"; text: string } | { type: "image"; data: string; mimeType: string };

/** A call that goes on though its model was given the turn back, as it lies in `<address>/calls/<id>.json`. */
export interface OpenCall {
	/** What the model knows it by: `call-` and 16 letters and digits. */
	id: string;
	tool: string;
	/** Its arguments as JSON, cut at 4096 characters. */
	arguments: string;
	/** When it began, in milliseconds since 1970. */
	started: number;
	/** The hop count of the run that made it. */
	hops: number;
	/** The question that is decided before it is made. */
	ticket?: string | undefined;
}

/** How a call ended, as it lies in `<address>/results/<id>.json` as long as the mailbox does. */
export interface EndedCall extends OpenCall {
	state: (typeof callStates)[number];
	/** When it ended, in milliseconds since 1970. */
	finished: number;
	content: ResultPart[];
}

/**
 * The calls of one address. An open one has a file in `calls/` from before its model gets the turn back until its result is
 * mail; so what is there at a start was cut short by the end of its process, or was not made, as nobody had decided about
 * it. All methods but `listOpen` throw the disk's errors.
 */
export interface CallStore {
	open(call: OpenCall): void;
	/** Keeps a result. It survives a power cut. */
	keep(call: EndedCall): void;
	/** The result has become mail. */
	close(id: string): void;
	/** The calls that are open. What cannot be read now, one or all, is passed over; `failed` hears why. */
	listOpen(failed: (error: unknown) => void): OpenCall[];
	/** How a call ended; undefined when nothing is kept of it. */
	ended(id: string): EndedCall | undefined;
	/** Where its result lies. */
	pathOf(id: string): string;
}

/** Largest file of a call that is read, in bytes. */
const maxCallBytes = 64 * 1024 * 1024;
const maxArguments = 4096;
const idPattern = /^call-[a-z0-9]{16}$/;

/** Whether a text can be the id of a call: a path is built from it. */
export function isCallId(text: string): boolean {
	return idPattern.test(text);
}

/** Where the calls of an address lie in its folder, open ones and ended ones; they need not exist. */
export function callFolders(folder: string): [calls: string, results: string] {
	return [join(folder, "calls"), join(folder, "results")];
}

/** The calls in the folder of an address, which need not exist. */
export function openCallStore(disk: Disk, folder: string): CallStore {
	const [calls, results] = callFolders(folder);

	function write(box: string, call: OpenCall, isDurable: boolean): void {
		if (!isCallId(call.id)) throw new Error(`"${call.id}" is no id of a call`);
		disk.ensureFolder(box);
		const path = join(box, `${call.id}.json`);
		disk.replace(path, `${JSON.stringify(call)}\n`);
		if (!isDurable) return;
		disk.syncFile(path);
		disk.syncFolder(box);
	}

	function read(path: string): unknown {
		try {
			return JSON.parse(disk.read(path, maxCallBytes));
		} catch (error) {
			// A crash leaves a whole file or none; what else lies there is no call.
			const isNoCall = error instanceof SyntaxError || error instanceof UnfitError;
			if (isNoCall || errorCode(error) === "ENOENT") return undefined;
			throw error;
		}
	}

	function openCallIn(name: string): OpenCall[] {
		const path = join(calls, name);
		if (!isCallId(name.replace(/\.json$/, "")) || disk.entry(path) !== "file") return [];
		const { data } = z.safeParse(openCallSchema, read(path));
		return data === undefined || `${data.id}.json` !== name ? [] : [data];
	}

	return {
		open: (call) => write(calls, { ...call, arguments: call.arguments.slice(0, maxArguments) }, false),
		keep: (call) => write(results, call, true),
		close: (id) => disk.remove(join(calls, `${id}.json`)),
		listOpen(failed) {
			const names = orNone(() => (disk.entry(calls) === "folder" ? disk.list(calls) : []), failed);
			return names.flatMap((name) => orNone(() => openCallIn(name), failed));
		},
		ended(id) {
			return isCallId(id) ? z.safeParse(endedCallSchema, read(join(results, `${id}.json`))).data : undefined;
		},
		pathOf: (id) => join(results, `${id}.json`),
	};
}

function orNone<T>(read: () => T[], failed: (error: unknown) => void): T[] {
	try {
		return read();
	} catch (error) {
		failed(error);
		return [];
	}
}

/** A part of a result that is one; undefined for anything else. */
export function resultPartOf(part: unknown): ResultPart | undefined {
	return z.safeParse(resultPartSchema, part).data;
}

const resultPartSchema = z.discriminatedUnion("type", [
	z.object({ type: z.literal("text"), text: z.string() }),
	z.object({ type: z.literal("image"), data: z.string(), mimeType: z.string() }),
]);

const openCallSchema = z.object({
	id: z.string(),
	tool: z.string(),
	arguments: z.string(),
	started: z.number(),
	hops: z.int().check(z.gte(0)),
	ticket: z.optional(z.string()),
});

const endedCallSchema = z.extend(openCallSchema, {
	state: z.enum(callStates),
	finished: z.number(),
	content: z.array(resultPartSchema),
});
