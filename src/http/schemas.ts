/**
 * The shapes on the wire. From these come validation, the TypeScript types of the handlers, the OpenAPI document,
 * and the check that the SDK's types are the same.
 */
import { AUDIT_ACTIONS, AUDIT_OUTCOMES, AUDIT_TARGETS, type AuditDetails } from '../domain/audit.ts';
import Type, { type Static, type TSchema } from 'typebox';
import { OUTCOMES, type Outcome } from '../domain/outcome.ts';
import { DELIVERY_REASONS, DELIVERY_STATES, WAITING_FOR } from '../domain/delivery.ts';
import { HEALTH } from '../domain/instance.ts';
import { SCOPES } from '../domain/api_key.ts';
import { AGENT_IDS_MAX, ID_CHARS_MAX } from '../domain/id.ts';

/** No control characters (Cc) and no lone surrogates; the `u` flag makes a character a code point. */
const ID_PATTERN = `^[^\\u0000-\\u001f\\u007f-\\u009f\\ud800-\\udfff]{1,${ID_CHARS_MAX}}$`;

const NO_CONTROLS_PATTERN = '^[^\\u0000-\\u001f\\u007f-\\u009f\\ud800-\\udfff]*$';

/**
 * The largest body around a list of agent ids and a set of webhook headers. JSON may take 12 bytes for a character of an
 * id, and 6 for one of a header value.
 */
export const LIST_BODY_BYTES_MAX = 4 << 20;

/** `x-expected` is what the 422 says when the value does not fit. */
const expected = (text: string) => ({ 'x-expected': text });

const id = (what: string, example: string) =>
  Type.String({
    pattern: ID_PATTERN,
    description: what,
    examples: [example],
    ...expected(`must be a string of 1 to ${ID_CHARS_MAX} characters without control characters`),
  });

const enumOf = <T extends string>(values: readonly T[], description?: string) =>
  Type.Unsafe<T>({ type: 'string', enum: [...values], ...(description === undefined ? {} : { description }) });

const nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

const time = (description: string) =>
  Type.String({ format: 'date-time', description, examples: ['2026-03-01T09:30:00.000Z'] });

export const InstanceId = id('The key of an instance.', 'laptop-anna');
export const MeetingId = id('The key of a meeting.', 'standup-42');
export const AgentId = id('An agent hosted by an instance.', 'anna-planner');
export const AgentIds = Type.Array(AgentId, {
  maxItems: AGENT_IDS_MAX,
  description: `Agent ids; duplicates are dropped, order is kept. At most ${AGENT_IDS_MAX}.`,
  ...expected(`must be a list of at most ${AGENT_IDS_MAX} agent ids`),
});

const MeetingIdInput = Type.Union([MeetingId, Type.Integer()], {
  description: 'The meeting; an integer is taken as its decimal string.',
  examples: ['standup-42'],
  ...expected(`must be a string of 1 to ${ID_CHARS_MAX} characters without control characters, or an integer`),
});

const InstanceName = Type.String({
  minLength: 1,
  maxLength: 200,
  pattern: ID_PATTERN,
  description: 'The name that people see.',
  examples: ["Anna's laptop"],
  ...expected('must be a string of 1 to 200 characters without control characters'),
});

const WebhookUrl = Type.String({
  minLength: 1,
  maxLength: 2048,
  description: 'Where pushes are sent: http or https, no user name or password in it.',
  examples: ['http://127.0.0.1:9000/convoke'],
  ...expected('must be an http or https URL of at most 2048 bytes'),
});

const HEADER_NAME_PATTERN = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$";

// By propertyNames, and not as patternProperties: those get lost on the way into the OpenAPI document.
const WebhookHeaders = Type.Unsafe<Record<string, string>>({
  type: 'object',
  propertyNames: { pattern: HEADER_NAME_PATTERN },
  additionalProperties: { type: 'string', maxLength: 4096, pattern: '^[\\t\\x20-\\x7e\\x80-\\xff]*$' },
  maxProperties: 32,
  description:
    'Headers sent with every push, such as authorization. Never answered back; replaces the former ones as a whole.',
  examples: [{ authorization: 'Bearer 3f9c…' }],
  ...expected('must be an object of at most 32 header names to string values'),
});

