/**
 * SIGKILL between the responses of two agents to one push. The tests check which agent gets the push again, and which
 * messages the meeting has afterwards.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { ConvokeClient, type DeliveryWithAttempts } from '@convoke/sdk';
import { serve, stop, temporaryDirectory } from '../support/command_line.ts';
import { type Behaviour, type Received, startReceiver } from '../support/receiver.ts';
import { until } from '../support/wait.ts';

const QUESTION = 'Who are you?';
/** So long that no retry comes before the kill, however late a busy machine kills. */
const FLAGS = ['--retry-schedule', '1h'];
const says = (content: string) => ({
  body: JSON.stringify({ choices: [{ message: { role: 'assistant', content } }] }),
});

/** The agent that a request asks the question; null for a request that brings the answer of the other agent. */
function askedIn({ text }: Received): string | null {
  const { user, messages } = JSON.parse(text) as { user: string; messages: { content: string }[] };
  return messages.at(-1)?.content.endsWith(QUESTION) === true ? (user.split(':')[1] as string) : null;
}

/**
 * Sends the question to two agents, kills the service when `isTime` returns true, and starts it again.
 * @returns the agents in the order of the requests
 */
async function killedBetween(
  t: TestContext,
  first: (agent: string) => Exclude<Behaviour, (...given: never[]) => unknown>,
  isTime: (asked: readonly string[], delivery: DeliveryWithAttempts) => boolean,
): Promise<string[]> {
  const asked: string[] = [];
  let is_killed = false;
  const receiver = await startReceiver(t, (received) => {
    const agent = askedIn(received);
    if (agent === null) return says('NO_REPLY');
    asked.push(agent);
    return is_killed ? says(`I am ${agent}`) : first(agent);
  });
  const data = temporaryDirectory(t);
  const before = await serve(data, { flags: FLAGS });
  t.after(() => stop(before, 'SIGKILL'));
  const client = new ConvokeClient({ base_url: before.url });
  const agent_ids = ['anna', 'ben'];
  await client.register({
    instance_id: 'i',
    instance_name: 'i',
    agent_ids,
    webhook_url: `${receiver.origin}/v1`,
    runtime: 'openai',
    runtime_options: { model: 'x', history: 0 },
  });
  await client.joinMeeting({ instance_id: 'i', meeting_id: 'm', agent_ids });
  await client.sendMessage('m', { content: QUESTION });
  const [{ delivery_id } = { delivery_id: '' }] = (await client.listDeliveries({ meeting_id: 'm' })).data;
  await until(
    'the moment',
    () => client.getDelivery(delivery_id),
    (delivery) => isTime(asked, delivery),
  );
  await stop(before, 'SIGKILL');
  is_killed = true;

  const after = await serve(data, { flags: FLAGS });
  t.after(() => stop(after, 'SIGKILL'));
  const again = new ConvokeClient({ base_url: after.url });
  const { waiting_for } = await again.getDelivery(delivery_id);
  if (waiting_for === 'retry') await again.retryDelivery(delivery_id);
  const { state } = await until(
    'the answers',
    () => again.getDelivery(delivery_id),
    (delivery) => delivery.state !== 'pending',
  );
  assert.equal(state, 'delivered');
  const said = (await again.listMessages('m')).data.filter(({ from_agent }) => from_agent !== undefined);
  assert.deepEqual(said.map(({ from_agent, message }) => `${from_agent}: ${String(message['content'])}`).toSorted(), [
    'anna: I am anna',
    'ben: I am ben',
  ]);
  return asked;
}

test('an agent whose answer is on disk is not asked again after a crash: only the other one is', async (t) => {
  const asked = await killedBetween(
    t,
    (agent) => (agent === 'anna' ? says('I am anna') : { status: 500 }),
    (_, { attempts }) => attempts[0]?.answered_agents?.includes('anna') === true,
  );
  assert.deepEqual(asked.toSorted(), ['anna', 'ben', 'ben']);
});

// The control: until the attempt ends, none of its responses is on disk, so both agents get the push again.
test('after a crash in the middle of an attempt both agents get the push again, and each answer is in the meeting once', async (t) => {
  const asked = await killedBetween(
    t,
    (agent) => (agent === 'anna' ? says('I am anna') : 'hang'),
    (agents) => agents.length === 2,
  );
  assert.deepEqual(asked.toSorted(), ['anna', 'anna', 'ben', 'ben']);
});
