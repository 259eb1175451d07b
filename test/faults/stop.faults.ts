/** SIGTERM under load: the process ends by itself, loses no message and sends no push twice. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { assertClean, assertControls, numberFrom, runUnderLoad, seededRandom } from './run.ts';

const STOPS = numberFrom('FAULTS_STOPS', 200);
const LOAD_MS_MAX = 200;
const STOP_MS_MAX = 7_000;

test(`SIGTERM ${STOPS} times under load: exit 0 within 7 s, nothing lost, nothing sent twice`, async (t) => {
  const random = seededRandom(t);
  let longest_ms = 0;
  const record = await runUnderLoad(t, {
    ends: STOPS,
    is_violent: false,
    async end(node) {
      await node.ready;
      await pause(random() * LOAD_MS_MAX);
      const { code, duration_ms } = await node.end('SIGTERM');
      assert.equal(code, 0, node.log);
      longest_ms = Math.max(longest_ms, duration_ms);
      assert.ok(duration_ms < STOP_MS_MAX, `${duration_ms} ms`);
    },
  });
  t.diagnostic(`the longest stop took ${Math.round(longest_ms)} ms`);
  const { accepted, received, again } = assertClean(t, record);
  assert.ok(accepted > STOPS && received > accepted, 'there was load');
  assert.equal(again, 0);
  assertControls(record);
});
