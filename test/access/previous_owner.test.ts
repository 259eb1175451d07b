/**
 * A new owner of an instance, or of an id, learns no credentials of the previous owner, and nothing that happened
 * before.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { ApiKeyWithToken, InstanceHistory, Pulled, RegisteredInstance } from '@convoke/sdk';
import { isSameOrigin } from '../../src/domain/webhook_url.ts';
import { attemptedEvent } from '../../src/feed/events.ts';
import { Feed, type FeedParts } from '../../src/feed/feed.ts';
import { FeedMemory } from '../../src/feed/memory.ts';
import { TIMEOUT_S_MAX } from '../../src/domain/runtimes/runtimes.ts';
import { FeedView } from '../../src/feed/view.ts';
import { type EventStream, openStream } from '../support/event_stream.ts';
import { makeDatabase } from '../support/postgres.ts';
import { pullPath } from '../support/pulling.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { instancePath, ON_A_FILE, type Service, startService } from '../support/service.ts';
import { VirtualClock } from '../support/virtual_clock.ts';
import { until } from '../support/wait.ts';

const SECRET_HEADER = { authorization: 'Bearer annas-gateway-token', 'x-room': '42' };

const bearer = ({ token }: ApiKeyWithToken) => ({ authorization: `Bearer ${token}` });

async function startWithKeys(t: TestContext, engine: string) {
  const settings = engine === 'SQLite' ? ON_A_FILE : { database_url: await makeDatabase() };
  const service = await startService(t, settings);
  await service.endOpenMode();
  const anna = await service.createKey({ scopes: ['instance'], name: 'anna' });
  const ben = await service.createKey({ scopes: ['instance'], name: 'ben' });
  return { service, anna, ben };
}

async function registerAs(
  service: Service,
  key: ApiKeyWithToken,
  webhook_url: string,
  webhook_headers?: Record<string, string>,
  transport?: 'pull',
): Promise<RegisteredInstance> {
  const named = { instance_id: 'laptop', instance_name: 'Laptop', agent_ids: ['a'] };
  const body = { ...named, webhook_url, webhook_headers, transport };
  const answer = await service.post<RegisteredInstance>('/api/v1/instances/register/', body, bearer(key));
  assert.ok(answer.status === 200 || answer.status === 201, answer.text);
  return answer.body;
}

async function sentTo(service: Service, receiver: Receiver): Promise<string | undefined> {
  const tested = await service.post<{ success: boolean }>('/api/v1/instances/webhook-test/', { instance_id: 'laptop' });
  assert.equal(tested.body.success, true, tested.text);
  return (await receiver.next()).headers['authorization'];
}

for (const engine of ['SQLite', 'PostgreSQL']) {
  describe(`stored webhook_headers (${engine})`, () => {
    test('stay with the server that they were given for: another owner with another server is not sent them', async (t) => {
      const { service, anna, ben } = await startWithKeys(t, engine);
      const annas = await startReceiver(t);
      const bens = await startReceiver(t);
      await registerAs(service, anna, annas.url, SECRET_HEADER);
      assert.equal(await sentTo(service, annas), SECRET_HEADER.authorization);
      await service.patch('laptop', { owner_key_id: ben.key_id });
      // The new owner registers a URL on the same server: the headers stay.
      const same = await registerAs(service, ben, `${annas.origin}/elsewhere`);
      assert.deepEqual(same.webhook_header_names, Object.keys(SECRET_HEADER));
      assert.equal(same.dropped_header_names, undefined);
      assert.equal(await sentTo(service, annas), SECRET_HEADER.authorization);
      // The registration at another server succeeds. The response names the headers that it removed.
      const moved = await registerAs(service, ben, bens.url);
      assert.deepEqual(moved.webhook_header_names, []);
      assert.deepEqual(moved.dropped_header_names, Object.keys(SECRET_HEADER));
      assert.equal(await sentTo(service, bens), undefined);
      // The removed headers do not come back when ben registers the first address again.
      const back = await registerAs(service, ben, annas.url);
      assert.deepEqual([back.webhook_header_names, back.dropped_header_names], [[], undefined]);
      const given = await registerAs(service, ben, bens.url, { authorization: 'Bearer of-ben' });
      assert.deepEqual([given.webhook_header_names, given.dropped_header_names], [['authorization'], undefined]);
      assert.equal(await sentTo(service, bens), 'Bearer of-ben');
    });
  });

  describe(`stored webhook_headers (${engine})`, () => {
    test('do not go to another owner who pulls', async (t) => {
      const { service, anna, ben } = await startWithKeys(t, engine);
      const annas = await startReceiver(t);
      const pulledAs = async (key: ApiKeyWithToken): Promise<Record<string, string>> => {
        // Only one push of a meeting is in hand at a time, so each pull has its own meeting.
        const meeting = service.name('meeting');
        await service.join(meeting, 'laptop', ['a']);
        await service.send(meeting, { content: 'x' });
        const pulled = await service.post<Pulled>(pullPath('laptop'), {}, bearer(key));
        return pulled.body.pushes[0]!.headers;
      };
      const handOver = (to: ApiKeyWithToken, more: object = {}) =>
        service.patch('laptop', { owner_key_id: to.key_id, ...more });
      await registerAs(service, anna, annas.url, SECRET_HEADER);
      await handOver(ben);
      // The address is the same, but the instance pulls now, so its headers are removed.
      const pulls = await registerAs(service, ben, annas.url, undefined, 'pull');
      assert.deepEqual(pulls.dropped_header_names, Object.keys(SECRET_HEADER));
      assert.equal((await pulledAs(ben))['authorization'], undefined);
      // The headers that ben gave are for ben's machine, not for anna's.
      await registerAs(service, ben, annas.url, { authorization: 'Bearer of-ben' }, 'pull');
      const again = await registerAs(service, ben, annas.url, undefined, 'pull');
      assert.deepEqual(again.webhook_header_names, ['authorization']);
      assert.equal((await pulledAs(ben))['authorization'], 'Bearer of-ben');
      await handOver(anna);
      assert.equal((await pulledAs(anna))['authorization'], undefined);
      await handOver(ben, { webhook_headers: { authorization: 'Bearer given' } });
      assert.equal((await pulledAs(ben))['authorization'], 'Bearer given');
    });
  });

  describe(`the live feed of an id that had another owner (${engine})`, () => {
    test('shows nothing from before its removal, whatever Last-Event-ID a client sends', async (t) => {
      const { service, anna, ben } = await startWithKeys(t, engine);
      const receiver = await startReceiver(t, { status: 500, body: 'internal error at host db-7' });
      const listen = async (key: ApiKeyWithToken, after: string | null = null): Promise<EventStream> => {
        const stream = await openStream(`${service.url}/api/v1/events/`, {
          ...bearer(key),
          ...(after !== null && { 'last-event-id': after }),
        });
        t.after(() => stream.close());
        return stream;
      };
      const eavesdropper = await listen(ben);
      const id = await until(
        'the name of the memory',
        () => eavesdropper.last_id,
        (last_id) => last_id !== null,
      );
      const owner = await listen(anna);
      await registerAs(service, anna, receiver.url);
      await service.join('secret-merger', 'laptop', ['a']);
      await service.send('secret-merger', {});
      await owner.some(1, ({ name }) => name === 'delivery.attempted');
      assert.equal((await service.request('DELETE', instancePath('laptop'), { headers: bearer(anna) })).status, 204);
      await registerAs(service, ben, receiver.url);
      await service.join('of-ben', 'laptop', ['a']);

      const [name, , ...rest] = String(id).split('.');
      const later = await listen(ben, [name, '0', ...rest].join('.'));
      await later.some(1, (event) => event.data['meeting_id'] === 'of-ben');
      for (const stream of [later, eavesdropper]) {
        await stream.some(1, (event) => event.name === 'instance.joined');
        assert.deepEqual(
          stream.events.filter((event) => event.name !== 'gap').map((event) => event.name),
          ['instance.registered', 'instance.joined'],
        );
        assert.ok(!stream.text.includes('secret-merger'));
      }
      // Control: the previous owner saw the events until the instance was deleted.
      assert.ok(owner.text.includes('secret-merger'));
      assert.ok(owner.events.some((event) => event.name === 'instance.removed'));
    });

    test('shows nothing of the new owner to somebody who saw the removed instance in a meeting', async (t) => {
      const { service, anna, ben } = await startWithKeys(t, engine);
      const reader = await service.createKey({ scopes: ['read'], meeting_ids: ['room'] });
      await registerAs(service, anna, 'http://127.0.0.1:1/');
      await service.join('room', 'laptop', ['a']);
      const stream = await openStream(`${service.url}/api/v1/events/`, bearer(reader));
      t.after(() => stream.close());
      await service.patch('laptop', { success_statuses: '2xx' });
      await stream.some(1, ({ name }) => name === 'instance.changed');
      await service.request('DELETE', instancePath('laptop'), { headers: bearer(anna) });
      await registerAs(service, ben, 'http://127.0.0.1:1/');
      await service.patch('laptop', { instance_name: 'secret of ben' });
      // Once the new instance is in the meeting too, the reader sees it.
      await service.join('room', 'laptop', ['a']);
      await stream.some(1, ({ name }) => name === 'instance.joined');
      await until(
        'the new member to be seen',
        async () => {
          await service.patch('laptop', { replies: true });
          return stream.events;
        },
        (events) => events.some(({ data }) => String(data['fields']) === 'replies'),
      );
      assert.deepEqual(
        stream.events.slice(0, 4).map(({ name, data }) => [name, ...((data['fields'] as string[] | undefined) ?? [])]),
        [
          ['instance.changed', 'success_statuses'],
          ['instance.removed'],
          ['instance.joined'],
          ['instance.changed', 'replies'],
        ],
      );
    });
  });
}

test('an owner whose instance goes to another key is told so, and nothing that comes later', async (t) => {
  const { service, anna, ben } = await startWithKeys(t, 'SQLite');
  await registerAs(service, anna, 'http://127.0.0.1:1/');
  const [of_anna, of_ben] = await Promise.all(
    [anna, ben].map(async (key) => {
      const stream = await openStream(`${service.url}/api/v1/events/`, bearer(key));
      t.after(() => stream.close());
      return stream;
    }),
  );
  await service.patch('laptop', { owner_key_id: ben.key_id });
  await service.patch('laptop', { instance_name: 'of ben' });
  // A key that owned the id before is not told of the next instance with it.
  await service.request('DELETE', instancePath('laptop'));
  await registerAs(service, anna, 'http://127.0.0.1:1/');
  const seen = (stream: EventStream) => stream.events.map(({ name, data }) => [name, data['fields'] ?? null]);
  await of_ben!.some(1, ({ name }) => name === 'instance.removed');
  await of_anna!.some(1, ({ name }) => name === 'instance.registered');
  assert.deepEqual(seen(of_anna!), [
    ['instance.changed', ['owner_key_id']],
    ['instance.registered', null],
  ]);
  assert.deepEqual(seen(of_ben!), [
    ['instance.changed', ['owner_key_id']],
    ['instance.changed', ['instance_name']],
    ['instance.removed', null],
  ]);
});

test('the history of a removed instance is not shown to the next owner of its id', async (t) => {
  const { service, anna, ben } = await startWithKeys(t, 'SQLite');
  const receiver = await startReceiver(t);
  await registerAs(service, anna, receiver.url);
  await service.join('m', 'laptop', ['a']);
  await service.settled(await service.send('m', {}));
  const delivered = async (key: ApiKeyWithToken): Promise<number | undefined> => {
    const path = `${instancePath('laptop')}history/`;
    return (await service.request<InstanceHistory>('GET', path, { headers: bearer(key) })).body.delivered.at(-1);
  };
  assert.equal(await delivered(anna), 1);
  await service.request('DELETE', instancePath('laptop'), { headers: bearer(anna) });
  await registerAs(service, ben, receiver.url);
  assert.equal(await delivered(ben), 0);
});

test('after a gap the feed shows nothing to the previous owner of an instance, and everything to the new one', async (t) => {
  const clock = new VirtualClock();
  let owner = 'anna';
  let gate = Promise.resolve();
  /** Only the store knows that ben is the owner now: the event of that change is lost. */
  const listIds = async (_: unknown, _limit: number, { owner_scope }: { owner_scope: { key_id: string } }) => {
    await gate;
    return owner_scope.key_id === owner ? [{ instance_id: 'laptop', created_at: 0 }] : [];
  };
  const feed = new Feed({
    clock,
    store: { messages: { last: async () => null }, instances: { listIds } },
    listeners_max: 2,
    written: async () => {},
    onError: () => {},
  } as unknown as FeedParts);
  t.after(() => feed.stop());
  feed.joinNodes(async () => {});
  const listen = async (key_id: string): Promise<() => string> => {
    const visibility = { owner_scope: { key_id, instance_id: null }, meeting_ids: [] };
    const opened = await feed.open({
      viewer: { visibility, instance_id: undefined, meeting_id: undefined },
      last_event_id: null,
      standing: { principal: { key_id }, revocationReason: () => null },
    });
    let text = '';
    const write = (bytes: Buffer | string): boolean => {
      text += bytes.toString();
      return true;
    };
    opened.begin({ write, end() {}, destroy() {}, onDrain() {}, onClose() {} });
    return () => [...text.matchAll(/"seq":(\d+)|event: (gap)/g)].map(([, seq, gap]) => seq ?? gap).join(' ');
  };
  const attempt = (seq: number): void => {
    const ids = { delivery_id: `dlv_${seq}`, message_id: `msg_${seq}`, meeting_id: 'm', instance_id: 'laptop' };
    const settled = { state: 'delivered', reason: null, retry_in_ms: null, accepted_at: clock.wall() } as const;
    const started_at = new Date(clock.wall()).toISOString();
    const ended = { attempt: 1, started_at, duration_ms: 1, outcome: 'ok', status_code: 200, detail: '' } as const;
    feed.publish(attemptedEvent({ ...ids, seq, ...settled }, { ...ended, response_excerpt: '' }));
  };
  const [anna, ben] = [await listen('anna'), await listen('ben')];
  attempt(1);
  await clock.advance(1_000);
  owner = 'ben';
  feed.onBroadcast('feed.events', 'lost');
  attempt(2);
  // While the store cannot say who the owner is, nobody learns anything.
  gate = Promise.reject(new Error('the store is away'));
  gate.catch(() => {});
  await clock.advance(1_000);
  assert.deepEqual([anna(), ben()], ['1 gap', 'gap']);
  gate = Promise.resolve();
  attempt(3);
  await clock.advance(1_000);
  attempt(4);
  await clock.advance(1_000);
  assert.deepEqual([anna(), ben()], ['1 gap', 'gap 2 3 4']);
});

