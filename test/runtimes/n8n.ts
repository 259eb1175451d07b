/** A workflow of n8n that takes the pushes of the specification unchanged, asks a scripted model, and replies. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import assert from 'node:assert/strict';
import { promisify } from 'node:util';
import { freePort } from '../support/free_port.ts';
import { until } from '../support/wait.ts';
import { converse } from './conversation.ts';
import type { Proof } from './main.ts';
import { MODEL, type ModelServer, startModelServer } from './model_server.ts';
import { installPackage } from './packages.ts';
import { RuntimeProcess } from './process.ts';

const PACKAGE = 'n8n@2.40.7';
const WORKFLOW = 'convoke0000000001';
const COMPILE_MS_MAX = 900_000;
const COMMAND_MS_MAX = 300_000;

export async function proveN8n(): Promise<Proof> {
  const directory = await installPackage(PACKAGE);
  await compileDatabase(directory);
  await using cleanup = new AsyncDisposableStack();
  const model = await startModelServer();
  cleanup.defer(() => model.close());
  const home = await mkdtemp(join(tmpdir(), 'convoke-n8n-'));
  cleanup.defer(() => rm(home, { recursive: true, force: true, maxRetries: 5 }));
  const port = await freePort();
  const n8n = { directory, home, env: environmentOf(home, port, await freePort()) };
  await writeFile(join(home, 'workflow.json'), JSON.stringify(workflowOf(model)));
  await run(n8n, 'import:workflow', `--input=${join(home, 'workflow.json')}`);
  await run(n8n, 'publish:workflow', `--id=${WORKFLOW}`);
  const url = `http://127.0.0.1:${port}`;
  const server = await RuntimeProcess.start({
    command: process.execPath,
    args: [programOf(directory), 'start'],
    cwd: home,
    env: n8n.env,
    ready_url: `${url}/healthz`,
  });
  cleanup.defer(() => server.close());
  await until(
    'the webhook of the workflow',
    () => ask(`${url}/webhook/convoke`),
    (status) => status === 200,
  );
  const rows = await converse({
    runtime: 'spec',
    version: `${PACKAGE}, a workflow`,
    sent: 'POST /webhook/convoke, the body of the specification',
    came_back: '{"reply": "…"}',
    agent_id: 'lena',
    to: `${url}/webhook/convoke`,
    registration: { runtime: 'spec', replies: true },
    is_run_by_test: true,
    runsOf: (content) => model.turns.filter(({ prompt }) => prompt.includes(content)).length,
  });
  for (const { reply } of rows) assert.match(reply, /^Answer \d+$/);
  return {
    runtime: `${PACKAGE}, a workflow of three nodes`,
    shown: ['by webhook and by connect: one run for each message, and its answer in the meeting'],
    rows,
  };
}

/** Requests the webhook of a workflow. It works only some time after the server responds. */
async function ask(url: string): Promise<number> {
  const body = JSON.stringify({ message: { content: 'Are you there?' } });
  const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  await response.arrayBuffer();
  return response.status;
}

interface N8n {
  directory: string;
  home: string;
  env: Record<string, string>;
}

function programOf(directory: string): string {
  return join(directory, 'node_modules/n8n/bin/n8n');
}

/** Compiles the database module that n8n needs at its start. Packages are installed without running their scripts. */
async function compileDatabase(directory: string): Promise<void> {
  if (existsSync(join(directory, 'node_modules/sqlite3/build/Release/node_sqlite3.node'))) return;
  await promisify(execFile)('npm', ['rebuild', 'sqlite3'], { cwd: directory, timeout: COMPILE_MS_MAX });
}

async function run({ directory, home, env }: N8n, ...args: string[]): Promise<void> {
  const settings = { cwd: home, env, timeout: COMMAND_MS_MAX, maxBuffer: 64 << 20 };
  await promisify(execFile)(process.execPath, [programOf(directory), ...args], settings);
}

/** n8n talks only on loopback: it sends no usage figures, and looks for no updates, templates or licences. */
function environmentOf(home: string, port: number, broker_port: number): Record<string, string> {
  return {
    PATH: `${dirname(process.execPath)}:${process.env['PATH'] ?? ''}`,
    HOME: home,
    N8N_USER_FOLDER: home,
    N8N_LISTEN_ADDRESS: '127.0.0.1',
    N8N_HOST: '127.0.0.1',
    N8N_PORT: String(port),
    N8N_RUNNERS_BROKER_PORT: String(broker_port),
    N8N_DIAGNOSTICS_ENABLED: 'false',
    N8N_VERSION_NOTIFICATIONS_ENABLED: 'false',
    N8N_TEMPLATES_ENABLED: 'false',
    N8N_PERSONALIZATION_ENABLED: 'false',
    N8N_LICENSE_AUTO_RENEW_ENABLED: 'false',
  };
}

/** The workflow takes a push, asks the model, and sends its answer. */
function workflowOf({ url }: ModelServer): object {
  const node = (name: string, type: string, typeVersion: number, parameters: object, more: object = {}) => ({
    id: name,
    name,
    type: `n8n-nodes-base.${type}`,
    typeVersion,
    position: [0, 0],
    parameters,
    ...more,
  });
  const question = `={{ JSON.stringify({ model: '${MODEL}', messages: [{ role: 'user', content: $json.body.message.content }] }) }}`;
  const ask = {
    method: 'POST',
    url: `${url}/chat/completions`,
    sendBody: true,
    specifyBody: 'json',
    jsonBody: question,
  };
  const reply = '={{ JSON.stringify({ reply: $json.choices[0].message.content }) }}';
  const to = (name: string) => ({ main: [[{ node: name, type: 'main', index: 0 }]] });
  return {
    id: WORKFLOW,
    name: 'Convoke',
    active: false,
    settings: { executionOrder: 'v1' },
    nodes: [
      node(
        'Push',
        'webhook',
        2,
        { httpMethod: 'POST', path: 'convoke', responseMode: 'responseNode' },
        { webhookId: 'push' },
      ),
      node('Model', 'httpRequest', 4.2, ask),
      node('Reply', 'respondToWebhook', 1.1, { respondWith: 'json', responseBody: reply }),
    ],
    connections: { Push: to('Model'), Model: to('Reply') },
  };
}
