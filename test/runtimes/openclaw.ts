/**
 * The recipe of docs/openclaw.md on a real OpenClaw gateway. Runs of an agent take 30 s here, six times as long as a push
 * may: each message must run once, in order, with one model call, and the gateway must stay healthy in Convoke's eyes.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { runInNewContext } from 'node:vm';
import type { SentMessage } from '@convoke/sdk';
import { blockOf, blocksOf } from '../support/documents.ts';
import { Service } from '../support/service.ts';
import { until } from '../support/wait.ts';
import type { Proof } from './main.ts';
import { MODEL, type ModelServer, startModelServer } from './model_server.ts';
import { installPackage } from './packages.ts';

const PACKAGE = 'openclaw@2026.9.6';
const TURN_MS = 30_000;
const APART_MS = 1_000;
const MESSAGES = ['Message one', 'Message two', 'Message three'];

interface Hooks {
  hooks: { token: string; mappings: object[] };
}

export async function proveOpenClaw(): Promise<Proof> {
  const directory = await installPackage(PACKAGE);
  await using cleanup = new AsyncDisposableStack();
  const model = await startModelServer();
  cleanup.defer(() => model.close());
  const service = new Service();
  await service.start();
  cleanup.defer(() => service.close());
  const gateway = await startGateway(directory, model);
  cleanup.defer(() => gateway.close());

  await followRecipe(service, gateway);
  await until(
    'the first run',
    () => gateway.runs('ok'),
    (runs) => runs === 1,
  );
  const tested = await service.post<{ success: boolean }>('/api/v1/instances/webhook-test/', {
    instance_id: 'openclaw-anna',
  });
  assert.equal(tested.body.success, true, tested.text);
  await until(
    'the run of the webhook test',
    () => gateway.runs('ok'),
    (runs) => runs === 2,
  );

  model.turn_ms = TURN_MS;
  const calls_before = model.turns.length;
  const sent = await sendApart(service, 'standup-42');
  await until(
    'the three runs',
    () => gateway.runs('ok'),
    (runs) => runs === 2 + MESSAGES.length,
  );
  const calls = model.turns.slice(calls_before).map(({ prompt }) => MESSAGES.filter((text) => prompt.includes(text)));
  assert.deepEqual(
    calls,
    MESSAGES.map((text) => [text]),
    'one model call for each message, in order',
  );
  assert.equal(gateway.runs('error'), 0, gateway.output);
  for (const message of sent) {
    const { state, attempt_count } = await service.settled(message);
    assert.deepEqual({ state, attempt_count }, { state: 'delivered', attempt_count: 1 });
  }
  const { health, consecutive_failures } = await service.instance('openclaw-anna');
  assert.deepEqual({ health, consecutive_failures }, { health: 'up', consecutive_failures: 0 });

  await showControl(service, gateway);
  return {
    runtime: `${PACKAGE}, Node ${process.versions.node}, turns of ${TURN_MS / 1000} s`,
    shown: [
      'the commands of docs/openclaw.md register it, and the first message runs; webhook-test succeeds',
      `${MESSAGES.length} messages ${APART_MS / 1000} s apart: each delivered at the first attempt, run once, in order, one model call; health stays up`,
      'control: with a session key that the runs share, the second push gets no response within 5 s',
    ],
  };
}

/** Types the commands of the document into a shell. */
async function followRecipe(service: Service, { url }: Gateway): Promise<void> {
  const commands = blockOf(await blocksOf('docs/openclaw.md'), 'openclaw')
    .replaceAll('http://127.0.0.1:8080', service.url)
    .replaceAll('http://127.0.0.1:18789', url);
  await promisify(execFile)('sh', ['-c', `set -e; curl() { command curl -sS --fail "$@"; echo; }\n${commands}`]);
}

async function sendApart(service: Service, meeting_id: string): Promise<SentMessage[]> {
  const sent: SentMessage[] = [];
  for (const content of MESSAGES) {
    if (sent.length > 0) await pause(APART_MS);
    sent.push(await service.send(meeting_id, { content }));
  }
  return sent;
}

