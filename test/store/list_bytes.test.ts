/**
 * The limits of bytes for lists of agents, with SQLite and PostgreSQL: of a page, a lane and a meeting. No list of
 * agents is cut off.
 */
import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';
import pg from 'pg';
import { ChainVerifier } from '../../src/domain/audit.ts';
import { AGENT_IDS_BYTES_MAX } from '../../src/domain/id.ts';
import { SEARCH_READS } from '../../src/store/contract/search.ts';
import { PAGE_BYTES_MAX } from '../../src/store/rows/page.ts';
import { MIGRATIONS as POSTGRES_STEPS } from '../../src/store/postgres/migrations.ts';
import { MIGRATIONS as SQLITE_STEPS } from '../../src/store/sqlite/migrations.ts';
import { LANE_PAGE_CHARS_MAX, queuedChars } from '../../src/store/contract/deliveries.ts';
import type { Store } from '../../src/store/store.ts';
import { type EngineUnderTest, ENGINES, openPostgresHere } from '../support/engines.ts';
import { openStoreHere, SECRET, temporaryFile } from '../support/node.ts';
import { makeDatabase } from '../support/postgres.ts';
import { lane, meeting, messages, settled, WALL } from '../support/store_contents.ts';

for (const engine of ENGINES) describe(engine.name, () => holdsTheContract(engine));

/** A list of the largest size, mostly of characters that take four bytes and two units of UTF-16. */
const LONG = Array.from(
  { length: AGENT_IDS_BYTES_MAX / 100 },
  (_, i) => `${String(i).padStart(4, '0')}${'😀'.repeat(24)}`,
);

function register(store: Store, instance_id: string, agent_ids: string[]) {
  return store.instances.register(
    {
      instance_id,
      instance_name: instance_id,
      agent_ids,
      webhook_url: 'http://machine.test/',
      webhook_headers: undefined,
      webhook_secret: undefined,
      new_secret: SECRET,
      success_statuses: undefined,
    },
    WALL,
  );
}

/**
 * Makes instances with long lists of agents. They join a meeting until its limit is reached. One instance has a list
 * that only an earlier version accepted.
 */
async function fill(store: Store, count: number): Promise<string[]> {
  const names = Array.from({ length: count }, (_, i) => `i${String(i).padStart(3, '0')}`);
  for (const [i, name] of names.entries()) {
    await register(store, name, i === 1 ? Array.from({ length: 20 }, (_, n) => LONG.map((id) => n + id)).flat() : LONG);
    await store.meetings.join('m', name, LONG, WALL);
  }
  return names;
}

