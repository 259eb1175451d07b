/** Reads instances: one, and lists in the order of their ids. */
import { sql } from 'kysely';
import type { Visibility } from '../../domain/access.ts';
import type { Instance } from '../../domain/instance.ts';
import type { InstanceRow, InstanceStore, ListedId } from '../contract/instances.ts';
import { type Reads, SEARCH_READS, type SearchPage } from '../contract/search.ts';
import {
  type CountedState,
  countsOf,
  INSTANCE_BYTES,
  type InstanceWalk,
  type ListedInstances,
  STATE,
  walkedId,
  walkedInstances,
  walkOf,
} from '../rows/instance_lists.ts';
import type { CountedRow, instanceReader } from '../rows/instances.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import { searchedUpTo } from '../rows/part.ts';
import { isPart } from '../rows/search.ts';
import { INSTANCE_COLUMNS, of } from './columns.ts';
import type { InstancesTable } from '../rows/tables.ts';
import { build, type Session, statement } from './database.ts';
import { isFirstSeen, isInstanceVisible } from './owner_scope.ts';
import { rowsOfPage } from './page.ts';
import { lastRead } from './part.ts';
import { DIALECT } from './search.ts';

const PENDING =
  '(SELECT count(*) FROM pending_deliveries d WHERE d.partition_no = i.partition_no AND d.instance_id = i.instance_id)';

/**
 * A machine counts as connected only if the node that delivers to it renewed its lease within this time. A node renews
 * every 3 s. The lease lasts longer, because a takeover must not happen too soon.
 */
const SEEN_WITHIN_MS = 5_000;

/**
 * The value of connected_epoch that an instance `i` has if its machine is connected now; null when the node that holds
 * its partition has not renewed its lease within SEEN_WITHIN_MS.
 */
export const CONNECTED_EPOCH = `(SELECT p.epoch FROM partitions p LEFT JOIN nodes n ON n.node_no = p.node_no
  WHERE p.partition_no = i.partition_no
    AND (n.seen_at IS NULL OR n.seen_at >= floor(extract(epoch FROM now()) * 1000)::bigint - ${SEEN_WITHIN_MS}))`;

const GET = statement(
  `SELECT ${of('i', INSTANCE_COLUMNS).join(', ')}, ${PENDING} AS pending_deliveries, ${CONNECTED_EPOCH} AS current_epoch FROM instances i WHERE instance_id = $instance_id`,
);

export function instanceLists(
  session: Session,
  {
    instanceOf,
    instanceRowOf,
    listedRowOf,
  }: Pick<ReturnType<typeof instanceReader>, 'instanceOf' | 'instanceRowOf' | 'listedRowOf'>,
): Pick<InstanceStore, 'get' | 'find' | 'list' | 'listIds' | 'count'> {
  async function get(instance_id: string, visibility?: Visibility | null): Promise<InstanceRow | null> {
    if (visibility) return (await list({ limit: 1, instance_id }, visibility)).data[0] ?? null;
    const row = await session.one<CountedRow>(GET, { instance_id });
    return row === undefined ? null : instanceRowOf(row);
  }

  async function find(instance_id: string, visibility?: Visibility | null): Promise<Instance | null> {
    let query = build
      .selectFrom('instances as i')
      .select(of('i', INSTANCE_COLUMNS))
      .where('i.instance_id', '=', instance_id);
    if (visibility) query = query.where(isInstanceVisible(visibility));
    const { sql: text, parameters } = query.compile();
    const row = (await session.query<InstancesTable>(text, parameters)).rows[0];
    return row === undefined ? null : instanceOf(row);
  }

  /** The rows of a walk that the caller sees, without the conditions that no index serves, in the order of their ids. */
  function listed(walk: InstanceWalk, filter: ListedInstances, visibility: Visibility | null | undefined) {
    const { cursor, instance_id } = filter;
    const after = cursor === undefined ? null : (decodeCursor(cursor, ['string'])[0] as string);
    const rows = walkedInstances(build, walk, filter, after);
    if (visibility && instance_id !== undefined) return rows.where(isInstanceVisible(visibility));
    if (visibility && walk.source === 'seen')
      return rows.where(isFirstSeen(visibility, after ?? '', walk.rows_of_each));
    return rows;
  }

  async function list(
    filter: ListedInstances,
    visibility?: Visibility | null,
    reads: Reads = SEARCH_READS,
  ): Promise<SearchPage<InstanceRow, string>> {
    const { limit, q } = filter;
    const walk = walkOf(filter, visibility, reads);
    const instances = listed(walk, filter, visibility);
    const row_bytes = sql<number>`${sql.raw(INSTANCE_BYTES)}`.as('row_bytes');
    const ids = instances.select(['i.instance_id as id', row_bytes]);
    const last = walk.reads === null ? null : await lastRead(session, ids, walk.reads);
    let query = instances
      .select(of('i', INSTANCE_COLUMNS))
      .select([
        sql<number>`${sql.raw(PENDING)}`.as('pending_deliveries'),
        sql<number | null>`${sql.raw(CONNECTED_EPOCH)}`.as('current_epoch'),
        row_bytes,
      ])
      .limit(limit + 1);
    if (last !== null) query = query.where(walkedId(walk), '<=', last);
    for (const condition of walk.others) query = query.where(condition);
    if (q !== undefined) {
      const [of_id, of_name] = [isPart(DIALECT, 'i.instance_id', q), isPart(DIALECT, 'i.instance_name', q)];
      query = query.where(sql<boolean>`(${of_id} OR ${of_name})`);
    }
    const rows = await rowsOfPage(session, query, 'instance_id');
    return searchedUpTo(
      pageOf(rows, limit, (row) => [row.instance_id], listedRowOf),
      last,
    );
  }

  async function listIds(after: string | null, limit: number, visibility: Visibility) {
    const { sql: text, parameters } = build
      .selectFrom('instances as i')
      .select(['i.instance_id', 'i.created_at'])
      .where('i.instance_id', '>', after ?? '')
      .where(isFirstSeen(visibility, after ?? '', limit))
      .orderBy('i.instance_id')
      .limit(limit)
      .compile();
    return (await session.query<ListedId>(text, parameters)).rows;
  }

  async function count(after: string | null, limit: number, visibility?: Visibility | null) {
    let part = build
      .selectFrom('instances as i')
      .select(['i.instance_id', STATE.as('state')])
      .select(
        sql<number>`CASE WHEN i.connected_since IS NULL THEN 0
        WHEN i.connected_epoch = ${sql.raw(CONNECTED_EPOCH)} THEN 1 ELSE 0 END`.as('is_connected'),
      )
      .where('i.instance_id', '>', after ?? '')
      .orderBy('i.instance_id')
      .limit(limit);
    if (visibility) part = part.where(isFirstSeen(visibility, after ?? '', limit));
    const { sql: text, parameters } = build
      .selectFrom(part.as('part'))
      .select(['state', sql<number>`count(*)`.as('instances'), sql<number>`sum(is_connected)`.as('connected')])
      .select(sql<string>`max(instance_id)`.as('last'))
      .groupBy('state')
      .compile();
    return countsOf((await session.query<CountedState>(text, parameters)).rows, limit);
  }

  return { get, find, list, listIds, count };
}
