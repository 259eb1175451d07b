import { type QueuedRow, withDamagedExpiry } from '../rows/deliveries.ts';
import { type Session, statement } from './database.ts';

const BOUND_EXPIRY = statement(`
  UPDATE deliveries SET expires_at = ${Number.MAX_SAFE_INTEGER}
  WHERE delivery_no = ANY ($delivery_nos::bigint[]) AND expires_at > ${Number.MAX_SAFE_INTEGER}`);

/** Repairs the rows of a page that have a damaged `expires_at`: each gets the number that the read returned for it. */
export async function boundExpiry(session: Session, rows: readonly QueuedRow[]): Promise<void> {
  const delivery_nos = withDamagedExpiry(rows);
  if (delivery_nos.length > 0) await session.run(BOUND_EXPIRY, { delivery_nos });
}
