/** The spans of a message: names, parents, links and attributes, with each transport, a restart and a second node. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { before, describe, test, type TestContext } from 'node:test';
import type { MessageTrace, SentMessage, ServiceNode } from '@convoke/sdk';
import type { SettingName } from '../../src/config/settings.ts';
import type { TraceSettings } from '../../src/config/traces.ts';
import { VERSION } from '../../src/version.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PullingMachine } from '../support/pulling.ts';
import { Service, messagesPath, startService } from '../support/service.ts';
import { rpc, RPC_HEADERS } from '../support/mcp.ts';
import { type CollectedSpan, TraceCollector } from '../support/trace_collector.ts';
import { beforeTimer, until } from '../support/wait.ts';

const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736';
const SENDER = '00f067aa0ba902b7';
const traceparent = `00-${TRACE_ID}-${SENDER}-01`;
const tracestate = 'rojo=1,congo=2';

const SETTINGS: TraceSettings = {
  sampling: { is_parent_based: true, ratio: 1 },
  queue_spans_max: 2_048,
  batch_spans_max: 512,
  send_every_ms: 10,
  send_ms_max: 30_000,
};

interface Options {
  traces?: Partial<TraceSettings>;
  settings?: Partial<Record<SettingName, string>>;
  collector?: TraceCollector;
}

/** Starts a service that sends its traces to a new collector. */
async function traced(t: TestContext, { traces = {}, settings = {}, collector }: Options = {}) {
  const to = collector ?? (await TraceCollector.start(t));
  process.env['OTEL_EXPORTER_OTLP_ENDPOINT'] = to.url;
  const service = new Service(settings, undefined, { ...SETTINGS, ...traces });
  await service.start();
  t.after(() => service.close());
  return { service, collector: to };
}

async function send(service: Service, meeting_id: string, headers: Record<string, string> = {}, fields: object = {}) {
  const answer = await service.post<SentMessage>(messagesPath(meeting_id), { message: {}, ...fields }, headers);
  assert.equal(answer.status, 201, answer.text);
  return answer.body;
}

const named = (spans: readonly CollectedSpan[], name: string) => spans.filter((span) => span.name === name);

/** The only span with this name. */
function one(spans: readonly CollectedSpan[], name: string): CollectedSpan {
  const [span, ...others] = named(spans, name);
  assert.ok(span !== undefined && others.length === 0, `${name} in ${spans.map((each) => each.name).join()}`);
  return span;
}

/** The names of spans, in the order of the alphabet. */
const namesOf = (spans: readonly CollectedSpan[]): string[] => spans.map(({ name }) => name).toSorted();

const parentIn = (header: string | string[] | undefined) => String(header).split('-')[2];

