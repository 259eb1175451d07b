/**
 * Lists of meetings and instances with filters that no index serves: how much one call reads, and that the next call
 * continues there.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Visibility } from '../../src/domain/access.ts';
import type { InstanceFilter } from '../../src/store/contract/instances.ts';
import type { Reads } from '../../src/store/contract/search.ts';
import { type EngineUnderTest, ENGINES } from '../support/engines.ts';
import { meeting, register, WALL } from '../support/store_contents.ts';

for (const engine of ENGINES) describe(engine.name, () => boundsThem(engine));

const TEN: Reads = { rows: 10, bytes: 2 ** 40 };
const number = (n: number): string => String(n).padStart(2, '0');
const NUMBERS = Array.from({ length: 25 }, (_, n) => number(n));

interface Listed<T> {
  data: T[];
  next_cursor: string | null;
  searched_to: string | null;
}

/** Makes all calls of a list. Returns for each the ids that it found, and how far it came if it ended at its limit. */
async function callsOf<T>(read: (cursor: string | undefined) => Promise<Listed<T>>, idOf: (row: T) => string) {
  const calls: [string[], string | null][] = [];
  let cursor: string | undefined;
  do {
    const { data, next_cursor, searched_to } = await read(cursor);
    calls.push([data.map(idOf), searched_to]);
    cursor = next_cursor ?? undefined;
  } while (cursor !== undefined);
  return calls;
}

