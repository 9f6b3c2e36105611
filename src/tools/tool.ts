import type { AgentToolResult, ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { field, oneLine } from "../mail/text.ts";
import type { MailSession } from "../session/session.ts";
import { toolWords } from "../session/tool-words.ts";
import { drawLines } from "../view/lines.ts";

/** A tool for the model, as Pi registers it. */
export type Tool = Parameters<ExtensionAPI["registerTool"]>[0];

/** The session that has the mailbox now; undefined before its start, after its end, and when the mailbox is off. */
export type CurrentSession = () => MailSession | undefined;

/** JSON Schema of a tool's parameters: texts, of which those in `optional` need not be given, and `flags`. Pi validates a call against it. */
export function textParameters(
	needed: Readonly<Record<string, string>>,
	optional: Readonly<Record<string, string>> = {},
	flags: Readonly<Record<string, string>> = {},
): Tool["parameters"] {
	const properties = Object.entries({ ...needed, ...optional }).map(([name, description]) => {
		return [name, { type: "string", description }];
	});
	properties.push(...Object.entries(flags).map(([name, description]) => [name, { type: "boolean", description }]));
	return {
		type: "object",
		properties: Object.fromEntries(properties),
		required: Object.keys(needed),
		additionalProperties: false,
	};
}

/** The optional parameter of what is sent. */
export const ownId = { id: toolWords.ownId };

/** A parameter that Pi has validated as a text. */
export function textOf(params: unknown, name: string): string {
	const value = parameter(params, name);
	return typeof value === "string" ? value : "";
}

/** Whether a parameter that Pi has validated is set. */
export function isSet(params: unknown, name: string): boolean {
	return parameter(params, name) === true;
}

function parameter(params: unknown, name: string): unknown {
	return typeof params === "object" && params !== null ? Reflect.get(params, name) : undefined;
}

/** The result of a call that did what was asked. */
export function result<T>(text: string, details: T): AgentToolResult<T> {
	return { content: [{ type: "text", text }], details };
}

/** The result of a call that was refused: the model sees an error, programs its code. */
export function refusal(code: string, message: string): AgentToolResult<{ error: { code: string; message: string } }> {
	return { ...result(message, { error: { code, message } }), isError: true };
}

/** The refusal of every tool of a session without a mailbox. */
export const mailboxIsOff = refusal("mailbox_off", "Nothing was done: this session has no mailbox.");

/** The first line of a call in the terminal, such as `mail → reviewer  please check the parser`. */
export function renderCallLine(verb: string, target: string, text: string): NonNullable<Tool["renderCall"]> {
	return (args, theme, { expanded }) => {
		const to = field(textOf(args, target), maxTargetCharacters);
		const title = theme.fg("toolTitle", theme.bold(to === "" ? verb : `${verb} → `)) + theme.fg("accent", to);
		const body = textOf(args, text).trim();
		if (body === "") return drawLines([title]);
		const styled = (line: string) => theme.fg("toolOutput", line);
		if (expanded) return drawLines([title, ...body.split("\n").map((line) => styled(oneLine(line)))]);
		return drawLines([`${title}  ${styled(field(body.split("\n", 1)[0] ?? "", maxFirstLine))}`], { maxRows: 1 });
	};
}

const maxTargetCharacters = 60;
/** More than fits on one row. */
const maxFirstLine = 500;