/** What the recipe avoids: the gateway starts a run only when the one before it with the same key has ended. */
async function showControl(service: Service, { url, token }: Gateway): Promise<void> {
  const webhook_headers = { authorization: `Bearer ${token}` };
  const { instance_id } = await service.register({ webhook_url: `${url}/hooks/shared`, webhook_headers });
  await service.join('shared', instance_id, ['a']);
  await service.send('shared', { content: 'Takes its time' });
  const second = await service.send('shared', { content: 'Waits for the first' });
  const { attempts } = await service.attempted(second);
  assert.equal(attempts[0]?.outcome, 'timeout');
}

interface Gateway {
  url: string;
  token: string;
  output: string;
  /** How many runs of hooks have ended so. */
  runs(status: 'ok' | 'error'): number;
  close(): Promise<void>;
}

async function startGateway(directory: string, model: ModelServer): Promise<Gateway> {
  const home = await mkdtemp(join(tmpdir(), 'convoke-openclaw-'));
  const port = await freePort();
  const example = await readFile(new URL('../../examples/openclaw.json5', import.meta.url), 'utf8');
  const { hooks } = runInNewContext(`(${example})`) as Hooks;
  const shared = {
    ...hooks.mappings[0],
    match: { path: 'shared' },
    sessionKey: 'hook:convoke:shared',
  };
  const config = {
    gateway: {
      mode: 'local',
      bind: 'loopback',
      port,
      auth: { mode: 'token', token: 'the-token-of-the-gateway-itself' },
    },
    agents: {
      defaults: {
        model: { primary: `local/${MODEL}` },
        workspace: join(home, 'workspace'),
        heartbeat: { every: '0m' },
      },
    },
    models: {
      mode: 'replace',
      catalogRefresh: { enabled: false },
      providers: { local: providerOf(model) },
    },
    hooks: { ...hooks, mappings: [...hooks.mappings, shared] },
    // Nothing but loopback: no look for updates, no figures for its makers, no announcement on the network.
    update: { checkOnStart: false },
    telemetry: { enabled: false },
    discovery: { mdns: { mode: 'off' } },
  };
  const config_path = join(home, 'openclaw.json');
  await writeFile(config_path, JSON.stringify(config));
  const program = join(directory, 'node_modules/openclaw/openclaw.mjs');
  const env = {
    PATH: process.env['PATH'],
    HOME: home,
    OPENCLAW_STATE_DIR: home,
    OPENCLAW_CONFIG_PATH: config_path,
    NO_COLOR: '1',
  };
  // A group of its own: what the gateway starts ends with it.
  const process_ = spawn(process.execPath, [program, 'gateway', 'run'], { env, cwd: home, detached: true });
  const gateway: Gateway = {
    url: `http://127.0.0.1:${port}`,
    token: hooks.token,
    output: '',
    runs(status) {
      return this.output
        .split('\n')
        .filter((line) => line.includes('hook agent run') && line.includes(`status=${status}`)).length;
    },
    async close() {
      await endGroup(process_);
      await rm(home, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  for (const stream of [process_.stdout, process_.stderr]) {
    stream.on('data', (chunk: Buffer) => (gateway.output += chunk.toString()));
  }
  await until(
    'the gateway',
    () => {
      assert.equal(process_.exitCode, null, gateway.output);
      return gateway.output;
    },
    (output) => /\[gateway\] ready/.test(output),
  );
  return gateway;
}

function providerOf({ url }: ModelServer): object {
  const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  const limits = { contextWindow: 120_000, maxTokens: 8_192 };
  const models = [{ id: MODEL, name: MODEL, reasoning: false, input: ['text'], cost, ...limits }];
  return { baseUrl: url, apiKey: 'none', api: 'openai-completions', timeoutSeconds: 300, models };
}

async function endGroup(process_: ChildProcess): Promise<void> {
  const closed = once(process_, 'close');
  // Told to end, it waits for runs in progress for minutes.
  process.kill(-(process_.pid as number), 'SIGKILL');
  await closed;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}