const SuccessStatusesSchema = enumOf(
  ['200', '2xx'] as const,
  'Which answers count as a success: only 200 (the default), or every 2xx.',
);

const WebhookSecret = Type.String({
  pattern: '^whsec_[A-Za-z0-9+/]{32,88}={0,2}$',
  description: 'Standard Webhooks secret: whsec_ and base64 of 24 to 64 bytes.',
  examples: ['whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD'],
  ...expected('must be whsec_ followed by the base64 of 24 to 64 bytes'),
});

const KeyId = Type.String({
  pattern: '^[0-9a-v]{12}$',
  description: 'The key of an API key: the 12 characters behind cvk_ in its token.',
  examples: ['4f7k2m9q0a1b'],
  ...expected('must be the 12 characters of a key_id'),
});

const Health = enumOf(
  HEALTH,
  'unknown: nothing tried yet; up: the last attempt succeeded; failing: 1 to 4 failures in a row; down: 5 or more.',
);

const LastFailure = Type.Object({
  at: time('When the attempt ended.'),
  outcome: enumOf(Object.keys(OUTCOMES) as Outcome[]),
  status_code: nullable(Type.Integer()),
  detail: Type.String(),
  advice: Type.String({ description: 'One sentence: what to do about it.' }),
});

export const InstanceSchema = Type.Object({
  instance_id: InstanceId,
  instance_name: InstanceName,
  agent_ids: AgentIds,
  webhook_url: WebhookUrl,
  webhook_enabled: Type.Boolean(),
  is_active: Type.Boolean(),
  success_statuses: SuccessStatusesSchema,
  webhook_header_names: Type.Array(Type.String(), { description: 'The names of webhook_headers; never the values.' }),
  health: Health,
  consecutive_failures: Type.Integer(),
  last_success_at: nullable(time('When a push was last answered with a success; up to a second late.')),
  last_failure: nullable(LastFailure),
  pending_deliveries: Type.Integer({ description: 'Deliveries that are not settled yet.' }),
  owner_key_id: nullable(
    Type.String({
      description: 'The key that owns it; null when it was registered without keys: only admins touch it.',
    }),
  ),
  last_seen_at: nullable(time('The last registration or heartbeat.')),
  created_at: time('When it was first registered.'),
  updated_at: time('When a field of the registration last changed.'),
});

export const RegisteredInstanceSchema = Type.Object({
  ...InstanceSchema.properties,
  webhook_secret: Type.Optional(
    Type.String({ description: 'Only when it was just made: keep it, it is not shown again.' }),
  ),
});

export const RegisterBody = Type.Object(
  {
    instance_id: InstanceId,
    instance_name: InstanceName,
    agent_ids: AgentIds,
    webhook_url: WebhookUrl,
    webhook_headers: Type.Optional(WebhookHeaders),
    webhook_secret: Type.Optional(WebhookSecret),
    success_statuses: Type.Optional(SuccessStatusesSchema),
  },
  {
    additionalProperties: false,
    examples: [
      {
        instance_id: 'laptop-anna',
        instance_name: "Anna's laptop",
        agent_ids: ['anna-planner', 'anna-coder'],
        webhook_url: 'http://127.0.0.1:9000/convoke',
      },
    ],
  },
);

export const PatchInstanceBody = Type.Object(
  {
    instance_name: Type.Optional(InstanceName),
    is_active: Type.Optional(Type.Boolean()),
    webhook_enabled: Type.Optional(Type.Boolean()),
    webhook_headers: Type.Optional(WebhookHeaders),
    success_statuses: Type.Optional(SuccessStatusesSchema),
    owner_key_id: Type.Optional(
      Type.Union([KeyId, Type.Null()], {
        description: 'Hands the instance over to another key, or to nobody but admins. Only admins may.',
        ...expected('must be the key_id of a key, or null'),
      }),
    ),
  },
  { additionalProperties: false, minProperties: 1, examples: [{ webhook_enabled: false }] },
);

