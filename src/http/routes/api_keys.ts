import { randomBytes } from 'node:crypto';
import { digestOf, ID_BYTES, makeKeyId, makeToken, SECRET_BYTES } from '../../domain/api_key.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import type { NewApiKey } from '../../store/contract/api_keys.ts';
import { responses } from '../responses.ts';
import type { App, HttpContext } from '../context.ts';
import {
  ApiKeySchema,
  ApiKeyWithTokenSchema,
  CreateKeyBody,
  type CreateKeyInput,
  KeyParams,
  ListKeysQuery,
  RotateKeyBody,
} from '../schemas/api_keys.ts';
import { pageOf } from '../schemas/page.ts';
import { wireApiKey } from '../wire.ts';

const OVERLAP_S = 86_400;

export function apiKeyRoutes(app: App, { store, keyring, clock, log, audit_trail }: HttpContext): void {
  app.post(
    '/api/v1/keys/',
    {
      config: { access: ['admin'], audit: { action: 'key.create', target: 'key' } },
      schema: {
        operationId: 'createKey',
        tags: ['keys'],
        summary: 'Make a key; its token is answered only now',
        description:
          'While there is no key, everybody on this machine may make one, and it must be an admin key. From then on every request needs a key.',
        body: CreateKeyBody,
        response: responses({
          201: ['The key, with its token.', ApiKeyWithTokenSchema],
          codes: ['first_key_not_admin'],
        }),
      },
    },
    async (request, reply) => {
      const { body, principal } = request;
      const wall_ms = clock.wall();
      const key_id = makeKeyId(randomBytes(ID_BYTES));
      const token = makeToken(key_id, randomBytes(SECRET_BYTES));
      const was_open = keyring.is_open;
      const { api_keys } = audit_trail.storeFor(request, { target_id: key_id, details: { scopes: body.scopes } });
      const key = await api_keys.create(newKey(key_id, token, body, wall_ms));
      keyring.put(key);
      log.info(
        { key_id, scopes: key.scopes, by: principal.key_id },
        was_open ? 'the first key: every request needs one now' : 'a new key',
      );
      return reply.code(201).send({ ...wireApiKey(key), token });
    },
  );

  app.get(
    '/api/v1/keys/',
    {
      config: { access: ['admin'] },
      schema: {
        operationId: 'listKeys',
        tags: ['keys'],
        summary: 'List the keys, revoked ones included, in the order of their making',
        description: 'Without their tokens, which nobody can ask for again.',
        querystring: ListKeysQuery,
        response: responses({ 200: ['A page of keys.', pageOf(ApiKeySchema)], codes: [] }),
      },
    },
    async ({ query }) => {
      const page = await store.api_keys.list({ ...query, limit: query.limit ?? 50 });
      return { data: page.data.map(wireApiKey), next_cursor: page.next_cursor };
    },
  );

  app.get(
    '/api/v1/keys/:key_id/',
    {
      config: { access: ['admin'] },
      schema: {
        operationId: 'getKey',
        tags: ['keys'],
        summary: 'One key, without its token',
        description: 'What it may be used for, and when it was last used.',
        params: KeyParams,
        response: responses({ 200: ['The key.', ApiKeySchema], codes: ['key_does_not_exist'] }),
      },
    },
    async ({ params: { key_id } }) => wireApiKey(existing(await store.api_keys.get(key_id), key_id)),
  );

  app.delete(
    '/api/v1/keys/:key_id/',
    {
      config: { access: ['admin'], audit: { action: 'key.revoke', target: 'key' } },
      schema: {
        operationId: 'revokeKey',
        tags: ['keys'],
        summary: 'Revoke a key; it is refused from the answer on',
        description: 'Instances that it owns stay. An admin can hand them over with PATCH owner_key_id.',
        params: KeyParams,
        response: responses({ 204: ['Revoked.'], codes: ['key_does_not_exist', 'last_admin_key'] }),
      },
    },
    async (request, reply) => {
      const { params, principal } = request;
      const { key_id } = params;
      keyring.put(existing(await audit_trail.storeFor(request).api_keys.revoke(key_id, clock.wall()), key_id));
      log.info({ key_id, by: principal.key_id }, 'a key was revoked');
      return reply.code(204).send();
    },
  );

  app.post(
    '/api/v1/keys/:key_id/rotate/',
    {
      config: { access: ['admin'], audit: { action: 'key.rotate', target: 'key' } },
      // No body stands for an empty one: all of it is optional.
      preValidation: async (request) => {
        if (request.body === undefined) request.body = {};
      },
      schema: {
        operationId: 'rotateKey',
        tags: ['keys'],
        summary: 'Make a new token for a key; the one before is taken as well until the overlap ends',
        description: 'The key keeps its id, its scopes and its limits. The new token is answered only now.',
        params: KeyParams,
        body: RotateKeyBody,
        response: responses({
          200: ['The key, with its new token.', ApiKeyWithTokenSchema],
          codes: ['key_does_not_exist', 'key_not_active'],
        }),
      },
    },
    async (request) => {
      const { params, body, principal } = request;
      const { key_id } = params;
      const token = makeToken(key_id, randomBytes(SECRET_BYTES));
      const overlap_ms = (body.overlap_seconds ?? OVERLAP_S) * 1000;
      const { api_keys } = audit_trail.storeFor(request);
      const key = existing(await api_keys.rotate(key_id, digestOf(token), overlap_ms, clock.wall()), key_id);
      keyring.put(key);
      log.info({ key_id, by: principal.key_id }, 'a key was rotated');
      return { ...wireApiKey(key), token };
    },
  );
}

/** @throws Problem `invalid_fields` for limits that would limit nothing */
function newKey(key_id: string, token: string, input: CreateKeyInput, wall_ms: number): NewApiKey {
  const { name = null, meeting_ids = null, instance_id = null } = input;
  const scopes = [...new Set(input.scopes)];
  const is_admin = scopes.includes('admin');
  if (is_admin && meeting_ids !== null) throw invalidField('meeting_ids', 'cannot limit an admin key; leave one out');
  if (is_admin && instance_id !== null) throw invalidField('instance_id', 'cannot limit an admin key; leave one out');
  if (instance_id !== null && !scopes.includes('instance'))
    throw invalidField('instance_id', 'limits the scope instance, which this key does not have');
  const expires_at = input.expires_at === undefined ? null : Date.parse(input.expires_at);
  if (expires_at !== null && expires_at <= wall_ms) throw invalidField('expires_at', 'must be a time to come');
  return { key_id, name, scopes, meeting_ids, instance_id, digest: digestOf(token), created_at: wall_ms, expires_at };
}

function existing<Row>(row: Row | null, key_id: string): Row {
  if (row === null) throw new Problem('key_does_not_exist', `There is no key ${JSON.stringify(key_id)}.`);
  return row;
}
