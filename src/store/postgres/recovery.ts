/**
 * Queues failed and cancelled deliveries of an instance again, and counts the messages that the instance missed while it
 * was switched off.
 */
import { MAY_QUEUE_AGAIN } from '../rows/deliveries.ts';
import type { DeliveryStore, Recovery } from '../contract/deliveries.ts';
import { membershipOf } from '../rows/meetings.ts';
import {
  messagesWithout,
  Missed,
  PRESENT,
  requeue,
  failedIn,
  RESET_BACKOFF,
  type WithoutRow,
} from '../rows/recovery.ts';
import type { MembershipsTable } from '../rows/tables.ts';
import { type Session, statement } from './database.ts';
import { QUEUED_AGAIN } from './pending/pending_deliveries.ts';
import { LAST_OF_MESSAGE } from './search.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';

/**
 * Finds the number that the instance took when it was registered. Deliveries with lower numbers are of an earlier
 * instance with this id. Nobody may queue them again, because the instance may have another owner now.
 */
const FIRST_OWNED = `SELECT first_no FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED}`;
const FIND_OWNED = statement(FIRST_OWNED);
const LOCK_OWNED = statement(`${FIRST_OWNED} FOR UPDATE`);

const CHOSEN = `
  SELECT delivery_no FROM deliveries
  WHERE delivery_no = ANY ($delivery_nos::bigint[]) AND instance_id = $instance_id AND ${MAY_QUEUE_AGAIN} AND delivery_no >= $first_no
  ORDER BY delivery_no LIMIT $limit`;

/**
 * @param may the condition under which `found` selects a delivery. When another transaction wrote a late result
 * meanwhile, PostgreSQL evaluates this condition again, but not the subquery `found`.
 */
const requeued = (found: string, may: string) =>
  statement(`${requeue(QUEUED_AGAIN)} ${may} AND delivery_no = ANY (ARRAY(${found}))`);
const counted = (found: string) => statement(`SELECT count(*) AS count FROM (${found}) found`);

/** A cancellation that comes just after the expiry of its delivery leaves a cancelled delivery with `failed_at`. */
const FAILED_IN = failedIn("failed_deliveries WHERE state = 'failed'", 'failed_at');
const OF_TIME = { requeue: requeued(FAILED_IN, "state = 'failed'"), count: counted(FAILED_IN) };
const OF_CHOSEN = { requeue: requeued(CHOSEN, MAY_QUEUE_AGAIN), count: counted(CHOSEN) };

export const RESET = statement(RESET_BACKOFF);
const FIND_PRESENT = statement(PRESENT);
const MESSAGES_WITHOUT = statement(messagesWithout(LAST_OF_MESSAGE));

export function recovery(
  session: Session,
  numberOf: (delivery_id: string) => number,
): Pick<DeliveryStore, 'recover' | 'countRecoverable' | 'countMissed'> {
  const selected = (of: Recovery) => {
    const { instance_id } = of;
    if ('since_ms' in of) {
      const { since_ms, until_ms } = of;
      return { statements: OF_TIME, values: { instance_id, since_ms, until_ms } };
    }
    return { statements: OF_CHOSEN, values: { instance_id, delivery_nos: of.delivery_ids.map(numberOf) } };
  };

  return {
    async recover(of, limit, now_ms, expires_at, owner_scope) {
      const { instance_id } = of;
      const found = await session.one<{ first_no: number }>(LOCK_OWNED, { instance_id, ...ownedBy(owner_scope) });
      if (found === undefined) return null;
      await session.run(RESET, { instance_id });
      const { statements, values: of_recovery } = selected(of);
      const values = { ...of_recovery, first_no: found.first_no };
      let left = limit;
      // Retention may remove some of the rows that a statement has found, and others may queue some of them again. Then
      // it changes fewer rows than its limit, although there are more.
      do {
        left -= await session.run(statements.requeue, { ...values, limit: left, now_ms, expires_at });
      } while (
        left > 0 &&
        (await session.one<{ count: number }>(statements.count, { ...values, limit: 1 }))!.count > 0
      );
      session.messages.push({ kind: 'instance', instance_id, lifts: true, requeued: true });
      return { recovered: limit - left };
    },
    async countRecoverable(of, most, owner_scope) {
      const { instance_id } = of;
      const found = await session.one<{ first_no: number }>(FIND_OWNED, { instance_id, ...ownedBy(owner_scope) });
      if (found === undefined) return null;
      const { statements, values } = selected(of);
      const { first_no } = found;
      return (await session.one<{ count: number }>(statements.count, { ...values, first_no, limit: most }))!.count;
    },
    async countMissed(instance_id, span, rows_max) {
      const missed = new Missed(span, rows_max);
      const present = await session.all<MembershipsTable>(FIND_PRESENT, { instance_id, rows_max });
      for (const row of present) {
        if (missed.rows_left === 0) {
          missed.stop();
          break;
        }
        const member = membershipOf(row);
        const of_member = missed.spanOf(member);
        const values = { instance_id, meeting_id: member.meeting_id, ...of_member, rows_max: missed.rows_left };
        missed.add(member, of_member, await session.all<WithoutRow>(MESSAGES_WITHOUT, values));
      }
      return missed.result;
    },
  };
}
