/** Settling as a function of the database. accept_messages.ts explains what accepting and settling have in common. */
import { TAKEOVER } from '../locks.ts';

/**
 * Writes the results of attempts. Every statement that writes both tables writes instances before deliveries, so that
 * no two of them wait for each other. A node that takes a partition waits for the shared lock of this function, so no
 * epoch changes while the function holds the lock. A settlement that comes after the takeover has an earlier epoch, and
 * is not written.
 */
export const SETTLE_DELIVERIES = `
  CREATE FUNCTION settle_deliveries(
    delivery_nos bigint[], expire_ats bigint[], epochs bigint[], states text[], reasons text[], attempt_counts bigint[],
    badly_counts bigint[], attempt_lists text[], next_attempt_ats bigint[], asides smallint[], settled_ats bigint[],
    of_instances text[], of_urls text[], of_epochs bigint[], failures bigint[], last_success_ats bigint[], last_failures text[],
    backoff_steps bigint[], backoff_untils bigint[],
    gone_instances text[], gone_epochs bigint[], gone_as_ofs bigint[]
  ) RETURNS void LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE
    present bigint[];
  BEGIN
    PERFORM pg_advisory_xact_lock_shared(${TAKEOVER});
    -- The epochs from partition 0 on: that of partition n is present[n + 1]. They are looked up once, and not for each
    -- row.
    SELECT array_agg(p.epoch ORDER BY p.partition_no) INTO present FROM partitions p;
    UPDATE instances x SET consecutive_failures = h.failures, last_success_at = h.last_success_at, last_failure = h.last_failure,
        backoff_step = h.backoff_step, backoff_until = h.backoff_until
      FROM unnest(of_instances, of_urls, of_epochs, failures, last_success_ats, last_failures, backoff_steps, backoff_untils)
        AS h(instance_id, webhook_url, epoch, failures, last_success_at, last_failure, backoff_step, backoff_until)
      WHERE x.instance_id = ANY (of_instances) AND x.instance_id = h.instance_id AND x.webhook_url = h.webhook_url
        AND h.epoch = present[x.partition_no + 1];
    IF cardinality(gone_instances) > 0 THEN
      UPDATE instances x SET webhook_enabled = 0
        FROM unnest(gone_instances, gone_epochs, gone_as_ofs) AS h(instance_id, epoch, updated_at)
        WHERE x.instance_id = ANY (gone_instances) AND x.instance_id = h.instance_id AND x.updated_at = h.updated_at
          AND h.epoch = present[x.partition_no + 1];
    END IF;
    UPDATE deliveries d SET state = s.state, reason = s.reason, attempt_count = s.attempt_count, answered_badly = s.answered_badly,
        attempts = s.attempts, next_attempt_at = s.next_attempt_at, aside = s.aside, settled_at = s.settled_at
      FROM unnest(delivery_nos, expire_ats, epochs, states, reasons, attempt_counts, badly_counts, attempt_lists, next_attempt_ats, asides, settled_ats)
        AS s(delivery_no, expires_at, epoch, state, reason, attempt_count, answered_badly, attempts, next_attempt_at, aside, settled_at)
      WHERE d.delivery_no = ANY (delivery_nos) AND d.delivery_no = s.delivery_no AND d.state = 'pending' AND d.expires_at = s.expires_at
        AND s.epoch = present[d.partition_no + 1];
  END $$;
`;

/**
 * The SQL of the function with this name.
 *
 * @param also sets further columns of a delivery, besides its result
 * @param afterwards what the function does at its end
 */
