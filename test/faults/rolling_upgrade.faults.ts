/**
 * Nodes of two consecutive versions on one PostgreSQL. A step of the schema that keeps the rule of CONTRIBUTING.md does
 * not disturb nodes of the earlier version, whether they run already or start later.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import pg from 'pg';
import { test, type TestContext } from 'node:test';
import { MIGRATIONS } from '../../src/store/postgres/migrations.ts';
import { schemaOfDatabase } from '../../src/store/postgres/schema.ts';
import type { Store } from '../../src/store/store.ts';
import { convoke } from '../support/command_line.ts';
import { openPostgresHere } from '../support/engines.ts';
import { openStoreHere } from '../support/node.ts';
import { databaseOfBefore, nodeLeaves } from '../store/pending.ts';
import { makeDatabase } from '../support/postgres.ts';
import { COMMAND_NAMES, CommandLog, commandLogs } from '../support/store_commands.ts';

const SEED = 20_261_121;
const COMMANDS = 1_400;
const KNOWN = MIGRATIONS.length;

const NODE = { node_id: 'here', version: '0', address: 'http://127.0.0.1:1', stopping: false };

/** A step that the rule allows: new columns and indexes in every table, and new tables and functions. */
const WITHIN_THE_RULE = `
  DO $$
  DECLARE
    table_name text;
  BEGIN
    FOR table_name IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'schema_version' LOOP
      EXECUTE format('ALTER TABLE %I ADD COLUMN of_the_next_version text, ADD COLUMN also_of_it bigint NOT NULL DEFAULT 7', table_name);
      EXECUTE format('CREATE INDEX ON %I (also_of_it)', table_name);
    END LOOP;
  END $$;
  CREATE TABLE table_of_the_next_version (id bigint PRIMARY KEY);
  CREATE FUNCTION accept_messages_5(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $1';`;

/** A step that the rule forbids. */
const AGAINST_THE_RULE = 'ALTER TABLE deliveries RENAME COLUMN attempt_count TO attempts_made';

async function take(url: string, step: string, { steps = KNOWN + 1, steps_known_min = KNOWN } = {}): Promise<void> {
  const neighbour = new pg.Client(url);
  await neighbour.connect();
  await neighbour.query(
    `BEGIN; ${step}; UPDATE schema_version SET version = ${steps}, steps_known_min = ${steps_known_min}; COMMIT`,
  );
  await neighbour.end();
}

/**
 * Runs random commands on a PostgreSQL store whose schema changes, and on a SQLite store whose schema stays: the
 * results must be the same.
 */
async function assertGoesOn(t: TestContext, store: Store, midway: () => Promise<void>): Promise<void> {
  const untouched = openStoreHere();
  t.after(() => untouched.close());
  const [log] = fc.sample(commandLogs(COMMANDS), { seed: SEED, numRuns: 1 });
  const logs = [new CommandLog(store), new CommandLog(untouched)];
  const answered = new Set<string>();
  for (const [i, command] of log!.entries()) {
    if (i === COMMANDS / 2) await midway();
    // Lists the leases too. The test renews no lease, because the settlements of this log have the first epoch.
    if (i % 100 === 0) assert.deepEqual(await store.cluster!.list(), []);
    const [answer, expected] = await Promise.all(logs.map((each) => each.run(command)));
    assert.deepEqual(answer, expected, `command ${i} of the log, ${JSON.stringify(command)}`);
    if (i > COMMANDS / 2) answered.add(command[0]);
  }
  assert.equal((await store.cluster!.renew(NODE, [])).partitions.length, 64);
  assert.deepEqual([...answered].toSorted(), COMMAND_NAMES.toSorted(), 'every command was given after the step');
}

test('a node that is at work continues while a newer one takes its step', async (t) => {
  const url = await makeDatabase();
  const store = await openPostgresHere(url);
  t.after(() => store.close());
  await assertGoesOn(t, store, () => take(url, WITHIN_THE_RULE));
});

test('control: a step against the rule stops it', async (t) => {
  const url = await makeDatabase();
  const store = await openPostgresHere(url);
  t.after(() => store.close());
  await assert.rejects(
    assertGoesOn(t, store, () => take(url, AGAINST_THE_RULE)),
    /command \d+ of the log/,
  );
});

