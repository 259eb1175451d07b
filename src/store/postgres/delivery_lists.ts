/** Deliveries as lists, newest first: by the keys in their rows, or by what a search must read the rows for. */
import { sql } from 'kysely';
import type { IdCodec } from '../../domain/id.ts';
import type { Visibility } from '../../domain/access.ts';
import type { DeliveryStore } from '../contract/deliveries.ts';
import type { DeliveryKeys } from '../contract/search.ts';
import type { DeliveriesTable } from '../rows/tables.ts';
import { DELIVERY_BYTES, deliveryRowOf, type ListedRow, meetingsOf } from '../rows/deliveries.ts';
import { pageOf, type Weighed } from '../rows/page.ts';
import { isDeliveryFound, isFoundDelivery, type Numbers, searched } from '../rows/search.ts';
import { DELIVERY_COLUMNS, of } from './columns.ts';
import { build, type Session } from './database.ts';
import { isDeliveryVisible } from './owner_scope.ts';
import { keyOf, rowsOfPage } from './page.ts';
import { beyondOf, DIALECT, LAST_OF_MESSAGE, numbersOf, seqsOf } from './search.ts';
import { waitsOf } from './waits.ts';

/** The deliveries `d` of the message `m`: their numbers follow that of the message. */
export const OF_MESSAGE = `d.delivery_no > m.message_no AND d.delivery_no <= ${LAST_OF_MESSAGE}`;

export function deliveryLists(session: Session, ids: IdCodec): Pick<DeliveryStore, 'get' | 'list' | 'search'> {
  const pageFrom = (rows: (ListedRow & Weighed)[], limit: number) =>
    pageOf(
      rows,
      limit,
      (row) => [row.delivery_no],
      (row) => deliveryRowOf(row, ids),
    );

  return {
    async get(delivery_id, now_ms, visibility) {
      const found = listed(deliveriesIn(), now_ms).where('d.delivery_no', '=', ids.decode('dlv', delivery_id) ?? 0);
      const [row] = await session.built(visibility ? found.where(isDeliveryVisible(visibility)) : found);
      return row === undefined ? null : deliveryRowOf(row, ids);
    },
    async list({ limit, cursor, state, ...keys }, now_ms, visibility) {
      const selected = await select(session, ids, keys, { from: 0, below: beforeOf(cursor) }, visibility);
      const query = listed(state === undefined ? selected : selected.where('d.state', '=', state), now_ms);
      return pageFrom(await rowsOfPage(session, query.limit(limit + 1), 'delivery_no DESC'), limit);
    },
    async search({ limit, cursor, ...search }, reads, now_ms, visibility) {
      const numbers = await numbersOf(session, search, beforeOf(cursor));
      // Reads the deliveries of other meetings too, because no index orders the deliveries of several meetings
      // together.
      const limited = (meetingsOf(search, visibility)?.length ?? 0) > 1 ? null : visibility;
      const to_read = (await select(session, ids, search, numbers, limited))
        .leftJoin('messages as x', 'x.message_no', 'd.message_no')
        .select(['d.delivery_no as number', 'd.created_at as made_at'])
        .select(
          sql<number>`${sql.raw(DELIVERY_BYTES)} + ${sql.raw(search.text === undefined ? '0' : 'coalesce(octet_length(x.message), 0)')}`.as(
            'row_bytes',
          ),
        )
        .limit(reads.rows + 1);
      const beyond = await beyondOf(session, to_read, reads);
      const read = beyond === null ? numbers : { ...numbers, from: beyond.number + 1 };
      const selected = await select(session, ids, search, read, limited);
      const found = selected.where(isDeliveryFound({ limit, ...search }, DIALECT));
      const seen = visibility ? found.where(isDeliveryVisible(visibility)) : found;
      const rows = await rowsOfPage(session, listed(seen, now_ms).limit(limit + 1), 'delivery_no DESC');
      const page = pageFrom(rows, limit);
      const data = page.data.filter((row) => isFoundDelivery(row, { limit, ...search }));
      return searched({ ...page, data }, beyond);
    },
  };
}

const beforeOf = (cursor: string | undefined): number =>
  cursor === undefined ? Number.MAX_SAFE_INTEGER : (keyOf(cursor, ['number'])[0] as number);

