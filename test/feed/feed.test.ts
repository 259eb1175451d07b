/**
 * The live feed over real HTTP: which events it sends, and to whom. A client that connects again misses no event and
 * gets no event twice.
 */
import assert from 'node:assert/strict';
import { before, describe, test, type TestContext } from 'node:test';
import type { CreateKeyInput, Page } from '@convoke/sdk';
import { FeedPosition } from '../../src/domain/feed_position.ts';
import { acceptedEvent } from '../../src/feed/events.ts';
import { FeedMemory } from '../../src/feed/memory.ts';
import { type EventStream, openStream, type StreamedEvent } from '../support/event_stream.ts';
import { HOUR } from '../support/node.ts';
import { PullingMachine } from '../support/pulling.ts';
import { startReceiver } from '../support/receiver.ts';
import {
  assertProblem,
  instancePath,
  membersPath,
  ON_A_FILE,
  type Service,
  startService,
  useService,
} from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { SlowClock } from '../support/slow_clock.ts';
import { beforeTimer, until } from '../support/wait.ts';

/** How many times longer the times of a service with a slow clock are. */
const LONGER = 6;

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

/** A short text for an event. */
function word({ name, data }: StreamedEvent): string {
  if (name === 'message.accepted') return `accepted ${String(data['seq'])}`;
  if (name === 'delivery.attempted')
    return `${String(data['state'])} ${String(data['seq'])}.${String(data['attempt'])}`;
  return name;
}

test('reports what happens to a message, in its order, each event with an id', async (t) => {
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
  const about = { delivery_id, message_id, meeting_id, seq, instance_id };
  assert.deepEqual(attempted, { ...about, ...attempt, state: 'delivered', reason: null, retry_in_ms: null });
  assert.equal(up!['health'], 'up');
  assert.equal(new Set(events.map(({ id }) => id)).size, events.length);
  assert.ok(!JSON.stringify(events).includes('"text"'), 'what was said is not told');
});

test('reports that an instance fails, comes up again, is changed, leaves and is removed', async (t) => {
  const meeting_id = service.name('meeting');
  const behaviour = (_: unknown, number: number) => ({ status: number === 1 ? 500 : 200 });
  const { instance_id } = await service.member(t, meeting_id, { behaviour });
  const stream = await listen(t, service, { query: `?instance_id=${instance_id}` });
  const first = await service.send(meeting_id, {});
  await service.settled(first);
  await service.patch(instance_id, { instance_name: 'Another', webhook_enabled: false });
  await service.send(meeting_id, {});
  await service.patch(instance_id, { webhook_enabled: true });
  await service.patch(instance_id, { is_active: false });
  await service.leave(meeting_id, instance_id);
  await service.request('DELETE', instancePath(instance_id));
  const events = await stream.some(10);
  assert.deepEqual(
    events.map(word).filter((each) => each !== 'instance.changed'),
    [
      'accepted 1',
      'pending 1.1',
      'instance.failing',
      'delivered 1.2',
      'instance.up',
      'instance.left',
      'instance.removed',
    ],
  );
  const failing = events.find(isNamed('instance.failing'))!.data;
  assert.deepEqual([failing['consecutive_failures'], failing['health']], [1, 'failing']);
  const last_failure = failing['last_failure'] as { status_code: number; advice: string };
  assert.equal(last_failure.status_code, 500);
  assert.match(last_failure.advice, /its own log says why/);
  assert.deepEqual(
    events.filter(isNamed('instance.changed')).map(({ data }) => data['fields']),
    [['instance_name', 'webhook_enabled'], ['webhook_enabled'], ['is_active']],
  );
});

