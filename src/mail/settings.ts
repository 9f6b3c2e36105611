import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { closest } from "fastest-levenshtein";
import * as z from "zod/mini";
import { type Disk, errorCode, errorMessage, UnfitError } from "./disk.ts";
import { jsonLines } from "./json-lines.ts";
import { sendersSchema } from "./senders.ts";
import { misplacedPolicy, slipOf } from "./slips.ts";
import { field } from "./text.ts";
import { askAboutAll, type ToolPolicy, toolPolicySchema } from "./tool-policy.ts";
import { type WakeOn, wakeOnSchema } from "./wake-on.ts";

/** A key as Pi names it. */
const keyPattern =
	/^(?:(?:ctrl|alt|shift|super)\+)*(?:[!-*,-~]|f(?:[1-9]|1[0-2])|esc|escape|enter|return|tab|space|backspace|insert|delete|clear|home|end|page(?:Up|Down)|up|down|left|right)$/;

/** What a person can set, in `session-mail.json` of Pi's agent directory. `session-mail.schema.json` is made of this. */
export const settingsSchema = z.object({
	$schema: z.optional(z.string().check(z.describe("Where the schema of this file is, for editors."))),
	hopLimit: z
		._default(z.int().check(z.positive()), 5)
		.check(
			z.describe(
				"How many hops a chain of sessions waking each other may reach before their models may not send or ask.",
			),
		),
	pruneAfterDays: z
		._default(z.int().check(z.positive()), 30)
		.check(z.describe("How many days the mailbox folder of a closed session is kept.")),
	durability: z
		._default(z.enum(["durable", "fast"]), "durable")
		.check(z.describe("Whether a sent mail survives a power cut (durable) or only a crash of Pi (fast).")),
	shortcut: z
		._default(z.union([z.string().check(z.regex(keyPattern)), z.literal(false)]), "alt+m")
		.check(z.describe("The key that opens the mailbox screen, such as alt+m or ctrl+shift+f2; false for none.")),
	wakeOn: z
		.optional(wakeOnSchema)
		.check(z.describe("Which mail may start a turn of a session. All other is read with the next one.")),
	interruptFrom: z
		.optional(sendersSchema)
		.check(
			z.describe(
				"The sessions whose models may interrupt a session: names, full session ids, or * for all. A person may always.",
			),
		),
	interruptCompletions: z
		.optional(z.boolean())
		.check(z.describe("Whether an interrupt stops a model that is writing, which then begins again with the mail.")),
	toolPolicy: z
		.optional(toolPolicySchema)
		.check(
			z.describe("What happens around the calls of a session's model. Pi has to be restarted when it is set first."),
		),
});

/** The settings of mail, each with its value or its default. */
export interface MailSettings {
	/** How many hops a chain of sessions waking each other may reach. */
	hopLimit: number;
	/** How many days the mailbox folder of a closed session is kept. */
	pruneAfterDays: number;
	/** Whether a sent mail survives a power cut, or only a crash. */
	durability: "durable" | "fast";
	/** The key that opens the mailbox screen; false for none. */
	shortcut: string | false;
	/** Which mail may start a turn of a session; every mail when it is not set. */
	wakeOn?: WakeOn | undefined;
	/** Whose models may interrupt a session: names, full session ids, or `*`; nobody's when it is not set. */
	interruptFrom?: string[] | undefined;
	/** Whether an interrupt stops a model that is writing. */
	interruptCompletions?: boolean | undefined;
}

/** All settings, each with its value or its default. */
export interface Settings extends MailSettings {
	/** What happens around the calls of a session's model. */
	toolPolicy?: ToolPolicy | undefined;
}

/** The settings when nothing is set. */
export const defaultSettings: Settings = z.parse(settingsSchema, {});

export interface SettingsFile {
	/**
	 * The settings as the file has them now. A missing file or key means the default, silently; what is broken means the
	 * default with a warning (PSM-088, PSM-089). While somebody is saving the file, the last good settings hold; of one that
	 * was just removed, which may be a part of saving it, the last good policy for tools. While a
	 * policy for tools is broken, or the file that has it, the last good one of this process holds; where there is none,
	 * every call is asked about, unless the file can be read and has no policy.
	 */
	read(): Settings;
}

export interface SettingsOptions {
	disk: Disk;
	/** Path of the file. */
	file: string;
	/** Milliseconds. */
	now: () => number;
	/** Hears of each problem, at every read. */
	warn: (text: string) => void;
}

/** Where the settings of a Pi agent directory lie: Pi's own rule for the directory, then our file. */
export function settingsPath(env: NodeJS.ProcessEnv = process.env): string {
	const agentDir = env.PI_CODING_AGENT_DIR;
	if (agentDir === undefined || agentDir === "") return join(homedir(), ".pi", "agent", fileName);
	const expanded = agentDir.replace(/^~(?=$|\/)/, () => homedir());
	return join(expanded, fileName);
}

/** Where a project's own settings lie. */
export function projectSettingsPath(cwd: string): string {
	return join(cwd, ".pi", fileName);
}

/** The policy that a project sets, of which the permissions hold; undefined when it sets none. */
export function projectPolicy(cwd: string, options: Omit<SettingsOptions, "file">): ToolPolicy | undefined {
	const { toolPolicy } = openSettings({ ...options, file: projectSettingsPath(cwd) }).read();
	return toolPolicy?.permissions && toolPolicy;
}

