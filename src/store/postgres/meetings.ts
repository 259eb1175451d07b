import type { Quotas } from '../contract/quotas.ts';
import { sql } from 'kysely';
import { hasRules } from '../../domain/catch_up.ts';
import { healthOf } from '../../domain/instance.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import { searchedUpTo } from '../rows/part.ts';
import { lastRead } from './part.ts';
import { DIALECT } from './search.ts';
import { rowsOfPage } from './page.ts';
import { isPart } from '../rows/search.ts';
import {
  candidateOf,
  givenRules,
  MEETING_BYTES,
  MEMBERSHIP_BYTES,
  membershipOf,
  notRegistered,
} from '../rows/meetings.ts';
import type { MeetingFilter, MeetingRow, MeetingStore } from '../contract/meetings.ts';
import type { PageRequest } from '../contract/page.ts';
import { type Reads, SEARCH_READS, type SearchPage } from '../contract/search.ts';
import type { Visibility } from '../../domain/access.ts';
import { settingsOf } from '../rows/meeting_settings.ts';
import type { MembershipsTable } from '../rows/tables.ts';
import { build, type Session, statement } from './database.ts';
import { allSettings, changeSettings, settings } from './meeting_settings.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';
import { assertRoomForAgents, assertRoomForMembership } from './quotas.ts';
import { waitsOf } from './waits.ts';

/** Locks the instance: nobody removes it, or lets it join another meeting, before this transaction ends. */
const LOCK_INSTANCE = statement(
  `SELECT 1 FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED} FOR NO KEY UPDATE`,
);

/**
 * Writes the last seq too, so that this activity counts as later than all messages until now: see meetings in
 * first_step.ts.
 */
const ACTIVE = `
  last_activity_at = $wall_ms, last_seq = greatest(meetings.last_seq, (SELECT max(m.seq) FROM messages m WHERE m.meeting_id = $meeting_id))`;

/** Locks the row: an accept for the meeting either commits before this change or sees its result. */
const TOUCH = statement(`
  INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at) VALUES ($meeting_id, 0, $wall_ms::bigint, $wall_ms)
  ON CONFLICT (meeting_id) DO UPDATE SET ${ACTIVE}`);

const EXISTING = statement(
  'SELECT left_at FROM memberships WHERE meeting_id = $meeting_id AND instance_id = $instance_id',
);

const JOIN = statement(`
  INSERT INTO memberships AS s (meeting_id, instance_id, agent_ids, joined_at, left_at, wake, catch_up, max_age_s)
    VALUES ($meeting_id, $instance_id, $agent_ids, $wall_ms, NULL, coalesce($wake::text, 'all'), coalesce($catch_up::text, 'all'),
      coalesce($max_age_s::bigint, 0))
  ON CONFLICT (meeting_id, instance_id) DO UPDATE SET
    agent_ids = excluded.agent_ids,
    joined_at = CASE WHEN s.left_at IS NULL THEN s.joined_at ELSE excluded.joined_at END,
    left_at = NULL,
    wake = coalesce($wake::text, s.wake),
    catch_up = coalesce($catch_up::text, s.catch_up),
    max_age_s = coalesce($max_age_s::bigint, s.max_age_s)
  RETURNING meeting_id, instance_id, agent_ids, joined_at, left_at, wake, catch_up, max_age_s`);

/** Changes no membership that has ended. */
const CHANGE = statement(`
  UPDATE memberships SET
    agent_ids = coalesce($agent_ids::text, agent_ids),
    wake = coalesce($wake::text, wake),
    catch_up = coalesce($catch_up::text, catch_up),
    max_age_s = coalesce($max_age_s::bigint, max_age_s)
  WHERE meeting_id = $meeting_id AND instance_id = $instance_id AND left_at IS NULL
  RETURNING meeting_id, instance_id, agent_ids, joined_at, left_at, wake, catch_up, max_age_s`);

const NOTE_RULES = statement('UPDATE instances SET has_rules = 1 WHERE instance_id = $instance_id AND has_rules = 0');

const LOCK_MEETING = statement('SELECT 1 FROM meetings WHERE meeting_id = $meeting_id FOR NO KEY UPDATE');

/** A second leave keeps the time of the first one. Another join clears the time. */
const LEAVE = statement(`
  UPDATE memberships SET left_at = coalesce(left_at, $wall_ms)
  WHERE meeting_id = $meeting_id
    AND instance_id = (SELECT instance_id FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED})
  RETURNING left_at`);

