import type { FastifyReply } from 'fastify';
import type { Changes } from '../../changes/changes.ts';
import type { Clock } from '../../delivery/clock.ts';
import type { Log } from '../../delivery/bounded_log.ts';
import { assertMeeting } from '../../domain/access.ts';
import { assertAddressable, uniqueIds } from '../../domain/id.ts';
import type { GuardLimits } from '../../domain/guard_rule.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { isoTimeOrNull } from '../../domain/time.ts';
import type { MeetingRow, MeetingStore } from '../../store/contract/meetings.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import type { JsonBody } from '../../domain/request_body.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { LIST_BODY_BYTES_MAX } from '../schemas/fields.ts';
import {
  JoinMeetingBody,
  LeaveMeetingBody,
  LeftMeetingSchema,
  ListMeetingInstancesQuery,
  ListMeetingsQuery,
  MeetingInstanceSchema,
  MeetingParams,
  MeetingSchema,
  MembershipParams,
  MembershipSchema,
  UpdateMeetingBody,
  UpdateMembershipBody,
} from '../schemas/meetings.ts';
import { idPageOf, pageOf } from '../schemas/page.ts';
import { SEARCH_MS_MAX, searchOn, wireSearched } from './searches.ts';
import { wireMeeting, wireMeetingInstance, wireMembership } from '../wire.ts';

export interface MeetingContext {
  store: { meetings: Pick<MeetingStore, 'get' | 'list' | 'instances'> };
  changes: Pick<Changes, 'meetings' | 'memberships'>;
  clock: Clock;
  log: Log;
  /** The limits of meetings without limits of their own. */
  limits_of_meetings: GuardLimits;
  audit_trail: Pick<AuditTrail, 'authorOf'>;
}

export function meetingRoutes(app: App, context: MeetingContext): void {
  app.post('/api/v1/instances/join-meeting/', JOIN_MEETING, (request, reply) => joinMeeting(context, request, reply));
  app.post('/api/v1/instances/leave-meeting/', LEAVE_MEETING, (request) => leaveMeeting(context, request));
  app.get('/api/v1/meetings/', LIST_MEETINGS, (request) => listMeetings(context, request));
  app.get('/api/v1/meetings/:meeting_id/', GET_MEETING, (request) => getMeeting(context, request));
  app.patch('/api/v1/meetings/:meeting_id/', UPDATE_MEETING, (request) => updateMeeting(context, request));
  app.get('/api/v1/meetings/:meeting_id/instances/', LIST_MEETING_INSTANCES, (request) =>
    listMeetingInstances(context, request),
  );
  app.patch('/api/v1/meetings/:meeting_id/instances/:instance_id/', UPDATE_MEMBERSHIP, (request) =>
    updateMembership(context, request),
  );
}

const JOIN_MEETING = {
  bodyLimit: LIST_BODY_BYTES_MAX,
  config: {
    access: ['instance'],
    portal_link: 'A portal link joins no meeting: who is in a meeting reads it.',
    audit: { action: 'meeting.join', target: 'instance' },
  },
  schema: {
    operationId: 'joinMeeting',
    tags: ['meetings'],
    summary: 'Link an instance to a meeting, with the agents that take part',
    description:
      'Joining again replaces the agents and undoes a leave. It replaces `wake`, `catch_up` and `max_age_s` if they are given. The agents need not be in the list of the instance.',
    body: JoinMeetingBody,
    response: responses({
      201: ['The instance joined for the first time.', MembershipSchema],
      200: ['It was in the meeting before.', MembershipSchema],
      codes: ['instance_does_not_exist', 'quota_exceeded'],
    }),
  },
} satisfies RouteShape;

async function joinMeeting(
  { changes, audit_trail }: MeetingContext,
  request: RequestFor<typeof JOIN_MEETING>,
  reply: FastifyReply,
) {
  const { body, json, principal } = request;
  const meeting_id = meetingIdOf(body.meeting_id, json);
  assertAddressable('meeting_id', meeting_id);
  assertMeeting(principal, meeting_id);
  const author = audit_trail.authorOf(request);
  const agent_ids = uniqueIds(body.agent_ids);
  const { instance_id, wake, catch_up, max_age_s } = body;
  const rules = { wake, catch_up, max_age_s };
  const { created, membership } = await changes.memberships.join(author, meeting_id, instance_id, agent_ids, rules);
  return reply.code(created ? 201 : 200).send(wireMembership(membership));
}

