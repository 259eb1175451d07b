/** What SQLite promises beyond the contract of the store (test/store/contract.ts): about its file. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import type { Store } from '../../src/store/store.ts';
import { Database } from '../../src/store/sqlite/database.ts';
import { openDataKeys } from '../../src/store/sqlite/encryption.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { storedTimestamp } from '../../src/store/sqlite/timestamp.ts';
import { openStoreHere, temporaryFile } from '../support/node.ts';
import { lane, meeting, messages, NEVER, newMessage, register, WALL } from '../support/store_contents.ts';

async function threadedStore(t: TestContext, file = temporaryFile(t)): Promise<Store> {
  const { store, opened } = openSqliteStore(file, null);
  t.after(() => store.close());
  await opened;
  return store;
}

function storeHere(t: TestContext, file?: string): Store {
  const store = openStoreHere(file);
  t.after(() => store.close());
  return store;
}

test('a timestamp with a NUL is read from the message: Node 22 reads a text of SQLite only up to there', () => {
  const read = (timestamp: string, message: string) => storedTimestamp({ timestamp, message });
  assert.equal(read('x', String.raw`{"created_at":"x\u0000y","a":1}`), 'x\0y');
  assert.equal(read('x', String.raw`{"created_at":"x","a":"\u0000"}`), 'x');
  assert.equal(read('', String.raw`{"a":"\u0000"}`), '');
  // A value that cannot be read leaves the column unchanged.
  assert.equal(read('x', String.raw`\u0000`), 'x');
  assert.equal(read('x', 7 as never), 'x');
});

test('a damaged result of an idempotency key spoils no other message of its batch', async (t) => {
  const file = temporaryFile(t);
  const first = await threadedStore(t, file);
  const keyed = newMessage('m', { idempotency: { key: 'k', sender: 's', fingerprint: 'f' } });
  await first.messages.accept([keyed]);
  await first.close();
  const db = new DatabaseSync(file);
  db.exec(`UPDATE idempotency_keys SET result = '{"meeting_id":"m"}'`);
  db.close();
  const store = await threadedStore(t, file);
  const [repeated, next] = await store.messages.accept([keyed, newMessage('m')]);
  assert.ok(next?.kind === 'accepted');
  assert.deepEqual([next.message.seq, (await store.messages.get(next.message.message_id))?.seq], [2, 2]);
  assert.deepEqual(repeated, { kind: 'damaged' });
});

describe('the file', () => {
  test('holds after a close what was written before', async (t) => {
    const file = temporaryFile(t);
    const first = await threadedStore(t, file);
    await meeting(first, 'm', 'i');
    await first.messages.accept(messages('m', 3));
    await first.close();
    const second = await threadedStore(t, file);
    assert.equal(await second.deliveries.countPending(), 3);
    assert.equal((await second.messages.accept(messages('m', 1)))[0]?.kind, 'accepted');
    assert.equal((await lane(second, 'i', 'm')).at(-1)?.seq, 4);
  });

  test('that is open is refused a second time, by this process and by another, in words that help', async (t) => {
    const file = temporaryFile(t);
    await threadedStore(t, file);
    const here = openSqliteStore(file, null).opened;
    const code = `
      import { openSqliteStore } from ${JSON.stringify(new URL('../../src/store/sqlite/open.ts', import.meta.url).href)};
      await openSqliteStore(${JSON.stringify(file)}, null).opened.then(() => console.log('opened'), (error) => console.log(error.code, error.message));`;
    const program = join(dirname(file), 'second.mjs');
    writeFileSync(program, code);
    const there = promisify(execFile)(process.execPath, [program]);
    await assert.rejects(here, {
      name: 'StoreError',
      code: 'SQLITE_BUSY',
      message: /is in use by another process.*--data/,
    });
    assert.match((await there).stdout, /^SQLITE_BUSY .*is in use by another process/);
  });

  test('can be read by its owner alone, and so can what SQLite puts beside it', async (t) => {
    const file = temporaryFile(t);
    const store = await threadedStore(t, file);
    await register(store, 'a');
    for (const path of [file, `${file}-wal`]) assert.equal(statSync(path).mode & 0o777, 0o600, path);
  });

  test('is written to before it is called ready', async (t) => {
    const file = temporaryFile(t);
    const store = await threadedStore(t, file);
    const before = statSync(`${file}-wal`).size;
    await store.ping();
    assert.ok(statSync(`${file}-wal`).size > before);
  });

  test('has each step of a removal without its log: many steps at once would hold up a commit', async (t) => {
    const file = temporaryFile(t);
    const store = storeHere(t, file);
    /** How many messages are in the file itself: a copy of it has no log. */
    const inFile = (): number => {
      const copy = join(dirname(file), 'copy.db');
      copyFileSync(file, copy);
      const db = new DatabaseSync(copy);
      const is_there = db.prepare("SELECT count(*) AS n FROM sqlite_schema WHERE name = 'messages'").get()?.['n'] === 1;
      const count = is_there ? db.prepare('SELECT count(*) AS n FROM messages').get()?.['n'] : 0;
      db.close();
      return count as number;
    };
    await store.messages.accept(messages('nobody', 30));
    assert.equal(inFile(), 0, 'control: a commit alone leaves them in the log');
    const { removed } = await store.deliveries.prune(
      { deliveries_ms: 0, messages_ms: NEVER, idempotency_ms: 0, future_ms: Infinity },
      10,
      Infinity,
      null,
    );
    assert.equal(removed, 10);
    assert.equal(inFile(), 20);
  });

  test('of a newer schema is refused, and left as it is', async (t) => {
    const file = temporaryFile(t);
    const newer = new DatabaseSync(file);
    newer.exec('PRAGMA user_version = 99; CREATE TABLE of_the_future (id INTEGER)');
    newer.close();
    await assert.rejects(openSqliteStore(file, null).opened, {
      name: 'StoreError',
      code: 'SCHEMA_NEWER',
      message: /schema 99.*newer version/,
    });
    const after = new DatabaseSync(file);
    assert.equal(after.prepare('PRAGMA user_version').get()?.['user_version'], 99);
    assert.equal(after.prepare('SELECT count(*) AS n FROM sqlite_schema').get()?.['n'], 1);
    after.close();
  });

  test('that is no data file is refused', async (t) => {
    const file = temporaryFile(t);
    writeFileSync(file, 'this is no database, and nobody should write into it\n'.repeat(100));
    const { size } = statSync(file);
    await assert.rejects(openSqliteStore(file, null).opened, { name: 'StoreError' });
    assert.equal(statSync(file).size, size);
  });

  test('is in WAL mode and written through to the disk at each commit', (t) => {
    const file = temporaryFile(t);
    storeHere(t, file);
    assert.ok(statSync(`${file}-wal`).size > 0);
  });
});

