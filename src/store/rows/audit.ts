/** Entries of the audit log as both engines write and read them. */
import {
  type AuditAction,
  type AuditDetails,
  type AuditEntry,
  type AuditHead,
  type AuditOutcome,
  type AuditTarget,
  canonicalJson,
  hashOf,
  type NewAuditEntry,
  removalEntry,
} from '../../domain/audit.ts';
import { type RawBuilder, sql } from 'kysely';
import type { AuditFilter } from '../contract/audit.ts';
import type { Page } from '../contract/page.ts';
import type { SearchPage } from '../contract/search.ts';
import { encodeCursor } from './page.ts';
import type { AuditLogTable } from './tables.ts';

/** The row of a new entry, which follows the last entry. */
export function entryAfter(head: AuditHead, entry: NewAuditEntry, wall_ms: number): AuditLogTable {
  const { principal, address, action, target_kind, target_id, outcome, code, details } = entry;
  const subject = { principal, address, action, target_kind, target_id, outcome, code };
  const [seq, prev_hash] = [head.seq + 1, head.hash];
  const hash = hashOf({ seq, at: new Date(wall_ms).toISOString(), ...subject, details, prev_hash });
  return { seq, at: wall_ms, ...subject, details: canonicalJson(details), prev_hash, hash };
}

/** The bytes of the long column of an entry. */
export const AUDIT_BYTES = 'octet_length(details)';

/** Entries are removed only about once a day, because each removal adds an entry. */
const REMOVED_EVERY_MS = 86_400_000;

/** An entry that `prune` may remove. */
export type OldEntry = Pick<AuditLogTable, 'seq' | 'at' | 'hash'>;

/**
 * The last entry that may be removed, with all entries before it; null when there is nothing to remove.
 *
 * @param oldest the first entries that are left, in the order of seq, without those that a wrong clock dated ahead: an
 * entry that precedes an old entry is old too
 * @param before_ms only entries that were written earlier may be removed
 */
export function lastToRemove(oldest: readonly OldEntry[], before_ms: number): OldEntry | null {
  const [first] = oldest;
  if (first === undefined || first.at >= before_ms - REMOVED_EVERY_MS) return null;
  const end = oldest.findIndex(({ at }) => at >= before_ms);
  return oldest.at(end === -1 ? -1 : end - 1)!;
}

/** The entry that records the removal of `removed` entries. */
export function removalOf({ seq, at, hash }: OldEntry, removed: number): NewAuditEntry {
  return removalEntry({ removed, removed_to: seq, removed_hash: hash, removed_until: timeOf(at) });
}

/** The entry as it is stored. Its values are not checked, because the chain of hashes shows every change to them. */
export function entryOf(row: AuditLogTable): AuditEntry {
  // Only these fields: the hash of an entry covers each field, and the row of a page has more columns.
  const { seq, principal, address, target_id, code, prev_hash, hash } = row;
  return {
    seq,
    at: timeOf(row.at),
    principal,
    address,
    action: row.action as AuditAction,
    target_kind: row.target_kind as AuditTarget,
    target_id,
    outcome: row.outcome as AuditOutcome,
    code,
    details: detailsOf(row.details),
    prev_hash,
    hash,
  };
}

/**
 * The conditions of a filter, for queries over `audit_log`. An index finds the entries of the first condition in
 * `indexed`, if there is one. No index has the others.
 */
export function auditConditions({ action, principal, instance_id, since_ms, until_ms }: AuditFilter): {
  indexed: RawBuilder<boolean>[];
  others: RawBuilder<boolean>[];
} {
  const keys: RawBuilder<boolean>[] = [];
  if (instance_id !== undefined) keys.push(sql`target_kind = 'instance' AND target_id = ${instance_id}`);
  if (principal !== undefined) keys.push(sql`principal = ${principal}`);
  const others = keys.splice(1);
  if (action !== undefined) others.push(sql`action = ${action}`);
  if (since_ms !== undefined) others.push(sql`at >= ${since_ms}`);
  if (until_ms !== undefined) others.push(sql`at < ${until_ms}`);
  return { indexed: keys, others };
}

/** The first entry that a call did not read. */
export type BeyondEntries = Pick<AuditLogTable, 'seq' | 'at'>;

/** @param page the entries of the filter among those that the call read */
export function auditPage(
  page: Page<AuditEntry>,
  beyond: BeyondEntries | undefined,
  newest_first: boolean,
): SearchPage<AuditEntry> {
  if (page.next_cursor !== null || beyond === undefined) return { ...page, searched_to: null };
  const before = newest_first ? beyond.seq + 1 : beyond.seq - 1;
  return { data: page.data, next_cursor: encodeCursor([before]), searched_to: beyond.at };
}

function timeOf(at: number): string {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? String(at) : time.toISOString();
}

function detailsOf(text: string): AuditDetails {
  try {
    return JSON.parse(text) as AuditDetails;
  } catch {
    return { unreadable: true };
  }
}
