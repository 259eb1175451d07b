/**
 * Leases as functions of the database. The caller needs only one statement, so nothing stays locked when the calling
 * node dies.
 */
import { LEASE_MS } from '../../../domain/partition.ts';
import { LEASES, TAKEOVER } from '../locks.ts';

const NOW_MS = 'floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint';

/** A node whose lease ended this long ago, and that holds no partition, is removed. */
const FORGOTTEN_AFTER_MS = 3_600_000;

/**
 * Renews the lease of a node, or lets it join. Releases the partitions that the node names. When the lease of the node
 * had ended, the node keeps the partitions that no other node took, with their epochs. Returns the number of the node.
 */
export const RENEW_LEASE = `
  CREATE FUNCTION renew_lease(my_node_id text, my_version text, my_address text, is_stopping smallint, released smallint[]) RETURNS bigint
  LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE
    now_ms bigint;
    my_node_no bigint;
  BEGIN
    PERFORM pg_advisory_xact_lock(${LEASES});
    now_ms := ${NOW_MS};
    INSERT INTO nodes AS n (node_id, version, address, started_at, seen_at, lease_until, stopping)
      SELECT my_node_id, my_version, my_address, now_ms, now_ms, now_ms + ${LEASE_MS}, is_stopping
      WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE node_id = my_node_id);
    UPDATE nodes SET version = my_version, address = my_address, seen_at = now_ms, lease_until = now_ms + ${LEASE_MS}, stopping = is_stopping
      WHERE node_id = my_node_id RETURNING node_no INTO my_node_no;
    IF cardinality(released) > 0 THEN
      PERFORM pg_advisory_xact_lock(${TAKEOVER});
      UPDATE partitions SET node_no = NULL WHERE node_no = my_node_no AND partition_no = ANY (released);
    END IF;
    DELETE FROM nodes n WHERE n.lease_until < now_ms - ${FORGOTTEN_AFTER_MS} AND NOT EXISTS (SELECT 1 FROM partitions p WHERE p.node_no = n.node_no);
    RETURN my_node_no;
  END $$;
`;

/**
 * `RENEW_LEASE` for a node that signs its notifications. Nodes of the previous version do not sign, and call
 * `RENEW_LEASE`.
 */
export const RENEW_LEASE_2 = `
  CREATE FUNCTION renew_lease_2(my_node_id text, my_version text, my_address text, is_stopping smallint, released smallint[]) RETURNS bigint
  LANGUAGE plpgsql AS $$
  DECLARE
    my_node_no bigint;
  BEGIN
    my_node_no := renew_lease(my_node_id, my_version, my_address, is_stopping, released);
    UPDATE nodes SET signs = 1 WHERE node_no = my_node_no AND signs = 0;
    RETURN my_node_no;
  END $$;
`;

/**
 * `RENEW_LEASE_2` for a node that tells how many steps of the schema it knows. Nodes of the previous version call
 * `RENEW_LEASE_2`.
 */
export const RENEW_LEASE_3 = `
  CREATE FUNCTION renew_lease_3(my_node_id text, my_version text, my_address text, is_stopping smallint, released smallint[], my_steps integer) RETURNS bigint
  LANGUAGE plpgsql AS $$
  DECLARE
    my_node_no bigint;
  BEGIN
    my_node_no := renew_lease_2(my_node_id, my_version, my_address, is_stopping, released);
    UPDATE nodes SET steps_known = my_steps WHERE node_no = my_node_no AND steps_known <> my_steps;
    RETURN my_node_no;
  END $$;
`;

/** Takes at most `wanted` partitions: free ones, and those of a node without a lease. */
export const TAKE_PARTITIONS = `
  CREATE FUNCTION take_partitions(my_node_no bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE
    now_ms bigint;
  BEGIN
    PERFORM pg_advisory_xact_lock(${LEASES});
    PERFORM pg_advisory_xact_lock(${TAKEOVER});
    now_ms := ${NOW_MS};
    IF NOT EXISTS (SELECT 1 FROM nodes WHERE node_no = my_node_no AND lease_until >= now_ms AND stopping = 0) THEN
      RETURN;
    END IF;
    UPDATE partitions SET node_no = my_node_no, epoch = epoch + 1
      WHERE partition_no IN (
        SELECT p.partition_no FROM partitions p LEFT JOIN nodes n ON n.node_no = p.node_no
        WHERE n.node_no IS NULL OR n.lease_until < now_ms ORDER BY p.partition_no LIMIT wanted);
  END $$;
`;

/**
 * Takes at most `wanted` partitions: free ones, and those of a node that is gone. The calling node has watched the
 * other nodes and names those that are gone. A named node counts as gone only if it has not renewed since the caller
 * looked. The new epoch is partly random, so no other holder ever has the same epoch, even if the database goes back in
 * time.
 */
export const TAKE_PARTITIONS_2 = `
  CREATE FUNCTION take_partitions_2(my_node_no bigint, wanted bigint, gone_nos bigint[], gone_seen_ats bigint[]) RETURNS void
  LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  BEGIN
    PERFORM pg_advisory_xact_lock(${LEASES});
    PERFORM pg_advisory_xact_lock(${TAKEOVER});
    IF NOT EXISTS (SELECT 1 FROM nodes WHERE node_no = my_node_no AND stopping = 0) THEN
      RETURN;
    END IF;
    UPDATE partitions SET node_no = my_node_no, epoch = epoch + 1 + floor(random() * 2147483648)::bigint
      WHERE partition_no IN (
        SELECT p.partition_no FROM partitions p LEFT JOIN nodes n ON n.node_no = p.node_no
        WHERE n.node_no IS NULL OR EXISTS (SELECT 1 FROM unnest(gone_nos, gone_seen_ats) AS gone(node_no, seen_at)
          WHERE gone.node_no = n.node_no AND gone.seen_at = n.seen_at)
        ORDER BY p.partition_no LIMIT wanted);
  END $$;
`;
