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
} from '../domain/audit.ts';
import type { AuditLogTable } from './tables.ts';

/** The row of an entry that follows the last one. */
export function entryAfter(head: AuditHead, entry: NewAuditEntry, wall_ms: number): AuditLogTable {
  const { principal, address, action, target_kind, target_id, outcome, code, details } = entry;
  const subject = { principal, address, action, target_kind, target_id, outcome, code };
  const [seq, prev_hash] = [head.seq + 1, head.hash];
  const hash = hashOf({ seq, at: new Date(wall_ms).toISOString(), ...subject, details, prev_hash });
  return { seq, at: wall_ms, ...subject, details: canonicalJson(details), prev_hash, hash };
}

/** As it stands there: whether it is whole is for the chain to say. */
export function entryOf({ at, ...row }: AuditLogTable): AuditEntry {
  return {
    ...row,
    at: timeOf(at),
    action: row.action as AuditAction,
    target_kind: row.target_kind as AuditTarget,
    outcome: row.outcome as AuditOutcome,
    details: detailsOf(row.details),
  };
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
