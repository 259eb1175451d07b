import type { Changes } from '../../changes/changes.ts';
import type { Clock } from '../../delivery/clock.ts';
import { assertMeeting, assertScope } from '../../domain/access.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import type { DeliveryRow, DeliveryStore } from '../../store/contract/deliveries.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import {
  DeliveryPageSchema,
  DeliveryParams,
  DeliveryWithAttemptsSchema,
  DropDeliveriesBody,
  DroppedSchema,
  ListDeliveriesQuery,
} from '../schemas/deliveries.ts';
import { wireDelivery, wireDeliveryWithAttempts } from '../wire.ts';
import { LIST_MS_MAX, SEARCH_MS_MAX, searchOn, wireSearched } from './searches.ts';

export interface DeliveryContext {
  store: { deliveries: Pick<DeliveryStore, 'search' | 'get'> };
  changes: Pick<Changes, 'deliveries'>;
  clock: Clock;
  audit_trail: Pick<AuditTrail, 'authorOf'>;
}

export function deliveryRoutes(app: App, context: DeliveryContext): void {
  app.get('/api/v1/deliveries/', LIST_DELIVERIES, (request) => listDeliveries(context, request));
  app.get('/api/v1/deliveries/:delivery_id/', GET_DELIVERY, (request) => getDelivery(context, request));
  app.post('/api/v1/deliveries/drop/', DROP_DELIVERIES, (request) => dropDeliveries(context, request));
  app.post('/api/v1/deliveries/:delivery_id/retry/', RETRY_DELIVERY, (request) => retryDelivery(context, request));
}

const LIST_DELIVERIES = {
  config: { access: ['read', 'instance'], portal_link: true },
  schema: {
    operationId: 'listDeliveries',
    tags: ['deliveries'],
    summary: 'List deliveries, newest first',
    description:
      'The deliveries of messages to instances. Settled ones are removed when their retention ends. With one of instance_id, meeting_id and message_id the service finds them at once. In three cases it has to read deliveries, newest first: with two of these, for a key with limits, and with the other filters. One request reads a limited number. When it stops at that limit, `searched_to` says how far it came, and next_cursor continues there. `text` needs the scope read.',
    querystring: ListDeliveriesQuery,
    response: responses({ 200: ['A page of deliveries.', DeliveryPageSchema], codes: [] }),
  },
} satisfies RouteShape;

async function listDeliveries(
  { store, clock }: DeliveryContext,
  { query, principal }: RequestFor<typeof LIST_DELIVERIES>,
) {
  const { meeting_id, instance_id, message_id, after_seq, before_seq, limit = 50, cursor, ...search } = query;
  if (meeting_id !== undefined) assertMeeting(principal, meeting_id);
  else if (after_seq !== undefined) throw invalidField('after_seq', 'needs meeting_id: each meeting counts its own');
  else if (before_seq !== undefined) throw invalidField('before_seq', 'needs meeting_id: each meeting counts its own');
  const keys = { meeting_id, instance_id, message_id, after_seq, before_seq };
  const { since, until, ...parts } = search;
  let { visibility } = principal;
  if (parts.text !== undefined) {
    assertScope(principal, ['read']);
    // A key that may not read messages must not find out their texts by searching.
    visibility &&= { ...visibility, owner_scope: null };
  }
  const wanted = {
    ...keys,
    ...parts,
    since_ms: since === undefined ? undefined : Date.parse(since),
    until_ms: until === undefined ? undefined : Date.parse(until),
  };
  const found = await searchOn<DeliveryRow>(
    { limit, cursor },
    { clock, ms_max: Object.keys(search).length === 0 ? LIST_MS_MAX : SEARCH_MS_MAX },
    ({ target_agents, attempts }) => JSON.stringify([target_agents, attempts]).length,
    (page, reads) => store.deliveries.search({ ...wanted, ...page }, reads, clock.now(), visibility),
  );
  return { data: found.data.map(wireDelivery), ...wireSearched(found) };
}

