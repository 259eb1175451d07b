import {
  type AuditAction,
  type AuditDetails,
  type AuditEntry,
  type AuditHead,
  type AuditOutcome,
  type AuditTarget,
  canonicalJson,
  CHAIN_START,
  hashOf,
  type NewAuditEntry,
} from '../../domain/audit.ts';
import { decodeCursor, pageOf } from '../cursor.ts';
import type { AuditFilter, AuditStore } from '../store.ts';
import type { Database } from './database.ts';
import type { Sync } from './operations.ts';
import type { AuditLogTable } from './tables.ts';

const HEAD = 'SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1';

const APPEND = `
  INSERT INTO audit_log (seq, at, principal, address, action, target_kind, target_id, outcome, code, details, prev_hash, hash)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;

/** The file has one writer, and each call is within its transaction: entries follow one another whoever makes them. */
export function auditOperations(db: Database): Sync<AuditStore> {
  return {
    append(entry: NewAuditEntry, wall_ms: number) {
      const head = (db.prepare(HEAD).get() as AuditHead | undefined) ?? { seq: 0, hash: CHAIN_START };
      const { principal, address, action, target_kind, target_id, outcome, code, details } = entry;
      const next = {
        seq: head.seq + 1,
        at: new Date(wall_ms).toISOString(),
        principal,
        address,
        action,
        target_kind,
        target_id,
        outcome,
        code,
        details,
        prev_hash: head.hash,
      };
      const hash = hashOf(next);
      const what = [principal, address, action, target_kind, target_id, outcome, code, canonicalJson(details)];
      db.prepare(APPEND).run(next.seq, wall_ms, ...what, next.prev_hash, hash);
      return { seq: next.seq, hash };
    },
    list({ limit, cursor, newest_first, ...filter }: AuditFilter) {
      let query = db.build
        .selectFrom('audit_log')
        .selectAll()
        .orderBy('seq', newest_first ? 'desc' : 'asc')
        .limit(limit + 1);
      if (cursor !== undefined) {
        query = query.where('seq', newest_first ? '<' : '>', decodeCursor(cursor, ['number'])[0] as number);
      }
      if (filter.action !== undefined) query = query.where('action', '=', filter.action);
      if (filter.principal !== undefined) query = query.where('principal', '=', filter.principal);
      if (filter.instance_id !== undefined)
        query = query.where('target_kind', '=', 'instance').where('target_id', '=', filter.instance_id);
      if (filter.since_ms !== undefined) query = query.where('at', '>=', filter.since_ms);
      if (filter.until_ms !== undefined) query = query.where('at', '<', filter.until_ms);
      return pageOf(db.all(query), limit, (row) => [row.seq], entryOf);
    },
  };
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