test('publishes what ends or starts again without an attempt: cancelled with its instance, queued again by hand', async (t) => {
  const meeting_id = service.name('meeting');
  const { instance_id } = await service.member(t, meeting_id, { behaviour: { status: 202 } });
  const stream = await listen(t, service, { query: `?instance_id=${instance_id}` });
  const sent = await service.send(meeting_id, {});
  const { delivery_id } = await service.settled(sent);
  await service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
  const [queued] = await stream.some(1, isNamed('delivery.queued'));
  assert.deepEqual(
    [queued!.data['delivery_id'], queued!.data['meeting_id'], queued!.data['deliveries']],
    [delivery_id, meeting_id, 1],
  );
  await stream.some(2, isNamed('delivery.attempted'));
  await service.settled(sent);
  await service.post(`${instancePath(instance_id)}recover/`, { since: '2026-01-01T00:00:00Z' });
  const [, recovered] = await stream.some(2, isNamed('delivery.queued'));
  assert.deepEqual([recovered!.data['delivery_id'], recovered!.data['deliveries']], [null, 1]);
  await stream.some(3, isNamed('delivery.attempted'));
  const other = await service.member(t, meeting_id, { behaviour: 'hang' });
  const beside = await listen(t, service, { query: `?instance_id=${other.instance_id}` });
  for (let i = 0; i < 3; i++) await service.send(meeting_id, {});
  await service.request('DELETE', instancePath(other.instance_id));
  const [cancelled] = await beside.some(1, isNamed('delivery.settled'));
  const { state, reason, deliveries } = cancelled!.data;
  assert.deepEqual([state, reason, deliveries], ['cancelled', 'instance_deleted', 3]);
});