describe('the recipients of a meeting', () => {
  /** Sends a message to the meeting `m` and says how often its recipients were read from the file. */
  async function reads(t: TestContext, store: Store): Promise<number> {
    const prepared = t.mock.method(Database.prototype, 'prepare');
    await store.messages.accept([newMessage('m')]);
    prepared.mock.restore();
    return prepared.mock.calls.filter(({ arguments: [sql] }) => sql.includes('FROM memberships m JOIN instances'))
      .length;
  }

  const OF_OTHERS: Record<string, (store: Store) => Promise<unknown>> = {
    'a failed call': (store) => assert.rejects(store.api_keys.list({ limit: 5, cursor: 'none' })),
    'the removal of an instance of another meeting': (store) => store.instances.remove('other', 100, WALL),
    'a pause of an instance of another meeting': (store) =>
      store.instances.patch('other', { webhook_enabled: false }, WALL),
  };
  for (const [what, change] of Object.entries(OF_OTHERS))
    test(`stay in memory through ${what}`, async (t) => {
      const store = storeHere(t);
      await meeting(store, 'm', 'i');
      await meeting(store, 'others', 'other');
      assert.equal(await reads(t, store), 1);
      await change(store);
      assert.equal(await reads(t, store), 0);
    });

  const OF_MEMBERS: Record<string, [change: (store: Store) => Promise<unknown>, recipients: number]> = {
    'a member is removed': [(store) => store.instances.remove('i', 100, WALL), 1],
    'a member is switched off': [(store) => store.instances.patch('i', { webhook_enabled: false }, WALL), 1],
    'the address of a member is gone': [
      async (store) => {
        const row = (await store.instances.get('i'))!;
        await store.deliveries.settle([], [{ ...row, gone_as_of: row.updated_at, epoch: 0 }]);
      },
      1,
    ],
    'a change of a member fails': [
      (store) => assert.rejects(store.meetings.join('m', 'unknown', ['a'], WALL), /register it/),
      2,
    ],
  };
  for (const [when, [change, recipients]] of Object.entries(OF_MEMBERS))
    test(`are right when ${when}`, async (t) => {
      const store = storeHere(t);
      await meeting(store, 'm', 'i', 'j');
      await store.messages.accept([newMessage('m')]);
      await change(store);
      const [accepted] = await store.messages.accept([newMessage('m')]);
      assert.ok(accepted?.kind === 'accepted');
      assert.equal(accepted.deliveries.length, recipients);
    });
});

test('a file of 0.1.0 is rewritten by way of the disk, and not in memory', (t) => {
  const db = new Database(temporaryFile(t));
  t.after(() => db.close());
  db.exec('UPDATE this_file SET plain_text_left = 1');
  const tempStore = (): number => (db.prepare('PRAGMA temp_store').get() as { temp_store: number }).temp_store;
  const [FILE, MEMORY] = [1, 2];
  const exec = db.exec.bind(db);
  const at_vacuum: number[] = [];
  t.mock.method(db, 'exec', (sql: string) => {
    if (sql === 'VACUUM') at_vacuum.push(tempStore());
    exec(sql);
  });
  openDataKeys(db, { kind: 'memory' }, WALL);
  assert.deepEqual(at_vacuum, [FILE]);
  assert.equal(tempStore(), MEMORY, 'a commit makes no temporary file');
});
