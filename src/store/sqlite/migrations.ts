/**
 * The schema, as the steps that made it; docs/schema/sqlite.sql shows the result. `PRAGMA user_version` counts the
 * steps that a file has taken. The SQL of a released step is never edited. Booleans are 0 and 1, lists and objects are
 * JSON text, times are milliseconds since the epoch. A message is TEXT. JSON text contains no NUL, so SQLite keeps
 * every byte, and passing a string between threads costs less than passing a buffer. The attempts of a delivery are in
 * its row, so a settlement writes one row.
 *
 * Numbers: a message takes `message_no`, and its deliveries take the numbers after it. So the deliveries of a message,
 * or of the messages of a meeting, are found without an index. An id is the tag of the data file, followed by such a
 * number.
 *
 * Every index of `deliveries` costs one more write for every delivery that it contains, so there are only five indexes.
 * The first three contain pending deliveries only, so a long history does not enlarge them. What each index is for:
 *
 *   deliveries_in_lane            the next page of a lane, the lanes with a pending delivery, what expires, counts
 *   deliveries_aside              which deliveries aside are due, and when the next one is due
 *   deliveries_aside_in_meeting   counts and drops: an instance may have a million deliveries aside in other meetings
 *   deliveries_failed             recovery: the deliveries that failed since a time
 *   deliveries_of_instance        the list of an instance, newest first
 *
 * The other indexes:
 *
 *   memberships_of_instance             deleting an instance
 *   memberships_present_of_instance     how many meetings an instance is in
 *   instances_of_owner                  the instances of a key, and their deliveries
 *   instances_with_lease                the subscriptions whose lease has ended
 *   audit_log_of_principal, _of_target  the entries of a key, or of an instance
 *   sessions_of_key                     the sessions of a key
 *   api_keys_by_change, _by_age         the keys that changed, the pages of all keys
 *   api_keys_of_admins                  whether another admin key exists that never expires
 *   invites_by_end, _by_age             the invites that can still be redeemed, the pages of all invites
 */
