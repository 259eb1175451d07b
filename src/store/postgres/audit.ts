import { type AuditHead, CHAIN_START, type NewAuditEntry } from '../../domain/audit.ts';
import { auditConditions, auditPage, entryAfter, entryOf, removalOf } from '../rows/audit.ts';
import { pageOf } from '../rows/page.ts';
import { keyOf } from './page.ts';
import type { AuditStore } from '../contract/audit.ts';
import type { AuditLogTable } from '../rows/tables.ts';
import { AUDIT_COLUMNS } from './columns.ts';
import { build, type Session, statement } from './database.ts';

/** Locks the row until the end of the transaction, so that no two nodes add entries at the same time. */
const HEAD = statement('SELECT seq, hash FROM audit_head FOR UPDATE');

const APPEND = statement(`
  INSERT INTO audit_log (seq, at, principal, address, action, target_kind, target_id, outcome, code, details, prev_hash, hash)
  VALUES ($seq, $at, $principal, $address, $action, $target_kind, $target_id, $outcome, $code, $details, $prev_hash, $hash)`);

const MOVE_HEAD = statement(`UPDATE audit_head SET seq = $seq, hash = $hash`);

const OLDEST = statement('SELECT seq, at, hash FROM audit_log ORDER BY seq LIMIT $limit');
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
    async prune(before_ms, limit, wall_ms) {
      // Waits for the lock of `HEAD`, so that the read below sees no entries that another node has just removed.
      await head();
      const oldest = await session.all<Pick<AuditLogTable, 'seq' | 'at' | 'hash'>>(OLDEST, { limit });
      const removal = removalOf(oldest, before_ms);
      if (removal === null) return 0;
      await append(removal.entry, wall_ms);
      await session.run(REMOVE, { removed_to: removal.removed_to });
      return removal.removed;
    },
    async list(filter, rows_max) {
      const { limit, cursor, newest_first } = filter;
      const { indexed, others } = auditConditions(filter);
      let rows = build.selectFrom('audit_log').orderBy('seq', newest_first ? 'desc' : 'asc');
      if (cursor !== undefined) {
        rows = rows.where('seq', newest_first ? '<' : '>', keyOf(cursor, ['number'])[0] as number);
      }
      for (const condition of indexed) rows = rows.where(condition);
      const next = rows.select(['seq', 'at']).limit(1).offset(rows_max);
      const [beyond] = others.length === 0 ? [] : await session.built(next);
      let query = rows.select(AUDIT_COLUMNS).limit(limit + 1);
      if (beyond !== undefined) query = query.where('seq', newest_first ? '>' : '<', beyond.seq);
      for (const condition of others) query = query.where(condition);
      const page = pageOf(await session.built(query), limit, (row) => [row.seq], entryOf);
      return auditPage(page, beyond, newest_first);
    },
  };
}
