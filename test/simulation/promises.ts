/** The tests that simulation.test.ts and simulation.slow.ts share. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { run } from './run.ts';
import { sqliteOperations } from './sqlite_operations.ts';
import { World, type WorldOptions } from './world.ts';

export const make = (seed: number, options?: WorldOptions): World => new World(seed, options);
/**
 * Each run has the same worlds, so that a failed run means a change of the code. `npm run simulate` makes new worlds.
 */
export const FIRST_SEED = 1;

/** Tests the promises in so many worlds of each of three kinds. */
export function promisesHold(worlds: { with_one_node: number; with_several_nodes: number; on_sqlite: number }): void {
  test('the promises hold in every world', async () => {
    const { finding } = await run(make, FIRST_SEED, worlds.with_one_node, { cluster: false });
    assert.equal(finding, null);
  });

  test('the promises hold where several nodes share a store', async () => {
    const { finding } = await run(make, FIRST_SEED, worlds.with_several_nodes, { cluster: true });
    assert.equal(finding, null);
  });

  test('the promises hold on SQLite', async () => {
    const { finding } = await run(make, FIRST_SEED, worlds.on_sqlite, { operations: sqliteOperations });
    assert.equal(finding, null);
  });
}
