import { type AuditHead, CHAIN_START, type NewAuditEntry } from '../../domain/audit.ts';
import { sql } from 'kysely';
import {
  AUDIT_BYTES,
  auditConditions,
  auditPage,
  entryAfter,
  entryOf,
  lastToRemove,
  type OldEntry,
  removalOf,
} from '../rows/audit.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import type { AuditFilter, AuditStore } from '../contract/audit.ts';
import type { Database } from './database.ts';
import type { Sync } from './sync.ts';

const HEAD = 'SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1';

const APPEND = `
  INSERT INTO audit_log (seq, at, principal, address, action, target_kind, target_id, outcome, code, details, prev_hash, hash)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;

const OLDEST = 'SELECT seq, at, hash FROM audit_log WHERE at <= ? ORDER BY seq LIMIT ?';
const COUNT = 'SELECT count(*) AS removed FROM audit_log WHERE seq <= ?';
const REMOVE = 'DELETE FROM audit_log WHERE seq <= ?';

/**
 * The file has one writer, and each call runs in one of its transactions. So no two entries are added at the same time.
 */
export function auditOperations(db: Database): Sync<AuditStore> {
  function append(entry: NewAuditEntry, wall_ms: number): AuditHead {
    const head = (db.prepare(HEAD).get() as AuditHead | undefined) ?? { seq: 0, hash: CHAIN_START };
    const { seq, hash, ...next } = entryAfter(head, entry, wall_ms);
    db.prepare(APPEND).run(
      seq,
      wall_ms,
      next.principal,
      next.address,
      next.action,
      next.target_kind,
      next.target_id,
      next.outcome,
      next.code,
      next.details,
      next.prev_hash,
      hash,
    );
    return { seq, hash };
  }

  return {
    append,
    prune({ before_ms, future_ms }, limit: number, wall_ms: number) {
      const last = lastToRemove(db.prepare(OLDEST).all(future_ms, limit) as unknown as OldEntry[], before_ms);
      if (last === null) return 0;
      const { removed } = db.prepare(COUNT).get(last.seq) as { removed: number };
      // Appends first: a trigger permits only the removal that the last entry names.
      append(removalOf(last, removed), wall_ms);
      db.prepare(REMOVE).run(last.seq);
      return removed;
    },
    list(filter: AuditFilter, rows_max: number) {
      const { limit, cursor, newest_first } = filter;
      const { indexed, others } = auditConditions(filter);
      let rows = db.build.selectFrom('audit_log').orderBy('seq', newest_first ? 'desc' : 'asc');
      if (cursor !== undefined) {
        rows = rows.where('seq', newest_first ? '<' : '>', decodeCursor(cursor, ['number'])[0] as number);
      }
      for (const condition of indexed) rows = rows.where(condition);
      const next = rows.select(['seq', 'at']).limit(1).offset(rows_max);
      const [beyond] = others.length === 0 ? [] : db.all(next);
      const row_bytes = sql<number>`${sql.raw(AUDIT_BYTES)}`.as('row_bytes');
      let query = rows
        .selectAll()
        .select(row_bytes)
        .limit(limit + 1);
      if (beyond !== undefined) query = query.where('seq', newest_first ? '>' : '<', beyond.seq);
      for (const condition of others) query = query.where(condition);
      const page = pageOf(db.each(query), limit, (row) => [row.seq], entryOf);
      return auditPage(page, beyond, newest_first);
    },
  };
}
