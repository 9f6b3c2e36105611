import { diagnose, reportOf } from "../mail/doctor.ts";
import { settingsPath } from "../mail/settings.ts";
import { thisMachine } from "./machine.ts";
import type { Call } from "./main.ts";
import type { Printed } from "./schemas.ts";

/** `doctor`: what is wrong, and how to mend it. */
export async function doctor(call: Call): Promise<number> {
	const { out } = call;
	const { disk, root, processes, now } = thisMachine(call);
	const steps = diagnose({ disk, root, processes, now, settingsFile: settingsPath(call.env), needsRoot: false });
	const findings = [...steps].filter((finding) => finding !== undefined);
	const printed: Printed["doctor"] = { findings };
	if (out.isJson) await out.printJson(printed);
	else await out.print(reportOf(findings));
	return findings.some(({ level }) => level === "error") ? 1 : 0;
}
