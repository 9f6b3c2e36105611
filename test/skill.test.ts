import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { toolNames } from "../src/tools/register.ts";
import { repository } from "./support/pi.ts";

const folders = join(repository, "skills");
const skill = readFileSync(join(folders, "session-mail/SKILL.md"), "utf8");
const [, frontmatter = "", body = ""] = /^---\n(.*?)\n---\n(.*)$/s.exec(skill) ?? [];
const fields = Object.fromEntries(frontmatter.split("\n").map((line) => line.split(/: (.*)/s).slice(0, 2)));

test("the skill has a name like its folder and a description, as Pi and other agents ask for", () => {
	expect(readdirSync(folders)).toEqual(["session-mail"]);
	expect(Object.keys(fields)).toEqual(["name", "description"]);
	expect(fields.name).toBe("session-mail");
	expect(fields.description?.length).toBeLessThan(1024);
});

test("the skill names the model's tools and no others", () => {
	const named = new Set([...body.matchAll(/session_mail_\w+/g)].map(([name]) => name));
	expect([...named].sort()).toEqual([...toolNames].sort());
});

test("the skill is short, and costs what README.md says, at four characters a token", () => {
	expect(skill.split("\n").length).toBeLessThan(60);
	const readme = readFileSync(join(repository, "README.md"), "utf8").replace(/\s+/g, " ");
	const [, whole] = /the whole skill about (\d+)/.exec(readme) ?? [];
	expect(Math.abs(Number(whole) - skill.length / 4)).toBeLessThan(25);
});
