/** A command that has work to finish goes on when nobody reads its output any more. */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, test, type TestContext } from 'node:test';
import { start, temporaryDirectory } from '../support/command_line.ts';
import { pullsWaiting } from '../support/pulling.ts';
import { startReceiver } from '../support/receiver.ts';
import { startService } from '../support/service.ts';
import { inTime, until } from '../support/wait.ts';

/** Kills the command with the test. Resolves with its exit code, when its output has arrived to the end. */
function ended(t: TestContext, child: ChildProcess): Promise<number | null> {
  const exit = once(child, 'close').then(([code]) => code as number | null);
  t.after(() => {
    child.kill('SIGKILL');
    return exit;
  });
  return exit;
}

describe('connect, when Ctrl-C ends the readers of its output as well', () => {
  for (const closed of [['stdout'], ['stderr'], ['stdout', 'stderr']] as const) {
    test(`hands in the result of the push in progress: ${closed.join(' and ')}`, async (t) => {
      const service = await startService(t);
      const answer = Promise.withResolvers<void>();
      t.after(() => answer.resolve());
      const runtime = await startReceiver(t, { body: '{"reply": "Done."}', after: answer.promise });
      const args = ['connect', '--agent', 'anna', '--meeting', 'm', '--to', runtime.url, '--url', service.url];
      const HOME = temporaryDirectory(t);
      const child = start([...args, '--replies'], { env: { HOME, XDG_CONFIG_HOME: join(HOME, 'c') } });
      child.stdout!.resume();
      child.stderr!.resume();
      const exit = ended(t, child);
      const pulls = (count: number) =>
        until(
          `${count} waiting pulls`,
          () => pullsWaiting(service),
          (waiting) => waiting === count,
        );
      await pulls(1);
      const sent = await service.send('m', { content: 'Are you done?' });
      await runtime.next();
      await pulls(1);
      for (const stream of closed) child[stream]!.destroy();
      child.kill('SIGINT');
      await pulls(0);
      answer.resolve();
      assert.equal(await exit, 0);
      const { attempts } = await service.settled(sent);
      assert.deepEqual([attempts.map(({ outcome }) => outcome), runtime.requests.length], [['ok'], 1]);
    });
  }
});

test('demo leaves nothing registered, although nobody reads its output to the end', async (t) => {
  const service = await startService(t);
  const child = start(['demo', '--url', service.url]);
  child.stderr!.resume();
  const exit = ended(t, child);
  await once(createInterface({ input: child.stdout! }), 'line');
  child.stdout!.destroy();
  assert.equal(await inTime('the end of the demo', exit), 0);
  const { body } = await service.get<{ data: object[] }>('/api/v1/instances/');
  assert.deepEqual(body.data, []);
});

for (const signal of ['SIGINT', 'SIGHUP'] as const) {
  test(`demo leaves no directory behind, although ${signal} ends it while its service starts`, async (t) => {
    const TMPDIR = temporaryDirectory(t);
    const child = start(['demo'], { env: { TMPDIR } });
    child.stdout!.resume();
    child.stderr!.resume();
    const exit = ended(t, child);
    await until(
      'the directory',
      () => readdirSync(TMPDIR).length,
      (count) => count > 0,
    );
    child.kill(signal);
    assert.equal(await inTime('the end of the demo', exit), 1);
    assert.deepEqual(readdirSync(TMPDIR), []);
  });
}

test(
  'serve answers, and stops in order, although the disk of its log is full',
  { skip: !existsSync('/dev/full') && 'there is no /dev/full' },
  async (t) => {
    const full = openSync('/dev/full', 'w');
    t.after(() => closeSync(full));
    const args = ['serve', '--port', '0', '--data', temporaryDirectory(t), '--log-format', 'json'];
    const child = start(args, { stderr: full });
    const exit = ended(t, child);
    const [line] = (await inTime('the ready line', once(createInterface({ input: child.stdout! }), 'line'))) as [
      string,
    ];
    const url = line.replace('convoke ready ', '');
    assert.equal((await inTime('an answer', fetch(`${url}/readyz`))).status, 200);
    child.kill('SIGTERM');
    assert.equal(await inTime('the end', exit), 0);
  },
);

test('serve runs until it is stopped, although nobody reads its ready line', async (t) => {
  const child = start(['serve', '--port', '0', '--data', temporaryDirectory(t)]);
  child.stdout!.destroy();
  let log = '';
  child.stderr!.on('data', (chunk: Buffer) => (log += chunk.toString()));
  const exit = ended(t, child);
  await until(
    'the start',
    () => log.includes('open: no key is needed') || child.exitCode !== null,
    (is_over) => is_over,
  );
  child.kill('SIGTERM');
  assert.equal(await exit, 0);
  assert.match(log, /"msg":"stopped"/);
});
