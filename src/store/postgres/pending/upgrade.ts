/**
 * Ends an upgrade to the columns of pending_deliveries.ts while nodes run. Any node may try at any time. A node begins
 * to try a day after the migration (`upgrade_ends_at`, see sweeper.ts):
 *
 * 1. While `nodes` has a row of a node of the previous version, nothing happens. A node that was killed keeps its row
 *    for an hour, because the other nodes cannot distinguish it from a paused node.
 * 2. The try notes in the database that a node must know the columns. Then the try ends. From now on no node of the
 *    previous version can start. One that has just started joins before the next try, and the next try finds its row.
 * 3. The new indexes are made while the nodes work (CONCURRENTLY).
 * 4. If there is still no node of the previous version, one transaction switches the views. It locks all of
 *    `deliveries` for some milliseconds. While this transaction waits for the lock, all others wait behind it. So it
 *    gives up after a moment.
 *
 * When a try stops half-way, the next one continues.
 */
import { Connection } from '../connection/connection.ts';
import { LOCK_TIMEOUT_MS, UPGRADE } from '../locks.ts';
import { NOTED_STEPS } from '../migrations.ts';
import { NEW_INDEXES, switchViews } from './pending_deliveries.ts';

/** How long an index of a large table may take. */
const INDEX_MS_MAX = 6 * 3_600_000;

/** The nodes of the previous version. While there is one, an upgrade does not end. */
export const OLD_NODES = `SELECT node_id, address, seen_at FROM nodes WHERE steps_known < ${NOTED_STEPS} ORDER BY node_no`;
const CLOSE_DOOR = `UPDATE schema_version SET steps_known_min = greatest(steps_known_min, ${NOTED_STEPS}) WHERE steps_known_min < ${NOTED_STEPS}`;
const IS_VALID = 'SELECT indisvalid AS is_valid FROM pg_index WHERE indexrelid = to_regclass($1)';

/**
 * Ends the upgrade, if that is possible now.
 *
 * @param stopped makes this function give up at once: an index of a large table takes longer than a node may take to
 *   stop. The server finishes the index that it is making, and the next try continues from there
 * @throws StoreError when something is in the way
 */
export async function endUpgrade(url: string, stopped?: AbortSignal): Promise<void> {
  const connection = await Connection.open(url, 'SET statement_timeout = 0;');
  const giveUp = (): void => connection.destroy();
  stopped?.addEventListener('abort', giveUp);
  try {
    if (stopped?.aborted) return;
    const { rows } = await connection.query<{ mine: boolean }>(`SELECT pg_try_advisory_lock(${UPGRADE}) AS mine`);
    if (!rows[0]!.mine || (await isAny(connection, OLD_NODES))) return;
    if ((await connection.query(CLOSE_DOOR)).changes > 0) return;
    for (const [name, on] of Object.entries(NEW_INDEXES)) await makeIndex(connection, name, on);
    await switchOver(connection);
  } finally {
    stopped?.removeEventListener('abort', giveUp);
    await connection.close();
  }
}

async function isAny(connection: Connection, query: string): Promise<boolean> {
  return (await connection.query(query)).rows.length > 0;
}

/** An index exists also after its creation was interrupted, but then it is not valid. */
async function makeIndex(connection: Connection, name: string, on: string): Promise<void> {
  const { rows } = await connection.query<{ is_valid: boolean }>(IS_VALID, [name]);
  if (rows[0]?.is_valid === true) return;
  if (rows.length > 0) await connection.query(`DROP INDEX CONCURRENTLY ${name}`, [], INDEX_MS_MAX);
  await connection.query(`CREATE INDEX CONCURRENTLY ${name} ON ${on}`, [], INDEX_MS_MAX);
}

async function switchOver(connection: Connection): Promise<void> {
  await connection.query('BEGIN');
  try {
    await connection.query(`SET LOCAL lock_timeout = '${LOCK_TIMEOUT_MS}ms'`);
    // A node that joins now waits until this transaction ends. Then it is refused, or it knows the columns.
    await connection.query('LOCK TABLE nodes IN SHARE MODE');
    if (!(await isAny(connection, OLD_NODES))) await connection.script(switchViews(NOTED_STEPS));
    await connection.query('COMMIT');
  } catch (error) {
    await connection.query('ROLLBACK').catch(() => connection.destroy());
    throw error;
  }
}
