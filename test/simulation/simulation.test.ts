/**
 * Tests the promises in simulated worlds, whatever faults happen: no message is lost or goes to the wrong machine,
 * lanes keep their order, no machine waits for another machine, and the counts are right. A world that breaks a promise
 * prints its seed; `npm run simulate -- --seed S` repeats that world.
 */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { PLANTED_BUGS } from './planted.ts';
import { FIRST_SEED, make, promisesHold } from './promises.ts';
import { run } from './run.ts';

/** How many worlds of each other kind. */
const KIND_WORLDS = 8;

// simulation.slow.ts has more worlds of these three kinds.
promisesHold({ with_one_node: 50, with_several_nodes: 15, on_sqlite: 15 });

for (const cluster of [false, true]) {
  test(`the promises hold for machines that pull, ${cluster ? 'from several nodes' : 'from one node'}`, async () => {
    const { finding } = await run(make, FIRST_SEED, KIND_WORLDS, { cluster, kind: 'pulling' });
    assert.equal(finding, null);
  });
}

for (const cluster of [false, true]) {
  test(`agents that answer each other stop, and messages of people arrive, with ${cluster ? 'several nodes' : 'one node'}`, async () => {
    const { finding } = await run(make, FIRST_SEED, KIND_WORLDS, { cluster, kind: 'talking' });
    assert.equal(finding, null);
  });
}

for (const cluster of [false, true]) {
  test(`machines that were away get the newest, and a person's newest, with ${cluster ? 'several nodes' : 'one node'}`, async () => {
    const { finding } = await run(make, FIRST_SEED, KIND_WORLDS, { cluster, kind: 'returning' });
    assert.equal(finding, null);
  });
}

for (const cluster of [false, true]) {
  test(`messages that expire in seconds keep the promises, with ${cluster ? 'several nodes' : 'one node'}`, async () => {
    const { finding } = await run(make, FIRST_SEED, KIND_WORLDS, { cluster, kind: 'expiring' });
    assert.equal(finding, null);
  });
}

test('nothing is pushed twice where results are written late, and what others stored is read late', async () => {
  const { finding } = await run(make, FIRST_SEED, KIND_WORLDS, { kind: 'late' });
  assert.equal(finding, null);
});

/**
 * These worlds once found a bug: the read of a page failed, and its retry brought back a lane that had left the cache.
 */
for (const seed of [654, 939]) {
  test(`a window that is read again revives no lane: world ${seed}`, async () => {
    const { finding } = await run(make, seed, 1, { cluster: true, kind: 'talking' });
    assert.equal(finding, null);
  });
}

/** This world once found a bug: a message was dropped while a node read it, and still pushed when the read ended. */
test('what was dropped in a meeting is not pushed from a read that began before: world 2674', async () => {
  const { finding } = await run(make, 2_674, 1, { cluster: true, kind: 'talking' });
  assert.equal(finding, null);
});

/** In this world a message was dropped while its push was in flight, and queued again before the result. */
test('what was dropped in flight and queued again is pushed again, and ends: world 2154', async () => {
  const { finding } = await run(make, 2_154, 1, { cluster: true, kind: 'talking' });
  assert.equal(finding, null);
});

test('agents that answer each other do not stop without the guard', async () => {
  const { finding } = await run(make, FIRST_SEED, 2, { at_once: 1, cluster: false, kind: 'talking', guard: 'off' });
  assert.equal(finding?.violation, 'the agents do not stop');
});

test('a seed is a world, to the letter', async () => {
  const [first, second, other] = await Promise.all([
    run(make, 7, 20),
    run(make, 7, 20, { at_once: 3 }),
    run(make, 8, 20),
  ]);
  assert.equal(first.trace_hash, second.trace_hash);
  assert.notEqual(first.trace_hash, other.trace_hash);
});

// CI checks that the simulation finds each planted bug: npm run simulate -- --planted
for (const [name, edits] of Object.entries(PLANTED_BUGS)) {
  test(`the planted bug "${name}" still has its place in the source`, async () => {
    for (const { file, find } of [edits].flat()) {
      const source = await readFile(new URL(`../../${file}`, import.meta.url), 'utf8');
      assert.equal(source.split(find).length, 2, file);
    }
  });
}
