import { sql } from 'kysely';
import type { Database } from './database.ts';

/** The reasons for which deliveries to the instance `i` may wait. */
export function waitsOf(db: Database, now_ms: number) {
  return [
    sql<number | null>`i.backoff_until > ${now_ms}`.as('backing_off'),
    sql<number | null>`i.transport = 'pull' AND i.connected_epoch IS NOT ${db.term}`.as('unconnected'),
  ] as const;
}
