/** MCP clients, made with the library that most programs use. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import type { Service } from './service.ts';

/** Two versions of MCP that the library speaks: the first has a handshake; the second needs none. */
export const ERAS = ['2025-11-25', '2026-07-28'] as const;
export type Era = (typeof ERAS)[number];

export const optionsOf = (era: Era) =>
  era === '2025-11-25' ? {} : ({ versionNegotiation: { mode: { pin: era } } } as const);

export interface Called<T> {
  is_error: boolean;
  text: string;
  /** The structured result, which the library has checked against the schema of the tool. */
  value: T;
}

export class McpClient {
  readonly client: Client;

  constructor(client: Client) {
    this.client = client;
  }

  async call<T = Record<string, unknown>>(name: string, args: object = {}, signal?: AbortSignal): Promise<Called<T>> {
    const { content, structuredContent, isError } = await this.client.callTool(
      { name, arguments: args as Record<string, unknown> },
      signal === undefined ? {} : { signal },
    );
    const [block] = content as { type: string; text: string }[];
    return { is_error: isError === true, text: block?.text ?? '', value: structuredContent as T };
  }

  /** Calls a tool that must succeed. */
  async done<T = Record<string, unknown>>(name: string, args: object = {}): Promise<T> {
    const { is_error, text, value } = await this.call<T>(name, args);
    assert.ok(!is_error, text);
    return value;
  }

  /** Calls a tool that must be refused. Returns the words of the refusal. */
  async refused(name: string, args: object = {}): Promise<string> {
    const { is_error, text } = await this.call(name, args);
    assert.ok(is_error, text);
    return text;
  }

  async tools(): Promise<string[]> {
    return (await this.client.listTools()).tools.map(({ name }) => name);
  }
}

/** A client over HTTP, with a key. */
export async function connectMcp(
  t: TestContext,
  service: Service,
  token: string | null,
  era: Era = '2026-07-28',
): Promise<McpClient> {
  const client = new Client({ name: 'a test', version: '1' }, optionsOf(era));
  const headers: Record<string, string> = token === null ? {} : { authorization: `Bearer ${token}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(`${service.url}/mcp`), { requestInit: { headers } }));
  t.after(() => client.close());
  return new McpClient(client);
}

/** A request of the version with a handshake, for tests that send it without a handshake. */
export const rpc = (method: string, params: object = {}, id = 1) => ({ jsonrpc: '2.0', id, method, params });

export const RPC_HEADERS = { accept: 'application/json, text/event-stream' };

export interface Waited {
  notice: string;
  messages: {
    meeting_id: string;
    message_id: string;
    seq: number;
    target_agents: string[];
    from_agent?: string;
    message?: { content?: string };
  }[];
}
