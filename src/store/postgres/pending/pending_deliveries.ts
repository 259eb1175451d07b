/**
 * How statements find pending deliveries. Statements outside this folder read the views `noted_deliveries` and
 * `fresh_deliveries`, or the view `pending_deliveries`, which has the rows of both.
 *
 * PostgreSQL updates a row cheaply (HOT) only when the update changes no column that an index uses. A column in the
 * condition of an index counts too. Most deliveries are accepted, pushed once and settled within milliseconds. Settling
 * such a delivery must touch no index. So no index uses `state`. The indexes use two other columns, which stay as they
 * are when such a delivery is settled:
 *
 * - `noted` is 1 for a pending delivery that is aside, or that a sweep has found. The indexes `deliveries_noted_…`
 *   contain only noted deliveries.
 * - `failed_at` is `settled_at` of a failed delivery, for the index `deliveries_ended_badly`.
 *
 * A delivery that is pending and not noted is _fresh_. This is always true: a pending delivery is noted, or it is in
 * its lane and its number is above the mark. The mark is the last `swept_to` of the table `sweeps`. So readers find a
 * pending delivery in one of two ways: in an index of `noted`, or by its number above the mark. For such a number they
 * use the index `deliveries_of_instance` or the primary key. A constraint of the table keeps a settled delivery from
 * being noted, and a delivery aside from being fresh.
 *
 * Who writes what:
 *
 * - Accepting writes fresh deliveries, and their numbers are above the mark.
 * - Settling ends a delivery and clears `noted`, or puts it aside and notes it. For a delivery that waits in its lane,
 *   settling leaves `noted` as it was.
 * - Everything else that ends deliveries (expiry, drops, removal) clears `noted`. Queuing a delivery again puts it
 *   aside, and notes it.
 * - A sweep notes the deliveries that have been pending since the previous sweep, and moves the mark: see
 *   sweep_deliveries and sweeper.ts. The mark passes no delivery that is still fresh, and no number whose transaction
 *   may still be open. One transaction notes the deliveries and moves the mark. So no reader sees only one of these two
 *   changes.
 *
 * The upgrade. Nodes of the previous version know neither column, and their statements need the indexes on `state`.
 * While such a node may be there, a trigger writes both columns, and the views still find deliveries by `state`: all
 * pending deliveries count as noted. This lasts at least a day after the step of the schema, and until then operators
 * can go back to the previous version. Afterwards, all nodes must know the columns, and a sweep must have seen every
 * row. Then one short transaction switches the views to the new columns, and removes the trigger and the old indexes:
 * see upgrade.ts. So all nodes change over at the same moment, and no node needs to know when that is. A new
 * database has the new columns in its views from the start.
 */
import { DELIVERY_COLUMNS } from '../columns.ts';
import { REMOVAL, SWEEP } from '../locks.ts';

const COLUMNS = [...DELIVERY_COLUMNS, 'partition_no'].join(', ');

/** Selects the mark (see above). A mark above all numbers that were given is damaged, and counts as 0. */
export const MARK =
  '(SELECT CASE WHEN max(swept_to) <= (SELECT last_value FROM numbers) THEN max(swept_to) ELSE 0 END FROM sweeps)';

/**
 * The planner cannot know the value of MARK. With this lower bound alone it would expect a third of the table above the
 * mark. With an upper bound too, it expects few rows.
 */
const IS_FRESH = `noted = 0 AND aside = 0 AND state = 'pending' AND delivery_no > ${MARK} AND delivery_no < ${Number.MAX_SAFE_INTEGER}`;

/** Makes a view of the table `deliveries`. PostgreSQL reads a view of one table as fast as the table itself. */
function view(name: string, condition: string, also = ''): string {
  return `
  CREATE OR REPLACE VIEW ${name} AS SELECT ${COLUMNS}${also} FROM deliveries WHERE ${condition};`;
}

/**
 * Each part of the union uses its own index. No statement reads this view with ORDER BY, because the planner would then
 * sort the whole union.
 */
const PENDING_VIEW = `
  CREATE VIEW pending_deliveries AS
    SELECT ${COLUMNS} FROM noted_deliveries WHERE aside = 0
    UNION ALL SELECT ${COLUMNS} FROM fresh_deliveries
    UNION ALL SELECT ${COLUMNS} FROM noted_deliveries WHERE aside = 1;`;

/** The pending deliveries of a lane that have a seq above `after_seq`. All fields are SQL. */
export interface PartOfLane {
  /** Chooses the lane by the columns of `d`. */
  condition: string;
  meeting_id: string;
  after_seq: string;
}

/**
 * Selects columns of the first or of the last pending deliveries `d` of a lane. Fresh deliveries are read in the order
 * of their numbers, because their indexes have no other order. In a lane that is also the order of `seq`. So the read
 * ends with the last delivery that is wanted, however many the instance got since the last sweep. And it begins at the
 * number of the message with the seq `after_seq`, so it skips what was settled since the last sweep: the deliveries of
 * later messages of the meeting have higher numbers. When that message is gone, the read begins at the mark.
 */
