/** The log of the service. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { jsonLog } from '../../src/cli/program/log.ts';
import { temporaryDirectory } from '../support/command_line.ts';

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