test('an attempt that was in flight when an id was removed is not shown to the new owner of the id', async () => {
  const created_at = 1_000_000;
  const store = { instances: { listIds: async () => [{ instance_id: 'laptop', created_at }] } };
  const view = (wall: number) => {
    const owner_scope = { key_id: 'ben', instance_id: null };
    const viewer = {
      visibility: { owner_scope, meeting_ids: [] },
      instance_id: undefined,
      meeting_id: undefined,
    };
    return new FeedView(viewer, {
      store: store as never,
      clock: { wall: () => wall },
      onError: (error) => assert.fail(String(error)),
    });
  };
  const attempted = (since: number) => ({
    name: 'delivery.attempted' as const,
    number: 1,
    about: { kind: 'delivery' as const, meeting_id: 'm', instance_ids: ['laptop'], since },
  });
  const memory = { removalOf: () => 0, last: 0 };
  const now = view(created_at + 2_000);
  await now.load(memory);
  assert.equal(now.sees(attempted(created_at - 1)), false);
  // The control: the new owner sees an attempt for a message that was sent later.
  assert.equal(now.sees(attempted(created_at)), true);
  // The attempt ends as late as possible: the runtime of the removed instance took the longest time that is allowed.
  const late = view(created_at + TIMEOUT_S_MAX * 1000);
  await late.load(memory);
  assert.equal(late.sees(attempted(created_at - 1)), false);
  // A wall clock that was set back by an hour hides no event.
  const set_back = view(created_at - 3_600_000);
  await set_back.load(memory);
  assert.equal(set_back.sees(attempted(created_at - 3_600_000)), true);
});

