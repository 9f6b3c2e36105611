import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { boxesOf } from "../../src/mail/boxes.ts";
import { nodeDisk } from "../../src/mail/disk.ts";
import type { Envelope } from "../../src/mail/envelope.ts";
import { type Mailbox, openMailbox } from "../../src/mail/mailbox.ts";
import { type Processes, systemProcesses } from "../../src/mail/process.ts";
import { ensureRoot } from "../../src/mail/root.ts";
import { type OwnRecord, openRunning, type SessionFields } from "../../src/mail/running.ts";
import { atCleanUp, eventually, repository } from "./pi.ts";

/** The program as `bin` has it. */
export const program = join(repository, "src/cli.cjs");

/** How the program ended, and what it said. */
export interface Ended {
	readonly code: number | null;
	readonly signal: NodeJS.Signals | null;
	readonly stdout: string;
	readonly stderr: string;
}

export interface ProgramOptions {
	/** What is on its standard input; nothing by default. */
	readonly input?: string | Uint8Array;
	readonly env?: Readonly<Record<string, string>>;
}

/** A running program. */
export interface Running {
	readonly child: ChildProcessWithoutNullStreams;
	/** What it has printed so far. */
	readonly printed: () => string;
	readonly ended: Promise<Ended>;
}

/** A state folder of its own for the program, with sessions that the test plays. `folder` is removed by the test. */
export interface ProgramHome {
	readonly root: string;
	/** Where the program runs. */
	readonly folder: string;
	/** What the program finds in its environment. */
	readonly env: Readonly<Record<string, string>>;
	/** Runs the program to its end. */
	run(args: readonly string[], options?: ProgramOptions): Promise<Ended>;
	/** Runs it, and parses what it printed with `--json`. */
	json(args: readonly string[], options?: ProgramOptions): Promise<unknown>;
	start(args: readonly string[], options?: ProgramOptions): Running;
	/** A session whose process is none that the program comes from. */
	session(address: string, fields?: Partial<SessionFields>): PlayedSession;
	/** One in whose shell the program runs. */
	around(address: string, fields?: Partial<SessionFields>): PlayedSession;
	/** The mails in a box of an address, in order. */
	mails(address: string, box: "new" | "cur" | "sent"): Envelope[];
	/** The names in a folder below the root, in order; none when it is not there. */
	names(...path: readonly string[]): string[];
}

export interface PlayedSession {
	readonly address: string;
	readonly mailbox: Mailbox;
	readonly record: OwnRecord;
	/** Waits for the next mail and claims it. */
	take(): Promise<Envelope>;
	/** Answers a mail. */
	answer(mail: Envelope, body: string, status?: "done" | "failed" | "stopped"): void;
}

export function programHome(folder: string): ProgramHome {
	const state = join(folder, "state");
	const root = join(state, "pi-session-mail");
	const ownEnv = { PATH: process.env.PATH ?? "", HOME: folder, LANG: "C.UTF-8", XDG_STATE_HOME: state };
	const disk = nodeDisk();
	const names = (...path: readonly string[]) => {
		const place = join(root, ...path);
		return existsSync(place) ? readdirSync(place).sort() : [];
	};

	function start(args: readonly string[], { input, env = {} }: ProgramOptions = {}): Running {
		const child = spawn(process.execPath, [program, ...args], {
			cwd: folder,
			env: { ...ownEnv, ...env },
			stdio: "pipe",
		});
		atCleanUp(() => child.kill("SIGKILL"));
		child.stdin.on("error", () => {});
		if (input !== undefined || !args.includes("-")) child.stdin.end(input ?? "");
		const said = { stdout: "", stderr: "" };
		for (const stream of ["stdout", "stderr"] as const) {
			child[stream].setEncoding("utf8").on("data", (chunk: string) => {
				said[stream] += chunk;
			});
		}
		const ended = once(child, "close").then(([code, signal]) => ({ code, signal, ...said }));
		return { child, printed: () => said.stdout, ended };
	}

	function play(address: string, processes: Processes, fields: Partial<SessionFields> = {}): PlayedSession {
		mkdirSync(state, { recursive: true });
		ensureRoot(disk, root);
		const running = openRunning({ disk, root, processes, now: Date.now, warn() {} });
		const all = { name: undefined, cwd: folder, state: "idle" as const, waitingOn: "", hops: 0, ...fields };
		const owned = running.own(address, all);
		if (!owned.ok) throw new Error(owned.message);
		atCleanUp(() => owned.record.release());
		const mailbox = openMailbox({ disk, root, address, now: Date.now, isDurable: () => false });
		return {
			address,
			mailbox,
			record: owned.record,
			take: () =>
				eventually(
					() => {
						const [name] = mailbox.waiting();
						const claim = name === undefined ? undefined : mailbox.claim(name);
						return claim?.result === "claimed" && claim.mail.envelope;
					},
					{ what: `Mail to ${address}` },
				),
			answer(mail, body, status = "done") {
				const sent = mailbox.deliver({ to: mail.from, kind: "reply", body, hops: 1, inReplyTo: [mail.id], status });
				if (!sent.ok) throw new Error(sent.message);
			},
		};
	}

	const home: ProgramHome = {
		root,
		folder,
		env: ownEnv,
		start,
		run: (args, options) => start(args, options).ended,
		async json(args, options) {
			const { code, stdout, stderr } = await start([...args, "--json"], options).ended;
			if (code !== 0) throw new Error(`exit code ${code}: ${stderr}`);
			return JSON.parse(stdout);
		},
		session: (address, fields) => play(address, anotherProcess(), fields),
		around: (address, fields) => play(address, systemProcesses(), fields),
		mails(address, box) {
			const place = boxesOf(root, address)[box];
			const files = names(address, box).filter((name) => name.endsWith(".json"));
			return files.map((name) => JSON.parse(readFileSync(join(place, name), "utf8")));
		},
		names,
	};
	return home;
}

/** The processes of this machine as another one sees them, which does nothing until the clean-up. */
function anotherProcess(): Processes {
	const child = spawn("sleep", ["600"]);
	atCleanUp(() => child.kill("SIGKILL"));
	const pid = child.pid ?? 0;
	const processes = systemProcesses();
	const started = processes.startTokens([pid]).get(pid);
	return { ...processes, self: { ...processes.self, pid, started } };
}
