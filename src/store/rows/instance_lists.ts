/** Which instances a list reads, and how far: the same for both engines. */
import { type Kysely, type RawBuilder, sql } from 'kysely';
import type { Visibility } from '../../domain/access.ts';
import { DOWN_AFTER_FAILURES, type Health, type InstanceState } from '../../domain/instance.ts';
import type { InstanceCounts, InstanceFilter } from '../contract/instances.ts';
import type { Reads } from '../contract/search.ts';
import { rowsOfEach } from './search.ts';
import type { Tables } from './tables.ts';

/** The bytes of the long columns of `i`. */
export const INSTANCE_BYTES =
  'octet_length(i.agent_ids) + octet_length(i.webhook_headers) + coalesce(octet_length(i.runtime), 0) + coalesce(octet_length(i.last_failure), 0)';

/** A condition for queries over the instances `i`. */
function healthCondition(health: Health) {
  switch (health) {
    case 'unknown':
      return sql<boolean>`i.consecutive_failures = 0 AND i.last_success_at IS NULL`;
    case 'up':
      return sql<boolean>`i.consecutive_failures = 0 AND i.last_success_at IS NOT NULL`;
    case 'failing':
      return sql<boolean>`i.consecutive_failures BETWEEN 1 AND ${DOWN_AFTER_FAILURES - 1}`;
    case 'down':
      return sql<boolean>`i.consecutive_failures >= ${DOWN_AFTER_FAILURES}`;
  }
}

const IS_PAUSED = sql<boolean>`i.is_active = 0 OR i.webhook_enabled = 0`;

/** The state of each instance `i`, for counts. */
export const STATE = sql<InstanceState>`CASE WHEN ${IS_PAUSED} THEN 'off'
  WHEN ${healthCondition('down')} THEN 'down' WHEN ${healthCondition('failing')} THEN 'failing'
  WHEN ${healthCondition('up')} THEN 'up' ELSE 'unknown' END`;

/** The instances of one state in a part of the table. `last` is the id of the last of these instances. */
export interface CountedState {
  state: InstanceState;
  instances: number;
  connected: number;
  last: string;
}

export function countsOf(rows: readonly CountedState[], limit: number) {
  const counts: InstanceCounts = { unknown: 0, up: 0, failing: 0, down: 0, off: 0, connected: 0 };
  let instances = 0;
  let last: string | null = null;
  for (const row of rows) {
    counts[row.state] += row.instances;
    counts.connected += row.connected;
    instances += row.instances;
    // Both engines order ids by their bytes.
    if (last === null || Buffer.compare(Buffer.from(row.last), Buffer.from(last)) > 0) last = row.last;
  }
  return { counts, next: instances < limit ? null : last };
}

/** A filter of `list`; with `instance_id`, only that instance. */
export type ListedInstances = InstanceFilter & { instance_id?: string };

/** Where a list finds its rows in the order of their ids: `seen` are those that a caller with limits sees. */
type InstanceSource = 'all' | 'agent' | 'meeting' | 'seen';

/** The table whose index decides the order. Then the engine follows that index, and does not sort. */
const SOURCE_ALIAS: Record<InstanceSource, string> = { all: 'i', agent: 'a', meeting: 's', seen: 'i' };

function sourceOf(
  { agent_id, meeting_id }: ListedInstances,
  visibility: Visibility | null | undefined,
): InstanceSource {
  // Who may see a meeting sees all instances in it.
  if (meeting_id !== undefined && (!visibility || visibility.meeting_ids.includes(meeting_id))) return 'meeting';
  if (visibility) return 'seen';
  return agent_id === undefined ? 'all' : 'agent';
}

export interface InstanceWalk {
  source: InstanceSource;
  /** The conditions that no index serves. */
  others: RawBuilder<boolean>[];
  /** How much one call reads, if the list has such a condition; null: it reads the rows of the page. */
  reads: Reads | null;
  /** How many ids the call reads of the instances of the owner, and of each meeting that the caller sees. */
  rows_of_each: number;
}

/** How a list of instances `i` is read. */
export function walkOf(
  filter: ListedInstances,
  visibility: Visibility | null | undefined,
  reads_max: Reads,
): InstanceWalk {
  const { limit, agent_id, meeting_id, is_active, paused, health, q } = filter;
  const source = sourceOf(filter, visibility);
  const others: RawBuilder<boolean>[] = [];
  if (agent_id !== undefined && source !== 'agent')
    others.push(
      sql`EXISTS (SELECT 1 FROM instance_agents x WHERE x.agent_id = ${agent_id} AND x.instance_id = i.instance_id)`,
    );
  if (meeting_id !== undefined && source !== 'meeting')
    others.push(
      sql`EXISTS (SELECT 1 FROM memberships x WHERE x.meeting_id = ${meeting_id} AND x.instance_id = i.instance_id AND x.left_at IS NULL)`,
    );
  if (is_active !== undefined) others.push(sql`i.is_active = ${is_active ? 1 : 0}`);
  if (paused !== undefined) others.push(paused ? sql`(${IS_PAUSED})` : sql`NOT (${IS_PAUSED})`);
  if (health !== undefined) others.push(healthCondition(health));
  if (others.length === 0 && q === undefined) return { source, others, reads: null, rows_of_each: limit + 1 };
  const sources = source === 'seen' ? 1 + visibility!.meeting_ids.length : 1;
  const rows_of_each = rowsOfEach(sources, reads_max);
  return { source, others, reads: { ...reads_max, rows: rows_of_each }, rows_of_each };
}

/**
 * The id of a row as the index of the walk has it. A list compares this id with its bounds: PostgreSQL applies an
 * equation to both tables of a join, but not a range. With a range over `i`, it walks the whole index of the source.
 */
export const walkedId = ({ source }: InstanceWalk) => sql.ref<string>(`${SOURCE_ALIAS[source]}.instance_id`);

/** The rows of a walk after an id, without the conditions that no index serves, in the order of their ids. */
export function walkedInstances(
  build: Kysely<Tables>,
  walk: InstanceWalk,
  { instance_id, agent_id, meeting_id }: ListedInstances,
  after: string | null,
) {
  const { source } = walk;
  let query = build
    .selectFrom('instances as i')
    .$if(source === 'agent', (all) =>
      all
        .innerJoin('instance_agents as a', 'a.instance_id', 'i.instance_id')
        .where('a.agent_id', '=', agent_id as string),
    )
    .$if(source === 'meeting', (all) =>
      all
        .innerJoin('memberships as s', 's.instance_id', 'i.instance_id')
        .where('s.meeting_id', '=', meeting_id as string)
        .where('s.left_at', 'is', null),
    );
  if (after !== null) query = query.where(walkedId(walk), '>', after);
  if (instance_id !== undefined) query = query.where('i.instance_id', '=', instance_id);
  return query.orderBy(walkedId(walk));
}