describe('a listener that reconnects', () => {
  const isOfMeeting = (meeting_id: string) => (event: StreamedEvent) => event.data['meeting_id'] === meeting_id;

  test('after a lost connection gets what it missed, once and in order', async (t) => {
    const meeting_id = service.name('meeting');
    await service.member(t, meeting_id);
    const words: string[] = [];
    let after: string | null = null;
    let sending = Promise.resolve();
    for (let round = 0; round < 5; round++) {
      const stream: EventStream = await listen(t, service, { after });
      sending = sending.then(async () => {
        for (let i = 0; i < 20; i++) await service.send(meeting_id, {});
      });
      // The connection ends in the middle of the events.
      const some = await stream.some(7, isOfMeeting(meeting_id));
      stream.close();
      const seen = stream.events.filter(isOfMeeting(meeting_id));
      assert.ok(some.length <= seen.length);
      words.push(...seen.map(word));
      after = stream.last_id;
      assert.ok(!stream.events.some(isNamed('gap')));
    }
    await sending;
    const last = await listen(t, service, { after });
    const total = 200;
    await until(
      'all events',
      () => words.length + last.events.filter(isOfMeeting(meeting_id)).length,
      (count) => count >= total,
    );
    words.push(...last.events.filter(isOfMeeting(meeting_id)).map(word));
    const each = (kind: string) => words.filter((one) => one.startsWith(kind));
    const numbers = Array.from({ length: 100 }, (_, i) => i + 1);
    assert.deepEqual(
      each('accepted'),
      numbers.map((seq) => `accepted ${seq}`),
    );
    assert.deepEqual(
      each('delivered'),
      numbers.map((seq) => `delivered ${seq}.1`),
    );
  });

  // On PostgreSQL no feed reads older events from the store: docs/events.md#resuming says why.
  test('after a restart on SQLite gets what is stored of it, once and in order, and learns that there may be more', async (t) => {
    const other = await startService(t, ON_A_FILE);
    const receiver = await startReceiver(t);
    const { instance_id } = await other.register({ webhook_url: receiver.url });
    await other.join('m', instance_id, ['a']);
    const stream = await listen(t, other);
    for (let i = 0; i < 30; i++) await other.send('m', {});
    await stream.some(30, isNamed('delivery.attempted'));
    const sent_count = stream.events.length;
    // The client saw only a part of them.
    const seen = stream.events.slice(0, sent_count - 9);
    const after = seen.at(-1)!.id;
    await other.restart({});
    assert.ok(stream.ended);
    assert.deepEqual(stream.events.at(-1)!.data, { code: 'shutting_down' });
    await other.send('m', {});
    const back = await listen(t, other, { after });
    await other.send('m', {});
    await back.some(1, ({ name, data }) => name === 'delivery.attempted' && data['seq'] === 32);
    const ofMessages = (events: StreamedEvent[]) =>
      events.filter(isNamed('message.accepted', 'delivery.attempted')).map(word);
    const words = [...ofMessages(seen), ...ofMessages(back.events)];
    const expected = Array.from({ length: 32 }, (_, i) => [`accepted ${i + 1}`, `delivered ${i + 1}.1`]).flat();
    assert.deepEqual(words.toSorted(), expected.toSorted());
    const gap = back.events.find(isNamed('gap'))!;
    assert.deepEqual(gap.data['replayed'], ['message.accepted', 'delivery.attempted', 'delivery.settled']);
    const replayed = back.events.slice(0, back.events.indexOf(gap));
    assert.deepEqual(
      replayed.filter(isNamed('message.accepted')).map(({ data }) => data['seq']),
      replayed
        .filter(isNamed('message.accepted'))
        .map(({ data }) => data['seq'] as number)
        .toSorted((a, b) => a - b),
    );
    // The connection ends in the middle of the replay from the store.
    const middle = replayed[3]!.id;
    const again = await listen(t, other, { after: middle });
    await again.some(1, isNamed('gap'));
    const rest = again.events.slice(0, again.events.findIndex(isNamed('gap')));
    assert.deepEqual(ofMessages(rest).slice(0, replayed.length - 4), ofMessages(replayed.slice(4)));
  });

  test('after a restart on SQLite gets the deliveries that ended without an attempt, for whatever reason', async (t) => {
    const clock = new SetClock();
    const other = await startService(t, ON_A_FILE, clock);
    const machine = await PullingMachine.start(other, ['late', 'dropped']);
    const late = await other.request('PATCH', `${membersPath('late')}${machine.instance_id}/`, {
      body: { catch_up: 'latest' },
    });
    assert.equal(late.status, 200, late.text);
    const stream = await listen(t, other);
    await other.send('late', {});
    await stream.some(1, isNamed('message.accepted'));
    const after = stream.last_id;
    // A message that is younger than a second may not have waited: see delivery/wall_steps.ts.
    clock.jump(2_000);
    await other.restart({});
    await other.send('late', {});
    await other.send('dropped', {});
    const dropped = await other.post('/api/v1/deliveries/drop/', { meeting_id: 'dropped' });
    assert.equal(dropped.status, 200, dropped.text);
    assert.equal((await machine.next()).headers['convoke-missed'], '1');
    const cancelled = '/api/v1/deliveries/?state=cancelled';
    await until(
      'both ends to be stored',
      () => other.get<Page<object>>(cancelled),
      ({ body }) => body.data.length === 2,
    );
    const back = await listen(t, other, { after });
    await back.some(1, isNamed('gap'));
    const settled = back.events.filter(isNamed('delivery.settled')).map(({ data }) => [data['state'], data['reason']]);
    assert.deepEqual(
      new Set(settled.map((each) => each.join(' '))),
      new Set(['cancelled dropped', 'cancelled superseded']),
    );
    assert.equal(settled.length, 2);
  });

  test('with an unknown id learns that it missed something, and gets what happens from then on', async (t) => {
    for (const after of ['nonsense', '0.0..0.', 'é'.normalize(), `x.${'9'.repeat(380)}`]) {
      const stream = await openStream(`${service.url}/api/v1/events/?last_event_id=${encodeURIComponent(after)}`);
      t.after(() => stream.close());
      const [gap] = await stream.some(1);
      assert.equal(gap!.name, 'gap', after);
      const meeting_id = service.name('meeting');
      await service.send(meeting_id, {});
      await stream.some(1, isOfMeeting(meeting_id));
      stream.close();
    }
  });

  test('learns that attempts may be missing when the clock was set back meanwhile', async (t) => {
    const clock = new SetClock();
    const other = await startService(t, {}, clock);
    await other.member(t, 'm');
    const stream = await listen(t, other);
    await other.send('m', {});
    await stream.some(1, isNamed('delivery.attempted'));
    const after = stream.last_id;
    clock.step(-HOUR);
    await other.restart({});
    await other.settled(await other.send('m', {}));
    const back = await listen(t, other, { after });
    const [gap] = await back.some(1);
    assert.deepEqual([gap!.name, gap!.data['replayed']], ['gap', []]);
  });

  test('that missed more than is replayed learns so, and gets no part of it', async (t) => {
    const other = await startService(t);
    const stream = await listen(t, other);
    await other.restart({});
    const messages = Array.from({ length: 410 }, () => ({ meeting_id: 'm', message: {} }));
    for (let i = 0; i < 5; i++) assert.equal((await other.post('/api/v1/messages/', { messages })).status, 200);
    const back = await listen(t, other, { after: stream.last_id });
    const [gap] = await back.some(1);
    assert.deepEqual([gap!.name, gap!.data['replayed']], ['gap', []]);
  });

  test('control: without the memory of events, published events are replayed from the store', async (t) => {
    const meeting_id = service.name('meeting');
    const stream = await listen(t, service);
    await service.send(meeting_id, {});
    await stream.some(1, isOfMeeting(meeting_id));
    stream.close();
    t.mock.method(FeedMemory.prototype, 'holdsAfter', () => false);
    const back = await listen(t, service, { after: stream.last_id });
    await back.some(1, isNamed('gap'));
  });
});

