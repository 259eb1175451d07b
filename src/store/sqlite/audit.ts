import { type AuditHead, CHAIN_START, type NewAuditEntry } from '../../domain/audit.ts';
import { auditConditions, auditPage, entryAfter, entryOf, removalOf } from '../rows/audit.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import type { AuditFilter, AuditStore } from '../contract/audit.ts';
import type { Database } from './database.ts';
import type { AuditLogTable } from '../rows/tables.ts';
import type { Sync } from './sync.ts';

const HEAD = 'SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1';

const APPEND = `
  INSERT INTO audit_log (seq, at, principal, address, action, target_kind, target_id, outcome, code, details, prev_hash, hash)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;

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
    prune(before_ms: number, limit: number, wall_ms: number) {
      const oldest = db.prepare('SELECT seq, at, hash FROM audit_log ORDER BY seq LIMIT ?').all(limit);
      const removal = removalOf(oldest as unknown as Pick<AuditLogTable, 'seq' | 'at' | 'hash'>[], before_ms);
      if (removal === null) return 0;
      // Appends first: a trigger permits only the removal that the last entry names.
      append(removal.entry, wall_ms);
      db.prepare('DELETE FROM audit_log WHERE seq <= ?').run(removal.removed_to);
      return removal.removed;
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
      let query = rows.selectAll().limit(limit + 1);
      if (beyond !== undefined) query = query.where('seq', newest_first ? '>' : '<', beyond.seq);
      for (const condition of others) query = query.where(condition);
      const page = pageOf(db.all(query), limit, (row) => [row.seq], entryOf);
      return auditPage(page, beyond, newest_first);
    },
  };
}