const NOTE_ACTIVITY = statement(`UPDATE meetings SET ${ACTIVE} WHERE meeting_id = $meeting_id`);

const EXISTS = statement('SELECT 1 FROM meetings WHERE meeting_id = $meeting_id');

export function meetingOperations(session: Session, { quotas }: { quotas: Quotas }): MeetingStore {
  async function list(
    { limit, cursor, q, instance_id, include_left, meeting_id }: MeetingFilter & { meeting_id?: string },
    visibility?: Visibility | null,
    reads: Reads = SEARCH_READS,
  ): Promise<SearchPage<MeetingRow, string>> {
    let meetings = build.selectFrom('meetings as m').orderBy('m.meeting_id');
    if (cursor !== undefined)
      meetings = meetings.where('m.meeting_id', '>', decodeCursor(cursor, ['string'])[0] as string);
    if (visibility) meetings = meetings.where(sql<boolean>`m.meeting_id = ANY (${visibility.meeting_ids}::text[])`);
    if (instance_id !== undefined) {
      meetings = meetings.where('m.meeting_id', 'in', (sub) => {
        const joined = sub.selectFrom('memberships').select('meeting_id').where('instance_id', '=', instance_id);
        return include_left === true ? joined : joined.where('left_at', 'is', null);
      });
    }
    if (meeting_id !== undefined) meetings = meetings.where('m.meeting_id', '=', meeting_id);
    const ids = meetings.select(['m.meeting_id as id', sql<number>`0`.as('row_bytes')]);
    const last = q === undefined ? null : await lastRead(session, ids, reads);
    let found = meetings
      .select(['m.meeting_id', sql<number>`${sql.raw(MEETING_BYTES)}`.as('row_bytes')])
      .limit(limit + 1);
    if (last !== null) found = found.where('m.meeting_id', '<=', last);
    if (q !== undefined) found = found.where(isPart(DIALECT, 'm.meeting_id', q));
    const page = pageOf(
      await rowsOfPage(session, found, 'meeting_id'),
      limit,
      (row) => [row.meeting_id],
      (row) => row.meeting_id,
    );
    return searchedUpTo({ ...page, data: await counted(page.data) }, last);
  }

  /** These meetings, with their counts, in the order of their ids. */
  async function counted(meeting_ids: string[]): Promise<MeetingRow[]> {
    const query = build
      .selectFrom('meetings as m')
      .leftJoinLateral(
        (from) =>
          from
            .selectFrom('messages')
            .select(['seq', 'accepted_at'])
            .whereRef('messages.meeting_id', '=', 'm.meeting_id')
            .orderBy('seq', 'desc')
            .limit(1)
            .as('newest'),
        (join) => join.onTrue(),
      )
      .leftJoin('meeting_settings as t', 't.meeting_id', 'm.meeting_id')
      .select(['m.meeting_id', 'm.created_at', 't.paused', 't.hop_limit', 't.pair_limit', 't.pair_window_s'])
      .select([
        sql<number>`greatest(m.last_seq, newest.seq)`.as('last_seq'),
        sql<number>`CASE WHEN newest.seq > m.last_seq THEN newest.accepted_at ELSE m.last_activity_at END`.as(
          'last_activity_at',
        ),
      ])
      .select([
        sql<number>`(SELECT count(*) FROM memberships s WHERE s.meeting_id = m.meeting_id AND s.left_at IS NULL)`.as(
          'instance_count',
        ),
        sql<number>`(SELECT coalesce(sum(coalesce(s.agent_count, json_array_length(s.agent_ids::json))), 0) FROM memberships s WHERE s.meeting_id = m.meeting_id AND s.left_at IS NULL)`.as(
          'agent_count',
        ),
        // Searches once for each membership: a meeting has few memberships, even if it has many deliveries.
        sql<number>`(SELECT coalesce(sum((SELECT count(*) FROM pending_deliveries d WHERE d.partition_no = x.partition_no AND d.instance_id = s.instance_id AND d.meeting_id = m.meeting_id)), 0)
          FROM memberships s JOIN instances x ON x.instance_id = s.instance_id WHERE s.meeting_id = m.meeting_id)`.as(
          'pending_deliveries',
        ),
      ])
      .where(sql<boolean>`m.meeting_id = ANY (${meeting_ids}::text[])`)
      .orderBy('m.meeting_id');
    return (await session.built(query)).map((row): MeetingRow => ({ ...row, ...settingsOf(row) }));
  }

  async function exists(meeting_id: string): Promise<boolean> {
    return (await session.one(EXISTS, { meeting_id })) !== undefined;
  }

  function members(meeting_id: string, { limit, cursor }: PageRequest) {
    const query = build
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
    async join(meeting_id, instance_id, agent_ids, wall_ms, owner_scope, rules = {}) {
      const instance = await session.one(LOCK_INSTANCE, { instance_id, ...ownedBy(owner_scope) });
      if (instance === undefined) throw notRegistered(instance_id);
      await session.run(TOUCH, { meeting_id, wall_ms });
      const existing = await session.one<{ left_at: number | null }>(EXISTING, { meeting_id, instance_id });
      if (existing === undefined || existing.left_at !== null)
        await assertRoomForMembership(session, quotas, meeting_id, instance_id);
      const list = JSON.stringify(agent_ids);
      await assertRoomForAgents(session, meeting_id, instance_id, list);
      const given = givenRules(rules);
      const values = { meeting_id, instance_id, agent_ids: list, wall_ms, ...given };
      const membership = membershipOf((await session.one<MembershipsTable>(JOIN, values)) as MembershipsTable);
      if (hasRules(membership)) await session.run(NOTE_RULES, { instance_id });
      // The node that delivers to the instance reads the rules again.
      if (Object.values(given).some((each) => each !== null)) {
        session.messages.push({ kind: 'instance', instance_id, lifts: false, requeued: false });
      }
      return { created: existing === undefined, membership };
    },
    async leave(meeting_id, instance_id, wall_ms, owner_scope) {
      await session.all(LOCK_MEETING, { meeting_id });
      const left = await session.one<{ left_at: number }>(LEAVE, {
        meeting_id,
        instance_id,
        wall_ms,
        ...ownedBy(owner_scope),
      });
      if (left === undefined) return null;
      await session.run(NOTE_ACTIVITY, { meeting_id, wall_ms });
      return { left_at: left.left_at };
    },
    async changeMembership(meeting_id, instance_id, { agent_ids, ...rules }, owner_scope) {
      const instance = await session.one(LOCK_INSTANCE, { instance_id, ...ownedBy(owner_scope) });
      if (instance === undefined) return null;
      // An accept for the meeting either commits before this change or sees its result.
      await session.all(LOCK_MEETING, { meeting_id });
      const list_text = agent_ids === undefined ? null : JSON.stringify(agent_ids);
      const values = { meeting_id, instance_id, agent_ids: list_text, ...givenRules(rules) };
      const row = await session.one<MembershipsTable>(CHANGE, values);
      if (row === undefined) return null;
      // A Problem that is thrown here rolls the change back.
      if (list_text !== null) await assertRoomForAgents(session, meeting_id, instance_id, list_text);
      const membership = membershipOf(row);
      if (hasRules(membership)) await session.run(NOTE_RULES, { instance_id });
      session.messages.push({ kind: 'instance', instance_id, lifts: false, requeued: false });
      return membership;
    },
    get: async (meeting_id) => (await list({ limit: 1, meeting_id })).data[0] ?? null,
    async patch(meeting_id, patch, wall_ms) {
      if ((await changeSettings(session, meeting_id, patch, wall_ms)) === null) return null;
      return (await list({ limit: 1, meeting_id })).data[0] ?? null;
    },
    settings: (meeting_id) => settings(session, meeting_id),
    allSettings: (after, limit) => allSettings(session, after, limit),
    list,
    async instances(meeting_id, { include_left, ...page }) {
      if (!(await exists(meeting_id))) return null;
      let query = members(meeting_id, page).select(['s.joined_at', 'i.consecutive_failures', 'i.last_success_at']);
      if (include_left !== true) query = query.where('s.left_at', 'is', null);
      return pageOf(
        await rowsOfPage(session, query, 'instance_id'),
        page.limit,
        (row) => [row.instance_id],
        (row) => ({ ...membershipOf(row), instance_name: row.instance_name, health: healthOf(row) }),
      );
    },
    async candidates(meeting_id, { instance_id, ...page }, now_ms) {
      if (!(await exists(meeting_id))) return null;
      let query = members(meeting_id, page).select(['i.is_active', 'i.webhook_enabled', ...waitsOf(now_ms)]);
      if (instance_id !== undefined) query = query.where('s.instance_id', '=', instance_id);
      return pageOf(
        await rowsOfPage(session, query, 'instance_id'),
        page.limit,
        (row) => [row.instance_id],
        candidateOf,
      );
    },
  };
}