export function partOfLane(columns: string, part: PartOfLane, order: 'ASC' | 'DESC', limit: string): string {
  const { meeting_id, after_seq } = part;
  const condition = `${part.condition} AND d.seq > ${after_seq}`;
  const after_no = `coalesce((SELECT m.message_no FROM messages m WHERE m.meeting_id = ${meeting_id} AND m.seq = ${after_seq}), 0)`;
  const first = `ORDER BY seq ${order} LIMIT ${limit}`;
  return `
          (SELECT ${columns} FROM noted_deliveries d WHERE ${condition} AND d.aside = 0 ${first})
          UNION ALL (SELECT ${columns} FROM fresh_deliveries d WHERE ${condition} AND d.delivery_no > ${after_no} ORDER BY d.delivery_no ${order} LIMIT ${limit}) ${first}`;
}

/** What an UPDATE also sets when it queues deliveries again, cancels them, or lets them expire. */
export const QUEUED_AGAIN = ', noted = 1, failed_at = NULL';
export const CANCELLED = ', noted = 0';
export const EXPIRED = ', noted = 0, failed_at = $wall_ms';

/** The indexes that the new views use. An upgrade makes them while the nodes work, so it must not block the nodes. */
export const NEW_INDEXES: Readonly<Record<string, string>> = {
  deliveries_noted_in_lane: 'deliveries (partition_no, instance_id, meeting_id, seq) WHERE noted = 1 AND aside = 0',
  deliveries_noted_aside: 'deliveries (partition_no, instance_id, next_attempt_at) WHERE noted = 1 AND aside = 1',
  deliveries_noted_in_meeting: 'deliveries (partition_no, instance_id, meeting_id) WHERE noted = 1 AND aside = 1',
  deliveries_ended_badly: 'deliveries (instance_id, failed_at) WHERE failed_at IS NOT NULL',
};

/** An index that the upgrade removes when it switches the views: while this index exists, the upgrade has not ended. */
export const OLD_INDEX = 'deliveries_in_lane';

/**
 * Makes the views use the new columns, and removes what only nodes of the previous version need. Also makes PostgreSQL
 * leave more of each page free than before, so that a page has room for a new version of each of its rows.
 *
 * @param steps how many steps of the schema a node must know from now on
 */
export function switchViews(steps: number): string {
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

/** Makes the step of the schema that adds the two columns. @param steps the number of the step */
export function noteDeliveries(steps: number): string {
  return `
  -- How statements find pending deliveries: see pending_deliveries.ts.
  ALTER TABLE deliveries ADD COLUMN noted smallint NOT NULL DEFAULT 0, ADD COLUMN failed_at bigint;
  -- Each new mark is a new row, because a row that is written often gets slow (see meetings).
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
      ${switchViews(steps)}
    END IF;
  END $new$;`;
}

/**
 * Waits until every accept that has taken its numbers is committed or rolled back. An accept may wait for a lock for
 * long. Meanwhile new accepts would have to wait behind this function. So it gives up after 200 ms.
 */
const AWAIT_ACCEPTS = `
  CREATE FUNCTION await_accepts() RETURNS void LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
  BEGIN
    PERFORM pg_advisory_xact_lock(${REMOVAL});
  END $$;`;

/** The condition for the rows that a sweep has to change: fresh deliveries, and failed ones without `failed_at`. */
const UNSWEPT = `(state = 'pending' AND noted = 0 OR state = 'failed' AND failed_at IS NULL AND settled_at IS NOT NULL)`;

/**
 * Sets `noted` of the next pending deliveries above the mark, and moves the mark. The caller has made sure that every
 * number up to `reached` is committed or rolled back. This function waits for no other transaction: when another
 * transaction has locked a row, the row stays as it is. If its delivery is still fresh (pending and not noted), the
 * mark stops before the number of the delivery, because readers find a fresh delivery only above the mark. Returns the
 * mark; null when another node sweeps now.
 *
 * Also writes `failed_at` for deliveries that failed before this column existed. The mark stops before such a row too,
 * when the row is locked.
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
          AND ${UNSWEPT}
        ORDER BY delivery_no FOR NO KEY UPDATE SKIP LOCKED));
    -- A new statement sees what others committed meanwhile. It sees locked rows as they were before.
    SELECT min(delivery_no) INTO fresh_no FROM deliveries WHERE delivery_no > mark AND delivery_no <= to_no
      AND ${UNSWEPT};
    to_no := coalesce(fresh_no - 1, to_no);
    IF to_no > mark THEN
      INSERT INTO sweeps (swept_to) VALUES (to_no) ON CONFLICT DO NOTHING;
      DELETE FROM sweeps WHERE swept_to <> to_no;
    END IF;
    RETURN to_no;
  END $$;`;
