/** The stored expiry time of a delivery is too large for a JavaScript number: it is pushed once, and settled once. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import pg from 'pg';
import type { Delivery, Page } from '@convoke/sdk';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import { temporaryDirectory } from '../support/command_line.ts';
import { makeDatabase } from '../support/postgres.ts';
import { startReceiver } from '../support/receiver.ts';
import { ON_A_FILE, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

for (const engine of ['SQLite', 'PostgreSQL']) {
  for (const expires_at of [2n ** 53n + 1n, 2n ** 63n - 1n]) {
    test(`${engine}: a delivery that expires at ${expires_at} is delivered once`, async (t) => {
      const data = temporaryDirectory(t);
      const database_url = engine === 'SQLite' ? null : await makeDatabase();
      const encryption_key = randomBytes(32).toString('base64');
      const settings = database_url === null ? { data, ...ON_A_FILE } : { database_url, encryption_key };
      const receiver = await startReceiver(t);
      await receiver.down();
      const before = await startService(t, settings);
      const { instance_id } = await before.register({ webhook_url: receiver.url });
      await before.join('m', instance_id, ['a']);
      await before.send('m', {});
      await before.close();

      const damage = `UPDATE deliveries SET expires_at = ${expires_at}`;
      if (database_url === null) {
        const db = new DatabaseSync(join(data, DATABASE_FILE));
        db.exec(damage);
        db.close();
      } else {
        const client = new pg.Client(database_url);
        await client.connect();
        await client.query(damage);
        await client.end();
      }
      await receiver.up();

      // The second start would push the delivery again if its result were not written.
      for (let start = 0; start < 2; start++) {
        const after = await startService(t, settings);
        await after.post(`/api/v1/instances/${instance_id}/heartbeat/`, {});
        await until(
          'the delivery to be delivered',
          async () => (await after.get<Page<Delivery>>('/api/v1/deliveries/')).body.data.map(({ state }) => state),
          (states) => states.join() === 'delivered',
        );
        await after.close();
      }
      assert.equal(receiver.requests.length, 1);
    });
  }
}
