/** A copy of the data over HTTP. */
import assert from 'node:assert/strict';
import { closeSync, readFileSync } from 'node:fs';
import { test, type TestContext } from 'node:test';
import { startCopies } from '../support/copies.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

test('a HEAD request does not take the copy away: the copy can be fetched once, by GET', async (t) => {
  const service = await startService(t);
  const { body } = await service.post<{ backup_id: string }>('/api/v1/backups/');
  const path = `/api/v1/backups/${body.backup_id}/`;
  const head = await fetch(`${service.url}${path}`, { method: 'HEAD' });
  assert.deepEqual([head.status, head.headers.get('allow')], [405, 'GET']);
  const get = (): Promise<Response> => fetch(`${service.url}${path}`);
  const copy = await until('the copy', get, ({ status }) => status === 200);
  assert.match(await copy.text(), /^SQLite format 3/);
  assert.equal((await get()).status, 404);
});

test('a copy that was taken stays whole while the next one is made, and the next one too', async (t) => {
  const { backups, makeCopy } = startCopies(t);
  const first = await makeCopy();
  await assert.rejects(backups.begin(), { code: 'backup_under_way' });
  const taken = backups.take(first);
  // Begins in the same turn: here the next copy is made at the path of the first one.
  const second = makeCopy();
  const size = whole(t, taken);
  assert.deepEqual([backups.take(first), await backups.wait(first, 0)], [null, null]);
  assert.equal(whole(t, backups.take(await second)), size);
});

/** Checks that the file has all pages that its header counts. Returns its size. */
function whole(t: TestContext, fd: number | null): number {
  assert.ok(fd !== null);
  t.after(() => closeSync(fd));
  const file = readFileSync(fd);
  assert.equal(file.subarray(0, 15).toString(), 'SQLite format 3');
  assert.equal(file.length, file.readUInt32BE(28) * file.readUInt16BE(16));
  return file.length;
}