export const RotateSecretBody = Type.Object(
  {
    overlap_seconds: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 2_592_000,
        description: 'How long the former secret signs as well.',
        default: 86_400,
      }),
    ),
  },
  { additionalProperties: false, examples: [{ overlap_seconds: 3600 }] },
);

export const RotatedSecretSchema = Type.Object({
  webhook_secret: Type.String({ description: 'The new secret; it is not shown again.' }),
  previous_secret_expires_at: time('Until then every push carries two signatures.'),
});

export const RecoverBody = Type.Object(
  {
    since: Type.String({
      format: 'date-time',
      description: 'RFC 3339; deliveries that failed at or after it are queued again.',
      ...expected('must be an RFC 3339 time such as 2026-03-01T09:30:00Z'),
    }),
  },
  { additionalProperties: false, examples: [{ since: '2026-03-01T09:30:00Z' }] },
);

export const ReencryptionSchema = Type.Object({
  key_id: Type.String({ description: 'The data key that secrets are encrypted under from now on.' }),
  rewritten: Type.Integer({ description: 'Instances whose secrets this call encrypted anew.' }),
  done: Type.Boolean({ description: 'Whether the former key is dropped. While false, call again.' }),
});

export const BackupSchema = Type.Object({ backup_id: Type.String() });

export const BackupProgressSchema = Type.Object({
  pages_total: Type.Integer({ description: 'Pages of the data file; 0 while nothing is copied.' }),
  pages_left: Type.Integer({ description: 'Those that are not copied yet.' }),
});

export const RecoveredSchema = Type.Object({
  recovered: Type.Integer({ description: 'How many failed deliveries were queued again.' }),
});

export const JoinMeetingBody = Type.Object(
  { instance_id: InstanceId, meeting_id: MeetingIdInput, agent_ids: AgentIds },
  {
    additionalProperties: false,
    examples: [{ instance_id: 'laptop-anna', meeting_id: 'standup-42', agent_ids: ['anna-planner'] }],
  },
);

export const LeaveMeetingBody = Type.Object(
  { instance_id: InstanceId, meeting_id: MeetingIdInput },
  { additionalProperties: false, examples: [{ instance_id: 'laptop-anna', meeting_id: 'standup-42' }] },
);

export const LeftMeetingSchema = Type.Object({
  instance_id: InstanceId,
  meeting_id: MeetingId,
  left_at: nullable(time('Null when there was nothing to leave.')),
});

export const MembershipSchema = Type.Object({
  meeting_id: MeetingId,
  instance_id: InstanceId,
  agent_ids: AgentIds,
  joined_at: time('When the instance last joined.'),
  left_at: nullable(time('Null while the instance is in the meeting.')),
});

export const MeetingInstanceSchema = Type.Object({
  ...MembershipSchema.properties,
  instance_name: InstanceName,
  health: Health,
});

export const WebhookTestBody = Type.Object(
  { instance_id: InstanceId },
  { additionalProperties: false, examples: [{ instance_id: 'laptop-anna' }] },
);

export const DiagnosisSchema = Type.Object({
  success: Type.Boolean(),
  status_code: nullable(Type.Integer()),
  outcome: enumOf(Object.keys(OUTCOMES) as Outcome[]),
  duration_ms: Type.Number(),
  stages: Type.Array(
    Type.Object({
      stage: enumOf(['dns', 'connect', 'tls', 'request', 'response'] as const),
      ok: Type.Boolean(),
      duration_ms: Type.Number(),
      detail: Type.String(),
    }),
  ),
  response_excerpt: Type.String(),
  advice: Type.String({ description: 'One sentence: what to do about it.' }),
});

