import Type from 'typebox';
import { SPANS, type Span } from '../../domain/history.ts';
import { enumOf, expected, named, nullable, time, timeInput } from './fields.ts';

const count = (description: string) => Type.Integer({ minimum: 0, description });

export const InstanceCountsSchema = Type.Object(
  {
    up: count('Switched on, and the last attempt succeeded.'),
    failing: count('Switched on, and the last one to four attempts failed.'),
    down: count('Switched on, and the last five attempts or more failed.'),
    unknown: count('Switched on, and no attempt was made yet.'),
    off: count('Switched off: `is_active` or `webhook_enabled` is false.'),
    connected: count('Instances whose machine pulls. They are also counted in one of the states above.'),
  },
  named('InstanceCounts', 'How many instances are in each state. Each is in one.'),
);

export const DeliveryCountsSchema = Type.Object(
  {
    pending: count('Deliveries that have not ended.'),
    oldest_pending_at: nullable(time('When the oldest of them was made.'), 'Null when none is pending.'),
  },
  named('DeliveryCounts', 'How many deliveries wait.'),
);

export const CountsSchema = Type.Object(
  {
    counted_at: time(
      'When the count began. A count that took long is kept for a while, so it may be older than the request.',
    ),
    instances: InstanceCountsSchema,
    deliveries: DeliveryCountsSchema,
  },
  named('Counts', 'The counts of the rows that the key may see.'),
);

const counts = (description: string) => Type.Array(Type.Integer({ minimum: 0 }), { description });
const durations = (description: string) => Type.Array(nullable(Type.Integer({ minimum: 0 })), { description });

export const HistoryQuery = Type.Object(
  {
    span: Type.Optional(
      Type.Unsafe<Span>({
        ...enumOf(Object.keys(SPANS) as Span[], {
          description:
            'How far back: `5m` in steps of a second, `1h` in steps of 10 s, `24h` in minutes. `5m` when absent.',
        }),
        ...expected('must be 5m, 1h or 24h'),
      }),
    ),
    since: Type.Optional(
      timeInput(
        'Only steps that begin at this time or later. Give the `ends_at` of an earlier response to get only newer steps.',
        '2026-03-01T09:30:00.000Z',
      ),
    ),
  },
  { additionalProperties: false },
);

export const HistorySchema = Type.Object(
  {
    counting_since: time('When this node began to count: its start. Earlier counts are unknown.'),
    complete_since: time(
      'Since when this node has the counts of all other nodes without a gap. It is `counting_since` when there are no other nodes, or when no counts were missed.',
    ),
    starts_at: time('When the first step began.'),
    ends_at: time('When the last step ended. Give it as `since` to ask for later ones.'),
    step_s: Type.Integer({ description: 'The length of a step in seconds.', examples: [1] }),
    accepted: counts('Messages accepted in each step, the oldest step first.'),
    delivered: counts('Deliveries that succeeded.'),
    failed_attempts: counts('Attempts that failed; most are followed by another attempt.'),
    failed: counts('Deliveries that failed: no further attempt is made.'),
    p50_ms: durations(
      'The median of the time from the acceptance of a message to its delivery, in milliseconds. It is off by at most an eighth. Null for a step in which nothing was delivered.',
    ),
    p95_ms: durations('The same; 95 % of the deliveries took no longer.'),
  },
  named(
    'ServiceHistory',
    'The latest counts of the service, column by column. The lists have an item for each step that has ended.',
  ),
);

export const InstanceHistorySchema = Type.Object(
  {
    counting_since: time(
      'Since when the attempts of this instance are counted. Earlier ones are unknown, or belong to another instance with this id.',
    ),
    starts_at: time('When the first step began.'),
    ends_at: time('When the last step ends. It is the present one.'),
    step_s: Type.Integer({ description: 'The length of a step in seconds.', examples: [600] }),
    delivered: counts('Deliveries that succeeded in each step, the oldest step first.'),
    failed_attempts: counts('Attempts that failed; most are followed by another attempt.'),
    failed: counts('Deliveries that failed by an attempt: no further attempt is made.'),
    p50_ms: durations(
      'The median of the time from the acceptance of a message to its delivery, in milliseconds. It is off by at most an eighth. Null for a step in which nothing was delivered.',
    ),
    p95_ms: durations('The same; 95 % of the deliveries took no longer.'),
  },
  named('InstanceHistory', 'The results of the pushes of an instance in the last day, column by column.'),
);
