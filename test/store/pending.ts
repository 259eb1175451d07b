/** Databases with pending deliveries, before, during and after an upgrade; and the tests of random commands on them. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import fc from 'fast-check';
import pg from 'pg';
import { MIGRATIONS, NOTED_STEPS } from '../../src/store/postgres/migrations.ts';
import { endUpgrade } from '../../src/store/postgres/pending/upgrade.ts';
import type { Store } from '../../src/store/store.ts';
import { openPostgresHere } from '../support/engines.ts';
import { openStoreHere } from '../support/node.ts';
import { makeDatabase } from '../support/postgres.ts';
import { CommandLog, commandLogs } from '../support/store_commands.ts';

const SEED = 20_261_125;

export async function connect(t: TestContext, url: string): Promise<pg.Client> {
  const client = new pg.Client(url);
  await client.connect();
  t.after(() => client.end());
  return client;
}

/** Opens a store that does not sweep by itself: on a slow machine its sweep would come between those of a test. */
export async function open(t: TestContext, url: string): Promise<Store> {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const store = await openPostgresHere(url);
  t.after(() => store.close());
  return store;
}

let before: Promise<string> | null = null;

/** Makes a database with the schema of the version before, and with a node of that version. */
export async function databaseOfBefore(t: TestContext): Promise<{ url: string; client: pg.Client }> {
  before ??= makeBefore();
  const url = await makeDatabase({ template: await before });
  return { url, client: await connect(t, url) };
}

async function makeBefore(): Promise<string> {
  const url = await makeDatabase({ migrated: false });
  const client = new pg.Client(url);
  await client.connect();
  await client.query('CREATE TABLE schema_version (version integer NOT NULL, steps_known_min integer NOT NULL)');
  for (const step of MIGRATIONS.slice(0, NOTED_STEPS - 1)) await client.query(step);
  await client.query('INSERT INTO schema_version VALUES ($1, 1)', [NOTED_STEPS - 1]);
  await client.query("INSERT INTO this_database (tag) VALUES ('abcdefgh')");
  await client.query("SELECT renew_lease_3('before', '0', 'http://127.0.0.1:1', 0::smallint, '{}', $1)", [
    NOTED_STEPS - 1,
  ]);
  await client.end();
  return new URL(url).pathname.slice(1);
}

export const nodeLeaves = (client: pg.Client) => client.query("DELETE FROM nodes WHERE node_id = 'before'");

export const sweepAll = (client: pg.Client, rows_max = 1_000_000) =>
  client.query('SELECT sweep_deliveries((SELECT last_value FROM numbers), $1)', [rows_max]);

export async function markOf(client: pg.Client): Promise<number> {
  return Number((await client.query('SELECT max(swept_to) AS mark FROM sweeps')).rows[0].mark);
}

export async function hasSwitched(client: pg.Client): Promise<boolean> {
  return (await client.query("SELECT to_regclass('deliveries_in_lane') IS NULL AS switched")).rows[0].switched;
}

/** Asserts that both views agree with the column `state` of each delivery. */
export async function assertFound(client: pg.Client): Promise<void> {
  const { rows } = await client.query(`
    SELECT count(*) FILTER (WHERE (state = 'pending') <> (delivery_no IN (SELECT delivery_no FROM pending_deliveries)))::int AS pending,
      count(*) FILTER (WHERE (state = 'failed') <> (delivery_no IN (SELECT delivery_no FROM failed_deliveries)))::int AS failed,
      (SELECT count(*) - count(DISTINCT delivery_no) FROM pending_deliveries)::int AS twice
    FROM deliveries`);
  assert.deepEqual(rows, [{ pending: 0, failed: 0, twice: 0 }]);
}

/** Runs random commands on a store and on SQLite, and compares the results. */
async function assertSameAsSqlite(
  store: Store,
  commands: number,
  meanwhile: (command: number) => Promise<unknown>,
): Promise<void> {
  const untouched = openStoreHere();
  try {
    const [log] = fc.sample(commandLogs(commands), { seed: SEED, numRuns: 1 });
    const logs = [new CommandLog(store), new CommandLog(untouched)];
    for (const [i, command] of log!.entries()) {
      await meanwhile(i);
      const [answer, expected] = await Promise.all(logs.map((each) => each.run(command)));
      assert.deepEqual(answer, expected, `command ${i} of the log, ${JSON.stringify(command)}`);
    }
  } finally {
    await untouched.close();
  }
}

/** Makes the tests that run this many random commands. */
export function answersAsWithoutSweeps(commands: number): void {
  describe('a store answers as without sweeps', () => {
    test('when everything is swept before each command, or a few rows', async (t) => {
      const url = await makeDatabase();
      const client = await connect(t, url);
      assert.equal(await hasSwitched(client), true, 'a new database needs no upgrade');
      await assertSameAsSqlite(await open(t, url), commands, async (i) => {
        if (i % 3 > 0) await sweepAll(client, i % 3 === 1 ? 1_000_000 : 3);
      });
      await assertFound(client);
      assert.ok((await markOf(client)) > 0);
    });

    test('while an upgrade begins, goes on and ends', async (t) => {
      const { url, client } = await databaseOfBefore(t);
      await assertSameAsSqlite(await open(t, url), commands, async (i) => {
        if (i % 5 === 0) await sweepAll(client, 10);
        if (i !== commands / 2) return;
        assert.equal(await hasSwitched(client), false);
        await nodeLeaves(client);
        await sweepAll(client);
        await endUpgrade(url);
        await endUpgrade(url);
        assert.equal(await hasSwitched(client), true);
      });
      await assertFound(client);
    });
  });
}
