/**
 * The schema, as the steps that made it. `schema_version` counts the steps that a database has taken. The SQL of a
 * released step is never edited.
 *
 * A step runs while nodes of the previous version work, and these nodes continue on the new schema. So a step adds, and
 * removes nothing that they use. A changed function gets a new name. A later step removes the parts that no version
 * uses any more.
 *
 * JSON of users is `text`, never `jsonb`: `jsonb` refuses \u0000 and reorders keys. Texts compare byte by byte (COLLATE
 * "C"), as in SQLite. Booleans are 0 and 1, lists and objects are JSON text, times are milliseconds since the epoch.
 */
import {
  ACCEPT_MESSAGES_2,
  ACCEPT_MESSAGES_3,
  ACCEPT_MESSAGES_4,
  ACCEPT_MESSAGES_5,
} from './functions/accept_messages.ts';
import { AGENTS_OF_INSTANCES } from './functions/agents_of_instances.ts';
import { RAISE_NUMBERS } from './functions/take_numbers.ts';
import { SETTLE_DELIVERIES_2, SETTLE_DELIVERIES_3, SETTLE_DELIVERIES_4 } from './functions/settle_deliveries.ts';
import { RENEW_LEASE_2, RENEW_LEASE_3, TAKE_PARTITIONS_2 } from './cluster/lease_functions.ts';
import { FIRST_STEP } from './first_step.ts';
import { noteDeliveries } from './pending/pending_deliveries.ts';

/**
 * How many steps a node must know to work on the newest schema. The database stores this number. So a node of the
 * previous version can start on the new schema, for example after it was killed in the middle of an upgrade. Only a
 * step that removes something that older nodes use raises the number.
 */
export const STEPS_KNOWN_MIN = 1;

/** A node that knows this many steps reads attempts in their short form. */
export const SHORT_ATTEMPTS_STEPS = 20;

/**
 * A node that knows this many steps finds deliveries by the columns of pending_deliveries.ts, and writes these columns.
 */
export const NOTED_STEPS = 24;

/** A node that knows this many steps names its data keys, a moment after its row is there. */
export const NAMED_KEYS_STEPS = 29;

