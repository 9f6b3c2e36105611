import type { JSONRPCMessage, McpServer, RequestId, ServerContext } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { boxesOf } from "../mail/boxes.ts";
import type { Call } from "./call.ts";
import { createChain } from "./chain.ts";
import { untilInterrupted } from "./interrupt.ts";
import { thisMachine } from "./machine.ts";
import { createServer, inboxUri } from "./mcp-server.ts";
import { createSeat } from "./seat.ts";

/** `mcp`: serves an MCP client on standard input and output until it ends. Nothing else is written there. */
export async function mcp(call: Call): Promise<number> {
	const { out } = call;
	const machine = thisMachine(call);
	const seat = createSeat(call, machine);
	const interrupt = untilInterrupted();
	const end = new AbortController();
	const wire = new Wire(() => end.abort());
	interrupt.signal.addEventListener("abort", () => end.abort());
	const chain = createChain(() => performance.now());
	let server: McpServer | undefined;
	let isSubscribed = false;
	/** The problem that was told last, and the names in the inbox at the last look. */
	let said = "";
	let seen = "";

	/** Takes the seat when it has become free, and tells the client of changes in the inbox. */
	function look(): void {
		const member = seat.held() ?? seat.take();
		const problem = "ok" in member ? member.message : "";
		// The client's user looks here when the tools are missed.
		if (problem !== said && problem !== "") out.note(`pi-session-mail: ${problem}`);
		said = problem;
		if ("ok" in member || member.who.type !== "named") return;
		const names = namesIn(boxesOf(machine.root, member.address).new);
		if (names !== seen && isSubscribed) server?.server.sendResourceUpdated({ uri: inboxUri }).catch(() => {});
		seen = names;
	}

	/** Names alone: what waits is not read each second. */
	function namesIn(folder: string): string {
		try {
			return machine.disk.list(folder).sort().join("\n");
		} catch {
			return seen;
		}
	}

	look();
	const timer = setInterval(look, lookMs);
	const connection = serveStdio(
		({ era }) => {
			// In the newer protocol the connection itself knows who listens.
			isSubscribed = era === "modern";
			server = createServer({
				take: seat.take,
				chain,
				signal: end.signal,
				whenGiven: wire.whenGiven,
				subscribed(isWanted) {
					isSubscribed = isWanted;
				},
			});
			return server;
		},
		{ transport: wire, onerror: (error) => out.note(`pi-session-mail: ${error.message}`) },
	);
	if (!end.signal.aborted) await new Promise((resolve) => end.signal.addEventListener("abort", resolve));
	clearInterval(timer);
	await connection.close();
	seat.leave();
	interrupt.end();
	return interrupt.exitCode ?? 0;
}

/** How often it is looked for new mail. */
const lookMs = 1000;

/** Standard input and output, of which is known when they end and what was written. */
class Wire extends StdioServerTransport {
	readonly #ended: () => void;
	readonly #given = new Map<RequestId, () => void>();

	constructor(ended: () => void) {
		super();
		this.#ended = ended;
	}

	/** See `ServerParts`. A result that is never written, as after a cancellation, was not given. */
	readonly whenGiven = ({ mcpReq: { id, signal } }: ServerContext, done: () => void) => {
		if (signal.aborted) return;
		this.#given.set(id, done);
		signal.addEventListener("abort", () => this.#given.delete(id));
	};

	override async send(message: JSONRPCMessage): Promise<void> {
		// Throws when nobody reads any more.
		await super.send(message);
		if (!("result" in message) || message.id === undefined) return;
		this.#given.get(message.id)?.();
		this.#given.delete(message.id);
	}

	override async close(): Promise<void> {
		await super.close();
		this.#ended();
	}
}