export const MeetingSchema = Type.Object({
  meeting_id: MeetingId,
  last_seq: Type.Integer({ description: 'How many messages were ever sent in it.' }),
  instance_count: Type.Integer({ description: 'Instances in the meeting now.' }),
  agent_count: Type.Integer({ description: 'Agents in the meeting now, over all instances.' }),
  pending_deliveries: Type.Integer(),
  created_at: time('The first join or message.'),
  last_activity_at: time('The last join, leave or message.'),
});

const NODE_STATES = ['up', 'stopping', 'lost'] as const;

export const NodeSchema = Type.Object({
  node_id: Type.String({ description: 'The name of its machine, and what tells this start of it from every other.' }),
  version: Type.String(),
  address: Type.String({ description: 'Where it answers requests, as it sees it, or as CONVOKE_ADVERTISED_URL says.' }),
  started_at: time('When it joined.'),
  last_seen_at: time('When it last renewed its lease: every 3 s.'),
  state: enumOf(
    NODE_STATES,
    'up; stopping: it gives back what it holds; lost: not heard of for 15 s, and the others take over.',
  ),
  partitions: Type.Integer({ description: 'How many of the 64 partitions it holds.' }),
});

export const SendMessageBody = Type.Object(
  {
    message: Type.Unsafe<Record<string, unknown>>({
      type: 'object',
      description: 'Any JSON object. It is pushed value for value as it was written.',
      ...expected('must be a JSON object'),
    }),
    target_agents: Type.Optional(
      Type.Array(AgentId, {
        maxItems: AGENT_IDS_MAX,
        description: 'Push only to these agents; empty or absent: to all agents of the meeting.',
        ...expected(`must be a list of at most ${AGENT_IDS_MAX} agent ids`),
      }),
    ),
  },
  {
    additionalProperties: false,
    examples: [
      { message: { content: 'Good morning', created_at: '2026-03-01T09:30:00.000Z' } },
      { message: { content: 'Only for you' }, target_agents: ['anna-planner'] },
    ],
  },
);

export const SentMessageSchema = Type.Object({
  message_id: Type.String({ examples: ['msg_7f3k9q2m00r3vljl5tg00'] }),
  meeting_id: MeetingId,
  seq: Type.Integer({ description: 'The number of the message in its meeting, from 1.' }),
  accepted_at: time('When it was stored.'),
  deliveries_queued: Type.Integer({ description: 'To how many instances it goes.' }),
});

export const MessageSchema = Type.Object({
  message_id: Type.String(),
  seq: Type.Integer(),
  accepted_at: time('When it was stored.'),
  target_agents: nullable(AgentIds),
  message: Type.Unsafe<Record<string, unknown>>({ type: 'object', description: 'As it was sent.' }),
});

export const AttemptSchema = Type.Object({
  attempt: Type.Integer({ description: 'From 1.' }),
  started_at: time('When it began.'),
  duration_ms: Type.Number(),
  outcome: enumOf(Object.keys(OUTCOMES) as Outcome[]),
  status_code: nullable(Type.Integer()),
  detail: Type.String({ description: 'In words; empty after a success.' }),
  response_excerpt: Type.String({ description: "The beginning of the answer's body." }),
});

export const DeliverySchema = Type.Object({
  delivery_id: Type.String({
    description: 'Also the webhook-id of every attempt.',
    examples: ['dlv_7f3k9q2m00r3vljl5tg01'],
  }),
  message_id: Type.String(),
  meeting_id: MeetingId,
  seq: Type.Integer(),
  instance_id: InstanceId,
  target_agents: AgentIds,
  state: enumOf(DELIVERY_STATES),
  reason: nullable(enumOf(DELIVERY_REASONS, 'Why it failed or was cancelled.')),
  waiting_for: nullable(
    enumOf(
      WAITING_FOR,
      'Why a pending delivery is not delivered yet: its turn in the lane, the time of its next attempt, the back-off of its instance, or an instance that is switched off.',
    ),
  ),
  attempt_count: Type.Integer(),
  next_attempt_at: nullable(time('No sooner than this, while pending and retried.')),
  created_at: time('When the message was accepted.'),
  settled_at: nullable(time('When it left pending.')),
  last_attempt: nullable(AttemptSchema),
});

