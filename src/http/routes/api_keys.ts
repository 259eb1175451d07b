import type { FastifyReply } from 'fastify';
import { randomBytes } from 'node:crypto';
import type { Changes } from '../../changes/changes.ts';
import type { Log } from '../../delivery/bounded_log.ts';
import type { Clock } from '../../delivery/clock.ts';
import { digestOf, ID_BYTES, makeKeyId, makeToken, SECRET_BYTES } from '../../domain/api_key.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import type { ApiKeyStore, NewApiKey } from '../../store/contract/api_keys.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import type { Keyring } from '../auth/keyring.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { readNoBodyAsEmpty } from '../intake/no_body.ts';
import { responses } from '../responses.ts';
import {
  ApiKeySchema,
  ApiKeyWithTokenSchema,
  CreateKeyBody,
  type CreateKeyInput,
  KeyParams,
  ListKeysQuery,
  RotateKeyBody,
} from '../schemas/api_keys.ts';
import { LIST_BODY_BYTES_MAX } from '../schemas/fields.ts';
import { pageOf } from '../schemas/page.ts';
import { wireApiKey } from '../wire.ts';

const OVERLAP_S = 86_400;

export interface ApiKeyContext {
  store: { api_keys: Pick<ApiKeyStore, 'list' | 'get'> };
  changes: Pick<Changes, 'keys'>;
  keyring: Pick<Keyring, 'isOfOpen'>;
  clock: Clock;
  log: Log;
  audit_trail: Pick<AuditTrail, 'authorOf'>;
}

export function apiKeyRoutes(app: App, context: ApiKeyContext): void {
  app.post('/api/v1/keys/', CREATE, (request, reply) => createKey(context, request, reply));
  app.get('/api/v1/keys/', LIST, (request) => listKeys(context, request));
  app.get('/api/v1/keys/:key_id/', GET, (request) => getKey(context, request));
  app.delete('/api/v1/keys/:key_id/', REVOKE, (request, reply) => revokeKey(context, request, reply));
  app.post('/api/v1/keys/:key_id/rotate/', ROTATE, (request) => rotateKey(context, request));
}

const CREATE = {
  bodyLimit: LIST_BODY_BYTES_MAX,
  config: { access: ['admin'], audit: { action: 'key.create', target: 'key' } },
  schema: {
    operationId: 'createKey',
    tags: ['keys'],
    summary: 'Make a key; only this response contains its token',
    description:
      'While there is no key, everybody on this machine may make one, and it must be an admin key. From then on every request needs a key.',
    body: CreateKeyBody,
    response: responses({
      201: ['The key, with its token.', ApiKeyWithTokenSchema],
      codes: ['first_key_not_admin'],
    }),
  },
} satisfies RouteShape;

async function createKey(
  { changes, keyring, clock, log, audit_trail }: ApiKeyContext,
  request: RequestFor<typeof CREATE>,
  reply: FastifyReply,
) {
  const { body, principal } = request;
  const key_id = makeKeyId(randomBytes(ID_BYTES));
  const token = makeToken(key_id, randomBytes(SECRET_BYTES));
  const is_first = keyring.isOfOpen(request.standing);
  const author = audit_trail.authorOf(request);
  const key = await changes.keys.create(author, newKey(key_id, token, body, clock.wall()), is_first);
  log.info(
    { key_id, scopes: key.scopes, by: principal.key_id },
    is_first ? 'the first key: every request needs one now' : 'a new key',
  );
  return reply.code(201).send({ ...wireApiKey(key), token });
}

const LIST = {
  config: { access: ['admin'] },
  schema: {
    operationId: 'listKeys',
    tags: ['keys'],
    summary: 'List the keys, revoked ones included, in the order in which they were made',
    description: 'Their tokens are not shown again.',
    querystring: ListKeysQuery,
    response: responses({ 200: ['A page of keys.', pageOf(ApiKeySchema)], codes: [] }),
  },
} satisfies RouteShape;

async function listKeys({ store }: ApiKeyContext, { query }: RequestFor<typeof LIST>) {
  const page = await store.api_keys.list({ ...query, limit: query.limit ?? 50 });
  return { data: page.data.map(wireApiKey), next_cursor: page.next_cursor };
}

