/**
 * The development servers of LangGraph, one from npm and one from PyPI, each with a small graph whose model is
 * scripted.
 */
import assert from 'node:assert/strict';
import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Message } from '@convoke/sdk';
import { freePort } from '../support/free_port.ts';
import { messagesPath, Service } from '../support/service.ts';
import { until } from '../support/wait.ts';
import { converse } from './conversation.ts';
import type { Proof } from './main.ts';
import { type ModelServer, startModelServer } from './model_server.ts';
import { installFromPyPi, installPackages } from './packages.ts';
import { RuntimeProcess } from './process.ts';

const NPM = [
  '@langchain/langgraph-cli@2.0.0',
  '@langchain/langgraph@1.7.3',
  '@langchain/core@1.4.0',
  '@langchain/openai@1.5.8',
] as const;
const PYPI = [
  'langgraph-api==0.16.7',
  'langgraph-cli[inmem]==0.4.40',
  'langgraph==1.2.22',
  'langchain-openai==1.7.3',
] as const;

/** A timeout that is shorter than a turn. */
const SHORT_S = 2;
/** A turn takes longer than the 5 s that a webhook without `timeout_s` may take. */
const TURN_MS = 6_000;
/** Messages that make a thread longer than the response of a receiver may be. */
const LONG = { messages: 3, chars: 30_000 };
const RESPONSE_BYTES_MAX = 64 * 1024;

/** A server with the graph `agent`, in a directory below the packages that the graph imports. */
interface Installed {
  version: string;
  directory: string;
  program: 'langgraph_agent.mjs' | 'langgraph_agent.py';
  config: object;
  command: string;
  args: readonly string[];
}

export async function proveLangGraphJs(): Promise<Proof> {
  const directory = await installPackages(NPM);
  return prove({
    version: NPM[0],
    directory,
    program: 'langgraph_agent.mjs',
    config: { node_version: '22', graphs: { agent: './langgraph_agent.mjs:graph' } },
    command: process.execPath,
    args: [join(directory, 'node_modules/@langchain/langgraph-cli/dist/cli/cli.mjs'), 'dev', '--no-browser'],
  });
}

export async function proveLangGraphPython(): Promise<Proof> {
  const directory = await installFromPyPi(PYPI);
  return prove({
    version: PYPI[0],
    directory,
    program: 'langgraph_agent.py',
    config: { dependencies: ['.'], graphs: { agent: './langgraph_agent.py:graph' } },
    command: join(directory, 'bin/langgraph'),
    args: ['dev', '--no-browser', '--no-reload'],
  });
}

async function prove(installed: Installed): Promise<Proof> {
  await using cleanup = new AsyncDisposableStack();
  const model = await startModelServer();
  cleanup.defer(() => model.close());
  const url = await serve(installed, model, cleanup);
  model.turn_ms = TURN_MS;
  const rows = await converse({
    runtime: 'langgraph',
    version: installed.version,
    sent: 'POST /threads/ID/runs/stream',
    came_back: `updates of the run, after ${TURN_MS / 1000} s`,
    agent_id: 'lena',
    to: url,
    registration: { runtime: 'langgraph', runtime_options: { assistant_id: 'agent' } },
    runsOf: (content) => model.turns.filter(({ prompt }) => prompt.includes(content)).length,
  });
  for (const { reply } of rows) assert.match(reply, /^Answer \d+$/);
  model.turn_ms = 0;
  await showThread(url, model);
  return {
    runtime: `${installed.version}, its development server, turns of ${TURN_MS / 1000} s`,
    shown: [
      'by webhook and by connect: one model call for each message, and its answer in the meeting',
      'webhook-test finds the assistant, and says which there are when it is mistyped, without a model call',
      'the agent remembers its thread; a thread longer than a response may be is answered all the same',
      'a run that failed, or took too long, is made again, and the thread has the message once',
    ],
    rows,
  };
}

