/**
 * Other ways to store deliveries, as changes of the newest schema: see write_costs.ts. Each keeps the two functions
 * with which a node accepts and settles. Nothing else works on such a schema.
 */
import type pg from 'pg';

export interface Variant {
  name: string;
  /** Whether the result of a first attempt that succeeded is stored in full, or as three numbers. */
  attempts: 'full' | 'short';
  change(client: pg.Client): Promise<void>;
  /**
   * The pending deliveries of lane ($1, $2) in partition $3, where the index of lanes does not find them; $4 is the
   * last number that the sweep has seen.
   */
  read?: string;
  /** What a node does from time to time; it counts like the vacuum. */
  after?: string;
}

const NO_STATE_IN_AN_INDEX =
  'DROP INDEX deliveries_in_lane; DROP INDEX deliveries_aside; DROP INDEX deliveries_failed;';

/** Pending deliveries by lane, as `deliveries_in_lane` has them. */
const PENDING_TABLE = `
  CREATE TABLE pending_deliveries (
    delivery_no bigint PRIMARY KEY,
    partition_no smallint NOT NULL,
    seq bigint NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    meeting_id text COLLATE "C" NOT NULL
  );
  CREATE INDEX ON pending_deliveries (partition_no, instance_id, meeting_id, seq);`;

const INSERT = /INSERT INTO deliveries \([^)]*\)\s+SELECT (.*?)\n\s+FROM (taken CROSS JOIN .*?)\n/s;
const INSERT_DELIVERIES = 'stored_deliveries AS (';
const UPDATE = /UPDATE deliveries d SET .*?;/s;

/** Replaces parts of a function. @throws when it has no such part: the variant is then for an earlier version */
async function replaceIn(client: pg.Client, name: string, part: string | RegExp, replacement: string): Promise<void> {
  const { rows } = await client.query<{ text: string }>(
    'SELECT pg_get_functiondef(oid) AS text FROM pg_proc WHERE proname ~ $1 ORDER BY oid DESC LIMIT 1',
    [name],
  );
  const { text } = rows[0]!;
  const changed = text.replace(part, () => replacement);
  if (changed === text) throw new Error(`${name} has no ${String(part)}`);
  await client.query(changed);
}

/** The function that this version calls is the newest one with such a name. */
const ACCEPT = '^accept_messages';
const SETTLE = '^settle_deliveries';
const NUMBER = 'taken.first_no + r.nth - 1 + r.number';
const FROM_RECIPIENTS = 'FROM taken CROSS JOIN recipient r JOIN numbered n ON n.nth = r.nth ORDER BY r.number';
const SETTLED = `unnest(delivery_nos, expire_ats, epochs, states, reasons, attempt_counts, badly_counts, attempt_lists, next_attempt_ats, asides, settled_ats)
        AS s(delivery_no, expires_at, epoch, state, reason, attempt_count, answered_badly, attempts, next_attempt_at, aside, settled_at)`;

function changedBy(statements: string): (client: pg.Client) => Promise<void> {
  return async (client) => void (await client.query(statements));
}

/** Adds a statement after the one that updates the settled deliveries. */
async function afterSettling(client: pg.Client, statement: string): Promise<void> {
  const { rows } = await client.query<{ text: string }>(
    'SELECT prosrc AS text FROM pg_proc WHERE proname ~ $1 ORDER BY oid DESC LIMIT 1',
    [SETTLE],
  );
  const update = UPDATE.exec(rows[0]!.text)![0];
  await replaceIn(client, SETTLE, UPDATE, `${update} ${statement}`);
}

const DELETE_PENDING = 'DELETE FROM pending_deliveries WHERE delivery_no = ANY (delivery_nos);';

/** Every pending delivery has a row in a second table from its acceptance on. The row of the delivery is updated in place. */
async function besideATable(client: pg.Client): Promise<void> {
  await client.query(`${NO_STATE_IN_AN_INDEX} ${PENDING_TABLE}`);
  await replaceIn(
    client,
    ACCEPT,
    INSERT_DELIVERIES,
    `stored_pending AS (
      INSERT INTO pending_deliveries (delivery_no, partition_no, seq, instance_id, meeting_id)
      SELECT ${NUMBER}, r.partition_no, n.seq, r.instance_id, n.meeting_id ${FROM_RECIPIENTS}
    ), ${INSERT_DELIVERIES}`,
  );
  await afterSettling(client, DELETE_PENDING);
}

