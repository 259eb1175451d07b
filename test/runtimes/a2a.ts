/**
 * An agent on the official A2A SDK, with each form of A2A that the runtime `a2a` supports. A turn of the agent takes
 * two seconds.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { until } from '../support/wait.ts';
import { converse, type Row } from './conversation.ts';
import type { Proof } from './main.ts';
import { installPackages } from './packages.ts';

const PACKAGES = ['@a2a-js/sdk@1.3.0', 'express@5.1.0'] as const;
const TURN_MS = 2_000;
const PROGRAM = fileURLToPath(new URL('programs/a2a_agent.mjs', import.meta.url));

const PROTOCOLS = [
  {
    protocol: '1.0',
    path: '/rest',
    sent: 'POST /message:send, then GET /tasks/ID',
    came_back: 'a task, WORKING, then COMPLETED',
  },
  {
    protocol: '1.0-jsonrpc',
    path: '/rpc',
    sent: 'SendMessage, then GetTask',
    came_back: 'a task, WORKING, then COMPLETED',
  },
  { protocol: '0.3', path: '/rpc', sent: 'message/send, then tasks/get', came_back: 'a task, working, then completed' },
] as const;

export async function proveA2a(): Promise<Proof> {
  const directory = await installPackages(PACKAGES);
  await using cleanup = new AsyncDisposableStack();
  const agent = spawn(process.execPath, [PROGRAM, directory, String(TURN_MS)], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  cleanup.defer(() => void agent.kill('SIGKILL'));
  let output = '';
  agent.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const [url = ''] = await until(
    'the agent',
    () => /http:\/\/\S+/.exec(output) ?? [],
    (found) => found.length > 0,
  );
  const rows: Row[] = [];
  for (const { protocol, path, sent, came_back } of PROTOCOLS) {
    const runsOf = (content: string): number =>
      output.split('\n').filter((line) => line.startsWith('run ') && line.includes(content)).length;
    const subject = {
      runtime: `a2a, protocol ${protocol}`,
      version: PACKAGES[0],
      sent,
      came_back,
      agent_id: 'lena',
      to: `${url}${path}`,
      registration: { runtime: 'a2a', runtime_options: { protocol } },
      runsOf,
    } as const;
    rows.push(...(await converse(subject, `Said over ${protocol}.`)));
    rows.push(...(await converse({ ...subject, came_back: 'a message' }, `Said at once over ${protocol}.`)));
  }
  for (const { reply } of rows) assert.match(reply, /^I heard: somebody: Said /);
  return {
    runtime: `${PACKAGES[0]}, its server on ${PACKAGES[1]}, turns of ${TURN_MS / 1000} s`,
    shown: [
      'each way to write A2A, by webhook and by connect: one run for each message, and its answer in the meeting',
    ],
    rows,
  };
}
