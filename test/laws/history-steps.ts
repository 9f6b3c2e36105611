import * as fc from "fast-check";
import { faultCodes } from "../support/disk.ts";
import type { History, Step, ToolCall } from "./history.ts";

const is = <Text extends string>(text: Text) => fc.constant(text);
const session = fc.nat({ max: 3 });
const anybody = fc.oneof({ weight: 3, arbitrary: session }, { weight: 1, arbitrary: is("peer") });

const fromPeer = fc.record({
	do: is("send"),
	from: is("peer"),
	to: session,
	kind: fc.constantFrom("request", "message", "ask", "reply", "quiet"),
});
const fromSession = fc.record({
	do: is("send"),
	from: session,
	to: anybody,
	by: fc.constantFrom("command", "hook", "quiet command"),
});

const verdict = fc.constantFrom("approve", "approve", "deny");
/** What else is decided about the same call, at once or just after. */
const also = fc.oneof(
	{ weight: 1, arbitrary: is("again") },
	{ weight: 1, arbitrary: fc.record({ as: verdict, at: fc.integer({ min: 1, max: 12 }) }) },
);

const decide = fc.record(
	{ do: is("decide"), nth: fc.nat({ max: 3 }), as: verdict, also },
	{ requiredKeys: ["do", "nth", "as"] },
);
const answerDialog = fc.record({
	do: is("answer dialog"),
	with: fc.constantFrom("Allow once", "No", "Decide later"),
});

const pass = fc.record({ do: is("pass"), ms: fc.constantFrom(0, 100, 1000, 3000) });
const control = fc.record({
	do: is("control"),
	who: session,
	op: fc.constantFrom("pause", "pause", "resume", "resume", "stop", "cancel", "cancel newest", "cancel-attached"),
	by: fc.constantFrom("peer", "peer", "person"),
});
const endCall = fc.record({ do: is("end call"), who: session, how: fc.constantFrom("done", "failed") });
const ends: fc.WeightedArbitrary<Step>[] = [
	{ weight: 1, arbitrary: fc.record({ do: is("quit"), who: session, second: fc.boolean() }) },
	{ weight: 1, arbitrary: fc.record({ do: is("kill"), who: session, second: fc.boolean() }) },
	{ weight: 2, arbitrary: fc.record({ do: is("killAt"), who: session, n: fc.integer({ min: 1, max: 40 }) }) },
];
const resume = fc.record({ do: is("resume"), who: session });
const second = fc.record({ do: is("second"), who: session });
const reload = fc.record({ do: is("reload"), who: session });
const clock = fc.record({ do: is("clock"), offset: fc.constantFrom("hour back", "40 days ahead", "right") });

/** What may also happen in the middle of a run or of a compaction. */
const insideSteps: fc.WeightedArbitrary<Step>[] = [
	{ weight: 8, arbitrary: fromPeer },
	{ weight: 5, arbitrary: fromSession },
	{ weight: 4, arbitrary: pass },
	{ weight: 2, arbitrary: fc.record({ do: is("scan"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("takeOver"), who: session, mails: fc.nat({ max: 2 }) }) },
	{ weight: 2, arbitrary: fc.record({ do: is("receive"), who: session, isOn: fc.boolean() }) },
	{ weight: 3, arbitrary: fc.record({ do: is("press h"), who: session }) },
	{ weight: 2, arbitrary: fc.record({ do: is("press p"), who: session }) },
	{ weight: 3, arbitrary: endCall },
	{ weight: 4, arbitrary: control },
	{ weight: 4, arbitrary: decide },
	{ weight: 2, arbitrary: answerDialog },
	...ends,
	{ weight: 1, arbitrary: second },
	{ weight: 1, arbitrary: fc.record({ do: is("prune"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("fork"), who: session }) },
	{ weight: 1, arbitrary: fc.record({ do: is("retract") }) },
	{ weight: 1, arbitrary: fc.record({ do: is("edit") }) },
	{ weight: 1, arbitrary: fc.record({ do: is("again"), who: session }) },
	{ weight: 1, arbitrary: clock },
];
const insideStep = fc.oneof(...insideSteps);

const toolsOfPi = fc.constantFrom("send", "ask", "reply", "bash", "bash", "status");
const askedTools = fc.constantFrom(
	"asked bash",
	"asked bash",
	"asked bash again",
	"deploy",
	"deploy again",
	"deploy again",
);

function runWith(
	tool: fc.Arbitrary<ToolCall["tool"]>,
	inside: fc.Arbitrary<Step>,
	needed: "call"[],
): fc.Arbitrary<Step> {
	return fc.record(
		{
			do: is("run"),
			who: session,
			end: fc.constantFrom("done", "done", "stopped", "failed", "stopped before a retry"),
			tools: fc.nat({ max: 2 }),
			call: fc.record({ tool, to: anybody }),
			inside,
			second: fc.boolean(),
		},
		{ requiredKeys: ["do", "who", "end", "tools", ...needed] },
	);
}
const run = runWith(toolsOfPi, insideStep, []);
const askedRun = runWith(askedTools, fc.oneof(decide, answerDialog, insideStep), ["call"]);

const anyStep: fc.Arbitrary<Step> = fc.oneof(
	...insideSteps,
	{ weight: 12, arbitrary: run },
	{ weight: 8, arbitrary: askedRun },
	{ weight: 5, arbitrary: resume },
	{ weight: 1, arbitrary: fc.record({ do: is("drop"), who: session, isOn: fc.boolean() }) },
	{
		weight: 1,
		arbitrary: fc.record({
			do: is("fail"),
			who: session,
			n: fc.integer({ min: 1, max: 40 }),
			code: fc.constantFrom(...faultCodes),
		}),
	},
	{ weight: 2, arbitrary: reload },
	{ weight: 1, arbitrary: fc.record({ do: is("crashes"), who: session, times: fc.integer({ min: 1, max: 5 }) }) },
	{ weight: 1, arbitrary: fc.record({ do: is("tree"), who: session, back: fc.nat({ max: 5 }) }) },
	{ weight: 1, arbitrary: fc.record({ do: is("compact"), who: session, inside: insideStep }) },
	{ weight: 1, arbitrary: fc.record({ do: is("input"), who: session }) },
);

/** What calls that somebody is asked about meet. */
const askedStep: fc.Arbitrary<Step> = fc.oneof(
	{ weight: 12, arbitrary: askedRun },
	{ weight: 8, arbitrary: decide },
	{ weight: 2, arbitrary: answerDialog },
	{ weight: 4, arbitrary: pass },
	...ends,
	{ weight: 3, arbitrary: resume },
	{ weight: 1, arbitrary: second },
	{ weight: 1, arbitrary: reload },
	{ weight: 1, arbitrary: control },
	{ weight: 1, arbitrary: endCall },
	{ weight: 1, arbitrary: clock },
);

function steps(step: fc.Arbitrary<Step>): fc.Arbitrary<Step[]> {
	return fc.array(step, { minLength: 1, maxLength: 25, size: "max" });
}

/** Histories of everything, and some of nothing but calls that somebody is asked about. */
export const histories: fc.Arbitrary<History> = fc.record({
	isSaved: fc.boolean(),
	steps: fc.oneof({ weight: 4, arbitrary: steps(anyStep) }, { weight: 1, arbitrary: steps(askedStep) }),
});