export const DeliveryWithAttemptsSchema = Type.Object({
  ...DeliverySchema.properties,
  attempts: Type.Array(AttemptSchema),
});

const Scopes = Type.Array(
  enumOf(
    SCOPES,
    'admin: everything; send: send messages; read: look at everything; instance: register, and its own instances.',
  ),
  {
    minItems: 1,
    maxItems: SCOPES.length,
    description: 'What the key may be used for.',
    examples: [['instance', 'send']],
    ...expected(`must be a list of ${SCOPES.join(', ')}`),
  },
);

const KEY_MEETINGS_MAX = 1000;

const KeyName = Type.String({
  pattern: ID_PATTERN,
  description: 'What people know it by.',
  examples: ["Anna's laptop"],
  ...expected('must be a string of 1 to 200 characters without control characters'),
});

const expiresAt = (description: string) =>
  Type.String({
    format: 'date-time',
    description,
    examples: ['2027-03-01T09:30:00Z'],
    ...expected('must be an RFC 3339 time such as 2027-03-01T09:30:00Z'),
  });

const KeyMeetings = Type.Array(MeetingId, {
  minItems: 1,
  maxItems: KEY_MEETINGS_MAX,
  description: `Limits sending, reading and joining to these meetings. At most ${KEY_MEETINGS_MAX}.`,
  ...expected(`must be a list of 1 to ${KEY_MEETINGS_MAX} meeting ids`),
});

export const ApiKeySchema = Type.Object({
  key_id: KeyId,
  name: nullable(KeyName),
  scopes: Scopes,
  meeting_ids: nullable(KeyMeetings),
  instance_id: nullable(InstanceId),
  created_at: time('When it was made.'),
  expires_at: nullable(time('From then on it is refused.')),
  revoked_at: nullable(time('Since then it is refused.')),
  last_used_at: nullable(time('When it was last used, to the minute.')),
  previous_token_expires_at: nullable(time('Until then the token before the last rotation is taken as well.')),
});

export const ApiKeyWithTokenSchema = Type.Object({
  ...ApiKeySchema.properties,
  token: Type.String({
    description: 'Sent as `authorization: Bearer`. It is not shown again.',
    examples: ['cvk_4f7k2m9q0a1b_…'],
  }),
});

export const CreateKeyBody = Type.Object(
  {
    scopes: Scopes,
    name: Type.Optional(KeyName),
    meeting_ids: Type.Optional(KeyMeetings),
    instance_id: Type.Optional(InstanceId),
    expires_at: Type.Optional(expiresAt('From then on the key is refused; absent: never.')),
  },
  {
    additionalProperties: false,
    examples: [{ scopes: ['instance', 'send'], name: "Anna's laptop", instance_id: 'laptop-anna' }],
  },
);
export type CreateKeyInput = Static<typeof CreateKeyBody>;

export const RotateKeyBody = Type.Object(
  {
    overlap_seconds: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 2_592_000,
        description: 'How long the former token is taken as well.',
        default: 86_400,
      }),
    ),
  },
  { additionalProperties: false, examples: [{ overlap_seconds: 3600 }] },
);

export const AuditEntrySchema = Type.Object({
  seq: Type.Integer({ description: 'From 1, without gaps.' }),
  at: time('When it was done or refused.'),
  principal: Type.String({
    description:
      'The key_id of whoever did it; or open (no key is needed yet), local command (on the data file), sign-in link (printed by convoke serve), service, unknown (no right key).',
  }),
  address: nullable(
    Type.String({ description: 'From where; for strangers of IPv6 the /64. Null for a local command.' }),
  ),
  action: enumOf(AUDIT_ACTIONS),
  target_kind: enumOf(AUDIT_TARGETS),
  target_id: nullable(Type.String({ description: 'To what; null where it was not said.' })),
  outcome: enumOf(AUDIT_OUTCOMES),
  code: nullable(Type.String({ description: 'Why it was refused.' })),
  details: Type.Unsafe<AuditDetails>({
    type: 'object',
    description: 'Names of the fields that were given, and the like. Never a secret.',
  }),
  prev_hash: Type.String({ description: 'The hash of the entry before; 64 zeros before the first.' }),
  hash: Type.String({ description: 'SHA-256 over prev_hash, a line feed, and the other fields as canonical JSON.' }),
});

