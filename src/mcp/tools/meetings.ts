import { ConvokeError, type Instance } from '@convoke/sdk';
import Type from 'typebox';
import { agentId, instanceId, MeetingId, named } from '../../http/schemas/fields.ts';
import { ExplainQuery, ExplanationSchema } from '../../http/schemas/explanation.ts';
import {
  JoinMeetingBody,
  LeftMeetingSchema,
  ListMeetingsQuery,
  MeetingSchema,
  MembershipSchema,
} from '../../http/schemas/meetings.ts';
import { idPageOf, pageOf } from '../../http/schemas/page.ts';
import type { Caller } from '../caller.ts';
import { toolOf } from './tool.ts';

const PAGE_DEFAULT = 20;

export const AgentId = agentId('You, as others in the meeting know you.');

export const OwnInstanceId = Type.Optional(
  instanceId(
    'The instance that you take part as. Absent: the one that the key is limited to, or else one with the name of your agent_id. Give the same to every tool.',
  ),
);

const { q, cursor, limit } = ListMeetingsQuery.properties;

const SummarySchema = Type.Object(
  {
    meeting_id: MeetingId,
    last_seq: MeetingSchema.properties.last_seq,
    agent_count: MeetingSchema.properties.agent_count,
    paused: MeetingSchema.properties.paused,
    last_activity_at: MeetingSchema.properties.last_activity_at,
  },
  named('MeetingSummary', 'A meeting.'),
);

export const listMeetings = toolOf({
  name: 'list_meetings',
  title: 'List meetings',
  description:
    'The meetings that this key may read, in the order of their ids, in pages. With q a page may be empty although more follow: call again with next_cursor until that is null.',
  scopes: ['read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  input: Type.Object({ q, limit, cursor }, { additionalProperties: false }),
  output: idPageOf(SummarySchema),
  async run({ client, signal }, { limit: count = PAGE_DEFAULT, ...query }) {
    const page = await client.listMeetings({ ...query, limit: count }, { signal });
    const data = page.data.map(({ meeting_id, last_seq, agent_count, paused, last_activity_at }) => ({
      meeting_id,
      last_seq,
      agent_count,
      paused,
      last_activity_at,
    }));
    const { next_cursor, searched_to } = page;
    return { data, next_cursor, ...(searched_to !== undefined && { searched_to }) };
  },
});

const rules = JoinMeetingBody.properties;

const CHANGING = { readOnlyHint: false, idempotentHint: true, openWorldHint: false } as const;

export const joinMeeting = toolOf({
  name: 'join_meeting',
  title: 'Join a meeting',
  description:
    'Takes part in a meeting from now on: what is said there waits for you until wait_for_message brings it. You need no address that others can reach. Joining again is no error; it makes you the only agent of your instance in the meeting.',
  scopes: ['instance'],
  annotations: { ...CHANGING, destructiveHint: false },
  names: { agent_ids: 'agent_id', instance_name: 'agent_id' },
  input: Type.Object(
    {
      meeting_id: MeetingId,
      agent_id: AgentId,
      instance_id: OwnInstanceId,
      wake: rules.wake,
      catch_up: rules.catch_up,
      max_age_s: rules.max_age_s,
    },
    { additionalProperties: false },
  ),
  output: MembershipSchema,
  async run(caller, { meeting_id, agent_id, instance_id: given_id, ...given_rules }) {
    const { client, signal } = caller;
    const instance_id = await caller.instanceOf({ agent_id, instance_id: given_id });
    const agent_ids = [agent_id];
    const register = () =>
      client.register({ instance_id, instance_name: agent_id, agent_ids, transport: 'pull' }, { signal });
    const join = () => client.joinMeeting({ instance_id, meeting_id, agent_ids, ...given_rules }, { signal });
    if ((await known(caller, instance_id)) === null) await register();
    return join().catch(async (error: unknown) => {
      if (!isMissing(error)) throw error;
      // A key with the scope read sees the instances of other keys too. Then the registration is refused, and says that
      // somebody else uses the name.
      await register();
      return join();
    });
  },
});

/**
 * The instance, if it is registered. join_meeting leaves a registered instance as it is, because it may belong to a
 * machine with a webhook.
 */
async function known({ client, signal }: Caller, instance_id: string): Promise<Instance | null> {
  try {
    return await client.getInstance(instance_id, { signal });
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof ConvokeError && error.code === 'instance_does_not_exist';
}

export const leaveMeeting = toolOf({
  name: 'leave_meeting',
  title: 'Leave a meeting',
  description:
    'Takes part no more: what is said from now on does not wait for you. What was said before still does. left_at is null when you were not in the meeting.',
  scopes: ['instance'],
  annotations: { ...CHANGING, destructiveHint: true },
  input: Type.Object(
    { meeting_id: MeetingId, agent_id: AgentId, instance_id: OwnInstanceId },
    { additionalProperties: false },
  ),
  output: LeftMeetingSchema,
  async run(caller, { meeting_id, ...who }) {
    const instance_id = await caller.instanceOf(who);
    return caller.client.leaveMeeting({ instance_id, meeting_id }, { signal: caller.signal });
  },
});

export const explain = toolOf({
  name: 'explain',
  title: 'Explain who would hear a message',
  description:
    'Who would get a message that is sent in a meeting now, and why the others would not. Sends nothing. Use it before you speak, or when nobody answers.',
  scopes: ['read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  input: Type.Object({ meeting_id: MeetingId, ...ExplainQuery.properties }, { additionalProperties: false }),
  output: pageOf(ExplanationSchema),
  run: ({ client, signal }, { meeting_id, limit: count = PAGE_DEFAULT, ...query }) =>
    client.explain(meeting_id, { ...query, limit: count }, { signal }),
});
