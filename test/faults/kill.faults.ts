/**
 * SIGKILL at random moments under load: what was accepted is never lost, only what was in flight arrives again, and every
 * lane stays in order over all the kills.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { assertClean, assertControls, numberFrom, runUnderLoad, seededRandom } from './run.ts';

const KILLS = numberFrom('FAULTS_KILLS', 100);
/** Up to so long after the ready line. */
const LOAD_MS_MAX = 400;
/** One in ten lives longer than a push can be in flight, so that a repetition without excuse is seen. */
const LONG_SHARE = 1 / 10;
const LONG_MS_MAX = 3_000;
/** One in six is killed while it starts. */
const EARLY_SHARE = 1 / 6;
const START_MS_MAX = 600;

test(`killed ${KILLS} times under load: nothing lost, nothing half done, lanes in order`, async (t) => {
  const random = seededRandom(t);
  const record = await runUnderLoad(t, {
    ends: KILLS,
    is_violent: true,
    async end(node) {
      if (random() < EARLY_SHARE) {
        await pause(random() * START_MS_MAX);
      } else {
        await node.ready;
        await pause(random() * (random() < LONG_SHARE ? LONG_MS_MAX : LOAD_MS_MAX));
      }
      await node.end('SIGKILL');
    },
  });
  const { accepted, heard } = assertClean(t, record);
  assert.ok(accepted > KILLS && heard > accepted, 'there was load');
  assertControls(record);
});