test('a message that is pushed has the spans send, commit, wait and push, in the trace of its sender', async (t) => {
  const { service, collector } = await traced(t);
  const { receiver, instance_id } = await service.member(t, 'm');
  const sent = await send(service, 'm', { traceparent, tracestate });
  const push = await receiver.next();
  const spans = await collector.count(4);
  assert.deepEqual(namesOf(spans), ['commit', 'push', 'send', 'wait']);
  for (const span of spans) assert.deepEqual([span.trace_id, span.trace_state], [TRACE_ID, tracestate]);

  const accept = one(spans, 'send');
  const about = { 'messaging.system': 'convoke', 'messaging.destination.name': 'm' };
  const operation = (name: string) => ({ 'messaging.operation.name': name, 'messaging.operation.type': 'send' });
  assert.deepEqual([accept.kind, accept.parent_span_id, accept.error], ['producer', SENDER, null]);
  assert.deepEqual(accept.attributes, {
    ...about,
    ...operation('send'),
    'messaging.message.id': sent.message_id,
    'convoke.seq': 1,
    'convoke.deliveries_queued': 1,
  });

  const commit = one(spans, 'commit');
  assert.deepEqual([commit.kind, commit.parent_span_id], ['internal', accept.span_id]);
  assert.deepEqual(commit.attributes, about);

  const { data } = (await service.get<{ data: { delivery_id: string }[] }>('/api/v1/deliveries/')).body;
  const of_delivery = {
    'messaging.message.id': sent.message_id,
    'messaging.consumer.group.name': instance_id,
    'convoke.delivery_id': data[0]?.delivery_id,
    'convoke.seq': 1,
    'convoke.attempt': 1,
  };
  const wait = one(spans, 'wait');
  assert.deepEqual([wait.kind, wait.parent_span_id], ['internal', accept.span_id]);
  assert.deepEqual(wait.attributes, { ...about, ...of_delivery });

  const attempt = one(spans, 'push');
  assert.deepEqual([attempt.kind, attempt.parent_span_id, attempt.error], ['client', accept.span_id, null]);
  assert.deepEqual(attempt.links, [{ trace_id: TRACE_ID, span_id: accept.span_id }]);
  assert.deepEqual(attempt.attributes, {
    ...about,
    ...operation('push'),
    ...of_delivery,
    'convoke.transport': 'webhook',
    'server.address': new URL(receiver.url).hostname,
    'server.port': Number(new URL(receiver.url).port),
    'http.response.status_code': 200,
  });
  assert.equal(push.headers['traceparent'], `00-${TRACE_ID}-${attempt.span_id}-01`, 'the receiver continues the push');
  assert.equal(push.headers['tracestate'], tracestate);

  assert.ok(accept.start <= commit.start && commit.end <= accept.end);
  assert.ok(wait.start <= wait.end && wait.end === attempt.start && attempt.start <= attempt.end);
  assert.deepEqual(accept.resource, {
    'service.name': 'convoke',
    'service.version': VERSION,
    'service.instance.id': accept.resource['service.instance.id'],
  });
  const [request] = collector.requests;
  assert.deepEqual([request?.['path'], request?.['content-type']], ['/v1/traces', 'application/x-protobuf']);
});

test('a message without a trace begins one, and the response to its sender is as ever', async (t) => {
  const { service, collector } = await traced(t);
  const { receiver } = await service.member(t, 'm');
  const answer = await service.post<SentMessage>(messagesPath('m'), { message: {} });
  const { headers } = await receiver.next();
  const spans = await collector.count(4);
  const accept = one(spans, 'send');
  assert.equal(accept.parent_span_id, '');
  assert.deepEqual(new Set(spans.map(({ trace_id }) => trace_id)), new Set([accept.trace_id]));
  assert.equal(headers['traceparent'], `00-${accept.trace_id}-${one(spans, 'push').span_id}-01`);
  assert.deepEqual(Object.keys(answer.body), ['message_id', 'meeting_id', 'seq', 'accepted_at', 'deliveries_queued']);
  assert.equal(answer.headers['traceparent'], undefined);
});

test('a trace that its sender does not record is not recorded here, and passes through as it is', async (t) => {
  const { service, collector } = await traced(t);
  const { receiver } = await service.member(t, 'm');
  const unsampled = traceparent.replace(/01$/, '00');
  await send(service, 'm', { traceparent: unsampled, tracestate });
  const { headers } = await receiver.next();
  assert.deepEqual([headers['traceparent'], headers['tracestate']], [unsampled, tracestate]);
  await send(service, 'm');
  const spans = await collector.count(4);
  assert.ok(
    spans.every(({ trace_id }) => trace_id !== TRACE_ID),
    'control: the next message is recorded',
  );
});

test('a share of new traces is recorded as a whole: what is not recorded at the send is not at the push', async (t) => {
  const { service, collector } = await traced(t, { traces: { sampling: { is_parent_based: true, ratio: 0 } } });
  const { receiver } = await service.member(t, 'm');
  await send(service, 'm');
  assert.match(String((await receiver.next()).headers['traceparent']), /-00$/);
  await send(service, 'm', { traceparent });
  const spans = await collector.count(4);
  for (const { trace_id } of spans) assert.equal(trace_id, TRACE_ID);
});