const ALL_DELIVERIES = sql<DeliveriesTable>`deliveries`.as('d');

function deliveriesIn(source = ALL_DELIVERIES) {
  return build
    .selectFrom(source)
    .leftJoin('instances as i', 'i.instance_id', 'd.instance_id')
    .leftJoin('meeting_settings as t', 't.meeting_id', 'd.meeting_id');
}

type Deliveries = ReturnType<typeof deliveriesIn>;

function listed(query: Deliveries, now_ms: number) {
  return query
    .select(of('d', DELIVERY_COLUMNS))
    .select(['t.paused', 'i.is_active', 'i.webhook_enabled', sql<number>`${sql.raw(DELIVERY_BYTES)}`.as('row_bytes')])
    .select(waitsOf(now_ms));
}

/** Reads the deliveries that the keys select and the caller may see, the newest first. */
async function select(
  session: Session,
  ids: IdCodec,
  keys: DeliveryKeys,
  { from, below }: Numbers,
  visibility: Visibility | null | undefined,
): Promise<Deliveries> {
  const meeting_ids = meetingsOf(keys, visibility);
  const [first, another] = meeting_ids ?? [];
  const of_one = first !== undefined && another === undefined;
  let query = deliveriesIn(of_one ? await ofMeeting(session, first, keys, { from, below }) : ALL_DELIVERIES);
  query = query.where('d.delivery_no', '<', below);
  if (from > 0) query = query.where('d.delivery_no', '>=', from);
  if (visibility) query = query.where(isDeliveryVisible(visibility));
  if (keys.instance_id !== undefined) query = query.where('d.instance_id', '=', keys.instance_id);
  if (keys.message_id !== undefined) {
    const message_no = ids.decode('msg', keys.message_id) ?? 0;
    const { meeting_id, after_seq = 0, before_seq = Number.MAX_SAFE_INTEGER } = keys;
    query = query
      .where('d.delivery_no', '>', message_no)
      .where(
        sql<boolean>`d.delivery_no <= (SELECT ${sql.raw(LAST_OF_MESSAGE)} FROM messages m WHERE m.message_no = ${message_no})`,
      )
      .where('d.seq', '>', after_seq)
      .where('d.seq', '<', before_seq);
    if (meeting_id !== undefined) query = query.where('d.meeting_id', '=', meeting_id);
  }
  if (of_one) query = query.orderBy(sql`d.message_seq`, 'desc');
  if (meeting_ids === null || of_one) return query.orderBy('d.delivery_no', 'desc');
  return query
    .innerJoin('messages as m', (join) => join.on(sql<boolean>`${sql.raw(OF_MESSAGE)}`))
    .where(sql<boolean>`m.meeting_id = ANY (${meeting_ids}::text[])`)
    .where('m.message_no', '<', below)
    .orderBy('d.delivery_no', 'desc');
}

/**
 * The deliveries of one meeting. The query starts from its messages, newest first, and adds the deliveries of each.
 * That is the order of their numbers, and the query does not read other meetings, which may have a million deliveries.
 * OFFSET 0 keeps the planner from joining the other way round, because it cannot estimate how few deliveries follow a
 * message.
 */
async function ofMeeting(session: Session, meeting_id: string, keys: DeliveryKeys, numbers: Numbers) {
  const { above, up_to } = await seqsOf(session, meeting_id, numbers);
  const { instance_id, after_seq = 0, before_seq = Number.MAX_SAFE_INTEGER } = keys;
  const of_instance = instance_id === undefined ? sql`` : sql`AND d.instance_id = ${instance_id}`;
  const columns = sql.join(of('d', DELIVERY_COLUMNS).map((column) => sql.ref(column)));
  return sql<DeliveriesTable>`(
    SELECT ${columns}, m.seq AS message_seq FROM messages m CROSS JOIN LATERAL (
      SELECT ${columns} FROM deliveries d WHERE ${sql.raw(OF_MESSAGE)} ${of_instance} OFFSET 0) d
    WHERE m.meeting_id = ${meeting_id} AND m.message_no < ${numbers.below}
      AND m.seq > ${Math.max(above - 1, after_seq)} AND m.seq <= ${Math.min(up_to, before_seq - 1)})`.as('d');
}
