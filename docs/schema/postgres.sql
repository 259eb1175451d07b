-- What the migrations make. Written by `npm run generate`; `test/store/schema.test.ts` holds it to them.

CREATE TABLE api_keys (
  key_id text COLLATE "C" NOT NULL,
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
  change_no bigint NOT NULL,
  earlier_tokens text,
  PRIMARY KEY (key_id)
);

CREATE INDEX api_keys_by_age ON api_keys USING btree (created_at, key_id);
CREATE INDEX api_keys_by_change ON api_keys USING btree (change_no);
CREATE INDEX api_keys_of_admins ON api_keys USING btree (key_id) WHERE ((revoked_at IS NULL) AND (expires_at IS NULL) AND (scopes ~~ '%"admin"%'::text));

CREATE TABLE audit_head (
  only_row smallint NOT NULL DEFAULT 1,
  seq bigint NOT NULL,
  hash text NOT NULL,
  PRIMARY KEY (only_row),
  CHECK ((only_row = 1))
) WITH (fillfactor=10);

CREATE TABLE audit_log (
  seq bigint NOT NULL,
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
  hash text NOT NULL,
  PRIMARY KEY (seq)
);

CREATE INDEX audit_log_of_principal ON audit_log USING btree (principal, seq);
CREATE INDEX audit_log_of_target ON audit_log USING btree (target_kind, target_id, seq);
CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE ON audit_log FOR EACH ROW EXECUTE FUNCTION refuse_change_of_audit_log();
CREATE TRIGGER audit_log_is_not_emptied BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit_log();
CREATE TRIGGER audit_log_is_not_removed BEFORE DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION refuse_removal_from_audit_log();

CREATE TABLE batches (
  run_no bigint NOT NULL,
  batch_no bigint NOT NULL,
  first_no bigint NOT NULL,
  last_no bigint NOT NULL,
  stored text NOT NULL,
  PRIMARY KEY (run_no, batch_no)
);

CREATE TABLE deliveries (
  delivery_no bigint NOT NULL,
  message_no bigint NOT NULL,
  meeting_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  instance_id text COLLATE "C" NOT NULL,
  partition_no smallint NOT NULL,
  target_agents text NOT NULL,
  state text NOT NULL DEFAULT 'pending'::text,
  reason text,
  aside smallint NOT NULL DEFAULT 0,
  attempt_count bigint NOT NULL DEFAULT 0,
  answered_badly bigint NOT NULL DEFAULT 0,
  attempts text NOT NULL DEFAULT '[]'::text,
  next_attempt_at bigint,
  expires_at bigint NOT NULL,
  created_at bigint NOT NULL,
  settled_at bigint,
  noted smallint NOT NULL DEFAULT 0,
  failed_at bigint,
  PRIMARY KEY (delivery_no),
  CHECK (
CASE
    WHEN (state = 'pending'::text) THEN ((noted = 1) OR ((noted = 0) AND (aside = 0)))
    ELSE (noted = 0)
END) NOT VALID
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, autovacuum_analyze_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_vacuum_cost_delay=1, fillfactor=40);

CREATE INDEX deliveries_ended_badly ON deliveries USING btree (instance_id, failed_at) WHERE (failed_at IS NOT NULL);
CREATE INDEX deliveries_noted_aside ON deliveries USING btree (partition_no, instance_id, next_attempt_at) WHERE ((noted = 1) AND (aside = 1));
CREATE INDEX deliveries_noted_in_lane ON deliveries USING btree (partition_no, instance_id, meeting_id, seq) WHERE ((noted = 1) AND (aside = 0));
CREATE INDEX deliveries_noted_in_meeting ON deliveries USING btree (partition_no, instance_id, meeting_id) WHERE ((noted = 1) AND (aside = 1));
CREATE INDEX deliveries_of_instance ON deliveries USING btree (instance_id, delivery_no);

CREATE TABLE encryption_keys (
  key_id text COLLATE "C" NOT NULL,
  check_value text NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (key_id)
);

CREATE TABLE idempotency_keys (
  meeting_id text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  fingerprint text NOT NULL,
  message_no bigint NOT NULL,
  seq bigint NOT NULL,
  accepted_at bigint NOT NULL,
  deliveries_queued bigint NOT NULL,
  created_at bigint NOT NULL,
  sender text COLLATE "C",
  PRIMARY KEY (meeting_id, key)
) WITH (autovacuum_vacuum_scale_factor=0.05);

CREATE INDEX idempotency_keys_by_age ON idempotency_keys USING btree (created_at);

CREATE TABLE instance_agents (
  agent_id text COLLATE "C" NOT NULL,
  instance_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (agent_id, instance_id)
);

CREATE TABLE instance_count (
  only_row smallint NOT NULL DEFAULT 1,
  instance_count bigint NOT NULL,
  PRIMARY KEY (only_row),
  CHECK ((only_row = 1))
) WITH (fillfactor=10);

CREATE TABLE instances (
  instance_id text COLLATE "C" NOT NULL,
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
  first_no bigint NOT NULL DEFAULT 0,
  transport text NOT NULL DEFAULT 'webhook'::text,
  ack_timeout_s integer NOT NULL DEFAULT 30,
  connected_since bigint,
  connected_address text,
  connected_client text,
  connected_epoch bigint,
  replies smallint NOT NULL DEFAULT 0,
  timeout_s integer NOT NULL DEFAULT 5,
  runtime text,
  has_rules smallint NOT NULL DEFAULT 0,
  health_since bigint,
  lease_until bigint,
  earlier_secrets text,
  PRIMARY KEY (instance_id),
  CHECK ((json_typeof((agent_ids)::json) = 'array'::text)) NOT VALID
) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.05);

CREATE INDEX instances_of_owner ON instances USING btree (owner_key_id) WHERE (owner_key_id IS NOT NULL);
CREATE INDEX instances_with_lease ON instances USING btree (lease_until) WHERE (lease_until IS NOT NULL);
CREATE TRIGGER agents_change AFTER UPDATE OF agent_ids ON instances FOR EACH ROW WHEN ((new.agent_ids <> old.agent_ids)) EXECUTE FUNCTION note_agents();
CREATE TRIGGER agents_come_and_go AFTER INSERT OR DELETE ON instances FOR EACH ROW EXECUTE FUNCTION note_agents();
CREATE TRIGGER instance_added AFTER INSERT ON instances FOR EACH ROW EXECUTE FUNCTION count_instances();
CREATE TRIGGER instance_came_or_went AFTER INSERT OR DELETE ON instances FOR EACH ROW EXECUTE FUNCTION keep_recipient();
CREATE TRIGGER instance_removed AFTER DELETE ON instances FOR EACH ROW EXECUTE FUNCTION count_instances();
CREATE TRIGGER instance_switched AFTER UPDATE OF is_active, webhook_enabled ON instances FOR EACH ROW WHEN (((old.is_active IS DISTINCT FROM new.is_active) OR (old.webhook_enabled IS DISTINCT FROM new.webhook_enabled))) EXECUTE FUNCTION keep_recipient();

CREATE TABLE invites (
  invite_id text COLLATE "C" NOT NULL,
  digest text COLLATE "C" NOT NULL,
  created_by text COLLATE "C",
  instance_id text COLLATE "C" NOT NULL,
  meeting_ids text NOT NULL,
  agent_ids text NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  redeemed_at bigint,
  key_id text COLLATE "C",
  revoked_at bigint,
  token_digest text COLLATE "C",
  UNIQUE (digest),
  PRIMARY KEY (invite_id)
);

CREATE INDEX invites_by_age ON invites USING btree (created_at, invite_id);
CREATE INDEX invites_by_end ON invites USING btree (expires_at);

CREATE TABLE meeting_settings (
  meeting_id text COLLATE "C" NOT NULL,
  paused smallint NOT NULL,
  hop_limit bigint,
  pair_limit bigint,
  pair_window_s bigint,
  updated_at bigint NOT NULL,
  PRIMARY KEY (meeting_id)
);

CREATE TABLE meetings (
  meeting_id text COLLATE "C" NOT NULL,
  last_seq bigint NOT NULL,
  created_at bigint NOT NULL,
  last_activity_at bigint NOT NULL,
  PRIMARY KEY (meeting_id)
) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.05);

CREATE TABLE memberships (
  meeting_id text COLLATE "C" NOT NULL,
  instance_id text COLLATE "C" NOT NULL,
  agent_ids text NOT NULL,
  joined_at bigint NOT NULL,
  left_at bigint,
  agent_count integer,
  wake text NOT NULL DEFAULT 'all'::text,
  catch_up text NOT NULL DEFAULT 'all'::text,
  max_age_s bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (meeting_id, instance_id),
  CHECK ((json_typeof((agent_ids)::json) = 'array'::text)) NOT VALID
);

CREATE INDEX memberships_of_instance ON memberships USING btree (instance_id);
CREATE TRIGGER membership_is_counted BEFORE INSERT OR UPDATE OF agent_ids ON memberships FOR EACH ROW EXECUTE FUNCTION count_agents();

CREATE TABLE messages (
  message_no bigint NOT NULL,
  meeting_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  accepted_at bigint NOT NULL,
  deliveries_queued bigint NOT NULL,
  target_agents text,
  timestamp text NOT NULL,
  message text NOT NULL,
  from_agent text COLLATE "C",
  in_reply_to bigint,
  hops bigint NOT NULL DEFAULT 0,
  trace text,
  UNIQUE (meeting_id, seq),
  PRIMARY KEY (message_no)
) WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.05);

CREATE TABLE nodes (
  node_no bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  node_id text COLLATE "C" NOT NULL,
  version text NOT NULL,
  address text NOT NULL,
  started_at bigint NOT NULL,
  seen_at bigint NOT NULL,
  lease_until bigint NOT NULL,
  stopping smallint NOT NULL,
  signs smallint NOT NULL DEFAULT 0,
  address_signature text,
  steps_known integer NOT NULL DEFAULT 0,
  key_ids text,
  UNIQUE (node_id),
  PRIMARY KEY (node_no)
) WITH (fillfactor=20);

CREATE TABLE partitions (
  partition_no smallint NOT NULL,
  node_no bigint,
  epoch bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (partition_no)
) WITH (fillfactor=20);

CREATE TABLE recipients (
  instance_id text COLLATE "C" NOT NULL,
  partition_no smallint NOT NULL,
  PRIMARY KEY (instance_id)
);

CREATE TABLE runs (
  run_no bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  started_at bigint NOT NULL,
  PRIMARY KEY (run_no)
);

CREATE TABLE schema_version (
  version integer NOT NULL,
  steps_known_min integer NOT NULL
);

CREATE TABLE sessions (
  digest text COLLATE "C" NOT NULL,
  key_id text COLLATE "C",
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  csrf_digest text NOT NULL DEFAULT ''::text,
  token_digest text,
  node_id text COLLATE "C",
  PRIMARY KEY (digest)
);

CREATE INDEX sessions_of_key ON sessions USING btree (key_id, created_at);

CREATE TABLE sweeps (
  swept_to bigint NOT NULL,
  PRIMARY KEY (swept_to)
);

CREATE TABLE this_database (
  only_row smallint NOT NULL DEFAULT 1,
  tag text NOT NULL,
  touches bigint NOT NULL DEFAULT 0,
  ran_until bigint,
  upgrade_ends_at timestamp with time zone,
  held_ms bigint NOT NULL DEFAULT 0,
  held_since bigint NOT NULL DEFAULT 0,
  held_up_to text,
  PRIMARY KEY (only_row),
  CHECK ((only_row = 1))
) WITH (fillfactor=10);

CREATE VIEW failed_deliveries AS
 SELECT delivery_no,
    message_no,
    meeting_id,
    seq,
    instance_id,
    target_agents,
    state,
    reason,
    aside,
    attempt_count,
    answered_badly,
    attempts,
    next_attempt_at,
    expires_at,
    created_at,
    settled_at,
    partition_no,
    failed_at
   FROM deliveries
  WHERE (failed_at IS NOT NULL);

