/** Sessions that PostgreSQL ends by itself count as lost, so their work is done again on another connection. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { Connection, ConnectionLost } from '../../src/store/postgres/connection/connection.ts';
import { makeDatabase } from '../support/postgres.ts';

/** Returns when the server has ended a session. It is a process, so that nothing of this process reads the news. */
const WAIT_FOR_END = `
  import pg from 'pg';
  const [url, pid] = process.argv.slice(1);
  const client = new pg.Client(url);
  await client.connect();
  while ((await client.query('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [pid])).rowCount > 0);
  await client.end();
`;

/** The milliseconds are enough to begin to wait: this process must not read the news before its next statement. */
const ENDED: Record<string, string> = {
  '57P05': 'SET idle_session_timeout = 300',
  '25P03': 'BEGIN; SET idle_in_transaction_session_timeout = 300',
};

for (const [code, settings] of Object.entries(ENDED)) {
  test(`a statement on a session that PostgreSQL ended with ${code} says that the connection is lost`, async (t) => {
    const url = await makeDatabase();
    const connection = await Connection.open(url);
    t.after(() => connection.destroy());
    const { rows } = await connection.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    await connection.script(settings);
    const { status, stderr } = spawnSync(
      process.execPath,
      ['--input-type=module', '-e', WAIT_FOR_END, url, String(rows[0]!.pid)],
      { encoding: 'utf8' },
    );
    assert.equal(status, 0, stderr);
    await assert.rejects(connection.query('SELECT 1'), ConnectionLost);
  });
}
