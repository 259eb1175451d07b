/** The directory of the data: made when it is missing, whatever its name is. */
import assert from 'node:assert/strict';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeDirectory } from '../../src/cli/program/data_directory.ts';
import { temporaryDirectory } from '../support/command_line.ts';

test('several processes may make the same directory at once, as a service and a command that start together', async (t) => {
  const directory = join(temporaryDirectory(t), 'a/b/c');
  await Promise.all(Array.from({ length: 8 }, () => makeDirectory(directory)));
  assert.equal(statSync(directory).mode & 0o777, 0o700);
});

test(
  'a backslash is a letter of a name, where the system takes it for one',
  { skip: process.platform === 'win32' && 'there it separates names' },
  async (t) => {
    const above = temporaryDirectory(t);
    await makeDirectory(join(above, 'a\\b'));
    assert.deepEqual(readdirSync(above), ['a\\b']);
  },
);
