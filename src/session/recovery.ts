import { errorMessage } from "../mail/disk.ts";
import { awaitsAnswer } from "../mail/envelope.ts";
import type { Claim, Mailbox, OpenMail } from "../mail/mailbox.ts";
import type { Answers } from "./answers.ts";
import type { Handover } from "./handover.ts";
import { keyOf, type Ledger } from "./ledger.ts";
import { inSlices } from "./slices.ts";

/** Mail with which Pi ended this often is not handed over again (design D12). */
const maxTries = 3;

interface RecoveryParts {
	mailbox: Mailbox;
	ledger: Ledger;
	handover: Handover;
	answers: Answers;
	warn: (text: string) => void;
}

/**
 * Takes in what earlier processes left of a mailbox, in slices: mail that was claimed and is not in the conversation, and
 * copies whose sending was cut short. With `isRestart` they ended; without, it was this one before a `/reload`. `done`
 * hears whether some of it could not be read for now. The returned function gives the rest up.
 */
export function takeInLeftOvers(
	{ mailbox, ledger, handover, answers, warn }: RecoveryParts,
	isRestart: boolean,
	done: (hasFailed: boolean) => void,
): () => void {
	/** As it is handed over, oldest first: to sort ten thousand at once would take long. */
	const left: OpenMail[] = [];
	/** How often each mail was tried, in all its copies. */
	const tries = new Map<string, number>();
	/** What was given up, copies and all. */
	const dead = new Set<string>();
	let hasFailed = false;

	function* work(): Generator<Claim | string | undefined> {
		try {
			yield* mailbox.leftOpen();
			yield* mailbox.recount();
			yield* mailbox.removeLeftovers();
		} catch (error) {
			// What was found until then is handed over all the same.
			failed(errorMessage(error));
		}
		for (const mail of left) {
			attempt(mail.path, () => resume(mail));
			yield undefined;
		}
	}

	function step(found: Claim | string | undefined): void {
		if (typeof found === "string") warn(found);
		else if (found?.result === "claimed") take(found.mail);
		else if (found?.result === "dead") attempt(found.path, () => answers.setAside(found));
		else if (found?.result === "failed")
			failed(`${found.path} cannot be read now and will be tried again: ${found.reason}`);
	}

	function take(mail: OpenMail): void {
		const key = keyOf(mail.envelope);
		left.splice(placeOf(mail.name), 0, mail);
		tries.set(key, (tries.get(key) ?? 0) + mail.tries);
	}

	function placeOf(name: string): number {
		let [low, high] = [0, left.length];
		while (low < high) {
			const middle = (low + high) >>> 1;
			if ((left[middle]?.name ?? "") < name) low = middle + 1;
			else high = middle;
		}
		return low;
	}

	function resume(mail: OpenMail): void {
		const { path, envelope } = mail;
		const ends = (tries.get(keyOf(envelope)) ?? 0) + (isRestart ? 1 : 0);
		if (!dead.has(keyOf(envelope)) && (ends < maxTries || ledger.has(envelope))) {
			handover.resume(mail, isRestart);
			return;
		}
		dead.add(keyOf(envelope));
		const reason = `Pi ended ${ends} times before this mail was in the conversation`;
		answers.setAside({ path, reason, ...(awaitsAnswer(envelope) && { owing: envelope }) });
	}

	function attempt(path: string, action: () => void): void {
		try {
			action();
		} catch (error) {
			failed(`${path} will be tried again: ${errorMessage(error)}`);
		}
	}

	function failed(text: string): void {
		hasFailed = true;
		warn(text);
	}

	return inSlices(work(), step, () => done(hasFailed), failed);
}