test('each attempt has a span and a wait before it; a failed one says how it failed', async (t) => {
  const { service, collector } = await traced(t, { settings: { retry_schedule: '1s' } });
  const { receiver } = await service.member(t, 'm', {
    behaviour: (_, number) => ({ status: number === 1 ? 500 : 200 }),
  });
  await send(service, 'm', { traceparent });
  const headers = (await receiver.count(2)).map((push) => parentIn(push.headers['traceparent']));
  const spans = await collector.count(6);
  const accept = one(spans, 'send');
  const [first, second] = named(spans, 'push').toSorted((a, b) => a.start - b.start);
  assert.deepEqual([first?.span_id, second?.span_id], headers);
  assert.deepEqual([first?.parent_span_id, second?.parent_span_id], [accept.span_id, accept.span_id]);
  assert.deepEqual([first?.error, second?.error], ['bad_status', null]);
  const outcomes = [first, second].map((span) =>
    ['error.type', 'http.response.status_code', 'convoke.attempt'].map((name) => span?.attributes[name]),
  );
  assert.deepEqual(outcomes, [
    ['bad_status', 500, 1],
    [undefined, 200, 2],
  ]);
  const [, wait] = named(spans, 'wait').toSorted((a, b) => a.start - b.start);
  assert.equal(wait?.attributes['convoke.attempt'], 2);
  assert.ok(wait.start >= first!.start && wait.end - wait.start > 500, 'it waited for its retry');
});

test('a push that nobody takes is an error, and a send that is refused is one', async (t) => {
  const { service, collector } = await traced(t);
  const { receiver } = await service.member(t, 'm');
  await receiver.down();
  await send(service, 'm', { 'idempotency-key': 'k' });
  const reused = await service.post(messagesPath('m'), { message: { other: 1 } }, { 'idempotency-key': 'k' });
  assert.equal(reused.status, 409);
  await send(service, 'm', { 'idempotency-key': 'k' });
  const spans = await collector.count(8);
  assert.equal(one(spans, 'push').error, 'connect_refused');
  const accepts = named(spans, 'send').map(
    ({ error, attributes }) => `${error} ${attributes['convoke.repeated'] === true}`,
  );
  assert.deepEqual(accepts.toSorted(), ['key_reused false', 'null false', 'null true']);
});

test('the push that a machine pulls continues the trace, and its span ends with the result', async (t) => {
  const { service, collector } = await traced(t);
  const machine = await PullingMachine.start(service, ['m']);
  await send(service, 'm', { traceparent });
  const push = await machine.next();
  await machine.report(push);
  const span = one(await collector.count(4), 'push');
  assert.equal(push.headers['traceparent'], `00-${TRACE_ID}-${span.span_id}-01`);
  assert.deepEqual([span.attributes['convoke.transport'], span.attributes['server.address']], ['pull', undefined]);
});

test('a reply belongs to the trace of what it answers', async (t) => {
  const { service, collector } = await traced(t);
  await service.member(t, 'm', {
    agent_ids: ['anna'],
    registration: { replies: true },
    behaviour: { status: 200, body: '{"reply":"yes"}' },
  });
  await send(service, 'm', { traceparent }, { target_agents: ['anna'] });
  const spans = await collector.count(6);
  const [question, answer] = named(spans, 'send').toSorted((a, b) => a.start - b.start);
  assert.deepEqual([question?.trace_id, answer?.trace_id], [TRACE_ID, TRACE_ID]);
  assert.equal(answer?.parent_span_id, question?.span_id);
});

for (const is_traced of [true, false]) {
  const engine_name = is_traced ? 'with' : 'without';
  test(`a later reply continues the trace of what it answers, unless its request has one, ${engine_name} own traces`, async (t) => {
    const service = is_traced ? (await traced(t)).service : await startService(t);
    const { receiver } = await service.member(t, 'm', { agent_ids: ['anna'], registration: { replies: true } });
    await send(service, 'm', { traceparent }, { target_agents: ['anna'] });
    const push = await receiver.next();
    const token = { 'convoke-reply-token': String(push.headers['convoke-reply-token']) };
    const other = '00-11111111111111111111111111111111-2222222222222222-01';
    const traceOf = async (headers: object): Promise<string | undefined> => {
      const body = { reply: { message: {}, from_agent: 'anna' } };
      const { message_id } = (await service.post<SentMessage>('/api/v1/replies/', body, { ...token, ...headers })).body;
      return (await service.get<MessageTrace>(`/api/v1/messages/${message_id}/`)).body.trace_id;
    };
    assert.equal(await traceOf({}), TRACE_ID);
    assert.equal(await traceOf({ traceparent: other }), '1'.repeat(32));
  });
}

