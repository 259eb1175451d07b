-- What the migrations make. Written by `npm run generate`; `test/store/schema.test.ts` holds it to them.

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
, earlier_tokens TEXT) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_by_age ON api_keys (created_at, key_id);

CREATE INDEX api_keys_by_change ON api_keys (change_no);

CREATE INDEX api_keys_of_admins ON api_keys (key_id)
  WHERE revoked_at IS NULL AND expires_at IS NULL AND scopes LIKE '%"admin"%';

CREATE TRIGGER audit_log_grows_at_its_end BEFORE INSERT ON audit_log
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM audit_log) BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only');
END;

CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE ON audit_log BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only');
END;

CREATE TRIGGER audit_log_is_not_removed BEFORE DELETE ON audit_log
WHEN NOT (SELECT action = 'audit.prune' AND json_extract(details, '$.removed_to') >= OLD.seq FROM audit_log ORDER BY seq DESC LIMIT 1) BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only');
END;

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

CREATE INDEX deliveries_aside ON deliveries (instance_id, next_attempt_at) WHERE state = 'pending' AND aside = 1;

CREATE INDEX deliveries_aside_in_meeting ON deliveries (instance_id, meeting_id) WHERE state = 'pending' AND aside = 1;

CREATE INDEX deliveries_failed ON deliveries (instance_id, settled_at) WHERE state = 'failed';

CREATE INDEX deliveries_in_lane ON deliveries (instance_id, meeting_id, seq) WHERE state = 'pending' AND aside = 0;

CREATE INDEX deliveries_of_instance ON deliveries (instance_id, delivery_no);

CREATE TABLE encryption_keys (
  key_id TEXT PRIMARY KEY,
  check_value TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency_keys (
  id INTEGER PRIMARY KEY,
  meeting_id TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  result TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  UNIQUE (meeting_id, key)
) STRICT;

CREATE TABLE instance_agents (
  agent_id TEXT NOT NULL,
  instance_id TEXT NOT NULL,
  PRIMARY KEY (agent_id, instance_id)
) STRICT, WITHOUT ROWID;

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

CREATE TRIGGER instance_added AFTER INSERT ON instances BEGIN
  UPDATE this_file SET instance_count = instance_count + 1;
END;

CREATE TRIGGER instance_removed AFTER DELETE ON instances BEGIN
  UPDATE this_file SET instance_count = instance_count - 1;
END;

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
, owner_key_id TEXT, first_no INTEGER NOT NULL DEFAULT 0, transport TEXT NOT NULL DEFAULT 'webhook', ack_timeout_s INTEGER NOT NULL DEFAULT 30, connected_since INTEGER, connected_address TEXT, connected_client TEXT, connected_epoch INTEGER, replies INTEGER NOT NULL DEFAULT 0, timeout_s INTEGER NOT NULL DEFAULT 5, runtime TEXT, has_rules INTEGER NOT NULL DEFAULT 0, health_since INTEGER, lease_until INTEGER, earlier_secrets TEXT) STRICT, WITHOUT ROWID;

CREATE INDEX instances_of_owner ON instances (owner_key_id) WHERE owner_key_id IS NOT NULL;

CREATE INDEX instances_with_lease ON instances (lease_until) WHERE lease_until IS NOT NULL;

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
, token_digest TEXT) STRICT, WITHOUT ROWID;

CREATE INDEX invites_by_age ON invites (created_at, invite_id);

CREATE INDEX invites_by_end ON invites (expires_at);

CREATE TABLE meeting_settings (
  meeting_id TEXT PRIMARY KEY,
  paused INTEGER NOT NULL,
  hop_limit INTEGER,
  pair_limit INTEGER,
  pair_window_s INTEGER,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE meetings (
  meeting_id TEXT PRIMARY KEY,
  last_seq INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  last_activity_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER membership_added AFTER INSERT ON memberships BEGIN
  UPDATE memberships SET agent_count = json_array_length(NEW.agent_ids)
  WHERE meeting_id = NEW.meeting_id AND instance_id = NEW.instance_id;
END;

CREATE TRIGGER membership_changed AFTER UPDATE OF agent_ids ON memberships BEGIN
  UPDATE memberships SET agent_count = json_array_length(NEW.agent_ids)
  WHERE meeting_id = NEW.meeting_id AND instance_id = NEW.instance_id;
END;

CREATE TABLE memberships (
  meeting_id TEXT NOT NULL,
  instance_id TEXT NOT NULL,
  agent_ids TEXT NOT NULL,
  joined_at INTEGER NOT NULL,
  left_at INTEGER, agent_count INTEGER NOT NULL DEFAULT 0, wake TEXT NOT NULL DEFAULT 'all', catch_up TEXT NOT NULL DEFAULT 'all', max_age_s INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (meeting_id, instance_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX memberships_of_instance ON memberships (instance_id);

CREATE INDEX memberships_present_of_instance ON memberships (instance_id) WHERE left_at IS NULL;

CREATE TABLE messages (
  message_no INTEGER PRIMARY KEY,
  meeting_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  accepted_at INTEGER NOT NULL,
  deliveries_queued INTEGER NOT NULL,
  target_agents TEXT,
  timestamp TEXT NOT NULL,
  message TEXT NOT NULL, from_agent TEXT, in_reply_to INTEGER, hops INTEGER NOT NULL DEFAULT 0, trace TEXT,
  UNIQUE (meeting_id, seq)
) STRICT;

CREATE TABLE sessions (
  digest TEXT PRIMARY KEY,
  key_id TEXT,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
, csrf_digest TEXT NOT NULL DEFAULT '', token_digest TEXT, node_id TEXT) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_of_key ON sessions (key_id, created_at);

CREATE TABLE this_file (tag TEXT NOT NULL, touches INTEGER NOT NULL DEFAULT 0, plain_text_left INTEGER NOT NULL DEFAULT 0, instance_count INTEGER NOT NULL DEFAULT 0, ran_until INTEGER, held_ms INTEGER NOT NULL DEFAULT 0, held_since INTEGER NOT NULL DEFAULT 0, held_up_to TEXT) STRICT;