describe('a listener', () => {
  test('gets only the events of the meeting or the instance that it asks for', async (t) => {
    const [here, there] = [service.name('meeting'), service.name('meeting')];
    const member = await service.member(t, here);
    await service.join(there, member.instance_id, ['a']);
    const other = await service.member(t, there);
    const of_here = await listen(t, service, { query: `?meeting_id=${here}` });
    const of_member = await listen(t, service, { query: `?instance_id=${member.instance_id}` });
    const of_both = await listen(t, service, { query: `?instance_id=${member.instance_id}&meeting_id=${there}` });
    for (const meeting_id of [here, there]) {
      await service
        .settled(await service.send(meeting_id, {}, meeting_id === here ? ['a'] : ['nobody', 'a']))
        .catch(() => {});
    }
    await of_member.some(4, isNamed('message.accepted', 'delivery.attempted'));
    await of_both.some(2);
    assert.ok(of_here.events.every(({ data }) => data['meeting_id'] === here));
    assert.equal(of_here.events.filter(isNamed('delivery.attempted')).length, 1);
    assert.ok(
      of_both.events.every(({ data }) => data['meeting_id'] === there && data['instance_id'] !== other.instance_id),
    );
    assert.ok(!JSON.stringify(of_member.events).includes(other.instance_id));
  });
});

