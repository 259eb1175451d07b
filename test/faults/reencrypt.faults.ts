/**
 * The process is killed again and again while it changes the data key. Every secret can still be decrypted, and in the
 * end the change is complete.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { all, ConvokeClient } from '@convoke/sdk';
import { DATABASE_FILE, KEY_FILE } from '../../src/domain/data_directory.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { NodeProcess } from './node_process.ts';

const INSTANCES = 5_000;
const KILLS = 25;
/**
 * Every fifth kill comes at once, maybe before the change begins. The others come after one, two, three or four fifths of
 * the time that the fastest whole change took so far, because that time depends on the machine.
 */
const KINDS = 5;

test(`killed ${KILLS} times while the data key is changed, it loses no secret`, async (t) => {
  const data = mkdtempSync(join(tmpdir(), 'convoke-reencrypt-'));
  t.after(() => rmSync(data, { recursive: true, force: true, maxRetries: 5 }));
  const file = join(data, DATABASE_FILE);
  const keyLines = (): number => readFileSync(join(data, KEY_FILE), 'utf8').trimEnd().split('\n').length;
  const secretOf = (i: number): string => `whsec_${Buffer.alloc(32, `secret ${i} `).toString('base64')}`;

  const seeding = openSqliteStore(file, null);
  const registered = Array.from({ length: INSTANCES }, (_, i) =>
    seeding.store.instances.register(
      {
        instance_id: `i${i}`,
        instance_name: 'n',
        agent_ids: [],
        webhook_url: 'http://127.0.0.1:9/',
        webhook_headers: { authorization: `Bearer ${i}` },
        webhook_secret: secretOf(i),
        new_secret: '',
        success_statuses: undefined,
      },
      0,
    ),
  );
  await Promise.all(registered);
  await seeding.store.close();

  let unfinished = 0;
  let fastest_ms = await durationOfChange(t, data);
  for (let kill = 0; kill < KILLS; kill++) {
    const node = NodeProcess.serve(t, data);
    const client = new ConvokeClient({ base_url: await node.ready });
    // Every secret can be decrypted, whatever state the previous kill left.
    let found = 0;
    for await (const { webhook_header_names } of all((start) => client.listInstances({ limit: 500, ...start }))) {
      assert.deepEqual(webhook_header_names, ['authorization']);
      found++;
    }
    assert.equal(found, INSTANCES);
    const state = { has_ended: false };
    const ended = client
      .reencrypt()
      .catch(() => null)
      .finally(() => (state.has_ended = true));
    if (kill % KINDS > 0) {
      const is_whole = keyLines() === 1;
      while (keyLines() === 1 && !state.has_ended) await pause(1);
      const began_ms = performance.now();
      await Promise.race([pause((fastest_ms * (kill % KINDS)) / KINDS), ended]);
      if (is_whole && state.has_ended) fastest_ms = Math.min(fastest_ms, performance.now() - began_ms);
    }
    await node.end('SIGKILL');
    await ended;
    if (keyLines() === 2) unfinished++;
  }
  assert.ok(unfinished > 3, `only ${unfinished} kills came in the middle of a change`);
  t.diagnostic(`${unfinished} of ${KILLS} kills came in the middle of a change`);

  const node = NodeProcess.serve(t, data);
  const client = new ConvokeClient({ base_url: await node.ready });
  while (!(await client.reencrypt()).done);
  await node.end('SIGTERM');
  assert.equal(keyLines(), 1);
  const { store, opened } = openSqliteStore(file, null);
  t.after(() => store.close());
  await opened;
  const instances = await store.instances.load(Array.from({ length: INSTANCES }, (_, i) => `i${i}`));
  assert.equal(instances.length, INSTANCES);
  for (const { instance_id, webhook_secret, webhook_headers } of instances) {
    const i = Number(instance_id.slice(1));
    assert.equal(webhook_secret, secretOf(i));
    assert.deepEqual(webhook_headers, { authorization: `Bearer ${i}` });
  }
});

/** How long a new process takes to change the data key. */
async function durationOfChange(t: TestContext, data: string): Promise<number> {
  const node = NodeProcess.serve(t, data);
  const client = new ConvokeClient({ base_url: await node.ready });
  const from_ms = performance.now();
  while (!(await client.reencrypt()).done);
  const duration_ms = performance.now() - from_ms;
  await node.end('SIGTERM');
  return duration_ms;
}
