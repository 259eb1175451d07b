/** The service is killed and restarted while an agent answers: no message is lost, and no message is answered twice. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConvokeClient, serveAgent } from '@convoke/sdk';
import { freePort } from '../support/free_port.ts';
import { until } from '../support/wait.ts';
import { NodeProcess } from './node_process.ts';
import { numberFrom, temporaryDirectory } from './run.ts';

const KILLS = numberFrom('FAULTS_AGENT_KILLS', 5);
const MEETING = 'standup-42';

test(`killed ${KILLS} times while an agent answers: each question is answered once, in order`, async (t) => {
  const data = await temporaryDirectory(t);
  const port = await freePort();
  const start = (): NodeProcess =>
    NodeProcess.run(t, ['src/cli/main.ts', 'serve', '--port', String(port), '--data', data]);
  let node = start();
  const base_url = await node.ready;
  const client = new ConvokeClient({ base_url, send_attempts_max: 1 });
  const over = new AbortController();
  const received: unknown[] = [];
  const where = { base_url, meetings: [MEETING], signal: over.signal };
  const served = serveAgent({ agent_id: 'anna', ...where }, ({ message }) => {
    received.push(message['number']);
    return { answers: message['number'] };
  });
  t.after(async () => {
    over.abort();
    await served;
  });
  await until(
    'the agent in the meeting',
    async () => (await client.listMeetingInstances(MEETING).catch(() => null))?.data.length,
    (members) => members === 1,
  );
  const answers = async (): Promise<unknown[]> => {
    const { data: said } = await client.listMessages(MEETING, { limit: 500 });
    return said.filter(({ from_agent }) => from_agent === 'anna').map(({ message }) => message['answers']);
  };
  let number = 0;
  const took_ms: number[] = [];
  for (let k = 0; k < KILLS; k++) {
    // The agent answers one message before the service dies. A second message is accepted just before the kill, so the
    // agent may have it in hand at the kill.
    await client.sendMessage(MEETING, { number: ++number });
    await until('its answer', answers, (given) => given.includes(number));
    await client.sendMessage(MEETING, { number: ++number });
    await node.end('SIGKILL');
    node = start();
    await node.ready;
    const from_ms = performance.now();
    await until('the answer to what was accepted before', answers, (given) => given.includes(number));
    took_ms.push(Math.round(performance.now() - from_ms));
  }
  t.diagnostic(`answered after ${took_ms.join(', ')} ms from when the service was back`);
  const wanted = Array.from({ length: number }, (_, i) => i + 1);
  assert.deepEqual(await answers(), wanted, 'each is answered once, and in order');
  assert.deepEqual(received, wanted, 'the agent ran once for each');
  await until(
    'every delivery to be settled',
    async () => (await client.listDeliveries({ state: 'pending' })).data.length,
    (pending) => pending === 0,
  );
});
