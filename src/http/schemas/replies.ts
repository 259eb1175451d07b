import Type from 'typebox';
import { REPLIES_MAX } from '../../domain/reply.ts';
import { agentId, agentIds, expected, JsonObject, named } from './fields.ts';
import { SendHeaders } from './sends.ts';

const ReplyMessage = Type.Object(
  {
    message: JsonObject,
    from_agent: Type.Optional(
      agentId('The agent that says it: one of those that the push was for. Absent: the only one that it was for.'),
    ),
    target_agents: Type.Optional(agentIds('Push only to these agents; empty or absent: to all agents of the meeting.')),
  },
  {
    ...named('ReplyMessage', 'A reply as a message, with its agent and its recipients.'),
    additionalProperties: false,
  },
);

export const ReplyBody = Type.Object(
  {
    reply: Type.Union([Type.String(), ReplyMessage], {
      description: 'A text, which is sent as `{"content": text}`, or a message.',
      ...expected('must be a text, or an object with message, and from_agent and target_agents where they are needed'),
    }),
  },
  {
    ...named('ReplyInput', 'A reply to the message of a push.'),
    additionalProperties: false,
    examples: [
      { reply: 'I have read it.' },
      { reply: { message: { content: 'Only for you' }, from_agent: 'anna-planner', target_agents: ['bob-reviewer'] } },
    ],
  },
);

export const ReplyHeaders = Type.Object({
  ...SendHeaders.properties,
  'convoke-reply-token': Type.Optional(
    Type.String({
      description: `The token of the push, from the header of the same name. It is valid for 24 hours and ${REPLIES_MAX} replies, in the meeting of the push and as its agents.`,
    }),
  ),
});