describe('a key', () => {
  const clock = new SetClock();
  const keyed = useService({ retry_schedule: '100ms' }, clock);
  before(() => keyed.endOpenMode());

  test('that may not read a meeting gets no message of it from the store, also by its portal link', async (t) => {
    const reading = await startService(t, ON_A_FILE);
    await reading.endOpenMode();
    const meeting_id = reading.name('secret');
    await reading.send(meeting_id, {});
    const { token, key_id } = await reading.createKey({ scopes: ['instance'] });
    const portal = await reading.post<{ link: string }>(`/api/v1/keys/${key_id}/portal-link/`, {});
    const reader = await reading.createKey({ scopes: ['read'] });
    const elsewhere = await reading.createKey({ scopes: ['read'], meeting_ids: [reading.name('meeting')] });
    // An id of no memory: the feed reads the store from there on.
    const after = '0.0..1.';
    const query = `?meeting_id=${meeting_id}`;
    const namesFor = async (reads: string): Promise<string[]> => {
      const stream = await listen(t, reading, { query, after, token: reads });
      await stream.some(1, isNamed('gap'));
      return stream.events.map(({ name }) => name);
    };
    for (const reads of [token, portal.body.link.split('#link=')[1] as string])
      assert.deepEqual(await namesFor(reads), ['gap']);
    const refused = await openStream(`${reading.url}/api/v1/events/${query}`, {
      authorization: `Bearer ${elsewhere.token}`,
      'last-event-id': after,
    });
    t.after(() => refused.close());
    assert.equal(refused.status, 403);
    assert.deepEqual(await namesFor(reader.token), ['message.accepted', 'gap'], 'control');
  });

  test('sees what it may look at, and nothing else', async (t) => {
    const [here, there] = [keyed.name('meeting'), keyed.name('meeting')];
    const keys = {
      all: { scopes: ['read'] },
      here: { scopes: ['read'], meeting_ids: [here] },
      owner: { scopes: ['instance'] },
      other: { scopes: ['instance'] },
    } satisfies Record<string, CreateKeyInput>;
    const tokens: Record<string, string> = {};
    for (const [name, input] of Object.entries(keys)) {
      tokens[name] = (await keyed.createKey(input)).token;
    }
    const admin = keyed.token;
    const before_listening = await registeredBy(keyed, tokens['owner']!, t);
    const streams: Record<string, EventStream> = {};
    for (const name of Object.keys(keys)) streams[name] = await listen(t, keyed, { token: tokens[name]! });
    const while_listening = await registeredBy(keyed, tokens['owner']!, t);
    const outsider = await registeredBy(keyed, admin!, t);
    for (const [meeting_id, instance_id] of [
      [here, before_listening],
      [there, while_listening],
      [here, outsider],
      [there, outsider],
    ] as const)
      await keyed.join(meeting_id, instance_id, ['a']);
    await keyed.send(here, {});
    await keyed.send(there, {});
    await streams['all']!.some(4, isNamed('delivery.attempted'));
    await keyed.send(service.name('nobody'), {});
    await streams['all']!.some(3, isNamed('message.accepted'));
    const seenBy = (name: string, ...names: string[]) =>
      streams[name]!.events.filter(isNamed(...names)).map(({ data }) => [
        data['instance_id'] ?? null,
        data['meeting_id'] ?? null,
      ]);
    assert.deepEqual(seenBy('here', 'message.accepted'), [[null, here]]);
    assertSame(seenBy('here', 'delivery.attempted'), [
      [before_listening, here],
      [outsider, here],
    ]);
    assert.deepEqual(seenBy('owner', 'message.accepted'), []);
    assertSame(seenBy('owner', 'delivery.attempted'), [
      [before_listening, here],
      [while_listening, there],
    ]);
    assert.deepEqual(seenBy('owner', 'instance.registered'), [[while_listening, null]]);
    // This instance is in the same meeting, so events about its health belong to the meeting.
    assert.ok(seenBy('here', 'instance.up').some(([id]) => id === outsider));
    assert.ok(!streams['here']!.events.some(({ data }) => data['meeting_id'] === there));
    assert.ok(!streams['owner']!.events.some(({ data }) => data['instance_id'] === outsider));
    assert.deepEqual(streams['other']!.events, []);
  });

  test('that is revoked, or whose time is up, listens no longer', async (t) => {
    const { key_id, token } = await keyed.createKey({ scopes: ['read'] });
    const stream = await listen(t, keyed, { token });
    await keyed.request('DELETE', `/api/v1/keys/${key_id}/`);
    const [end] = await stream.some(1, isNamed('end'));
    assert.deepEqual(end!.data, { code: 'api_key_revoked' });
    const expires_at = new Date(clock.wall() + HOUR).toISOString();
    const short = await keyed.createKey({ scopes: ['read'], expires_at });
    const other = await listen(t, keyed, { token: short.token });
    clock.step(HOUR);
    assert.deepEqual((await other.some(1, isNamed('end')))[0]!.data, { code: 'api_key_expired' });
  });

  test('ends open mode, and with it what was listened to without one', async (t) => {
    const other = await startService(t);
    const stream = await listen(t, other);
    await other.endOpenMode();
    assert.deepEqual((await stream.some(1, isNamed('end')))[0]!.data, { code: 'api_key_missing' });
  });
});

