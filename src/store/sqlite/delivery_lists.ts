/** Deliveries as lists, newest first: by the keys in their rows, or by what a search must read the rows for. */
import { sql } from 'kysely';
import type { IdCodec } from '../../domain/id.ts';
import type { Visibility } from '../../domain/access.ts';
import type { DeliveryStore } from '../contract/deliveries.ts';
import type { DeliveryKeys } from '../contract/search.ts';
import { DELIVERY_BYTES, deliveryRowOf, type ListedRow, meetingsOf } from '../rows/deliveries.ts';
import { decodeCursor, pageOf, type Weighed } from '../rows/page.ts';
import { beyondOf, isDeliveryFound, isFoundDelivery, type Numbers, searched } from '../rows/search.ts';
import type { Database } from './database.ts';
import { isDeliveryVisible } from './owner_scope.ts';
import { DIALECT, numbersOf, seqsOf } from './search.ts';
import type { Sync } from './sync.ts';
import { waitsOf } from './waits.ts';

/** The deliveries `d` of the message `m`: their numbers follow that of the message. */
export const OF_MESSAGE = 'd.delivery_no > m.message_no AND d.delivery_no <= m.message_no + m.deliveries_queued';

export function deliveryLists(db: Database, ids: IdCodec): Pick<Sync<DeliveryStore>, 'get' | 'list' | 'search'> {
  const pageFrom = (rows: Iterable<ListedRow & Partial<Weighed>>, limit: number) =>
    pageOf(
      rows,
      limit,
      (row) => [row.delivery_no],
      (row) => deliveryRowOf(row, ids),
    );

  return {
    get(delivery_id, now_ms, visibility) {
      const found = listed(db, deliveriesIn(db), now_ms).where(
        'd.delivery_no',
        '=',
        ids.decode('dlv', delivery_id) ?? 0,
      );
      const row = db.all(visibility ? found.where(isDeliveryVisible(visibility)) : found)[0];
      return row === undefined ? null : deliveryRowOf(row, ids);
    },
    list({ limit, cursor, state, ...keys }, now_ms, visibility) {
      const selected = select(db, ids, keys, { from: 0, below: beforeOf(cursor) }, visibility);
      const query = listed(db, state === undefined ? selected : selected.where('d.state', '=', state), now_ms);
      return pageFrom(db.each(query.limit(limit + 1)), limit);
    },
    search({ limit, cursor, ...search }, reads, now_ms, visibility) {
      const numbers = numbersOf(db, search, beforeOf(cursor));
      // Reads the deliveries of other meetings too, because no index orders the deliveries of several meetings
      // together.
      const limited = (meetingsOf(search, visibility)?.length ?? 0) > 1 ? null : visibility;
      const to_read = select(db, ids, search, numbers, limited)
        .leftJoin('messages as x', 'x.message_no', 'd.message_no')
        .select(['d.delivery_no as number', 'd.created_at as made_at'])
        .select(
          sql<number>`${sql.raw(DELIVERY_BYTES)} + ${sql.raw(search.text === undefined ? '0' : 'coalesce(octet_length(x.message), 0)')}`.as(
            'row_bytes',
          ),
        )
        .limit(reads.rows + 1);
      const beyond = beyondOf(db.each(to_read), reads);
      const read = beyond === null ? numbers : { ...numbers, from: beyond.number + 1 };
      const found = select(db, ids, search, read, limited).where(isDeliveryFound({ limit, ...search }, DIALECT));
      const seen = visibility ? found.where(isDeliveryVisible(visibility)) : found;
      const page = pageFrom(db.each(listed(db, seen, now_ms).limit(limit + 1)), limit);
      const data = page.data.filter((row) => isFoundDelivery(row, { limit, ...search }));
      return searched({ ...page, data }, beyond);
    },
  };
}

const beforeOf = (cursor: string | undefined): number =>
  cursor === undefined ? Number.MAX_SAFE_INTEGER : (decodeCursor(cursor, ['number'])[0] as number);

function deliveriesIn(db: Database) {
  return db.build
    .selectFrom('deliveries as d')
    .leftJoin('instances as i', 'i.instance_id', 'd.instance_id')
    .leftJoin('meeting_settings as t', 't.meeting_id', 'd.meeting_id');
}

type Deliveries = ReturnType<typeof deliveriesIn>;

function listed(db: Database, query: Deliveries, now_ms: number) {
  return query
    .selectAll('d')
    .select(['i.is_active', 'i.webhook_enabled', 't.paused'])
    .select(waitsOf(db, now_ms))
    .select(sql<number>`${sql.raw(DELIVERY_BYTES)}`.as('row_bytes'));
}

/** Reads the deliveries that the keys select and the caller may see, the newest first. */
function select(
  db: Database,
  ids: IdCodec,
  keys: DeliveryKeys,
  { from, below }: Numbers,
  visibility: Visibility | null | undefined,
): Deliveries {
  const meeting_ids = meetingsOf(keys, visibility);
  // SQLite searches between one lower and one upper bound, the first of each. Where the numbers of a message are known,
  // they must be the bounds, because all later deliveries may lie between the others. The plus hides a column from
  // indexes, and so hides the others.
  const number = meeting_ids === null && keys.message_id === undefined ? 'd.delivery_no' : '+d.delivery_no';
  let query = deliveriesIn(db).where(sql<boolean>`${sql.raw(number)} < ${below}`);
  if (from > 0) query = query.where(sql<boolean>`${sql.raw(number)} >= ${from}`);
  if (visibility) query = query.where(isDeliveryVisible(visibility));
  if (keys.instance_id !== undefined) query = query.where('d.instance_id', '=', keys.instance_id);
  if (keys.message_id !== undefined) {
    const message_no = ids.decode('msg', keys.message_id) ?? 0;
    const { meeting_id, after_seq = 0, before_seq = Number.MAX_SAFE_INTEGER } = keys;
    query = query
      .where('d.delivery_no', '>', message_no)
      .where(
        sql<boolean>`d.delivery_no <= ${message_no} + (SELECT deliveries_queued FROM messages WHERE message_no = ${message_no})`,
      )
      .where('d.seq', '>', after_seq)
      .where('d.seq', '<', before_seq);
    if (meeting_id !== undefined) query = query.where('d.meeting_id', '=', meeting_id);
  }
  // When the list is limited to some meetings, the query starts from their messages, newest first, and adds the
  // deliveries of each. The order is the same, and the query does not read other meetings, which may have a million
  // deliveries.
  if (meeting_ids === null) return query.orderBy('d.delivery_no', 'desc');
  let of_meetings = query
    .innerJoin('messages as m', (join) => join.on(sql<boolean>`${sql.raw(OF_MESSAGE)}`))
    .where('m.meeting_id', 'in', meeting_ids)
    .where('m.message_no', '<', below);
  const [meeting_id, another] = meeting_ids;
  if (meeting_id !== undefined && another === undefined) {
    const { above, up_to } = seqsOf(db, meeting_id, { from, below });
    const { after_seq = 0, before_seq = Number.MAX_SAFE_INTEGER } = keys;
    of_meetings = of_meetings
      .where('m.seq', '>', Math.max(above - 1, after_seq))
      .where('m.seq', '<=', Math.min(up_to, before_seq - 1))
      .orderBy('m.seq', 'desc');
  }
  return of_meetings.orderBy('d.delivery_no', 'desc');
}