const GET = {
  config: { access: ['admin'] },
  schema: {
    operationId: 'getKey',
    tags: ['keys'],
    summary: 'One key, without its token',
    description: 'Its scopes, its limits, and when it was last used.',
    params: KeyParams,
    response: responses({ 200: ['The key.', ApiKeySchema], codes: ['key_does_not_exist'] }),
  },
} satisfies RouteShape;

async function getKey({ store }: ApiKeyContext, { params: { key_id } }: RequestFor<typeof GET>) {
  return wireApiKey(existing(await store.api_keys.get(key_id), key_id));
}

const REVOKE = {
  config: { access: ['admin'], audit: { action: 'key.revoke', target: 'key' } },
  schema: {
    operationId: 'revokeKey',
    tags: ['keys'],
    summary: 'Revoke a key; it is refused from the response on',
    description: 'The instances that it owns stay. An admin can give them to another key with PATCH owner_key_id.',
    params: KeyParams,
    response: responses({ 204: ['Revoked.'], codes: ['key_does_not_exist', 'last_admin_key'] }),
  },
} satisfies RouteShape;

async function revokeKey(
  { changes, log, audit_trail }: ApiKeyContext,
  request: RequestFor<typeof REVOKE>,
  reply: FastifyReply,
) {
  const { params, principal } = request;
  const { key_id } = params;
  existing(await changes.keys.revoke(audit_trail.authorOf(request), key_id), key_id);
  log.info({ key_id, by: principal.key_id }, 'a key was revoked');
  return reply.code(204).send();
}

const ROTATE = {
  config: { access: ['admin'], audit: { action: 'key.rotate', target: 'key' } },
  preValidation: readNoBodyAsEmpty,
  schema: {
    operationId: 'rotateKey',
    tags: ['keys'],
    summary: 'Make a new token for a key; until the overlap ends, the old one works too',
    description:
      'The key keeps its id, its scopes and its limits. Only this response contains the new token. Earlier overlaps go on, unless the new overlap is 0.',
    params: KeyParams,
    body: RotateKeyBody,
    response: responses({
      200: ['The key, with its new token.', ApiKeyWithTokenSchema],
      codes: ['key_does_not_exist', 'key_not_active', 'overlaps_in_progress'],
    }),
  },
} satisfies RouteShape;

async function rotateKey({ changes, log, audit_trail }: ApiKeyContext, request: RequestFor<typeof ROTATE>) {
  const { params, body, principal } = request;
  const { key_id } = params;
  const token = makeToken(key_id, randomBytes(SECRET_BYTES));
  const overlap_ms = (body.overlap_seconds ?? OVERLAP_S) * 1000;
  const author = audit_trail.authorOf(request);
  const key = existing(await changes.keys.rotate(author, key_id, digestOf(token), overlap_ms), key_id);
  log.info({ key_id, by: principal.key_id }, 'a key was rotated');
  return { ...wireApiKey(key), token };
}

/** @throws Problem `invalid_fields` for a limit that does not fit the scopes, and for an end that has passed */
function newKey(key_id: string, token: string, input: CreateKeyInput, wall_ms: number): NewApiKey {
  const { name = null, meeting_ids = null, instance_id = null } = input;
  const scopes = [...new Set(input.scopes)];
  const is_admin = scopes.includes('admin');
  if (is_admin && meeting_ids !== null) throw invalidField('meeting_ids', 'cannot limit an admin key; leave one out');
  if (is_admin && instance_id !== null) throw invalidField('instance_id', 'cannot limit an admin key; leave one out');
  if (instance_id !== null && !scopes.includes('instance'))
    throw invalidField('instance_id', 'limits the scope instance, which this key does not have');
  const expires_at = input.expires_at === undefined ? null : Date.parse(input.expires_at);
  if (expires_at !== null && expires_at <= wall_ms) throw invalidField('expires_at', 'must be a time in the future');
  return { key_id, name, scopes, meeting_ids, instance_id, digest: digestOf(token), created_at: wall_ms, expires_at };
}

function existing<Row>(row: Row | null, key_id: string): Row {
  if (row === null) throw new Problem('key_does_not_exist', `There is no key ${JSON.stringify(key_id)}.`);
  return row;
}