async function serve(installed: Installed, model: ModelServer, cleanup: AsyncDisposableStack): Promise<string> {
  const { directory, program, config, command, args } = installed;
  const work = await mkdtemp(join(directory, 'run-'));
  cleanup.defer(() => rm(work, { recursive: true, force: true, maxRetries: 5 }));
  await copyFile(fileURLToPath(new URL(`programs/${program}`, import.meta.url)), join(work, program));
  await writeFile(join(work, 'langgraph.json'), JSON.stringify(config));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const server = await RuntimeProcess.start({
    command,
    args: [...args, '--host', '127.0.0.1', '--port', String(port)],
    cwd: work,
    // The server talks only on loopback: it sends no usage figures and no traces.
    env: { MODEL_URL: model.url, LANGGRAPH_CLI_NO_ANALYTICS: '1', LANGSMITH_TRACING: 'false' },
    ready_url: `${url}/ok`,
  });
  cleanup.defer(() => server.close());
  return url;
}

interface Thread {
  thread_id: string;
  values: { messages: { type: string; id: string; content: string }[] };
}

async function showThread(url: string, model: ModelServer): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const service = new Service({ retry_schedule: '100ms,100ms' });
  await service.start();
  cleanup.defer(() => service.close());
  const registrationOf = (assistant_id: string) => ({
    webhook_url: url,
    agent_ids: ['lena'],
    runtime: 'langgraph' as const,
    runtime_options: { assistant_id },
  });

  const calls = model.turns.length;
  const mistyped = await service.register(registrationOf('agnet'));
  const tested = await service.post<{ success: boolean; advice: string }>('/api/v1/instances/webhook-test/', {
    instance_id: mistyped.instance_id,
  });
  assert.deepEqual(
    [tested.body.success, tested.body.advice],
    [false, 'It has no assistant agnet of runtime_options.assistant_id; langgraph.json names agent.'],
  );
  assert.equal(model.turns.length, calls);

  const member = registrationOf('agent');
  const { instance_id } = await service.register(member);
  await service.join('long', instance_id, ['lena']);
  for (let number = 1; number <= LONG.messages; number++) {
    const sent = await service.send('long', { content: `${number} ${'x'.repeat(LONG.chars)}` });
    assert.equal((await service.settled(sent)).state, 'delivered');
  }
  await until(
    'an answer to each',
    async () => (await service.get<{ data: Message[] }>(messagesPath('long'))).body.data,
    (data) => data.filter(({ from_agent }) => from_agent === 'lena').length === LONG.messages,
  );
  const long = await threadOf(url, '1 xxx');
  assert(JSON.stringify(long).length > RESPONSE_BYTES_MAX, 'the thread is longer than what is read of a response');
  assert.match(model.turns.at(-1)?.prompt ?? '', /1 xxx/, 'the agent remembers');

  await service.join('failing', instance_id, ['lena']);
  model.failures = 1;
  const { state, attempts } = await service.settled(await service.send('failing', { content: 'Try this.' }));
  assert.deepEqual(
    [state, attempts.map(({ outcome }) => outcome)],
    ['delivered', ['bad_status', 'ok']],
    JSON.stringify(attempts),
  );
  await showOnce(url, 'Try this.');

  await service.register({ instance_id, ...member, timeout_s: SHORT_S });
  await service.join('late', instance_id, ['lena']);
  const calls_before = model.turns.length;
  model.turn_ms = TURN_MS;
  const late = await service.send('late', { content: 'Take your time.' });
  await until(
    'a call of the model',
    () => model.turns.length,
    (length) => length > calls_before,
  );
  model.turn_ms = 0;
  const again = await service.settled(late);
  assert.deepEqual(
    [again.state, again.attempts.map(({ outcome }) => outcome)],
    ['delivered', ['broken_response', 'ok']],
    JSON.stringify(again.attempts),
  );
  await showOnce(url, 'Take your time.');
}

async function showOnce(url: string, text: string): Promise<void> {
  const { values } = await threadOf(url, text);
  assert.deepEqual(
    values.messages.map(({ type }) => type),
    ['human', 'ai'],
  );
}

/** The thread whose first message has this text. */
async function threadOf(url: string, text: string): Promise<Thread> {
  const response = await fetch(`${url}/threads/search`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ limit: 100 }),
  });
  const threads = (await response.json()) as Thread[];
  const found = threads.find(({ values }) => values.messages[0]?.content.includes(text));
  assert(found !== undefined, `no thread begins with ${text}`);
  return found;
}