const LEAVE_MEETING = {
  config: {
    access: ['instance'],
    portal_link: 'A portal link leaves no meeting: it could not join again.',
    audit: { action: 'meeting.leave', target: 'instance' },
  },
  schema: {
    operationId: 'leaveMeeting',
    tags: ['meetings'],
    summary: 'Take an instance out of a meeting',
    description:
      'Earlier messages are still delivered. If the instance is not in the meeting, the service logs that, and it is no error.',
    body: LeaveMeetingBody,
    response: responses({ 200: ['When it left.', LeftMeetingSchema], codes: [] }),
  },
} satisfies RouteShape;

async function leaveMeeting({ changes, log, audit_trail }: MeetingContext, request: RequestFor<typeof LEAVE_MEETING>) {
  const { body, json, principal } = request;
  const { instance_id, meeting_id: given_id } = body;
  const meeting_id = meetingIdOf(given_id, json);
  assertMeeting(principal, meeting_id);
  const left = await changes.memberships.leave(audit_trail.authorOf(request), meeting_id, instance_id);
  if (left === null) log.warn({ instance_id, meeting_id }, 'leave meeting: no such instance or membership');
  return { instance_id, meeting_id, left_at: isoTimeOrNull(left?.left_at ?? null) };
}

const LIST_MEETINGS = {
  config: { access: ['read'] },
  schema: {
    operationId: 'listMeetings',
    tags: ['meetings'],
    summary: 'List meetings, in the order of their ids',
    description:
      'Each with the number of its instances and agents, and the time of its last activity. With q the service has to read the ids, and one request reads a limited number. When it stops at that limit, `searched_to` says how far it came, and next_cursor continues there.',
    querystring: ListMeetingsQuery,
    response: responses({ 200: ['A page of meetings.', idPageOf(MeetingSchema)], codes: [] }),
  },
} satisfies RouteShape;

async function listMeetings(
  { store, clock, limits_of_meetings }: MeetingContext,
  { query, principal }: RequestFor<typeof LIST_MEETINGS>,
) {
  const { limit = 50, cursor, ...filter } = query;
  const found = await searchOn<MeetingRow, string>(
    { limit, cursor },
    { clock, ms_max: SEARCH_MS_MAX },
    ({ meeting_id }) => meeting_id.length,
    (page, reads) => store.meetings.list({ ...filter, ...page }, principal.visibility, reads),
  );
  return { data: found.data.map((row) => wireMeeting(row, limits_of_meetings)), ...wireSearched(found) };
}

const GET_MEETING = {
  config: { access: ['read'] },
  schema: {
    operationId: 'getMeeting',
    tags: ['meetings'],
    summary: 'One meeting',
    description: 'With the number of instances and agents, the pending deliveries, and whether it is paused.',
    params: MeetingParams,
    response: responses({ 200: ['The meeting.', MeetingSchema], codes: ['meeting_does_not_exist'] }),
  },
} satisfies RouteShape;

async function getMeeting(
  { store, limits_of_meetings }: MeetingContext,
  { params, principal }: RequestFor<typeof GET_MEETING>,
) {
  const { meeting_id } = params;
  assertMeeting(principal, meeting_id);
  const row = await store.meetings.get(meeting_id);
  if (row === null) throw meetingNotFound(meeting_id);
  return wireMeeting(row, limits_of_meetings);
}

const UPDATE_MEETING = {
  config: { access: ['admin'], audit: { action: 'meeting.update', target: 'meeting' } },
  schema: {
    operationId: 'updateMeeting',
    tags: ['meetings'],
    summary: 'Pause a meeting, resume it, or set the limits of its loop guard',
    description:
      'While a meeting is paused, messages are accepted as always, and their deliveries wait: no attempt is made, and no retry is spent. After it is resumed, they are delivered in their order. A push that is in flight ends as usual. The limits say when agents that answer each other are stopped.',
    params: MeetingParams,
    body: UpdateMeetingBody,
    response: responses({
      200: ['The meeting, as it is now.', MeetingSchema],
      codes: ['meeting_does_not_exist', 'quota_exceeded'],
    }),
  },
} satisfies RouteShape;

