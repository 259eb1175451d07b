/**
 * The contract of the store: rows in, rows out. The store knows nothing of HTTP and decides nothing about deliveries.
 * In this folder, "engine" alone means the storage engine: SQLite or PostgreSQL.
 *
 * Each method is one transaction, or shares a transaction with others. When its promise resolves, its writes are on
 * disk. Arguments and results are plain data, so that an engine may live in another thread or behind a socket. Times
 * are milliseconds since the epoch. `next_attempt_at`, `backoff_until` and `now_ms` are on the steady clock of the node
 * (see src/delivery/clock.ts). `shared_ms` and the `expires_at` of messages and deliveries are on the clock that the
 * nodes share (see src/delivery/expiry.ts). Other times are on the wall clock, unless their comment names another clock.
 *
 * Arguments and results contain the secrets of instances in plain text. The engine encrypts them before it stores them.
 *
 * `owner_scope` says which instances the caller may change, and `visibility` what the caller may read. Absent or null,
 * it allows everything. Both are conditions of the SQL statement itself, so a row that the caller may not see is not
 * found. Neither the result nor the duration of the call shows whether a row is hidden or missing.
 *
 * Methods reject with `Problem` for a mistake of the caller, and with `StoreError` when the storage itself failed.
 */
import type { Lingers } from './linger.ts';
import type { InstanceStore } from './contract/instances.ts';
import type { InviteStore } from './contract/invites.ts';
import type { MeetingStore } from './contract/meetings.ts';
import type { MessageStore } from './contract/messages.ts';
import type { DeliveryStore } from './contract/deliveries.ts';
import type { EncryptionStore } from './contract/encryption.ts';
import type { ApiKeyStore } from './contract/api_keys.ts';
import type { SessionStore } from './contract/sessions.ts';
import type { AuditStore, Audited } from './contract/audit.ts';
import type { Change, ClusterStore } from './contract/cluster.ts';
import type { BackupStore } from './contract/backups.ts';
import type { FileStore } from './contract/file.ts';
import type { Stall } from './contract/stall.ts';

/** The parts of the store whose changes are audited. */
export type AuditedStore = Pick<
  Store,
  'instances' | 'meetings' | 'deliveries' | 'encryption' | 'api_keys' | 'invites' | 'sessions'
>;

export interface Store {
  /** Says when the storage stalls. Absent for an engine that has no thread. */
  stall?: Stall;
  /** The data file. Absent for an engine that gives free space back by itself. */
  file?: FileStore;
  /** Null for an engine that only one process can use at a time. */
  cluster: ClusterStore | null;
  /**
   * Sets the listener for changes by other nodes. Call it once, before this node requests its first lease. Without a
   * cluster nothing calls the listener.
   */
  onChange(listener: (change: Change) => void): void;
  audit: AuditStore;
  /** Absent for an engine that has its own tools for backups. */
  backups?: BackupStore;
  /** How long batches should linger; absent in an engine that gains nothing from larger batches. */
  lingers?: Lingers;
  /**
   * The parts of the store for one audited change. A call that changes something also writes an entry into the audit
   * log, in the same transaction.
   */
  audited(audited: Audited): AuditedStore;
  instances: InstanceStore;
  meetings: MeetingStore;
  messages: MessageStore;
  deliveries: DeliveryStore;
  encryption: EncryptionStore;
  api_keys: ApiKeyStore;
  invites: InviteStore;
  sessions: SessionStore;
  /** Resolves when a write has reached the disk. Rejects with `StoreError`, for example when the disk is full. */
  ping(): Promise<void>;
  close(): Promise<void>;
}
