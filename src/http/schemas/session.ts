import Type from 'typebox';
import { ScopeSchema } from './api_keys.ts';
import { enumOf, expected, InstanceId, madeId, MeetingId, named, nullable, time } from './fields.ts';
import { cursor, limit } from './page.ts';

export const SessionSchema = Type.Object(
  {
    state: enumOf(['open', 'signed_out', 'signed_in'] as const, {
      description:
        '`open`: no key was made, and everybody on this machine may do everything; `signed_out`: a key is needed.',
    }),
    key_id: nullable(Type.String(), 'The key that was given; null when open, signed out, or signed in by a link.'),
    key_name: nullable(Type.String(), 'The name of that key.'),
    scopes: Type.Array(ScopeSchema, { description: 'The rights of the principal.' }),
    meeting_ids: nullable(Type.Array(MeetingId), 'The meetings that it is limited to; null: no limit.'),
    instance_id: nullable(InstanceId, 'The instance that it is limited to; null: no limit.'),
    expires_at: nullable(time('A time.'), 'When the session ends; null without a cookie.'),
    csrf_token: nullable(
      Type.String(),
      'The page sends this token in the header convoke-csrf with every request of the session. Only the response that begins the session, and responses to requests with this header, contain the token; null otherwise.',
    ),
    version: Type.String({ description: 'The version of the service.' }),
    environment: nullable(
      Type.String(),
      "The operator's name for this environment, such as production (CONVOKE_ENVIRONMENT); null: none.",
    ),
    features: Type.Object(
      { cluster: Type.Boolean({ description: 'Whether there may be several nodes.' }) },
      { description: 'The features of this service.' },
    ),
  },
  named('Session', 'Who is signed in, and what they may do.'),
);

export const OpenSessionSchema = Type.Object(
  {
    session_id: Type.String({
      description: 'The id with which the session can be ended; it cannot be used to sign in.',
    }),
    key_id: nullable(Type.String(), 'The key with which somebody signed in; null for a link of convoke serve.'),
    created_at: time('When somebody signed in.'),
    expires_at: time('When it ends by itself.'),
    is_current: Type.Boolean({ description: 'Whether this request uses it.' }),
  },
  named('OpenSession', 'Somebody is signed in on a page.'),
);

export const ListSessionsQuery = Type.Object({ limit, cursor }, { additionalProperties: false });

export const SessionParams = Type.Object({ session_id: madeId('The id that ends a session.') });

export const UseLinkBody = Type.Object(
  {
    token: Type.String({
      pattern: '^[A-Za-z0-9_-]{43}$',
      description: 'The text after #sign-in= in the link.',
      ...expected('must be the 43 characters behind #sign-in= in the link'),
    }),
  },
  { ...named('SignInByLinkInput', 'The token of a sign-in link.'), additionalProperties: false },
);

const set_cookie = Type.String({
  description: 'The session, HttpOnly and SameSite=Strict; or, with Max-Age=0, its end.',
});

/** Headers of responses that begin or end a session. */
export const CookieHeaders = { 'set-cookie': set_cookie };

/** Headers of the response that says who is signed in. */
export const SessionHeaders = {
  'cache-control': Type.String({ description: 'no-store: the response must not be cached.' }),
  'set-cookie': set_cookie,
};
