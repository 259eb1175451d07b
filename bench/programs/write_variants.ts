/**
 * Other ways to store deliveries, as changes of the newest schema. write_costs.ts measures them. bench/NOTES.md, "What
 * a push writes", has the results of further ways that were tried.
 */
import type pg from 'pg';

export interface Variant {
  name: string;
  /** Whether the result of a successful first attempt is stored as a whole object, or as three numbers. */
  attempts: 'full' | 'short';
  change(client: pg.Client): Promise<void>;
}

/** The previous schema: three indexes had the state in their conditions, and no sweep was needed. */
const STATE_IN_INDEXES = `
  ALTER TABLE deliveries DROP CONSTRAINT pending_is_found;
  DROP INDEX deliveries_noted_in_lane; DROP INDEX deliveries_noted_aside; DROP INDEX deliveries_ended_badly;
  CREATE INDEX ON deliveries (partition_no, instance_id, meeting_id, seq) WHERE state = 'pending' AND aside = 0;
  CREATE INDEX ON deliveries (partition_no, instance_id, next_attempt_at) WHERE state = 'pending' AND aside = 1;
  CREATE INDEX ON deliveries (instance_id, settled_at) WHERE state = 'failed';
  CREATE OR REPLACE FUNCTION sweep_deliveries(reached bigint, rows_max bigint) RETURNS bigint LANGUAGE sql AS 'SELECT reached';
  ALTER TABLE deliveries SET (fillfactor = 50);`;

function changedBy(statements: string): (client: pg.Client) => Promise<void> {
  return async (client) => void (await client.query(statements));
}

export const VARIANTS: readonly Variant[] = [
  { name: 'as it was: the state in the conditions of indexes', attempts: 'short', change: changedBy(STATE_IN_INDEXES) },
  { name: 'as it is', attempts: 'short', async change() {} },
  {
    name: 'the same without the condition of the table',
    attempts: 'short',
    change: changedBy('ALTER TABLE deliveries DROP CONSTRAINT pending_is_found'),
  },
  {
    name: 'the same, pages filled to 50 % instead of 40',
    attempts: 'short',
    change: changedBy('ALTER TABLE deliveries SET (fillfactor = 50)'),
  },
  { name: 'the same, attempts in full', attempts: 'full', async change() {} },
];
