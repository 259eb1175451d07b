import type { FastifyReply } from 'fastify';
import { randomBytes, randomUUID } from 'node:crypto';
import type { Changes } from '../../changes/changes.ts';
import type { Log } from '../../delivery/bounded_log.ts';
import type { Clock } from '../../delivery/clock.ts';
import { diagnose } from '../../delivery/transport/diagnosis.ts';
import { assertMayRegister, assertMeeting, type Principal, type Visibility } from '../../domain/access.ts';
import { assertAddressable, uniqueIds } from '../../domain/id.ts';
import type { TransportName } from '../../domain/instance.ts';
import { assertFieldsOpenToLinks } from '../../domain/portal_rights.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { makeSecret, signingKey } from '../../domain/signature.ts';
import { checkedRuntime, type RuntimeSettings, runtimeOf } from '../../domain/runtimes/runtimes.ts';
import type { EgressPolicy } from '../../domain/address.ts';
import type { ClusterStore } from '../../store/contract/cluster.ts';
import type { InstanceRow, InstanceStore } from '../../store/contract/instances.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import type { Keyring } from '../auth/keyring.ts';
import { readNoBodyAsEmpty } from '../intake/no_body.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { responses } from '../responses.ts';
import { LIST_BODY_BYTES_MAX } from '../schemas/fields.ts';
import {
  DiagnosisSchema,
  InstanceParams,
  InstanceSchema,
  ListInstancesQuery,
  PatchInstanceBody,
  RegisterBody,
  RegisteredInstanceSchema,
  RotateSecretBody,
  RotatedSecretSchema,
  WebhookTestBody,
} from '../schemas/instances.ts';
import { idPageOf } from '../schemas/page.ts';
import { SEARCH_MS_MAX, searchOn, wireSearched } from './searches.ts';
import type { TestPushes } from '../test_pushes.ts';
import { wireInstance, wireRotatedSecret } from '../wire.ts';
import { leaseOf } from './subscriptions.ts';
import { assertUrlAllowed, webhookHeaders } from './webhook_fields.ts';

const OVERLAP_S = 86_400;
const SECRET_BYTES = 32;
/** An upgrade of a node takes seconds. */
const RETRY_WHEN_UPGRADED_S = 10;

export interface InstanceContext {
  store: {
    instances: Pick<InstanceStore, 'list' | 'get' | 'find'>;
    cluster: Pick<ClusterStore, 'hasOlderNode'> | null;
  };
  changes: Pick<Changes, 'instances'>;
  test_pushes: TestPushes;
  clock: Clock;
  log: Log;
  keyring: Pick<Keyring, 'canOwn' | 'known'>;
  audit_trail: Pick<AuditTrail, 'authorOf'>;
  egress_policy: EgressPolicy;
  user_agent: string;
}

export function instanceRoutes(app: App, context: InstanceContext): void {
  app.post('/api/v1/instances/register/', REGISTER, (request, reply) => register(context, request, reply));
  app.get('/api/v1/instances/', LIST_INSTANCES, (request) => listInstances(context, request));
  app.get('/api/v1/instances/:instance_id/', GET_INSTANCE, (request) => getInstance(context, request));
  app.patch('/api/v1/instances/:instance_id/', UPDATE_INSTANCE, (request) => updateInstance(context, request));
  app.delete('/api/v1/instances/:instance_id/', DELETE_INSTANCE, (request, reply) =>
    deleteInstance(context, request, reply),
  );
  app.post('/api/v1/instances/:instance_id/heartbeat/', HEARTBEAT, (request) => heartbeat(context, request));
  app.post('/api/v1/instances/:instance_id/rotate-secret/', ROTATE_SECRET, (request) => rotateSecret(context, request));
  app.post('/api/v1/instances/webhook-test/', TEST_WEBHOOK, (request, reply) => testWebhook(context, request, reply));
}

const REGISTER = {
  bodyLimit: LIST_BODY_BYTES_MAX,
  config: {
    access: ['instance'],
    portal_link: 'A portal link registers no instance: its holder could read meetings at an address of their own.',
    limited: 'register',
    audit: { action: 'instance.register', target: 'instance' },
  },
  schema: {
    operationId: 'register',
    tags: ['instances'],
    summary: 'Register an instance, or update it',
    description:
      'Creates the instance, or overwrites its name, agents and URL when the id is known. Every registration switches it on and ends its back-off. webhook_headers that are left out stay as they are, unless webhook_url has another origin or transport changes: then they are dropped, because they may hold a credential for the old server, and dropped_header_names lists them.',
    body: RegisterBody,
    response: responses({
      201: ['The instance was created.', RegisteredInstanceSchema],
      200: ['The instance was updated.', RegisteredInstanceSchema],
      codes: ['webhook_url_not_allowed', 'instance_id_taken', 'quota_exceeded', 'callback_not_verified'],
    }),
  },
} satisfies RouteShape;

