import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { PROTECTIONS } from '../faults/without.ts';

const ROOT = join(import.meta.dirname, '../..');

// The fault tests check it too, and take minutes. The bugs of the simulation are checked beside the simulation.
for (const [name, { file, find }] of Object.entries(PROTECTIONS)) {
  test(`the protection "${name}", which a fault test removes, has its place in the source`, () => {
    const parts = readFileSync(join(ROOT, file), 'utf8').split(find);
    assert.equal(parts.length, 2, `${JSON.stringify(find)} stands ${parts.length - 1} times in ${file}`);
  });
}