const GET_DELIVERY = {
  config: { access: ['read', 'instance'], portal_link: true },
  schema: {
    operationId: 'getDelivery',
    tags: ['deliveries'],
    summary: 'One delivery with every attempt',
    description: 'The response to each attempt, the time of the next one, and why the delivery waits.',
    params: DeliveryParams,
    response: responses({
      200: ['The delivery.', DeliveryWithAttemptsSchema],
      codes: ['delivery_does_not_exist'],
    }),
  },
} satisfies RouteShape;

async function getDelivery(
  { store, clock }: DeliveryContext,
  { params: { delivery_id }, principal }: RequestFor<typeof GET_DELIVERY>,
) {
  const row = await store.deliveries.get(delivery_id, clock.now(), principal.visibility);
  if (row === null) throw deliveryNotFound(delivery_id);
  return wireDeliveryWithAttempts(row);
}

const RETRY_DELIVERY = {
  config: { access: ['instance'], portal_link: true, audit: { action: 'delivery.retry', target: 'delivery' } },
  schema: {
    operationId: 'retryDelivery',
    tags: ['deliveries'],
    summary: 'Queue a delivery again at once, with the same webhook-id',
    description:
      'For a delivery that failed, for a cancelled one whose instance was not deleted, and for a pending one that would be tried later. A receiver that has handled it recognizes the webhook-id and skips it.',
    params: DeliveryParams,
    response: responses({
      200: ['The delivery, pending.', DeliveryWithAttemptsSchema],
      codes: ['delivery_does_not_exist', 'delivery_not_retryable'],
    }),
  },
} satisfies RouteShape;

async function retryDelivery({ changes, audit_trail }: DeliveryContext, request: RequestFor<typeof RETRY_DELIVERY>) {
  const { delivery_id } = request.params;
  const row = await changes.deliveries.retry(audit_trail.authorOf(request), delivery_id);
  if (row === null) throw deliveryNotFound(delivery_id);
  return wireDeliveryWithAttempts(row);
}

const DROP_DELIVERIES = {
  config: {
    access: ['instance'],
    portal_link: 'A portal link drops no deliveries: the machine would not get them in their order any more.',
    audit: { action: 'delivery.drop', target: 'instance' },
  },
  schema: {
    operationId: 'dropDeliveries',
    tags: ['deliveries'],
    summary: 'Cancel the waiting deliveries of an instance, or in a meeting',
    description:
      'Cancels pending deliveries, with the reason `dropped`; they stay on record. With `dry_run` it only counts them. Messages that are sent meanwhile keep their deliveries, and a push that is in flight may still arrive. A key without the scope admin drops only the deliveries of its own instances. When `done` is false, call it again with the `up_to` of the response.',
    body: DropDeliveriesBody,
    response: responses({ 200: ['How many were dropped, or would be.', DroppedSchema], codes: [] }),
  },
} satisfies RouteShape;

async function dropDeliveries({ changes, audit_trail }: DeliveryContext, request: RequestFor<typeof DROP_DELIVERIES>) {
  const { principal, body } = request;
  const { instance_id, meeting_id, up_to, dry_run = false } = body;
  if (instance_id === undefined && meeting_id === undefined)
    throw invalidField('instance_id', 'must be given, or meeting_id, or both');
  if (meeting_id !== undefined) assertMeeting(principal, meeting_id);
  const of = { ...(instance_id !== undefined && { instance_id }), ...(meeting_id !== undefined && { meeting_id }) };
  const author = audit_trail.authorOf(request);
  if (dry_run) return { ...(await changes.deliveries.countWaiting(author, of, up_to)), dry_run, done: true };
  return { ...(await changes.deliveries.drop(author, of, up_to)), dry_run };
}

export function deliveryNotFound(delivery_id: string): Problem {
  return new Problem(
    'delivery_does_not_exist',
    `There is no delivery ${JSON.stringify(delivery_id)}; settled ones are removed after a while.`,
  );
}