async function register(context: InstanceContext, request: RequestFor<typeof REGISTER>, reply: FastifyReply) {
  const { store, changes, log, audit_trail, egress_policy } = context;
  const { body, principal } = request;
  assertAddressable('instance_id', body.instance_id);
  assertMayRegister(principal, body.instance_id);
  const { transport = 'webhook', webhook_url = '' } = body;
  if (body.webhook_url !== undefined) assertUrlAllowed(webhook_url, transport, egress_policy);
  if (body.webhook_secret !== undefined) signingKey(body.webhook_secret);
  const runtime = checkedRuntime(body.runtime, body.runtime_options);
  assertShapedHere(runtime, transport);
  if (runtime !== null) await assertNodesKnowRuntimes(store.cluster);
  const lease = await leaseOf(context, body, request, reply.raw, runtime);
  const { created, instance, dropped_header_names } = await changes.instances.register(audit_trail.authorOf(request), {
    instance_id: body.instance_id,
    instance_name: body.instance_name,
    agent_ids: uniqueIds(body.agent_ids),
    transport,
    ack_timeout_s: body.ack_timeout_s,
    timeout_s: body.timeout_s ?? (runtime === null ? undefined : runtimeOf(runtime).timeout_s),
    runtime,
    ...lease,
    webhook_url,
    webhook_headers: webhookHeaders(body.webhook_headers),
    webhook_secret: body.webhook_secret,
    new_secret: makeSecret(randomBytes(SECRET_BYTES)),
    success_statuses: body.success_statuses,
    replies: body.replies ?? (runtime === null ? undefined : lease.lease_until === undefined),
  });
  if (dropped_header_names.length > 0) {
    const { instance_id } = body;
    log.warn(
      { instance_id, dropped_header_names },
      'webhook_headers were dropped: webhook_url has another origin, or transport changed',
    );
  }
  const secret_was_made = created && body.webhook_secret === undefined;
  return reply.code(created ? 201 : 200).send({
    ...wireInstance(instance, principal.visibility),
    ...(secret_was_made ? { webhook_secret: instance.webhook_secret } : {}),
    ...(dropped_header_names.length > 0 ? { dropped_header_names } : {}),
  });
}

const LIST_INSTANCES = {
  config: { access: ['read', 'instance'], portal_link: true },
  schema: {
    operationId: 'listInstances',
    tags: ['instances'],
    summary: 'List instances, in the order of their ids',
    description:
      'Those that match all filters. A key that is limited to instances or meetings finds only those. With q, is_active, paused or health the service has to read instances, and one request reads a limited number. When it stops at that limit, `searched_to` says how far it came, and next_cursor continues there.',
    querystring: ListInstancesQuery,
    response: responses({ 200: ['A page of instances.', idPageOf(InstanceSchema)], codes: [] }),
  },
} satisfies RouteShape;

async function listInstances(
  { store, clock }: InstanceContext,
  { query, principal }: RequestFor<typeof LIST_INSTANCES>,
) {
  const { limit = 50, cursor, ...filter } = query;
  if (filter.meeting_id !== undefined) assertMeeting(principal, filter.meeting_id);
  const found = await searchOn<InstanceRow, string>(
    { limit, cursor },
    { clock, ms_max: SEARCH_MS_MAX },
    ({ agent_ids }) => JSON.stringify(agent_ids).length,
    (page, reads) => store.instances.list({ ...filter, ...page }, principal.visibility, reads),
  );
  return { data: found.data.map((row) => wireInstance(row, principal.visibility)), ...wireSearched(found) };
}

const GET_INSTANCE = {
  config: { access: ['read', 'instance'], portal_link: true },
  schema: {
    operationId: 'getInstance',
    tags: ['instances'],
    summary: 'One instance',
    description: 'With its health, its last failure, and the number of its pending deliveries.',
    params: InstanceParams,
    response: responses({ 200: ['The instance.', InstanceSchema], codes: ['instance_does_not_exist'] }),
  },
} satisfies RouteShape;

