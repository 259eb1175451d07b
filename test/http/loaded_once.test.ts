import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadedOnce } from '../../src/http/loaded_once.ts';

test('what fails to load is loaded again at the next call, and what is loaded is kept', async () => {
  let calls = 0;
  const load = loadedOnce(async () => {
    if (++calls === 1) throw new Error('EMFILE');
    return calls;
  });
  await assert.rejects(load(), /EMFILE/);
  assert.deepEqual(await Promise.all([load(), load()]), [2, 2]);
  assert.equal(await load(), 2);
});
