import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { beforeEach, describe, expect, test } from "vitest";
import { later, useFakeMachine } from "../support/fake-machine.ts";
import { type FakePi, startFakePi } from "../support/fake-pi.ts";

useFakeMachine();

const names = ["session_mail_ask", "session_mail_list", "session_mail_reply", "session_mail_send"];

interface Definition {
	name: string;
	label: string;
	description: string;
	promptSnippet?: string;
	promptGuidelines?: string[];
	defaultActive?: boolean;
	parameters: { properties: { [name: string]: { type: string; description: string } }; required: string[] };
}

let pi: FakePi;
beforeEach(async () => {
	pi = await startFakePi();
});

const definitions = (of = pi) => [...of.tools.values()] as unknown as Definition[];
const inactive = (of = pi) =>
	definitions(of).flatMap(({ name, defaultActive }) => (defaultActive === false ? [name] : []));

/** What Pi notes in the transcript when tools are switched on or off. */
function note(changed: { toolsAdded?: string[]; toolsRemoved?: string[] }, of = pi): void {
	const asTools = (list: string[] = []) => list.map((name) => ({ name, description: "", parameters: {} }));
	const { toolsAdded, toolsRemoved } = changed;
	of.session.appendMessage({
		role: "system",
		content: "",
		timestamp: Date.now(),
		...(toolsAdded === undefined ? {} : { toolsAdded: asTools(toolsAdded) }),
		...(toolsRemoved === undefined ? {} : { toolsRemoved: asTools(toolsRemoved) }),
	} as unknown as Parameters<typeof of.session.appendMessage>[0]);
}

describe("the model's tools", () => {
	test("PSM-073 are exactly four, with these parameters", () => {
		const parameters = definitions().map((tool) => [
			tool.name,
			Object.keys(tool.parameters.properties),
			tool.parameters.required,
		]);
		expect(parameters).toEqual([
			["session_mail_list", [], []],
			["session_mail_ask", ["to", "message", "id"], ["to", "message"]],
			["session_mail_reply", ["ask", "message"], ["ask", "message"]],
			["session_mail_send", ["to", "message", "id", "quiet", "interrupt"], ["to", "message"]],
		]);
		for (const { parameters: schema } of definitions()) {
			expect(schema).toMatchObject({ type: "object", additionalProperties: false });
			for (const [name, { type, description }] of Object.entries(schema.properties)) {
				expect([type, description.length > 0]).toEqual([
					["quiet", "interrupt"].includes(name) ? "boolean" : "string",
					true,
				]);
			}
		}
	});

	test("PSM-073 are registered when the session starts, and not while the extension loads (D25)", async () => {
		const atLoad: string[] = [];
		await startFakePi({
			extensions: [
				(api: ExtensionAPI) => {
					api.on("session_start", () => {
						atLoad.push(...api.getAllTools().map(({ name }) => name));
					});
				},
				(await import("../../src/index.ts")).default,
			],
		});
		expect(atLoad).toEqual([]);
	});

	test("cost a model at most 700 tokens, of four characters each", () => {
		const told = definitions().map(({ name, description, parameters, promptSnippet, promptGuidelines }) =>
			JSON.stringify({ name, description, parameters, promptSnippet, promptGuidelines }),
		);
		expect(told.join("").length / 4).toBeLessThan(700);
	});

	test("each say in the description what else is to be used where they do not fit", () => {
		const said = Object.fromEntries(definitions().map(({ name, description }) => [name, description]));
		expect(said.session_mail_send).toContain("session_mail_ask");
		expect(said.session_mail_ask).toContain("10 minutes");
		expect(said.session_mail_reply).toMatch(/requests are answered by themselves/);
	});
});

describe("a tool that the user switched off", () => {
	test("D25 stays off over /reload", async () => {
		note({ toolsAdded: names });
		note({ toolsRemoved: ["session_mail_ask"] });
		await pi.reload();
		expect(inactive()).toEqual(["session_mail_ask"]);
		expect([...pi.tools.keys()].sort()).toEqual(names);
	});

	test("D25 stays off when the session is resumed", async () => {
		await pi.run({ prompt: "hello" });
		note({ toolsAdded: names });
		note({ toolsRemoved: ["session_mail_ask", "session_mail_send"] });
		await pi.shutDown();
		const again = await startFakePi({ file: pi.file, reason: "resume" });
		expect(inactive(again)).toEqual(["session_mail_ask", "session_mail_send"]);
	});

	test("D25 is on again when the user switched it on again", async () => {
		note({ toolsRemoved: names });
		note({ toolsAdded: ["session_mail_list"] });
		await pi.reload();
		expect(inactive().sort()).toEqual(names.filter((name) => name !== "session_mail_list"));
	});

	test("D25 is on in a branch that knows nothing of that", async () => {
		const root = pi.session.appendMessage({ role: "user", content: "hello", timestamp: 0 });
		note({ toolsRemoved: names });
		pi.session.branch(root);
		await pi.reload();
		expect(inactive()).toEqual([]);
	});

	test("D25 no tool of others counts, and a session without such notes has all of them", async () => {
		note({ toolsRemoved: ["bash", "session_mail"] });
		await pi.reload();
		expect(inactive()).toEqual([]);
		await later(0);
	});
});
