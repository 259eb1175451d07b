/**
 * Two agents of a real OpenClaw gateway in one meeting, which answer every message. One message of a person starts
 * them, and the guard stops them. The meeting and the model count the messages independently.
 */
import assert from 'node:assert/strict';
import { type Delivery, ConvokeClient, type Message } from '@convoke/sdk';
import { Visitor } from '../support/browser.ts';
import { Service } from '../support/service.ts';
import type { Proof } from './main.ts';
import { type ModelServer, startModelServer } from './model_server.ts';
import { Gateway, GATEWAY_TOKEN, PACKAGE } from './openclaw_gateway.ts';
import { installPackage } from './packages.ts';
import { pollUntil } from './conversation.ts';
import { until } from '../support/wait.ts';

const AGENTS = ['anna', 'ben'] as const;
const MEETING = 'runaway';
const PAIR_LIMIT = 20;
/** A turn of a real gateway takes seconds, so 20 turns of each take longer than the usual window of 60 s. */
const PAIR_WINDOW_S = 3_600;
/** How often to wait; each wait takes as long as that of a test. */
const LOOKS_MAX = 15;

export async function proveRunaway(): Promise<Proof> {
  const directory = await installPackage(PACKAGE);
  await using cleanup = new AsyncDisposableStack();
  const model = await startModelServer();
  cleanup.defer(() => model.close());
  const service = new Service();
  await service.start();
  cleanup.defer(() => service.close());
  const gateway = await Gateway.start(directory, model, AGENTS);
  cleanup.defer(() => gateway.close());
  for (const agent of AGENTS) {
    const { instance_id } = await service.register({
      instance_id: agent,
      webhook_url: `${gateway.url}/v1`,
      webhook_headers: { authorization: `Bearer ${GATEWAY_TOKEN}` },
      agent_ids: [agent],
      runtime: 'openai',
      runtime_options: { model: 'openclaw/{{agent_id}}', history: 0 },
    });
    await service.join(MEETING, instance_id, [agent]);
  }
  // Switches the limit of hops off. It would apply first, at 16 messages of agents in a row.
  const limits = { hop_limit: 0, pair_limit: PAIR_LIMIT, pair_window_s: PAIR_WINDOW_S };
  const patched = await service.request('PATCH', `/api/v1/meetings/${MEETING}/`, { body: limits });
  assert.equal(patched.status, 200, patched.text);

  const client = new ConvokeClient({ base_url: service.url });
  const started_ms = performance.now();
  await client.sendMessage(MEETING, { content: 'Say something to each other.' }, { target_agents: ['anna'] });
  const [stopped] = await stop(client, 1);
  const seconds = Math.round((performance.now() - started_ms) / 1000);
  await assertCounts(client, model, { anna: PAIR_LIMIT + 1, ben: PAIR_LIMIT, cancelled: 1 });

  await letThrough(service.url);
  const [again] = await stop(client, 1, stopped!.delivery_id);
  await assertCounts(client, model, { anna: PAIR_LIMIT + 1, ben: PAIR_LIMIT + 1, cancelled: 1 });
  assert.notEqual(again!.delivery_id, stopped!.delivery_id);
  return {
    runtime: `two agents of ${PACKAGE} in one meeting, by its /v1/chat/completions`,
    shown: [
      `one message of a person; ${PAIR_LIMIT} messages of each reached the other in ${seconds} s, and the next one was cancelled, pair_limit`,
      'one click on the page of the meeting let that one through; the answer to it was stopped again',
      'the meeting and the model counted the same: one turn for each message of an agent',
    ],
  };
}

/** Clicks the button on the page of the meeting, in a real browser. */
async function letThrough(url: string): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const visitor = new Visitor();
  cleanup.defer(() => visitor.close());
  await visitor.visit(url, { path: `/meetings/${MEETING}` }, async (page) => {
    const guard = page.getByRole('group', { name: 'Loop guard' });
    await guard
      .getByText(`stopped 1 delivery: more than ${PAIR_LIMIT} from one agent to another in ${PAIR_WINDOW_S} s`)
      .waitFor();
    await guard.getByRole('button', { name: 'Let the last one through' }).click();
    await page.getByText('The last one goes through.').waitFor();
  });
}

/**
 * Waits until the guard has stopped a delivery and nobody sends any more.
 * @param but a delivery that was stopped before
 */
async function stop(client: ConvokeClient, number: number, but?: string): Promise<Delivery[]> {
  const stopped = await pollUntil(
    () =>
      until(
        'the guard',
        async () => (await client.listDeliveries({ meeting_id: MEETING, state: 'cancelled' })).data,
        (data) => data.filter(({ delivery_id }) => delivery_id !== but).length >= number,
      ),
    LOOKS_MAX,
  );
  await until(
    'silence',
    async () => (await client.listDeliveries({ meeting_id: MEETING, state: 'pending' })).data,
    (data) => data.length === 0,
  );
  return stopped.filter(({ delivery_id }) => delivery_id !== but);
}

async function assertCounts(
  client: ConvokeClient,
  model: ModelServer,
  { cancelled, ...said }: { anna: number; ben: number; cancelled: number },
): Promise<void> {
  const messages: Message[] = [];
  for await (const message of client.allMessages(MEETING)) messages.push(message);
  const of = (agent: string) => messages.filter(({ from_agent }) => from_agent === agent).length;
  assert.deepEqual({ anna: of('anna'), ben: of('ben') }, said);
  assert.equal(model.turns.length, said.anna + said.ben, 'each message of an agent is a turn of its model');
  const deliveries = (await client.listDeliveries({ meeting_id: MEETING, limit: 100 })).data;
  const stopped = deliveries.filter(({ state }) => state === 'cancelled');
  assert.deepEqual(
    stopped.map(({ reason }) => reason),
    Array(cancelled).fill('pair_limit'),
  );
}
