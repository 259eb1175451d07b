/** Signals end a service that is still starting, also when the thread of its store is busy and does not listen. */
import assert from 'node:assert/strict';
import { type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { DatabaseSync } from 'node:sqlite';
import { describe, test, type TestContext } from 'node:test';
import { MIGRATIONS } from '../../src/store/sqlite/migrations.ts';
import { start, temporaryDirectory } from '../support/command_line.ts';
import { inTime, until } from '../support/wait.ts';

/** A trigger whose statement does not end, in the place of a file that is so large that a step takes long. */
const ENDLESS = `
  CREATE TRIGGER endless BEFORE UPDATE ON memberships BEGIN
    SELECT max(n) FROM (WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT n FROM numbers);
  END`;

/** Starts a service whose store is in a step of the schema that does not end. */
async function startWithoutEnd(t: TestContext): Promise<{ child: ChildProcess; log: string[] }> {
  const data = temporaryDirectory(t);
  const db = new DatabaseSync(join(data, 'convoke.db'));
  const step = MIGRATIONS.findIndex((sql) => sql.includes('UPDATE memberships SET agent_count'));
  for (const sql of MIGRATIONS.slice(0, step)) db.exec(sql);
  db.exec(`PRAGMA user_version = ${step}; INSERT INTO this_file (tag) VALUES ('formertag')`);
  db.exec("INSERT INTO memberships (meeting_id, instance_id, agent_ids, joined_at) VALUES ('m', 'i', '[]', 0)");
  db.exec(ENDLESS);
  db.close();
  const child = start(['serve', '--port', '0', '--data', data, '--log-format', 'json']);
  t.after(() => void child.kill('SIGKILL'));
  const log: string[] = [];
  createInterface({ input: child.stderr! }).on('line', (line) => log.push(line));
  await until('the step', () => existsSync(join(data, 'convoke.db-wal')), Boolean);
  return { child, log };
}

describe('while a step of the schema takes long', () => {
  test('the second signal ends the process at once', async (t) => {
    const { child } = await startWithoutEnd(t);
    const ended = once(child, 'exit');
    await until(
      'the end',
      () => child.kill('SIGTERM') && child.signalCode === null,
      (is_alive) => !is_alive,
    );
    assert.deepEqual(await ended, [null, 'SIGTERM']);
  });

  test('one signal ends it when the time for a stop is over', async (t) => {
    const { child, log } = await startWithoutEnd(t);
    // Unlike `exit`, this comes after the last line of the log.
    const ended = once(child, 'close');
    child.kill('SIGINT');
    assert.deepEqual(await inTime('the end', ended), [null, 'SIGINT']);
    assert.match(log.at(-1)!, /stopped before the start was over: nothing was accepted/);
  });
});