function settleDeliveries(name: string, also: string, afterwards = ''): string {
  return `
  CREATE FUNCTION ${name}(
    delivery_nos bigint[], expire_ats bigint[], epochs bigint[], states text[], reasons text[], attempt_counts bigint[],
    badly_counts bigint[], attempt_lists text[], next_attempt_ats bigint[], asides smallint[], settled_ats bigint[],
    of_instances text[], of_urls text[], of_epochs bigint[], failures bigint[], health_sinces bigint[], last_success_ats bigint[], last_failures text[],
    backoff_steps bigint[], backoff_untils bigint[],
    gone_instances text[], gone_epochs bigint[], gone_as_ofs bigint[]
  ) RETURNS void LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE
    present bigint[];${
      afterwards === ''
        ? ''
        : `
    settled bigint;`
    }
  BEGIN
    PERFORM pg_advisory_xact_lock_shared(${TAKEOVER});
    -- The epochs from partition 0 on: that of partition n is present[n + 1]. They are looked up once, and not for each
    -- row.
    SELECT array_agg(p.epoch ORDER BY p.partition_no) INTO present FROM partitions p;
    UPDATE instances x SET consecutive_failures = h.failures, health_since = h.health_since, last_success_at = h.last_success_at, last_failure = h.last_failure,
        backoff_step = h.backoff_step, backoff_until = h.backoff_until
      FROM unnest(of_instances, of_urls, of_epochs, failures, health_sinces, last_success_ats, last_failures, backoff_steps, backoff_untils)
        AS h(instance_id, webhook_url, epoch, failures, health_since, last_success_at, last_failure, backoff_step, backoff_until)
      WHERE x.instance_id = ANY (of_instances) AND x.instance_id = h.instance_id AND x.webhook_url = h.webhook_url
        AND h.epoch = present[x.partition_no + 1];
    IF cardinality(gone_instances) > 0 THEN
      UPDATE instances x SET webhook_enabled = 0
        FROM unnest(gone_instances, gone_epochs, gone_as_ofs) AS h(instance_id, epoch, updated_at)
        WHERE x.instance_id = ANY (gone_instances) AND x.instance_id = h.instance_id AND x.updated_at = h.updated_at
          AND h.epoch = present[x.partition_no + 1];
    END IF;
    UPDATE deliveries d SET state = s.state, reason = s.reason, attempt_count = s.attempt_count, answered_badly = s.answered_badly,
        attempts = s.attempts, next_attempt_at = s.next_attempt_at, aside = s.aside, settled_at = s.settled_at${also}
      FROM unnest(delivery_nos, expire_ats, epochs, states, reasons, attempt_counts, badly_counts, attempt_lists, next_attempt_ats, asides, settled_ats)
        AS s(delivery_no, expires_at, epoch, state, reason, attempt_count, answered_badly, attempts, next_attempt_at, aside, settled_at)
      WHERE d.delivery_no = ANY (delivery_nos) AND d.delivery_no = s.delivery_no AND d.state = 'pending' AND d.expires_at = s.expires_at
        AND s.epoch = present[d.partition_no + 1];${afterwards}
  END $$;
`;
}

/** As SETTLE_DELIVERIES. It also writes since when an instance has its health. */
export const SETTLE_DELIVERIES_2 = settleDeliveries('settle_deliveries_2', '');

const ALSO_NOTED = `,
        noted = CASE WHEN s.state <> 'pending' THEN 0 WHEN s.aside = 1 THEN 1 ELSE d.noted END,
        failed_at = CASE WHEN s.state = 'failed' THEN s.settled_at END`;

/** As SETTLE_DELIVERIES_2. It also writes the columns by which deliveries are found: see pending_deliveries.ts. */
export const SETTLE_DELIVERIES_3 = settleDeliveries('settle_deliveries_3', ALSO_NOTED);

/**
 * As SETTLE_DELIVERIES_3. It also writes the results of attempts that were in flight when their deliveries expired: see
 * `lateEnd`. Few batches have such a result, so the function looks for them only when it settled too few rows.
 */
export const SETTLE_DELIVERIES_4 = settleDeliveries(
  'settle_deliveries_4',
  ALSO_NOTED,
  `
    GET DIAGNOSTICS settled = ROW_COUNT;
    IF settled < cardinality(delivery_nos) THEN
      UPDATE deliveries d SET
          state = CASE WHEN s.state = 'pending' THEN 'failed' ELSE s.state END,
          reason = CASE WHEN s.state = 'pending' THEN 'expired' ELSE s.reason END,
          attempt_count = s.attempt_count, answered_badly = s.answered_badly, attempts = s.attempts,
          settled_at = coalesce(s.settled_at, d.settled_at),
          failed_at = CASE WHEN s.state <> 'delivered' THEN coalesce(s.settled_at, d.settled_at) END
        FROM unnest(delivery_nos, expire_ats, epochs, states, reasons, attempt_counts, badly_counts, attempt_lists, settled_ats)
          AS s(delivery_no, expires_at, epoch, state, reason, attempt_count, answered_badly, attempts, settled_at)
        WHERE d.delivery_no = ANY (delivery_nos) AND d.delivery_no = s.delivery_no AND d.state = 'failed' AND d.reason = 'expired'
          AND d.expires_at = s.expires_at AND s.epoch = present[d.partition_no + 1];
    END IF;`,
);
