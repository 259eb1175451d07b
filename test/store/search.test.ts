/** Searches with both databases: what they find, how much one call reads, and that the next call continues there. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { attemptsText } from '../../src/domain/attempts_text.ts';
import type { Visibility } from '../../src/domain/access.ts';
import type { Outcome } from '../../src/domain/outcome.ts';
import type { AuditFilter } from '../../src/store/contract/audit.ts';
import type { DeliveryRow } from '../../src/store/contract/deliveries.ts';
import type { AcceptedMessage, NewMessage } from '../../src/store/contract/messages.ts';
import {
  type DeliveryKeys,
  type DeliverySearch,
  type MessageSearch,
  type Reads,
  SEARCH_READS,
} from '../../src/store/contract/search.ts';
import type { Store } from '../../src/store/store.ts';
import { type EngineUnderTest, ENGINES } from '../support/engines.ts';
import { entryOf } from '../support/audit.ts';
import { lane, meeting, newMessage, register, settled } from '../support/store_contents.ts';

for (const engine of ENGINES) describe(engine.name, () => findsThem(engine));

const NOW = Date.now();
const EVERYTHING: Reads = { rows: 1_000_000, bytes: 2 ** 40 };

async function accept(store: Store, ...messages: NewMessage[]): Promise<AcceptedMessage[]> {
  return (await store.messages.accept(messages)).map((accepted) => {
    assert.equal(accepted.kind, 'accepted');
    return accepted.message;
  });
}

const said = (meeting_id: string, content: string, changes: Partial<NewMessage> = {}): NewMessage =>
  newMessage(meeting_id, { message: JSON.stringify({ content }), wall_ms: NOW, ...changes });

const attempt = (outcome: Outcome, status_code: number | null, response_excerpt = '') => ({
  attempt: 1,
  started_at: '2026-01-01T00:00:00.000Z',
  duration_ms: 1,
  outcome,
  status_code,
  detail: '',
  response_excerpt,
});

/** Makes all calls of a search. Returns for each how many rows it found, and whether it ended at its limit. */
async function callsOf<T>(
  read: (cursor: string | undefined) => Promise<{ data: T[]; next_cursor: string | null; searched_to: number | null }>,
): Promise<{ found: T[]; calls: [number, boolean][] }> {
  const found: T[] = [];
  const calls: [number, boolean][] = [];
  let cursor: string | undefined;
  do {
    const page = await read(cursor);
    found.push(...page.data);
    calls.push([page.data.length, page.searched_to !== null]);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return { found, calls };
}

/** A text with the characters that libraries write in different ways. */
const SPOKEN = String.raw`É/<b> & 'x' = 1+1 "q" \ ☃`;

function findsThem(engine: EngineUnderTest): void {
  const seqs = async (store: Store, search: Omit<MessageSearch, 'limit'>) =>
    (await store.messages.search({ limit: 100, ...search }, EVERYTHING)).data.map(
      ({ meeting_id, seq }) => `${meeting_id}${seq}`,
    );
  const pushes = async (store: Store, search: Omit<DeliverySearch, 'limit'>, reads = EVERYTHING) =>
    (await store.deliveries.search({ limit: 100, ...search }, reads, NOW)).data.map(
      ({ meeting_id, seq, instance_id }) => `${meeting_id}${seq} ${instance_id}`,
    );

  test('a text is found as its sender may have written it, capital letters of ASCII or not, and nothing else is', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'i');
    const raw = (message: string) => newMessage('m', { message, wall_ms: NOW });
    await accept(
      store,
      raw('{"content":"Déjà vu: a/b \\"quoted\\" 100% under_score"}'),
      raw('{"content":"D\\u00e9j\\u00E0 vu: a/b"}'),
      raw('{"content":"d\\u00e9j\\u00e0 vu: a\\/b"}'),
      raw('{"content":"nothing of it 1000 underXscore"}'),
      raw('{"status": "RED"}'),
    );
    assert.deepEqual(await seqs(store, { text: 'déjà VU: a/b' }), ['m3', 'm2', 'm1']);
    assert.deepEqual(await seqs(store, { text: 'DÉJÀ' }), []);
    assert.deepEqual(await seqs(store, { text: '"quoted"' }), ['m1']);
    assert.deepEqual(await seqs(store, { text: '100%' }), ['m1']);
    assert.deepEqual(await seqs(store, { text: 'under_score' }), ['m1']);
    assert.deepEqual(await seqs(store, { text: '"status": "red"' }), ['m5']);
    assert.deepEqual(await pushes(store, { text: 'déjà vu: a/b' }), ['m3 i', 'm2 i', 'm1 i']);
  });

  test('a text is found as the libraries of many languages write it', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'i');
    const written = [
      ['JavaScript', String.raw`É/<b> & 'x' = 1+1 \"q\" \\ ☃`],
      ['Python', String.raw`\u00c9/<b> & 'x' = 1+1 \"q\" \\ \u2603`],
      ['PHP', String.raw`\u00c9\/<b> & 'x' = 1+1 \"q\" \\ \u2603`],
      ['PHP with JSON_UNESCAPED_UNICODE', String.raw`É\/<b> & 'x' = 1+1 \"q\" \\ ☃`],
      ['Go', String.raw`É/\u003cb\u003e \u0026 'x' = 1+1 \"q\" \\ ☃`],
      ['Gson', String.raw`É/\u003cb\u003e \u0026 \u0027x\u0027 \u003d 1+1 \"q\" \\ ☃`],
      ['.NET', String.raw`\u00C9/\u003Cb\u003E \u0026 \u0027x\u0027 = 1\u002B1 \u0022q\u0022 \\ \u2603`],
    ];
    for (const [, text] of written) {
      const message = `{"content":"${text}"}`;
      assert.equal((JSON.parse(message) as { content: string }).content, SPOKEN, 'control');
      await accept(store, newMessage('m', { message, wall_ms: NOW }));
    }
    const found = await seqs(store, { text: SPOKEN });
    assert.deepEqual(
      written.filter((_, i) => !found.includes(`m${i + 1}`)),
      [],
    );
    assert.deepEqual(await seqs(store, { text: 'É/<b> & "x"' }), []);
  });

  test('messages are found in their meeting only, among the meetings that the caller may see, and by their time', async (t) => {
    const store = await engine.open(t);
    const at = (minutes: number) => ({ wall_ms: NOW - minutes * 60_000 });
    await accept(store, said('a', 'x', at(30)), said('b', 'x', at(20)), said('a', 'y', at(10)), said('c', 'x', at(5)));
    await accept(store, said('a', 'x', at(0)));
    assert.deepEqual(await seqs(store, { text: 'x' }), ['a3', 'c1', 'b1', 'a1']);
    assert.deepEqual(await seqs(store, { text: 'x', meeting_id: 'a' }), ['a3', 'a1']);
    assert.deepEqual(await seqs(store, { meeting_id: 'nowhere' }), []);
    assert.deepEqual(await seqs(store, { text: 'x', meeting_ids: ['a', 'b'] }), ['a3', 'b1', 'a1']);
    assert.deepEqual(await seqs(store, { meeting_ids: [] }), []);
    // A message exactly at `since` is found, and a message exactly at `until` is not.
    assert.deepEqual(await seqs(store, { since_ms: NOW - 20 * 60_000 }), ['a3', 'c1', 'a2', 'b1']);
    assert.deepEqual(await seqs(store, { since_ms: NOW - 20 * 60_000, until_ms: NOW - 5 * 60_000 }), ['a2', 'b1']);
    assert.deepEqual(await seqs(store, { meeting_id: 'a', until_ms: NOW - 10 * 60_000 }), ['a1']);
    assert.deepEqual(await seqs(store, { until_ms: NOW - 3_600_000 }), []);
  });

  for (const newest_first of [true, false]) {
    const order = newest_first ? 'newest first' : 'oldest first';
    test(`entries of the audit log are looked through in calls of so many, ${order}, and an index needs no such calls`, async (t) => {
      const store = await engine.open(t);
      for (let n = 0; n < 25; n++) {
        const rare = n === 3 || n === 21;
        const entry = { ...entryOf(n), target_id: 'i', action: rare ? 'key.revoke' : 'instance.update' } as const;
        await store.audit.append(entry, NOW + n);
      }
      const look = (filter: Omit<AuditFilter, 'limit' | 'newest_first'>, limit = 100) =>
        callsOf((cursor) => store.audit.list({ limit, newest_first, ...filter, cursor }, 10));
      const rare = await look({ action: 'key.revoke' });
      assert.deepEqual(
        rare.found.map(({ seq }) => seq),
        newest_first ? [22, 4] : [4, 22],
      );
      const calls: [number, boolean][] = [
        [1, true],
        [0, true],
        [1, false],
      ];
      assert.deepEqual(rare.calls, calls);
      const { principal } = entryOf(0);
      for (const filter of [
        { since_ms: NOW + 12, until_ms: NOW + 13 },
        { instance_id: 'i', action: 'key.revoke' as const },
        { instance_id: 'i', principal },
      ])
        assert.equal((await look(filter)).calls.length, 3);
      for (const filter of [{}, { instance_id: 'i' }, { principal }])
        assert.deepEqual((await look(filter)).calls, [[25, false]]);
      assert.equal((await look({ action: 'instance.update' }, 4)).found.length, 23, 'full pages');
    });
  }

  test('a message is found by its place in a meeting, and by a delivery, also one that is removed already', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'i', 'j');
    const [first, second] = await accept(store, said('m', 'one'), said('m', 'two'));
    await accept(store, said('nobody', 'three'));
    assert.equal(
      (await store.messages.search({ limit: 1, meeting_id: 'm', seq: 2 }, EVERYTHING)).data[0]?.message_id,
      second!.message_id,
    );
    assert.deepEqual(await seqs(store, { seq: 1 }), ['nobody1', 'm1']);
    assert.deepEqual(await seqs(store, { meeting_id: 'm', seq: 4 }), []);
    assert.deepEqual(await seqs(store, { meeting_id: 'm', seq: 2, text: 'one' }), []);
    assert.deepEqual(await seqs(store, { meeting_id: 'nowhere', seq: 1 }), []);
    const { data } = await store.deliveries.list({ limit: 10, message_id: first!.message_id }, NOW);
    assert.equal(data.length, 2);
    for (const { delivery_id } of data)
      assert.equal((await store.messages.ofDelivery(delivery_id))?.message_id, first!.message_id);
    for (const id of [first!.message_id, 'dlv_none', first!.message_id.replace('msg', 'dlv')])
      assert.equal(await store.messages.ofDelivery(id), null);
    const [one] = await lane(store, 'i', 'm');
    await store.deliveries.settle([settled(one!, { settled_at: 1 })], []);
    await store.deliveries.prune(
      { deliveries_ms: 2, messages_ms: 0, idempotency_ms: 0, future_ms: Infinity },
      100,
      Infinity,
      null,
    );
    assert.equal(await store.deliveries.get(one!.delivery_id, NOW), null);
    assert.equal((await store.messages.ofDelivery(one!.delivery_id))?.message_id, first!.message_id);
  });

  test('deliveries are found by the status and the outcome of one attempt, by state, agent, time, and all of them together', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'i');
    await meeting(store, 'm', 'j');
    await store.meetings.join('m', 'j', ['b', 'x"a"'], NOW);
    await accept(store, said('m', 'one', { wall_ms: NOW - 600_000 }), said('m', 'two'), said('m', 'three'));
    const [one, two, three] = await lane(store, 'i', 'm');
    const attempts = [
      [attempt('timeout', null), attempt('bad_status', 500)],
      [attempt('ok', 200, '"status_code":500,"outcome":"timeout"')],
      [attempt('bad_status', 502), attempt('timeout', null)],
    ];
    await store.deliveries.settle(
      [one!, two!, three!].map((delivery, i) =>
        settled(delivery, {
          attempts: JSON.stringify(attempts[i]),
          state: i === 1 ? 'delivered' : 'failed',
          reason: i === 1 ? null : 'exhausted',
        }),
      ),
      [],
    );
    // A first success is stored in a short form, which has no names.
    const [, second] = await lane(store, 'j', 'm');
    const short = attemptsText([attempt('ok', 202, ',204')]);
    assert.match(short, /^\[\d/);
    await store.deliveries.settle([settled(second!, { attempts: short })], []);
    assert.deepEqual(await pushes(store, { outcome: 'ok' }), ['m2 j', 'm2 i']);
    assert.deepEqual(await pushes(store, { status_code: 202 }), ['m2 j']);
    assert.deepEqual(await pushes(store, { status_code: 204 }), []);
    assert.deepEqual(await pushes(store, { status_code: 500 }), ['m1 i']);
    assert.deepEqual(await pushes(store, { outcome: 'timeout' }), ['m3 i', 'm1 i']);
    assert.deepEqual(await pushes(store, { outcome: 'bad_status', status_code: 502 }), ['m3 i']);
    assert.deepEqual(await pushes(store, { outcome: 'timeout', status_code: 502 }), []);
    assert.deepEqual(await pushes(store, { outcome: 'dns_failed' }), []);
    assert.deepEqual(await pushes(store, { state: 'failed' }), ['m3 i', 'm1 i']);
    assert.deepEqual(await pushes(store, { agent_id: 'a' }), ['m3 i', 'm2 i', 'm1 i']);
    assert.deepEqual(await pushes(store, { agent_id: 'b', meeting_id: 'm' }), ['m3 j', 'm2 j', 'm1 j']);
    assert.deepEqual(await pushes(store, { since_ms: NOW }), ['m3 j', 'm3 i', 'm2 j', 'm2 i']);
    assert.deepEqual(await pushes(store, { until_ms: NOW, instance_id: 'i' }), ['m1 i']);
    const all = { state: 'failed', agent_id: 'a', text: 'THREE', outcome: 'timeout', since_ms: NOW } as const;
    assert.deepEqual(await pushes(store, all), ['m3 i']);
    assert.deepEqual(await pushes(store, { ...all, meeting_id: 'm', instance_id: 'i' }), ['m3 i']);
    assert.deepEqual(await pushes(store, { ...all, until_ms: NOW }), []);
  });

  for (const keys of [{}, { meeting_id: 'm' }]) {
    const of = 'meeting_id' in keys ? ' of a meeting' : '';
    test(`a search${of} reads only as many rows as it may, and the next call continues exactly there`, async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      await meeting(store, 'other', 'i');
      for (let k = 1; k <= 25; k++) {
        // The messages of the two meetings alternate, so the numbers of a meeting's rows are not consecutive.
        await accept(store, said('other', 'noise'), said('m', k === 3 || k === 20 ? 'needle' : 'hay'));
      }
      const rows = 'meeting_id' in keys ? 10 : 20;
      const messages = await callsOf((cursor) =>
        store.messages.search({ limit: 5, cursor, text: 'needle', ...keys }, { rows, bytes: 2 ** 40 }),
      );
      assert.deepEqual(
        messages.found.map(({ meeting_id, seq }) => `${meeting_id}${seq}`),
        ['m20', 'm3'],
      );
      assert.deepEqual(messages.calls, [
        [1, true],
        [0, true],
        [1, false],
      ]);
      const deliveries = await callsOf((cursor) =>
        store.deliveries.search({ limit: 5, cursor, text: 'needle', ...keys }, { rows, bytes: 2 ** 40 }, NOW),
      );
      assert.deepEqual(
        deliveries.found.map(({ meeting_id, seq }) => `${meeting_id}${seq}`),
        ['m20', 'm3'],
      );
      assert.deepEqual(deliveries.calls, messages.calls);
      // A full page also ends the search, and then the limit of rows was not the reason.
      const full = await callsOf((cursor) =>
        store.messages.search({ limit: 1, cursor, text: 'needle', ...keys }, EVERYTHING),
      );
      assert.deepEqual(full.calls, [
        [1, false],
        [1, false],
      ]);
    });
  }

  test('a search ends where it has read the bytes that it may, and always reads a row', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'i');
    for (let k = 1; k <= 6; k++) await accept(store, said('m', 'é'.repeat(1_000)));
    for (const [bytes, expected] of [
      [5_000, 3],
      [1, 6],
    ] as const) {
      const { calls, found } = await callsOf((cursor) =>
        store.messages.search({ limit: 50, cursor }, { rows: 1_000, bytes }),
      );
      assert.deepEqual([calls.length, found.length], [expected, 6]);
      const pushed = await callsOf((cursor) =>
        store.deliveries.search({ limit: 50, cursor, text: 'é' }, { rows: 1_000, bytes }, NOW),
      );
      assert.deepEqual([pushed.calls.length, pushed.found.length], [expected, 6]);
    }
  });

  test('the time that a search reached is that of the first row which it did not read', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'i');
    for (let k = 1; k <= 5; k++) await accept(store, said('m', 'x', { wall_ms: NOW + k }));
    assert.equal((await store.messages.search({ limit: 9 }, { rows: 3, bytes: 2 ** 40 })).searched_to, NOW + 2);
    const reads = { rows: 3, bytes: 2 ** 40 };
    assert.equal((await store.deliveries.search({ limit: 9, text: 'x' }, reads, NOW)).searched_to, NOW + 2);
  });

  describe('a list of deliveries that no index has in order', () => {
    const visible = (key_id: string | null, ...meeting_ids: string[]): Visibility => ({
      owner_scope: key_id === null ? null : { key_id, instance_id: null },
      meeting_ids,
    });
    const CASES: [string, DeliveryKeys, Visibility | null][] = [
      ['of an instance in a meeting', { instance_id: 'i', meeting_id: 'b' }, null],
      ['of messages of a meeting to it', { instance_id: 'i', meeting_id: 'b', after_seq: 1, before_seq: 5 }, null],
      ['for a key with meetings', {}, visible(null, 'b', 'c', 'nowhere')],
      ['for a key with instances', {}, visible('owner')],
      ['for a key with instances and meetings', {}, visible('owner', 'b')],
      ['of a meeting of others, for a key with instances', { meeting_id: 'a' }, visible('owner', 'b')],
      ['of an instance, for a key with meetings', { instance_id: 'i' }, visible(null, 'c')],
      ['of a message, for a key with instances', { message_id: 'one of a' }, visible('owner')],
      ['for a key that sees nothing', {}, visible('nobody')],
    ];
    for (const [of, keys, visibility] of CASES)
      test(`${of}, has each once, the newest first, and a call reads only so many rows`, async (t) => {
        const store = await engine.open(t);
        for (const id of ['a', 'b', 'c']) await meeting(store, id, 'i', 'j');
        await meeting(store, 'd', 'k');
        const send = async () => accept(store, ...['a', 'b', 'c', 'd', 'a'].map((id) => said(id, 'x')));
        await send();
        // The key sees the deliveries to its instance, and no deliveries to an earlier instance with the same id.
        await store.instances.remove('j', 100, NOW);
        const [newest_before] = (await store.deliveries.list({ limit: 1 }, NOW)).data;
        await register(store, 'j', NOW, { owner_key_id: 'owner' });
        for (const id of ['a', 'c']) await meeting(store, id, 'j');
        for (let k = 0; k < 5; k++) await send();
        const [, , , , of_a] = await send();

        const filter = { ...keys, ...(keys.message_id !== undefined && { message_id: of_a!.message_id }) };
        const isVisible = ({ meeting_id, instance_id, delivery_id }: DeliveryRow): boolean => {
          if (visibility === null || visibility.meeting_ids.includes(meeting_id)) return true;
          const is_owner = visibility.owner_scope?.key_id === 'owner';
          return is_owner && instance_id === 'j' && delivery_id > newest_before!.delivery_id;
        };
        const expected = (await store.deliveries.list({ limit: 1_000 }, NOW)).data.filter(
          (row) =>
            isVisible(row) &&
            (filter.instance_id ?? row.instance_id) === row.instance_id &&
            (filter.meeting_id ?? row.meeting_id) === row.meeting_id &&
            (filter.message_id ?? row.message_id) === row.message_id &&
            row.seq > (filter.after_seq ?? 0) &&
            row.seq < (filter.before_seq ?? Infinity),
        );
        assert.equal(expected.length > 0, of !== 'for a key that sees nothing');
        for (const rows of [1, 3, 1_000])
          for (const limit of [1, 4, 500]) {
            const reads = { rows, bytes: 2 ** 40 };
            const { found, calls } = await callsOf((cursor) =>
              store.deliveries.search({ ...filter, limit, cursor }, reads, NOW, visibility),
            );
            assert.deepEqual(found, expected);
            assert.ok(calls.every(([count]) => count <= rows));
          }
      });

    test('reads no rows of others, where the key sees few', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'quiet', 'i');
      await meeting(store, 'silent', 'i');
      await meeting(store, 'busy', 'k');
      await accept(store, said('quiet', 'x'), said('silent', 'x'));
      await accept(store, ...Array.from({ length: 50 }, () => said('busy', 'x')));
      const few = { rows: 4, bytes: 2 ** 40 };
      const { calls } = await callsOf((cursor) =>
        store.deliveries.search({ limit: 9, cursor }, few, NOW, visible(null, 'quiet', 'silent')),
      );
      assert.deepEqual(calls, [[2, false]]);
    });

    test('continues with the shorter way: the deliveries of the instance, or the messages of the meeting', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'rare', 'often');
      await meeting(store, 'other', 'often');
      await store.meetings.join('m', 'rare', ['r'], NOW);
      const to_agents = (...target_agents: string[]) => said('m', 'x', { target_agents });
      await accept(store, to_agents('r'), ...Array.from({ length: 50 }, () => to_agents('a')));
      await accept(store, ...Array.from({ length: 100 }, () => said('other', 'x')));
      const calls_of = async (instance_id: string, keys: DeliveryKeys) =>
        (
          await callsOf((cursor) =>
            store.deliveries.search({ limit: 99, cursor, instance_id, ...keys }, { rows: 10, bytes: 2 ** 40 }, NOW),
          )
        ).calls;
      assert.deepEqual(await calls_of('rare', { meeting_id: 'm' }), [[1, false]]);
      assert.deepEqual(await calls_of('often', { meeting_id: 'm', before_seq: 3 }), [[1, false]]);
    });
  });

  test('a caller finds only what it may see', async (t) => {
    const store = await engine.open(t);
    for (const id of ['a', 'b', 'c']) await meeting(store, id, 'i');
    await accept(store, said('a', 'x'), said('b', 'x'), said('c', 'x'));
    const seen = async (meeting_ids: string[]) =>
      (
        await store.deliveries.search({ limit: 9, text: 'x' }, SEARCH_READS, NOW, { owner_scope: null, meeting_ids })
      ).data.map(({ meeting_id }) => meeting_id);
    assert.deepEqual(await seen([]), []);
    assert.deepEqual(await seen(['b']), ['b']);
    assert.deepEqual(await seen(['c', 'a']), ['c', 'a']);
    const owner_scope = { key_id: 'of nobody', instance_id: null };
    const search = { limit: 9, state: 'pending' } as const;
    assert.deepEqual(
      (await store.deliveries.search(search, SEARCH_READS, NOW, { owner_scope, meeting_ids: [] })).data,
      [],
    );
  });

  test('a cursor that is none is refused', async (t) => {
    const store = await engine.open(t);
    for (const cursor of ['garbage', Buffer.from('["x"]').toString('base64url')]) {
      await assert.rejects(store.messages.search({ limit: 1, cursor }, EVERYTHING), { code: 'invalid_fields' });
      await assert.rejects(store.deliveries.search({ limit: 1, cursor }, EVERYTHING, NOW), { code: 'invalid_fields' });
    }
  });
}
