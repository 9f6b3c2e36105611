import type { ExtensionAPI, ExtensionContext, SessionEntry } from "@earendil-works/pi-coding-agent";
import { askTool } from "./ask.ts";
import { listTool } from "./list.ts";
import { replyTool } from "./reply.ts";
import { sendTool } from "./send.ts";
import type { CurrentSession, Tool } from "./tool.ts";

/** The names of the model's tools, which copies of this package share (PSM-073). */
export const toolNames = ["session_mail_list", "session_mail_ask", "session_mail_reply", "session_mail_send"];

/** The model's tools. */
export function mailTools(current: CurrentSession): Tool[] {
	return [listTool(current), askTool(current), replyTool(current), sendTool(current)];
}

/** Registers the model's tools. One that the user had switched off in this session stays off (design D25). */
export function registerTools(pi: ExtensionAPI, ctx: ExtensionContext, tools: readonly Tool[]): void {
	const off = offAtReload.get(ctx.sessionManager) ?? switchedOff(ctx.sessionManager.getBranch());
	offAtReload.delete(ctx.sessionManager);
	for (const tool of tools) {
		pi.registerTool(off.has(tool.name) ? { ...tool, defaultActive: false } : tool);
	}
}

/** Remembers before a `/reload` which tools are off: the transcript says so only with the next request. */
export function rememberTools(pi: ExtensionAPI, ctx: ExtensionContext, tools: readonly Tool[]): void {
	const active = pi.getActiveTools();
	const off = tools.map(({ name }) => name).filter((name) => !active.includes(name));
	offAtReload.set(ctx.sessionManager, new Set(off));
}

/** By session manager, which a `/reload` keeps; so does this module, where it was loaded as a bundle. */
const offAtReload = new WeakMap<object, ReadonlySet<string>>();

/** The tools about which the branch says last that they were removed. */
function switchedOff(branch: readonly SessionEntry[]): ReadonlySet<string> {
	const off = new Set<string>();
	for (const entry of branch) {
		if (entry.type !== "message" || entry.message.role !== "system") continue;
		for (const { name } of entry.message.toolsRemoved ?? []) off.add(name);
		for (const { name } of entry.message.toolsAdded ?? []) off.delete(name);
	}
	return off;
}
