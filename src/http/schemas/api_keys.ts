import Type, { type Static } from 'typebox';
import { SCOPES } from '../../domain/api_key.ts';
import { PORTAL_LINK_S } from '../../domain/portal_link.ts';
import {
  bytesMax,
  enumOf,
  expected,
  ID_PATTERN,
  instanceId,
  InstanceId,
  madeId,
  MeetingId,
  named,
  nullable,
  overlapSeconds,
  time,
  timeInput,
} from './fields.ts';
import { cursor, limit } from './page.ts';

export const KeyId = Type.String({
  pattern: '^[0-9a-v]{12}$',
  description: 'The id of an API key: the 12 characters after cvk_ in its token.',
  examples: ['4f7k2m9q0a1b'],
  ...expected('must be the 12 characters of a key_id'),
});

export const ScopeSchema = enumOf(
  SCOPES,
  named(
    'Scope',
    '`admin`: everything; `send`: send messages; `read`: look at everything; `instance`: register instances, do everything with its own, and speak for their agents.',
  ),
);

const Scopes = Type.Array(ScopeSchema, {
  minItems: 1,
  maxItems: SCOPES.length,
  description: 'The rights of the key.',
  examples: [['instance', 'send']],
  ...expected(`must have at least one of ${SCOPES.join(', ')}`),
});

const KEY_MEETINGS_MAX = 1000;
/** Room for 1,000 UUIDs. */
const KEY_MEETINGS_BYTES_MAX = 40_000;

const KeyName = Type.String({
  pattern: ID_PATTERN,
  description: 'A name for people.',
  examples: ["Anna's laptop"],
  ...expected('must be a string of 1 to 200 characters without control characters'),
});

const KeyMeetings = Type.Array(MeetingId, {
  minItems: 1,
  maxItems: KEY_MEETINGS_MAX,
  description: `Limits sending, reading and joining to these meetings. At most ${KEY_MEETINGS_MAX}, of at most ${KEY_MEETINGS_BYTES_MAX} bytes in all.`,
  ...bytesMax(KEY_MEETINGS_BYTES_MAX),
  ...expected(
    `must be a list of 1 to ${KEY_MEETINGS_MAX} meeting ids, of at most ${KEY_MEETINGS_BYTES_MAX} bytes in all`,
  ),
});

export const ApiKeySchema = Type.Object(
  {
    key_id: KeyId,
    name: nullable(KeyName, 'A name for people.'),
    scopes: Scopes,
    meeting_ids: nullable(KeyMeetings, 'Limits sending, reading and joining to these meetings; null: no limit.'),
    instance_id: nullable(InstanceId, 'Limits the scope `instance` to this instance; null: no limit.'),
    created_at: time('When it was made.'),
    expires_at: nullable(time('A time.'), 'When it expires: from then on it is refused. Null: never.'),
    revoked_at: nullable(time('A time.'), 'When it was revoked; null: it was not.'),
    last_used_at: nullable(time('A time.'), 'When it was last used, to the minute.'),
    previous_token_expires_at: nullable(
      time('A time.'),
      'Until then the token before the last rotation is accepted too.',
    ),
    earlier_tokens_expire_at: Type.Optional(
      Type.Array(time('A time.'), {
        description:
          'Until then the tokens of earlier rotations are accepted too, the newest first: a rotation does not shorten the overlap of another. Absent when there are none.',
      }),
    ),
  },
  named('ApiKey', 'A key, without its token.'),
);

export const ApiKeyWithTokenSchema = Type.Object(
  {
    ...ApiKeySchema.properties,
    token: Type.String({
      description: 'Sent as `authorization: Bearer`. It is not shown again.',
      examples: ['cvk_4f7k2m9q0a1b_…'],
    }),
  },
  named('ApiKeyWithToken', 'A key with its token, which only the response that makes it contains.'),
);

export const CreateKeyBody = Type.Object(
  {
    scopes: Scopes,
    name: Type.Optional(KeyName),
    meeting_ids: Type.Optional(KeyMeetings),
    instance_id: Type.Optional(instanceId('Limits the scope `instance` to this instance.')),
    expires_at: Type.Optional(
      timeInput('RFC 3339. From then on the key is refused; absent: never.', '2027-03-01T09:30:00Z'),
    ),
  },
  {
    ...named('CreateKeyInput', 'The rights of a new key.'),
    additionalProperties: false,
    examples: [{ scopes: ['instance', 'send'], name: "Anna's laptop", instance_id: 'laptop-anna' }],
  },
);
export type CreateKeyInput = Static<typeof CreateKeyBody>;

export const RotateKeyBody = Type.Object(
  {
    overlap_seconds: overlapSeconds(
      'How long the previous token still works, in seconds; a day when absent, 30 days at most.',
    ),
  },
  {
    ...named('RotateKeyInput', 'How two tokens of a key overlap.'),
    additionalProperties: false,
    examples: [{ overlap_seconds: 3600 }],
  },
);

export const PortalLinkBody = Type.Object(
  {
    instance_id: Type.Optional(instanceId('Shows only this instance of the key; absent: all of them.')),
    expires_in_s: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: PORTAL_LINK_S,
        description: 'How long the link can be used, in seconds; absent: an hour, which is also the most.',
        default: PORTAL_LINK_S,
        ...expected(`must be a whole number from 1 to ${PORTAL_LINK_S}`),
      }),
    ),
  },
  {
    ...named('PortalLinkInput', 'The instances that a portal link shows, and for how long.'),
    additionalProperties: false,
    examples: [{ instance_id: 'laptop-anna' }],
  },
);

export const PortalLinkSchema = Type.Object(
  {
    link: Type.String({
      description: 'Show it to the owner of the key only: anybody with the link may use it until it expires.',
      examples: ['https://convoke.example/portal/#link=cvp_…'],
    }),
    expires_at: time('From then on it is refused.'),
  },
  named('PortalLink', 'A link to the instances of a key.'),
);

export const ListKeysQuery = Type.Object({ limit, cursor }, { additionalProperties: false });

export const KeyParams = Type.Object({
  key_id: madeId('The id of an API key.'),
});
