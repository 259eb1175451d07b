import type { FastifyReply, FastifyRequest } from 'fastify';
import { SCOPES } from '../../domain/api_key.ts';
import { Problem, type ProblemCode } from '../../domain/problem.ts';
import { assertStanding } from '../auth/standing.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { insideFetch } from '../inside_fetch.ts';
import { loadedOnce } from '../loaded_once.ts';
import { isWritten, onClosed } from '../on_closed.ts';
import { StreamRoom } from '../stream_room.ts';
import { bodyBytesOf, letGoOfBody } from '../intake/let_go_of_body.ts';
import { LIST_BODY_BYTES_MAX } from '../schemas/fields.ts';
import { McpMessageBody } from '../schemas/mcp.ts';

/**
 * The largest number of waiting requests of one key. Each has a connection of its own, so one key could otherwise hold
 * all connections.
 */
const OF_KEY_MAX = 256;
/**
 * The largest body of a call that sends no message. Such a call may wait long for its response, and its body does not
 * count against the budget for bodies meanwhile.
 */
const SMALL_BODY_BYTES = 16_384;
/** The tools that send a message. Their calls do not wait, so the body of such a call may count against the budget. */
const SENDING_TOOLS: readonly unknown[] = ['send_message', 'reply'];
const RETRY_AFTER_S = 1;

/** A message of a client, with the parts that its answer needs. */
export interface McpCall {
  body: Record<string, unknown>;
  /** The headers that the protocol reads. */
  headers: Record<string, string>;
  /** Calls the routes of this process on behalf of the client. */
  fetch: typeof fetch;
  /** Aborted when the client is gone. */
  signal: AbortSignal;
  /** Calls back once: when the response was written, or when its connection broke first. */
  onAnswered: (callback: (was_written: boolean) => void) => void;
  /** Resolves when the client takes more of a stream, or is gone. */
  hasRoom: () => Promise<void>;
}

/** Answers messages of the Model Context Protocol. */
export interface McpEndpoint {
  answer(call: McpCall): Promise<Response>;
}

export interface McpContext {
  max_message_bytes: number;
  /** Loaded when it is first needed: the library takes memory that a service without MCP does not need. */
  mcp: () => Promise<McpEndpoint>;
}

export function mcpRoutes(app: App, context: McpContext): void {
  const endpoint = loadedOnce(context.mcp);
  const in_progress = new Map<string, number>();
  const room = new StreamRoom();
  const bodyLimit = context.max_message_bytes + LIST_BODY_BYTES_MAX;
  app.post('/mcp', { ...MCP, bodyLimit }, async (request, reply) => {
    countOfKey(in_progress, request, reply);
    return answer({ app, room, endpoint: await endpoint() }, request, reply);
  });
}

/**
 * Counts a request of a key until its response is written or its connection is gone.
 *
 * @throws Problem `overloaded` when the key has too many in progress
 */
function countOfKey(in_progress: Map<string, number>, { principal }: FastifyRequest, reply: FastifyReply): void {
  const key = principal.key_id ?? '';
  const count = in_progress.get(key) ?? 0;
  if (count >= OF_KEY_MAX) throw tooManyOfKey();
  in_progress.set(key, count + 1);
  onClosed(reply.raw, () => {
    const left = (in_progress.get(key) ?? 1) - 1;
    if (left === 0) in_progress.delete(key);
    else in_progress.set(key, left);
  });
}

const MCP = {
  // No audit entry: each request that a tool makes to a route of the API writes the entry of that route.
  config: { access: [...SCOPES], audit: 'none' },
  schema: { hide: true, body: McpMessageBody },
} satisfies RouteShape;

/** The only method whose response is a stream. */
const STREAM = 'events/stream';
const STREAM_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-store',
  // Otherwise nginx would buffer the stream.
  'x-accel-buffering': 'no',
  'x-content-type-options': 'nosniff',
  connection: 'close',
};

interface AnswerContext {
  app: App;
  room: StreamRoom;
  endpoint: McpEndpoint;
}

