/** The first step of the schema: see migrations.ts. */
import { ACCEPT_MESSAGES } from './functions/accept_messages.ts';
import { SETTLE_DELIVERIES } from './functions/settle_deliveries.ts';
import { TAKE_NUMBERS } from './functions/take_numbers.ts';
import { RENEW_LEASE, TAKE_PARTITIONS } from './cluster/lease_functions.ts';

export const FIRST_STEP = `
  -- One row. Every message_id and delivery_id of this database contains the tag. A write of touches shows whether the
  -- database can be written.
  CREATE TABLE this_database (
    only_row smallint PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    tag text NOT NULL,
    touches bigint NOT NULL DEFAULT 0
  ) WITH (fillfactor = 10);

  -- Numbers of messages and deliveries: see take_numbers.
  CREATE SEQUENCE numbers AS bigint;

  -- Health is written once a second and when it changes. Its columns have no index, and each page has free room: so the
  -- new version of a row stays on its page.
  CREATE TABLE instances (
    instance_id text COLLATE "C" PRIMARY KEY,
    partition_no smallint NOT NULL,
    instance_name text COLLATE "C" NOT NULL,
    agent_ids text NOT NULL,
    webhook_url text NOT NULL,
    webhook_headers text NOT NULL,
    webhook_secret text NOT NULL,
    previous_secret text,
    previous_secret_until bigint,
    success_statuses text NOT NULL,
    webhook_enabled smallint NOT NULL,
    is_active smallint NOT NULL,
    consecutive_failures bigint NOT NULL DEFAULT 0,
    last_success_at bigint,
    last_failure text,
    backoff_step bigint NOT NULL DEFAULT 0,
    backoff_until bigint,
    last_seen_at bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    owner_key_id text COLLATE "C",
    first_no bigint NOT NULL DEFAULT 0
  ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
  CREATE INDEX instances_of_owner ON instances (owner_key_id) WHERE owner_key_id IS NOT NULL;

  -- The instances that are switched on. Accepting a message looks here, because a row of instances has too many dead
  -- versions.
  CREATE TABLE recipients (
    instance_id text COLLATE "C" PRIMARY KEY,
    partition_no smallint NOT NULL
  );
  CREATE FUNCTION keep_recipient() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    IF TG_OP <> 'INSERT' THEN
      DELETE FROM recipients WHERE instance_id = OLD.instance_id;
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.is_active = 1 AND NEW.webhook_enabled = 1 THEN
      INSERT INTO recipients (instance_id, partition_no) VALUES (NEW.instance_id, NEW.partition_no);
    END IF;
    RETURN NULL;
  END $$;
  CREATE TRIGGER instance_came_or_went AFTER INSERT OR DELETE ON instances FOR EACH ROW EXECUTE FUNCTION keep_recipient();
  CREATE TRIGGER instance_switched AFTER UPDATE OF is_active, webhook_enabled ON instances FOR EACH ROW
    WHEN ((OLD.is_active, OLD.webhook_enabled) IS DISTINCT FROM (NEW.is_active, NEW.webhook_enabled)) EXECUTE FUNCTION keep_recipient();

  -- A trigger counts instances: to count a hundred thousand rows for each new one would take too long.
  CREATE TABLE instance_count (
    only_row smallint PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    instance_count bigint NOT NULL
  ) WITH (fillfactor = 10);
  INSERT INTO instance_count (instance_count) VALUES (0);
  CREATE FUNCTION count_instances() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    UPDATE instance_count SET instance_count = instance_count + CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
    RETURN NULL;
  END $$;
  CREATE TRIGGER instance_added AFTER INSERT ON instances FOR EACH ROW EXECUTE FUNCTION count_instances();
  CREATE TRIGGER instance_removed AFTER DELETE ON instances FOR EACH ROW EXECUTE FUNCTION count_instances();

  -- A join, a leave and the removal of the newest message write the row; a new message only locks it. While some session
  -- is idle in a transaction, PostgreSQL removes no dead versions of a row, so a row that every batch writes is found ever
  -- more slowly. So the last seq of a meeting is that of its newest message. If it is above last_seq, the accepted_at of
  -- that message is the last activity.
  CREATE TABLE meetings (
    meeting_id text COLLATE "C" PRIMARY KEY,
    last_seq bigint NOT NULL,
    created_at bigint NOT NULL,
    last_activity_at bigint NOT NULL
  ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

  CREATE TABLE memberships (
    meeting_id text COLLATE "C" NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    agent_ids text NOT NULL,
    joined_at bigint NOT NULL,
    left_at bigint,
    PRIMARY KEY (meeting_id, instance_id)
  );
  CREATE INDEX memberships_of_instance ON memberships (instance_id);

  -- A run: all that a node accepts after its start, or after it gave up on a batch. Accepting locks the row.
  CREATE TABLE runs (
    run_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at bigint NOT NULL
  );
  -- What was stored of the last batch of a run. A node that lost the connection before the answer asks here: stored has a
  -- 1 or a 0 for each message. Each batch has a row of its own, because a row that every batch writes gets slow (see
  -- meetings). Old rows are removed from time to time.
  CREATE TABLE batches (
    run_no bigint NOT NULL,
    batch_no bigint NOT NULL,
    first_no bigint NOT NULL,
    last_no bigint NOT NULL,
    stored text NOT NULL,
    PRIMARY KEY (run_no, batch_no)
  );

  -- message is the sender's own JSON text. timestamp is the JSON text of a string, or empty: the string may contain a
  -- NUL, which text cannot store. message_id is made of message_no. The next numbers are those of its deliveries.
  CREATE TABLE messages (
    message_no bigint PRIMARY KEY,
    meeting_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    accepted_at bigint NOT NULL,
    deliveries_queued bigint NOT NULL,
    target_agents text,
    timestamp text NOT NULL,
    message text NOT NULL,
    UNIQUE (meeting_id, seq)
  ) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);

  -- Every delivery is written to every index here, so there are few. A settlement writes a new version of the row. Each
  -- page has free room for it, so no other page is read. The old versions are dead, so vacuum runs early and often.
  CREATE TABLE deliveries (
    delivery_no bigint PRIMARY KEY,
    message_no bigint NOT NULL,
    meeting_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    partition_no smallint NOT NULL,
    target_agents text NOT NULL,
    state text NOT NULL DEFAULT 'pending',
    reason text,
    aside smallint NOT NULL DEFAULT 0,
    attempt_count bigint NOT NULL DEFAULT 0,
    answered_badly bigint NOT NULL DEFAULT 0,
    attempts text NOT NULL DEFAULT '[]',
    next_attempt_at bigint,
    expires_at bigint NOT NULL,
    created_at bigint NOT NULL,
    settled_at bigint
  ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
  CREATE INDEX deliveries_in_lane ON deliveries (partition_no, instance_id, meeting_id, seq) WHERE state = 'pending' AND aside = 0;
  CREATE INDEX deliveries_aside ON deliveries (partition_no, instance_id, next_attempt_at) WHERE state = 'pending' AND aside = 1;
  CREATE INDEX deliveries_failed ON deliveries (instance_id, settled_at) WHERE state = 'failed';
  CREATE INDEX deliveries_of_instance ON deliveries (instance_id, delivery_no);

  CREATE TABLE idempotency_keys (
    meeting_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    fingerprint text NOT NULL,
    message_no bigint NOT NULL,
    seq bigint NOT NULL,
    accepted_at bigint NOT NULL,
    deliveries_queued bigint NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (meeting_id, key)
  ) WITH (autovacuum_vacuum_scale_factor = 0.05);
  CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

  CREATE TABLE encryption_keys (
    key_id text COLLATE "C" PRIMARY KEY,
    check_value text NOT NULL,
    created_at bigint NOT NULL
  );

  -- digest is the SHA-256 of the token; the token is not stored. change_no rises with every change of any key.
  CREATE TABLE api_keys (
    key_id text COLLATE "C" PRIMARY KEY,
    name text,
    scopes text NOT NULL,
    meeting_ids text,
    instance_id text COLLATE "C",
    digest text NOT NULL,
    previous_digest text,
    previous_until bigint,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    last_used_at bigint,
    change_no bigint NOT NULL
  );

  -- digest is the SHA-256 of the token in the cookie; the token is not stored.
  CREATE TABLE sessions (
    digest text COLLATE "C" PRIMARY KEY,
    key_id text COLLATE "C",
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
  );
  CREATE INDEX sessions_of_key ON sessions (key_id, created_at);

  -- details is JSON. hash is the SHA-256 of prev_hash and the rest of the row, as src/domain/audit.ts describes.
  CREATE TABLE audit_log (
    seq bigint PRIMARY KEY,
    at bigint NOT NULL,
    principal text COLLATE "C" NOT NULL,
    address text,
    action text NOT NULL,
    target_kind text NOT NULL,
    target_id text COLLATE "C",
    outcome text NOT NULL,
    code text,
    details text NOT NULL,
    prev_hash text NOT NULL,
    hash text NOT NULL
  );
  CREATE INDEX audit_log_of_principal ON audit_log (principal, seq);
  CREATE INDEX audit_log_of_target ON audit_log (target_kind, target_id, seq);
  CREATE FUNCTION refuse_change_of_audit_log() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
  END $$;
  CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_change_of_audit_log();
  CREATE TRIGGER audit_log_is_not_emptied BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit_log();
  -- The last entry of the audit log. A node that writes an entry locks this row, so the entries of all nodes form one
  -- chain.
  CREATE TABLE audit_head (
    only_row smallint PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    seq bigint NOT NULL,
    hash text NOT NULL
  ) WITH (fillfactor = 10);

  -- A node holds its partitions while its lease lasts, on the clock of this database.
  CREATE TABLE nodes (
    node_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id text COLLATE "C" NOT NULL UNIQUE,
    version text NOT NULL,
    address text NOT NULL,
    started_at bigint NOT NULL,
    seen_at bigint NOT NULL,
    lease_until bigint NOT NULL,
    stopping smallint NOT NULL
  ) WITH (fillfactor = 20);

  -- The epoch rises whenever a node takes the partition. A settlement with an earlier epoch is not written.
  CREATE TABLE partitions (
    partition_no smallint PRIMARY KEY,
    node_no bigint,
    epoch bigint NOT NULL DEFAULT 0
  ) WITH (fillfactor = 20);
  INSERT INTO partitions (partition_no) SELECT generate_series(0, 63);
  ${TAKE_NUMBERS}
  ${ACCEPT_MESSAGES}
  ${SETTLE_DELIVERIES}
  ${RENEW_LEASE}
  ${TAKE_PARTITIONS}
  `;
