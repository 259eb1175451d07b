/** A disk that is frozen, so that writes neither end nor fail: every client gets an error, and nothing is lost. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WAIT_MS_MAX, until } from '../support/wait.ts';
import { acceptedAgain, type Answered, ask, send } from './api.ts';
import { assertClean, assertControls, assertFound, surviveUnderLoad, temporaryDirectory } from './run.ts';
import { freezeDisk, has_strace } from './trace.ts';

const ROUNDS = 2;

/**
 * Measures how long a request takes while the disk is frozen. The test only prints the time, because it depends on the
 * machine.
 */
async function timed(asking: Promise<Answered>): Promise<Answered & { ms: number }> {
  const from_ms = performance.now();
  return { ...(await asking), ms: Math.round(performance.now() - from_ms) };
}

test(
  'disk frozen, then thawed: every client gets a response while it is frozen, and nothing is lost',
  { skip: !has_strace },
  async (t) => {
    const data = await temporaryDirectory(t);
    const record = await surviveUnderLoad(t, data, async ({ node, url, speakers, machines }) => {
      for (let round = 1; round <= ROUNDS; round++) {
        const accepted = (): number => speakers.statuses.get(201) ?? 0;
        await until('load', accepted, (count) => count >= 100 * round);
        const disk = await freezeDisk(t, node.pid);
        const frozen_ms = performance.now();
        const at_once = Promise.all([
          timed(send(url, 'elsewhere', -round, `frozen-${round}`, WAIT_MS_MAX)),
          timed(ask(url, 'POST', '/api/v1/instances/one/heartbeat/')),
          timed(ask(url, 'GET', '/readyz')),
          timed(ask(url, 'GET', '/api/v1/deliveries/')),
        ]);
        assert.equal((await ask(url, 'GET', '/healthz')).status, 200);
        await until(
          'a /readyz that says no',
          () => ask(url, 'GET', '/readyz'),
          ({ status }) => status === 503,
        );
        const noticed_ms = Math.round(performance.now() - frozen_ms);
        const asked_later = await Promise.all([
          timed(ask(url, 'GET', '/readyz')),
          timed(ask(url, 'GET', '/api/v1/instances/')),
          timed(ask(url, 'GET', '/api/v1/meetings/')),
          timed(send(url, 'alpha', -1_000 - round, undefined, WAIT_MS_MAX)),
          timed(ask(url, 'DELETE', '/api/v1/instances/nobody/')),
        ]);
        assert.deepEqual(new Set(asked_later.map(({ status }) => status)), new Set([503]));
        assert.match(String(asked_later[3]?.body['detail']), /Nothing was stored/);
        // The control below needs a refused send. On a fast machine the service refuses no send of the load: all of
        // them wait, and their result is unknown.
        const refused = { number: -1_000 - round, meeting_id: 'alpha', message_id: null, seq: null, accepted: null };
        speakers.sent.push({ ...refused, result: 'failed' });
        const asked_first = await at_once;
        const [sent, written, ...read] = asked_first.map(({ status }) => status);
        assert.deepEqual([sent, written], [503, 503]);
        // A read gets a 200 when it was made before the first write that did not end.
        assert.ok(
          read.every((status) => status === 503 || status === 200),
          read.join(),
        );
        assert.match(String(asked_first[0]?.body['detail']), /Nothing was stored|IN_DOUBT/);
        assert.equal((await ask(url, 'GET', '/healthz')).status, 200);
        const times = [asked_first, asked_later].map((asked) => asked.map(({ ms }) => ms).join(', '));
        t.diagnostic(`round ${round}: noticed after ${noticed_ms} ms`);
        t.diagnostic(`answered after ${times[0]} ms what was asked before, after ${times[1]} ms what was asked then`);

        const received = (await machines.received()).length;
        const thawed_ms = performance.now();
        await disk.thaw();
        await acceptedAgain(url, () => send(url, 'elsewhere', -round, `frozen-${round}`));
        const recovery_ms = Math.round(performance.now() - thawed_ms);
        await until(
          'pushes',
          async () => (await machines.received()).length,
          (count) => count > received,
        );
        t.diagnostic(`round ${round}: accepts again after ${recovery_ms} ms`);
        await until(
          'a /readyz that says yes',
          () => ask(url, 'GET', '/readyz'),
          ({ status }) => status === 200,
        );
      }
      const { body } = await ask(url, 'GET', '/api/v1/meetings/elsewhere/messages/');
      assert.equal((body['data'] as object[]).length, ROUNDS, 'what was sent again under its key is stored once');
      t.diagnostic(JSON.stringify(Object.fromEntries(speakers.statuses)));
    });
    assertClean(t, record);
    assertControls(record);
    // The control: if a refused send had got a 201, the checker would find that its message is lost.
    assertFound(record, 'lost', (copy) => {
      copy.sent = copy.sent.map((sent) => (sent.result === 'failed' ? { ...sent, result: 'ok' } : sent));
    });
  },
);
