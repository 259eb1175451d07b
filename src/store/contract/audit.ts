import type { AuditAction, AuditEntry, AuditHead, AuditSubject, NewAuditEntry } from '../../domain/audit.ts';
import type { PageRequest } from './page.ts';
import type { SearchPage } from './search.ts';

export interface AuditFilter extends PageRequest {
  /** True: the newest entry is first. False: the oldest entry is first. */
  newest_first: boolean;
  action?: AuditAction | undefined;
  /** A key_id, or another value of `AuditSubject.principal`. */
  principal?: string | undefined;
  instance_id?: string | undefined;
  since_ms?: number | undefined;
  until_ms?: number | undefined;
}

/**
 * Entries never change. Entries are removed only from the beginning of the log, and a new entry records each removal.
 */
export interface AuditStore {
  append(entry: NewAuditEntry, wall_ms: number): Promise<AuditHead>;
  /**
   * Reads at most `rows_max` entries when no index has exactly the entries of the filter. When the call stops at this
   * limit, `searched_to` is the time of the next entry, and `next_cursor` continues with that entry.
   */
  list(filter: AuditFilter, rows_max: number): Promise<SearchPage<AuditEntry>>;
  /**
   * Removes at most `limit` entries from the beginning of the log, all written before `before_ms`, and adds an entry
   * that records the removal. Because each removal adds an entry, removals must be rare: the call removes nothing while
   * the first entry is less than a day older than `before_ms`. Returns how many entries it removed.
   *
   * An entry with a time after `future_ms` has the time of a wrong clock. The call removes it together with the first
   * old entry that follows it in the log, and does not count it against `limit`.
   */
  prune(times: { before_ms: number; future_ms: number }, limit: number, wall_ms: number): Promise<number>;
}

/** The principal and the time of a change. The transaction of the change writes them into the audit log. */
export interface Audited {
  subject: AuditSubject;
  wall_ms: number;
}
