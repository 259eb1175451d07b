import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { PROTECTIONS } from '../faults/without.ts';
import { PLANTED_BUGS } from '../simulation/planted.ts';

const ROOT = join(import.meta.dirname, '../..');
const SETS = { 'protections that a fault test removes': PROTECTIONS, 'bugs that the simulation finds': PLANTED_BUGS };

// Without this, a change of such a line is noticed only by the suites that take minutes.
for (const [what, edits] of Object.entries(SETS)) {
  test(`each text that is replaced for the ${what} stands once in its file`, () => {
    for (const [name, of_name] of Object.entries(edits)) {
      for (const { file, find } of [of_name].flat()) {
        const parts = readFileSync(join(ROOT, file), 'utf8').split(find);
        assert.equal(parts.length, 2, `${name}: ${JSON.stringify(find)} stands ${parts.length - 1} times in ${file}`);
      }
    }
  });
}
