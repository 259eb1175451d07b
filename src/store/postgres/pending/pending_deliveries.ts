/**
 * Where pending deliveries are found. No statement but the ones of this folder decides it: all others read the views
 * `noted_deliveries` and `fresh_deliveries`, or `pending_deliveries`, which is both.
 *
 * PostgreSQL writes a new version of a row cheaply (HOT) only when no column changed that stands in an index, not even
 * in the condition of one. Most deliveries are accepted, pushed once and settled within milliseconds. So `state` is in
 * no index, and such a delivery touches none when it is settled. Two columns are in indexes instead, and it changes
 * neither:
 *
 * - `noted` is 1 while a delivery is pending and waits for longer. `deliveries_noted_in_lane` and
 *   `deliveries_noted_aside` have only those.
 * - `failed_at` is `settled_at` of a failed delivery, for `deliveries_ended_badly`.
 *
 * A delivery that is pending and not noted is _fresh_. Always true: a pending delivery is noted, or it is in its lane and
 * its number is above the mark, the last `swept_to` of the table `sweeps`. So readers find a pending delivery in an index
 * of `noted`, or by its number above the mark, with `deliveries_of_instance` or the primary key. A condition of the table
 * keeps a settled delivery from being noted, and one aside from being fresh.
 *
 * Who writes what:
 *
 * - Accepting writes fresh deliveries, and their numbers are above the mark.
 * - Settling ends a delivery, and with it `noted`; or leaves it as it was; or puts it aside, and notes it.
 * - Whatever else ends deliveries (expiry, drops, removal) clears `noted`. What queues one again puts it aside, and
 *   notes it.
 * - A sweep notes what has been pending since the sweep before, and moves the mark: see sweep_deliveries and sweeper.ts.
 *   It passes no delivery that is still fresh, and no number whose transaction may still be open. The mark is written in
 *   the same transaction, so every reader sees both or neither.
 *
 * The upgrade. Nodes of the version before know neither column, and their statements need the indexes on `state`. While
 * such a node may be there, a trigger keeps both columns, and the views still find deliveries by `state`: all pending
 * ones count as noted. One day after the step of the schema at the earliest, when all nodes know the columns and a sweep
 * has seen every row, one short transaction turns the views, and removes the trigger and the old indexes: see
 * upgrade.ts. The day is for operators who want to go back to the version before. So all nodes turn at the same moment, and no node
 * needs to know whether the views are turned. A new database starts that way.
 */
import { DELIVERY_COLUMNS } from '../columns.ts';
import { REMOVAL, SWEEP } from '../locks.ts';

const COLUMNS = [...DELIVERY_COLUMNS, 'partition_no'].join(', ');

/** The last number that a sweep has seen. One that was never given is damaged, and counts as none. */
export const MARK =
  '(SELECT CASE WHEN max(swept_to) <= (SELECT last_value FROM numbers) THEN max(swept_to) ELSE 0 END FROM sweeps)';

/**
 * The upper bound of the number makes the planner expect few rows above the mark: with one bound that it cannot know it
 * expects a third of the table.
 */
const IS_FRESH = `noted = 0 AND aside = 0 AND state = 'pending' AND delivery_no > ${MARK} AND delivery_no < ${Number.MAX_SAFE_INTEGER}`;

/** A view of one table is as fast as the table. */
function view(name: string, condition: string, also = ''): string {
  return `
  CREATE OR REPLACE VIEW ${name} AS SELECT ${COLUMNS}${also} FROM deliveries WHERE ${condition};`;
}

/** Each part has its index. Nothing reads this view in an order, because the planner sorts all of a union. */
const PENDING_VIEW = `
  CREATE VIEW pending_deliveries AS
    SELECT ${COLUMNS} FROM noted_deliveries WHERE aside = 0
    UNION ALL SELECT ${COLUMNS} FROM fresh_deliveries
    UNION ALL SELECT ${COLUMNS} FROM noted_deliveries WHERE aside = 1;`;

/**
 * The first pending deliveries of a lane, or the last ones: columns of `d`. The fresh ones are read in the order of
 * their numbers, which is that of `seq`, because an index of them has no other: so it ends with the last one that is
 * wanted, however many an instance got since the last sweep.
 *
 * @param condition chooses the lane by the columns of `d`
 */
export function partOfLane(columns: string, condition: string, order: 'ASC' | 'DESC', limit: string): string {
  const first = `ORDER BY seq ${order} LIMIT ${limit}`;
  return `
          (SELECT ${columns} FROM noted_deliveries d WHERE ${condition} AND d.aside = 0 ${first})
          UNION ALL (SELECT ${columns} FROM fresh_deliveries d WHERE ${condition} ORDER BY d.delivery_no ${order} LIMIT ${limit}) ${first}`;
}

/** What an UPDATE sets besides when it queues deliveries again, cancels them, or lets them expire. */
export const QUEUED_AGAIN = ', noted = 1, failed_at = NULL';
export const CANCELLED = ', noted = 0';
export const EXPIRED = ', noted = 0, failed_at = $wall_ms';

/** The indexes that the new views use. They are made beside a running cluster, which must not wait. */
export const NEW_INDEXES: Readonly<Record<string, string>> = {
  deliveries_noted_in_lane: 'deliveries (partition_no, instance_id, meeting_id, seq) WHERE noted = 1 AND aside = 0',
  deliveries_noted_aside: 'deliveries (partition_no, instance_id, next_attempt_at) WHERE noted = 1 AND aside = 1',
  deliveries_ended_badly: 'deliveries (instance_id, failed_at) WHERE failed_at IS NOT NULL',
};

/** Removed by the turn, so it is there until then. */
export const OLD_INDEX = 'deliveries_in_lane';

