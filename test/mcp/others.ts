/**
 * `npm run test:mcp -- [NAME …]`: MCP clients of other projects use the real service. When a client is needed, this
 * installs a pinned version into `node_modules/.cache`. A client joins a meeting, waits for a message, and answers. Its
 * answer must be in the meeting.
 */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Message, Page } from '@convoke/sdk';
import { installFromPyPi, installPackages } from '../runtimes/packages.ts';
import { messagesPath, Service } from '../support/service.ts';

const INSPECTOR = '@modelcontextprotocol/inspector@2.12.0';
const AI_SDK = '@ai-sdk/mcp@2.0.99';
const TANSTACK = '@tanstack/ai-mcp@0.2.5';
const PYTHON = 'mcp==2.3.0';
const CONVOKE = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const programOf = (name: string): string => fileURLToPath(new URL(`programs/${name}`, import.meta.url));

const service = new Service();

/** Runs a program that takes part as an agent, and sends it messages. */
async function converse(agent_id: string, token: string, command: string, args: string[]): Promise<string> {
  const child = spawn(command, [...args, `${service.url}/mcp`, token, agent_id], { stdio: ['ignore', 'pipe', 'pipe'] });
  const errors = text(child.stderr);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const joined = await lines.next();
  if (joined.value !== 'joined') assert.fail(await errors);
  const { message_id } = await service.send('m', { content: `for ${agent_id}` }, [agent_id]);
  const tools = await lines.next();
  if (child.exitCode === null) await once(child, 'close');
  if (child.exitCode !== 0) assert.fail(await errors);
  assert.equal(tools.value, 'tools 8');
  const { data } = (await service.get<Page<Message>>(messagesPath('m'))).body;
  const answer = data.find(({ in_reply_to }) => in_reply_to === message_id);
  assert.deepEqual([answer?.from_agent, answer?.message], [agent_id, { content: `I received: for ${agent_id}` }]);
  return 'joined, waited, answered: its answer is in the meeting';
}

/** Runs a program that subscribes to a meeting, and restarts the service while the subscription lasts. */
async function subscribe(token: string, program: string, directory: string): Promise<string> {
  const { child, next, id } = await subscribed(token, program, directory);
  await service.send('m', { content: 'one' });
  assert.equal(await next(), 'event one');
  await service.restart({});
  await service.send('m', { content: 'two' });
  assert.equal(await next(), 'event two');
  child.stdin.write(`${service.url}/mcp\n`);
  assert.equal(await next(), 'refreshed');
  await service.send('m', { content: 'three' });
  assert.equal(await next(), 'event three');
  child.stdin.write('unsubscribe\n');
  assert.equal(await next(), 'unsubscribed');
  assert.equal((await service.get(`/api/v1/instances/${id}/`)).status, 404);
  const { token: own, key_id } = await service.createKey({ scopes: ['read', 'instance'] });
  const other = await subscribed(own, program, directory);
  await service.request('DELETE', `/api/v1/keys/${key_id}/`);
  assert.equal(await other.next(), 'terminated -32024');
  other.child.stdin.write('end\n');
  return 'subscribed, verified signed events before and after a restart, renewed with another secret, unsubscribed; took the end of another key';
}

/** Runs the program until it has subscribed. */
async function subscribed(token: string, program: string, directory: string) {
  const child = spawn(process.execPath, [program, directory, `${service.url}/mcp`, token, 'm'], {
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const errors = text(child.stderr);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<string> => {
    const { value } = await lines.next();
    return value ?? assert.fail(await errors);
  };
  assert.equal(await next(), 'listed meeting.message');
  const [, id = ''] = (await next()).split(' ');
  return { child, next, id };
}

/** Uses the Inspector's command line, over HTTP and on standard input and output. */
async function inspect(token: string): Promise<string> {
  const directory = await installPackages([INSPECTOR]);
  const cli = join(directory, 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js');
  const ask = async (target: string[], ...args: string[]): Promise<Record<string, unknown>> => {
    const options = { env: { ...process.env, CONVOKE_URL: service.url, CONVOKE_API_KEY: token }, timeout: 60_000 };
    const { stdout } = await promisify(execFile)(process.execPath, [cli, '--cli', ...target, ...args], options);
    return JSON.parse(stdout) as Record<string, unknown>;
  };
  const over_http = [`${service.url}/mcp`, '--transport', 'http', '--header', `Authorization: Bearer ${token}`];
  const on_stdio = [
    '-e',
    `CONVOKE_URL=${service.url}`,
    '-e',
    `CONVOKE_API_KEY=${token}`,
    process.execPath,
    CONVOKE,
    'mcp',
  ];
  for (const target of [over_http, on_stdio]) {
    const listed = (await ask(target, '--method', 'tools/list', '--strict')) as { tools: object[] };
    assert.equal(listed.tools.length, 8);
    const arguments_ = ['--tool-name', 'list_meetings', '--tool-arg', 'limit=5'];
    const called = (await ask(target, '--method', 'tools/call', ...arguments_)) as { structuredContent: Page<object> };
    assert.ok(called.structuredContent.data.length > 0);
    const resources = (await ask(target, '--method', 'resources/list')) as { resources: { uri: string }[] };
    const uri = resources.resources[0]?.uri ?? '';
    const read = (await ask(target, '--method', 'resources/read', '--uri', uri)) as { contents: object[] };
    assert.equal(read.contents.length, 1);
    const prompts = (await ask(target, '--method', 'prompts/list')) as { prompts: object[] };
    assert.equal(prompts.prompts.length, 1);
  }
  return 'tools (no fault in strict mode), a call, resources, prompts: over HTTP and with `convoke mcp`';
}

const CLIENTS: Record<string, (token: string) => Promise<[string, string]>> = {
  'ai-sdk': async (token) => [
    AI_SDK,
    await converse('ai-sdk', token, process.execPath, [
      programOf('ai_sdk.mjs'),
      await installPackages([AI_SDK, 'zod@4.4.3']),
    ]),
  ],
  'ai-sdk-events': async (token) => [
    AI_SDK,
    await subscribe(token, programOf('ai_sdk_events.mjs'), await installPackages([AI_SDK, 'zod@4.4.3'])),
  ],
  tanstack: async (token) => [
    TANSTACK,
    await converse('tanstack', token, process.execPath, [programOf('tanstack.mjs'), await installPackages([TANSTACK])]),
  ],
  python: async (token) => [
    PYTHON,
    await converse('python', token, join(await installFromPyPi([PYTHON]), 'bin/python'), [programOf('python_mcp.py')]),
  ],
  inspector: async (token) => [INSPECTOR, await inspect(token)],
};

const named = process.argv.slice(2);
await service.start();
await service.endOpenMode();
await service.send('m', { content: 'Welcome' });
const { token } = await service.createKey({ scopes: ['read', 'send', 'instance'] });
for (const name of named.length === 0 ? Object.keys(CLIENTS) : named) {
  const prove = CLIENTS[name];
  if (prove === undefined)
    throw new Error(`there is no client ${name}; choose from ${Object.keys(CLIENTS).join(', ')}`);
  const [version, shown] = await prove(token);
  console.log(`✔ ${version}: ${shown}`);
}
await service.close();
