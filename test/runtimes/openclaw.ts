/**
 * The recipe of docs/openclaw.md on a real OpenClaw gateway. Runs of an agent take 30 s here, six times as long as a
 * push may. Each message must run once, in order, with one model call, and the instance must stay healthy in Convoke.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { SentMessage } from '@convoke/sdk';
import { blockOf, blocksOf } from '../support/documents.ts';
import { Service } from '../support/service.ts';
import { until } from '../support/wait.ts';
import type { Proof } from './main.ts';
import { startModelServer } from './model_server.ts';
import { Gateway, PACKAGE } from './openclaw_gateway.ts';
import { installPackage } from './packages.ts';

const TURN_MS = 30_000;
const APART_MS = 1_000;
const MESSAGES = ['Message one', 'Message two', 'Message three'];

export async function proveOpenClaw(): Promise<Proof> {
  const directory = await installPackage(PACKAGE);
  await using cleanup = new AsyncDisposableStack();
  const model = await startModelServer();
  cleanup.defer(() => model.close());
  const service = new Service();
  await service.start();
  cleanup.defer(() => service.close());
  const gateway = await Gateway.start(directory, model);
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
  await promisify(execFile)('sh', ['-c', `set -e; curl() { command curl -sS --fail "$@"; }\n${commands}`]);
}

async function sendApart(service: Service, meeting_id: string): Promise<SentMessage[]> {
  const sent: SentMessage[] = [];
  for (const content of MESSAGES) {
    if (sent.length > 0) await pause(APART_MS);
    sent.push(await service.send(meeting_id, { content }));
  }
  return sent;
}

/** Shows what the recipe avoids: with the same key, the gateway starts a run only when the previous run has ended. */
async function showControl(service: Service, { url, token }: Gateway): Promise<void> {
  const webhook_headers = { authorization: `Bearer ${token}` };
  const { instance_id } = await service.register({ webhook_url: `${url}/hooks/shared`, webhook_headers });
  await service.join('shared', instance_id, ['a']);
  await service.send('shared', { content: 'Takes its time' });
  const second = await service.send('shared', { content: 'Waits for the first' });
  const { attempts } = await service.attempted(second);
  assert.equal(attempts[0]?.outcome, 'timeout');
}
