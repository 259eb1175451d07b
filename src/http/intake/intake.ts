/**
 * The checks that every request must pass, whatever its route. They are strict where leniency would help only an
 * attacker.
 */
import Type from 'typebox';
import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import type { Clock } from '../../delivery/clock.ts';
import { INVITE_PATH } from '../../domain/invite.ts';
import { Problem } from '../../domain/problem.ts';
import { collectMethods } from './allowed_methods.ts';
import type { Connections } from './connections.ts';
import { assertMayHaveBody, assertPlainHead, assertPlainQuery } from './framing.ts';
import { letGoOfBody } from './let_go_of_body.ts';
import { parseJsonBody } from '../../domain/request_body.ts';
import type { Pages } from '../pages.ts';
import type { App } from '../context.ts';
import { BodyBudget } from './body.ts';
import { BodyReader } from './body_reader.ts';
import { type LargeResponses, limitSlowReaders } from './slow_readers.ts';

/** How many bytes of a body are read for a route that takes no body: enough to see that it is empty or `{}`. */
const NO_BODY_BYTES_MAX = 1024;

const NoQuery = Type.Object({}, { additionalProperties: false });

/** Puts the checks before every route that is added later. */
export function addIntake(
  app: App,
  connections: Connections,
  large_responses: LargeResponses,
  { max_request_bytes_in_flight, clock }: { max_request_bytes_in_flight: number; clock: Clock },
): void {
  const bodies = new BodyReader(new BodyBudget(max_request_bytes_in_flight), clock);
  app.addHook('preClose', async () => connections.closeUnused());
  app.addHook('onRoute', refuseWhatIsNotTaken);
  app.addHook('onRequest', (request, _reply, done) => {
    try {
      if (connections.exchangeOf(request.raw) === null) throw connectionCloses();
      assertPlainHead(request.raw);
      done();
    } catch (error) {
      done(error as Error);
    }
  });
  app.addHook('onSend', limitSlowReaders(large_responses));
  app.addHook('onSend', (request, reply, _payload, done) => {
    // The response may wait long behind an earlier one on its connection, such as that of a pull.
    letGoOfBody(request);
    void reply.header('x-content-type-options', 'nosniff');
    // No response of the API may be cached: some responses contain secrets, and any response may change at any moment.
    if (isOfApi(request.url) && !reply.hasHeader('cache-control')) void reply.header('cache-control', 'no-store');
    if (connections.closesAfter(request.raw)) void reply.header('connection', 'close');
    done();
  });

  app.decorateRequest('json', null);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', (request, _payload, done) => {
    const exchange = connections.exchangeOf(request.raw);
    if (exchange === null) return done(connectionCloses());
    bodies.read(exchange, request.routeOptions.bodyLimit, (problem, bytes) => {
      try {
        if (problem !== null) throw problem;
        if (bytes === undefined || bytes.length === 0) return done(null, undefined);
        request.json = parseJsonBody(bytes, request.routeOptions.config.checks_items);
        return done(null, request.json.value);
      } catch (error) {
        return done(error as Error);
      }
    });
  });
}

/**
 * Responds to requests without a route with a page or a 404, and does not wait for their bodies. Call it after the
 * hooks that decide who may make requests. Call it before the routes are added, because it collects the methods of the
 * routes.
 */
export function addUnknownRoutes(app: App, pages: Pages): void {
  const methodsAt = collectMethods(app);
  app.addHook('onRequest', (request, reply, done) => {
    try {
      const is_page = request.is404 && pages.isFor(request);
      if (!is_page) assertPlainQuery(request.raw);
      if (request.is404 && !is_page) throw routeNotFound(request, reply, methodsAt);
      assertMayHaveBody(request.raw);
      if (!request.is404) return done();
      const otherwise = (answered: boolean): void => {
        if (!answered) done(routeNotFound(request, reply, methodsAt));
      };
      pages.answer(request, reply).then(otherwise, done);
    } catch (error) {
      done(error as Error);
    }
  });
  // Requests for files of /docs/ that do not exist end here.
  app.setNotFoundHandler((request, reply) => {
    throw routeNotFound(request, reply, methodsAt);
  });
}

/**
 * Refuses a query or a body that the route does not take. Otherwise the service would ignore it in silence: a send with
 * `?target_agents=a` in its URL would go to all agents.
 */
function refuseWhatIsNotTaken(route: RouteOptions): void {
  if (!isOfApi(route.url)) return;
  const schema = (route.schema ??= {});
  schema.querystring ??= NoQuery;
  if (schema.body !== undefined) return;
  route.bodyLimit = NO_BODY_BYTES_MAX;
  route.preValidation = [route.preValidation ?? [], assertNoBody].flat();
}

/** Links of invites are outside of /api/, because people open them in a browser. */
function isOfApi(url: string): boolean {
  return url.startsWith('/api/') || url.startsWith(INVITE_PATH);
}

async function assertNoBody({ body }: FastifyRequest): Promise<void> {
  if (body === undefined || JSON.stringify(body) === '{}') return;
  throw new Problem('malformed_request', 'This route takes no body: leave it out, or send {}.');
}

function routeNotFound(request: FastifyRequest, reply: FastifyReply, methodsAt: (path: string) => string[]): Problem {
  const asked = request.url.split('?')[0] as string;
  const methods = methodsAt(asked);
  // Hides the rest of the path, which is a secret: problems are shown and logged.
  const path = asked.startsWith(INVITE_PATH) ? `${INVITE_PATH}…` : asked;
  if (methods.length === 0 || methods.includes(request.method)) {
    return new Problem('route_does_not_exist', `There is no ${request.method} ${path}; see /docs/.`);
  }
  void reply.header('allow', methods.join(', '));
  return new Problem('method_not_allowed', `${path} takes ${methods.join(', ')}, and not ${request.method}.`);
}

function connectionCloses(): Problem {
  return new Problem('malformed_request', 'The connection is closed after an earlier answer.');
}
