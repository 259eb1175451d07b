/** The data key is changed although the secrets of an instance cannot be read any more. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import pg from 'pg';
import type { Reencryption } from '@convoke/sdk';
import { program } from '../../src/cli/program/program.ts';
import { makeSecret } from '../../src/domain/signature.ts';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import { temporaryDirectory } from '../support/command_line.ts';
import { makeDatabase } from '../support/postgres.ts';
import { startReceiver } from '../support/receiver.ts';
import { untilRunning } from '../support/running_nodes.ts';
import { ON_A_FILE, startService } from '../support/service.ts';

const DAMAGE = `UPDATE instances SET webhook_secret = substr(webhook_secret, 1, 40) WHERE instance_id = 'i1'`;
const randomKey = (): string => randomBytes(32).toString('base64');

for (const engine of ['SQLite', 'PostgreSQL']) {
  test(`${engine}: secrets that no key decrypts are named, the others get the new key, and the old key stays until then`, async (t) => {
    const data = temporaryDirectory(t);
    const { database_url } = engine === 'SQLite' ? ON_A_FILE : { database_url: await makeDatabase() };
    const old_key = randomKey();
    const receiver = await startReceiver(t);
    const before = await startService(t, { data, database_url, encryption_key: old_key });
    for (const instance_id of ['i0', 'i1', 'i2']) await before.register({ instance_id, webhook_url: receiver.url });
    await before.close();
    if (database_url === '') {
      const db = new DatabaseSync(join(data, DATABASE_FILE));
      db.exec(DAMAGE);
      db.close();
    } else {
      const client = new pg.Client(database_url);
      await client.connect();
      await client.query(DAMAGE);
      await untilRunning(client, 0);
      await client.end();
    }

    const new_key = randomKey();
    const both_keys = { data, database_url, encryption_key: new_key, encryption_key_previous: old_key };
    const service = await startService(t, both_keys);
    const reencrypt = async () => (await service.post<Reencryption>('/api/v1/encryption/reencrypt/')).body;
    const { key_id, ...first } = await reencrypt();
    assert.deepEqual(first, { rewritten: 2, unreadable: ['i1'], done: true });
    const lines: string[] = [];
    t.mock.method(process.stdout, 'write', (text: string) => lines.push(text) > 0);
    const command = program().parseAsync(['keys', 'reencrypt', '--url', service.url], { from: 'user' });
    await assert.rejects(command, /no key decrypts the secrets of i1: the previous key is kept\. Register/);
    t.mock.restoreAll();
    assert.match(lines.join(''), /^the secrets of 0 instances are encrypted under the new key/);

    await service.register({
      instance_id: 'i1',
      webhook_url: receiver.url,
      webhook_secret: makeSecret(randomBytes(32)),
    });
    const last = { key_id, rewritten: 1, unreadable: [], done: true };
    assert.deepEqual(await reencrypt(), last);
    await service.close();
    const without = await startService(t, { data, database_url, encryption_key: new_key });
    for (const instance_id of ['i0', 'i1', 'i2']) {
      const test = await without.post<{ success: boolean }>('/api/v1/instances/webhook-test/', { instance_id });
      assert.ok(test.body.success, test.text);
    }
  });
}
