/** Who is signed in, signing in, and signing out. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { EVERYTHING_ALLOWED, type Principal } from '../../domain/access.ts';
import { SCOPES } from '../../domain/api_key.ts';
import { Problem } from '../../domain/problem.ts';
import { sessionIdOf } from '../../domain/session.ts';
import { isoTime, isoTimeOrNull } from '../../domain/time.ts';
import type { Store } from '../../store/store.ts';
import { VERSION } from '../../version.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import type { Keyring } from '../auth/keyring.ts';
import type { Limits } from '../auth/limits.ts';
import type { Sessions, SignedIn } from '../auth/sessions.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { pageOf } from '../schemas/page.ts';
import {
  CookieHeaders,
  ListSessionsQuery,
  OpenSessionSchema,
  SessionHeaders,
  SessionParams,
  SessionSchema,
  UseLinkBody,
} from '../schemas/session.ts';

const COOKIE_IS_SET =
  'The cookie is HttpOnly and SameSite=Strict, and lasts for 12 hours, but no longer than the key. Every request with the cookie must also send csrf_token as the header convoke-csrf. Only this response, and responses to requests with this header, contain csrf_token: the cookie alone gives no access.';

export interface SessionContext {
  store: Pick<Store, 'cluster'>;
  sessions: Sessions;
  limits: Limits;
  keyring: Keyring;
  audit_trail: Pick<AuditTrail, 'authorOf' | 'holderOfLink'>;
  /** The name of this environment; null when it has none. */
  environment: string | null;
}

/** The parts for the routes with which an admin lists and ends the sessions of everybody. */
export type OpenSessionContext = Pick<SessionContext, 'sessions' | 'audit_trail'>;

export function openSessionRoutes(app: App, context: OpenSessionContext): void {
  app.get('/api/v1/sessions/', LIST_SESSIONS, (request) => listSessions(context, request));
  app.delete('/api/v1/sessions/:session_id/', END_SESSION, (request, reply) => endSession(context, request, reply));
}

export function sessionRoutes(app: App, context: SessionContext): void {
  app.get('/api/v1/session/', GET_SESSION, (request, reply) => getSession(context, request, reply));
  app.post('/api/v1/session/', SIGN_IN, (request, reply) => signIn(context, request, reply));
  app.post('/api/v1/session/link/', SIGN_IN_BY_LINK, (request, reply) => signInByLink(context, request, reply));
  app.delete('/api/v1/session/', SIGN_OUT, (request, reply) => signOut(context, request, reply));
  openSessionRoutes(app, context);
}

const GET_SESSION = {
  config: { access: 'public' },
  schema: {
    operationId: 'getSession',
    tags: ['session'],
    summary: 'Who is signed in, and what they may do',
    description:
      'Needs no key: a page uses it to find out whether a key is needed. A session is shown only with its csrf_token in the header convoke-csrf.',
    response: responses({ 200: ['The session, or that there is none.', SessionSchema, SessionHeaders], codes: [] }),
  },
} satisfies RouteShape;

async function getSession(context: SessionContext, request: RequestFor<typeof GET_SESSION>, reply: FastifyReply) {
  void reply.header('cache-control', 'no-store');
  const principal = await principalOf(context, request, reply);
  return wireSession(context, principal, request.signed_in);
}

const SIGN_IN = {
  config: { access: [...SCOPES], audit: { action: 'session.begin', target: 'service' } },
  schema: {
    operationId: 'signIn',
    tags: ['session'],
    summary: 'Exchange a key for a session: a cookie, for pages',
    description: `Give the key as in every other request. ${COOKIE_IS_SET} While the API is open, no session is needed, and none is made.`,
    response: responses({
      201: ['Signed in; the cookie is set.', SessionSchema, CookieHeaders],
      200: ['Nothing was needed.', SessionSchema],
      codes: [],
    }),
  },
} satisfies RouteShape;

async function signIn(context: SessionContext, request: RequestFor<typeof SIGN_IN>, reply: FastifyReply) {
  const { sessions, audit_trail } = context;
  const { principal, signed_in, standing } = request;
  // A session cannot begin another session. Otherwise a client could stay signed in for ever. While the API is open,
  // signing in has no purpose.
  const token = standing?.token ?? null;
  if (token === null) return wireSession(context, principal, signed_in);
  const begun = await sessions.begin(audit_trail.authorOf(request), request, reply, token);
  return reply.code(201).send(wireSession(context, principal, begun));
}

const SIGN_IN_BY_LINK = {
  config: { access: 'public', audit: { action: 'session.begin', target: 'service' } },
  schema: {
    operationId: 'signInByLink',
    tags: ['session'],
    summary: 'Sign in as an admin, with the link that convoke serve printed',
    description: `A link can be used once, within five minutes, and its session ends with the process that printed it. ${COOKIE_IS_SET} While the API is open, no session is needed, and none is made.`,
    body: UseLinkBody,
    response: responses({
      201: ['Signed in; the cookie is set.', SessionSchema, CookieHeaders],
      200: ['Nothing was needed.', SessionSchema],
      codes: ['sign_in_link_not_valid'],
    }),
  },
} satisfies RouteShape;

