import { randomBytes, randomUUID } from 'node:crypto';
import { diagnose } from '../../delivery/transport/diagnosis.ts';
import { RESERVED_HEADERS } from '../../delivery/transport/push.ts';
import { assertMayRegister, assertMeeting, type Principal } from '../../domain/access.ts';
import { assertAddressable, uniqueIds } from '../../domain/id.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { makeSecret, signingKey } from '../../domain/signature.ts';
import { isoTime } from '../../domain/time.ts';
import { isRefusal, parseWebhookUrl } from '../../domain/webhook_url.ts';
import type { EgressPolicy } from '../../domain/address.ts';
import type { AuditSubject } from '../../domain/audit.ts';
import type { Keyring } from '../auth/keyring.ts';
import { changedEvent, queuedEvent } from '../../feed/events.ts';
import type { App, HttpContext } from '../context.ts';
import { responses } from '../responses.ts';
import { registerInstance, removeInstance } from '../registry.ts';
import { LIST_BODY_BYTES_MAX } from '../schemas/fields.ts';
import {
  DiagnosisSchema,
  InstanceParams,
  InstanceSchema,
  ListInstancesQuery,
  PatchInstanceBody,
  RecoverBody,
  RecoveredSchema,
  RegisterBody,
  RegisteredInstanceSchema,
  RotateSecretBody,
  RotatedSecretSchema,
  WebhookTestBody,
} from '../schemas/instances.ts';
import { pageOf } from '../schemas/page.ts';
import { wireInstance } from '../wire.ts';

const OVERLAP_S = 86_400;
const SECRET_BYTES = 32;

