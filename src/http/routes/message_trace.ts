import type { FastifyReply } from 'fastify';
import type { Clock } from '../../delivery/clock.ts';
import { maySeeMeeting } from '../../domain/access.ts';
import { Problem } from '../../domain/problem.ts';
import { originFields } from '../../domain/message_origin.ts';
import { isoTime } from '../../domain/time.ts';
import { traceIds } from '../../domain/trace_context.ts';
import type { DeliveryStore } from '../../store/contract/deliveries.ts';
import type { MessageBrief, MessageStore } from '../../store/contract/messages.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { GetMessageQuery, MessageParams, MessageTraceSchema } from '../schemas/message_trace.ts';
import { messageText, wireDelivery } from '../wire.ts';

/** The most messages of the chain that led to a message. */
const ANSWERED_MAX = 50;
/** How many messages are searched for answers at a time. */
const SCANNED_MAX = 200;
/** How many such searches one request makes. */
const SCANS_MAX = 5;

export interface MessageTraceContext {
  store: {
    messages: Pick<MessageStore, 'get' | 'answeredBy' | 'answersTo'>;
    deliveries: Pick<DeliveryStore, 'list'>;
  };
  clock: Clock;
}

export function messageTraceRoutes(app: App, context: MessageTraceContext): void {
  app.get('/api/v1/messages/:message_id/', GET_MESSAGE, (request, reply) => getMessage(context, request, reply));
}

const GET_MESSAGE = {
  config: { access: ['read'] },
  schema: {
    operationId: 'getMessage',
    tags: ['messages'],
    summary: 'One message: the messages that led to it, its answers, and its deliveries',
    description:
      'The messages that led to this one, the nearest first; its answers; and its deliveries, newest first, each with its outcome.',
    params: MessageParams,
    querystring: GetMessageQuery,
    response: responses({
      200: ['The message.', MessageTraceSchema],
      codes: ['message_does_not_exist'],
    }),
  },
} satisfies RouteShape;

async function getMessage(
  { store, clock }: MessageTraceContext,
  { params: { message_id }, query, principal }: RequestFor<typeof GET_MESSAGE>,
  reply: FastifyReply,
) {
  const { limit = 50, answers_after } = query;
  const message = await store.messages.get(message_id);
  // A message of a meeting that the key may not see counts as missing.
  if (message === null || !maySeeMeeting(principal, message.meeting_id)) throw messageNotFound(message_id);
  const { meeting_id, seq, trace } = message;
  const answered = await store.messages.answeredBy(message_id, ANSWERED_MAX);
  const answers = await answersTo(store.messages, message_id, meeting_id, answers_after ?? seq);
  const deliveries = await store.deliveries.list({ message_id, limit }, clock.now(), principal.visibility);
  const rest = JSON.stringify({
    meeting_id,
    ...(trace !== null && { trace_id: traceIds(trace).trace_id }),
    answered: answered.map(wireBrief),
    ...answers,
    deliveries: deliveries.data.map(wireDelivery),
    deliveries_cursor: deliveries.next_cursor,
  });
  void reply.type('application/json');
  return reply
    .serializer((text: string) => text)
    .send(`${messageText(message).slice(0, -1)},${rest.slice(1)}` as never);
}

/**
 * Finds the answers to a message; most answers follow soon after their message. Makes one call after the other, so that
 * the store can do other work meanwhile.
 */
async function answersTo(
  messages: MessageTraceContext['store']['messages'],
  message_id: string,
  meeting_id: string,
  after_seq: number,
) {
  const answers = [];
  let next: number | null = after_seq;
  for (let i = 0; i < SCANS_MAX && next !== null; i++) {
    const found: { data: MessageBrief[]; next_seq: number | null } = await messages.answersTo(
      message_id,
      meeting_id,
      next,
      SCANNED_MAX,
    );
    answers.push(...found.data.map(wireBrief));
    next = found.next_seq;
  }
  return { answers, next_answers_after: next };
}

function wireBrief({ message_id, seq, accepted_at, origin, excerpt }: MessageBrief) {
  return { message_id, seq, accepted_at: isoTime(accepted_at), ...originFields(origin), excerpt };
}

function messageNotFound(message_id: string): Problem {
  return new Problem(
    'message_does_not_exist',
    `There is no message ${JSON.stringify(message_id)}; old ones are removed after a while.`,
  );
}
