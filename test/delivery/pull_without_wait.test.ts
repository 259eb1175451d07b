/**
 * A machine that asks now and then, with pulls that do not wait. What has waited for it is on disk only. So such a pull
 * stays open while the engine reads: for a second at most, and only if it would bring nothing otherwise.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { HandedOut, PullEnd, PullRequest } from '../../src/delivery/transport/pull_transport.ts';
import { type EngineUnderTest, ENGINES } from '../support/engines.ts';
import { MINUTE, SECOND, startNode, type TestNode } from '../support/node.ts';
import { PullingMachine } from '../support/pulling.ts';
import { startTwoNodes } from '../support/two_nodes.ts';
import { VIRTUAL_START } from '../support/virtual_clock.ts';
import { until } from '../support/wait.ts';

/** How many machines there are: enough for each node to deliver to some of them. */
const MACHINES = 8;

/** A node with an instance `i` that pulls, in the meetings `m` and `n`. */
async function nodeOn(t: TestContext, engine: EngineUnderTest): Promise<TestNode> {
  const node = await startNode(t, { store: await engine.open(t) });
  await node.register('i', { transport: 'pull' });
  await node.join('i', 'm', 'n');
  return node;
}

/** Begins a pull, and returns its pushes when it ends. */
function begin(node: TestNode, more: Partial<PullRequest> = {}): Promise<readonly HandedOut[]> {
  const { promise, resolve } = Promise.withResolvers<PullEnd>();
  node.pulls.pull({
    instance_id: 'i',
    pull_id: null,
    permit: { owner_scope: null, owner_key_id: null, updated_at: VIRTUAL_START, as_of: node.pulls.changes },
    max: 32,
    wait_ms: 0,
    address: null,
    client: null,
    standing: { revocationReason: () => null },
    onEnd: resolve,
    ...more,
  });
  return promise.then((end) => {
    assert.ok('pushes' in end);
    return end.pushes;
  });
}

/** Makes a pull, and reports the status for each push. Returns where the pushes are from, such as `m1` for seq 1 of m. */
async function pull(node: TestNode, status_code: number | null = 200): Promise<string[]> {
  const pushes = begin(node);
  await node.clock.settle();
  return (await pushes).map(({ delivery_id, attempt, push: { headers, body } }) => {
    node.pulls.take('i', { delivery_id, attempt, status_code, detail: '', retry_after: null, body: '' });
    const { meeting_id } = JSON.parse(Buffer.from(body).toString()) as { meeting_id: string };
    return `${meeting_id}${headers['convoke-seq']}`;
  });
}

for (const engine of ENGINES) {
  describe(`a pull that does not wait, on ${engine.name}`, () => {
    test('brings what has waited for long, in order, however rare the pulls are', async (t) => {
      const node = await nodeOn(t, engine);
      for (const meeting_id of ['m', 'm', 'n', 'm']) await node.send(meeting_id);
      const pulled: string[][] = [];
      for (let k = 0; k < 4; k++) {
        await node.clock.advance(MINUTE);
        pulled.push(await pull(node));
      }
      assert.deepEqual(
        pulled.map((places) => places.toSorted()),
        [['m1', 'n1'], ['m2'], ['m3'], []],
      );
    });

    test('brings what was stored before the start, even when it comes before anything was read', async (t) => {
      const node = await nodeOn(t, engine);
      await node.send('m');
      await node.crash(false);
      const pulled = pull(node);
      await node.started();
      assert.deepEqual(await pulled, ['m1']);
    });

    test('ends as soon as the start has found nothing for it', async (t) => {
      const node = await nodeOn(t, engine);
      await node.crash(false);
      let pulled: string[] | null = null;
      void pull(node).then((places) => (pulled = places));
      await node.clock.settle();
      assert.equal(pulled, null, 'nothing was found yet');
      await node.started();
      await node.clock.settle();
      assert.deepEqual(pulled, []);
    });

    test('brings what went aside, when it is due', async (t) => {
      const node = await nodeOn(t, engine);
      const { message_id } = await node.send('m');
      assert.deepEqual(await pull(node, 202), ['m1']);
      await node.clock.advance(SECOND);
      const [failed] = await node.deliveries({ message_id });
      await node.retry(failed!.delivery_id);
      await node.clock.advance(MINUTE);
      assert.deepEqual(await pull(node), ['m1']);
    });
  });
}

test('ends a little later when the read of what waits takes long; the next pull brings it', async (t) => {
  const node = await nodeOn(t, ENGINES[0]!);
  await node.send('m');
  await node.clock.advance(MINUTE);
  const read = Promise.withResolvers<void>();
  node.meddle = (name) => (name === 'deliveries.loadLanes' ? read.promise : undefined);
  const pulled = begin(node);
  await node.clock.advance(2 * SECOND);
  assert.deepEqual(await pulled, []);
  read.resolve();
  assert.deepEqual(await pull(node), ['m1']);
});

for (const [what, prepare] of [
  ['nothing waits', () => {}],
  ['the meeting is paused', (node: TestNode) => node.setMeeting('m', { paused: true })],
  ['the instance backs off', (node: TestNode) => pull(node, null)],
  ['the push before it has no result', (node: TestNode) => begin(node)],
] as const) {
  test(`a pull that does not wait ends in the same moment when ${what}`, async (t) => {
    const node = await nodeOn(t, ENGINES[0]!);
    if (what !== 'nothing waits') for (let k = 0; k < 2; k++) await node.send('m');
    await prepare(node);
    await node.clock.advance(SECOND);
    // Time does not pass in this call.
    assert.deepEqual(await pull(node), []);
  });
}

test('a pull that does not wait brings what has waited, also when another node forwards it', async (t) => {
  const [first, second] = await startTwoNodes(t);
  const machines = await Promise.all(Array.from({ length: MACHINES }, () => PullingMachine.start(first, ['m'])));
  await first.send('m', { content: 1 });
  for (const node of [first, second]) {
    await until(
      'the deliveries to be on disk only',
      async () => (await node.get('/metrics')).text,
      (metrics) => metrics.includes('\nconvoke_deliveries_in_memory 0\n'),
    );
  }
  // Each pull is the first of its machine: an earlier one would have put the delivery into memory.
  for (const { instance_id, webhook_secret } of machines) {
    const elsewhere = new PullingMachine(second, instance_id, webhook_secret);
    await elsewhere.next({ wait_s: 0 });
  }
});