export function instanceRoutes(
  app: App,
  { store, engine, transport, clock, log, keyring, audit_trail, feed, ...parts }: HttpContext,
): void {
  app.post(
    '/api/v1/instances/register/',
    {
      bodyLimit: LIST_BODY_BYTES_MAX,
      config: { access: ['instance'], limited: 'register', audit: { action: 'instance.register', target: 'instance' } },
      schema: {
        operationId: 'register',
        tags: ['instances'],
        summary: 'Register an instance, or update it',
        description:
          'Creates the instance, or overwrites its name, agents and URL when the id is known. Every registration switches it on and lifts its back-off. webhook_headers that are left out stay as they are, unless webhook_url has another origin: then they are dropped, so that nobody reads there what was meant for another server, and dropped_header_names says which.',
        body: RegisterBody,
        response: responses({
          201: ['The instance was created.', RegisteredInstanceSchema],
          200: ['The instance was updated.', RegisteredInstanceSchema],
          codes: ['webhook_url_not_allowed', 'instance_id_taken', 'quota_exceeded'],
        }),
      },
    },
    async (request, reply) => {
      const { body, principal } = request;
      assertAddressable('instance_id', body.instance_id);
      assertMayRegister(principal, body.instance_id);
      assertUrlAllowed(body.webhook_url, parts.egress_policy);
      if (body.webhook_secret !== undefined) signingKey(body.webhook_secret);
      const { created, instance, dropped_header_names } = await registerInstance(
        { engine, feed, clock },
        audit_trail.storeFor(request).instances,
        {
          instance_id: body.instance_id,
          instance_name: body.instance_name,
          agent_ids: uniqueIds(body.agent_ids),
          webhook_url: body.webhook_url,
          webhook_headers: webhookHeaders(body.webhook_headers),
          webhook_secret: body.webhook_secret,
          new_secret: makeSecret(randomBytes(SECRET_BYTES)),
          success_statuses: body.success_statuses,
          owner_key_id: principal.key_id,
        },
        principal.owner_scope,
      );
      if (dropped_header_names.length > 0) {
        const { instance_id } = body;
        log.warn({ instance_id, dropped_header_names }, 'webhook_headers were dropped: webhook_url has another origin');
      }
      const secret_was_made = created && body.webhook_secret === undefined;
      return reply.code(created ? 201 : 200).send({
        ...wireInstance(instance),
        ...(secret_was_made ? { webhook_secret: instance.webhook_secret } : {}),
        ...(dropped_header_names.length > 0 ? { dropped_header_names } : {}),
      });
    },
  );

  app.get(
    '/api/v1/instances/',
    {
      config: { access: ['read', 'instance'] },
      schema: {
        operationId: 'listInstances',
        tags: ['instances'],
        summary: 'List instances, in the order of their ids',
        description:
          'Pages of what the filters leave. A key that is limited to instances or meetings finds only those.',
        querystring: ListInstancesQuery,
        response: responses({ 200: ['A page of instances.', pageOf(InstanceSchema)], codes: [] }),
      },
    },
    async ({ query, principal }) => {
      if (query.meeting_id !== undefined) assertMeeting(principal, query.meeting_id);
      const page = await store.instances.list({ ...query, limit: query.limit ?? 50 }, principal.visibility);
      return { data: page.data.map(wireInstance), next_cursor: page.next_cursor };
    },
  );

  app.get(
    '/api/v1/instances/:instance_id/',
    {
      config: { access: ['read', 'instance'] },
      schema: {
        operationId: 'getInstance',
        tags: ['instances'],
        summary: 'One instance',
        description: 'With its health, its last failure, and how much waits for it.',
        params: InstanceParams,
        response: responses({ 200: ['The instance.', InstanceSchema], codes: ['instance_does_not_exist'] }),
      },
    },
    async ({ params: { instance_id }, principal }) =>
      wireInstance(existing(await store.instances.get(instance_id, principal.visibility), instance_id)),
  );

  app.patch(
    '/api/v1/instances/:instance_id/',
    {
      bodyLimit: LIST_BODY_BYTES_MAX,
      config: { access: ['instance'], audit: { action: 'instance.update', target: 'instance' } },
      schema: {
        operationId: 'updateInstance',
        tags: ['instances'],
        summary: 'Change an instance, or switch it on or off',
        description:
          'Only the fields that are given change. Switching it on lifts its back-off, and what waits for it is sent.',
        params: InstanceParams,
        body: PatchInstanceBody,
        response: responses({
          200: ['The instance.', InstanceSchema],
          codes: ['instance_does_not_exist'],
        }),
      },
    },
    async (request) => {
      const { params, body, principal } = request;
      const { instance_id } = params;
      if (body.owner_key_id !== undefined) assertHandOver(principal, body.owner_key_id, keyring);
      const { instances } = audit_trail.storeFor(request, handOver(body.owner_key_id));
      const patch = { ...body, webhook_headers: webhookHeaders(body.webhook_headers) };
      const row = existing(await instances.patch(instance_id, patch, clock.wall(), principal.owner_scope), instance_id);
      engine.instanceChanged(row, body.is_active === true || body.webhook_enabled === true);
      feed.publish(changedEvent(row, Object.keys(body), clock.wall()));
      return wireInstance(row);
    },
  );

  app.delete(
    '/api/v1/instances/:instance_id/',
    {
      config: { access: ['instance'], audit: { action: 'instance.delete', target: 'instance' } },
      schema: {
        operationId: 'deleteInstance',
        tags: ['instances'],
        summary: 'Delete an instance; what is pending for it is cancelled',
        description: 'It leaves every meeting. The history of the meetings stays.',
        params: InstanceParams,
        response: responses({ 204: ['Deleted.'], codes: ['instance_does_not_exist'] }),
      },
    },
    async (request, reply) => {
      const { params, principal } = request;
      const { instance_id } = params;
      const { instances } = audit_trail.storeFor(request);
      const existed = await removeInstance(
        { store, engine, feed, clock },
        instances,
        instance_id,
        principal.owner_scope,
      );
      if (!existed) throw instanceNotFound(instance_id);
      return reply.code(204).send();
    },
  );

  app.post(
    '/api/v1/instances/:instance_id/heartbeat/',
    {
      // A machine says so every minute.
      config: { access: ['instance'], audit: 'none' },
      schema: {
        operationId: 'heartbeat',
        tags: ['instances'],
        summary: 'Say that the machine is there; lifts its back-off',
        description:
          'Sets last_seen_at. What waits for the instance is sent at once instead of at the end of its back-off.',
        params: InstanceParams,
        response: responses({ 200: ['The instance.', InstanceSchema], codes: ['instance_does_not_exist'] }),
      },
    },
    async ({ params: { instance_id }, principal }) => {
      const row = existing(
        await store.instances.heartbeat(instance_id, clock.wall(), principal.owner_scope),
        instance_id,
      );
      engine.instanceChanged(row, true);
      return wireInstance(row);
    },
  );

  app.post(
    '/api/v1/instances/:instance_id/rotate-secret/',
    {
      config: { access: ['instance'], audit: { action: 'instance.rotate_secret', target: 'instance' } },
      // No body stands for an empty one: all of it is optional.
      preValidation: async (request) => {
        if (request.body === undefined) request.body = {};
      },
      schema: {
        operationId: 'rotateSecret',
        tags: ['instances'],
        summary: 'Make a new webhook secret; both sign until the overlap ends',
        description:
          'Until the overlap ends every push carries two signatures, so that a receiver that knows either secret accepts it.',
        params: InstanceParams,
        body: RotateSecretBody,
        response: responses({
          200: ['The new secret.', RotatedSecretSchema],
          codes: ['instance_does_not_exist'],
        }),
      },
    },
    async (request) => {
      const { params, body, principal } = request;
      const { instance_id } = params;
      const webhook_secret = makeSecret(randomBytes(SECRET_BYTES));
      const overlap_ms = (body.overlap_seconds ?? OVERLAP_S) * 1000;
      const { instances } = audit_trail.storeFor(request);
      const row = existing(
        await instances.rotateSecret(instance_id, webhook_secret, overlap_ms, clock.wall(), principal.owner_scope),
        instance_id,
      );
      engine.instanceChanged(row, false);
      feed.publish(changedEvent(row, ['webhook_secret'], clock.wall()));
      return { webhook_secret, previous_secret_expires_at: isoTime(row.previous_secret_until ?? 0) };
    },
  );

  app.post(
    '/api/v1/instances/:instance_id/recover/',
    {
      config: { access: ['instance'], audit: { action: 'instance.recover', target: 'instance' } },
      schema: {
        operationId: 'recover',
        tags: ['instances'],
        summary: 'Queue the failed deliveries of an instance again',
        description: 'Those that failed at or after `since`, with the webhook-id that they had.',
        params: InstanceParams,
        body: RecoverBody,
        response: responses({
          200: ['How many were queued.', RecoveredSchema],
          codes: ['instance_does_not_exist'],
        }),
      },
    },
    async (request) => {
      const { params, body, principal } = request;
      const { instance_id } = params;
      const now = clock.now();
      const since_ms = Date.parse(body.since);
      const recovered = existing(
        await audit_trail
          .storeFor(request)
          .deliveries.recover(instance_id, since_ms, now, now + parts.expire_after_ms, principal.owner_scope),
        instance_id,
      );
      engine.deliveryRetried({ instance_id, meeting_id: '', aside: true });
      const queued = { instance_id, meeting_id: null, delivery_id: null, deliveries: recovered.recovered };
      if (queued.deliveries > 0) feed.publish(queuedEvent(queued, clock.wall()));
      return recovered;
    },
  );

  app.post(
    '/api/v1/instances/webhook-test/',
    {
      config: { access: ['instance'], audit: { action: 'instance.webhook_test', target: 'instance' } },
      schema: {
        operationId: 'testWebhook',
        tags: ['instances'],
        summary: 'Push a sample message to an instance and say what came of it',
        description:
          'One signed push with the header convoke-test to the stored address. A push that fails is no error here: the diagnosis says what came of it, stage by stage.',
        body: WebhookTestBody,
        response: responses({
          200: ['The diagnosis, whatever came back.', DiagnosisSchema],
          codes: ['instance_does_not_exist'],
        }),
      },
    },
    async (request) => {
      const { body, principal } = request;
      const { owner_scope } = principal;
      const visibility = owner_scope === null ? null : { owner_scope, meeting_ids: [] };
      const row = existing(await store.instances.get(body.instance_id, visibility), body.instance_id);
      await audit_trail.done(request);
      return diagnose(transport, row, `test-${randomUUID()}`, clock.wall(), parts.user_agent);
    },
  );
}