export const MIGRATIONS: readonly string[] = [
  FIRST_STEP,
  `
  -- Whether a node signs its messages to other nodes: see notifications.ts.
  ALTER TABLE nodes ADD COLUMN signs smallint NOT NULL DEFAULT 0;
  ${RENEW_LEASE_2}
  `,
  `
  -- A database can be restored to an earlier state while nodes work on it. Then its numbers must not repeat.
  ${RAISE_NUMBERS}
  `,
  `
  -- From here on nodes watch each other, and say which ones are gone: the clock of the database no longer decides it.
  ${TAKE_PARTITIONS_2}
  `,
  `
  ${AGENTS_OF_INSTANCES}
  `,
  `
  -- Entries at the beginning may be removed when the last entry says which ones: see removalOf. The earlier function still
  -- refuses every other change.
  CREATE FUNCTION refuse_removal_from_audit_log() RETURNS trigger LANGUAGE plpgsql AS $$
  DECLARE
    last_action text;
    last_details text;
  BEGIN
    SELECT action, details INTO last_action, last_details FROM audit_log ORDER BY seq DESC LIMIT 1;
    IF last_action = 'audit.prune' AND OLD.seq <= (last_details::json ->> 'removed_to')::bigint THEN
      RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
  END $$;
  DROP TRIGGER audit_log_is_not_changed ON audit_log;
  CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_change_of_audit_log();
  CREATE TRIGGER audit_log_is_not_removed BEFORE DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_removal_from_audit_log();
  `,
  `
  -- A session that a node of the previous version begins has none of these values: only such nodes accept it.
  ALTER TABLE sessions ADD COLUMN csrf_digest text NOT NULL DEFAULT '';
  ALTER TABLE sessions ADD COLUMN token_digest text;
  ALTER TABLE sessions ADD COLUMN node_id text COLLATE "C";
  `,
  `
  -- The sender that used an Idempotency-Key; null where a node of the previous version stored it.
  ALTER TABLE idempotency_keys ADD COLUMN sender text COLLATE "C";
  ${ACCEPT_MESSAGES_2}
  `,
  `
  -- The last time at which a node is known to have run. A clock that is far ahead of it at a start is not trusted.
  ALTER TABLE this_database ADD COLUMN ran_until bigint;
  `,
  `
  -- Some statements read these columns of many rows as JSON, and one row that is not JSON would make all of them fail.
  -- NOT VALID: existing rows are not checked now.
  ALTER TABLE memberships ADD CONSTRAINT memberships_agent_ids_are_a_list CHECK (json_typeof(agent_ids::json) = 'array') NOT VALID;
  ALTER TABLE instances ADD CONSTRAINT instances_agent_ids_are_a_list CHECK (json_typeof(agent_ids::json) = 'array') NOT VALID;
  `,
  `
  -- One-time links. An invite stores only the digest of its secret.
  CREATE TABLE invites (
    invite_id text COLLATE "C" PRIMARY KEY,
    digest text COLLATE "C" NOT NULL UNIQUE,
    created_by text COLLATE "C",
    instance_id text COLLATE "C" NOT NULL,
    meeting_ids text NOT NULL,
    agent_ids text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    redeemed_at bigint,
    key_id text COLLATE "C",
    revoked_at bigint
  );
  `,
  `
  -- Who says a message and what it answers. in_reply_to is a message_no: the message itself may be gone.
  ALTER TABLE messages ADD COLUMN from_agent text COLLATE "C";
  ALTER TABLE messages ADD COLUMN in_reply_to bigint;
  ALTER TABLE messages ADD COLUMN hops bigint NOT NULL DEFAULT 0;
  ${ACCEPT_MESSAGES_3}
  `,
  `
  -- A machine can pull instead of being pushed to. The columns say what is known of it while it pulls. connected_epoch
  -- is the epoch of its partition at that time: under another epoch the machine is no longer connected.
  ALTER TABLE instances ADD COLUMN transport text NOT NULL DEFAULT 'webhook';
  ALTER TABLE instances ADD COLUMN ack_timeout_s integer NOT NULL DEFAULT 30;
  ALTER TABLE instances ADD COLUMN connected_since bigint;
  ALTER TABLE instances ADD COLUMN connected_address text;
  ALTER TABLE instances ADD COLUMN connected_client text;
  ALTER TABLE instances ADD COLUMN connected_epoch bigint;
  `,
  `
  -- A table beside meetings, because few meetings have a row here, and every node holds all these rows in memory. Null:
  -- the default of the service. A node of the previous version reads none of it, and pauses nothing.
  CREATE TABLE meeting_settings (
    meeting_id text COLLATE "C" PRIMARY KEY,
    paused smallint NOT NULL,
    hop_limit bigint,
    pair_limit bigint,
    pair_window_s bigint,
    updated_at bigint NOT NULL
  );
  `,
  `
  -- The signature of the node's address, under the data key, as that of notifications; null for a node of the previous
  -- version, which takes no pulls.
  ALTER TABLE nodes ADD COLUMN address_signature text;
  `,
  `
  -- Whether an instance may answer a push with replies.
  ALTER TABLE instances ADD COLUMN replies smallint NOT NULL DEFAULT 0;
  `,
  `
  -- How long an attempt may take. runtime: the agent runtime at the address, when pushes have the shape that it
  -- expects. Its name and its options as JSON, encrypted.
  ALTER TABLE instances ADD COLUMN timeout_s integer NOT NULL DEFAULT 5;
  ALTER TABLE instances ADD COLUMN runtime text;
  `,
  `
  -- What wakes a membership: all, targeted, people. A node of the previous version wakes it always.
  ALTER TABLE memberships ADD COLUMN wake text NOT NULL DEFAULT 'all';
  ${ACCEPT_MESSAGES_4}
  `,
  `
  -- catch_up: which of the messages that waited a machine gets after it was away: all, latest. max_age_s: how old a
  -- message may be; 0 for any age. has_rules is 1 for an instance with a membership that has a rule, or had one. A node
  -- of the previous version pushes everything.
  ALTER TABLE memberships ADD COLUMN catch_up text NOT NULL DEFAULT 'all';
  ALTER TABLE memberships ADD COLUMN max_age_s bigint NOT NULL DEFAULT 0;
  ALTER TABLE instances ADD COLUMN has_rules smallint NOT NULL DEFAULT 0;
  UPDATE instances SET has_rules = 1 WHERE instance_id IN (SELECT instance_id FROM memberships WHERE wake <> 'all');
  `,
  `
  -- How many steps of the schema a node knows; 0 for a node of the previous version. While there is such a node,
  -- nothing is written that only this version reads: see attempts_text.ts.
  ALTER TABLE nodes ADD COLUMN steps_known integer NOT NULL DEFAULT 0;
  ${RENEW_LEASE_3}
  `,
  `
  -- The trace that a message belongs to: see src/domain/trace_context.ts. A node of the previous version stores none.
  ALTER TABLE messages ADD COLUMN trace text;
  ${ACCEPT_MESSAGES_5}
  `,
  `
  -- When the health of an instance became what it is; null while nobody noted it. A node of the previous version
  -- changes the health and leaves this time as it was, until the health changes on a node of this version.
  ALTER TABLE instances ADD COLUMN health_since bigint;
  ${SETTLE_DELIVERIES_2}
  `,
  `
  -- Until when an instance exists unless it registers again; null: until it is deleted. Few instances have a lease, so
  -- the index of the leases is small. It is made while the column has no value in any row.
  ALTER TABLE instances ADD COLUMN lease_until bigint;
  CREATE INDEX instances_with_lease ON instances (lease_until) WHERE lease_until IS NOT NULL;
  `,
  `
  ${noteDeliveries(NOTED_STEPS)}
  ${SETTLE_DELIVERIES_3}
  `,
  SETTLE_DELIVERIES_4,
  `
  -- A jump of the clock that does not count: see src/domain/clock_hold.ts. A node of the previous version writes none of it.
  ALTER TABLE this_database ADD COLUMN held_ms bigint NOT NULL DEFAULT 0;
  ALTER TABLE this_database ADD COLUMN held_since bigint NOT NULL DEFAULT 0;
  ALTER TABLE this_database ADD COLUMN held_up_to text;
  `,
  `
  -- The token that made an invite; null for the invites of a node of the previous version, and before this step. Those end
  -- when a node of this version rotates their key.
  ALTER TABLE invites ADD COLUMN token_digest text COLLATE "C";
  `,
  `
  -- All earlier tokens and secrets that hold, as JSON: src/store/rows/earlier.ts. Null when there is at most one, which
  -- previous_digest and previous_secret hold. A rotation on a node of the previous version leaves the list as it was;
  -- then the list no longer begins with that one, and does not count.
  ALTER TABLE api_keys ADD COLUMN earlier_tokens text;
  ALTER TABLE instances ADD COLUMN earlier_secrets text;
  `,
  `
  -- The ids of the data keys that a node has, the one that encrypts first, with a space between; null for a node of the
  -- previous version.
  ALTER TABLE nodes ADD COLUMN key_ids text;
  `,
  `
  -- Each machine that redeems an invite has a key, so there may be a hundred thousand keys and invites. With these
  -- indexes nothing reads all of them: to find changed keys, a page, another lasting admin key, or the invites that can
  -- still be redeemed.
  CREATE INDEX api_keys_by_change ON api_keys (change_no);
  CREATE INDEX api_keys_by_age ON api_keys (created_at, key_id);
  CREATE INDEX api_keys_of_admins ON api_keys (key_id)
    WHERE revoked_at IS NULL AND expires_at IS NULL AND scopes LIKE '%"admin"%';
  CREATE INDEX invites_by_end ON invites (expires_at);
  CREATE INDEX invites_by_age ON invites (created_at, invite_id);
  `,
];
