/** An option of a command. */
export interface Option {
	type: "boolean" | "string";
	short?: string;
	/** What stands for the value in help; of options with a value. */
	value?: string;
	what: string;
}

/** A command of the program. */
export interface Command {
	/** What stands behind its name. */
	usage: string;
	summary: string;
	/** Whole sentences for its help. */
	detail: readonly string[];
	options: Readonly<Record<string, Option>>;
	examples: readonly string[];
	/** Exit codes besides 0, 1 and 2. */
	exits: Readonly<Record<number, string>>;
	/** Whether words behind it are recipients, for completion. */
	takesRecipient?: true;
}

const from: Option = {
	type: "string",
	value: "NAME",
	what: "the lasting address to act under (or set PI_SESSION_MAIL_NAME)",
};
const interrupted = { 130: "it was interrupted" };

/** Options of every command. */
export const commonOptions: Readonly<Record<string, Option>> = {
	json: { type: "boolean", what: "print JSON: one line, or one for each event; errors as JSON on standard error" },
	help: { type: "boolean", short: "h", what: "show this help" },
};

/** All commands, in the order of help. */
export const commands = {
	list: {
		usage: "[--names]",
		summary: "list the sessions and programs that run",
		detail: ["A line for each: what to type as recipient, full id, folder, idle or busy, and on whom it waits."],
		options: { names: { type: "boolean", what: "print only what to type as recipient, one a line" } },
		examples: ["pi-session-mail list", "pi-session-mail list --json | jq -r '.sessions[].address'"],
		exits: {},
	},
	send: {
		usage: "TO [TEXT ...] [--from NAME] [--request] [--quiet] [--interrupt] [--id UUID]",
		summary: "send a message",
		detail: [
			"TO is the name or id of a session, or the name of a program. Without TEXT, or with - for it, the text is read from standard input.",
			"A message expects no answer. With --request the session works on it and its answer comes to the inbox of NAME; to wait for an answer, use ask.",
		],
		options: {
			from,
			request: { type: "boolean", what: "send a request, which is answered when the session's run ends; needs --from" },
			quiet: { type: "boolean", what: "do not wake the session" },
			interrupt: { type: "boolean", what: "end what the session waits for: its model gets the mail next" },
			id: {
				type: "string",
				value: "UUID",
				what: "an id of your choice: the same id sends nothing twice; needs --from",
			},
		},
		examples: [
			"pi-session-mail send reviewer the build is green",
			"git log -1 | pi-session-mail send reviewer --from ci",
		],
		exits: {},
		takesRecipient: true,
	},
	ask: {
		usage: "TO [TEXT ...] [--from NAME] [--timeout SECONDS]",
		summary: "ask a running session, wait, and print its answer",
		detail: [
			"Without TEXT, or with - for it, the question is read from standard input. While it waits, the program is listed like a session.",
			"An ask that nobody waits for any more is taken back, or its recipient is told.",
		],
		options: {
			from,
			timeout: { type: "string", value: "SECONDS", what: "how long to wait; default 600" },
		},
		examples: ['pi-session-mail ask reviewer "is the parser safe to change?"'],
		exits: {
			3: "the run that was to answer failed or was stopped; what was printed is no answer",
			4: "no answer came: not in time, the session ended, or it waits for this one itself",
			...interrupted,
		},
		takesRecipient: true,
	},
	inbox: {
		usage: "--from NAME",
		summary: "list the mail that waits",
		detail: ["Claims nothing: the mail waits on."],
		options: { from },
		examples: ["pi-session-mail inbox --from ci"],
		exits: {},
	},
	read: {
		usage: "[ID] [--all] [--wait SECONDS] --from NAME",
		summary: "print the oldest mail that waits, or the one of an id",
		detail: [
			"ID is the id of a mail or its first 8 characters; it finds mail that was read before as well.",
			"Prints nothing when no mail waits.",
		],
		options: {
			from,
			all: { type: "boolean", what: "print all mail that waits" },
			wait: { type: "string", value: "SECONDS", what: "when no mail waits, wait so long for some" },
		},
		examples: ["pi-session-mail read --from ci", "pi-session-mail read --all --json --from ci"],
		exits: { 4: "no mail came in time", ...interrupted },
	},
	reply: {
		usage: "ID [TEXT ...] [--failed] --from NAME",
		summary: "answer a request or an ask",
		detail: [
			"ID is the id of the mail or its first 8 characters. Without TEXT, or with - for it, the answer is read from standard input.",
		],
		options: { from, failed: { type: "boolean", what: "say that there is no answer, for the reason in TEXT" } },
		examples: ["pi-session-mail reply 4f1c2a9e yes --from ci"],
		exits: {},
	},
	sent: {
		usage: "[--limit N] --from NAME",
		summary: "list what was sent, and what became of it",
		detail: [
			"The newest first. queued: it waits; taken: it was claimed; then read, held, answered or failed; retracted: it was taken back.",
		],
		options: { from, limit: { type: "string", value: "N", what: "how many; default 20" } },
		examples: ["pi-session-mail sent --from ci"],
		exits: {},
	},
	edit: {
		usage: "ID [TEXT ...] --from NAME",
		summary: "change a mail that nobody has claimed",
		detail: [
			"ID is the id of the mail or its first 8 characters. Without TEXT, or with - for it, the new text is read from standard input.",
			"The mail is taken back, and one with the new text sent, which has an id of its own. When its recipient is faster, nothing is changed.",
		],
		options: { from },
		examples: ['pi-session-mail edit 4f1c2a9e "please run all tests" --from ci'],
		exits: {},
	},
	retract: {
		usage: "ID --from NAME",
		summary: "take a mail back that nobody has claimed",
		detail: ["ID is the id of the mail or its first 8 characters."],
		options: { from },
		examples: ["pi-session-mail retract 4f1c2a9e --from ci"],
		exits: {},
	},
	calls: {
		usage: "[TO]",
		summary: "list the calls of running sessions that go on by themselves",
		detail: ["A line for each: id, session, tool, arguments and age."],
		options: {},
		examples: ["pi-session-mail calls reviewer"],
		exits: {},
		takesRecipient: true,
	},
	cancel: {
		usage: "CALL",
		summary: "cancel a call that goes on by itself",
		detail: ["CALL is the id that calls prints. The session's model gets what the call gave so far."],
		options: { from },
		examples: ["pi-session-mail cancel call-4f1c2a9e0b554b52"],
		exits: {},
	},
	control: {
		usage: "pause|resume|stop|cancel|cancel-attached TO",
		summary: "pause a session or let it go on, stop its run, or cancel its calls",
		detail: [
			"pause: mail starts no turn, and a run stops after its tools, until resume. stop: ends the run, as Esc does.",
			"cancel: ends all calls that go on by themselves; cancel-attached: those that the model waits for, which then goes on. Models cannot do this to each other.",
		],
		options: { from },
		examples: ["pi-session-mail control pause reviewer"],
		exits: {},
		takesRecipient: true,
	},
	tickets: {
		usage: "[--watch]",
		summary: "list the calls of models that wait for a decision",
		detail: [
			"A line for each: ticket, session, tool, arguments, age, and what is asked.",
			"With --watch a line more for each that is decided about; with --json that is the same object, whose state is then approved, refused (also when it was stopped, or nobody decided in time) or gone.",
		],
		options: {
			watch: {
				type: "boolean",
				what: "print those that come as well, and how they are decided, until it is interrupted",
			},
		},
		examples: ["pi-session-mail tickets --watch --json"],
		exits: interrupted,
	},
	approve: {
		usage: "TICKET [--payload JSON]",
		summary: "let a call be made",
		detail: ["The first decision holds. A command of a model is refused."],
		options: {
			payload: { type: "string", value: "JSON", what: "what the decision brings along, where it is asked for" },
		},
		examples: ["pi-session-mail approve ticket-4f1c2a9e0b554b52"],
		exits: {},
	},
	deny: {
		usage: "TICKET [REASON ...]",
		summary: "keep a call from being made",
		detail: ["The session's model reads the reason."],
		options: {},
		examples: ["pi-session-mail deny ticket-4f1c2a9e0b554b52 use the staging server"],
		exits: {},
	},
	policy: {
		usage: "TOOL [ARGUMENT ...]",
		summary: "say which permission decides about a call, and why",
		detail: ["ARGUMENT is the tool's main one, such as a shell command, or all of them as JSON."],
		options: {},
		examples: ['pi-session-mail policy bash "npm test"'],
		exits: {},
	},
	watch: {
		usage: "[--from NAME]",
		summary: "print a line for each event as it happens",
		detail: [
			"Sessions that start, end, become idle or busy, or wait for another. With a name also the mail that comes and what becomes of the mail that was sent, and the program is listed like a session.",
			"Claims nothing. Runs until it is interrupted, or nobody reads its output.",
		],
		options: { from },
		examples: ["pi-session-mail watch --json --from ci"],
		exits: interrupted,
	},
	mcp: {
		usage: "--from NAME",
		summary: "serve an MCP client, which starts it, on standard input and output",
		detail: [
			"The client's model gets tools to list, send, ask, reply and read, and the inbox as a resource. It is listed under NAME until the client ends.",
			"While another process has NAME, every tool says so; as soon as it is free, it is taken.",
		],
		options: { from },
		examples: ["claude mcp add session-mail -- npx -y pi-session-mail mcp --from claude"],
		exits: interrupted,
	},
	doctor: {
		usage: "",
		summary: "look for problems, and say how to mend them",
		detail: ["Changes nothing. Exit code 1 when something is broken."],
		options: {},
		examples: ["pi-session-mail doctor"],
		exits: {},
	},
	prune: {
		usage: "[--days N]",
		summary: "remove the mailbox folders of closed sessions that hold no unread mail",
		detail: ["Removes the mail in them that was read, and the copies of what was sent."],
		options: {
			days: { type: "string", value: "N", what: "only folders that nothing has changed in for so many days" },
		},
		examples: ["pi-session-mail prune"],
		exits: {},
	},
	completion: {
		usage: "bash|zsh",
		summary: "print a script that completes commands, options and recipients",
		detail: [],
		options: {},
		examples: ["source <(pi-session-mail completion bash)"],
		exits: {},
	},
} as const satisfies Record<string, Command>;

export type CommandName = keyof typeof commands;

/** The command of a name. */
export function commandNamed(name: string): [CommandName, Command] | undefined {
	return Object.entries(commands).find(([known]) => known === name) as [CommandName, Command] | undefined;
}
