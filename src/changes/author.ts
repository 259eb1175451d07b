import type { OwnerScope } from '../domain/access.ts';
import type { AuditSubject } from '../domain/audit.ts';
import type { AuditedStore } from '../store/store.ts';

/** Who makes a change. Each change takes its author first, so none can be made that the audit log does not know. */
export interface Author {
  /** Owns what the author registers; null without a key. */
  readonly key_id: string | null;
  /** The instances that the author may change; null: every one. */
  readonly owner_scope: OwnerScope | null;
  /**
   * The store for one change: it writes the change and its audit entry in one transaction.
   *
   * @param more what the request itself does not say
   */
  storeFor(more?: Partial<AuditSubject>): AuditedStore;
  /** Writes the audit entry of something that changes no row. */
  record(): Promise<void>;
}
