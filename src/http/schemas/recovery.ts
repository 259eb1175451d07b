import Type from 'typebox';
import { AT_LEAST_ONE_FIELD, expected, flag, madeId, named, nullable, time, timeInput } from './fields.ts';

/** The most deliveries that one call queues again. A dry run stops counting there. */
export const RECOVERED_MAX = 100_000;
/** The most deliveries that a call names by id: as many as a page of a list has items. */
export const CHOSEN_MAX = 500;

export const RecoverBody = Type.Object(
  {
    since: Type.Optional(
      timeInput('Queues the deliveries again that failed at or after this time.', '2026-03-01T09:30:00Z'),
    ),
    until: Type.Optional(
      timeInput(
        'With since: only those that failed at or before this time. Absent, or later than now: now.',
        '2026-03-01T12:00:00Z',
      ),
    ),
    delivery_ids: Type.Optional(
      Type.Array(madeId('The id of a delivery.'), {
        minItems: 1,
        maxItems: CHOSEN_MAX,
        description:
          'Instead of since: these deliveries of the instance, if they failed or were cancelled. Others in the list are left as they are.',
        ...expected(`must be a list of 1 to ${CHOSEN_MAX} delivery ids`),
      }),
    ),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: RECOVERED_MAX,
        description:
          'With since: the most deliveries that this call queues again. A small limit shows the progress. One call queues all of delivery_ids.',
        ...expected(`must be a whole number from 1 to ${RECOVERED_MAX}`),
      }),
    ),
    dry_run: flag(
      'Only count the deliveries that would be queued again, and the messages that the instance missed while it was switched off.',
    ),
  },
  {
    ...named(
      'RecoverInput',
      'Which deliveries are queued again: those that failed in a period (since), or some that failed or were cancelled (delivery_ids).',
    ),
    additionalProperties: false,
    ...AT_LEAST_ONE_FIELD,
    examples: [{ since: '2026-03-01T09:30:00Z', until: '2026-03-01T12:00:00Z' }],
  },
);

const MissedSchema = Type.Object(
  {
    messages: Type.Integer({ description: 'How many messages.' }),
    at_least: Type.Boolean({ description: 'True when there may be more: not all messages were read.' }),
  },
  named(
    'MissedMessages',
    'Messages of that period for the agents that the instance has in its meetings now, without a delivery: it was switched off when they were sent. They are in the history of their meetings, and are not pushed later.',
  ),
);

export const RecoveredSchema = Type.Object(
  {
    recovered: Type.Integer({ description: 'How many deliveries were queued again, or would be.' }),
    until: nullable(
      time('A time.'),
      'The end of the period: when `done` is false, the next call gives it as `until`. Null with delivery_ids.',
    ),
    dry_run: Type.Boolean({ description: 'Whether they were only counted.' }),
    done: Type.Boolean({ description: 'False when more may be left: call again, with this `until`.' }),
    at_least: Type.Optional(
      Type.Boolean({ description: `Only with dry_run: true when there are more than ${RECOVERED_MAX}.` }),
    ),
    missed: Type.Optional(MissedSchema),
  },
  named('Recovered', 'The result of a recovery, or of a call of it that does a part.'),
);
