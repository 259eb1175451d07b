import Type from 'typebox';
import {
  ACK_TIMEOUT_S,
  ACK_TIMEOUT_S_MAX,
  FAILURE_EXCERPT_CHARS_MAX,
  HEALTH,
  LEASE_S,
  TRANSPORTS,
} from '../../domain/instance.ts';
import { OPTIONS_BYTES_MAX } from '../../domain/runtimes/options.ts';
import { RUNTIME_NAMES, TIMEOUT_S, TIMEOUT_S_MAX } from '../../domain/runtimes/runtimes.ts';
import {
  agentId,
  AgentIds,
  AT_LEAST_ONE_FIELD,
  bytesMax,
  enumOf,
  expected,
  flag,
  ID_PATTERN,
  instanceId,
  InstanceId,
  meetingId,
  named,
  nullable,
  OutcomeSchema,
  overlapSeconds,
  requiredUnless,
  text,
  time,
} from './fields.ts';
import { KeyId } from './api_keys.ts';
import { cursor, limit } from './page.ts';

export const InstanceName = Type.String({
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

export const TransportSchema = enumOf(
  TRANSPORTS,
  named(
    'Transport',
    'How pushes reach the machine. `webhook`: they are sent to webhook_url. `pull`: the machine asks for them, so nobody needs a connection to it.',
  ),
);

const AckTimeout = Type.Integer({
  minimum: 1,
  maximum: ACK_TIMEOUT_S_MAX,
  description: `How long a machine that pulls has for the result of a push, in seconds; ${ACK_TIMEOUT_S} unless it was set, ${ACK_TIMEOUT_S_MAX} at most. A webhook has timeout_s instead.`,
  examples: [ACK_TIMEOUT_S],
  ...expected(`must be a whole number from 1 to ${ACK_TIMEOUT_S_MAX}`),
});

const Timeout = Type.Integer({
  minimum: 1,
  maximum: TIMEOUT_S_MAX,
  description: `How long an attempt at webhook_url may take, in seconds. The default is ${TIMEOUT_S}, or the time that the runtime needs; a registration that ends the runtime and gives no timeout_s also ends its timeout. With more than ${TIMEOUT_S}, an attempt that a stop of the service interrupts is made again.`,
  examples: [TIMEOUT_S],
  ...expected(`must be a whole number from 1 to ${TIMEOUT_S_MAX}`),
});

const RuntimeSchema = enumOf(
  RUNTIME_NAMES,
  named(
    'Runtime',
    'The runtime at webhook_url, if its pushes have a shape of their own. `spec`, the default, is the body of the specification. `convoke runtimes` describes each.',
  ),
);

const RuntimeOptions = Type.Unsafe<Record<string, unknown>>({
  type: 'object',
  additionalProperties: true,
  description:
    'The options of the runtime: `convoke runtimes NAME` lists them. Stored encrypted; no response contains their values. Each registration gives them again.',
  examples: [{ model: 'llama3.2' }],
  ...expected(`must be an object of the options of the runtime, of at most ${OPTIONS_BYTES_MAX} bytes`),
});

const LeaseSeconds = Type.Integer({
  minimum: LEASE_S.min,
  maximum: LEASE_S.max,
  description: `Only with the runtime mcp_events: after how many seconds the instance is removed unless it registers again; ${LEASE_S.default} when absent.`,
  examples: [LEASE_S.default],
  ...expected(`must be a whole number from ${LEASE_S.min} to ${LEASE_S.max}`),
});

const ConnectionSchema = Type.Object(
  {
    since: time('Since when it pulls without a pause of more than 10 s.'),
    address: nullable(Type.String(), 'The address of its latest pull.'),
    client: nullable(Type.String(), 'Its program and version, from the header user-agent.'),
  },
  named('Connection', 'A machine that pulls.'),
);

const HEADER_NAME_PATTERN = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$";

/** The most bytes of all names and values. Many servers refuse requests with more. */
const WEBHOOK_HEADERS_BYTES_MAX = 16_384;

// Uses propertyNames, because patternProperties do not reach the OpenAPI document.
const WebhookHeaders = Type.Unsafe<Record<string, string>>({
  type: 'object',
  propertyNames: {
    pattern: HEADER_NAME_PATTERN,
    ...expected("must have a name of 1 to 100 letters, digits and !#$%&'*+.^_`|~-"),
  },
  additionalProperties: {
    type: 'string',
    maxLength: 4096,
    pattern: '^[\\t\\x20-\\x7e\\x80-\\xff]*$',
    ...expected('must be a string of at most 4096 characters of ISO 8859-1 without control characters'),
  },
  maxProperties: 32,
  description:
    'Headers sent with every push, such as authorization. No response contains their values. Given headers replace all old ones; without this field the old ones stay.',
  examples: [{ authorization: 'Bearer 3f9c20d1' }],
  ...bytesMax(WEBHOOK_HEADERS_BYTES_MAX),
  ...expected(
    `must be an object of at most 32 header names to string values, of at most ${WEBHOOK_HEADERS_BYTES_MAX} bytes in all`,
  ),
});

const SuccessStatuses = enumOf(
  ['200', '2xx'] as const,
  named('SuccessStatuses', 'Which responses to a push count as a success: only 200 (the default), or every 2xx.'),
);

const Replies = Type.Boolean({
  description:
    'Whether the instance may answer a push with replies, which are sent in the meeting: in its response, or later with the token of the push. When absent, it is true in a registration with a runtime other than mcp_events; otherwise it stays as it is, and is false for a new instance.',
  ...expected('must be true or false'),
});

const WebhookSecret = Type.String({
  pattern: '^whsec_[A-Za-z0-9+/]{32,88}={0,2}$',
  description:
    'Standard Webhooks secret: whsec_ and base64 of 24 to 64 bytes. When absent, the first registration makes one.',
  examples: ['whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD'],
  ...expected('must be whsec_ followed by the base64 of 24 to 64 bytes'),
});

export const Health = enumOf(
  HEALTH,
  named(
    'Health',
    '`unknown`: nothing was tried yet; `up`: the last attempt succeeded; `failing`: 1 to 4 failures in a row; `down`: 5 or more.',
  ),
);

const LastFailure = Type.Object(
  {
    at: time('When the attempt ended.'),
    outcome: OutcomeSchema,
    status_code: nullable(Type.Integer(), 'The status of the response; null when no status line arrived.'),
    detail: Type.String({ description: 'The result, in words.' }),
    response_excerpt: Type.Optional(
      Type.String({
        maxLength: FAILURE_EXCERPT_CHARS_MAX,
        description: `The first ${FAILURE_EXCERPT_CHARS_MAX} characters of the response body. Absent when there was none, and for a key that may not see every delivery of the instance.`,
        examples: ['out of GPU memory'],
      }),
    ),
    advice: Type.String({ description: 'One sentence that says what to do.' }),
  },
  named('LastFailure', 'The last attempt that failed.'),
);

export const InstanceSchema = Type.Object(
  {
    instance_id: InstanceId,
    instance_name: InstanceName,
    agent_ids: AgentIds,
    transport: Type.Optional(TransportSchema),
    ack_timeout_s: Type.Optional(AckTimeout),
    timeout_s: Type.Optional(Timeout),
    runtime: Type.Optional(RuntimeSchema),
    runtime_option_names: Type.Optional(
      Type.Array(Type.String(), {
        description: 'Only with a runtime: the names of its options; no response contains their values.',
      }),
    ),
    lease_until: Type.Optional(
      time('Only for a subscription of MCP Events: when it is removed unless it is renewed before.'),
    ),
    connected: Type.Optional(
      nullable(ConnectionSchema, 'Only with the transport `pull`: the machine that pulls; null when none does.'),
    ),
    webhook_url: Type.String({
      maxLength: 2048,
      description: 'Where pushes are sent; shown and not used when transport is `pull`, and empty when none was given.',
      examples: ['http://127.0.0.1:9000/convoke'],
    }),
    webhook_enabled: Type.Boolean({ description: 'Whether pushes are sent; false after a response of 410.' }),
    is_active: Type.Boolean({ description: 'Whether the instance takes part at all.' }),
    success_statuses: SuccessStatuses,
    replies: Type.Optional(
      Type.Boolean({ description: 'True when its replies to pushes are sent in the meeting; absent otherwise.' }),
    ),
    webhook_header_names: Type.Array(Type.String(), {
      description: 'The names of the headers sent with every push; no response contains their values.',
    }),
    health: Health,
    consecutive_failures: Type.Integer({ description: 'Failed attempts since the last success.' }),
    health_since: Type.Optional(time('When its health last changed; absent when that is unknown.')),
    next_try_at: Type.Optional(
      time(
        'Only while it backs off: when the next attempt is made, if a delivery waits then. A past time means: as soon as a delivery waits.',
      ),
    ),
    last_success_at: nullable(
      time('A time.'),
      'When a push last succeeded, up to a second late; null before the first.',
    ),
    last_failure: nullable(LastFailure, 'The last attempt that failed; null when none did.'),
    pending_deliveries: Type.Integer({ description: 'Deliveries that are not settled yet.' }),
    owner_key_id: nullable(
      Type.String(),
      'The key that owns it. Null when it was registered without keys; then only admins may change it.',
    ),
    last_seen_at: nullable(time('A time.'), 'The last registration or heartbeat.'),
    created_at: time('When it was first registered.'),
    updated_at: time('When a field of the registration last changed.'),
  },
  named('Instance', 'One machine that runs an agent runtime.'),
);

export const RegisteredInstanceSchema = Type.Object(
  {
    ...InstanceSchema.properties,
    webhook_secret: Type.Optional(
      Type.String({ description: 'Only when it was just made. Keep it, because it is not shown again.' }),
    ),
    dropped_header_names: Type.Optional(
      Type.Array(Type.String(), {
        description:
          'The headers that were dropped, because webhook_url has another origin or transport changed, and webhook_headers were not given again.',
      }),
    ),
  },
  named('RegisteredInstance', 'An instance, and its secret when the registration made one.'),
);

export const RegisterBody = Type.Object(
  {
    instance_id: instanceId('The id of the instance: not `.` or `..`, which no client can put into a path.'),
    instance_name: InstanceName,
    agent_ids: AgentIds,
    transport: Type.Optional(TransportSchema),
    ack_timeout_s: Type.Optional(AckTimeout),
    timeout_s: Type.Optional(Timeout),
    runtime: Type.Optional(RuntimeSchema),
    runtime_options: Type.Optional(RuntimeOptions),
    lease_s: Type.Optional(LeaseSeconds),
    webhook_url: Type.Optional(WebhookUrl),
    webhook_headers: Type.Optional(WebhookHeaders),
    webhook_secret: Type.Optional(WebhookSecret),
    success_statuses: Type.Optional(SuccessStatuses),
    replies: Type.Optional(Replies),
  },
  {
    ...named(
      'RegisterInput',
      'An instance as its machine registers it. An id that is known already updates that instance. webhook_url is required unless transport is `pull`; a registration without transport means `webhook`.',
    ),
    additionalProperties: false,
    ...requiredUnless('webhook_url', 'transport', 'pull'),
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
    agent_ids: Type.Optional(AgentIds),
    webhook_url: Type.Optional(WebhookUrl),
    is_active: Type.Optional(Type.Boolean({ description: 'Whether the instance takes part at all.' })),
    webhook_enabled: Type.Optional(Type.Boolean({ description: 'Whether pushes are sent.' })),
    webhook_headers: Type.Optional(WebhookHeaders),
    success_statuses: Type.Optional(SuccessStatuses),
    ack_timeout_s: Type.Optional(AckTimeout),
    timeout_s: Type.Optional(Timeout),
    replies: Type.Optional(Replies),
    owner_key_id: Type.Optional(
      Type.Union([KeyId, Type.Null()], {
        description:
          'Gives the instance to another key, or (null) to admins only. Only admins may do that. An instance that pulls loses its webhook_headers, unless they are given again.',
        ...expected('must be the key_id of a key, or null'),
      }),
    ),
  },
  {
    ...named('UpdateInstanceInput', 'What to change in an instance: at least one field.'),
    additionalProperties: false,
    ...AT_LEAST_ONE_FIELD,
    examples: [{ webhook_enabled: false }],
  },
);

export const RotateSecretBody = Type.Object(
  {
    overlap_seconds: overlapSeconds('How long the previous secret also signs; a day when absent, 30 days at most.'),
  },
  {
    ...named('RotateSecretInput', 'How two secrets overlap.'),
    additionalProperties: false,
    examples: [{ overlap_seconds: 3600 }],
  },
);

export const RotatedSecretSchema = Type.Object(
  {
    webhook_secret: Type.String({ description: 'The new secret; it is not shown again.' }),
    previous_secret_expires_at: time('Until then every push is signed with the previous secret too.'),
    earlier_secrets_expire_at: Type.Optional(
      Type.Array(time('A time.'), {
        description:
          'Until then every push is signed with the secrets of earlier rotations too, the newest first: a rotation does not shorten the overlap of another. Absent when there are none.',
      }),
    ),
  },
  named('RotatedSecret', 'The new secret of an instance.'),
);

export const WebhookTestBody = Type.Object(
  { instance_id: InstanceId },
  {
    ...named('WebhookTestInput', 'The instance to push a sample message to.'),
    additionalProperties: false,
    examples: [{ instance_id: 'laptop-anna' }],
  },
);

const DiagnosisStage = Type.Object(
  {
    stage: enumOf(['dns', 'connect', 'tls', 'request', 'response'] as const, { description: 'Which stage it is.' }),
    ok: Type.Boolean({ description: 'Whether it succeeded.' }),
    duration_ms: Type.Number({ description: 'How long it took.' }),
    detail: Type.String({ description: 'The result, in words.' }),
  },
  named('DiagnosisStage', 'One stage of a webhook test.'),
);

export const DiagnosisSchema = Type.Object(
  {
    success: Type.Boolean({ description: 'Whether a delivery with this response would count as delivered.' }),
    status_code: nullable(Type.Integer(), 'The status of the response; null when no status line arrived.'),
    outcome: OutcomeSchema,
    duration_ms: Type.Number({ description: 'How long all of it took.' }),
    stages: Type.Array(DiagnosisStage, { description: 'The result of each stage that was reached.' }),
    response_excerpt: Type.String({ description: 'The beginning of the response body.' }),
    advice: Type.String({ description: 'One sentence that says what to do.' }),
  },
  named('Diagnosis', 'The result of a webhook test, stage by stage.'),
);

export const ListInstancesQuery = Type.Object(
  {
    agent_id: Type.Optional(agentId('Only instances that host this agent.')),
    meeting_id: Type.Optional(meetingId('Only instances that are in this meeting.')),
    is_active: flag('Only active, or only inactive ones.'),
    paused: flag(
      'Only paused ones, or only the others. An instance is paused while is_active or webhook_enabled is false.',
    ),
    health: Type.Optional(Health),
    q: text('Part of the id or the name.'),
    limit,
    cursor,
  },
  { additionalProperties: false },
);

export const InstanceParams = Type.Object({ instance_id: InstanceId });
