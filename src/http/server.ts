import Fastify, { type FastifyError, type FastifyReply, type FastifyRequest } from 'fastify';
import type { IncomingHttpHeaders } from 'node:http';
import { Problem } from '../domain/problem.ts';
import { accessOf, assertAudited, guard } from './auth/access.ts';
import { Connections } from './intake/connections.ts';
import { addCors } from './intake/cors.ts';
import { addIntake, addUnknownRoutes } from './intake/intake.ts';
import { Pages } from './pages.ts';
import type { App, HttpContext } from './context.ts';
import { problemOf, sendProblem } from './problems.ts';
import { ANSWER_BYTES_IN_FLIGHT_MAX, LargeResponses } from './intake/slow_readers.ts';
import { LateResponses } from './late_responses.ts';
import { addStalls } from './intake/stalls.ts';
import { validatorCompiler } from './intake/validate.ts';

/** The largest body of a route without a limit of its own: room for a few ids with every character escaped. */
const BODY_BYTES_MAX = 16_384;
/** Room for a percent-encoded id of 200 characters of four bytes each. */
const PARAM_CHARS_MAX = 200 * 4 * 3;
/**
 * Node cuts off a slow request: after 5 s without all of its headers, after 30 s without all of its body. It looks for
 * such requests every CONNECTIONS_CHECK_MS. Without this setting it would look only every 30 s.
 */
const HEADERS_TIMEOUT_MS = 5_000;
const REQUEST_TIMEOUT_MS = 30_000;
const CONNECTIONS_CHECK_MS = 500;
/**
 * How long a connection without a request stays open. Proxies keep an idle connection for 60 s. The proxy must close it
 * first: otherwise it may send a request on a connection that this service has just closed.
 */
const KEEP_ALIVE_MS = 72_000;
/** Node closes a connection when no byte moves on it for this long while its response is made or written. */
const STALLED_MS = 60_000;

/**
 * localhost, 127.0.0.0/8 and [::1], with or without a port. Names below localhost, such as `a.localhost`, are refused.
 * A browser limits its connections only for each name, so a page with many names could open any number of connections.
 */
const LOOPBACK_HOST = /^(localhost|127(\.\d{1,3}){3}|\[::1\])\.?(:\d{1,5})?$/i;

/**
 * The loopback names again, as an origin (RFC 6454). Without this check, a page of another site could make changes that
 * need no body.
 */
const LOOPBACK_ORIGIN = /^https?:\/\/(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i;

/**
 * Without these, Fastify would load its own compilers (3 MiB of memory). Fastify's types allow only Fastify's own
 * compilers, so `as never` is needed.
 */
const COMPILERS = {
  buildValidator: () => validatorCompiler as never,
  buildSerializer: () => () => (body: unknown) => JSON.stringify(body),
};

/**
 * The HTTP server with every route: it translates between the wire and the words of the domain, and decides nothing.
 *
 * @param addRoutes adds the routes
 * @param collect gets the server before its routes are added, to see each of them
 */
export async function createServer(
  context: HttpContext,
  addRoutes: (app: App) => void,
  collect: (app: App) => Promise<void> = async () => {},
): Promise<App> {
  const connections = new Connections(context.max_connections, context.clock);
  const pages = context.pages ?? new Pages();
  const large_responses = new LargeResponses(ANSWER_BYTES_IN_FLIGHT_MAX);
  const app: App = Fastify({
    // Fastify's own log makes a logger and listeners for each request and reports little. Errors are logged below, and
    // the command that starts the service prints its address.
    logger: false,
    bodyLimit: BODY_BYTES_MAX,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionTimeout: STALLED_MS,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      // The intake refuses a request without a Host header with a problem; Node would send only a status.
      requireHostHeader: false,
    },
    schemaController: { compilersFactory: COMPILERS },
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: PARAM_CHARS_MAX },
    // Errors before a route is found, such as a malformed path or a parameter that is too long.
    frameworkErrors: (error, request, reply) => void answerUnrouted(pages, error, request, reply),
    clientErrorHandler: (error, socket) => connections.refuse(error, socket),
    forceCloseConnections: 'idle',
    // During a stop, late requests get a response like all others.
    return503OnClosing: false,
  });
  app.setErrorHandler((error, request, reply) => answerError(error as FastifyError, request, reply, context));
  app.decorateRequest('principal', null as never);
  app.decorateRequest('standing', null);
  app.decorateRequest('signed_in', null);
  app.decorate('connections', connections);
  app.decorate('route_table', []);
  app.decorate('late_responses', new LateResponses(connections, large_responses));
  connections.watch(app.server);
  addIntake(app, connections, large_responses, context);
  addCors(app, context.cors_origins ?? []);
  if (context.stall !== undefined) addStalls(app, context.stall);
  app.addHook('onRequest', (request, _reply, done) => {
    try {
      if (context.keyring.is_open) assertLocalCaller(request);
      done();
    } catch (error) {
      done(error as Error);
    }
  });
  addUnknownRoutes(app, pages);

  app.addHook('onRoute', (route) => {
    assertAudited(route);
    app.route_table.push({ methods: [route.method].flat(), url: route.url, access: accessOf(route) });
    guard(route, () => context);
  });

  await collect(app);
  await app.register(async (routes) => addRoutes(routes as unknown as App));
  return app;
}

/**
 * While no key exists, refuses requests from pages of other origins. It also refuses requests to any name that is not a
 * loopback name: the site of an attacker can let its own name resolve to this machine (DNS rebinding).
 *
 * Once a key exists, this check is not needed, because a browser adds no key by itself. And before a page of another
 * origin sends a key, the browser asks this service for permission (CORS).
 */
function assertLocalCaller({ url, headers }: FastifyRequest): void {
  const { host, origin } = headers;
  if (!LOOPBACK_HOST.test(host ?? '')) throw new Problem('host_not_allowed');
  const is_refused = origin === undefined ? isOfForeignPage(url, headers) : !LOOPBACK_ORIGIN.test(origin);
  if (is_refused) throw new Problem('origin_not_allowed');
}

/**
 * Whether a page of another site makes the request, for an image, a script or a frame. Such a request has no Origin,
 * but the browser names the site (Fetch Metadata). If the request succeeded, that page could learn which ids exist. A
 * person who follows a link to a page of this service is let through.
 */
function isOfForeignPage(url: string, headers: IncomingHttpHeaders): boolean {
  const site = headers['sec-fetch-site'] ?? 'none';
  if (site === 'none' || site === 'same-origin') return false;
  const is_link = headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
  return !is_link || url.startsWith('/api/');
}

/** For a browser the page says that there is nothing at the address; a program gets the problem. */
async function answerUnrouted(
  pages: Pages,
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const is_answered = pages.isFor(request) && (await pages.answer(request, reply).catch(() => false));
  if (!is_answered) sendProblem(reply, problemOf(error));
}

function answerError(
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
  { audit_trail, log }: HttpContext,
): FastifyReply {
  const problem = problemOf(error);
  if (problem.code === 'internal_error') log.error({ err: error, request_id: request.id }, 'request failed');
  if (problem.code === 'storage_unavailable') log.error({ err: error, request_id: request.id }, 'storage failed');
  audit_trail.refused(request, problem);
  return sendProblem(reply, problem);
}
