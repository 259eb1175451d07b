import type { FastifyReply } from 'fastify';
import { hash } from 'node:crypto';
import type { Engine } from '../../delivery/engine.ts';
import { assertMaySpeak, assertMeeting, type Principal, speakerScope } from '../../domain/access.ts';
import { assertAddressable, uniqueIds } from '../../domain/id.ts';
import { timestampOf } from '../../domain/push_body.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import type { MessageStore, NewSaid } from '../../store/contract/messages.ts';
import { meetingNotFound } from './meetings.ts';
import { responses } from '../responses.ts';
import { messageText, wireSent } from '../wire.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { LIST_BODY_BYTES_MAX } from '../schemas/fields.ts';
import { MeetingParams } from '../schemas/meetings.ts';
import {
  ListMessagesQuery,
  MessagePageSchema,
  SendHeaders,
  SendMessageBody,
  SentHeaders,
  SentMessageSchema,
} from '../schemas/messages.ts';

/** A page of the history ends early when its messages have this many characters. */
const PAGE_CHARS_MAX = 8 << 20;

export interface MessageContext {
  store: { messages: Pick<MessageStore, 'list'> };
  engine: Pick<Engine, 'send'>;
  max_message_bytes: number;
}

export function messageRoutes(app: App, context: MessageContext): void {
  const bodyLimit = context.max_message_bytes + LIST_BODY_BYTES_MAX;
  app.post('/api/v1/meetings/:meeting_id/messages/', { ...SEND_MESSAGE, bodyLimit }, (request, reply) =>
    sendMessage(context, request, reply),
  );
  app.get('/api/v1/meetings/:meeting_id/messages/', LIST_MESSAGES, (request, reply) =>
    listMessages(context, request, reply),
  );
}

const SEND_MESSAGE = {
  // No audit entry: there are too many messages, and the history has every one.
  config: { access: ['send', 'instance'], limited: 'send', audit: 'none' },
  schema: {
    operationId: 'sendMessage',
    tags: ['messages'],
    summary: 'Send a message in a meeting',
    description:
      'The message and its deliveries are on disk before the response is sent. It is pushed to every instance in the meeting with an agent to notify: all agents, or the targeted ones. A key with the scope `instance` and without `send` must give from_agent, an agent of an instance of its own that is in the meeting.',
    params: MeetingParams,
    headers: SendHeaders,
    body: SendMessageBody,
    response: responses({
      201: ['Accepted.', SentMessageSchema, SentHeaders],
      codes: ['idempotency_key_reused', 'shutting_down'],
    }),
  },
} satisfies RouteShape;

async function sendMessage(
  { engine, max_message_bytes }: MessageContext,
  { params: { meeting_id }, body, json, headers, principal }: RequestFor<typeof SEND_MESSAGE>,
  reply: FastifyReply,
) {
  assertAddressable('meeting_id', meeting_id);
  assertMeeting(principal, meeting_id);
  assertMaySpeak(principal, body.from_agent);
  const message = json?.textOf('message');
  if (message === null || message === undefined) throw invalidField('message', 'is required');
  const message_bytes = Buffer.byteLength(message);
  if (message_bytes > max_message_bytes) {
    throw new Problem(
      'body_too_large',
      `The message has ${message_bytes} bytes; at most ${max_message_bytes} are taken (CONVOKE_MAX_MESSAGE_BYTES).`,
    );
  }
  const target_agents = body.target_agents === undefined ? null : uniqueIds(body.target_agents);
  const key = headers['idempotency-key'];
  const sent = await engine.send({
    meeting_id,
    message,
    timestamp: timestampOf(body.message, message),
    target_agents,
    said: saidBy(principal, body),
    expires_in_ms: body.expires_in_s === undefined ? null : body.expires_in_s * 1000,
    idempotency:
      key === undefined
        ? null
        : { key, sender: principal.key_id ?? '', fingerprint: fingerprintOf(message, target_agents, body) },
  });
  if (sent.repeated) void reply.header('idempotency-replayed', 'true');
  return reply.code(201).send(wireSent(sent.message));
}

const LIST_MESSAGES = {
  config: { access: ['read'] },
  schema: {
    operationId: 'listMessages',
    tags: ['messages'],
    summary: 'The messages of a meeting, in the order in which they were sent',
    description: 'The latest ones, or those after or before a seq. A page may end early when its messages are large.',
    params: MeetingParams,
    querystring: ListMessagesQuery,
    response: responses({
      200: ['A page of messages.', MessagePageSchema],
      codes: ['meeting_does_not_exist'],
    }),
  },
} satisfies RouteShape;

async function listMessages(
  { store }: MessageContext,
  { params: { meeting_id }, query, principal }: RequestFor<typeof LIST_MESSAGES>,
  reply: FastifyReply,
) {
  assertMeeting(principal, meeting_id);
  const page = await store.messages.list(meeting_id, {
    ...query,
    limit: query.limit ?? 50,
    chars_max: PAGE_CHARS_MAX,
  });
  if (page === null) throw meetingNotFound(meeting_id);
  void reply.type('application/json');
  return reply
    .serializer((text: string) => text)
    .send(`{"data":[${page.data.map(messageText).join(',')}],"has_more":${page.has_more}}` as never);
}

type SendInput = RequestFor<typeof SEND_MESSAGE>['body'];

function saidBy(principal: Principal, { from_agent, in_reply_to }: SendInput): NewSaid | null {
  if (from_agent === undefined && in_reply_to === undefined) return null;
  return { from_agent: from_agent ?? null, in_reply_to: in_reply_to ?? null, speaks_for: speakerScope(principal) };
}

/**
 * Two sends are the same when they have the same fingerprint. It covers the text of the message, its targets, and the
 * fields that are not in the specification. Without these fields it equals the fingerprint of the previous version.
 */
function fingerprintOf(message: string, target_agents: string[] | null, body: SendInput): string {
  const { from_agent, in_reply_to, expires_in_s } = body;
  const has_more = from_agent !== undefined || in_reply_to !== undefined || expires_in_s !== undefined;
  const more = has_more ? `\n${JSON.stringify([from_agent, in_reply_to, expires_in_s])}` : '';
  return hash('sha256', `${message}\n${JSON.stringify(target_agents)}${more}`, 'base64');
}
