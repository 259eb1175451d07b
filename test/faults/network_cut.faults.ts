/**
 * A laptop whose network drops all packets for a while, so that neither side learns of it. An agent of the SDK and
 * `convoke connect` run on the laptop. Messages that waited arrive once and in order when the network works again.
 * `npm run test:cut` cuts the network for ten minutes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { ConvokeClient, serveAgent } from '@convoke/sdk';
import { serve, start, stop, temporaryDirectory } from '../support/command_line.ts';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { pushOf, startReceiver } from '../support/receiver.ts';
import { until } from '../support/wait.ts';
import { numberFrom } from './run.ts';

const CUT_S = numberFrom('FAULTS_CUT_S', 20);
const MEETINGS = ['one', 'two'];
const BEFORE = 4;
const MEANWHILE = 40;
const AFTER = 4;
/**
 * The timeout of a push, far longer than the test waits. So a push that was lost with the network does not arrive
 * because of a retry. It arrives because the machine repeats the lost pull under the same name.
 */
const TURN_S = 600;

test(`the network of a laptop drops everything for ${CUT_S} s: what waited arrives once and in order`, async (t) => {
  const service = await serve(temporaryDirectory(t), { flags: ['--log-level', 'error'] });
  const proxy = await CuttingProxy.start(Number(new URL(service.url).port));
  const far = `http://127.0.0.1:${proxy.port}`;
  const client = new ConvokeClient({ base_url: service.url });

  const runtime = await startReceiver(t);
  const meetings = MEETINGS.flatMap((meeting_id) => ['--meeting', meeting_id]);
  const args = ['connect', '--agent', 'anna', ...meetings, '--to', runtime.url, '--timeout', String(TURN_S)];
  const connect = start([...args, '--url', far]);
  for (const stream of [connect.stdout!, connect.stderr!]) stream.resume();

  const ending = new AbortController();
  const received: { meeting_id: string; number: unknown }[] = [];
  const states: string[] = [];
  const agent = serveAgent(
    {
      agent_id: 'ben',
      meetings: MEETINGS,
      base_url: far,
      turn_s: TURN_S,
      signal: ending.signal,
      onConnection: (state) => void states.push(state),
    },
    ({ meeting_id, message, from_agent }) => {
      if (from_agent !== null) return null;
      received.push({ meeting_id, number: message['number'] });
      return { answers: message['number'] };
    },
  );
  t.after(async () => {
    ending.abort();
    await agent;
    connect.kill('SIGKILL');
    await stop(service, 'SIGKILL');
    await proxy.close();
  });

  let sent = 0;
  const say = async (count: number, pause_ms: number): Promise<void> => {
    for (let i = 0; i < count; i++) {
      const number = sent++;
      await client.sendMessage(
        MEETINGS[number % MEETINGS.length] as string,
        { number },
        { target_agents: ['anna', 'ben'] },
      );
      await pause(pause_ms);
    }
  };
  /** The numbers that the runtime got, without the messages of the other agent. */
  const carried = () =>
    runtime.requests
      .map(pushOf)
      .map(({ meeting_id, message }) => ({ meeting_id, number: message['number'] }))
      .filter(({ number }) => number !== undefined);
  const arrived = async (): Promise<void> => {
    await until(
      'every message at both',
      () => Math.min(received.length, carried().length),
      (least) => least >= sent,
    );
  };

  for (const meeting_id of MEETINGS) {
    await until(
      'both in the meeting',
      async () => (await client.listMeetingInstances(meeting_id).catch(() => null))?.data.length,
      (length) => length === 2,
    );
  }
  await say(BEFORE, 0);
  await arrived();

  proxy.onRequest = proxy.onAnswer = () => 'swallow';
  await say(MEANWHILE, (CUT_S * 1000) / MEANWHILE);
  assert.equal(received.length, BEFORE, 'nothing passes');
  proxy.onRequest = proxy.onAnswer = () => 'pass';
  // After a real cut, routers and proxies no longer know the earlier connections. So this closes them in the proxy.
  proxy.cutAll();
  const back_ms = performance.now();
  await until(
    'the first',
    () => Math.min(received.length, carried().length),
    (least) => least > BEFORE,
  );
  const first_ms = performance.now() - back_ms;
  await arrived();
  t.diagnostic(
    `after the return: the first at both in ${Math.round(first_ms)} ms, all ${sent} in ${Math.round(performance.now() - back_ms)} ms`,
  );
  await say(AFTER, 0);
  await arrived();

  const order = (got: readonly { meeting_id: string; number: unknown }[], meeting_id: string): unknown[] =>
    got.filter((each) => each.meeting_id === meeting_id).map(({ number }) => number);
  for (const [lane, meeting_id] of MEETINGS.entries()) {
    const numbers = Array.from({ length: sent }, (_, i) => i).filter((i) => i % MEETINGS.length === lane);
    assert.deepEqual(order(received, meeting_id), numbers, `${meeting_id} at the agent, once and in order`);
    assert.deepEqual(order(carried(), meeting_id), numbers, `${meeting_id} at the runtime, once and in order`);
    const answers = await until(
      'the answers',
      async () =>
        (await client.listMessages(meeting_id, { limit: 500 })).data.filter(({ from_agent }) => from_agent === 'ben'),
      ({ length }) => length >= numbers.length,
    );
    assert.deepEqual(
      answers.map(({ message }) => message['answers']),
      numbers,
      `${meeting_id} is answered once and in order`,
    );
  }
  await until(
    'every delivery to be settled',
    async () => (await client.listDeliveries({ state: 'pending' })).data.length,
    (pending) => pending === 0,
  );
  assert.deepEqual((await client.listDeliveries({ state: 'failed' })).data, []);
  assert.ok(states.includes('reconnecting'));
});
