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
import { rowsOfPage } from './page.ts';
import type { AuditStore } from '../contract/audit.ts';
import { AUDIT_COLUMNS } from './columns.ts';
import { build, type Session, statement } from './database.ts';

/** Locks the row until the end of the transaction, so that no two nodes add entries at the same time. */
const HEAD = statement('SELECT seq, hash FROM audit_head FOR UPDATE');

const APPEND = statement(`
  INSERT INTO audit_log (seq, at, principal, address, action, target_kind, target_id, outcome, code, details, prev_hash, hash)
  VALUES ($seq, $at, $principal, $address, $action, $target_kind, $target_id, $outcome, $code, $details, $prev_hash, $hash)`);

const MOVE_HEAD = statement(`UPDATE audit_head SET seq = $seq, hash = $hash`);

const OLDEST = statement('SELECT seq, at, hash FROM audit_log WHERE at <= $future_ms ORDER BY seq LIMIT $limit');
const COUNT = statement('SELECT count(*) AS removed FROM audit_log WHERE seq <= $removed_to');
const REMOVE = statement('DELETE FROM audit_log WHERE seq <= $removed_to');

const START = statement(`
  INSERT INTO audit_head (seq, hash) VALUES (0, '${CHAIN_START}') ON CONFLICT DO NOTHING`);

export function auditOperations(session: Session): AuditStore {
  async function head(): Promise<AuditHead> {
    const found = await session.one<AuditHead>(HEAD);
    if (found !== undefined) return found;
    await session.run(START);
    return (await session.one<AuditHead>(HEAD)) as AuditHead;
  }

  async function append(entry: NewAuditEntry, wall_ms: number): Promise<AuditHead> {
    const row = entryAfter(await head(), entry, wall_ms);
    const { seq, hash } = row;
    await session.run(APPEND, { ...row });
    await session.run(MOVE_HEAD, { seq, hash });
    return { seq, hash };
  }

  return {
    append,
    async prune({ before_ms, future_ms }, limit, wall_ms) {
      // Waits for the lock of `HEAD`, so that the read below sees no entries that another node has just removed.
      await head();
      const last = lastToRemove(await session.all<OldEntry>(OLDEST, { future_ms, limit }), before_ms);
      if (last === null) return 0;
      const { removed } = (await session.one<{ removed: number }>(COUNT, { removed_to: last.seq }))!;
      await append(removalOf(last, removed), wall_ms);
      return session.run(REMOVE, { removed_to: last.seq });
    },
    async list(filter, rows_max) {
      const { limit, cursor, newest_first } = filter;
      const { indexed, others } = auditConditions(filter);
      let rows = build.selectFrom('audit_log').orderBy('seq', newest_first ? 'desc' : 'asc');
      if (cursor !== undefined) {
        rows = rows.where('seq', newest_first ? '<' : '>', decodeCursor(cursor, ['number'])[0] as number);
      }
      for (const condition of indexed) rows = rows.where(condition);
      const next = rows.select(['seq', 'at']).limit(1).offset(rows_max);
      const [beyond] = others.length === 0 ? [] : await session.built(next);
      const row_bytes = sql<number>`${sql.raw(AUDIT_BYTES)}`.as('row_bytes');
      let query = rows
        .select(AUDIT_COLUMNS)
        .select(row_bytes)
        .limit(limit + 1);
      if (beyond !== undefined) query = query.where('seq', newest_first ? '>' : '<', beyond.seq);
      for (const condition of others) query = query.where(condition);
      const found = await rowsOfPage(session, query, newest_first ? 'seq DESC' : 'seq');
      const page = pageOf(found, limit, (row) => [row.seq], entryOf);
      return auditPage(page, beyond, newest_first);
    },
  };
}
