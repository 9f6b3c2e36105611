import { type Disk, errorCode } from "../mail/disk.ts";
import { toolPolicySchema } from "../mail/tool-policy.ts";

/** Largest settings file that is changed, in bytes: what the settings are read up to. */
const maxBytes = 64 * 1024;

/**
 * Adds a rule that allows to the permissions in a settings file, which is replaced as a whole; all else in it stays.
 * Throws the disk's errors, and an error when the file is not what it should be, or would not be any more: then nothing
 * is changed.
 */
export function addPermission(disk: Disk, file: string, rule: { pattern: string; behavior: "allow" }): void {
	const settings = objectIn(read(disk, file));
	const policy = objectIn(settings.toolPolicy);
	const permissions = objectIn(policy.permissions);
	const { rules = [] } = permissions;
	if (!Array.isArray(rules)) throw new Error("its permissions have no list of rules");
	const changed = { ...permissions, rules: [...rules, rule] };
	const toolPolicy = { ...policy, permissions: changed };
	const text = `${JSON.stringify({ ...settings, toolPolicy }, undefined, "\t")}\n`;
	if (!toolPolicySchema.safeParse(toolPolicy).success) throw new Error("its toolPolicy is broken, or would be with it");
	if (Buffer.byteLength(text) > maxBytes) throw new Error("it would be too large");
	disk.replace(file, text);
}

function read(disk: Disk, file: string): unknown {
	try {
		return JSON.parse(disk.read(file, maxBytes));
	} catch (error) {
		if (errorCode(error) === "ENOENT") return {};
		throw error;
	}
}

function objectIn(value: unknown = {}): Record<string, unknown> {
	if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("it is no JSON object");
	return { ...value };
}