export const ProblemSchema = Type.Object(
  {
    type: Type.String(),
    title: Type.String(),
    status: Type.Integer(),
    detail: Type.String(),
    code: Type.String(),
    errors: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
  },
  { description: 'RFC 9457. The codes are listed in docs/errors.md.' },
);

/** `{data, next_cursor}`: next_cursor is null on the last page. */
export const pageOf = <T extends TSchema>(item: T) =>
  Type.Object({
    data: Type.Array(item),
    next_cursor: nullable(Type.String({ description: 'Give it as cursor to get the next page.' })),
  });

export const MessagePageSchema = Type.Object({
  data: Type.Array(MessageSchema, { description: 'In the order of seq.' }),
  has_more: Type.Boolean({ description: 'More in the direction that was asked for.' }),
});

const limit = Type.Optional(
  Type.Integer({
    minimum: 1,
    maximum: 500,
    default: 50,
    description: 'Page size.',
    ...expected('must be a whole number from 1 to 500'),
  }),
);
const cursor = Type.Optional(
  Type.String({
    minLength: 1,
    maxLength: 2000,
    pattern: '^[A-Za-z0-9_-]*$',
    description: 'next_cursor of the page before.',
    ...expected('must be the next_cursor of a page made with the same filters'),
  }),
);
const seq = (description: string) =>
  Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: Number.MAX_SAFE_INTEGER,
      description,
      ...expected('must be a whole number, 0 or more'),
    }),
  );
const text = (description: string) =>
  Type.Optional(
    Type.String({
      maxLength: 200,
      pattern: NO_CONTROLS_PATTERN,
      description,
      ...expected('must be a string of at most 200 characters without control characters'),
    }),
  );
const madeId = () =>
  Type.String({
    maxLength: 100,
    pattern: NO_CONTROLS_PATTERN,
    ...expected('must be an id of at most 100 characters, as it was answered'),
  });
const flag = (description: string) =>
  Type.Optional(Type.Boolean({ description, ...expected('must be true or false') }));

const auditTime = (description: string) =>
  Type.String({
    format: 'date-time',
    description,
    ...expected('must be an RFC 3339 time such as 2026-03-01T09:30:00Z'),
  });

export const ListInstancesQuery = Type.Object(
  {
    agent_id: Type.Optional(AgentId),
    meeting_id: Type.Optional(MeetingId),
    is_active: flag('Only active, or only inactive ones.'),
    health: Type.Optional(Health),
    q: text('Part of the id or the name.'),
    limit,
    cursor,
  },
  { additionalProperties: false },
);

export const ListMeetingsQuery = Type.Object(
  {
    q: text('Part of the id.'),
    instance_id: Type.Optional(InstanceId),
    include_left: flag('With instance_id: also those that it has left.'),
    limit,
    cursor,
  },
  { additionalProperties: false },
);

export const ListMeetingInstancesQuery = Type.Object(
  { include_left: flag('Also those that have left.'), limit, cursor },
  { additionalProperties: false },
);

export const ListMessagesQuery = Type.Object(
  {
    after_seq: seq('The messages that follow this one.'),
    before_seq: seq('The messages that come just before this one. Neither: the latest.'),
    limit,
  },
  { additionalProperties: false },
);

export const ListDeliveriesQuery = Type.Object(
  {
    instance_id: Type.Optional(InstanceId),
    meeting_id: Type.Optional(MeetingId),
    message_id: Type.Optional(madeId()),
    state: Type.Optional(enumOf(DELIVERY_STATES)),
    limit,
    cursor,
  },
  { additionalProperties: false },
);

