/** A heartbeat at any node ends the back-off of an instance, also while only the node that delivers knows of it. */
import assert from 'node:assert/strict';
import pg from 'pg';
import { test } from 'node:test';
import { TAKEOVER } from '../../src/store/postgres/locks.ts';
import { openStream } from '../support/event_stream.ts';
import { startTwoNodes } from '../support/two_nodes.ts';
import { beforeTimer, until } from '../support/wait.ts';

/** Less than the shortest back-off, which is 8 s. */
const AT_ONCE_MS = 5_000;

const HOLDER = `
  SELECT n.address FROM instances i JOIN partitions p ON p.partition_no = i.partition_no JOIN nodes n ON n.node_no = p.node_no
  WHERE i.instance_id = $1`;

for (const is_written of [false, true]) {
  test(`a heartbeat at another node ends a back-off that is ${is_written ? '' : 'not yet '}written, and the push comes at once`, async (t) => {
    const [first, second, database_url] = await startTwoNodes(t);
    const { instance_id, receiver } = await first.member(t, 'm');
    await receiver.down();
    const database = new pg.Client(database_url);
    await database.connect();
    try {
      const { rows } = await database.query<{ address: string }>(HOLDER, [instance_id]);
      const [holder, other] = rows[0]!.address === first.url ? [first, second] : [second, first];
      const stream = await openStream(`${holder.url}/api/v1/events/?instance_id=${instance_id}`);
      t.after(() => stream.close());

      // Settlements share this lock, so until it is released the back-off stays in the memory of the holder.
      await database.query(`BEGIN; SELECT pg_advisory_xact_lock(${TAKEOVER})`);
      await other.send('m', {});
      await until(
        'the failed attempt',
        () => stream.events,
        (events) => events.some(({ name }) => name === 'delivery.attempted'),
      );
      await receiver.up();
      if (is_written) await database.query('COMMIT');
      await until(
        'the back-off, in the table or not',
        async () => (await other.instance(instance_id)).next_try_at !== undefined,
        (is_in_table) => is_in_table === is_written,
      );
      assert.equal(receiver.requests.length, 0);
      await other.heartbeat(instance_id);
      if (!is_written) await database.query('COMMIT');
      await beforeTimer('the push', AT_ONCE_MS, receiver.next());
    } finally {
      await database.end();
    }
  });
}
