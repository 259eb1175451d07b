import Type from 'typebox';
import { madeId, meetingId, MeetingId, named, timeInput } from './fields.ts';
import { MessageSchema } from './messages.ts';
import { seqGiven } from './messages.ts';
import { cursor, limit, searchPageOf, textSearched } from './page.ts';

const FoundMessageSchema = Type.Object(
  {
    ...MessageSchema.properties,
    meeting_id: MeetingId,
  },
  named('FoundMessage', 'A message with its meeting.'),
);

export const FoundMessagePageSchema = searchPageOf(FoundMessageSchema);

export const FindMessagesQuery = Type.Object(
  {
    id: Type.Optional(
      madeId(
        'The message with this message_id, or the message of the delivery with this delivery_id (the webhook-id).',
      ),
    ),
    meeting_id: Type.Optional(meetingId('Only messages of this meeting.')),
    seq: seqGiven('Only the message with this number in its meeting; with meeting_id it is found at once.'),
    text: textSearched,
    since: Type.Optional(timeInput('Sent at or after this time.', '2026-03-01T09:30:00Z')),
    until: Type.Optional(timeInput('Sent before this time.', '2026-03-01T09:30:00Z')),
    limit,
    cursor,
  },
  { additionalProperties: false },
);