test('a message without a trace has no trace_id, and a later reply to it has none', async (t) => {
  const service = await startService(t);
  const { receiver } = await service.member(t, 'm', { agent_ids: ['anna'], registration: { replies: true } });
  const { message_id } = await send(service, 'm');
  const headers = { 'convoke-reply-token': String((await receiver.next()).headers['convoke-reply-token']) };
  const replied = (await service.post<SentMessage>('/api/v1/replies/', { reply: 'yes' }, headers)).body;
  for (const id of [message_id, replied.message_id]) {
    const { body } = await service.get<MessageTrace>(`/api/v1/messages/${id}/`);
    assert.deepEqual([body.message_id, body.trace_id], [id, undefined]);
  }
});

test('what a model says belongs to the trace in the _meta of its request, and not to that of the HTTP request', async (t) => {
  const service = await startService(t);
  const outer = { traceparent: '00-11111111111111111111111111111111-2222222222222222-01', tracestate: 'outer=1' };
  const traceOf = async (_meta?: object): Promise<string | undefined> => {
    const params = { name: 'send_message', arguments: { meeting_id: 'm', content: 'Hello' }, ...(_meta && { _meta }) };
    const call = rpc('tools/call', params);
    const answer = await service.post('/mcp', call, { ...RPC_HEADERS, ...outer });
    assert.equal(answer.status, 200, answer.text);
    const data = /^data: (.*)$/m.exec(answer.text)?.[1] ?? answer.text;
    const { message_id } = (JSON.parse(data) as { result: { structuredContent: SentMessage } }).result
      .structuredContent;
    return (await service.get<MessageTrace>(`/api/v1/messages/${message_id}/`)).body.trace_id;
  };
  assert.equal(await traceOf({ traceparent, tracestate }), TRACE_ID);
  assert.equal(await traceOf({ traceparent: 7 }), '1'.repeat(32), 'what is no text is ignored');
  assert.equal(await traceOf(), '1'.repeat(32));
});

for (const store of ['SQLite', 'PostgreSQL'] as const) {
  test(`a push after a restart is a child of the send before it, on ${store}`, async (t) => {
    const database_url = store === 'PostgreSQL' ? await makeDatabase() : '';
    const { service, collector } = await traced(t, { settings: { database_url } });
    const { receiver, instance_id } = await service.member(t, 'm');
    await receiver.down();
    await send(service, 'm', { traceparent });
    await collector.count(4);
    await service.restart({});
    await receiver.up();
    await service.heartbeat(instance_id);
    const push = await receiver.next();
    const spans = await until(
      'the push after the restart',
      () => named(collector.spans, 'push'),
      (pushes) => pushes.some(({ error }) => error === null),
    );
    const accept = one(collector.spans, 'send');
    for (const { parent_span_id, trace_id } of spans)
      assert.deepEqual([trace_id, parent_span_id], [TRACE_ID, accept.span_id]);
    assert.equal(parentIn(push.headers['traceparent']), spans.find(({ error }) => error === null)?.span_id);
  });
}

test('the push of another node is a child of the send of the node that stored the message', async (t) => {
  const settings = { database_url: await makeDatabase(), encryption_key: randomBytes(32).toString('base64') };
  const { service: first, collector } = await traced(t, { settings });
  const { service: second } = await traced(t, { settings, collector });
  await until(
    'an even share',
    async () => (await first.get<{ data: ServiceNode[] }>('/api/v1/nodes/')).body.data,
    (data) => data.length === 2 && data.every(({ partitions }) => partitions === 32),
  );
  await Promise.all(Array.from({ length: 6 }, () => first.member(t, 'm')));
  await send(second, 'm', { traceparent });
  const spans = await collector.count(14);
  const accept = one(spans, 'send');
  const pushes = named(spans, 'push');
  assert.equal(pushes.length, 6);
  for (const { parent_span_id } of pushes) assert.equal(parent_span_id, accept.span_id);
  const nodes = new Set(pushes.map(({ resource }) => resource['service.instance.id']));
  assert.equal(nodes.size, 2, 'both nodes delivered');
});

test('a stop sends the spans that wait', async (t) => {
  const { service, collector } = await traced(t, { traces: { send_every_ms: 600_000 } });
  const { receiver } = await service.member(t, 'm');
  await service.settled(await send(service, 'm', { traceparent }));
  await receiver.next();
  assert.deepEqual(collector.spans, [], 'control: they wait');
  await service.close();
  assert.deepEqual(namesOf(collector.spans), ['commit', 'push', 'send', 'wait']);
});