async function signInByLink(context: SessionContext, request: RequestFor<typeof SIGN_IN_BY_LINK>, reply: FastifyReply) {
  const { sessions, limits, keyring, audit_trail } = context;
  if (keyring.is_open) return wireSession(context, EVERYTHING_ALLOWED, null);
  await limits.limitFailures(request, async () => sessions.useLink(request.body.token));
  const begun = await sessions.begin(audit_trail.holderOfLink(request), request, reply, null);
  return reply.code(201).send(wireSession(context, EVERYTHING_ALLOWED, begun));
}

const SIGN_OUT = {
  config: { access: [...SCOPES], audit: { action: 'session.end', target: 'service' } },
  schema: {
    operationId: 'signOut',
    tags: ['session'],
    summary: 'End the session, and every live feed that it opened',
    description: 'The cookie is removed.',
    response: responses({ 204: ['Signed out.', undefined, CookieHeaders], codes: [] }),
  },
} satisfies RouteShape;

async function signOut(
  { sessions, audit_trail }: SessionContext,
  request: RequestFor<typeof SIGN_OUT>,
  reply: FastifyReply,
) {
  const { signed_in } = request;
  if (signed_in !== null) {
    await sessions.end(audit_trail.authorOf(request), signed_in.session);
    sessions.forget(request, reply);
  }
  return reply.code(204).send();
}

const LIST_SESSIONS = {
  config: { access: ['admin'] },
  schema: {
    operationId: 'listSessions',
    tags: ['session'],
    summary: 'List the sessions of all pages, the latest first',
    description: 'Each session names the key with which it began; null for a sign-in link.',
    querystring: ListSessionsQuery,
    response: responses({ 200: ['A page of sessions.', pageOf(OpenSessionSchema)], codes: [] }),
  },
} satisfies RouteShape;

async function listSessions({ sessions }: OpenSessionContext, { query, signed_in }: RequestFor<typeof LIST_SESSIONS>) {
  const { data, next_cursor } = await sessions.list({ ...query, limit: query.limit ?? 50 });
  const current = signed_in?.session.digest;
  return {
    data: data.map((session) => ({
      session_id: sessionIdOf(session),
      key_id: session.key_id,
      created_at: isoTime(session.created_at),
      expires_at: isoTime(session.expires_at),
      is_current: session.digest === current,
    })),
    next_cursor,
  };
}

const END_SESSION = {
  config: { access: ['admin'], audit: { action: 'session.end', target: 'session' } },
  schema: {
    operationId: 'endSession',
    tags: ['session'],
    summary: 'End any session, and every live feed that it opened',
    description:
      'It ends on every node within a second. The key with which it began stays valid: if it leaked, revoke or rotate it too.',
    params: SessionParams,
    response: responses({ 204: ['Ended.', undefined, CookieHeaders], codes: ['session_does_not_exist'] }),
  },
} satisfies RouteShape;

async function endSession(
  { sessions, audit_trail }: OpenSessionContext,
  request: RequestFor<typeof END_SESSION>,
  reply: FastifyReply,
) {
  const { session_id } = request.params;
  const ended = await sessions.end(audit_trail.authorOf(request), { session_id });
  if (ended === null) throw new Problem('session_does_not_exist');
  if (ended.digest === request.signed_in?.session.digest) sessions.forget(request, reply);
  return reply.code(204).send();
}

/**
 * The principal of a request. Null without a key, and with a cookie whose session has ended. A wrong key is refused as
 * on every route.
 */
async function principalOf(
  { sessions, keyring, limits }: SessionContext,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<Principal | null> {
  if (keyring.is_open || request.headers.authorization !== undefined)
    return (await limits.identify(keyring, request)).principal;
  try {
    return (await sessions.identify(request, reply))?.principal ?? null;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    // The cookie is not removed: another page may have its csrf_token.
    if (error.code === 'csrf_token_wrong') return null;
    if (error.status !== 401) throw error;
    sessions.forget(request, reply);
    return null;
  }
}

function wireSession(
  { keyring, store, environment }: SessionContext,
  principal: Principal | null,
  signed_in: SignedIn | null,
): Static<typeof SessionSchema> {
  const { key_id = null, scopes = [], owner_scope = null } = principal ?? {};
  return {
    state: keyring.is_open ? 'open' : principal === null ? 'signed_out' : 'signed_in',
    key_id,
    key_name: key_id === null ? null : (keyring.known(key_id)?.key.name ?? null),
    scopes: [...scopes],
    meeting_ids: principal?.meeting_ids === null || principal === null ? null : [...principal.meeting_ids],
    instance_id: owner_scope?.instance_id ?? null,
    expires_at: isoTimeOrNull(signed_in?.session.expires_at ?? null),
    csrf_token: signed_in?.csrf_token ?? null,
    version: VERSION,
    environment,
    features: { cluster: store.cluster !== null },
  };
}
