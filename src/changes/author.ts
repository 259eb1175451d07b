import type { OwnerScope } from '../domain/access.ts';
import type { AuditSubject } from '../domain/audit.ts';
import type { AuditedStore } from '../store/store.ts';

/**
 * The author of a change. Each change takes its author as the first argument, so the audit log has the author of every
 * change.
 */
export interface Author {
  /** The key that owns the instances that the author registers; null without a key. */
  readonly key_id: string | null;
  /** The instances that the author may change; null: all instances. */
  readonly owner_scope: OwnerScope | null;
  /**
   * The store for one change: it writes the change and its audit entry in one transaction.
   *
   * @param more facts for the entry that are not in the request
   */
  storeFor(more?: Partial<AuditSubject>): AuditedStore;
  /**
   * Call it between two parts of a long change.
   *
   * @throws Problem when the author may do nothing any more, for example because the key was revoked
   */
  assertStanding(): void;
  /** Writes an audit entry for an action that changes no row, such as the start of a backup. */
  record(): Promise<void>;
}