export const ListKeysQuery = Type.Object({ limit, cursor }, { additionalProperties: false });

export const ListAuditQuery = Type.Object(
  {
    action: Type.Optional(enumOf(AUDIT_ACTIONS)),
    key_id: text('Who did it: a key_id, or open, local command, sign-in link, service, unknown.'),
    instance_id: Type.Optional(InstanceId),
    since: Type.Optional(auditTime('At or after this time.')),
    until: Type.Optional(auditTime('Before this time.')),
    order: Type.Optional(enumOf(['newest', 'oldest'] as const, 'Which entry comes first; newest when absent.')),
    limit,
    cursor,
  },
  { additionalProperties: false },
);

export const BackupParams = Type.Object({ backup_id: Type.String({ maxLength: 100 }) });
export const KeyParams = Type.Object({ key_id: Type.String({ maxLength: 100 }) });
export const InstanceParams = Type.Object({ instance_id: InstanceId });
export const MeetingParams = Type.Object({ meeting_id: MeetingId });
export const DeliveryParams = Type.Object({ delivery_id: madeId() });

export const SendHeaders = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({
      pattern: '^[\\x21-\\x7e]([\\x20-\\x7e]{0,253}[\\x21-\\x7e])?$',
      description: 'Repeats are answered with the first result for 24 hours. 1 to 255 printable ASCII characters.',
      ...expected('must be one header of 1 to 255 printable ASCII characters'),
    }),
  ),
});

const lastEventId = (description: string) =>
  Type.Optional(
    Type.String({
      maxLength: 400,
      pattern: NO_CONTROLS_PATTERN,
      description,
      ...expected('must be the id of an event, at most 400 characters'),
    }),
  );

export const EventsQuery = Type.Object(
  {
    instance_id: Type.Optional(InstanceId),
    meeting_id: Type.Optional(MeetingId),
    last_event_id: lastEventId('The same as the header, for who cannot set one; the header wins.'),
  },
  { additionalProperties: false },
);

export const EventsHeaders = Type.Object({
  'last-event-id': lastEventId('The id of the last event that was seen: the stream goes on after it.'),
});

/** Server-sent events (WHATWG HTML, section 9.2). */
export const EventStream = Type.Unsafe<void>({ content: { 'text/event-stream': { schema: { type: 'string' } } } });

export const SessionSchema = Type.Object({
  state: enumOf(
    ['open', 'signed_out', 'signed_in'] as const,
    'open: no key was made, and everybody on this machine may do everything; signed_out: a key is needed.',
  ),
  key_id: nullable(
    Type.String({ description: 'The key that was given; null when open, signed out, or signed in by a link.' }),
  ),
  key_name: nullable(Type.String()),
  scopes: Type.Array(enumOf(SCOPES), { description: 'What it permits.' }),
  meeting_ids: nullable(Type.Array(MeetingId, { description: 'The meetings that it is limited to.' })),
  instance_id: nullable(InstanceId),
  expires_at: nullable(time('When the session ends; null without a cookie.')),
  csrf_token: nullable(
    Type.String({ description: 'Sent as the header convoke-csrf with what changes something; null without a cookie.' }),
  ),
  version: Type.String({ description: 'Of the service.' }),
  features: Type.Object({ cluster: Type.Boolean({ description: 'Whether there may be several nodes.' }) }),
});

export const DemoSchema = Type.Object({
  state: enumOf(
    ['stopped', 'talking', 'listening'] as const,
    'talking: the agents take their turns; listening: they answer what others say.',
  ),
  meeting_id: nullable(MeetingId),
  instance_ids: Type.Array(InstanceId),
  turns: Type.Integer({ description: 'How many turns were taken, of 20.' }),
});

export const UseLinkBody = Type.Object(
  {
    token: Type.String({
      pattern: '^[A-Za-z0-9_-]{43}$',
      description: 'What stands behind #sign-in= in the link.',
      ...expected('must be the 43 characters behind #sign-in= in the link'),
    }),
  },
  { additionalProperties: false },
);
