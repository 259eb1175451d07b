/** How instances, meetings and messages are returned, filtered and paged. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Delivery, Instance, Meeting, MeetingInstance, MessagePage, Page } from '@convoke/sdk';
import {
  assertProblem,
  instancePath,
  membersPath,
  messagesPath,
  type Service,
  startService,
  useService,
} from '../support/service.ts';

const WEBHOOK_URL = 'http://127.0.0.1:9000/';
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

describe('an instance:', { concurrency: true }, () => {
  const service = useService();

  test('is returned with these fields', async () => {
    const { instance_id } = await service.register({
      instance_name: 'Name',
      agent_ids: ['a'],
      webhook_url: WEBHOOK_URL,
      webhook_headers: { 'X-A': '1' },
    });
    const { created_at, updated_at, last_seen_at, ...rest } = await service.instance(instance_id);
    for (const time of [created_at, updated_at, last_seen_at]) assert.match(String(time), TIME);
    assert.deepEqual(rest, {
      instance_id,
      instance_name: 'Name',
      agent_ids: ['a'],
      webhook_url: WEBHOOK_URL,
      webhook_enabled: true,
      is_active: true,
      success_statuses: '200',
      webhook_header_names: ['x-a'],
      health: 'unknown',
      consecutive_failures: 0,
      last_success_at: null,
      last_failure: null,
      pending_deliveries: 0,
      owner_key_id: null,
    });
  });

  test('PATCH changes what it names and nothing else', async () => {
    const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL, webhook_headers: { 'x-a': '1' } });
    const changes: [object, Partial<Instance>][] = [
      [{ instance_name: 'Other' }, { instance_name: 'Other' }],
      [{ is_active: false }, { is_active: false }],
      [{ webhook_enabled: false }, { webhook_enabled: false }],
      [{ webhook_headers: { b: '2', c: '3' } }, { webhook_header_names: ['b', 'c'] }],
      [{ success_statuses: '2xx' }, { success_statuses: '2xx' }],
    ];
    for (const [change, expected] of changes) {
      const { updated_at: _, ...before } = await service.instance(instance_id);
      const { updated_at, ...after } = await service.patch(instance_id, change);
      assert.deepEqual(after, { ...before, ...expected });
      assert.deepEqual(await service.instance(instance_id), { ...after, updated_at });
    }
  });

  test('PATCH takes no other field, no wrong type, and no nothing', async () => {
    const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
    for (const body of [
      {},
      { agent_ids: 'a' },
      { webhook_url: 7 },
      { instance_id: 'x' },
      { webhook_secret: 'x' },
      { is_active: 'true' },
      { is_active: null },
      { webhook_enabled: 1 },
      { success_statuses: 200 },
      { success_statuses: '3xx' },
      [],
      'null',
    ]) {
      const answer = await service.request('PATCH', instancePath(instance_id), { body });
      assertProblem(answer, 422, 'invalid_fields');
    }
    const answer = await service.request('PATCH', instancePath('nobody'), { body: { is_active: true } });
    assertProblem(answer, 404, 'instance_does_not_exist');
  });

  test('a heartbeat sets last_seen_at, and changes nothing else', async () => {
    const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
    const { last_seen_at: before, ...rest } = await service.instance(instance_id);
    const from_ms = Date.now();
    const { last_seen_at: after, ...rest_after } = await service.heartbeat(instance_id);
    assert.ok(Date.parse(String(after)) >= from_ms - 1);
    assert.ok(Date.parse(String(after)) >= Date.parse(String(before)));
    assert.deepEqual(rest_after, rest);
    assertProblem(await service.post(`${instancePath('nobody')}heartbeat/`), 404, 'instance_does_not_exist');
  });

  test('a heartbeat does not switch on what is switched off', async () => {
    const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
    await service.patch(instance_id, { is_active: false, webhook_enabled: false });
    const { is_active, webhook_enabled } = await service.heartbeat(instance_id);
    assert.deepEqual([is_active, webhook_enabled], [false, false]);
  });

  test('health: unknown, up, failing after one failure, down after five in a row, of whatever kind', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, { behaviour: { status: 202 } });
    const pushed = async (status: number): Promise<Instance> => {
      receiver.behaviour = { status };
      await service.settled(await service.send(meeting_id, {}));
      await service.heartbeat(instance_id);
      return service.instance(instance_id);
    };
    assert.equal((await service.instance(instance_id)).health, 'unknown');
    const up = await pushed(200);
    assert.deepEqual([up.health, up.consecutive_failures, up.last_failure], ['up', 0, null]);
    assert.match(String(up.last_success_at), TIME);
    for (const failures of upTo(6)) {
      const { health, consecutive_failures, last_failure } = await pushed(202);
      assert.deepEqual([health, consecutive_failures], [failures < 5 ? 'failing' : 'down', failures]);
      assert.deepEqual([last_failure?.outcome, last_failure?.status_code], ['not_200', 202]);
      assert.match(String(last_failure?.at), TIME);
      assert.notEqual(last_failure?.detail, '');
      assert.match(
        String(last_failure?.advice),
        /^202: only 200 counts as delivered; respond 200, or set success_statuses/,
      );
    }
    const { health, consecutive_failures } = await pushed(200);
    assert.deepEqual([health, consecutive_failures], ['up', 0]);
  });
});

describe('the list of instances:', { concurrency: true }, () => {
  const ids = (answer: { body: Page<Instance> }): string[] => answer.body.data.map(({ instance_id }) => instance_id);

  test('is filtered by agent_id, meeting_id, is_active, health and q, together if asked', async (t) => {
    const service = await startService(t);
    const list = async (query: string) => ids(await service.get<Page<Instance>>(`/api/v1/instances/?${query}`));
    const one = await service.member(t, 'm1', { agent_ids: ['a'], registration: { instance_id: 'one' } });
    await service.member(t, 'm1', {
      agent_ids: ['b'],
      registration: { instance_id: 'two', instance_name: 'A 100% ONE' },
    });
    const three = await service.member(t, 'm2', { agent_ids: ['a', 'b'], registration: { instance_id: 'three_' } });
    await service.settled(await service.send('m2', {}));
    await service.patch('three_', { is_active: false });
    await service.leave('m1', 'one');

    assert.deepEqual(await list(''), ['one', 'three_', 'two']);
    assert.deepEqual(await list('agent_id=a'), ['one', 'three_']);
    assert.deepEqual(await list('agent_id=A'), []);
    assert.deepEqual(await list('meeting_id=m1'), ['two']);
    assert.deepEqual(await list('meeting_id=unknown'), []);
    assert.deepEqual(await list('is_active=false'), ['three_']);
    assert.deepEqual(await list('is_active=true'), ['one', 'two']);
    assert.deepEqual(await list('health=up'), ['three_']);
    assert.deepEqual(await list('health=unknown'), ['one', 'two']);
    assert.deepEqual(await list('health=down'), []);
    // `q` is compared with the name and the id. Upper and lower case count as equal, and there are no wildcards.
    assert.deepEqual(await list('q=one'), ['one', 'two']);
    assert.deepEqual(await list('q=100%25'), ['two']);
    assert.deepEqual(await list('q=%25'), ['two']);
    assert.deepEqual(await list('q=_'), ['three_']);
    assert.deepEqual(await list('agent_id=b&is_active=true&q=two'), ['two']);
    assert.deepEqual([one.instance_id, three.instance_id], ['one', 'three_']);
  });

  test('parameters that are unknown, repeated or of the wrong type are refused', async (t) => {
    const service = await startService(t);
    for (const [query, path] of [
      ['agent=a', 'agent'],
      ['is_active=yes', 'is_active'],
      ['is_active=', 'is_active'],
      ['health=ok', 'health'],
      ['limit=0', 'limit'],
      ['limit=501', 'limit'],
      ['limit=-1', 'limit'],
      ['limit=1.5', 'limit'],
      ['limit=ten', 'limit'],
      ['limit=', 'limit'],
      ['limit=1&limit=2', 'limit'],
      ['agent_id=', 'agent_id'],
      ['agent_id=a&agent_id=b', 'agent_id'],
      ['agent_id=%00', 'agent_id'],
    ] as const) {
      const problem = assertProblem(await service.get(`/api/v1/instances/?${query}`), 422, 'invalid_fields');
      assert.equal(problem.errors?.[0]?.path, path, query);
    }
    const problem = assertProblem(await service.get('/api/v1/deliveries/?metting_id=m'), 422, 'invalid_fields');
    assert.match(problem.detail, /did you mean meeting_id\?/);
  });
});

describe('cursor pagination:', { concurrency: true }, () => {
  const service = useService();

  /** Walks all pages; `between` runs after each of them. */
  async function walk<T>(
    path: string,
    limit: number,
    between: () => Promise<unknown> = async () => {},
  ): Promise<T[][]> {
    const pages: T[][] = [];
    let cursor: string | null = null;
    do {
      const query: string = `limit=${limit}${cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`}`;
      const answer = await service.get<Page<T>>(`${path}${path.includes('?') ? '&' : '?'}${query}`);
      assert.equal(answer.status, 200, answer.text);
      assert.deepEqual(Object.keys(answer.body), ['data', 'next_cursor']);
      pages.push(answer.body.data);
      cursor = answer.body.next_cursor;
      assert.ok(pages.length < 100, 'it does not end');
      await between();
    } while (cursor !== null);
    return pages;
  }

  interface List {
    path: string;
    /** Makes item number n of the list. */
    make: (service: Service, n: number) => Promise<unknown>;
    keyOf: (item: never) => string;
  }

  const padded = (n: number): string => String(n).padStart(3, '0');

  /**
   * The lists with pages. Numbers have gaps, so that the test can insert items between them. An index has exactly the
   * rows of each list. With `q` a page could end anywhere, because other tests add to what the search reads.
   */
  async function lists(): Promise<Record<string, List>> {
    const meeting_id = service.name('paged-meeting');
    const hosts = service.name('paged-meeting');
    const sender = await service.register({ webhook_url: 'http://127.0.0.1:1/' });
    await service.patch(sender.instance_id, { is_active: true });
    return {
      instances: {
        path: `/api/v1/instances/?meeting_id=${hosts}`,
        make: async (_, n) => {
          const { instance_id } = await service.register({
            instance_id: `paged-instance-${padded(n)}`,
            webhook_url: WEBHOOK_URL,
          });
          await service.join(hosts, instance_id, []);
        },
        keyOf: (item: Instance) => item.instance_id,
      },
      meetings: {
        path: `/api/v1/meetings/?instance_id=${sender.instance_id}`,
        make: (_, n) => service.join(`paged-room-${padded(n)}`, sender.instance_id, []),
        keyOf: (item: Meeting) => item.meeting_id,
      },
      'the instances of a meeting': {
        path: membersPath(meeting_id),
        make: async (_, n) => {
          const { instance_id } = await service.register({
            instance_id: `member-${padded(n)}`,
            webhook_url: WEBHOOK_URL,
          });
          await service.join(meeting_id, instance_id, []);
        },
        keyOf: (item: MeetingInstance) => item.instance_id,
      },
    };
  }

  for (const name of ['instances', 'meetings', 'the instances of a meeting']) {
    test(`${name}: all items, in order, each once, whatever is inserted meanwhile`, async () => {
      const list = (await lists())[name];
      assert.ok(list !== undefined);
      const there = upTo(7).map((n) => n * 10);
      for (const n of there) await list.make(service, n);
      const keysOf = (pages: never[][]): string[] => pages.flat().map(list.keyOf);
      const pages = await walk<never>(list.path, 3);
      assert.deepEqual(
        pages.map((page) => page.length),
        [3, 3, 1],
      );
      const before = keysOf(pages);
      assert.deepEqual(before, before.toSorted());
      assert.deepEqual(keysOf(await walk<never>(list.path, 7)), before);
      assert.deepEqual((await walk<never>(list.path, 7)).length, 1, 'a full last page has no next');

      let inserted = 0;
      const during = keysOf(await walk<never>(list.path, 2, () => list.make(service, ++inserted * 10 + 5)));
      assert.deepEqual(during, during.toSorted());
      assert.equal(new Set(during).size, during.length);
      assert.ok(before.every((key) => during.includes(key)));
    });
  }

  for (const filter of ['instance_id', 'meeting_id', 'message_id']) {
    test(`deliveries by ${filter}: newest first, each once, and what arrives meanwhile comes before the first page`, async (t) => {
      const meeting_id = service.name('meeting');
      const members = await Promise.all(upTo(7).map(() => service.member(t, meeting_id)));
      let sent = await service.send(meeting_id, {});
      for (let i = 0; i < 6; i++) sent = await service.send(meeting_id, {});
      const value = { instance_id: members[0]?.instance_id, meeting_id, message_id: sent.message_id }[filter];
      const path = `/api/v1/deliveries/?${filter}=${encodeURIComponent(String(value))}`;
      const count = filter === 'meeting_id' ? 49 : 7;
      const ids = (pages: Delivery[][]): string[] => pages.flat().map(({ delivery_id }) => delivery_id);
      const all = ids(await walk<Delivery>(path, 500));
      assert.equal(all.length, count);
      assert.deepEqual(all, all.toSorted().toReversed());
      assert.deepEqual(ids(await walk<Delivery>(path, 3)), all);
      assert.deepEqual(ids(await walk<Delivery>(path, 2, () => service.send(meeting_id, {}))), all);
    });
  }

  test('meetings by instance_id: those that it is in, and with include_left those that it was in', async () => {
    const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
    const other = await service.register({ webhook_url: WEBHOOK_URL });
    const [stays, left, elsewhere] = ['stays', 'left', 'elsewhere'].map((name) => service.name(name)) as [
      string,
      string,
      string,
    ];
    for (const meeting_id of [stays, left]) await service.join(meeting_id, instance_id, ['a']);
    await service.join(elsewhere, other.instance_id, ['a']);
    await service.leave(left, instance_id);
    const ids = async (query: string): Promise<string[]> => {
      const answer = await service.get<Page<Meeting>>(`/api/v1/meetings/?${query}`);
      assert.equal(answer.status, 200, answer.text);
      return answer.body.data.map(({ meeting_id }) => meeting_id);
    };
    assert.deepEqual(await ids(`instance_id=${instance_id}`), [stays]);
    assert.deepEqual(await ids(`instance_id=${instance_id}&include_left=true`), [left, stays]);
    assert.deepEqual(await ids(`instance_id=${instance_id}&include_left=true&q=${stays}`), [stays]);
    assert.deepEqual(await ids('instance_id=nobody'), []);
  });

  test('a cursor that this service did not make for this list is refused', async (t) => {
    const meeting_id = service.name('meeting');
    await service.member(t, meeting_id);
    await service.member(t, meeting_id);
    await service.send(meeting_id, {});
    const cursorOf = async (path: string): Promise<string> =>
      String((await service.get<Page<unknown>>(`${path}?limit=1`)).body.next_cursor);
    const of_instances = await cursorOf('/api/v1/instances/');
    const of_deliveries = await cursorOf('/api/v1/deliveries/');
    const code = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
    const garbage = [
      '',
      'x',
      '%F0%9F%98%80',
      '%00',
      code(null),
      code({}),
      code([]),
      code(['a', 'b', 'c']),
      code([null]),
    ];
    for (const [path, wrong] of [
      ['/api/v1/instances/', [of_deliveries, code([1])]],
      ['/api/v1/meetings/', [of_deliveries, code([1])]],
      [membersPath(meeting_id), [of_deliveries, code([1])]],
      ['/api/v1/deliveries/', [of_instances, code(['1']), code([1, 2])]],
    ] as const) {
      for (const cursor of [...wrong, ...garbage]) {
        const problem = assertProblem(await service.get(`${path}?cursor=${cursor}`), 422, 'invalid_fields');
        assert.deepEqual(
          problem.errors?.map((error) => error.path),
          ['cursor'],
          `${path} ${cursor}`,
        );
      }
    }
    // These cursors have the right form, but belong to no item. The response is a page or a refusal, never a failure.
    for (const cursor of [code([1e300, 1e300]), code([-1, -1]), code([0.5, 0.5])]) {
      const answer = await service.get(`/api/v1/deliveries/?cursor=${cursor}`);
      assert.ok(answer.status === 200 || answer.status === 422, answer.text);
    }
  });
});

describe('meetings:', { concurrency: true }, () => {
  const service = useService();
  const meeting = async (meeting_id: string): Promise<Meeting | undefined> => {
    const query = new URLSearchParams({ q: meeting_id }).toString();
    const { body } = await service.get<Page<Meeting>>(`/api/v1/meetings/?${query}`);
    return body.data.find((each) => each.meeting_id === meeting_id);
  };

  test('are listed with their counts and last activity', async (t) => {
    const meeting_id = service.name('meeting');
    const one = await service.member(t, meeting_id, { agent_ids: ['a', 'b'] });
    const two = await service.member(t, meeting_id, { agent_ids: ['b', 'c', 'd'] });
    const { joined_at } = await service.join(meeting_id, two.instance_id, ['c']);
    const joined = await meeting(meeting_id);
    assert.deepEqual([joined?.instance_count, joined?.agent_count, joined?.last_seq], [2, 3, 0]);
    assert.ok(Date.parse(String(joined?.last_activity_at)) >= Date.parse(joined_at));
    await two.receiver.down();
    const sent = await service.send(meeting_id, {});
    await one.receiver.next();
    await service.leave(meeting_id, one.instance_id);
    const left = await meeting(meeting_id);
    assert.deepEqual([left?.instance_count, left?.agent_count, left?.last_seq], [1, 1, 1]);
    assert.ok((left?.pending_deliveries ?? 0) >= 1);
    assert.ok(Date.parse(String(left?.last_activity_at)) >= Date.parse(sent.accepted_at));
    assert.match(String(left?.created_at), TIME);
  });

  test('exist as soon as an instance joins or a message is sent, and not before', async () => {
    const [joined, spoken] = [service.name('meeting'), service.name('meeting')];
    for (const meeting_id of [joined, spoken]) {
      assertProblem(await service.get(membersPath(meeting_id)), 404, 'meeting_does_not_exist');
      assertProblem(await service.get(messagesPath(meeting_id)), 404, 'meeting_does_not_exist');
    }
    const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
    await service.join(joined, instance_id, ['a']);
    await service.send(spoken, {});
    for (const meeting_id of [joined, spoken]) {
      assert.equal((await service.get(membersPath(meeting_id))).status, 200);
      assert.equal((await service.get(messagesPath(meeting_id))).status, 200);
    }
  });

  test('list their members, with the name and health of each, and on request those who left', async (t) => {
    const meeting_id = service.name('meeting');
    const one = await service.member(t, meeting_id, { registration: { instance_name: 'First' } });
    const two = await service.member(t, meeting_id, { registration: { instance_name: 'Second' } });
    await service.leave(meeting_id, two.instance_id);
    const members = async (query: string) =>
      (await service.get<Page<MeetingInstance>>(membersPath(meeting_id) + query)).body.data.map(
        ({ instance_id, instance_name, health, agent_ids, left_at }) => [
          instance_id,
          instance_name,
          health,
          agent_ids,
          left_at === null,
        ],
      );
    const first = [one.instance_id, 'First', 'unknown', ['a'], true];
    assert.deepEqual(await members(''), [first]);
    assert.deepEqual(await members('?include_left=false'), [first]);
    assert.deepEqual(await members('?include_left=true'), [
      first,
      [two.instance_id, 'Second', 'unknown', ['a'], false],
    ]);
  });
});

describe('the history of a meeting:', { concurrency: true }, () => {
  const service = useService();
  const history = async (meeting_id: string, query = ''): Promise<MessagePage> => {
    const answer = await service.get<MessagePage>(messagesPath(meeting_id) + query);
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  };
  const seqs = ({ data, has_more }: MessagePage): [number[], boolean] => [data.map(({ seq }) => seq), has_more];

  test('holds each message as it was sent, with its number, time and targets', async () => {
    const meeting_id = service.name('meeting');
    const text = String.raw`{ "n": 12345678901234567890, "x": 1e400, "s": "\u0000\ud800", "z":1,"1":2 }`;
    const sent = await service.sendText(meeting_id, text);
    await service.send(meeting_id, { to: 'two' }, ['b', 'a', 'b']);
    const answer = await service.get<MessagePage>(messagesPath(meeting_id));
    assert.ok(answer.text.includes(`"message":${text}`), answer.text);
    assert.match(String(answer.headers['content-type']), /^application\/json\b/);
    const [first, second] = answer.body.data;
    const { message: _, ...rest } = first ?? {};
    const { message_id, accepted_at } = sent;
    assert.deepEqual(rest, { message_id, seq: 1, accepted_at, deliveries_queued: 0, target_agents: null });
    assert.deepEqual(second?.target_agents, ['b', 'a']);
    assert.deepEqual(second?.message, { to: 'two' });
  });

  test('goes forward from after_seq and backward from before_seq, always in the order of seq', async () => {
    const meeting_id = service.name('meeting');
    for (const number of upTo(10)) await service.send(meeting_id, { number });
    assert.deepEqual(seqs(await history(meeting_id)), [upTo(10), false]);
    assert.deepEqual(seqs(await history(meeting_id, '?limit=3')), [[8, 9, 10], true]);
    assert.deepEqual(seqs(await history(meeting_id, '?after_seq=0&limit=3')), [[1, 2, 3], true]);
    assert.deepEqual(seqs(await history(meeting_id, '?after_seq=3&limit=3')), [[4, 5, 6], true]);
    assert.deepEqual(seqs(await history(meeting_id, '?after_seq=7&limit=3')), [[8, 9, 10], false]);
    assert.deepEqual(seqs(await history(meeting_id, '?after_seq=10')), [[], false]);
    assert.deepEqual(seqs(await history(meeting_id, '?before_seq=8&limit=3')), [[5, 6, 7], true]);
    assert.deepEqual(seqs(await history(meeting_id, '?before_seq=4&limit=3')), [[1, 2, 3], false]);
    assert.deepEqual(seqs(await history(meeting_id, '?before_seq=1')), [[], false]);
    assert.deepEqual(seqs(await history(meeting_id, '?after_seq=2&before_seq=6')), [[3, 4, 5], false]);
    assert.deepEqual(seqs(await history(meeting_id, '?after_seq=9007199254740991')), [[], false]);
  });

  test('numbers that are none are refused', async () => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, {});
    for (const query of [
      'after_seq=-1',
      'after_seq=x',
      'before_seq=1.5',
      'after_seq=',
      'limit=0',
      'limit=501',
      'cursor=x',
    ]) {
      assertProblem(await service.get(`${messagesPath(meeting_id)}?${query}`), 422, 'invalid_fields');
    }
    const huge = await service.get(`${messagesPath(meeting_id)}?after_seq=9007199254740992`);
    assertProblem(huge, 422, 'invalid_fields');
  });

  test('walked forward while others speak, it misses nothing and repeats nothing', async () => {
    const meeting_id = service.name('meeting');
    for (const number of upTo(10)) await service.send(meeting_id, { number });
    const seen: number[] = [];
    for (let page: MessagePage | null = null; page === null || page.has_more;) {
      page = await history(meeting_id, `?after_seq=${seen.at(-1) ?? 0}&limit=4`);
      seen.push(...page.data.map(({ seq }) => seq));
      if (seen.length < 15) await service.send(meeting_id, {});
    }
    assert.deepEqual(seen, upTo(seen.length));
    assert.ok(seen.length > 10);
  });
});
