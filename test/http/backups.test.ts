/** A copy of the data over HTTP. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
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