function boundsThem(engine: EngineUnderTest): void {
  test('meetings with a part of an id are looked for in calls of so many rows', async (t) => {
    const store = await engine.open(t);
    for (const n of NUMBERS) await meeting(store, n === '03' || n === '21' ? `${n}-Rare` : `${n}-often`, 'i');
    const calls = (q: string, limit = 100) =>
      callsOf(
        (cursor) => store.meetings.list({ limit, q, cursor }, null, TEN),
        ({ meeting_id }) => meeting_id,
      );
    assert.deepEqual(await calls('rare'), [
      [['03-Rare'], '09-often'],
      [[], '19-often'],
      [['21-Rare'], null],
    ]);
    assert.deepEqual(await calls('0', 1), [
      ...NUMBERS.slice(0, 10).map((n) => [[n === '03' ? '03-Rare' : `${n}-often`], null]),
      [['10-often'], '19-often'],
      [['20-often'], null],
    ]);
    const seen = { owner_scope: null, meeting_ids: ['21-Rare', '01-often'] };
    assert.deepEqual((await store.meetings.list({ limit: 9, q: 'r' }, seen, TEN)).searched_to, null);
  });

  test('instances are looked for in calls of so many rows, by each filter without an index', async (t) => {
    const store = await engine.open(t);
    for (const n of NUMBERS) await register(store, n);
    for (const n of ['03', '21']) {
      await store.instances.patch(n, { is_active: false, instance_name: 'A Rare one' }, WALL);
    }
    const calls = (filter: Omit<InstanceFilter, 'limit'>) =>
      callsOf(
        (cursor) => store.instances.list({ limit: 100, ...filter, cursor }, null, TEN),
        ({ instance_id }) => instance_id,
      );
    const in_three = [
      [['03'], '09'],
      [[], '19'],
      [['21'], null],
    ];
    assert.deepEqual(await calls({ q: 'rare' }), in_three);
    assert.deepEqual(await calls({ is_active: false }), in_three);
    assert.deepEqual(await calls({ paused: true }), in_three);
    assert.deepEqual(await calls({ health: 'unknown', q: 'rare', agent_id: 'a' }), in_three);
    assert.deepEqual(await calls({ health: 'up' }), [
      [[], '09'],
      [[], '19'],
      [[], null],
    ]);
  });

  test('one call has all rows of an agent, of a meeting or of an instance, because an index has them in order', async (t) => {
    const store = await engine.open(t);
    for (const n of NUMBERS) {
      await meeting(store, 'all', n);
      await meeting(store, n, 'i');
    }
    await store.meetings.leave('21', 'i', WALL);
    const instances = async (filter: Omit<InstanceFilter, 'limit'>) => {
      const { data, searched_to } = await store.instances.list({ limit: 100, ...filter }, null, TEN);
      assert.equal(searched_to, null);
      return data.map(({ instance_id }) => instance_id);
    };
    assert.deepEqual(await instances({}), [...NUMBERS, 'i']);
    assert.deepEqual(await instances({ agent_id: 'a' }), [...NUMBERS, 'i']);
    assert.deepEqual(await instances({ meeting_id: 'all' }), NUMBERS);
    for (const include_left of [false, true]) {
      const filter = { limit: 100, instance_id: 'i', include_left };
      const { data, searched_to } = await store.meetings.list(filter, null, TEN);
      assert.equal(searched_to, null);
      assert.deepEqual(
        data.map(({ meeting_id }) => meeting_id),
        NUMBERS.filter((n) => include_left || n !== '21'),
      );
    }
    // With a second filter the call reads so many rows of the first one, and no others.
    const both = await store.meetings.list({ limit: 100, instance_id: 'i', q: '2' }, null, TEN);
    assert.deepEqual([both.data.map(({ meeting_id }) => meeting_id), both.searched_to], [['02'], '09']);
    const of_agent = await store.instances.list({ limit: 100, meeting_id: 'all', agent_id: 'nobody' }, null, TEN);
    assert.deepEqual([of_agent.data, of_agent.searched_to], [[], '09']);
  });

  test('a key learns no ids of instances that it does not see, and its calls do not count them', async (t) => {
    const store = await engine.open(t);
    for (const n of NUMBERS) await register(store, n, WALL, { owner_key_id: Number(n) % 2 === 0 ? 'own' : 'other' });
    await meeting(store, 'm', '01');
    const owner_scope = { key_id: 'own', instance_id: null };
    const calls = (filter: Omit<InstanceFilter, 'limit'>) =>
      callsOf(
        (cursor) => store.instances.list({ limit: 100, ...filter, cursor }, { owner_scope, meeting_ids: [] }, TEN),
        ({ instance_id }) => instance_id,
      );
    const in_two = [
      [[], '18'],
      [[], null],
    ];
    assert.deepEqual(await calls({ q: '01' }), in_two);
    assert.deepEqual(await calls({ agent_id: 'nobody' }), in_two);
    assert.deepEqual(await calls({ meeting_id: 'm' }), in_two);
  });

  test('a key that sees its own instances and some meetings gets them in order, and reads so many of each', async (t) => {
    const store = await engine.open(t);
    for (const n of NUMBERS) await register(store, n, WALL, { owner_key_id: Number(n) % 2 === 0 ? 'own' : 'other' });
    await meeting(store, 'm', '01', '02', '05');
    await meeting(store, 'n', '05', '09', '13', 'z');
    await meeting(store, 'unseen', '03');
    await store.meetings.leave('n', '13', WALL);
    const seen = { owner_scope: { key_id: 'own', instance_id: null }, meeting_ids: ['m', 'n', 'nowhere'] };
    const calls = (filter: Omit<InstanceFilter, 'limit'>, limit = 100, reads = TEN) =>
      callsOf(
        (cursor) => store.instances.list({ limit, ...filter, cursor }, seen, reads),
        ({ instance_id }) => instance_id,
      );
    const own = NUMBERS.filter((n) => Number(n) % 2 === 0);
    const visible = [...own, '01', '05', '09', 'z'].toSorted();
    assert.deepEqual(await calls({}), [[visible, null]]);
    assert.deepEqual((await calls({}, 1)).flat(2).filter(Boolean), visible);
    assert.deepEqual(await calls({ q: '5' }), [
      [['05'], visible[9]],
      [[], null],
    ]);
    assert.deepEqual((await calls({ paused: false }, 100, { ...TEN, rows: 1 })).map(([ids]) => ids).flat(), visible);
    assert.deepEqual(await calls({ meeting_id: 'n' }), [[['05', '09', 'z'], null]]);
    assert.deepEqual(await calls({ meeting_id: 'unseen' }), [
      [[], visible[9]],
      [[], null],
    ]);
    assert.equal((await store.instances.get('z', seen))?.instance_id, 'z');
    assert.equal(await store.instances.get('03', seen), null);
  });

  test('an instance is found without its count by those who see it, and by nobody else', async (t) => {
    const store = await engine.open(t);
    await register(store, 'own', WALL, { owner_key_id: 'key' });
    await register(store, 'also own', WALL, { owner_key_id: 'key' });
    await register(store, 'member', WALL, { owner_key_id: 'other' });
    await register(store, 'left', WALL, { owner_key_id: 'other' });
    await meeting(store, 'm', 'member', 'left');
    await store.meetings.leave('m', 'left', WALL);
    const keys: (Visibility | null)[] = [
      null,
      { owner_scope: null, meeting_ids: [] },
      { owner_scope: { key_id: 'key', instance_id: null }, meeting_ids: [] },
      { owner_scope: { key_id: 'key', instance_id: 'own' }, meeting_ids: ['m', 'nowhere'] },
    ];
    const found = keys.map(async (visibility) => {
      const ids: string[] = [];
      for (const id of ['own', 'also own', 'member', 'left', 'nobody']) {
        const instance = await store.instances.find(id, visibility);
        if (instance !== null) ids.push(instance.instance_id);
        if (instance !== null) assert.deepEqual([instance], await store.instances.load([id]));
      }
      return ids;
    });
    assert.deepEqual(await Promise.all(found), [
      ['own', 'also own', 'member', 'left'],
      [],
      ['own', 'also own'],
      ['own', 'member'],
    ]);
  });

  test('a call that meets long rows reads fewer of them, and at least one', async (t) => {
    const store = await engine.open(t);
    for (const n of NUMBERS) {
      await register(store, n);
      await store.instances.patch(n, { agent_ids: ['x'.repeat(1000)] }, WALL);
    }
    const calls = (bytes: number) =>
      callsOf(
        (cursor) => store.instances.list({ limit: 100, is_active: false, cursor }, null, { rows: 10, bytes }),
        ({ instance_id }) => instance_id,
      );
    assert.equal((await calls(4_000)).length, Math.ceil(25 / 3));
    assert.equal((await calls(1)).length, 25);
  });

  test('a cursor that is none is refused', async (t) => {
    const store = await engine.open(t);
    for (const cursor of ['garbage', Buffer.from('[1]').toString('base64url')]) {
      await assert.rejects(store.meetings.list({ limit: 1, q: 'x', cursor }), { code: 'invalid_fields' });
      await assert.rejects(store.instances.list({ limit: 1, q: 'x', cursor }), { code: 'invalid_fields' });
    }
  });
}
