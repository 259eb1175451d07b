import type { FastifyReply } from 'fastify';
import { assertMeeting } from '../../domain/access.ts';
import type { MessageStore } from '../../store/contract/messages.ts';
import { meetingNotFound } from './meetings.ts';
import { responses } from '../responses.ts';
import { messageText } from '../wire.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { MeetingParams } from '../schemas/meetings.ts';
import { ListMessagesQuery, MessagePageSchema } from '../schemas/messages.ts';

/** A page of the history ends early when its messages have this many characters. */
const PAGE_CHARS_MAX = 8 << 20;

export interface MessageContext {
  store: { messages: Pick<MessageStore, 'list'> };
}

export function messageRoutes(app: App, context: MessageContext): void {
  app.get('/api/v1/meetings/:meeting_id/messages/', LIST_MESSAGES, (request, reply) =>
    listMessages(context, request, reply),
  );
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
