import { sql } from 'kysely';
import { hasRules } from '../../domain/catch_up.ts';
import { healthOf } from '../../domain/instance.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import { searchedUpTo } from '../rows/part.ts';
import type { OwnerScope, Visibility } from '../../domain/access.ts';
import type { GivenRules, MeetingFilter, MeetingRow, MeetingStore, MembershipPatch } from '../contract/meetings.ts';
import { NO_QUOTAS, type Quotas } from '../contract/quotas.ts';
import type { PageRequest } from '../contract/page.ts';
import { type Reads, SEARCH_READS, type SearchPage } from '../contract/search.ts';
import type { Database } from './database.ts';
import { isPart } from '../rows/search.ts';
import {
  candidateOf,
  givenRules,
  MEETING_BYTES,
  MEMBERSHIP_BYTES,
  membershipOf,
  notRegistered,
} from '../rows/meetings.ts';
import { settingsOf } from '../rows/meeting_settings.ts';
import type { MembershipsTable } from '../rows/tables.ts';
import type { Sync } from './sync.ts';
import { allSettings, changeSettings, settings } from './meeting_settings.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';
import { assertRoomForAgents, assertRoomForMembership } from './quotas.ts';
import type { Recipients } from './meeting_recipients.ts';
import { lastRead } from './part.ts';
import { DIALECT } from './search.ts';
import { waitsOf } from './waits.ts';

const TOUCH = `
  INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at) VALUES ($meeting_id, 0, $wall_ms, $wall_ms)
  ON CONFLICT (meeting_id) DO UPDATE SET last_activity_at = $wall_ms`;

const JOIN = `
  INSERT INTO memberships (meeting_id, instance_id, agent_ids, joined_at, left_at, wake, catch_up, max_age_s)
    VALUES ($meeting_id, $instance_id, $agent_ids, $wall_ms, NULL, coalesce($wake, 'all'), coalesce($catch_up, 'all'),
      coalesce($max_age_s, 0))
  ON CONFLICT (meeting_id, instance_id) DO UPDATE SET
    agent_ids = excluded.agent_ids,
    joined_at = CASE WHEN left_at IS NULL THEN joined_at ELSE excluded.joined_at END,
    left_at = NULL,
    wake = coalesce($wake, wake),
    catch_up = coalesce($catch_up, catch_up),
    max_age_s = coalesce($max_age_s, max_age_s)
  RETURNING meeting_id, instance_id, agent_ids, joined_at, left_at, wake, catch_up, max_age_s`;

/** Changes no membership that has ended. */
const CHANGE = `
  UPDATE memberships SET
    agent_ids = coalesce($agent_ids, agent_ids),
    wake = coalesce($wake, wake),
    catch_up = coalesce($catch_up, catch_up),
    max_age_s = coalesce($max_age_s, max_age_s)
  WHERE meeting_id = $meeting_id AND left_at IS NULL
    AND instance_id = (SELECT instance_id FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED})
  RETURNING meeting_id, instance_id, agent_ids, joined_at, left_at, wake, catch_up, max_age_s`;

const NOTE_RULES = 'UPDATE instances SET has_rules = 1 WHERE instance_id = ? AND has_rules = 0';

/** A second leave keeps the time of the first one. Another join clears the time. */
const LEAVE = `
  UPDATE memberships SET left_at = coalesce(left_at, $wall_ms)
  WHERE meeting_id = $meeting_id
    AND instance_id = (SELECT instance_id FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED})
  RETURNING left_at`;

/** A filter of `list`; with `meeting_id`, only that meeting. */
type ListedMeetings = MeetingFilter & { meeting_id?: string };

