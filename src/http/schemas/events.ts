import Type from 'typebox';
import { expected, instanceId, meetingId, NO_CONTROLS_PATTERN } from './fields.ts';

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
    instance_id: Type.Optional(instanceId('Only events of this instance.')),
    meeting_id: Type.Optional(meetingId('Only events of this meeting.')),
    last_event_id: lastEventId(
      'The id of the last event that was seen: the same as the header Last-Event-ID, which has priority.',
    ),
  },
  { additionalProperties: false },
);

export const EventsHeaders = Type.Object({
  'last-event-id': lastEventId('The id of the last event that was seen: the stream continues after it.'),
});

/** Server-sent events (WHATWG HTML, section 9.2). */
export const EventStream = Type.Unsafe<void>({
  content: {
    'text/event-stream': { schema: { type: 'string', description: 'Server-sent events; docs/events.md lists them.' } },
  },
});

export const StreamHeaders = {
  'cache-control': Type.String({ description: 'no-store: the stream must not be cached.' }),
  'x-accel-buffering': Type.String({ description: 'no: a proxy must not buffer events.' }),
  'x-content-type-options': Type.String({ description: 'nosniff: the content has the declared type.' }),
};