export const MIGRATIONS: readonly string[] = [
  `
  CREATE TABLE instances (
    instance_id TEXT PRIMARY KEY,
    instance_name TEXT NOT NULL,
    agent_ids TEXT NOT NULL,
    webhook_url TEXT NOT NULL,
    webhook_headers TEXT NOT NULL,
    webhook_secret TEXT NOT NULL,
    previous_secret TEXT,
    previous_secret_until INTEGER,
    success_statuses TEXT NOT NULL,
    webhook_enabled INTEGER NOT NULL,
    is_active INTEGER NOT NULL,
    consecutive_failures INTEGER NOT NULL DEFAULT 0,
    last_success_at INTEGER,
    last_failure TEXT,
    backoff_step INTEGER NOT NULL DEFAULT 0,
    backoff_until INTEGER,
    last_seen_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE meetings (
    meeting_id TEXT PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_activity_at INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE memberships (
    meeting_id TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    agent_ids TEXT NOT NULL,
    joined_at INTEGER NOT NULL,
    left_at INTEGER,
    PRIMARY KEY (meeting_id, instance_id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX memberships_of_instance ON memberships (instance_id);

  -- One row. Every message_id and delivery_id of this file contains the tag. A write of touches shows whether the
  -- file can be written.
  CREATE TABLE this_file (tag TEXT NOT NULL, touches INTEGER NOT NULL DEFAULT 0) STRICT;

  -- message is the sender's own JSON text, to the byte. message_id is made of message_no. The next numbers are those of
  -- its deliveries, which are found without an index of their own.
  CREATE TABLE messages (
    message_no INTEGER PRIMARY KEY,
    meeting_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    deliveries_queued INTEGER NOT NULL,
    target_agents TEXT,
    timestamp TEXT NOT NULL,
    message TEXT NOT NULL,
    UNIQUE (meeting_id, seq)
  ) STRICT;

  -- delivery_no rises in the order of acceptance. Every delivery is written to every index here, so there are few.
  CREATE TABLE deliveries (
    delivery_no INTEGER PRIMARY KEY,
    message_no INTEGER NOT NULL,
    meeting_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    instance_id TEXT NOT NULL,
    target_agents TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    reason TEXT,
    aside INTEGER NOT NULL DEFAULT 0,
    attempt_count INTEGER NOT NULL DEFAULT 0,
    answered_badly INTEGER NOT NULL DEFAULT 0,
    attempts TEXT NOT NULL DEFAULT '[]',
    next_attempt_at INTEGER,
    expires_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    settled_at INTEGER
  ) STRICT;
  CREATE INDEX deliveries_in_lane ON deliveries (instance_id, meeting_id, seq) WHERE state = 'pending' AND aside = 0;
  CREATE INDEX deliveries_aside ON deliveries (instance_id, next_attempt_at) WHERE state = 'pending' AND aside = 1;
  CREATE INDEX deliveries_failed ON deliveries (instance_id, settled_at) WHERE state = 'failed';
  CREATE INDEX deliveries_of_instance ON deliveries (instance_id, delivery_no);

  CREATE TABLE idempotency_keys (
    id INTEGER PRIMARY KEY,
    meeting_id TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    result TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (meeting_id, key)
  ) STRICT;
  `,
  `
  -- The data keys that secrets are encrypted under: one, or two while the key is changed. check_value is a known text,
  -- encrypted: it shows whether a key is the right one.
  CREATE TABLE encryption_keys (
    key_id TEXT PRIMARY KEY,
    check_value TEXT NOT NULL,
    created_at INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  -- 1 in a file that once contained secrets in plain text and is not rewritten yet. A new file has no row here yet.
  ALTER TABLE this_file ADD COLUMN plain_text_left INTEGER NOT NULL DEFAULT 0;
  UPDATE this_file SET plain_text_left = 1;
  `,
  `
  -- digest is the SHA-256 of the token; the token is not stored. change_no rises with every change of any key.
  CREATE TABLE api_keys (
    key_id TEXT PRIMARY KEY,
    name TEXT,
    scopes TEXT NOT NULL,
    meeting_ids TEXT,
    instance_id TEXT,
    digest TEXT NOT NULL,
    previous_digest TEXT,
    previous_until INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER,
    change_no INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  -- An id can be registered again after its instance was deleted. Deliveries of the deleted instance have numbers below
  -- first_no, and the new instance gets none of them.
  ALTER TABLE instances ADD COLUMN owner_key_id TEXT;
  ALTER TABLE instances ADD COLUMN first_no INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX instances_of_owner ON instances (owner_key_id) WHERE owner_key_id IS NOT NULL;
  `,
  `
  -- A trigger counts instances: to count a hundred thousand rows for each new one would take too long.
  ALTER TABLE this_file ADD COLUMN instance_count INTEGER NOT NULL DEFAULT 0;
  UPDATE this_file SET instance_count = (SELECT count(*) FROM instances);
  CREATE TRIGGER instance_added AFTER INSERT ON instances BEGIN
    UPDATE this_file SET instance_count = instance_count + 1;
  END;
  CREATE TRIGGER instance_removed AFTER DELETE ON instances BEGIN
    UPDATE this_file SET instance_count = instance_count - 1;
  END;
  CREATE INDEX memberships_present_of_instance ON memberships (instance_id) WHERE left_at IS NULL;
  `,
  `
  -- details is JSON. hash is the SHA-256 of prev_hash and the rest of the row, as src/domain/audit.ts describes.
  CREATE TABLE audit_log (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    principal TEXT NOT NULL,
    address TEXT,
    action TEXT NOT NULL,
    target_kind TEXT NOT NULL,
    target_id TEXT,
    outcome TEXT NOT NULL,
    code TEXT,
    details TEXT NOT NULL,
    prev_hash TEXT NOT NULL,
    hash TEXT NOT NULL
  ) STRICT;
  CREATE INDEX audit_log_of_principal ON audit_log (principal, seq);
  CREATE INDEX audit_log_of_target ON audit_log (target_kind, target_id, seq);
  CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE ON audit_log BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
  END;
  CREATE TRIGGER audit_log_is_not_removed BEFORE DELETE ON audit_log BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
  END;
  -- INSERT OR REPLACE would remove a row, and the trigger above would not run.
  CREATE TRIGGER audit_log_grows_at_its_end BEFORE INSERT ON audit_log
  WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM audit_log) BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
  END;
  `,
  `
  -- digest is the SHA-256 of the token in the cookie; the token is not stored.
  CREATE TABLE sessions (
    digest TEXT PRIMARY KEY,
    key_id TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX sessions_of_key ON sessions (key_id, created_at);
  `,
  `
  -- Which instance hosts an agent. Without this table, a search would read the list of every instance.
  CREATE TABLE instance_agents (
    agent_id TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    PRIMARY KEY (agent_id, instance_id)
  ) STRICT, WITHOUT ROWID;
  INSERT INTO instance_agents SELECT DISTINCT value, instance_id FROM instances, json_each(agent_ids);
  CREATE TRIGGER agents_added AFTER INSERT ON instances BEGIN
    INSERT INTO instance_agents SELECT DISTINCT value, NEW.instance_id FROM json_each(NEW.agent_ids);
  END;
  CREATE TRIGGER agents_changed AFTER UPDATE OF agent_ids ON instances WHEN NEW.agent_ids <> OLD.agent_ids BEGIN
    DELETE FROM instance_agents
    WHERE instance_id = OLD.instance_id AND agent_id IN (SELECT value FROM json_each(OLD.agent_ids));
    INSERT INTO instance_agents SELECT DISTINCT value, NEW.instance_id FROM json_each(NEW.agent_ids);
  END;
  CREATE TRIGGER agents_removed AFTER DELETE ON instances BEGIN
    DELETE FROM instance_agents
    WHERE instance_id = OLD.instance_id AND agent_id IN (SELECT value FROM json_each(OLD.agent_ids));
  END;

  -- The length of the list, counted when the list is written: a page of meetings shows how many agents each meeting has.
  ALTER TABLE memberships ADD COLUMN agent_count INTEGER NOT NULL DEFAULT 0;
  UPDATE memberships SET agent_count = json_array_length(agent_ids);
  CREATE TRIGGER membership_added AFTER INSERT ON memberships BEGIN
    UPDATE memberships SET agent_count = json_array_length(NEW.agent_ids)
    WHERE meeting_id = NEW.meeting_id AND instance_id = NEW.instance_id;
  END;
  CREATE TRIGGER membership_changed AFTER UPDATE OF agent_ids ON memberships BEGIN
    UPDATE memberships SET agent_count = json_array_length(NEW.agent_ids)
    WHERE meeting_id = NEW.meeting_id AND instance_id = NEW.instance_id;
  END;
  `,
  `
  -- Entries at the beginning may be removed when the last entry says which ones: see removalOf.
  DROP TRIGGER audit_log_is_not_removed;
  CREATE TRIGGER audit_log_is_not_removed BEFORE DELETE ON audit_log
  WHEN NOT (SELECT action = 'audit.prune' AND json_extract(details, '$.removed_to') >= OLD.seq FROM audit_log ORDER BY seq DESC LIMIT 1) BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
  END;
  `,
  `
  -- From here on a session needs the digest of a value that only the page knows, and the digest of the token that began
  -- it. Earlier sessions have neither, so they end.
  DELETE FROM sessions;
  ALTER TABLE sessions ADD COLUMN csrf_digest TEXT NOT NULL DEFAULT '';
  ALTER TABLE sessions ADD COLUMN token_digest TEXT;
  ALTER TABLE sessions ADD COLUMN node_id TEXT;
  `,
  `
  -- The last time at which the service is known to have run. A clock that is far ahead of it at a start is not trusted.
  ALTER TABLE this_file ADD COLUMN ran_until INTEGER;
  `,
  `
  -- One-time links. An invite stores only the digest of its secret.
  CREATE TABLE invites (
    invite_id TEXT PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    created_by TEXT,
    instance_id TEXT NOT NULL,
    meeting_ids TEXT NOT NULL,
    agent_ids TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    redeemed_at INTEGER,
    key_id TEXT,
    revoked_at INTEGER
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- Who says a message and what it answers. in_reply_to is a message_no: the message itself may be gone.
  ALTER TABLE messages ADD COLUMN from_agent TEXT;
  ALTER TABLE messages ADD COLUMN in_reply_to INTEGER;
  ALTER TABLE messages ADD COLUMN hops INTEGER NOT NULL DEFAULT 0;
  `,
  `
  -- A machine can pull instead of being pushed to. The columns say what is known of it while it pulls. With PostgreSQL,
  -- connected_epoch is the epoch of its partition at that time. Here it is a number that each opening of the file has
  -- for itself, so a machine that was connected before is no longer connected.
  ALTER TABLE instances ADD COLUMN transport TEXT NOT NULL DEFAULT 'webhook';
  ALTER TABLE instances ADD COLUMN ack_timeout_s INTEGER NOT NULL DEFAULT 30;
  ALTER TABLE instances ADD COLUMN connected_since INTEGER;
  ALTER TABLE instances ADD COLUMN connected_address TEXT;
  ALTER TABLE instances ADD COLUMN connected_client TEXT;
  ALTER TABLE instances ADD COLUMN connected_epoch INTEGER;
  `,
  `
  -- A table beside meetings, because few meetings have a row here, and every node holds all these rows in memory. Null:
  -- the default of the service.
  CREATE TABLE meeting_settings (
    meeting_id TEXT PRIMARY KEY,
    paused INTEGER NOT NULL,
    hop_limit INTEGER,
    pair_limit INTEGER,
    pair_window_s INTEGER,
    updated_at INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- Whether an instance may answer a push with replies.
  ALTER TABLE instances ADD COLUMN replies INTEGER NOT NULL DEFAULT 0;
  `,
  `
  -- How long an attempt may take. runtime: the agent runtime at the address, when pushes have the shape that it
  -- expects. Its name and its options as JSON, encrypted.
  ALTER TABLE instances ADD COLUMN timeout_s INTEGER NOT NULL DEFAULT 5;
  ALTER TABLE instances ADD COLUMN runtime TEXT;
  `,
  `
  -- What wakes a membership: all, targeted, people.
  ALTER TABLE memberships ADD COLUMN wake TEXT NOT NULL DEFAULT 'all';
  `,
  `
  -- catch_up: which of the messages that waited a machine gets after it was away: all, latest. max_age_s: how old a
  -- message may be; 0 for any age. has_rules is 1 for an instance with a membership that has a rule, or had one.
  ALTER TABLE memberships ADD COLUMN catch_up TEXT NOT NULL DEFAULT 'all';
  ALTER TABLE memberships ADD COLUMN max_age_s INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE instances ADD COLUMN has_rules INTEGER NOT NULL DEFAULT 0;
  UPDATE instances SET has_rules = 1 WHERE instance_id IN (SELECT instance_id FROM memberships WHERE wake <> 'all');
  `,
  `
  -- The trace that a message belongs to: see src/domain/trace_context.ts.
  ALTER TABLE messages ADD COLUMN trace TEXT;
  `,
  `
  -- When the health of an instance became what it is; null while nobody noted it.
  ALTER TABLE instances ADD COLUMN health_since INTEGER;
  `,
  `
  -- Until when an instance exists unless it registers again; null: until it is deleted. Few instances have a lease, so
  -- the index of the leases is small.
  ALTER TABLE instances ADD COLUMN lease_until INTEGER;
  CREATE INDEX instances_with_lease ON instances (lease_until) WHERE lease_until IS NOT NULL;
  `,
  `
  -- A jump of the clock that does not count: see src/domain/clock_hold.ts.
  ALTER TABLE this_file ADD COLUMN held_ms INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE this_file ADD COLUMN held_since INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE this_file ADD COLUMN held_up_to TEXT;
  `,
  `
  CREATE INDEX deliveries_aside_in_meeting ON deliveries (instance_id, meeting_id) WHERE state = 'pending' AND aside = 1;
  `,
  `
  -- The token that made an invite; null for the invites before this step, which end when their key is rotated.
  ALTER TABLE invites ADD COLUMN token_digest TEXT;
  `,
  `
  -- All earlier tokens and secrets that hold, as JSON: src/store/rows/earlier.ts. Null when there is at most one, which
  -- previous_digest and previous_secret hold.
  ALTER TABLE api_keys ADD COLUMN earlier_tokens TEXT;
  ALTER TABLE instances ADD COLUMN earlier_secrets TEXT;
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
