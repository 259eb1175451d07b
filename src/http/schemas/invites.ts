import Type from 'typebox';
import { INVITE_S, INVITE_S_MAX, INVITE_S_MIN, INVITE_STATES } from '../../domain/invite.ts';
import { AGENT_IDS_BYTES_MAX, AGENT_IDS_MAX } from '../../domain/id.ts';
import { bytesMax, agentId, enumOf, expected, instanceId, madeId, MeetingId, named, nullable, time } from './fields.ts';
import { cursor, limit } from './page.ts';

const MEETINGS_MAX = 100;
const MEETINGS_BYTES_MAX = 8_192;

const InviteId = Type.String({
  pattern: '^inv_[0-9a-v]{12}$',
  description: 'The id of an invite. It is no secret: nobody can redeem an invite with it.',
  examples: ['inv_4f7k2m9q0a1b'],
});

const Meetings = Type.Array(MeetingId, {
  minItems: 1,
  maxItems: MEETINGS_MAX,
  description: `The meetings that the machine may join. At most ${MEETINGS_MAX}, of at most ${MEETINGS_BYTES_MAX} bytes in all.`,
  examples: [['standup-42']],
  ...bytesMax(MEETINGS_BYTES_MAX),
  ...expected(`must be a list of 1 to ${MEETINGS_MAX} meeting ids, of at most ${MEETINGS_BYTES_MAX} bytes in all`),
});

const Agents = Type.Array(agentId('An agent that the machine runs.'), {
  minItems: 1,
  maxItems: AGENT_IDS_MAX,
  description: `The agents that the machine is invited for. At most ${AGENT_IDS_MAX}, of at most ${AGENT_IDS_BYTES_MAX} bytes in all.`,
  examples: [['anna']],
  ...bytesMax(AGENT_IDS_BYTES_MAX),
  ...expected(`must be a list of 1 to ${AGENT_IDS_MAX} agent ids, of at most ${AGENT_IDS_BYTES_MAX} bytes in all`),
});

const Instance = instanceId('The instance that the machine registers.');

export const InviteSchema = Type.Object(
  {
    invite_id: InviteId,
    state: enumOf(INVITE_STATES, {
      description: '`pending`: it can be redeemed; otherwise why it cannot: `redeemed`, `revoked` or `expired`.',
    }),
    instance_id: Instance,
    meeting_ids: Type.Array(MeetingId, { description: 'The meetings that the machine may join.' }),
    agent_ids: Type.Array(agentId('An agent.'), { description: 'The agents that the machine is invited for.' }),
    created_by: nullable(Type.String(), 'The key that made it; null without a key.'),
    created_at: time('When it was made.'),
    expires_at: time('When it expires: from then on it cannot be redeemed.'),
    redeemed_at: nullable(time('A time.'), 'When it was redeemed; null: it was not.'),
    key_id: nullable(
      Type.String(),
      'The key that was made when it was redeemed; null before that, and where no key was needed.',
    ),
    revoked_at: nullable(time('A time.'), 'When it was revoked; null: it was not.'),
  },
  named('Invite', 'A one-time link, without its secret.'),
);

const link = Type.String({
  description:
    'The link redeems the invite once, and is not shown again. It begins with the setting public_url, or else with the address of this request.',
  examples: ['https://convoke.example/invite/…'],
});

export const InviteWithLinkSchema = Type.Object(
  {
    ...InviteSchema.properties,
    link,
    is_public_url: Type.Boolean({
      description:
        'Whether the link begins with the setting public_url. Otherwise it begins with the address of this request as the service saw it, which a proxy may have changed.',
    }),
  },
  named('InviteWithLink', 'An invite with its link, which only the response that makes it contains.'),
);

export const CreateInviteBody = Type.Object(
  {
    meeting_ids: Meetings,
    agent_ids: Agents,
    instance_id: Type.Optional(
      instanceId(
        'The instance that the machine registers; when absent, an id made of its first agent and a few random characters. An instance that exists belongs to the new key from then on.',
      ),
    ),
    expires_in_s: Type.Optional(
      Type.Integer({
        minimum: INVITE_S_MIN,
        maximum: INVITE_S_MAX,
        default: INVITE_S,
        description: 'How long the invite can be redeemed: a minute to a day; absent: an hour.',
        ...expected(`must be a whole number from ${INVITE_S_MIN} to ${INVITE_S_MAX}`),
      }),
    ),
  },
  {
    ...named('CreateInviteInput', 'The agents that a link invites, and the meetings.'),
    additionalProperties: false,
    examples: [{ meeting_ids: ['standup-42'], agent_ids: ['anna'] }],
  },
);

export const ListInvitesQuery = Type.Object({ limit, cursor }, { additionalProperties: false });

export const InviteParams = Type.Object({ invite_id: madeId('The id of an invite.') });

export const InviteLinkParams = Type.Object({ secret: madeId('The end of the link.') });

export const AnyQuery = Type.Object({});

export const RedeemInviteBody = Type.Object(
  { secret: madeId('The end of the link: what follows `/invite/`.') },
  {
    ...named('RedeemInviteInput', 'The invite that a machine redeems.'),
    additionalProperties: false,
    examples: [{ secret: 'R0mCkqDwYkq0uWUhnFZ1Pnq2Kx4eD5tB7sV8aJ9cL3o' }],
  },
);

export const RedeemedInviteSchema = Type.Object(
  {
    invite_id: InviteId,
    instance_id: Instance,
    meeting_ids: InviteSchema.properties.meeting_ids,
    agent_ids: InviteSchema.properties.agent_ids,
    api_key: nullable(
      Type.String(),
      'Sent as `authorization: Bearer`. It is not shown again. Null while no key was made and none is needed.',
    ),
  },
  named('RedeemedInvite', 'What a machine needs to register, to join its meetings and to pull.'),
);
