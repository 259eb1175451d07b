/** Who am I, signing in, and signing out. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { EVERYTHING_ALLOWED, type Principal } from '../../domain/access.ts';
import { SCOPES } from '../../domain/api_key.ts';
import { Problem } from '../../domain/problem.ts';
import { sessionIdOf } from '../../domain/session.ts';
import { isoTime, isoTimeOrNull } from '../../domain/time.ts';
import { VERSION } from '../../version.ts';
import { responses } from '../responses.ts';
import type { App, HttpContext } from '../context.ts';
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
import type { SignedIn } from '../auth/sessions.ts';

const COOKIE_IS_SET =
  'The cookie is HttpOnly and SameSite=Strict, and lasts for 12 hours, but no longer than the key. With every request by it, csrf_token has to be sent as the header convoke-csrf; it is answered only now, and the cookie alone gives nothing.';

export function sessionRoutes(app: App, parts: HttpContext): void {
  app.get(
    '/api/v1/session/',
    {
      config: { access: 'public' },
      schema: {
        operationId: 'getSession',
        tags: ['session'],
        summary: 'Who is signed in, and what he may do',
        description:
          'Needs no key: a page asks it to know whether it has to ask for one. A session is told of only with its csrf_token in the header convoke-csrf.',
        response: responses({ 200: ['The session, or that there is none.', SessionSchema, SessionHeaders], codes: [] }),
      },
    },
    async (request, reply) => {
      void reply.header('cache-control', 'no-store');
      const principal = await whoIs(request, reply, parts);
      return described(principal, request.signed_in, parts);
    },
  );

  app.post(
    '/api/v1/session/',
    {
      config: { access: [...SCOPES], audit: { action: 'session.begin', target: 'service' } },
      schema: {
        operationId: 'signIn',
        tags: ['session'],
        summary: 'Exchange a key for a session: a cookie, for pages',
        description: `Give the key as in every other request. ${COOKIE_IS_SET} While the API is open, nothing is needed and none is made.`,
        response: responses({
          201: ['Signed in; the cookie is set.', SessionSchema, CookieHeaders],
          200: ['Nothing was needed.', SessionSchema],
          codes: [],
        }),
      },
    },
    async (request, reply) => {
      const { principal, signed_in, standing } = request;
      const { sessions, audit_trail } = parts;
      // Whoever has a session does not make it last longer; while the API is open, there is none.
      const token = standing?.token ?? null;
      if (token === null) return described(principal, signed_in, parts);
      const store = audit_trail.storeFor(request).sessions;
      const begun = await sessions.begin(request, reply, token, store);
      return reply.code(201).send(described(principal, begun, parts));
    },
  );

  app.post(
    '/api/v1/session/link/',
    {
      config: { access: 'public', audit: { action: 'session.begin', target: 'service' } },
      schema: {
        operationId: 'signInByLink',
        tags: ['session'],
        summary: 'Sign in as an admin, by the link that convoke serve printed',
        description: `A link can be used once, within five minutes, and its session ends with the process that printed it. ${COOKIE_IS_SET} While the API is open, nothing is needed and none is made.`,
        body: UseLinkBody,
        response: responses({
          201: ['Signed in; the cookie is set.', SessionSchema, CookieHeaders],
          200: ['Nothing was needed.', SessionSchema],
          codes: ['sign_in_link_not_valid'],
        }),
      },
    },
    async (request, reply) => {
      const { sessions, limits, keyring, audit_trail } = parts;
      if (keyring.is_open) return described(EVERYTHING_ALLOWED, null, parts);
      limits.limitFailures(request, () => sessions.useLink(request.body.token));
      const store = audit_trail.storeFor(request, { principal: 'sign-in link' }).sessions;
      const begun = await sessions.begin(request, reply, null, store);
      return reply.code(201).send(described(EVERYTHING_ALLOWED, begun, parts));
    },
  );

  app.delete(
    '/api/v1/session/',
    {
      config: { access: [...SCOPES], audit: { action: 'session.end', target: 'service' } },
      schema: {
        operationId: 'signOut',
        tags: ['session'],
        summary: 'End the session, and everything that listens by it',
        description: 'The cookie is taken away. Live feeds that were opened by it end, too.',
        response: responses({ 204: ['There is none any more.', undefined, CookieHeaders], codes: [] }),
      },
    },
    async (request, reply) => {
      const { signed_in } = request;
      if (signed_in !== null) {
        await parts.sessions.end(parts.audit_trail.storeFor(request).sessions, signed_in.session);
        parts.sessions.forget(request, reply);
      }
      return reply.code(204).send();
    },
  );

  app.get(
    '/api/v1/sessions/',
    {
      config: { access: ['admin'] },
      schema: {
        operationId: 'listSessions',
        tags: ['session'],
        summary: 'List the sessions of all pages, the latest first',
        description: 'Each with the key that it stands on; null for a session that began with a sign-in link.',
        querystring: ListSessionsQuery,
        response: responses({ 200: ['A page of sessions.', pageOf(OpenSessionSchema)], codes: [] }),
      },
    },
    async ({ query, signed_in }) => {
      const { data, next_cursor } = await parts.sessions.list({ ...query, limit: query.limit ?? 50 });
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
    },
  );

  app.delete(
    '/api/v1/sessions/:session_id/',
    {
      config: { access: ['admin'], audit: { action: 'session.end', target: 'session' } },
      schema: {
        operationId: 'endSession',
        tags: ['session'],
        summary: 'End a session of anybody, and everything that listens by it',
        description:
          'On every node within a second. The key that it was begun with is not touched: revoke or rotate that one too, if it leaked.',
        params: SessionParams,
        response: responses({ 204: ['Ended.'], codes: ['session_does_not_exist'] }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const ended = await parts.sessions.end(parts.audit_trail.storeFor(request).sessions, { session_id });
      if (ended === null) throw new Problem('session_does_not_exist');
      if (ended.digest === request.signed_in?.session.digest) parts.sessions.forget(request, reply);
      return reply.code(204).send();
    },
  );
}

/** Null when he gives nothing, or a cookie that stands for nothing any more; a key that is wrong is refused as everywhere. */
async function whoIs(
  request: FastifyRequest,
  reply: FastifyReply,
  { sessions, keyring, limits }: HttpContext,
): Promise<Principal | null> {
  if (keyring.is_open || request.headers.authorization !== undefined)
    return limits.identify(keyring, request).principal;
  try {
    return (await sessions.identify(request))?.principal ?? null;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    // The cookie stays: another page may hold what belongs to it.
    if (error.code === 'csrf_token_wrong') return null;
    if (error.status !== 401) throw error;
    sessions.forget(request, reply);
    return null;
  }
}

function described(
  principal: Principal | null,
  signed_in: SignedIn | null,
  { keyring, store }: HttpContext,
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
    features: { cluster: store.cluster !== null },
  };
}
