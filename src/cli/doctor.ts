import { diagnose, reportOf } from "../mail/doctor.ts";
import type { Finding } from "../mail/finding.ts";
import { settingsPath } from "../mail/settings.ts";
import { noToolPolicy } from "../mail/tool-policy.ts";
import { compile, permissionsOf, ruleProblems } from "../policy/permissions.ts";
import type { Call } from "./call.ts";
import { thisMachine } from "./machine.ts";
import type { Printed } from "./schemas.ts";

/** `doctor`: what is wrong, and how to mend it. */
export async function doctor(call: Call): Promise<number> {
	const { out } = call;
	const { disk, root, processes, now, settings } = thisMachine(call);
	const steps = diagnose({ disk, root, processes, now, settingsFile: settingsPath(call.env), needsRoot: false });
	const rules = ruleProblems(compile(permissionsOf(settings().toolPolicy ?? noToolPolicy)));
	const findings: Finding[] = [
		...[...steps].filter((finding) => finding !== undefined),
		...rules.map(({ what, mend }) => ({ level: "warning" as const, what, mend })),
	];
	const printed: Printed["doctor"] = { findings };
	if (out.isJson) await out.printJson(printed);
	else await out.print(reportOf(findings));
	return findings.some(({ level }) => level === "error") ? 1 : 0;
}