async function pagesOf<T>(
  read: (cursor: string | undefined) => Promise<{ data: T[]; next_cursor: string | null } | null>,
): Promise<T[][]> {
  const pages: T[][] = [];
  let cursor: string | undefined;
  do {
    const page = await read(cursor);
    assert.ok(page !== null);
    pages.push(page.data);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return pages;
}

function assertBounded(pages: { agent_ids: string[] }[][] | { target_agents: string[] }[][]): void {
  assert.ok(pages.length > 1);
  for (const page of pages) {
    const lists = page.map((row) => ('agent_ids' in row ? row.agent_ids : row.target_agents));
    const bytes = lists.map((list) => Buffer.byteLength(JSON.stringify(list)));
    const sum = bytes.reduce((a, b) => a + b, 0);
    assert.ok(page.length === 1 || sum <= PAGE_BYTES_MAX, `${page.length} rows of ${sum} bytes`);
  }
}

function holdsTheContract(engine: EngineUnderTest): void {
  test('what agents said to an instance is read up to a limit of bytes, the newest messages, and of one agent', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'i');
    await store.meetings.join('m', 'i', LONG, WALL);
    const bytes = Buffer.byteLength(JSON.stringify(LONG));
    for (const from_agent of ['x', 'y', 'x', 'y', 'y']) {
      const origin = { from_agent, in_reply_to: null, speaks_for: null };
      await store.messages.accept(messages('m', 1, { origin }));
    }
    const before = { instance_id: 'i', meeting_id: 'm', delivery_id: null, seq: Number.MAX_SAFE_INTEGER };
    const read = async (bytes_max: number, from_agent: string | null = null) => {
      const found = await store.deliveries.ofAgentsBefore(before, 0, { rows_max: 100, bytes_max, from_agent });
      for (const { target_agents } of found) assert.deepEqual(JSON.parse(target_agents), LONG);
      return found.map((said) => said.from_agent).join('');
    };
    assert.equal(await read(5 * bytes), 'xyxyy');
    assert.equal(await read(5 * bytes - 1), 'yxyy');
    assert.equal(await read(3 * bytes), 'xyy');
    assert.equal(await read(bytes - 1), '');
    assert.equal(await read(5 * bytes, 'x'), 'xx');
    assert.equal(await read(bytes, 'x'), 'x');
    assert.equal(await read(5 * bytes, 'z'), '');
  });

  test('a page ends where its rows reach half a mebibyte, and the next one continues there', async (t) => {
    const store = await engine.open(t);
    const names = await fill(store, 30);
    const instances = await pagesOf((cursor) => store.instances.list({ limit: 500, cursor }));
    assertBounded(instances);
    assert.deepEqual(
      instances.flat().map(({ instance_id }) => instance_id),
      names,
    );
    assert.deepEqual(instances.flat()[2]!.agent_ids, LONG);
    // A row that is larger than a page is alone on its page.
    assert.deepEqual(
      instances.slice(0, 2).map((page) => page.map(({ instance_id }) => instance_id)),
      [['i000'], ['i001']],
    );
    const members = await pagesOf((cursor) => store.meetings.instances('m', { limit: 500, cursor }));
    assertBounded(members);
    assert.deepEqual(
      members.flat().map(({ instance_id }) => instance_id),
      names,
    );
    await store.messages.accept(messages('m', 1));
    for (const filter of [{}, { meeting_id: 'm' }]) {
      const deliveries = await pagesOf((cursor) => store.deliveries.list({ limit: 500, cursor, ...filter }, WALL));
      assertBounded(deliveries);
      assert.deepEqual(
        deliveries.flat().map(({ instance_id }) => instance_id),
        names.toReversed(),
      );
    }
    // The number of rows ends a page of short rows: long rows elsewhere do not matter.
    assert.equal((await store.instances.list({ limit: 5, cursor: undefined, q: 'i02' })).data.length, 5);
  });

  test('a page of keys, and of invites, ends there too', async (t) => {
    const store = await engine.open(t);
    const ids = Array.from({ length: 30 }, (_, i) => `i${String(i).padStart(3, '0')}`);
    const made = { meeting_ids: LONG, instance_id: null, created_at: WALL };
    for (const id of ids) {
      await store.api_keys.create({
        ...made,
        key_id: id,
        name: null,
        scopes: [id === 'i000' ? 'admin' : 'read'],
        digest: id,
        expires_at: null,
      });
      await store.invites.create({
        ...made,
        invite_id: id,
        digest: id,
        created_by: null,
        token_digest: null,
        instance_id: id,
        agent_ids: LONG,
        expires_at: WALL + 60_000,
      });
    }
    const keys = await pagesOf((cursor) => store.api_keys.list({ limit: 500, cursor }));
    assertBounded(keys.map((page) => page.map(({ meeting_ids }) => ({ agent_ids: meeting_ids ?? [] }))));
    assert.deepEqual(
      keys.flat().map(({ key_id }) => key_id),
      ids,
    );
    const invites = await pagesOf((cursor) => store.invites.list({ limit: 500, cursor }));
    assertBounded(
      invites.map((page) => page.map(({ meeting_ids, agent_ids }) => ({ agent_ids: [...meeting_ids, ...agent_ids] }))),
    );
    assert.deepEqual(
      invites.flat().map(({ invite_id }) => invite_id),
      ids.toReversed(),
    );
    assert.deepEqual(invites.flat().at(-1), await store.invites.find('i000'));
    assert.deepEqual(keys.flat()[0], await store.api_keys.get('i000'));
  });

  test('a page of the audit log ends there too, in both orders, and each entry has its own fields only', async (t) => {
    const store = await engine.open(t);
    const subject = { principal: 'open', address: null, target_kind: 'invite', outcome: 'done', code: null } as const;
    const details = { meeting_ids: LONG };
    for (let i = 0; i < 30; i++) {
      await store.audit.append({ ...subject, action: 'invite.create', target_id: `i${i}`, details }, WALL);
    }
    const oldest_first = Array.from({ length: 30 }, (_, i) => i + 1);
    for (const newest_first of [true, false]) {
      for (const more of [{}, { action: 'invite.create' as const }]) {
        const pages = await pagesOf((cursor) =>
          store.audit.list({ limit: 500, cursor, newest_first, ...more }, SEARCH_READS.rows),
        );
        assertBounded(
          pages.map((page) => page.map((entry) => ({ agent_ids: entry.details['meeting_ids'] as string[] }))),
        );
        const seqs = pages.flat().map(({ seq }) => seq);
        assert.deepEqual(seqs, newest_first ? oldest_first.toReversed() : oldest_first);
        const chain = new ChainVerifier();
        for (const entry of pages.flat().toSorted((a, b) => a.seq - b.seq)) assert.equal(chain.next(entry), null);
        assert.equal(chain.end(), null);
      }
    }
  });

  test('a page of a lane, and of what is aside, ends where its messages and lists reach their limit', async (t) => {
    const store = await engine.open(t);
    await meeting(store, 'm', 'i');
    await store.meetings.join('m', 'i', LONG, WALL);
    await store.messages.accept(messages('m', 30, { message: '{"text":"é"}' }));
    const page = await lane(store, 'i', 'm');
    const chars = page.reduce((sum, delivery) => sum + queuedChars(delivery), 0);
    assert.ok(page.length > 1 && page.length < 30, `${page.length}`);
    assert.ok(chars >= LANE_PAGE_CHARS_MAX && chars - queuedChars(page.at(-1)!) < LANE_PAGE_CHARS_MAX);
    const all: number[] = [];
    for (let after_seq = 0; after_seq < 30; after_seq = all.at(-1)!) {
      const [next = []] = await store.deliveries.loadLanes([
        { instance_id: 'i', meeting_id: 'm', after_seq, limit: 64 },
      ]);
      all.push(...next.map(({ seq }) => seq));
      await store.deliveries.settle(
        next.map((delivery) =>
          settled(delivery, { state: 'pending', aside: true, next_attempt_at: WALL, settled_at: null }),
        ),
        [],
      );
    }
    assert.deepEqual(
      all,
      Array.from({ length: 30 }, (_, i) => i + 1),
    );
    const beside: number[] = [];
    for (let next_at: number | null = WALL; next_at !== null;) {
      const due = await store.deliveries.loadAside('i', WALL, 64);
      assert.equal(due.deliveries.length === 30, false);
      beside.push(...due.deliveries.map(({ seq }) => seq));
      await store.deliveries.settle(
        due.deliveries.map((delivery) => settled(delivery)),
        [],
      );
      next_at = due.next_at;
    }
    assert.deepEqual(beside, all);
  });

  test('a page of messages since one ends where their lists reach the limit, and the next one continues there', async (t) => {
    const store = await engine.open(t);
    await store.messages.accept(messages('m', 7, { target_agents: LONG }));
    const list_chars = JSON.stringify(LONG).length;
    const pages: number[][] = [];
    let after: string | null = null;
    for (let has_more = true; has_more;) {
      const page = await store.messages.since(after, { scan: 100, limit: 100, chars_max: 3 * list_chars });
      pages.push(page.data.map(({ seq }) => seq));
      ({ has_more } = page);
      after = page.data.at(-1)!.message_id;
    }
    assert.deepEqual(pages, [[1, 2, 3], [4, 5, 6], [7]]);
    // A row that is longer than the limit is alone on its page. The number of rows ends a page of short rows.
    assert.equal((await store.messages.since(null, { scan: 9, limit: 100, chars_max: 1 })).data.length, 1);
    assert.deepEqual((await store.messages.since(null, { scan: 9, limit: 2, chars_max: 1e9 })).has_more, true);
  });

  test('the lists of a meeting take 4 MiB at most; a small one is accepted all the same, and an instance that leaves makes room', async (t) => {
    const store = await engine.open(t);
    await register(store, 'last', ['a']);
    let joined = 0;
    const codeOf = async (instance_id: string, list: string[]): Promise<string> => {
      await register(store, instance_id, ['a']);
      return store.meetings.join('m', instance_id, list, WALL).then(
        () => 'joined',
        ({ code }: { code: string }) => code,
      );
    };
    while ((await codeOf(`i${joined}`, LONG)) === 'joined') joined++;
    assert.ok(joined > 90 && joined < 110, `${joined}`);
    assert.equal(await codeOf('one more', LONG), 'quota_exceeded');
    assert.equal(await codeOf('one more', ['a', 'b']), 'joined');
    assert.equal(await codeOf('i3', LONG), 'joined', 'the same list again');
    assert.equal((await store.meetings.list({ limit: 9 })).data[0]!.agent_count, joined * LONG.length + 2);
    await store.meetings.leave('m', 'i5', WALL);
    assert.equal(await codeOf('one more', LONG), 'joined');
  });

  test('the hosts of an agent are known as lists change, and as instances are removed', async (t) => {
    const store = await engine.open(t);
    const hosts = async (agent_id: string): Promise<string[]> =>
      (await store.instances.list({ limit: 9, agent_id })).data.map(({ instance_id }) => instance_id);
    await register(store, 'one', ['a', 'b', 'é"\\']);
    await register(store, 'two', ['b', 'A']);
    assert.deepEqual([await hosts('a'), await hosts('b'), await hosts('é"\\')], [['one'], ['one', 'two'], ['one']]);
    await register(store, 'one', ['b', 'c']);
    assert.deepEqual([await hosts('a'), await hosts('b'), await hosts('c')], [[], ['one', 'two'], ['one']]);
    await store.instances.remove('one', 9, WALL);
    assert.deepEqual([await hosts('b'), await hosts('c'), await hosts('A')], [['two'], [], ['two']]);
    await register(store, 'one', []);
    assert.deepEqual(await hosts('b'), ['two']);
  });
}

