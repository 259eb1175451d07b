import Type from 'typebox';
import { hash } from 'node:crypto';
import { agentId, expected, MeetingId } from '../../http/schemas/fields.ts';
import { ListMessagesQuery } from '../../http/schemas/messages.ts';
import { SendMessageBody, SendMessagesItem, SentMessageSchema } from '../../http/schemas/sends.ts';
import type { Caller } from '../caller.ts';
import { exactly } from '../exact_messages.ts';
import { fitting, fromChar, NOTICE, PageOfQuotedMessages, quoted } from '../quoted_messages.ts';
import { toolOf } from './tool.ts';

const PAGE = { default: 20, max: 100 };

const Content = Type.String({
  minLength: 1,
  description: 'What to say. It is sent as {"content": …}.',
  ...expected('must be a text that is not empty'),
});

const FromAgent = Type.Optional(
  agentId(
    'The agent that says it: you, under the agent_id with which you joined. Leave it out only when you joined no meeting: then no agent says it, and you would get your own message.',
  ),
);

const { target_agents, in_reply_to, expires_in_s } = SendMessageBody.properties;
const { idempotency_key } = SendMessagesItem.properties;

export const readMessages = toolOf({
  name: 'read_messages',
  title: 'Read a meeting',
  description: `What was said in a meeting, in order: the latest messages, or those after or before a seq. A page has at most ${PAGE.max} messages and ends early when they are long. Use it to learn the context before you speak, and to catch up after an interruption, with after_seq = the last seq that you saw.`,
  scopes: ['read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  input: Type.Object(
    {
      meeting_id: MeetingId,
      after_seq: ListMessagesQuery.properties.after_seq,
      before_seq: ListMessagesQuery.properties.before_seq,
      limit: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: PAGE.max,
          default: PAGE.default,
          description: `The most messages: ${PAGE.default} when absent.`,
          ...expected(`must be a whole number from 1 to ${PAGE.max}`),
        }),
      ),
      from_char: fromChar('after_seq = its seq - 1 and limit = 1'),
    },
    { additionalProperties: false },
  ),
  output: PageOfQuotedMessages,
  async run({ client, signal }, { meeting_id, from_char, limit = PAGE.default, ...query }) {
    const page = await client.listRawMessages(meeting_id, { ...query, limit }, { signal });
    const messages = fitting(page.data, query.after_seq === undefined ? 'last' : 'first', (each) =>
      quoted(exactly(each), from_char),
    );
    return {
      notice: NOTICE,
      messages,
      has_more: page.has_more || messages.length < page.data.length,
      first_seq: messages[0]?.seq ?? null,
      last_seq: messages.at(-1)?.seq ?? null,
    };
  },
});

const SAYING = { readOnlyHint: false, destructiveHint: false, openWorldHint: true } as const;

export const sendMessage = toolOf({
  name: 'send_message',
  title: 'Say something in a meeting',
  description:
    'Sends a message to all agents of a meeting, or only to target_agents. Once it is sent, it cannot be taken back. `deliveries_queued` says how many machines get it; when it is 0, explain says why. To answer a message use reply.',
  scopes: ['send', 'instance'],
  annotations: { ...SAYING, idempotentHint: false },
  input: Type.Object(
    {
      meeting_id: MeetingId,
      content: Content,
      from_agent: FromAgent,
      target_agents,
      expires_in_s,
      idempotency_key,
    },
    { additionalProperties: false },
  ),
  output: SentMessageSchema,
  run: ({ client, signal, trace }, { meeting_id, content, ...options }) =>
    client.sendMessage(meeting_id, { content }, { ...options, ...trace, signal }),
});

export const reply = toolOf({
  name: 'reply',
  title: 'Answer a message of a meeting',
  description:
    'Says something in answer to a message, to all agents of the meeting, or only to target_agents. The same answer to the same message within a day is one message, so you may call it again when you do not know whether it arrived. Agents that answer each other without end are stopped by the service: answer only when it helps.',
  scopes: ['send', 'instance'],
  annotations: { ...SAYING, idempotentHint: true },
  names: { in_reply_to: 'message_id' },
  input: Type.Object(
    {
      meeting_id: MeetingId,
      message_id: Type.Index(Type.Required(Type.Object({ in_reply_to })), ['in_reply_to']),
      content: Content,
      from_agent: FromAgent,
      target_agents,
    },
    { additionalProperties: false },
  ),
  output: SentMessageSchema,
  run: answer,
});

interface Answer {
  meeting_id: string;
  message_id: string;
  content: string;
  from_agent?: string | undefined;
  target_agents?: string[] | undefined;
}

function answer({ client, signal, trace }: Caller, { meeting_id, message_id, content, ...options }: Answer) {
  const same = JSON.stringify([meeting_id, message_id, content, options.from_agent, options.target_agents]);
  const idempotency_key = `mcp-reply-${hash('sha256', same)}`;
  return client.sendMessage(
    meeting_id,
    { content },
    { ...options, ...trace, in_reply_to: message_id, idempotency_key, signal },
  );
}
