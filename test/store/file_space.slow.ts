/** A data file returns its free space in small steps. `convoke compact` rewrites a file of an older version. */
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test, type TestContext } from 'node:test';
import type { Clock } from '../../src/delivery/clock.ts';
import { Expiry } from '../../src/delivery/expiry.ts';
import { Maintenance } from '../../src/delivery/maintenance.ts';
import { Database } from '../../src/store/sqlite/database.ts';
import { fileOperations } from '../../src/store/sqlite/file/space.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import type { FileSpace } from '../../src/store/contract/file.ts';
import type { Store } from '../../src/store/store.ts';
import { convoke, serve, stop, temporaryDirectory } from '../support/command_line.ts';

const DAY_MS = 86_400_000;
const MIB = 2 ** 20;
/** The size of a file without messages: the space that it keeps for new rows, and the few pages in use. */
const KEPT_BYTES_MAX = 5 * MIB;

/** A clock on which nobody waits: a pause is a turn of the event loop. */
const LATER: Clock = {
  now: () => Date.now() + 100 * DAY_MS,
  wall: () => Date.now() + 100 * DAY_MS,
  steadyOf: (wall_ms) => wall_ms,
  after: (_, callback) => {
    const turn = setImmediate(callback);
    return { cancel: () => clearImmediate(turn) };
  },
  soon: (callback) => void setImmediate(callback),
};

async function opened(data: string): Promise<{ store: Store; file: string }> {
  const file = join(data, 'convoke.db');
  const { store, opened } = openSqliteStore(file, null);
  await opened;
  return { store, file };
}

/** Stores messages of one MiB each, in a meeting without members. */
async function fill(store: Store, count: number): Promise<void> {
  const message = JSON.stringify('x'.repeat(MIB));
  const common = {
    meeting_id: 'm',
    timestamp: '',
    target_agents: null,
    origin: null,
    trace: null,
    idempotency: null,
    expires_at: 0,
  };
  for (let i = 0; i < count; i++) await store.messages.accept([{ ...common, message, wall_ms: Date.now() }]);
}

/** Runs a round of maintenance a hundred days later. Returns what it reported about the file. */
async function maintain(store: Store): Promise<FileSpace[]> {
  const reported: FileSpace[] = [];
  const retention_ms = 30 * DAY_MS;
  const settings = {
    retention_deliveries_ms: retention_ms,
    retention_messages_ms: retention_ms,
    retention_audit_ms: 400 * DAY_MS,
  };
  const maintenance = new Maintenance(LATER, store, settings, new Expiry(LATER, 3 * DAY_MS), {
    expired() {},
    isMostlyEmpty: (space) => reported.push(space),
    failed: (error) => assert.fail(error as Error),
  });
  for (let round = 0; round < 2; round++) await maintenance.run();
  return reported;
}

/** Makes a file as an older version made it. */
function olderFile(data: string): void {
  const db = new DatabaseSync(join(data, 'convoke.db'));
  db.exec('PRAGMA journal_mode = WAL; CREATE TABLE first (id INTEGER); DROP TABLE first');
  db.close();
}

test('what retention removes makes the file smaller while it is in use', async (t) => {
  const { store, file } = await opened(temporaryDirectory(t));
  t.after(() => store.close());
  await fill(store, 24);
  const before = await store.file!.space();
  assert.ok(before.pages * before.page_bytes > 24 * MIB);
  assert.deepEqual(await maintain(store), []);
  const after = await store.file!.space();
  assert.ok(after.pages * after.page_bytes < KEPT_BYTES_MAX, JSON.stringify(after));
  assert.ok(statSync(file).size < KEPT_BYTES_MAX, 'the disk has it back at once');
  await fill(store, 1);
  assert.equal((await store.messages.list('m', { limit: 9, chars_max: 9 * MIB }))?.data.length, 1);
});

test('control: a file of an older version stays as large, which is logged once; convoke compact rewrites it', async (t) => {
  const data = temporaryDirectory(t);
  olderFile(data);
  const { store, file } = await opened(data);
  await fill(store, 70);
  const reported = await maintain(store);
  assert.deepEqual(
    reported.map(({ gives_back, free_pages, page_bytes }) => [gives_back, free_pages * page_bytes > 64 * MIB]),
    [[false, true]],
  );
  await fill(store, 1);
  await store.close();
  assert.ok(statSync(file).size > 70 * MIB);
  const doctor = await convoke(['doctor', '--data', data, '--port', '0']);
  assert.match(doctor.stdout, /of the data file are empty, most of it: `(npx )?convoke compact`/);

  const compacted = await convoke(['compact', '--data', data]);
  assert.equal(compacted.code, 0, compacted.stderr);
  assert.match(compacted.stdout, /convoke\.db has \S+ \S+ now, and had \S+ \S+\n/);
  assert.ok(statSync(file).size < 2 * MIB);
  const again = await opened(data);
  t.after(() => again.store.close());
  assert.equal((await again.store.file!.space()).gives_back, true);
  assert.equal((await again.store.messages.list('m', { limit: 9, chars_max: 9 * MIB }))?.data.length, 1);
});

test('convoke compact disturbs no service, and touches no file that is none of ours', async (t) => {
  const data = temporaryDirectory(t);
  const service = await serve(data);
  const refused = await convoke(['compact', '--data', data]);
  assert.deepEqual([refused.code, refused.stdout], [1, '']);
  assert.match(refused.stderr, /a running service has .* open/);
  await stop(service, 'SIGTERM');
  const elsewhere = temporaryDirectory(t);
  olderFile(elsewhere);
  const foreign = await convoke(['compact', '--data', elsewhere]);
  assert.equal(foreign.code, 1);
  assert.match(foreign.stderr, /is not a data file of Convoke/);
});

async function withFreePages(t: TestContext): Promise<{ db: Database; data: string }> {
  const data = temporaryDirectory(t);
  const { store, file } = await opened(data);
  await fill(store, 6);
  await store.deliveries.prune(
    { deliveries_ms: 0, messages_ms: Date.now() + DAY_MS, idempotency_ms: 0, future_ms: Infinity },
    500,
    Infinity,
    null,
  );
  await store.close();
  const db = new Database(file);
  t.after(() => db.close());
  return { db, data };
}

test('a step is bounded by pages and by time', async (t) => {
  const { db } = await withFreePages(t);
  const file = fileOperations(db);
  assert.ok(file.space().free_pages > 1_000);
  assert.equal(file.giveBack(64, Infinity).given_back, 64);
  assert.equal(file.giveBack(64, 0).given_back, 8, 'when the time is up, the step ends with the pages it has begun');
});

test('nothing is given back while a copy is made, and the copy is whole', async (t) => {
  const { db, data } = await withFreePages(t);
  const file = fileOperations(db);
  const given: number[] = [];
  await db.copyTo(join(data, 'copy.db'), () => given.push(file.giveBack(64, Infinity).given_back));
  assert.ok(given.length > 1);
  assert.ok(given.every((pages) => pages === 0));
  assert.equal(file.giveBack(64, Infinity).given_back, 64, 'control: when it is made');
});
