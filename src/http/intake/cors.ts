/**
 * Lets pages of other origins call the API (CORS), for the origins that the operator lists. Without a list, no header
 * of CORS is ever sent, and browsers let no page of another origin read a response.
 *
 * No response permits credentials (`access-control-allow-credentials`), so a browser gives a page of another origin no
 * response to a request with a cookie. Such a page sends its key as a bearer token, as every other client does.
 */
import { Problem } from '../../domain/problem.ts';
import type { App } from '../context.ts';
import { hasBody } from './framing.ts';

/** The only paths that a page of another origin may call. */
const API_PATH = '/api/';

const METHODS = 'GET, POST, PATCH, DELETE';
/**
 * The request headers that the documentation names. The headers of sessions are missing on purpose: a page of another
 * origin uses a key.
 */
const REQUEST_HEADERS =
  'authorization, content-type, convoke-reply-token, idempotency-key, last-event-id, traceparent, tracestate';
/** The headers of responses that clients read. */
const RESPONSE_HEADERS = 'date, idempotency-replayed, retry-after, www-authenticate';
/** How long a browser remembers a permission, in seconds. Chromium caps it at two hours. */
const REMEMBERED_S = 7_200;

/**
 * Adds the CORS headers to responses under `/api/`, and answers preflights. Call it before hooks that do work: a browser
 * sends a preflight before its first request to each URL.
 */
export function addCors(app: App, origins: readonly string[]): void {
  if (origins.length === 0) return;
  const allowed = new Set(origins);
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.url.startsWith(API_PATH)) return done();
    // The header is set on the response itself, because the live feed writes its own head.
    const { raw: response } = reply;
    response.setHeader('vary', 'origin');
    const { origin } = request.headers;
    if (origin === undefined || !allowed.has(origin)) return done();
    response.setHeader('access-control-allow-origin', origin);
    response.setHeader('access-control-expose-headers', RESPONSE_HEADERS);
    if (request.method !== 'OPTIONS' || request.headers['access-control-request-method'] === undefined) return done();
    if (hasBody(request.raw)) return done(new Problem('malformed_request', 'A preflight request has no body.'));
    response.setHeader('access-control-allow-methods', METHODS);
    response.setHeader('access-control-allow-headers', REQUEST_HEADERS);
    response.setHeader('access-control-max-age', String(REMEMBERED_S));
    void reply.code(204).send();
  });
}
