import type { Clock } from '../../delivery/clock.ts';
import type { Expiry } from '../../delivery/expiry.ts';
import { assertMeeting } from '../../domain/access.ts';
import { explained, type Imagined, isGuarded, notifiedOf } from '../../domain/explanation.ts';
import { type GuardLimits, limitsInForce } from '../../domain/guard_rule.ts';
import { hopsOf, refusalOf } from '../../domain/message_origin.ts';
import type { DeliveryStore } from '../../store/contract/deliveries.ts';
import { type MeetingStore, NO_SETTINGS } from '../../store/contract/meetings.ts';
import type { MessageStore } from '../../store/contract/messages.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { ExplainQuery, ExplanationSchema } from '../schemas/explanation.ts';
import { MeetingParams } from '../schemas/meetings.ts';
import { pageOf } from '../schemas/page.ts';
import { meetingNotFound } from './meetings.ts';

/** The most rows of a page when the loop guard may stop the message: each row then needs a read of its own. */
const GUARDED_ROWS_MAX = 100;
/** The most deliveries of an instance that are read for its row: as many as the guard itself reads. */
const BEFORE_ROWS_MAX = 2_000;

export interface ExplanationContext {
  store: {
    meetings: Pick<MeetingStore, 'candidates' | 'settings'>;
    messages: Pick<MessageStore, 'list' | 'get'>;
    deliveries: Pick<DeliveryStore, 'ofAgentsBefore'>;
  };
  clock: Clock;
  expiry: Pick<Expiry, 'ageOf'>;
  /** The limits of meetings without limits of their own. */
  limits_of_meetings: GuardLimits;
}

export function explanationRoutes(app: App, context: ExplanationContext): void {
  app.get('/api/v1/meetings/:meeting_id/explain/', EXPLAIN, (request) => explain(context, request));
}

const EXPLAIN = {
  config: { access: ['read'] },
  schema: {
    operationId: 'explain',
    tags: ['meetings'],
    summary: 'Who would get a message that is sent now, and why the others would not',
    description:
      'Stores nothing and pushes nothing. Returns each membership of the meeting, even an ended one, with the agents to which the message would be pushed. With from_agent a page holds at most 100.',
    params: MeetingParams,
    querystring: ExplainQuery,
    response: responses({
      200: ['A page of memberships.', pageOf(ExplanationSchema)],
      codes: ['meeting_does_not_exist'],
    }),
  },
} satisfies RouteShape;

type Query = RequestFor<typeof EXPLAIN>['query'];

async function explain(
  context: ExplanationContext,
  { params: { meeting_id }, query, principal }: RequestFor<typeof EXPLAIN>,
) {
  assertMeeting(principal, meeting_id);
  return explanationsOf(context, meeting_id, query);
}

/**
 * A page of the recipients that a send would have now.
 *
 * @throws Problem `meeting_does_not_exist`
 */
export async function explanationsOf(context: ExplanationContext, meeting_id: string, query: Query) {
  const { store, clock, limits_of_meetings } = context;
  const { target_agents, instance_id, cursor, limit = 50 } = query;
  const from_agent = query.from_agent ?? null;
  const settings = (await store.meetings.settings(meeting_id)) ?? NO_SETTINGS;
  const limits = limitsInForce(settings, limits_of_meetings);
  const accepted_at = clock.wall();
  const hops = await hopsNow(context, meeting_id, query, accepted_at);
  const message: Imagined = { targets: target_agents ? new Set(target_agents) : null, from_agent, hops, accepted_at };
  const is_guarded = isGuarded(message, limits);
  const page = await store.meetings.candidates(
    meeting_id,
    { instance_id, cursor, limit: is_guarded ? Math.min(limit, GUARDED_ROWS_MAX) : limit },
    clock.now(),
  );
  if (page === null) throw meetingNotFound(meeting_id);
  const data = [];
  for (const { instance_id, instance_name, ...candidate } of page.data) {
    const counts = is_guarded && notifiedOf(candidate, message).length > 0;
    // One call after the other, so that the store can do other work meanwhile.
    const before = counts ? await agentDeliveriesTo(context, meeting_id, instance_id, message, limits) : [];
    const { agent_ids, wake } = candidate;
    const { may_become, ...found } = explained(candidate, message, { paused: settings.paused, limits }, before);
    const shown = { instance_id, instance_name, agent_ids: [...agent_ids], ...found };
    data.push({ ...shown, ...(wake !== 'all' && { wake }), ...(may_become.length > 0 && { may_become }) });
  }
  return { data, next_cursor: page.next_cursor };
}

/** The rows of a lane that the guard reads: see delivery/attempts/loop_guard.ts. */
async function agentDeliveriesTo(
  { store, clock, expiry }: ExplanationContext,
  meeting_id: string,
  instance_id: string,
  { accepted_at }: Imagined,
  { pair_window_s }: GuardLimits,
) {
  const lane = { meeting_id, instance_id, delivery_id: null, seq: Number.MAX_SAFE_INTEGER };
  const since_ms = accepted_at - 2 * pair_window_s * 1_000;
  const before = await store.deliveries.ofAgentsBefore(lane, since_ms, BEFORE_ROWS_MAX);
  const now = clock.now();
  return before.map((sent) => ({
    ...sent,
    target_agents: JSON.parse(sent.target_agents) as string[],
    age_ms: expiry.ageOf(sent, now),
  }));
}

/** @throws Problem `invalid_fields`, as a send with this in_reply_to would */
async function hopsNow(
  { store }: ExplanationContext,
  meeting_id: string,
  query: Query,
  wall_ms: number,
): Promise<number> {
  const { in_reply_to } = query;
  const from_agent = query.from_agent ?? null;
  if (in_reply_to !== undefined) {
    const answered = await store.messages.get(in_reply_to);
    if (answered?.meeting_id !== meeting_id) throw refusalOf('in_reply_to');
    return hopsOf(from_agent, answered.origin?.hops ?? 0, null, wall_ms);
  }
  if (from_agent === null) return 0;
  const before = (await store.messages.list(meeting_id, { limit: 1, chars_max: 1 }))?.data[0];
  const newest = before && { hops: before.origin?.hops ?? 0, accepted_at: before.accepted_at };
  return hopsOf(from_agent, null, newest ?? null, wall_ms);
}
