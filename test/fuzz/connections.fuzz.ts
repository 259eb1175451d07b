/** Ten thousand idle connections. The service is a separate process; each process needs as many file descriptors. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { NodeProcess } from '../faults/node_process.ts';
import { outcomeOf } from '../support/raw_client.ts';
import { BODY, send } from '../support/raw_requests.ts';

const IDLE = 10_000;
const AT_ONCE = 500;

test('10,000 idle connections cost the next request nothing', async (t) => {
  const data = await mkdtemp(join(tmpdir(), 'convoke-fuzz-'));
  t.after(() => rm(data, { recursive: true, force: true }));
  const node = NodeProcess.serve(t, data);
  const url = await node.ready;
  const { hostname, port } = new URL(url);
  const sockets: Socket[] = [];
  t.after(() => sockets.forEach((socket) => socket.destroy()));

  const median = async (): Promise<number> => {
    const took_ms: number[] = [];
    for (let i = 0; i < 51; i++) {
      const started_ms = performance.now();
      assert.equal(await outcomeOf(url, send(BODY)), '201');
      took_ms.push(performance.now() - started_ms);
    }
    return took_ms.toSorted((a, b) => a - b)[25] as number;
  };
  const before_ms = await median();
  while (sockets.length < IDLE) {
    const more = Array.from({ length: AT_ONCE }, () => connect(Number(port), hostname));
    sockets.push(...more);
    await Promise.all(more.map((socket) => once(socket, 'connect')));
    // Makes one request on each connection: the service closes a connection without a request after 5 seconds.
    const answered = more.map((socket) => once(socket, 'data'));
    for (const socket of more) socket.write('GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    await Promise.all(answered);
    for (const socket of more) socket.on('error', () => {}).resume();
  }
  const after_ms = await median();
  t.diagnostic(`median of a send: ${before_ms.toFixed(1)} ms before, ${after_ms.toFixed(1)} ms with ${IDLE} idle`);
  assert.ok(after_ms < 2 * before_ms + 10);
  const open = sockets.filter((socket) => !socket.destroyed && !socket.readableEnded).length;
  t.diagnostic(`${open} of them are still open`);
  assert.ok(open >= IDLE - 60, 'only those that had to make room are closed');
  assert.equal((await node.end('SIGTERM')).code, 0);
});