CREATE VIEW fresh_deliveries AS
 SELECT delivery_no,
    message_no,
    meeting_id,
    seq,
    instance_id,
    target_agents,
    state,
    reason,
    aside,
    attempt_count,
    answered_badly,
    attempts,
    next_attempt_at,
    expires_at,
    created_at,
    settled_at,
    partition_no
   FROM deliveries
  WHERE ((noted = 0) AND (aside = 0) AND (state = 'pending'::text) AND (delivery_no > ( SELECT
                CASE
                    WHEN (max(sweeps.swept_to) <= ( SELECT numbers.last_value
                       FROM numbers)) THEN max(sweeps.swept_to)
                    ELSE (0)::bigint
                END AS "case"
           FROM sweeps)) AND (delivery_no < '9007199254740991'::bigint));

CREATE VIEW noted_deliveries AS
 SELECT delivery_no,
    message_no,
    meeting_id,
    seq,
    instance_id,
    target_agents,
    state,
    reason,
    aside,
    attempt_count,
    answered_badly,
    attempts,
    next_attempt_at,
    expires_at,
    created_at,
    settled_at,
    partition_no
   FROM deliveries
  WHERE (noted = 1);

CREATE VIEW pending_deliveries AS
 SELECT noted_deliveries.delivery_no,
    noted_deliveries.message_no,
    noted_deliveries.meeting_id,
    noted_deliveries.seq,
    noted_deliveries.instance_id,
    noted_deliveries.target_agents,
    noted_deliveries.state,
    noted_deliveries.reason,
    noted_deliveries.aside,
    noted_deliveries.attempt_count,
    noted_deliveries.answered_badly,
    noted_deliveries.attempts,
    noted_deliveries.next_attempt_at,
    noted_deliveries.expires_at,
    noted_deliveries.created_at,
    noted_deliveries.settled_at,
    noted_deliveries.partition_no
   FROM noted_deliveries
  WHERE (noted_deliveries.aside = 0)
UNION ALL
 SELECT fresh_deliveries.delivery_no,
    fresh_deliveries.message_no,
    fresh_deliveries.meeting_id,
    fresh_deliveries.seq,
    fresh_deliveries.instance_id,
    fresh_deliveries.target_agents,
    fresh_deliveries.state,
    fresh_deliveries.reason,
    fresh_deliveries.aside,
    fresh_deliveries.attempt_count,
    fresh_deliveries.answered_badly,
    fresh_deliveries.attempts,
    fresh_deliveries.next_attempt_at,
    fresh_deliveries.expires_at,
    fresh_deliveries.created_at,
    fresh_deliveries.settled_at,
    fresh_deliveries.partition_no
   FROM fresh_deliveries
UNION ALL
 SELECT noted_deliveries.delivery_no,
    noted_deliveries.message_no,
    noted_deliveries.meeting_id,
    noted_deliveries.seq,
    noted_deliveries.instance_id,
    noted_deliveries.target_agents,
    noted_deliveries.state,
    noted_deliveries.reason,
    noted_deliveries.aside,
    noted_deliveries.attempt_count,
    noted_deliveries.answered_badly,
    noted_deliveries.attempts,
    noted_deliveries.next_attempt_at,
    noted_deliveries.expires_at,
    noted_deliveries.created_at,
    noted_deliveries.settled_at,
    noted_deliveries.partition_no
   FROM noted_deliveries
  WHERE (noted_deliveries.aside = 1);

CREATE SEQUENCE numbers;

