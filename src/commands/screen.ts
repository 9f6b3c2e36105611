import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { errorReason } from "../mail/disk.ts";
import { awaitsAnswer, type Control, type Envelope } from "../mail/envelope.ts";
import type { Findings } from "../mail/finding.ts";
import type { RunningSession } from "../mail/running.ts";
import { counted, field, textLines } from "../mail/text.ts";
import type { PendingTicket } from "../session/calls.ts";
import { canAnswer, type Listed } from "../session/overview.ts";
import type { MailSession } from "../session/session.ts";
import { cut } from "../view/columns.ts";
import { questionText, terminalSize } from "../view/dialog-text.ts";
import { isCancel, type Keybindings, submitKey } from "../view/keys.ts";
import { type Memory, newMemory, type Said, type Tab } from "../view/memory.ts";
import { type Action, createScreen } from "../view/screen.ts";

/** The mailbox screen of a terminal: shown until it is closed, or its session ends. */
export interface ScreenControl {
	/** Opens the screen, at a tab or where it was closed; does nothing while it is open. Resolves when it is closed. */
	open(ctx: ExtensionContext, tab?: Tab): Promise<void>;
	/** Closes it, at the end of the session. */
	close(): void;
}

/** `current` is the session that has the mailbox; without one, `reasonOff` says why. */
export function createScreenControl(
	current: () => MailSession | undefined,
	reasonOff: () => string,
	diagnose: (ctx: ExtensionContext) => Findings,
): ScreenControl {
	/** What a person left there, for as long as the session lives. */
	const memories = new WeakMap<MailSession, Memory>();
	let isOpen = false;
	let closeNow: (() => void) | undefined;
	let keybindings: Keybindings | undefined;
	/** What the keys go to. */
	let findFocused: () => Focusable | undefined = () => undefined;

	function memoryOf(session: MailSession): Memory {
		const memory = memories.get(session) ?? newMemory();
		memories.set(session, memory);
		return memory;
	}

	/** Shows the screen until a key needs a dialog or closes it. Not as an overlay: Pi then gives the typed text back. */
	function show({ ctx, session, memory }: Shown): Promise<Action> {
		return ctx.ui.custom<Action>((tui, theme, bindings, done) => {
			keybindings = bindings;
			findFocused = () => focusedIn(tui.children);
			const finish = (action: Action) => {
				closeNow = undefined;
				screen.dispose();
				done(action);
			};
			closeNow = () => finish({ type: "close" });
			const screen = createScreen({
				session,
				memory,
				diagnose: () => diagnose(ctx),
				terminal: tui.terminal,
				requestRender: () => tui.requestRender(),
				theme,
				keybindings: bindings,
				done: finish,
			});
			return screen;
		});
	}

	async function open(ctx: ExtensionContext, tab?: Tab): Promise<void> {
		const session = current();
		if (session === undefined) {
			ctx.ui.notify(`The mailbox cannot be shown: this session has none, because ${reasonOff()}.`, "error");
			return;
		}
		if (isOpen) return;
		isOpen = true;
		const memory = memoryOf(session);
		const shown = { ctx, session, memory };
		memory.message = undefined;
		if (tab !== undefined) {
			memory.tab = tab;
			memory.opened = undefined;
			memory.picksFor = undefined;
			memory.isSearching = false;
		}
		try {
			for (;;) {
				const action = await show(shown);
				// What Pi handed out must not be used once the session was replaced.
				if (action.type === "close" || current() !== session) return;
				const said = await perform(shown, action);
				if (current() !== session) return;
				memory.message = said;
			}
		} finally {
			isOpen = false;
		}
	}

	async function perform(shown: Shown, action: Exclude<Action, { type: "close" }>): Promise<Said | undefined> {
		try {
			if (action.type === "write") return await write(shown, action.to);
			if (action.type === "decide") return await decide(shown, action.ticket, action.isApproved);
			if (action.type === "cancelAttached") return await cancelAttached(shown);
			if (action.type === "control") return await control(shown, action.to, action.control);
			const { listed } = action;
			if (action.type === "delete") return await remove(shown, listed);
			const found = shown.session.overview.whole(listed);
			if (!("envelope" in found)) return failed(`Nothing was done: ${found.problem}.`);
			if (action.type === "reply") return await reply(shown, listed, found.envelope);
			if (action.type === "edit") return await edit(shown, listed, found.envelope);
			return await drop(shown, listed, found.envelope);
		} catch (error) {
			return failed(`That did not work: ${errorReason(error)}.`);
		}
	}

	/**
	 * Lets a person write in Pi's editor. Its cancel would lose what was typed: the key that cancels becomes the one that
	 * submits, behind a mark by which the text is known to be a draft, which is there again the next time. `send` says whether
	 * it is done with.
	 */
	async function compose(
		{ ctx, session, memory }: Shown,
		{ title, key, prefill = "" }: { title: string; key: string; prefill?: string },
		send: (text: string) => Said,
	): Promise<Said | undefined> {
		const submit = keybindings === undefined ? "\r" : submitKey(keybindings);
		const cancels = (data: string) =>
			keybindings === undefined ? data === "\u001b" || data === "\u0003" : isCancel(data, keybindings);
		let editor: Focusable | undefined;
		const stop = ctx.ui.onTerminalInput((data) => {
			// Another extension may have put a dialog before the editor: there, the key that cancels must not say yes.
			if (submit === undefined || editor?.focused !== true || !cancels(data)) return undefined;
			// Pasted, so that a backslash before the cursor does not make a new line of the key.
			return { data: `\u001b[200~${cancelMark}\u001b[201~${submit}` };
		});
		let text: string | undefined;
		try {
			const typed = ctx.ui.editor(title, memory.drafts.get(key) ?? prefill);
			editor = findFocused();
			text = await typed;
		} finally {
			stop();
		}
		if (text === undefined || current() !== session) return undefined;
		if (text.includes(cancelMark)) {
			const draft = text.replaceAll(cancelMark, "").trim();
			if (draft === "" || draft === prefill.trim()) memory.drafts.delete(key);
			else memory.drafts.set(key, draft);
			return memory.drafts.has(key)
				? { text: "Nothing was sent. What you typed is kept, and is there when you write this again.", isError: false }
				: undefined;
		}
		// Kept until it is known to be sent.
		memory.drafts.set(key, text);
		const said = send(text);
		if (!said.isError) memory.drafts.delete(key);
		session.refresh();
		return said;
	}

	function write(shown: Shown, to: string): Promise<Said | undefined> {
		const { session, memory } = shown;
		const title = `To ${session.overview.nameOf(to)} (${to}), as a request`;
		return compose(shown, { title, key: `to ${to}` }, (text) => {
			const said = sendRequest(session, memory, to, text);
			// The recipient is found: back to where a person came from.
			if (!said.isError && memory.picksFor !== undefined) {
				memory.tab = memory.picksFor;
				memory.picksFor = undefined;
			}
			return said;
		});
	}

	function reply(shown: Shown, listed: Listed, mail: Envelope): Promise<Said | undefined> {
		const { session, memory } = shown;
		const who = session.overview.nameOf(mail.from);
		const isAnswer = canAnswer(mail.kind, session.overview.status(listed).word);
		const title = isAnswer ? `Answer to the ${mail.kind} from ${who}` : `To ${who}, as a new request`;
		return compose(shown, { title, key: `reply ${mail.from} ${mail.id}` }, (text) => {
			if (!isAnswer) return sendRequest(session, memory, mail.from, text);
			const { ok, message } = session.byHand.reply(listed, mail, text);
			return { text: message, isError: !ok };
		});
	}

	function edit(shown: Shown, listed: Listed, mail: Envelope): Promise<Said | undefined> | Said {
		const { session, memory } = shown;
		const who = session.overview.nameOf(mail.to);
		const { word } = session.overview.status(listed);
		if (word !== "queued")
			return failed(`Nothing was changed: it is ${word}; only a mail that is queued can be edited.`);
		const draft = {
			title: `Edit the ${mail.kind} to ${who}`,
			key: `edit ${mail.id}`,
			prefill: textLines(mail.body).join("\n"),
		};
		return compose(shown, draft, (text) => {
			if (text === draft.prefill.trim()) return { text: "Nothing was changed.", isError: false };
			const outcome = session.mailbox.edit({ envelope: mail, name: listed.name }, withTabs(text, mail.body));
			if (!outcome.ok) return failed(`${outcome.message} What you typed is kept.`);
			session.asks.replaced(mail.id, outcome);
			memory.opened = undefined;
			memory.sentId = outcome.envelope.id;
			return { text: `Replaced: ${who} had not claimed it and will see the new text only.`, isError: false };
		});
	}

	async function decide(
		{ ctx, session, memory }: Shown,
		{ id, session: of, call, whole, message }: PendingTicket,
		isApproved: boolean,
	): Promise<Said | undefined> {
		let reason: string | undefined;
		if (isApproved) {
			const before = `Let ${session.overview.nameOf(of)} make this call? ${message}`;
			const question = questionText({ before, text: whole() }, 2, terminalSize());
			if (!(await isSure(ctx, question, "Approve it", "Decide later"))) return undefined;
		} else {
			reason = await ctx.ui.input(`${cut(call, terminalSize().columns - 2)}\nWhy not? The model reads it.`, "");
			if (reason === undefined) return undefined;
		}
		if (current() !== session || session.calls === undefined) return undefined;
		const { ok, message: said } = session.calls.decide(id, isApproved, reason?.trim() || undefined);
		if (ok) memory.opened = undefined;
		return { text: said, isError: !ok };
	}

	async function control(
		{ ctx, session }: Shown,
		{ address }: RunningSession,
		wanted: Control,
	): Promise<Said | undefined> {
		const who = session.overview.nameOf(address);
		const isSelf = address === session.mailbox.address;
		if (isSelf && !session.isOwner)
			return failed("Nothing was done: another process has this session open and receives its mail.");
		const question = questions[wanted.op];
		if (question !== undefined) {
			const isMeant = await isSure(ctx, question.ask(who), question.yes);
			if (!isMeant || current() !== session) return undefined;
		}
		if (isSelf) session.control(wanted);
		else {
			const sent = session.outbox.control(address, wanted);
			if (!sent.ok) return failed(sent.message);
		}
		return { text: `${who} ${wishes[wanted.op]}.`, isError: false };
	}

	async function cancelAttached({ ctx, session }: Shown): Promise<Said | undefined> {
		const question = "Cancel all calls that the model waits for?\nIt is told that they were, and its run goes on.";
		if (!(await isSure(ctx, question, "Cancel them")) || current() !== session) return undefined;
		const count = session.calls?.cancelAttached().length ?? 0;
		return count === 0
			? failed("Nothing was cancelled: they have ended already.")
			: { text: `Cancelled ${counted(count, "call")}: the model is told so.`, isError: false };
	}

	async function remove({ ctx, session }: Shown, listed: Listed): Promise<Said | undefined> {
		const question = `Delete this dead mail?\nIt was never read. Its file goes:\n${field(listed.path, 512)}`;
		if (!(await isSure(ctx, question, "Delete it")) || current() !== session) return undefined;
		session.overview.removeDead(listed);
		return { text: "Deleted.", isError: false };
	}

	async function drop({ ctx, session }: Shown, listed: Listed, mail: Envelope): Promise<Said | undefined> {
		const who = session.overview.nameOf(mail.from);
		const what = awaitsAnswer(mail) ? `${who} gets the answer that it failed.` : "The model will not see it.";
		const question = `Drop the ${mail.kind} from ${who}?\n${what}`;
		if (!(await isSure(ctx, question, "Drop it")) || current() !== session) return undefined;
		const { ok, message } = session.byHand.drop(listed, mail);
		return { text: message, isError: !ok };
	}

	return { open, close: () => closeNow?.() };
}

