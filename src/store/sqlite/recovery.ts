/**
 * Queues failed and cancelled deliveries of an instance again, and counts the messages that the instance missed while it
 * was switched off.
 */
import { MAY_QUEUE_AGAIN } from '../rows/deliveries.ts';
import type { DeliveryStore, Recovery } from '../contract/deliveries.ts';
import { membershipOf } from '../rows/meetings.ts';
import {
  failedIn,
  messagesWithout,
  Missed,
  PRESENT,
  requeue,
  RESET_BACKOFF,
  type WithoutRow,
} from '../rows/recovery.ts';
import type { MembershipsTable } from '../rows/tables.ts';
import type { Database } from './database.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';
import type { Sync } from './sync.ts';

/**
 * The number since which the instance exists. Deliveries with lower numbers are of an earlier instance with this id.
 * Nobody may queue them again, because the instance may have another owner now.
 */
const FIRST_OWNED = `SELECT first_no FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED}`;

const CHOSEN = `
  SELECT delivery_no FROM deliveries
  WHERE delivery_no IN (SELECT value FROM json_each($delivery_nos)) AND instance_id = $instance_id AND ${MAY_QUEUE_AGAIN} AND delivery_no >= $first_no
  ORDER BY delivery_no LIMIT $limit`;

const FAILED_IN = failedIn("deliveries WHERE state = 'failed'", 'settled_at');

const MESSAGES_WITHOUT = messagesWithout('m.message_no + m.deliveries_queued');

export function recovery(
  db: Database,
  numberOf: (delivery_id: string) => number,
): Pick<Sync<DeliveryStore>, 'recover' | 'countRecoverable' | 'countMissed'> {
  const firstOf = (instance_id: string, owner_scope: Parameters<typeof ownedBy>[0]): number | null => {
    const values = { instance_id, ...ownedBy(owner_scope) };
    const found = db.prepare(FIRST_OWNED).get(values) as { first_no: number } | undefined;
    return found === undefined ? null : found.first_no;
  };

  const selected = (of: Recovery): { found: string; values: Record<string, string | number> } => {
    const { instance_id } = of;
    if ('since_ms' in of) {
      const { since_ms, until_ms } = of;
      return { found: FAILED_IN, values: { instance_id, since_ms, until_ms } };
    }
    const delivery_nos = JSON.stringify(of.delivery_ids.map(numberOf));
    return { found: CHOSEN, values: { instance_id, delivery_nos } };
  };

  return {
    recover(of, limit, now_ms, expires_at, owner_scope) {
      const first_no = firstOf(of.instance_id, owner_scope);
      if (first_no === null) return null;
      const { instance_id } = of;
      db.prepare(RESET_BACKOFF).run({ instance_id });
      const { found, values } = selected(of);
      const again = db.prepare(`${requeue()} delivery_no IN (${found})`);
      const { changes } = again.run({ ...values, first_no, limit, now_ms, expires_at });
      return { recovered: Number(changes) };
    },
    countRecoverable(of, most, owner_scope) {
      const first_no = firstOf(of.instance_id, owner_scope);
      if (first_no === null) return null;
      const { found, values } = selected(of);
      const counted = db.prepare(`SELECT count(*) AS count FROM (${found})`).get({ ...values, first_no, limit: most });
      return (counted as { count: number }).count;
    },
    countMissed(instance_id, span, rows_max) {
      const missed = new Missed(span, rows_max);
      const present = db.prepare(PRESENT).all({ instance_id, rows_max }) as unknown as MembershipsTable[];
      for (const row of present) {
        if (missed.rows_left === 0) {
          missed.stop();
          break;
        }
        const member = membershipOf(row);
        const of_member = missed.spanOf(member);
        const values = { instance_id, meeting_id: member.meeting_id, ...of_member, rows_max: missed.rows_left };
        missed.add(member, of_member, db.prepare(MESSAGES_WITHOUT).all(values) as unknown as WithoutRow[]);
      }
      return missed.result;
    },
  };
}
