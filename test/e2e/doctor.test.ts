import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { cleanUp, type Home, launch, makeHome, Pi, printPi, repository } from "../support/pi.ts";
import { notification, sendRequest, startedPi, typeMailbox } from "./mail.ts";

afterEach(cleanUp);

const session = "0197a3f2-1111-7000-8000-00000000000a";
const ended = "0197a3f2-2222-7000-8000-00000000000b";

/** A misspelt setting, a record that its process left behind, and a mail that could not be delivered. */
function spoil({ agentDir, mailRoot }: Home): void {
	writeFileSync(join(agentDir, "session-mail.json"), '{ "hopLimits": 8 }\n');
	const record = {
		address: ended,
		name: "reviewer",
		cwd: "/",
		pid: 8123,
		state: "idle",
		updated: "",
		x: { boot: "another" },
	};
	writeFileSync(join(mailRoot, "running", `${ended}.json`), JSON.stringify(record));
	const cur = join(mailRoot, session, "cur");
	mkdirSync(cur, { recursive: true });
	writeFileSync(join(cur, "001796009296000.json"), "{");
	writeFileSync(join(cur, "001796009296000.json.reason"), "it is not JSON\n");
}

/** What was said as it would be on the machine of the README. */
function onMachineOfReadme(said: string, { agentDir, mailRoot }: Home): string {
	return said
		.replaceAll(mailRoot, "/home/me/.local/state/pi-session-mail")
		.replaceAll(agentDir, "/home/me/.pi/agent")
		.replace(/Pi \d+\.\d+\.\d+ runs/, "Pi 1.6.0 runs")
		.replace(/; it takes names that differ in case.*$/m, "");
}

test("/mailbox doctor says what README.md shows, and what it tells to run mends it", async () => {
	const home = makeHome();
	const pi = await startedPi({ home, args: ["--session-id", session] });
	spoil(home);
	await pi.waitFor((event) => notification(event)?.includes("hopLimits"), {
		what: "what the session says of its settings",
	});
	const said = await typeMailbox(pi, "doctor");
	const readme = readFileSync(join(repository, "README.md"), "utf8");
	expect(onMachineOfReadme(said, home)).toBe(/<!-- example: doctor -->\n```\n(.*?)\n```/s.exec(readme)?.[1]);
	const commands = [...said.matchAll(/run: (.*)$/gm)].map(([, command = ""]) => command);
	expect(commands).toHaveLength(3);
	for (const command of commands) execFileSync("bash", ["-c", command]);
	expect((await typeMailbox(pi, "doctor")).replace(/^ok: .*\n?/gm, "")).toBe("");
});

const limited = (limit: string) => [
	"--map-root-user",
	"sh",
	"-c",
	`echo 0 > /proc/sys/user/max_inotify_${limit} && exec "$@"`,
	"sh",
];
const canLimit = spawnSync("unshare", [...limited("watches"), "true"]).status === 0;

test.skipIf(!canLimit).each(["instances", "watches"])(
	"L5 where the system gives no more %s of inotify, /mailbox doctor names the limit, and mail comes all the same",
	async (limit) => {
		const home = makeHome();
		const plain = launch({ home }, ["--mode", "rpc"]);
		const pi = new Pi({ ...plain, command: "unshare", args: [...limited(limit), plain.command, ...plain.args] });
		await pi.refresh();
		await pi.waitFor((event) => notification(event)?.includes("cannot be watched for"), { what: "the warning" });
		const said = await typeMailbox(pi, "doctor");
		expect(said).toMatch(
			new RegExp(
				`^warning: new mail is looked for every two seconds instead of watched for: .*\n {4}.*sysctl -w fs\\.inotify\\.max_user_${limit}=\\d+$`,
				"m",
			),
		);
		expect(said.match(/^warning: /gm)).toHaveLength(1);
		const author = await startedPi({ home });
		await sendRequest(author, pi.sessionId, "!say It is fine.");
		await pi.settled();
	},
);

test("pi -p '/mailbox doctor' prints it, also where no mailbox can be", async () => {
	const home = makeHome();
	mkdirSync(join(home.mailRoot, ".."), { recursive: true });
	writeFileSync(home.mailRoot, "");
	const { code, stdout } = await printPi({ home, prompt: "/mailbox doctor" });
	expect(stdout).toMatch(/^error: this session has no mailbox, because \S+ is not a folder\n {4}mend what else/);
	expect(stdout).toMatch(/\nerror: \S+ is not a folder\n {4}to keep what is there/);
	expect(stdout).toMatch(/\nok: Pi \d+\.\d+\.\d+ runs one copy of this package/);
	expect(code).toBe(0);
});
