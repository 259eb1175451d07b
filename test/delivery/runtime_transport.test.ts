/** The transport to runtimes, where the store or the registration keeps a request from being made. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { RuntimeTransport } from '../../src/delivery/runtimes/runtime_transport.ts';
import type { Push, PushResult, Way } from '../../src/delivery/transport/transport.ts';
import type { WebhookTransport } from '../../src/delivery/transport/webhook_transport.ts';
import type { RuntimeSettings } from '../../src/domain/runtimes/runtimes.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const OK: PushResult = {
  outcome: 'ok',
  status_code: 200,
  detail: '',
  duration_ms: 0,
  stages: [],
  response_excerpt: '',
  retry_after: null,
  kept_body: { text: '{"choices":[{"message":{"content":"NO_REPLY"}}]}' },
};

function pushOf(message: object, target_agents = ['lena']): Push {
  const body = { event: 'new_message', meeting_id: 'm', message, target_agents, timestamp: '' };
  return {
    instance_id: 'lena',
    url: 'http://127.0.0.1:9/base',
    headers: { 'webhook-id': 'dlv_1', 'convoke-seq': '7', 'convoke-attempt': '1' },
    body: Buffer.from(JSON.stringify(body)),
    success_statuses: '200',
  };
}

const wayOf = (runtime: RuntimeSettings): Way => ({
  transport: 'webhook',
  ack_timeout_ms: 30_000,
  timeout_ms: 120_000,
  runtime,
  headers: {},
  updated_at: 1,
  secret: '',
  earlier_secrets: [],
  keys: null,
});

/** A transport whose requests all get a response, and succeed unless the test says otherwise; `list` reads the history. */
function transportOf(
  clock: VirtualClock,
  list: () => Promise<{ data: []; has_more: false }>,
  respond: (push: Push) => PushResult | Promise<PushResult> = () => OK,
) {
  const requests: Push[] = [];
  const errors: unknown[] = [];
  const webhook = {
    pushFor: async (push: Push) => {
      requests.push(push);
      return respond(push);
    },
    handOver: () => {},
    forget: () => {},
  } as unknown as WebhookTransport;
  const transport = new RuntimeTransport({
    clock,
    webhook,
    store: { messages: { list } },
    instance_concurrency: 4,
    onReady: () => {},
    onError: (error) => void errors.push(error),
  });
  return { transport, requests, errors };
}

const NO_HISTORY = async () => ({ data: [] as [], has_more: false as const });

const OPENAI = wayOf({ name: 'openai', options: { model: 'x' } });

describe('a push whose history cannot be read', () => {
  const failing = () => Promise.reject(new Error('the storage is away'));

  test('counts as not made after a pause, so that a storage that is away is not asked without a pause', async () => {
    const clock = new VirtualClock();
    const { transport, requests, errors } = transportOf(clock, failing);
    const results: (PushResult | null)[] = [];
    void transport.push(pushOf({ content: 'hi' }), OPENAI).then((result) => results.push(result));
    await clock.settle();
    assert.deepEqual([results, errors.length], [[], 1]);
    await clock.advance(500);
    assert.deepEqual(results, [null]);
    assert.deepEqual(requests, []);
  });

  test('ends at once when another node takes the instance over', async () => {
    const clock = new VirtualClock();
    const { transport } = transportOf(clock, failing);
    const results: (PushResult | null)[] = [];
    void transport.push(pushOf({ content: 'hi' }), OPENAI).then((result) => results.push(result));
    await clock.settle();
    transport.handOver(() => true);
    await clock.settle();
    assert.deepEqual(results, [null]);
  });
});

test('a message whose address would be too long fails alone, as a bad response does: the instance does not back off', async () => {
  const { transport, requests } = transportOf(new VirtualClock(), NO_HISTORY);
  const way = wayOf({ name: 'template', options: { body: {}, path: '/rooms/{{message.room}}' } });
  const result = await transport.push(pushOf({ room: 'x'.repeat(2_100) }), way);
  assert.deepEqual([result?.outcome, result?.status_code], ['bad_status', null]);
  assert.match(result?.detail ?? '', /address .* over 2048 bytes.*runtime_options\.path/);
  await transport.push(pushOf({ room: 'kitchen' }), way);
  assert.deepEqual(
    requests.map(({ url }) => url),
    ['http://127.0.0.1:9/base/rooms/kitchen'],
  );
});

test('while there is no room for more answers, a push counts as not made after a pause, and its agent does not run', async () => {
  const clock = new VirtualClock();
  const slow = Promise.withResolvers<PushResult>();
  const said = { ...OK, kept_body: { text: JSON.stringify({ said: 'x'.repeat(65_000) }) } };
  const { transport, requests } = transportOf(clock, NO_HISTORY, ({ body }) =>
    body.toString().includes('slow') ? slow.promise : said,
  );
  const way = wayOf({ name: 'template', options: { body: { to: '{{agent_id}}' }, each_agent: true, reply: '/said' } });
  const agents = Array.from({ length: 60 }, (_, i) => `a${i}`);
  // Each of these pushes keeps the answers of its other agents until the slow agent responds.
  const keeping = Array.from({ length: 9 }, () => transport.push(pushOf({}, ['slow', ...agents]), way));
  await clock.settle();
  const asked = requests.length;
  const late = transport.push(pushOf({}), way);
  await clock.advance(500);
  assert.ok((await late) === null);
  assert.equal(requests.length, asked);
  slow.resolve(said);
  await Promise.all(keeping);
  assert.equal((await transport.push(pushOf({}), way))?.outcome, 'ok');
});

describe('a push that waits for the tasks of several agents', () => {
  const A2A = wayOf({ name: 'a2a', options: {} });
  const WORKING = { ...OK, kept_body: { text: '{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}' } };

  test('ends at once when another node takes the instance over: no agent is asked again', async () => {
    const clock = new VirtualClock();
    const { transport, requests } = transportOf(clock, NO_HISTORY, () => WORKING);
    const results: (PushResult | null)[] = [];
    void transport.push(pushOf({ content: 'hi' }, ['a', 'b', 'c']), A2A).then((result) => results.push(result));
    await clock.settle();
    assert.deepEqual([results, requests.length], [[], 3]);
    transport.handOver(() => true);
    await clock.settle();
    assert.deepEqual([results, requests.length], [[null], 3]);
  });

  test('begins no wait when another node took the instance over during a request', async () => {
    const clock = new VirtualClock();
    const response = Promise.withResolvers<PushResult>();
    const { transport } = transportOf(clock, NO_HISTORY, () => response.promise);
    const results: (PushResult | null)[] = [];
    void transport.push(pushOf({ content: 'hi' }), A2A).then((result) => results.push(result));
    await clock.settle();
    transport.handOver(() => true);
    response.resolve(WORKING);
    await clock.settle();
    assert.deepEqual(results, [null]);
  });
});
