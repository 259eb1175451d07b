/** The thread of a store starts before its store is opened, so that it loads its code early. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { generateKeySync } from 'node:crypto';
import { dirname } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { readConfig } from '../../src/config/read_config.ts';
import { createConvoke } from '../../src/convoke.ts';
import type { Log } from '../../src/delivery/bounded_log.ts';
import { logFailure } from '../../src/node/start.ts';
import { openSqliteStore, startSqliteThread } from '../../src/store/sqlite/open.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { temporaryFile } from '../support/node.ts';
import { WAIT_MS_MAX } from '../support/wait.ts';

/** The keys that the test gives to a store. Without them the store would make a file with a key beside its data. */
const GIVEN = { current: generateKeySync('aes', { length: 256 }), previous: null };

test('a thread that was started before opens the store that it is given, and answers calls made at once', async () => {
  const thread = startSqliteThread();
  const { store, opened } = openSqliteStore(':memory:', GIVEN, {}, undefined, thread);
  const keys = store.encryption.keyIds();
  await opened;
  assert.deepEqual((await keys).previous_key_ids, []);
  await store.close();
});

test('work of a start that ends because the node was stopped is no error in the log; any other failure is', async () => {
  const { store, opened } = openSqliteStore(':memory:', GIVEN);
  await opened;
  const errors: string[] = [];
  const log: Pick<Log, 'error'> = { error: (_, text) => errors.push(text) };
  await store.close();
  await assert.rejects(store.instances.webhookUrls(null, 1_000), { code: 'STORE_CLOSED' });
  await store.instances.webhookUrls(null, 1_000).catch(logFailure(log, 'the node was stopped'));
  logFailure(log, 'the disk is full')(new StoreError('SQLITE_FULL', 'database or disk is full'));
  assert.deepEqual(errors, ['the disk is full']);
});

test('a store says once that its thread ended by itself, and nothing when it was closed', async () => {
  for (const is_closed of [false, true]) {
    const thread = startSqliteThread();
    const lost: Error[] = [];
    const observer = { lost: (error: Error) => void lost.push(error) };
    const { store, opened } = openSqliteStore(':memory:', GIVEN, observer, undefined, thread);
    await opened;
    await (is_closed ? store.close() : thread.worker.terminate());
    await assert.rejects(store.instances.get('i'), { code: is_closed ? 'STORE_CLOSED' : 'STORE_THREAD' });
    assert.equal(lost.length, is_closed ? 0 : 1);
    await store.close();
  }
});

test('a service in another program whose store is lost leaves that program alone: it says so, and is not ready', async (t) => {
  const { config } = readConfig({ flags: { port: '0', data: dirname(temporaryFile(t)) } });
  const store_thread = startSqliteThread();
  const lines: string[] = [];
  const log = pino({ level: 'error' }, { write: (line) => void lines.push(line) });
  const convoke = await createConvoke(config, { log, store_thread });
  t.after(() => convoke.close());
  await store_thread.worker.terminate();
  assert.equal((await fetch(`${convoke.url}/readyz`)).status, 503);
  assert.equal(lines.filter((line) => line.includes('the store is lost')).length, 1, lines.join(''));
});

test('a thread whose store nobody opens does not keep the process alive', async () => {
  const open = JSON.stringify(new URL('../../src/store/sqlite/open.ts', import.meta.url).href);
  const program = `
    const { startSqliteThread } = await import(${open});
    startSqliteThread();
    console.log('started');
  `;
  const args = ['--no-warnings', '--input-type=module', '--eval', program];
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: WAIT_MS_MAX });
  assert.equal(stdout.trim(), 'started');
});
