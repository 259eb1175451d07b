import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import Fastify, {
  LogController,
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { PROBLEMS, Problem, type ProblemCode } from '../domain/problem.ts';
import { StoreError } from '../store/store.ts';
import { VERSION } from '../version.ts';
import { deliveryRoutes } from './deliveries.ts';
import { encryptionRoutes } from './encryption.ts';
import { instanceRoutes } from './instances.ts';
import { parseJsonBody } from './json_body.ts';
import { meetingRoutes } from './meetings.ts';
import { messageRoutes } from './messages.ts';
import type { App, HttpParts } from './parts.ts';
import { serviceRoutes } from './service.ts';
import { validatorCompiler } from './validate.ts';

/** Bodies of everything but messages: the largest is a list of 1,000 agent ids. */
const BODY_BYTES_MAX = 2 << 20;
/** A percent-encoded id of 200 characters of four bytes each. */
const PARAM_CHARS_MAX = 200 * 4 * 3;
/** A slow request is cut off: its headers after 5 s, all of it after 30 s. Without the interval nobody looks. */
const HEADERS_TIMEOUT_MS = 5_000;
const REQUEST_TIMEOUT_MS = 30_000;
const CONNECTIONS_CHECK_MS = 500;

/** localhost, *.localhost, 127.0.0.0/8 and [::1], with or without a port. */
const LOOPBACK_HOST = /^(([a-z0-9-]+\.)*localhost|127(\.\d{1,3}){3}|\[::1\])\.?(:\d{1,5})?$/i;

/** The page of the documents may load what this service serves, and nothing from any other host. */
const DOCS_CSP =
  "default-src 'self'; base-uri 'self'; frame-ancestors 'self'; img-src 'self' data:; font-src 'self' data:; object-src 'none'; script-src 'self'; script-src-attr 'none'; style-src 'self'";

/** The same as an origin (RFC 6454). A page elsewhere could otherwise make changes that need no body. */
const LOOPBACK_ORIGIN = /^https?:\/\/(([a-z0-9-]+\.)*localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i;

const PROBLEM_JSON = 'application/problem+json';

/** The HTTP server with every route: it translates between the wire and the words of the domain, and decides nothing. */
export async function createServer(parts: HttpParts): Promise<App> {
  const app: App = Fastify({
    ...(parts.log === undefined ? {} : { loggerInstance: warningsOf(parts.log) }),
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: BODY_BYTES_MAX,
    requestTimeout: REQUEST_TIMEOUT_MS,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      // Refused below, with a problem: Node would answer nothing but a status.
      requireHostHeader: false,
    },
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: PARAM_CHARS_MAX },
    // Errors before a route is found: a path that is no path, too long a parameter.
    frameworkErrors: (error, _, reply) => void sendProblem(reply, problemOf(error)),
    clientErrorHandler,
    forceCloseConnections: 'idle',
    // While stopping, what still comes is answered like everything else; sending is refused by the engine.
    return503OnClosing: false,
  });
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(() => (body) => JSON.stringify(body));
  app.setErrorHandler((error, request, reply) => answerError(error as FastifyError, request, reply));
  app.setNotFoundHandler((request, reply) =>
    sendProblem(
      reply,
      new Problem('route_does_not_exist', `There is no ${request.method} ${request.url.split('?')[0]}; see /docs/.`),
    ),
  );
  app.decorateRequest('json', null);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, bytes, done) => {
    try {
      if (bytes.length === 0) return done(null, undefined);
      request.json = parseJsonBody(bytes as Buffer);
      return done(null, request.json.value);
    } catch (error) {
      return done(error as Error);
    }
  });
  app.addHook('onRequest', (request, _reply, done) => {
    try {
      assertPlainTarget(request.raw);
      if (parts.loopback_only) assertLocalCaller(request.headers);
      assertPlainBody(request.headers);
      done();
    } catch (error) {
      done(error as Error);
    }
  });

  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Convoke',
        version: VERSION,
        description:
          'Pushes every message of a meeting, in order and signed, to the machines whose agents take part in it.',
        license: { name: 'MIT' },
      },
      // Relative: requests tried on the page go to where the page came from.
      servers: [{ url: '/' }],
      tags: [
        { name: 'instances', description: 'Machines that run agents.' },
        { name: 'meetings', description: 'Who takes part in what.' },
        { name: 'messages', description: 'What is said.' },
        { name: 'deliveries', description: 'What became of it.' },
        { name: 'service', description: 'For those who watch the service.' },
      ],
    },
  });
  await app.register(swaggerUi, {
    routePrefix: '/docs',
    theme: {
      title: 'Convoke: the API',
      css: [{ filename: 'convoke.css', content: '#swagger-ui .topbar { display: none; }' }],
    },
    staticCSP: DOCS_CSP,
    uiConfig: { tryItOutEnabled: true, deepLinking: true },
  });
  await app.register(async (routes) => {
    const typed = routes as unknown as App;
    instanceRoutes(typed, parts);
    meetingRoutes(typed, parts);
    messageRoutes(typed, parts);
    deliveryRoutes(typed, parts);
    encryptionRoutes(typed, parts);
    serviceRoutes(typed, parts);
    typed.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger());
  });
  return app;
}

