/** Lists of deliveries, newest first. Each call walks along an index, and then reads the rows that the walk met. */
import { sql } from 'kysely';
import type { IdCodec } from '../../domain/id.ts';
import type { Visibility } from '../../domain/access.ts';
import type { DeliveryStore } from '../contract/deliveries.ts';
import type { DeliveryKeys, DeliverySearch } from '../contract/search.ts';
import type { DeliveriesTable } from '../rows/tables.ts';
import {
  DELIVERY_BYTES,
  deliveryRowOf,
  isWalkOfSeen,
  type Source,
  SOURCES_MAX,
  sourcesSeen,
  walksOf,
} from '../rows/deliveries.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import {
  furthest,
  isDeliveryFound,
  isFoundDelivery,
  listReads,
  merged,
  type Numbers,
  rowsOfEach,
  searched,
  type ToRead,
  type Walked,
} from '../rows/search.ts';
import { DELIVERY_COLUMNS, of } from './columns.ts';
import { build, type Session, type Statement, statement } from './database.ts';
import { isDeliveryVisible } from './owner_scope.ts';
import { rowsOfPage } from './page.ts';
import { DIALECT, LAST_OF_MESSAGE, numbersOf, seqsOf } from './search.ts';
import { waitsOf } from './waits.ts';

/** The deliveries `d` of the message `m`: their numbers follow the number of the message. */
export const OF_MESSAGE = `d.delivery_no > m.message_no AND d.delivery_no <= ${LAST_OF_MESSAGE}`;

const TEXT_BYTES = 'coalesce((SELECT octet_length(x.message) FROM messages x WHERE x.message_no = d.message_no), 0)';

const toRead = (has_text: boolean): string =>
  `d.delivery_no AS number, d.created_at AS made_at, ${DELIVERY_BYTES}${has_text ? ` + ${TEXT_BYTES}` : ''} AS row_bytes`;

const BETWEEN = 'd.delivery_no >= $from AND d.delivery_no < $below';

/**
 * For each kind of source: the statement that finds the newest deliveries of each source, with the place of the source.
 * LATERAL reads source by source. The planner cannot estimate how few deliveries a message has, so OFFSET 0 keeps it
 * from joining in the other order.
 */
const newestOf = (has_text: boolean): Record<Source['of'], Statement> => ({
  all: statement(`
    SELECT 1 AS place, ${toRead(has_text)} FROM deliveries d WHERE ${BETWEEN} ORDER BY d.delivery_no DESC LIMIT $rows`),
  message: statement(`
    SELECT 1 AS place, ${toRead(has_text)} FROM deliveries d
    WHERE d.delivery_no > $message_no
      AND d.delivery_no <= (SELECT ${LAST_OF_MESSAGE} FROM messages m WHERE m.message_no = $message_no) AND ${BETWEEN}
    ORDER BY d.delivery_no DESC LIMIT $rows`),
  instance: statement(`
    SELECT s.place, newest.* FROM unnest($instance_ids::text[], $first_nos::bigint[]) WITH ORDINALITY AS s (instance_id, first_no, place)
      CROSS JOIN LATERAL (
        SELECT ${toRead(has_text)} FROM deliveries d
        WHERE d.instance_id = s.instance_id AND d.delivery_no >= s.first_no AND ${BETWEEN}
        ORDER BY d.delivery_no DESC LIMIT $rows) newest`),
  meeting: statement(`
    SELECT s.place, newest.* FROM unnest($meeting_ids::text[], $aboves::bigint[], $up_tos::bigint[]) WITH ORDINALITY AS s (meeting_id, above, up_to, place)
      CROSS JOIN LATERAL (
        SELECT of_message.* FROM messages m CROSS JOIN LATERAL (
          SELECT ${toRead(has_text)} FROM deliveries d WHERE ${OF_MESSAGE} AND ${BETWEEN} OFFSET 0) of_message
        WHERE m.meeting_id = s.meeting_id AND m.seq > s.above AND m.seq <= s.up_to
        ORDER BY m.seq DESC, of_message.number DESC LIMIT $rows) newest`),
});

const NEWEST = newestOf(false);
const NEWEST_WITH_TEXT = newestOf(true);

const OWNED = statement(`
  SELECT instance_id, first_no FROM instances
  WHERE owner_key_id = $key_id AND instance_id = coalesce($instance_id::text, instance_id) LIMIT ${SOURCES_MAX + 1}`);

