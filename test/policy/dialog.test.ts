import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { expect, test } from "vitest";
import { askInDialog } from "../../src/policy/dialog.ts";
import type { Ticket } from "../../src/policy/tickets.ts";

test("L7 a call with very many arguments is looked through once for its dialog, which shows its start and its end", async () => {
	const count = 5000;
	let looks = 0;
	const values = Object.fromEntries(Array.from({ length: count }, (_, n) => [`key${n}`, `value ${n}`]));
	const args = new Proxy(values, {
		get(of, name) {
			looks++;
			return Reflect.get(of, name);
		},
	});
	const ticket: Ticket = {
		...{ id: "ticket-a", session: "s", callId: "c", tool: "bash", message: "May it?", arguments: args },
		...{ resume: "replay_tool_call", since: 0, state: "pending" },
	};
	const dialogs: { title: string; ways: string[] }[] = [];
	const ui = { select: async (title: string, ways: string[]) => void dialogs.push({ title, ways }) };
	const ctx = { ui } as unknown as ExtensionContext;
	expect(await askInDialog(ctx, ticket, "settings", new AbortController().signal)).toBeUndefined();
	expect(dialogs).toMatchObject([{ title: expect.stringMatching(/bash\nkey0: value 0\n.*key4999: value 4999$/s) }]);
	expect(dialogs[0]?.ways).not.toContain("Always allow …");
	expect(looks).toBeLessThan(1.1 * count);
});