describe('a page of meetings ends at 16,384 memberships, because each costs a search, and always has a meeting', () => {
  /** How many memberships each meeting has. */
  const MEMBERS = { m1: 5_000, m2: 5_000, m3: 5_000, m4: 5_000, m5: 20_000, m6: 1 };

  async function assertPages(store: Store): Promise<void> {
    const pages = await pagesOf((cursor) => store.meetings.list({ limit: 500, cursor }));
    assert.deepEqual(
      pages.map((page) => page.map(({ meeting_id }) => meeting_id)),
      [['m1', 'm2', 'm3'], ['m4'], ['m5'], ['m6']],
    );
    const counts = pages.flat().map(({ meeting_id, instance_count }) => [meeting_id, instance_count]);
    assert.deepEqual(Object.fromEntries(counts), MEMBERS);
    // The number of meetings ends a page of small ones.
    assert.equal((await store.meetings.list({ limit: 1 })).data.length, 1);
  }

  const meeting = (meeting_id: string): string =>
    `INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at) VALUES ('${meeting_id}', 0, 1, 1);`;
  const memberships = (meeting_id: string, numbers: string): string =>
    `${meeting(meeting_id)}
     INSERT INTO memberships (meeting_id, instance_id, agent_ids, joined_at) SELECT '${meeting_id}', 'i' || n, '[]', 1 FROM ${numbers};`;

  test('SQLite', async (t) => {
    const file = temporaryFile(t);
    const db = new DatabaseSync(file);
    db.exec('BEGIN');
    for (const step of SQLITE_STEPS) db.exec(step);
    db.exec(`INSERT INTO this_file (tag) VALUES ('filledbytest'); PRAGMA user_version = ${SQLITE_STEPS.length}`);
    for (const [id, count] of Object.entries(MEMBERS)) {
      db.exec(
        memberships(
          id,
          `(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < ${count}) SELECT n FROM s)`,
        ),
      );
    }
    db.exec('COMMIT');
    db.close();
    const store = openStoreHere(file);
    t.after(() => store.close());
    await assertPages(store);
  });

  test('PostgreSQL', async (t) => {
    const url = await makeDatabase();
    const store = await openPostgresHere(url);
    t.after(() => store.close());
    const client = new pg.Client(url);
    await client.connect();
    for (const [id, count] of Object.entries(MEMBERS))
      await client.query(memberships(id, `generate_series(1, ${count}) n`));
    await client.end();
    await assertPages(store);
  });
});

