/** A copy of the data over HTTP. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { test, type TestContext } from 'node:test';
import type { Session } from '@convoke/sdk';
import { Backups } from '../../src/store/sqlite/file/backups.ts';
import { startCopies } from '../support/copies.ts';
import { temporaryFile } from '../support/node.ts';
import { ON_A_FILE, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

test('a HEAD request does not take the copy away: the copy can be fetched once, by GET', async (t) => {
  const service = await startService(t, ON_A_FILE);
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

test('a download of a copy ends when its session ends', async (t) => {
  const service = await startService(t, ON_A_FILE);
  const { token } = await service.endOpenMode();
  // A file that does not fit into the buffers of a connection, so that the download goes on.
  const large = temporaryFile(t);
  writeFileSync(large, '');
  truncateSync(large, 1 << 30);
  t.mock.method(Backups.prototype, 'take', () => openSync(large, 'r'));
  const signed_in = await service.request<Session>('POST', '/api/v1/session/', {
    headers: { authorization: `Bearer ${token}` },
  });
  const cookie = String(signed_in.headers['set-cookie']?.[0]).split(';')[0] as string;
  const headers = { cookie, 'convoke-csrf': signed_in.body.csrf_token ?? '', origin: service.url };
  const { body } = await service.post<{ backup_id: string }>('/api/v1/backups/');
  const ask = async (): Promise<IncomingMessage> => {
    const request = get(`${service.url}/api/v1/backups/${body.backup_id}/`, { headers });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    if (response.statusCode !== 200) response.resume();
    return response;
  };
  const response = await until('the copy', ask, ({ statusCode }) => statusCode === 200);
  t.after(() => response.destroy());
  response.on('error', () => {});
  const out = await service.request('DELETE', '/api/v1/session/', { headers });
  assert.equal(out.status, 204, out.text);
  await until(
    'the end of the download',
    () => {
      response.read();
      return response.destroyed;
    },
    (ended) => ended,
  );
  assert.equal(response.complete, false);
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
