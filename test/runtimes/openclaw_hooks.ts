/**
 * The hooks of a real OpenClaw gateway, with the runtime `openclaw`. The gateway never returns an answer, so the agent
 * answers with its tool `exec`. Runs that share a session happen one after the other, however long they take.
 */
import assert from 'node:assert/strict';
import { Service } from '../support/service.ts';
import { until } from '../support/wait.ts';
import { answerWith, runsIn } from './answering_by_request.ts';
import { converse } from './conversation.ts';
import type { Proof } from './main.ts';
import { type ModelServer, startModelServer } from './model_server.ts';
import { Gateway, PACKAGE } from './openclaw_gateway.ts';
import { installPackage } from './packages.ts';

/** A run takes longer than the gateway lets the next run of the same session wait. */
const TURN_MS = 20_000;

export async function proveHooks(): Promise<Proof> {
  const directory = await installPackage(PACKAGE);
  await using cleanup = new AsyncDisposableStack();
  const model = await startModelServer();
  cleanup.defer(() => model.close());
  const gateway = await Gateway.start(directory, model);
  cleanup.defer(() => gateway.close());
  answerWith(model, 'exec');
  const rows = await converse({
    runtime: 'openclaw',
    version: `${PACKAGE}, its /hooks/agent`,
    sent: 'POST /hooks/agent, a session of the meeting',
    came_back: '200 when the run has ended; the answer by the tool exec',
    agent_id: 'main',
    to: `${gateway.url}/hooks`,
    headers: { authorization: `Bearer ${gateway.token}` },
    registration: { runtime: 'openclaw' },
    runsOf: runsIn(model),
  }).catch((error: unknown) => {
    throw new Error(gateway.output, { cause: error });
  });
  for (const { reply } of rows) assert.match(reply, /^Answer \d+$/);
  model.turn_ms = TURN_MS / 2;
  await showOrder(gateway, model);
  await showRepeat(gateway, model);
  await showControl(gateway, model);
  return {
    runtime: `${PACKAGE}, its /hooks/agent`,
    shown: [
      'by webhook and by connect: one run for each message, and the answer of the agent in the meeting; webhook-test runs none',
      `three messages at once, runs of ${TURN_MS / 1000} s in one session: each delivered at the first attempt, run once, in order, answered`,
      'an attempt that ended before its run: the next one waits for the same run, and the agent runs once',
      'control: without waitForCompletion the gateway refuses the second run of a session with 503 after 15 s',
    ],
    rows,
  };
}

const CONTENTS = ['Message one', 'Message two', 'Message three'];

/** Messages of one meeting wait for each other in their lane, so the gateway refuses none. */
async function showOrder(gateway: Gateway, model: ModelServer): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const service = new Service();
  await service.start();
  cleanup.defer(() => service.close());
  await join(service, gateway, 'Ordered', 600);
  const sent = [];
  for (const content of CONTENTS) sent.push(await service.send('Ordered', { content }));
  for (const message of sent) {
    const { state, attempt_count } = await service.settled(message);
    assert.deepEqual({ state, attempt_count }, { state: 'delivered', attempt_count: 1 });
  }
  const runs = model.turns.filter(({ is_first, last }) => is_first && last.includes('Ordered'));
  assert.deepEqual(
    runs.map(({ last }) => CONTENTS.filter((content) => last.includes(content))),
    CONTENTS.map((content) => [content]),
  );
  assert.match(runs[2]?.prompt ?? '', /Message one/, 'the session remembers');
  const { data } = (await service.get<{ data: { in_reply_to?: string }[] }>('/api/v1/meetings/Ordered/messages/')).body;
  for (const { message_id } of sent)
    assert.equal(data.filter(({ in_reply_to }) => in_reply_to === message_id).length, 1);
}

/** Shows that the gateway recognises a retry: its bytes and its key are those of the first attempt. */
async function showRepeat(gateway: Gateway, model: ModelServer): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const service = new Service({ retry_schedule: '1s,1s,1s,1s,1s' });
  await service.start();
  cleanup.defer(() => service.close());
  await join(service, gateway, 'repeated', 8);
  const delivery = await service.settled(await service.send('repeated', { content: 'Only once' }));
  const outcomes = delivery.attempts.map(({ outcome }) => outcome);
  assert.equal(outcomes[0], 'timeout');
  assert.equal(outcomes.at(-1), 'ok');
  assert.equal(runsIn(model)('Only once'), 1);
}

/** Shows what the runtime avoids: the gateway refuses a message when an earlier run of its session takes too long. */
async function showControl({ url, token }: Gateway, model: ModelServer): Promise<void> {
  const runs = model.turns.length;
  const post = (message: string) =>
    fetch(`${url}/hooks/agent`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ message, sessionKey: 'hook:control', sessionMode: 'persistent', deliver: false }),
    });
  model.turn_ms = TURN_MS;
  assert.equal((await post('Takes its time')).status, 200);
  await until(
    'the run',
    () => model.turns.length,
    (length) => length > runs,
  );
  assert.equal((await post('Waits for the first')).status, 503);
}

async function join(service: Service, { url, token }: Gateway, meeting_id: string, timeout_s: number): Promise<void> {
  const { instance_id } = await service.register({
    webhook_url: `${url}/hooks`,
    webhook_headers: { authorization: `Bearer ${token}` },
    agent_ids: ['main'],
    runtime: 'openclaw',
    timeout_s,
  });
  await service.join(meeting_id, instance_id, ['main']);
}