describe('what was stored before lists were counted', () => {
  const FILL = `
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at) VALUES ('m', 0, 1, 1);
    INSERT INTO memberships (meeting_id, instance_id, agent_ids, joined_at) VALUES ('m', 'i', '["a","b"]', 1);`;
  const instance = (more_names: string, more: string): string => `
    INSERT INTO instances (instance_id, instance_name, agent_ids, webhook_url, webhook_headers, webhook_secret, success_statuses,
      webhook_enabled, is_active, created_at, updated_at${more_names})
    VALUES ('i', 'i', '["a","b","a"]', 'http://machine.test/', '', '', '200', 1, 1, 1, 1${more});`;
  /** The steps of the schema before the tested step. Later steps do not matter. */
  const stepsBefore = (steps: readonly string[]): readonly string[] =>
    steps.slice(
      0,
      steps.findIndex((step) => step.includes('CREATE TABLE instance_agents')),
    );

  test('is found by its agents, and counted (SQLite)', (t) => {
    const file = temporaryFile(t);
    const db = new DatabaseSync(file);
    const steps = stepsBefore(SQLITE_STEPS);
    for (const step of steps) db.exec(step);
    db.exec(`${instance('', '')}${FILL} PRAGMA user_version = ${steps.length};`);
    for (const step of SQLITE_STEPS.slice(steps.length)) db.exec(step);
    const rows = db.prepare('SELECT agent_id FROM instance_agents ORDER BY agent_id').all();
    assert.deepEqual(
      rows.map((row) => row['agent_id']),
      ['a', 'b'],
    );
    assert.equal(db.prepare('SELECT agent_count FROM memberships').get()!['agent_count'], 2);
    db.close();
  });

  test('is found by its agents, and counted (PostgreSQL)', async (t) => {
    const client = new pg.Client(await makeDatabase());
    await client.connect();
    t.after(() => client.end());
    await client.query('DROP SCHEMA public CASCADE; CREATE SCHEMA public');
    await client.query('CREATE TABLE schema_version (version integer NOT NULL, steps_known_min integer NOT NULL)');
    const steps = stepsBefore(POSTGRES_STEPS);
    for (const step of steps) await client.query(step);
    await client.query(`${instance(', partition_no, first_no', ', 0, 1')}${FILL}`);
    for (const step of POSTGRES_STEPS.slice(steps.length)) await client.query(step);
    const found = await client.query<{ agent_id: string }>('SELECT agent_id FROM instance_agents ORDER BY agent_id');
    assert.deepEqual(
      found.rows.map(({ agent_id }) => agent_id),
      ['a', 'b'],
    );
    // A row of the earlier version has no count of agents. So each read counts them, until the row is written.
    await client.query(`UPDATE memberships SET agent_ids = '["a"]'`);
    const counted = await client.query<{ agent_count: number }>('SELECT agent_count FROM memberships');
    assert.equal(counted.rows[0]!.agent_count, 1);
  });
});
