/** Reads instances: one, and lists in the order of their ids. */
import { sql } from 'kysely';
import type { Visibility } from '../../domain/access.ts';
import type { Instance } from '../../domain/instance.ts';
import type { InstanceRow, InstanceStore, ListedId } from '../contract/instances.ts';
import { type Reads, SEARCH_READS, type SearchPage } from '../contract/search.ts';
import {
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
import type { Database } from './database.ts';
import { isFirstSeen, isInstanceVisible } from './owner_scope.ts';
import { lastRead } from './part.ts';
import { DIALECT } from './search.ts';
import type { Sync } from './sync.ts';

const PENDING = `(SELECT count(*) FROM deliveries d WHERE d.instance_id = i.instance_id AND d.state = 'pending' AND d.aside = 0)
  + (SELECT count(*) FROM deliveries d WHERE d.instance_id = i.instance_id AND d.state = 'pending' AND d.aside = 1)`;

const GET = `SELECT i.*, ${PENDING} AS pending_deliveries, ? AS current_epoch FROM instances i WHERE instance_id = ?`;

export function instanceLists(
  db: Database,
  {
    instanceOf,
    instanceRowOf,
    listedRowOf,
  }: Pick<ReturnType<typeof instanceReader>, 'instanceOf' | 'instanceRowOf' | 'listedRowOf'>,
): Pick<Sync<InstanceStore>, 'get' | 'find' | 'list' | 'listIds' | 'count'> {
  function get(instance_id: string, visibility?: Visibility | null): InstanceRow | null {
    if (visibility) return list({ limit: 1, instance_id }, visibility).data[0] ?? null;
    const row = db.prepare(GET).get(db.term, instance_id) as CountedRow | undefined;
    return row === undefined ? null : instanceRowOf(row);
  }

  function find(instance_id: string, visibility?: Visibility | null): Instance | null {
    let query = db.build.selectFrom('instances as i').selectAll('i').where('i.instance_id', '=', instance_id);
    if (visibility) query = query.where(isInstanceVisible(visibility));
    const row = db.all(query)[0];
    return row === undefined ? null : instanceOf(row);
  }

  /** The rows of a walk that the caller sees, without the conditions that no index serves, in the order of their ids. */
  function listed(walk: InstanceWalk, filter: ListedInstances, visibility: Visibility | null | undefined) {
    const { cursor, instance_id } = filter;
    const after = cursor === undefined ? null : (decodeCursor(cursor, ['string'])[0] as string);
    const rows = walkedInstances(db.build, walk, filter, after);
    if (visibility && instance_id !== undefined) return rows.where(isInstanceVisible(visibility));
    if (visibility && walk.source === 'seen')
      return rows.where(isFirstSeen(visibility, after ?? '', walk.rows_of_each));
    return rows;
  }

  function list(
    filter: ListedInstances,
    visibility?: Visibility | null,
    reads: Reads = SEARCH_READS,
  ): SearchPage<InstanceRow, string> {
    const { limit, q } = filter;
    const walk = walkOf(filter, visibility, reads);
    const instances = listed(walk, filter, visibility);
    const row_bytes = sql<number>`${sql.raw(INSTANCE_BYTES)}`.as('row_bytes');
    const ids = instances.select(['i.instance_id as id', row_bytes]);
    const last = walk.reads === null ? null : lastRead(db, ids, walk.reads);
    let query = instances
      .selectAll('i')
      .select([
        sql<number>`${sql.raw(PENDING)}`.as('pending_deliveries'),
        sql<number>`${db.term}`.as('current_epoch'),
        row_bytes,
      ])
      .limit(limit + 1);
    if (last !== null) query = query.where(walkedId(walk), '<=', last);
    for (const condition of walk.others) query = query.where(condition);
    if (q !== undefined) {
      const [of_id, of_name] = [isPart(DIALECT, 'i.instance_id', q), isPart(DIALECT, 'i.instance_name', q)];
      query = query.where(sql<boolean>`(${of_id} OR ${of_name})`);
    }
    return searchedUpTo(
      pageOf(db.each(query), limit, (row) => [row.instance_id], listedRowOf),
      last,
    );
  }

  function listIds(after: string | null, limit: number, visibility: Visibility): ListedId[] {
    const ids = db.build
      .selectFrom('instances as i')
      .select(['i.instance_id', 'i.created_at'])
      .where('i.instance_id', '>', after ?? '')
      .where(isFirstSeen(visibility, after ?? '', limit))
      .orderBy('i.instance_id')
      .limit(limit);
    return db.all(ids);
  }

  function count(after: string | null, limit: number, visibility?: Visibility | null) {
    let part = db.build
      .selectFrom('instances as i')
      .select(['i.instance_id', STATE.as('state')])
      .select(sql<number>`i.connected_since IS NOT NULL AND i.connected_epoch IS ${db.term}`.as('is_connected'))
      .where('i.instance_id', '>', after ?? '')
      .orderBy('i.instance_id')
      .limit(limit);
    if (visibility) part = part.where(isFirstSeen(visibility, after ?? '', limit));
    const states = db.build
      .selectFrom(part.as('part'))
      .select(['state', sql<number>`count(*)`.as('instances'), sql<number>`sum(is_connected)`.as('connected')])
      .select(sql<string>`max(instance_id)`.as('last'))
      .groupBy('state');
    return countsOf(db.all(states), limit);
  }

  return { get, find, list, listIds, count };
}