/** One Host and a path (RFC 9112, section 3.2): what a proxy in between would read otherwise than we do is refused. */
function assertPlainTarget({ url = '', rawHeaders }: IncomingMessage): void {
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++;
  }
  if (hosts !== 1) throw new Problem('malformed_request', `There are ${hosts} Host headers; send one.`);
  if (!url.startsWith('/'))
    throw new Problem('malformed_request', 'The request target is not a path; send only the path.');
}

/** Fastify tells where it listens; whoever starts the service tells that, and better. */
function warningsOf(log: FastifyBaseLogger): FastifyBaseLogger {
  const is_chatty = ['trace', 'debug', 'info'].includes(log.level);
  return log.child({}, { level: is_chatty ? 'warn' : log.level });
}

/** While the API is open: names that resolve to us (DNS rebinding) and pages of other origins are kept out. */
function assertLocalCaller({ host, origin }: IncomingHttpHeaders): void {
  if (!LOOPBACK_HOST.test(host ?? '')) throw new Problem('host_not_allowed');
  if (origin !== undefined && !LOOPBACK_ORIGIN.test(origin)) throw new Problem('origin_not_allowed');
}

function assertPlainBody({ 'content-encoding': encoding }: IncomingHttpHeaders): void {
  if (encoding === undefined || encoding === 'identity') return;
  throw new Problem(
    'unsupported_media_type',
    `The body is encoded as ${encoding}; send it as it is, without content-encoding.`,
  );
}

function answerError(error: FastifyError, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const problem = problemOf(error);
  if (problem.code === 'internal_error') request.log.error({ err: error, request_id: request.id }, 'request failed');
  if (problem.code === 'storage_unavailable')
    request.log.error({ err: error, request_id: request.id }, 'storage failed');
  return sendProblem(reply, problem);
}

const CODE_OF_FRAMEWORK_ERROR: Record<string, ProblemCode> = {
  FST_ERR_CTP_BODY_TOO_LARGE: 'body_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_CTP_EMPTY_TYPE: 'unsupported_media_type',
};

function problemOf(error: Error & { code?: string; statusCode?: number }): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof StoreError) {
    return new Problem(
      'storage_unavailable',
      `Nothing was stored (${error.code}). Try again after the time in Retry-After.`,
      {
        retry_after_s: 2,
      },
    );
  }
  const code = CODE_OF_FRAMEWORK_ERROR[error.code ?? ''];
  if (code !== undefined) return new Problem(code);
  const status = error.statusCode ?? 500;
  return status < 500 ? new Problem('malformed_request', error.message) : new Problem('internal_error');
}

function bodyOf(problem: Problem) {
  const { code, message: detail, errors } = problem;
  const { status, title } = PROBLEMS[code];
  return {
    type: `urn:convoke:problem:${code}`,
    title,
    status,
    detail,
    code,
    ...(errors === undefined ? {} : { errors }),
  };
}

function sendProblem(reply: FastifyReply, problem: Problem): FastifyReply {
  if (problem.retry_after_s !== undefined) void reply.header('retry-after', String(problem.retry_after_s));
  return reply
    .code(problem.status)
    .type(PROBLEM_JSON)
    .serializer((text: string) => text)
    .send(JSON.stringify(bodyOf(problem)));
}

/** What is not HTTP, or took too long to become it. */
function clientErrorHandler(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const detail =
    error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
      ? 'The request did not arrive in time.'
      : 'The request is not well-formed HTTP.';
  const body = JSON.stringify(bodyOf(new Problem('malformed_request', detail)));
  socket.end(
    `HTTP/1.1 400 Bad Request\r\ncontent-type: ${PROBLEM_JSON}\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}