describe('a collector that takes nothing', () => {
  test('loses the spans that have no room, costs no message, and holds up no stop; the log says so', async (t) => {
    const { service, collector } = await traced(t, { traces: { queue_spans_max: 20, batch_spans_max: 10 } });
    collector.hangs = true;
    const { receiver } = await service.member(t, 'm');
    for (let n = 0; n < 50; n++) await send(service, 'm', { traceparent });
    await receiver.count(50);
    await until('a request', () => collector.requests.length, Boolean);
    collector.hangs = false;
    for (const response of collector.hanging) response.writeHead(200).end();
    // From then on the queue has room again.
    await until('the next request', () => collector.spans.length, Boolean);
    await send(service, 'm', { traceparent });
    await until(
      'the log',
      () => service.log.filter(({ why }) => /Dropped \d+ spans/.test(String(why))),
      ({ length }) => length > 0,
    );
    const dropped = service.log.map(({ why }) => Number(/Dropped (\d+) spans/.exec(String(why))?.[1] ?? 0));
    assert.ok(Math.max(...dropped) >= 200 - 20 - 10 - 10, `${dropped.join()} of 200 spans`);
    const { text } = await service.get('/metrics');
    const counted = Number(/^convoke_trace_spans_dropped_total\{reason="queue_full"\} (\d+)$/m.exec(text)?.[1]);
    assert.equal(counted, Math.max(...dropped));
    assert.match(text, /^convoke_trace_spans_dropped_total\{reason="too_many_open"\} 0$/m);
    collector.hangs = true;
    await send(service, 'm', { traceparent });
    await beforeTimer('the stop', 5_000, service.close());
    assert.equal(service.log.at(-1)?.msg, 'the last spans were not sent to the collector');
  });

  test('because it refuses them has the beginning of its response in the log, however long the response is', async (t) => {
    const { service, collector } = await traced(t);
    collector.refusal = `not today: ${'x'.repeat(1 << 20)}`;
    await send(service, 'm', { traceparent });
    const [line] = await until(
      'the log',
      () => service.log.filter(({ msg }) => msg === 'OpenTelemetry could not send all traces'),
      ({ length }) => length > 0,
    );
    const { why } = line as { why?: unknown };
    assert.match(String(why), /Unauthorized.*not today/);
    assert.ok(String(why).length <= 1_000);
  });

  test('because it is not there is named in the log, and messages are pushed', async (t) => {
    const { service, collector } = await traced(t);
    collector.close();
    const { receiver } = await service.member(t, 'm');
    await send(service, 'm', { traceparent });
    assert.match(String((await receiver.next()).headers['traceparent']), new RegExp(`^00-${TRACE_ID}-`));
    await until(
      'the log',
      () => service.log.filter(({ msg }) => msg === 'OpenTelemetry could not send all traces'),
      ({ length }) => length > 0,
    );
    await until(
      'the metric',
      async () => (await service.get('/metrics')).text,
      (text) => /^convoke_trace_spans_dropped_total\{reason="not_sent"\} [1-9]/m.test(text),
    );
  });
});

describe('names', () => {
  let conventions: Record<string, unknown> = {};
  before(async () => void (conventions = await import('@opentelemetry/semantic-conventions/incubating')));

  test('of attributes are those of the semantic conventions', async () => {
    const { ATTRIBUTE, OWN_ATTRIBUTE } = await import('../../src/node/traces/span_names.ts');
    const known = new Set(
      Object.entries(conventions).flatMap(([name, value]) => (name.startsWith('ATTR_') ? [value] : [])),
    );
    assert.ok(known.size > 100);
    for (const name of Object.values(ATTRIBUTE)) assert.ok(known.has(name), name);
    for (const name of Object.values(OWN_ATTRIBUTE)) assert.ok(!known.has(name) && name.startsWith('convoke.'), name);
  });

  test('of the operation type are those of the semantic conventions', async () => {
    const { OPERATION_TYPE } = await import('../../src/node/traces/span_names.ts');
    assert.equal(OPERATION_TYPE, conventions['MESSAGING_OPERATION_TYPE_VALUE_SEND']);
  });
});
