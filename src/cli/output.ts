import { bidiMarks, manyLines, oneLine } from "../mail/text.ts";

/** What a command says: results on standard output, everything else on standard error. */
export interface Output {
	readonly isJson: boolean;
	/** Whether a person sees standard error as it is written. */
	readonly isInteractive: boolean;
	/** Writes one line, or several; false when nobody reads standard output any more. */
	print(text: string): Promise<boolean>;
	/** Writes a value as one line of JSON. */
	printJson(value: unknown): Promise<boolean>;
	/** Says something beside the result. */
	note(text: string): void;
	/** Says why the command did not do what was asked. */
	fail(code: string, message: string): void;
	/** Shows in place how far something is, where a person sees it; undefined takes it away. */
	progress(text: string | undefined): void;
	/** Styles for standard output; without colours they change nothing. */
	bold(text: string): string;
	dim(text: string): string;
}

type Stream = NodeJS.WriteStream;

export function createOutput(
	isJson: boolean,
	{ stdout, stderr, env }: Pick<NodeJS.Process, "env"> & { stdout: Stream; stderr: Stream } = process,
): Output {
	const hasColours = (stream: Stream) =>
		stream.isTTY === true && (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb" && !isJson;
	const isInteractive = stderr.isTTY === true && env.TERM !== "dumb";
	let isClosed = false;
	let isShowing = false;
	// Whoever reads may stop before the end, as `head` does: that is no error.
	stdout.on("error", () => {
		isClosed = true;
	});
	stderr.on("error", () => {});

	/** What this stream can show: a terminal whose language has no Unicode gets ASCII. */
	function suited(stream: Stream, text: string): string {
		return stream.isTTY === true && !isUnicode(env) ? text.replace(/[\u0080-\u{10ffff}]/gu, "?") : text;
	}

	function write(text: string): Promise<boolean> {
		if (isClosed) return Promise.resolve(false);
		clear();
		return new Promise((resolve) => stdout.write(suited(stdout, `${text}\n`), (error) => resolve(error == null)));
	}

	function clear(): void {
		if (isShowing) stderr.write("\r\x1b[K");
		isShowing = false;
	}

	function style(code: number, text: string): string {
		return hasColours(stdout) ? `\x1b[${code}m${text}\x1b[0m` : text;
	}

	return {
		isJson,
		isInteractive,
		print: write,
		printJson: (value) => write(jsonLine(value)),
		note(text) {
			clear();
			stderr.write(suited(stderr, `${manyLines(text)}\n`));
		},
		fail(code, message) {
			clear();
			if (isJson) stderr.write(`${jsonLine({ error: { code, message } })}\n`);
			else stderr.write(suited(stderr, `pi-session-mail: ${manyLines(message)}\n`));
		},
		progress(text) {
			if (!isInteractive) return;
			clear();
			if (text === undefined) return;
			stderr.write(suited(stderr, oneLine(text).slice(0, Math.max(10, (stderr.columns ?? 80) - 1))));
			isShowing = true;
		},
		bold: (text) => style(1, text),
		dim: (text) => style(2, text),
	};
}

/** One line of JSON. What could control a terminal is escaped: JSON itself leaves some of it as it is. */
function jsonLine(value: unknown): string {
	return JSON.stringify(value).replace(
		left,
		(character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
	);
}

const left = new RegExp(`[\\u007f-\\u009f\\u2028\\u2029${bidiMarks}]`, "g");

function isUnicode(env: NodeJS.ProcessEnv): boolean {
	if (process.platform === "win32" || process.platform === "darwin") return true;
	return /utf-?8/i.test(env.LC_ALL || env.LC_CTYPE || env.LANG || "");
}
