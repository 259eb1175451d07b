/**
 * How SQLite finds rows: no statement of the store reads a table, or the history of an instance, to find a few. All
 * statements that random commands run are asked for their plans; the plans do not depend on how many rows there are,
 * because no file has statistics.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { Database } from '../../src/store/sqlite/database.ts';
import { MIGRATIONS } from '../../src/store/sqlite/migrations.ts';
import { openStoreHere } from '../support/node.ts';
import { CommandLog, commandLogs } from '../support/store_commands.ts';

const LOGS = 4;
const PER_LOG = 250;
const SEED = 20_261_123;

/** The tables that grow with the history. */
const GROWING = ['deliveries', 'messages', 'idempotency_keys', 'audit_log'];
/** These indexes hold what is pending. */
const OF_PENDING = ['deliveries_in_lane', 'deliveries_aside'];

/** Statements that read a growing table in the order of its numbers, up to a limit of theirs. */
const IN_ORDER =
  /ORDER BY (m\.|d\.)?"?(message_no|delivery_no|id|seq)"?( (asc|desc))?(,|\s|\)|$)[^]*LIMIT|SELECT (coalesce\()?m(ax|in)\(\w+\)/i;

/** Statements that want pending deliveries only. */
const IS_PENDING = /state = 'pending' AND (d\.)?aside = \d/;

const file = new DatabaseSync(':memory:');
for (const step of MIGRATIONS) file.exec(step);

/** The tables that a statement calls by other names, by those names. */
function namesIn(sql: string): Map<string, string> {
  const names = new Map(GROWING.map((table) => [table, table]));
  for (const [, table, name] of sql.matchAll(/\b(?:from|join)\s+"?(\w+)"?\s+(?:as\s+)?"?(\w)"?(?=\s|\)|,|$)/gi))
    names.set(name!, table!);
  return names;
}

/** Why a statement may read much; empty when it does not. */
function faultsOf(sql: string): string[] {
  const names = namesIn(sql);
  const faults: string[] = [];
  const plan = file.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[];
  for (const { detail } of plan) {
    const [, how, name = '', index = ''] = /^(SCAN|SEARCH) (\w+)(?:.*? INDEX (\w+))?/.exec(detail) ?? [];
    const table = names.get(name) ?? name;
    if (!GROWING.includes(table) || OF_PENDING.includes(index)) continue;
    if (how === 'SCAN' && !IN_ORDER.test(sql)) faults.push(detail);
    const reads_history = index === 'deliveries_of_instance' && !detail.includes('delivery_no=?');
    if (how === 'SEARCH' && reads_history && IS_PENDING.test(sql) && !IN_ORDER.test(sql)) faults.push(detail);
  }
  return faults;
}

async function statementsOfTheStore(t: { mock: { method: (...args: any[]) => unknown } }): Promise<Set<string>> {
  const statements = new Set<string>();
  const prepare = Database.prototype.prepare;
  t.mock.method(Database.prototype, 'prepare', function (this: Database, sql: string) {
    statements.add(sql);
    return prepare.call(this, sql);
  });
  for (const log of fc.sample(commandLogs(PER_LOG), { seed: SEED, numRuns: LOGS })) {
    const store = openStoreHere();
    const commands = new CommandLog(store);
    for (const command of log) await commands.run(command);
    await store.close();
  }
  return statements;
}

test('no statement of SQLite reads the history to find a few rows', async (t) => {
  const statements = [...(await statementsOfTheStore(t))].filter((sql) =>
    /^\s*(SELECT|UPDATE|DELETE|WITH|INSERT)/i.test(sql),
  );
  assert.ok(statements.length > 100, `${statements.length} statements`);
  const faults = statements.flatMap((sql) => faultsOf(sql).map((fault) => `${fault}\n${sql}`));
  assert.deepEqual(faults, []);
});
