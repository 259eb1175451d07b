/** The audit log of a data file, read with the commands and with SQL. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { type AuditEntry, ConvokeClient } from '@convoke/sdk';
import type { AuditHead } from '../../src/domain/audit.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { DAY_MS, entryOf, faultIn } from '../support/audit.ts';
import { convoke, serve, stop, temporaryDirectory } from '../support/command_line.ts';

const WEBHOOK_URL = 'http://127.0.0.1:1/';

test('SQL removes exactly those entries of the log that its last entry names', async (t) => {
  const data = temporaryDirectory(t);
  const file = join(data, 'convoke.db');
  await convoke(['keys', 'create', '--scope', 'admin', '--data', data]);
  const { store, opened } = openSqliteStore(file, null);
  await opened;
  for (let day = 1; day <= 9; day++) await store.audit.append(entryOf(day), day * DAY_MS);
  // Only entries at the beginning are removed. The first entry is from today, so no entry is removed.
  assert.equal(
    await store.audit.prune({ before_ms: 5 * DAY_MS, future_ms: Number.MAX_SAFE_INTEGER }, 500, 20 * DAY_MS),
    0,
  );
  const removed = await store.audit.prune(
    { before_ms: Date.now() + 30 * DAY_MS, future_ms: Number.MAX_SAFE_INTEGER },
    3,
    20 * DAY_MS,
  );
  await store.close();
  assert.equal(removed, 3);
  const db = new DatabaseSync(file);
  assert.throws(() => db.exec('DELETE FROM audit_log WHERE seq = 4'), /append-only/);
  assert.throws(() => db.exec('DELETE FROM audit_log'), /append-only/);
  db.close();
  const verified = await convoke(['audit', 'verify', '--data', data]);
  assert.equal(verified.code, 0, verified.stderr);
  assert.match(
    verified.stdout,
    /^the audit log is whole: 8 entries\n3 entries were removed before them, the last one of 1970-01-03T00:00:00\.000Z\n/,
  );
  const backup = await convoke(['backup', join(data, 'copy.db'), '--data', data]);
  assert.equal(backup.code, 0, backup.stderr);
  assert.match(backup.stdout, /, 8 audit entries/);
});

test('SQL changes and removes nothing of the log; without the triggers it does', async (t) => {
  const data = temporaryDirectory(t);
  await convoke(['keys', 'create', '--scope', 'admin', '--data', data]);
  const verify = (...more: string[]) => convoke(['audit', 'verify', '--data', data, '--json', ...more]);
  const whole = await verify();
  assert.equal(whole.code, 0, whole.stderr);
  const { head } = JSON.parse(whole.stdout) as { head: AuditHead };
  assert.equal(head.seq, 1);
  const db = new DatabaseSync(join(data, 'convoke.db'));
  const statements = [
    "UPDATE audit_log SET principal = 'x'",
    'DELETE FROM audit_log',
    "INSERT OR REPLACE INTO audit_log SELECT seq, at, 'x', address, action, target_kind, target_id, outcome, code, details, prev_hash, hash FROM audit_log",
  ];
  for (const sql of statements) assert.throws(() => db.exec(sql), /append-only/);
  db.exec('DROP TRIGGER audit_log_is_not_changed; DROP TRIGGER audit_log_is_not_removed');
  db.exec(statements[0]!);
  db.close();
  const changed = await verify();
  assert.deepEqual([changed.code, (JSON.parse(changed.stdout) as { seq: number }).seq], [1, 1]);
  const again = new DatabaseSync(join(data, 'convoke.db'));
  again.exec(statements[1]!);
  again.close();
  assert.equal((await verify()).code, 0, 'control: an empty log is whole');
  const cut = await verify('--head', `${head.seq}:${head.hash}`);
  assert.deepEqual([cut.code, (JSON.parse(cut.stdout) as { seq: number }).seq], [1, 1]);
});

test('the chain continues over restarts and a SIGKILL, and stays one chain when many requests write at once', async (t) => {
  const data = temporaryDirectory(t);
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    const service = await serve(data);
    const client = new ConvokeClient({ base_url: service.url });
    const registering = Array.from({ length: 100 }, (_, n) =>
      client.register({ instance_id: `${signal}-${n}`, instance_name: 'n', agent_ids: [], webhook_url: WEBHOOK_URL }),
    );
    await Promise.all(registering.slice(0, 50));
    const stopped = signal === 'SIGKILL' ? stop(service, signal) : null;
    const answers = await Promise.allSettled(registering);
    await (stopped ?? stop(service, signal));
    if (signal === 'SIGTERM') assert.ok(answers.every(({ status }) => status === 'fulfilled'));
  }
  const { stdout, code, stderr } = await convoke(['audit', 'export', '--data', data]);
  assert.equal(code, 0, stderr);
  const entries = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as AuditEntry);
  assert.equal(faultIn(entries), null);
  const registered = entries.filter(({ action }) => action === 'instance.register');
  const db = new DatabaseSync(join(data, 'convoke.db'));
  const { count } = db.prepare('SELECT count(*) AS count FROM instances').get() as { count: number };
  db.close();
  assert.equal(registered.length, count, 'an entry for each instance that is there, and none for one that is not');
  assert.ok(count >= 150);
  assert.equal(entries.filter(({ action }) => action === 'service.start').length, 2);
});
