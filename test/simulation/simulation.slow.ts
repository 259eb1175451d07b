/** The promises in more simulated worlds than `npm test` has time for: see simulation.test.ts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { run } from './run.ts';
import { sqliteOperations } from './sqlite_operations.ts';
import { World, type WorldOptions } from './world.ts';

const WORLDS = 150;
const SQLITE_WORLDS = 60;
const CLUSTERS = 40;

const make = (seed: number, options?: WorldOptions): World => new World(seed, options);
const FIRST_SEED = 1;

test('the promises hold in every world', async () => {
  const { finding } = await run(make, FIRST_SEED, WORLDS, { cluster: false });
  assert.equal(finding, null);
});

test('the promises hold where several nodes share a store', async () => {
  const { finding } = await run(make, FIRST_SEED, CLUSTERS, { cluster: true });
  assert.equal(finding, null);
});

test('the promises hold on SQLite', async () => {
  const { finding } = await run(make, FIRST_SEED, SQLITE_WORLDS, { operations: sqliteOperations });
  assert.equal(finding, null);
});
