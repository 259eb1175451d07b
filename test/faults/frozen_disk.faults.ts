/** A disk that is frozen, so that writes neither end nor fail: everybody hears so in bounded time, and nothing is lost. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { until } from '../support/wait.ts';
import { acceptedAgain, type Answered, ask, send } from './api.ts';
import { assertClean, assertControls, assertFound, surviveUnderLoad, temporaryDirectory } from './run.ts';
import { freezeDisk, has_strace } from './trace.ts';

const ROUNDS = 2;
/** Longer than anybody may wait: without the bound, requests of this test end with a timeout after 10 s. */
const FROZEN_MS = 9_000;
/** 3 s until it is noticed and half a second until it is looked; and on a busy machine. */
const NOTICED_MS_MAX = 5_000;
const ANSWERED_MS_MAX = 8_000;
const RECOVERY_MS_MAX = 5_000;

interface Timed extends Answered {
  ms: number;
}

async function timed(asking: Promise<Answered>): Promise<Timed> {
  const from_ms = performance.now();
  return { ...(await asking), ms: Math.round(performance.now() - from_ms) };
}

test(
  'disk frozen, then thawed: all are answered within seconds, and nothing is lost',
  { skip: !has_strace },
  async (t) => {
    const data = await temporaryDirectory(t);
    const record = await surviveUnderLoad(t, data, async ({ node, url, speakers, machines }) => {
      for (let round = 1; round <= ROUNDS; round++) {
        const accepted = (): number => speakers.statuses.get(201) ?? 0;
        await until('load', accepted, (count) => count >= 100 * round);
        const disk = await freezeDisk(t, node.pid);
        const frozen_ms = performance.now();
        const at_once = [
          timed(ask(url, 'GET', '/readyz')),
          timed(ask(url, 'GET', '/api/v1/deliveries/')),
          timed(ask(url, 'POST', '/api/v1/instances/one/heartbeat/')),
          timed(send(url, 'elsewhere', -round, `frozen-${round}`)),
        ];
        assert.equal((await ask(url, 'GET', '/healthz')).status, 200);
        const noticed = await until(
          'a /readyz that says no',
          () => timed(ask(url, 'GET', '/readyz')),
          ({ status }) => status === 503,
        );
        const noticed_ms = Math.round(performance.now() - frozen_ms);
        assert.ok(noticed_ms < NOTICED_MS_MAX, `/readyz said 503 after ${noticed_ms} ms`);
        const refused = [
          await timed(ask(url, 'GET', '/readyz')),
          await timed(ask(url, 'GET', '/api/v1/instances/')),
          await timed(ask(url, 'GET', '/api/v1/meetings/')),
          await timed(send(url, 'alpha', -1_000 - round)),
          await timed(ask(url, 'DELETE', '/api/v1/instances/nobody/')),
        ];
        for (const { status, ms } of refused) assert.ok(status === 503 && ms < 500, `${status} after ${ms} ms`);
        assert.match(String(refused[3]?.body['detail']), /Nothing was stored/);
        const [, , , sent] = (await Promise.all(at_once)) as [Timed, Timed, Timed, Timed];
        for (const { status, ms } of await Promise.all(at_once)) {
          assert.ok(status === 503 && ms < ANSWERED_MS_MAX, `${status} after ${ms} ms`);
        }
        assert.match(String(sent.body['detail']), /Nothing was stored|IN_DOUBT/);
        assert.equal((await ask(url, 'GET', '/healthz')).status, 200);
        t.diagnostic(`round ${round}: noticed after ${noticed_ms} ms (asked once more: ${noticed.ms} ms)`);
        t.diagnostic(`asked at once, answered after ${(await Promise.all(at_once)).map(({ ms }) => ms).join(', ')} ms`);
        await pause(Math.max(0, FROZEN_MS - (performance.now() - frozen_ms)));

        const heard = (await machines.heard()).length;
        const thawed_ms = performance.now();
        await disk.thaw();
        await acceptedAgain(url, () => send(url, 'elsewhere', -round, `frozen-${round}`));
        const recovery_ms = Math.round(performance.now() - thawed_ms);
        await until(
          'pushes',
          async () => (await machines.heard()).length,
          (count) => count > heard,
        );
        t.diagnostic(`round ${round}: accepts again after ${recovery_ms} ms`);
        assert.ok(recovery_ms < RECOVERY_MS_MAX);
        assert.equal((await ask(url, 'GET', '/readyz')).status, 200);
      }
      const { body } = await ask(url, 'GET', '/api/v1/meetings/elsewhere/messages/');
      assert.equal((body['data'] as object[]).length, ROUNDS, 'what was sent again under its key is stored once');
      t.diagnostic(JSON.stringify(Object.fromEntries(speakers.statuses)));
    });
    assertClean(t, record);
    assertControls(record);
    // Had a refused send been told 201, it would have been found.
    assertFound(record, 'lost', (copy) => {
      copy.sent = copy.sent.map((sent) => (sent.told === 'failed' ? { ...sent, told: 'ok' } : sent));
    });
  },
);