function existing<Row>(row: Row | null, instance_id: string): Row {
  if (row === null) throw instanceNotFound(instance_id);
  return row;
}

function instanceNotFound(instance_id: string): Problem {
  return new Problem('instance_does_not_exist', `No instance ${JSON.stringify(instance_id)} is registered.`);
}

/** Handing an instance over is told from other changes, and to whom. */
function handOver(owner_key_id: string | null | undefined): Partial<AuditSubject> {
  return owner_key_id === undefined ? {} : { action: 'instance.hand_over', details: { owner_key_id } };
}

/** Who owns an instance is for admins to say. */
function assertHandOver({ owner_scope }: Principal, key_id: string | null, keyring: Keyring): void {
  if (owner_scope !== null) throw new Problem('not_permitted', 'Only an admin key may hand an instance over.');
  if (key_id === null || keyring.canOwn(key_id)) return;
  throw invalidField('owner_key_id', 'must be a key that can be used, with the scope instance or admin');
}

function assertUrlAllowed(webhook_url: string, policy: EgressPolicy): void {
  const parsed = parseWebhookUrl(webhook_url, policy);
  if (!isRefusal(parsed)) return;
  if (!parsed.policy_denied) throw invalidField('webhook_url', parsed.message);
  throw new Problem('webhook_url_not_allowed', `webhook_url ${parsed.message}`, {
    errors: [{ path: 'webhook_url', message: parsed.message }],
  });
}

/** Lower-case names, none of them ours. */
function webhookHeaders(headers: Record<string, string> | undefined): Record<string, string> | undefined {
  if (headers === undefined) return undefined;
  const lowered = new Map<string, string>();
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase();
    if (RESERVED_HEADERS.has(lower))
      throw invalidField(`webhook_headers.${name}`, 'is set by Convoke itself; leave it out');
    if (lowered.has(lower)) throw invalidField(`webhook_headers.${name}`, 'is there twice, in different letters');
    lowered.set(lower, value.trim());
  }
  return Object.fromEntries(lowered);
}
