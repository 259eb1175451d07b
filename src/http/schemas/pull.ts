import Type from 'typebox';
import { DELIVERY_STATES } from '../../domain/delivery.ts';
import { expected, enumOf, madeId, named, nullable, time } from './fields.ts';

/** The most results in one request, and the most bytes of the body of each. */
export const RESULTS_MAX = 256;
export const RESULT_BODY_BYTES_MAX = 65_536;
/** The most bytes of a request: room for RESULTS_MAX small results, or for some large ones. */
export const PULL_BODY_BYTES_MAX = 1_000_000;

/** How many pushes one response may have. */
export const PUSHES = { default: 32, max: 256 };
/** How many seconds a pull waits. */
export const WAIT_S = { default: 30, max: 60 };

const PULL_ID = '^[A-Za-z0-9._-]{1,64}$';

const attempt = Type.Integer({
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'The number of the attempt, as it was handed out.',
  ...expected('must be a whole number from 1 on'),
});

const ResultSchema = Type.Object(
  {
    delivery_id: madeId('The delivery, as it was handed out.'),
    attempt,
    status_code: Type.Optional(
      Type.Integer({
        minimum: 200,
        maximum: 599,
        description:
          'The status with which the runtime responded. It is judged like the status of a webhook: 200 is a success.',
        ...expected('must be a whole number from 200 to 599'),
      }),
    ),
    retry_after: Type.Optional(
      Type.String({
        maxLength: 200,
        description: 'The Retry-After of that response.',
        ...expected('must be a string of at most 200 characters'),
      }),
    ),
    body: Type.Optional(
      Type.String({
        maxLength: RESULT_BODY_BYTES_MAX,
        description: `The body of that response: at most ${RESULT_BODY_BYTES_MAX} bytes.`,
        ...expected(`must be a string of at most ${RESULT_BODY_BYTES_MAX} bytes`),
      }),
    ),
    not_reached: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 500,
        description: 'Instead of status_code: why the runtime was not reached. Then the instance backs off.',
        ...expected('must be a string of 1 to 500 characters'),
      }),
    ),
  },
  {
    ...named('PullResult', 'The result of a push: status_code or not_reached.'),
    additionalProperties: false,
    ...expected('must be an object with delivery_id, attempt, and either status_code or not_reached'),
  },
);

export const PullBody = Type.Object(
  {
    results: Type.Optional(
      Type.Array(ResultSchema, {
        maxItems: RESULTS_MAX,
        description: `Results of pushes that were handed out before: at most ${RESULTS_MAX}.`,
        ...expected(`must be a list of at most ${RESULTS_MAX} results`),
      }),
    ),
    max: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: PUSHES.max,
        default: PUSHES.default,
        description: `How many pushes the response may have: ${PUSHES.default} when absent, ${PUSHES.max} at most. 0 only hands in results, and does not wait.`,
        ...expected(`must be a whole number from 0 to ${PUSHES.max}`),
      }),
    ),
    wait_s: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: WAIT_S.max,
        default: WAIT_S.default,
        description: `How long to wait for a push, in seconds: ${WAIT_S.default} when absent, ${WAIT_S.max} at most; 0 responds at once, or up to about a second later while deliveries that have waited are read.`,
        ...expected(`must be a whole number from 0 to ${WAIT_S.max}`),
      }),
    ),
    pull_id: Type.Optional(
      Type.String({
        pattern: PULL_ID,
        description:
          'A name of this request, another one for each. When its response is lost, repeat the request under the same name. Then the pushes of the lost response are handed out again at once, and not only after their deadline. If an earlier request of that name still waits, its wait ends.',
        ...expected('must be a string of 1 to 64 letters, digits and `-_.`'),
      }),
    ),
  },
  {
    ...named('PullInput', 'The results that a machine has, and how many pushes it takes.'),
    additionalProperties: false,
    examples: [{ results: [], max: PUSHES.default, wait_s: WAIT_S.default }],
  },
);

const HandedOutSchema = Type.Object(
  {
    delivery_id: Type.String({
      description: 'The delivery; the same as webhook-id. Skip a push that you have handled.',
    }),
    attempt: Type.Integer({ description: 'The number of the attempt, from 1.' }),
    headers: Type.Unsafe<Record<string, string>>({
      type: 'object',
      additionalProperties: { type: 'string' },
      description:
        'The headers that a webhook would get, with the signature over the body. Their names are in lower case.',
    }),
    body: Type.String({ description: 'The text that a webhook would get: verify the signature over its UTF-8 bytes.' }),
    deadline_at: time('When a result is too late: the attempt has then failed as `timeout`, and is made again.'),
  },
  named('PulledPush', 'A push for a machine that pulls. The attempt begins when it is handed out.'),
);

const TakenResultSchema = Type.Object(
  {
    delivery_id: Type.String({ description: 'The delivery.' }),
    attempt: Type.Integer({ description: 'The number of the attempt.' }),
    became: enumOf(['counted', 'late', 'repeated', 'unknown'] as const, {
      description:
        '`counted`: it was judged like the response of a webhook. The others have no effect. `late`: its deadline had passed. `repeated`: the attempt had a result already. `unknown`: this instance did not get such an attempt, or the node that handed it out has stopped; then the push is handed out again.',
    }),
    state: nullable(
      enumOf(DELIVERY_STATES, { description: 'A state.' }),
      'The state of the delivery when the result was not `counted`; null when it was, and when there is no such delivery of this instance.',
    ),
  },
  named('TakenResult', 'Whether a result counted.'),
);

export const PulledSchema = Type.Object(
  {
    pushes: Type.Array(HandedOutSchema, {
      description:
        'The next push of each meeting, in order, and at most one push that went aside: its delivery got three bad responses, or was queued again. So two pushes may be of one meeting. Empty when the time was up, or when the node stops: pull again.',
    }),
    results: Type.Array(TakenResultSchema, {
      description: 'Whether each result counted, in the order of the request.',
    }),
  },
  named('Pulled', 'What a pull brought.'),
);
