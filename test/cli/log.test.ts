/** The log of the service. */
import assert from 'node:assert/strict';
import fs, { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextRound } from 'node:timers/promises';
import { test } from 'node:test';
import { jsonLog, prettyLog } from '../../src/cli/program/log.ts';
import { temporaryDirectory } from '../support/command_line.ts';
import { until } from '../support/wait.ts';

test('what is logged before the end is written; what is logged after it is dropped, and throws nothing', async (t) => {
  const file = join(temporaryDirectory(t), 'log');
  const { log, written } = jsonLog({ log_level: 'info' }, file);
  const child = log.child({ part: 'delivery' });
  log.info('before');
  const ended = written();
  child.warn('at the end');
  await ended;
  child.warn('late');
  log.fatal('later');
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { msg: string }).msg),
    ['before'],
  );
});

test('an id in a line for people cannot turn the text of the terminal around', async (t) => {
  const file = join(temporaryDirectory(t), 'log');
  const { log } = await prettyLog({ log_level: 'info' }, file);
  log.info({ instance_id: 'evil\u202e\u2028', detail: '\u009b31m' }, 'push failed');
  const line = await until(
    'the line',
    () => readFileSync(file, 'utf8'),
    (text) => text.endsWith('\n'),
  );
  assert.match(line, /push failed \{"instance_id":"evil\\u202e\\u2028","detail":"\\u009b31m"\}\n$/);
});

test('a line for people that could not be written is written with the next one, and the log goes on', async (t) => {
  const file = join(temporaryDirectory(t), 'log');
  const { log } = await prettyLog({ log_level: 'info' }, file);
  const text = (end: string) =>
    until(
      end,
      () => readFileSync(file, 'utf8'),
      (all) => all.includes(end),
    );
  log.info('the first');
  await text('the first');
  const full = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
  const { mock: write } = t.mock.method(fs, 'writeSync', () => assert.fail(full));
  log.info('the second');
  await until(
    'a write that failed',
    () => write.callCount(),
    (count) => count > 0,
  );
  write.restore();
  await nextRound();
  log.info('the third');
  assert.match(await text('the third'), /the first[^]+the second[^]+the third/);
});