async function getInstance(
  { store }: InstanceContext,
  { params: { instance_id }, principal }: RequestFor<typeof GET_INSTANCE>,
) {
  const { visibility } = principal;
  return wireInstance(existing(await store.instances.get(instance_id, visibility), instance_id), visibility);
}

const UPDATE_INSTANCE = {
  bodyLimit: LIST_BODY_BYTES_MAX,
  config: { access: ['instance'], portal_link: true, audit: { action: 'instance.update', target: 'instance' } },
  schema: {
    operationId: 'updateInstance',
    tags: ['instances'],
    summary: 'Change an instance, or switch it on or off',
    description:
      'Only the fields that are given change. Switching it on ends its back-off, and its pending deliveries are sent. With another webhook_url they go to that URL, and the health begins again. If the origin is another one, webhook_headers are dropped unless they are given again. The agents in its meetings stay as they are.',
    params: InstanceParams,
    body: PatchInstanceBody,
    response: responses({
      200: ['The instance.', InstanceSchema],
      codes: ['instance_does_not_exist', 'webhook_url_not_allowed'],
    }),
  },
} satisfies RouteShape;

async function updateInstance(
  { store, changes, keyring, audit_trail, egress_policy }: InstanceContext,
  request: RequestFor<typeof UPDATE_INSTANCE>,
) {
  const { params, body, principal } = request;
  const { instance_id } = params;
  assertFieldsOpenToLinks(principal, Object.keys(body));
  if (body.owner_key_id !== undefined) assertHandOver(principal, body.owner_key_id, keyring);
  if (body.webhook_url !== undefined) {
    const { transport } = existing(await store.instances.find(instance_id, ownedBy(principal)), instance_id);
    assertUrlAllowed(body.webhook_url, transport, egress_policy);
  }
  const patch = {
    ...body,
    agent_ids: body.agent_ids && uniqueIds(body.agent_ids),
    webhook_headers: webhookHeaders(body.webhook_headers),
  };
  const author = audit_trail.authorOf(request);
  const row = existing(await changes.instances.update(author, instance_id, patch), instance_id);
  return wireInstance(row, principal.visibility);
}

const DELETE_INSTANCE = {
  config: {
    access: ['instance'],
    portal_link: 'A portal link deletes no instance: no one can undo that, and others could then register the id.',
    audit: { action: 'instance.delete', target: 'instance' },
  },
  schema: {
    operationId: 'deleteInstance',
    tags: ['instances'],
    summary: 'Delete an instance and cancel its pending deliveries',
    description: 'It leaves every meeting. The history of the meetings stays.',
    params: InstanceParams,
    response: responses({ 204: ['Deleted.'], codes: ['instance_does_not_exist'] }),
  },
} satisfies RouteShape;

async function deleteInstance(
  { changes, audit_trail }: InstanceContext,
  request: RequestFor<typeof DELETE_INSTANCE>,
  reply: FastifyReply,
) {
  const { instance_id } = request.params;
  const existed = await changes.instances.remove(audit_trail.authorOf(request), instance_id);
  if (!existed) throw instanceNotFound(instance_id);
  return reply.code(204).send();
}

const HEARTBEAT = {
  // No audit entry: every instance sends one heartbeat a minute.
  config: { access: ['instance'], portal_link: true, audit: 'none' },
  schema: {
    operationId: 'heartbeat',
    tags: ['instances'],
    summary: 'Report that the instance is alive; ends its back-off',
    description:
      'Sets last_seen_at. Pending deliveries of the instance are sent at once instead of at the end of its back-off.',
    params: InstanceParams,
    response: responses({ 200: ['The instance.', InstanceSchema], codes: ['instance_does_not_exist'] }),
  },
} satisfies RouteShape;

async function heartbeat({ changes, audit_trail }: InstanceContext, request: RequestFor<typeof HEARTBEAT>) {
  const { instance_id } = request.params;
  const row = await changes.instances.heartbeat(audit_trail.authorOf(request), instance_id);
  return wireInstance(existing(row, instance_id), request.principal.visibility);
}

const ROTATE_SECRET = {
  config: {
    access: ['instance'],
    portal_link: 'A portal link rotates no secret: with the new one its holder could sign pushes to the machine.',
    audit: { action: 'instance.rotate_secret', target: 'instance' },
  },
  preValidation: readNoBodyAsEmpty,
  schema: {
    operationId: 'rotateSecret',
    tags: ['instances'],
    summary: 'Make a new webhook secret; until the overlap ends, both sign',
    description:
      'Until the overlap ends every push has two signatures, so that a receiver with either secret accepts it. Earlier overlaps go on.',
    params: InstanceParams,
    body: RotateSecretBody,
    response: responses({
      200: ['The new secret.', RotatedSecretSchema],
      codes: ['instance_does_not_exist', 'overlaps_in_progress'],
    }),
  },
} satisfies RouteShape;

