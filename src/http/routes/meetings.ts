import { assertMeeting } from '../../domain/access.ts';
import { assertAddressable, uniqueIds } from '../../domain/id.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { isoTimeOrNull } from '../../domain/time.ts';
import type { JsonBody } from '../intake/json_body.ts';
import { responses } from '../responses.ts';
import { membershipEvent } from '../../feed/events.ts';
import type { App, HttpContext } from '../context.ts';
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
  MembershipSchema,
} from '../schemas/meetings.ts';
import { pageOf } from '../schemas/page.ts';
import { wireMeeting, wireMeetingInstance, wireMembership } from '../wire.ts';

export function meetingRoutes(app: App, { store, clock, log, audit_trail, feed }: HttpContext): void {
  app.post(
    '/api/v1/instances/join-meeting/',
    {
      bodyLimit: LIST_BODY_BYTES_MAX,
      config: { access: ['instance'], audit: { action: 'meeting.join', target: 'instance' } },
      schema: {
        operationId: 'joinMeeting',
        tags: ['meetings'],
        summary: 'Link an instance to a meeting, with the agents that take part',
        description:
          'Joining again replaces the agents and undoes a leave. The agents need not be in the list of the instance.',
        body: JoinMeetingBody,
        response: responses({
          201: ['The instance joined for the first time.', MembershipSchema],
          200: ['It was in the meeting before.', MembershipSchema],
          codes: ['instance_does_not_exist', 'quota_exceeded'],
        }),
      },
    },
    async (request, reply) => {
      const { body, json, principal } = request;
      const meeting_id = meetingIdOf(body.meeting_id, json);
      assertAddressable('meeting_id', meeting_id);
      assertMeeting(principal, meeting_id);
      const { created, membership } = await audit_trail
        .storeFor(request, { details: { meeting_id } })
        .meetings.join(meeting_id, body.instance_id, uniqueIds(body.agent_ids), clock.wall(), principal.owner_scope);
      feed.publish(membershipEvent('instance.joined', body.instance_id, meeting_id, membership.joined_at));
      return reply.code(created ? 201 : 200).send(wireMembership(membership));
    },
  );

  app.post(
    '/api/v1/instances/leave-meeting/',
    {
      config: { access: ['instance'], audit: { action: 'meeting.leave', target: 'instance' } },
      schema: {
        operationId: 'leaveMeeting',
        tags: ['meetings'],
        summary: 'Take an instance out of a meeting',
        description:
          'What was sent before is still delivered. Leaving where there is nothing to leave is logged and is no error.',
        body: LeaveMeetingBody,
        response: responses({ 200: ['When it left.', LeftMeetingSchema], codes: [] }),
      },
    },
    async (request) => {
      const { body, json, principal } = request;
      const { instance_id, meeting_id: given_id } = body;
      const meeting_id = meetingIdOf(given_id, json);
      assertMeeting(principal, meeting_id);
      const { meetings } = audit_trail.storeFor(request, { details: { meeting_id } });
      const left = await meetings.leave(meeting_id, instance_id, clock.wall(), principal.owner_scope);
      if (left === null) log.warn({ instance_id, meeting_id }, 'leave meeting: no such instance or membership');
      else feed.publish(membershipEvent('instance.left', instance_id, meeting_id, left.left_at));
      return { instance_id, meeting_id, left_at: isoTimeOrNull(left?.left_at ?? null) };
    },
  );

  app.get(
    '/api/v1/meetings/',
    {
      config: { access: ['read'] },
      schema: {
        operationId: 'listMeetings',
        tags: ['meetings'],
        summary: 'List meetings, in the order of their ids',
        description: 'With how many take part in each, and when something last happened in it.',
        querystring: ListMeetingsQuery,
        response: responses({ 200: ['A page of meetings.', pageOf(MeetingSchema)], codes: [] }),
      },
    },
    async ({ query, principal }) => {
      const page = await store.meetings.list({ ...query, limit: query.limit ?? 50 }, principal.visibility);
      return { data: page.data.map(wireMeeting), next_cursor: page.next_cursor };
    },
  );

  app.get(
    '/api/v1/meetings/:meeting_id/instances/',
    {
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
    },
    async ({ params: { meeting_id }, query, principal }) => {
      assertMeeting(principal, meeting_id);
      const page = await store.meetings.instances(meeting_id, { ...query, limit: query.limit ?? 50 });
      if (page === null) throw meetingNotFound(meeting_id);
      return { data: page.data.map(wireMeetingInstance), next_cursor: page.next_cursor };
    },
  );
}

export function meetingNotFound(meeting_id: string): Problem {
  return new Problem(
    'meeting_does_not_exist',
    `Nobody joined the meeting ${JSON.stringify(meeting_id)} and nothing was sent in it.`,
  );
}

/** An integer is taken by the digits that stand in the body: JavaScript would round a long one. */
function meetingIdOf(given: string | number, json: JsonBody | null): string {
  if (typeof given === 'string') return given;
  const digits = json?.textOf('meeting_id') ?? '';
  if (!/^-?\d{1,200}$/.test(digits))
    throw invalidField('meeting_id', 'must be a string, or an integer written with digits only');
  return digits;
}
