/** The configurations in docs/mcp.md have the form that programs read, and with them a program gets the tools. */
import assert from 'node:assert/strict';
import { before, describe, test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { blockOf, blocksOf } from '../support/documents.ts';
import { useService } from '../support/service.ts';

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const EXAMPLE = 'https://convoke.example.com';

interface Entry {
  url?: string;
  headers?: Record<string, string>;
  command?: string;
  args?: string[];
  env?: Record<string, string>;
}

/** The entry `convoke` of a configuration, whatever name the list of servers has. */
function entryOf(json: string): Entry {
  const { mcpServers, servers } = JSON.parse(json) as Record<'mcpServers' | 'servers', Record<string, Entry>>;
  const entry = (mcpServers ?? servers)['convoke'];
  assert.ok(entry !== undefined, json);
  return entry;
}

describe('docs/mcp.md', async () => {
  const service = useService();
  let token = '';
  before(async () => {
    await service.endOpenMode();
    ({ token } = await service.createKey({ scopes: ['read'] }));
  });
  const blocks = await blocksOf('docs/mcp.md');
  const here = (text: string): string => text.replaceAll(EXAMPLE, service.url);
  /** Puts the key in, as the program would, whatever way it reads the key. */
  const withKey = (text: string): string => text.replace(/\$\{?[\w:-]*(?:KEY|key)\}?|cvk_…/, token);

  async function toolsBy(t: TestContext, transport: StreamableHTTPClientTransport | StdioClientTransport) {
    const client = new Client({ name: 'a test', version: '1' });
    await client.connect(transport);
    t.after(() => client.close());
    return (await client.listTools()).tools.length;
  }
  const overHttp = (url: string, headers: Record<string, string>) =>
    new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });

  for (const [index, block] of (blocks.get('http') ?? []).entries()) {
    test(`configuration ${index + 1} of a client over HTTP leads to the tools`, async (t) => {
      const { url = '', headers = {} } = entryOf(here(block));
      const given = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, withKey(value)]));
      assert.equal(await toolsBy(t, overHttp(url, given)), 3);
    });
  }

  test('there are three of them', () => assert.equal(blocks.get('http')?.length, 3));

  test('the configuration of a desktop client starts the command, which leads to the tools', async (t) => {
    const { command, args = [], env = {} } = entryOf(here(blockOf(blocks, 'stdio')));
    assert.equal(command, 'convoke');
    const given = Object.fromEntries(Object.entries(env).map(([name, value]) => [name, withKey(value)]));
    assert.equal(
      await toolsBy(t, new StdioClientTransport({ command: process.execPath, args: [MAIN, ...args], env: given })),
      3,
    );
  });

  test('the command of Claude Code, the table of Codex and the tool of the Responses API name the endpoint and the key', async (t) => {
    const [, url = '', header = ''] =
      /^claude mcp add --transport http convoke (\S+) --header "([^"]+)"$/.exec(here(blockOf(blocks, 'claude code'))) ??
      [];
    const [name = '', value = ''] = header.split(': ');
    assert.equal(await toolsBy(t, overHttp(url, { [name]: withKey(value) })), 3);

    const lines = here(blockOf(blocks, 'codex')).split('\n');
    assert.deepEqual(lines, [
      '[mcp_servers.convoke]',
      `url = "${service.url}/mcp"`,
      'bearer_token_env_var = "CONVOKE_API_KEY"',
    ]);
    const tool = JSON.parse(here(blockOf(blocks, 'responses'))) as Record<string, string>;
    const authorization = `Bearer ${withKey(tool['authorization'] ?? '')}`;
    assert.equal(await toolsBy(t, overHttp(tool['server_url'] ?? '', { authorization })), 3);
  });
});
