import type { FastifyReply, FastifyRequest } from 'fastify';
import { hash } from 'node:crypto';
import type { Static } from 'typebox';
import type { Send, Sent } from '../../delivery/accept/acceptor.ts';
import type { Engine } from '../../delivery/engine.ts';
import { assertMaySpeak, assertMeeting, type Principal, speakerScope } from '../../domain/access.ts';
import { assertAddressable, uniqueIds } from '../../domain/id.ts';
import type { JsonBody } from '../../domain/request_body.ts';
import { timestampOf } from '../../domain/push_body.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { type TraceContext, traceOf } from '../../domain/trace_context.ts';
import type { NewOrigin } from '../../store/contract/messages.ts';
import type { Limits } from '../auth/limits.ts';
import { assertStanding } from '../auth/standing.ts';
import { validator } from '../intake/validate.ts';
import { problemOf, wireProblem } from '../problems.ts';
import { responses } from '../responses.ts';
import { wireSent } from '../wire.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { LIST_BODY_BYTES_MAX } from '../schemas/fields.ts';
import { MeetingParams } from '../schemas/meetings.ts';
import {
  SendHeaders,
  SendMessageBody,
  SendMessagesBody,
  SendMessagesItem,
  SendManyHeaders,
  type SendResultSchema,
  SentHeaders,
  SentMessageSchema,
  SentMessagesSchema,
  TRACEPARENT_EXPECTED,
} from '../schemas/sends.ts';
import { meetingIdOf } from './meetings.ts';

/** The largest body with many messages. */
const MANY_BYTES_MAX = 4 << 20;

export interface SendContext {
  engine: Pick<Engine, 'send' | 'sendAll'>;
  limits: Pick<Limits, 'assertWithinRate'>;
  max_message_bytes: number;
}

export function sendRoutes(app: App, context: SendContext): void {
  const bodyLimit = context.max_message_bytes + LIST_BODY_BYTES_MAX;
  app.post('/api/v1/meetings/:meeting_id/messages/', { ...SEND_MESSAGE, bodyLimit }, (request, reply) =>
    sendMessage(context, request, reply),
  );
  app.post('/api/v1/messages/', { ...SEND_MESSAGES, bodyLimit: MANY_BYTES_MAX }, (request) =>
    sendMessages(context, request),
  );
}

const LINKS_SAY_NOTHING = 'A portal link sends no message: it takes part in no meeting.';