describe('a member of a meeting, for a listener that sees only this meeting', () => {
  const ITSELF = { kind: 'instance' as const, meeting_id: null, instance_ids: ['laptop'] };
  const connected = { name: 'instance.connected' as const, number: 9, about: ITSELF };
  const removed = { name: 'instance.removed' as const, number: 3, about: ITSELF };
  const inMeeting = (name: 'instance.joined' | 'instance.left') => ({
    name,
    number: 2,
    about: { ...ITSELF, meeting_id: 'room' },
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const member = { instance_id: 'laptop', created_at: 0 };

  function viewOn(instances: object): FeedView {
    const visibility = { owner_scope: null, meeting_ids: ['room'] };
    const viewer = { visibility, instance_id: undefined, meeting_id: undefined };
    return new FeedView(viewer, { store: { instances } as never, clock: { wall: () => 0 }, onError: () => {} });
  }

  test('is not learned from a row that was read before its removal', async () => {
    const reads: PromiseWithResolvers<typeof member | null>[] = [];
    const find = () => {
      reads.push(Promise.withResolvers());
      return reads.at(-1)!.promise;
    };
    const view = viewOn({ find });
    view.sees(inMeeting('instance.joined'));
    assert.equal(view.sees(connected), true);
    view.sees(removed);
    assert.equal(view.sees(connected), false);
    reads[0]!.resolve(member);
    await settle();
    assert.equal(view.sees(connected), false);
    reads[1]!.resolve(null);
    await settle();
    assert.equal(view.sees(connected), false);
    assert.equal(reads.length, 2);
  });

  test('is read again when it was removed while the view was loaded', async () => {
    const memory = { last: 1, removalOf: () => 3 };
    const listIds = async () => [member];
    const view = viewOn({ listIds, find: async () => null });
    await view.load(memory);
    assert.equal(view.sees(connected), false);
    await settle();
    assert.equal(view.sees(connected), false);
    // The control: it was removed before, so the row is of the next instance.
    const later = viewOn({ listIds });
    await later.load({ ...memory, last: 3 });
    later.sees(removed);
    assert.equal(later.sees(connected), true);
  });

  test('is not shown any more from the moment it leaves', async () => {
    const view = viewOn({ listIds: async () => [member], find: async () => null });
    await view.load({ last: 0, removalOf: () => 0 });
    assert.equal(view.sees(connected), true);
    view.sees(inMeeting('instance.left'));
    assert.equal(view.sees(connected), false);
  });

  test('is not shown after the store could not say whether it is still a member', async () => {
    const view = viewOn({ find: async () => assert.fail('the store is away') });
    view.sees(inMeeting('instance.joined'));
    assert.equal(view.isStale, false);
    await settle();
    assert.equal(view.isStale, true);
  });
});

test('the memory of events knows removals as long as it holds what was before them', () => {
  const position = { textOf: () => 'x', accepted() {}, attempted() {}, passed() {} };
  const memory = new FeedMemory('name', position as never);
  const about = { kind: 'instance' as const, meeting_id: null, instance_ids: ['laptop'] };
  const at = '2026-01-01T00:00:00.000Z';
  memory.put({ name: 'instance.removed', data: { instance_id: 'laptop', at }, about });
  assert.equal(memory.removalOf('laptop'), 1);
  assert.equal(memory.removalOf('other'), 0);
  for (let i = 0; i < 40_000; i++) {
    memory.put({ name: 'instance.left', data: { instance_id: 'i', meeting_id: 'm', at }, about });
  }
  assert.equal(memory.holdsAfter(0), false);
  assert.equal(memory.removalOf('laptop'), 0);
});

test('an origin is a scheme, a host and a port', () => {
  const here = 'https://gateway.example/hooks?a=1';
  for (const same of ['https://gateway.example:443/', 'HTTPS://GATEWAY.example/x']) assert.ok(isSameOrigin(here, same));
  const others = [
    'http://gateway.example/',
    'https://gateway.example:8443/',
    'https://example/',
    'https://gateway.example.evil/',
  ];
  for (const other of others) assert.ok(!isSameOrigin(here, other), other);
});
