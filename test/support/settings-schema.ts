/** Writes `session-mail.schema.json`, which editors read; with `--check` says only whether it is current. */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import * as z from "zod/mini";
import { settingsSchema } from "../../src/mail/settings.ts";

const file = fileURLToPath(new URL("../../session-mail.schema.json", import.meta.url));
const schema = z.toJSONSchema(settingsSchema, { io: "input" });
const text = `${JSON.stringify({ ...schema, title: "Settings of pi-session-mail", additionalProperties: false }, null, "\t")}\n`;

if (!process.argv.includes("--check")) writeFileSync(file, text);
else if (readFileSync(file, "utf8") !== text) {
	console.error("session-mail.schema.json is not current; make it again with: npm run build");
	process.exitCode = 1;
}
