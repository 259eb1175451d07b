import type { FastifyReply } from 'fastify';
import type { Clock } from '../../delivery/clock.ts';
import type { Expiry } from '../../delivery/expiry.ts';
import { assertMeeting } from '../../domain/access.ts';
import { explained, type Imagined, isGuarded, notifiedOf } from '../../domain/explanation.ts';
import { GUARD_READ, type GuardLimits, limitsInForce } from '../../domain/guard_rule.ts';
import { hopsOf, refusalOf } from '../../domain/message_origin.ts';
import type { DeliveryStore } from '../../store/contract/deliveries.ts';
import { type MeetingStore, NO_SETTINGS } from '../../store/contract/meetings.ts';
import type { MessageStore } from '../../store/contract/messages.ts';
import { PAGE_BYTES_MAX } from '../../store/rows/page.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { isAwaited } from '../on_closed.ts';
import { responses } from '../responses.ts';
import { ExplainQuery, ExplanationSchema } from '../schemas/explanation.ts';
import { MeetingParams } from '../schemas/meetings.ts';
import { pageOf } from '../schemas/page.ts';
import { Turnstile } from '../turnstile.ts';
import { meetingNotFound } from './meetings.ts';

/** The most rows of a page when the loop guard may stop the message: each row then needs a read of its own. */
const GUARDED_ROWS_MAX = 100;
/** The most bytes of lists of agents that one request reads, over all its rows. With more, the page ends early. */
const REQUEST_BYTES_MAX = 4 * GUARD_READ.bytes_max;
/**
 * The reads of all requests wait for each other, because each may take megabytes and hold up the event loop for tens of
 * milliseconds.
 */
const turnstile = new Turnstile(1);

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
  app.get('/api/v1/meetings/:meeting_id/explain/', EXPLAIN, (request, reply) => explain(context, request, reply));
}

const EXPLAIN = {
  config: { access: ['read'] },
  schema: {
    operationId: 'explain',
    tags: ['meetings'],
    summary: 'Who would get a message that is sent now, and why the others would not',
    description:
      'Stores nothing and pushes nothing. Returns each membership of the meeting, even an ended one, with the agents to which the message would be pushed. With from_agent a page holds at most 100, and fewer where much was said: next_cursor continues there.',
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
  { raw }: FastifyReply,
) {
  assertMeeting(principal, meeting_id);
  return explanationsOf(context, meeting_id, query, () => isAwaited(raw));
}

/**
 * A page of the recipients that a send would have now.
 *
 * @param isAwaited whether somebody still waits for the page; if not, nothing more is read for it
 * @throws Problem `meeting_does_not_exist`
 */
export async function explanationsOf(
  context: ExplanationContext,
  meeting_id: string,
  query: Query,
  isAwaited: () => boolean = () => true,
) {
  const { store, clock, limits_of_meetings } = context;
  const { target_agents, instance_id, limit = 50 } = query;
  const from_agent = query.from_agent ?? null;
  const settings = (await store.meetings.settings(meeting_id)) ?? NO_SETTINGS;
  const limits = limitsInForce(settings, limits_of_meetings);
  const accepted_at = clock.wall();
  const hops = await hopsNow(context, meeting_id, query, accepted_at);
  const message: Imagined = { targets: target_agents ? new Set(target_agents) : null, from_agent, hops, accepted_at };
  const is_guarded = isGuarded(message, limits);
  const rows_max = is_guarded ? Math.min(limit, GUARDED_ROWS_MAX) : limit;
  const data = [];
  let bytes_left = REQUEST_BYTES_MAX;
  let list_chars = 0;
  let { cursor } = query;
  for (;;) {
    // No more rows than can be read even if the deliveries of each have the longest lists.
    const rows = is_guarded ? Math.floor(bytes_left / GUARD_READ.bytes_max) : rows_max;
    const page = await store.meetings.candidates(
      meeting_id,
      { instance_id, cursor, limit: Math.min(rows, rows_max - data.length) },
      clock.now(),
    );
    if (page === null) throw meetingNotFound(meeting_id);
    for (const { instance_id, instance_name, ...candidate } of page.data) {
      const explain = (before: Awaited<ReturnType<typeof agentDeliveriesTo>>) => {
        for (const sent of before) bytes_left -= sent.list_chars;
        return explained(candidate, message, { paused: settings.paused, limits }, before);
      };
      const counts = is_guarded && notifiedOf(candidate, message).length > 0;
      const { may_become, ...found } = counts
        ? await turnstile.pass(async () =>
            explain(isAwaited() ? await agentDeliveriesTo(context, meeting_id, instance_id, message, limits) : []),
          )
        : explain([]);
      const { agent_ids, wake } = candidate;
      const shown = { instance_id, instance_name, agent_ids: [...agent_ids], ...found };
      data.push({ ...shown, ...(wake !== 'all' && { wake }), ...(may_become.length > 0 && { may_become }) });
      list_chars += JSON.stringify(agent_ids).length;
    }
    const { next_cursor } = page;
    const is_full = data.length >= rows_max || list_chars >= PAGE_BYTES_MAX || bytes_left < GUARD_READ.bytes_max;
    if (next_cursor === null || is_full || !is_guarded || !isAwaited()) return { data, next_cursor };
    cursor = next_cursor;
  }
}

/** The messages of the sender in a lane, among the rows that the guard reads: see delivery/attempts/loop_guard.ts. */
async function agentDeliveriesTo(
  { store, clock, expiry }: ExplanationContext,
  meeting_id: string,
  instance_id: string,
  { accepted_at, from_agent }: Imagined,
  { pair_window_s }: GuardLimits,
) {
  const lane = { meeting_id, instance_id, delivery_id: null, seq: Number.MAX_SAFE_INTEGER };
  const since_ms = accepted_at - 2 * pair_window_s * 1_000;
  const before = await store.deliveries.ofAgentsBefore(lane, since_ms, { ...GUARD_READ, from_agent });
  const now = clock.now();
  return before.map((sent) => ({
    ...sent,
    target_agents: JSON.parse(sent.target_agents) as string[],
    list_chars: sent.target_agents.length,
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