test('a node starts on a schema that is one step newer and allows it, and changes nothing of it', async (t) => {
  const url = await makeDatabase();
  await take(url, WITHIN_THE_RULE);
  const store = await openPostgresHere(url);
  t.after(() => store.close());
  await assertGoesOn(t, store, async () => {});
  const state = { present: KNOWN + 1, wanted: KNOWN, may_start: true, upgrade_waits_for: [] };
  assert.deepEqual(await schemaOfDatabase(url), state);
});

test('a node does not start on a schema that wants more of it, and says which version does', async () => {
  const url = await makeDatabase();
  await take(url, AGAINST_THE_RULE, { steps_known_min: KNOWN + 1 });
  await assert.rejects(openPostgresHere(url), {
    code: 'SCHEMA_NEWER',
    message: `The database has schema ${KNOWN + 1}, for nodes that know at least schema ${KNOWN + 1}; this Convoke knows up to ${KNOWN}: start the newer version.`,
  });
});

test('convoke migrate --check names the nodes for which the end of an upgrade waits', async (t) => {
  const { url, client } = await databaseOfBefore(t);
  const env = { CONVOKE_DATABASE_URL: url };
  assert.equal((await convoke(['migrate'], { env })).code, 0);
  const waits = await convoke(['migrate', '--check'], { env });
  assert.equal(waits.code, 0);
  assert.match(waits.stdout, /the end waits for .*: before at http:\/\/127\.0\.0\.1:1 \(last seen 20[^,]*Z\)\n$/);
  const { upgrade_waits_for } = JSON.parse((await convoke(['migrate', '--check', '--json'], { env })).stdout);
  assert.deepEqual([upgrade_waits_for.length, upgrade_waits_for[0].node_id], [1, 'before']);
  await nodeLeaves(client);
  assert.doesNotMatch((await convoke(['migrate', '--check'], { env })).stdout, /waits/);
});

test('convoke migrate makes the schema, says when there is nothing to do, and refuses a newer one', async () => {
  const nowhere = await convoke(['migrate'], { env: { CONVOKE_DATABASE_URL: 'postgres://me:hidden@127.0.0.1:1/x' } });
  assert.equal(nowhere.code, 1);
  assert.match(nowhere.stderr, /PostgreSQL at 127\.0\.0\.1:1 does not answer .*CONVOKE_DATABASE_URL/);
  assert.ok(!nowhere.stderr.includes('hidden'));
  const env = { CONVOKE_DATABASE_URL: await makeDatabase({ migrated: false }) };
  const checked = await convoke(['migrate', '--check'], { env });
  assert.equal(checked.code, 1);
  assert.match(
    checked.stdout,
    new RegExp(`^the schema is 0, and this Convoke wants ${KNOWN}: run (npx )?convoke migrate`),
  );
  const done = await convoke(['migrate'], { env });
  assert.deepEqual([done.code, done.stdout], [0, `the schema was 0, and is ${KNOWN} now\n`], done.stderr);
  const again = await convoke(['migrate', '--check'], { env });
  assert.deepEqual([again.code, again.stdout.includes('nothing to do')], [0, true]);
  await take(env.CONVOKE_DATABASE_URL, WITHIN_THE_RULE);
  const newer = await convoke(['migrate'], { env });
  assert.equal(newer.code, 1);
  assert.match(newer.stderr, new RegExp(`the schema is ${KNOWN + 1}, and this Convoke knows up to ${KNOWN}`));
  const checkAgain = async (): Promise<[number | null, string]> => {
    const { code, stdout } = await convoke(['migrate', '--check'], { env });
    return [code, stdout.slice(stdout.indexOf(': ') + 2)];
  };
  assert.deepEqual(await checkAgain(), [1, 'a newer version made it, and this version may still start\n']);
  await take(env.CONVOKE_DATABASE_URL, 'SELECT 1', { steps_known_min: KNOWN + 1 });
  assert.deepEqual(await checkAgain(), [1, 'start the newer version that made it\n']);
});
