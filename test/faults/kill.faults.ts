/**
 * SIGKILL at random moments under load: an accepted message is never lost, only pushes in flight arrive again, and
 * every lane stays in order over all the kills.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { assertClean, assertControls, numberFrom, runUnderLoad, seededRandom } from './run.ts';

const KILLS = numberFrom('FAULTS_KILLS', 100);
/** The longest time between the ready line and a kill. */
const LOAD_MS_MAX = 400;
/**
 * One process in ten lives longer than a push can be in flight. If an older push arrives again after its kill, the
 * checker sees that the push was not in flight.
 */
const LONG_SHARE = 1 / 10;
const LONG_MS_MAX = 3_000;
/** One process in six is killed while it starts. */
const EARLY_SHARE = 1 / 6;
const START_MS_MAX = 600;
/** Every second other process is killed after it has accepted this many messages: on a busy machine none would. */
const BUSY_SHARE = 1 / 2;
const ACCEPTED_MIN = 8;

test(`killed ${KILLS} times under load: nothing lost, nothing half done, lanes in order`, async (t) => {
  const random = seededRandom(t);
  const record = await runUnderLoad(t, {
    ends: KILLS,
    is_violent: true,
    async end(node, speakers) {
      if (random() < EARLY_SHARE) {
        await pause(random() * START_MS_MAX);
      } else {
        await node.ready;
        if (random() < BUSY_SHARE) await speakers.more(ACCEPTED_MIN);
        await pause(random() * (random() < LONG_SHARE ? LONG_MS_MAX : LOAD_MS_MAX));
      }
      await node.end('SIGKILL');
    },
  });
  const { accepted, received } = assertClean(t, record);
  assert.ok(accepted > KILLS && received > accepted, 'there was load');
  assertControls(record);
});
