/** Lists of deliveries, newest first. Each call walks along an index, and then reads the rows that the walk met. */
import { sql } from 'kysely';
import type { IdCodec } from '../../domain/id.ts';
import type { Visibility } from '../../domain/access.ts';
import type { DeliveryStore } from '../contract/deliveries.ts';
import type { DeliveryKeys, DeliverySearch } from '../contract/search.ts';
import {
  DELIVERY_BYTES,
  deliveryRowOf,
  isWalkOfSeen,
  type ListedRow,
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
} from '../rows/search.ts';
import type { Database } from './database.ts';
import { isDeliveryVisible } from './owner_scope.ts';
import { DIALECT, numbersOf, seqsOf } from './search.ts';
import type { Sync } from './sync.ts';
import { waitsOf } from './waits.ts';

/** The deliveries `d` of the message `m`: their numbers follow the number of the message. */
export const OF_MESSAGE = 'd.delivery_no > m.message_no AND d.delivery_no <= m.message_no + m.deliveries_queued';

/**
 * The newest deliveries of a source. SQLite searches an index between one lower and one upper bound: the first lower
 * and the first upper bound in the condition. For the deliveries of a message, the numbers of the message must be these
 * bounds, because all later deliveries may lie between $from and $below. So these queries put a plus sign before the
 * column that they compare with $from and $below. The plus sign keeps SQLite from using an index for this comparison.
 */
const FROM: Record<Source['of'], string> = {
  all: 'deliveries d WHERE d.delivery_no >= $from AND d.delivery_no < $below ORDER BY d.delivery_no DESC',
  instance: `deliveries d WHERE d.instance_id = $instance_id AND d.delivery_no >= $from AND d.delivery_no < $below
    ORDER BY d.delivery_no DESC`,
  message: `deliveries d WHERE d.delivery_no > $message_no
      AND d.delivery_no <= $message_no + (SELECT deliveries_queued FROM messages WHERE message_no = $message_no)
      AND +d.delivery_no >= $from AND +d.delivery_no < $below
    ORDER BY d.delivery_no DESC`,
  // The query starts from the messages of the meeting, and adds the deliveries of each. So the deliveries come in the
  // order of their numbers.
  meeting: `messages m CROSS JOIN deliveries d ON ${OF_MESSAGE}
    WHERE m.meeting_id = $meeting_id AND m.seq > $above AND m.seq <= $up_to
      AND +d.delivery_no >= $from AND +d.delivery_no < $below
    ORDER BY m.seq DESC, d.delivery_no DESC`,
};

const TEXT_BYTES = 'coalesce((SELECT octet_length(x.message) FROM messages x WHERE x.message_no = d.message_no), 0)';

const walk = (source: Source, has_text: boolean): string => `
  SELECT d.delivery_no AS number, d.created_at AS made_at, ${DELIVERY_BYTES}${has_text ? ` + ${TEXT_BYTES}` : ''} AS row_bytes
  FROM ${FROM[source.of]} LIMIT $rows`;

const OWNED = `
  SELECT instance_id, first_no FROM instances
  WHERE owner_key_id = ? AND instance_id = coalesce(?, instance_id) LIMIT ${SOURCES_MAX + 1}`;

