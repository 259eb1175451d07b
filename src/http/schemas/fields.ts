/** Parts of schemas that several nouns use. */
import Type, { type TSchema } from 'typebox';
import { AGENT_IDS_BYTES_MAX, AGENT_IDS_MAX, ID_CHARS_MAX, ID_PATTERN } from '../../domain/id.ts';
import { OUTCOMES, type Outcome } from '../../domain/outcome.ts';

export { ID_PATTERN };

const OVERLAP_S_MAX = 30 * 86_400;

export const NO_CONTROLS_PATTERN = '^[^\\u0000-\\u001f\\u007f-\\u009f\\ud800-\\udfff]*$';

/** The largest body with a list of agent ids and webhook headers. One byte of these texts can take 6 bytes in JSON. */
export const LIST_BODY_BYTES_MAX = 384 << 10;

/**
 * Names a schema: the title is its name in the OpenAPI document, in generated clients and in the SDK. The function
 * `finished` (scripts/openapi_document.ts) makes a component of each schema that has a title.
 */
export const named = (title: string, description: string) => ({ title, description });

/** `x-expected` is the text of the 422 when the value does not fit. */
export const expected = (text: string) => ({ 'x-expected': text });

/** For a body that changes or chooses something. */
export const AT_LEAST_ONE_FIELD = { minProperties: 1, ...expected('must have at least one field') };

/** How long an old secret or token is still valid. */
export const overlapSeconds = (description: string) =>
  Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: OVERLAP_S_MAX,
      description,
      default: 86_400,
      ...expected(`must be a whole number from 0 to ${OVERLAP_S_MAX}`),
    }),
  );

/** The most bytes of the texts in a list, or of the names and values in an object, as UTF-8. */
export const bytesMax = (bytes: number) => ({ 'x-bytes-max': bytes });

/**
 * For a list in a body: its route validates each item by itself, and accepts the valid items beside an invalid item.
 */
export const JUDGED_APART = { 'x-judged-apart': true };

/** For an object: `field` is required, unless `other` has this value. */
export const requiredUnless = (field: string, other: string, value: string) => ({
  'x-required-unless': { field, other, value },
});

export const enumOf = <T extends string>(values: readonly T[], options: { title?: string; description: string }) =>
  Type.Unsafe<T>({ type: 'string', enum: [...values], ...options });

export const nullable = <T extends TSchema>(schema: T, description?: string) =>
  Type.Union([schema, Type.Null()], description === undefined ? {} : { description });

export const time = (description: string) =>
  Type.String({ format: 'date-time', description, examples: ['2026-03-01T09:30:00.000Z'] });

/** A time that the caller gives. */
export const timeInput = (description: string, example: string) =>
  Type.String({
    format: 'date-time',
    description,
    examples: [example],
    ...expected(`must be an RFC 3339 time such as ${example}`),
  });

const id = (what: string, example: string) =>
  Type.String({
    pattern: ID_PATTERN,
    description: what,
    examples: [example],
    ...expected(`must be a string of 1 to ${ID_CHARS_MAX} characters without control characters`),
  });

export const instanceId = (what: string) => id(what, 'laptop-anna');
export const meetingId = (what: string) => id(what, 'standup-42');
export const agentId = (what: string) => id(what, 'anna-planner');

export const InstanceId = instanceId('The id of an instance.');
export const MeetingId = meetingId('The id of a meeting.');
const AgentId = agentId('An agent hosted by an instance.');

export const agentIds = (description: string, count_max = AGENT_IDS_MAX, bytes_max = AGENT_IDS_BYTES_MAX) =>
  Type.Array(AgentId, {
    maxItems: count_max,
    description,
    ...bytesMax(bytes_max),
    ...expected(`must be a list of at most ${count_max} agent ids, of at most ${bytes_max} bytes in all`),
  });

export const AgentIds = agentIds(
  `Agent ids; duplicates are dropped, order is kept. At most ${AGENT_IDS_MAX}, of at most ${AGENT_IDS_BYTES_MAX} bytes in all.`,
);

export const JsonObject = Type.Unsafe<Record<string, unknown>>({
  type: 'object',
  additionalProperties: true,
  ...named('JsonObject', 'Any JSON object. It is stored and pushed value for value, as it was written.'),
  ...expected('must be a JSON object'),
});

export const OutcomeSchema = enumOf(
  Object.keys(OUTCOMES) as Outcome[],
  named(
    'Outcome',
    'How an attempt ended, in the order of its stages. With `tls_failed` and each value before it, the receiver was not reached.',
  ),
);

export const text = (description: string) =>
  Type.Optional(
    Type.String({
      maxLength: 200,
      pattern: NO_CONTROLS_PATTERN,
      description,
      ...expected('must be a string of at most 200 characters without control characters'),
    }),
  );

/** The id of an object that the service made. */
export const madeId = (description: string) =>
  Type.String({
    maxLength: 100,
    pattern: NO_CONTROLS_PATTERN,
    description,
    ...expected('must be an id that the service returned, of at most 100 characters'),
  });

export const flag = (description: string) =>
  Type.Optional(Type.Boolean({ description, ...expected('must be true or false') }));
