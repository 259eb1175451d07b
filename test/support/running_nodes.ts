import type pg from 'pg';
import { until } from './wait.ts';

const RUNNING =
  'SELECT key_ids FROM nodes WHERE lease_until >= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint';

/**
 * Waits until so many nodes of a database run, and have said which data keys they have. A stop waits only half a second
 * until the database has recorded it. On a busy machine the node counts as running until its lease ends.
 */
export async function untilRunning(client: pg.Client, nodes: number): Promise<void> {
  await until(
    `${nodes} nodes that run`,
    async () => (await client.query(RUNNING)).rows as { key_ids: string | null }[],
    (rows) => rows.length === nodes && rows.every(({ key_ids }) => key_ids !== null),
  );
}