export function deliveryLists(db: Database, ids: IdCodec): Pick<Sync<DeliveryStore>, 'get' | 'list' | 'search'> {
  const search: Sync<DeliveryStore>['search'] = ({ limit, cursor, ...wanted }, reads, now_ms, visibility) => {
    const numbers = numbersOf(db, wanted, beforeOf(cursor));
    const message_no = wanted.message_id === undefined ? null : (ids.decode('msg', wanted.message_id) ?? 0);
    const seen = visibility && isWalkOfSeen(wanted, visibility) ? seenBy(db, visibility) : null;
    const walks = walksOf(wanted, message_no, seen).map((sources) => {
      const of_each = rowsOfEach(sources.length, reads);
      const rows = sources.map((source) => newestOf(db, source, { ...wanted, ...numbers, rows: of_each + 1 }));
      return merged(rows, of_each, reads);
    });
    const { numbers: met, beyond } = furthest(walks);
    const found = withKeys(listed(db, now_ms), wanted)
      .where(sql<boolean>`d.delivery_no IN (SELECT value FROM json_each(${JSON.stringify(met)}))`)
      .where(isDeliveryFound({ limit, ...wanted }, DIALECT))
      .orderBy('d.delivery_no', 'desc')
      .limit(limit + 1);
    const page = pageOf(
      db.each<ListedRow>(visibility ? found.where(isDeliveryVisible(visibility)) : found),
      limit,
      (row) => [row.delivery_no],
      (row) => deliveryRowOf(row, ids),
    );
    const data = page.data.filter((row) => isFoundDelivery(row, { limit, ...wanted }));
    return searched({ ...page, data }, beyond);
  };

  return {
    get(delivery_id, now_ms, visibility) {
      const found = listed(db, now_ms).where('d.delivery_no', '=', ids.decode('dlv', delivery_id) ?? 0);
      const row = db.all(visibility ? found.where(isDeliveryVisible(visibility)) : found)[0];
      return row === undefined ? null : deliveryRowOf(row, ids);
    },
    list(filter, now_ms, visibility) {
      const { data, next_cursor } = search(filter, listReads(filter), now_ms, visibility);
      return { data, next_cursor };
    },
    search,
  };
}

const beforeOf = (cursor: string | undefined): number =>
  cursor === undefined ? Number.MAX_SAFE_INTEGER : (decodeCursor(cursor, ['number'])[0] as number);

/** The sources of the deliveries that a caller with limits may see; null when there are too many. */
function seenBy(db: Database, { owner_scope, meeting_ids }: Visibility): Source[] | null {
  const owned = owner_scope === null ? [] : db.prepare(OWNED).all(owner_scope.key_id, owner_scope.instance_id);
  return sourcesSeen(owned as unknown as { instance_id: string; first_no: number }[], meeting_ids);
}

function newestOf(
  db: Database,
  source: Source,
  {
    from,
    below,
    rows,
    text,
    after_seq = 0,
    before_seq = Number.MAX_SAFE_INTEGER,
  }: Numbers & Partial<DeliverySearch> & { rows: number },
): ToRead[] {
  const newest = (values: Record<string, string | number>): ToRead[] =>
    db.prepare(walk(source, text !== undefined)).all({ from, below, rows, ...values }) as unknown as ToRead[];
  if (source.of === 'all') return newest({});
  if (source.of === 'message') return newest({ message_no: source.message_no });
  if (source.of === 'instance')
    return newest({ instance_id: source.instance_id, from: Math.max(from, source.first_no) });
  const { meeting_id } = source;
  const { above, up_to } = seqsOf(db, meeting_id, { from, below });
  return newest({ meeting_id, above: Math.max(above - 1, after_seq), up_to: Math.min(up_to, before_seq - 1) });
}

function listed(db: Database, now_ms: number) {
  return db.build
    .selectFrom('deliveries as d')
    .leftJoin('instances as i', 'i.instance_id', 'd.instance_id')
    .leftJoin('meeting_settings as t', 't.meeting_id', 'd.meeting_id')
    .selectAll('d')
    .select(['i.is_active', 'i.webhook_enabled', 't.paused'])
    .select(waitsOf(db, now_ms))
    .select(sql<number>`${sql.raw(DELIVERY_BYTES)}`.as('row_bytes'));
}

function withKeys(query: ReturnType<typeof listed>, { instance_id, meeting_id, after_seq, before_seq }: DeliveryKeys) {
  let found = query;
  if (instance_id !== undefined) found = found.where('d.instance_id', '=', instance_id);
  if (meeting_id !== undefined) found = found.where('d.meeting_id', '=', meeting_id);
  if (after_seq !== undefined) found = found.where('d.seq', '>', after_seq);
  return before_seq === undefined ? found : found.where('d.seq', '<', before_seq);
}