/**
 * Turns the views to the new columns, and removes what only nodes of the version before need. More of a page is free
 * than before: room for the new version of every row on it.
 *
 * @param steps how many steps of the schema a node must know from now on
 */
export function turnSearch(steps: number): string {
  return `
  ${view('noted_deliveries', 'noted = 1')}
  ${view('fresh_deliveries', IS_FRESH)}
  ${view('failed_deliveries', 'failed_at IS NOT NULL', ', failed_at')}
  DROP TRIGGER delivery_is_noted ON deliveries;
  DROP FUNCTION note_delivery;
  DROP INDEX ${OLD_INDEX};
  DROP INDEX deliveries_aside;
  DROP INDEX deliveries_failed;
  ALTER TABLE deliveries ADD CONSTRAINT pending_is_found
    CHECK (CASE WHEN state = 'pending' THEN noted = 1 OR noted = 0 AND aside = 0 ELSE noted = 0 END) NOT VALID;
  ALTER TABLE deliveries SET (fillfactor = 40);
  UPDATE schema_version SET steps_known_min = greatest(steps_known_min, ${steps});`;
}

/** The step of the schema. @param steps its number */
export function noteDeliveries(steps: number): string {
  return `
  -- Where pending deliveries are found: see pending_deliveries.ts.
  ALTER TABLE deliveries ADD COLUMN noted smallint NOT NULL DEFAULT 0, ADD COLUMN failed_at bigint;
  -- A row is added for each new mark, because a row that is often written gets slow (see meetings).
  CREATE TABLE sweeps (swept_to bigint PRIMARY KEY);
  INSERT INTO sweeps (swept_to) VALUES (0);
  ALTER TABLE this_database ADD COLUMN upgrade_ends_at timestamptz;
  UPDATE this_database SET upgrade_ends_at = now() + interval '1 day';
  ${view('noted_deliveries', "state = 'pending'")}
  ${view('fresh_deliveries', 'false')}
  ${view('failed_deliveries', "state = 'failed'", ', settled_at AS failed_at')}
  ${PENDING_VIEW}
  CREATE FUNCTION note_delivery() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    NEW.noted := (NEW.state = 'pending' AND (NEW.aside = 1 OR NEW.noted = 1))::int;
    NEW.failed_at := CASE WHEN NEW.state = 'failed' THEN NEW.settled_at END;
    RETURN NEW;
  END $$;
  CREATE TRIGGER delivery_is_noted BEFORE UPDATE ON deliveries FOR EACH ROW EXECUTE FUNCTION note_delivery();
  ${AWAIT_ACCEPTS}
  ${SWEEP_DELIVERIES}
  DO $new$
  BEGIN
    IF NOT EXISTS (SELECT 1 FROM deliveries) AND NOT EXISTS (SELECT 1 FROM nodes) THEN
      ${Object.entries(NEW_INDEXES)
        .map(([name, on]) => `CREATE INDEX ${name} ON ${on};`)
        .join('\n      ')}
      ${turnSearch(steps)}
    END IF;
  END $new$;`;
}

/**
 * Waits until every accept that has taken its numbers is committed or undone. New accepts queue behind it, so it does
 * not wait for long: an accept may itself wait for a lock.
 */
const AWAIT_ACCEPTS = `
  CREATE FUNCTION await_accepts() RETURNS void LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
  BEGIN
    PERFORM pg_advisory_xact_lock(${REMOVAL});
  END $$;`;

/**
 * Notes the next deliveries above the mark that are pending, and moves the mark. The caller has made sure that every
 * number up to `reached` is committed or undone. Waits for no other transaction: a row that one has locked stays as it
 * is, and the mark stays before it when it is still fresh. Returns the mark.
 *
 * What failed before the column `failed_at` was there gets it too.
 */
const SWEEP_DELIVERIES = `
  CREATE FUNCTION sweep_deliveries(reached bigint, rows_max bigint) RETURNS bigint LANGUAGE plpgsql AS $$
  DECLARE
    mark bigint;
    to_no bigint;
    fresh_no bigint;
  BEGIN
    IF NOT pg_try_advisory_xact_lock(${SWEEP}) THEN
      RETURN NULL;
    END IF;
    mark := ${MARK};
    SELECT CASE WHEN count(*) < rows_max THEN reached ELSE max(delivery_no) END INTO to_no FROM (
      SELECT delivery_no FROM deliveries WHERE delivery_no > mark AND delivery_no <= reached ORDER BY delivery_no LIMIT rows_max) next;
    IF to_no <= mark THEN
      RETURN mark;
    END IF;
    UPDATE deliveries SET noted = (state = 'pending')::int, failed_at = CASE WHEN state = 'failed' THEN settled_at END
      WHERE delivery_no = ANY (ARRAY(
        SELECT delivery_no FROM deliveries WHERE delivery_no > mark AND delivery_no <= to_no
          AND (state = 'pending' AND noted = 0 OR state = 'failed' AND failed_at IS NULL AND settled_at IS NOT NULL)
        ORDER BY delivery_no FOR NO KEY UPDATE SKIP LOCKED));
    -- A new statement sees what was committed meanwhile, and what is locked as it was before.
    SELECT min(delivery_no) INTO fresh_no FROM deliveries WHERE delivery_no > mark AND delivery_no <= to_no
      AND (state = 'pending' AND noted = 0 OR state = 'failed' AND failed_at IS NULL AND settled_at IS NOT NULL);
    to_no := coalesce(fresh_no - 1, to_no);
    IF to_no > mark THEN
      INSERT INTO sweeps (swept_to) VALUES (to_no) ON CONFLICT DO NOTHING;
      DELETE FROM sweeps WHERE swept_to <> to_no;
    END IF;
    RETURN to_no;
  END $$;`;