async function updateMeeting(
  { changes, audit_trail, limits_of_meetings }: MeetingContext,
  request: RequestFor<typeof UPDATE_MEETING>,
) {
  const { meeting_id } = request.params;
  const row = await changes.meetings.update(audit_trail.authorOf(request), meeting_id, request.body);
  if (row === null) throw meetingNotFound(meeting_id);
  return wireMeeting(row, limits_of_meetings);
}

const LIST_MEETING_INSTANCES = {
  config: { access: ['read'] },
  schema: {
    operationId: 'listMeetingInstances',
    tags: ['meetings'],
    summary: 'The instances in a meeting',
    description: 'The memberships of a meeting, each with the name and the health of its instance.',
    params: MeetingParams,
    querystring: ListMeetingInstancesQuery,
    response: responses({
      200: ['A page of memberships.', pageOf(MeetingInstanceSchema)],
      codes: ['meeting_does_not_exist'],
    }),
  },
} satisfies RouteShape;

async function listMeetingInstances(
  { store }: MeetingContext,
  { params: { meeting_id }, query, principal }: RequestFor<typeof LIST_MEETING_INSTANCES>,
) {
  assertMeeting(principal, meeting_id);
  const page = await store.meetings.instances(meeting_id, { ...query, limit: query.limit ?? 50 });
  if (page === null) throw meetingNotFound(meeting_id);
  return { data: page.data.map(wireMeetingInstance), next_cursor: page.next_cursor };
}

const UPDATE_MEMBERSHIP = {
  bodyLimit: LIST_BODY_BYTES_MAX,
  config: {
    access: ['instance'],
    portal_link: 'A portal link changes no membership: that decides what the machine reads of a meeting.',
    audit: { action: 'membership.update', target: 'instance' },
  },
  schema: {
    operationId: 'updateMembership',
    tags: ['meetings'],
    summary: 'Change the agents or the rules of an instance in a meeting',
    description:
      'Changes its agents, `wake`, `catch_up` and `max_age_s` in the meeting. They apply at once, even to messages that already wait. Unlike another join, this never undoes a leave.',
    params: MembershipParams,
    body: UpdateMembershipBody,
    response: responses({
      200: ['The membership, as it is now.', MembershipSchema],
      codes: ['membership_does_not_exist', 'quota_exceeded'],
    }),
  },
} satisfies RouteShape;

async function updateMembership(
  { changes, audit_trail }: MeetingContext,
  request: RequestFor<typeof UPDATE_MEMBERSHIP>,
) {
  const { params, body, principal } = request;
  const { meeting_id, instance_id } = params;
  assertMeeting(principal, meeting_id);
  const { agent_ids, ...rules } = body;
  const patch = { ...rules, agent_ids: agent_ids === undefined ? undefined : uniqueIds(agent_ids) };
  const membership = await changes.memberships.change(audit_trail.authorOf(request), meeting_id, instance_id, patch);
  if (membership === null)
    throw new Problem(
      'membership_does_not_exist',
      `The instance ${JSON.stringify(instance_id)} is not in the meeting ${JSON.stringify(meeting_id)}.`,
    );
  return wireMembership(membership);
}

export function meetingNotFound(meeting_id: string): Problem {
  return new Problem(
    'meeting_does_not_exist',
    `Nobody joined the meeting ${JSON.stringify(meeting_id)} and nothing was sent in it.`,
  );
}

/** An integer keeps the digits that it has in the body: JavaScript would round a long integer. */
export function meetingIdOf(given: string | number, json: JsonBody | null): string {
  if (typeof given === 'string') return given;
  const digits = json?.textOf('meeting_id') ?? '';
  if (!/^-?\d{1,200}$/.test(digits))
    throw invalidField('meeting_id', 'must be a string, or an integer written with digits only');
  return digits;
}
