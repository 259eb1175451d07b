/**
 * How SQLite finds rows: no statement of the store reads a table, or the history of an instance, to find a few rows.
 * The test reads the plans of all statements that random commands run. The plans do not depend on how many rows there
 * are, because no file has statistics.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { DatabaseSync } from 'node:sqlite';
import { test, type TestContext } from 'node:test';
import { Database } from '../../src/store/sqlite/database.ts';
import { MIGRATIONS } from '../../src/store/sqlite/migrations.ts';
import { openStoreHere } from '../support/node.ts';
import { CommandLog, commandLogs } from '../support/store_commands.ts';

const LOGS = 16;
const PER_LOG = 250;
const SEED = 20_261_123;

/** The tables that grow with the history. */
const GROWING = ['deliveries', 'messages', 'idempotency_keys', 'audit_log'];
/** The indexes that have only pending deliveries. */
const OF_PENDING = ['deliveries_in_lane', 'deliveries_aside', 'deliveries_aside_in_meeting'];
/** Matches statements that read the deliveries of an instance in one meeting. */
const IN_MEETING = /\bd\.meeting_id = /;

/**
 * Matches statements that read a growing table in the order of its numbers (message_no, delivery_no, id, seq) up to a
 * LIMIT, or that read only the lowest or the highest number.
 */
const IN_ORDER =
  /ORDER BY (m\.|d\.)?"?(message_no|delivery_no|id|seq)"?( (asc|desc))?(,|\s|\)|$)[^]*LIMIT|SELECT (coalesce\()?m(ax|in)\(\w+\)/i;

/** Matches statements that read only pending deliveries. */
const IS_PENDING = /state = 'pending' AND (d\.)?aside = \d/;

const file = new DatabaseSync(':memory:');
for (const step of MIGRATIONS) file.exec(step);

/** The tables of a statement, by the names that it uses for them. */
function namesIn(sql: string): Map<string, string> {
  const names = new Map(GROWING.map((table) => [table, table]));
  for (const [, table, name] of sql.matchAll(/\b(?:from|join)\s+"?(\w+)"?\s+(?:as\s+)?"?(\w)"?(?=\s|\)|,|$)/gi))
    names.set(name!, table!);
  return names;
}