/** A delivery is in one table while it is pending, and in the other afterwards. */
async function moved(client: pg.Client): Promise<void> {
  await client.query(`${NO_STATE_IN_AN_INDEX} ${PENDING_TABLE}
    ALTER TABLE pending_deliveries ADD message_no bigint, ADD target_agents text, ADD expires_at bigint, ADD created_at bigint;
    ALTER TABLE deliveries SET (fillfactor = 100);`);
  await replaceIn(
    client,
    ACCEPT,
    INSERT,
    `INSERT INTO pending_deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at)
      SELECT ${NUMBER}, n.message_no, n.meeting_id, n.seq, r.instance_id, r.partition_no, r.agents, expire_ats[n.place], wall_ats[n.place]
      ${FROM_RECIPIENTS}\n`,
  );
  await replaceIn(
    client,
    SETTLE,
    UPDATE,
    `WITH ended AS (
      DELETE FROM pending_deliveries d USING ${SETTLED}
      WHERE d.delivery_no = ANY (delivery_nos) AND d.delivery_no = s.delivery_no AND d.expires_at = s.expires_at AND s.epoch = present[d.partition_no + 1]
      RETURNING d.delivery_no, d.message_no, d.meeting_id, d.seq, d.instance_id, d.partition_no, d.target_agents, d.expires_at, d.created_at,
        s.state, s.reason, s.attempt_count, s.answered_badly, s.attempts, s.settled_at)
    INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at,
        state, reason, attempt_count, answered_badly, attempts, settled_at)
      SELECT * FROM ended ORDER BY delivery_no;`,
  );
}

/**
 * A delivery has a row in the second table only when it is still pending after some seconds. A sweep adds those rows,
 * from the last number that the previous sweep has seen. Newer deliveries are found by instance and number.
 */
const SWEEP = `
  INSERT INTO pending_deliveries (delivery_no, partition_no, seq, instance_id, meeting_id)
  SELECT delivery_no, partition_no, seq, instance_id, meeting_id FROM deliveries WHERE delivery_no > $1 AND state = 'pending'`;

const READ_NOTED = `
  SELECT p.delivery_no, p.seq FROM pending_deliveries p JOIN deliveries d ON d.delivery_no = p.delivery_no
  WHERE p.instance_id = $1 AND p.meeting_id = $2 AND p.partition_no = $3 AND d.state = 'pending' ORDER BY p.seq LIMIT 200`;

/**
 * OFFSET 0 makes the planner use `deliveries_of_instance`. Without it the other conditions make it choose a slower
 * plan.
 */
const READ_LATE = `
  (${READ_NOTED}) UNION ALL
  (SELECT delivery_no, seq FROM (
    SELECT delivery_no, seq, meeting_id, state FROM deliveries WHERE instance_id = $1 AND delivery_no > $4 OFFSET 0) d
  WHERE d.meeting_id = $2 AND d.state = 'pending' ORDER BY d.seq LIMIT 200)
  ORDER BY seq LIMIT 200`;

const LATE = `${NO_STATE_IN_AN_INDEX} ${PENDING_TABLE}`;

async function lateIn(client: pg.Client, fillfactor: number): Promise<void> {
  await client.query(`${LATE} ALTER TABLE deliveries SET (fillfactor = ${fillfactor});`);
  await afterSettling(client, `IF EXISTS (SELECT 1 FROM pending_deliveries) THEN ${DELETE_PENDING} END IF;`);
}

export const VARIANTS: readonly Variant[] = [
  { name: 'as it was: attempts in full', attempts: 'full', async change() {} },
  { name: 'as it is: a short first attempt', attempts: 'short', async change() {} },
  {
    name: 'the same, pages filled to 45 %',
    attempts: 'short',
    change: changedBy('ALTER TABLE deliveries SET (fillfactor = 45)'),
  },
  {
    name: 'pending rows beside, all',
    attempts: 'full',
    change: besideATable,
    read: `${READ_NOTED} OFFSET 0 * $4::bigint`,
  },
  {
    name: 'pending rows beside, all; short',
    attempts: 'short',
    change: besideATable,
    read: `${READ_NOTED} OFFSET 0 * $4::bigint`,
  },
  { name: 'moved when settled', attempts: 'full', change: moved },
  { name: 'moved when settled; short', attempts: 'short', change: moved },
  {
    name: 'one index of all lanes, no condition; short',
    attempts: 'short',
    change: changedBy(
      `${NO_STATE_IN_AN_INDEX} CREATE INDEX ON deliveries (partition_no, instance_id, meeting_id, seq)`,
    ),
  },
  {
    name: 'BRIN with the condition (HOT from PostgreSQL 16 on); short',
    attempts: 'short',
    change: changedBy(
      `${NO_STATE_IN_AN_INDEX} CREATE INDEX ON deliveries USING brin (delivery_no) WHERE state = 'pending'`,
    ),
  },
  {
    name: 'pending rows beside, late ones',
    attempts: 'full',
    change: (client) => lateIn(client, 50),
    after: SWEEP,
    read: READ_LATE,
  },
  {
    name: 'pending rows beside, late ones; short',
    attempts: 'short',
    change: (client) => lateIn(client, 50),
    after: SWEEP,
  },
  {
    name: 'pending rows beside, late ones; short; pages filled to 40 %',
    attempts: 'short',
    change: (client) => lateIn(client, 40),
    after: SWEEP,
    read: READ_LATE,
  },
];