export function deliveryLists(session: Session, ids: IdCodec): Pick<DeliveryStore, 'get' | 'list' | 'search'> {
  const search: DeliveryStore['search'] = async ({ limit, cursor, ...wanted }, reads, now_ms, visibility) => {
    const numbers = await numbersOf(session, wanted, beforeOf(cursor));
    const message_no = wanted.message_id === undefined ? null : (ids.decode('msg', wanted.message_id) ?? 0);
    const seen = visibility && isWalkOfSeen(wanted, visibility) ? await seenBy(session, visibility) : null;
    const walks: Walked[] = [];
    for (const sources of walksOf(wanted, message_no, seen)) {
      const of_each = rowsOfEach(sources.length, reads);
      const rows = await newest(session, sources, { ...wanted, ...numbers, rows: of_each + 1 });
      walks.push(merged(rows, of_each, reads));
    }
    const { numbers: met, beyond } = furthest(walks);
    const found = withKeys(listed(now_ms), wanted)
      .where(sql<boolean>`d.delivery_no = ANY (${met}::bigint[])`)
      .where(isDeliveryFound({ limit, ...wanted }, DIALECT))
      .orderBy('d.delivery_no', 'desc')
      .limit(limit + 1);
    const seen_only = visibility ? found.where(isDeliveryVisible(visibility)) : found;
    const page = pageOf(
      await rowsOfPage(session, seen_only, 'delivery_no DESC'),
      limit,
      (row) => [row.delivery_no],
      (row) => deliveryRowOf(row, ids),
    );
    const data = page.data.filter((row) => isFoundDelivery(row, { limit, ...wanted }));
    return searched({ ...page, data }, beyond);
  };

  return {
    async get(delivery_id, now_ms, visibility) {
      const found = listed(now_ms).where('d.delivery_no', '=', ids.decode('dlv', delivery_id) ?? 0);
      const [row] = await session.built(visibility ? found.where(isDeliveryVisible(visibility)) : found);
      return row === undefined ? null : deliveryRowOf(row, ids);
    },
    async list(filter, now_ms, visibility) {
      const { data, next_cursor } = await search(filter, listReads(filter), now_ms, visibility);
      return { data, next_cursor };
    },
    search,
  };
}

const beforeOf = (cursor: string | undefined): number =>
  cursor === undefined ? Number.MAX_SAFE_INTEGER : (decodeCursor(cursor, ['number'])[0] as number);

/** The sources of the deliveries that a caller with limits may see; null when there are too many. */
async function seenBy(session: Session, { owner_scope, meeting_ids }: Visibility): Promise<Source[] | null> {
  const owned =
    owner_scope === null ? [] : await session.all<{ instance_id: string; first_no: number }>(OWNED, { ...owner_scope });
  return sourcesSeen(owned, meeting_ids);
}

/** The newest rows of each source. */
async function newest(
  session: Session,
  sources: readonly Source[],
  {
    from,
    below,
    rows,
    text,
    after_seq = 0,
    before_seq = Number.MAX_SAFE_INTEGER,
  }: Numbers & Partial<DeliverySearch> & { rows: number },
): Promise<ToRead[][]> {
  const lists: ToRead[][] = [];
  const read = async (kind: Source['of'], values: Record<string, unknown>): Promise<void> => {
    const found = (text === undefined ? NEWEST : NEWEST_WITH_TEXT)[kind];
    const read_rows = await session.all<ToRead & { place: number }>(found, { from, below, rows, ...values });
    lists.push(...Map.groupBy(read_rows, ({ place }) => place).values());
  };
  const [first] = sources;
  if (first?.of === 'all') await read('all', {});
  if (first?.of === 'message') await read('message', { message_no: first.message_no });
  const instances = sources.filter((source) => source.of === 'instance');
  if (instances.length > 0) {
    const instance_ids = instances.map(({ instance_id }) => instance_id);
    await read('instance', { instance_ids, first_nos: instances.map(({ first_no }) => first_no) });
  }
  const meeting_ids = sources.flatMap((source) => (source.of === 'meeting' ? [source.meeting_id] : []));
  if (meeting_ids.length > 0) {
    const seqs = await seqsOf(session, meeting_ids, { from, below });
    await read('meeting', {
      meeting_ids,
      aboves: seqs.map(({ above }) => Math.max(above - 1, after_seq)),
      up_tos: seqs.map(({ up_to }) => Math.min(up_to, before_seq - 1)),
    });
  }
  return lists;
}

const ALL_DELIVERIES = sql<DeliveriesTable>`deliveries`.as('d');

function listed(now_ms: number) {
  return build
    .selectFrom(ALL_DELIVERIES)
    .leftJoin('instances as i', 'i.instance_id', 'd.instance_id')
    .leftJoin('meeting_settings as t', 't.meeting_id', 'd.meeting_id')
    .select(of('d', DELIVERY_COLUMNS))
    .select(['t.paused', 'i.is_active', 'i.webhook_enabled', sql<number>`${sql.raw(DELIVERY_BYTES)}`.as('row_bytes')])
    .select(waitsOf(now_ms));
}

function withKeys(query: ReturnType<typeof listed>, { instance_id, meeting_id, after_seq, before_seq }: DeliveryKeys) {
  let found = query;
  if (instance_id !== undefined) found = found.where('d.instance_id', '=', instance_id);
  if (meeting_id !== undefined) found = found.where('d.meeting_id', '=', meeting_id);
  if (after_seq !== undefined) found = found.where('d.seq', '>', after_seq);
  return before_seq === undefined ? found : found.where('d.seq', '<', before_seq);
}