/** Opens a settings file, which need not exist. Nothing is read before `read`, which never throws. */
export function openSettings({ disk, file, now, warn }: SettingsOptions): SettingsFile {
	/** What holds of a file that is broken as a whole. */
	function instead(why: string, brokenBecause: string, mayHavePolicy: boolean, so = "so "): Settings {
		const policy = policyInstead(file, brokenBecause, mayHavePolicy);
		warn(`${file} is not used: ${why}${policy === undefined ? "" : `, ${so}${whatHolds(policy)}`}`);
		return { ...defaultSettings, ...(policy !== undefined && { toolPolicy: policy }) };
	}

	/** The last good settings, where it may only be that somebody saves the file. */
	function whileSaved(): Settings | undefined {
		const { good, brokenSince = now() } = lastRead.get(file) ?? {};
		if (good === undefined || Math.abs(now() - brokenSince) >= savingMs) return undefined;
		lastRead.set(file, { good, brokenSince });
		return good;
	}

	/** The defaults; with the last good policy, where it may only be that an editor has removed the file to write it anew. */
	function whileAbsent(): Settings {
		const toolPolicy = whileSaved()?.toolPolicy;
		// A link to the folder is followed.
		const removed = toolPolicy && disk.changed(`${dirname(file)}/.`);
		const isFresh = removed !== undefined && Math.abs(now() - removed) < savingMs;
		return isFresh ? { ...defaultSettings, toolPolicy } : good(defaultSettings);
	}

	function good(settings: Settings): Settings {
		lastRead.set(file, { good: settings, brokenSince: undefined });
		return settings;
	}

	return {
		read() {
			let text: string;
			try {
				text = disk.read(file, maxSettingsBytes);
			} catch (error) {
				if (errorCode(error) === "ENOENT") return whileAbsent();
				// `extension.js` looks into what is no file for settings, such as a link, and loads nothing where it has no policy.
				const so = error instanceof UnfitError ? "so if it has a toolPolicy, " : undefined;
				return instead(errorMessage(error), `${file} cannot be read`, true, so);
			}
			let json: unknown;
			try {
				json = JSON.parse(text);
			} catch {
				const saved = whileSaved();
				if (saved !== undefined) return saved;
				const line = jsonLines(text).slip ?? 1;
				return instead(`it is not JSON (line ${line})`, `${file} is broken at line ${line}`, hasPolicy(text));
			}
			if (!isObject(json) || Array.isArray(json)) {
				return instead("it is not a JSON object", `${file} is no JSON object`, hasPolicy(text));
			}
			return good(settingsOf(json, text, file, warn));
		},
	};
}

/** What was read of each file in this process, whose sessions and readers share it. */
const lastRead = new Map<string, { good: Settings; brokenSince: number | undefined }>();

/** What holds instead of a broken policy; undefined when there is none to be kept. */
function policyInstead(file: string, brokenBecause: string, mayHavePolicy: boolean): ToolPolicy | undefined {
	const last = lastRead.get(file)?.good?.toolPolicy;
	if (last !== undefined && last.brokenBecause === undefined) return last;
	return mayHavePolicy ? askAboutAll(brokenBecause) : undefined;
}

function whatHolds({ brokenBecause }: ToolPolicy): string {
	const holds = brokenBecause === undefined ? "the last good toolPolicy holds" : "every call of a tool is asked about";
	return `${holds} until it is mended`;
}

/** Whether a broken text was to have a policy. `extension.js` asks the same. */
function hasPolicy(text: string): boolean {
	// Some editors write two bytes for each letter.
	return /tool|polic|perm|wrap/i.test(text.replaceAll("\0", ""));
}

const fileName = "session-mail.json";
const maxSettingsBytes = 64 * 1024;
/** Some editors write a file in two steps: that long, one that is broken or not there may be one that is being saved. */
const savingMs = 2000;

/** Every valid key of a settings object; the default, and a warning, for each that is not. */
function settingsOf(json: object, text: string, file: string, warn: (text: string) => void): Settings {
	const known = Object.keys(settingsSchema.shape);
	const found: Record<string, unknown> = { ...json };
	const usable = { ...found };
	let policy: ToolPolicy | undefined;
	/** What holds instead of a policy with a slip at this path, as a clause. */
	function insteadOfPolicy(path: readonly PropertyKey[]): string {
		const line = jsonLines(text).lineOf(path);
		policy = policyInstead(file, `${file} is broken at line ${line}`, true);
		return policy === undefined ? "its default holds" : `${whatHolds(policy)} (line ${line})`;
	}
	for (const key of Object.keys(found)) {
		if (known.includes(key)) continue;
		// What is not known is dropped below.
		const meant = misplacedPolicy(key, found[key]);
		const so = meant === undefined ? "" : ` So ${insteadOfPolicy([key])}.`;
		warn(`${file} has the unknown key "${field(key, 60)}"; did you mean "${meant ?? closest(key, known)}"?${so}`);
	}
	const twice =
		found.toolPolicy === undefined ? undefined : jsonLines(text).twice.find(([key]) => key === "toolPolicy");
	// Of two that stand there one would be passed over.
	if (twice !== undefined) warn(`${file} has ${field(twice.join("."))} twice, so ${insteadOfPolicy(twice)}`);
	const issues = z.safeParse(settingsSchema, usable).error?.issues ?? [];
	for (const key of new Set(issues.map(({ path }) => String(path[0])))) {
		// Of several things that are wrong with one key one is said.
		const { what, path } = slipOf(
			settingsSchema,
			json,
			issues.filter((issue) => String(issue.path[0]) === key),
		);
		delete usable[key];
		warn(`${file}: ${what}, so ${key === "toolPolicy" ? insteadOfPolicy(path) : "its default holds"}`);
	}
	const settings: Settings = z.parse(settingsSchema, usable);
	return policy === undefined ? settings : { ...settings, toolPolicy: policy };
}

function isObject(value: unknown): value is Record<string, unknown> {
	return typeof value === "object" && value !== null;
}