const SEND_MESSAGE = {
  // No audit entry: there are too many messages, and the history has every message.
  config: { access: ['send', 'instance'], portal_link: LINKS_SAY_NOTHING, limited: 'send', audit: 'none' },
  schema: {
    operationId: 'sendMessage',
    tags: ['messages'],
    summary: 'Send a message in a meeting',
    description:
      'The message and its deliveries are on disk before the response is sent. It is pushed to every instance in the meeting with an agent to notify: all agents, or the targeted ones. A key with the scope `instance` and without `send` must give from_agent. That must be an agent of one of its own instances in the meeting.',
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
  { engine, max_message_bytes }: SendContext,
  { params: { meeting_id }, body, json, headers, principal }: RequestFor<typeof SEND_MESSAGE>,
  reply: FastifyReply,
) {
  const text = json?.textOf('message') ?? null;
  const sent = await engine.send(
    sendOf(
      principal,
      meeting_id,
      { ...body, trace: traceIn(headers), key: headers['idempotency-key'] },
      text,
      max_message_bytes,
    ),
  );
  if (sent.repeated) void reply.header('idempotency-replayed', 'true');
  return reply.code(201).send(wireSent(sent.message));
}

/** @throws Problem for a message that the service refuses */
function sendOf(
  principal: Principal,
  meeting_id: string,
  { trace, key, ...input }: SendInput & { trace: TraceContext | null; key: string | undefined },
  message: string | null,
  max_message_bytes: number,
): Send {
  assertAddressable('meeting_id', meeting_id);
  assertMeeting(principal, meeting_id);
  assertMaySpeak(principal, input.from_agent);
  if (message === null) throw invalidField('message', 'is required');
  const message_bytes = Buffer.byteLength(message);
  if (message_bytes > max_message_bytes) {
    throw new Problem(
      'body_too_large',
      `The message has ${message_bytes} bytes; at most ${max_message_bytes} are taken (CONVOKE_MAX_MESSAGE_BYTES).`,
    );
  }
  const target_agents = input.target_agents === undefined ? null : uniqueIds(input.target_agents);
  return {
    meeting_id,
    message,
    timestamp: timestampOf(input.message, message),
    target_agents,
    origin: originOf(principal, input),
    trace,
    expires_in_ms: input.expires_in_s === undefined ? null : input.expires_in_s * 1000,
    idempotency:
      key === undefined
        ? null
        : { key, sender: principal.key_id ?? '', fingerprint: fingerprintOf(message, target_agents, input) },
  };
}

const SEND_MESSAGES = {
  config: {
    access: ['send', 'instance'],
    portal_link: LINKS_SAY_NOTHING,
    limited: 'send',
    audit: 'none',
    checks_items: true,
  },
  schema: {
    operationId: 'sendMessages',
    tags: ['messages'],
    summary: 'Send many messages, in one meeting or in several',
    description:
      'Each item is judged by itself. A bad item fails alone, and the response has its problem in its place. The messages are stored together, and within a meeting in the order of the list. Each counts as one send against the limits. When the key ends meanwhile, the rest of the list fails. When the storage fails, or the service is overloaded, the rest of the list fails too: send it again with the same idempotency keys. Each message has its own: the header Idempotency-Key is refused here.',
    headers: SendManyHeaders,
    body: SendMessagesBody,
    response: responses({
      200: ['The result for each message, in the order of the list.', SentMessagesSchema],
      codes: ['shutting_down'],
    }),
  },
} satisfies RouteShape;

const validItem = validator(SendMessagesItem);

async function sendMessages(
  { engine, limits, max_message_bytes }: SendContext,
  request: RequestFor<typeof SEND_MESSAGES>,
): Promise<Static<typeof SentMessagesSchema>> {
  const { principal, headers } = request;
  // If it were ignored, a client that repeats the request with its key would send every message twice.
  if ('idempotency-key' in headers)
    throw invalidField('Idempotency-Key', 'is a header for one message: give each message its own idempotency_key');
  const trace = traceIn(headers);
  const sends: Send[] = [];
  let limited: Problem | null = null;
  const refused = (request.json?.items('messages', max_message_bytes + LIST_BODY_BYTES_MAX) ?? []).map(
    (item): Problem | null => {
      try {
        if (limited !== null) return limited;
        const send = sendOfItem(principal, item, trace, max_message_bytes);
        // The guard of the route has already counted one send.
        if (sends.length > 0) limited = exceededLimit(limits, request);
        if (limited === null) sends.push(send);
        return limited;
      } catch (error) {
        if (error instanceof Problem) return error;
        throw error;
      }
    },
  );
  const results = await engine.sendAll(sends, () => assertStanding(request.standing));
  const failed = results.find(
    (result) => result.status === 'rejected' && problemOf(result.reason as Error).status >= 500,
  );
  // When the service failed and stored no message, the status of the whole response says so, because some clients read
  // only the status.
  if (failed?.status === 'rejected' && !results.some(({ status }) => status === 'fulfilled')) throw failed.reason;
  const next = results.values();
  return { results: refused.map((problem) => wireResult(problem ?? (next.next().value as Result))) };
}

type Result = PromiseSettledResult<Sent>;

/** @throws Problem for an item that the service refuses */
function sendOfItem(
  principal: Principal,
  item: JsonBody | Problem,
  trace_of_request: TraceContext | null,
  max_message_bytes: number,
): Send {
  if (item instanceof Problem) throw item;
  const { meeting_id, idempotency_key: key, traceparent, tracestate, ...input } = validItem(item.value);
  const text = item.textOf('message');
  const trace = traceparent === undefined ? trace_of_request : traceOf(traceparent, tracestate);
  if (traceparent !== undefined && trace === null) throw invalidField('traceparent', TRACEPARENT_EXPECTED);
  return sendOf(principal, meetingIdOf(meeting_id, item), { ...input, trace, key }, text, max_message_bytes);
}

function traceIn({ traceparent, tracestate }: Static<typeof SendManyHeaders>): TraceContext | null {
  return traceOf(traceparent, tracestate);
}

/** Counts one more send. Returns the Problem when the limit is used up. */
function exceededLimit(limits: SendContext['limits'], request: FastifyRequest): Problem | null {
  try {
    limits.assertWithinRate(['send'], request.principal, request);
    return null;
  } catch (error) {
    return error as Problem;
  }
}

function wireResult(of: Problem | Result): Static<typeof SendResultSchema> {
  if (!(of instanceof Problem) && of.status === 'fulfilled') {
    const { message, repeated } = of.value;
    return { status: 201, message: wireSent(message), ...(repeated && { replayed: true }) };
  }
  const problem = of instanceof Problem ? of : problemOf(of.reason as Error);
  const { status, retry_after_s } = problem;
  return { status, problem: wireProblem(problem), ...(retry_after_s !== undefined && { retry_after_s }) };
}

type SendInput = Static<typeof SendMessageBody>;

function originOf(principal: Principal, { from_agent, in_reply_to }: SendInput): NewOrigin | null {
  if (from_agent === undefined && in_reply_to === undefined) return null;
  return { from_agent: from_agent ?? null, in_reply_to: in_reply_to ?? null, speaks_for: speakerScope(principal) };
}

/**
 * Two sends are the same when they have the same fingerprint. The fingerprint covers the text of the message, its
 * targets, and the fields that are not in the specification. Without these fields the fingerprint equals that of
 * version 0.1.0. So the service recognizes a send that is repeated after an upgrade.
 */
function fingerprintOf(message: string, target_agents: string[] | null, body: SendInput): string {
  const { from_agent, in_reply_to, expires_in_s } = body;
  const has_more = from_agent !== undefined || in_reply_to !== undefined || expires_in_s !== undefined;
  const more = has_more ? `\n${JSON.stringify([from_agent, in_reply_to, expires_in_s])}` : '';
  return hash('sha256', `${message}\n${JSON.stringify(target_agents)}${more}`, 'base64');
}
