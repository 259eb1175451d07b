/** Who am I, signing in, and signing out. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { EVERYTHING_ALLOWED, type Principal } from '../domain/access.ts';
import { SCOPES } from '../domain/api_key.ts';
import { Problem } from '../domain/problem.ts';
import { VERSION } from '../version.ts';
import { answers } from './answers.ts';
import type { App, HttpParts } from './parts.ts';
import { CookieHeaders, SessionHeaders, SessionSchema, UseLinkBody } from './schemas/session.ts';
import type { SignedIn } from './sessions.ts';
import { isoTimeOrNull } from './wire.ts';

const COOKIE_IS_SET =
  'The cookie is HttpOnly and SameSite=Strict, and lasts for 12 hours, but no longer than the key. With whatever changes something, csrf_token has to be sent as the header convoke-csrf.';

export function sessionRoutes(app: App, parts: HttpParts): void {
  app.get(
    '/api/v1/session/',
    {
      config: { access: 'public' },
      schema: {
        operationId: 'getSession',
        tags: ['session'],
        summary: 'Who is signed in, and what he may do',
        description: 'Needs no key: a page asks it to know whether it has to ask for one.',
        response: answers({ 200: ['The session, or that there is none.', SessionSchema, SessionHeaders], codes: [] }),
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
        response: answers({
          201: ['Signed in; the cookie is set.', SessionSchema, CookieHeaders],
          200: ['Nothing was needed.', SessionSchema],
          codes: [],
        }),
      },
    },
    async (request, reply) => {
      const { principal, signed_in } = request;
      const { sessions, keyring, audit_trail } = parts;
      // Whoever has a session does not make it last longer.
      if (keyring.is_open || signed_in !== null) return described(principal, signed_in, parts);
      const store = audit_trail.changing(request).sessions;
      const begun = await sessions.begin(request, reply, principal.key_id, store);
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
        description: `A link can be used once, within five minutes. ${COOKIE_IS_SET}`,
        body: UseLinkBody,
        response: answers({
          201: ['Signed in; the cookie is set.', SessionSchema, CookieHeaders],
          codes: ['sign_in_link_not_valid'],
        }),
      },
    },
    async (request, reply) => {
      const { sessions, limits, audit_trail } = parts;
      limits.guess(request, () => sessions.useLink(request.body.token));
      const store = audit_trail.changing(request, { principal: 'sign-in link' }).sessions;
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
        response: answers({ 204: ['There is none any more.', undefined, CookieHeaders], codes: [] }),
      },
    },
    async (request, reply) => {
      const { signed_in } = request;
      if (signed_in !== null) {
        const { digest } = signed_in.session;
        await parts.audit_trail.changing(request).sessions.remove(digest);
        parts.feed.endSession(digest);
        parts.sessions.forget(request, reply);
      }
      return reply.code(204).send();
    },
  );
}

/** Null when he gives nothing, or a cookie that stands for nothing any more; a key that is wrong is refused as everywhere. */
async function whoIs(
  request: FastifyRequest,
  reply: FastifyReply,
  { sessions, keyring, limits }: HttpParts,
): Promise<Principal | null> {
  if (keyring.is_open || request.headers.authorization !== undefined) return limits.identify(keyring, request);
  try {
    return await sessions.identify(request);
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 401) throw error;
    sessions.forget(request, reply);
    return null;
  }
}

function described(
  principal: Principal | null,
  signed_in: SignedIn | null,
  { keyring, store }: HttpParts,
): Static<typeof SessionSchema> {
  const { key_id = null, scopes = [], owned = null } = principal ?? {};
  return {
    state: keyring.is_open ? 'open' : principal === null ? 'signed_out' : 'signed_in',
    key_id,
    key_name: key_id === null ? null : (keyring.known(key_id)?.key.name ?? null),
    scopes: [...scopes],
    meeting_ids: principal?.meeting_ids === null || principal === null ? null : [...principal.meeting_ids],
    instance_id: owned?.instance_id ?? null,
    expires_at: isoTimeOrNull(signed_in?.session.expires_at ?? null),
    csrf_token: signed_in?.csrf_token ?? null,
    version: VERSION,
    features: { cluster: store.cluster !== null },
  };
}
