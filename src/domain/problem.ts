/**
 * The one table of errors that a caller can meet. `docs/errors.md` is generated from it. A code is stable: nobody
 * renames it or gives it another meaning.
 */
export const PROBLEMS = {
  malformed_json: {
    status: 400,
    title: 'The body is not valid JSON',
    advice:
      'Send one JSON object, UTF-8 encoded, at most 100 levels deep, and without duplicate keys outside the message.',
  },
  malformed_request: {
    status: 400,
    title: 'The request could not be understood',
    advice: 'Check the path and its percent-encoding, the query string, and the headers named in the detail.',
  },
  api_key_missing: {
    status: 401,
    title: 'An API key is needed',
    advice: 'Send the header `authorization: Bearer cvk_…`; docs/keys.md says how to make a key.',
  },
  api_key_malformed: {
    status: 401,
    title: 'This API key is incomplete or mistyped',
    advice: 'Copy the whole key again.',
  },
  api_key_unknown: {
    status: 401,
    title: 'This service does not know this API key',
    advice: 'The key was made for another service, or a rotation replaced it. Ask an admin for a new key.',
  },
  api_key_revoked: {
    status: 401,
    title: 'This API key was revoked',
    advice: 'Ask an admin for a new key.',
  },
  api_key_expired: {
    status: 401,
    title: 'This API key has expired',
    advice: 'Ask an admin for a new key.',
  },
  reply_token_not_valid: {
    status: 401,
    title: 'This token cannot be used to reply',
    advice:
      'Send the header convoke-reply-token exactly as in the push, within 24 hours. A change of the data key of the service ends tokens earlier.',
  },
  session_ended: {
    status: 401,
    title: 'This session has ended',
    advice: 'Sign in again. A session lasts for 12 hours at most, and ends earlier when its key ends.',
  },
  sign_in_link_not_valid: {
    status: 401,
    title: 'This link cannot be used to sign in',
    advice: 'A link works once, within five minutes of the start of the service. Sign in with a key instead.',
  },
  csrf_token_wrong: {
    status: 403,
    title: 'The header convoke-csrf is missing or wrong',
    advice:
      'With a session, every request needs the header convoke-csrf, with the csrf_token from the response to signing in. If you do not have it any more, sign in again. Programs use a key, and do not need this header.',
  },
  not_permitted: {
    status: 403,
    title: 'This API key does not permit that',
    advice: 'The detail says which scope or limit forbids it; ask an admin for a key that permits it.',
  },
  replies_not_allowed: {
    status: 403,
    title: 'The instance may not reply',
    advice:
      'The instance was deleted or switched off, it has left the meeting, the key of its pulling machine has ended, or it may not reply: register it with `"replies": true`.',
  },
  host_not_allowed: {
    status: 403,
    title: 'The service refuses this Host header',
    advice:
      'While it has no key, Convoke takes only requests to a loopback name: use http://127.0.0.1:PORT or http://localhost:PORT, or make a key (docs/keys.md).',
  },
  origin_not_allowed: {
    status: 403,
    title: 'A web page of another origin made the request',
    advice:
      'While there is no key, only web pages of a loopback address may call the API. With a session, only pages of the service itself may. A program should send no Origin header.',
  },
  route_does_not_exist: {
    status: 404,
    title: 'There is nothing at this path',
    advice: 'Compare method and path with /docs/; every path of the API starts with /api/v1/.',
  },
  instance_does_not_exist: {
    status: 404,
    title: 'No such instance is registered',
    advice: 'Register it first with POST /api/v1/instances/register/; ids are compared exactly.',
  },
  meeting_does_not_exist: {
    status: 404,
    title: 'No such meeting',
    advice: 'A meeting exists as soon as an instance joins it or a message is sent in it; ids are compared exactly.',
  },
  membership_does_not_exist: {
    status: 404,
    title: 'The instance is not in the meeting',
    advice:
      'Join first with POST /api/v1/instances/join-meeting/. An instance that has left is not in the meeting any more, and your key may not see an instance of another key.',
  },
  message_does_not_exist: {
    status: 404,
    title: 'No such message',
    advice: 'The history of a meeting lists its messages. A message is removed when its retention ends.',
  },
  delivery_does_not_exist: {
    status: 404,
    title: 'No such delivery',
    advice: 'List deliveries with GET /api/v1/deliveries/. Settled deliveries are removed when their retention ends.',
  },
  backup_does_not_exist: {
    status: 404,
    title: 'No such backup',
    advice:
      'The backup was fetched, or it failed, or no request asked for it for a minute. Begin another one with POST /api/v1/backups/.',
  },
  method_not_allowed: {
    status: 405,
    title: 'This path does not take this method',
    advice: 'Use one of the methods in the Allow header; /docs/ lists them all.',
  },
  request_timeout: {
    status: 408,
    title: 'The request did not arrive in time',
    advice:
      'Send the headers within 5 seconds. Send the body within 5 seconds, and one more second for each 64 KiB of it. Then try again.',
  },
  session_does_not_exist: {
    status: 404,
    title: 'There is no such session',
    advice: 'The session has ended, or the session_id is mistyped. GET /api/v1/sessions/ lists the sessions.',
  },
  key_does_not_exist: {
    status: 404,
    title: 'No such API key',
    advice: 'List the keys with GET /api/v1/keys/; a key_id is the 12 characters after cvk_ in a token.',
  },
  invite_does_not_exist: {
    status: 404,
    title: 'No such invite',
    advice:
      'The link is mistyped or incomplete: copy the whole link again. An admin can list the invites with GET /api/v1/invites/.',
  },
  invite_ended: {
    status: 410,
    title: 'This invite cannot be redeemed any more',
    advice:
      'A link works once, before its invite expires. Ask the sender of the link for another one. If somebody else redeemed the link, say so: the sender can revoke the key.',
  },
  invite_redeemed: {
    status: 409,
    title: 'This invite was redeemed',
    advice: 'Revoke the key that the invite made (its key_id): DELETE /api/v1/keys/{key_id}/.',
  },
  instance_id_taken: {
    status: 409,
    title: 'Another key has registered this instance_id',
    advice: 'Choose another instance_id, or ask an admin to give you the instance (PATCH owner_key_id).',
  },
  first_key_not_admin: {
    status: 409,
    title: 'The first key must be an admin key',
    advice: 'First make a key with the scope admin and without expires_at. Otherwise nobody could make a second key.',
  },
  last_admin_key: {
    status: 409,
    title: 'This is the last admin key',
    advice:
      'Without this key nobody could make keys. Make another key with the scope admin and without expires_at, then revoke this one.',
  },
  key_not_active: {
    status: 409,
    title: 'This API key is revoked or has expired',
    advice: 'Such a key gets neither another token nor a portal link. Make a new key instead.',
  },
  overlaps_in_progress: {
    status: 409,
    title: 'Too many earlier tokens or secrets still work',
    advice:
      'Each rotation with an overlap leaves one more. Rotate again when the first of them has ended, or with overlap_seconds 0, which ends all of them at once.',
  },
  idempotency_key_reused: {
    status: 409,
    title: 'This Idempotency-Key was used for another message',
    advice: 'Use a new key for every new message; send the same key only to repeat the very same request.',
  },
  delivery_not_retryable: {
    status: 409,
    title: 'This delivery cannot be retried',
    advice:
      'You can queue a pending, failed or cancelled delivery again, if its instance was not deleted. Otherwise send a new message.',
  },
  quota_exceeded: {
    status: 409,
    title: 'The maximum that is permitted is reached',
    advice:
      'The detail says of what there are too many. Remove those that you no longer need. If the detail names a setting, the operator can raise it.',
  },
  callback_not_verified: {
    status: 409,
    title: 'The webhook_url did not answer the challenge',
    advice:
      'The program at webhook_url must know the secret, check the signature of the request, and respond 200 with the same {"challenge": …}. The detail says what went wrong.',
  },
  encryption_key_given: {
    status: 409,
    title: 'The data key is a setting; change it there',
    advice:
      'Start the service with a new key as CONVOKE_ENCRYPTION_KEY and the present one as CONVOKE_ENCRYPTION_KEY_PREVIOUS. Then repeat the request.',
  },
  encryption_key_not_shared: {
    status: 409,
    title: 'Another node encrypts under another data key',
    advice:
      'Start the node that `detail` names with the new key as CONVOKE_ENCRYPTION_KEY and the previous one as CONVOKE_ENCRYPTION_KEY_PREVIOUS, or stop it. A node that was killed counts for 15 s. Then repeat the request.',
  },
  encryption_key_not_written: {
    status: 409,
    title: 'The file with the data key cannot be written',
    advice:
      'The detail says what to do. Every secret can still be decrypted with the keys in the file. Then repeat the request.',
  },
  backup_under_way: {
    status: 409,
    title: 'Another backup is in progress',
    advice:
      'The service makes one backup at a time. Begin yours when that one was fetched, or a minute after the last request for it.',
  },
  backup_not_made_here: {
    status: 409,
    title: 'The data of this service is in PostgreSQL',
    advice: 'Back it up with the tools of PostgreSQL: pg_dump --format=custom --file=FILE DATABASE_URL.',
  },
  demo_not_possible: {
    status: 409,
    title: 'The demo cannot run in this service',
    advice:
      'Its agents listen on 127.0.0.1, and the egress policy forbids pushes to that address. `convoke demo` shows the same in a service of its own.',
  },
  body_too_large: {
    status: 413,
    title: 'The body is too large',
    advice: 'Send a smaller message, or raise CONVOKE_MAX_MESSAGE_BYTES. The limits of other bodies are fixed.',
  },
  unsupported_media_type: {
    status: 415,
    title: 'The body is not JSON',
    advice: 'Send the header content-type: application/json, in UTF-8, and no content-encoding.',
  },
  invalid_fields: {
    status: 422,
    title: 'Some fields are not valid',
    advice:
      'Correct the fields in errors. Each entry has the path of a field, and a message that says what is expected.',
  },
  webhook_url_not_allowed: {
    status: 422,
    title: 'Pushes to this webhook_url are not allowed',
    advice:
      'Use an address that the egress policy permits, or ask the operator to change CONVOKE_EGRESS, CONVOKE_EGRESS_ALLOW or CONVOKE_EGRESS_ALLOW_HTTP. The detail names the setting.',
  },
  rate_limited: {
    status: 429,
    title: 'Too many of these requests in a short time',
    advice:
      'The service did nothing. Try again after the time in Retry-After. The detail names the setting that limits these requests.',
  },
  reply_limit_reached: {
    status: 409,
    title: 'This token has no replies left',
    advice: 'The token of a push permits 20 replies. Put more into one reply, or send messages with an API key.',
  },
  headers_too_large: {
    status: 431,
    title: 'The head of the request is too large',
    advice: 'Send at most 100 headers. Headers, path and query together must have less than 16 KiB.',
  },
  internal_error: {
    status: 500,
    title: 'The service failed',
    advice:
      'This is a defect of Convoke. The log line with the same request id says more. With an Idempotency-Key it is safe to send again.',
  },
  storage_unavailable: {
    status: 503,
    title: 'The storage did not respond',
    advice:
      'The service accepted nothing, unless the detail says IN_DOUBT: then it may have done what you asked. Or the detail says that a part was done, and how to go on. Send again after the time in Retry-After, with the same Idempotency-Key, so that nothing is stored twice. The operator should check the free disk space, or the database.',
  },
  overloaded: {
    status: 503,
    title: 'The service is overloaded',
    advice: 'The service accepted nothing. Try again after the time in Retry-After.',
  },
  backup_no_room: {
    status: 507,
    title: 'There is no room for a backup',
    advice:
      'The service first makes a copy in the data directory. Make room for the copy there, or stop the service and run `convoke backup` with --data.',
  },
  shutting_down: {
    status: 503,
    title: 'The service is stopping',
    advice: 'The service accepted nothing. Try again in a moment, when it has started again.',
  },
} as const satisfies Record<string, { status: number; title: string; advice: string }>;

export type ProblemCode = keyof typeof PROBLEMS;

/** One invalid field: `path` is dotted (`agent_ids.3`), `message` says what is expected. */
export interface FieldError {
  path: string;
  message: string;
}

/**
 * A mistake of the caller, or a state of the service that the caller must know. The HTTP layer turns it into
 * `application/problem+json` (RFC 9457). `detail` is public: it must not contain secrets.
 */
export class Problem extends Error {
  readonly code: ProblemCode;
  readonly errors: FieldError[] | undefined;
  readonly retry_after_s: number | undefined;

  constructor(code: ProblemCode, detail?: string, extra: { errors?: FieldError[]; retry_after_s?: number } = {}) {
    super(detail ?? PROBLEMS[code].advice);
    this.name = 'Problem';
    this.code = code;
    this.errors = extra.errors;
    this.retry_after_s = extra.retry_after_s;
  }

  get status(): number {
    return PROBLEMS[this.code].status;
  }
}

/** A problem with the status 422 that names one field. */
export function invalidField(path: string, message: string): Problem {
  return new Problem('invalid_fields', `${path} ${message}`, { errors: [{ path, message }] });
}