async function rotateSecret({ changes, audit_trail }: InstanceContext, request: RequestFor<typeof ROTATE_SECRET>) {
  const { params, body } = request;
  const { instance_id } = params;
  const webhook_secret = makeSecret(randomBytes(SECRET_BYTES));
  const overlap_ms = (body.overlap_seconds ?? OVERLAP_S) * 1000;
  const author = audit_trail.authorOf(request);
  const row = existing(
    await changes.instances.rotateSecret(author, instance_id, webhook_secret, overlap_ms),
    instance_id,
  );
  return wireRotatedSecret(row);
}

const TEST_WEBHOOK = {
  config: { access: ['instance'], portal_link: true, audit: { action: 'instance.webhook_test', target: 'instance' } },
  schema: {
    operationId: 'testWebhook',
    tags: ['instances'],
    summary: 'Push a sample message to an instance and report the result',
    description:
      'Makes one signed push with the header convoke-test to the stored address. A failed push is no error of this call: the diagnosis has the result of each stage.',
    body: WebhookTestBody,
    response: responses({
      200: ['The diagnosis, whether the push succeeded or not.', DiagnosisSchema],
      codes: ['instance_does_not_exist'],
    }),
  },
} satisfies RouteShape;

async function testWebhook(
  { store, test_pushes, clock, audit_trail, user_agent }: InstanceContext,
  request: RequestFor<typeof TEST_WEBHOOK>,
  reply: FastifyReply,
) {
  const { body, principal } = request;
  const row = existing(await store.instances.find(body.instance_id, ownedBy(principal)), body.instance_id);
  if (row.transport !== 'webhook') throw invalidField('instance_id', 'pulls: there is no webhook to test');
  const author = audit_trail.authorOf(request);
  const diagnosis = await test_pushes.make({ ...body, key_id: principal.key_id }, reply.raw, async (transport) => {
    await author.record();
    return diagnose(transport, row, `test-${randomUUID()}`, clock.wall(), user_agent);
  });
  // The machine may take half a minute. Its response is not for a key that was revoked meanwhile.
  author.assertStanding();
  return diagnosis;
}

/** The visibility of a principal, limited to the instances that the principal may change. */
function ownedBy({ owner_scope }: Principal): Visibility | null {
  return owner_scope === null ? null : { owner_scope, meeting_ids: [] };
}

/** @throws Problem `instance_does_not_exist` when there is no row */
export function existing<Row>(row: Row | null, instance_id: string): Row {
  if (row === null) throw instanceNotFound(instance_id);
  return row;
}

function instanceNotFound(instance_id: string): Problem {
  return new Problem('instance_does_not_exist', `No instance ${JSON.stringify(instance_id)} is registered.`);
}

/** Only admins decide who owns an instance. */
function assertHandOver({ owner_scope }: Principal, key_id: string | null, keyring: InstanceContext['keyring']): void {
  if (owner_scope !== null)
    throw new Problem('not_permitted', 'Only an admin key may change the owner of an instance.');
  if (key_id === null || keyring.canOwn(key_id)) return;
  throw invalidField('owner_key_id', 'must be a key that can be used, with the scope instance or admin');
}

/**
 * Refuses a runtime for a machine that pulls: that machine shapes its pushes itself (`convoke connect --runtime`), and
 * keeps its credentials.
 */
function assertShapedHere(runtime: RuntimeSettings | null, transport: TransportName): void {
  if (runtime === null || transport === 'webhook') return;
  throw invalidField('runtime', 'is for a webhook; `convoke connect --runtime` shapes pushes on the machine itself');
}

/**
 * Refuses a runtime while a node of the previous version runs: that node may deliver to the instance, and knows no
 * runtimes.
 */
async function assertNodesKnowRuntimes(cluster: Pick<ClusterStore, 'hasOlderNode'> | null): Promise<void> {
  if (cluster === null || !(await cluster.hasOlderNode())) return;
  throw new Problem(
    'overloaded',
    'A node of the previous version still runs, and knows no runtimes: register the instance again when all nodes run this version.',
    { retry_after_s: RETRY_WHEN_UPGRADED_S },
  );
}
