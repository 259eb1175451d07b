import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../delivery/clock.ts';
import type { LateReplies } from '../../delivery/replies/late_replies.ts';
import { REPLY_PATH, type ReplyAccess } from '../../delivery/replies/reply_access.ts';
import { REPLY_TOKEN_HEADER } from '../../delivery/transport/push.ts';
import { NOTHING_ALLOWED } from '../../domain/access.ts';
import { Problem } from '../../domain/problem.ts';
import type { ReplyToken } from '../../domain/reply_token.ts';
import { traceOf } from '../../domain/trace_context.ts';
import type { Limits } from '../auth/limits.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { responses } from '../responses.ts';
import { LIST_BODY_BYTES_MAX } from '../schemas/fields.ts';
import { SentHeaders, SentMessageSchema } from '../schemas/sends.ts';
import { ReplyBody, ReplyHeaders } from '../schemas/replies.ts';
import { wireSent } from '../wire.ts';

export interface ReplyContext {
  reply_access: Pick<ReplyAccess, 'read'>;
  late_replies: Pick<LateReplies, 'send'>;
  limits: Limits;
  clock: Clock;
  max_message_bytes: number;
}

export function replyRoutes(app: App, context: ReplyContext): void {
  const bodyLimit = context.max_message_bytes + LIST_BODY_BYTES_MAX;
  // The token is judged before the body is read, and again when the body is there.
  const onRequest = async (request: FastifyRequest): Promise<void> => {
    context.limits.assertWithinRate(['send'], NOTHING_ALLOWED, request);
    await tokenOf(context, request);
  };
  app.post(REPLY_PATH, { ...SEND_REPLY, bodyLimit, onRequest }, (request, reply) => sendReply(context, request, reply));
}

const SEND_REPLY = {
  // No audit entry, because the history has every message. The token of the push takes the place of a key.
  config: { access: 'public', audit: 'none' },
  schema: {
    operationId: 'sendReply',
    tags: ['messages'],
    summary: 'Reply to a message that was pushed, without a key',
    description:
      'For instances with `replies: true`. Every push to them has this address in the header convoke-reply-url, and a token in convoke-reply-token. The reply is sent in the meeting of the push, as an answer to its message.',
    headers: ReplyHeaders,
    body: ReplyBody,
    response: responses({
      201: ['Sent.', SentMessageSchema, SentHeaders],
      codes: [
        'reply_token_not_valid',
        'replies_not_allowed',
        'delivery_does_not_exist',
        'reply_limit_reached',
        'shutting_down',
      ],
    }),
  },
} satisfies RouteShape;

async function sendReply(context: ReplyContext, request: RequestFor<typeof SEND_REPLY>, reply: FastifyReply) {
  const token = await tokenOf(context, request);
  const sent = await context.late_replies.send(token, {
    value: request.body.reply,
    text: request.json?.textOf('reply') ?? '',
    idempotency_key: request.headers['idempotency-key'],
    trace: traceOf(request.headers.traceparent, request.headers.tracestate),
  });
  if (sent.repeated) void reply.header('idempotency-replayed', 'true');
  return reply.code(201).send(wireSent(sent.message));
}

/** @throws Problem `reply_token_not_valid`, and `rate_limited` for an address that has guessed too often */
async function tokenOf({ reply_access, limits, clock }: ReplyContext, request: FastifyRequest): Promise<ReplyToken> {
  const given = request.headers[REPLY_TOKEN_HEADER];
  const token = typeof given === 'string' ? reply_access.read(given, clock.wall()) : null;
  if (token !== null) return token;
  return limits.limitFailures(request, async () => {
    throw new Problem('reply_token_not_valid');
  });
}