CREATE OR REPLACE FUNCTION accept_messages(my_run_no bigint, my_batch_no bigint, meeting_ids text[], created_ats bigint[], counts bigint[], hints bigint[], of_meetings integer[], wall_ats bigint[], expire_ats bigint[], targets text[], timestamps text[], texts text[], has_keys boolean, keys text[], fingerprints text[], teller text, my_node_id text)
 RETURNS TABLE(places text, message_nos text, seqs text, queued_counts text, accepted_ats text, instance_ids text, agent_lists text, former_fingerprints text)
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    batch batches%ROWTYPE;
    is_new boolean[];
    new_counts bigint[] := counts;
    last_seqs bigint[];
    former_seqs bigint[];
  BEGIN
    -- A batch that is sent again waits here until the first try has ended.
    PERFORM 1 FROM runs WHERE run_no = my_run_no FOR UPDATE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the run % is not known', my_run_no USING ERRCODE = 'CV001';
    END IF;
    SELECT * INTO batch FROM batches WHERE run_no = my_run_no ORDER BY batch_no DESC LIMIT 1;
    IF batch.batch_no > my_batch_no THEN
      RETURN;
    END IF;
    IF batch.batch_no = my_batch_no THEN
      RETURN QUERY
        WITH stored AS MATERIALIZED (
          SELECT nth.place, m.*
          FROM (SELECT flag.place, row_number() OVER (ORDER BY flag.place) AS nth
                FROM unnest(string_to_array(batch.stored, NULL)) WITH ORDINALITY AS flag(stored, place) WHERE flag.stored = '1') nth
            JOIN (SELECT *, row_number() OVER (ORDER BY message_no) AS nth
                  FROM messages WHERE message_no BETWEEN batch.first_no AND batch.last_no) m USING (nth)
        )
        SELECT json_agg(s.place ORDER BY s.place)::text, json_agg(s.message_no ORDER BY s.place)::text, json_agg(s.seq ORDER BY s.place)::text,
          json_agg(s.deliveries_queued ORDER BY s.place)::text, json_agg(s.accepted_at ORDER BY s.place)::text,
          (SELECT json_agg(d.instance_id ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          (SELECT json_agg(d.target_agents ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          NULL::text
        FROM stored s HAVING count(*) > 0;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text
        FROM unnest(of_meetings, keys, string_to_array(batch.stored, NULL)) WITH ORDINALITY AS i(of_meeting, key, stored, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key = i.key OFFSET 0) k
        WHERE i.stored = '0' HAVING count(*) > 0;
      RETURN;
    END IF;

    PERFORM pg_advisory_xact_lock_shared(1668247158, 3);

    -- A meeting with a hint already has a row, unless the database has lost it.
    IF array_position(hints, NULL) IS NOT NULL THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE w.hint IS NULL ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
    END IF;
    
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    IF cardinality(last_seqs) IS DISTINCT FROM cardinality(meeting_ids) THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE true ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
      
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    END IF;

    IF has_keys THEN
      SELECT array_agg(k.key IS NULL ORDER BY i.place) INTO is_new
        FROM unnest(of_meetings, wall_ats, keys) WITH ORDINALITY AS i(of_meeting, wall_at, key, place)
          LEFT JOIN LATERAL (SELECT k.key FROM idempotency_keys k
            WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key = i.key AND k.created_at > i.wall_at - 86400000 OFFSET 0) k ON true;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text
        FROM unnest(of_meetings, keys, is_new) WITH ORDINALITY AS i(of_meeting, key, is_new, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key = i.key OFFSET 0) k
        WHERE NOT i.is_new HAVING count(*) > 0;
      SELECT array_agg(coalesce(counted.n, 0) ORDER BY w.place) INTO new_counts
        FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
          LEFT JOIN (SELECT i.of_meeting, count(*) AS n FROM unnest(of_meetings, is_new) AS i(of_meeting, is_new) WHERE i.is_new GROUP BY i.of_meeting) counted
            ON counted.of_meeting = w.place;
      IF NOT (true = ANY (is_new)) THEN
        RETURN;
      END IF;
    END IF;

    -- With a lower bound the search looks at few entries of the index, and not at all entries of its last page.
    SELECT array_agg(greatest(w.last_seq, coalesce(
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id AND m.seq >= w.hint ORDER BY m.seq DESC LIMIT 1),
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id ORDER BY m.seq DESC LIMIT 1))) ORDER BY w.place) INTO former_seqs
      FROM unnest(meeting_ids, hints, last_seqs) WITH ORDINALITY AS w(meeting_id, hint, last_seq, place);

    -- Old batches slow down nothing until they are removed here. The look-up of the last batch begins at the end of the
    -- index, so it finds that batch first, however many dead rows of others cannot be removed yet.
    IF my_batch_no % 100 = 0 THEN
      DELETE FROM batches WHERE run_no = my_run_no AND batch_no < my_batch_no;
    END IF;

    RETURN QUERY
      WITH meeting AS MATERIALIZED (
        SELECT w.* FROM unnest(meeting_ids, new_counts, former_seqs) WITH ORDINALITY AS w(meeting_id, n, former_seq, of_meeting)
        WHERE w.n > 0
      ), item AS MATERIALIZED (
        -- An item has no texts: the INSERTs take them from their arrays by place, so that no join and no sort carries
        -- them.
        SELECT i.place, i.of_meeting, row_number() OVER (ORDER BY i.place) AS nth, row_number() OVER (PARTITION BY i.of_meeting ORDER BY i.place) AS rank
        FROM unnest(of_meetings) WITH ORDINALITY AS i(of_meeting, place)
        WHERE is_new IS NULL OR is_new[i.place]
      ), membership AS MATERIALIZED (
        SELECT s.meeting_id, s.instance_id, s.agent_ids FROM memberships s WHERE s.meeting_id = ANY (meeting_ids) AND s.left_at IS NULL
      ), member AS MATERIALIZED (
        SELECT w.of_meeting, s.instance_id, r.partition_no, s.agent_ids
        FROM membership s JOIN meeting w ON w.meeting_id = s.meeting_id JOIN recipients r ON r.instance_id = s.instance_id
        WHERE r.instance_id = ANY (ARRAY(SELECT DISTINCT s.instance_id FROM membership s))
      ), recipient AS MATERIALIZED (
        SELECT i.nth, r.instance_id, r.partition_no, notified.agents, row_number() OVER (ORDER BY i.nth, r.instance_id) AS number
        FROM item i JOIN member r ON r.of_meeting = i.of_meeting
          -- OFFSET 0 keeps the list of agents from being computed twice: for its value, and for the condition below.
          CROSS JOIN LATERAL (SELECT CASE WHEN targets[i.place] IS NULL OR targets[i.place] = '[]' THEN r.agent_ids ELSE (
  SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
  FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
  WHERE agent.value::text IN (SELECT target.value::text FROM json_array_elements(targets[i.place]::json) AS target(value))) END AS agents OFFSET 0) notified
        WHERE notified.agents <> '[]'
      ), sent AS MATERIALIZED (
        SELECT r.nth, count(*) AS n FROM recipient r GROUP BY r.nth
      ), taken AS MATERIALIZED (
        SELECT wanted, take_numbers(wanted) AS first_no FROM (SELECT (SELECT count(*) FROM item) + (SELECT count(*) FROM recipient) AS wanted) counted
      ), numbered AS MATERIALIZED (
        SELECT i.place, i.nth, w.meeting_id, w.former_seq + i.rank AS seq, coalesce(sent.n, 0) AS deliveries_queued,
          taken.first_no + i.nth - 1
            + coalesce(sum(sent.n) OVER (ORDER BY i.nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS message_no
        FROM taken CROSS JOIN item i JOIN meeting w ON w.of_meeting = i.of_meeting LEFT JOIN sent ON sent.nth = i.nth
      ), stored_messages AS (
        INSERT INTO messages (message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, timestamp, message)
        SELECT n.message_no, n.meeting_id, n.seq, wall_ats[n.place], n.deliveries_queued, targets[n.place], timestamps[n.place], texts[n.place] FROM numbered n
      ), stored_deliveries AS (
        INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at)
        SELECT taken.first_no + r.nth - 1 + r.number, n.message_no, n.meeting_id, n.seq, r.instance_id, r.partition_no, r.agents, expire_ats[n.place], wall_ats[n.place]
        FROM taken CROSS JOIN recipient r JOIN numbered n ON n.nth = r.nth ORDER BY r.number
      ), stored_keys AS (
        INSERT INTO idempotency_keys (meeting_id, key, fingerprint, message_no, seq, accepted_at, deliveries_queued, created_at)
        SELECT n.meeting_id, keys[n.place], fingerprints[n.place], n.message_no, n.seq, wall_ats[n.place], n.deliveries_queued, wall_ats[n.place]
        FROM numbered n WHERE has_keys AND keys[n.place] IS NOT NULL
        ON CONFLICT (meeting_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, message_no = excluded.message_no, seq = excluded.seq,
          accepted_at = excluded.accepted_at, deliveries_queued = excluded.deliveries_queued, created_at = excluded.created_at
      ), noted AS (
        INSERT INTO batches (run_no, batch_no, first_no, last_no, stored)
        SELECT my_run_no, my_batch_no, taken.first_no, taken.first_no + taken.wanted - 1,
          CASE WHEN is_new IS NULL THEN repeat('1', cardinality(of_meetings))
            ELSE (SELECT string_agg(CASE WHEN f.is_new THEN '1' ELSE '0' END, '' ORDER BY f.place) FROM unnest(is_new) WITH ORDINALITY AS f(is_new, place)) END
        FROM taken
      )
      SELECT json_agg(n.place ORDER BY n.nth)::text, json_agg(n.message_no ORDER BY n.nth)::text, json_agg(n.seq ORDER BY n.nth)::text,
        json_agg(n.deliveries_queued ORDER BY n.nth)::text, json_agg(wall_ats[n.place] ORDER BY n.nth)::text,
        (SELECT json_agg(r.instance_id ORDER BY r.number)::text FROM recipient r), (SELECT json_agg(r.agents ORDER BY r.number)::text FROM recipient r),
        NULL::text
      FROM numbered n;

    IF EXISTS (SELECT 1 FROM nodes n WHERE n.node_id IS DISTINCT FROM my_node_id) THEN
      SELECT * INTO batch FROM batches WHERE run_no = my_run_no AND batch_no = my_batch_no;
      PERFORM pg_notify('convoke', json_build_object('from', teller, 'kind', 'stored', 'first_no', batch.first_no, 'last_no', batch.last_no)::text);
    END IF;
  END $function$;

CREATE OR REPLACE FUNCTION accept_messages_2(my_run_no bigint, my_batch_no bigint, meeting_ids text[], created_ats bigint[], counts bigint[], hints bigint[], of_meetings integer[], wall_ats bigint[], expire_ats bigint[], targets text[], timestamps text[], texts text[], has_keys boolean, keys text[], senders text[], fingerprints text[], teller text, my_node_id text)
 RETURNS TABLE(places text, message_nos text, seqs text, queued_counts text, accepted_ats text, instance_ids text, agent_lists text, former_fingerprints text)
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    batch batches%ROWTYPE;
    is_new boolean[];
    new_counts bigint[] := counts;
    last_seqs bigint[];
    former_seqs bigint[];
    key_names text[];
  BEGIN
    -- A batch that is sent again waits here until the first try has ended.
    PERFORM 1 FROM runs WHERE run_no = my_run_no FOR UPDATE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the run % is not known', my_run_no USING ERRCODE = 'CV001';
    END IF;
    SELECT * INTO batch FROM batches WHERE run_no = my_run_no ORDER BY batch_no DESC LIMIT 1;
    IF batch.batch_no > my_batch_no THEN
      RETURN;
    END IF;
    IF batch.batch_no = my_batch_no THEN
      RETURN QUERY
        WITH stored AS MATERIALIZED (
          SELECT nth.place, m.*
          FROM (SELECT flag.place, row_number() OVER (ORDER BY flag.place) AS nth
                FROM unnest(string_to_array(batch.stored, NULL)) WITH ORDINALITY AS flag(stored, place) WHERE flag.stored = '1') nth
            JOIN (SELECT *, row_number() OVER (ORDER BY message_no) AS nth
                  FROM messages WHERE message_no BETWEEN batch.first_no AND batch.last_no) m USING (nth)
        )
        SELECT json_agg(s.place ORDER BY s.place)::text, json_agg(s.message_no ORDER BY s.place)::text, json_agg(s.seq ORDER BY s.place)::text,
          json_agg(s.deliveries_queued ORDER BY s.place)::text, json_agg(s.accepted_at ORDER BY s.place)::text,
          (SELECT json_agg(d.instance_id ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          (SELECT json_agg(d.target_agents ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          NULL::text
        FROM stored s HAVING count(*) > 0;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text
        FROM unnest(of_meetings, keys, senders, string_to_array(batch.stored, NULL)) WITH ORDINALITY AS i(of_meeting, key, sender, stored, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) ORDER BY k.created_at DESC LIMIT 1) k
        WHERE i.stored = '0' HAVING count(*) > 0;
      RETURN;
    END IF;

    PERFORM pg_advisory_xact_lock_shared(1668247158, 3);

    -- A meeting with a hint already has a row, unless the database has lost it.
    IF array_position(hints, NULL) IS NOT NULL THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE w.hint IS NULL ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
    END IF;
    
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    IF cardinality(last_seqs) IS DISTINCT FROM cardinality(meeting_ids) THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE true ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
      
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    END IF;

    IF has_keys THEN
      SELECT array_agg(k.key IS NULL ORDER BY i.place) INTO is_new
        FROM unnest(of_meetings, wall_ats, keys, senders) WITH ORDINALITY AS i(of_meeting, wall_at, key, sender, place)
          LEFT JOIN LATERAL (SELECT k.key FROM idempotency_keys k
            WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) AND k.created_at > i.wall_at - 86400000 LIMIT 1) k ON true;
      SELECT array_agg(CASE WHEN i.key IS NOT NULL AND (
            EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender <> i.sender OR k.key <> i.key) OFFSET 0)
            OR i.rank > 1 AND NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key = i.key AND k.sender = i.sender OFFSET 0))
          THEN i.sender || E'\n' || i.key ELSE i.key END ORDER BY i.place) INTO key_names
        FROM (SELECT u.*, row_number() OVER (PARTITION BY u.of_meeting, u.key, u.is_new ORDER BY u.place) AS rank
          FROM unnest(of_meetings, senders, keys, is_new) WITH ORDINALITY AS u(of_meeting, sender, key, is_new, place)) i;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text
        FROM unnest(of_meetings, keys, senders, is_new) WITH ORDINALITY AS i(of_meeting, key, sender, is_new, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) ORDER BY k.created_at DESC LIMIT 1) k
        WHERE NOT i.is_new HAVING count(*) > 0;
      SELECT array_agg(coalesce(counted.n, 0) ORDER BY w.place) INTO new_counts
        FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
          LEFT JOIN (SELECT i.of_meeting, count(*) AS n FROM unnest(of_meetings, is_new) AS i(of_meeting, is_new) WHERE i.is_new GROUP BY i.of_meeting) counted
            ON counted.of_meeting = w.place;
      IF NOT (true = ANY (is_new)) THEN
        RETURN;
      END IF;
    END IF;

    -- With a lower bound the search looks at few entries of the index, and not at all entries of its last page.
    SELECT array_agg(greatest(w.last_seq, coalesce(
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id AND m.seq >= w.hint ORDER BY m.seq DESC LIMIT 1),
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id ORDER BY m.seq DESC LIMIT 1))) ORDER BY w.place) INTO former_seqs
      FROM unnest(meeting_ids, hints, last_seqs) WITH ORDINALITY AS w(meeting_id, hint, last_seq, place);

    -- Old batches slow down nothing until they are removed here. The look-up of the last batch begins at the end of the
    -- index, so it finds that batch first, however many dead rows of others cannot be removed yet.
    IF my_batch_no % 100 = 0 THEN
      DELETE FROM batches WHERE run_no = my_run_no AND batch_no < my_batch_no;
    END IF;

    RETURN QUERY
      WITH meeting AS MATERIALIZED (
        SELECT w.* FROM unnest(meeting_ids, new_counts, former_seqs) WITH ORDINALITY AS w(meeting_id, n, former_seq, of_meeting)
        WHERE w.n > 0
      ), item AS MATERIALIZED (
        -- An item has no texts: the INSERTs take them from their arrays by place, so that no join and no sort carries
        -- them.
        SELECT i.place, i.of_meeting, row_number() OVER (ORDER BY i.place) AS nth, row_number() OVER (PARTITION BY i.of_meeting ORDER BY i.place) AS rank
        FROM unnest(of_meetings) WITH ORDINALITY AS i(of_meeting, place)
        WHERE is_new IS NULL OR is_new[i.place]
      ), membership AS MATERIALIZED (
        SELECT s.meeting_id, s.instance_id, s.agent_ids FROM memberships s WHERE s.meeting_id = ANY (meeting_ids) AND s.left_at IS NULL
      ), member AS MATERIALIZED (
        SELECT w.of_meeting, s.instance_id, r.partition_no, s.agent_ids
        FROM membership s JOIN meeting w ON w.meeting_id = s.meeting_id JOIN recipients r ON r.instance_id = s.instance_id
        WHERE r.instance_id = ANY (ARRAY(SELECT DISTINCT s.instance_id FROM membership s))
      ), recipient AS MATERIALIZED (
        SELECT i.nth, r.instance_id, r.partition_no, notified.agents, row_number() OVER (ORDER BY i.nth, r.instance_id) AS number
        FROM item i JOIN member r ON r.of_meeting = i.of_meeting
          -- OFFSET 0 keeps the list of agents from being computed twice: for its value, and for the condition below.
          CROSS JOIN LATERAL (SELECT CASE WHEN targets[i.place] IS NULL OR targets[i.place] = '[]' THEN r.agent_ids ELSE (
  SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
  FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
  WHERE agent.value::text IN (SELECT target.value::text FROM json_array_elements(targets[i.place]::json) AS target(value))) END AS agents OFFSET 0) notified
        WHERE notified.agents <> '[]'
      ), sent AS MATERIALIZED (
        SELECT r.nth, count(*) AS n FROM recipient r GROUP BY r.nth
      ), taken AS MATERIALIZED (
        SELECT wanted, take_numbers(wanted) AS first_no FROM (SELECT (SELECT count(*) FROM item) + (SELECT count(*) FROM recipient) AS wanted) counted
      ), numbered AS MATERIALIZED (
        SELECT i.place, i.nth, w.meeting_id, w.former_seq + i.rank AS seq, coalesce(sent.n, 0) AS deliveries_queued,
          taken.first_no + i.nth - 1
            + coalesce(sum(sent.n) OVER (ORDER BY i.nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS message_no
        FROM taken CROSS JOIN item i JOIN meeting w ON w.of_meeting = i.of_meeting LEFT JOIN sent ON sent.nth = i.nth
      ), stored_messages AS (
        INSERT INTO messages (message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, timestamp, message)
        SELECT n.message_no, n.meeting_id, n.seq, wall_ats[n.place], n.deliveries_queued, targets[n.place], timestamps[n.place], texts[n.place] FROM numbered n
      ), stored_deliveries AS (
        INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at)
        SELECT taken.first_no + r.nth - 1 + r.number, n.message_no, n.meeting_id, n.seq, r.instance_id, r.partition_no, r.agents, expire_ats[n.place], wall_ats[n.place]
        FROM taken CROSS JOIN recipient r JOIN numbered n ON n.nth = r.nth ORDER BY r.number
      ), stored_keys AS (
        INSERT INTO idempotency_keys (meeting_id, key, fingerprint, message_no, seq, accepted_at, deliveries_queued, created_at, sender)
        SELECT n.meeting_id, key_names[n.place], fingerprints[n.place], n.message_no, n.seq, wall_ats[n.place], n.deliveries_queued, wall_ats[n.place], senders[n.place]
        FROM numbered n WHERE has_keys AND keys[n.place] IS NOT NULL
        ON CONFLICT (meeting_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, message_no = excluded.message_no, seq = excluded.seq,
          accepted_at = excluded.accepted_at, deliveries_queued = excluded.deliveries_queued, created_at = excluded.created_at, sender = excluded.sender
      ), noted AS (
        INSERT INTO batches (run_no, batch_no, first_no, last_no, stored)
        SELECT my_run_no, my_batch_no, taken.first_no, taken.first_no + taken.wanted - 1,
          CASE WHEN is_new IS NULL THEN repeat('1', cardinality(of_meetings))
            ELSE (SELECT string_agg(CASE WHEN f.is_new THEN '1' ELSE '0' END, '' ORDER BY f.place) FROM unnest(is_new) WITH ORDINALITY AS f(is_new, place)) END
        FROM taken
      )
      SELECT json_agg(n.place ORDER BY n.nth)::text, json_agg(n.message_no ORDER BY n.nth)::text, json_agg(n.seq ORDER BY n.nth)::text,
        json_agg(n.deliveries_queued ORDER BY n.nth)::text, json_agg(wall_ats[n.place] ORDER BY n.nth)::text,
        (SELECT json_agg(r.instance_id ORDER BY r.number)::text FROM recipient r), (SELECT json_agg(r.agents ORDER BY r.number)::text FROM recipient r),
        NULL::text
      FROM numbered n;

    IF EXISTS (SELECT 1 FROM nodes n WHERE n.node_id IS DISTINCT FROM my_node_id) THEN
      SELECT * INTO batch FROM batches WHERE run_no = my_run_no AND batch_no = my_batch_no;
      PERFORM pg_notify('convoke', json_build_object('from', teller, 'kind', 'stored', 'first_no', batch.first_no, 'last_no', batch.last_no)::text);
    END IF;
  END $function$;

CREATE OR REPLACE FUNCTION accept_messages_3(my_run_no bigint, my_batch_no bigint, meeting_ids text[], created_ats bigint[], counts bigint[], hints bigint[], of_meetings integer[], wall_ats bigint[], expire_ats bigint[], targets text[], timestamps text[], texts text[], has_said boolean, from_agents text[], answered_nos bigint[], speakers text[], speaker_limits text[], has_keys boolean, keys text[], senders text[], fingerprints text[], teller text, my_node_id text)
 RETURNS TABLE(places text, message_nos text, seqs text, queued_counts text, accepted_ats text, instance_ids text, agent_lists text, former_fingerprints text, hop_counts text)
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    batch batches%ROWTYPE;
    is_new boolean[];
    new_counts bigint[] := counts;
    last_seqs bigint[];
    former_seqs bigint[];
    key_names text[];
    refused text;
    hops bigint[];
  BEGIN
    -- A batch that is sent again waits here until the first try has ended.
    PERFORM 1 FROM runs WHERE run_no = my_run_no FOR UPDATE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the run % is not known', my_run_no USING ERRCODE = 'CV001';
    END IF;
    SELECT * INTO batch FROM batches WHERE run_no = my_run_no ORDER BY batch_no DESC LIMIT 1;
    IF batch.batch_no > my_batch_no THEN
      RETURN;
    END IF;
    IF batch.batch_no = my_batch_no THEN
      RETURN QUERY
        WITH stored AS MATERIALIZED (
          SELECT nth.place, m.*
          FROM (SELECT flag.place, row_number() OVER (ORDER BY flag.place) AS nth
                FROM unnest(string_to_array(batch.stored, NULL)) WITH ORDINALITY AS flag(stored, place) WHERE flag.stored = '1') nth
            JOIN (SELECT *, row_number() OVER (ORDER BY message_no) AS nth
                  FROM messages WHERE message_no BETWEEN batch.first_no AND batch.last_no) m USING (nth)
        )
        SELECT json_agg(s.place ORDER BY s.place)::text, json_agg(s.message_no ORDER BY s.place)::text, json_agg(s.seq ORDER BY s.place)::text,
          json_agg(s.deliveries_queued ORDER BY s.place)::text, json_agg(s.accepted_at ORDER BY s.place)::text,
          (SELECT json_agg(d.instance_id ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          (SELECT json_agg(d.target_agents ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          NULL::text, json_agg(s.hops ORDER BY s.place)::text
        FROM stored s HAVING count(*) > 0;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text, NULL::text
        FROM unnest(of_meetings, keys, senders, string_to_array(batch.stored, NULL)) WITH ORDINALITY AS i(of_meeting, key, sender, stored, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) ORDER BY k.created_at DESC LIMIT 1) k
        WHERE i.stored = '0' HAVING count(*) > 0;
      RETURN;
    END IF;

    PERFORM pg_advisory_xact_lock_shared(1668247158, 3);

    -- A meeting with a hint already has a row, unless the database has lost it.
    IF array_position(hints, NULL) IS NOT NULL THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE w.hint IS NULL ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
    END IF;
    
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    IF cardinality(last_seqs) IS DISTINCT FROM cardinality(meeting_ids) THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE true ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
      
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    END IF;

    IF has_keys THEN
      SELECT array_agg(k.key IS NULL ORDER BY i.place) INTO is_new
        FROM unnest(of_meetings, wall_ats, keys, senders) WITH ORDINALITY AS i(of_meeting, wall_at, key, sender, place)
          LEFT JOIN LATERAL (SELECT k.key FROM idempotency_keys k
            WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) AND k.created_at > i.wall_at - 86400000 LIMIT 1) k ON true;
      SELECT array_agg(CASE WHEN i.key IS NOT NULL AND (
            EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender <> i.sender OR k.key <> i.key) OFFSET 0)
            OR i.rank > 1 AND NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key = i.key AND k.sender = i.sender OFFSET 0))
          THEN i.sender || E'\n' || i.key ELSE i.key END ORDER BY i.place) INTO key_names
        FROM (SELECT u.*, row_number() OVER (PARTITION BY u.of_meeting, u.key, u.is_new ORDER BY u.place) AS rank
          FROM unnest(of_meetings, senders, keys, is_new) WITH ORDINALITY AS u(of_meeting, sender, key, is_new, place)) i;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text, NULL::text
        FROM unnest(of_meetings, keys, senders, is_new) WITH ORDINALITY AS i(of_meeting, key, sender, is_new, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) ORDER BY k.created_at DESC LIMIT 1) k
        WHERE NOT i.is_new HAVING count(*) > 0;
      SELECT array_agg(coalesce(counted.n, 0) ORDER BY w.place) INTO new_counts
        FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
          LEFT JOIN (SELECT i.of_meeting, count(*) AS n FROM unnest(of_meetings, is_new) AS i(of_meeting, is_new) WHERE i.is_new GROUP BY i.of_meeting) counted
            ON counted.of_meeting = w.place;
      IF NOT (true = ANY (is_new)) THEN
        RETURN;
      END IF;
    END IF;

    IF has_said THEN
      SELECT json_agg(json_build_array(j.place, j.field))::text INTO refused FROM (
        SELECT u.place, CASE
          WHEN (u.speaker IS NOT NULL OR u.speaker_limit IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM memberships s JOIN instances o ON o.instance_id = s.instance_id
              WHERE s.meeting_id = meeting_ids[u.of_meeting] AND s.left_at IS NULL
                AND (u.speaker IS NULL OR o.owner_key_id = u.speaker) AND o.instance_id = coalesce(u.speaker_limit, o.instance_id)
                AND u.from_agent IN (SELECT json_array_elements_text(s.agent_ids::json)) OFFSET 0) THEN 'from_agent'
          WHEN u.answered_no IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages m
              WHERE m.message_no = u.answered_no AND m.meeting_id = meeting_ids[u.of_meeting] OFFSET 0) THEN 'in_reply_to' END AS field
        FROM unnest(of_meetings, from_agents, answered_nos, speakers, speaker_limits)
          WITH ORDINALITY AS u(of_meeting, from_agent, answered_no, speaker, speaker_limit, place)
        WHERE is_new IS NULL OR is_new[u.place]) j WHERE j.field IS NOT NULL;
      IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'messages are refused' USING ERRCODE = 'CV003', DETAIL = refused;
      END IF;
    END IF;

    -- With a lower bound the search looks at few entries of the index, and not at all entries of its last page.
    SELECT array_agg(greatest(w.last_seq, coalesce(
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id AND m.seq >= w.hint ORDER BY m.seq DESC LIMIT 1),
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id ORDER BY m.seq DESC LIMIT 1))) ORDER BY w.place) INTO former_seqs
      FROM unnest(meeting_ids, hints, last_seqs) WITH ORDINALITY AS w(meeting_id, hint, last_seq, place);

    IF has_said THEN
      SELECT array_agg(CASE WHEN c.from_agent IS NULL THEN 0 ELSE c.before + c.nth END ORDER BY c.place) INTO hops FROM (
        SELECT k.place, k.from_agent,
          coalesce(max(k.own) OVER (PARTITION BY k.of_meeting, k.chain) - 1, k.newest, 0) AS before,
          count(*) FILTER (WHERE k.counts) OVER (PARTITION BY k.of_meeting, k.chain ORDER BY k.place) AS nth
        FROM (
          SELECT w.*, count(w.own) OVER (PARTITION BY w.of_meeting ORDER BY w.place) AS chain FROM (
            SELECT u.place, u.of_meeting, u.from_agent, u.counts,
              CASE WHEN NOT u.counts THEN NULL WHEN u.from_agent IS NULL THEN 0
                ELSE (SELECT m.hops + 1 FROM messages m WHERE m.message_no = u.answered_no) END AS own,
              (SELECT m.hops FROM messages m WHERE m.meeting_id = meeting_ids[u.of_meeting] AND m.seq = former_seqs[u.of_meeting]
                AND wall_ats[u.place] - m.accepted_at < 600000) AS newest
            FROM (SELECT i.*, is_new IS NULL OR is_new[i.place] AS counts
              FROM unnest(of_meetings, from_agents, answered_nos) WITH ORDINALITY AS i(of_meeting, from_agent, answered_no, place)) u) w) k) c;
    END IF;

    -- Old batches slow down nothing until they are removed here. The look-up of the last batch begins at the end of the
    -- index, so it finds that batch first, however many dead rows of others cannot be removed yet.
    IF my_batch_no % 100 = 0 THEN
      DELETE FROM batches WHERE run_no = my_run_no AND batch_no < my_batch_no;
    END IF;

    RETURN QUERY
      WITH meeting AS MATERIALIZED (
        SELECT w.* FROM unnest(meeting_ids, new_counts, former_seqs) WITH ORDINALITY AS w(meeting_id, n, former_seq, of_meeting)
        WHERE w.n > 0
      ), item AS MATERIALIZED (
        -- An item has no texts: the INSERTs take them from their arrays by place, so that no join and no sort carries
        -- them.
        SELECT i.place, i.of_meeting, row_number() OVER (ORDER BY i.place) AS nth, row_number() OVER (PARTITION BY i.of_meeting ORDER BY i.place) AS rank
        FROM unnest(of_meetings) WITH ORDINALITY AS i(of_meeting, place)
        WHERE is_new IS NULL OR is_new[i.place]
      ), membership AS MATERIALIZED (
        SELECT s.meeting_id, s.instance_id, s.agent_ids FROM memberships s WHERE s.meeting_id = ANY (meeting_ids) AND s.left_at IS NULL
      ), member AS MATERIALIZED (
        SELECT w.of_meeting, s.instance_id, r.partition_no, s.agent_ids
        FROM membership s JOIN meeting w ON w.meeting_id = s.meeting_id JOIN recipients r ON r.instance_id = s.instance_id
        WHERE r.instance_id = ANY (ARRAY(SELECT DISTINCT s.instance_id FROM membership s))
      ), recipient AS MATERIALIZED (
        SELECT i.nth, r.instance_id, r.partition_no, notified.agents, row_number() OVER (ORDER BY i.nth, r.instance_id) AS number
        FROM item i JOIN member r ON r.of_meeting = i.of_meeting
          -- OFFSET 0 keeps the list of agents from being computed twice: for its value, and for the condition below.
          CROSS JOIN LATERAL (SELECT CASE WHEN targets[i.place] IS NULL OR targets[i.place] = '[]' THEN CASE WHEN from_agents[i.place] IS NULL THEN r.agent_ids ELSE (
            SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
            FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
            WHERE agent.value #>> '{}' <> from_agents[i.place]) END ELSE (
  SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
  FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
  WHERE agent.value::text IN (SELECT target.value::text FROM json_array_elements(targets[i.place]::json) AS target(value))) END AS agents OFFSET 0) notified
        WHERE notified.agents <> '[]'
      ), sent AS MATERIALIZED (
        SELECT r.nth, count(*) AS n FROM recipient r GROUP BY r.nth
      ), taken AS MATERIALIZED (
        SELECT wanted, take_numbers(wanted) AS first_no FROM (SELECT (SELECT count(*) FROM item) + (SELECT count(*) FROM recipient) AS wanted) counted
      ), numbered AS MATERIALIZED (
        SELECT i.place, i.nth, w.meeting_id, w.former_seq + i.rank AS seq, coalesce(sent.n, 0) AS deliveries_queued,
          taken.first_no + i.nth - 1
            + coalesce(sum(sent.n) OVER (ORDER BY i.nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS message_no
        FROM taken CROSS JOIN item i JOIN meeting w ON w.of_meeting = i.of_meeting LEFT JOIN sent ON sent.nth = i.nth
      ), stored_messages AS (
        INSERT INTO messages (message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, timestamp, message, from_agent, in_reply_to, hops)
        SELECT n.message_no, n.meeting_id, n.seq, wall_ats[n.place], n.deliveries_queued, targets[n.place], timestamps[n.place], texts[n.place], from_agents[n.place], answered_nos[n.place], coalesce(hops[n.place], 0) FROM numbered n
      ), stored_deliveries AS (
        INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at)
        SELECT taken.first_no + r.nth - 1 + r.number, n.message_no, n.meeting_id, n.seq, r.instance_id, r.partition_no, r.agents, expire_ats[n.place], wall_ats[n.place]
        FROM taken CROSS JOIN recipient r JOIN numbered n ON n.nth = r.nth ORDER BY r.number
      ), stored_keys AS (
        INSERT INTO idempotency_keys (meeting_id, key, fingerprint, message_no, seq, accepted_at, deliveries_queued, created_at, sender)
        SELECT n.meeting_id, key_names[n.place], fingerprints[n.place], n.message_no, n.seq, wall_ats[n.place], n.deliveries_queued, wall_ats[n.place], senders[n.place]
        FROM numbered n WHERE has_keys AND keys[n.place] IS NOT NULL
        ON CONFLICT (meeting_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, message_no = excluded.message_no, seq = excluded.seq,
          accepted_at = excluded.accepted_at, deliveries_queued = excluded.deliveries_queued, created_at = excluded.created_at, sender = excluded.sender
      ), noted AS (
        INSERT INTO batches (run_no, batch_no, first_no, last_no, stored)
        SELECT my_run_no, my_batch_no, taken.first_no, taken.first_no + taken.wanted - 1,
          CASE WHEN is_new IS NULL THEN repeat('1', cardinality(of_meetings))
            ELSE (SELECT string_agg(CASE WHEN f.is_new THEN '1' ELSE '0' END, '' ORDER BY f.place) FROM unnest(is_new) WITH ORDINALITY AS f(is_new, place)) END
        FROM taken
      )
      SELECT json_agg(n.place ORDER BY n.nth)::text, json_agg(n.message_no ORDER BY n.nth)::text, json_agg(n.seq ORDER BY n.nth)::text,
        json_agg(n.deliveries_queued ORDER BY n.nth)::text, json_agg(wall_ats[n.place] ORDER BY n.nth)::text,
        (SELECT json_agg(r.instance_id ORDER BY r.number)::text FROM recipient r), (SELECT json_agg(r.agents ORDER BY r.number)::text FROM recipient r),
        NULL::text, CASE WHEN has_said THEN json_agg(hops[n.place] ORDER BY n.nth)::text END
      FROM numbered n;

    IF EXISTS (SELECT 1 FROM nodes n WHERE n.node_id IS DISTINCT FROM my_node_id) THEN
      SELECT * INTO batch FROM batches WHERE run_no = my_run_no AND batch_no = my_batch_no;
      PERFORM pg_notify('convoke', json_build_object('from', teller, 'kind', 'stored', 'first_no', batch.first_no, 'last_no', batch.last_no)::text);
    END IF;
  END $function$;

CREATE OR REPLACE FUNCTION accept_messages_4(my_run_no bigint, my_batch_no bigint, meeting_ids text[], created_ats bigint[], counts bigint[], hints bigint[], of_meetings integer[], wall_ats bigint[], expire_ats bigint[], targets text[], timestamps text[], texts text[], has_said boolean, from_agents text[], answered_nos bigint[], speakers text[], speaker_limits text[], has_keys boolean, keys text[], senders text[], fingerprints text[], teller text, my_node_id text)
 RETURNS TABLE(places text, message_nos text, seqs text, queued_counts text, accepted_ats text, instance_ids text, agent_lists text, former_fingerprints text, hop_counts text)
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    batch batches%ROWTYPE;
    is_new boolean[];
    new_counts bigint[] := counts;
    last_seqs bigint[];
    former_seqs bigint[];
    key_names text[];
    refused text;
    hops bigint[];
  BEGIN
    -- A batch that is sent again waits here until the first try has ended.
    PERFORM 1 FROM runs WHERE run_no = my_run_no FOR UPDATE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the run % is not known', my_run_no USING ERRCODE = 'CV001';
    END IF;
    SELECT * INTO batch FROM batches WHERE run_no = my_run_no ORDER BY batch_no DESC LIMIT 1;
    IF batch.batch_no > my_batch_no THEN
      RETURN;
    END IF;
    IF batch.batch_no = my_batch_no THEN
      RETURN QUERY
        WITH stored AS MATERIALIZED (
          SELECT nth.place, m.*
          FROM (SELECT flag.place, row_number() OVER (ORDER BY flag.place) AS nth
                FROM unnest(string_to_array(batch.stored, NULL)) WITH ORDINALITY AS flag(stored, place) WHERE flag.stored = '1') nth
            JOIN (SELECT *, row_number() OVER (ORDER BY message_no) AS nth
                  FROM messages WHERE message_no BETWEEN batch.first_no AND batch.last_no) m USING (nth)
        )
        SELECT json_agg(s.place ORDER BY s.place)::text, json_agg(s.message_no ORDER BY s.place)::text, json_agg(s.seq ORDER BY s.place)::text,
          json_agg(s.deliveries_queued ORDER BY s.place)::text, json_agg(s.accepted_at ORDER BY s.place)::text,
          (SELECT json_agg(d.instance_id ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          (SELECT json_agg(d.target_agents ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          NULL::text, json_agg(s.hops ORDER BY s.place)::text
        FROM stored s HAVING count(*) > 0;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text, NULL::text
        FROM unnest(of_meetings, keys, senders, string_to_array(batch.stored, NULL)) WITH ORDINALITY AS i(of_meeting, key, sender, stored, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) ORDER BY k.created_at DESC LIMIT 1) k
        WHERE i.stored = '0' HAVING count(*) > 0;
      RETURN;
    END IF;

    PERFORM pg_advisory_xact_lock_shared(1668247158, 3);

    -- A meeting with a hint already has a row, unless the database has lost it.
    IF array_position(hints, NULL) IS NOT NULL THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE w.hint IS NULL ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
    END IF;
    
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    IF cardinality(last_seqs) IS DISTINCT FROM cardinality(meeting_ids) THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE true ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
      
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    END IF;

    IF has_keys THEN
      SELECT array_agg(k.key IS NULL ORDER BY i.place) INTO is_new
        FROM unnest(of_meetings, wall_ats, keys, senders) WITH ORDINALITY AS i(of_meeting, wall_at, key, sender, place)
          LEFT JOIN LATERAL (SELECT k.key FROM idempotency_keys k
            WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) AND k.created_at > i.wall_at - 86400000 LIMIT 1) k ON true;
      SELECT array_agg(CASE WHEN i.key IS NOT NULL AND (
            EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender <> i.sender OR k.key <> i.key) OFFSET 0)
            OR i.rank > 1 AND NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key = i.key AND k.sender = i.sender OFFSET 0))
          THEN i.sender || E'\n' || i.key ELSE i.key END ORDER BY i.place) INTO key_names
        FROM (SELECT u.*, row_number() OVER (PARTITION BY u.of_meeting, u.key, u.is_new ORDER BY u.place) AS rank
          FROM unnest(of_meetings, senders, keys, is_new) WITH ORDINALITY AS u(of_meeting, sender, key, is_new, place)) i;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text, NULL::text
        FROM unnest(of_meetings, keys, senders, is_new) WITH ORDINALITY AS i(of_meeting, key, sender, is_new, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) ORDER BY k.created_at DESC LIMIT 1) k
        WHERE NOT i.is_new HAVING count(*) > 0;
      SELECT array_agg(coalesce(counted.n, 0) ORDER BY w.place) INTO new_counts
        FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
          LEFT JOIN (SELECT i.of_meeting, count(*) AS n FROM unnest(of_meetings, is_new) AS i(of_meeting, is_new) WHERE i.is_new GROUP BY i.of_meeting) counted
            ON counted.of_meeting = w.place;
      IF NOT (true = ANY (is_new)) THEN
        RETURN;
      END IF;
    END IF;

    IF has_said THEN
      SELECT json_agg(json_build_array(j.place, j.field))::text INTO refused FROM (
        SELECT u.place, CASE
          WHEN (u.speaker IS NOT NULL OR u.speaker_limit IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM memberships s JOIN instances o ON o.instance_id = s.instance_id
              WHERE s.meeting_id = meeting_ids[u.of_meeting] AND s.left_at IS NULL
                AND (u.speaker IS NULL OR o.owner_key_id = u.speaker) AND o.instance_id = coalesce(u.speaker_limit, o.instance_id)
                AND u.from_agent IN (SELECT json_array_elements_text(s.agent_ids::json)) OFFSET 0) THEN 'from_agent'
          WHEN u.answered_no IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages m
              WHERE m.message_no = u.answered_no AND m.meeting_id = meeting_ids[u.of_meeting] OFFSET 0) THEN 'in_reply_to' END AS field
        FROM unnest(of_meetings, from_agents, answered_nos, speakers, speaker_limits)
          WITH ORDINALITY AS u(of_meeting, from_agent, answered_no, speaker, speaker_limit, place)
        WHERE is_new IS NULL OR is_new[u.place]) j WHERE j.field IS NOT NULL;
      IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'messages are refused' USING ERRCODE = 'CV003', DETAIL = refused;
      END IF;
    END IF;

    -- With a lower bound the search looks at few entries of the index, and not at all entries of its last page.
    SELECT array_agg(greatest(w.last_seq, coalesce(
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id AND m.seq >= w.hint ORDER BY m.seq DESC LIMIT 1),
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id ORDER BY m.seq DESC LIMIT 1))) ORDER BY w.place) INTO former_seqs
      FROM unnest(meeting_ids, hints, last_seqs) WITH ORDINALITY AS w(meeting_id, hint, last_seq, place);

    IF has_said THEN
      SELECT array_agg(CASE WHEN c.from_agent IS NULL THEN 0 ELSE c.before + c.nth END ORDER BY c.place) INTO hops FROM (
        SELECT k.place, k.from_agent,
          coalesce(max(k.own) OVER (PARTITION BY k.of_meeting, k.chain) - 1, k.newest, 0) AS before,
          count(*) FILTER (WHERE k.counts) OVER (PARTITION BY k.of_meeting, k.chain ORDER BY k.place) AS nth
        FROM (
          SELECT w.*, count(w.own) OVER (PARTITION BY w.of_meeting ORDER BY w.place) AS chain FROM (
            SELECT u.place, u.of_meeting, u.from_agent, u.counts,
              CASE WHEN NOT u.counts THEN NULL WHEN u.from_agent IS NULL THEN 0
                ELSE (SELECT m.hops + 1 FROM messages m WHERE m.message_no = u.answered_no) END AS own,
              (SELECT m.hops FROM messages m WHERE m.meeting_id = meeting_ids[u.of_meeting] AND m.seq = former_seqs[u.of_meeting]
                AND wall_ats[u.place] - m.accepted_at < 600000) AS newest
            FROM (SELECT i.*, is_new IS NULL OR is_new[i.place] AS counts
              FROM unnest(of_meetings, from_agents, answered_nos) WITH ORDINALITY AS i(of_meeting, from_agent, answered_no, place)) u) w) k) c;
    END IF;

    -- Old batches slow down nothing until they are removed here. The look-up of the last batch begins at the end of the
    -- index, so it finds that batch first, however many dead rows of others cannot be removed yet.
    IF my_batch_no % 100 = 0 THEN
      DELETE FROM batches WHERE run_no = my_run_no AND batch_no < my_batch_no;
    END IF;

    RETURN QUERY
      WITH meeting AS MATERIALIZED (
        SELECT w.* FROM unnest(meeting_ids, new_counts, former_seqs) WITH ORDINALITY AS w(meeting_id, n, former_seq, of_meeting)
        WHERE w.n > 0
      ), item AS MATERIALIZED (
        -- An item has no texts: the INSERTs take them from their arrays by place, so that no join and no sort carries
        -- them.
        SELECT i.place, i.of_meeting, row_number() OVER (ORDER BY i.place) AS nth, row_number() OVER (PARTITION BY i.of_meeting ORDER BY i.place) AS rank
        FROM unnest(of_meetings) WITH ORDINALITY AS i(of_meeting, place)
        WHERE is_new IS NULL OR is_new[i.place]
      ), membership AS MATERIALIZED (
        SELECT s.meeting_id, s.instance_id, s.agent_ids, s.wake FROM memberships s WHERE s.meeting_id = ANY (meeting_ids) AND s.left_at IS NULL
      ), member AS MATERIALIZED (
        SELECT w.of_meeting, s.instance_id, r.partition_no, s.agent_ids, s.wake
        FROM membership s JOIN meeting w ON w.meeting_id = s.meeting_id JOIN recipients r ON r.instance_id = s.instance_id
        WHERE r.instance_id = ANY (ARRAY(SELECT DISTINCT s.instance_id FROM membership s))
      ), recipient AS MATERIALIZED (
        SELECT i.nth, r.instance_id, r.partition_no, notified.agents, row_number() OVER (ORDER BY i.nth, r.instance_id) AS number
        FROM item i JOIN member r ON r.of_meeting = i.of_meeting
          -- OFFSET 0 keeps the list of agents from being computed twice: for its value, and for the condition below.
          CROSS JOIN LATERAL (SELECT CASE WHEN r.wake <> 'all' AND (r.wake = 'people' AND from_agents[i.place] IS NOT NULL
            OR r.wake = 'targeted' AND (targets[i.place] IS NULL OR targets[i.place] = '[]')) THEN '[]'
            WHEN targets[i.place] IS NULL OR targets[i.place] = '[]' THEN CASE WHEN from_agents[i.place] IS NULL THEN r.agent_ids ELSE (
            SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
            FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
            WHERE agent.value #>> '{}' <> from_agents[i.place]) END ELSE (
  SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
  FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
  WHERE agent.value::text IN (SELECT target.value::text FROM json_array_elements(targets[i.place]::json) AS target(value))) END AS agents OFFSET 0) notified
        WHERE notified.agents <> '[]'
      ), sent AS MATERIALIZED (
        SELECT r.nth, count(*) AS n FROM recipient r GROUP BY r.nth
      ), taken AS MATERIALIZED (
        SELECT wanted, take_numbers(wanted) AS first_no FROM (SELECT (SELECT count(*) FROM item) + (SELECT count(*) FROM recipient) AS wanted) counted
      ), numbered AS MATERIALIZED (
        SELECT i.place, i.nth, w.meeting_id, w.former_seq + i.rank AS seq, coalesce(sent.n, 0) AS deliveries_queued,
          taken.first_no + i.nth - 1
            + coalesce(sum(sent.n) OVER (ORDER BY i.nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS message_no
        FROM taken CROSS JOIN item i JOIN meeting w ON w.of_meeting = i.of_meeting LEFT JOIN sent ON sent.nth = i.nth
      ), stored_messages AS (
        INSERT INTO messages (message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, timestamp, message, from_agent, in_reply_to, hops)
        SELECT n.message_no, n.meeting_id, n.seq, wall_ats[n.place], n.deliveries_queued, targets[n.place], timestamps[n.place], texts[n.place], from_agents[n.place], answered_nos[n.place], coalesce(hops[n.place], 0) FROM numbered n
      ), stored_deliveries AS (
        INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at)
        SELECT taken.first_no + r.nth - 1 + r.number, n.message_no, n.meeting_id, n.seq, r.instance_id, r.partition_no, r.agents, expire_ats[n.place], wall_ats[n.place]
        FROM taken CROSS JOIN recipient r JOIN numbered n ON n.nth = r.nth ORDER BY r.number
      ), stored_keys AS (
        INSERT INTO idempotency_keys (meeting_id, key, fingerprint, message_no, seq, accepted_at, deliveries_queued, created_at, sender)
        SELECT n.meeting_id, key_names[n.place], fingerprints[n.place], n.message_no, n.seq, wall_ats[n.place], n.deliveries_queued, wall_ats[n.place], senders[n.place]
        FROM numbered n WHERE has_keys AND keys[n.place] IS NOT NULL
        ON CONFLICT (meeting_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, message_no = excluded.message_no, seq = excluded.seq,
          accepted_at = excluded.accepted_at, deliveries_queued = excluded.deliveries_queued, created_at = excluded.created_at, sender = excluded.sender
      ), noted AS (
        INSERT INTO batches (run_no, batch_no, first_no, last_no, stored)
        SELECT my_run_no, my_batch_no, taken.first_no, taken.first_no + taken.wanted - 1,
          CASE WHEN is_new IS NULL THEN repeat('1', cardinality(of_meetings))
            ELSE (SELECT string_agg(CASE WHEN f.is_new THEN '1' ELSE '0' END, '' ORDER BY f.place) FROM unnest(is_new) WITH ORDINALITY AS f(is_new, place)) END
        FROM taken
      )
      SELECT json_agg(n.place ORDER BY n.nth)::text, json_agg(n.message_no ORDER BY n.nth)::text, json_agg(n.seq ORDER BY n.nth)::text,
        json_agg(n.deliveries_queued ORDER BY n.nth)::text, json_agg(wall_ats[n.place] ORDER BY n.nth)::text,
        (SELECT json_agg(r.instance_id ORDER BY r.number)::text FROM recipient r), (SELECT json_agg(r.agents ORDER BY r.number)::text FROM recipient r),
        NULL::text, CASE WHEN has_said THEN json_agg(hops[n.place] ORDER BY n.nth)::text END
      FROM numbered n;

    IF EXISTS (SELECT 1 FROM nodes n WHERE n.node_id IS DISTINCT FROM my_node_id) THEN
      SELECT * INTO batch FROM batches WHERE run_no = my_run_no AND batch_no = my_batch_no;
      PERFORM pg_notify('convoke', json_build_object('from', teller, 'kind', 'stored', 'first_no', batch.first_no, 'last_no', batch.last_no)::text);
    END IF;
  END $function$;

CREATE OR REPLACE FUNCTION accept_messages_5(my_run_no bigint, my_batch_no bigint, meeting_ids text[], created_ats bigint[], counts bigint[], hints bigint[], of_meetings integer[], wall_ats bigint[], expire_ats bigint[], targets text[], timestamps text[], texts text[], has_said boolean, from_agents text[], answered_nos bigint[], speakers text[], speaker_limits text[], traces text[], has_keys boolean, keys text[], senders text[], fingerprints text[], teller text, my_node_id text)
 RETURNS TABLE(places text, message_nos text, seqs text, queued_counts text, accepted_ats text, instance_ids text, agent_lists text, former_fingerprints text, hop_counts text)
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    batch batches%ROWTYPE;
    is_new boolean[];
    new_counts bigint[] := counts;
    last_seqs bigint[];
    former_seqs bigint[];
    key_names text[];
    refused text;
    hops bigint[];
  BEGIN
    -- A batch that is sent again waits here until the first try has ended.
    PERFORM 1 FROM runs WHERE run_no = my_run_no FOR UPDATE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the run % is not known', my_run_no USING ERRCODE = 'CV001';
    END IF;
    SELECT * INTO batch FROM batches WHERE run_no = my_run_no ORDER BY batch_no DESC LIMIT 1;
    IF batch.batch_no > my_batch_no THEN
      RETURN;
    END IF;
    IF batch.batch_no = my_batch_no THEN
      RETURN QUERY
        WITH stored AS MATERIALIZED (
          SELECT nth.place, m.*
          FROM (SELECT flag.place, row_number() OVER (ORDER BY flag.place) AS nth
                FROM unnest(string_to_array(batch.stored, NULL)) WITH ORDINALITY AS flag(stored, place) WHERE flag.stored = '1') nth
            JOIN (SELECT *, row_number() OVER (ORDER BY message_no) AS nth
                  FROM messages WHERE message_no BETWEEN batch.first_no AND batch.last_no) m USING (nth)
        )
        SELECT json_agg(s.place ORDER BY s.place)::text, json_agg(s.message_no ORDER BY s.place)::text, json_agg(s.seq ORDER BY s.place)::text,
          json_agg(s.deliveries_queued ORDER BY s.place)::text, json_agg(s.accepted_at ORDER BY s.place)::text,
          (SELECT json_agg(d.instance_id ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          (SELECT json_agg(d.target_agents ORDER BY d.delivery_no)::text FROM deliveries d WHERE d.delivery_no BETWEEN batch.first_no AND batch.last_no),
          NULL::text, json_agg(s.hops ORDER BY s.place)::text
        FROM stored s HAVING count(*) > 0;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text, NULL::text
        FROM unnest(of_meetings, keys, senders, string_to_array(batch.stored, NULL)) WITH ORDINALITY AS i(of_meeting, key, sender, stored, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) ORDER BY k.created_at DESC LIMIT 1) k
        WHERE i.stored = '0' HAVING count(*) > 0;
      RETURN;
    END IF;

    PERFORM pg_advisory_xact_lock_shared(1668247158, 3);

    -- A meeting with a hint already has a row, unless the database has lost it.
    IF array_position(hints, NULL) IS NOT NULL THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE w.hint IS NULL ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
    END IF;
    
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    IF cardinality(last_seqs) IS DISTINCT FROM cardinality(meeting_ids) THEN
      
    INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
      SELECT w.meeting_id, 0, w.created_at, w.created_at
      FROM unnest(meeting_ids, created_ats, hints) WITH ORDINALITY AS w(meeting_id, created_at, hint, place) WHERE true ORDER BY w.place
      ON CONFLICT (meeting_id) DO NOTHING;
      
    SELECT array_agg(g.last_seq ORDER BY w.place) INTO last_seqs
      FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
        CROSS JOIN LATERAL (SELECT g.last_seq FROM meetings g WHERE g.meeting_id = w.meeting_id OFFSET 0 FOR UPDATE) g;
    END IF;

    IF has_keys THEN
      SELECT array_agg(k.key IS NULL ORDER BY i.place) INTO is_new
        FROM unnest(of_meetings, wall_ats, keys, senders) WITH ORDINALITY AS i(of_meeting, wall_at, key, sender, place)
          LEFT JOIN LATERAL (SELECT k.key FROM idempotency_keys k
            WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) AND k.created_at > i.wall_at - 86400000 LIMIT 1) k ON true;
      SELECT array_agg(CASE WHEN i.key IS NOT NULL AND (
            EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender <> i.sender OR k.key <> i.key) OFFSET 0)
            OR i.rank > 1 AND NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting]
              AND k.key = i.key AND k.sender = i.sender OFFSET 0))
          THEN i.sender || E'\n' || i.key ELSE i.key END ORDER BY i.place) INTO key_names
        FROM (SELECT u.*, row_number() OVER (PARTITION BY u.of_meeting, u.key, u.is_new ORDER BY u.place) AS rank
          FROM unnest(of_meetings, senders, keys, is_new) WITH ORDINALITY AS u(of_meeting, sender, key, is_new, place)) i;
      RETURN QUERY 
        SELECT json_agg(i.place)::text, json_agg(k.message_no)::text, json_agg(k.seq)::text, json_agg(k.deliveries_queued)::text, json_agg(k.accepted_at)::text,
          NULL::text, NULL::text, json_agg(k.fingerprint)::text, NULL::text
        FROM unnest(of_meetings, keys, senders, is_new) WITH ORDINALITY AS i(of_meeting, key, sender, is_new, place)
          CROSS JOIN LATERAL (SELECT * FROM idempotency_keys k WHERE k.meeting_id = meeting_ids[i.of_meeting] AND k.key IN (i.key, i.sender || E'\n' || i.key) AND (k.sender IS NULL OR k.sender = i.sender) ORDER BY k.created_at DESC LIMIT 1) k
        WHERE NOT i.is_new HAVING count(*) > 0;
      SELECT array_agg(coalesce(counted.n, 0) ORDER BY w.place) INTO new_counts
        FROM unnest(meeting_ids) WITH ORDINALITY AS w(meeting_id, place)
          LEFT JOIN (SELECT i.of_meeting, count(*) AS n FROM unnest(of_meetings, is_new) AS i(of_meeting, is_new) WHERE i.is_new GROUP BY i.of_meeting) counted
            ON counted.of_meeting = w.place;
      IF NOT (true = ANY (is_new)) THEN
        RETURN;
      END IF;
    END IF;

    IF has_said THEN
      SELECT json_agg(json_build_array(j.place, j.field))::text INTO refused FROM (
        SELECT u.place, CASE
          WHEN (u.speaker IS NOT NULL OR u.speaker_limit IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM memberships s JOIN instances o ON o.instance_id = s.instance_id
              WHERE s.meeting_id = meeting_ids[u.of_meeting] AND s.left_at IS NULL
                AND (u.speaker IS NULL OR o.owner_key_id = u.speaker) AND o.instance_id = coalesce(u.speaker_limit, o.instance_id)
                AND u.from_agent IN (SELECT json_array_elements_text(s.agent_ids::json)) OFFSET 0) THEN 'from_agent'
          WHEN u.answered_no IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages m
              WHERE m.message_no = u.answered_no AND m.meeting_id = meeting_ids[u.of_meeting] OFFSET 0) THEN 'in_reply_to' END AS field
        FROM unnest(of_meetings, from_agents, answered_nos, speakers, speaker_limits)
          WITH ORDINALITY AS u(of_meeting, from_agent, answered_no, speaker, speaker_limit, place)
        WHERE is_new IS NULL OR is_new[u.place]) j WHERE j.field IS NOT NULL;
      IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'messages are refused' USING ERRCODE = 'CV003', DETAIL = refused;
      END IF;
    END IF;

    -- With a lower bound the search looks at few entries of the index, and not at all entries of its last page.
    SELECT array_agg(greatest(w.last_seq, coalesce(
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id AND m.seq >= w.hint ORDER BY m.seq DESC LIMIT 1),
        (SELECT m.seq FROM messages m WHERE m.meeting_id = w.meeting_id ORDER BY m.seq DESC LIMIT 1))) ORDER BY w.place) INTO former_seqs
      FROM unnest(meeting_ids, hints, last_seqs) WITH ORDINALITY AS w(meeting_id, hint, last_seq, place);

    IF has_said THEN
      SELECT array_agg(CASE WHEN c.from_agent IS NULL THEN 0 ELSE c.before + c.nth END ORDER BY c.place) INTO hops FROM (
        SELECT k.place, k.from_agent,
          coalesce(max(k.own) OVER (PARTITION BY k.of_meeting, k.chain) - 1, k.newest, 0) AS before,
          count(*) FILTER (WHERE k.counts) OVER (PARTITION BY k.of_meeting, k.chain ORDER BY k.place) AS nth
        FROM (
          SELECT w.*, count(w.own) OVER (PARTITION BY w.of_meeting ORDER BY w.place) AS chain FROM (
            SELECT u.place, u.of_meeting, u.from_agent, u.counts,
              CASE WHEN NOT u.counts THEN NULL WHEN u.from_agent IS NULL THEN 0
                ELSE (SELECT m.hops + 1 FROM messages m WHERE m.message_no = u.answered_no) END AS own,
              (SELECT m.hops FROM messages m WHERE m.meeting_id = meeting_ids[u.of_meeting] AND m.seq = former_seqs[u.of_meeting]
                AND wall_ats[u.place] - m.accepted_at < 600000) AS newest
            FROM (SELECT i.*, is_new IS NULL OR is_new[i.place] AS counts
              FROM unnest(of_meetings, from_agents, answered_nos) WITH ORDINALITY AS i(of_meeting, from_agent, answered_no, place)) u) w) k) c;
    END IF;

    -- Old batches slow down nothing until they are removed here. The look-up of the last batch begins at the end of the
    -- index, so it finds that batch first, however many dead rows of others cannot be removed yet.
    IF my_batch_no % 100 = 0 THEN
      DELETE FROM batches WHERE run_no = my_run_no AND batch_no < my_batch_no;
    END IF;

    RETURN QUERY
      WITH meeting AS MATERIALIZED (
        SELECT w.* FROM unnest(meeting_ids, new_counts, former_seqs) WITH ORDINALITY AS w(meeting_id, n, former_seq, of_meeting)
        WHERE w.n > 0
      ), item AS MATERIALIZED (
        -- An item has no texts: the INSERTs take them from their arrays by place, so that no join and no sort carries
        -- them.
        SELECT i.place, i.of_meeting, row_number() OVER (ORDER BY i.place) AS nth, row_number() OVER (PARTITION BY i.of_meeting ORDER BY i.place) AS rank
        FROM unnest(of_meetings) WITH ORDINALITY AS i(of_meeting, place)
        WHERE is_new IS NULL OR is_new[i.place]
      ), membership AS MATERIALIZED (
        SELECT s.meeting_id, s.instance_id, s.agent_ids, s.wake FROM memberships s WHERE s.meeting_id = ANY (meeting_ids) AND s.left_at IS NULL
      ), member AS MATERIALIZED (
        SELECT w.of_meeting, s.instance_id, r.partition_no, s.agent_ids, s.wake
        FROM membership s JOIN meeting w ON w.meeting_id = s.meeting_id JOIN recipients r ON r.instance_id = s.instance_id
        WHERE r.instance_id = ANY (ARRAY(SELECT DISTINCT s.instance_id FROM membership s))
      ), recipient AS MATERIALIZED (
        SELECT i.nth, r.instance_id, r.partition_no, notified.agents, row_number() OVER (ORDER BY i.nth, r.instance_id) AS number
        FROM item i JOIN member r ON r.of_meeting = i.of_meeting
          -- OFFSET 0 keeps the list of agents from being computed twice: for its value, and for the condition below.
          CROSS JOIN LATERAL (SELECT CASE WHEN r.wake <> 'all' AND (r.wake = 'people' AND from_agents[i.place] IS NOT NULL
            OR r.wake = 'targeted' AND (targets[i.place] IS NULL OR targets[i.place] = '[]')) THEN '[]'
            WHEN targets[i.place] IS NULL OR targets[i.place] = '[]' THEN CASE WHEN from_agents[i.place] IS NULL THEN r.agent_ids ELSE (
            SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
            FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
            WHERE agent.value #>> '{}' <> from_agents[i.place]) END ELSE (
  SELECT coalesce('[' || string_agg(agent.value::text, ',' ORDER BY agent.place) || ']', '[]')
  FROM json_array_elements(r.agent_ids::json) WITH ORDINALITY AS agent(value, place)
  WHERE agent.value::text IN (SELECT target.value::text FROM json_array_elements(targets[i.place]::json) AS target(value))) END AS agents OFFSET 0) notified
        WHERE notified.agents <> '[]'
      ), sent AS MATERIALIZED (
        SELECT r.nth, count(*) AS n FROM recipient r GROUP BY r.nth
      ), taken AS MATERIALIZED (
        SELECT wanted, take_numbers(wanted) AS first_no FROM (SELECT (SELECT count(*) FROM item) + (SELECT count(*) FROM recipient) AS wanted) counted
      ), numbered AS MATERIALIZED (
        SELECT i.place, i.nth, w.meeting_id, w.former_seq + i.rank AS seq, coalesce(sent.n, 0) AS deliveries_queued,
          taken.first_no + i.nth - 1
            + coalesce(sum(sent.n) OVER (ORDER BY i.nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS message_no
        FROM taken CROSS JOIN item i JOIN meeting w ON w.of_meeting = i.of_meeting LEFT JOIN sent ON sent.nth = i.nth
      ), stored_messages AS (
        INSERT INTO messages (message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, timestamp, message, from_agent, in_reply_to, hops, trace)
        SELECT n.message_no, n.meeting_id, n.seq, wall_ats[n.place], n.deliveries_queued, targets[n.place], timestamps[n.place], texts[n.place], from_agents[n.place], answered_nos[n.place], coalesce(hops[n.place], 0), traces[n.place] FROM numbered n
      ), stored_deliveries AS (
        INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at)
        SELECT taken.first_no + r.nth - 1 + r.number, n.message_no, n.meeting_id, n.seq, r.instance_id, r.partition_no, r.agents, expire_ats[n.place], wall_ats[n.place]
        FROM taken CROSS JOIN recipient r JOIN numbered n ON n.nth = r.nth ORDER BY r.number
      ), stored_keys AS (
        INSERT INTO idempotency_keys (meeting_id, key, fingerprint, message_no, seq, accepted_at, deliveries_queued, created_at, sender)
        SELECT n.meeting_id, key_names[n.place], fingerprints[n.place], n.message_no, n.seq, wall_ats[n.place], n.deliveries_queued, wall_ats[n.place], senders[n.place]
        FROM numbered n WHERE has_keys AND keys[n.place] IS NOT NULL
        ON CONFLICT (meeting_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, message_no = excluded.message_no, seq = excluded.seq,
          accepted_at = excluded.accepted_at, deliveries_queued = excluded.deliveries_queued, created_at = excluded.created_at, sender = excluded.sender
      ), noted AS (
        INSERT INTO batches (run_no, batch_no, first_no, last_no, stored)
        SELECT my_run_no, my_batch_no, taken.first_no, taken.first_no + taken.wanted - 1,
          CASE WHEN is_new IS NULL THEN repeat('1', cardinality(of_meetings))
            ELSE (SELECT string_agg(CASE WHEN f.is_new THEN '1' ELSE '0' END, '' ORDER BY f.place) FROM unnest(is_new) WITH ORDINALITY AS f(is_new, place)) END
        FROM taken
      )
      SELECT json_agg(n.place ORDER BY n.nth)::text, json_agg(n.message_no ORDER BY n.nth)::text, json_agg(n.seq ORDER BY n.nth)::text,
        json_agg(n.deliveries_queued ORDER BY n.nth)::text, json_agg(wall_ats[n.place] ORDER BY n.nth)::text,
        (SELECT json_agg(r.instance_id ORDER BY r.number)::text FROM recipient r), (SELECT json_agg(r.agents ORDER BY r.number)::text FROM recipient r),
        NULL::text, CASE WHEN has_said THEN json_agg(hops[n.place] ORDER BY n.nth)::text END
      FROM numbered n;

    IF EXISTS (SELECT 1 FROM nodes n WHERE n.node_id IS DISTINCT FROM my_node_id) THEN
      SELECT * INTO batch FROM batches WHERE run_no = my_run_no AND batch_no = my_batch_no;
      PERFORM pg_notify('convoke', json_build_object('from', teller, 'kind', 'stored', 'first_no', batch.first_no, 'last_no', batch.last_no)::text);
    END IF;
  END $function$;

CREATE OR REPLACE FUNCTION await_accepts()
 RETURNS void
 LANGUAGE plpgsql
 SET lock_timeout TO '200ms'
AS $function$
  BEGIN
    PERFORM pg_advisory_xact_lock(1668247158, 3);
  END $function$;

CREATE OR REPLACE FUNCTION count_agents()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
  BEGIN
    NEW.agent_count := json_array_length(NEW.agent_ids::json);
    RETURN NEW;
  END $function$;

CREATE OR REPLACE FUNCTION count_instances()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
  BEGIN
    UPDATE instance_count SET instance_count = instance_count + CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
    RETURN NULL;
  END $function$;

CREATE OR REPLACE FUNCTION keep_recipient()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
  BEGIN
    IF TG_OP <> 'INSERT' THEN
      DELETE FROM recipients WHERE instance_id = OLD.instance_id;
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.is_active = 1 AND NEW.webhook_enabled = 1 THEN
      INSERT INTO recipients (instance_id, partition_no) VALUES (NEW.instance_id, NEW.partition_no);
    END IF;
    RETURN NULL;
  END $function$;

CREATE OR REPLACE FUNCTION note_agents()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
  BEGIN
    IF TG_OP <> 'INSERT' THEN
      DELETE FROM instance_agents WHERE instance_id = OLD.instance_id
        AND agent_id IN (SELECT agent FROM json_array_elements_text(OLD.agent_ids::json) AS former(agent));
    END IF;
    IF TG_OP <> 'DELETE' THEN
      INSERT INTO instance_agents (agent_id, instance_id)
        SELECT DISTINCT agent, NEW.instance_id FROM json_array_elements_text(NEW.agent_ids::json) AS present(agent);
    END IF;
    RETURN NULL;
  END $function$;

CREATE OR REPLACE FUNCTION raise_numbers(given_no bigint, reached_no bigint)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
  DECLARE
    last_no bigint;
  BEGIN
    PERFORM pg_advisory_xact_lock(1668247158, 2);
    SELECT last_value INTO last_no FROM numbers;
    IF last_no < greatest(given_no, reached_no) THEN
      PERFORM setval('numbers', greatest(given_no, reached_no));
    END IF;
    RETURN last_no < given_no;
  END $function$;

CREATE OR REPLACE FUNCTION refuse_change_of_audit_log()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
  BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
  END $function$;

CREATE OR REPLACE FUNCTION refuse_removal_from_audit_log()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
  DECLARE
    last_action text;
    last_details text;
  BEGIN
    SELECT action, details INTO last_action, last_details FROM audit_log ORDER BY seq DESC LIMIT 1;
    IF last_action = 'audit.prune' AND OLD.seq <= (last_details::json ->> 'removed_to')::bigint THEN
      RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
  END $function$;

CREATE OR REPLACE FUNCTION renew_lease(my_node_id text, my_version text, my_address text, is_stopping smallint, released smallint[])
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    now_ms bigint;
    my_node_no bigint;
  BEGIN
    PERFORM pg_advisory_xact_lock(1668247158, 5);
    now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    INSERT INTO nodes AS n (node_id, version, address, started_at, seen_at, lease_until, stopping)
      SELECT my_node_id, my_version, my_address, now_ms, now_ms, now_ms + 15000, is_stopping
      WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE node_id = my_node_id);
    UPDATE nodes SET version = my_version, address = my_address, seen_at = now_ms, lease_until = now_ms + 15000, stopping = is_stopping
      WHERE node_id = my_node_id RETURNING node_no INTO my_node_no;
    IF cardinality(released) > 0 THEN
      PERFORM pg_advisory_xact_lock(1668247158, 4);
      UPDATE partitions SET node_no = NULL WHERE node_no = my_node_no AND partition_no = ANY (released);
    END IF;
    DELETE FROM nodes n WHERE n.lease_until < now_ms - 3600000 AND NOT EXISTS (SELECT 1 FROM partitions p WHERE p.node_no = n.node_no);
    RETURN my_node_no;
  END $function$;

CREATE OR REPLACE FUNCTION renew_lease_2(my_node_id text, my_version text, my_address text, is_stopping smallint, released smallint[])
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
  DECLARE
    my_node_no bigint;
  BEGIN
    my_node_no := renew_lease(my_node_id, my_version, my_address, is_stopping, released);
    UPDATE nodes SET signs = 1 WHERE node_no = my_node_no AND signs = 0;
    RETURN my_node_no;
  END $function$;

CREATE OR REPLACE FUNCTION renew_lease_3(my_node_id text, my_version text, my_address text, is_stopping smallint, released smallint[], my_steps integer)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
  DECLARE
    my_node_no bigint;
  BEGIN
    my_node_no := renew_lease_2(my_node_id, my_version, my_address, is_stopping, released);
    UPDATE nodes SET steps_known = my_steps WHERE node_no = my_node_no AND steps_known <> my_steps;
    RETURN my_node_no;
  END $function$;

CREATE OR REPLACE FUNCTION settle_deliveries(delivery_nos bigint[], expire_ats bigint[], epochs bigint[], states text[], reasons text[], attempt_counts bigint[], badly_counts bigint[], attempt_lists text[], next_attempt_ats bigint[], asides smallint[], settled_ats bigint[], of_instances text[], of_urls text[], of_epochs bigint[], failures bigint[], last_success_ats bigint[], last_failures text[], backoff_steps bigint[], backoff_untils bigint[], gone_instances text[], gone_epochs bigint[], gone_as_ofs bigint[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    present bigint[];
  BEGIN
    PERFORM pg_advisory_xact_lock_shared(1668247158, 4);
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
  END $function$;

CREATE OR REPLACE FUNCTION settle_deliveries_2(delivery_nos bigint[], expire_ats bigint[], epochs bigint[], states text[], reasons text[], attempt_counts bigint[], badly_counts bigint[], attempt_lists text[], next_attempt_ats bigint[], asides smallint[], settled_ats bigint[], of_instances text[], of_urls text[], of_epochs bigint[], failures bigint[], health_sinces bigint[], last_success_ats bigint[], last_failures text[], backoff_steps bigint[], backoff_untils bigint[], gone_instances text[], gone_epochs bigint[], gone_as_ofs bigint[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    present bigint[];
  BEGIN
    PERFORM pg_advisory_xact_lock_shared(1668247158, 4);
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
        attempts = s.attempts, next_attempt_at = s.next_attempt_at, aside = s.aside, settled_at = s.settled_at
      FROM unnest(delivery_nos, expire_ats, epochs, states, reasons, attempt_counts, badly_counts, attempt_lists, next_attempt_ats, asides, settled_ats)
        AS s(delivery_no, expires_at, epoch, state, reason, attempt_count, answered_badly, attempts, next_attempt_at, aside, settled_at)
      WHERE d.delivery_no = ANY (delivery_nos) AND d.delivery_no = s.delivery_no AND d.state = 'pending' AND d.expires_at = s.expires_at
        AND s.epoch = present[d.partition_no + 1];
  END $function$;

CREATE OR REPLACE FUNCTION settle_deliveries_3(delivery_nos bigint[], expire_ats bigint[], epochs bigint[], states text[], reasons text[], attempt_counts bigint[], badly_counts bigint[], attempt_lists text[], next_attempt_ats bigint[], asides smallint[], settled_ats bigint[], of_instances text[], of_urls text[], of_epochs bigint[], failures bigint[], health_sinces bigint[], last_success_ats bigint[], last_failures text[], backoff_steps bigint[], backoff_untils bigint[], gone_instances text[], gone_epochs bigint[], gone_as_ofs bigint[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    present bigint[];
  BEGIN
    PERFORM pg_advisory_xact_lock_shared(1668247158, 4);
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
        attempts = s.attempts, next_attempt_at = s.next_attempt_at, aside = s.aside, settled_at = s.settled_at,
        noted = CASE WHEN s.state <> 'pending' THEN 0 WHEN s.aside = 1 THEN 1 ELSE d.noted END,
        failed_at = CASE WHEN s.state = 'failed' THEN s.settled_at END
      FROM unnest(delivery_nos, expire_ats, epochs, states, reasons, attempt_counts, badly_counts, attempt_lists, next_attempt_ats, asides, settled_ats)
        AS s(delivery_no, expires_at, epoch, state, reason, attempt_count, answered_badly, attempts, next_attempt_at, aside, settled_at)
      WHERE d.delivery_no = ANY (delivery_nos) AND d.delivery_no = s.delivery_no AND d.state = 'pending' AND d.expires_at = s.expires_at
        AND s.epoch = present[d.partition_no + 1];
  END $function$;

CREATE OR REPLACE FUNCTION settle_deliveries_4(delivery_nos bigint[], expire_ats bigint[], epochs bigint[], states text[], reasons text[], attempt_counts bigint[], badly_counts bigint[], attempt_lists text[], next_attempt_ats bigint[], asides smallint[], settled_ats bigint[], of_instances text[], of_urls text[], of_epochs bigint[], failures bigint[], health_sinces bigint[], last_success_ats bigint[], last_failures text[], backoff_steps bigint[], backoff_untils bigint[], gone_instances text[], gone_epochs bigint[], gone_as_ofs bigint[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    present bigint[];
    settled bigint;
  BEGIN
    PERFORM pg_advisory_xact_lock_shared(1668247158, 4);
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
        attempts = s.attempts, next_attempt_at = s.next_attempt_at, aside = s.aside, settled_at = s.settled_at,
        noted = CASE WHEN s.state <> 'pending' THEN 0 WHEN s.aside = 1 THEN 1 ELSE d.noted END,
        failed_at = CASE WHEN s.state = 'failed' THEN s.settled_at END
      FROM unnest(delivery_nos, expire_ats, epochs, states, reasons, attempt_counts, badly_counts, attempt_lists, next_attempt_ats, asides, settled_ats)
        AS s(delivery_no, expires_at, epoch, state, reason, attempt_count, answered_badly, attempts, next_attempt_at, aside, settled_at)
      WHERE d.delivery_no = ANY (delivery_nos) AND d.delivery_no = s.delivery_no AND d.state = 'pending' AND d.expires_at = s.expires_at
        AND s.epoch = present[d.partition_no + 1];
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
    END IF;
  END $function$;

CREATE OR REPLACE FUNCTION sweep_deliveries(reached bigint, rows_max bigint)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
  DECLARE
    mark bigint;
    to_no bigint;
    fresh_no bigint;
  BEGIN
    IF NOT pg_try_advisory_xact_lock(1668247158, 7) THEN
      RETURN NULL;
    END IF;
    mark := (SELECT CASE WHEN max(swept_to) <= (SELECT last_value FROM numbers) THEN max(swept_to) ELSE 0 END FROM sweeps);
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
    -- A new statement sees what others committed meanwhile. It sees locked rows as they were before.
    SELECT min(delivery_no) INTO fresh_no FROM deliveries WHERE delivery_no > mark AND delivery_no <= to_no
      AND (state = 'pending' AND noted = 0 OR state = 'failed' AND failed_at IS NULL AND settled_at IS NOT NULL);
    to_no := coalesce(fresh_no - 1, to_no);
    IF to_no > mark THEN
      INSERT INTO sweeps (swept_to) VALUES (to_no) ON CONFLICT DO NOTHING;
      DELETE FROM sweeps WHERE swept_to <> to_no;
    END IF;
    RETURN to_no;
  END $function$;

CREATE OR REPLACE FUNCTION take_numbers(wanted bigint)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
  DECLARE
    first_no bigint;
  BEGIN
    BEGIN
      PERFORM pg_advisory_xact_lock(1668247158, 2);
      first_no := greatest(nextval('numbers'), (floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1704067200000) * 4096);
      PERFORM setval('numbers', first_no + wanted - 1);
      RAISE EXCEPTION 'taken' USING ERRCODE = 'CV002';
    EXCEPTION WHEN SQLSTATE 'CV002' THEN
      RETURN first_no;
    END;
  END $function$;

CREATE OR REPLACE FUNCTION take_partitions(my_node_no bigint, wanted bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  DECLARE
    now_ms bigint;
  BEGIN
    PERFORM pg_advisory_xact_lock(1668247158, 5);
    PERFORM pg_advisory_xact_lock(1668247158, 4);
    now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    IF NOT EXISTS (SELECT 1 FROM nodes WHERE node_no = my_node_no AND lease_until >= now_ms AND stopping = 0) THEN
      RETURN;
    END IF;
    UPDATE partitions SET node_no = my_node_no, epoch = epoch + 1
      WHERE partition_no IN (
        SELECT p.partition_no FROM partitions p LEFT JOIN nodes n ON n.node_no = p.node_no
        WHERE n.node_no IS NULL OR n.lease_until < now_ms ORDER BY p.partition_no LIMIT wanted);
  END $function$;

CREATE OR REPLACE FUNCTION take_partitions_2(my_node_no bigint, wanted bigint, gone_nos bigint[], gone_seen_ats bigint[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
  #variable_conflict use_column
  BEGIN
    PERFORM pg_advisory_xact_lock(1668247158, 5);
    PERFORM pg_advisory_xact_lock(1668247158, 4);
    IF NOT EXISTS (SELECT 1 FROM nodes WHERE node_no = my_node_no AND stopping = 0) THEN
      RETURN;
    END IF;
    UPDATE partitions SET node_no = my_node_no, epoch = epoch + 1 + floor(random() * 2147483648)::bigint
      WHERE partition_no IN (
        SELECT p.partition_no FROM partitions p LEFT JOIN nodes n ON n.node_no = p.node_no
        WHERE n.node_no IS NULL OR EXISTS (SELECT 1 FROM unnest(gone_nos, gone_seen_ats) AS gone(node_no, seen_at)
          WHERE gone.node_no = n.node_no AND gone.seen_at = n.seen_at)
        ORDER BY p.partition_no LIMIT wanted);
  END $function$;