test('a connection that reads nothing is cut off and can come back, while the others get everything', async (t) => {
  // A connection that is cut off has five seconds to read why. On a slow machine this one reads again only later than
  // that, so here these seconds are longer.
  const other = await startService(t, {}, new SlowClock(LONGER));
  const slow = await listen(t, other);
  const quick = await listen(t, other);
  slow.pause();
  const targets = Array.from({ length: 100 }, (_, i) => `${i}${'x'.repeat(190)}`);
  let sent = 0;
  // This is far more than the buffers of the sockets take.
  while (!slow.ended && sent < 2_000) {
    await Promise.all(Array.from({ length: 100 }, () => other.send('m', {}, targets)));
    sent += 100;
    if (sent > 600) slow.resume();
  }
  await quick.some(sent, isNamed('message.accepted'));
  await until(
    'the end of the slow one',
    () => slow.ended,
    (ended) => ended,
  );
  assert.ok(slow.events.length < sent);
  assert.equal(slow.events.at(-1)!.name, 'overflow');
  const back = await listen(t, other, { after: slow.last_id });
  const missing = sent - slow.events.filter(isNamed('message.accepted')).length;
  const [next] = await back.some(1);
  if (next?.name === 'gap') return;
  await back.some(missing, isNamed('message.accepted'));
  assert.deepEqual(
    [...slow.events, ...back.events].filter(isNamed('message.accepted')).map(({ data }) => data['seq']),
    Array.from({ length: sent }, (_, i) => i + 1),
  );
});

test('the number of listeners is limited, and one that disconnects makes room', async (t) => {
  const other = await startService(t, { max_feed_listeners: '2' });
  const first = await listen(t, other);
  await listen(t, other);
  const refused = await other.get('/api/v1/events/');
  assertProblem(refused, 503, 'overloaded');
  assert.ok(Number(refused.headers['retry-after']) > 0);
  first.close();
  const let_in = await until(
    'room for another',
    () => openStream(`${other.url}/api/v1/events/`),
    (stream) => stream.status === 200 || (stream.close(), false),
  );
  let_in.close();
});

test('a key that holds the most places gives one up to another key, until both have as many', async (t) => {
  const other = await startService(t, { max_feed_listeners: '4' });
  await other.endOpenMode();
  const greedy = (await other.createKey({ scopes: ['read'] })).token;
  const held = [];
  for (let i = 0; i < 4; i++) held.push(await listen(t, other, { token: greedy }));
  assertProblem(
    await other.request('GET', '/api/v1/events/', { headers: { authorization: `Bearer ${greedy}` } }),
    503,
    'overloaded',
  );
  await listen(t, other);
  await listen(t, other);
  for (const stream of held.slice(2)) {
    await until(
      'the end of the latest places',
      () => stream.events.at(-1)?.name,
      (name) => name === 'overflow',
    );
  }
  assertProblem(await other.get('/api/v1/events/'), 503, 'overloaded');
  await other.send(other.name('meeting'), {});
  for (const stream of held.slice(0, 2)) await stream.some(1, isNamed('message.accepted'));
});

test('a stop waits for no listener', async (t) => {
  const other = await startService(t);
  const streams = [await listen(t, other), await listen(t, other)];
  streams[0]!.pause();
  await beforeTimer('the stop', 2_000, other.close());
  await streams[1]!.some(1, isNamed('end'));
});

async function registeredBy(to: Service, token: string, t: TestContext): Promise<string> {
  const receiver = await startReceiver(t);
  const previous = to.token;
  to.token = token;
  const { instance_id } = await to.register({ webhook_url: receiver.url });
  to.token = previous;
  return instance_id;
}

/** Compares without the order. */
function assertSame(actual: unknown[], expected: unknown[]): void {
  const texts = (list: unknown[]): string[] => list.map((each) => JSON.stringify(each)).toSorted();
  assert.deepEqual(texts(actual), texts(expected));
}

test('the memory of events counts the recipients of a message, too', () => {
  const memory = new FeedMemory('m', new FeedPosition(null, 0));
  const recipients = Array.from({ length: 10_000 }, (_, i) => `instance-${i}`);
  const accepted = (seq: number) =>
    acceptedEvent(
      {
        message_id: `msg_${seq}`,
        meeting_id: 'wide',
        seq,
        accepted_at: 0,
        target_agents: null,
        origin: null,
        deliveries_queued: recipients.length,
      },
      recipients,
    );
  for (let seq = 1; seq <= 1_000; seq++) memory.put(accepted(seq));
  assert.equal(memory.last, 1_000);
  assert.ok(memory.holdsAfter(990));
  assert.ok(!memory.holdsAfter(900), 'a hundred messages to 10,000 recipients are more than 16 MiB');
});
