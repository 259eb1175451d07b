/** The live feed of two nodes on one PostgreSQL: a listener at one node gets the events of both nodes. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { FeedRelay } from '../../src/feed/relay.ts';
import { type EventStream, openStream, type StreamedEvent } from '../support/event_stream.ts';
import type { Service } from '../support/service.ts';
import { startTwoNodes } from '../support/two_nodes.ts';
import { until } from '../support/wait.ts';

const MEMBERS = 8;

async function listenTo(t: TestContext, service: Service): Promise<EventStream> {
  const stream = await openStream(`${service.url}/api/v1/events/`);
  t.after(() => stream.close());
  assert.equal(stream.status, 200);
  return stream;
}

const isOf =
  (meeting_id: string, name: string) =>
  (event: StreamedEvent): boolean =>
    event.name === name && event.data['meeting_id'] === meeting_id;

/** Changes something on a node until a listener gets the event. Then the other nodes know of the listener. */
async function introduce(speaker: Service, stream: EventStream): Promise<void> {
  const { instance_id } = await speaker.register({ webhook_url: 'http://127.0.0.1:1/' });
  await until(
    'the other node to be received',
    async () => {
      await speaker.patch(instance_id, { instance_name: 'changed' });
      return stream.events;
    },
    (events) => events.some(({ data }) => data['instance_id'] === instance_id),
  );
}

test('a listener of one node gets what is sent to the other, and every attempt of both, once', async (t) => {
  const [first, second] = await startTwoNodes(t);
  const streams = [await listenTo(t, first), await listenTo(t, second)] as const;
  await introduce(first, streams[1]);
  await introduce(second, streams[0]);
  const introduced = streams.map(({ events }) => events.length);

  const meeting_id = 'of-both';
  const members: string[] = [];
  for (let i = 0; i < MEMBERS; i++) {
    const { instance_id } = await first.member(t, meeting_id, { registration: { instance_id: `machine-${i}` } });
    members.push(instance_id);
  }
  const sent = [await first.send(meeting_id, { n: 1 }), await second.send(meeting_id, { n: 2 })];
  for (const [i, stream] of streams.entries()) {
    const attempted = await stream.some(2 * MEMBERS, isOf(meeting_id, 'delivery.attempted'));
    assert.deepEqual(
      attempted.map(({ data }) => `${String(data['message_id'])} ${String(data['instance_id'])}`).toSorted(),
      sent.flatMap(({ message_id }) => members.map((instance_id) => `${message_id} ${instance_id}`)).toSorted(),
    );
    assert.ok(attempted.every(({ data }) => data['state'] === 'delivered'));
    const accepted = await stream.some(2, isOf(meeting_id, 'message.accepted'));
    assert.deepEqual(
      accepted.map(({ data }) => String(data['message_id'])).toSorted(),
      sent.map(({ message_id }) => message_id).toSorted(),
    );
    const joined = await stream.some(MEMBERS, isOf(meeting_id, 'instance.joined'));
    assert.equal(joined.length, MEMBERS);
    // A node that takes a second to hear of the listener makes a gap before its first event.
    assert.ok(!stream.events.slice(introduced[i]).some(({ name }) => name === 'gap'), 'nothing was lost');
  }
});

test('control: without broadcasts the listeners of a node get nothing of the other', async (t) => {
  t.mock.method(FeedRelay.prototype, 'pass', () => {});
  const [first, second] = await startTwoNodes(t);
  const [here, there] = [await listenTo(t, first), await listenTo(t, second)];
  const meeting_id = 'of-one';
  await first.send(meeting_id, { n: 1 });
  await here.some(1, isOf(meeting_id, 'message.accepted'));
  await second.send(meeting_id, { n: 2 });
  const received = await there.some(1, isOf(meeting_id, 'message.accepted'));
  assert.deepEqual(
    received.map(({ data }) => data['seq']),
    [2],
  );
});