/** The reasons for which a statement may read many rows; empty when it does not. */
function faultsOf(sql: string): string[] {
  const names = namesIn(sql);
  const faults: string[] = [];
  const plan = file.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[];
  // To sort, a statement reads all rows before it returns the first row.
  const sorts = plan.some(({ detail }) => detail === 'USE TEMP B-TREE FOR ORDER BY');
  if (sorts && /ORDER BY (m\.seq DESC, )?d\.delivery_no/i.test(sql.replaceAll('"', '')))
    faults.push('it sorts deliveries');
  for (const { detail } of plan) {
    const [, how, name = '', index = ''] = /^(SCAN|SEARCH) (\w+)(?:.*? INDEX (\w+))?/.exec(detail) ?? [];
    const table = names.get(name) ?? name;
    // An instance may have a million deliveries aside, in a thousand meetings.
    if (index === 'deliveries_aside' && IN_MEETING.test(sql)) faults.push(detail);
    // Only counts, and the search for the oldest, read all that is pending.
    if (OF_PENDING.includes(index) && how === 'SCAN' && !/LIMIT|count\(|min\(delivery_no\)/i.test(sql))
      faults.push(detail);
    if (!GROWING.includes(table) || OF_PENDING.includes(index)) continue;
    if (how === 'SCAN' && !IN_ORDER.test(sql)) faults.push(detail);
    const reads_history =
      index === 'deliveries_of_instance' && !detail.includes('delivery_no=?') && !IN_ORDER.test(sql);
    const reads_table = detail === `SEARCH ${name}`;
    if (how === 'SEARCH' && (reads_history || reads_table) && IS_PENDING.test(sql)) faults.push(detail);
  }
  return faults;
}

/**
 * Whether a statement that reads the deliveries of messages stops after the last delivery of each message. The plan
 * says only that there is an upper bound, so this looks into SQLite's program for the sum that is the bound.
 */
function endsWithTheMessage(sql: string): boolean {
  const { rootpage } = file.prepare(`SELECT rootpage FROM sqlite_schema WHERE name = 'deliveries'`).get()!;
  const program = file.prepare(`EXPLAIN ${sql}`).all() as { opcode: string; p1: number; p2: number; p3: number }[];
  const sums = new Set(program.filter(({ opcode }) => opcode === 'Add').map(({ p3 }) => p3));
  const tables = program.filter(({ opcode, p2 }) => opcode === 'OpenRead' && p2 === rootpage).map(({ p1 }) => p1);
  // A loop upwards jumps to the same place when it finds no row and when it passes its upper bound.
  const upper = ({ opcode, p2, p3 }: (typeof program)[number]): number | undefined =>
    /^SeekL[TE]$/.test(opcode) ? p3 : program.find((op) => /^G[te]$/.test(op.opcode) && op.p2 === p2)?.p1;
  const seeks = program.filter(({ opcode, p1 }) => /^Seek[GL][TE]$/.test(opcode) && tables.includes(p1));
  return seeks.every((seek) => sums.has(upper(seek) ?? -1));
}

/** Every statement that random commands run on SQLite. */
async function statementsOfTheStore(t: TestContext): Promise<string[]> {
  const prepared = t.mock.method(Database.prototype, 'prepare');
  for (const log of fc.sample(commandLogs(PER_LOG), { seed: SEED, numRuns: LOGS })) {
    const store = openStoreHere();
    const commands = new CommandLog(store);
    for (const command of log) await commands.run(command);
    await store.close();
  }
  const statements = new Set(prepared.mock.calls.map((call) => call.arguments[0]));
  return [...statements].filter((sql) => /^\s*(SELECT|UPDATE|DELETE|WITH|INSERT)/i.test(sql));
}

/** The reasons for which a page of instances or meetings reads more rows than it has; empty when it does not. */
function faultsOfPage(sql: string): string[] {
  const plan = file.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { id: number; parent: number; detail: string }[];
  // The ids of a key with limits are a short list: see `firstSeen`.
  const lists = plan.filter(
    ({ detail }) => detail.startsWith('LIST SUBQUERY') && !sql.includes('CROSS JOIN memberships'),
  );
  const reads = plan.filter(({ parent, detail }) => lists.some(({ id }) => id === parent) && !/json_each/.test(detail));
  const sorts = plan.filter(({ parent, detail }) => parent === 0 && detail === 'USE TEMP B-TREE FOR ORDER BY');
  return [...reads, ...sorts].map(({ detail }) => detail);
}

/** Matches the pages of instances and of meetings. */
const PAGE_OF_IDS = /from "(instances" as "i|meetings" as "m)"[^]* order by "\w"."(instance|meeting)_id" limit \?$/;

const OF_MESSAGE = 'd.delivery_no <= m.message_no + m.deliveries_queued';

test('no statement of SQLite reads the history to find a few rows', async (t) => {
  const statements = await statementsOfTheStore(t);
  assert.ok(statements.length > 100, `${statements.length} statements`);
  const faults = statements.flatMap((sql) => faultsOf(sql).map((fault) => `${fault}\n${sql}`));
  assert.deepEqual(faults, []);

  const of_messages = statements.filter(
    (sql) => sql.includes(OF_MESSAGE) && /FROM messages m CROSS JOIN deliveries d/.test(sql),
  );
  assert.ok(of_messages.length > 0, `${of_messages.length} statements`);
  assert.deepEqual(
    of_messages.filter((sql) => !endsWithTheMessage(sql)),
    [],
  );
});

test('a count of what a drop would cancel reads no row of a delivery, only an index', async (t) => {
  const counts = (await statementsOfTheStore(t)).filter((sql) => /^SELECT count\(\*\)[^]*\$up_to_no/.test(sql));
  assert.equal(counts.length, 6, 'lanes and aside, each of an instance, of a meeting, and of both');
  for (const sql of counts) {
    const plan = file.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[];
    const how = plan.map(({ detail }) => detail).filter((detail) => detail.startsWith('SEARCH d '));
    assert.match(how.join(), /^SEARCH d USING COVERING INDEX [^,]+$/, sql);
  }
});

test('no page of instances or meetings sorts, or collects all instances of an agent or all meetings of an instance', async (t) => {
  const pages = (await statementsOfTheStore(t)).filter((sql) => PAGE_OF_IDS.test(sql));
  for (const part of [
    '"instance_agents" as "a"',
    '"memberships" as "s"',
    '"memberships" as "j"',
    'CROSS JOIN memberships',
  ])
    assert.ok(
      pages.some((sql) => sql.includes(part)),
      part,
    );
  assert.deepEqual(
    pages.flatMap((sql) => faultsOfPage(sql).map((fault) => `${fault}\n${sql}`)),
    [],
  );
});

/** The parts of a plan that read all rows of a table of keys or invites, to find some. */
function faultsOfKeys(sql: string): string[] {
  const plan = file.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[];
  const reads_all = /^SCAN (api_keys|invites)(?! USING (COVERING )?INDEX api_keys_of_admins)|TEMP B-TREE/;
  return sql.endsWith('LIMIT 1') ? [] : plan.map(({ detail }) => detail).filter((how) => reads_all.test(how));
}

/** Every machine that redeems an invite has a key of its own, so there may be a hundred thousand of both. */
test('no statement reads all API keys or all invites to find some', async (t) => {
  const statements = (await statementsOfTheStore(t)).filter((sql) => /\b(api_keys|invites)\b/.test(sql));
  for (const part of [
    'max(change_no)',
    'ORDER BY change_no',
    'created_at, key_id',
    'created_at, invite_id',
    'DELETE FROM',
  ])
    assert.ok(
      statements.some((sql) => sql.includes(part)),
      part,
    );
  assert.deepEqual(
    statements.flatMap((sql) => faultsOfKeys(sql).map((fault) => `${fault}\n${sql}`)),
    [],
  );
});

test('control: pages that read too much are found', () => {
  const all = 'SELECT i.instance_id FROM instances i';
  const of_agent = 'SELECT instance_id FROM instance_agents WHERE agent_id = ?';
  const collected = `${all} WHERE i.instance_id IN (${of_agent}) ORDER BY i.instance_id LIMIT ?`;
  assert.match(faultsOfPage(collected).join(), /SEARCH instance_agents/);
  const joined = `${all} JOIN instance_agents a ON a.instance_id = i.instance_id WHERE a.agent_id = ? ORDER BY `;
  assert.match(faultsOfPage(`${joined} i.instance_id LIMIT ?`).join(), /TEMP B-TREE/);
  assert.deepEqual(faultsOfPage(`${joined} a.instance_id LIMIT ?`), []);
});

test('control: statements that read the history are found', () => {
  const asideBy = (index: string) => `SELECT count(*) FROM memberships s JOIN deliveries d INDEXED BY ${index}
    ON d.instance_id = s.instance_id AND d.meeting_id = s.meeting_id
    WHERE s.meeting_id = ?1 AND d.state = 'pending' AND d.aside = 1`;
  for (const index of ['deliveries_of_instance', 'deliveries_aside'])
    assert.match(faultsOf(asideBy(index)).join(), new RegExp(index));
  const first_due = `SELECT instance_id, min(next_attempt_at) FROM deliveries WHERE state = 'pending' AND aside = 1 GROUP BY 1`;
  assert.match(faultsOf(first_due).join(), /SCAN deliveries USING .*INDEX deliveries_aside/);
  const least = `SELECT min(delivery_no) FROM deliveries WHERE state = 'pending' AND aside = 0`;
  assert.deepEqual(faultsOf(least), ['SEARCH deliveries']);
  assert.match(faultsOf('SELECT count(*) FROM messages WHERE accepted_at < 1').join(), /SCAN messages/);
  const of_meetings = `SELECT d.delivery_no FROM messages m CROSS JOIN deliveries d ON d.delivery_no > m.message_no
    AND ${OF_MESSAGE} WHERE m.meeting_id IN (?1, ?2) ORDER BY d.delivery_no DESC LIMIT 50`;
  assert.match(faultsOf(of_meetings).join(), /it sorts deliveries/);
  const all_later = `SELECT 1 FROM deliveries d JOIN messages m ON d.delivery_no > m.message_no AND ${OF_MESSAGE}
    WHERE d.delivery_no < ?2 AND m.meeting_id = ?1`;
  assert.equal(endsWithTheMessage(all_later), false);
  assert.equal(endsWithTheMessage(all_later.replace('WHERE d.', 'WHERE +d.')), true);
});