export function meetingOperations(
  db: Database,
  recipients: Recipients,
  quotas: Quotas = NO_QUOTAS,
): Sync<MeetingStore> {
  /**
   * The meetings of a filter, without `q`, in the order of their ids. An index has exactly these. For the meetings of an
   * instance SQLite follows the index of its memberships, because the order is that of the memberships.
   */
  function listed(
    { cursor, instance_id, include_left, meeting_id }: Omit<ListedMeetings, 'limit'>,
    visibility: Visibility | null | undefined,
  ) {
    let query = db.build.selectFrom('meetings as m').$if(instance_id !== undefined, (all) => {
      const joined = all.innerJoin('memberships as j', 'j.meeting_id', 'm.meeting_id');
      const of_instance = joined.where('j.instance_id', '=', instance_id as string);
      return include_left === true ? of_instance : of_instance.where('j.left_at', 'is', null);
    });
    if (cursor !== undefined) query = query.where('m.meeting_id', '>', decodeCursor(cursor, ['string'])[0] as string);
    if (visibility)
      query = query.where(
        'm.meeting_id',
        'in',
        sql<string>`(SELECT value FROM json_each(${JSON.stringify(visibility.meeting_ids)}))`,
      );
    if (meeting_id !== undefined) query = query.where('m.meeting_id', '=', meeting_id);
    return query.orderBy(sql.ref(instance_id === undefined ? 'm.meeting_id' : 'j.meeting_id'));
  }

  function list(
    { limit, q, ...filter }: ListedMeetings,
    visibility?: Visibility | null,
    reads: Reads = SEARCH_READS,
  ): SearchPage<MeetingRow, string> {
    const meetings = listed(filter, visibility);
    const last =
      q === undefined
        ? null
        : lastRead(db, meetings.select(['m.meeting_id as id', sql<number>`0`.as('row_bytes')]), reads);
    let query = meetings
      .selectAll('m')
      .leftJoin('meeting_settings as t', 't.meeting_id', 'm.meeting_id')
      .select(sql<number>`${sql.raw(MEETING_BYTES)}`.as('row_bytes'))
      .select(['t.paused', 't.hop_limit', 't.pair_limit', 't.pair_window_s'])
      .select([
        sql<number>`(SELECT count(*) FROM memberships s WHERE s.meeting_id = m.meeting_id AND s.left_at IS NULL)`.as(
          'instance_count',
        ),
        sql<number>`(SELECT coalesce(sum(max(0, min(s.agent_count, 1000))), 0) FROM memberships s WHERE s.meeting_id = m.meeting_id AND s.left_at IS NULL)`.as(
          'agent_count',
        ),
        // Searches two indexes once for each membership: a meeting has few memberships, even if it has many deliveries.
        sql<number>`(SELECT coalesce(sum((SELECT count(*) FROM deliveries d WHERE d.instance_id = s.instance_id AND d.meeting_id = m.meeting_id AND d.state = 'pending' AND d.aside = 0)
          + (SELECT count(*) FROM deliveries d WHERE d.instance_id = s.instance_id AND d.meeting_id = m.meeting_id AND d.state = 'pending' AND d.aside = 1)), 0)
          FROM memberships s WHERE s.meeting_id = m.meeting_id)`.as('pending_deliveries'),
      ])
      .limit(limit + 1);
    if (last !== null) query = query.where('m.meeting_id', '<=', last);
    if (q !== undefined) query = query.where(isPart(DIALECT, 'm.meeting_id', q));
    const page = pageOf(
      db.each(query),
      limit,
      (row) => [row.meeting_id],
      (row): MeetingRow => {
        const { row_bytes: _, ...meeting } = row;
        return { ...meeting, ...settingsOf(meeting) };
      },
    );
    return searchedUpTo(page, last);
  }

  function exists(meeting_id: string): boolean {
    return db.prepare('SELECT 1 FROM meetings WHERE meeting_id = ?').get(meeting_id) !== undefined;
  }

  function members(meeting_id: string, { limit, cursor }: PageRequest) {
    const query = db.build
      .selectFrom('memberships as s')
      .innerJoin('instances as i', 'i.instance_id', 's.instance_id')
      .select(['s.meeting_id', 's.instance_id', 's.agent_ids', 's.left_at', 'i.instance_name'])
      .select(['s.wake', 's.catch_up', 's.max_age_s'])
      .select(sql<number>`${sql.raw(MEMBERSHIP_BYTES)}`.as('row_bytes'))
      .where('s.meeting_id', '=', meeting_id)
      .orderBy('s.instance_id')
      .limit(limit + 1);
    if (cursor === undefined) return query;
    return query.where('s.instance_id', '>', decodeCursor(cursor, ['string'])[0] as string);
  }

  return {
    join(
      meeting_id: string,
      instance_id: string,
      agent_ids: string[],
      wall_ms: number,
      owner_scope?: OwnerScope | null,
      rules: GivenRules = {},
    ) {
      const instance = db
        .prepare(`SELECT 1 FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED}`)
        .get({ instance_id, ...ownedBy(owner_scope) });
      if (instance === undefined) {
        throw notRegistered(instance_id);
      }
      const existing = db
        .prepare('SELECT left_at FROM memberships WHERE meeting_id = ? AND instance_id = ?')
        .get(meeting_id, instance_id) as { left_at: number | null } | undefined;
      const created = existing === undefined;
      if (existing === undefined || existing.left_at !== null)
        assertRoomForMembership(db, quotas, meeting_id, instance_id);
      const list = JSON.stringify(agent_ids);
      assertRoomForAgents(db, meeting_id, instance_id, list);
      recipients.forget(meeting_id);
      db.prepare(TOUCH).run({ meeting_id, wall_ms });
      const values = { meeting_id, instance_id, agent_ids: list, wall_ms, ...givenRules(rules) };
      const membership = membershipOf(db.prepare(JOIN).get(values) as unknown as MembershipsTable);
      if (hasRules(membership)) db.prepare(NOTE_RULES).run(instance_id);
      return { created, membership };
    },
    leave(meeting_id: string, instance_id: string, wall_ms: number, owner_scope?: OwnerScope | null) {
      const left = db.prepare(LEAVE).get({ meeting_id, instance_id, wall_ms, ...ownedBy(owner_scope) }) as
        { left_at: number } | undefined;
      if (left === undefined) return null;
      recipients.forget(meeting_id);
      db.prepare('UPDATE meetings SET last_activity_at = ? WHERE meeting_id = ?').run(wall_ms, meeting_id);
      return { left_at: left.left_at };
    },
    changeMembership(
      meeting_id: string,
      instance_id: string,
      { agent_ids, ...rules }: MembershipPatch,
      owner_scope?: OwnerScope | null,
    ) {
      const list_text = agent_ids === undefined ? null : JSON.stringify(agent_ids);
      const values = { meeting_id, instance_id, agent_ids: list_text, ...givenRules(rules), ...ownedBy(owner_scope) };
      const row = db.prepare(CHANGE).get(values) as MembershipsTable | undefined;
      if (row === undefined) return null;
      // A Problem that is thrown here rolls the change back.
      if (list_text !== null) assertRoomForAgents(db, meeting_id, instance_id, list_text);
      recipients.forget(meeting_id);
      const membership = membershipOf(row);
      if (hasRules(membership)) db.prepare(NOTE_RULES).run(instance_id);
      return membership;
    },
    get: (meeting_id) => list({ limit: 1, meeting_id }).data[0] ?? null,
    patch: (meeting_id, patch, wall_ms) =>
      changeSettings(db, meeting_id, patch, wall_ms) === null ? null : (list({ limit: 1, meeting_id }).data[0] ?? null),
    settings: (meeting_id) => settings(db, meeting_id),
    allSettings: (after, limit) => allSettings(db, after, limit),
    list,
    instances(meeting_id, { include_left, ...page }) {
      if (!exists(meeting_id)) return null;
      let query = members(meeting_id, page).select(['s.joined_at', 'i.consecutive_failures', 'i.last_success_at']);
      if (include_left !== true) query = query.where('s.left_at', 'is', null);
      return pageOf(
        db.each(query),
        page.limit,
        (row) => [row.instance_id],
        (row) => ({ ...membershipOf(row), instance_name: row.instance_name, health: healthOf(row) }),
      );
    },
    candidates(meeting_id, { instance_id, ...page }, now_ms) {
      if (!exists(meeting_id)) return null;
      let query = members(meeting_id, page).select(['i.is_active', 'i.webhook_enabled', ...waitsOf(db, now_ms)]);
      if (instance_id !== undefined) query = query.where('s.instance_id', '=', instance_id);
      return pageOf(db.each(query), page.limit, (row) => [row.instance_id], candidateOf);
    },
  };
}
