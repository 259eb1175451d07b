import { sql } from 'kysely';
import { CONNECTED_EPOCH } from './instance_lists.ts';

const IS_UNCONNECTED = `i.transport = 'pull' AND (i.connected_epoch = ${CONNECTED_EPOCH}) IS NOT TRUE`;

/** The reasons for which deliveries to the instance `i` may wait. */
export function waitsOf(now_ms: number) {
  return [
    sql<number | null>`(i.backoff_until > ${now_ms})::int`.as('backing_off'),
    sql<number | null>`(${sql.raw(IS_UNCONNECTED)})::int`.as('unconnected'),
  ] as const;
}