async function answer({ app, room, endpoint }: AnswerContext, request: RequestFor<typeof MCP>, reply: FastifyReply) {
  assertOwnOrigin(request);
  if (request.signed_in !== null)
    throw new Problem('api_key_missing', 'A session is for pages: to speak MCP, send a key.');
  const gone = new AbortController();
  const callbacks: ((was_written: boolean) => void)[] = [];
  const wasWritten = (): boolean => isWritten(reply.raw) && reply.raw.statusCode === 200;
  onClosed(reply.raw, () => {
    gone.abort(new Error('the client is gone'));
    for (const callback of callbacks) callback(wasWritten());
  });
  const { body } = request;
  if (!sendsMessage(body)) {
    if (bodyBytesOf(request) > SMALL_BODY_BYTES) throw tooLarge();
    letGoOfBody(request);
  }
  const hasRoom = (): Promise<void> => room.wait(request.principal.key_id ?? '', reply.raw);
  const inside = insideFetch(app, request);
  let refused: Problem | null = null;
  const answered = await endpoint.answer({
    body,
    headers: headersFor(request),
    async fetch(input, init) {
      const response = await inside(input, init);
      // Another node may know that the key has ended before this node knows it.
      if (response.status === 401)
        refused = new Problem(((await response.clone().json()) as { code: ProblemCode }).code);
      // A wait made room for another connection. This connection closes soon, so the tool must not wait again.
      else if (response.status === 503 && app.connections.exchangeOf(request.raw) === null) {
        refused = noRoom();
        gone.abort(refused);
      }
      return response;
    },
    signal: gone.signal,
    onAnswered: (callback) => void (gone.signal.aborted ? callback(wasWritten()) : callbacks.push(callback)),
    hasRoom,
  });
  const content_type = answered.headers.get('content-type');
  if (body['method'] === STREAM && answered.body !== null && content_type?.startsWith('text/event-stream')) {
    return streamTo(answered.body, reply, hasRoom);
  }
  const text = await answered.text();
  // When the key of a request has ended, its client must not read the result, even if the request succeeded.
  assertStanding(request.standing);
  if (refused !== null) throw refused as Problem;
  if (content_type !== null) void reply.type(content_type);
  return reply
    .code(answered.status)
    .header('cache-control', 'no-store')
    .serializer((text: string) => text)
    .send(text);
}

function sendsMessage({ method, params }: Record<string, unknown>): boolean {
  return method === 'tools/call' && SENDING_TOOLS.includes((params as { name?: unknown } | undefined)?.name);
}

function tooLarge(): Problem {
  return new Problem(
    'body_too_large',
    `The body has more than ${SMALL_BODY_BYTES} bytes. Only a call of ${SENDING_TOOLS.join(' or ')} may have more.`,
  );
}

/** Writes a stream as it arrives. The maker of the stream checks the rights of the client: see mcp/events/stream.ts. */
async function streamTo(
  body: ReadableStream<Uint8Array>,
  reply: FastifyReply,
  hasRoom: () => Promise<void>,
): Promise<void> {
  const { raw } = reply;
  reply.hijack();
  raw.writeHead(200, STREAM_HEADERS);
  try {
    for await (const chunk of body) {
      raw.write(chunk);
      await hasRoom();
      if (raw.destroyed) return;
    }
    raw.end();
  } catch {
    // The client has got only whole frames, so it can continue with its cursor.
    raw.destroy();
  }
}

/**
 * Refuses pages of other origins. The protocol demands that of every server, because a page could otherwise reach a
 * server on the machine of its reader (DNS rebinding).
 *
 * @throws Problem `origin_not_allowed`
 */
function assertOwnOrigin({ headers: { origin, host } }: FastifyRequest): void {
  if (origin === undefined) return;
  const own = URL.canParse(origin) ? new URL(origin).host : null;
  if (own !== null && own === host?.toLowerCase()) return;
  throw new Problem(
    'origin_not_allowed',
    'Only a page of this service itself may speak MCP with it; a program sends no Origin header.',
  );
}

/** The headers `content-type` and `accept`, and those that the protocol itself defines. */
function headersFor({ headers }: FastifyRequest): Record<string, string> {
  const read = Object.entries(headers).filter(([name]) => /^(content-type|accept|mcp-.*)$/.test(name));
  return Object.fromEntries(read) as Record<string, string>;
}

function noRoom(): Problem {
  return new Problem('overloaded', 'All connections were needed. Call the tool again.', {
    retry_after_s: RETRY_AFTER_S,
  });
}

function tooManyOfKey(): Problem {
  return new Problem(
    'overloaded',
    `More than ${OF_KEY_MAX} MCP requests of this key wait for their responses. Try again when one has its response.`,
    { retry_after_s: RETRY_AFTER_S },
  );
}
