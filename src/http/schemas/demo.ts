import Type from 'typebox';
import { enumOf, InstanceId, MeetingId, named, nullable } from './fields.ts';

export const DemoSchema = Type.Object(
  {
    state: enumOf(['stopped', 'talking', 'listening'] as const, {
      description: '`talking`: the agents take their turns; `listening`: they answer what others say.',
    }),
    meeting_id: nullable(MeetingId, 'The meeting that they talk in; null while it is stopped.'),
    instance_ids: Type.Array(InstanceId, { description: 'Their instances.' }),
    turns: Type.Integer({ description: 'How many turns were taken, of 20.' }),
  },
  named('Demo', 'Two agents inside the service that talk in a meeting.'),
);
