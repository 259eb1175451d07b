/**
 * The contract of the store (src/store/store.ts): contract.test.ts tests it with SQLite, and contract.slow.ts with
 * PostgreSQL.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { attemptsText } from '../../src/domain/attempts_text.ts';
import { NO_HOLD } from '../../src/domain/clock_hold.ts';
import type { Session } from '../../src/domain/session.ts';
import type {
  AsidePlace,
  DeliveryRow,
  DeliverySettlement,
  DeliveryStore,
  ExpiryPlace,
  PendingAside,
} from '../../src/store/contract/deliveries.ts';
import { partitionOf } from '../../src/domain/partition.ts';
import { EARLIER_MAX } from '../../src/domain/rotation.ts';
import { IDEMPOTENCY_MS, type NewMessage } from '../../src/store/contract/messages.ts';
import type { NewApiKey } from '../../src/store/contract/api_keys.ts';
import { INVITES_KEPT_MS, INVITES_PENDING_MAX, type NewInvite } from '../../src/store/contract/invites.ts';
import { SESSIONS_PER_KEY_MAX } from '../../src/store/contract/sessions.ts';
import { encodeCursor } from '../../src/store/rows/page.ts';
import { PRUNE_WINDOW } from '../../src/store/rows/pruning.ts';
import { onDamagedValue } from '../../src/store/rows/stored_values.ts';
import type { EngineUnderTest } from '../support/engines.ts';
import {
  lane,
  meeting,
  messages,
  NEVER,
  newMessage,
  prune,
  prunedInSteps,
  register,
  settled,
  WALL,
} from '../support/store_contents.ts';

/** Collects all items of a paged list, page by page. */
async function pages<T>(
  read: (cursor: string | undefined) => Promise<{ data: T[]; next_cursor: string | null }>,
): Promise<T[][]> {
  const all: T[][] = [];
  let cursor: string | undefined;
  do {
    const page = await read(cursor);
    all.push(page.data);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return all;
}

/** Makes the tests of the contract for an engine. */
export function holdsTheContract(engine: EngineUnderTest): void {
  describe('calls that travel together', () => {
    for (const [name, open] of [
      ['in the thread', (t: TestContext) => engine.openThread(t)],
      ['on this one', (t: TestContext) => engine.open(t)],
    ] as const) {
      test(`have results of their own: a Problem undoes only its own call, ${name}`, async (t) => {
        const store = await open(t);
        await meeting(store, 'm', 'i');
        const results = await Promise.allSettled([
          store.meetings.join('m', 'i', ['a'], WALL),
          store.meetings.join('m', 'nobody', ['a'], WALL),
          store.messages.accept(messages('m', 2)),
          store.instances.list({ limit: 10, cursor: 'garbage' }),
          store.messages.accept(messages('m', 1)),
        ]);
        assert.deepEqual(
          results.map((result) => (result.status === 'fulfilled' ? 'done' : (result.reason as { code: string }).code)),
          ['done', 'instance_does_not_exist', 'done', 'invalid_fields', 'done'],
        );
        assert.equal(await store.deliveries.countPending(), 3);
      });
    }

    test('survive a defect in one of them, which undoes that message alone', async (t) => {
      const store = await engine.openThread(t);
      await meeting(store, 'm', 'i');
      const results = await Promise.allSettled([
        store.messages.accept(messages('m', 1)),
        // The second message cannot be stored. The first message of the same call is stored.
        store.messages.accept([newMessage('m'), newMessage('m', { expires_at: 'soon' as unknown as number })]),
        store.messages.accept(messages('m', 1)),
      ]);
      assert.deepEqual(
        results.map((result) =>
          result.status === 'fulfilled' ? result.value.map(({ kind }) => kind).join() : 'rejected',
        ),
        ['accepted', 'accepted,damaged', 'accepted'],
      );
      assert.deepEqual(
        (await lane(store, 'i', 'm')).map(({ seq }) => seq),
        [1, 2, 3],
      );
    });

    test('that wait when the store closes get results; later ones are refused', async (t) => {
      const store = await engine.openThread(t);
      await meeting(store, 'm', 'i');
      const accepted = store.messages.accept(messages('m', 5));
      const closed = store.close();
      assert.equal((await accepted).length, 5);
      await closed;
      await assert.rejects(store.messages.accept(messages('m', 1)), { name: 'StoreError', code: 'STORE_CLOSED' });
      await store.close();
    });
  });

  describe('pages', () => {
    test('of instances hold each once, in the order of their ids, while others arrive', async (t) => {
      const store = await engine.open(t);
      for (let k = 0; k < 25; k++) await register(store, `i${String(k).padStart(2, '0')}`);
      let read = 0;
      const found = await pages(async (cursor) => {
        if (read++ === 1) await register(store, 'i00_late');
        return store.instances.list({ limit: 10, cursor });
      });
      assert.deepEqual(
        found.map(({ length }) => length),
        [10, 10, 5],
      );
      const ids = found.flat().map(({ instance_id }) => instance_id);
      assert.deepEqual(ids, [...new Set(ids)].toSorted());
    });

    for (const [name, filter] of [
      ['all', {}],
      ['of an instance', { instance_id: 'i' }],
      ['of a meeting', { meeting_id: 'm' }],
      ['of messages of a meeting', { meeting_id: 'm', after_seq: 2, before_seq: 8 }],
      ['of a state', { state: 'pending' }],
      ['of an instance in a meeting', { instance_id: 'j', meeting_id: 'm' }],
    ] as const) {
      test(`of deliveries (${name}) hold each once, newest first, while others arrive`, async (t) => {
        const store = await engine.open(t);
        await meeting(store, 'm', 'i', 'j', 'k');
        await meeting(store, 'm2', 'i', 'k');
        for (let k = 0; k < 10; k++) await store.messages.accept([newMessage('m'), newMessage('m2')]);
        const expected = (await store.deliveries.list({ limit: 1_000, ...filter }, WALL)).data.map(
          (d) => d.delivery_id,
        );
        const found = await pages(async (cursor) => {
          const page = await store.deliveries.list({ limit: 7, cursor, ...filter }, WALL);
          await store.messages.accept([newMessage('m'), newMessage('m2')]);
          return page;
        });
        assert.ok(expected.length > 7);
        assert.deepEqual(
          found.flat().map(({ delivery_id }) => delivery_id),
          expected,
        );
        assert.deepEqual(expected, expected.toSorted().toReversed());
        const [after_seq, before_seq] = 'after_seq' in filter ? [filter.after_seq, filter.before_seq] : [0, Infinity];
        const between = (await store.deliveries.list({ limit: 1_000, ...filter }, WALL)).data;
        assert.ok(between.every(({ seq }) => seq > after_seq && seq < before_seq));
      });
    }

    test('of meetings and of their instances hold each once', async (t) => {
      const store = await engine.open(t);
      for (let k = 0; k < 12; k++) await meeting(store, `m${k}`, 'i', `j${k}`);
      for (let k = 0; k < 12; k++) await meeting(store, 'm0', `j${k}`);
      await store.meetings.leave('m0', 'j3', WALL);
      const meetings = (await pages((cursor) => store.meetings.list({ limit: 5, cursor }))).flat();
      assert.deepEqual(
        meetings.map(({ meeting_id }) => meeting_id),
        Array.from({ length: 12 }, (_, k) => `m${k}`).toSorted(),
      );
      const of_instance = async (instance_id: string, include_left: boolean) =>
        (await pages((cursor) => store.meetings.list({ limit: 1, cursor, instance_id, include_left })))
          .flat()
          .map(({ meeting_id }) => meeting_id);
      assert.deepEqual(await of_instance('j3', false), ['m3']);
      assert.deepEqual(await of_instance('j3', true), ['m0', 'm3']);
      assert.deepEqual(await of_instance('j4', false), ['m0', 'm4']);
      const seen = await store.meetings.list(
        { limit: 5, instance_id: 'j4' },
        { owner_scope: null, meeting_ids: ['m4', 'm5'] },
      );
      assert.deepEqual(
        seen.data.map(({ meeting_id }) => meeting_id),
        ['m4'],
      );
      const of_meeting = async (include_left: boolean) =>
        (
          await pages(async (cursor) => {
            const page = await store.meetings.instances('m0', { limit: 4, cursor, include_left });
            assert.ok(page !== null);
            return page;
          })
        )
          .flat()
          .map(({ instance_id }) => instance_id);
      assert.equal((await of_meeting(true)).length, 13);
      assert.deepEqual(
        await of_meeting(false),
        (await of_meeting(true)).filter((instance_id) => instance_id !== 'j3'),
      );
    });

    test('refuse a cursor that this service did not make', async (t) => {
      const store = await engine.open(t);
      for (const cursor of ['', 'x', 'W10', 'bnVsbA', Buffer.from('[1,2,3]').toString('base64url'), 'eyJhIjoxfQ']) {
        await assert.rejects(store.deliveries.list({ limit: 5, cursor }, WALL), { code: 'invalid_fields' }, cursor);
        await assert.rejects(store.instances.list({ limit: 5, cursor }), { code: 'invalid_fields' }, cursor);
      }
      // Values that no row has.
      for (const number of [1.5, 2 ** 53, -1e300])
        await assert.rejects(
          store.deliveries.list({ limit: 5, cursor: encodeCursor([number]) }, WALL),
          { code: 'invalid_fields' },
          String(number),
        );
      await assert.rejects(store.instances.list({ limit: 5, cursor: encodeCursor(['a\0b']) }), {
        code: 'invalid_fields',
      });
      await assert.rejects(store.api_keys.list({ limit: 5, cursor: encodeCursor([1, '\0']) }), {
        code: 'invalid_fields',
      });
    });
  });

  test('a part of an id or of a name is found exactly, in capital or small ASCII letters', async (t) => {
    const store = await engine.open(t);
    for (const id of ['Ab', 'x\uffff', 'y\ufffd', '50%', 'a_b', 'a\\b']) await meeting(store, id, id);
    const found = async (q: string): Promise<string[][]> => [
      (await store.meetings.list({ limit: 10, q })).data.map(({ meeting_id }) => meeting_id),
      (await store.instances.list({ limit: 10, q })).data.map(({ instance_id }) => instance_id),
    ];
    for (const [q, id] of [
      ['aB', 'Ab'],
      ['\uffff', 'x\uffff'],
      ['\ufffd', 'y\ufffd'],
      ['%', '50%'],
      ['_', 'a_b'],
      ['\\', 'a\\b'],
    ] as const)
      assert.deepEqual(await found(q), [[id], [id]], q);
    assert.deepEqual(await found('NAME OF A'), [[], ['Ab', 'a\\b', 'a_b']]);
  });

  test('an instance is listed as paused while one of its two switches is off', async (t) => {
    const store = await engine.open(t);
    for (const instance_id of ['active', 'inactive', 'disabled']) await register(store, instance_id);
    await store.instances.patch('inactive', { is_active: false }, WALL);
    await store.instances.patch('disabled', { webhook_enabled: false }, WALL);
    const listed = async (filter: object): Promise<string[]> =>
      (await store.instances.list({ limit: 10, ...filter })).data.map(({ instance_id }) => instance_id);
    assert.deepEqual(await listed({ paused: true }), ['disabled', 'inactive']);
    assert.deepEqual(await listed({ paused: false }), ['active']);
    assert.deepEqual(await listed({ paused: true, is_active: true }), ['disabled']);
    assert.deepEqual(await listed({ paused: false, health: 'unknown' }), ['active']);
  });

  test('the members of a meeting are looked up again after every change, however often they were asked for before', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'a', 'b');
    const received = async (): Promise<string[]> => {
      const [accepted] = await store.messages.accept([newMessage('m')]);
      assert.ok(accepted?.kind === 'accepted');
      return accepted.deliveries.map(({ instance_id, target_agents }) => `${instance_id} ${target_agents}`);
    };
    const [a, b] = ['a ["a"]', 'b ["a"]'];
    assert.deepEqual(await received(), [a, b]);
    await store.meetings.leave('m', 'a', WALL);
    assert.deepEqual(await received(), [b]);
    await store.meetings.join('m', 'a', ['x', 'y'], WALL);
    assert.deepEqual(await received(), ['a ["x","y"]', b]);
    await store.instances.patch('a', { is_active: false }, WALL);
    assert.deepEqual(await received(), [b]);
    await register(store, 'a');
    assert.deepEqual(await received(), ['a ["x","y"]', b]);
    await store.instances.patch('b', { webhook_enabled: false }, WALL);
    assert.deepEqual(await received(), ['a ["x","y"]']);
    await store.instances.patch('b', { webhook_enabled: true }, WALL + 7);
    const [row] = await store.instances.load(['b']);
    assert.ok(row !== undefined);
    assert.deepEqual(await received(), ['a ["x","y"]', b]);
    await store.deliveries.settle([], [{ ...row, gone_as_of: row.updated_at, epoch: 0 }]);
    assert.deepEqual(await received(), ['a ["x","y"]']);
    await store.instances.remove('a', 1000, WALL);
    assert.deepEqual(await received(), []);
    await register(store, 'b');
    await Promise.allSettled([
      store.meetings.join('m', 'b', ['z'], WALL),
      store.meetings.join('m', 'nobody', [], WALL),
    ]);
    assert.deepEqual(await received(), ['b ["z"]']);
  });

  describe('what is removed', () => {
    test('is what was settled long enough ago, in small steps, and never what is pending', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i', 'j');
      await store.messages.accept(messages('m', 100));
      const old = await lane(store, 'i', 'm');
      const late = await lane(store, 'j', 'm');
      await store.deliveries.settle(
        [
          ...old.slice(0, 60).map((d) => settled(d, { settled_at: WALL })),
          ...late.slice(0, 50).map((d) => settled(d, { state: 'failed', reason: 'not_200', settled_at: WALL + 10 })),
        ],
        [],
      );
      const before = { deliveries_ms: WALL + 5, messages_ms: WALL + 5, idempotency_ms: WALL, future_ms: Infinity };
      const steps: number[] = [];
      for (let removed = 1; removed > 0;) {
        removed = await prune(store, before, 25);
        steps.push(removed);
      }
      assert.deepEqual(steps, [25, 25, 10, 0]);
      const left = (await store.deliveries.list({ limit: 1_000 }, WALL)).data;
      assert.equal(left.length, 140);
      assert.equal(left.filter(({ state }) => state === 'pending').length, 90);
      assert.equal(left.filter(({ state }) => state === 'delivered').length, 0);
      assert.equal(await store.deliveries.countPending(), 90);
    });

    test('ends where it has taken too long, after a few rows of each kind, where others wait for the writer', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i', 'j');
      const keyed = messages('m', 200).map((message, i) => ({
        ...message,
        idempotency: { key: `k${i}`, sender: '', fingerprint: 'f' },
      }));
      await store.messages.accept(keyed);
      await store.messages.accept(messages('nobody', 200));
      for (const instance_id of ['i', 'j']) {
        const of_lane = await lane(store, instance_id, 'm');
        await store.deliveries.settle(
          of_lane.map((d) => settled(d, { settled_at: WALL })),
          [],
        );
      }
      const before = { deliveries_ms: WALL + 5, messages_ms: NEVER, idempotency_ms: WALL + 5, future_ms: Infinity };
      const { removed } = await store.deliveries.prune(before, 500, 0, null);
      const all = 400 + 400 + 200;
      assert.equal(removed, engine.name === 'SQLite' ? 3 * 25 : all);
      assert.equal(await prune(store, before, 500), all - removed);
    });

    test('is also what lies behind more pending deliveries than a step checks, whose messages stay', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'away', 'i');
      await meeting(store, 'm', 'j');
      for (let stored = 0; stored <= PRUNE_WINDOW; stored += 500) await store.messages.accept(messages('away', 500));
      await store.messages.accept([...messages('m', 3), newMessage('away'), newMessage('nobody')]);
      const [first, second] = await lane(store, 'j', 'm');
      await store.deliveries.settle([settled(first!), settled(second!)], []);
      const pending = await store.deliveries.countPending();
      const before = { deliveries_ms: NEVER, messages_ms: NEVER, idempotency_ms: 0, future_ms: Infinity };
      assert.equal(await prune(store, before), 0, 'control: the first step checks only what must stay');
      assert.equal(await prunedInSteps(store, before), 2 + 3);
      assert.equal(await store.deliveries.countPending(), pending);
      assert.equal((await store.messages.list('m', { limit: 10, chars_max: 1e9 }))?.data.length, 1);
      // The rows behind are too young, so the first step is the last one.
      const young = { deliveries_ms: WALL, messages_ms: WALL, idempotency_ms: 0, future_ms: Infinity };
      assert.deepEqual(await store.deliveries.prune(young, 500, 0, null), { removed: 0, next: null });
    });

    test('is also what lies behind more rows than a step checks that a wrong clock dated ahead', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      await meeting(store, 'n', 'j');
      const ahead = Array.from({ length: 500 }, () => newMessage('m', { wall_ms: WALL + 100 }));
      for (let stored = 0; stored <= PRUNE_WINDOW; stored += 500) await store.messages.accept(ahead);
      await store.messages.accept([...messages('n', 3), newMessage('nobody')]);
      const old = await lane(store, 'j', 'n');
      await store.deliveries.settle(
        old.map((d) => settled(d, { settled_at: WALL })),
        [],
      );
      const times = { deliveries_ms: WALL + 1, messages_ms: WALL + 1, idempotency_ms: 0 };
      const pruneAll = (future_ms: number) => prunedInSteps(store, { ...times, future_ms });
      assert.equal(
        await pruneAll(WALL + 100),
        0,
        'control: rows of the present are young, and nothing old follows them',
      );
      assert.equal(await pruneAll(WALL + 99), 3 + 3 + 1);
    });

    test('is also an old idempotency key behind more keys than a step checks that a wrong clock dated ahead', async (t) => {
      const store = await engine.open(t);
      const keyed = (key: string, wall_ms: number) =>
        newMessage('m', { wall_ms, idempotency: { key, sender: '', fingerprint: 'f' } });
      for (let stored = 0; stored <= PRUNE_WINDOW; stored += 500) {
        await store.messages.accept(Array.from({ length: 500 }, (_, i) => keyed(`${stored + i}`, WALL + 100)));
      }
      await store.messages.accept([keyed('old', WALL), keyed('older', WALL - 1)]);
      const times = { deliveries_ms: 0, messages_ms: 0, idempotency_ms: WALL + 1, future_ms: WALL + 99 };
      assert.equal(await prunedInSteps(store, times), 2);
      assert.equal(await prunedInSteps(store, { ...times, idempotency_ms: WALL + 101 }), PRUNE_WINDOW + 500);
    });

    test('a message is kept as long as one of its deliveries is there, however old it is', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      await store.messages.accept(messages('m', 10));
      await store.messages.accept(messages('nobody', 10));
      const queued = await lane(store, 'i', 'm');
      await store.deliveries.settle(
        queued.slice(0, 4).map((d) => settled(d)),
        [],
      );
      const before = { deliveries_ms: WALL - 1, messages_ms: NEVER, idempotency_ms: 0, future_ms: Infinity };
      assert.equal(await prune(store, before, 500), 10);
      assert.equal((await store.messages.list('m', { limit: 100, chars_max: 1e9 }))?.data.length, 10);
      assert.equal(await prune(store, { ...before, deliveries_ms: WALL + 1 }, 500), 4 + 4);
      assert.equal(await prune(store, { ...before, deliveries_ms: NEVER }, 500), 0);
      assert.deepEqual(
        (await store.messages.list('m', { limit: 100, chars_max: 1e9 }))?.data.map(({ seq }) => seq),
        [5, 6, 7, 8, 9, 10],
      );
      assert.equal((await lane(store, 'i', 'm')).length, 6);
    });

    test('a meeting whose messages are all gone continues with the next seq, and remembers the time of the last one', async (t) => {
      const store = await engine.open(t);
      const came = async () => {
        const [m] = (await store.meetings.list({ limit: 1 })).data;
        return [m?.last_seq, m?.last_activity_at];
      };
      const wall_ms = WALL + 7;
      await store.messages.accept([newMessage('m'), newMessage('m'), newMessage('m', { wall_ms })]);
      const before = { deliveries_ms: 0, messages_ms: WALL + 1, idempotency_ms: 0, future_ms: Infinity };
      assert.equal(await prune(store, before, 500), 2);
      assert.deepEqual(await came(), [3, wall_ms]);
      assert.equal(await prune(store, { ...before, messages_ms: NEVER }, 500), 1);
      assert.deepEqual(await came(), [3, wall_ms]);
      const [next] = await store.messages.accept([newMessage('m')]);
      assert.equal(next?.kind === 'accepted' && next.message.seq, 4);
      assert.deepEqual(await came(), [4, WALL]);
      await meeting(store, 'm', 'i');
      await store.meetings.leave('i', 'm', WALL);
      await store.meetings.leave('m', 'i', WALL + 9);
      assert.deepEqual(await came(), [4, WALL + 9]);
    });

    test("an idempotency key is its sender's own, in one batch and from one to the next", async (t) => {
      const store = await engine.open(t);
      const by = (sender: string, fingerprint: string, wall_ms = WALL) =>
        newMessage('m', { idempotency: { key: 'k', sender, fingerprint }, wall_ms });
      const originOf = async (batch: NewMessage[]) =>
        (await store.messages.accept(batch)).map((result) =>
          'message' in result ? `${result.kind} ${result.message.seq}` : result.kind,
        );
      assert.deepEqual(await originOf([by('one', 'f'), by('two', 'g'), by('one', 'f'), by('two', 'f')]), [
        'accepted 1',
        'accepted 2',
        'repeated 1',
        'key_reused',
      ]);
      assert.deepEqual(await originOf([by('two', 'g'), by('', 'f'), by('one', 'f')]), [
        'repeated 2',
        'accepted 3',
        'repeated 1',
      ]);
      assert.deepEqual(await originOf([by('', 'f')]), ['repeated 3']);
      // At this time the earlier keys have expired, so `one` can use its key for another message.
      const later = WALL + IDEMPOTENCY_MS;
      assert.deepEqual(await originOf([by('three', 'h', later), by('one', 'x', later), by('three', 'h', later)]), [
        'accepted 4',
        'accepted 5',
        'repeated 4',
      ]);
    });

    test('idempotency records go after their day', async (t) => {
      const store = await engine.open(t);
      const idempotency = { key: 'k', sender: '', fingerprint: 'f' };
      await store.messages.accept([newMessage('m', { idempotency })]);
      const before = { deliveries_ms: 0, messages_ms: 0, idempotency_ms: WALL, future_ms: Infinity };
      assert.equal(await prune(store, before, 500), 0);
      assert.equal(await prune(store, { ...before, idempotency_ms: WALL + 1 }, 500), 1);
    });
  });

  describe('counts and lists of what waits', () => {
    test('pending deliveries are counted the same everywhere, in lanes and aside', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i', 'j');
      await meeting(store, 'm2', 'i');
      await store.messages.accept([...messages('m', 5), ...messages('m2', 3)]);
      const [first, second, third] = await lane(store, 'i', 'm');
      assert.ok(first !== undefined && second !== undefined && third !== undefined);
      await store.deliveries.settle(
        [
          settled(first),
          settled(second, { state: 'pending', aside: true, next_attempt_at: WALL + 1, settled_at: null }),
          settled(third, { state: 'failed', reason: 'not_200' }),
        ],
        [],
      );
      assert.equal(await store.deliveries.countPending(), 5 + 3 + 3);
      assert.equal((await store.instances.get('i'))?.pending_deliveries, 6);
      assert.equal((await store.instances.get('j'))?.pending_deliveries, 5);
      assert.deepEqual(
        (await store.instances.list({ limit: 10 })).data.map(({ pending_deliveries }) => pending_deliveries),
        [6, 5],
      );
      assert.deepEqual(
        (await store.meetings.list({ limit: 10 })).data.map((m) => [
          m.meeting_id,
          m.last_seq,
          m.instance_count,
          m.agent_count,
          m.pending_deliveries,
        ]),
        [
          ['m', 5, 2, 2, 8],
          ['m2', 3, 1, 1, 3],
        ],
      );
    });

    test('a count of what a drop would cancel ends at the given number, in lanes and aside', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i', 'j');
      const stored = await store.messages.accept(messages('m', 4));
      const [first, second] = await lane(store, 'i', 'm');
      const aside = { state: 'pending', aside: true, next_attempt_at: WALL + 1, settled_at: null } as const;
      await store.deliveries.settle([settled(first!, aside), settled(second!, aside)], []);
      const third = stored[2]!;
      assert.ok(third.kind === 'accepted');
      const up_to = third.message.message_id;
      const of_i = { instance_id: 'i', up_to };
      for (const [waiting, all] of [
        [{ meeting_id: 'm', up_to }, 6],
        [of_i, 3],
        [{ ...of_i, meeting_id: 'm' }, 3],
      ] as const) {
        const counts = [];
        for (let most = 0; most < 9; most++) counts.push(await store.deliveries.countWaiting(waiting, most));
        assert.deepEqual(
          counts,
          counts.map((_, most) => Math.min(most, all)),
        );
      }
    });

    test('the oldest pending delivery is the one that was made first, also when the clock was set back since', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      const seen = { owner_scope: null, meeting_ids: ['m'] };
      const oldest = async () => [await store.deliveries.oldestPending(), await store.deliveries.oldestPending(seen)];
      assert.deepEqual(await oldest(), [null, null]);
      await store.messages.accept([newMessage('m', { wall_ms: WALL + 1_000 })]);
      await store.messages.accept([newMessage('m')]);
      assert.deepEqual(await oldest(), [WALL + 1_000, WALL + 1_000]);
      await store.deliveries.settle([settled((await lane(store, 'i', 'm'))[0]!)], []);
      assert.deepEqual(await oldest(), [WALL, WALL]);
    });

    test('waiting_for says switched_off before paused before back_off before retry before turn, and nothing once settled', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      await store.messages.accept(messages('m', 3));
      const [first, second] = await lane(store, 'i', 'm');
      assert.ok(first !== undefined && second !== undefined);
      await store.deliveries.settle(
        [settled(first), settled(second, { state: 'pending', next_attempt_at: WALL + 10, settled_at: null })],
        [],
      );
      const waiting = async () =>
        (await store.deliveries.list({ limit: 10 }, WALL)).data.map(({ waiting_for }) => waiting_for).toReversed();
      assert.deepEqual(await waiting(), [null, 'retry', 'turn']);
      const health = {
        instance_id: 'i',
        webhook_url: 'http://i.test/',
        consecutive_failures: 1,
        health_since: WALL,
        last_success_at: null,
        last_failure: null,
        backoff_step: 1,
        backoff_until: WALL + 1,
        gone_as_of: null,
        epoch: 0,
      };
      await store.deliveries.settle([], [health]);
      assert.deepEqual(await waiting(), [null, 'back_off', 'back_off']);
      await store.meetings.patch('m', { paused: true }, WALL);
      assert.deepEqual(await waiting(), [null, 'paused', 'paused']);
      await store.deliveries.settle([], [{ ...health, backoff_until: WALL }]);
      assert.deepEqual(await waiting(), [null, 'paused', 'paused']);
      await store.meetings.patch('m', { paused: false }, WALL);
      assert.deepEqual(await waiting(), [null, 'retry', 'turn']);
      await store.meetings.patch('m', { paused: true }, WALL);
      await store.instances.patch('i', { webhook_enabled: false }, WALL);
      assert.deepEqual(await waiting(), [null, 'switched_off', 'switched_off']);
      await store.meetings.patch('m', { paused: false }, WALL);
      await store.instances.patch('i', { webhook_enabled: true, is_active: false }, WALL);
      assert.deepEqual(await waiting(), [null, 'switched_off', 'switched_off']);
    });
  });

  describe('a settlement', () => {
    test('changes only what is still pending', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      await store.messages.accept(messages('m', 2));
      const [first, second] = await lane(store, 'i', 'm');
      assert.ok(first !== undefined && second !== undefined);
      await store.deliveries.settle([settled(first)], []);
      await store.deliveries.settle([settled(first, { state: 'failed', reason: 'exhausted' })], []);
      await store.instances.remove('i', 100, WALL);
      await store.deliveries.settle([settled(second)], []);
      assert.deepEqual(
        (await store.deliveries.list({ limit: 10 }, WALL)).data
          .map(({ state, reason }) => [state, reason])
          .toReversed(),
        [
          ['delivered', null],
          ['cancelled', 'instance_deleted'],
        ],
      );
    });

    test('says nothing about a delivery that was queued again by hand meanwhile', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      await store.messages.accept(messages('m', 1));
      const [delivery] = await lane(store, 'i', 'm');
      assert.ok(delivery !== undefined);
      await store.deliveries.settle([settled(delivery, { state: 'failed', reason: 'expired' })], []);
      await store.deliveries.retry(delivery.delivery_id, WALL, NEVER + 1);
      await store.deliveries.settle([settled(delivery, { state: 'failed', reason: 'expired' })], []);
      assert.equal((await store.deliveries.get(delivery.delivery_id, WALL))?.state, 'pending');
      const { deliveries } = await store.deliveries.loadAside('i', WALL, 10);
      assert.equal(deliveries.length, 1);
    });

    test('of health belongs to the URL, and a 410 to the registration that it answered', async (t) => {
      const store = await engine.open(t);
      const { instance } = await register(store, 'i');
      const health = {
        instance_id: 'i',
        webhook_url: instance.webhook_url,
        consecutive_failures: 3,
        health_since: WALL,
        last_success_at: null,
        last_failure: null,
        backoff_step: 1,
        backoff_until: NEVER,
        gone_as_of: instance.updated_at,
        epoch: 0,
      };
      await store.deliveries.settle([], [{ ...health, webhook_url: 'http://former.test/', gone_as_of: WALL - 1 }]);
      const unchanged = await store.instances.get('i');
      assert.deepEqual([unchanged?.consecutive_failures, unchanged?.webhook_enabled], [0, true]);
      await store.deliveries.settle([], [health]);
      const changed = await store.instances.get('i');
      assert.deepEqual([changed?.consecutive_failures, changed?.webhook_enabled], [3, false]);
      await register(store, 'i', WALL + 1);
      await store.deliveries.settle([], [health]);
      assert.equal((await store.instances.get('i'))?.webhook_enabled, true);
    });
  });

  describe('what is read back', () => {
    test('lanes in the order of seq after a seq, without what is aside', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      await meeting(store, 'm2', 'i');
      await store.messages.accept([...messages('m', 5), ...messages('m2', 2)]);
      const third = (await lane(store, 'i', 'm'))[2];
      assert.ok(third !== undefined);
      await store.deliveries.settle(
        [settled(third, { state: 'pending', aside: true, next_attempt_at: WALL, settled_at: null })],
        [],
      );
      const [after_one, other, nobody] = await store.deliveries.loadLanes([
        { instance_id: 'i', meeting_id: 'm', after_seq: 1, limit: 2 },
        { instance_id: 'i', meeting_id: 'm2', after_seq: 0, limit: 9 },
        { instance_id: 'x', meeting_id: 'm', after_seq: 0, limit: 9 },
      ]);
      assert.deepEqual(
        [after_one, other, nobody].map((rows) => rows?.map(({ seq }) => seq)),
        [[2, 4], [1, 2], []],
      );
    });

    test('lanes with something pending, each once, page by page, whatever their ids look like', async (t) => {
      const store = await engine.open(t);
      const ids = ['A', 'a', 'é', 'z', '\u{1F600}', ' ', '0'];
      for (const instance_id of ids) for (const meeting_id of ids) await meeting(store, meeting_id, instance_id);
      await store.messages.accept(ids.flatMap((meeting_id) => messages(meeting_id, 2)));
      const keys: string[] = [];
      let after = null;
      for (;;) {
        const page: { instance_id: string; meeting_id: string }[] = await store.deliveries.pendingLanes(after, 5);
        keys.push(...page.map(({ instance_id, meeting_id }) => `${instance_id}/${meeting_id}`));
        after = page.at(-1) ?? null;
        if (page.length < 5) break;
      }
      assert.equal(keys.length, 49);
      assert.equal(new Set(keys).size, 49);
    });

    test('instances with something aside, each once with its first due time, page by page', async (t) => {
      const store = await engine.open(t);
      const of_partition = Array.from({ length: 500 }, (_, k) => `i${k}`).filter((id) => partitionOf(id) === 3);
      const ids = ['A', 'é', '\u{1F600}', ' ', ...of_partition.slice(0, 4)];
      for (const instance_id of ids) for (const meeting_id of ['m', 'n']) await meeting(store, meeting_id, instance_id);
      await meeting(store, 'm', 'nothing aside');
      await store.messages.accept([...messages('m', 3), ...messages('n', 3)]);
      for (const [k, instance_id] of ids.entries()) {
        const rows = [...(await lane(store, instance_id, 'n')), ...(await lane(store, instance_id, 'm'))];
        const due = (i: number) => ({ next_attempt_at: WALL + 10 * k + ((i + 4) % 6), settled_at: null });
        await store.deliveries.settle(
          rows.map((row, i) => settled(row, { state: 'pending', aside: true, ...due(i) })),
          [],
        );
      }
      const expected = ids.map((instance_id, k) => ({ instance_id, next_at: WALL + 10 * k }));
      const partitions = [...new Set(ids.slice(2).map(partitionOf))];
      const read = async (limit: number, only?: number[]): Promise<PendingAside[]> => {
        const found: PendingAside[] = [];
        for (;;) {
          const page = await store.deliveries.pendingAside(found.at(-1)?.instance_id ?? null, limit, only);
          assert.ok(page.length <= limit);
          found.push(...page);
          assert.ok(found.length <= ids.length, 'none is found twice');
          if (page.length < limit) return found.toSorted((a, b) => a.next_at - b.next_at);
        }
      };
      for (const limit of [1, 3, 8, 100]) assert.deepEqual(await read(limit), expected);
      if (engine.name === 'SQLite') return;
      const in_partitions = expected.filter(({ instance_id }) => partitions.includes(partitionOf(instance_id)));
      for (const limit of [1, 3, 100]) assert.deepEqual(await read(limit, partitions), in_partitions);
    });

    test('messages byte for byte, and forwards and backwards', async (t) => {
      const store = await engine.openThread(t);
      const texts = ['{"a":1e400,"b":12345678901234567890}', '{"t":"\\u0000\\ud800"}', '{ "z":1, "a":2 }'];
      await store.messages.accept(texts.map((text) => newMessage('m', { message: text })));
      const all = await store.messages.list('m', { limit: 10, chars_max: 1e9 });
      assert.deepEqual(
        all?.data.map(({ message }) => Buffer.from(message).toString()),
        texts,
      );
      const seqs = async (filter: { after_seq?: number; before_seq?: number; limit: number; chars_max: number }) => {
        const page = await store.messages.list('m', filter);
        return [page?.data.map(({ seq }) => seq), page?.has_more];
      };
      assert.deepEqual(await seqs({ limit: 2, chars_max: 1e9 }), [[2, 3], true]);
      assert.deepEqual(await seqs({ after_seq: 1, limit: 2, chars_max: 1e9 }), [[2, 3], false]);
      assert.deepEqual(await seqs({ before_seq: 3, limit: 9, chars_max: 1e9 }), [[1, 2], false]);
      assert.deepEqual(await seqs({ after_seq: 0, limit: 9, chars_max: 1 }), [[1], true]);
      assert.equal(await store.messages.list('nowhere', { limit: 9, chars_max: 1 }), null);
    });
  });

  describe('what expires', () => {
    test('is what is pending and due, lane by lane in steps, and aside', async (t) => {
      const store = await engine.open(t);
      for (const k of [1, 2, 3]) await meeting(store, `m${k}`, 'i');
      for (const k of [1, 2, 3]) {
        await store.messages.accept([...messages(`m${k}`, 3, { expires_at: WALL }), ...messages(`m${k}`, 2)]);
      }
      const beside = (await lane(store, 'i', 'm2'))[0];
      assert.ok(beside !== undefined);
      await store.deliveries.settle(
        [settled(beside, { state: 'pending', aside: true, next_attempt_at: NEVER, settled_at: null })],
        [],
      );
      assert.deepEqual(await store.deliveries.expireLanes(null, 2, WALL - 1, WALL), {
        expired: [],
        next: { instance_id: 'i', meeting_id: 'm2', seq: null },
      });
      const first = await store.deliveries.expireLanes(null, 2, WALL, WALL);
      const inLane = (meeting_id: string, count: number) => ({ instance_id: 'i', meeting_id, count });
      assert.deepEqual(first, {
        expired: [inLane('m1', 3), inLane('m2', 2)],
        next: { instance_id: 'i', meeting_id: 'm2', seq: null },
      });
      const second = await store.deliveries.expireLanes(first.next, 2, WALL, WALL);
      assert.deepEqual(second, { expired: [inLane('m3', 3)], next: null });
      assert.deepEqual(await store.deliveries.expireAside(null, WALL - 1, WALL), { expired: [], next: null });
      assert.deepEqual(await store.deliveries.expireAside(null, WALL, WALL), {
        expired: [inLane('m2', 1)],
        next: null,
      });
      assert.equal(await store.deliveries.countPending(), 6);
      const failed = (await store.deliveries.list({ limit: 99, state: 'failed' }, WALL)).data;
      assert.ok(failed.every(({ reason, settled_at }) => reason === 'expired' && settled_at === WALL));
    });

    test('is later for messages up to the one after which the clock jumped', async (t) => {
      const store = await engine.open(t);
      const dying = async (...meeting_ids: string[]) => {
        for (const meeting_id of meeting_ids) {
          await meeting(store, meeting_id, 'i');
          await store.messages.accept(messages(meeting_id, 1, { expires_at: WALL }));
        }
        return { held_ms: 10, held_since: WALL, held_up_to: await store.messages.last() };
      };
      const hold = await dying('m1', 'm2');
      await dying('m2', 'm3');
      const expire = async (now_ms: number) => {
        const { expired } = await store.deliveries.expireLanes(null, 9, now_ms, WALL, hold);
        return expired.map(({ meeting_id, count }) => `${meeting_id}: ${count}`);
      };
      // In m2 the later delivery waits behind the earlier one.
      assert.deepEqual(await expire(WALL + 9), ['m3: 1']);
      assert.deepEqual(await expire(WALL + 10), ['m1: 1', 'm2: 2']);

      const hold_beside = await dying('m1');
      await dying('m1');
      const aside = { state: 'pending', aside: true, next_attempt_at: WALL, settled_at: null } as const;
      const rows = (await lane(store, 'i', 'm1')).map((row) => settled(row, aside));
      await store.deliveries.settle(rows, []);
      const expireBeside = async (now_ms: number) => {
        const { expired } = await store.deliveries.expireAside(null, now_ms, WALL, hold_beside);
        const left = (await store.deliveries.loadAside('i', WALL, 9)).deliveries;
        return [expired[0]?.count, left.map(({ delivery_id }) => delivery_id)];
      };
      assert.deepEqual(await expireBeside(WALL + 9), [1, [rows[0]?.delivery_id]]);
      assert.deepEqual(await expireBeside(WALL + 10), [1, []]);
    });

    test('is judged at a start by what was noted last', async (t) => {
      const store = await engine.open(t);
      assert.equal(await store.deliveries.timeNoted(), null);
      const hold = { held_ms: 5, held_since: WALL, held_up_to: 'msg_1' };
      for (const note of [
        { ran_until: WALL, ...hold },
        { ran_until: WALL + 1, ...NO_HOLD },
      ]) {
        await store.deliveries.noteTime(note);
        assert.deepEqual({ ...(await store.deliveries.timeNoted()) }, note);
      }
    });

    test('ends in one round in every lane, however many a lane has; each step fails some of them', async (t) => {
      const store = await engine.open(t);
      const counts = { m1: 2_500, m2: 3, m3: 1_200 };
      for (const [meeting_id, count] of Object.entries(counts)) {
        await meeting(store, meeting_id, 'i');
        await store.messages.accept([
          ...messages(meeting_id, count, { expires_at: WALL }),
          ...messages(meeting_id, 2),
          ...messages(meeting_id, 1, { expires_at: WALL }),
        ]);
      }
      const ended = new Map<string, number>();
      let next: ExpiryPlace | null = null;
      do {
        const step: Awaited<ReturnType<DeliveryStore['expireLanes']>> = await store.deliveries.expireLanes(
          next,
          2,
          WALL,
          WALL,
        );
        for (const { meeting_id, count } of step.expired) ended.set(meeting_id, (ended.get(meeting_id) ?? 0) + count);
        const in_step = step.expired.reduce((sum, { count }) => sum + count, 0);
        assert.ok(in_step <= 1_000, `${in_step} in a step`);
        next = step.next;
      } while (next !== null);
      assert.deepEqual(Object.fromEntries(ended), counts);
      assert.equal(await store.deliveries.countPending(), 9);
    });

    test('aside ends in one round, in steps of some deliveries, whether they have expired or not', async (t) => {
      const store = await engine.open(t);
      for (const instance_id of ['i', 'j']) await meeting(store, 'm', instance_id);
      const asides: DeliverySettlement[] = [];
      for (let k = 0; k < 13; k++) {
        await store.messages.accept(messages('m', 100, { expires_at: k % 3 === 0 ? WALL : NEVER }));
        for (const instance_id of ['i', 'j']) {
          // Many are due at the same time.
          const rows = (await lane(store, instance_id, 'm')).map((row, n) =>
            settled(row, { state: 'pending', aside: true, next_attempt_at: WALL + (n % 3), settled_at: null }),
          );
          await store.deliveries.settle(rows, []);
          asides.push(...rows);
        }
      }
      assert.equal(asides.length, 2_600);
      const ended = new Map<string, number>();
      let next: AsidePlace | null = null;
      let steps = 0;
      do {
        const step: Awaited<ReturnType<DeliveryStore['expireAside']>> = await store.deliveries.expireAside(
          next,
          WALL,
          WALL,
        );
        for (const { instance_id, count } of step.expired)
          ended.set(instance_id, (ended.get(instance_id) ?? 0) + count);
        next = step.next;
        steps++;
      } while (next !== null);
      assert.equal(steps, 3);
      assert.deepEqual(Object.fromEntries(ended), { i: 500, j: 500 });
      assert.equal(await store.deliveries.countPending(), 1_600);
    });
  });

  test('due times aside that are too late are set in steps, until a step finds none', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'i');
    await store.messages.accept(messages('m', 25));
    const aside = { state: 'pending', aside: true, settled_at: null } as const;
    const rows = await lane(store, 'i', 'm');
    await store.deliveries.settle(
      rows.map((row, k) => settled(row, { ...aside, next_attempt_at: k < 3 ? WALL : NEVER })),
      [],
    );
    const changed: number[] = [];
    do changed.push(await store.deliveries.boundAside(WALL + 1, 10));
    while (changed.at(-1) !== 0);
    assert.deepEqual(changed, [10, 10, 2, 0]);
    assert.equal((await store.deliveries.loadAside('i', WALL, 99)).deliveries.length, 3);
    assert.equal((await store.deliveries.loadAside('i', WALL + 1, 99)).deliveries.length, 25);
  });

  test('a read of deliveries aside passes those of paused meetings in bounded steps, and then finds the others', async (t) => {
    const store = await engine.open(t);
    for (const meeting_id of ['paused', 'm']) await meeting(store, meeting_id, 'i');
    const putAside = async (meeting_id: string, count: number, next_attempt_at: number) => {
      await store.messages.accept(messages(meeting_id, count));
      const aside = { state: 'pending', aside: true, settled_at: null, next_attempt_at } as const;
      for (let rows = await lane(store, 'i', meeting_id); rows.length > 0; rows = await lane(store, 'i', meeting_id))
        await store.deliveries.settle(
          rows.map((row) => settled(row, aside)),
          [],
        );
    };
    // Many are due at the same time, and others at other times.
    await putAside('paused', 4_000, WALL);
    await putAside('paused', 1_500, WALL + 1);
    await putAside('m', 3, WALL + 2);
    await putAside('paused', 2_500, WALL + 3);
    await putAside('m', 2, WALL + 9);
    await store.meetings.patch('paused', { paused: true }, WALL);
    const first = await store.deliveries.loadAside('i', WALL + 5, 2);
    assert.deepEqual([first.deliveries, first.next_at], [[], null]);
    const second = await store.deliveries.loadAside('i', WALL + 5, 2, first.next);
    assert.deepEqual([second.deliveries, second.next_at], [[], null]);
    const third = await store.deliveries.loadAside('i', WALL + 5, 2, second.next);
    assert.deepEqual(
      [third.deliveries.map(({ meeting_id, seq }) => `${meeting_id} ${seq}`), third.next_at, third.next],
      [['m 1', 'm 2'], WALL + 2, null],
    );
    await store.deliveries.settle(
      third.deliveries.map((row) => settled(row)),
      [],
    );
    // The page is not full, and the read ended before it found the next one. So the caller reads again soon.
    const fourth = await store.deliveries.loadAside('i', WALL + 5, 2, second.next);
    assert.deepEqual([fourth.deliveries.map(({ seq }) => seq), fourth.next_at, fourth.next], [[3], WALL + 3, null]);
    await store.deliveries.settle(
      fourth.deliveries.map((row) => settled(row)),
      [],
    );
    let { next, next_at } = await store.deliveries.loadAside('i', WALL + 5, 2);
    for (let reads = 2; next !== null; reads++) {
      assert.ok(reads <= 5, `${reads} reads`);
      ({ next, next_at } = await store.deliveries.loadAside('i', WALL + 5, 2, next));
    }
    assert.equal(next_at, WALL + 9);
  });

  describe('an attempt that was in flight when its delivery expired', () => {
    const ended = async (change: Partial<DeliverySettlement>, t: TestContext, expires_at = WALL) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      await store.messages.accept(messages('m', 1, { expires_at }));
      const [delivery] = await lane(store, 'i', 'm');
      assert.ok(delivery !== undefined);
      await store.deliveries.expireLanes(null, 9, WALL, WALL);
      const attempt = { attempt: 1, started_at: new Date(WALL).toISOString(), duration_ms: 5, outcome: 'ok' as const };
      const attempts = attemptsText([{ ...attempt, status_code: 200, detail: '', response_excerpt: '' }]);
      await store.deliveries.settle([settled(delivery, { attempts, settled_at: WALL + 9, ...change })], []);
      const { data } = await store.deliveries.list({ limit: 9 }, WALL);
      return { store, delivery, row: data[0] };
    };
    const shown = (row: DeliveryRow | undefined) => [row?.state, row?.reason, row?.attempts.length, row?.settled_at];

    test('counts: a delivery that the receiver took is delivered', async (t) => {
      const { store, row } = await ended({}, t);
      assert.deepEqual(shown(row), ['delivered', null, 1, WALL + 9]);
      const all = { instance_id: 'i', since_ms: 0, until_ms: NEVER };
      assert.equal(await store.deliveries.countRecoverable(all, 9), 0);
    });

    test('is not recovered when the delivery was cancelled just afterwards', async (t) => {
      const { store } = await ended({ state: 'cancelled', reason: 'superseded' }, t);
      const all = { instance_id: 'i', since_ms: 0, until_ms: NEVER };
      assert.equal(await store.deliveries.countRecoverable(all, 9), 0);
    });

    test('counts: one that the receiver refused keeps that reason', async (t) => {
      const { row } = await ended({ state: 'failed', reason: 'not_200' }, t);
      assert.deepEqual(shown(row), ['failed', 'not_200', 1, WALL + 9]);
    });

    test('does not make the delivery pending again, and is kept', async (t) => {
      const { store, row } = await ended({ state: 'pending', next_attempt_at: WALL + 99, settled_at: null }, t);
      assert.deepEqual(shown(row), ['failed', 'expired', 1, WALL]);
      assert.deepEqual(await lane(store, 'i', 'm'), []);
    });

    test('changes nothing once the delivery was queued again', async (t) => {
      const { store, delivery } = await ended({ state: 'pending', settled_at: null }, t);
      await store.deliveries.retry(delivery.delivery_id, WALL, NEVER);
      await store.deliveries.settle([settled(delivery)], []);
      assert.deepEqual(
        (await store.deliveries.list({ limit: 9 }, WALL)).data.map(({ state }) => state),
        ['pending'],
      );
    });
  });

  describe('a deletion', () => {
    test('of an instance whose lease has ended leaves one that was renewed meanwhile', async (t) => {
      const store = await engine.open(t);
      await register(store, 'i', WALL, { lease_until: WALL + 10 });
      assert.deepEqual(await store.instances.endedLeases(WALL + 10, 9), ['i']);
      await register(store, 'i', WALL, { lease_until: WALL + 20 });
      const late = await store.instances.remove('i', 9, WALL + 10, null, WALL + 10);
      assert.deepEqual([late.existed, (await store.instances.get('i'))?.lease_until], [false, WALL + 20]);
      const ended = await store.instances.remove('i', 9, WALL + 20, null, WALL + 20);
      assert.deepEqual([ended.existed, await store.instances.get('i')], [true, null]);
    });

    test('cancels in steps, leaves the others alone, and is done when it says so', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i', 'j');
      await store.messages.accept(messages('m', 10));
      const steps = [];
      do steps.push(await store.instances.remove('i', 4, WALL));
      while (steps.at(-1)?.done === false);
      assert.deepEqual(
        steps.map(({ cancelled, done }) => [cancelled, done]),
        [
          [4, false],
          [4, false],
          [2, true],
        ],
      );
      assert.equal(await store.instances.get('i'), null);
      assert.equal((await store.instances.get('j'))?.pending_deliveries, 10);
      assert.deepEqual(await store.instances.remove('i', 4, WALL), { existed: false, done: true, cancelled: 0 });
      const [sent] = await store.messages.accept(messages('m', 1));
      assert.equal(sent?.kind === 'accepted' && sent.deliveries.length, 1);
    });
  });

  describe('sessions', () => {
    const session = (n: number, more: Partial<Session> = {}): Session => ({
      digest: `digest-${n}`,
      csrf_digest: `csrf-${n}`,
      key_id: 'key',
      token_digest: 'token',
      node_id: null,
      created_at: WALL + n,
      expires_at: WALL + 10_000,
      ...more,
    });

    test('are found until they end or are removed', async (t) => {
      const store = await engine.open(t);
      await store.sessions.create(session(1));
      await store.sessions.create(session(2, { key_id: null }));
      assert.deepEqual(await store.sessions.find('digest-1', WALL + 9_999), session(1));
      assert.deepEqual(await store.sessions.find('digest-2', WALL), session(2, { key_id: null }));
      assert.equal(await store.sessions.find('digest-1', WALL + 10_000), null);
      assert.deepEqual(await store.sessions.remove('digest-1'), session(1));
      assert.equal(await store.sessions.remove('digest-1'), null);
      assert.equal(await store.sessions.find('digest-1', WALL), null);
    });

    test('are so many for one key and no more: the oldest ends; what has ended is removed', async (t) => {
      const store = await engine.open(t);
      await store.sessions.create(session(0, { key_id: 'other', expires_at: WALL + 1 }));
      await store.sessions.create(session(1, { key_id: null }));
      for (let n = 2; n < SESSIONS_PER_KEY_MAX + 3; n++) await store.sessions.create(session(n));
      assert.equal(await store.sessions.find('digest-0', 0), null);
      assert.notEqual(await store.sessions.find('digest-1', WALL), null);
      assert.equal(await store.sessions.find('digest-2', WALL), null);
      assert.notEqual(await store.sessions.find('digest-3', WALL), null);
    });
  });

  describe('invites', () => {
    const invite = (n: number, more: Partial<NewInvite> = {}): NewInvite => ({
      invite_id: `inv_${String(n).padStart(12, '0')}`,
      digest: `digest-${n}`,
      created_by: 'admin',
      token_digest: 'digest of admin',
      instance_id: 'i',
      meeting_ids: ['m'],
      agent_ids: ['a'],
      created_at: WALL + n,
      expires_at: WALL + 10_000,
      ...more,
    });
    const newKey = (key_id: string, more: Partial<NewApiKey> = {}): NewApiKey => ({
      key_id,
      name: null,
      scopes: ['instance'],
      meeting_ids: ['m'],
      instance_id: 'i',
      digest: `digest of ${key_id}`,
      created_at: WALL,
      expires_at: null,
      ...more,
    });
    const admin = newKey('admin', { scopes: ['admin'], meeting_ids: null, instance_id: null });

    test('are redeemed once, for a key that owns the instance from then on', async (t) => {
      const store = await engine.openThread(t);
      await register(store, 'i');
      await store.api_keys.create(admin);
      const made = await store.invites.create(invite(1));
      assert.deepEqual(made, { ...invite(1), redeemed_at: null, key_id: null, revoked_at: null });
      assert.deepEqual(await store.invites.find('digest-1'), made);
      const tries = Array.from({ length: 5 }, (_, k) => store.invites.redeem('digest-1', newKey(`key-${k}`), WALL + 5));
      const redeemed = (await Promise.all(tries)).filter((each) => each !== null);
      assert.equal(redeemed.length, 1);
      const { key, instance, invite: after } = redeemed[0]!;
      assert.deepEqual(after, { ...made, redeemed_at: WALL + 5, key_id: key!.key_id });
      assert.equal(instance?.owner_key_id, key!.key_id);
      assert.deepEqual(
        (await store.api_keys.changedSince(1)).map(({ key_id }) => key_id),
        [key!.key_id],
      );
      await assert.rejects(store.invites.revoke(made.invite_id, WALL), { code: 'invite_redeemed' });
    });

    test('give no key while there is none, and make no instance', async (t) => {
      const store = await engine.open(t);
      await store.invites.create(invite(1, { created_by: null }));
      const redeemed = await store.invites.redeem('digest-1', newKey('key'), WALL);
      assert.deepEqual([redeemed?.key, redeemed?.instance, redeemed?.invite.key_id], [null, null, null]);
      assert.deepEqual(await store.api_keys.changedSince(0), []);
      assert.equal(await store.invites.redeem('digest-1', newKey('key'), WALL), null);
    });

    test('make a key without a read of the keys of other machines, of which there may be a hundred thousand', async (t) => {
      const store = await engine.open(t);
      await store.api_keys.create(admin);
      // A read reports the damage.
      await store.api_keys.create(newKey('damaged', { meeting_ids: [7 as unknown as string] }));
      await store.invites.create(invite(1));
      const read: string[] = [];
      onDamagedValue(({ row }) => read.push(row));
      t.after(() => onDamagedValue(() => {}));
      assert.notEqual(await store.invites.redeem('digest-1', newKey('a'), WALL), null);
      await store.api_keys.create(newKey('b'));
      const last_admin = { code: 'last_admin_key' };
      await assert.rejects(store.api_keys.revoke('admin', WALL), last_admin);
      assert.deepEqual(read, []);
      // Control: who reads them reports it.
      await store.api_keys.changedSince(0);
      assert.deepEqual(read, ['damaged']);
    });

    test('end when they expire, are revoked, or the key that made them is', async (t) => {
      const store = await engine.open(t);
      await store.api_keys.create(admin);
      await store.api_keys.create({ ...admin, key_id: 'other' });
      for (const n of [1, 2, 3, 4]) await store.invites.create(invite(n, n === 4 ? { created_by: 'other' } : {}));
      assert.equal(await store.invites.redeem('digest-1', newKey('a'), WALL + 10_000), null);
      assert.equal((await store.invites.revoke(invite(2).invite_id, WALL + 9))?.revoked_at, WALL + 9);
      assert.equal((await store.invites.revoke(invite(2).invite_id, WALL + 10))?.revoked_at, WALL + 9);
      assert.equal(await store.invites.revoke('inv_none', WALL), null);
      await store.api_keys.revoke('admin', WALL + 20);
      for (const n of [2, 3]) assert.equal(await store.invites.redeem(`digest-${n}`, newKey('b'), WALL + 30), null);
      // Control: the invite of another key can be redeemed.
      assert.notEqual(await store.invites.redeem('digest-4', newKey('c'), WALL + 30), null);
      const { data, next_cursor } = await store.invites.list({ limit: 3 });
      assert.deepEqual(
        data.map(({ digest, revoked_at }) => [digest, revoked_at]),
        [
          ['digest-4', null],
          ['digest-3', WALL + 20],
          ['digest-2', WALL + 9],
        ],
      );
      const rest = await store.invites.list({ limit: 3, cursor: next_cursor! });
      assert.deepEqual([rest.data.length, rest.next_cursor], [1, null]);
    });

    test('end with the token that made them: after the overlap of its rotation, or when the key expires', async (t) => {
      const store = await engine.open(t);
      await store.api_keys.create(admin);
      await store.api_keys.create(newKey('short', { scopes: ['admin'], expires_at: WALL + 500 }));
      const made = async (n: number, token: string, more: Partial<NewInvite> = {}) =>
        (await store.invites.create(invite(n, { token_digest: token, ...more }))).expires_at - WALL;
      const ends = async (n: number) => (await store.invites.find(`digest-${n}`))!.expires_at - WALL;
      assert.equal(await made(1, 'digest of admin'), 10_000);
      assert.equal(await made(2, 'digest of short', { created_by: 'short' }), 500);
      await store.api_keys.rotate('admin', 'second', 1_000, WALL + 100);
      assert.deepEqual([await ends(1), await ends(2)], [1_100, 500]);
      // Both tokens work now. An earlier token does not, but a request with it may still be in progress.
      assert.deepEqual([await made(3, 'digest of admin'), await made(4, 'second')], [1_100, 10_000]);
      assert.equal(await made(5, 'earlier'), 5);
      await store.api_keys.rotate('admin', 'third', 2_000, WALL + 200);
      assert.deepEqual([await ends(1), await ends(3), await ends(4)], [1_100, 1_100, 2_200]);
      assert.notEqual(await store.invites.redeem('digest-4', newKey('b'), WALL + 200), null);
      await store.api_keys.rotate('admin', 'fourth', 0, WALL + 300);
      assert.deepEqual([await ends(1), await ends(3)], [300, 300]);
      assert.equal(await store.invites.redeem('digest-1', newKey('a'), WALL + 300), null);
      assert.equal(await ends(4), 2_200, 'what has ended stays as it is');
      await store.api_keys.revoke('short', WALL + 10);
      assert.equal(await made(6, 'digest of short', { created_by: 'short' }), 6);
    });

    test('wait in a bounded number, and leave the list a month after their end', async (t) => {
      const store = await engine.open(t);
      const all = Array.from({ length: INVITES_PENDING_MAX }, (_, n) => store.invites.create(invite(n)));
      await Promise.all(all);
      await assert.rejects(store.invites.create(invite(5_000)), { code: 'quota_exceeded' });
      const later = { created_at: WALL + 10_001 + INVITES_KEPT_MS, expires_at: WALL + INVITES_KEPT_MS * 2 };
      await store.invites.create(invite(5_000, later));
      assert.equal((await store.invites.list({ limit: 10 })).data.length, 1);
    });
  });

  describe('a rotation within the overlap of another', () => {
    const DAY = 86_400_000;

    test('keeps every earlier token, and the sessions of each, until its own end', async (t) => {
      const store = await engine.openThread(t);
      const { api_keys, sessions } = store;
      const key = { key_id: 'k', name: null, scopes: ['admin' as const], meeting_ids: null, instance_id: null };
      await api_keys.create({ ...key, digest: 'first', created_at: WALL, expires_at: null });
      const signIn = (token_digest: string) =>
        sessions.create({
          digest: `session of ${token_digest}`,
          csrf_digest: '',
          key_id: 'k',
          token_digest,
          node_id: null,
          created_at: WALL,
          expires_at: NEVER,
        });
      const ends = async () =>
        Object.fromEntries(
          (await sessions.list({ limit: 9 }, WALL)).data.map(({ token_digest, expires_at }) => [
            token_digest,
            expires_at,
          ]),
        );
      await signIn('first');
      await api_keys.rotate('k', 'second', DAY, WALL);
      await signIn('second');
      const rotated = await api_keys.rotate('k', 'third', DAY / 2, WALL + 5);
      await signIn('third');
      const first = { value: 'first', until: WALL + DAY };
      const second = { value: 'second', until: WALL + 5 + DAY / 2 };
      assert.deepEqual(rotated?.earlier_tokens, [second, first]);
      assert.deepEqual((await api_keys.changedSince(0))[0], rotated);
      assert.deepEqual(await ends(), { first: first.until, second: second.until, third: NEVER });

      const later = await api_keys.rotate('k', 'fourth', DAY, second.until);
      const third = { value: 'third', until: second.until + DAY };
      assert.deepEqual(later?.earlier_tokens, [third, first], 'what has ended is forgotten');
      assert.deepEqual((await api_keys.rotate('k', 'fifth', 0, WALL + 6))?.earlier_tokens, [
        { value: 'fourth', until: WALL + 6 },
      ]);
      assert.deepEqual((await sessions.list({ limit: 9 }, WALL + 6)).data, []);
      await api_keys.rotate('k', 'sixth', DAY, WALL + 7);
      await api_keys.rotate('k', 'seventh', DAY, WALL + 7);
      await api_keys.create({ ...key, key_id: 'other', digest: '', created_at: WALL, expires_at: null });
      assert.deepEqual((await api_keys.revoke('k', WALL + 8))?.earlier_tokens, []);
    });

    test('keeps every earlier secret until its own end', async (t) => {
      const store = await engine.openThread(t);
      await register(store, 'i');
      const { instances } = store;
      const { webhook_secret: first } = (await instances.get('i'))!;
      await instances.rotateSecret('i', 'second', DAY, WALL);
      await instances.rotateSecret('i', 'third', DAY / 2, WALL + 5);
      const kept = [
        { value: 'second', until: WALL + 5 + DAY / 2 },
        { value: first, until: WALL + DAY },
      ];
      assert.deepEqual((await instances.load(['i']))[0]?.earlier_secrets, kept);
      assert.deepEqual((await register(store, 'i')).instance.earlier_secrets, kept, 'a registration keeps them too');
      assert.deepEqual((await instances.rotateSecret('i', 'fourth', 0, WALL + 6))?.earlier_secrets, [
        { value: 'third', until: WALL + 6 },
      ]);
    });

    test('of a subscription is not refused: its oldest earlier secret gives way', async (t) => {
      const store = await engine.openThread(t);
      for (let n = 0; n <= EARLIER_MAX + 1; n++)
        await register(store, 'i', WALL, { lease_until: NEVER, webhook_secret: `secret ${n}` });
      const { webhook_secret, earlier_secrets } = (await store.instances.get('i'))!;
      assert.deepEqual(
        [webhook_secret, ...earlier_secrets.map(({ value }) => value)],
        ['secret 5', 'secret 4', 'secret 3', 'secret 2', 'secret 1'],
      );
    });

    test('is refused when too many earlier ones hold, and changes nothing', async (t) => {
      const store = await engine.openThread(t);
      await register(store, 'i');
      const key = { key_id: 'k', name: null, scopes: ['admin' as const], meeting_ids: null, instance_id: null };
      await store.api_keys.create({ ...key, digest: '0', created_at: WALL, expires_at: null });
      const rotate = (n: number, overlap_ms: number, wall_ms: number) =>
        Promise.allSettled([
          store.api_keys.rotate('k', String(n), overlap_ms, wall_ms),
          store.instances.rotateSecret('i', String(n), overlap_ms, wall_ms),
        ]);
      const codesOf = (results: PromiseSettledResult<unknown>[]) =>
        results.map((result) => (result.status === 'fulfilled' ? 'done' : (result.reason as { code: string }).code));
      for (let n = 1; n <= EARLIER_MAX; n++)
        assert.deepEqual(codesOf(await rotate(n, DAY + n, WALL)), ['done', 'done']);
      const before = [await store.api_keys.get('k'), await store.instances.get('i')];
      const refused = ['overlaps_in_progress', 'overlaps_in_progress'];
      assert.deepEqual(codesOf(await rotate(5, DAY, WALL + DAY)), refused);
      assert.deepEqual([await store.api_keys.get('k'), await store.instances.get('i')], before);
      assert.deepEqual(codesOf(await rotate(5, DAY, WALL + DAY + 1)), ['done', 'done'], 'the first has ended');
      assert.deepEqual(codesOf(await rotate(6, DAY, WALL + DAY + 1)), refused);
      assert.deepEqual(codesOf(await rotate(6, 0, WALL + DAY + 1)), ['done', 'done']);
    });
  });

  describe('messages of all meetings', () => {
    test('are listed from a position on, of some meetings or for an instance', async (t) => {
      const store = await engine.open(t);
      assert.equal(await store.messages.last(), null);
      await meeting(store, 'm1', 'i');
      await store.messages.accept([...messages('m1', 2), ...messages('m2', 1)]);
      const since = async (after: string | null, filter: object) =>
        (await store.messages.since(after, { scan: 9, limit: 9, chars_max: 1e9, ...filter })).data;
      const all = await since(null, {});
      assert.deepEqual(
        all.map(({ meeting_id, seq, deliveries_queued }) => [meeting_id, seq, deliveries_queued]),
        [
          ['m1', 1, 1],
          ['m1', 2, 1],
          ['m2', 1, 0],
        ],
      );
      assert.equal(await store.messages.last(), all[2]!.message_id);
      assert.deepEqual(await since(all[0]!.message_id, { limit: 1 }), [all[1]]);
      assert.deepEqual(await since(null, { meeting_ids: ['m2'] }), [all[2]]);
      assert.deepEqual(await since(null, { instance_id: 'i' }), all.slice(0, 2));
      assert.deepEqual(await since(all[2]!.message_id, {}), []);
    });

    test('are looked through up to a number, however few of them are asked for', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'quiet', 'i');
      await store.messages.accept([...messages('loud', 3), ...messages('quiet', 1), ...messages('loud', 1)]);
      const seqs = async (scan: number, filter: object, after: string | null = null) => {
        const { data, has_more } = await store.messages.since(after, { scan, limit: 9, chars_max: 1e9, ...filter });
        return [data.map(({ meeting_id, seq }) => `${meeting_id} ${seq}`), has_more];
      };
      for (const filter of [{ meeting_ids: ['quiet'] }, { instance_id: 'i' }]) {
        assert.deepEqual(await seqs(3, filter), [[], true]);
        assert.deepEqual(await seqs(4, filter), [['quiet 1'], true]);
        assert.deepEqual(await seqs(5, filter), [['quiet 1'], false], 'control: all are looked through');
        const { data } = await store.messages.since(null, { scan: 9, limit: 1, chars_max: 1e9 });
        assert.deepEqual(await seqs(4, filter, data[0]!.message_id), [['quiet 1'], false]);
      }
      assert.deepEqual(await seqs(2, {}), [['loud 1', 'loud 2'], true]);
    });
  });
}
