import { Client, type ClientOptions } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { atCleanUp } from "./pi.ts";
import { program } from "./program.ts";

/** What a client starts, and where. */
export interface Server {
	readonly cwd: string;
	readonly env: Record<string, string>;
	/** Default: this program's own. */
	readonly command?: string;
	readonly args: string[];
}

/** The SDK's own client, connected to a server in a process of its own until the clean-up. */
export interface McpClient {
	readonly client: Client;
	/** The process of the server. */
	readonly pid: number;
	/** Whether the server has ended. */
	hasEnded(): boolean;
	/** What the server has written to standard error so far. */
	stderr(): string;
	/** Calls a tool. Every text of the result in one, and whether it is an error. */
	call(name: string, args?: Record<string, unknown>, options?: CallOptions): Promise<Called>;
}

export interface Called {
	readonly text: string;
	readonly isError: boolean;
	readonly structured: unknown;
}

type CallOptions = Parameters<Client["callTool"]>[1];

export async function mcpClient(server: Server, options: ClientOptions = {}): Promise<McpClient> {
	const { cwd, env, command = process.execPath, args } = server;
	const words = command === process.execPath ? [program, "mcp", ...args] : args;
	const transport = new StdioClientTransport({ command, args: words, cwd, env, stderr: "pipe" });
	let stderr = "";
	transport.stderr?.on("data", (chunk: Buffer) => {
		stderr += chunk.toString();
	});
	const client = new Client({ name: "test-client", version: "1.0.0" }, options);
	let hasEnded = false;
	client.onclose = () => {
		hasEnded = true;
	};
	atCleanUp(() => client.close());
	await client.connect(transport);
	return {
		client,
		pid: transport.pid ?? 0,
		hasEnded: () => hasEnded,
		stderr: () => stderr,
		async call(name, given = {}, callOptions) {
			const {
				content,
				isError = false,
				structuredContent,
			} = await client.callTool({ name, arguments: given }, callOptions);
			const text = content.map((block) => (block.type === "text" ? block.text : `<${block.type}>`)).join("\n");
			return { text, isError, structured: structuredContent };
		},
	};
}
