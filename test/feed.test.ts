/** The live feed over real HTTP: what is told, to whom, and that nothing is lost or told twice however often one comes back. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { EventStream, openStream, type StreamedEvent } from './support/event_stream.ts';
import { startReceiver } from './support/receiver.ts';
import { instancePath, type Service, startService, useService } from './support/service.ts';
import { until } from './support/wait.ts';

const service = useService({ retry_schedule: '100ms' });

async function listen(
  t: TestContext,
  to: Service,
  { query = '', after = null as string | null, token = to.token } = {},
): Promise<EventStream> {
  const stream = await openStream(`${to.url}/api/v1/events/${query}`, {
    ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    ...(after === null ? {} : { 'last-event-id': after }),
  });
  t.after(() => stream.close());
  assert.equal(stream.status, 200);
  await until(
    'the beginning',
    async () => stream.retry_ms,
    (retry_ms) => retry_ms !== null,
  );
  return stream;
}

const isNamed =
  (...names: string[]) =>
  ({ name }: StreamedEvent): boolean =>
    names.includes(name);

/** What an event is about, in a word. */
function word({ name, data }: StreamedEvent): string {
  if (name === 'message.accepted') return `accepted ${String(data['seq'])}`;
  if (name === 'delivery.attempted') return `${String(data['state'])} ${String(data['seq'])}.${String(data['attempt'])}`;
  return name;
}

test('tells what happens to a message, in its order, each event with an id', async (t) => {
  const meeting_id = service.name('meeting');
  const stream = await listen(t, service);
  assert.equal(stream.headers['content-type'], 'text/event-stream; charset=utf-8');
  assert.equal(stream.headers['cache-control'], 'no-store');
  const { instance_id } = await service.member(t, meeting_id);
  const sent = await service.send(meeting_id, { text: 'a' });
  const events = await stream.some(5);
  assert.deepEqual(
    events.map(({ name }) => name),
    ['instance.registered', 'instance.joined', 'message.accepted', 'delivery.attempted', 'instance.up'],
  );
  const [registered, joined, accepted, attempted, up] = events.map(({ data }) => data);
  assert.equal(registered!['created'], true);
  assert.deepEqual([joined!['instance_id'], joined!['meeting_id']], [instance_id, meeting_id]);
  const { message_id, seq, accepted_at } = sent;
  assert.deepEqual(accepted, { message_id, meeting_id, seq, accepted_at, target_agents: null, deliveries_queued: 1 });
  const delivery = await service.settled(sent);
  const { response_excerpt: _, ...attempt } = delivery.attempts[0]!;
  const { delivery_id } = delivery;
  assert.deepEqual(attempted, {
    ...{ delivery_id, message_id, meeting_id, seq, instance_id },
    ...attempt,
    ...{ state: 'delivered', reason: null, retry_in_ms: null },
  });
  assert.equal(up!['health'], 'up');
  assert.equal(new Set(events.map(({ id }) => id)).size, events.length);
  assert.ok(!JSON.stringify(events).includes('"text"'), 'what was said is not told');
});
