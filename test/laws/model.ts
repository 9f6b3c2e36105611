import type { Envelope } from "../../src/mail/envelope.ts";

/** A mail that somebody tried to send. Its text names it, since a sender that is killed does not learn its id. */
export interface ModelMail {
	readonly tag: string;
	readonly from: string;
	readonly to: string;
	readonly kind: Envelope["kind"];
	/** It may start no run. */
	readonly isQuiet: boolean;
	/** What a reply of the peer answers. */
	readonly inReplyTo: readonly string[];
	/** Known from the receipt, or from where the mail was found. */
	id: string | undefined;
	/** `open` while nobody has said what became of it, and for good when its sender was killed before it could. */
	state: "open" | "accepted" | "refused" | "retracted";
}

/** What a conversation shows of one mail. */
export interface Shown {
	readonly id: string;
	readonly from: string;
	readonly kind: string;
	readonly firstLine: string;
	readonly inReplyTo: readonly string[];
	/** In the conversation, taken over by a listener, or answered without having been read. */
	readonly as: "entry" | "taken" | "answered unread";
	/** Of the result of a call: that call. */
	readonly call?: string | undefined;
}

/** A call that a session's model has made. Its result names it. */
export interface ModelCall {
	readonly tag: string;
	readonly address: string;
	/** Whether its model was given its turn back. */
	isHandedBack: boolean;
	/** Whether it has ended by itself, in a process that could tell. */
	hasEnded: boolean;
}

/** A reply, wherever it was seen. */
interface Answer {
	readonly id: string;
	readonly from: string;
	readonly to: string;
	readonly inReplyTo: readonly string[];
	/** Unknown where only a part of it is shown. */
	readonly body?: string | undefined;
}

/** A law that a history has broken. */
export class BrokenLaw extends Error {
	override readonly name = "BrokenLaw";
}

export function hold(isTrue: boolean, law: () => string): void {
	if (!isTrue) throw new BrokenLaw(law());
}

/** What must be true of all mail, from what was sent and what is seen. Knows nothing of files and sessions. */
export class Model {
	readonly mails = new Map<string, ModelMail>();
	readonly calls = new Map<string, ModelCall>();
	/** The reply to each request and ask, by its id: planned, and arrived. */
	readonly #answers = new Map<string, Answer>();
	readonly #arrived = new Set<string>();

	/** A mail that is about to be sent. */
	sending(
		from: string,
		to: string,
		kind: Envelope["kind"],
		inReplyTo: readonly string[] = [],
		isQuiet = false,
	): ModelMail {
		const tag = `mail ${this.mails.size + 1}`;
		const mail: ModelMail = { tag, from, to, kind, isQuiet, inReplyTo, id: undefined, state: "open" };
		this.mails.set(tag, mail);
		return mail;
	}

	/** A call that is about to be made. */
	calling(address: string, how = "call"): ModelCall {
		const tag = `${how} ${this.calls.size + 1}`;
		const call: ModelCall = { tag, address, isHandedBack: false, hasEnded: false };
		this.calls.set(tag, call);
		return call;
	}

	/** The requests and asks that were accepted and that a reply has to answer. */
	owed(): ModelMail[] {
		return this.accepted().filter(({ kind }) => kind === "request" || kind === "ask");
	}

	accepted(): ModelMail[] {
		return [...this.mails.values()].filter(({ state }) => state === "accepted");
	}

	isAnswered(mail: ModelMail): boolean {
		return mail.id !== undefined && this.#arrived.has(mail.id);
	}

	/** Whether a reply to it was planned. */
	isPlanned(mail: ModelMail): boolean {
		return mail.id !== undefined && this.#answers.has(mail.id);
	}

	/** A reply was planned, or has arrived: no request has two. */
	answered(reply: Answer, hasArrived: boolean): void {
		for (const asked of reply.inReplyTo) {
			const mail = this.#byId(asked);
			if (mail === undefined) continue;
			hold(mail.from === reply.to && mail.to === reply.from, () => `${mail.tag} is answered by ${reply.from}`);
			const other = this.#answers.get(asked);
			const isSame =
				other === undefined || (other.id === reply.id && (other.body ?? reply.body) === (reply.body ?? other.body));
			hold(isSame, () => `${mail.tag} has two replies:\n${JSON.stringify(other)}\n${JSON.stringify(reply)}`);
			this.#answers.set(asked, { ...reply, body: reply.body ?? other?.body });
			if (hasArrived) this.#arrived.add(asked);
		}
	}

	/** A conversation holds nothing twice, nothing that was not sent to it, and nothing that was not sent at all. */
	judge(address: string, shown: readonly Shown[]): void {
		const keys = new Map<string, Shown>();
		const results = new Set<string>();
		for (const item of shown) {
			const key = `${item.from} ${item.id}`;
			const other = keys.get(key);
			hold(other === undefined, () => `${address} has ${item.firstLine} twice: ${other?.as} and ${item.as} (${key})`);
			keys.set(key, item);
			const mail = this.mails.get(item.firstLine);
			if (item.as !== "entry") continue;
			if (item.kind === "result") {
				hold(item.from === address, () => `${address} has the result of another's call: ${item.firstLine}`);
				hold(!results.has(item.call ?? ""), () => `${address} has two results of ${item.call}`);
				results.add(item.call ?? "");
				const call = this.calls.get(item.firstLine);
				const isTrue = call === undefined || (call.address === address && call.hasEnded);
				hold(isTrue, () => `${address} has a result of ${item.firstLine}, which has not ended`);
				continue;
			}
			if (mail === undefined) {
				hold(item.kind === "reply", () => `${address} has a ${item.kind} that nobody sent: ${item.firstLine}`);
				continue;
			}
			hold(item.kind !== "control", () => `${address} shows control mail: ${item.firstLine}`);
			mail.id ??= item.id;
			hold(mail.id === item.id && mail.to === address && mail.from === item.from && mail.kind === item.kind, () =>
				[`${address} has ${mail.tag}, which was sent otherwise:`, JSON.stringify(item), JSON.stringify(mail)].join(" "),
			);
			hold(mail.state === "accepted" || mail.state === "open", () => `${address} has ${mail.tag}: ${mail.state}`);
		}
	}

	#byId(id: string): ModelMail | undefined {
		for (const mail of this.mails.values()) if (mail.id === id) return mail;
		return undefined;
	}
}
