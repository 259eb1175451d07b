/**
 * A disk without free space: no sender gets a 201 for a message that is not stored. When there is space again, the
 * service accepts messages again.
 */
import assert from 'node:assert/strict';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { convoke, serve, stop } from '../support/command_line.ts';
import { until } from '../support/wait.ts';
import { acceptedAgain, ask, send } from './api.ts';
import { assertClean, assertControls, assertFound, run, surviveUnderLoad } from './run.ts';

const ROUNDS = 3;
const DISK_MIB = 48;
const FULL_MS = 2_000;
const CHUNK = Buffer.alloc(4_096);

/** Mounts a small disk, and returns its directory; null when this user may not mount a disk. */
async function smallDisk(t: TestContext): Promise<string | null> {
  const directory = await mkdtemp(join(tmpdir(), 'convoke-faults-'));
  t.after(() => {
    run('umount', '--lazy', directory);
    rmSync(directory, { recursive: true, force: true });
  });
  const mounted = run('mount', '-t', 'tmpfs', '-o', `size=${DISK_MIB}m`, 'none', directory);
  return mounted.status === 0 ? directory : null;
}

/** Writes to a file until the disk is full. */
function fill(file: string): void {
  const ballast = openSync(file, 'w');
  try {
    for (;;) writeSync(ballast, CHUNK);
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
  } finally {
    closeSync(ballast);
  }
}

test('disk full, then space again: 503 meanwhile, nothing lost, back by itself', async (t) => {
  const disk = await smallDisk(t);
  if (disk === null) return t.skip('mounting a small disk needs root');
  const ballast = join(disk, 'ballast');
  const record = await surviveUnderLoad(t, join(disk, 'data'), async ({ node, url, speakers, machines }) => {
    for (let round = 1; round <= ROUNDS; round++) {
      await until(
        'load',
        () => speakers.statuses.get(201) ?? 0,
        (count) => count >= 100 * round,
      );
      fill(ballast);
      const before = speakers.statuses.get(503) ?? 0;
      await until(
        'a refusal',
        () => speakers.statuses.get(503) ?? 0,
        (count) => count > before + 10,
      );
      await pause(FULL_MS);
      await until(
        'a /readyz that says no',
        () => ask(url, 'GET', '/readyz'),
        ({ status }) => status === 503,
      );
      assert.ok(node.isAlive, node.log);

      rmSync(ballast);
      const received = (await machines.received()).length;
      const accepted = acceptedAgain(url, () => {
        const number = -speakers.sent.length - 1;
        return send(url, 'elsewhere', number);
      });
      const from_ms = performance.now();
      await until(
        'pushes',
        () => machines.received(),
        (pushes) => pushes.length > received,
      );
      const recovery_ms = [await accepted, performance.now() - from_ms].map(Math.round);
      t.diagnostic(`round ${round}: accepts and pushes again after ${recovery_ms.join(' and ')} ms`);
      await until(
        'a /readyz that says yes',
        () => ask(url, 'GET', '/readyz'),
        ({ status }) => status === 200,
      );
    }
    t.diagnostic(JSON.stringify(Object.fromEntries(speakers.statuses)));
    assert.deepEqual(new Set(speakers.statuses.keys()), new Set([201, 503]));
  });
  assertClean(t, record);
  assertControls(record);
  // The control: if a refused send had got a 201, the checker would find that its message is lost.
  assertFound(record, 'lost', (copy) => {
    copy.sent = copy.sent.map((sent) => (sent.result === 'failed' ? { ...sent, result: 'ok' } : sent));
  });
});

test('a start on a full disk says that the disk is full, with data and without', async (t) => {
  const disk = await smallDisk(t);
  if (disk === null) return t.skip('mounting a small disk needs root');
  const [data, ballast] = [join(disk, 'data'), join(disk, 'ballast')];
  await stop(await serve(data), 'SIGKILL');
  fill(ballast);
  for (const directory of [data, join(disk, 'new')]) {
    const { code, stderr } = await convoke(['serve', '--port', '0', '--log-level', 'silent', '--data', directory]);
    assert.deepEqual([code, stderr], [1, `convoke: the disk of ${directory} is full; make room, and start again\n`]);
  }
  rmSync(ballast);
  assert.equal(await stop(await serve(data)), 0);
});
