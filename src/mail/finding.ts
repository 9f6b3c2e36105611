import { errorReason } from "./disk.ts";
import { oneLine } from "./text.ts";

/** What an examination found: one sentence, and how to mend it. A command to run stands at the end of `mend`, after `run: `. */
export interface Finding {
	level: "ok" | "warning" | "error";
	what: string;
	mend?: string;
}

/** Findings one after the other; undefined is a place to pause. */
export type Findings<R = void> = Generator<Finding | undefined, R>;

/**
 * One area of an examination: what is wrong in it, at most {@link maxFindings} findings and how many more there are; or,
 * when nothing is wrong, the one sentence that the examination returns. One that fails is a finding itself.
 */
export function* inArea(name: string, examination: Findings<string>): Findings {
	let count = 0;
	let worst: Finding["level"] = "warning";
	try {
		for (;;) {
			const step = examination.next();
			if (step.done === true) {
				if (count === 0) yield { level: "ok", what: step.value };
				break;
			}
			// What is well is no reason to leave out that all else is.
			if (step.value === undefined || step.value.level === "ok" || ++count <= maxFindings) yield step.value;
			else {
				if (step.value.level === "error") worst = "error";
				yield undefined;
			}
		}
	} catch (error) {
		yield {
			level: "error",
			what: `${name} cannot be examined: ${oneLine(errorReason(error))}`,
			mend: "mend what that names, and look again",
		};
	} finally {
		examination.return("");
	}
	if (count <= maxFindings) return;
	const what = `${name}: ${count - maxFindings} more findings are not shown`;
	yield { level: worst, what, mend: "mend those that are shown, and look again" };
}

/** A path as one word for a shell: bash, zsh and ksh read it; other shells, when it holds no control character. */
export function quoted(path: string): string {
	if (oneLine(path) === path) return `'${path.replaceAll("'", "'\\''")}'`;
	const bytes = [...Buffer.from(path)].map((byte) => {
		const isPlain = byte > 0x20 && byte < 0x7f && byte !== 0x27 && byte !== 0x5c;
		return isPlain ? String.fromCharCode(byte) : `\\${byte.toString(8).padStart(3, "0")}`;
	});
	return `$'${bytes.join("")}'`;
}

const maxFindings = 20;