/** The screen that is open: where, of which session, and what a person left there. */
interface Shown {
	ctx: ExtensionContext;
	session: MailSession;
	memory: Memory;
}

/** A component that Pi tells whether it has the focus. */
interface Focusable {
	readonly focused: boolean;
}

/** The component that has the focus; undefined when it is one that is not told so. */
function focusedIn(components: readonly object[]): Focusable | undefined {
	for (const component of components) {
		if (isFocusable(component) && component.focused) return component;
		const found = "children" in component && Array.isArray(component.children) && focusedIn(component.children);
		if (found) return found;
	}
	return undefined;
}

function isFocusable(component: object): component is Focusable {
	return "focused" in component && typeof component.focused === "boolean";
}

/** What a session is told to do. */
const wishes: Record<Control["op"], string> = {
	pause: "is told to pause: mail starts no turn until it may go on",
	resume: "is told to go on",
	stop: "is told to end its run",
	cancel: "is told to cancel its calls",
	"cancel-attached": "is told to cancel the calls that its model waits for",
};

/** What is asked before what cannot be undone. */
const questions: Partial<Record<Control["op"], { ask: (who: string) => string; yes: string }>> = {
	stop: { ask: (who) => `End the run of ${who}, as Esc there would?`, yes: "End it" },
	cancel: { ask: (who) => `Cancel all calls of ${who} that go on by themselves?`, yes: "Cancel them" },
};

/** Asks a person, who has to do more than press Enter to say yes. */
async function isSure(ctx: ExtensionContext, question: string, yes: string, no = "Keep it"): Promise<boolean> {
	return (await ctx.ui.select(question, [no, yes])) === yes;
}

/** Pi's editor makes spaces of tabs: the lines that a person left as they were are again those of the body. */
function withTabs(text: string, body: string): string {
	const lines = new Map(body.split(/\r\n|[\n\u2028\u2029]/).map((line) => [textLines(line)[0], line]));
	return text
		.split("\n")
		.map((line) => lines.get(line) ?? line)
		.join("\n");
}

/** Of characters that nobody types. */
const cancelMark = "\ue000\uf8ff\ue000";

function sendRequest(session: MailSession, memory: Memory, to: string, text: string): Said {
	const sent = session.outbox.send({ to, kind: "request", body: text, hops: 0 });
	if (!sent.ok) return failed(`${sent.message} What you typed is kept.`);
	memory.sentId = sent.envelope.id;
	return { text: [`Sent to ${session.overview.nameOf(to)}.`, ...sent.notes].join(" "), isError: false };
}

function failed(text: string): Said {
	return { text, isError: true };
}
